//! Pod templates: their hash, and whether two of them are the same.

use ferry_client::Wire;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;

pub(crate) const HASH_LABEL: &str = "pod-template-hash";

/// Vowels and what looks alike are left out, so that no words come up.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A hash of the template in the form of upstream's `pod-template-hash`. The value differs from upstream's, which
/// depends on Go's memory layout of the type; it need only be stable, and equal templates are found by comparing.
pub(crate) fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut hash = Fnv::new();
    // serde_json's maps are ordered: the text is canonical.
    hash.write(normalised(template).to_string().as_bytes());
    if let Some(collisions) = collisions {
        hash.write(&collisions.to_le_bytes());
        hash.write(&[0; 4]);
    }
    safe(&hash.0.to_string())
}

/// Text as letters and digits that are safe in any name.
pub(crate) fn safe(text: &str) -> String {
    text.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

/// 32-bit FNV-1a.
pub(crate) struct Fnv(pub(crate) u32);

impl Fnv {
    pub(crate) fn new() -> Self {
        Self(0x811c_9dc5)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }
}

/// Equal but for the hash label.
pub(crate) fn same(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    one == other || normalised(one) == normalised(other)
}

pub(crate) fn as_value(template: &PodTemplateSpec) -> Value {
    template.encode().and_then(|json| serde_json::from_slice(&json)).unwrap_or_default()
}

fn normalised(template: &PodTemplateSpec) -> Value {
    let mut value = as_value(template);
    if let Some(labels) = value.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
    }
    if let Some(meta) = value.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        meta.remove("creationTimestamp");
        meta.retain(|_, field| !field.as_object().is_some_and(serde_json::Map::is_empty));
    }
    drop_empty_lists(&mut value);
    value
}

/// An empty list and an absent one mean the same.
fn drop_empty_lists(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null() && !field.as_array().is_some_and(Vec::is_empty));
            fields.values_mut().for_each(drop_empty_lists);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty_lists),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(json: &str) -> PodTemplateSpec {
        serde_json::from_str(json).expect("a template")
    }

    #[test]
    fn the_hash_ignores_its_own_label_and_counts_collisions() {
        let plain = template(r#"{"metadata":{"labels":{"a":"1"}},"spec":{"containers":[]}}"#);
        let hashed = template(r#"{"metadata":{"labels":{"a":"1","pod-template-hash":"x"}},"spec":{"containers":[]}}"#);
        let other = template(r#"{"metadata":{"labels":{"a":"2"}},"spec":{"containers":[]}}"#);
        assert!(same(&plain, &hashed) && !same(&plain, &other));
        assert_eq!(hash(&plain, None), hash(&hashed, None));
        assert_ne!(hash(&plain, None), hash(&other, None));
        assert_ne!(hash(&plain, None), hash(&plain, Some(1)));
        assert!(hash(&plain, None).bytes().all(|byte| ALPHABET.contains(&byte)));
    }

    #[test]
    fn text_is_made_safe_as_upstream_does() {
        assert_eq!(safe("0123456789"), "456789bcdf");
    }
}
