//! From a body to a custom object: metadata read as any kind's, the rest pruned.

use serde_json::{Map, Value};

use super::Schema;
use super::trail::Trail;
use crate::catalogue::{META, Shape, Type};
use crate::decode::{self, DecodeError, Decoded, Validation};

/// As many complaints are kept.
const MOST_FOUND: usize = 1000;

/// Reads free-form JSON of a custom resource. `duplicates` are the complaints found while it was read.
pub(crate) fn decode_custom(
    schema: &Schema,
    mut object: Value,
    duplicates: Vec<String>,
    validation: Validation,
) -> Result<Decoded, DecodeError> {
    let mut found = duplicates;
    if let Value::Object(map) = &mut object {
        read_metadata(map, "metadata", &mut found)?;
    }
    found.extend(schema.prune(&mut object).into_iter().map(|path| unknown(&path)));
    read_embedded(schema, &mut object, &mut Trail::default(), &mut found)?;
    match validation {
        Validation::Ignore => found.clear(),
        Validation::Strict if !found.is_empty() => return Err(DecodeError::Strict(found)),
        _ => {}
    }
    Ok(Decoded { object, warnings: found })
}

/// Gives the metadata of an object its canonical form; the rest of a custom resource has none.
pub(crate) fn normalize_custom(ty: &Type, object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata") else { return };
    if let Some(Shape::Struct(id)) = ty.def().field("metadata").map(|field| &field.item.shape) {
        crate::normalize(&Type::of(ty.catalogue().clone(), *id), metadata);
    }
}

fn unknown(path: &str) -> String {
    format!("unknown field {}", crate::text::quote(path))
}

fn read_metadata(map: &mut Map<String, Value>, path: &str, found: &mut Vec<String>) -> Result<(), DecodeError> {
    let Some(metadata) = map.get_mut("metadata") else { return Ok(()) };
    if metadata.is_null() {
        map.remove("metadata");
        return Ok(());
    }
    let Some(ty) = crate::builtin().named(&format!("{META}.ObjectMeta")) else { return Ok(()) };
    let decoded = decode::decode_value(&ty, metadata, Validation::Warn).map_err(|error| {
        // The object's own is read before all else, and upstream says no more than the reader of JSON.
        if path == "metadata" {
            return error;
        }
        let shown = String::from_utf8(crate::encode::encode_any(metadata, false)).unwrap_or_default();
        DecodeError::Type(format!("{path}: Invalid value: {shown}: {error}"))
    })?;
    for warning in decoded.warnings.into_iter().take(MOST_FOUND.saturating_sub(found.len())) {
        // The complaint names the field as if metadata were the whole object.
        let named = warning.replacen("field \"", &format!("field \"{path}."), 1);
        found.push(named);
    }
    *metadata = decoded.object;
    Ok(())
}

/// Metadata of the resources that stand inside of this one.
fn read_embedded(
    schema: &Schema,
    value: &mut Value,
    path: &mut Trail,
    found: &mut Vec<String>,
) -> Result<(), DecodeError> {
    match value {
        Value::Object(map) => {
            if schema.embedded {
                for key in ["apiVersion", "kind"] {
                    if let Some(value) = map.get(key).filter(|value| !value.is_string()) {
                        let place = path.within_field(key, |path| path.shown());
                        let shown = String::from_utf8(crate::encode::encode_any(value, false)).unwrap_or_default();
                        return Err(DecodeError::Type(format!("{place}: Invalid value: {shown}: must be a string")));
                    }
                }
                let metadata = path.within_field("metadata", |path| path.shown());
                read_metadata(map, &metadata, found)?;
            }
            for (key, value) in map.iter_mut() {
                if let Some(of) = schema.at(key) {
                    path.within_field(key, |path| read_embedded(of, value, path, found))?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = &schema.items {
                for (index, item) in items.iter_mut().enumerate() {
                    path.within_item(index, |path| read_embedded(of, item, path, found))?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}
