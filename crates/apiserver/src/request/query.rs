//! Query parameters: repeated keys, escapes, and upstream's idea of a boolean.

use ferry_meta::ApiError;

/// The pairs of a query in their order. Pairs with broken escapes are dropped, as upstream does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|p| !p.is_empty() && !p.contains(';'))
            .filter(|p| well_escaped(p))
            .map(|p| {
                let (key, value) = p.split_once('=').unwrap_or((p, ""));
                (decode(key, true), decode(value, true))
            })
            .collect();
        Self { pairs }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.pairs.iter().any(|(k, _)| k == key)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Anything but "0" and "false" is true, the empty value too.
    pub(crate) fn maybe_flag(&self, key: &str) -> Option<bool> {
        self.get(key).map(|v| v != "0" && !v.eq_ignore_ascii_case("false"))
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.maybe_flag(key).unwrap_or(false)
    }

    pub(crate) fn integer(&self, key: &str) -> Result<Option<i64>, ApiError> {
        match self.get(key) {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|e: std::num::ParseIntError| {
                let why = match e.kind() {
                    std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
            }),
        }
    }
}

fn well_escaped(text: &str) -> bool {
    let b = text.as_bytes();
    let mut i = 0;
    while i < b.len() {
        if b[i] == b'%' {
            if i + 2 >= b.len() || !b[i + 1].is_ascii_hexdigit() || !b[i + 2].is_ascii_hexdigit() {
                return false;
            }
            i += 2;
        }
        i += 1;
    }
    true
}

/// Undoes `%xx` (and in queries `+`). Bytes that are no UTF-8 become replacement characters.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> String {
    let b = text.as_bytes();
    let mut out = Vec::with_capacity(b.len());
    let mut i = 0;
    while i < b.len() {
        let hex = |at: usize| b.get(at).and_then(|c| (*c as char).to_digit(16));
        match (b[i], hex(i + 1), hex(i + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                i += 3;
                continue;
            }
            (b'+', ..) if plus_is_space => out.push(b' '),
            (c, ..) => out.push(c),
        }
        i += 1;
    }
    String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_read_as_upstream() {
        let query = Query::parse("a=1&b&c=0&d=false&e=x+y%2Cz&bad=%zz&dryRun=All&dryRun=B");
        assert!(query.flag("a") && query.flag("b") && !query.flag("c") && !query.flag("d") && !query.flag("none"));
        assert_eq!(query.get("e"), Some("x y,z"));
        assert!(!query.has("bad"));
        assert_eq!(query.all("dryRun").collect::<Vec<_>>(), ["All", "B"]);
        assert!(query.integer("e").is_err());
    }
}
