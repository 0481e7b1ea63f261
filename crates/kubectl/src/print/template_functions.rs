//! The functions of Go templates.

use serde_json::Value;

use super::format::{Typed, sprintf};
use super::go_value::show;

/// None is Go's "no value": a key that is not there.
pub type Slot = Option<Value>;

const NO_VALUE: &str = "<no value>";
pub const FUNCTIONS: [&str; 20] = [
    "index",
    "len",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and",
    "or",
    "not",
    "print",
    "println",
    "printf",
    "exists",
    "base64decode",
    "html",
    "js",
    "slice",
    "urlquery",
];

pub fn truth(value: &Slot) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(value)) => *value,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
    }
}

pub fn display(value: &Slot) -> String {
    match value {
        None | Some(Value::Null) => NO_VALUE.to_owned(),
        Some(value) => show(value),
    }
}

/// Numbers and texts have an order.
fn has_order(slot: &Slot) -> bool {
    matches!(slot, Some(Value::Number(_) | Value::String(_)))
}

fn unlike(name: &str, (_, one): Typed<'_>, (_, other): Typed<'_>) -> String {
    format!("error calling {name}: incompatible types for comparison: {one} and {other}")
}

/// Nothing equals nothing, and only that; values of two kinds cannot be compared.
fn equal(name: &str, one: Typed<'_>, other: Typed<'_>) -> Result<bool, String> {
    let (a, b) = (one.0.as_ref().filter(|a| !a.is_null()), other.0.as_ref().filter(|b| !b.is_null()));
    match (a, b) {
        (None, None) => Ok(true),
        (None, Some(_)) | (Some(_), None) => Ok(false),
        (Some(Value::Number(a)), Some(Value::Number(b))) if a.is_f64() == b.is_f64() => Ok(a == b),
        (Some(Value::String(a)), Some(Value::String(b))) => Ok(a == b),
        (Some(Value::Bool(a)), Some(Value::Bool(b))) => Ok(a == b),
        (Some(value @ (Value::Array(_) | Value::Object(_))), Some(Value::Array(_) | Value::Object(_))) => {
            Err(format!("error calling {name}: non-comparable type {}: {}", show(value), ferry_schema::go_type(value)))
        }
        _ => Err(unlike(name, one, other)),
    }
}

