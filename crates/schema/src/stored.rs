//! The form an object has after it was in upstream's store.

use serde_json::{Map, Value};

use crate::catalogue::{Catalogue, Item, Shape, Type, TypeId};

/// Upstream stores protobuf, which cannot tell an empty list or map from none: where Go always writes such a field, it reads
/// `null` afterwards.
pub fn as_stored(ty: &Type, object: &mut Value) {
    if ty.schema().is_some() {
        return;
    }
    if let Value::Object(map) = object {
        structure(ty.catalogue(), ty.id(), map);
    }
}

fn structure(catalogue: &Catalogue, id: TypeId, map: &mut Map<String, Value>) {
    let definition = catalogue.get(id);
    for (key, value) in map.iter_mut() {
        if let Some(field) = definition.field(key) {
            item(catalogue, &field.item, value);
        }
    }
}

fn item(catalogue: &Catalogue, of: &Item, value: &mut Value) {
    match (&of.shape, &mut *value) {
        (Shape::Struct(id), Value::Object(map)) => structure(catalogue, *id, map),
        (Shape::List(_), Value::Array(items)) if items.is_empty() && !of.wrapped => *value = Value::Null,
        (Shape::List(inner), Value::Array(items)) => items.iter_mut().for_each(|v| item(catalogue, inner, v)),
        (Shape::Map(_), Value::Object(map)) if map.is_empty() => *value = Value::Null,
        (Shape::Map(inner), Value::Object(map)) => map.values_mut().for_each(|v| item(catalogue, inner, v)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::GroupVersionKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_lists_do_not_survive_the_store() {
        let kind = GroupVersionKind::new("rbac.authorization.k8s.io", "v1", "Role");
        let ty = crate::builtin().kind(&kind).expect("a type");
        let mut role = json!({"metadata": {"name": "a", "labels": {}}, "rules": []});
        as_stored(&ty, &mut role);
        let text = String::from_utf8(crate::encode_json(&ty, &role)).expect("text");
        assert_eq!(text, r#"{"metadata":{"name":"a"},"rules":null}"#);
    }
}
