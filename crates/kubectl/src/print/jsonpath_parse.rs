//! JSONPath expressions: text to nodes. Mistakes are found where kubectl finds them.

use serde_json::Value;

#[derive(Clone, Debug)]
pub enum Part {
    Text(Value),
    Action(Vec<Node>),
}

#[derive(Clone, Debug)]
pub enum Node {
    Field(String),
    Wildcard,
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<Node>>),
    /// Without a right side: whether there is something on the left.
    Filter {
        left: Vec<Node>,
        operator: String,
        right: Option<Vec<Node>>,
    },
    /// A text stands once, whatever stands before it.
    Text(Value),
    Literal(Value),
    /// `range` and `end`; nothing else is known.
    Word(String),
}

#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub from: Option<i64>,
    pub to: Option<i64>,
    pub step: Option<i64>,
    /// One index alone: `to` was made of `from`.
    pub single: bool,
}

/// Filters and unions stand in each other.
const DEEPEST: usize = 100;

pub fn parse(text: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut reader) = (Vec::new(), Reader { text, at: 0, depth: 0 });
    while let Some(open) = reader.rest().find('{') {
        if open > 0 {
            parts.push(Part::Text(reader.rest()[..open].into()));
        }
        reader.at += open + 1;
        parts.push(Part::Action(reader.action()?));
    }
    if !reader.rest().is_empty() {
        parts.push(Part::Text(reader.rest().into()));
    }
    Ok(parts)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

fn ends_name(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// The nodes of another text, as if it stood in braces.
    fn inner(&self, text: &str) -> Result<Vec<Node>, String> {
        if self.depth >= DEEPEST {
            return Err("too many filters in each other".into());
        }
        let text = format!("{text}}}");
        Reader { text: &text, at: 0, depth: self.depth + 1 }.action()
    }

    /// Up to and with the brace that ends it.
    fn action(&mut self) -> Result<Vec<Node>, String> {
        let mut nodes = Vec::new();
        loop {
            if self.rest().starts_with("[?(") {
                self.at += 3;
                nodes.push(self.filter()?);
                continue;
            }
            if self.rest().starts_with("..") {
                if matches!(nodes.last(), Some(Node::Recursive)) {
                    return Err("invalid multiple recursive descent".into());
                }
                self.at += 2;
                nodes.push(Node::Recursive);
                if self.peek().is_some_and(is_word) {
                    nodes.push(self.field());
                }
                continue;
            }
            let begin = self.at;
            match self.next() {
                Some('}') => return Ok(nodes),
                None | Some('\n' | '\r') => return Err("unclosed action".into()),
                Some(' ' | '@' | '$') => {}
                Some('[') => self.brackets(&mut nodes)?,
                Some(quote @ ('"' | '\'')) => nodes.push(Node::Text(self.quoted(begin, quote)?.into())),
                Some('.') => nodes.push(self.field()),
                Some(c) if c == '+' || c == '-' || c.is_numeric() => {
                    while self.peek().is_some_and(|c| c == '.' || c.is_numeric()) {
                        self.next();
                    }
                    nodes.push(Node::Literal(number(&self.text[begin..self.at])?));
                }
                Some(c) if is_word(c) => {
                    while self.peek().is_some_and(|c| !ends_name(c)) {
                        self.next();
                    }
                    nodes.push(match &self.text[begin..self.at] {
                        "true" => Node::Literal(true.into()),
                        "false" => Node::Literal(false.into()),
                        word => Node::Word(word.to_owned()),
                    });
                }
                Some(c) => return Err(format!("unrecognized character in action: {}", shown(c))),
            }
        }
    }

    /// Behind its dot. A backslash keeps what ends a name otherwise.
    fn field(&mut self) -> Node {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|c| !ends_name(*c)) {
            self.next();
            let kept = if c == '\\' { self.next() } else { Some(c) };
            name.extend(kept.filter(|c| *c != '\\'));
        }
        if name == "*" { Node::Wildcard } else { Node::Field(name) }
    }

    fn quoted(&mut self, begin: usize, quote: char) -> Result<String, String> {
        let mut before = quote;
        loop {
            match self.next() {
                None | Some('\n') => return Err("unterminated quoted string".into()),
                Some(c) if c == quote && before != '\\' => break,
                Some(c) => before = c,
            }
        }
        let text = &self.text[begin..self.at];
        unquote(&text[1..text.len() - 1], quote).ok_or_else(|| format!("unquote string {text} error invalid syntax"))
    }

    fn brackets(&mut self, nodes: &mut Vec<Node>) -> Result<(), String> {
        let end = self.rest().find([']', '\n']).filter(|end| self.rest()[*end..].starts_with(']'));
        let inner = &self.rest()[..end.ok_or("unterminated array")?];
        self.at += inner.len() + 1;
        let inner = if inner == "*" { ":" } else { inner };
        if inner.contains(',') {
            let each = inner.split(',').map(|part| self.inner(&format!("[{}]", part.trim_matches(' '))));
            nodes.push(Node::Union(each.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = inner.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).filter(|key| !key.contains('\''));
        match key {
            Some(key) => nodes.extend(self.inner(&format!(".{key}"))?),
            None => nodes.push(Node::Slice(slice(inner)?)),
        }
        Ok(())
    }

    fn filter(&mut self) -> Result<Node, String> {
        let begin = self.at;
        let (mut quote, mut closed, mut before) = (None, false, ' ');
        loop {
            let c = self.next().filter(|c| *c != '\n').ok_or("unterminated filter")?;
            match c {
                '"' | '\'' => match quote {
                    None => quote = Some(c),
                    Some(open) => closed |= open == c && before != '\\',
                },
                // Of several texts only the first is looked for.
                ')' if quote.is_none() || closed => break,
                _ => {}
            }
            before = c;
        }
        let text = &self.text[begin..self.at - 1];
        if self.next() != Some(']') {
            return Err("unclosed array expect ]".into());
        }
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let compared = text.find(is_operator).filter(|at| *at > 0).and_then(|at| {
            let behind = &text[at..];
            let end = behind.find(|c| !is_operator(c)).unwrap_or(behind.len());
            // Something must be left to compare with.
            let end = if end == behind.len() { end - 1 } else { end };
            (end > 0).then(|| (&text[..at], &behind[..end], &behind[end..]))
        });
        Ok(match compared {
            Some((left, operator, right)) => {
                Node::Filter { left: self.inner(left)?, operator: operator.to_owned(), right: Some(self.inner(right)?) }
            }
            None => Node::Filter { left: self.inner(text)?, operator: "exists".into(), right: None },
        })
    }
}

fn number(text: &str) -> Result<Value, String> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if let Ok(whole) = digits.parse::<i64>() {
        return Ok(whole.into());
    }
    let float = digits.parse::<f64>().ok().filter(|_| digits.contains(|c: char| c.is_ascii_digit()));
    float.map(Value::from).ok_or_else(|| format!("cannot parse number {text}"))
}

