//! Go templates over objects: the subset that people write for kubectl. What is not there says so.

use serde_json::Value;

use super::go_value::show;
use super::template_parse::{Node, Pipe, Term, parse};
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct Template {
    text: String,
    nodes: Vec<Node>,
}

const NO_VALUE: &str = "<no value>";
const FUNCTIONS: [&str; 19] = [
    "index",
    "len",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and",
    "or",
    "not",
    "print",
    "println",
    "printf",
    "exists",
    "base64decode",
    "html",
    "js",
    "urlquery",
];

impl Template {
    pub fn parse(text: &str) -> Result<Self> {
        let nodes = parse(text)
            .and_then(|nodes| check(&nodes).map(|()| nodes))
            .map_err(|why| Error::say(format!("error parsing template {text}, template: output:1: {why}")))?;
        Ok(Self { text: text.to_owned(), nodes })
    }

    pub fn print(&self, object: &Value) -> Result<String> {
        let mut out = String::new();
        let mut run = Run { variables: vec![("$".to_owned(), Some(object.clone()))], out: &mut out };
        run.nodes(&self.nodes, &Some(object.clone())).map_err(|why| {
            Error::say(format!("error executing template {}: template: output: {why}", crate::text::quote(&self.text)))
        })?;
        Ok(out)
    }
}

/// A function that is not known is told before anything is printed.
fn check(nodes: &[Node]) -> Result<(), String> {
    fn pipe(pipe_: &Pipe) -> Result<(), String> {
        for term in pipe_.calls.iter().flatten() {
            match term {
                Term::Function(name) if !FUNCTIONS.contains(&&**name) => {
                    return Err(format!("function {} not defined", crate::text::quote(name)));
                }
                Term::Group(inner, _) => pipe(inner)?,
                _ => {}
            }
        }
        Ok(())
    }
    for node in nodes {
        match node {
            Node::Text(_) => {}
            Node::Print(p) => pipe(p)?,
            Node::If { pipe: p, then, otherwise } | Node::With { pipe: p, then, otherwise } => {
                pipe(p)?;
                check(then)?;
                check(otherwise)?;
            }
            Node::Range { pipe: p, each, otherwise } => {
                pipe(p)?;
                check(each)?;
                check(otherwise)?;
            }
        }
    }
    Ok(())
}

/// None is Go's "no value": a key that is not there.
type Slot = Option<Value>;

struct Run<'o> {
    variables: Vec<(String, Slot)>,
    out: &'o mut String,
}

fn truth(value: &Slot) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(value)) => *value,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
    }
}

fn display(value: &Slot) -> String {
    match value {
        None | Some(Value::Null) => NO_VALUE.to_owned(),
        Some(value) => show(value),
    }
}

