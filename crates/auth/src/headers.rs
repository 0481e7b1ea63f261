//! Headers that say who is meant. One that cannot be read is an error of the whole request: to pass over it would let
//! the request through as somebody else.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

/// A header that is there and says nothing that can be understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unreadable(HeaderName);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the header {} cannot be read: it is not valid UTF-8", self.0)
    }
}

fn text(name: &HeaderName, value: &HeaderValue) -> Result<String, Unreadable> {
    String::from_utf8(value.as_bytes().to_vec()).map_err(|_| Unreadable(name.clone()))
}

/// The first value of a header; empty where there is none.
pub(crate) fn first(headers: &HeaderMap, name: &HeaderName) -> Result<String, Unreadable> {
    headers.get(name).map_or(Ok(String::new()), |value| text(name, value))
}

/// All values of a header.
pub(crate) fn all(headers: &HeaderMap, name: &HeaderName) -> Result<Vec<String>, Unreadable> {
    headers.get_all(name).iter().map(|value| text(name, value)).collect()
}

/// Keys of extras may hold what a header's name may not, with percent signs. One that is badly encoded stays as it is.
pub(crate) fn key_of(name: &HeaderName, prefix: &str) -> Option<Result<String, Unreadable>> {
    let encoded = name.as_str().strip_prefix(prefix)?;
    let Some(bytes) = unescape(encoded) else { return Some(Ok(encoded.to_owned())) };
    Some(String::from_utf8(bytes).map_err(|_| Unreadable(name.clone())))
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        let (decoded, next) = match (byte, after) {
            (b'%', [high, low, next @ ..]) => (hex(*high)? << 4 | hex(*low)?, next),
            (b'%', _) => return None,
            (byte, next) => (*byte, next),
        };
        out.push(decoded);
        rest = next;
    }
    Some(out)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_as_a_whole_or_not_at_all() {
        for (name, want) in [
            ("extra-a", Some("a")),
            ("extra-acme.com%2fproject", Some("acme.com/project")),
            ("extra-%C3%B6", Some("ö")),
            ("extra-%2fa%2", Some("%2fa%2")),
            ("extra-%zz%2f", Some("%zz%2f")),
            ("extra-%+1", Some("%+1")),
            ("extra-%ff", None),
        ] {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            let got = key_of(&name, "extra-").expect("the prefix");
            assert_eq!(got.as_deref().ok(), want, "{name}");
        }
        assert!(key_of(&HeaderName::from_static("other"), "extra-").is_none());
    }
}
