//! `format`: texts with values put in.

use std::fmt::Write;

use super::{Outcome, text as argument, time};
use crate::error::Error;
use crate::program::{Bindings, LONGEST_TEXT};
use crate::value::Value;
use crate::work;

const MOST_PRECISION: usize = 1000;

pub(crate) fn format<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let Value::List(list) = &arguments[1] else { return Err(Error::no_such_overload()) };
    let values = list.to_vec()?;
    let mut out = String::new();
    let mut characters = argument(arguments, 0)?.chars().peekable();
    let mut next = 0;
    while let Some(c) = characters.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if characters.peek() == Some(&'%') {
            characters.next();
            out.push('%');
            continue;
        }
        let mut precision = None;
        if characters.peek() == Some(&'.') {
            characters.next();
            let mut digits = String::new();
            while let Some(digit) = characters.peek().copied().filter(char::is_ascii_digit) {
                digits.push(digit);
                characters.next();
            }
            let wanted: usize = digits.parse().map_err(|_| {
                Error::new(format!(
                    "error while converting precision to integer: strconv.Atoi: parsing {digits:?}: invalid syntax"
                ))
            })?;
            if wanted > MOST_PRECISION {
                let message = format!("precision {wanted} exceeds maximum allowed precision {MOST_PRECISION}");
                return Err(Error::new(message));
            }
            precision = Some(wanted);
        }
        let Some(clause) = characters.next() else {
            return Err(Error::new("unexpected end of format string"));
        };
        if !"sdfebxXo".contains(clause) {
            return Err(Error::new(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{clause}\""
            )));
        }
        let value = values.get(next).ok_or_else(|| Error::new(format!("index {next} out of range")))?;
        next += 1;
        let text = one(clause, precision, value)?;
        work::make(text.len())?;
        out.push_str(&text);
        if out.len() > LONGEST_TEXT {
            return Err(Error::CostLimit);
        }
    }
    Ok(Value::from(out))
}

fn wrong(clause: &str, allowed: &str, value: &Value<'_>) -> Error {
    let kind = value.type_name();
    Error::new(format!("error during formatting: {clause} clause can only be used on {allowed}, was given {kind}"))
}

fn one(clause: char, precision: Option<usize>, value: &Value<'_>) -> Result<String, Error> {
    match clause {
        's' => shown(value),
        'd' => match value {
            Value::Int(value) => Ok(value.to_string()),
            Value::Uint(value) => Ok(value.to_string()),
            Value::Double(value) if value.is_nan() || value.is_infinite() => Ok(special(*value)),
            Value::Double(value) if value.fract() == 0.0 => Ok(format!("{value}")),
            _ => Err(wrong("decimal", "integers", value)),
        },
        'f' => number(value, "fixed-point").map(|float| match float {
            float if float.is_nan() || float.is_infinite() => special(float),
            float => grouped(&format!("{float:.*}", precision.unwrap_or(6))),
        }),
        'e' => number(value, "scientific").map(|float| match float {
            float if float.is_nan() || float.is_infinite() => special(float),
            float => {
                // The precision is not heeded, and the exponent is raised.
                let text = format!("{float:.6e}");
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                format!("{digits}×10{}", raised(exponent.parse().unwrap_or_default()))
            }
        }),
        'b' => match value {
            Value::Int(value) if *value < 0 => Ok(format!("-{:b}", value.unsigned_abs())),
            Value::Int(value) => Ok(format!("{value:b}")),
            Value::Uint(value) => Ok(format!("{value:b}")),
            Value::Bool(value) => Ok(u8::from(*value).to_string()),
            _ => Err(wrong("binary", "integers and bools", value)),
        },
        'o' => match value {
            Value::Int(value) if *value < 0 => Ok(format!("-{:o}", value.unsigned_abs())),
            Value::Int(value) => Ok(format!("{value:o}")),
            Value::Uint(value) => Ok(format!("{value:o}")),
            _ => Err(wrong("octal", "integers", value)),
        },
        _ => {
            let lower = match value {
                Value::Int(value) if *value < 0 => format!("-{:x}", value.unsigned_abs()),
                Value::Int(value) => format!("{value:x}"),
                Value::Uint(value) => format!("{value:x}"),
                Value::String(text) => hex(text.as_bytes()),
                Value::Bytes(bytes) => hex(bytes),
                _ => {
                    let kind = value.type_name();
                    let why = "only integers, byte buffers, and strings can be formatted as hex";
                    return Err(Error::new(format!("error during formatting: {why}, was given {kind}")));
                }
            };
            Ok(if clause == 'X' { lower.to_uppercase() } else { lower })
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn special(value: f64) -> String {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
    .to_owned()
}

fn number(value: &Value<'_>, clause: &str) -> Result<f64, Error> {
    match value {
        Value::Double(value) => Ok(*value),
        Value::String(text) if ["NaN", "Infinity", "-Infinity"].contains(&&**text) => {
            text.parse().map_err(|_| Error::no_such_overload())
        }
        _ => Err(wrong(clause, "doubles", value)),
    }
}

/// What `%s` shows.
pub(crate) fn shown(value: &Value<'_>) -> Result<String, Error> {
    let text = whole(value)?;
    if text.len() > LONGEST_TEXT || !work::text(text.len()) {
        return Err(Error::CostLimit);
    }
    Ok(text)
}

fn whole(value: &Value<'_>) -> Result<String, Error> {
    Ok(match value {
        Value::String(text) => (**text).to_owned(),
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) if value.is_nan() || value.is_infinite() => special(*value),
        Value::Double(value) => super::text::show_double(*value),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(nanos) => ferry_semantics::duration::show_seconds(*nanos),
        Value::Timestamp(at) => time::show_timestamp(*at),
        Value::Type(ty) => type_name(ty),
        Value::List(list) => {
            let items: Result<Vec<String>, Error> = list.to_vec()?.iter().map(inner).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for key in map.keys() {
                let value = map.get(&key)?.unwrap_or(Value::Null);
                entries.push((inner(&key)?, inner(&value)?));
            }
            entries.sort();
            let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        _ => {
            return Err(wrong(
                "string",
                "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
                value,
            ));
        }
    })
}

/// A value inside of a list or map, as an expression would spell it.
fn inner(value: &Value<'_>) -> Result<String, Error> {
    Ok(match value {
        Value::String(text) => ferry_meta::field::quote(text),
        Value::Bytes(bytes) => format!("b{}", ferry_meta::field::quote(&String::from_utf8_lossy(bytes))),
        Value::Double(float) if float.is_nan() || float.is_infinite() => format!("\"{}\"", special(*float)),
        Value::Double(float) => format!("{float:.6}"),
        Value::Duration(_) => format!("duration(\"{}\")", shown(value)?),
        Value::Timestamp(_) => format!("timestamp(\"{}\")", shown(value)?),
        other => shown(other)?,
    })
}

/// A number with commas between thousands.
fn grouped(number: &str) -> String {
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |number| ("-", number));
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut text = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        let _ = write!(text, ".{fraction}");
    }
    text
}

fn raised(exponent: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let sign = if exponent < 0 { "⁻" } else { "" };
    let digits = format!("{:02}", exponent.abs());
    let digits: String = digits.bytes().map(|digit| DIGITS[usize::from(digit - b'0')]).collect();
    format!("{sign}{digits}")
}

fn type_name(ty: &crate::types::Type) -> String {
    use crate::types::Type;
    match ty {
        Type::List(_) => "list".to_owned(),
        Type::Map(..) => "map".to_owned(),
        Type::Null => "null_type".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        other => other.to_string(),
    }
}
