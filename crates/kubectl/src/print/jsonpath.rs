//! JSONPath in kubectl's dialect: text with actions in braces, `range` and `end`, filters, unions, slices.

use serde_json::Value;

use super::jsonpath_parse::{Node, Part, Slice, parse};
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
    /// A field that is not there is an error.
    strict: bool,
}

/// The values that a part of a template stands for.
type Found<'a> = Vec<&'a Value>;

/// What was found so far, and why there is no more: a filter takes it as it is.
type Partly<'a> = Result<Found<'a>, (Found<'a>, String)>;

/// Where nothing is, nothing is found in it.
const NOTHING: &Value = &Value::Null;

impl Template {
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.to_owned(), parts: parse(text)?, strict: false })
    }

    /// Fields that are not there are errors.
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// `.metadata.name`, `metadata.name` and `{.metadata.name}` mean the same.
    pub fn relaxed(text: &str) -> Result<Self> {
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        if text.is_empty() {
            return Ok(Self { text: String::new(), parts: Vec::new(), strict: false });
        }
        if inner.is_empty() || inner.contains(['{', '}']) {
            return Err(Error::say(
                "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'",
            ));
        }
        let inner = inner.strip_prefix('.').unwrap_or(inner);
        let text = format!("{{.{inner}}}");
        Self::parse(&text).map_err(Error::say)
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The values of all parts.
    pub fn find<'a>(&'a self, root: &'a Value) -> Result<Found<'a>, String> {
        Ok(self.found(root)?.into_iter().flatten().collect())
    }

    /// The values of the first part that has a place in the output.
    pub fn first<'a>(&'a self, root: &'a Value) -> Result<Found<'a>, String> {
        Ok(self.found(root)?.into_iter().next().unwrap_or_default())
    }

    pub fn print(&self, root: &Value) -> Result<String> {
        let found = self.found(root).map_err(|why| self.failed(&why, root))?;
        let text = |part: Found<'_>| part.into_iter().map(shown).collect::<Vec<_>>().join(" ");
        Ok(found.into_iter().map(text).collect())
    }

    /// A list for each part.
    pub fn print_json(&self, root: &Value) -> Result<String> {
        let found = self.found(root).map_err(|why| self.failed(&why, root))?;
        Ok(found.into_iter().map(|part| super::json(&part.into_iter().cloned().collect())).collect())
    }

    fn failed(&self, why: &str, root: &Value) -> Error {
        Error::say(format!(
            "error executing jsonpath {}: Error executing template: {why}. Printing more information for debugging the template:\n\ttemplate was:\n\t\t{}\n\tobject given to jsonpath engine was:\n\t\t{}\n\n\n",
            crate::text::quote(&self.text),
            self.text,
            super::go_value::syntax(root)
        ))
    }

    fn found<'a>(&'a self, root: &'a Value) -> Result<Vec<Found<'a>>, String> {
        let mut found = Vec::new();
        self.run(0, root, 0, &mut found)?;
        Ok(found)
    }

    /// From one part on, up to the end of the range around it. Returns where that is.
    fn run<'a>(
        &'a self,
        mut at: usize,
        current: &'a Value,
        ranges: usize,
        found: &mut Vec<Found<'a>>,
    ) -> Result<usize, String> {
        while let Some(part) = self.parts.get(at) {
            let nodes = match part {
                Part::Text(text) => {
                    found.push(vec![text]);
                    at += 1;
                    continue;
                }
                Part::Action(nodes) => nodes,
            };
            let has = |wanted: &str| nodes.iter().any(|node| matches!(node, Node::Word(word) if word == wanted));
            if has("end") && ranges == 0 {
                return Err("not in range, nothing to end".into());
            }
            let values = self.walk(nodes, vec![current]).map_err(|(_, why)| why)?;
            if has("end") {
                return Ok(at);
            }
            if !has("range") {
                found.push(values);
                at += 1;
                continue;
            }
            let mut end = at;
            let begin = at + 1;
            if values.is_empty() {
                end = self.run(begin, NOTHING, ranges + 1, &mut Vec::new())?;
            }
            for value in values {
                end = self.run(begin, value, ranges + 1, found)?;
            }
            // What stands behind a range without an end is done once more, for what is around it.
            at = if end < self.parts.len() { end + 1 } else { begin };
        }
        Ok(at)
    }

    fn walk<'a>(&self, nodes: &'a [Node], mut values: Found<'a>) -> Partly<'a> {
        for node in nodes {
            values = self.step(node, values)?;
        }
        Ok(values)
    }

    fn step<'a>(&self, node: &'a Node, values: Found<'a>) -> Partly<'a> {
        match node {
            Node::Text(text) => Ok(vec![text]),
            Node::Literal(value) => Ok(vec![value; values.len()]),
            Node::Word(word) => match &**word {
                "range" => Ok(values),
                "end" => Ok(Vec::new()),
                other => Err((values, format!("unrecognized identifier {other}"))),
            },
            Node::Field(name) => {
                let found: Found<'_> = values.iter().filter_map(|value| value.as_object()?.get(name)).collect();
                match found.is_empty() && !values.is_empty() && self.strict {
                    true => Err((found, format!("{name} is not found"))),
                    false => Ok(found),
                }
            }
            Node::Wildcard => Ok(values.iter().flat_map(|value| children(value)).collect()),
            Node::Recursive => {
                let mut all = Vec::new();
                values.iter().for_each(|value| descend(value, &mut all));
                Ok(all)
            }
            Node::Slice(wanted) => {
                let mut found = Vec::new();
                for value in &values {
                    let done = match value {
                        Value::Null => Ok(()),
                        Value::Array(items) => slice(items, wanted, &mut found),
                        other => Err(format!("{} is not array or slice", ferry_schema::go_type(other))),
                    };
                    if let Err(why) = done {
                        return Err((values, why));
                    }
                }
                Ok(found)
            }
            Node::Union(all) => {
                let mut found = Vec::new();
                for nodes in all {
                    match self.walk(nodes, values.clone()) {
                        Ok(more) => found.extend(more),
                        Err((_, why)) => return Err((values, why)),
                    }
                }
                Ok(found)
            }
            Node::Filter { left, operator, right } => {
                let mut found = Vec::new();
                for value in &values {
                    let Value::Array(items) = value else {
                        let shown = super::go_value::show(value);
                        return Err((values, format!("{shown} is not array or slice and cannot be filtered")));
                    };
                    for item in items {
                        match self.holds(item, left, operator, right.as_deref()) {
                            Ok(true) => found.push(item),
                            Ok(false) => {}
                            Err(why) => return Err((values, why)),
                        }
                    }
                }
                Ok(found)
            }
        }
    }

    fn holds(&self, item: &Value, left: &[Node], operator: &str, right: Option<&[Node]>) -> Result<bool, String> {
        let lefts = self.walk(left, vec![item]);
        let Some(right) = right else {
            let (Ok(found) | Err((found, _))) = lefts;
            return Ok(!found.is_empty());
        };
        let one = |found: Partly<'_>| match &*found.map_err(|(_, why)| why)? {
            [] => Ok(None),
            [one] => Ok(Some((*one).clone())),
            _ => Err("can only compare one element at a time".to_owned()),
        };
        let Some(left) = one(lefts)? else { return Ok(false) };
        let Some(right) = one(self.walk(right, vec![item]))? else { return Ok(false) };
        compare(&left, operator, &right)
    }
}

