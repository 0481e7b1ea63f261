//! What an update of a pod may change: the main resource, its ephemeral containers and its size.

use std::collections::HashSet;

use ferry_meta::{FieldError, FieldErrors, Path, names};
use ferry_semantics::qos::QosClass;
use ferry_semantics::taints;
use serde_json::{Map, Value};

use super::{diff, scheduling};
use crate::cursor::{Cursor, Report};
use crate::internal;

const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const MIRROR: &str = "kubernetes.io/config.mirror";

pub fn validate(errors: &mut FieldErrors, new: &Cursor<'_>, old: &Cursor<'_>) {
    annotations(errors, new, old);
    let (spec, was) = (new.get("spec"), old.get("spec"));
    for list in ["containers", "initContainers"] {
        let containers = spec.items(list);
        if containers.len() != was.array(list).len() {
            return errors.forbidden(spec.at(list), "pod updates may not add or remove containers");
        }
        for container in &containers {
            if container.text("image").is_empty() {
                errors.required(container.at("image"), "");
            }
            super::container::image_has_no_padding(errors, container);
        }
    }
    let deadline = "activeDeadlineSeconds";
    match (spec.int(deadline), was.int(deadline)) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            return errors.invalid(spec.at(deadline), seconds, names::in_range(0, i32::MAX.into()));
        }
        (Some(seconds), Some(before)) if before < seconds => {
            return errors.invalid(spec.at(deadline), seconds, "must be less than or equal to previous value");
        }
        (None, Some(_)) => {
            errors.invalid(spec.at(deadline), Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
    tolerations(errors, &spec, &was);
    gates(errors, &spec, &was);
    if spec.value == was.value {
        return;
    }
    if !was.array("schedulingGates").is_empty() {
        node_choice(errors, &spec, &was);
    }
    let munged = with_changeable_fields_of(&spec, &was);
    if munged != *was.value {
        let shown =
            diff::unified(&internal::show_lines("PodSpec", was.value), &internal::show_lines("PodSpec", &munged));
        errors.forbidden(spec.path, format!("pod updates may not change fields other than {CHANGEABLE}\n{shown}"));
    }
}

/// The new spec with every field that may change set back, so that what still differs is what may not.
fn with_changeable_fields_of(spec: &Cursor<'_>, was: &Cursor<'_>) -> Value {
    let mut munged = spec.value.clone();
    let Some(map) = munged.as_object_mut() else { return munged };
    for list in ["containers", "initContainers"] {
        let old = was.array(list);
        for (index, container) in map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
            if let (Some(container), Some(old)) = (container.as_object_mut(), old.get(index)) {
                restore(container, old, "image");
            }
        }
    }
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(map, was.value, key);
    }
    let grace = "terminationGracePeriodSeconds";
    if was.number(grace) < 0 && map.get(grace).and_then(Value::as_i64) == Some(1) {
        restore(map, was.value, grace);
    }
    if !was.array("schedulingGates").is_empty() {
        restore(map, was.value, "nodeSelector");
        restore_node_affinity(map, was.value);
    }
    munged
}

fn restore(map: &mut Map<String, Value>, old: &Value, key: &str) {
    match old.get(key) {
        Some(value) => map.insert(key.to_owned(), value.clone()),
        None => map.remove(key),
    };
}

/// A gated pod may narrow where it runs, never widen it.
fn node_choice(errors: &mut FieldErrors, spec: &Cursor<'_>, was: &Cursor<'_>) {
    let kept = was.map("nodeSelector").iter().all(|(key, value)| spec.map("nodeSelector").get(key) == Some(value));
    if !kept {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(spec.at("nodeSelector"), spec.raw("nodeSelector").clone(), detail);
    }
    let (new, old) = (required_nodes(spec), required_nodes(was));
    let terms = new.items("nodeSelectorTerms");
    let before = old.array("nodeSelectorTerms");
    if before.is_empty() {
        return;
    }
    if before.len() != terms.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let value = new.raw("nodeSelectorTerms");
        let error = FieldError::invalid(&new.at("nodeSelectorTerms"), value.clone(), detail);
        return errors.push(error.shown_as(internal::show_list("NodeSelectorTerm", value)));
    }
    for (term, before) in terms.iter().zip(before).filter(|(term, before)| !only_adds(term, before)) {
        let detail = "only additions are allowed (no mutations or deletions)";
        let error = FieldError::invalid(&term.path, before.clone(), detail);
        errors.push(error.shown_as(internal::show("NodeSelectorTerm", term.value)));
    }
}

