//! The `scale` subresource shares one field with its parent: owners of the parent's replicas own those of the Scale.

use serde_json::Value;

use super::entries::{self, Entry, Managers};
use super::set::{Element, Set};

const SCALE_VERSION: &str = "autoscaling/v1";

/// Where the replicas stand in a version of the parent: `spec.replicas` in `apps/v1`. A version may have no Scale; None: the
/// parent has no such version.
pub type Mappings<'a> = &'a (dyn Fn(&str) -> Option<Option<String>> + 'a);

fn elements(path: &str) -> Vec<Element> {
    path.trim_start_matches('.').split('.').map(Element::field).collect()
}

fn path_in(mappings: Mappings<'_>, api_version: &str) -> Option<Vec<Element>> {
    mappings(api_version)?.as_deref().map(elements)
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
    let before = entries::read(parent).unwrap_or_default();
    let mut managers = Managers::new();
    for (id, entry) in &before {
        let Some(path) = mappings(&entry.api_version) else { continue };
        let path = path.as_deref().map(elements).filter(|path| entry.set.has(path));
        let Some(path) = path.filter(|_| of_scale.remove(id).is_none()) else {
            managers.insert(id.clone(), entry.clone());
            continue;
        };
        // Whoever updated the parent is another manager in the Scale's version: they lose the field even where nothing changed.
        let set = entry.set.difference(&only(&path));
        if !set.is_empty() {
            managers.insert(id.clone(), Entry { set, ..entry.clone() });
        }
    }
    let Some(path) = path_in(mappings, api_version) else { return entries::write(&managers) };
    for (id, entry) in of_scale.into_iter().filter(|(_, entry)| entry.set.has(&replicas())) {
        // They stay apart from entries of the same manager that own other fields, and upstream gives new ones no time.
        let time = before.get(&id).and_then(|entry| entry.time.clone());
        managers.insert(id, Entry { set: only(&path), api_version: api_version.to_owned(), time, ..entry });
    }
    entries::write(&managers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `apps/v1` has a Scale, and `apps/v0` none.
    fn workloads(api_version: &str) -> Option<Option<String>> {
        match api_version {
            "apps/v1" => Some(Some("spec.replicas".to_owned())),
            "apps/v0" => Some(None),
            _ => None,
        }
    }

    #[test]
    fn a_scaler_takes_the_replicas_over() {
        let mappings: Mappings<'_> = &workloads;
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

    #[test]
    fn versions_without_a_scale_keep_their_owners() {
        let entry = |version: &str| json!({"manager": "m", "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let parent = json!([entry("apps/v0"), entry("apps/v1"), entry("apps/v9")]);
        assert_eq!(to_scale(Some(&parent), &workloads)[0]["apiVersion"], "autoscaling/v1");
        assert_eq!(to_parent(Some(&parent), None, "apps/v1", &workloads), json!([entry("apps/v0")]));
    }

    #[test]
    fn an_update_of_the_scale_that_changes_nothing_parts_the_entry_of_the_owner() {
        let mappings: Mappings<'_> = &workloads;
        let entry = |time: Option<&str>, fields: Value| {
            let mut entry = json!({"manager": "m", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}});
            if let Some(time) = time {
                entry["time"] = time.into();
            }
            entry
        };
        let time = Some("2024-01-01T00:00:00Z");
        let parent = json!([entry(time, json!({"f:replicas": {}, "f:selector": {}}))]);
        let scale = to_scale(Some(&parent), mappings);
        let after = to_parent(Some(&parent), Some(&scale), "apps/v1", mappings);
        assert_eq!(after, json!([entry(None, json!({"f:replicas": {}})), entry(time, json!({"f:selector": {}}))]));
        // The two have one name, so that the next write sees the last of them only.
        assert_eq!(to_scale(Some(&after), mappings), Value::Null);
    }
}
