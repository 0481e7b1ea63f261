//! Go templates over objects: the subset that people write for kubectl. What is not there says so.

use serde_json::Value;

use super::go_value::show;
use super::template_functions::{FUNCTIONS, Slot, display, function, truth};
use super::template_parse::{self, Node, Parsed, Pipe, Placed, Term, line_and_column};
use crate::error::{Error, Result};

#[derive(Clone, Debug)]
pub struct Template {
    text: String,
    parsed: Parsed,
    /// A key that is not there is an error.
    strict: bool,
}

/// A range over a number ends before memory does.
const MOST_TURNS: u64 = 1 << 20;

/// A template may call itself.
const DEEPEST: usize = 200;

impl Template {
    pub fn parse(text: &str) -> Result<Self> {
        let parsed = template_parse::parse(text)
            .and_then(|parsed| {
                let line = |(at, why)| (line_and_column(text, at).0, why);
                check(&parsed.main, &mut vec!["$".to_owned()]).map_err(line)?;
                let each = |nodes: &Vec<Node>| check(nodes, &mut vec!["$".to_owned()]);
                parsed.named.values().try_for_each(each).map_err(line)?;
                Ok(parsed)
            })
            .map_err(|(line, why)| {
                Error::say(format!("error parsing template {text}, template: output:{line}: {why}"))
            })?;
        Ok(Self { text: text.to_owned(), parsed, strict: false })
    }

    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    pub fn print(&self, object: &Value) -> Result<String> {
        let mut out = String::new();
        let variables = vec![("$".to_owned(), Some(object.clone()))];
        let name = "output".to_owned();
        let mut run = Run { template: self, name, variables, named: &self.parsed, depth: 0, out: &mut out };
        let done = run.nodes(&self.parsed.main, &Some(object.clone()));
        done.map_err(|why| {
            // As kubectl does: what was printed so far, and what helps to find the mistake.
            crate::text::print(format!(
                "{out}Error executing template: {why}. Printing more information for debugging the template:\n\ttemplate was:\n\t\t{}\n\traw data was:\n\t\t{}\n\tobject given to template engine was:\n\t\t{}\n\n",
                self.text,
                super::compact(object),
                show(object)
            ));
            Error::say(format!("error executing template {}: {why}", crate::text::quote(&self.text)))
        })?;
        Ok(out)
    }
}

/// A function or a variable that is not known is told before anything is printed.
fn check(nodes: &[Node], known: &mut Vec<String>) -> Result<(), (usize, String)> {
    let around = known.len();
    for node in nodes {
        let begin = known.len();
        match node {
            Node::Text(_) | Node::Break | Node::Continue => {}
            Node::Print(p) => check_pipe(p, known)?,
            Node::Call { pipe: p, .. } => {
                p.as_ref().map_or(Ok(()), |p| check_pipe(p, known))?;
                known.truncate(begin);
            }
            Node::If { pipe: p, then, otherwise }
            | Node::With { pipe: p, then, otherwise }
            | Node::Range { pipe: p, each: then, otherwise } => {
                check_pipe(p, known)?;
                check(then, known)?;
                check(otherwise, known)?;
                known.truncate(begin);
            }
        }
    }
    known.truncate(around);
    Ok(())
}

fn check_pipe(pipe: &Pipe, known: &mut Vec<String>) -> Result<(), (usize, String)> {
    for placed in pipe.calls.iter().flatten() {
        match &placed.term {
            Term::Function(name) if !FUNCTIONS.contains(&&**name) => {
                return Err((placed.at, format!("function {} not defined", crate::text::quote(name))));
            }
            Term::Variable(name, _) if !known.contains(name) => {
                return Err((placed.at, format!("undefined variable {}", crate::text::quote(name))));
            }
            Term::Group(inner, _) => check_pipe(inner, known)?,
            _ => {}
        }
    }
    if !pipe.assign {
        known.extend(pipe.names.iter().cloned());
    }
    Ok(())
}

