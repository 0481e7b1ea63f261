//! Pods: the strategy, and the spec's rules that all workloads share.

mod app_armor;
mod container;
mod defaults;
mod diff;
mod environment;
mod level;
mod mount;
mod overlaps;
mod probe;
mod projection;
mod remote_volume;
pub mod resources;
pub mod scheduling;
mod security;
pub mod spec;
mod status;
mod table;
mod update;
mod volume;
pub mod warnings;

use ferry_meta::{FieldErrors, Path, names, object};
use ferry_semantics::qos::QosClass;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::core::warnings::address;
use crate::cursor::{Cursor, Report, map_mut, maps_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub use defaults::{remote_volume as default_remote_volume, resource_list, spec as default_spec};
pub use diff::unified as difference;
pub use projection::signer_name;
pub use volume::{csi_driver_name, validate_source as validate_volume_source};

pub struct Pod(pub Plain);

const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The rules of a template: the metadata it may carry and the spec.
pub fn validate_template(errors: &mut FieldErrors, template: &Cursor<'_>) {
    let metadata = template.get("metadata");
    errors.extend(crate::object_meta::label_errors(metadata.map("labels"), &template.at("labels")));
    errors.extend(crate::object_meta::annotation_errors(metadata.map("annotations"), &template.at("annotations")));
    let spec = template.get("spec");
    annotations(errors, &metadata, &spec);
    spec::validate(errors, &spec, &Cursor::new(&Value::Null, Path::root()), false);
    if !spec.array("ephemeralContainers").is_empty() {
        errors.forbidden(spec.at("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}

/// The defaults of a template.
pub fn default_template(template: &mut Map<String, Value>) {
    template.entry("metadata").or_insert_with(|| json!({}));
    template.entry("spec").or_insert_with(|| json!({}));
    if let Some(spec) = map_mut(template, "spec") {
        default_spec(spec);
    }
}

fn annotations(errors: &mut FieldErrors, metadata: &Cursor<'_>, spec: &Cursor<'_>) {
    let annotations = metadata.get("annotations");
    if annotations.has(MIRROR) && spec.text("nodeName").is_empty() {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(annotations.path.key(MIRROR), annotations.text(MIRROR), detail);
    }
    let cost = annotations.text(DELETION_COST);
    let well_formed = cost.parse::<i32>().is_ok() && !cost.starts_with('+') && (cost == "0" || !cost.starts_with('0'));
    if annotations.has(DELETION_COST) && !well_formed {
        errors.invalid(annotations.path.key(DELETION_COST), cost, "must be a 32bit integer");
    }
}

fn metadata_and_spec(errors: &mut FieldErrors, pod: &Cursor<'_>) {
    let (metadata, spec) = (pod.get("metadata"), pod.get("spec"));
    annotations(errors, &metadata, &spec);
    spec::validate(errors, &spec, &metadata, true);
    if spec.text("serviceAccountName").is_empty() {
        for source in spec.items("volumes").iter().flat_map(|v| v.get("projected").items("sources")) {
            if source.has("serviceAccountToken") {
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(source.at("serviceAccountToken"), detail);
            }
        }
    }
    if let Some(seconds) = spec.int("terminationGracePeriodSeconds") {
        errors.non_negative(spec.at("terminationGracePeriodSeconds"), seconds);
    }
    for container in spec.items("containers").iter().chain(&spec.items("initContainers")) {
        container::image_has_no_padding(errors, container);
    }
}

/// Label keys to match become requirements of the selector beside them, with the pod's own values.
fn merge_label_keys(pod: &mut Value) {
    let labels = object::labels(pod).clone();
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let apply = |term: &mut Map<String, Value>| {
        for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
            let keys: Vec<String> = term
                .get(list)
                .and_then(Value::as_array)
                .map(|keys| keys.iter().filter_map(|k| k.as_str().map(str::to_owned)).collect())
                .unwrap_or_default();
            let Some(selector) = map_mut(term, "labelSelector") else { return };
            for (key, value) in keys.into_iter().filter_map(|key| Some((key.clone(), labels.get(&key)?))) {
                let expressions = selector.entry("matchExpressions").or_insert_with(|| json!([]));
                if let Some(expressions) = expressions.as_array_mut() {
                    expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
                }
            }
        }
    };
    if let Some(affinity) = map_mut(spec, "affinity") {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let Some(pods) = map_mut(affinity, kind) else { continue };
            maps_mut(pods, "preferredDuringSchedulingIgnoredDuringExecution")
                .filter_map(|term| map_mut(term, "podAffinityTerm"))
                .for_each(apply);
            maps_mut(pods, "requiredDuringSchedulingIgnoredDuringExecution").for_each(apply);
        }
    }
    maps_mut(spec, "topologySpreadConstraints").for_each(apply);
}

impl Strategy for Pod {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        defaults::spec(spec);
        defaults::pod(spec);
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            defaults::status(status);
        }
    }

    fn early_warnings(&self, object: &Value) -> Vec<String> {
        match object::text(object, "/spec/os/name") {
            "windows" => Vec::new(),
            _ => app_armor::warnings(&Cursor::root(object)),
        }
    }

    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        common::set_generation(object, 1);
        app_armor::take_up(object);
        merge_label_keys(object);
        level::default_amounts(object);
        let spec = Cursor::root(object).get("spec");
        let mut status = json!({"phase": "Pending", "qosClass": QosClass::of_json(spec.value).as_str()});
        if !spec.array("schedulingGates").is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": null,
                "lastTransitionTime": object.pointer("/metadata/creationTimestamp"), "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), status);
        }
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        match context.subresource {
            "status" => return status::prepare(object, old),
            "ephemeralcontainers" => {
                let containers = object.pointer("/spec/ephemeralContainers").cloned();
                common::keep(object, old, "spec");
                common::keep_metadata(object, old);
                let spec = object_at(object, &["spec"]);
                match containers {
                    Some(containers) => spec.insert("ephemeralContainers".into(), containers),
                    None => spec.remove("ephemeralContainers"),
                };
            }
            "resize" => {
                keep_all_but_size(object, old);
                level::default_amounts(object);
            }
            // Clients that do not know of amounts of the whole pod do not take them away.
            "" => {
                if let (None, Some(kept)) = (object.pointer("/spec/resources"), old.pointer("/spec/resources")) {
                    object_at(object, &["spec"]).insert("resources".into(), kept.clone());
                }
            }
            _ => {}
        }
        common::keep(object, old, "status");
        let changed = object.get("spec") != old.get("spec");
        common::set_generation(object, common::generation(old) + i64::from(changed));
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let pod = Cursor::root(object);
        metadata_and_spec(&mut errors, &pod);
        let spec = pod.get("spec");
        if !spec.array("ephemeralContainers").is_empty() {
            errors.forbidden(spec.at("ephemeralContainers"), "cannot be set on create");
        }
        if !spec.text("nodeName").is_empty() && !spec.array("schedulingGates").is_empty() {
            errors.forbidden(spec.at("nodeName"), "cannot be set until all schedulingGates have been cleared");
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        if context.subresource == "status" {
            status::validate(&mut errors, &new, &old);
            return errors;
        }
        metadata_and_spec(&mut errors, &new);
        match context.subresource {
            "ephemeralcontainers" => update::ephemeral_containers(&mut errors, &new, &old),
            "resize" => update::resize(&mut errors, &new, &old, context.patch),
            _ => update::validate(&mut errors, &new, &old),
        }
        errors
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        let pod = Cursor::root(object);
        if old.is_some() {
            if context.subresource != "status" {
                return Vec::new();
            }
            let lists = [pod.get("status").items("podIPs"), pod.get("status").items("hostIPs")];
            return lists.iter().flatten().filter_map(|ip| address(&ip.at("ip"), ip.text("ip"))).collect();
        }
        let mut found = Vec::new();
        let reasons = names::dns1123_label(object::name(object));
        if !reasons.is_empty() {
            found.push(format!(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
                reasons.join(" ")
            ));
        }
        found.extend(warnings::of(&pod));
        found
    }

    /// Pods that run wait for their kubelet; those that never ran or have ended go at once.
    fn grace_period(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        let pod = Cursor::root(object);
        let (spec, status) = (pod.get("spec"), pod.get("status"));
        let unbound = spec.text("nodeName").is_empty();
        if unbound || ["Failed", "Succeeded"].contains(&status.text("phase")) {
            return Some(0);
        }
        let period = requested.or(spec.int("terminationGracePeriodSeconds")).unwrap_or_default();
        Some(if period < 0 { 1 } else { period })
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec![
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]
    }

    fn field(&self, object: &Value, field: &str) -> String {
        match field {
            "spec.hostNetwork" => (object::at(object, "/spec/hostNetwork") == Some(&Value::Bool(true))).to_string(),
            "status.podIP" => object::text(object, "/status/podIPs/0/ip").to_owned(),
            // Known to the parser, set by nobody.
            "status.podIPs" => String::new(),
            _ => common::field_text(object, field),
        }
    }

    fn reset_fields(&self, subresource: &str) -> Vec<&'static str> {
        match subresource {
            "" => vec!["status"],
            "status" => vec!["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
            _ => Vec::new(),
        }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        table::cells(object, now)
    }

    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        table::row_conditions(object)
    }
}

