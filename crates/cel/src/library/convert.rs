//! Conversions between types.

use super::{Outcome, text, time};
use crate::error::Error;
use crate::program::Bindings;
use crate::value::{Text, Value};

pub(crate) fn same<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(arguments[0].clone())
}

pub(crate) fn size<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match &arguments[0] {
        value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_)) => {
            Ok(Value::Int(i64::try_from(value.size()).unwrap_or(i64::MAX)))
        }
        _ => Err(Error::NoSuchOverload(Some("size".into()))),
    }
}

pub(crate) fn type_of<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Type(arguments[0].ty()))
}

pub(crate) fn to_bool<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match &arguments[0] {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(Error::new("type conversion error from 'string' to 'bool'")),
        },
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn to_bytes<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match &arguments[0] {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn to_double<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match &arguments[0] {
        Value::Double(value) => Ok(Value::Double(*value)),
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        Value::String(text) => {
            let plain = text.trim_start_matches(['+', '-']);
            let known = plain.starts_with(|c: char| c.is_ascii_digit() || c == '.')
                || ["inf", "infinity", "nan"].contains(&plain.to_ascii_lowercase().as_str());
            let parsed = text.parse().ok().filter(|_| known);
            parsed.map(Value::Double).ok_or_else(|| unreadable("double"))
        }
        _ => Err(Error::no_such_overload()),
    }
}

fn unreadable(to: &str) -> Error {
    Error::new(format!("type conversion error from 'string' to '{to}'"))
}

fn range_error() -> Error {
    Error::new("integer overflow")
}

pub(crate) fn to_int<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let value = match &arguments[0] {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| range_error())?,
        Value::Double(value) => {
            if !(i64::MIN as f64..i64::MAX as f64).contains(value) || *value <= i64::MIN as f64 {
                return Err(range_error());
            }
            value.trunc() as i64
        }
        Value::String(text) => text.parse().map_err(|_| unreadable("int"))?,
        Value::Duration(nanos) => *nanos,
        Value::Timestamp(at) => at.as_second(),
        _ => return Err(Error::no_such_overload()),
    };
    Ok(Value::Int(value))
}

pub(crate) fn to_uint<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let overflow = || Error::new("unsigned integer overflow");
    let value = match &arguments[0] {
        Value::Uint(value) => *value,
        Value::Int(value) => u64::try_from(*value).map_err(|_| overflow())?,
        Value::Double(value) => {
            if !(0.0..1.844_674_407_370_955_2e19).contains(value) {
                return Err(overflow());
            }
            value.trunc() as u64
        }
        Value::String(text) => {
            text.parse().ok().filter(|_| !text.starts_with('+')).ok_or_else(|| unreadable("uint"))?
        }
        _ => return Err(Error::no_such_overload()),
    };
    Ok(Value::Uint(value))
}

pub(crate) fn to_string<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(match &arguments[0] {
        Value::String(text) => Value::String(text.clone()),
        Value::Bool(value) => Value::String(Text::Borrowed(if *value { "true" } else { "false" })),
        Value::Bytes(bytes) => {
            let text = String::from_utf8(bytes.to_vec());
            Value::from(text.map_err(|_| Error::new("invalid UTF-8 in bytes, cannot convert to string"))?)
        }
        Value::Double(value) => Value::from(text::show_double(*value)),
        Value::Duration(nanos) => Value::from(ferry_semantics::duration::show_seconds(*nanos)),
        Value::Int(value) => Value::from(value.to_string()),
        Value::Timestamp(at) => Value::from(time::show_timestamp(*at)),
        Value::Uint(value) => Value::from(value.to_string()),
        Value::Ip(ip) => Value::from(ip.to_string()),
        Value::Cidr(cidr) => Value::from(cidr.to_string()),
        other => return Err(Error::NoSuchOverload(Some(format!("string({})", other.type_name()).into()))),
    })
}

pub(crate) fn to_duration<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match &arguments[0] {
        Value::Duration(nanos) => Ok(Value::Duration(*nanos)),
        Value::String(text) => {
            time::parse_duration(text).map(Value::Duration).ok_or_else(|| unreadable("google.protobuf.Duration"))
        }
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn to_timestamp<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match &arguments[0] {
        Value::Timestamp(at) => Ok(Value::Timestamp(*at)),
        Value::Int(seconds) => {
            jiff::Timestamp::from_second(*seconds).map(Value::Timestamp).map_err(|_| Error::new("timestamp overflow"))
        }
        Value::String(text) => {
            time::parse_timestamp(text).map(Value::Timestamp).ok_or_else(|| unreadable("google.protobuf.Timestamp"))
        }
        _ => Err(Error::no_such_overload()),
    }
}
