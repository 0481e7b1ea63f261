//! Lists and sets.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Outcome, int, text};
use crate::error::Error;
use crate::operators::{compare, equal};
use crate::program::Bindings;
use crate::value::{Key, Value};
use crate::work;

/// Longer ranges are refused.
const LONGEST_RANGE: i64 = 1_000_000;

fn items<'a>(arguments: &[Value<'a>], index: usize) -> Result<Vec<Value<'a>>, Error> {
    match arguments.get(index) {
        Some(Value::List(list)) => {
            // Most of what is made of a list is as long as the list.
            work::make(list.len() * work::ITEM)?;
            list.to_vec()
        }
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn index_of<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    if matches!(arguments[0], Value::String(_)) {
        return text::index_of(arguments);
    }
    let found = items(arguments, 0)?.iter().position(|item| equal(item, &arguments[1]));
    Ok(Value::Int(found.and_then(|index| i64::try_from(index).ok()).unwrap_or(-1)))
}

pub(crate) fn last_index_of<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    if matches!(arguments[0], Value::String(_)) {
        return text::last_index_of(arguments);
    }
    let found = items(arguments, 0)?.iter().rposition(|item| equal(item, &arguments[1]));
    Ok(Value::Int(found.and_then(|index| i64::try_from(index).ok()).unwrap_or(-1)))
}

pub(crate) fn distinct<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let mut kept: Vec<Value<'a>> = Vec::new();
    let mut keys = std::collections::BTreeSet::new();
    for item in items(arguments, 0)? {
        let fresh = match Key::of(&item) {
            Some(key) => keys.insert(key),
            None => !kept.iter().any(|have| equal(have, &item)),
        };
        if fresh {
            kept.push(item);
        }
    }
    Ok(Value::from(kept))
}

pub(crate) fn first<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Optional(items(arguments, 0)?.first().cloned().map(Arc::new)))
}

pub(crate) fn last<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Ok(Value::Optional(items(arguments, 0)?.last().cloned().map(Arc::new)))
}

pub(crate) fn flatten<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let depth = if arguments.len() > 1 { int(arguments, 1)? } else { 1 };
    if depth < 0 {
        return Err(Error::new("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(items(arguments, 0)?, depth, &mut flat)?;
    Ok(Value::from(flat))
}

fn flatten_into<'a>(items: Vec<Value<'a>>, depth: i64, flat: &mut Vec<Value<'a>>) -> Result<(), Error> {
    for item in items {
        work::make(work::ITEM)?;
        match item {
            Value::List(list) if depth > 0 => flatten_into(list.to_vec()?, depth - 1, flat)?,
            item => flat.push(item),
        }
    }
    Ok(())
}

pub(crate) fn is_sorted<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let items = items(arguments, 0)?;
    for pair in items.windows(2) {
        if compare(&pair[0], &pair[1])? == Some(Ordering::Greater) {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

pub(crate) fn range<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let count = int(arguments, 0)?;
    if count < 0 {
        return Err(Error::new(format!("lists.range: size must be non-negative, got {count}")));
    }
    if count > LONGEST_RANGE {
        return Err(Error::new(format!("lists.range: size {count} exceeds maximum allowed ({LONGEST_RANGE})")));
    }
    work::make(usize::try_from(count).unwrap_or_default() * work::ITEM)?;
    Ok(Value::from((0..count).map(Value::Int).collect::<Vec<_>>()))
}

fn extreme<'a>(arguments: &[Value<'a>], name: &str, wanted: Ordering) -> Outcome<'a> {
    let mut items = items(arguments, 0)?.into_iter();
    let mut best = items.next().ok_or_else(|| Error::new(format!("{name} called on empty list")))?;
    for item in items {
        if compare(&item, &best)? == Some(wanted) {
            best = item;
        }
    }
    Ok(best)
}

pub(crate) fn max<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    extreme(arguments, "max", Ordering::Greater)
}

pub(crate) fn min<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    extreme(arguments, "min", Ordering::Less)
}

pub(crate) fn reverse<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let mut items = items(arguments, 0)?;
    items.reverse();
    Ok(Value::from(items))
}

pub(crate) fn slice<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let (start, end) = (int(arguments, 1)?, int(arguments, 2)?);
    let items = items(arguments, 0)?;
    let refuse = |why: String| Err(Error::new(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return refuse("negative indexes not supported".to_owned());
    };
    if from > to {
        return refuse("start index must be less than or equal to end index".to_owned());
    }
    if to > items.len() {
        return refuse(format!("list is length {}", items.len()));
    }
    Ok(Value::from(items[from..to].to_vec()))
}

/// The items in the order of their keys.
fn sorted<'a>(items: Vec<Value<'a>>, keys: &[Value<'a>]) -> Outcome<'a> {
    if items.len() != keys.len() {
        return Err(Error::new("@sortByAssociatedKeys() expected a list of the same size as the associated keys list"));
    }
    if let Some(first) = keys.first() {
        let kind = first.type_name();
        if keys.iter().any(|key| key.type_name() != kind) {
            return Err(Error::new("list elements must have the same type"));
        }
        if compare(first, first).is_err() {
            return Err(Error::new("list elements must be comparable"));
        }
    }
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|one, two| compare(&keys[*one], &keys[*two]).ok().flatten().unwrap_or(Ordering::Equal));
    Ok(Value::from(order.into_iter().map(|index| items[index].clone()).collect::<Vec<_>>()))
}

pub(crate) fn sort<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let items = items(arguments, 0)?;
    let keys = items.clone();
    sorted(items, &keys)
}

pub(crate) fn sort_by<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    sorted(items(arguments, 0)?, &items(arguments, 1)?)
}

pub(crate) fn sum<'a>(arguments: &[Value<'a>], bindings: &dyn Bindings<'a>) -> Outcome<'a> {
    let mut items = items(arguments, 0)?.into_iter();
    let Some(mut total) = items.next() else { return Ok(Value::Int(0)) };
    for item in items {
        total = crate::operators::add(&[total, item], bindings)?;
    }
    Ok(total)
}

fn holds(list: &[Value<'_>], item: &Value<'_>) -> bool {
    list.iter().any(|have| equal(have, item))
}

pub(crate) fn set_contains<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let (list, wanted) = (items(arguments, 0)?, items(arguments, 1)?);
    Ok(Value::Bool(wanted.iter().all(|item| holds(&list, item))))
}

pub(crate) fn set_equivalent<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let (one, two) = (items(arguments, 0)?, items(arguments, 1)?);
    Ok(Value::Bool(one.iter().all(|item| holds(&two, item)) && two.iter().all(|item| holds(&one, item))))
}

pub(crate) fn set_intersects<'a>(arguments: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    let (one, two) = (items(arguments, 0)?, items(arguments, 1)?);
    Ok(Value::Bool(one.iter().any(|item| holds(&two, item))))
}
