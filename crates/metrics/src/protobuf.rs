//! A page as protobuf: `io.prometheus.client.MetricFamily` messages, each behind its length.
//!
//! The text is read back, so that what other components wrote as text is there too. Only native histograms, of which the text
//! knows nothing, come from beside it.

use std::collections::BTreeMap;

use crate::native::NativeBuckets;

/// Values up to this one count as zero. No value of a duration is that small.
const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

/// A sample as its line has it.
struct Sample<'a> {
    labels: Vec<(&'a str, String)>,
    value: f64,
    millis: Option<i64>,
}

#[derive(Default)]
struct Metric<'a> {
    /// Without `le`, by which the samples of one histogram are found.
    labels: Vec<(&'a str, String)>,
    /// The sum of a histogram.
    value: f64,
    millis: Option<i64>,
    buckets: Vec<(f64, u64)>,
    count: u64,
}

struct Family<'a> {
    name: &'a str,
    help: String,
    kind: Option<&'a str>,
    metrics: Vec<Metric<'a>>,
}

/// `native` is by name and labels, as a sample's line begins.
pub(crate) fn encode(text: &str, native: &BTreeMap<String, NativeBuckets>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for family in families(text).iter().filter(|family| !family.metrics.is_empty()) {
        let message = message_of(family, native);
        varint(message.len() as u64, &mut out);
        out.extend(message);
    }
    out
}

fn families(text: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").map(|rest| rest.split_once(' ').unwrap_or((rest, "")))
        {
            family(&mut families, name).help = unescaped(help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            family(&mut families, name).kind = Some(kind.trim());
        } else if !line.starts_with('#')
            && let Some((name, sample)) = sample(line)
        {
            match families.last_mut().filter(|last| last.is_histogram_of(name)) {
                Some(histogram) => histogram.add_to_histogram(name, sample),
                None => family(&mut families, name).add(sample),
            }
        }
    }
    families
}

/// The last family, or a new one if that has another name.
fn family<'f, 'a>(families: &'f mut Vec<Family<'a>>, name: &'a str) -> &'f mut Family<'a> {
    if families.last().is_none_or(|last| last.name != name) {
        families.push(Family { name, help: String::new(), kind: None, metrics: Vec::new() });
    }
    let last = families.len() - 1;
    &mut families[last]
}

impl<'a> Family<'a> {
    fn is_histogram_of(&self, sample: &str) -> bool {
        let suffix = sample.strip_prefix(self.name);
        self.kind == Some("histogram") && suffix.is_some_and(|s| matches!(s, "_bucket" | "_sum" | "_count"))
    }

    fn add(&mut self, Sample { labels, value, millis }: Sample<'a>) {
        self.metrics.push(Metric { labels, value, millis, ..Metric::default() });
    }

    fn add_to_histogram(&mut self, name: &str, mut sample: Sample<'a>) {
        let bound = sample.labels.iter().position(|(key, _)| *key == "le").map(|at| sample.labels.remove(at).1);
        if self.metrics.last().is_none_or(|last| last.labels != sample.labels) {
            self.metrics.push(Metric { labels: sample.labels, millis: sample.millis, ..Metric::default() });
        }
        let Some(metric) = self.metrics.last_mut() else { return };
        match (name.rsplit('_').next(), bound.and_then(|bound| bound.parse::<f64>().ok())) {
            // That all values lie below infinity is said by their number.
            (Some("bucket"), Some(bound)) if bound.is_finite() => metric.buckets.push((bound, sample.value as u64)),
            (Some("sum"), _) => metric.value = sample.value,
            (Some("count"), _) => metric.count = sample.value as u64,
            _ => {}
        }
    }
}

/// `name{key="value"} 5 1700`.
fn sample(line: &str) -> Option<(&str, Sample<'_>)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (key, behind) = rest.trim_start_matches(',').split_once("=\"")?;
            let close = closing(behind)?;
            labels.push((key, unescaped(&behind[..close])));
            rest = &behind[close + 1..];
        }
        rest = &rest[1..];
    }
    let mut figures = rest.split_whitespace();
    let value = figures.next()?.parse().ok()?;
    let millis = figures.next().and_then(|text| text.parse().ok());
    Some((name, Sample { labels, value, millis }))
}

