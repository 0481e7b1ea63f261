//! Whether an applied configuration fits its type, in the words of structured merge.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ferry_meta::bounds;
use serde_json::Value;

use super::walk::{Merge, Place, child};
use crate::catalogue::{Catalogue, Item, Shape, Type, TypeId};

/// What is shown of a path and of a value.
const SHOWN: usize = 16 << 10;
/// As many complaints are told; upstream tells all.
const MOST: usize = 1000;

/// What was found, and the way to where the walk is: keys of clients are part of it, which can be long.
#[derive(Default)]
struct Finds {
    path: String,
    found: Vec<String>,
    /// Objects, other than configurations, may have what stands twice.
    allows_duplicates: bool,
}

impl Finds {
    fn within<T>(&mut self, step: impl FnOnce(&mut String), walk: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        step(&mut self.path);
        let result = walk(self);
        self.path.truncate(length);
        result
    }

    fn within_field<T>(&mut self, key: &str, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.within(
            |path| {
                path.push('.');
                path.push_str(key);
            },
            walk,
        )
    }

    fn within_item<T>(&mut self, index: usize, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.within(|path| path.push_str(&format!("[{index}]")), walk)
    }

    fn shown(&self) -> Cow<'_, str> {
        bounds::cut(&self.path, SHOWN)
    }

    fn complain(&mut self, what: impl FnOnce() -> String) {
        if self.found.len() < MOST {
            let what = what();
            let what = bounds::cut(&what, SHOWN);
            self.found.push(if self.path.is_empty() { what.into_owned() } else { format!("{}: {what}", self.shown()) });
        }
    }
}

/// All complaints as the one text that upstream prints, or None.
pub(super) fn complaints(catalogue: &Catalogue, id: TypeId, config: &Value) -> Option<String> {
    complaints_of(catalogue, id, config, Finds::default())
}

/// The same of an object that nobody applies.
pub(super) fn complaints_of_object(catalogue: &Catalogue, id: TypeId, object: &Value) -> Option<String> {
    complaints_of(catalogue, id, object, Finds { allows_duplicates: true, ..Finds::default() })
}

fn complaints_of(catalogue: &Catalogue, id: TypeId, value: &Value, mut out: Finds) -> Option<String> {
    structure(catalogue, id, value, &mut out);
    match out.found.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

/// Whether an object is beyond what can be tracked. Those of built-in kinds were decoded by their type, so that only keys may
/// be missing; a custom resource may have what its schema lets pass.
pub(super) fn is_untyped(ty: &Type, object: &Value) -> bool {
    if ty.schema().is_none() {
        is_keyless(ty.catalogue(), ty.id(), object)
    } else {
        complaints_of_object(ty.catalogue(), ty.id(), object).is_some()
    }
}

/// The places of a configuration that can only be replaced as a whole.
pub(super) fn atomics(catalogue: &Catalogue, id: TypeId, config: &Value) -> Vec<String> {
    let mut out = Finds::default();
    atomic_fields(catalogue, &Merge::Struct(id), config, &mut out);
    out.found
}

fn atomic_fields(catalogue: &Catalogue, merge: &Merge<'_>, value: &Value, out: &mut Finds) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let Some(place) = child(catalogue, merge, key) else { continue };
        out.within_field(key, |out| atomic_value(catalogue, place, value, out));
    }
}

fn atomic_value(catalogue: &Catalogue, place: Place<'_>, value: &Value, out: &mut Finds) {
    let merge = place.merge(catalogue);
    match (&merge, value) {
        (Merge::Leaf, Value::Array(_) | Value::Object(_)) if out.found.len() < MOST => {
            let path = out.shown().into_owned();
            out.found.push(path);
        }
        (Merge::List(inner), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                out.within_item(index, |out| atomic_value(catalogue, Place::of_item(inner), item, out));
            }
        }
        (Merge::Struct(_), Value::Object(_)) => atomic_fields(catalogue, &merge, value, out),
        _ => {}
    }
}

/// Whether an item of a keyed list does not say its key: then the whole object is beyond what can be tracked.
pub(super) fn is_keyless(catalogue: &Catalogue, id: TypeId, object: &Value) -> bool {
    keyless_fields(catalogue, &Merge::Struct(id), object)
}