impl Run<'_> {
    fn nodes(&mut self, nodes: &[Node], dot: &Slot) -> Result<(), String> {
        for node in nodes {
            match node {
                Node::Text(text) => self.out.push_str(text),
                Node::Print(pipe) => {
                    let value = self.pipe(pipe, dot)?;
                    if pipe.names.is_empty() {
                        let text = display(&value);
                        self.out.push_str(&text);
                    } else if let Some(name) = pipe.names.first() {
                        self.set(name, value, pipe.assign);
                    }
                }
                Node::If { pipe, then, otherwise } => {
                    let depth = self.variables.len();
                    let value = self.pipe(pipe, dot)?;
                    self.declare(pipe, &value);
                    self.nodes(if truth(&value) { then } else { otherwise }, dot)?;
                    self.variables.truncate(depth);
                }
                Node::With { pipe, then, otherwise } => {
                    let depth = self.variables.len();
                    let value = self.pipe(pipe, dot)?;
                    self.declare(pipe, &value);
                    match truth(&value) {
                        true => self.nodes(then, &value)?,
                        false => self.nodes(otherwise, dot)?,
                    }
                    self.variables.truncate(depth);
                }
                Node::Range { pipe, each, otherwise } => self.range(pipe, each, otherwise, dot)?,
            }
        }
        Ok(())
    }

    fn range(&mut self, pipe: &Pipe, each: &[Node], otherwise: &[Node], dot: &Slot) -> Result<(), String> {
        let pairs: Vec<(Value, Value)> = match self.pipe(pipe, dot)? {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items.into_iter().enumerate().map(|(at, item)| (at.into(), item)).collect(),
            Some(Value::Object(map)) => map.into_iter().map(|(key, value)| (key.into(), value)).collect(),
            Some(other) => return Err(format!("range can't iterate over {}", show(&other))),
        };
        if pairs.is_empty() {
            return self.nodes(otherwise, dot);
        }
        for (key, value) in pairs {
            let depth = self.variables.len();
            match &*pipe.names {
                [name] => self.variables.push((name.clone(), Some(value.clone()))),
                [first, second] => {
                    self.variables.push((first.clone(), Some(key)));
                    self.variables.push((second.clone(), Some(value.clone())));
                }
                _ => {}
            }
            self.nodes(each, &Some(value))?;
            self.variables.truncate(depth);
        }
        Ok(())
    }

    fn declare(&mut self, pipe: &Pipe, value: &Slot) {
        if let Some(name) = pipe.names.first() {
            self.variables.push((name.clone(), value.clone()));
        }
    }

    fn set(&mut self, name: &str, value: Slot, assign: bool) {
        match self.variables.iter_mut().rev().find(|(known, _)| known == name).filter(|_| assign) {
            Some(variable) => variable.1 = value,
            None => self.variables.push((name.to_owned(), value)),
        }
    }

    fn pipe(&mut self, pipe: &Pipe, dot: &Slot) -> Result<Slot, String> {
        let mut last: Option<Slot> = None;
        for call in &pipe.calls {
            last = Some(self.call(call, dot, last)?);
        }
        Ok(last.flatten())
    }

    fn call(&mut self, call: &[Term], dot: &Slot, last: Option<Slot>) -> Result<Slot, String> {
        let Some((first, rest)) = call.split_first() else { return Ok(None) };
        if let Term::Function(name) = first {
            let mut arguments = rest.iter().map(|term| self.term(term, dot)).collect::<Result<Vec<_>, _>>()?;
            arguments.extend(last);
            return function(name, &arguments);
        }
        if !rest.is_empty() || last.is_some() {
            return Err("can't give argument to non-function".into());
        }
        self.term(first, dot)
    }

    fn term(&mut self, term: &Term, dot: &Slot) -> Result<Slot, String> {
        match term {
            Term::Dot => Ok(dot.clone()),
            Term::Literal(value) => Ok(Some(value.clone())),
            Term::Field(path) => walk(dot.clone(), path),
            Term::Variable(name, path) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                let value = found.ok_or_else(|| format!("undefined variable {}", crate::text::quote(name)))?.1.clone();
                walk(value, path)
            }
            Term::Group(pipe, path) => {
                let value = self.pipe(pipe, dot)?;
                walk(value, path)
            }
            Term::Function(name) => function(name, &[]),
        }
    }
}

fn walk(mut value: Slot, path: &[String]) -> Result<Slot, String> {
    for field in path {
        value = match value {
            Some(Value::Object(mut map)) => map.remove(field),
            None | Some(Value::Null) => None,
            Some(_) => return Err(format!("can't evaluate field {field} in type interface {{}}")),
        };
    }
    Ok(value)
}

fn function(name: &str, arguments: &[Slot]) -> Result<Slot, String> {
    let text = |value: &Slot| display(value);
    let need = |count: usize| match arguments.len() >= count {
        true => Ok(()),
        false => Err(format!("wrong number of args for {name}: want at least {count} got {}", arguments.len())),
    };
    Ok(Some(match name {
        "index" => {
            need(1)?;
            let mut value = arguments[0].clone();
            for key in &arguments[1..] {
                value = index(value, key)?;
            }
            return Ok(value);
        }
        "len" => {
            need(1)?;
            match &arguments[0] {
                Some(Value::Array(items)) => items.len().into(),
                Some(Value::Object(map)) => map.len().into(),
                Some(Value::String(text)) => text.len().into(),
                _ => return Err("error calling len: len of nil pointer".into()),
            }
        }
        "eq" => {
            need(2)?;
            arguments[1..].iter().any(|other| *other == arguments[0]).into()
        }
        "ne" => {
            need(2)?;
            (arguments[0] != arguments[1]).into()
        }
        "lt" | "le" | "gt" | "ge" => {
            need(2)?;
            let order = match (&arguments[0], &arguments[1]) {
                (Some(Value::Number(a)), Some(Value::Number(b))) => a.as_f64().partial_cmp(&b.as_f64()),
                (Some(Value::String(a)), Some(Value::String(b))) => Some(a.cmp(b)),
                _ => return Err(format!("error calling {name}: incompatible types for comparison")),
            };
            let order = order.ok_or("incompatible types for comparison")?;
            match name {
                "lt" => order.is_lt(),
                "le" => order.is_le(),
                "gt" => order.is_gt(),
                _ => order.is_ge(),
            }
            .into()
        }
        "and" => return Ok(arguments.iter().find(|value| !truth(value)).or(arguments.last()).cloned().flatten()),
        "or" => return Ok(arguments.iter().find(|value| truth(value)).or(arguments.last()).cloned().flatten()),
        "not" => {
            need(1)?;
            (!truth(&arguments[0])).into()
        }
        "print" => arguments.iter().map(text).collect::<String>().into(),
        "println" => (arguments.iter().map(text).collect::<Vec<_>>().join(" ") + "\n").into(),
        "printf" => {
            need(1)?;
            format(&text(&arguments[0]), &arguments[1..]).into()
        }
        "exists" => {
            need(1)?;
            let mut value = arguments[0].clone();
            for key in &arguments[1..] {
                value = index(value, key).unwrap_or(None);
            }
            value.is_some().into()
        }
        "base64decode" => {
            use base64::Engine;
            need(1)?;
            let decoded = base64::engine::general_purpose::STANDARD.decode(text(&arguments[0]));
            String::from_utf8_lossy(&decoded.map_err(|error| format!("error calling base64decode: {error}"))?).into()
        }
        "urlquery" => crate::client::escaped(&arguments.iter().map(text).collect::<String>()).into(),
        _ => return Err(format!("the function {name} is not supported here")),
    }))
}

