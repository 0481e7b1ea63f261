//! The objects every cluster starts with, and how they are kept whole across restarts and upgrades.
//!
//! `objects.json` holds them one per line: namespaces, priority classes, priority levels, flow schemas, and the RBAC
//! roles and bindings of upstream.

use ferry_meta::object::{annotations, child_mut, items, metadata_mut, name, text};
use serde_json::{Map, Value, json};

use crate::rbac::{compact, rules_of, uncovered};

const OBJECTS: &str = include_str!("objects.json");

/// All of them, in an order in which they can be created.
pub fn objects() -> Vec<Value> {
    let mut objects: Vec<Value> = serde_json::from_str(OBJECTS).unwrap_or_default();
    objects.push(kubelet_client());
    let now = ferry_meta::time::time(ferry_meta::time::now());
    for object in &mut objects {
        match text(object, "/kind") {
            "FlowSchema" => {
                let level = text(object, "/spec/priorityLevelConfiguration/name");
                let message = format!(
                    "This FlowSchema references the PriorityLevelConfiguration object named {level:?} and it exists"
                );
                object["status"] = json!({"conditions": [{
                    "type": "Dangling", "status": "False", "lastTransitionTime": now,
                    "reason": "Found", "message": message,
                }]});
            }
            "PriorityLevelConfiguration" => object["status"] = json!({}),
            _ => {}
        }
    }
    objects
}

/// What the API server may do at kubelets. Upstream leaves it to whoever sets up the cluster.
fn kubelet_client() -> Value {
    const GROUP: &str = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {
            "name": crate::KUBELET_CLIENT,
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        },
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": crate::KUBELET_CLIENT}],
    })
}

/// What to do at start about one of [`objects`].
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciled {
    Unchanged,
    Create(Value),
    Update(Value),
    /// A binding's role cannot be changed: it is deleted and made anew.
    Recreate(Value),
}

/// Adds what is missing and leaves what an administrator added. An object that is annotated with
/// `rbac.authorization.kubernetes.io/autoupdate: "false"` (for flow control `apf.kubernetes.io/autoupdate-spec`) is
/// left alone.
pub fn reconcile(wanted: &Value, existing: Option<&Value>) -> Reconciled {
    let Some(existing) = existing else { return Reconciled::Create(wanted.clone()) };
    let mut merged = existing.clone();
    match text(wanted, "/kind") {
        "ClusterRole" | "Role" => {
            if is_protected(existing) {
                return Reconciled::Unchanged;
            }
            add_metadata(wanted, &mut merged);
            if wanted.get("aggregationRule").is_some() {
                add_selectors(wanted, &mut merged);
            } else {
                let missing = compact(uncovered(&rules_of(existing), &rules_of(wanted)).collect());
                append(&mut merged, "rules", missing.iter().filter_map(|rule| serde_json::to_value(rule).ok()));
            }
        }
        "ClusterRoleBinding" | "RoleBinding" => {
            if is_protected(existing) {
                return Reconciled::Unchanged;
            }
            if existing.get("roleRef") != wanted.get("roleRef") {
                let mut fresh = wanted.clone();
                keep_metadata(existing, &mut fresh);
                add_subjects(existing, &mut fresh);
                return Reconciled::Recreate(fresh);
            }
            add_metadata(wanted, &mut merged);
            add_subjects(wanted, &mut merged);
        }
        "FlowSchema" | "PriorityLevelConfiguration" => {
            let auto = annotations(existing).get("apf.kubernetes.io/autoupdate-spec").and_then(Value::as_str);
            if auto != Some("true") {
                return Reconciled::Unchanged;
            }
            if let Some(spec) = wanted.get("spec") {
                merged["spec"] = spec.clone();
            }
        }
        // Namespaces and priority classes are made once; their fields are their owners' to change.
        _ => {}
    }
    if merged == *existing { Reconciled::Unchanged } else { Reconciled::Update(merged) }
}

fn is_protected(existing: &Value) -> bool {
    annotations(existing).get("rbac.authorization.kubernetes.io/autoupdate").and_then(Value::as_str) == Some("false")
}

