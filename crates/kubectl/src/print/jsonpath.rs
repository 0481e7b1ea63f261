//! JSONPath in kubectl's dialect: text with actions in braces, `range` and `end`, filters, unions, slices.

use serde_json::Value;

use super::jsonpath_parse::{Operand, Part, Step, action, closing};
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
    /// A field that is not there is an error.
    strict: bool,
}

impl Template {
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            if open > 0 {
                parts.push(Part::Text(rest[..open].to_owned()));
            }
            let close = closing(&rest[open..]).ok_or_else(|| unclosed(&rest[open..]))?;
            parts.push(action(&rest[open + 1..open + close])?);
            rest = &rest[open + close + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self { text: text.to_owned(), parts, strict: false })
    }

    /// Fields that are not there are errors.
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// `.metadata.name`, `metadata.name` and `{.metadata.name}` mean the same.
    pub fn relaxed(text: &str) -> Result<Self> {
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
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

    /// The values of all paths.
    pub fn find<'a>(&'a self, root: &'a Value) -> Result<Vec<&'a Value>, String> {
        let mut found = Vec::new();
        for part in &self.parts {
            if let Part::Path(steps) = part {
                found.extend(self.evaluate(steps, root, root)?);
            }
        }
        Ok(found)
    }

    pub fn print(&self, root: &Value) -> Result<String> {
        let mut out = String::new();
        self.run(&self.parts, root, root, &mut out).map_err(|why| self.failed(&why, root))?;
        Ok(out)
    }

    pub fn print_json(&self, root: &Value) -> Result<String> {
        let found: Vec<Value> = self.find(root).map_err(|why| self.failed(&why, root))?.into_iter().cloned().collect();
        Ok(super::json(&Value::Array(found)))
    }

    fn failed(&self, why: &str, root: &Value) -> Error {
        Error::say(format!(
            "error executing jsonpath {}: Error executing template: {why}. Printing more information for debugging the template:\n\ttemplate was:\n\t\t{}\n\tobject given to jsonpath engine was:\n\t\t{}\n\n\n",
            crate::text::quote(&self.text),
            self.text,
            super::go_value::syntax(root)
        ))
    }

    fn evaluate<'a>(&self, steps: &'a [Step], current: &'a Value, root: &'a Value) -> Result<Vec<&'a Value>, String> {
        if self.strict {
            for end in 1..=steps.len() {
                if let Some(Step::Field(name)) = steps.get(end - 1)
                    && evaluate(&steps[..end], vec![current], root)?.is_empty()
                    && !evaluate(&steps[..end - 1], vec![current], root)?.is_empty()
                {
                    return Err(format!("{name} is not found"));
                }
            }
        }
        evaluate(steps, vec![current], root)
    }

    fn run(&self, parts: &[Part], current: &Value, root: &Value, out: &mut String) -> Result<(), String> {
        let mut at = 0;
        while let Some(part) = parts.get(at) {
            at += 1;
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Path(steps) => {
                    let found = self.evaluate(steps, current, root)?;
                    let texts: Vec<String> = found.into_iter().map(shown).collect();
                    out.push_str(&texts.join(" "));
                }
                Part::Range(steps) => {
                    // One that is not ended goes on to the end of all.
                    let end = matching_end(&parts[at..]).unwrap_or(parts.len() - at);
                    for item in self.evaluate(steps, current, root)? {
                        self.run(&parts[at..at + end], item, root, out)?;
                    }
                    at += end + 1;
                }
                Part::Unknown(name) => return Err(format!("unrecognized identifier {name}")),
                Part::End => return Err("not in range, nothing to end".into()),
            }
        }
        Ok(())
    }
}

fn matching_end(parts: &[Part]) -> Option<usize> {
    let mut depth = 0usize;
    for (index, part) in parts.iter().enumerate() {
        match part {
            Part::Range(_) => depth += 1,
            Part::End if depth == 0 => return Some(index),
            Part::End => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Why an action has no end.
fn unclosed(action: &str) -> &'static str {
    match action[1..].trim_start().starts_with(['"', '\'']) {
        true => "unterminated quoted string",
        false => "unclosed action",
    }
}

/// Texts as they are, maps and lists as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => super::compact(value),
        other => super::go_value::show(other),
    }
}