fn index(value: Slot, key: &Slot) -> Result<Slot, String> {
    Ok(match (value, key) {
        (Some(Value::Object(mut map)), Some(Value::String(key))) => map.remove(key),
        (Some(Value::Array(items)), Some(Value::Number(at))) => {
            let at = at.as_u64().and_then(|at| usize::try_from(at).ok());
            Some(at.and_then(|at| items.get(at).cloned()).ok_or("error calling index: index out of range")?)
        }
        (None | Some(Value::Null), _) => return Err("error calling index: index of untyped nil".into()),
        _ => return Err("error calling index: can't index item".into()),
    })
}

/// %s, %v, %d, %q and their widths.
fn format(pattern: &str, arguments: &[Slot]) -> String {
    let (mut out, mut rest) = (String::new(), arguments.iter());
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut width = String::new();
        while let Some(c) = chars.peek().filter(|c| c.is_ascii_digit() || matches!(c, '-' | '.' | '+')) {
            width.push(*c);
            chars.next();
        }
        match chars.next() {
            Some('%') => out.push('%'),
            Some(verb) => {
                let Some(value) = rest.next() else {
                    out.push_str(&format!("%!{verb}(MISSING)"));
                    continue;
                };
                let text = if verb == 'q' { crate::text::quote(&display(value)) } else { display(value) };
                let wide: i64 = width.split('.').next().unwrap_or_default().parse().unwrap_or(0);
                let size = usize::try_from(wide.unsigned_abs()).unwrap_or(0).min(4096);
                out.push_str(&if wide < 0 { format!("{text:<size$}") } else { format!("{text:>size$}") });
            }
            None => out.push_str("%!(NOVERB)"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_subset() {
        let object = serde_json::json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "n": 3,
            "items": [{"k": "p"}, {"k": "q", "on": true}]});
        for (template, expected) in [
            ("{{.metadata.name}}", "a"),
            ("{{.metadata.nope}}", "<no value>"),
            ("{{range .items}}{{.k}} {{end}}", "p q "),
            (r#"{{range $i, $e := .items}}{{$i}}={{$e.k}}{{"\n"}}{{end}}"#, "0=p\n1=q\n"),
            ("{{range $k, $v := .metadata.labels}}{{$k}}:{{$v}},{{end}}", "x:1,y:2,"),
            ("{{if .items}}yes{{else}}no{{end}}", "yes"),
            ("{{if eq .n 3}}three{{else if eq .n 4}}four{{end}}", "three"),
            (r#"{{index .metadata.labels "x"}}"#, "1"),
            ("{{len .items}}", "2"),
            (r#"{{printf "%-4s|%q" .metadata.name "z"}}"#, "a   |\"z\""),
            ("{{with .metadata}}{{.name}}{{end}}", "a"),
            ("a {{- .n -}} b", "a3b"),
            ("{{(index .items 1).k}}", "q"),
            (r#"{{"YQ==" | base64decode}}"#, "a"),
            ("{{range .items}}{{if .on}}{{.k}}{{end}}{{end}}", "q"),
        ] {
            assert_eq!(Template::parse(template).unwrap().print(&object).unwrap(), expected, "{template}");
        }
        assert!(Template::parse("{{nope .x}}").is_err());
        assert!(Template::parse("{{if .x}}").is_err());
    }
}
