//! Strategic merge: lists merge by their keys where the type says so, and `$patch`, `$retainKeys`, `$setElementOrder` and
//! `$deleteFromPrimitiveList` direct the rest.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::PatchError;
use super::convert::{go_print, go_text};
use super::index::{Growing, Members};
use super::merge::drop_nulls;
use super::order::{check_order, in_order, partition};
use crate::catalogue::{Catalogue, Field, Item, Shape, Type, TypeId};
use crate::text::go_type;

pub(super) const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
pub(super) const ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

/// Merges a patch into an object of this type.
pub fn strategic_merge(ty: &Type, current: Value, patch: &Value) -> Result<Value, PatchError> {
    merge_in_place(ty, current, &mut patch.clone())
}

/// The same; directives are taken out of the patch as they are carried out, which shows in later complaints.
pub(super) fn merge_in_place(ty: &Type, current: Value, patch: &mut Value) -> Result<Value, PatchError> {
    let current = if let Value::Object(map) = current { map } else { Map::new() };
    let Value::Object(patch) = patch else { return Ok(Value::Object(current)) };
    let merger = Merger { catalogue: ty.catalogue() };
    Ok(Value::Object(merger.map(current, patch, Meta::Struct(ty.id()))?))
}

/// What is known of the map being merged.
#[derive(Clone, Copy)]
enum Meta<'c> {
    Struct(TypeId),
    /// A map whose values are of one type.
    Values(&'c Item),
    Unknown,
}

struct Merger<'c> {
    catalogue: &'c Catalogue,
}

pub(super) type Merged<T> = Result<T, PatchError>;

