//! What a scrape asks for: text or protobuf, all families or some of them.

use crate::{Page, protobuf};

/// What a scraper accepts and wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrape {
    protobuf: bool,
    escaping: Escaping,
    /// The families that were named; all of them if none was.
    names: Vec<String>,
}

/// How names that the format cannot hold are to be written. Names here never are such, so that it is only said back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escaping {
    AllowUtf8,
    Underscores,
    Dots,
    Values,
}

const TEXT: [&str; 4] = [
    "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8",
    "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
    "text/plain; version=0.0.4; charset=utf-8; escaping=dots",
    "text/plain; version=0.0.4; charset=utf-8; escaping=values",
];
const PROTOBUF: [&str; 4] = [
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=allow-utf-8",
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=underscores",
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=dots",
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=values",
];

impl Scrape {
    /// From the header `Accept` and the families that the query names. OpenMetrics is not offered, as upstream does not.
    pub fn new(accept: &str, names: impl IntoIterator<Item = String>) -> Self {
        let mut escaping = Escaping::Underscores;
        let mut wanted = None;
        for clause in clauses(accept) {
            let parameter = |name: &str| clause.parameters.iter().rev().find(|(key, _)| *key == name).map(|(_, v)| *v);
            match parameter("escaping") {
                Some("allow-utf-8") => escaping = Escaping::AllowUtf8,
                Some("underscores") => escaping = Escaping::Underscores,
                Some("dots") => escaping = Escaping::Dots,
                Some("values") => escaping = Escaping::Values,
                _ => {}
            }
            let of_families = parameter("proto") == Some("io.prometheus.client.MetricFamily");
            wanted = match clause.media {
                "application/vnd.google.protobuf" if of_families && parameter("encoding") == Some("delimited") => {
                    Some(true)
                }
                "text/plain" if matches!(parameter("version"), None | Some("" | "0.0.4")) => Some(false),
                _ => continue,
            };
            break;
        }
        Self { protobuf: wanted == Some(true), escaping, names: names.into_iter().collect() }
    }

    /// A page for this scrape, without any families.
    pub fn page(&self) -> Page {
        if self.protobuf { Page::with_native() } else { Page::new() }
    }

    /// The media type and the body of the answer.
    pub fn answer(&self, page: Page) -> (&'static str, Vec<u8>) {
        let (text, native) = page.into_parts();
        let text = if self.names.is_empty() { text } else { only(&text, &self.names) };
        let escaping = self.escaping as usize;
        if self.protobuf {
            (PROTOBUF[escaping], protobuf::encode(&text, &native))
        } else {
            (TEXT[escaping], text.into_bytes())
        }
    }
}

struct Clause<'a> {
    media: &'a str,
    weight: f64,
    parameters: Vec<(&'a str, &'a str)>,
}

/// What is accepted, the dearest first.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept.split(',').map(clause).collect();
    clauses.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    clauses
}

fn clause(text: &str) -> Clause<'_> {
    let mut parts = text.split(';').map(str::trim);
    let mut clause = Clause { media: parts.next().unwrap_or_default(), weight: 1.0, parameters: Vec::new() };
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key.trim() {
            "q" => clause.weight = value.trim().parse().unwrap_or(0.0),
            key => clause.parameters.push((key, value.trim())),
        }
    }
    clause
}

/// The families of these names.
fn only(text: &str, names: &[String]) -> String {
    let mut wanted = false;
    let mut kept = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let name = rest.split(' ').next().unwrap_or_default();
            wanted = names.iter().any(|known| known == name);
        }
        if wanted {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn what_is_accepted_decides() {
        let families = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily";
        let prometheus = format!(
            "{families};encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
        );
        for (accept, want) in [
            ("", TEXT[1]),
            ("*/*", TEXT[1]),
            ("application/json", TEXT[1]),
            ("application/vnd.google.protobuf", TEXT[1]),
            ("application/openmetrics-text; version=1.0.0", TEXT[1]),
            ("text/plain; version=1.0.0", TEXT[1]),
            ("text/plain; escaping=dots", TEXT[2]),
            ("text/plain; escaping=other", TEXT[1]),
            (&format!("{families};encoding=delimited"), PROTOBUF[1]),
            (&format!("{families}; encoding=delimited; escaping=allow-utf-8"), PROTOBUF[0]),
            (&format!("{families};encoding=delimited;q=0.4,text/plain;q=0.5"), TEXT[1]),
            (&format!("{families};encoding=text, {families};encoding=delimited"), PROTOBUF[1]),
            (&prometheus, PROTOBUF[1]),
        ] {
            let scrape = Scrape::new(accept, []);
            assert_eq!(scrape.answer(scrape.page()).0, want, "{accept}");
        }
    }

    #[test]
    fn families_may_be_named() {
        let scrape = Scrape::new("", ["b".to_owned(), "absent".to_owned()]);
        let mut page = scrape.page();
        page.family("a", Kind::Gauge, "One.").sample("", 1);
        page.family("b", Kind::Gauge, "Two.").sample("", 2);
        let (_, body) = scrape.answer(page);
        assert_eq!(String::from_utf8_lossy(&body), "# HELP b Two.\n# TYPE b gauge\nb 2\n");
    }
}