struct Run<'o> {
    template: &'o Template,
    /// Of the template that runs.
    name: String,
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
                Node::Call { name, pipe, at } => {
                    self.template(name, *at, pipe.as_ref(), dot)?;
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
    fn template(&mut self, name: &str, at: usize, pipe: Option<&Pipe>, dot: &Slot) -> Result<(), String> {
        let value = match pipe {
            Some(pipe) => self.pipe(pipe, dot)?,
            None => None,
        };
        let named = self.named;
        let nodes = match named.named.get(name) {
            Some(nodes) => nodes,
            None if name == "output" => &named.main,
            None => {
                let (why, shown) = (crate::text::quote(name), format!("{{{{template {}}}}}", crate::text::quote(name)));
                return Err(self.fault(at, &shown, &format!("template {why} not defined")));
            }
        };
        if self.depth >= DEEPEST {
            let shown = format!("{{{{template {}}}}}", crate::text::quote(name));
            return Err(self.fault(at, &shown, "exceeded maximum template depth"));
        }
        self.depth += 1;
        let outside = std::mem::replace(&mut self.variables, vec![("$".to_owned(), value.clone())]);
        let outer = std::mem::replace(&mut self.name, name.to_owned());
        let done = self.nodes(nodes, &value);
        self.variables = outside;
        self.name = outer;
        self.depth -= 1;
        done.map(|_| ())
    }

    fn range(&mut self, pipe: &Pipe, each: &[Node], otherwise: &[Node], dot: &Slot) -> Result<Flow, String> {
        let pairs: Vec<(Value, Value)> = match self.pipe(pipe, dot)? {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items.into_iter().enumerate().map(|(at, item)| (at.into(), item)).collect(),
            Some(Value::Object(map)) => map.into_iter().map(|(key, value)| (key.into(), value)).collect(),
            Some(Value::Number(number)) if number.is_u64() => {
                let count = number.as_u64().unwrap_or_default();
                if count > MOST_TURNS {
                    let calls: Vec<String> = pipe.calls.iter().map(|call| template_parse::shown(call)).collect();
                    return Err(self.fault(place_of(pipe), &calls.join(" | "), "too many turns"));
                }
                (0..count).map(|turn| (turn.into(), turn.into())).collect()
            }
            Some(other) => {
                let why = format!("range can't iterate over {}", show(&other));
                let calls: Vec<String> = pipe.calls.iter().map(|call| template_parse::shown(call)).collect();
                return Err(self.fault(place_of(pipe), &calls.join(" | "), &why));
            }
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

    fn call(&mut self, call: &[Placed], dot: &Slot, last: Option<Slot>) -> Result<Slot, String> {
        let Some((first, rest)) = call.split_first() else { return Ok(None) };
        if let Term::Function(name) = &first.term {
            let mut arguments = rest.iter().map(|term| self.term(term, dot)).collect::<Result<Vec<_>, _>>()?;
            let piped = last.is_some();
            arguments.extend(last);
            if name == "base64decode"
                && let [argument] = &*arguments
                && !matches!(argument, Some(Value::String(_)))
            {
                let why = match argument {
                    None | Some(Value::Null) => "invalid value; expected string".to_owned(),
                    Some(value) => {
                        format!("wrong type for value; expected string; got {}", ferry_schema::go_type(value))
                    }
                };
                let at = rest.first().filter(|_| !piped).unwrap_or(first);
                return Err(self.fault(at.at, &at.shown, &why));
            }
            let names: Vec<&'static str> =
                arguments.iter().enumerate().map(|(at, slot)| type_name(rest.get(at), slot)).collect();
            return function(name, &arguments, &names).map_err(|why| {
                // The number of arguments is looked at before the function is called.
                let shown = if why.starts_with("wrong number") { name.clone() } else { template_parse::shown(call) };
                self.fault(first.at, &shown, &why)
            });
        }
        if rest.is_empty() && matches!(first.term, Term::Literal(Value::Null)) {
            return Err(self.fault(first.at, &first.shown, "nil is not a command"));
        }
        if !rest.is_empty() || last.is_some() {
            let why = match &first.term {
                Term::Field(path) | Term::Variable(_, path) if !path.is_empty() => {
                    format!("{} is not a method but has arguments", path.last().map_or("", String::as_str))
                }
                _ => format!("can't give argument to non-function {}", first.shown),
            };
            return Err(self.fault(first.at, &first.shown, &why));
        }
        self.term(first, dot)
    }

    fn term(&mut self, placed: &Placed, dot: &Slot) -> Result<Slot, String> {
        let strict = self.template.strict;
        let (value, path) = match &placed.term {
            Term::Dot => return Ok(dot.clone()),
            Term::Literal(value) => return Ok(Some(value.clone())),
            Term::Field(path) => (dot.clone(), path),
            Term::Variable(name, path) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                let undefined = || self.fault(placed.at, &placed.shown, &format!("undefined variable: {name}"));
                (found.ok_or_else(undefined)?.1.clone(), path)
            }
            Term::Group(pipe, path) => (self.pipe(pipe, dot)?, path),
            Term::Function(name) => {
                return function(name, &[], &[]).map_err(|why| self.fault(placed.at, &placed.shown, &why));
            }
        };
        walk(value, path, strict).map_err(|why| self.fault(placed.at, &placed.shown, &why))
    }

    /// A mistake, where it was made.
    fn fault(&self, at: usize, shown: &str, why: &str) -> String {
        let (line, column) = line_and_column(&self.template.text, at);
        format!("template: output:{line}:{column}: executing {} at <{shown}>: {why}", crate::text::quote(&self.name))
    }
}

/// What Go calls the type of an argument.
fn type_name(term: Option<&Placed>, slot: &Slot) -> &'static str {
    let is_length = |pipe: &Pipe| {
        let last = pipe.calls.last().and_then(|call| call.first());
        last.is_some_and(|first| matches!(&first.term, Term::Function(name) if name == "len"))
    };
    let of_template = match term.map(|placed| &placed.term) {
        Some(Term::Literal(_)) => true,
        Some(Term::Group(pipe, path)) => path.is_empty() && is_length(pipe),
        _ => false,
    };
    match slot {
        Some(Value::Number(number)) if of_template && !number.is_f64() => "int",
        Some(value) => ferry_schema::go_type(value),
        None => "<nil>",
    }
}

