//! `-o kyaml`: YAML that cannot be misread. Strings stand in quotes, maps in braces, lists in brackets.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A value whose fields keep the order in which they came.
enum Tree {
    Map(Vec<(String, Tree)>),
    List(Vec<Tree>),
    Leaf(Value),
}

/// A document with its head and its last newline.
pub fn document(value: &Value) -> String {
    whole(&Tree::deserialize(value).unwrap_or(Tree::Leaf(Value::Null)))
}

/// The same of a JSON text, in its order.
pub fn of_json(text: &str) -> Option<String> {
    serde_json::from_str(text).ok().map(|tree| whole(&tree))
}

fn whole(tree: &Tree) -> String {
    let mut out = "---\n".to_owned();
    node(tree, 0, &mut out);
    out.push('\n');
    out
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Tree;

            fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                to.write_str("a value")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Tree::Map(fields))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(Tree::List(items))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
                Ok(Tree::Leaf(value.into()))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
                Ok(Tree::Leaf(value.into()))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
                Ok(Tree::Leaf(value.into()))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
                Ok(Tree::Leaf(value.into()))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
                Ok(Tree::Leaf(value.into()))
            }

            fn visit_unit<E: Error>(self) -> Result<Tree, E> {
                Ok(Tree::Leaf(Value::Null))
            }
        }
        from.deserialize_any(Any)
    }
}

fn indent(level: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("  ", level));
}

fn node(value: &Tree, level: usize, out: &mut String) {
    match value {
        Tree::Leaf(Value::String(text)) => string(text, level + 1, true, out),
        Tree::List(items) if items.is_empty() => out.push_str("[]"),
        // Lists of maps or lists keep their brackets together.
        Tree::List(items) if items.iter().all(|item| !matches!(item, Tree::Leaf(_))) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                node(item, level, out);
            }
            out.push(']');
        }
        Tree::List(items) => {
            out.push_str("[\n");
            for item in items {
                indent(level + 1, out);
                node(item, level + 1, out);
                out.push_str(",\n");
            }
            indent(level, out);
            out.push(']');
        }
        Tree::Map(map) if map.is_empty() => out.push_str("{}"),
        Tree::Map(map) => {
            out.push_str("{\n");
            for (key, value) in map {
                indent(level + 1, out);
                match needs_quotes(key) {
                    true => string(key, level + 1, false, out),
                    false => out.push_str(key),
                }
                out.push_str(": ");
                node(value, level + 1, out);
                out.push_str(",\n");
            }
            indent(level, out);
            out.push('}');
        }
        Tree::Leaf(other) => out.push_str(&other.to_string()),
    }
}

/// In quotes; a text of several lines is folded, each of them behind the indentation.
fn string(text: &str, level: usize, folds: bool, out: &mut String) {
    const FOLD: &str = "\\\n";
    let several = folds && text.contains('\n');
    out.push('"');
    if several {
        out.push_str(FOLD);
    }
    for letter in text.chars() {
        if out.ends_with('\n') {
            indent(level, out);
            // Blanks at the start of a line would be lost.
            out.push(if letter.is_whitespace() && letter != '\n' { '\\' } else { ' ' });
        }
        match letter {
            '\n' if folds => out.push_str("\\n\\\n"),
            '\n' => out.push_str("\\n"),
            '\t' if folds => out.push('\t'),
            '\t' => out.push_str("\\t"),
            '"' | '\\' => out.extend(['\\', letter]),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            '\u{1b}' => out.push_str("\\e"),
            '\u{85}' => out.push_str("\\N"),
            '\u{a0}' => out.push_str("\\_"),
            '\u{2028}' => out.push_str("\\L"),
            '\u{2029}' => out.push_str("\\P"),
            control if control < ' ' || control == '\u{7f}' => out.push_str(&format!("\\x{:02x}", control as u32)),
            other if printable(other) => out.push(other),
            other if other < '\u{10000}' => out.push_str(&format!("\\u{:04x}", other as u32)),
            other => out.push_str(&format!("\\U{:08x}", other as u32)),
        }
    }
    if several {
        if !out.ends_with('\n') {
            out.push_str(FOLD);
        }
        indent(level, out);
    }
    out.push('"');
}

/// What Go takes for printable, but for letters that no font has.
fn printable(letter: char) -> bool {
    !letter.is_control()
        && (letter == ' ' || !letter.is_whitespace())
        && !('\u{e000}'..='\u{f8ff}').contains(&letter)
        && !matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{f0000}'..)
}

/// A key that may be taken for something else than a text.
fn needs_quotes(key: &str) -> bool {
    let last = key.chars().count().saturating_sub(1);
    let plain = |(at, letter): (usize, char)| {
        letter.is_alphanumeric() || letter == '_' || (at > 0 && at < last && "-./".contains(letter))
    };
    key.is_empty() || !key.chars().enumerate().all(plain) || is_ambiguous(key)
}

fn is_ambiguous(key: &str) -> bool {
    let lower = key.to_lowercase();
    if ["null", "true", "t", "y", "yes", "on", "false", "f", "n", "no", "off"].contains(&&*lower) {
        return true;
    }
    let number = lower.replace('_', "");
    let digits = |text: &str, radix: u32| i64::from_str_radix(text, radix).is_ok() && !text.starts_with(['+', '-']);
    for (prefix, radix) in [("0b", 2), ("0o", 8), ("0x", 16)] {
        if number.strip_prefix(prefix).is_some_and(|rest| digits(rest, radix)) {
            return true;
        }
    }
    number.parse::<f64>().is_ok() || is_date(key)
}

fn is_date(key: &str) -> bool {
    let day = key.split(['T', 't', ' ']).next().unwrap_or_default();
    let parts: Vec<&str> = day.split('-').collect();
    let number = |text: &str, most: u32| text.parse().is_ok_and(|value: u32| (1..=most).contains(&value));
    matches!(&*parts, [year, month, day] if year.len() == 4 && number(year, 9999) && number(month, 12) && number(day, 31))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_is_told_apart() {
        let value = json!({
            "apiVersion": "v1", "no": 1, "a.b/c": true, "1e3": null, "-x": [], "m": {},
            "list": [1, "a\"b"], "maps": [{"a": "1"}, {"b": [[2]]}], "text": "one\n  two\nthree",
        });
        let want = r#"---
{
  "-x": [],
  "1e3": null,
  a.b/c: true,
  apiVersion: "v1",
  list: [
    1,
    "a\"b",
  ],
  m: {},
  maps: [{
    a: "1",
  }, {
    b: [[
      2,
    ]],
  }],
  "no": 1,
  text: "\
     one\n\
    \  two\n\
     three\
    ",
}
"#;
        assert_eq!(document(&value), want);
    }
}
