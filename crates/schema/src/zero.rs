//! Go's zero values: what a struct holds that nobody set, and what `omitempty` leaves out.

use serde_json::{Map, Value};

use crate::catalogue::{Catalogue, Item, Shape, TypeId};

/// The zero value of an item, as Go writes it.
pub(crate) fn item(catalogue: &Catalogue, item: &Item) -> Value {
    if item.pointer {
        return Value::Null;
    }
    match &item.shape {
        Shape::String => Value::String(String::new()),
        Shape::Bool => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Uint64 | Shape::Float | Shape::IntOrString => {
            Value::from(0)
        }
        Shape::Quantity => Value::from("0"),
        Shape::Duration => Value::from("0s"),
        Shape::Struct(id) => structure(catalogue, *id),
        _ => Value::Null,
    }
}

/// A struct nobody set.
pub(crate) fn structure(catalogue: &Catalogue, id: TypeId) -> Value {
    let mut map = Map::new();
    fill(catalogue, id, &mut map);
    Value::Object(map)
}

/// Adds what Go writes although no client did: `status: {}`, `resources: {}`, `rules: null`.
pub(crate) fn fill(catalogue: &Catalogue, id: TypeId, map: &mut Map<String, Value>) {
    let definition = catalogue.get(id);
    for index in &definition.always {
        let field = &definition.fields[usize::from(*index)];
        if !map.contains_key(&*field.name) {
            map.insert(field.name.to_string(), item(catalogue, &field.item));
        }
    }
}

/// Lists that mean something else when they are empty than when they are not there.
pub(crate) fn keeps_empty(definition: &crate::catalogue::TypeDef, key: &str) -> bool {
    // An empty list of managed fields asks for them to be cleared; rules without policies are not those by default.
    key == "managedFields" || (key == "policies" && &*definition.leaf == "HPAScalingRules")
}

/// Whether `omitempty` leaves this value out. Structs held by value never are empty to Go.
pub(crate) fn is_empty(item: &Item, value: &Value) -> bool {
    if item.pointer {
        return value.is_null();
    }
    match value {
        Value::Null => !matches!(item.shape, Shape::Time | Shape::MicroTime | Shape::Raw | Shape::Json),
        Value::Bool(on) => !on && item.shape == Shape::Bool,
        Value::Number(number) => {
            item.shape != Shape::IntOrString && number.as_f64() == Some(0.0) && !item.shape.is_any()
        }
        Value::String(text) => text.is_empty() && matches!(item.shape, Shape::String | Shape::Bytes),
        Value::Array(items) => items.is_empty() && matches!(item.shape, Shape::List(_)),
        Value::Object(map) => map.is_empty() && matches!(item.shape, Shape::Map(_)),
    }
}
