//! JSONPath expressions: text to steps.

use serde_json::Value;

#[derive(Clone, Debug)]
pub enum Part {
    Text(String),
    Path(Vec<Step>),
    Range(Vec<Step>),
    End,
    /// A word that is neither a path nor a keyword.
    Unknown(String),
}

#[derive(Clone, Debug)]
pub enum Step {
    Root,
    Current,
    Field(String),
    Wildcard,
    Recursive,
    Slice { from: Option<i64>, to: Option<i64>, step: Option<i64>, single: bool },
    Union(Vec<Vec<Step>>),
    Filter { left: Operand, operator: String, right: Option<Operand> },
    Literal(Value),
}

#[derive(Clone, Debug)]
pub enum Operand {
    Path(Vec<Step>),
    Literal(Value),
}

/// Where the brace closes that the text begins with.
pub fn closing(text: &str) -> Option<usize> {
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), c) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '}') => return Some(index),
            _ => {}
        }
    }
    None
}

pub fn action(text: &str) -> Result<Part, String> {
    let trimmed = text.trim();
    if trimmed == "end" {
        return Ok(Part::End);
    }
    if let Some(path) = trimmed.strip_prefix("range").filter(|rest| rest.starts_with([' ', '.', '@', '$', '['])) {
        return Ok(Part::Range(Steps::new(path.trim()).parse()?));
    }
    if trimmed.starts_with(['"', '\'']) {
        return Ok(Part::Text(unquote(trimmed)?));
    }
    if !trimmed.is_empty() && trimmed.chars().all(|c| c.is_alphanumeric() || c == '_') {
        return Ok(Part::Unknown(trimmed.to_owned()));
    }
    Ok(Part::Path(Steps::new(trimmed).parse()?))
}

fn unquote(text: &str) -> Result<String, String> {
    let quote = text.chars().next().unwrap_or('"');
    let inner = text[1..].strip_suffix(quote).ok_or("unterminated quoted string")?;
    let mut out = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some(kind @ ('x' | 'u' | 'U')) => {
                    let digits = match kind {
                        'x' => 2,
                        'u' => 4,
                        _ => 8,
                    };
                    let code: String = chars.by_ref().take(digits).collect();
                    let found = u32::from_str_radix(&code, 16).ok().filter(|_| code.len() == digits);
                    out.push(found.and_then(char::from_u32).ok_or("invalid syntax")?);
                }
                Some(c) => out.push(c),
                None => return Err("invalid syntax".into()),
            },
            c => out.push(c),
        }
    }
    Ok(out)
}

struct Steps<'a> {
    rest: &'a str,
}

impl<'a> Steps<'a> {
    fn new(rest: &'a str) -> Self {
        Self { rest }
    }

    fn parse(mut self) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            let Some(c) = self.rest.chars().next() else { return Ok(steps) };
            match c {
                '$' => {
                    self.rest = &self.rest[1..];
                    steps.push(Step::Root);
                }
                '@' => {
                    self.rest = &self.rest[1..];
                    steps.push(Step::Current);
                }
                '.' => {
                    self.rest = &self.rest[1..];
                    if self.rest.starts_with('.') {
                        steps.push(Step::Recursive);
                    } else if let Some(step) = self.field() {
                        steps.push(step);
                    }
                }
                '*' => {
                    self.rest = &self.rest[1..];
                    steps.push(Step::Wildcard);
                }
                '[' => steps.push(self.brackets()?),
                '"' | '\'' => {
                    let end = closing_quote(self.rest).ok_or("unterminated quoted string")?;
                    steps.push(Step::Literal(unquote(&self.rest[..=end])?.into()));
                    self.rest = &self.rest[end + 1..];
                }
                c if c.is_alphanumeric() || c == '_' => match steps.last() {
                    Some(Step::Recursive) => steps.extend(self.field()),
                    _ => {
                        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
                        return Err(format!("unrecognized identifier {}", &self.rest[..end]));
                    }
                },
                c => return Err(format!("unrecognized character in action: U+{:04X} '{c}'", u32::from(c))),
            }
        }
    }

    fn field(&mut self) -> Option<Step> {
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((index, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' | ']' | ' ' | '\t' | '\n' | '@' | '$' | ')' | '(' | '=' | '<' | '>' | '!' | '|' | ','
                | '{' | '}' => {
                    end = index;
                    break;
                }
                c => name.push(c),
            }
        }
        self.rest = &self.rest[end..];
        match &*name {
            "" => None,
            "*" => Some(Step::Wildcard),
            _ => Some(Step::Field(name)),
        }
    }

    fn brackets(&mut self) -> Result<Step, String> {
        let end = closing_bracket(self.rest).ok_or("unterminated array")?;
        let inner = self.rest[1..end].trim();
        self.rest = &self.rest[end + 1..];
        if let Some(filter) = inner.strip_prefix("?(") {
            return filter_step(filter.strip_suffix(')').ok_or("unterminated filter")?);
        }
        let parts = split(inner, ',');
        if parts.len() > 1 {
            let all = parts.iter().map(|part| Ok(vec![element(part.trim())?])).collect::<Result<_, String>>()?;
            return Ok(Step::Union(all));
        }
        element(inner)
    }
}

fn element(text: &str) -> Result<Step, String> {
    if text == "*" {
        return Ok(Step::Wildcard);
    }
    if text.starts_with(['"', '\'']) {
        return Ok(Step::Field(unquote(text)?));
    }
    let bad = || format!("invalid array index {text}");
    let number = |part: &str| match part.trim() {
        "" => Ok(None),
        part => part.parse().map(Some).map_err(|_| bad()),
    };
    let parts: Vec<&str> = text.split(':').collect();
    match &*parts {
        [one] => {
            Ok(Step::Slice { from: Some(one.trim().parse().map_err(|_| bad())?), to: None, step: None, single: true })
        }
        [from, to] => Ok(Step::Slice { from: number(from)?, to: number(to)?, step: None, single: false }),
        [from, to, step] => {
            Ok(Step::Slice { from: number(from)?, to: number(to)?, step: number(step)?, single: false })
        }
        _ => Err(bad()),
    }
}

fn filter_step(text: &str) -> Result<Step, String> {
    for operator in ["==", "!=", "<=", ">=", "<", ">"] {
        if let Some(at) = outside_quotes(text, operator) {
            return Ok(Step::Filter {
                left: operand(text[..at].trim())?,
                operator: operator.to_owned(),
                right: Some(operand(text[at + operator.len()..].trim())?),
            });
        }
    }
    Ok(Step::Filter { left: operand(text.trim())?, operator: "exists".into(), right: None })
}

fn operand(text: &str) -> Result<Operand, String> {
    if text.starts_with(['"', '\'']) {
        return Ok(Operand::Literal(unquote(text)?.into()));
    }
    if text.starts_with(['@', '$', '.']) {
        return Ok(Operand::Path(Steps::new(text).parse()?));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value) => Ok(Operand::Literal(value)),
        Err(_) => Err(format!("unrecognized identifier {text}")),
    }
}

fn outside_quotes(text: &str, wanted: &str) -> Option<usize> {
    let mut quote: Option<char> = None;
    for (index, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if text[index..].starts_with(wanted) => return Some(index),
            None => {}
        }
    }
    None
}

fn closing_quote(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(index),
            _ => {}
        }
    }
    None
}

fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0usize, None);
    for (index, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

fn split(text: &str, at: char) -> Vec<String> {
    let (mut parts, mut quote) = (vec![String::new()], None);
    for c in text.chars() {
        match quote {
            Some(open) if open == c => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == at => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}
