//! Go templates: text and actions to a tree.

use serde_json::Value;

#[derive(Clone, Debug)]
pub enum Node {
    Text(String),
    Print(Pipe),
    If { pipe: Pipe, then: Vec<Node>, otherwise: Vec<Node> },
    With { pipe: Pipe, then: Vec<Node>, otherwise: Vec<Node> },
    Range { pipe: Pipe, each: Vec<Node>, otherwise: Vec<Node> },
}

#[derive(Clone, Debug)]
pub struct Pipe {
    /// `$key, $value :=`.
    pub names: Vec<String>,
    pub assign: bool,
    pub calls: Vec<Vec<Term>>,
}

#[derive(Clone, Debug)]
pub enum Term {
    Dot,
    Literal(Value),
    /// `.a.b`.
    Field(Vec<String>),
    /// `$x.a.b`; the first `$` alone is the whole object.
    Variable(String, Vec<String>),
    Function(String),
    Group(Box<Pipe>, Vec<String>),
}

pub fn parse(text: &str) -> Result<Vec<Node>, String> {
    let mut tokens = tokens(text)?.into_iter().peekable();
    let (nodes, end) = block(&mut tokens)?;
    match end {
        None => Ok(nodes),
        Some(word) => Err(format!("unexpected {{{{{word}}}}}")),
    }
}

enum Token {
    Text(String),
    Action(String),
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut trim = false;
    while let Some(open) = rest.find("{{") {
        let mut before = &rest[..open];
        if trim {
            before = before.trim_start();
        }
        let mut inside = &rest[open + 2..];
        if inside.starts_with("- ") {
            before = before.trim_end();
            inside = &inside[2..];
        }
        if !before.is_empty() {
            found.push(Token::Text(before.to_owned()));
        }
        let close = end_of_action(inside).ok_or("unclosed action")?;
        let mut action = &inside[..close];
        trim = action.ends_with(" -");
        if trim {
            action = &action[..action.len() - 2];
        }
        rest = &inside[close + 2..];
        let action = action.trim();
        if !action.starts_with("/*") {
            found.push(Token::Action(action.to_owned()));
        }
    }
    let last = if trim { rest.trim_start() } else { rest };
    if !last.is_empty() {
        found.push(Token::Text(last.to_owned()));
    }
    Ok(found)
}

fn end_of_action(text: &str) -> Option<usize> {
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match quote {
            _ if escaped => escaped = false,
            Some('"') if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '`' => quote = Some(c),
            None if text[index..].starts_with("}}") => return Some(index),
            None => {}
        }
    }
    None
}

type Tokens = std::iter::Peekable<std::vec::IntoIter<Token>>;

/// Nodes up to an `end` or `else`, which is returned.
fn block(tokens: &mut Tokens) -> Result<(Vec<Node>, Option<String>), String> {
    let mut nodes = Vec::new();
    while let Some(token) = tokens.next() {
        let action = match token {
            Token::Text(text) => {
                nodes.push(Node::Text(text));
                continue;
            }
            Token::Action(action) => action,
        };
        let (word, rest) = action.split_once(char::is_whitespace).unwrap_or((&action, ""));
        match word {
            "end" | "else" => return Ok((nodes, Some(action.clone()))),
            "if" | "with" | "range" => nodes.push(control(word, rest.trim(), tokens)?),
            "define" | "template" | "block" | "break" | "continue" => {
                return Err(format!("{{{{{word}}}}} is not supported here"));
            }
            _ => nodes.push(Node::Print(Terms::new(&action)?.pipe()?)),
        }
    }
    Ok((nodes, None))
}

fn control(word: &str, condition: &str, tokens: &mut Tokens) -> Result<Node, String> {
    let pipe = Terms::new(condition)?.pipe()?;
    let (then, end) = block(tokens)?;
    let otherwise = match end.as_deref() {
        Some("end") => Vec::new(),
        Some("else") => match block(tokens)? {
            (nodes, Some(end)) if end == "end" => nodes,
            _ => return Err("unexpected EOF".into()),
        },
        Some(other) => {
            let next = other.strip_prefix("else ").ok_or("unexpected EOF")?.trim().to_owned();
            let (word, rest) = next.split_once(char::is_whitespace).ok_or("missing value for if")?;
            vec![control(word, rest.trim(), tokens)?]
        }
        None => return Err("unexpected EOF".into()),
    };
    Ok(match word {
        "if" => Node::If { pipe, then, otherwise },
        "with" => Node::With { pipe, then, otherwise },
        _ => Node::Range { pipe, each: then, otherwise },
    })
}

