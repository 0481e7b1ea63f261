//! What the catalogue says of a place in an object, in the terms of structured merge.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::set::{Element, Scalar};
use crate::catalogue::{Catalogue, Field, Item, ListType, Shape, TypeId};

/// What has no type of its own.
static ANYTHING: LazyLock<Item> =
    LazyLock::new(|| Item { shape: Shape::Any, pointer: true, go_type: Box::default(), wrapped: false });

/// The type of a place.
#[derive(Clone, Copy)]
pub(super) struct Place<'c> {
    pub(super) shape: &'c Shape,
    list_type: ListType,
    pub(super) keys: &'c [Box<str>],
    atomic: bool,
    granular: bool,
}

/// How values of a place merge.
pub(super) enum Merge<'c> {
    /// As a whole.
    Leaf,
    Struct(TypeId),
    Map(&'c Item),
    /// Items are known by their keys, or by themselves where there are none.
    List(&'c Item),
}

impl<'c> Place<'c> {
    pub(super) fn of_field(field: &'c Field) -> Self {
        Self {
            shape: &field.item.shape,
            list_type: field.list_type,
            keys: &field.list_keys,
            atomic: field.atomic_map,
            granular: field.granular,
        }
    }

    pub(super) fn of_item(item: &'c Item) -> Self {
        Self { shape: &item.shape, list_type: ListType::Atomic, keys: &[], atomic: false, granular: false }
    }

    pub(super) fn is_untyped(&self) -> bool {
        *self.shape == Shape::Any
    }

    /// The same, given what stands there: a place without a type is a map where all that stands there are maps.
    pub(super) fn merge_of(&self, catalogue: &Catalogue, left: Option<&Value>, right: Option<&Value>) -> Merge<'c> {
        let scalar = |value: Option<&Value>| value.is_some_and(|value| !value.is_object());
        if self.is_untyped() && (scalar(left) || scalar(right)) {
            return Merge::Leaf;
        }
        self.merge(catalogue)
    }

    pub(super) fn merge(&self, catalogue: &Catalogue) -> Merge<'c> {
        match self.shape {
            Shape::Any => Merge::Map(&ANYTHING),
            Shape::Struct(id) if self.granular || (!self.atomic && !catalogue.get(*id).atomic) => Merge::Struct(*id),
            Shape::Map(inner) if !self.atomic => Merge::Map(inner),
            Shape::List(inner) if self.list_type != ListType::Atomic => Merge::List(inner),
            _ => Merge::Leaf,
        }
    }

    /// The path element of an item of this list.
    pub(super) fn element(&self, catalogue: &Catalogue, inner: &Item, item: &Value) -> Result<Element, String> {
        if self.keys.is_empty() {
            return match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Ok(Element::Value(Scalar(scalar.clone()))),
            };
        }
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut keys: Vec<(String, Scalar)> = Vec::with_capacity(self.keys.len());
        // Null is what decoding makes of it: nothing, which the default stands in for. Upstream takes it for a key of its own,
        // which no stored item has, so that every apply of it adds one more.
        let given = |key: &str| map.get(key).filter(|value| !value.is_null()).cloned();
        for key in self.keys {
            let default = || match &inner.shape {
                Shape::Struct(id) => catalogue.get(*id).field(key).and_then(|field| key_default(catalogue, *id, field)),
                _ => None,
            };
            if let Some(value) = given(key).or_else(default) {
                keys.push((key.to_string(), Scalar(value)));
            }
        }
        if keys.is_empty() {
            // Nothing else tells it apart: validation judges the null.
            let nulls = self.keys.iter().filter(|key| map.contains_key(&***key));
            keys.extend(nulls.map(|key| (key.to_string(), Scalar(Value::Null))));
        }
        if keys.is_empty() {
            let names: Vec<String> = self.keys.iter().map(|k| crate::text::quote(k)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        keys.sort();
        Ok(Element::Key(keys))
    }
}

/// What a key stands at that an item leaves out. Fields that Go always writes default to their zero, and so do the names
/// of references, which are declared that way.
fn key_default(catalogue: &Catalogue, of: TypeId, field: &Field) -> Option<Value> {
    if field.default.is_some() {
        return field.default.clone();
    }
    let reference = &*field.name == "name" && &*catalogue.get(of).leaf == "LocalObjectReference";
    let always = !field.omit_empty && !field.item.pointer;
    (always || reference).then(|| crate::zero::item(catalogue, &field.item)).filter(|zero| !zero.is_null())
}

/// The type of a struct's field or of a map's value; None where the type knows no such field.
pub(super) fn child<'c>(catalogue: &'c Catalogue, merge: &Merge<'c>, key: &str) -> Option<Place<'c>> {
    match merge {
        Merge::Struct(id) => {
            let definition = catalogue.get(*id);
            let unnamed = || definition.preserve_unknown.then(|| Place::of_item(&ANYTHING));
            definition.field(key).map(Place::of_field).or_else(unnamed)
        }
        Merge::Map(inner) => Some(Place::of_item(inner)),
        _ => None,
    }
}

pub(super) fn as_map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

pub(super) fn as_list(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice)
}

/// The keys of two maps, each once, in order.
pub(super) fn both_keys<'a>(
    left: Option<&'a Map<String, Value>>,
    right: Option<&'a Map<String, Value>>,
) -> impl Iterator<Item = &'a String> {
    let mine = left.into_iter().flat_map(|map| map.keys());
    let theirs =
        right.into_iter().flat_map(|map| map.keys()).filter(move |key| !left.is_some_and(|map| map.contains_key(*key)));
    mine.chain(theirs)
}