/// Numbers without and with a fraction are of different kinds.
fn compare(left: &Value, operator: &str, right: &Value) -> Result<bool, String> {
    if !matches!(operator, "==" | "!=" | "<" | "<=" | ">" | ">=") {
        return Err(format!("unrecognized filter operator {operator}"));
    }
    let plain = |value: &Value| !matches!(value, Value::Null | Value::Array(_) | Value::Object(_));
    if !plain(left) || !plain(right) {
        return Err("invalid type for comparison".into());
    }
    let order = match (left, right) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() == b.is_f64() => {
            a.as_i64().zip(b.as_i64()).map_or_else(|| a.as_f64().partial_cmp(&b.as_f64()), |(a, b)| Some(a.cmp(&b)))
        }
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) if matches!(operator, "==" | "!=") => Some(a.cmp(b)),
        (Value::Bool(_), Value::Bool(_)) => return Err("invalid type for comparison".into()),
        _ => return Err("incompatible types for comparison".into()),
    };
    let Some(order) = order else { return Ok(false) };
    Ok(match operator {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// Texts as they are, maps and lists as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Array(_) | Value::Object(_) => super::compact(value),
        other => super::go_value::show(other),
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

/// All that has something in it: lists, maps and texts.
fn descend<'a>(value: &'a Value, all: &mut Vec<&'a Value>) {
    let below = children(value);
    if !below.is_empty() || value.as_str().is_some_and(|text| !text.is_empty()) {
        all.push(value);
    }
    for child in below {
        descend(child, all);
    }
}

fn slice<'a>(items: &'a [Value], wanted: &Slice, found: &mut Vec<&'a Value>) -> Result<(), String> {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let given = wanted.from.unwrap_or(0);
    let from = if given < 0 { given.saturating_add(length) } else { given };
    let to = match wanted.to {
        None if wanted.single => given.saturating_add(1),
        None => length,
        Some(to) => to,
    };
    // The index -1 alone ends where the list does.
    let to = if to < 0 || (to == 0 && wanted.single) { to.saturating_add(length) } else { to };
    if from == to {
        return Ok(());
    }
    if !(0..length).contains(&from) {
        return Err(format!("array index out of bounds: index {from}, length {length}"));
    }
    if !(0..=length).contains(&to) {
        return Err(format!("array index out of bounds: index {}, length {length}", to - 1));
    }
    if from > to {
        return Err(format!("starting index {from} is greater than ending index {to}"));
    }
    let step = wanted.step.unwrap_or(1);
    let (Ok(from), Ok(to), Ok(step @ 1..)) = (usize::try_from(from), usize::try_from(to), usize::try_from(step)) else {
        return Err("step must be > 0".into());
    };
    found.extend(items[from..to].iter().step_by(step));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dialect() {
        let object = serde_json::json!({"kind": "List", "items": [
            {"metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "x"}}, "n": 1, "ok": true},
            {"metadata": {"name": "b"}, "n": 2, "list": ["p", "q"]},
        ]});
        for (template, expected) in [
            ("{.kind}", "List"),
            ("{.items[*].metadata.name}", "a b"),
            (r#"{range .items[*]}{.metadata.name}{"\t"}{.n}{"\n"}{end}"#, "a\t1\nb\t2\n"),
            (r"{.items[0].metadata.labels.app\.kubernetes\.io/name}", "x"),
            (r#"{.items[?(@.metadata.name=="b")].n}"#, "2"),
            ("{.items[?(@.n>1)].metadata.name}", "b"),
            ("{.items[?(@.ok)].metadata.name}", "a"),
            ("{.items[-1:].metadata.name}", "b"),
            ("{.items[0].metadata['name', 'labels']}", r#"a {"app.kubernetes.io/name":"x"}"#),
            ("{.items[1].list}", r#"["p","q"]"#),
            ("{..name}", "a b"),
            ("{.nope.deeper}", ""),
            ("x={.items[0].n} y", "x=1 y"),
            ("{.items[1].list[*]}", "p q"),
            ("{1}{true}{-2.5}", "1true-2.5"),
            ("{.items[].n}", "1"),
            (r#"{"a\"b\x41\u00e9\101"}{'it\'s'}"#, "a\"bAéAit's"),
            ("{range .nope[*]}{.x}{end}done", "done"),
            ("{range .items[*]}{range .list[*]}{@}{end};{end}", ";pq;"),
            ("{range .items[*]}{.n}", "12"),
            ("{.items[?(@.list[0])].n}", "2"),
            ("{.items[?(@.list[5])].n}", "2"),
            (r"{.items[0].metadata.labels['app\.kubernetes\.io/name']}", "x"),
        ] {
            assert_eq!(Template::parse(template).unwrap().print(&object).unwrap(), expected, "{template}");
        }
        for (wrong, why) in [
            ("{.a", "unclosed action"),
            (r#"{.a["b"]}"#, r#"invalid array index "b""#),
            ("{.a[?(!@.b)]}", "unrecognized character in action: U+0021 '!'"),
            ("{.a[?(@.b==1 && @.c)]}", "unrecognized character in action: U+0026 '&'"),
            (r#"{"a\q"}"#, r#"unquote string "a\q" error invalid syntax"#),
            ("{.a[?(@.b)}", "unclosed array expect ]"),
            ("{.a[1", "unterminated array"),
            ("{....a}", "invalid multiple recursive descent"),
            ("{.a[99999999999999999999]}", "array index 99999999999999999999 is not a number"),
        ] {
            assert_eq!(Template::parse(wrong).unwrap_err(), why, "{wrong}");
        }
        assert!(Template::parse("{.items[5]}").unwrap().print(&object).is_err());
    }
}
