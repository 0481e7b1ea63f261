//! The rules of a pod's status.

use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};

use ferry_meta::{FieldError, FieldErrors, names};
use serde_json::{Map, Value, json};

use crate::check;
use crate::cursor::{Cursor, Report};

/// Keeps from the old status what writers that do not know of it would drop.
pub fn prepare(object: &mut Value, old: &Value) {
    let Some(map) = object.as_object_mut() else { return };
    match old.get("spec") {
        Some(spec) => map.insert("spec".into(), spec.clone()),
        None => map.remove("spec"),
    };
    if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        // A status neither ends a deletion nor changes who owns the pod.
        for field in ["deletionTimestamp", "ownerReferences"] {
            match old.get("metadata").and_then(|was| was.get(field)) {
                Some(value) => metadata.insert(field.into(), value.clone()),
                None => metadata.remove(field),
            };
        }
    }
    let before = ferry_meta::object::map(old, "/status");
    let status = map.entry("status").or_insert_with(|| json!({}));
    let Some(status) = status.as_object_mut() else { return };
    for key in ["qosClass", "resourceClaimStatuses", "extendedResourceClaimStatus", "observedGeneration"] {
        if status.get(key).is_none_or(Value::is_null)
            && let Some(value) = before.get(key)
        {
            status.insert(key.into(), value.clone());
        }
    }
    keep_observed_generations(status, before);
}

fn keep_observed_generations(status: &mut Map<String, Value>, before: &Map<String, Value>) {
    let mut old: HashMap<Option<&Value>, &Value> = HashMap::new();
    for condition in before.get("conditions").and_then(Value::as_array).into_iter().flatten() {
        old.entry(condition.get("type")).or_insert(condition);
    }
    for condition in crate::cursor::maps_mut(status, "conditions") {
        if condition.get("observedGeneration").and_then(Value::as_i64).unwrap_or_default() == 0
            && let Some(same) = old.get(&condition.get("type")).copied()
            && let Some(generation) = same.get("observedGeneration")
        {
            condition.insert("observedGeneration".into(), generation.clone());
        }
    }
}

pub fn validate(errors: &mut FieldErrors, new: &Cursor<'_>, old: &Cursor<'_>) {
    super::update::annotations(errors, new, old);
    let (status, before) = (new.get("status"), old.get("status"));
    conditions(errors, &status);
    let nominated = status.text("nominatedNodeName");
    if nominated != before.text("nominatedNodeName") && !nominated.is_empty() {
        errors.reasons(status.at("nominatedNodeName"), nominated, names::dns1123_subdomain(nominated));
        if !old.get("spec").text("nodeName").is_empty() {
            let detail = "may not be set on pods that are already bound to a node";
            errors.forbidden(status.at("nominatedNodeName"), detail);
        }
    }
    if status.number("observedGeneration") < 0 {
        let generation = status.number("observedGeneration");
        errors.invalid(status.at("observedGeneration"), generation, "must be a non-negative integer");
    }
    if status.text("qosClass") != before.text("qosClass") {
        errors.invalid(status.at("qosClass"), status.text("qosClass"), crate::cursor::IMMUTABLE);
    }
    let spec = old.get("spec");
    for (key, list) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        transitions(errors, &status, &before, key, &spec, list);
    }
    // Containers for a look never start again, whatever the policy says.
    transitions(errors, &status, &before, "ephemeralContainerStatuses", &Cursor::root(&Value::Null), "");
    claims(errors, &status, &new.get("spec"));
    for key in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        status.items(key).iter().for_each(|one| user(errors, &one.get("user"), new.get("spec").get("os").text("name")));
    }
    addresses(errors, &status, &before, "podIP", "podIPs");
    addresses(errors, &status, &before, "hostIP", "hostIPs");
    for one in status.items("ephemeralContainerStatuses") {
        if !one.array("allocatedResourcesStatus").is_empty() {
            errors.forbidden(one.at("allocatedResourcesStatus"), "must not be specified in container status");
        }
    }
}

