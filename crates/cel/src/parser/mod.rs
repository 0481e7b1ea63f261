//! From tokens to expressions, with macros read on the way. The grammar is CEL's; errors are worded as cel-go's parser words them.

mod operands;

use crate::ast::{Expr, Kind, Literal};
use crate::lexer::{Lexeme, Token, lexemes};
use crate::macros;
use crate::source::Issue;

/// Longer texts are refused.
const MOST_CHARACTERS: usize = 100_000;
/// Deeper nesting is refused, of each rule of the grammar by itself, and of operators and selections in what it means.
const MOST_DEPTH: usize = 250;
/// Macros copy parts of what they are given; more expressions than this are refused.
const MOST_EXPRESSIONS: usize = 200_000;

/// Operators, the functions they stand for and how tightly they bind.
const OPERATORS: [(&str, &str, usize); 12] = [
    ("<=", "_<=_", 0),
    (">=", "_>=_", 0),
    ("<", "_<_", 0),
    (">", "_>_", 0),
    ("==", "_==_", 0),
    ("!=", "_!=_", 0),
    ("in", "@in", 0),
    ("+", "_+_", 1),
    ("-", "_-_", 1),
    ("*", "_*_", 2),
    ("/", "_/_", 2),
    ("%", "_%_", 2),
];

/// The expression of a text and how many ids it uses.
/// With `binds`, names can be given to values by `cel.bind`.
pub(crate) fn parse(source: &str, binds: bool) -> Result<(Expr, usize), Vec<Issue>> {
    let characters: Vec<char> = source.chars().collect();
    if characters.len() > MOST_CHARACTERS {
        let size = characters.len();
        let message = format!("expression code point size exceeds limit: size: {size}, limit {MOST_CHARACTERS}");
        return Err(vec![Issue { at: None, message }]);
    }
    let mut issues = Vec::new();
    let lexemes = lexemes(&characters, &mut issues);
    let depth = Depth::default();
    let mut parser = Parser { characters, besides: "", lexemes, position: 0, depth, height: 0, ids: 0, binds, issues };
    let parsed = parser.expression();
    let parsed = parsed.and_then(|expression| {
        if parser.peek() != Token::End {
            return Err(parser.unexpected_end());
        }
        if parser.height > MOST_DEPTH {
            return Err(Issue { at: None, message: "max recursion depth exceeded".to_owned() });
        }
        Ok(expression)
    });
    match parsed {
        Ok(expression) if parser.issues.is_empty() => Ok((expression, parser.ids)),
        Ok(_) => Err(parser.issues),
        Err(issue) => {
            parser.issues.push(issue);
            Err(parser.issues)
        }
    }
}

pub(crate) struct Parser {
    characters: Vec<char>,
    /// What may stand before an operand besides it.
    besides: &'static str,
    lexemes: Vec<Lexeme>,
    position: usize,
    depth: Depth,
    /// How many operators, selections and calls of members stand in each other in what was read last.
    height: usize,
    ids: usize,
    pub(crate) binds: bool,
    issues: Vec<Issue>,
}

/// How often the rules that can contain themselves are being read.
#[derive(Clone, Copy, Default)]
struct Depth {
    expression: usize,
    relation: usize,
    calculation: usize,
}

type Parsed = Result<Expr, Issue>;

fn syntax(at: usize, message: String) -> Issue {
    Issue { at: Some(at), message: format!("Syntax error: {message}") }
}

fn too_deep() -> Issue {
    Issue { at: None, message: format!("expression recursion limit exceeded: {MOST_DEPTH}") }
}

impl Parser {
    fn peek(&self) -> Token {
        self.lexeme().token
    }

    fn lexeme(&self) -> &Lexeme {
        // The last lexeme is the end, which is never passed.
        &self.lexemes[self.position.min(self.lexemes.len() - 1)]
    }

    fn take(&mut self) -> Lexeme {
        let lexeme = self.lexeme().clone();
        if lexeme.token != Token::End {
            self.position += 1;
        }
        lexeme
    }

    fn found(&self, text: &'static str) -> bool {
        self.peek() == Token::Fixed(text)
    }

    /// Takes the token if it is the next one; where it stood.
    fn accept(&mut self, text: &'static str) -> Option<usize> {
        self.found(text).then(|| self.take().at)
    }

    /// Takes a token that has to be there. What else could stand there is only named.
    fn expect(&mut self, text: &'static str, others: &[&str]) -> Result<usize, Issue> {
        if let Some(at) = self.accept(text) {
            return Ok(at);
        }
        let lexeme = self.lexeme();
        let shown = self.shown(lexeme);
        let expecting = match others {
            [] => format!("'{text}'"),
            _ => format!(
                "{{'{text}', {}}}",
                others.iter().map(|other| format!("'{other}'")).collect::<Vec<_>>().join(", ")
            ),
        };
        // A parser that can go on after leaving out one token, or after making one up, says so.
        let next = self.lexemes.get(self.position + 1).map(|lexeme| lexeme.token);
        let message = if next == Some(Token::Fixed(text)) {
            format!("extraneous input '{shown}' expecting {expecting}")
        } else if others.is_empty() && text != ":" && lexeme.token == Token::End {
            format!("missing '{text}' at '{shown}'")
        } else {
            format!("mismatched input '{shown}' expecting {expecting}")
        };
        Err(syntax(lexeme.at, message))
    }

