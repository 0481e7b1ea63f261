//! Equality, order, arithmetic and looking things up.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::error::Error;
use crate::library::time;
use crate::program::{Bindings, LONGEST_TEXT};
use crate::schema::ListKind;
use crate::value::{List, Map, Value};
use crate::work;

type Outcome<'a> = Result<Value<'a>, Error>;

/// What messages show of a value, by weight; of a larger one they name the type.
const LONGEST_SHOWN: usize = 64 << 10;

/// A value as messages show it.
pub(crate) fn show(value: &Value<'_>) -> String {
    match value {
        Value::String(text) => (**text).to_owned(),
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => crate::library::text::show_double(*value),
        Value::Duration(nanos) => ferry_semantics::duration::show(*nanos),
        Value::Timestamp(at) => time::show_timestamp(*at),
        other => other.to_json_within(LONGEST_SHOWN).map_or_else(|| other.type_name(), |json| json.to_string()),
    }
}

pub(crate) fn index<'a>(operand: &Value<'a>, index: &Value<'a>, optional: bool) -> Outcome<'a> {
    if let Value::Optional(of) = operand {
        let Some(of) = of else { return Ok(Value::Optional(None)) };
        return Ok(Value::Optional(find(of, index)?.map(Arc::new)));
    }
    let found = find(operand, index)?;
    if optional {
        return Ok(Value::Optional(found.map(Arc::new)));
    }
    found.ok_or_else(|| match operand {
        Value::List(_) => Error::new(format!("index out of bounds: {}", show(index))),
        _ => Error::no_such_key(show(index)),
    })
}

fn find<'a>(operand: &Value<'a>, index: &Value<'a>) -> Result<Option<Value<'a>>, Error> {
    match operand {
        Value::List(list) => match whole(index) {
            Some(number) => usize::try_from(number).map_or(Ok(None), |number| list.get(number)),
            None if matches!(index, Value::Double(_)) => {
                Err(Error::new(format!("unsupported index value {} in list", show(index))))
            }
            None => Err(Error::new(format!("unsupported index type '{}' in list", index.type_name()))),
        },
        Value::Map(map) => map.get(index),
        Value::Object(_) => match index {
            Value::String(name) => operand.get(name),
            _ => Err(Error::no_such_overload()),
        },
        _ => Ok(None),
    }
}

/// A whole number, whatever its type.
fn whole(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Int(value) => Some(*value),
        Value::Uint(value) => i64::try_from(*value).ok(),
        Value::Double(value) if value.fract() == 0.0 && value.abs() < 9.0e18 => Some(*value as i64),
        _ => None,
    }
}

/// Numbers of different types compare by their amount.
fn numbers(one: &Value<'_>, two: &Value<'_>) -> Option<Option<Ordering>> {
    let exact = |value: &Value<'_>| match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    };
    if let (Some(one), Some(two)) = (exact(one), exact(two)) {
        return Some(Some(one.cmp(&two)));
    }
    let float = |value: &Value<'_>| match value {
        Value::Double(value) => Some(*value),
        _ => exact(value).map(|value| value as f64),
    };
    Some(float(one)?.partial_cmp(&float(two)?))
}

/// Whether two values are the same. Where that would take too many steps it is not, and the evaluation fails.
pub(crate) fn equal(one: &Value<'_>, two: &Value<'_>) -> bool {
    if !work::step(1) {
        return false;
    }
    match (one, two) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(one), Value::Bool(two)) => one == two,
        (Value::String(one), Value::String(two)) => same_bytes(one.as_bytes(), two.as_bytes()),
        (Value::Bytes(one), Value::Bytes(two)) => same_bytes(one, two),
        (Value::Duration(one), Value::Duration(two)) => one == two,
        (Value::Timestamp(one), Value::Timestamp(two)) => one == two,
        (Value::List(one), Value::List(two)) => lists(one, two),
        (Value::Map(one), Value::Map(two)) => maps(one, two),
        (Value::Type(one), Value::Type(two)) => one == two,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(one)), Value::Optional(Some(two))) => equal(one, two),
        (Value::Object(one), Value::Object(two)) => {
            one.object == two.object
                && one.fields.len() == two.fields.len()
                && one
                    .fields
                    .iter()
                    .all(|(name, value)| two.fields.iter().any(|(other, with)| other == name && equal(value, with)))
        }
        (Value::Quantity(one), Value::Quantity(two)) => one == two,
        (Value::Url(one), Value::Url(two)) => one.text == two.text,
        (Value::Semver(one), Value::Semver(two)) => one.cmp(two) == Ordering::Equal,
        (Value::Ip(one), Value::Ip(two)) => one == two,
        (Value::Cidr(one), Value::Cidr(two)) => one == two,
        (Value::Format(one), Value::Format(two)) => std::ptr::eq(*one, *two),
        (Value::Authorizer(one), Value::Authorizer(two)) => one == two,
        (Value::Check(one), Value::Check(two)) => one == two,
        (Value::Decision(one), Value::Decision(two)) => one == two,
        _ => numbers(one, two).is_some_and(|order| order == Some(Ordering::Equal)),
    }
}