/// Where the quote is that ends a value.
fn closing(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            letter => out.push(letter),
        }
    }
    out
}

fn message_of(family: &Family<'_>, native: &BTreeMap<String, NativeBuckets>) -> Vec<u8> {
    let (number, field) = match family.kind {
        Some("counter") => (0, 3),
        Some("gauge") => (1, 2),
        Some("histogram") => (4, 7),
        _ => (3, 5),
    };
    let mut out = Vec::new();
    bytes(1, family.name.as_bytes(), &mut out);
    if !family.help.is_empty() {
        bytes(2, family.help.as_bytes(), &mut out);
    }
    integer(3, number, &mut out);
    for metric in &family.metrics {
        let mut message = Vec::new();
        for (name, value) in &metric.labels {
            let mut pair = Vec::new();
            bytes(1, name.as_bytes(), &mut pair);
            bytes(2, value.as_bytes(), &mut pair);
            bytes(1, &pair, &mut message);
        }
        let mut value = Vec::new();
        if field == 7 {
            let labels = crate::labels(metric.labels.iter().map(|(key, value)| (*key, value.as_str())));
            histogram(metric, native.get(&format!("{}{{{labels}}}", family.name)), &mut value);
        } else {
            double(1, metric.value, &mut value);
        }
        bytes(field, &value, &mut message);
        if let Some(millis) = metric.millis {
            integer(6, millis.cast_unsigned(), &mut message);
        }
        bytes(4, &message, &mut out);
    }
    out
}