fn required_nodes<'a>(spec: &Cursor<'a>) -> Cursor<'a> {
    spec.get("affinity").get("nodeAffinity").get("requiredDuringSchedulingIgnoredDuringExecution")
}

fn only_adds(term: &Cursor<'_>, before: &Value) -> bool {
    let old = Cursor::root(before);
    let lists = ["matchExpressions", "matchFields"];
    if lists.iter().all(|list| old.array(list).is_empty()) {
        return lists.iter().all(|list| term.array(list).is_empty());
    }
    lists.iter().all(|list| term.array(list).starts_with(old.array(list)))
}

fn restore_node_affinity(map: &mut Map<String, Value>, old: &Value) {
    let before = old.pointer("/affinity/nodeAffinity").cloned();
    let affinity = map.entry("affinity").or_insert_with(|| Value::Object(Map::new()));
    if let Some(affinity) = affinity.as_object_mut() {
        match before {
            Some(node) => affinity.insert("nodeAffinity".into(), node),
            None => affinity.remove("nodeAffinity"),
        };
        if affinity.is_empty() && old.get("affinity").is_none() {
            map.remove("affinity");
        }
    }
}

pub fn annotations(errors: &mut FieldErrors, new: &Cursor<'_>, old: &Cursor<'_>) {
    let path = Path::new("metadata.annotations");
    let (new, old) = (new.get("metadata").map("annotations"), old.get("metadata").map("annotations"));
    let changed = |key: &str| new.get(key) != old.get(key);
    for key in old.keys().filter(|key| changed(key)) {
        if key.starts_with("container.apparmor.security.beta.kubernetes.io/") {
            errors.forbidden(path.key(key), "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(path.key(key), "may not remove or update mirror pod annotation");
        }
    }
    for key in new.keys().filter(|key| !old.contains_key(*key)) {
        if key.starts_with("container.apparmor.security.beta.kubernetes.io/") {
            errors.forbidden(path.key(key), "may not add AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(path.key(key), "may not add mirror pod annotation");
        }
    }
}

fn tolerations(errors: &mut FieldErrors, spec: &Cursor<'_>, was: &Cursor<'_>) {
    let without_seconds = |toleration: &Value| {
        let mut copy = toleration.clone();
        if let Some(map) = copy.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        copy
    };
    let kept: HashSet<Value> = spec.array("tolerations").iter().map(without_seconds).collect();
    for old in was.array("tolerations") {
        if !kept.contains(&without_seconds(old)) {
            let detail = "existing toleration can not be modified except its tolerationSeconds";
            return errors.forbidden(spec.at("tolerations"), detail);
        }
    }
    let compare = was.array("tolerations").iter().any(|old| taints::Toleration::from(old).compares());
    scheduling::tolerations(errors, spec, compare);
}

fn gates(errors: &mut FieldErrors, spec: &Cursor<'_>, was: &Cursor<'_>) {
    let known: HashSet<&str> = was.array("schedulingGates").iter().filter_map(|old| old["name"].as_str()).collect();
    for gate in spec.items("schedulingGates") {
        let name = gate.text("name");
        if !known.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(gate.at("name"), detail);
        }
    }
}

pub fn ephemeral_containers(errors: &mut FieldErrors, new: &Cursor<'_>, old: &Cursor<'_>) {
    if old.get("metadata").map("annotations").contains_key(MIRROR) {
        errors.clear();
        return errors.forbidden(Path::root(), "static pods do not support ephemeral containers");
    }
    annotations(errors, new, old);
    let spec = new.get("spec");
    let path = || spec.at("ephemeralContainers");
    for was in old.get("spec").array("ephemeralContainers") {
        let name = was["name"].as_str().unwrap_or_default();
        match spec.array("ephemeralContainers").iter().find(|c| c["name"].as_str() == Some(name)) {
            None => {
                errors.forbidden(path(), format!("existing ephemeral containers {name:?} may not be removed\n"));
            }
            Some(now) if now != was => {
                let (before, after) = (shown(was), shown(now));
                let detail = format!(
                    "existing ephemeral containers {name:?} may not be changed\n{}",
                    diff::unified(&before, &after)
                );
                errors.forbidden(path(), detail);
            }
            Some(_) => {}
        }
    }
}

fn shown(container: &Value) -> String {
    internal::show_lines("EphemeralContainer", container)
}

pub fn resize(errors: &mut FieldErrors, new: &Cursor<'_>, old: &Cursor<'_>, patched: bool) {
    if old.get("metadata").map("annotations").contains_key(MIRROR) {
        errors.clear();
        return errors.forbidden(Path::root(), "static pods cannot be resized");
    }
    let (spec, was) = (new.get("spec"), old.get("spec"));
    if was.get("os").text("name") == "windows" {
        errors.clear();
        return errors.forbidden(Path::root(), "windows pods cannot be resized");
    }
    let class = old.get("status").text("qosClass");
    let before = if class.is_empty() { QosClass::of_json(was.value).as_str() } else { class };
    if before != QosClass::of_json(spec.value).as_str() {
        // Shown is what was sent: of a whole pod that is no status.
        let sent = if patched { before } else { "" };
        errors.invalid(spec.path.clone(), sent, "Pod QOS Class may not change as a result of resizing");
    }
    let running = old.get("status").items("containerStatuses").into_iter().find(|s| s.get("state").has("running"));
    if running.is_some_and(|status| !status.has("resources")) {
        errors.forbidden(spec.path.clone(), "Pod running on node without support for resize");
    }
    if !same_containers(errors, &spec, &was) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (container, before) in spec.items(list).iter().zip(was.items(list)) {
            let (now, then) = (container.get("resources"), before.get("resources"));
            for which in ["requests", "limits"] {
                if then.map(which).keys().any(|name| !now.map(which).contains_key(name)) {
                    errors.forbidden(now.at(which), format!("resource {which} cannot be removed"));
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for (container, before) in spec.items(list).iter().zip(was.items(list)) {
            if without_size(container.value, before.value) == *before.value {
                continue;
            }
            if list == "containers" {
                errors.forbidden(spec.path.clone(), "only cpu and memory resources are mutable");
            } else {
                let detail = "only cpu and memory resources for init or sidecar containers are mutable";
                errors.forbidden(container.path.clone(), detail);
            }
        }
    }
}

fn same_containers(errors: &mut FieldErrors, spec: &Cursor<'_>, was: &Cursor<'_>) -> bool {
    let before = errors.len();
    for list in ["containers", "initContainers"] {
        if spec.array(list).len() != was.array(list).len() {
            errors.forbidden(spec.at(list), format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (container, old) in spec.items(list).iter().zip(was.items(list)) {
            if container.text("name") != old.text("name") {
                errors.forbidden(container.at("name"), format!("{list} may not be renamed or reordered on resize"));
            }
        }
    }
    errors.len() == before
}

/// The container with cpu and memory set back.
fn without_size(container: &Value, before: &Value) -> Value {
    let mut copy = container.clone();
    let Some(map) = copy.as_object_mut() else { return copy };
    for which in ["requests", "limits"] {
        let old = before.pointer(&format!("/resources/{which}")).and_then(Value::as_object);
        let Some(resources) = map.get_mut("resources").and_then(Value::as_object_mut) else { continue };
        let mut list = resources.get(which).and_then(Value::as_object).cloned().unwrap_or_default();
        for name in ["cpu", "memory"] {
            match old.and_then(|old| old.get(name)) {
                Some(value) => list.insert(name.into(), value.clone()),
                None => list.remove(name),
            };
        }
        if list.is_empty() && old.is_none() {
            resources.remove(which);
        } else {
            resources.insert(which.into(), Value::Object(list));
        }
    }
    copy
}