fn keep_all_but_size(object: &mut Value, old: &Value) {
    let same = |list: &str| {
        let names =
            |v: &Value| -> Vec<String> { object::items(v, list).iter().map(|c| c["name"].to_string()).collect() };
        names(object) == names(old)
    };
    if !same("/spec/containers") || !same("/spec/initContainers") {
        return;
    }
    let Some(mut spec) = old.get("spec").cloned() else { return };
    if let Some(resources) = object.pointer("/spec/resources") {
        spec["resources"] = resources.clone();
    }
    for list in ["containers", "initContainers"] {
        let sizes = object::items(object, &format!("/spec/{list}"));
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for (container, new) in containers.iter_mut().zip(sizes) {
            for key in ["resources", "resizePolicy"] {
                if let Some(map) = container.as_object_mut() {
                    match new.get(key) {
                        Some(value) => map.insert(key.into(), value.clone()),
                        None => map.remove(key),
                    };
                }
            }
        }
    }
    if let Some(map) = object.as_object_mut() {
        map.insert("spec".into(), spec);
    }
    common::keep_metadata(object, old);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys_become_part_of_the_selector() {
        let term = || json!({"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["app", "absent"], "mismatchLabelKeys": ["tenant"]});
        let mut pod = json!({"metadata": {"labels": {"app": "web", "tenant": "a"}}, "spec": {
            "affinity": {
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term()]},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term()}]},
            },
            "topologySpreadConstraints": [{"maxSkew": 1, "labelSelector": {}, "matchLabelKeys": ["app"]}],
        }});
        merge_label_keys(&mut pod);
        let app = json!({"key": "app", "operator": "In", "values": ["web"]});
        let tenant = json!({"key": "tenant", "operator": "NotIn", "values": ["a"]});
        for (place, want) in [
            ("/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/0", json!([app, tenant])),
            (
                "/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm",
                json!([app, tenant]),
            ),
            ("/spec/topologySpreadConstraints/0", json!([app])),
        ] {
            let made = pod.pointer(&format!("{place}/labelSelector/matchExpressions"));
            assert_eq!(made, Some(&want), "{place}");
        }
    }
}
