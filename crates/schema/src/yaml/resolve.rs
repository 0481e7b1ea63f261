//! What a plain scalar means.

use base64::Engine;
use serde_json::{Number, Value};

use super::event::Tag;

/// The value of a scalar; quoted and block scalars are strings unless a tag says otherwise.
pub(super) fn scalar(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Value, String> {
    let tag = match tag {
        None => None,
        Some(Tag::Core(name)) => Some(&**name),
        Some(Tag::Other) => Some("str"),
    };
    match tag {
        Some("str") => Ok(Value::String(text.to_owned())),
        Some("binary") => {
            let cleaned: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            base64::engine::general_purpose::STANDARD
                .decode(cleaned)
                .map(|bytes| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
                .map_err(|_| "yaml: !!binary value contains invalid base64 data".to_owned())
        }
        Some(wanted @ ("int" | "float" | "bool" | "null")) => {
            let value = plain_scalar(text);
            let (fits, found) = match &value {
                Value::Null => (wanted == "null", "null"),
                Value::Bool(_) => (wanted == "bool", "bool"),
                Value::Number(number) if number.is_f64() => (wanted == "float", "float"),
                Value::Number(_) => (matches!(wanted, "int" | "float"), "int"),
                _ => (false, "str"),
            };
            if fits { Ok(value) } else { Err(format!("yaml: cannot decode !!{found} `{text}` as a !!{wanted}")) }
        }
        None if plain => match infinite(text) {
            Some(shown) => Err(format!("json: unsupported value: {shown}")),
            None => Ok(plain_scalar(text)),
        },
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// Numbers that YAML has and JSON has not, as Go shows them.
pub(super) fn infinite(text: &str) -> Option<&'static str> {
    match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some("+Inf"),
        "-.inf" | "-.Inf" | "-.INF" => Some("-Inf"),
        ".nan" | ".NaN" | ".NAN" => Some("NaN"),
        _ => None,
    }
}

pub(super) fn plain_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => return Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
    if numeric && let Some(number) = number(text) {
        return Value::Number(number);
    }
    Value::String(text.to_owned())
}

/// Whether a number has neither a fraction nor an exponent.
pub(super) fn is_whole(text: &str) -> bool {
    integer(text.replace('_', "").trim_start_matches(['+', '-'])).is_some()
}

fn number(text: &str) -> Option<Number> {
    if text.starts_with("._") {
        return None;
    }
    let cleaned = text.replace('_', "");
    let (negative, digits) = match cleaned.as_bytes().first()? {
        b'-' => (true, &cleaned[1..]),
        b'+' => (false, &cleaned[1..]),
        _ => (false, &*cleaned),
    };
    if let Some(integer) = integer(digits) {
        return match (negative, i64::try_from(integer)) {
            (false, Ok(value)) => Some(value.into()),
            (true, Ok(value)) => Some((-value).into()),
            (true, Err(_)) if integer == i64::MIN.unsigned_abs() => Some(i64::MIN.into()),
            (false, Err(_)) => Some(integer.into()),
            (true, Err(_)) => Number::from_f64(-(integer as f64)),
        };
    }
    let well_formed = !digits.is_empty()
        && digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.bytes().any(|c| c.is_ascii_digit())
        && digits.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !well_formed {
        return None;
    }
    crate::decode::float(cleaned.parse::<f64>().ok().filter(|f| f.is_finite())?)
}

/// Go's notation of whole numbers: `0x1f`, `0b1`, `0o17` and `017` beside decimals.
fn integer(digits: &str) -> Option<u64> {
    let (radix, rest) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if rest.starts_with(['+', '-']) { None } else { u64::from_str_radix(rest, radix).ok() }
}