fn same_bytes(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && work::text(one.len()) && one == two
}

/// JSON is compared as it is.
fn same_json(one: &Json, two: &Json) -> bool {
    if !work::step(1) {
        return false;
    }
    match (one, two) {
        (Json::String(one), Json::String(two)) => same_bytes(one.as_bytes(), two.as_bytes()),
        (Json::Array(one), Json::Array(two)) => {
            one.len() == two.len() && one.iter().zip(two).all(|(one, two)| same_json(one, two))
        }
        (Json::Object(one), Json::Object(two)) => same_maps(one, two),
        _ => one == two,
    }
}

fn same_maps(one: &serde_json::Map<String, Json>, two: &serde_json::Map<String, Json>) -> bool {
    one.len() == two.len() && one.iter().zip(two).all(|((k, v), (l, w))| k == l && same_json(v, w))
}

fn lists(one: &List<'_>, two: &List<'_>) -> bool {
    if one.len() != two.len() || !work::step(one.len()) {
        return false;
    }
    let (Ok(first), Ok(second)) = (one.to_vec(), two.to_vec()) else { return false };
    let kind = |list: &List<'_>| match list {
        List::Json { kind: Some(kind), .. } => (*kind).clone(),
        _ => ListKind::Atomic,
    };
    let kind = match kind(one) {
        ListKind::Atomic => kind(two),
        kind => kind,
    };
    match kind {
        ListKind::Atomic => first.iter().zip(&second).all(|(one, two)| equal(one, two)),
        // Sets and maps are the same in any order.
        ListKind::Set => first.iter().all(|item| second.iter().any(|other| equal(item, other))),
        ListKind::Map(keys) => first.iter().all(|item| {
            let same = |other: &&Value<'_>| same_key(item, other, &keys);
            second.iter().find(same).is_some_and(|other| equal(item, other))
        }),
    }
}

fn same_key(one: &Value<'_>, two: &Value<'_>, keys: &[String]) -> bool {
    work::step(1)
        && keys.iter().all(|key| {
            let key = crate::schema::escape(key).unwrap_or_else(|| key.clone());
            match (one.get(&key), two.get(&key)) {
                (Ok(Some(one)), Ok(Some(two))) => equal(&one, &two),
                (Ok(None), Ok(None)) => true,
                _ => false,
            }
        })
}

fn maps(one: &Map<'_>, two: &Map<'_>) -> bool {
    if one.len() != two.len() || !work::step(one.len()) {
        return false;
    }
    if let (Map::Json { map: one, decl: None }, Map::Json { map: two, decl: None }) = (one, two) {
        return same_maps(one, two);
    }
    one.keys().iter().all(|key| {
        let other = match key {
            Value::String(name) => two.get_text(name),
            _ => match two {
                Map::Values(entries) | Map::Open(entries) => {
                    Ok(entries.iter().find(|(_, (have, _))| equal(have, key)).map(|(_, (_, value))| value.clone()))
                }
                Map::Json { .. } => Ok(None),
            },
        };
        match (one.get(key), other) {
            (Ok(Some(value)), Ok(Some(other))) => equal(&value, &other),
            // Fields that are null count as absent.
            (Ok(None), Ok(None)) => true,
            _ => false,
        }
    })
}

/// The order of two values; None where they have none.
pub(crate) fn compare(one: &Value<'_>, two: &Value<'_>) -> Result<Option<Ordering>, Error> {
    Ok(Some(match (one, two) {
        (Value::Bool(one), Value::Bool(two)) => one.cmp(two),
        (Value::String(one), Value::String(two)) => (**one).cmp(&**two),
        (Value::Bytes(one), Value::Bytes(two)) => one.cmp(two),
        (Value::Duration(one), Value::Duration(two)) => one.cmp(two),
        (Value::Timestamp(one), Value::Timestamp(two)) => one.cmp(two),
        _ => return numbers(one, two).ok_or_else(Error::no_such_overload),
    }))
}

pub(crate) fn eq<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(equal(&arguments[0], &arguments[1])))
}

pub(crate) fn ne<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(!equal(&arguments[0], &arguments[1])))
}

pub(crate) fn lt<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(compare(&arguments[0], &arguments[1])? == Some(Ordering::Less)))
}

pub(crate) fn le<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let order = compare(&arguments[0], &arguments[1])?;
    Ok(Value::Bool(matches!(order, Some(Ordering::Less | Ordering::Equal))))
}