    fn shown(&self, lexeme: &Lexeme) -> String {
        lexeme.text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
    }

    /// Something follows a complete expression.
    fn unexpected_end(&self) -> Issue {
        let lexeme = self.lexeme();
        let last = self.lexemes.get(self.position + 1).is_some_and(|next| next.token == Token::End);
        let word = if last { "extraneous" } else { "mismatched" };
        syntax(lexeme.at, format!("{word} input '{}' expecting <EOF>", self.shown(lexeme)))
    }

    pub(crate) fn new_expr(&mut self, at: usize, kind: Kind) -> Expr {
        self.ids += 1;
        Expr { id: self.ids - 1, at, kind }
    }

    /// A copy with ids of its own.
    pub(crate) fn copy(&mut self, of: &Expr) -> Expr {
        let mut copy = of.clone();
        renumber(&mut copy, &mut self.ids);
        copy
    }

    fn enter(&mut self, depth: Depth) -> Result<(), Issue> {
        self.depth = depth;
        let deepest = depth.expression.max(depth.relation).max(depth.calculation);
        if deepest > MOST_DEPTH || self.ids > MOST_EXPRESSIONS { Err(too_deep()) } else { Ok(()) }
    }

    fn expression(&mut self) -> Parsed {
        let before = self.depth;
        self.enter(Depth { expression: before.expression + 1, ..before })?;
        let condition = self.logical()?;
        let expression = if let Some(at) = self.accept("?") {
            let mut height = self.height;
            let first = self.logical()?;
            height = height.max(self.height);
            self.expect(":", &[])?;
            let second = self.expression()?;
            self.height = height.max(self.height) + 1;
            self.call(at, "_?_:_", None, vec![condition, first, second])?
        } else {
            condition
        };
        self.depth = before;
        Ok(expression)
    }

    /// Terms joined by `||`, each of terms joined by `&&`. One function for both levels keeps nesting cheap.
    fn logical(&mut self) -> Parsed {
        let (mut either, mut places) = (Vec::new(), Vec::new());
        let mut height = 0;
        loop {
            let (mut all, mut and_places) = (vec![Some(self.operation(0)?)], Vec::new());
            height = height.max(self.height);
            while let Some(at) = self.accept("&&") {
                and_places.push(at);
                all.push(Some(self.operation(0)?));
                height = height.max(self.height);
            }
            either.push(Some(self.balanced("_&&_", &mut all, &and_places)));
            let Some(at) = self.accept("||") else { break };
            places.push(at);
        }
        self.height = height;
        Ok(self.balanced("_||_", &mut either, &places))
    }

    /// Joins terms as a balanced tree: long chains are no deeper than short ones.
    fn balanced(&mut self, function: &'static str, terms: &mut [Option<Expr>], places: &[usize]) -> Expr {
        if terms.len() == 1 {
            return terms[0].take().unwrap_or(Expr { id: 0, at: 0, kind: Kind::Literal(Literal::Null) });
        }
        let middle = places.len().div_ceil(2);
        let middle = if places.len().is_multiple_of(2) { middle } else { places.len() / 2 };
        let (left, right) = terms.split_at_mut(middle + 1);
        let left = self.balanced(function, left, &places[..middle]);
        let right = self.balanced(function, right, &places[middle + 1..]);
        let kind = Kind::Call { function: function.to_owned(), target: None, arguments: vec![left, right] };
        self.new_expr(places[middle], kind)
    }

    /// Operators that bind as tightly as `level` or more.
    fn operation(&mut self, level: usize) -> Parsed {
        let before = self.depth;
        // What stands beside a comparison is a relation of its own; what stands beside other operators is none.
        let relation = before.relation + usize::from(level <= 1);
        let own = Depth { relation, calculation: before.calculation + 1, ..before };
        self.enter(own)?;
        let mut left = self.unary()?;
        while let Some((text, function, level)) =
            OPERATORS.iter().find(|(text, _, own)| *own >= level && self.found(text))
        {
            let at = self.accept(text).unwrap_or_default();
            let height = self.height;
            self.depth = if *level == 0 { Depth { calculation: before.calculation, ..own } } else { own };
            let right = self.operation(level + 1)?;
            self.height = height.max(self.height) + 1;
            left = self.call(at, function, None, vec![left, right])?;
        }
        self.depth = before;
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        for (text, function) in [("!", "!_"), ("-", "-_")] {
            if !self.found(text) {
                continue;
            }
            // A sign before a number belongs to it.
            let number =
                matches!(self.lexemes.get(self.position + 1).map(|l| l.token), Some(Token::Int | Token::Float));
            if text == "-" && number {
                return self.member();
            }
            let at = self.lexeme().at;
            let mut odd = false;
            while self.accept(text).is_some() {
                odd = !odd;
            }
            let operand = self.member()?;
            return if odd { self.call(at, function, None, vec![operand]) } else { Ok(operand) };
        }
        self.member()
    }

