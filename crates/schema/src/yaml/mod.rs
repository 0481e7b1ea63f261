//! YAML 1.1 as upstream reads it: `y` is a boolean, `0777` an octal number, keys of any scalar type become text.

mod complaint;
mod resolve;
mod write;

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

pub use write::to_yaml;

/// Nesting that is read at all.
const MAX_DEPTH: usize = 200;
/// Values that aliases may multiply a document to.
const MAX_VALUES: usize = 1_000_000;

/// Of an alias of what is not whole yet; who knows the text says which.
const UNKNOWN_ANCHOR: &str = "yaml: unknown anchor referenced";

const NULL_KEY: &str = "yaml: unsupported map key of type: invalid";

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

/// Reads the first document of a text; the error is upstream's.
pub(crate) fn parse(body: &[u8]) -> Result<Document, String> {
    let text = std::str::from_utf8(body).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    if let Some(complaint) = complaint::control_characters(text).or_else(|| complaint::beginning(text)) {
        return Err(complaint);
    }
    let escapes = text.contains("\\u") || text.contains("\\U");
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    loop {
        match parser.next_event() {
            None | Some(Ok((Event::StreamEnd | Event::DocumentEnd, _))) => break,
            Some(Ok((event, span))) => {
                if escapes && matches!(event, Event::Scalar(_, ScalarStyle::DoubleQuoted, ..)) {
                    complaint::surrogates(text, span.start.index(), span.end.index())?;
                }
                builder.event(event, span.start.line()).map_err(|why| match &*why {
                    UNKNOWN_ANCHOR => complaint::alias(text, span.start.index()),
                    NULL_KEY => complaint::null_key(text, span.start.index(), span.start.line()).unwrap_or(why),
                    _ => why,
                })?;
            }
            Some(Err(error)) => {
                // Nothing behind the first document is looked at.
                return match complaint::before_stray_bracket(&error, text) {
                    Some(whole) => parse(whole.as_bytes()),
                    None => Err(complaint::of(&error, text)),
                };
            }
        }
    }
    Ok(Document { value: builder.root.unwrap_or_default(), duplicates: builder.duplicates })
}

/// YAML or JSON text as a value, with its duplicate keys as warnings; for patches.
pub fn parse_value(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    parse(body).map(|document| (document.value, document.duplicates.lines))
}

enum Open {
    List { items: Vec<Value>, anchor: usize },
    Map { map: Map<String, Value>, key: Option<Key>, merged: Vec<Value>, anchor: usize },
}

struct Key {
    text: String,
    /// As upstream prints it in the complaint about a duplicate.
    shown: String,
    line: usize,
    merge: bool,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Value>,
    anchors: HashMap<usize, (Value, usize)>,
    duplicates: Duplicates,
    values: usize,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, line: usize) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref().and_then(|t| t.core_suffix()).map(str::to_owned);
                if self.expects_key() {
                    self.key(&text, style, tag.as_deref(), line)?;
                    if anchor > 0 {
                        self.anchors.insert(anchor, (Value::String(text.into_owned()), 1));
                    }
                    return Ok(());
                }
                let value = resolve::scalar(&text, style == ScalarStyle::Plain, tag.as_deref())?;
                self.finish(value, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.start(Open::List { items: Vec::new(), anchor }),
            Event::MappingStart(_, anchor, _) => {
                self.start(Open::Map { map: Map::new(), key: None, merged: Vec::new(), anchor })
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List { items, anchor }) => self.finish(Value::Array(items), anchor),
                Some(Open::Map { mut map, merged, anchor, .. }) => {
                    for source in merged {
                        let sources = if let Value::Array(list) = source { list } else { vec![source] };
                        for source in sources {
                            let Value::Object(source) = source else {
                                return Err("yaml: map merge requires map or sequence of maps as the value".to_owned());
                            };
                            for (key, value) in source {
                                map.entry(key).or_insert(value);
                            }
                        }
                    }
                    self.finish(Value::Object(map), anchor)
                }
                None => Ok(()),
            },
            Event::Alias(anchor) => {
                let Some((value, size)) = self.anchors.get(&anchor).cloned() else {
                    return Err(UNKNOWN_ANCHOR.to_owned());
                };
                self.values += size;
                if self.values > MAX_VALUES {
                    return Err("yaml: document contains excessive aliasing".to_owned());
                }
                if self.expects_key() {
                    let text = if let Value::String(text) = value { text } else { value.to_string() };
                    return self.key(&text, ScalarStyle::DoubleQuoted, None, line);
                }
                self.finish(value, 0)
            }
            _ => Ok(()),
        }
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open::Map { key: None, .. }))
    }

    fn start(&mut self, open: Open) -> Result<(), String> {
        if self.expects_key() {
            return Err("yaml: invalid map key".to_owned());
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(format!("yaml: exceeded max depth of {MAX_DEPTH}"));
        }
        self.open.push(open);
        Ok(())
    }

    fn key(&mut self, text: &str, style: ScalarStyle, tag: Option<&str>, line: usize) -> Result<(), String> {
        let plain = style == ScalarStyle::Plain;
        let resolved = resolve::scalar(text, plain, tag)?;
        let (text, shown) = match resolved {
            Value::String(text) => {
                let shown = crate::text::quote(&text);
                (text, shown)
            }
            Value::Null => return Err(NULL_KEY.to_owned()),
            other => (other.to_string(), other.to_string()),
        };
        let merge = plain && text == "<<";
        if let Some(Open::Map { key, .. }) = self.open.last_mut() {
            *key = Some(Key { text, shown, line, merge });
        }
        Ok(())
    }

    fn finish(&mut self, value: Value, anchor: usize) -> Result<(), String> {
        self.values += 1;
        if anchor > 0 {
            let size = size(&value);
            self.anchors.insert(anchor, (value.clone(), size));
        }
        match self.open.last_mut() {
            None => self.root = self.root.take().or(Some(value)),
            Some(Open::List { items, .. }) => items.push(value),
            Some(Open::Map { map, key, merged, .. }) => match key.take() {
                Some(key) if key.merge => merged.push(value),
                Some(key) => {
                    if map.contains_key(&key.text) {
                        let line = format!("line {}: key {} already set in map", key.line, key.shown);
                        self.duplicates.lines.push(line);
                    }
                    map.insert(key.text, value);
                }
                None => {}
            },
        }
        Ok(())
    }
}

/// Values in a value. Depth is bounded by the builder.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(map) => map.values().map(size).sum(),
        _ => 0,
    }
}

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
            ("~: a", "yaml: unsupported map key of type: invalid"),
        ] {
            assert_eq!(parse(text.as_bytes()).err().as_deref(), Some(error), "{text:?}");
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

    #[test]
    fn laughs_and_depth_are_bounded() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..10 {
            text += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
        }
        assert!(parse(text.as_bytes()).is_err_and(|e| e.contains("aliasing")));
        assert!(parse("[".repeat(10_000).as_bytes()).is_err());
    }
}
