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
        let key = template.find(object(&item)).map_err(Error::say)?.first().map(|value| (*value).clone());
        keyed.push((key, item));
    }
    // kubectl ends without a word to the user where it finds what has no order.
    if keyed.iter().any(|(key, _)| matches!(key, Some(Value::Array(_) | Value::Object(_)))) && keyed.len() > 1 {
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
    keyed.sort_by(|a, b| compare(a.0.as_ref(), b.0.as_ref()));
    items.extend(keyed.into_iter().map(|(_, item)| item));
    Ok(())
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
            _ => natural(a, b),
        },
        (Some(Value::Bool(a)), Some(Value::Bool(b))) => a.cmp(b),
        (Some(a), Some(b)) => a.to_string().cmp(&b.to_string()),
    }
}

/// Digits by their value: `a2` before `a10`.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (a.first(), b.first()) {
            (None, None) => return Ordering::Equal,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let digits = |text: &[u8]| text.iter().take_while(|c| c.is_ascii_digit()).count();
                let (n, m) = (digits(a), digits(b));
                let strip = |text: &[u8]| text.iter().take_while(|c| **c == b'0').count();
                let (za, zb) = (strip(&a[..n]), strip(&b[..m]));
                let (va, vb) = (&a[za..n], &b[zb..m]);
                let order = va.len().cmp(&vb.len()).then_with(|| va.cmp(vb)).then_with(|| za.cmp(&zb));
                if order.is_ne() {
                    return order;
                }
                (a, b) = (&a[n..], &b[m..]);
            }
            (Some(x), Some(y)) if x != y => return x.cmp(y),
            _ => (a, b) = (&a[1..], &b[1..]),
        }
    }
}