    fn member(&mut self) -> Parsed {
        let mut operand = self.primary()?;
        loop {
            if let Some(at) = self.accept(".") {
                operand = self.selection(operand, at)?;
            } else if let Some(at) = self.accept("[") {
                let height = self.height;
                let optional = self.accept("?").is_some();
                self.besides = if optional { "" } else { "?" };
                let index = self.expression()?;
                self.height = height.max(self.height) + 1;
                self.expect("]", &[])?;
                operand = self.call(at, if optional { "_[?_]" } else { "_[_]" }, None, vec![operand, index])?;
            } else {
                return Ok(operand);
            }
        }
    }

    /// What follows a dot.
    fn selection(&mut self, operand: Expr, dot: usize) -> Parsed {
        let optional = self.accept("?").is_some();
        let lexeme = self.take();
        let field = match lexeme.token {
            Token::Identifier => lexeme.text,
            Token::Escaped => lexeme.text.trim_matches('`').to_owned(),
            _ if optional => {
                let shown = self.shown(&lexeme);
                let message = format!("mismatched input '{shown}' expecting {{IDENTIFIER, ESC_IDENTIFIER}}");
                return Err(syntax(lexeme.at, message));
            }
            Token::Fixed("true" | "false" | "null") => {
                return Err(syntax(lexeme.at, format!("mismatched input '{}' expecting IDENTIFIER", lexeme.text)));
            }
            _ => {
                // What was read since the dot is shown, spaces and all.
                let end = if lexeme.token == Token::End { lexeme.at } else { lexeme.at + lexeme.text.chars().count() };
                let read: String = self.characters.get(dot..end).unwrap_or_default().iter().collect();
                return Err(syntax(lexeme.at, format!("no viable alternative at input '{read}'")));
            }
        };
        let height = self.height;
        self.height += 1;
        if optional {
            let name = self.new_expr(lexeme.at, Kind::Literal(Literal::String(field)));
            let kind = Kind::Call { function: "_?._".to_owned(), target: None, arguments: vec![operand, name] };
            return Ok(self.new_expr(dot, kind));
        }
        if let Some(at) = self.accept("(") {
            let arguments = self.arguments()?;
            self.height = height.max(self.height) + 1;
            return self.call(at, &field, Some(operand), arguments);
        }
        Ok(self.new_expr(dot, Kind::Select { operand: Box::new(operand), field, test: false }))
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, Issue> {
        let (mut arguments, mut height) = (Vec::new(), 0);
        self.height = 0;
        if self.accept(")").is_some() {
            return Ok(arguments);
        }
        self.besides = ")";
        loop {
            arguments.push(self.expression()?);
            height = height.max(self.height);
            self.height = height;
            if self.accept(",").is_none() {
                self.expect(")", &[])?;
                return Ok(arguments);
            }
        }
    }

    pub(crate) fn call(&mut self, at: usize, function: &str, target: Option<Expr>, arguments: Vec<Expr>) -> Parsed {
        if self.ids > MOST_EXPRESSIONS {
            return Err(too_deep());
        }
        match macros::expand(self, at, function, target, arguments) {
            Ok(expanded) => Ok(expanded),
            Err(issue) => {
                self.issues.push(issue);
                Ok(self.new_expr(at, Kind::Literal(Literal::Null)))
            }
        }
    }
}

fn renumber(expression: &mut Expr, ids: &mut usize) {
    expression.id = *ids;
    *ids += 1;
    match &mut expression.kind {
        Kind::Literal(_) | Kind::Ident(_) => {}
        Kind::Select { operand, .. } => renumber(operand, ids),
        Kind::Call { target, arguments, .. } => {
            if let Some(target) = target {
                renumber(target, ids);
            }
            arguments.iter_mut().for_each(|argument| renumber(argument, ids));
        }
        Kind::List { elements, .. } => elements.iter_mut().for_each(|element| renumber(element, ids)),
        Kind::Map(entries) => entries.iter_mut().for_each(|entry| {
            renumber(&mut entry.key, ids);
            renumber(&mut entry.value, ids);
        }),
        Kind::Struct { fields, .. } => fields.iter_mut().for_each(|field| renumber(&mut field.value, ids)),
        Kind::Fold(fold) => {
            for part in [&mut fold.range, &mut fold.start, &mut fold.condition, &mut fold.step, &mut fold.result] {
                renumber(part, ids);
            }
        }
    }
}
