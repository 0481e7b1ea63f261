//! The JSONPath of printer columns, selectable fields and scale: fields, indexes, `[*]` and filters.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    /// `[?(@.type=="Ready")]`
    Filter {
        path: Vec<Step>,
        operator: String,
        literal: Value,
    },
}

/// A path that was read once and is followed often.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JsonPath(Vec<Step>);

impl JsonPath {
    /// `.spec.a`, with or without braces. What cannot be read ends the path.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        Self(steps(inner.strip_prefix('$').unwrap_or(inner), 0))
    }

    pub fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        follow(&self.0, object)
    }

    pub fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.find(object).into_iter().next()
    }

    /// The names of a path of fields alone; None for any other.
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.0.iter().map(|step| if let Step::Field(name) = step { Some(name.as_str()) } else { None }).collect()
    }
}

/// As many filters may stand in each other; what is deeper cannot be read.
const DEEPEST: usize = 8;

fn steps(text: &str, depth: usize) -> Vec<Step> {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let (name, behind) = name(after);
            rest = behind;
            if name == "*" {
                out.push(Step::Every);
            } else if !name.is_empty() {
                out.push(Step::Field(name));
            }
        } else if let Some(after) = rest.strip_prefix('[') {
            let Some(end) = closing(after) else { break };
            let (inner, behind) = (&after[..end], &after[end + 1..]);
            rest = behind;
            match bracket(inner.trim(), depth) {
                Some(step) => out.push(step),
                None => break,
            }
        } else {
            let (name, behind) = name(rest);
            if name.is_empty() {
                break;
            }
            out.push(Step::Field(name));
            rest = behind;
        }
    }
    out
}

/// A field's name, in which a backslash takes the meaning of the next character.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => name.extend(characters.next().map(|(_, escaped)| escaped)),
            '.' | '[' => return (name, &text[at..]),
            other => name.push(other),
        }
    }
    (name, "")
}

/// Where the bracket closes that was opened before this text.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0usize, None);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn bracket(text: &str, depth: usize) -> Option<Step> {
    if text == "*" {
        return Some(Step::Every);
    }
    if let Ok(index) = text.parse() {
        return Some(Step::Index(index));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        if depth >= DEEPEST {
            return None;
        }
        let operator = ["==", "!=", ">=", "<=", ">", "<"].into_iter().find(|operator| filter.contains(operator));
        let Some(operator) = operator else {
            let path = steps(filter.trim().trim_start_matches('@'), depth + 1);
            return Some(Step::Filter { path, operator: String::new(), literal: Value::Null });
        };
        let (left, right) = filter.split_once(operator)?;
        let path = steps(left.trim().trim_start_matches('@'), depth + 1);
        return Some(Step::Filter { path, operator: operator.into(), literal: literal(right.trim()) });
    }
    let quoted = |mark: char| text.strip_prefix(mark).and_then(|t| t.strip_suffix(mark));
    quoted('\'').or_else(|| quoted('"')).map(|name| Step::Field(name.replace("\\.", ".")))
}

fn literal(text: &str) -> Value {
    let quoted = |mark: char| text.strip_prefix(mark).and_then(|t| t.strip_suffix(mark));
    match quoted('\'').or_else(|| quoted('"')) {
        Some(inner) => inner.into(),
        None => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}

fn follow<'a>(steps: &[Step], value: &'a Value) -> Vec<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return vec![value] };
    match step {
        Step::Field(name) => value.get(name).map(|value| follow(rest, value)).unwrap_or_default(),
        Step::Index(index) => {
            let Some(items) = value.as_array() else { return Vec::new() };
            let at = if *index < 0 { index + i64::try_from(items.len()).unwrap_or(0) } else { *index };
            let item = usize::try_from(at).ok().and_then(|at| items.get(at));
            item.map(|item| follow(rest, item)).unwrap_or_default()
        }
        Step::Every => children(value).into_iter().flat_map(|value| follow(rest, value)).collect(),
        Step::Filter { path, operator, literal } => {
            let fits = |item: &&Value| {
                let found = follow(path, item).into_iter().next();
                if operator.is_empty() { found.is_some() } else { found.is_some_and(|f| compare(f, operator, literal)) }
            };
            children(value).into_iter().filter(fits).flat_map(|value| follow(rest, value)).collect()
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn compare(left: &Value, operator: &str, right: &Value) -> bool {
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => left.partial_cmp(right),
        _ => left.as_f64().partial_cmp(&right.as_f64()),
    };
    match operator {
        "==" => left == right,
        "!=" => left != right,
        ">" => order == Some(std::cmp::Ordering::Greater),
        "<" => order == Some(std::cmp::Ordering::Less),
        ">=" => order.is_some_and(std::cmp::Ordering::is_ge),
        _ => order.is_some_and(std::cmp::Ordering::is_le),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_what_they_name() {
        let object = json!({"metadata": {"annotations": {"a.b/c": "x"}}, "spec": {"l": ["p", "q"], "n": 1},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False"}]}});
        for (path, want) in [
            (".spec.n", vec![json!(1)]),
            ("{.spec.l[0]}", vec![json!("p")]),
            (".spec.l[-1]", vec![json!("q")]),
            (".spec.l[*]", vec![json!("p"), json!("q")]),
            (".spec.none", vec![]),
            (r".metadata.annotations.a\.b/c", vec![json!("x")]),
            (".metadata.annotations['a.b/c']", vec![json!("x")]),
            (r#".status.conditions[?(@.type=="Ready")].status"#, vec![json!("True")]),
            (".status.conditions[?(@.type=='Old')].status", vec![json!("False")]),
            (".spec.l[9999999999999999999]", vec![json!(["p", "q"])]),
        ] {
            let found: Vec<Value> = JsonPath::parse(path).find(&object).into_iter().cloned().collect();
            assert_eq!(found, want, "{path}");
        }
    }

    #[test]
    fn filters_do_not_stand_in_each_other_without_end() {
        let path = format!("{}.a{}", ".a[?(@".repeat(300_000), ")]".repeat(300_000));
        assert!(JsonPath::parse(&path).find(&serde_json::json!({"a": [{"a": 1}]})).is_empty());
    }
}