fn add_metadata(wanted: &Value, merged: &mut Value) {
    for part in ["labels", "annotations"] {
        let Some(wanted) = wanted.pointer(&format!("/metadata/{part}")).and_then(Value::as_object) else { continue };
        let metadata = metadata_mut(merged);
        let merged = metadata.entry(part).or_insert_with(|| Value::Object(Map::new()));
        if let Some(merged) = merged.as_object_mut() {
            for (key, value) in wanted {
                merged.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Labels and annotations that only the existing object has.
fn keep_metadata(existing: &Value, fresh: &mut Value) {
    for part in ["labels", "annotations"] {
        let Some(existing) = existing.pointer(&format!("/metadata/{part}")).and_then(Value::as_object) else {
            continue;
        };
        let metadata = metadata_mut(fresh);
        let fresh = metadata.entry(part).or_insert_with(|| Value::Object(Map::new()));
        if let Some(fresh) = fresh.as_object_mut() {
            for (key, value) in existing {
                fresh.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
    }
}

fn add_subjects(from: &Value, to: &mut Value) {
    let missing: Vec<Value> =
        items(from, "/subjects").iter().filter(|s| !items(to, "/subjects").contains(s)).cloned().collect();
    append(to, "subjects", missing);
}

fn add_selectors(wanted: &Value, merged: &mut Value) {
    const PATH: &str = "/aggregationRule/clusterRoleSelectors";
    let missing: Vec<Value> =
        items(wanted, PATH).iter().filter(|s| !items(merged, PATH).contains(s)).cloned().collect();
    if missing.is_empty() {
        return;
    }
    let rule = child_mut(merged, "aggregationRule");
    let selectors = rule.entry("clusterRoleSelectors").or_insert_with(|| json!([]));
    if let Some(selectors) = selectors.as_array_mut() {
        selectors.extend(missing);
    }
}

fn append(object: &mut Value, field: &str, missing: impl IntoIterator<Item = Value>) {
    let mut missing = missing.into_iter().peekable();
    if missing.peek().is_none() {
        return;
    }
    match object.get_mut(field).and_then(Value::as_array_mut) {
        Some(list) => list.extend(missing),
        None => object[field] = missing.collect(),
    }
}

/// `ClusterRole "admin"`, for logs.
pub fn title(object: &Value) -> String {
    format!("{} {:?}", text(object, "/kind"), name(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(kind: &str, wanted: &str) -> Value {
        objects().into_iter().find(|o| text(o, "/kind") == kind && name(o) == wanted).expect("a bootstrap object")
    }

    #[test]
    fn all_objects_are_there_and_named() {
        let objects = objects();
        let count = |kind: &str| objects.iter().filter(|o| text(o, "/kind") == kind).count();
        let counts = ["Namespace", "PriorityClass", "ClusterRole", "ClusterRoleBinding", "FlowSchema"].map(count);
        assert_eq!(counts, [4, 2, 73, 55, 11]);
        assert!(objects.iter().all(|o| !name(o).is_empty() && !text(o, "/apiVersion").is_empty()));
    }

    #[test]
    fn reconciling_adds_and_never_takes_away() {
        let role = find("ClusterRole", "system:discovery");
        assert_eq!(reconcile(&role, None), Reconciled::Create(role.clone()));
        assert_eq!(reconcile(&role, Some(&role)), Reconciled::Unchanged);

        let mut less = role.clone();
        less["rules"] = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        let Reconciled::Update(updated) = reconcile(&role, Some(&less)) else { panic!("no update") };
        assert!(uncovered(&rules_of(&updated), &rules_of(&role)).next().is_none());
        assert_eq!(updated["rules"][0], less["rules"][0]);

        less["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = json!("false");
        assert_eq!(reconcile(&role, Some(&less)), Reconciled::Unchanged);
    }

    #[test]
    fn a_binding_to_another_role_is_made_anew_with_its_subjects() {
        let binding = find("ClusterRoleBinding", "system:basic-user");
        let mut other = binding.clone();
        other["subjects"] = json!([{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}]);
        let Reconciled::Update(updated) = reconcile(&binding, Some(&other)) else { panic!("no update") };
        assert_eq!(items(&updated, "/subjects").len(), 2);
        other["roleRef"]["name"] = json!("view");
        let Reconciled::Recreate(fresh) = reconcile(&binding, Some(&other)) else { panic!("no recreation") };
        assert_eq!((items(&fresh, "/subjects").len(), text(&fresh, "/roleRef/name")), (2, "system:basic-user"));
    }
}
