//! Resources inside of custom resources: they say what they are, and their metadata is sound.

use ferry_meta::{FieldErrors, Path, names, object};
use ferry_schema::structural::Schema;
use serde_json::{Map, Value};

use crate::cursor::Report;
use crate::object_meta;

/// Resources inside of this one have a kind, a version and sound metadata.
pub(super) fn embedded_errors(schema: &Schema, value: &Value, path: &Path, errors: &mut FieldErrors) {
    match value {
        Value::Object(map) => {
            if schema.embedded {
                type_errors(map, path, errors);
                if map.contains_key("metadata") {
                    errors.extend(embedded_metadata(value, path));
                }
            }
            for (key, value) in map {
                let below = match (schema.properties.get(key), &schema.additional) {
                    (Some(of), _) => Some(of),
                    (None, ferry_schema::structural::Additional::Of(of)) => Some(&**of),
                    _ => None,
                };
                if let Some(of) = below {
                    embedded_errors(of, value, &path.child(key), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    embedded_errors(of, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// A resource within another says what it is; `metadata` it need not have.
fn type_errors(map: &Map<String, Value>, path: &Path, errors: &mut FieldErrors) {
    let keys = ["apiVersion", "kind"];
    for key in keys.into_iter().filter(|key| !map.contains_key(*key)) {
        errors.required(path.child(key), "");
    }
    for (key, value) in keys.into_iter().filter_map(|key| Some((key, map.get(key)?))) {
        let Some(text) = value.as_str() else {
            errors.invalid(path.child(key), value.clone(), "must be a string");
            continue;
        };
        let reasons = names::dns1035_label(&text.to_lowercase());
        if text.is_empty() {
            errors.invalid(path.child(key), text, "must not be empty");
        } else if key == "apiVersion" && text.matches('/').count() > 1 {
            errors.invalid(path.child(key), text, format!("unexpected GroupVersion string: {text}"));
        } else if key == "kind" && !reasons.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", reasons.join(","));
            errors.invalid(path.child(key), text, detail);
        }
    }
}

fn embedded_metadata(object: &Value, path: &Path) -> FieldErrors {
    let path = path.child("metadata");
    let namespaced = !object::namespace(object).is_empty();
    let errors = object_meta::metadata_errors(object, namespaced, &path, &names::path_segment_name);
    let name = path.child("name");
    errors.into_iter().filter(|e| !(e.path == name && e.kind == ferry_meta::field::ErrorType::Required)).collect()
}

#[cfg(test)]
mod tests {
    use ferry_meta::FieldError;
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_within_have_a_version() {
        let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true});
        let schema = Schema::parse(&schema);
        for (within, wanted) in [
            (json!({"apiVersion": "apps/v1", "kind": "K"}), ""),
            (
                json!({"apiVersion": "a/b/c", "kind": "K"}),
                "apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            ),
            (json!({"apiVersion": "", "kind": "K"}), "apiVersion: Invalid value: \"\": must not be empty"),
            (json!({"apiVersion": null, "kind": "K"}), "apiVersion: Invalid value: null: must be a string"),
            (json!({"apiVersion": "v1"}), "kind: Required value"),
            (
                json!({"apiVersion": "v1", "kind": "A/b"}),
                "kind: Invalid value: \"A/b\": may have mixed case, but should otherwise match: a DNS-1035 label",
            ),
        ] {
            let mut errors = FieldErrors::new();
            embedded_errors(&schema, &within, &Path::root(), &mut errors);
            let said = errors.iter().map(FieldError::line).collect::<String>();
            assert!(said.starts_with(wanted) && said.is_empty() == wanted.is_empty(), "{within}: {said}");
        }
    }
}
