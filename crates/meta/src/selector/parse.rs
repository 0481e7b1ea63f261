//! The text of label selectors, read as upstream reads it and refused in its words.

use std::collections::BTreeSet;

use super::{Operator, Requirement, SelectorError};
use crate::field::{FieldError, Path};
use crate::names;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    Identifier,
    In,
    NotIn,
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Error,
}

pub(super) struct Parser {
    tokens: Vec<(Token, String)>,
    at: usize,
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn symbol(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Close,
        "(" => Token::Open,
        "," => Token::Comma,
        "!" => Token::Not,
        "=" => Token::Equals,
        "==" => Token::DoubleEquals,
        "!=" => Token::NotEquals,
        ">" => Token::Greater,
        "<" => Token::Less,
        _ => return None,
    })
}

fn scan(text: &str) -> Vec<(Token, String)> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if matches!(c, ' ' | '\t' | '\r' | '\n') {
            at += 1;
        } else if is_special(c) {
            // The longest run of special characters that is a symbol.
            let pair: String = chars[at..chars.len().min(at + 2)].iter().collect();
            match symbol(&pair).filter(|_| pair.chars().count() == 2) {
                Some(token) => {
                    tokens.push((token, pair));
                    at += 2;
                }
                None => {
                    tokens.push((symbol(&c.to_string()).unwrap_or(Token::Error), c.to_string()));
                    at += 1;
                }
            }
        } else {
            let start = at;
            while at < chars.len() && !is_special(chars[at]) && !matches!(chars[at], ' ' | '\t' | '\r' | '\n') {
                at += 1;
            }
            let word: String = chars[start..at].iter().collect();
            let token = match word.as_str() {
                "in" => Token::In,
                "notin" => Token::NotIn,
                _ => Token::Identifier,
            };
            tokens.push((token, word));
        }
    }
    tokens
}

impl Parser {
    pub(super) fn new(text: &str) -> Self {
        Self { tokens: scan(text), at: 0 }
    }

    /// In the place of a value `in` and `notin` are ordinary words.
    fn look(&self) -> (Token, String) {
        let (token, text) = self.tokens.get(self.at).cloned().unwrap_or((Token::End, String::new()));
        (if matches!(token, Token::In | Token::NotIn) { Token::Identifier } else { token }, text)
    }

    fn take(&mut self) -> (Token, String) {
        let found = self.look();
        self.at += 1;
        found
    }

    fn take_operator(&mut self) -> (Token, String) {
        let found = self.tokens.get(self.at).cloned().unwrap_or((Token::End, String::new()));
        self.at += 1;
        found
    }

    pub(super) fn parse(mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            let (token, text) = self.look();
            match token {
                Token::Identifier | Token::Not => {
                    let one = self.requirement().map_err(|error| SelectorError::Requirement(Box::new(error)))?;
                    requirements.push(one);
                    let (token, text) = self.take();
                    match token {
                        Token::End => break,
                        Token::Comma => {
                            let (token, text) = self.look();
                            if !matches!(token, Token::Identifier | Token::Not) {
                                return Err(unexpected(text, "identifier after ','"));
                            }
                        }
                        _ => return Err(unexpected(text, "',' or 'end of string'")),
                    }
                }
                Token::End => break,
                _ => return Err(unexpected(text, "!, identifier, or 'end of string'")),
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(requirements)
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let (mut token, mut key) = self.take();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.take();
        }
        if token != Token::Identifier {
            return Err(unexpected(key, "identifier"));
        }
        check(&Path::root(), &key, &names::label_key(&key))?;
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist, values: BTreeSet::new() });
        }
        if matches!(self.look().0, Token::End | Token::Comma) {
            return Ok(Requirement { key, operator: Operator::Exists, values: BTreeSet::new() });
        }
        let (token, text) = self.take_operator();
        let operator = match token {
            Token::In | Token::Equals | Token::DoubleEquals => Operator::In,
            Token::NotIn | Token::NotEquals => Operator::NotIn,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            _ => return Err(unexpected(text, "in, notin, =, ==, !=, gt, lt")),
        };
        let values = if matches!(token, Token::In | Token::NotIn) { self.values()? } else { self.exact_value()? };
        for (index, value) in values.iter().enumerate() {
            let path = Path::new("values").index(index);
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) && value.parse::<i64>().is_err() {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                return Err(SelectorError::Label(Box::new(FieldError::invalid(&path, value.clone(), why))));
            }
            check(&path.key(&key), value, &names::label_value(value))?;
        }
        Ok(Requirement { key, operator, values })
    }

    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let (token, text) = self.take();
        if token != Token::Open {
            return Err(SelectorError::NoParenthesis(text));
        }
        match self.look() {
            (Token::Identifier | Token::Comma, text) => {
                let values = self.identifiers()?;
                if self.take().0 != Token::Close {
                    return Err(unexpected(text, "')'"));
                }
                Ok(values)
            }
            (Token::Close, _) => {
                self.take();
                Ok(BTreeSet::from([String::new()]))
            }
            (_, text) => Err(unexpected(text, "',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let mut values = BTreeSet::new();
        loop {
            let (token, text) = self.take();
            match token {
                Token::Identifier => {
                    values.insert(text);
                    match self.look() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, text) => return Err(unexpected(text, "',' or ')'")),
                    }
                }
                Token::Comma => {
                    if values.is_empty() {
                        values.insert(String::new());
                    }
                    match self.look().0 {
                        Token::Close => {
                            values.insert(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.take();
                            values.insert(String::new());
                        }
                        _ => {}
                    }
                }
                _ => return Err(unexpected(text, "',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        if matches!(self.look().0, Token::End | Token::Comma) {
            return Ok(BTreeSet::from([String::new()]));
        }
        match self.take() {
            (Token::Identifier, text) => Ok(BTreeSet::from([text])),
            (_, text) => Err(unexpected(text, "identifier")),
        }
    }
}

fn unexpected(found: String, expected: &'static str) -> SelectorError {
    SelectorError::Unexpected { found, expected }
}

fn check(path: &Path, value: &str, errors: &[String]) -> Result<(), SelectorError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(SelectorError::Label(Box::new(FieldError::invalid(path, value, errors.join("; ")))))
}