fn keyless_fields(catalogue: &Catalogue, merge: &Merge<'_>, value: &Value) -> bool {
    let keyless = |(key, value): (&String, &Value)| {
        child(catalogue, merge, key).is_some_and(|place| keyless_value(catalogue, place, value))
    };
    value.as_object().into_iter().flatten().any(keyless)
}

fn keyless_value(catalogue: &Catalogue, place: Place<'_>, value: &Value) -> bool {
    let merge = place.merge(catalogue);
    match (&merge, value) {
        (Merge::List(inner), Value::Array(items)) => items.iter().any(|item| {
            place.element(catalogue, inner, item).is_err() || keyless_value(catalogue, Place::of_item(inner), item)
        }),
        (Merge::Struct(_), Value::Object(_)) => keyless_fields(catalogue, &merge, value),
        _ => false,
    }
}

fn structure(catalogue: &Catalogue, id: TypeId, value: &Value, out: &mut Finds) {
    let map = match value {
        Value::Object(map) => map,
        Value::Null => return,
        other => return out.complain(|| format!("expected map, got {}", pointer(other))),
    };
    for (key, value) in map {
        let known = out.within_field(key, |out| match child(catalogue, &Merge::Struct(id), key) {
            Some(place) => {
                values(catalogue, place, value, out);
                true
            }
            None => {
                out.complain(|| "field not declared in schema".to_owned());
                false
            }
        });
        if !known {
            return;
        }
    }
}

fn values(catalogue: &Catalogue, place: Place<'_>, value: &Value, out: &mut Finds) {
    if value.is_null() {
        return;
    }
    match place.shape {
        Shape::Struct(id) => structure(catalogue, *id, value, out),
        Shape::Map(inner) => match value {
            Value::Object(map) => {
                for (key, value) in map {
                    out.within_field(key, |out| values(catalogue, Place::of_item(inner), value, out));
                }
            }
            other => out.complain(|| format!("expected map, got {}", pointer(other))),
        },
        Shape::List(inner) => match value {
            Value::Array(items) => list(catalogue, place, inner, items, out),
            other => out.complain(|| format!("expected list, got {}", pointer(other))),
        },
        Shape::String | Shape::Bytes | Shape::Duration if !value.is_string() => {
            out.complain(|| format!("expected string, got &value.valueUnstructured{{Value:{}}}", literal(value)));
        }
        Shape::Bool if !value.is_boolean() => {
            out.complain(|| format!("expected boolean, got {}", pointer(value)));
        }
        Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Uint64 | Shape::Float if !value.is_number() => {
            out.complain(|| format!("expected numeric (int or float), got {}", crate::text::go_type(value)));
        }
        // What may be a number or a text is anything to upstream's schema.
        Shape::Quantity | Shape::Time | Shape::MicroTime if value.is_object() || value.is_array() => {
            out.complain(|| format!("expected any scalar, got {}", pointer(value)));
        }
        _ => {}
    }
}

fn list(catalogue: &Catalogue, place: Place<'_>, inner: &Item, items: &[Value], out: &mut Finds) {
    let keyed = matches!(place.merge(catalogue), Merge::List(_));
    let mut seen = BTreeSet::new();
    let item_place = Place::of_item(inner);
    for (index, item) in items.iter().enumerate() {
        if !keyed {
            out.within_item(index, |out| values(catalogue, item_place, item, out));
            continue;
        }
        match place.element(catalogue, inner, item) {
            Ok(element) => {
                let shown = element.to_string();
                if seen.contains(&element) && !out.allows_duplicates {
                    out.complain(|| format!("duplicate entries for key {shown}"));
                }
                out.within(|path| path.push_str(&shown), |out| values(catalogue, item_place, item, out));
                seen.insert(element);
            }
            Err(why) => return out.complain(|| format!("element {index}: {why}")),
        }
    }
}

/// Go's `%v` of a pointer to a value.
fn pointer(value: &Value) -> String {
    format!("&{{{}}}", crate::patch::go_print(value))
}

/// Go's `%#v`.
fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => crate::text::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(literal).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(k, v)| format!("{}:{}", crate::text::quote(k), literal(v))).collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        Value::Null => "interface {}(nil)".to_owned(),
        other => other.to_string(),
    }
}
