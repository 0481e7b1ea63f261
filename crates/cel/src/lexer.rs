//! From characters to tokens. Characters that begin no token are reported and passed over.

use crate::source::Issue;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// An operator, a bracket, a comma; `true`, `false`, `null` and `in`.
    Fixed(&'static str),
    Int,
    Uint,
    Float,
    String,
    Bytes,
    Identifier,
    /// A name in backquotes.
    Escaped,
    End,
}

#[derive(Clone, Debug)]
pub(crate) struct Lexeme {
    pub token: Token,
    pub at: usize,
    pub text: String,
}

const FIXED: [&str; 26] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%", "=", "&",
];

pub(crate) fn lexemes(source: &[char], issues: &mut Vec<Issue>) -> Vec<Lexeme> {
    let mut lexer = Lexer { source, position: 0 };
    let mut found = Vec::new();
    loop {
        lexer.skip_space();
        let at = lexer.position;
        let Some(first) = lexer.peek(0) else {
            found.push(Lexeme { token: Token::End, at, text: "<EOF>".to_owned() });
            return found;
        };
        match lexer.next(first) {
            Some(token) => {
                let text = source[at..lexer.position].iter().collect();
                found.push(Lexeme { token, at, text });
            }
            None => {
                let text: String = source[at..lexer.position].iter().collect();
                let message = format!("Syntax error: token recognition error at: '{}'", escape(&text));
                issues.push(Issue { at: Some(at), message });
            }
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

struct Lexer<'a> {
    source: &'a [char],
    position: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.source.get(self.position + ahead).copied()
    }

    fn skip_space(&mut self) {
        loop {
            match self.peek(0) {
                Some('\t' | ' ' | '\r' | '\n' | '\u{c}') => self.position += 1,
                Some('/') if self.peek(1) == Some('/') => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.position += 1;
                    }
                }
                _ => return,
            }
        }
    }

    /// The next token; None passes over what cannot be one.
    fn next(&mut self, first: char) -> Option<Token> {
        if let Some(token) = self.text_literal(first) {
            return token;
        }
        match first {
            '0'..='9' => Some(self.number()),
            '.' if self.peek(1).is_some_and(|c| c.is_ascii_digit()) => Some(self.number()),
            'a'..='z' | 'A'..='Z' | '_' => Some(self.word()),
            '`' => self.escaped(),
            _ => self.fixed(),
        }
    }

    fn fixed(&mut self) -> Option<Token> {
        for text in FIXED {
            if text.chars().enumerate().all(|(index, c)| self.peek(index) == Some(c)) {
                self.position += text.chars().count();
                // One half of `==` and `&&` is none; the character after it is lost with it.
                if text == "=" || text == "&" {
                    if self.peek(0).is_some() {
                        self.position += 1;
                    }
                    return None;
                }
                return Some(Token::Fixed(text));
            }
        }
        self.position += 1;
        if self.source[self.position - 1] == '|' && self.peek(0).is_some() {
            self.position += 1;
        }
        None
    }

    fn digits(&mut self, is: fn(&char) -> bool) -> usize {
        let start = self.position;
        while self.peek(0).as_ref().is_some_and(is) {
            self.position += 1;
        }
        self.position - start
    }

    fn number(&mut self) -> Token {
        if self.peek(0) == Some('0') && self.peek(1) == Some('x') && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit())
        {
            self.position += 2;
            self.digits(char::is_ascii_hexdigit);
            return self.maybe_unsigned();
        }
        let whole = self.digits(char::is_ascii_digit);
        let mut float = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            self.position += 1;
            self.digits(char::is_ascii_digit);
            float = true;
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            let sign = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if self.peek(1 + sign).is_some_and(|c| c.is_ascii_digit()) {
                self.position += 1 + sign;
                self.digits(char::is_ascii_digit);
                float = true;
            }
        }
        if float || whole == 0 { Token::Float } else { self.maybe_unsigned() }
    }

    fn maybe_unsigned(&mut self) -> Token {
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.position += 1;
            return Token::Uint;
        }
        Token::Int
    }

    fn word(&mut self) -> Token {
        let start = self.position;
        while self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.position += 1;
        }
        let word: String = self.source[start..self.position].iter().collect();
        match word.as_str() {
            "in" => Token::Fixed("in"),
            "true" => Token::Fixed("true"),
            "false" => Token::Fixed("false"),
            "null" => Token::Fixed("null"),
            _ => Token::Identifier,
        }
    }

    fn escaped(&mut self) -> Option<Token> {
        self.position += 1;
        let start = self.position;
        while self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || "_.-/ ".contains(c)) {
            self.position += 1;
        }
        let filled = self.position > start;
        if self.peek(0).is_some() {
            self.position += 1;
        }
        (filled && self.source.get(self.position - 1) == Some(&'`')).then_some(Token::Escaped)
    }

    /// A string or bytes literal, if one begins here; `Some(None)` for one that does not end.
    fn text_literal(&mut self, first: char) -> Option<Option<Token>> {
        let (mut offset, mut bytes, mut raw) = (0, false, false);
        if matches!(first, 'b' | 'B') {
            bytes = true;
            offset = 1;
        }
        if matches!(self.peek(offset), Some('r' | 'R')) {
            raw = true;
            offset += 1;
        }
        let quote = self.peek(offset).filter(|c| matches!(c, '"' | '\''))?;
        let token = if bytes { Token::Bytes } else { Token::String };
        let start = self.position + offset;
        let triple = self.source.get(start + 1) == Some(&quote) && self.source.get(start + 2) == Some(&quote);
        if triple && let Some(end) = self.end_of(start + 3, quote, true, raw) {
            self.position = end;
            return Some(Some(token));
        }
        match self.end_of(start + 1, quote, false, raw) {
            Some(end) => {
                self.position = end;
                Some(Some(token))
            }
            None => {
                self.position = self.broken_at(start + 1, raw);
                Some(None)
            }
        }
    }

    fn end_of(&self, mut at: usize, quote: char, triple: bool, raw: bool) -> Option<usize> {
        loop {
            let c = *self.source.get(at)?;
            if c == quote {
                if !triple {
                    return Some(at + 1);
                }
                if self.source.get(at + 1) == Some(&quote) && self.source.get(at + 2) == Some(&quote) {
                    return Some(at + 3);
                }
            }
            if !triple && matches!(c, '\n' | '\r') {
                return None;
            }
            at += if c == '\\' && !raw { escape_length(&self.source[at..])? } else { 1 };
        }
    }

    /// Where a literal that does not end stops being one.
    fn broken_at(&self, mut at: usize, raw: bool) -> usize {
        while let Some(c) = self.source.get(at) {
            if matches!(c, '\n' | '\r') {
                return at + 1;
            }
            at += match c {
                '\\' if !raw => match escape_length(&self.source[at..]) {
                    Some(length) => length,
                    None => return (at + 2).min(self.source.len()),
                },
                _ => 1,
            };
        }
        self.source.len()
    }
}