impl<'c> Merger<'c> {
    fn field(&self, meta: Meta<'c>, key: &str) -> Option<&'c Field> {
        if let Meta::Struct(id) = meta { self.catalogue.get(id).field(key) } else { None }
    }

    /// What is known of the map (or of a list's items) under a key.
    fn child(&self, meta: Meta<'c>, key: &str) -> Meta<'c> {
        let item = match meta {
            Meta::Struct(_) => self.field(meta, key).map(|f| &f.item),
            Meta::Values(item) => Some(item),
            Meta::Unknown => None,
        };
        match item.map(|i| &i.shape) {
            Some(Shape::Struct(id)) => Meta::Struct(*id),
            Some(Shape::Map(inner)) => Meta::Values(inner),
            Some(Shape::List(inner)) => match &inner.shape {
                Shape::Struct(id) => Meta::Struct(*id),
                Shape::Map(inner) => Meta::Values(inner),
                _ => Meta::Unknown,
            },
            _ => Meta::Unknown,
        }
    }

    fn map(
        &self,
        mut original: Map<String, Value>,
        patch: &mut Map<String, Value>,
        meta: Meta<'c>,
    ) -> Merged<Map<String, Value>> {
        if let Some(directive) = patch.get(DIRECTIVE).cloned() {
            return match directive.as_str() {
                Some("replace") => {
                    patch.remove(DIRECTIVE);
                    Ok(patch.clone())
                }
                Some("delete") => Ok(Map::new()),
                _ => Err(unknown_directive(&directive, patch)),
            };
        }
        retain_keys(&mut original, patch)?;
        self.ordered_lists(&mut original, patch, meta)?;
        let keys: Vec<String> = patch.keys().cloned().collect();
        for patch_key in keys {
            let (key, deletes) = match patch_key.strip_prefix(DELETE_FROM_LIST) {
                Some(rest) => {
                    let key = rest
                        .strip_prefix('/')
                        .ok_or_else(|| PatchError::BadRequest("invalid patch format of primitive list".to_owned()))?;
                    (key.to_owned(), true)
                }
                None => (patch_key.clone(), false),
            };
            let Some(change) = patch.get_mut(&patch_key) else { continue };
            if change.is_null() {
                original.remove(&key);
                continue;
            }
            let merged = match (original.remove(&key), change) {
                (Some(Value::Object(before)), Value::Object(change)) => {
                    if self.field(meta, &key).is_some_and(|f| f.patch.replace) {
                        Some(Value::Object(change.clone()))
                    } else {
                        Some(Value::Object(self.map(before, change, self.child(meta, &key))?))
                    }
                }
                (Some(Value::Array(before)), Value::Array(change)) => {
                    let field = self.field(meta, &key);
                    if deletes || field.is_some_and(|f| f.patch.merge) {
                        let merge_key = field.map_or("", |f| &f.merge_key);
                        Some(Value::Array(self.list(before, change, merge_key, self.child(meta, &key), deletes)?))
                    } else {
                        Some(Value::Array(change.clone()))
                    }
                }
                (before, _) if deletes => before,
                (_, change @ (Value::Object(_) | Value::Array(_))) => {
                    drop_nulls(change);
                    without_directives(change.clone())
                }
                (_, change) => Some(change.clone()),
            };
            if let Some(merged) = merged {
                original.insert(key, merged);
            }
        }
        Ok(original)
    }

    /// `$setElementOrder/<list>`: the list is merged and then takes the order given.
    fn ordered_lists(
        &self,
        original: &mut Map<String, Value>,
        patch: &mut Map<String, Value>,
        meta: Meta<'c>,
    ) -> Merged<()> {
        let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(ELEMENT_ORDER)).cloned().collect();
        for directive in directives {
            let bad_format = || PatchError::BadRequest("invalid patch format of setElementOrder list".to_owned());
            let Some(order) = patch.remove(&directive) else { continue };
            let Value::Array(order) = order else { return Err(bad_argument("[]interface {}", &order)) };
            let key = directive.strip_prefix(ELEMENT_ORDER).and_then(|k| k.strip_prefix('/')).ok_or_else(bad_format)?;
            let field = self.field(meta, key);
            if let (None, Meta::Struct(id)) = (field, meta) {
                let message = format!(
                    "unable to find api field in struct {} for the json field {key:?}",
                    self.catalogue.get(id).leaf
                );
                return Err(PatchError::Internal(message));
            }
            let merge_key: &str = field.map_or("", |f| &f.merge_key);
            let before = match original.get(key).cloned() {
                Some(Value::Array(items)) => Some(items),
                Some(other) => return Err(bad_argument("[]interface {}", &other)),
                None => None,
            };
            let mut change = match patch.get(key).cloned() {
                Some(Value::Array(items)) => Some(items),
                Some(other) => return Err(bad_argument("[]interface {}", &other)),
                None => None,
            };
            check_order(change.as_deref().unwrap_or_default(), &order, merge_key)?;
            let merged = match (before.clone(), &mut change) {
                (None, None) => continue,
                (Some(before), None) => before,
                (None, Some(change)) => match without_directives(Value::Array(change.clone())) {
                    Some(Value::Array(items)) => items,
                    _ => continue,
                },
                (Some(before), Some(change)) => {
                    if field.is_some_and(|f| f.patch.merge) {
                        self.list(before, change, merge_key, self.child(meta, key), false)?
                    } else {
                        change.clone()
                    }
                }
            };
            let server_order = before.unwrap_or_default();
            let maps = server_order.iter().chain(change.iter().flatten()).any(Value::is_object);
            let (listed, rest) = partition(merged, &order, merge_key)?;
            let both = in_order(listed, rest, &order, &server_order, merge_key, maps)?;
            original.insert(key.to_owned(), Value::Array(both));
            patch.remove(key);
        }
        Ok(())
    }

    fn list(
        &self,
        original: Vec<Value>,
        patch: &mut [Value],
        merge_key: &str,
        meta: Meta<'c>,
        deletes: bool,
    ) -> Merged<Vec<Value>> {
        if original.is_empty() && patch.is_empty() {
            return Ok(original);
        }
        let maps = element_kind(&original, patch)?;
        if !maps {
            if deletes {
                let deleted = Members::new(patch, "");
                return Ok(original.into_iter().filter(|item| !deleted.contains(item)).collect());
            }
            let mut merged = original.clone();
            let mut places = Growing::default();
            for item in patch.iter() {
                if places.find(&merged, "", item).is_none() {
                    merged.push(item.clone());
                }
            }
            let (listed, rest) = partition(merged, patch, "")?;
            return in_order(listed, rest, patch, &original, "", false);
        }
        if merge_key.is_empty() {
            return Err(PatchError::Internal(format!("cannot merge lists without merge key for {}", self.name(meta))));
        }
        let (original, mut patch) = special_elements(original, patch, merge_key)?;
        let mut merged = original.clone();
        let mut places = Growing::default();
        for change in &mut patch {
            let Value::Object(change) = change else { continue };
            let wanted = change.get(merge_key).ok_or_else(|| no_merge_key(change, merge_key))?;
            match places.find(&merged, merge_key, wanted) {
                Some(at) => {
                    if let Value::Object(before) = merged[at].take() {
                        merged[at] = Value::Object(self.map(before, change, meta)?);
                    }
                }
                None => merged.push(Value::Object(change.clone())),
            }
        }
        let (listed, rest) = partition(merged, &patch, merge_key)?;
        in_order(listed, rest, &patch, &original, merge_key, true)
    }

    fn name(&self, meta: Meta<'c>) -> String {
        if let Meta::Struct(id) = meta { self.catalogue.get(id).leaf.to_string() } else { String::new() }
    }
}

fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Merged<()> {
    let Some(keep) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let bad_format = || PatchError::BadRequest("invalid patch format of retainKeys".to_owned());
    let Value::Array(keep) = keep else { return Err(bad_format()) };
    let keep: HashSet<&str> = keep.iter().filter_map(Value::as_str).collect();
    let kept = |key: &str| keep.contains(key);
    for (key, value) in patch.iter() {
        let directive = key.starts_with(DELETE_FROM_LIST) || key.starts_with(ELEMENT_ORDER);
        if !value.is_null() && !directive && !kept(key) {
            return Err(bad_format());
        }
    }
    original.retain(|key, _| kept(key));
    Ok(())
}

/// Takes the elements with a `$patch` out of a list, having carried them out.
fn special_elements(
    mut original: Vec<Value>,
    patch: &mut [Value],
    merge_key: &str,
) -> Merged<(Vec<Value>, Vec<Value>)> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut deleted = HashSet::new();
    let mut replace = false;
    for item in patch {
        let Value::Object(map) = &*item else {
            return Err(bad_argument("map[string]interface {}", item));
        };
        match map.get(DIRECTIVE) {
            None => plain.push(item.clone()),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    deleted.insert(map.get(merge_key).ok_or_else(|| no_merge_key(map, merge_key))?);
                }
                Some("replace") => replace = true,
                Some("merge") => {
                    let message = "merging lists cannot yet be specified in the patch";
                    return Err(PatchError::Internal(message.to_owned()));
                }
                _ => return Err(unknown_directive(directive, map)),
            },
        }
    }
    if !deleted.is_empty() {
        original.retain(|item| item.get(merge_key).is_none_or(|key| !deleted.contains(key)));
    }
    Ok(if replace { (plain, Vec::new()) } else { (original, plain) })
}