fn histogram(metric: &Metric<'_>, native: Option<&NativeBuckets>, out: &mut Vec<u8>) {
    // Scrapers refuse a native histogram whose buckets do not add up to its count.
    integer(1, native.map_or(metric.count, |native| native.count), out);
    double(2, metric.value, out);
    for (bound, count) in &metric.buckets {
        let mut bucket = Vec::new();
        integer(1, *count, &mut bucket);
        double(2, *bound, &mut bucket);
        bytes(3, &bucket, out);
    }
    let Some(native) = native else { return };
    integer(5, zigzag(native.schema.into()), out);
    double(6, ZERO_THRESHOLD, out);
    integer(7, native.zeros, out);
    for (offset, length) in &native.spans {
        let mut span = Vec::new();
        integer(1, zigzag((*offset).into()), &mut span);
        integer(2, (*length).into(), &mut span);
        bytes(12, &span, out);
    }
    for delta in &native.deltas {
        integer(13, zigzag(*delta), out);
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn integer(field: u64, value: u64, out: &mut Vec<u8>) {
    varint(field << 3, out);
    varint(value, out);
}

fn double(field: u64, value: f64, out: &mut Vec<u8>) {
    varint(field << 3 | 1, out);
    out.extend(value.to_le_bytes());
}

fn bytes(field: u64, value: &[u8], out: &mut Vec<u8>) {
    varint(field << 3 | 2, out);
    varint(value.len() as u64, out);
    out.extend(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, NativeHistogram, Scrape};

    /// A message as its fields: numbers, doubles as their text, messages and texts as their bytes.
    fn fields(mut message: &[u8]) -> Vec<(u64, Field<'_>)> {
        let mut out = Vec::new();
        while !message.is_empty() {
            let key = take(&mut message);
            let field = match key & 7 {
                0 => Field::Integer(take(&mut message)),
                1 => {
                    let (double, rest) = message.split_first_chunk::<8>().expect("eight bytes");
                    message = rest;
                    Field::Double(f64::from_le_bytes(*double))
                }
                2 => {
                    let length = usize::try_from(take(&mut message)).expect("a length");
                    let (inner, rest) = message.split_at(length);
                    message = rest;
                    Field::Bytes(inner)
                }
                other => panic!("wire type {other}"),
            };
            out.push((key >> 3, field));
        }
        out
    }

    #[derive(Debug, PartialEq)]
    enum Field<'a> {
        Integer(u64),
        Double(f64),
        Bytes(&'a [u8]),
    }

    fn take(message: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (byte, rest) = message.split_first().expect("a byte");
            *message = rest;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    /// The messages behind their lengths.
    fn messages(mut body: &[u8]) -> Vec<&[u8]> {
        let mut out = Vec::new();
        while !body.is_empty() {
            let length = usize::try_from(take(&mut body)).expect("a length");
            let (message, rest) = body.split_at(length);
            out.push(message);
            body = rest;
        }
        out
    }

    #[test]
    fn families_are_messages_behind_their_lengths() {
        let text = "# HELP a_total How\\nmany.\n# TYPE a_total counter\na_total{x=\"a\\\"b,}\"} 3 1700\n\
                    # HELP none Nobody.\n# TYPE none gauge\nother 1.5\n";
        let body = encode(text, &BTreeMap::new());
        let seen = messages(&body);
        assert_eq!(seen.len(), 2, "a family without samples is not there");
        let counter = fields(seen[0]);
        assert_eq!(counter[0], (1, Field::Bytes(b"a_total")));
        assert_eq!(counter[1], (2, Field::Bytes(b"How\nmany.")));
        assert_eq!(counter[2], (3, Field::Integer(0)));
        let (4, Field::Bytes(metric)) = &counter[3] else { panic!("{counter:?}") };
        let metric = fields(metric);
        let (1, Field::Bytes(pair)) = &metric[0] else { panic!("{metric:?}") };
        assert_eq!(fields(pair), [(1, Field::Bytes(b"x")), (2, Field::Bytes(b"a\"b,}"))]);
        let (3, Field::Bytes(value)) = &metric[1] else { panic!("{metric:?}") };
        assert_eq!(fields(value), [(1, Field::Double(3.0))]);
        assert_eq!(metric[2], (6, Field::Integer(1700)));
        assert_eq!(fields(seen[1])[..2], [(1, Field::Bytes(b"other")), (3, Field::Integer(3))]);
    }

    #[test]
    fn a_histogram_has_both_kinds_of_buckets() {
        let scrape = Scrape::new(
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
            [],
        );
        let native = NativeHistogram::default();
        for value in [0.5, 0.5, 2.0] {
            native.record(value);
        }
        let mut page = scrape.page();
        page.family("d_seconds", Kind::Histogram, "How long.")
            .histogram("verb=\"get\"", [("0.5", 2), ("1", 0)], 3, 3)
            .native("verb=\"get\"", &native)
            .histogram("verb=\"put\"", [("0.5", 1), ("1", 0)], 0.25, 1);
        let (_, body) = scrape.answer(page);
        let seen = messages(&body);
        let metrics: Vec<&[u8]> = fields(seen[0])
            .into_iter()
            .filter_map(|(field, value)| match value {
                Field::Bytes(metric) if field == 4 => Some(metric),
                _ => None,
            })
            .collect();
        assert_eq!(metrics.len(), 2);
        let histogram_of = |metric| {
            let found = fields(metric).into_iter().find_map(|(field, value)| match value {
                Field::Bytes(histogram) if field == 7 => Some(fields(histogram)),
                _ => None,
            });
            found.expect("a histogram")
        };
        let both = histogram_of(metrics[0]);
        let numbers: Vec<u64> = both.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 2, 3, 3, 5, 6, 7, 12, 12, 13, 13]);
        assert_eq!(both[0].1, Field::Integer(3));
        assert_eq!(both[4].1, Field::Integer(6), "schema 3 as a signed number");
        let (_, Field::Bytes(first)) = &both[7] else { panic!("{both:?}") };
        assert_eq!(fields(first), [(1, Field::Integer(15)), (2, Field::Integer(1))], "bucket -8");
        assert_eq!(both[9..], [(13, Field::Integer(4)), (13, Field::Integer(1))], "two values, then one fewer");
        let classic: Vec<u64> = histogram_of(metrics[1]).iter().map(|(number, _)| *number).collect();
        assert_eq!(classic, [1, 2, 3, 3]);
    }
}
