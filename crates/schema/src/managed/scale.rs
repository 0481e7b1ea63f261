//! The `scale` subresource shares one field with its parent: owners of the parent's replicas own those of the Scale.

use serde_json::Value;

use super::entries::{self, Entry, Managers};
use super::set::{Element, Set};

const SCALE_VERSION: &str = "autoscaling/v1";

/// Where the replicas stand in the versions of the parent: (`apps/v1`, `spec.replicas`).
pub type Mappings<'a> = &'a [(&'a str, &'a str)];

fn path_in(mappings: Mappings<'_>, api_version: &str) -> Option<Vec<Element>> {
    let (_, path) = mappings.iter().find(|(version, _)| *version == api_version)?;
    Some(path.trim_start_matches('.').split('.').map(Element::field).collect())
}

fn replicas() -> Vec<Element> {
    vec![Element::field("spec"), Element::field("replicas")]
}

fn only(path: &[Element]) -> Set {
    let mut set = Set::default();
    set.insert(path);
    set
}

/// `managedFields` of the Scale, from those of its parent; Null where there are none.
pub fn to_scale(parent: Option<&Value>, mappings: Mappings<'_>) -> Value {
    let mut managers = Managers::new();
    for entry in entries::read(parent).unwrap_or_default().into_values() {
        let owns = path_in(mappings, &entry.api_version).is_some_and(|path| entry.set.has(&path));
        if owns {
            let entry = Entry { set: only(&replicas()), api_version: SCALE_VERSION.to_owned(), ..entry };
            managers.insert(entry.identifier(), entry);
        }
    }
    entries::write(&managers)
}

/// `managedFields` of the parent after a write to its Scale. `api_version` is the parent's.
pub fn to_parent(parent: Option<&Value>, scale: Option<&Value>, api_version: &str, mappings: Mappings<'_>) -> Value {
    let mut of_scale = entries::read(scale).unwrap_or_default();
    let mut managers = Managers::new();
    for (id, entry) in entries::read(parent).unwrap_or_default() {
        let Some(path) = path_in(mappings, &entry.api_version) else { continue };
        if !entry.set.has(&path) || of_scale.remove(&id).is_some() {
            managers.insert(id, entry);
            continue;
        }
        let set = entry.set.difference(&only(&path));
        if !set.is_empty() {
            managers.insert(id, Entry { set, ..entry });
        }
    }
    let Some(path) = path_in(mappings, api_version) else { return entries::write(&managers) };
    for entry in of_scale.into_values().filter(|entry| entry.set.has(&replicas())) {
        // Upstream gives these no time.
        let entry = Entry { set: only(&path), api_version: api_version.to_owned(), time: None, ..entry };
        match managers.get_mut(&entry.identifier()) {
            Some(before) => before.set = before.set.union(&entry.set),
            None => {
                managers.insert(entry.identifier(), entry);
            }
        }
    }
    entries::write(&managers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_scaler_takes_the_replicas_over() {
        let mappings = &[("apps/v1", "spec.replicas")];
        let parent = json!([{"manager": "m1", "operation": "Apply", "apiVersion": "apps/v1", "time": "2024-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:selector": {}}}}]);
        let scale = to_scale(Some(&parent), mappings);
        assert_eq!(scale[0]["apiVersion"], "autoscaling/v1");
        let scaled = json!([{"manager": "hpa", "operation": "Update", "apiVersion": "autoscaling/v1", "subresource": "scale",
            "time": "2024-01-02T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
        let after = to_parent(Some(&parent), Some(&scaled), "apps/v1", mappings);
        assert_eq!(
            after,
            json!([
            {"manager": "m1", "operation": "Apply", "apiVersion": "apps/v1", "time": "2024-01-01T00:00:00Z",
             "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:selector": {}}}},
            {"manager": "hpa", "operation": "Update", "apiVersion": "apps/v1", "subresource": "scale",
             "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}])
        );
        assert_eq!(to_parent(Some(&parent), Some(&scale), "apps/v1", mappings), parent);
    }
}