/// Who a container runs as, by what the runtime says: its ids are wider than those a pod may ask for.
fn user(errors: &mut FieldErrors, user: &Cursor<'_>, system: &str) {
    let linux = user.get("linux");
    match system {
        "windows" if linux.exists() => errors.forbidden(linux.path.clone(), "cannot be set for a windows pod"),
        "" | "linux" if linux.exists() => {
            let (uid, most) = (linux.number("uid"), i64::from(u32::MAX));
            if !(0..=most).contains(&uid) {
                errors.invalid(linux.at("uid"), uid, format!("must be between 0 and {most}, inclusive"));
            }
            let group = |errors: &mut FieldErrors, path, gid: i64| {
                if !(0..=i64::from(i32::MAX)).contains(&gid) {
                    errors.invalid(path, gid, format!("must be between 0 and {}, inclusive", i32::MAX));
                }
            };
            group(errors, linux.at("gid"), linux.number("gid"));
            for id in linux.items("supplementalGroups") {
                group(errors, id.path.clone(), id.value.as_i64().unwrap_or_default());
            }
        }
        _ => {}
    }
}

fn conditions(errors: &mut FieldErrors, status: &Cursor<'_>) {
    const OURS: [&str; 4] = ["PodScheduled", "Ready", "ContainersReady", "Initialized"];
    for condition in status.items("conditions") {
        let generation = condition.number("observedGeneration");
        if generation < 0 {
            errors.invalid(condition.at("observedGeneration"), generation, "must be a non-negative integer");
        }
        let kind = condition.text("type");
        if !OURS.contains(&kind) {
            errors.reasons(condition.at("Type"), kind, names::qualified_name(kind));
        }
    }
}

/// The items of a list by their names, of several with one name the first.
fn by_name<'a>(parent: &Cursor<'a>, list: &str) -> HashMap<&'a str, Cursor<'a>> {
    let mut named = HashMap::new();
    for item in parent.items(list) {
        named.entry(item.text("name")).or_insert(item);
    }
    named
}

/// A container that ended may start again only if its restart policy says so.
fn transitions(
    errors: &mut FieldErrors,
    status: &Cursor<'_>,
    before: &Cursor<'_>,
    key: &str,
    spec: &Cursor<'_>,
    list: &str,
) {
    // Most pods have no container that ended.
    let (statuses, containers) = (LazyCell::new(|| by_name(status, key)), LazyCell::new(|| by_name(spec, list)));
    for (index, was) in before.items(key).iter().enumerate() {
        let ended = was.get("state").get("terminated");
        if !ended.exists() {
            continue;
        }
        let now = statuses.get(was.text("name"));
        if now.is_none_or(|now| now.get("state").has("terminated")) {
            continue;
        }
        let container = containers.get(was.text("name"));
        if !container.is_some_and(|container| may_restart(container, spec, ended.number("exitCode"))) {
            let path = status.at(key).index(index).child("state");
            errors.forbidden(path, "may not be transitioned to non-terminated state");
        }
    }
}

fn may_restart(container: &Cursor<'_>, spec: &Cursor<'_>, exit_code: i64) -> bool {
    for rule in container.items("restartPolicyRules") {
        let codes = rule.get("exitCodes");
        let listed = codes.array("values").iter().any(|v| v.as_i64() == Some(exit_code));
        if matches!((codes.text("operator"), listed), ("In", true) | ("NotIn", false)) {
            return true;
        }
    }
    let own = container.text("restartPolicy");
    match if own.is_empty() { spec.text("restartPolicy") } else { own } {
        "Always" => true,
        "OnFailure" => exit_code != 0,
        _ => false,
    }
}

fn addresses(errors: &mut FieldErrors, status: &Cursor<'_>, before: &Cursor<'_>, single: &str, list: &str) {
    let items = status.items(list);
    let sound = |errors: &mut FieldErrors| {
        let known: HashSet<&str> = before.array(list).iter().filter_map(|ip| ip["ip"].as_str()).collect();
        for item in items.iter().filter(|item| !known.contains(item.text("ip"))) {
            check::ip(errors, item.path.clone(), item.text("ip"));
        }
    };
    let families = |four: bool| items.iter().filter(|i| i.text("ip").contains('.') == four).count();
    let refuse = |errors: &mut FieldErrors, detail: &str| {
        let error = FieldError::invalid(&status.at(list), status.raw(list).clone(), detail);
        errors.push(error.shown_as(crate::internal::show_list("IP", status.raw(list))));
    };
    let both = |errors: &mut FieldErrors| {
        if items.len() < 2 {
            return;
        }
        let wrong = items.iter().enumerate().find(|(_, item)| item.text("ip").parse::<std::net::IpAddr>().is_err());
        if let Some((index, item)) = wrong {
            let detail = format!("failed to check for dual stack with error:invalid IP[{index}]: {}", item.text("ip"));
            errors.push(FieldError::internal(&status.at(list), detail));
        }
        if wrong.is_some() || items.len() > 2 || families(true) > 1 || families(false) > 1 {
            refuse(errors, "may specify no more than one IP for each IP family");
        }
    };
    let equal = |errors: &mut FieldErrors| {
        if let Some(first) = items.first().filter(|first| first.text("ip") != status.text(single)) {
            errors.invalid(first.at("ip"), first.text("ip"), format!("must be equal to `{single}`"));
        }
    };
    // A host's single address may stand alone.
    if single == "hostIP" {
        equal(errors);
        sound(errors);
        return both(errors);
    }
    sound(errors);
    both(errors);
    if status.text(single).is_empty() != items.is_empty() {
        refuse(errors, &format!("{single} and {list} must either both be set or both be unset"));
    } else {
        equal(errors);
    }
}