/// `names` are what Go calls the types of the arguments: a number of the template is not of the type that an object's has.
pub fn function(name: &str, arguments: &[Slot], names: &[&'static str]) -> Result<Slot, String> {
    let typed: Vec<Typed<'_>> = arguments.iter().zip(names.iter().copied()).collect();
    let plain = |value: &Slot| value.as_ref().map_or_else(|| "<nil>".to_owned(), show);
    let text = |value: &Slot| display(value);
    let need = |count: usize| match arguments.len() >= count {
        true => Ok(()),
        false => Err(format!("wrong number of args for {name}: want at least {count} got {}", arguments.len())),
    };
    let exactly = |count: usize| match arguments.len() == count {
        true => Ok(()),
        false => Err(format!("wrong number of args for {name}: want {count} got {}", arguments.len())),
    };
    Ok(Some(match name {
        "index" => {
            need(1)?;
            let mut value = arguments[0].clone();
            for key in &arguments[1..] {
                value = index(value, key)?;
            }
            return Ok(value);
        }
        "len" => {
            exactly(1)?;
            match &arguments[0] {
                Some(Value::Array(items)) => items.len().into(),
                Some(Value::Object(map)) => map.len().into(),
                Some(Value::String(text)) => text.len().into(),
                None | Some(Value::Null) => {
                    return Err("error calling len: reflect: call of reflect.Value.Type on zero Value".into());
                }
                Some(_) => return Err(format!("error calling len: len of type {}", names.first().unwrap_or(&"<nil>"))),
            }
        }
        "eq" => {
            need(2)?;
            for other in &typed[1..] {
                if equal(name, typed[0], *other)? {
                    return Ok(Some(true.into()));
                }
            }
            false.into()
        }
        "ne" => {
            exactly(2)?;
            (!equal(name, typed[0], typed[1])?).into()
        }
        "lt" | "le" | "gt" | "ge" => {
            exactly(2)?;
            let order = match (&arguments[0], &arguments[1]) {
                (Some(Value::Number(a)), Some(Value::Number(b))) if a.is_f64() == b.is_f64() => {
                    a.as_f64().partial_cmp(&b.as_f64())
                }
                (Some(Value::String(a)), Some(Value::String(b))) => Some(a.cmp(b)),
                (a, b) if !has_order(a) || !has_order(b) => {
                    return Err(format!("error calling {name}: invalid type for comparison"));
                }
                _ => return Err(unlike(name, typed[0], typed[1])),
            };
            let order = order.ok_or("incompatible types for comparison")?;
            match name {
                "lt" => order.is_lt(),
                "le" => order.is_le(),
                "gt" => order.is_gt(),
                _ => order.is_ge(),
            }
            .into()
        }
        "and" => return Ok(arguments.iter().find(|value| !truth(value)).or(arguments.last()).cloned().flatten()),
        "or" => return Ok(arguments.iter().find(|value| truth(value)).or(arguments.last()).cloned().flatten()),
        "not" => {
            exactly(1)?;
            (!truth(&arguments[0])).into()
        }
        // Spaces stand only between what is no text.
        "print" => {
            let is_text = |slot: &Slot| matches!(slot, Some(Value::String(_)));
            let mut out = String::new();
            for (index, argument) in arguments.iter().enumerate() {
                if index > 0 && !is_text(argument) && !is_text(&arguments[index - 1]) {
                    out.push(' ');
                }
                out.push_str(&plain(argument));
            }
            out.into()
        }
        "println" => (arguments.iter().map(plain).collect::<Vec<_>>().join(" ") + "\n").into(),
        "printf" => {
            need(1)?;
            sprintf(&text(&arguments[0]), &typed[1..]).into()
        }
        "exists" => {
            need(1)?;
            let mut value = arguments[0].clone();
            for key in &arguments[1..] {
                value = index(value, key).unwrap_or(None);
            }
            value.is_some().into()
        }
        "base64decode" => {
            use base64::Engine;
            exactly(1)?;
            let encoded = text(&arguments[0]);
            let decoded = base64::engine::general_purpose::STANDARD.decode(&encoded).map_err(|error| {
                let at = match error {
                    base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                    _ => encoded.len() / 4 * 4,
                };
                format!("error calling base64decode: base64 decode failed: illegal base64 data at input byte {at}")
            })?;
            String::from_utf8_lossy(&decoded).into()
        }
        "urlquery" => {
            crate::client::escaped(&arguments.iter().map(text).collect::<String>()).replace("%20", "+").into()
        }
        "slice" => {
            need(1)?;
            return sliced(&arguments[0], &arguments[1..]).map(Some);
        }
        "html" => html_escaped(&arguments.iter().map(text).collect::<String>()).into(),
        "js" => js_escaped(&arguments.iter().map(text).collect::<String>()).into(),
        _ => return Err(format!("function {} not defined", crate::text::quote(name))),
    }))
}

/// A part of a list or a text, from one place to another.
fn sliced(value: &Slot, places: &[Slot]) -> Result<Value, String> {
    let length = match value {
        Some(Value::Array(items)) => items.len(),
        Some(Value::String(text)) => text.len(),
        _ => return Err("error calling slice: can't slice item".into()),
    };
    let place = |at: usize, otherwise: usize| match places.get(at) {
        None => Ok(otherwise),
        Some(Some(Value::Number(number))) => number
            .as_u64()
            .and_then(|number| usize::try_from(number).ok())
            .filter(|number| *number <= length)
            .ok_or_else(|| format!("error calling slice: index out of range: {number}")),
        Some(_) => Err("error calling slice: cannot index slice/array with this type".to_owned()),
    };
    let (from, to) = (place(0, 0)?, place(1, length)?);
    if from > to {
        return Err(format!("error calling slice: invalid slice index: {from} > {to}"));
    }
    match value {
        Some(Value::Array(items)) => Ok(items[from..to].to_vec().into()),
        Some(Value::String(text)) => Ok(String::from_utf8_lossy(&text.as_bytes()[from..to]).into_owned().into()),
        _ => Err("error calling slice: can't slice item".into()),
    }
}

fn type_of(slot: &Slot) -> &'static str {
    slot.as_ref().map_or("<nil>", ferry_schema::go_type)
}

fn index(value: Slot, key: &Slot) -> Result<Slot, String> {
    Ok(match (value, key) {
        (Some(Value::Object(mut map)), Some(Value::String(key))) => map.remove(key),
        (Some(value @ (Value::Array(_) | Value::String(_))), Some(Value::Number(at))) => {
            let place = at.as_u64().and_then(|at| usize::try_from(at).ok());
            let found = place.and_then(|place| match &value {
                Value::Array(items) => items.get(place).cloned(),
                other => other.as_str()?.as_bytes().get(place).map(|byte| (*byte).into()),
            });
            Some(found.ok_or_else(|| format!("error calling index: index out of range: {at}"))?)
        }
        (None | Some(Value::Null), _) => return Err("error calling index: index of untyped nil".into()),
        (Some(Value::Object(_)), key) => {
            return Err(format!("error calling index: value has type {}; should be string", type_of(key)));
        }
        (Some(Value::Array(_) | Value::String(_)), key) => {
            return Err(format!("error calling index: cannot index slice/array with type {}", type_of(key)));
        }
        (Some(other), _) => {
            let kind = ferry_schema::go_type(&other);
            return Err(format!("error calling index: can't index item of type {kind}"));
        }
    })
}

pub fn html_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

fn js_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '\'' | '"' => {
                out.push('\\');
                out.push(c);
            }
            '<' | '>' | '&' | '=' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}
