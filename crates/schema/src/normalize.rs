//! Gives an object the form of a Go round trip again, in place, after code that knows its type changed it.

use serde_json::{Map, Number, Value};

use crate::catalogue::{Catalogue, Item, Shape, Type, TypeId};
use crate::zero;

const SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// For objects that were decoded before: drops nulls, empties and what is of a wrong type or unknown, adds what Go always
/// writes, and writes quantities and times in their canonical form.
pub fn normalize(ty: &Type, object: &mut Value) {
    if ty.schema().is_some() {
        return crate::structural::normalize_custom(ty, object);
    }
    match object {
        Value::Object(map) => structure(ty.catalogue(), ty.id(), map),
        other => *other = zero::structure(ty.catalogue(), ty.id()),
    }
}

fn structure(catalogue: &Catalogue, id: TypeId, map: &mut Map<String, Value>) {
    let definition = catalogue.get(id);
    if !definition.preserve_unknown {
        map.retain(|key, value| {
            let Some(field) = definition.field(key) else { return false };
            item(catalogue, &field.item, value)
                && !(field.omit_empty && zero::is_empty(&field.item, value) && !zero::keeps_empty(definition, key))
        });
    }
    zero::fill(catalogue, id, map);
}

/// Whether there is anything left of the value.
fn item(catalogue: &Catalogue, item_type: &Item, value: &mut Value) -> bool {
    match (&item_type.shape, &mut *value) {
        (_, Value::Null) => false,
        (Shape::Struct(id), Value::Object(map)) => {
            structure(catalogue, *id, map);
            true
        }
        (Shape::List(inner), Value::Array(items)) => {
            for value in items {
                if !item(catalogue, inner, value) {
                    *value = zero::item(catalogue, inner);
                }
            }
            true
        }
        (Shape::Map(inner), Value::Object(map)) => {
            for value in map.values_mut() {
                if !item(catalogue, inner, value) {
                    *value = zero::item(catalogue, inner);
                }
            }
            true
        }
        (Shape::String | Shape::Bytes | Shape::Duration | Shape::IntOrString, Value::String(_))
        | (Shape::Bool, Value::Bool(_)) => true,
        (Shape::Int32 | Shape::IntOrString, Value::Number(n)) => whole(n).is_some_and(|n| i32::try_from(n).is_ok()),
        (Shape::Int64 | Shape::Uint32, Value::Number(n)) => whole(n).is_some(),
        (Shape::Uint64, Value::Number(n)) => n.is_u64(),
        (Shape::Float, Value::Number(n)) => match n.as_f64().and_then(crate::decode::float) {
            Some(canonical) => {
                *n = canonical;
                true
            }
            None => false,
        },
        (Shape::Quantity, Value::String(_) | Value::Number(_)) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            replace(value, crate::quantity::canonical(&text).ok())
        }
        (Shape::Time, Value::String(text)) => {
            let canonical = crate::go_time::time(text).ok().flatten();
            replace(value, canonical)
        }
        (Shape::MicroTime, Value::String(text)) => {
            let canonical = crate::go_time::micro_time(text).ok().flatten();
            replace(value, canonical)
        }
        (Shape::SchemaOrArray | Shape::SchemaOrBool | Shape::SchemaOrStrings, value) => schema_or(catalogue, value),
        (shape, _) => shape.is_any(),
    }
}

fn replace(value: &mut Value, canonical: Option<String>) -> bool {
    let found = canonical.is_some();
    if let Some(canonical) = canonical {
        *value = Value::String(canonical);
    }
    found
}

/// Integers; floats that are whole become one.
fn whole(number: &mut Number) -> Option<i64> {
    if let (false, Some(float)) = (number.is_i64(), number.as_f64())
        && float.fract() == 0.0
        && float.abs() < 9e15
    {
        *number = Number::from(float as i64);
    }
    number.as_i64()
}

fn schema_or(catalogue: &Catalogue, value: &mut Value) -> bool {
    match (value, catalogue.id(SCHEMA)) {
        (Value::Object(map), Some(id)) => structure(catalogue, id, map),
        (Value::Array(items), Some(id)) => {
            for map in items.iter_mut().filter_map(Value::as_object_mut) {
                structure(catalogue, id, map);
            }
        }
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_take_their_canonical_form() {
        let pod = crate::builtin().named("io.k8s.api.core.v1.Pod").expect("the type");
        let mut object = json!({"metadata": {"name": "p", "labels": {}, "creationTimestamp": null},
            "spec": {"containers": [{"name": "c", "image": "", "resources": {"limits": {"cpu": "1000m", "memory": 1024}}}, null],
                "priority": 5.0, "hostNetwork": false, "bogus": 1, "nodeName": 7}});
        normalize(&pod, &mut object);
        assert_eq!(
            object,
            json!({"metadata": {"name": "p"}, "spec": {"priority": 5, "containers": [
                {"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1024"}}}, {"name": "", "resources": {}}]}, "status": {}})
        );
        let once = object.clone();
        normalize(&pod, &mut object);
        assert_eq!(object, once);
    }
}
