//! Texts.

use std::fmt::Write;

use super::{Outcome, int, text as argument};
use crate::error::Error;
use crate::program::{Bindings, LONGEST_TEXT};
use crate::value::{Text, Value};
use crate::work;

/// A double as Go shows it with the fewest digits.
pub(crate) fn show_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let plain = format!("{value:e}");
    let (digits, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn out_of_range(index: i64) -> Error {
    Error::new(format!("index out of range: {index}"))
}

/// The byte at which a character stands; the end for one past the last.
fn place(text: &str, index: i64) -> Result<usize, Error> {
    let index_usize = usize::try_from(index).map_err(|_| out_of_range(index))?;
    if text.is_ascii() {
        return if index_usize <= text.len() { Ok(index_usize) } else { Err(out_of_range(index)) };
    }
    let mut places = text.char_indices().map(|(place, _)| place).chain([text.len()]);
    places.nth(index_usize).ok_or_else(|| out_of_range(index))
}

fn part<'a>(text: &Text<'a>, from: usize, to: usize) -> Value<'a> {
    match text {
        Text::Borrowed(text) => Value::from(&text[from..to]),
        Text::Shared(text) => Value::from(text[from..to].to_owned()),
    }
}

pub(crate) fn char_at<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let (text, index) = (argument(arguments, 0)?, int(arguments, 1)?);
    let from = place(text, index)?;
    let length = text[from..].chars().next().map_or(0, char::len_utf8);
    Ok(part(text, from, from + length))
}

pub(crate) fn contains<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(argument(arguments, 0)?.contains(&**argument(arguments, 1)?)))
}

pub(crate) fn starts_with<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(argument(arguments, 0)?.starts_with(&**argument(arguments, 1)?)))
}

pub(crate) fn ends_with<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(argument(arguments, 0)?.ends_with(&**argument(arguments, 1)?)))
}

fn characters(text: &str, upto: usize) -> i64 {
    i64::try_from(text[..upto].chars().count()).unwrap_or(i64::MAX)
}

pub(crate) fn index_of<'a>(arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, part) = (argument(arguments, 0)?, argument(arguments, 1)?);
    let offset = if arguments.len() > 2 { int(arguments, 2)? } else { 0 };
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    let length = characters(text, text.len());
    if part.is_empty() {
        return Ok(Value::Int(offset.min(length)));
    }
    if offset >= length {
        return Ok(Value::Int(-1));
    }
    let from = place(text, offset)?;
    let found = text[from..].find(&**part).map_or(-1, |at| characters(text, from + at));
    Ok(Value::Int(found))
}

pub(crate) fn last_index_of<'a>(arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, part) = (argument(arguments, 0)?, argument(arguments, 1)?);
    let length = characters(text, text.len());
    let offset = if arguments.len() > 2 { int(arguments, 2)? } else { length };
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    if part.is_empty() {
        return Ok(Value::Int(offset.min(length)));
    }
    if arguments.len() > 2 && offset >= length {
        return Ok(Value::Int(-1));
    }
    let from = place(text, offset.min(length))?;
    let upto = (from + part.len()).min(text.len());
    let upto = (upto..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let found = text[..upto].rmatch_indices(&**part).map(|(at, _)| at).find(|at| *at <= from);
    Ok(Value::Int(found.map_or(-1, |at| characters(text, at))))
}

pub(crate) fn join<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let Value::List(list) = &arguments[0] else { return Err(Error::no_such_overload()) };
    let separator = if arguments.len() > 1 { &**argument(arguments, 1)? } else { "" };
    let mut joined = String::new();
    for (index, item) in list.to_vec()?.iter().enumerate() {
        let Value::String(item) = item else {
            return Err(Error::new(format!("join: invalid input: {}", crate::operators::show(item))));
        };
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(item);
        if joined.len() > LONGEST_TEXT {
            return Err(Error::CostLimit);
        }
    }
    work::make(joined.len())?;
    Ok(Value::from(joined))
}

pub(crate) fn lower<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::from(argument(arguments, 0)?.to_ascii_lowercase()))
}

pub(crate) fn upper<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::from(argument(arguments, 0)?.to_ascii_uppercase()))
}

pub(crate) fn replace<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let (text, from, to) = (argument(arguments, 0)?, argument(arguments, 1)?, argument(arguments, 2)?);
    let limit = if arguments.len() > 3 { int(arguments, 3)? } else { -1 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let times = if from.is_empty() { text.chars().count() + 1 } else { text.matches(&**from).count() }.min(limit);
    // The length is known before anything is built.
    let longest = text.len().saturating_add(times.saturating_mul(to.len()));
    if longest > LONGEST_TEXT {
        return Err(Error::CostLimit);
    }
    work::make(longest)?;
    Ok(Value::from(text.replacen(&**from, to, times)))
}

pub(crate) fn split<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let (text, separator) = (argument(arguments, 0)?, argument(arguments, 1)?);
    let limit = if arguments.len() > 2 { int(arguments, 2)? } else { -1 };
    if limit == 0 {
        return Ok(Value::from(Vec::new()));
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let start = text.as_ptr() as usize;
    let bounds = |piece: &str| {
        let from = piece.as_ptr() as usize - start;
        (from, from + piece.len())
    };
    let pieces: Vec<(usize, usize)> = if separator.is_empty() {
        let mut pieces: Vec<(usize, usize)> =
            text.char_indices().take(limit).map(|(at, c)| (at, at + c.len_utf8())).collect();
        if let Some(last) = pieces.last_mut()
            && pieces_are_cut(text, last.1)
        {
            last.1 = text.len();
        }
        pieces
    } else {
        text.splitn(limit, &**separator).map(bounds).collect()
    };
    work::make(pieces.len() * 2 * work::ITEM)?;
    Ok(Value::from(pieces.into_iter().map(|(from, to)| part(text, from, to)).collect::<Vec<_>>()))
}

fn pieces_are_cut(text: &str, end: usize) -> bool {
    end < text.len()
}

pub(crate) fn quote<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let text = argument(arguments, 0)?;
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        let escape = match c {
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\u{c}' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\u{b}' => 'v',
            '\\' => '\\',
            '"' => '"',
            _ => {
                quoted.push(c);
                continue;
            }
        };
        let _ = write!(quoted, "\\{escape}");
    }
    quoted.push('"');
    Ok(Value::from(quoted))
}

pub(crate) fn substring<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let (text, start) = (argument(arguments, 0)?, int(arguments, 1)?);
    if arguments.len() < 3 {
        let from = place(text, start)?;
        return Ok(part(text, from, text.len()));
    }
    let end = int(arguments, 2)?;
    if start > end {
        return Err(Error::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    Ok(part(text, place(text, start)?, place(text, end)?))
}

pub(crate) fn trim<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let text = argument(arguments, 0)?;
    let trimmed = text.trim();
    let from = trimmed.as_ptr() as usize - text.as_ptr() as usize;
    Ok(part(text, from, from + trimmed.len()))
}

pub(crate) fn escape_key<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::from(argument(arguments, 0)?.replace('~', "~0").replace('/', "~1")))
}
