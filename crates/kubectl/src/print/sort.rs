//! `--sort-by`: by a field of the objects, in the order of numbers, amounts, times and names.

use std::cmp::Ordering;

use ferry_meta::Quantity;
use serde_json::Value;

use super::jsonpath::Template;
use crate::error::{Error, Result};

/// Sorts by what `key` gives for each item.
pub fn sort<T>(items: &mut Vec<T>, by: &str, object: impl Fn(&T) -> &Value) -> Result<()> {
    let template = Template::relaxed(by)?;
    let mut keyed: Vec<(Option<Value>, T)> = Vec::with_capacity(items.len());
    for item in items.drain(..) {
        let found = template.first(object(&item)).map_err(Error::say)?;
        let key = found.first().filter(|value| !value.is_null()).map(|value| (*value).clone());
        keyed.push((key, item));
    }
    // kubectl ends without a word to the user where it finds what has no order.
    let kinds = |key: &Option<Value>| key.as_ref().map(std::mem::discriminant);
    let unlike =
        keyed.windows(2).any(|two| matches!((kinds(&two[0].0), kinds(&two[1].0)), (Some(a), Some(b)) if a != b));
    let unordered = |key: &Option<Value>| matches!(key, Some(Value::Array(_) | Value::Object(_) | Value::Bool(_)));
    if keyed.len() > 1 && (unlike || keyed.iter().any(|(key, _)| unordered(key))) {
        return Err(Error::quiet());
    }
    if !keyed.is_empty() && keyed.iter().all(|(key, _)| key.is_none()) {
        let path = template.text().to_owned();
        items.extend(keyed.into_iter().map(|(_, item)| item));
        return Err(Error::say(format!(
            "couldn't find any field with path {} in the list of objects",
            crate::text::quote(&path)
        )));
    }
    order(&mut keyed);
    items.extend(keyed.into_iter().map(|(_, item)| item));
    Ok(())
}

/// A list that is short is sorted as Go sorts it, where what has no field is before everything, and before its like.
const SHORT: usize = 12;

fn order<T>(keyed: &mut [(Option<Value>, T)]) {
    if keyed.len() > SHORT {
        return keyed.sort_by(|a, b| compare(a.0.as_ref(), b.0.as_ref()));
    }
    for end in 1..keyed.len() {
        for at in (1..=end).rev() {
            let (key, before) = (keyed[at].0.as_ref(), keyed[at - 1].0.as_ref());
            if key.is_some() && compare(key, before).is_ge() {
                break;
            }
            keyed.swap(at, at - 1);
        }
    }
}

fn compare(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(Value::Number(a)), Some(Value::Number(b))) => {
            a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Some(Value::String(a)), Some(Value::String(b))) => match (Quantity::parse(a), Quantity::parse(b)) {
            (Ok(a), Ok(b)) => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
            _ => a.cmp(b),
        },
        _ => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_field_is_first_and_the_last_of_it_before_the_others() {
        let sorted = |keys: &[Option<Value>]| {
            let mut keyed: Vec<(Option<Value>, usize)> = keys.iter().cloned().zip(0..).collect();
            order(&mut keyed);
            keyed.into_iter().map(|(_, at)| at).collect::<Vec<_>>()
        };
        let text = |text: &str| Some(Value::from(text));
        assert_eq!(sorted(&[text("b"), None, text("a"), None]), [3, 1, 2, 0]);
        assert_eq!(sorted(&[text("a10"), text("a2"), text("a10")]), [0, 2, 1]);
        assert_eq!(sorted(&[text("10"), text("2"), text("1Ki")]), [1, 0, 2]);
    }
}