fn evaluate<'a>(steps: &'a [Step], mut values: Vec<&'a Value>, root: &'a Value) -> Result<Vec<&'a Value>, String> {
    for step in steps {
        values = match step {
            Step::Root => vec![root],
            Step::Current => values,
            Step::Literal(value) => vec![value],
            Step::Field(name) => values.iter().filter_map(|value| value.as_object()?.get(name)).collect(),
            Step::Wildcard => values.iter().flat_map(|value| children(value)).collect(),
            Step::Recursive => {
                let mut all = Vec::new();
                values.iter().for_each(|value| descend(value, &mut all));
                all
            }
            Step::Slice { from, to, step, single } => {
                let mut found = Vec::new();
                for value in &values {
                    let Value::Array(items) = value else {
                        if value.is_null() {
                            continue;
                        }
                        return Err(format!("{} is not array or slice", ferry_schema::go_type(value)));
                    };
                    slice(items, *from, *to, *step, *single, &mut found)?;
                }
                found
            }
            Step::Union(all) => {
                let mut found = Vec::new();
                for steps in all {
                    found.extend(evaluate(steps, values.clone(), root)?);
                }
                found
            }
            Step::Filter { left, operator, right } => {
                let mut found = Vec::new();
                for item in values.iter().flat_map(|value| children(value)) {
                    if holds(item, left, operator, right.as_ref(), root)? {
                        found.push(item);
                    }
                }
                found
            }
        };
    }
    Ok(values)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn descend<'a>(value: &'a Value, all: &mut Vec<&'a Value>) {
    all.push(value);
    for child in children(value) {
        descend(child, all);
    }
}

fn slice<'a>(
    items: &'a [Value],
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
    single: bool,
    found: &mut Vec<&'a Value>,
) -> Result<(), String> {
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let place = |index: i64| if index < 0 { index + length } else { index };
    if single {
        let index = place(from.unwrap_or(0));
        let item = usize::try_from(index).ok().and_then(|index| items.get(index));
        found.push(item.ok_or_else(|| format!("array index out of bounds: index {index}, length {length}"))?);
        return Ok(());
    }
    let (mut at, end) = (place(from.unwrap_or(0)), place(to.unwrap_or(length)));
    let step = step.unwrap_or(1);
    if at == end {
        return Ok(());
    }
    if !(0..length).contains(&at) {
        return Err(format!("array index out of bounds: index {at}, length {length}"));
    }
    if !(0..=length).contains(&end) {
        return Err(format!("array index out of bounds: index {}, length {length}", end - 1));
    }
    if at > end {
        return Err(format!("starting index {at} is greater than ending index {end}"));
    }
    if step <= 0 {
        return Err("step must be > 0".into());
    }
    while at < end {
        found.extend(usize::try_from(at).ok().and_then(|index| items.get(index)));
        at += step;
    }
    Ok(())
}

fn holds(item: &Value, left: &Operand, operator: &str, right: Option<&Operand>, root: &Value) -> Result<bool, String> {
    let value = |operand: &Operand| -> Result<Option<Value>, String> {
        Ok(match operand {
            Operand::Literal(value) => Some(value.clone()),
            Operand::Path(steps) => {
                let steps: &[Step] = steps;
                evaluate(steps, vec![item], root)?.first().map(|value| (*value).clone())
            }
        })
    };
    let Some(left) = value(left)? else { return Ok(false) };
    let Some(right) = right else { return Ok(true) };
    let Some(right) = value(right)? else { return Ok(false) };
    let order = match (&left, &right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
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
        ] {
            assert_eq!(Template::parse(template).unwrap().print(&object).unwrap(), expected, "{template}");
        }
        assert!(Template::parse("{.a").is_err());
        assert!(Template::parse("{.items[5]}").unwrap().print(&object).is_err());
    }
}
