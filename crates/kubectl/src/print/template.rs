//! Go templates over objects: the subset that people write for kubectl. What is not there says so.

use serde_json::Value;

use super::go_value::show;
use super::template_functions::{FUNCTIONS, Slot, display, function, truth};
use super::template_parse::{self, Node, Parsed, Pipe, Term};
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct Template {
    text: String,
    parsed: Parsed,
}

/// A template may call itself.
const DEEPEST: usize = 200;

impl Template {
    pub fn parse(text: &str) -> Result<Self> {
        let parsed = template_parse::parse(text)
            .and_then(|parsed| {
                check(&parsed.main)?;
                parsed.named.values().try_for_each(|nodes| check(nodes))?;
                Ok(parsed)
            })
            .map_err(|why| Error::say(format!("error parsing template {text}, template: output:1: {why}")))?;
        Ok(Self { text: text.to_owned(), parsed })
    }

    pub fn print(&self, object: &Value) -> Result<String> {
        let mut out = String::new();
        let variables = vec![("$".to_owned(), Some(object.clone()))];
        let mut run = Run { variables, named: &self.parsed, depth: 0, out: &mut out };
        run.nodes(&self.parsed.main, &Some(object.clone())).map_err(|why| {
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
            Node::Text(_) | Node::Break | Node::Continue => {}
            Node::Print(p) => pipe(p)?,
            Node::Call { pipe: p, .. } => p.as_ref().map_or(Ok(()), pipe)?,
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

struct Run<'o> {
    variables: Vec<(String, Slot)>,
    named: &'o Parsed,
    depth: usize,
    out: &'o mut String,
}

/// What comes behind a list of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

impl Run<'_> {
    fn nodes(&mut self, nodes: &[Node], dot: &Slot) -> Result<Flow, String> {
        for node in nodes {
            let flow = match node {
                Node::Text(text) => {
                    self.out.push_str(text);
                    Flow::On
                }
                Node::Print(pipe) => {
                    let value = self.pipe(pipe, dot)?;
                    if pipe.names.is_empty() {
                        let text = display(&value);
                        self.out.push_str(&text);
                    } else if let Some(name) = pipe.names.first() {
                        self.set(name, value, pipe.assign);
                    }
                    Flow::On
                }
                Node::If { pipe, then, otherwise } => {
                    let depth = self.variables.len();
                    let value = self.pipe(pipe, dot)?;
                    self.declare(pipe, &value);
                    let flow = self.nodes(if truth(&value) { then } else { otherwise }, dot)?;
                    self.variables.truncate(depth);
                    flow
                }
                Node::With { pipe, then, otherwise } => {
                    let depth = self.variables.len();
                    let value = self.pipe(pipe, dot)?;
                    self.declare(pipe, &value);
                    let flow = match truth(&value) {
                        true => self.nodes(then, &value)?,
                        false => self.nodes(otherwise, dot)?,
                    };
                    self.variables.truncate(depth);
                    flow
                }
                Node::Range { pipe, each, otherwise } => self.range(pipe, each, otherwise, dot)?,
                Node::Call { name, pipe } => {
                    self.template(name, pipe.as_ref(), dot)?;
                    Flow::On
                }
                Node::Break => Flow::Break,
                Node::Continue => Flow::Continue,
            };
            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    /// Another template sees its argument and no variables of this one.
    fn template(&mut self, name: &str, pipe: Option<&Pipe>, dot: &Slot) -> Result<(), String> {
        let value = match pipe {
            Some(pipe) => self.pipe(pipe, dot)?,
            None => None,
        };
        let named = self.named;
        let nodes = match named.named.get(name) {
            Some(nodes) => nodes,
            None if name == "output" => &named.main,
            None => return Err(format!("template {} not defined", crate::text::quote(name))),
        };
        if self.depth >= DEEPEST {
            return Err("exceeded maximum template depth".into());
        }
        self.depth += 1;
        let outside = std::mem::replace(&mut self.variables, vec![("$".to_owned(), value.clone())]);
        let done = self.nodes(nodes, &value);
        self.variables = outside;
        self.depth -= 1;
        done.map(|_| ())
    }

    fn range(&mut self, pipe: &Pipe, each: &[Node], otherwise: &[Node], dot: &Slot) -> Result<Flow, String> {
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
            let flow = self.nodes(each, &Some(value))?;
            self.variables.truncate(depth);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::On)
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
            ("{{range .items}}{{.k}}{{break}}{{end}}", "p"),
            ("{{range .items}}{{if not .on}}{{continue}}{{end}}{{.k}}{{end}}", "q"),
            (r#"{{define "k"}}<{{.k}}>{{end}}{{range .items}}{{template "k" .}}{{end}}"#, "<p><q>"),
            (r#"{{block "n" .metadata}}{{.name}}{{end}}{{template "n" .metadata}}"#, "aa"),
            (r#"{{define "x"}}{{$}}{{end}}{{template "x"}}"#, "<no value>"),
            (r#"{{html "<a href='x'>&\"</a>"}}"#, "&lt;a href=&#39;x&#39;&gt;&amp;&#34;&lt;/a&gt;"),
            (r#"{{"it's \"<b>\"\n" | js}}"#, r#"it\'s \"\u003Cb\u003E\"\u000A"#),
        ] {
            assert_eq!(Template::parse(template).unwrap().print(&object).unwrap(), expected, "{template}");
        }
        assert!(Template::parse("{{nope .x}}").is_err());
        for wrong in ["{{if .x}}", "{{break}}", "{{define}}{{end}}", "{{template}}", r#"{{define "x"}}"#, "{{.a)}}"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
        let endless = r#"{{define "x"}}{{template "x" .}}{{end}}{{template "x" .}}"#;
        assert!(Template::parse(endless).unwrap().print(&object).is_err());
        assert!(Template::parse(r#"{{template "nope" .}}"#).unwrap().print(&object).is_err());
        assert!(Template::parse(&format!("{{{{{}1{}}}}}", "(".repeat(9999), ")".repeat(9999))).is_err());
    }
}
