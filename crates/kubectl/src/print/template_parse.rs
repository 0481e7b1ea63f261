//! Go templates: text and actions to a tree.

use std::collections::BTreeMap;

use serde_json::Value;

#[derive(Clone, Debug)]
pub enum Node {
    Text(String),
    Print(Pipe),
    If {
        pipe: Pipe,
        then: Vec<Node>,
        otherwise: Vec<Node>,
    },
    With {
        pipe: Pipe,
        then: Vec<Node>,
        otherwise: Vec<Node>,
    },
    Range {
        pipe: Pipe,
        each: Vec<Node>,
        otherwise: Vec<Node>,
    },
    /// `{{template "name" .}}`.
    Call {
        name: String,
        pipe: Option<Pipe>,
        /// Where the name stands.
        at: usize,
    },
    Break,
    Continue,
}

/// A template by its name, with those that it defines.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    pub main: Vec<Node>,
    pub named: BTreeMap<String, Vec<Node>>,
}

#[derive(Clone, Debug)]
pub struct Pipe {
    /// `$key, $value :=`.
    pub names: Vec<String>,
    pub assign: bool,
    pub calls: Vec<Vec<Placed>>,
}

/// A term, where it stands in the template, and how errors show it.
#[derive(Clone, Debug)]
pub struct Placed {
    pub term: Term,
    pub at: usize,
    pub shown: String,
}

/// How Go shows a command.
pub fn shown(call: &[Placed]) -> String {
    call.iter().map(|placed| &*placed.shown).collect::<Vec<_>>().join(" ")
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

/// Deeper nesting is refused: the parser and the printer call themselves.
const DEEPEST: usize = 200;

/// The tree; or the line of a mistake, and what it is.
pub fn parse(text: &str) -> Result<Parsed, (usize, String)> {
    let tokens = tokens(text).map_err(|why| (1, why))?.into_iter();
    let mut reader = Reader { text, tokens, line: 1, named: BTreeMap::new(), ranges: 0, depth: 0 };
    let (main, end) = reader.block().map_err(|why| (reader.line, why))?;
    match end {
        None => Ok(Parsed { main, named: reader.named }),
        Some(word) => Err((reader.line, format!("unexpected {{{{{word}}}}}"))),
    }
}

/// Where a part of a text begins in it.
fn place(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len())
}

/// The line of a place, from 1, and how many bytes of the line are before it.
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let begin = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    (line, before.len() - begin)
}

enum Token<'a> {
    Text(String),
    Action(&'a str),
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, String> {
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
        let close = end_of_action(inside)?;
        let mut action = &inside[..close];
        trim = action.ends_with(" -");
        if trim {
            action = &action[..action.len() - 2];
        }
        rest = &inside[close + 2..];
        let action = action.trim();
        if !action.starts_with("/*") {
            found.push(Token::Action(action));
        }
    }
    let last = if trim { rest.trim_start() } else { rest };
    if !last.is_empty() {
        found.push(Token::Text(last.to_owned()));
    }
    Ok(found)
}

fn end_of_action(text: &str) -> Result<usize, &'static str> {
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match quote {
            _ if escaped => escaped = false,
            Some('"') if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '`' => quote = Some(c),
            None if text[index..].starts_with("}}") => return Ok(index),
            None => {}
        }
    }
    Err(match quote {
        Some('"') => "unterminated quoted string",
        Some(_) => "unterminated raw quoted string",
        None => "unclosed action",
    })
}

struct Reader<'a> {
    text: &'a str,
    tokens: std::vec::IntoIter<Token<'a>>,
    /// Of the action that is read.
    line: usize,
    named: BTreeMap<String, Vec<Node>>,
    /// How many ranges stand around.
    ranges: usize,
    depth: usize,
}

