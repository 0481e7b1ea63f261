//! Metrics in the formats of Prometheus: the one place that writes them.
//!
//! A [`Page`] is made of families; each has a name, a type, a help text and its samples. Labels come as a text that
//! [`labels`] made, so that a busy counter can keep it. A [`Scrape`] knows in which format the page is wanted. Depends on
//! nothing.

mod native;
mod protobuf;
mod scrape;

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

pub use native::{NativeBuckets, NativeHistogram};
pub use scrape::Scrape;

/// What a family's samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Labels as they stand between the braces: `verb="get",code="200"`. Values may hold anything.
pub fn labels<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
    text
}

/// What is served at `/metrics`, under construction.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    /// By name and labels, as the lines of a sample begin; kept where the format has them.
    native: Option<BTreeMap<String, NativeBuckets>>,
}

impl Page {
    pub fn new() -> Self {
        Self::default()
    }

    fn with_native() -> Self {
        Self { text: String::new(), native: Some(BTreeMap::new()) }
    }

    /// Begins a family: all of its samples have to follow before the next one begins.
    pub fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {}", kind.as_str());
        Family { text: &mut self.text, native: &mut self.native, name }
    }

    /// Families that somebody else wrote.
    pub fn append(&mut self, text: &str) {
        self.text.push_str(text);
    }

    pub fn into_text(self) -> String {
        self.text
    }

    fn into_parts(self) -> (String, BTreeMap<String, NativeBuckets>) {
        (self.text, self.native.unwrap_or_default())
    }
}

/// One family of a page.
pub struct Family<'a> {
    text: &'a mut String,
    native: &'a mut Option<BTreeMap<String, NativeBuckets>>,
    name: &'a str,
}

impl Family<'_> {
    pub fn sample(&mut self, labels: &str, value: impl Display) -> &mut Self {
        self.line("", labels, value)
    }

    /// A sample that was taken at a time, in milliseconds since 1970.
    pub fn sample_at(&mut self, labels: &str, value: impl Display, millis: i64) -> &mut Self {
        self.line("", labels, format_args!("{value} {millis}"))
    }

    /// A histogram: how many values lay in each bucket, by its upper bound; what lay above all of them is in `count` alone.
    pub fn histogram<B: Display>(
        &mut self,
        labels: &str,
        buckets: impl IntoIterator<Item = (B, u64)>,
        sum: impl Display,
        count: u64,
    ) -> &mut Self {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, values) in buckets {
            below += values;
            self.line("_bucket", &format!("{labels}{comma}le=\"{bound}\""), below);
        }
        self.line("_bucket", &format!("{labels}{comma}le=\"+Inf\""), count);
        self.line("_sum", labels, sum).line("_count", labels, count)
    }

    /// The native buckets of the histogram with these labels, where the format has them.
    pub fn native(&mut self, labels: &str, histogram: &NativeHistogram) -> &mut Self {
        if let Some(native) = self.native {
            native.insert(format!("{}{{{labels}}}", self.name), histogram.buckets());
        }
        self
    }

    fn line(&mut self, suffix: &str, labels: &str, value: impl Display) -> &mut Self {
        let name = self.name;
        let _ = match labels {
            "" => writeln!(self.text, "{name}{suffix} {value}"),
            _ => writeln!(self.text, "{name}{suffix}{{{labels}}} {value}"),
        };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_as_prometheus_wants_it() {
        let mut page = Page::new();
        page.family("a_total", Kind::Counter, "How many.\nOf all.").sample("", 3).sample("code=\"200\"", 2);
        page.family("b", Kind::Gauge, "How much.").sample_at("x=\"y\"", 1.5, 1700);
        page.family("c_seconds", Kind::Histogram, "How long.")
            .histogram("v=\"get\"", [("0.1", 2), ("1", 3)], 4.5, 6)
            .histogram("", [(0.5, 0)], 0, 0);
        page.append("other 1\n");
        let expected = "\
# HELP a_total How many.\\nOf all.
# TYPE a_total counter
a_total 3
a_total{code=\"200\"} 2
# HELP b How much.
# TYPE b gauge
b{x=\"y\"} 1.5 1700
# HELP c_seconds How long.
# TYPE c_seconds histogram
c_seconds_bucket{v=\"get\",le=\"0.1\"} 2
c_seconds_bucket{v=\"get\",le=\"1\"} 5
c_seconds_bucket{v=\"get\",le=\"+Inf\"} 6
c_seconds_sum{v=\"get\"} 4.5
c_seconds_count{v=\"get\"} 6
c_seconds_bucket{le=\"0.5\"} 0
c_seconds_bucket{le=\"+Inf\"} 0
c_seconds_sum 0
c_seconds_count 0
other 1
";
        assert_eq!(page.into_text(), expected);
    }

    #[test]
    fn values_of_labels_may_hold_anything() {
        assert_eq!(labels([]), "");
        assert_eq!(labels([("a", "b"), ("c", "")]), "a=\"b\",c=\"\"");
        // Three characters are escaped, and no other: a tab or a letter of another script stands for itself.
        assert_eq!(labels([("a", "x\"y\\z\nw\tü")]), "a=\"x\\\"y\\\\z\\nw\tü\"");
    }
}
