//! Nodes.

use std::collections::HashSet;

use ferry_meta::{FieldErrors, Path, object};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::pod::{resource_list, resources, scheduling};
use super::warnings;
use crate::cells;
use crate::check;
use crate::cursor::{Cursor, Report, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct Node(pub Plain);

impl Strategy for Node {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, _old: Option<&Value>) -> Vec<String> {
        if context.subresource == "status" {
            return Vec::new();
        }
        let spec = Cursor::root(object).get("spec");
        let mut found = Vec::new();
        if spec.has("configSource") {
            found.push("spec.configSource: the feature is removed".to_owned());
        }
        if !spec.text("externalID").is_empty() {
            found.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        found.extend(spec.items("podCIDRs").iter().flat_map(|range| warnings::network(&range.path, range.as_text())));
        found
    }

    fn default(&self, object: &mut Value) {
        let status = object_at(object, &["status"]);
        resource_list(status, "capacity");
        resource_list(status, "allocatable");
        if status.get("allocatable").is_none_or(Value::is_null)
            && let Some(capacity) = status.get("capacity").filter(|c| !c.is_null()).cloned()
        {
            status.insert("allocatable".into(), capacity);
        }
        // The single pod network and the list of them tell the same.
        let spec = object_at(object, &["spec"]);
        let single = spec.get("podCIDR").and_then(Value::as_str).unwrap_or_default().to_owned();
        let first = spec.get("podCIDRs").and_then(|l| l.get(0)).and_then(Value::as_str).map(str::to_owned);
        match (single.is_empty(), first) {
            (false, None) => {
                spec.insert("podCIDRs".into(), json!([single]));
            }
            (true, Some(first)) => {
                spec.insert("podCIDR".into(), first.into());
            }
            // The single one counts where the two differ.
            (false, Some(first)) if first != single => {
                spec.insert("podCIDRs".into(), json!([single]));
            }
            _ => {}
        }
    }

    /// A kubelet registers itself with its status.
    fn prepare_create(&self, _context: &Context<'_>, _object: &mut Value) {}

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::keep(object, old, if context.subresource == "status" { "spec" } else { "status" });
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let node = Cursor::root(object);
        let spec = node.get("spec");
        scheduling::taints(&mut errors, &spec);
        node_resources(&mut errors, &node);
        declared_features(&mut errors, &node.get("status"));
        networks(&mut errors, &spec);
        errors
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (node, old) = (Cursor::root(object), Cursor::root(old));
        let (spec, was) = (node.get("spec"), old.get("spec"));
        // As a new object first, then as a change.
        scheduling::taints(&mut errors, &spec);
        let before = was.array("podCIDRs");
        if spec.array("podCIDRs") != before {
            networks(&mut errors, &spec);
        }
        node_resources(&mut errors, &node);
        declared_features(&mut errors, &node.get("status"));
        let mut seen: HashSet<&Value> = HashSet::new();
        for address in node.get("status").items("addresses") {
            if seen.contains(&address.value) {
                let error = ferry_meta::FieldError::duplicate(&address.path, address.value.clone());
                errors.push(error.shown_as(crate::internal::show("NodeAddress", address.value)));
            }
            seen.insert(address.value);
        }
        if !before.is_empty() && before != spec.array("podCIDRs") {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            errors.forbidden(spec.at("podCIDRs"), detail);
        }
        let (provider, before) = (spec.text("providerID"), was.text("providerID"));
        if !before.is_empty() && provider != before {
            let what = if provider.is_empty() { "cleared" } else { "modified" };
            errors.invalid(spec.at("providerID"), Value::Null, format!("field cannot be {what} once set"));
        }
        if spec.text("externalID") != was.text("externalID") {
            errors.forbidden(spec.at("externalID"), "may not be updated");
        }
        errors
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec!["spec.unschedulable"]
    }

    fn field(&self, object: &Value, field: &str) -> String {
        match field {
            "spec.unschedulable" => (object.pointer("/spec/unschedulable") == Some(&Value::Bool(true))).to_string(),
            _ => common::field_text(object, field),
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let at = Cursor::root(object);
        let status = at.get("status");
        let ready = status.items("conditions").into_iter().rfind(|c| c.text("type") == "Ready");
        let mut words = vec![match ready {
            Some(condition) if condition.text("status") == "True" => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        }];
        if at.get("spec").is_true("unschedulable") {
            words.push("SchedulingDisabled");
        }
        let info = status.get("nodeInfo");
        let known = |key: &str| if info.text(key).is_empty() { "<unknown>" } else { info.text(key) };
        let address = |kind: &str| {
            let addresses = status.items("addresses");
            let found = addresses.iter().find(|a| a.text("type") == kind).map_or("<none>", |a| a.text("address"));
            found.to_owned()
        };
        let mut kernel = known("kernelVersion").to_owned();
        if !info.text("architecture").is_empty() {
            kernel = format!("{kernel} ({})", info.text("architecture"));
        }
        vec![
            object::name(object).into(),
            words.join(",").into(),
            roles(object).into(),
            cells::age(object, now).into(),
            info.text("kubeletVersion").into(),
            address("InternalIP").into(),
            address("ExternalIP").into(),
            known("osImage").into(),
            kernel.into(),
            known("containerRuntimeVersion").into(),
        ]
    }
}

fn roles(node: &Value) -> String {
    let mut roles: Vec<&str> = object::labels(node)
        .iter()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    cells::joined(roles.into_iter())
}

fn networks(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    for cidr in spec.items("podCIDRs") {
        check::cidr(errors, cidr.path.clone(), cidr.as_text());
    }
    let families = |four: bool| spec.texts("podCIDRs").filter(|c| c.contains('.') == four).count();
    if families(true) > 1 || families(false) > 1 {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.invalid(spec.at("podCIDRs"), spec.raw("podCIDRs").clone(), detail);
    }
}

/// The features a kubelet says it has: `Name` or `Name/part`, sorted.
fn declared_features(errors: &mut FieldErrors, status: &Cursor<'_>) {
    let features = status.items("declaredFeatures");
    for (index, feature) in features.iter().enumerate() {
        let name = feature.as_text();
        let sound = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.split('/').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric()));
        if !sound {
            let detail = format!(
                "invalid feature name {name:?}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            );
            errors.invalid(feature.path.clone(), name, detail);
        }
        let Some(next) = features.get(index + 1) else { continue };
        match name.cmp(next.as_text()) {
            std::cmp::Ordering::Equal => errors.duplicate(next.path.clone(), name),
            std::cmp::Ordering::Greater => {
                errors.invalid(next.path.clone(), next.as_text(), "list must be sorted alphabetically");
            }
            std::cmp::Ordering::Less => {}
        }
    }
}

fn node_resources(errors: &mut FieldErrors, node: &Cursor<'_>) {
    for list in ["capacity", "allocatable"] {
        for (name, at) in node.get("status").entries(list) {
            let path = Path::new(format!("status.{list}.{name}"));
            resources::amount(errors, &path, name, &at.as_quantity().unwrap_or_default());
        }
    }
}
