//! Operands: literals, lists, maps, messages, names and calls.

use super::{Parsed, Parser, syntax};
use crate::ast::{Entry, Field, Kind, Literal};
use crate::lexer::{Token, unquote};
use crate::source::Issue;

const OPERAND: &str =
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

const RESERVED: [&str; 20] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "var",
    "void",
    "while",
];

impl Parser {
    pub(super) fn primary(&mut self) -> Parsed {
        let lexeme = self.lexeme().clone();
        let besides = std::mem::take(&mut self.besides);
        match lexeme.token {
            Token::Fixed("(") => {
                self.take();
                let inner = self.expression()?;
                self.expect(")", &[])?;
                Ok(inner)
            }
            Token::Fixed("[") => self.list(),
            Token::Fixed("{") => self.map(),
            Token::Fixed(".") | Token::Identifier => self.named(),
            _ => self.literal(besides),
        }
    }

    fn list(&mut self) -> Parsed {
        let at = self.take().at;
        let (mut elements, mut optional, mut height) = (Vec::new(), Vec::new(), 0);
        self.height = 0;
        if self.accept(",").is_some() {
            self.expect("]", &[])?;
            return Ok(self.new_expr(at, Kind::List { elements, optional }));
        }
        while self.accept("]").is_none() {
            if !elements.is_empty() && self.found(",") {
                self.expect("]", &[])?;
            }
            optional.push(self.accept("?").is_some());
            elements.push(self.expression()?);
            height = height.max(self.height);
            self.height = height;
            if self.accept(",").is_none() {
                self.expect("]", &[","])?;
                break;
            }
        }
        Ok(self.new_expr(at, Kind::List { elements, optional }))
    }

    fn map(&mut self) -> Parsed {
        let at = self.take().at;
        let (mut entries, mut height) = (Vec::new(), 0);
        self.height = 0;
        if self.accept(",").is_some() {
            self.expect("}", &[])?;
            return Ok(self.new_expr(at, Kind::Map(entries)));
        }
        while self.accept("}").is_none() {
            let optional = self.accept("?").is_some();
            let key = self.expression()?;
            height = height.max(self.height);
            self.expect(":", &[])?;
            let value = self.expression()?;
            height = height.max(self.height);
            self.height = height;
            entries.push(Entry { key, value, optional });
            if self.accept(",").is_none() {
                self.expect("}", &[","])?;
                break;
            }
        }
        Ok(self.new_expr(at, Kind::Map(entries)))
    }

    /// A variable, a call of a function or a message.
    fn named(&mut self) -> Parsed {
        let start = self.lexeme().at;
        let leading = self.accept(".").is_some();
        let lexeme = self.take();
        if lexeme.token != Token::Identifier {
            let shown = self.shown(&lexeme);
            let message = if lexeme.token == Token::End {
                "no viable alternative at input '.'".to_owned()
            } else {
                format!("no viable alternative at input '.{shown}'")
            };
            return Err(syntax(lexeme.at, message));
        }
        let dot = if leading { "." } else { "" };
        if let Some(at) = self.message_brace() {
            return self.message(format!("{dot}{}", lexeme.text), at);
        }
        if RESERVED.contains(&lexeme.text.as_str()) {
            return Err(Issue { at: Some(start), message: format!("reserved identifier: {}", lexeme.text) });
        }
        let name = format!("{dot}{}", lexeme.text);
        if let Some(at) = self.accept("(") {
            let arguments = self.arguments()?;
            return self.call(at, &name, None, arguments);
        }
        self.height = 0;
        Ok(self.new_expr(lexeme.at, Kind::Ident(name)))
    }

    /// The position of the brace when `.a.b{` follows a name.
    fn message_brace(&self) -> Option<usize> {
        let mut at = self.position;
        loop {
            match self.lexemes.get(at)?.token {
                Token::Fixed("{") => return Some(at),
                Token::Fixed(".") if self.lexemes.get(at + 1)?.token == Token::Identifier => at += 2,
                _ => return None,
            }
        }
    }

