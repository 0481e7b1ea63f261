//! YAML 1.1 as upstream reads it: `y` is a boolean, `0777` an octal number, keys of any scalar type become text.

mod builder;
mod cursor;
mod event;
mod go_syntax;
mod parser;
mod resolve;
mod scalars;
mod scanner;
mod tags;
mod write;

use std::collections::HashSet;
use std::fmt;

use ferry_meta::bounds::Excess;
use serde_json::Value;

use builder::Builder;
use event::Event;
use parser::Parser;
pub use write::to_yaml;

/// Why a text is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// In upstream's words.
    Said(String),
    /// It is one, and too large.
    TooLarge(Excess),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(why) => f.write_str(why),
            Self::TooLarge(excess) => write!(f, "yaml: {excess}"),
        }
    }
}

impl From<String> for Error {
    fn from(why: String) -> Self {
        Self::Said(why)
    }
}

pub(crate) struct Document {
    pub(crate) value: Value,
    pub(crate) duplicates: Duplicates,
}

/// Keys that stand twice in a map: `line 6: key "a" already set in map`.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    pub(crate) lines: Vec<String>,
}

impl Duplicates {
    /// All of them in the one error of the YAML reader.
    pub(crate) fn error(&self) -> String {
        format!("yaml: unmarshal errors:\n  {}", self.lines.join("\n  "))
    }
}

/// Reads the first document of a text; the error is upstream's. Nothing behind that document is looked at.
pub(crate) fn parse(body: &[u8]) -> Result<Document, Error> {
    // Only the beginning of a text may have a byte order mark.
    let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    let unreadable = cursor::unreadable(body);
    let whole = unreadable.map_or(body.len(), |(at, _)| at);
    let text = std::str::from_utf8(&body[..whole]).unwrap_or_default();
    let mut parser = Parser::new(text);
    let document = read(&mut parser, text.len());
    match unreadable {
        // It is found as soon as the piece of the text is decoded that it stands in.
        Some((at, why)) if at < parser.scanner.cursor.decoded() => Err(format!("yaml: {why}").into()),
        _ => document,
    }
}

fn read(parser: &mut Parser<'_>, length: usize) -> Result<Document, Error> {
    let mut builder = Builder::new(length);
    let mut anchors = HashSet::new();
    // What is wrong with the values of a document is told once the document is known to be whole.
    let mut wrong = None;
    while let Some((event, line)) = parser.next().map_err(|mistake| mistake.said())? {
        match &event {
            Event::Alias(name) if !anchors.contains(name) => {
                return Err(format!("yaml: unknown anchor '{name}' referenced").into());
            }
            Event::Scalar { anchor: Some(name), .. }
            | Event::List { anchor: Some(name) }
            | Event::Map { anchor: Some(name) } => drop(anchors.insert(name.clone())),
            _ => {}
        }
        if wrong.is_none() {
            match builder.event(event, line) {
                Err(error @ Error::TooLarge(_)) => return Err(error),
                built => wrong = built.err(),
            }
        }
    }
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let (value, duplicates) = builder.finish()?;
    Ok(Document { value, duplicates })
}

/// YAML or JSON text as a value, with its duplicate keys as warnings; for patches.
pub fn parse_value(body: &[u8]) -> Result<(Value, Vec<String>), Error> {
    parse(body).map(|document| (document.value, document.duplicates.lines))
}

