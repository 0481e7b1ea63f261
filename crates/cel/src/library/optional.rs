//! Values that may not be there.

use std::sync::Arc;

use super::Outcome;
use crate::error::Error;
use crate::program::Bindings;
use crate::value::Value;

fn content<'v, 'a>(arguments: &'v [Value<'a>]) -> Result<Option<&'v Arc<Value<'a>>>, Error> {
    match &arguments[0] {
        Value::Optional(of) => Ok(of.as_ref()),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn has_value<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(content(arguments)?.is_some()))
}

pub(crate) fn value<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    content(arguments)?.map(|of| (**of).clone()).ok_or_else(|| Error::new("optional.none() dereference"))
}

pub(crate) fn or<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(if content(arguments)?.is_some() { arguments[0].clone() } else { arguments[1].clone() })
}

pub(crate) fn or_value<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(content(arguments)?.map_or_else(|| arguments[1].clone(), |of| (**of).clone()))
}

pub(crate) fn none<'a>(_: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Optional(None))
}

pub(crate) fn of<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Optional(Some(Arc::new(arguments[0].clone()))))
}

pub(crate) fn of_non_zero<'a>(arguments: &[Value<'a>], bindings: &dyn Bindings<'a>) -> Outcome<'a> {
    let zero = match &arguments[0] {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Int(value) | Value::Duration(value) => *value == 0,
        Value::Uint(value) => *value == 0,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Object(made) => made.fields.is_empty(),
        Value::Optional(of) => of.is_none(),
        _ => false,
    };
    if zero { Ok(Value::Optional(None)) } else { of(arguments, bindings) }
}

pub(crate) fn unwrap<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let Value::List(list) = &arguments[0] else { return Err(Error::no_such_overload()) };
    let mut items = Vec::new();
    for item in list.to_vec()? {
        match item {
            Value::Optional(of) => items.extend(of.map(|of| (*of).clone())),
            _ => return Err(Error::no_such_overload()),
        }
    }
    Ok(Value::from(items))
}