fn slice(text: &str) -> Result<Slice, String> {
    let bad = || format!("invalid array index {text}");
    let parts: Vec<&str> = text.split(':').collect();
    let plain = |part: &&str| part.strip_prefix('-').unwrap_or(part).bytes().all(|c| c.is_ascii_digit());
    if parts.len() > 3 || !parts.iter().all(plain) {
        return Err(bad());
    }
    let place = |at: usize| match parts.get(at) {
        None | Some(&"") => Ok(None),
        Some(part) => part.parse().map(Some).map_err(|_| format!("array index {part} is not a number")),
    };
    Ok(Slice { from: place(0)?, to: place(1)?, step: place(2)?, single: parts.len() == 1 })
}

/// As Go's %#U shows it.
fn shown(c: char) -> String {
    match c.is_control() {
        true => format!("U+{:04X}", u32::from(c)),
        false => format!("U+{:04X} '{c}'", u32::from(c)),
    }
}

/// What a quoted text means, by Go's rules.
fn unquote(inner: &str, quote: char) -> Option<String> {
    let mut out = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            continue;
        }
        match chars.clone().next()? {
            kind @ ('x' | 'u' | 'U') => {
                chars.next();
                let digits = match kind {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let digits: String = chars.by_ref().take(digits).collect();
                let code = u32::from_str_radix(&digits, 16).ok()?;
                match kind {
                    'x' if digits.len() == 2 => out.push(u8::try_from(code).ok()?),
                    'u' if digits.len() == 4 => out.extend(char::from_u32(code)?.encode_utf8(&mut [0; 4]).bytes()),
                    'U' if digits.len() == 8 => out.extend(char::from_u32(code)?.encode_utf8(&mut [0; 4]).bytes()),
                    _ => return None,
                }
            }
            '0'..='7' => {
                let digits: String = chars.by_ref().take(3).collect();
                out.push(u8::from_str_radix(&digits, 8).ok().filter(|_| digits.len() == 3)?);
            }
            simple => {
                chars.next();
                out.push(match simple {
                    'a' => 7,
                    'b' => 8,
                    'f' => 12,
                    'n' => b'\n',
                    'r' => b'\r',
                    't' => b'\t',
                    'v' => 11,
                    '\\' => b'\\',
                    other if other == quote => u8::try_from(other).ok()?,
                    _ => return None,
                });
            }
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}