/// Whether the items are maps; lists of lists and mixtures are refused.
fn element_kind(original: &[Value], patch: &[Value]) -> Merged<bool> {
    let mut kind = None;
    for item in original.iter().chain(patch) {
        let this = go_type(item);
        match kind {
            None if item.is_array() => {
                return Err(PatchError::DoesNotApply("lists of lists are not supported".to_owned()));
            }
            None => kind = Some(this),
            Some(first) if first != this => {
                let lists = Value::Array(vec![original.to_vec().into(), patch.to_vec().into()]);
                let message = format!("list element types are not identical: {}", go_print(&lists));
                return Err(PatchError::Internal(message));
            }
            Some(_) => {}
        }
    }
    Ok(kind == Some("map[string]interface {}"))
}

pub(super) fn bad_argument(expected: &str, found: &Value) -> PatchError {
    PatchError::Internal(format!(
        "expected a {expected}, but received a {}",
        if found.is_null() { "%!s(<nil>)" } else { go_type(found) }
    ))
}

pub(super) fn no_merge_key(map: &Map<String, Value>, key: &str) -> PatchError {
    let shown = go_print(&Value::Object(map.clone()));
    PatchError::Internal(format!("map: {shown} does not contain declared merge key: {key}"))
}

fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> PatchError {
    let shown = go_print(&Value::Object(map.clone()));
    PatchError::Internal(format!("unknown patch type: {} in map: {shown}", go_text(directive)))
}

/// A value that goes in whole: maps with a `$patch` are dropped from it.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            Some(Value::Object(map.into_iter().filter_map(|(k, v)| Some((k, without_directives(v)?))).collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}