/// What a status tells of claims must be of the pod's own.
fn claims(errors: &mut FieldErrors, status: &Cursor<'_>, spec: &Cursor<'_>) {
    let names: HashSet<&str> = spec.array("resourceClaims").iter().filter_map(|claim| claim["name"].as_str()).collect();
    let mut seen: HashSet<&str> = HashSet::new();
    for claim in status.items("resourceClaimStatuses") {
        let name = claim.text("name");
        if !names.contains(&name) {
            errors.invalid(claim.at("name"), name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if seen.contains(&name) {
            errors.duplicate(claim.at("name"), name);
        }
        seen.insert(name);
        if let Some(named) = claim.raw("resourceClaimName").as_str() {
            errors.reasons(claim.at("resourceClaimName"), named, names::dns1123_subdomain(named));
        }
    }
    extended_claim(errors, &status.get("extendedResourceClaimStatus"), spec);
}

fn extended_claim(errors: &mut FieldErrors, claim: &Cursor<'_>, spec: &Cursor<'_>) {
    if !claim.exists() {
        return;
    }
    let mappings = claim.items("requestMappings");
    if mappings.is_empty() {
        errors.required(claim.at("requestMappings"), "at least one request mapping is required");
    }
    let (containers, first) = (by_name(spec, "containers"), by_name(spec, "initContainers"));
    let mut seen = HashSet::new();
    for mapping in &mappings {
        let [name, resource, request] = ["containerName", "resourceName", "requestName"].map(|key| mapping.text(key));
        match containers.get(name).or_else(|| first.get(name)) {
            Some(container) if container.value["resources"]["requests"].get(resource).is_none() => {
                let detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
                errors.invalid(mapping.at("resourceName"), resource, detail);
            }
            Some(_) => {}
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.invalid(mapping.at("containerName"), name, detail);
            }
        }
        errors.reasons(claim.at("requestName"), request, names::dns1123_label(request));
        if seen.contains(&(name, resource, request)) {
            for (key, value) in [("containerName", name), ("resourceName", resource), ("requestName", request)] {
                errors.duplicate(mapping.at(key), value);
            }
        }
        seen.insert((name, resource, request));
    }
    errors.named(claim.at("resourceClaimName"), claim.text("resourceClaimName"), names::dns1123_subdomain);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_judged() {
        let check = |status: Value, before: Value, want: &[&str]| {
            let spec = json!({"containers": [{"name": "c"}], "restartPolicy": "Always"});
            let (new, old) = (json!({"spec": spec, "status": status}), json!({"spec": spec, "status": before}));
            let mut errors = FieldErrors::new();
            validate(&mut errors, &Cursor::root(&new), &Cursor::root(&old));
            let lines: Vec<String> = errors.iter().map(FieldError::line).collect();
            assert_eq!(lines, want, "{status}");
        };
        let ended = json!([{"name": "e", "state": {"terminated": {"exitCode": 1}}}]);
        check(
            json!({"ephemeralContainerStatuses": [{"name": "e", "state": {"running": {}}}]}),
            json!({"ephemeralContainerStatuses": ended}),
            &["status.ephemeralContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"],
        );
        check(
            json!({"ephemeralContainerStatuses": [{"name": "e", "allocatedResourcesStatus": [{"name": "x"}]}]}),
            json!({}),
            &[
                "status.ephemeralContainerStatuses[0].allocatedResourcesStatus: Forbidden: must not be specified in container status",
            ],
        );
        let mapping = json!({"containerName": "c", "resourceName": "r", "requestName": "q"});
        check(
            json!({"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": [mapping]}}),
            json!({}),
            &[
                "status.extendedResourceClaimStatus.requestMappings[0].resourceName: Invalid value: \"r\": must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests",
            ],
        );
    }
}
