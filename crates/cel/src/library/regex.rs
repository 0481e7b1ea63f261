//! Regular expressions. Their time is bound by their length and the text's.

use std::cell::RefCell;

use ::regex::{Regex, RegexBuilder};

use super::{Outcome, int, text};
use crate::error::Error;
use crate::program::Bindings;
use crate::value::{Text, Value};
use crate::work;

/// Larger automata are not built.
const LARGEST: usize = 1 << 20;
/// Steps that compiling a pattern takes: a few milliseconds at most.
const COMPILING: usize = 100_000;
/// As many patterns are kept by a thread.
const KEPT: usize = 8;

/// A function whose pattern was compiled beforehand; the pattern is left out of its arguments.
pub(crate) type Prepared = for<'a> fn(&Regex, &[Value<'a>]) -> Outcome<'a>;

pub(crate) fn prepared(function: &str) -> Option<Prepared> {
    match function {
        "matches" => Some(matches_prepared),
        "find" => Some(find_prepared),
        "findAll" => Some(find_all_prepared),
        _ => None,
    }
}

pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern).size_limit(LARGEST).build().map_err(|error| error.to_string())
}

/// A pattern that is only known now. It costs by its length, and may take long to be compiled all the same.
fn dynamic(arguments: &[Value<'_>]) -> Result<Regex, String> {
    let pattern = text(arguments, 1).map_err(|error| error.to_string())?;
    LAST.with_borrow_mut(|last| {
        if let Some((_, known)) = last.iter().find(|(text, _)| **text == **pattern) {
            return Ok(known.clone());
        }
        work::step(COMPILING);
        let compiled = compile(pattern)?;
        if last.len() >= KEPT {
            last.remove(0);
        }
        last.push((pattern.to_string(), compiled.clone()));
        Ok(compiled)
    })
}

thread_local! {
    /// The newest patterns: most rules compare many values with one.
    static LAST: RefCell<Vec<(String, Regex)>> = const { RefCell::new(Vec::new()) };
}

fn illegal(error: String) -> Error {
    Error::new(format!("Illegal regex: {error}"))
}

fn matches_prepared<'a>(expression: &Regex, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(expression.is_match(text(arguments, 0)?)))
}

fn piece<'a>(text: &Text<'a>, found: ::regex::Match<'_>) -> Value<'a> {
    match text {
        Text::Borrowed(text) => Value::from(&text[found.range()]),
        Text::Shared(text) => Value::from(text[found.range()].to_owned()),
    }
}

fn find_prepared<'a>(expression: &Regex, arguments: &[Value<'a>]) -> Outcome<'a> {
    let text = text(arguments, 0)?;
    Ok(expression.find(text).map_or_else(|| Value::from(""), |found| piece(text, found)))
}

fn find_all_prepared<'a>(expression: &Regex, arguments: &[Value<'a>]) -> Outcome<'a> {
    let subject = text(arguments, 0)?;
    let limit = if arguments.len() > 1 { int(arguments, 1)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut pieces = Vec::new();
    for found in expression.find_iter(subject).take(limit) {
        work::make(2 * work::ITEM)?;
        pieces.push(piece(subject, found));
    }
    Ok(Value::from(pieces))
}

pub(crate) fn matches<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let expression = dynamic(arguments).map_err(Error::new)?;
    matches_prepared(&expression, &arguments[..1])
}

pub(crate) fn find<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    find_prepared(&dynamic(arguments).map_err(illegal)?, &arguments[..1])
}

pub(crate) fn find_all<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let mut others = vec![arguments[0].clone()];
    others.extend(arguments.get(2).cloned());
    find_all_prepared(&dynamic(arguments).map_err(illegal)?, &others)
}