struct Terms {
    words: Vec<String>,
    at: usize,
}

impl Terms {
    fn new(text: &str) -> Result<Self, String> {
        let mut words = Vec::new();
        let mut chars = text.char_indices().peekable();
        while let Some((index, c)) = chars.next() {
            match c {
                c if c.is_whitespace() => {}
                '(' | ')' | '|' | ',' => words.push(c.to_string()),
                '"' | '`' | '\'' => {
                    let mut escaped = false;
                    let mut end = None;
                    for (at, next) in chars.by_ref() {
                        match next {
                            _ if escaped => escaped = false,
                            '\\' if c != '`' => escaped = true,
                            next if next == c => {
                                end = Some(at);
                                break;
                            }
                            _ => {}
                        }
                    }
                    words.push(text[index..=end.ok_or("unterminated quoted string")?].to_owned());
                }
                _ => {
                    let mut end = index + c.len_utf8();
                    while let Some((at, next)) = chars.peek().copied() {
                        if next.is_whitespace() || matches!(next, '(' | ')' | '|' | ',' | '"' | '`') {
                            break;
                        }
                        end = at + next.len_utf8();
                        chars.next();
                    }
                    words.push(text[index..end].to_owned());
                }
            }
        }
        Ok(Self { words, at: 0 })
    }

    fn peek(&self, ahead: usize) -> &str {
        self.words.get(self.at + ahead).map_or("", String::as_str)
    }

    fn pipe(&mut self) -> Result<Pipe, String> {
        let mut pipe = Pipe { names: Vec::new(), assign: false, calls: Vec::new() };
        if self.peek(0).starts_with('$') {
            let two = self.peek(1) == "," && self.peek(2).starts_with('$');
            let operator = self.peek(if two { 3 } else { 1 }).to_owned();
            if operator == ":=" || operator == "=" {
                pipe.assign = operator == "=";
                pipe.names.push(self.peek(0).to_owned());
                if two {
                    pipe.names.push(self.peek(2).to_owned());
                }
                self.at += if two { 4 } else { 2 };
            }
        }
        let mut call = Vec::new();
        while self.at < self.words.len() && self.peek(0) != ")" {
            if self.peek(0) == "|" {
                self.at += 1;
                pipe.calls.push(std::mem::take(&mut call));
                continue;
            }
            call.push(self.term()?);
        }
        pipe.calls.push(call);
        if pipe.calls.iter().any(Vec::is_empty) {
            return Err("missing value for command".into());
        }
        Ok(pipe)
    }

    fn term(&mut self) -> Result<Term, String> {
        let word = self.peek(0).to_owned();
        self.at += 1;
        let fields =
            |path: &str| path.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        Ok(match word.chars().next() {
            Some('(') => {
                let inner = self.pipe()?;
                if self.peek(0) != ")" {
                    return Err("unclosed left paren".into());
                }
                self.at += 1;
                let mut path = Vec::new();
                if self.peek(0).starts_with('.') && self.peek(0).len() > 1 {
                    path = fields(self.peek(0));
                    self.at += 1;
                }
                Term::Group(Box::new(inner), path)
            }
            Some('"') => Term::Literal(
                serde_json::from_str::<String>(&word).map_err(|_| format!("invalid syntax: {word}"))?.into(),
            ),
            Some('`') => Term::Literal(word.trim_matches('`').into()),
            Some('\'') => Term::Literal(word.chars().nth(1).map_or(0, u32::from).into()),
            Some('$') => match word[1..].split_once('.') {
                Some((name, path)) => Term::Variable(format!("${name}"), fields(path)),
                None => Term::Variable(word, Vec::new()),
            },
            Some('.') if word == "." => Term::Dot,
            Some('.') => Term::Field(fields(&word)),
            Some(c) if c.is_ascii_digit() || c == '-' => {
                Term::Literal(serde_json::from_str(&word).map_err(|_| format!("bad number syntax: {word}"))?)
            }
            _ => match &*word {
                "true" => Term::Literal(true.into()),
                "false" => Term::Literal(false.into()),
                "nil" => Term::Literal(Value::Null),
                _ => Term::Function(word),
            },
        })
    }
}