impl<'a> Reader<'a> {
    /// Nodes up to an `end` or `else`, which is returned.
    fn block(&mut self) -> Result<(Vec<Node>, Option<&'a str>), String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("too many blocks in each other".into());
        }
        let mut nodes = Vec::new();
        while let Some(token) = self.tokens.next() {
            let action = match token {
                Token::Text(text) => {
                    nodes.push(Node::Text(text));
                    continue;
                }
                Token::Action(action) => action,
            };
            self.line = line_and_column(self.text, place(self.text, action)).0;
            let (word, rest) = keyword(action);
            let at = place(self.text, rest.trim_start());
            match word {
                "end" | "else" => {
                    self.depth -= 1;
                    return Ok((nodes, Some(action)));
                }
                "if" | "with" | "range" => nodes.push(self.control(word, rest.trim())?),
                "define" => {
                    let (name, rest) = name_of(word, rest)?;
                    if !rest.is_empty() {
                        return Err(format!("unexpected {} in define clause", crate::text::quote(rest)));
                    }
                    self.define(name)?;
                }
                "block" => {
                    let (name, rest) = name_of(word, rest)?;
                    if rest.is_empty() {
                        return Err("missing value for block clause".into());
                    }
                    let pipe = Some(Terms::new(self.text, rest)?.whole()?);
                    self.define(name.clone())?;
                    nodes.push(Node::Call { name, pipe, at });
                }
                "template" => {
                    let (name, rest) = name_of(word, rest)?;
                    let pipe = match rest {
                        "" => None,
                        rest => Some(Terms::new(self.text, rest)?.whole()?),
                    };
                    nodes.push(Node::Call { name, pipe, at });
                }
                "break" | "continue" if rest.trim().is_empty() => {
                    if self.ranges == 0 {
                        return Err(format!("{{{{{word}}}}} outside {{{{range}}}}"));
                    }
                    nodes.push(if word == "break" { Node::Break } else { Node::Continue });
                }
                _ => nodes.push(Node::Print(Terms::new(self.text, action)?.whole()?)),
            }
        }
        self.depth -= 1;
        Ok((nodes, None))
    }

    fn define(&mut self, name: String) -> Result<(), String> {
        // A range around the definition is not around its use.
        let around = std::mem::take(&mut self.ranges);
        let body = match self.block()? {
            (nodes, Some("end")) => nodes,
            (_, Some(other)) => return Err(format!("unexpected {{{{{other}}}}} in define clause")),
            (_, None) => return Err("unexpected EOF".into()),
        };
        self.ranges = around;
        self.named.insert(name, body);
        Ok(())
    }

    fn control(&mut self, word: &str, condition: &'a str) -> Result<Node, String> {
        let pipe = Terms::new(self.text, condition)?.whole().map_err(|why| match condition {
            "" => format!("missing value for {word}"),
            _ => why,
        })?;
        self.ranges += usize::from(word == "range");
        let (then, end) = self.block()?;
        self.ranges -= usize::from(word == "range");
        let otherwise = match end {
            Some("end") => Vec::new(),
            Some("else") => match self.block()? {
                (nodes, Some("end")) => nodes,
                (_, Some(_)) => return Err("expected end; found {{else}}".into()),
                _ => return Err("unexpected EOF".into()),
            },
            Some(other) => {
                let next = other.strip_prefix("else ").ok_or("unexpected EOF")?.trim();
                let (word, rest) = keyword(next);
                if rest.is_empty() {
                    return Err("missing value for if".into());
                }
                self.depth += 1;
                let inner = self.control(word, rest.trim())?;
                self.depth -= 1;
                vec![inner]
            }
            None => return Err("unexpected EOF".into()),
        };
        Ok(match word {
            "if" => Node::If { pipe, then, otherwise },
            "with" => Node::With { pipe, then, otherwise },
            _ => Node::Range { pipe, each: then, otherwise },
        })
    }
}

/// The word at the beginning, and what stands behind it. No space is needed where something else ends a word: `range.items`, `if(x)`.
fn keyword(action: &str) -> (&str, &str) {
    let end = action.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(action.len());
    match action.split_at(end) {
        (word, rest) if !word.is_empty() && rest.starts_with(['.', ',', '|', ':', '(', ')']) => (word, rest),
        _ => action.split_once(char::is_whitespace).unwrap_or((action, "")),
    }
}

/// The quoted name at the beginning, and what stands behind it.
fn name_of<'a>(word: &str, text: &'a str) -> Result<(String, &'a str), String> {
    let text = text.trim();
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '`'));
    let end = quote.and_then(|quote| text[1..].find(quote));
    let (Some(_), Some(end)) = (quote, end) else {
        return Err(format!("missing value for {word} clause"));
    };
    Ok((text[1..=end].to_owned(), text[end + 2..].trim()))
}

