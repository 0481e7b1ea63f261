//! Merging an applied configuration into the live object, and taking fields out of it again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::set::{Element, Set};
use super::walk::{Merge, Place, as_list, as_map, both_keys, child};
use crate::catalogue::{Catalogue, Item, TypeId};

/// The live object with the configuration's values.
pub(super) fn merge(catalogue: &Catalogue, id: TypeId, live: &Value, config: &Value) -> Value {
    maps(catalogue, &Merge::Struct(id), Some(live), Some(config)).unwrap_or_else(|| Value::Object(Map::new()))
}

fn maps(catalogue: &Catalogue, merge: &Merge<'_>, left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    let (left, right) = (as_map(left), as_map(right));
    let mut out = Map::new();
    for key in both_keys(left, right) {
        let (l, r) = (left.and_then(|m| m.get(key)), right.and_then(|m| m.get(key)));
        let merged = match child(catalogue, merge, key) {
            Some(place) => values(catalogue, place, l, r),
            None => r.or(l).cloned(),
        };
        if let Some(merged) = merged {
            out.insert(key.clone(), merged);
        }
    }
    if out.is_empty() { None } else { Some(Value::Object(out)) }
}

fn values(catalogue: &Catalogue, place: Place<'_>, left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    let merge = place.merge_of(catalogue, left, right);
    let whole = match merge {
        Merge::Leaf => true,
        Merge::List(_) => {
            as_list(left).is_none_or(<[Value]>::is_empty) && as_list(right).is_none_or(<[Value]>::is_empty)
        }
        _ => as_map(left).is_none_or(|m| m.is_empty()) && as_map(right).is_none_or(|m| m.is_empty()),
    };
    if whole {
        return right.or(left).cloned();
    }
    match merge {
        Merge::List(inner) => {
            let items =
                lists(catalogue, place, inner, as_list(left).unwrap_or_default(), as_list(right).unwrap_or_default());
            if items.is_empty() { None } else { Some(Value::Array(items)) }
        }
        _ => maps(catalogue, &merge, left, right),
    }
}

/// Items of both sides: the right side's order among those it has, the left side's others where they stood.
fn lists(catalogue: &Catalogue, place: Place<'_>, inner: &Item, left: &[Value], right: &[Value]) -> Vec<Value> {
    let index = |items: &[Value]| -> Vec<(Element, usize)> {
        let element = |(at, item): (usize, &Value)| Some((place.element(catalogue, inner, item).ok()?, at));
        items.iter().enumerate().filter_map(element).collect()
    };
    let (left_index, right_index) = (index(left), index(right));
    // A key that stands twice on the left has no one value to merge with.
    let mut on_left: BTreeMap<&Element, Option<&Value>> = BTreeMap::new();
    for (element, at) in &left_index {
        on_left.entry(element).and_modify(|value| *value = None).or_insert(Some(&left[*at]));
    }
    let on_right: BTreeMap<&Element, &Value> = right_index.iter().map(|(e, at)| (e, &right[*at])).collect();
    let mut shared = right_index.iter().map(|(e, _)| e).filter(|e| on_left.contains_key(e));
    let mut next_shared = shared.next();
    let mut merged_right: BTreeSet<&Element> = BTreeSet::new();
    let item_place = Place::of_item(inner);
    let mut out = Vec::with_capacity(left.len().max(right.len()));
    let (mut l, mut r) = (0, 0);
    while l < left_index.len() || r < right_index.len() {
        if let (Some((element, _)), Some((theirs, _))) = (left_index.get(l), right_index.get(r)) {
            if element == theirs {
                merged_right.insert(element);
                let (mine, theirs) = (on_left.get(element).copied().flatten(), on_right.get(element).copied());
                out.extend(values(catalogue, item_place, mine, theirs));
                l += 1;
                r += 1;
                next_shared = shared.next();
                continue;
            }
            // The right side wants another shared item first; this one comes at its place there.
            if on_right.contains_key(element) && next_shared.is_some_and(|next| next != element) {
                l += 1;
                continue;
            }
        }
        if let Some((element, at)) = left_index.get(l) {
            if !on_right.contains_key(element) {
                out.extend(values(catalogue, item_place, Some(&left[*at]), None));
                l += 1;
                continue;
            }
            if merged_right.contains(element) {
                l += 1;
            }
        }
        if let Some((element, _)) = right_index.get(r) {
            merged_right.insert(element);
            let (mine, theirs) = (on_left.get(element).copied().flatten(), on_right.get(element).copied());
            out.extend(values(catalogue, item_place, mine, theirs));
            r += 1;
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// The object without the paths of a set.
pub(super) fn remove(catalogue: &Catalogue, id: TypeId, object: &Value, paths: &Set) -> Value {
    remove_from_map(catalogue, &Merge::Struct(id), object, paths)
}

/// What becomes empty reads as null, which says that it was there.
fn remove_from_map(catalogue: &Catalogue, merge: &Merge<'_>, value: &Value, paths: &Set) -> Value {
    let Value::Object(map) = value else { return Value::Null };
    let mut out = Map::new();
    for (key, value) in map {
        let element = Element::field(key);
        if paths.members.contains(&element) {
            continue;
        }
        let kept = match (paths.children.get(&element), child(catalogue, merge, key)) {
            (Some(inner), Some(place)) if !inner.is_empty() => remove_from(catalogue, place, value, inner),
            _ => value.clone(),
        };
        out.insert(key.clone(), kept);
    }
    if out.is_empty() { Value::Null } else { Value::Object(out) }
}

fn remove_from(catalogue: &Catalogue, place: Place<'_>, value: &Value, paths: &Set) -> Value {
    let merge = place.merge(catalogue);
    match (&merge, value) {
        (Merge::List(inner), Value::Array(items)) => {
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                let Ok(element) = place.element(catalogue, inner, item) else {
                    kept.push(item.clone());
                    continue;
                };
                if paths.members.contains(&element) {
                    continue;
                }
                kept.push(match paths.children.get(&element) {
                    Some(below) if !below.is_empty() => remove_from(catalogue, Place::of_item(inner), item, below),
                    _ => item.clone(),
                });
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Merge::Struct(_) | Merge::Map(_), Value::Object(_)) => remove_from_map(catalogue, &merge, value, paths),
        (Merge::Leaf, scalar) if !scalar.is_object() && !scalar.is_array() => scalar.clone(),
        _ => Value::Null,
    }
}