#[cfg(test)]
mod mistake_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(text: &str, expected: Value) {
        assert_eq!(parse(text.as_bytes()).map(|d| d.value), Ok(expected), "{text}");
    }

    #[test]
    fn scalars_are_those_of_yaml_1_1() {
        check(
            "{a: y, b: off, c: 0777, d: 0x1f, e: 1_000, f: 1.5, g: ~, h: 'y', i: 2024-01-01, j: 1e3, k: .5, l: +1}",
            json!({"a": true, "b": false, "c": 511, "d": 31, "e": 1000, "f": 1.5, "g": null, "h": "y",
                   "i": "2024-01-01", "j": 1000, "k": 0.5, "l": 1}),
        );
        check("yes: 1\n2: b\n", json!({"true": 1, "2": "b"}));
        check(
            "1e6: a\n1_0: b\n.5: c\n0.30000000000000004: d\n",
            json!({"1e+06": "a", "10": "b", "0.5": "c", "0.3": "d"}),
        );
        check(
            "a: -9223372036854775808\n-9223372036854775808: b\n",
            json!({"a": i64::MIN, "-9223372036854775808": "b"}),
        );
        check("a: |\n  one\n  two\nb: >-\n  x\n  y\n", json!({"a": "one\ntwo\n", "b": "x y"}));
        check("", Value::Null);
    }

    #[test]
    fn anchors_merges_and_documents() {
        check(
            "a: &x {p: 1}\nb: *x\nc: {<<: *x, q: 2}\n---\nz: 1\n",
            json!({"a": {"p": 1}, "b": {"p": 1}, "c": {"p": 1, "q": 2}}),
        );
    }

    #[test]
    fn errors_read_as_upstreams() {
        for (text, error) in [
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n\tname: y\n",
                "yaml: line 4: found character that cannot start any token",
            ),
            ("a: [unclosed", "yaml: line 1: did not find expected ',' or ']'"),
            ("a: b: c", "yaml: mapping values are not allowed in this context"),
            ("x: 1\na: b: c\n", "yaml: line 2: mapping values are not allowed in this context"),
            ("a: [1, 2\nb: c\n", "yaml: line 1: did not find expected ',' or ']'"),
            ("a: {b: c\nd: e\n", "yaml: line 1: did not find expected ',' or '}'"),
            ("a: \"x", "yaml: found unexpected end of stream"),
            ("a: b\nc\n", "yaml: line 3: could not find expected ':'"),
            ("a: b\nc\nd: e\n", "yaml: line 3: could not find expected ':'"),
            ("- a\nb: c\n", "yaml: line 1: did not find expected '-' indicator"),
            ("metadata:\n  name: x\n spec: y\n", "yaml: line 2: did not find expected key"),
            ("18446744073709551615: a\n", "unsupported map key of type: uint64, key: 0xffffffffffffffff, value: \"a\""),
            ("a: *x\n", "yaml: unknown anchor 'x' referenced"),
            ("a: &x\n  b: *x\n", "yaml: anchor 'x' value contains itself"),
            ("a: @b\n", "yaml: found character that cannot start any token"),
            ("a: \u{1}\n", "yaml: control characters are not allowed"),
            ("a: \"\\q\"\n", "yaml: found unknown escape character"),
            ("{", "yaml: line 1: did not find expected node content"),
            ("{\"a\":1,", "yaml: line 1: did not find expected node content"),
            ("[1,", "yaml: line 1: did not find expected node content"),
            ("{\"a\"", "yaml: line 1: did not find expected ',' or '}'"),
            ("\ta: b", "yaml: found character that cannot start any token"),
            ("a: \"x\nb: c\n", "yaml: line 3: found unexpected end of stream"),
            ("a: 'x\nb: c\n", "yaml: line 3: found unexpected end of stream"),
            ("%x\n", "yaml: found unknown directive name"),
            ("!!int x", "yaml: cannot decode !!str `x` as a !!int"),
            ("a: !!int x\n", "yaml: cannot decode !!str `x` as a !!int"),
            ("...\na: b\n", "yaml: did not find expected node content"),
            (": a", "yaml: did not find expected key"),
            ("x: 1\n{", "yaml: line 3: could not find expected ':'"),
            ("{\"a\": \"\\ud800\"}", "yaml: found invalid Unicode character escape code"),
            ("~: a", "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"a\""),
        ] {
            assert_eq!(parse(text.as_bytes()).err().map(|e| e.to_string()).as_deref(), Some(error), "{text:?}");
        }
    }

    #[test]
    fn nothing_behind_the_first_document_is_looked_at() {
        check("{a: b}}", json!({"a": "b"}));
        check("[a]]", json!(["a"]));
    }

    #[test]
    fn duplicates_are_counted_by_line() {
        let document = parse(b"a: 1\nb: {c: 1, c: 2}\na: 3\n");
        let lines = document.map(|d| d.duplicates.lines).unwrap_or_default();
        assert_eq!(lines, ["line 2: key \"c\" already set in map", "line 3: key \"a\" already set in map"]);
    }

    /// Aliases of aliases, of long texts, of what lies deep: what comes out is bounded before it is made.
    #[test]
    fn laughs_and_depth_are_bounded() {
        let nested = |first: &str, lines: usize, line: &dyn Fn(usize) -> String| {
            let mut text = format!("a0: &a0 {first}\n");
            (1..lines).for_each(|i| text += &format!("a{i}: &a{i} {}\n", line(i)));
            text
        };
        let tens = |i: usize| format!("[{}]", vec![format!("*a{}", i - 1); 10].join(", "));
        let deep = |i: usize| format!("{}*a{}{}", "[".repeat(50), i - 1, "]".repeat(50));
        for (text, why) in [
            (nested("[x, x, x, x, x, x, x, x, x, x]", 10, &tens), "excessive aliasing"),
            (format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 36_000].join(",")), "excessive aliasing"),
            (
                format!("? &a {}\n: 1\nb: [{}]\n", "x".repeat(900), vec!["{*a : 1}"; 4_000].join(",")),
                "excessive aliasing",
            ),
            (nested("[x]", 3_000, &deep), "exceeded max depth of 100"),
            ("[".repeat(10_000), "did not find expected node content"),
            (format!("{}x{}", "[".repeat(102), "]".repeat(102)), "exceeded max depth of 100"),
            (format!("[{}]", vec!["{a: b}"; 200_000].join(",")), "too large"),
            (format!("&a [{}]", vec!["0"; 500_000].join(",")), "too large"),
        ] {
            let error = parse(text.as_bytes()).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(why), "{error}: {}", &text[..100]);
        }
    }

    /// Each tag is made from its declared prefix: many directives, and long ones, would cost as much for every tag.
    #[test]
    fn declared_prefixes_of_tags_are_few_and_short() {
        let declared = |count: usize| (0..count).map(|i| format!("%TAG !a{i}! !\n")).collect::<String>();
        let long = |length: usize| format!("%TAG !a! {}\n---\n{}", "x".repeat(length), "- !a!x 1\n".repeat(1000));
        let core = format!("%TAG !a! tag:yaml.org,2002:{}\n---\n", "x".repeat(900));
        for (text, why) in [
            (declared(101) + "---\na: b\n", "found more than 100 %TAG directives"),
            (declared(240_000), "found more than 100 %TAG directives"),
            (long(1025), "found a %TAG directive of more than 1024 bytes"),
            (format!("{core}&a [{}]\n", vec!["!a!x 1"; 100_000].join(",")), "too large"),
        ] {
            let error = parse(text.as_bytes()).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(why), "{error}: {}", &text[..40]);
        }
        check(&(declared(100) + "---\na: !a99!x 5\n"), json!({"a": "5"}));
        assert!(parse(long(1024).as_bytes()).is_ok());
        check("%TAG !a! tag:yaml.org,2002:\n---\na: !a!str 5\n", json!({"a": "5"}));
        // A long tag that many aliases share.
        let text = format!("a: &a !!{} x\nb: [{}]\n", "x".repeat(1 << 20), vec!["*a"; 250_000].join(","));
        let document = parse(text.as_bytes()).map(|d| d.value).unwrap_or_default();
        assert_eq!(document["b"].as_array().map(Vec::len), Some(250_000));
    }

    #[test]
    fn documents_with_anchors_go_on_working() {
        // An anchor within an anchor, a redefinition, keys and texts that have one.
        check(
            "a: &x {p: &y [1, 2], q: *y}\nb: *x\nc: &x 3\nd: *x\n&k e: &t yes\n*k : *t\n",
            json!({"a": {"p": [1, 2], "q": [1, 2]}, "b": {"p": [1, 2], "q": [1, 2]}, "c": 3, "d": 3, "e": true}),
        );
        check(
            "a: &m {x: 1}\nb: &n {v: 2, x: 3}\nc: {<<: [*m, *n], z: 4}\n",
            json!({"a": {"x": 1},
            "b": {"v": 2, "x": 3}, "c": {"x": 1, "v": 2, "z": 4}}),
        );
        // A template that many use: a hundred times what stands in the text.
        let pod = format!("&pod {{image: {}, env: [{}]}}", "i".repeat(200), vec!["{name: A, value: b}"; 50].join(", "));
        let text = format!("template: {pod}\npods: [{}]\n", vec!["*pod"; 400].join(", "));
        let document = parse(text.as_bytes()).map(|d| d.value).unwrap_or_default();
        assert_eq!(document["pods"].as_array().map(Vec::len), Some(400));
        assert_eq!(document["pods"][399], document["template"]);
    }

    #[test]
    fn a_level_below_the_deepest_is_one_too_many() {
        let nested = |levels: usize| format!("{}x{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(100).as_bytes()).is_ok());
        assert!(parse(nested(101).as_bytes()).is_err());
    }
}