    fn message(&mut self, mut name: String, brace: usize) -> Parsed {
        while self.position < brace {
            name.push_str(&self.take().text);
        }
        let at = self.take().at;
        let (mut fields, mut height) = (Vec::new(), 0);
        self.height = 0;
        while self.accept("}").is_none() {
            let optional = self.accept("?").is_some();
            let lexeme = self.take();
            if !matches!(lexeme.token, Token::Identifier | Token::Escaped) {
                let shown = self.shown(&lexeme);
                let message =
                    format!("mismatched input '{shown}' expecting {{'}}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}}");
                return Err(syntax(lexeme.at, message));
            }
            let colon = self.expect(":", &[])?;
            let value = self.expression()?;
            height = height.max(self.height);
            self.height = height;
            fields.push(Field { at: colon, name: lexeme.text.trim_matches('`').to_owned(), value, optional });
            if self.accept(",").is_none() {
                self.expect("}", &[","])?;
                break;
            }
        }
        Ok(self.new_expr(at, Kind::Struct { name, fields }))
    }

    fn literal(&mut self, besides: &str) -> Parsed {
        let lexeme = self.take();
        let at = lexeme.at;
        let refuse = |message: &str| Issue { at: Some(at), message: message.to_owned() };
        let number = |text: &str, sign: &str| match text.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
            None => format!("{sign}{text}").parse().ok(),
        };
        let literal = match lexeme.token {
            Token::Fixed("true") => Literal::Bool(true),
            Token::Fixed("false") => Literal::Bool(false),
            Token::Fixed("null") => Literal::Null,
            Token::Fixed("-") => {
                let of = self.take();
                match of.token {
                    Token::Int => Literal::Int(number(&of.text, "-").ok_or_else(|| refuse("invalid int literal"))?),
                    _ => Literal::Double(-of.text.parse::<f64>().map_err(|_| refuse("invalid double literal"))?),
                }
            }
            Token::Int => Literal::Int(number(&lexeme.text, "").ok_or_else(|| refuse("invalid int literal"))?),
            Token::Uint => {
                let text = lexeme.text.trim_end_matches(['u', 'U']);
                let value = match text.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16).ok(),
                    None => text.parse().ok(),
                };
                Literal::Uint(value.ok_or_else(|| refuse("invalid uint literal"))?)
            }
            Token::Float => {
                let value: f64 = lexeme.text.parse().map_err(|_| refuse("invalid double literal"))?;
                if value.is_infinite() {
                    return Err(refuse("invalid double literal"));
                }
                Literal::Double(value)
            }
            Token::String => {
                let bytes = unquote(&lexeme.text, false).map_err(refuse)?;
                Literal::String(String::from_utf8(bytes).map_err(|_| refuse("invalid UTF-8"))?)
            }
            Token::Bytes => Literal::Bytes(unquote(&lexeme.text[1..], true).map_err(refuse)?),
            _ => {
                let shown = self.shown(&lexeme);
                let recovers = self.recovers() || (besides == ")" && self.found(")"));
                let word = if recovers { "extraneous" } else { "mismatched" };
                let expecting = match besides {
                    ")" => OPERAND.replace("'(', ", "'(', ')', "),
                    "?" => OPERAND.replace("'!', ", "'!', '?', "),
                    _ => OPERAND.to_owned(),
                };
                return Err(syntax(at, format!("{word} input '{shown}' expecting {expecting}")));
            }
        };
        self.height = 0;
        Ok(self.new_expr(at, Kind::Literal(literal)))
    }

    /// Whether an operand stands behind a token that should not be there.
    fn recovers(&self) -> bool {
        match self.peek() {
            Token::Fixed(text) => ["[", "{", "(", ".", "-", "!", "true", "false", "null"].contains(&text),
            Token::End | Token::Escaped => false,
            _ => true,
        }
    }
}