fn place_of(pipe: &Pipe) -> usize {
    pipe.calls.first().and_then(|call| call.first()).map_or(0, |placed| placed.at)
}

fn walk(mut value: Slot, path: &[String], strict: bool) -> Result<Slot, String> {
    for field in path {
        value = match value {
            Some(Value::Object(mut map)) => match map.remove(field) {
                None if strict => return Err(format!("map has no entry for key {}", crate::text::quote(field))),
                found => found,
            },
            None if strict => return Err(format!("nil data; no entry for key {}", crate::text::quote(field))),
            None => None,
            Some(Value::Null) => return Err(format!("nil pointer evaluating interface {{}}.{field}")),
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
            ("{{range.items}}{{.k}} {{end}}", "p q "),
            ("{{with.metadata}}{{.name}}{{end}}", "a"),
            ("{{if(eq .n 4)}}four{{else if(eq .n 3)}}three{{end}}", "three"),
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
            ("{{range 3}}x{{end}}{{range $i := 2}}{{$i}}{{end}}", "xxx01"),
            ("{{0x10}} {{1_000}} {{-3}}", "16 1000 -3"),
            ("{{eq .n 4 3}} {{eq .nope nil}} {{ne .metadata.name \"a\"}} {{gt .n 2}}", "true true false true"),
            ("{{print \"a\" 1 2 nil}} {{print .nope}}", "a1 2 <nil> <nil>"),
            ("{{printf \"%d %s\" .n .n}}", "3 %!s(int64=3)"),
            (r#"{{"it's \"<b>\"\n" | js}}"#, r#"it\'s \"\u003Cb\u003E\"\u000A"#),
        ] {
            assert_eq!(Template::parse(template).unwrap().print(&object).unwrap(), expected, "{template}");
        }
        assert!(Template::parse("{{nope .x}}").is_err());
        for wrong in ["{{if .x}}", "{{break}}", "{{define}}{{end}}", "{{template}}", r#"{{define "x"}}"#, "{{.a)}}"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
        for (template, why) in [
            (
                "{{.n.deeper}}",
                r#":1:4: executing "output" at <.n.deeper>: can't evaluate field deeper in type interface {}"#,
            ),
            ("a\n {{.n.x}}", r#":2:5: executing "output" at <.n.x>: can't evaluate field x in type interface {}"#),
            ("{{index .items 9}}", r#":1:2: executing "output" at <index .items 9>: error calling index"#),
            ("{{.n 3}}", r#":1:2: executing "output" at <.n>: n is not a method but has arguments"#),
        ] {
            let said = Template::parse(template).unwrap().print(&object).unwrap_err().inner();
            assert!(said.contains(&format!("template: output{why}")), "{said}");
        }
        for (template, why) in [
            ("{{$x}}", "output:1: undefined variable \"$x\""),
            ("{{if $y := .n}}{{end}}{{$y}}", "output:1: undefined variable \"$y\""),
            ("{{\"open}}", "output:1: unterminated quoted string"),
            ("{{`open}}", "output:1: unterminated raw quoted string"),
            ("{{1x}}", "output:1: bad number syntax: \"1x\""),
        ] {
            let said = Template::parse(template).unwrap_err().inner();
            assert!(said.ends_with(why), "{said}");
        }
        for (template, why) in [
            ("{{gt .n 2.5}}", "error calling gt: incompatible types for comparison: int64 and float64"),
            ("{{eq .metadata.name 3}}", "error calling eq: incompatible types for comparison: string and int"),
            ("{{.nope | base64decode}}", "at <base64decode>: invalid value; expected string"),
            (
                "a{{template \"x\"}}",
                "output:1:12: executing \"output\" at <{{template \"x\"}}>: template \"x\" not defined",
            ),
        ] {
            let said = Template::parse(template).unwrap().print(&object).unwrap_err().inner();
            assert!(said.ends_with(why), "{said}");
        }
        let said = Template::parse("{{.nope}}").unwrap().strict(true).print(&object).unwrap_err().inner();
        assert!(said.ends_with(r#"at <.nope>: map has no entry for key "nope""#), "{said}");
        let endless = r#"{{define "x"}}{{template "x" .}}{{end}}{{template "x" .}}"#;
        assert!(Template::parse(endless).unwrap().print(&object).is_err());
        assert!(Template::parse(r#"{{template "nope" .}}"#).unwrap().print(&object).is_err());
        assert!(Template::parse(&format!("{{{{{}1{}}}}}", "(".repeat(9999), ")".repeat(9999))).is_err());
    }
}