/// How long an escape is, if it is one.
fn escape_length(text: &[char]) -> Option<usize> {
    let hex = |count: usize| {
        let digits = text.get(2..2 + count)?;
        digits.iter().all(char::is_ascii_hexdigit).then_some(2 + count)
    };
    match text.get(1)? {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Some(2),
        'x' | 'X' => hex(2),
        'u' => hex(4),
        'U' => hex(8),
        '0'..='3' => text.get(2..4)?.iter().all(|c| ('0'..='7').contains(c)).then_some(4),
        _ => None,
    }
}

/// What a literal stands for: without quotes and prefixes, escapes read. `Err` says what cannot be.
pub(crate) fn unquote(literal: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let (raw, literal) = match literal.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, literal),
    };
    let triple = literal.len() >= 6 && (literal.starts_with("\"\"\"") || literal.starts_with("'''"));
    let cut = if triple { 3 } else { 1 };
    let inner: Vec<char> = literal[cut..literal.len() - cut].chars().collect();
    let mut out = Vec::with_capacity(inner.len());
    let push = |c: char, out: &mut Vec<u8>| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    let mut at = 0;
    while at < inner.len() {
        let c = inner[at];
        if c == '\r' && triple {
            // Line ends are one character, whatever the file said.
            push('\n', &mut out);
            at += if inner.get(at + 1) == Some(&'\n') { 2 } else { 1 };
            continue;
        }
        if c != '\\' || raw {
            push(c, &mut out);
            at += 1;
            continue;
        }
        let length = escape_length(&inner[at..]).ok_or("unable to unescape string")?;
        let code = |from: usize, radix: u32| {
            let text: String = inner[at + from..at + length].iter().collect();
            u32::from_str_radix(&text, radix).unwrap_or_default()
        };
        match inner[at + 1] {
            'a' => out.push(7),
            'b' => out.push(8),
            'f' => out.push(12),
            'n' => out.push(b'\n'),
            'r' => out.push(b'\r'),
            't' => out.push(b'\t'),
            'v' => out.push(11),
            quoted @ ('"' | '\'' | '\\' | '?' | '`') => push(quoted, &mut out),
            'u' | 'U' if bytes => return Err("unable to unescape string"),
            'u' | 'U' => push(char::from_u32(code(2, 16)).ok_or("unable to unescape string")?, &mut out),
            kind => {
                let value = if matches!(kind, 'x' | 'X') { code(2, 16) } else { code(1, 8) };
                if bytes {
                    out.push(u8::try_from(value).map_err(|_| "unable to unescape string")?);
                } else {
                    push(char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER), &mut out);
                }
            }
        }
        at += length;
    }
    Ok(out)
}