/// As Go writes numbers: with underscores, in other bases, with an exponent.
fn number(word: &str) -> Option<Value> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    let digits = digits.replace('_', "").to_ascii_lowercase();
    let base = |prefix: &str, radix: u32| {
        digits.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, radix).ok())
    };
    let octal = || digits.strip_prefix('0').and_then(|digits| i64::from_str_radix(digits, 8).ok());
    let whole = base("0x", 16).or_else(|| base("0b", 2)).or_else(|| base("0o", 8)).or_else(octal);
    let whole = whole.or_else(|| digits.parse().ok());
    if let Some(whole) = whole {
        return Some(Value::from(if negative { -whole } else { whole }));
    }
    let float: f64 = digits.parse().ok().filter(|_| digits.starts_with(|c: char| c.is_ascii_digit()))?;
    let float = if negative { -float } else { float };
    // One without a fraction is a whole number where one is needed.
    serde_json::Number::from_f64(float).map(Value::Number)
}

struct Terms<'a> {
    /// The whole template.
    text: &'a str,
    words: Vec<&'a str>,
    at: usize,
    depth: usize,
}

impl<'a> Terms<'a> {
    fn new(whole: &'a str, text: &'a str) -> Result<Self, String> {
        let mut words = Vec::new();
        let mut chars = text.char_indices().peekable();
        while let Some((index, c)) = chars.next() {
            match c {
                c if c.is_whitespace() => {}
                '(' | ')' | '|' | ',' => words.push(&text[index..=index]),
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
                    words.push(&text[index..=end.ok_or("unterminated quoted string")?]);
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
                    words.push(&text[index..end]);
                }
            }
        }
        Ok(Self { text: whole, words, at: 0, depth: 0 })
    }

    fn peek(&self, ahead: usize) -> &'a str {
        self.words.get(self.at + ahead).copied().unwrap_or_default()
    }

    /// A pipe and nothing behind it.
    fn whole(&mut self) -> Result<Pipe, String> {
        let pipe = self.pipe()?;
        match self.at < self.words.len() {
            true => Err("unexpected right paren".into()),
            false => Ok(pipe),
        }
    }

    fn pipe(&mut self) -> Result<Pipe, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("too many parentheses in each other".into());
        }
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
        self.depth -= 1;
        Ok(pipe)
    }

    fn term(&mut self) -> Result<Placed, String> {
        let (word, first) = (self.peek(0), self.at);
        let mut at = place(self.text, word);
        let term = self.bare_term()?;
        // Of several fields the second one is where Go stands.
        if let Term::Field(path) | Term::Variable(_, path) = &term
            && path.len() > usize::from(word.starts_with('.'))
        {
            at += word[1..].find('.').map_or(0, |dot| dot + 1);
        }
        let shown = match &term {
            Term::Group(..) => self.words[first..self.at].join(" ").replace("( ", "(").replace(" )", ")"),
            _ => word.to_owned(),
        };
        Ok(Placed { term, at, shown })
    }

    fn bare_term(&mut self) -> Result<Term, String> {
        let word = self.peek(0);
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
                serde_json::from_str::<String>(word).map_err(|_| format!("invalid syntax: {word}"))?.into(),
            ),
            Some('`') => Term::Literal(word.trim_matches('`').into()),
            Some('\'') => Term::Literal(word.chars().nth(1).map_or(0, u32::from).into()),
            Some('$') => match word[1..].split_once('.') {
                Some((name, path)) => Term::Variable(format!("${name}"), fields(path)),
                None => Term::Variable(word.to_owned(), Vec::new()),
            },
            Some('.') if word == "." => Term::Dot,
            Some('.') => Term::Field(fields(word)),
            Some(c) if c.is_ascii_digit() || (matches!(c, '-' | '+') && word.len() > 1) => {
                Term::Literal(number(word).ok_or_else(|| format!("bad number syntax: {}", crate::text::quote(word)))?)
            }
            _ => match word {
                "true" => Term::Literal(true.into()),
                "false" => Term::Literal(false.into()),
                "nil" => Term::Literal(Value::Null),
                _ => Term::Function(word.to_owned()),
            },
        })
    }
}
