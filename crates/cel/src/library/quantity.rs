//! Amounts of resources, and comparisons that versions share with them.

use std::cmp::Ordering;
use std::sync::Arc;

use ferry_meta::Quantity;

use super::{Outcome, text};
use crate::error::Error;
use crate::program::Bindings;
use crate::value::Value;

fn amount<'v>(arguments: &'v [Value<'_>], index: usize) -> Result<&'v Quantity, Error> {
    match arguments.get(index) {
        Some(Value::Quantity(quantity)) => Ok(quantity),
        _ => Err(Error::no_such_overload()),
    }
}

fn made<'a>(quantity: Quantity) -> Outcome<'a> {
    Ok(Value::Quantity(Arc::new(quantity)))
}

pub(crate) fn quantity<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    made(Quantity::parse(text(arguments, 0)?).map_err(|error| Error::new(error.to_string()))?)
}

pub(crate) fn is_quantity<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(Quantity::parse(text(arguments, 0)?).is_ok()))
}

pub(crate) fn sign<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let amount = amount(arguments, 0)?;
    Ok(Value::Int(if amount.is_zero() {
        0
    } else if amount.is_negative() {
        -1
    } else {
        1
    }))
}

fn order(arguments: &[Value<'_>]) -> Result<Ordering, Error> {
    match (&arguments[0], &arguments[1]) {
        (Value::Quantity(one), Value::Quantity(two)) => one.partial_cmp(two).ok_or_else(Error::no_such_overload),
        (Value::Semver(one), Value::Semver(two)) => Ok(one.cmp(two)),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn is_greater<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(order(arguments)? == Ordering::Greater))
}

pub(crate) fn is_less<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(order(arguments)? == Ordering::Less))
}

pub(crate) fn compare<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Int(order(arguments)? as i64))
}

pub(crate) fn as_float<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let amount = amount(arguments, 0)?;
    Ok(Value::Double(amount.as_f64()))
}

pub(crate) fn as_integer<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let amount = amount(arguments, 0)?;
    if !amount.is_integer() {
        return Err(Error::new("cannot convert value to integer"));
    }
    Ok(Value::Int(amount.value()))
}

pub(crate) fn is_integer<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(amount(arguments, 0)?.is_integer()))
}

fn second(arguments: &[Value<'_>]) -> Result<Quantity, Error> {
    match &arguments[1] {
        Value::Quantity(quantity) => Ok((**quantity).clone()),
        Value::Int(units) => Ok(Quantity::from_units(*units, ferry_meta::quantity::Format::DecimalExponent)),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn add<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    made(amount(arguments, 0)?.add(&second(arguments)?))
}

pub(crate) fn sub<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    made(amount(arguments, 0)?.sub(&second(arguments)?))
}