pub(crate) fn gt<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Bool(compare(&arguments[0], &arguments[1])? == Some(Ordering::Greater)))
}

pub(crate) fn ge<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let order = compare(&arguments[0], &arguments[1])?;
    Ok(Value::Bool(matches!(order, Some(Ordering::Greater | Ordering::Equal))))
}

pub(crate) fn contained<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let found = match &arguments[1] {
        Value::List(List::Json { items, of: None, .. }) => {
            items.iter().any(|item| equal(&Value::json(item), &arguments[0]))
        }
        Value::List(list) => list.to_vec()?.iter().any(|item| equal(item, &arguments[0])),
        Value::Map(map) => map.contains(&arguments[0])?,
        _ => return Err(Error::no_such_overload()),
    };
    Ok(Value::Bool(found))
}

fn overflow(kind: &str) -> Error {
    Error::new(format!("{kind} overflow"))
}

fn int<'a>(result: Option<i64>) -> Outcome<'a> {
    result.map(Value::Int).ok_or_else(|| overflow("integer"))
}

fn uint<'a>(result: Option<u64>) -> Outcome<'a> {
    result.map(Value::Uint).ok_or_else(|| overflow("unsigned integer"))
}

pub(crate) fn add<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match (&arguments[0], &arguments[1]) {
        (Value::Int(one), Value::Int(two)) => int(one.checked_add(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_add(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one + two)),
        (Value::String(one), Value::String(two)) => {
            if one.len() + two.len() > LONGEST_TEXT {
                return Err(Error::CostLimit);
            }
            work::make(one.len() + two.len())?;
            Ok(Value::from([&**one, &**two].concat()))
        }
        (Value::Bytes(one), Value::Bytes(two)) => {
            work::make(one.len() + two.len())?;
            Ok(Value::Bytes([&**one, &**two].concat().into()))
        }
        (Value::List(one), Value::List(two)) => add_lists(one, two),
        (Value::Duration(one), Value::Duration(two)) => {
            one.checked_add(*two).map(Value::Duration).ok_or_else(|| overflow("duration"))
        }
        (Value::Timestamp(at), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(at)) => {
            time::shift(*at, *by).map(Value::Timestamp)
        }
        _ => Err(Error::no_such_overload()),
    }
}

fn add_lists<'a>(one: &List<'a>, two: &List<'a>) -> Outcome<'a> {
    work::make((one.len() + two.len()) * work::ITEM)?;
    let mut items = one.to_vec()?;
    let added = two.to_vec()?;
    match one {
        List::Json { kind: Some(ListKind::Set), .. } => {
            for item in added {
                if !items.iter().any(|have| equal(have, &item)) {
                    items.push(item);
                }
            }
        }
        List::Json { kind: Some(ListKind::Map(keys)), .. } => {
            for item in added {
                match items.iter().position(|have| same_key(have, &item, keys)) {
                    Some(place) => items[place] = item,
                    None => items.push(item),
                }
            }
        }
        _ => items.extend(added),
    }
    Ok(Value::from(items))
}

pub(crate) fn subtract<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match (&arguments[0], &arguments[1]) {
        (Value::Int(one), Value::Int(two)) => int(one.checked_sub(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_sub(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one - two)),
        (Value::Duration(one), Value::Duration(two)) => {
            one.checked_sub(*two).map(Value::Duration).ok_or_else(|| overflow("duration"))
        }
        (Value::Timestamp(at), Value::Duration(by)) => {
            let by = by.checked_neg().ok_or_else(|| overflow("duration"))?;
            time::shift(*at, by).map(Value::Timestamp)
        }
        (Value::Timestamp(one), Value::Timestamp(two)) => {
            let nanos = one.as_nanosecond() - two.as_nanosecond();
            i64::try_from(nanos).map(Value::Duration).map_err(|_| overflow("duration"))
        }
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn multiply<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match (&arguments[0], &arguments[1]) {
        (Value::Int(one), Value::Int(two)) => int(one.checked_mul(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_mul(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one * two)),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn divide<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match (&arguments[0], &arguments[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(Error::new("division by zero")),
        (Value::Int(one), Value::Int(two)) => int(one.checked_div(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_div(*two)),
        (Value::Double(one), Value::Double(two)) => Ok(Value::Double(one / two)),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn modulo<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match (&arguments[0], &arguments[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(Error::new("modulus by zero")),
        (Value::Int(one), Value::Int(two)) => int(one.checked_rem(*two)),
        (Value::Uint(one), Value::Uint(two)) => uint(one.checked_rem(*two)),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn negate<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    match &arguments[0] {
        Value::Int(value) => int(value.checked_neg()),
        Value::Double(value) => Ok(Value::Double(-value)),
        _ => Err(Error::no_such_overload()),
    }
}
