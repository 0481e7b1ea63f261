//! The rules of resource requests and limits.

use std::collections::{BTreeMap, HashSet};

use ferry_meta::{FieldError, FieldErrors, Path, Quantity, names};
use ferry_semantics::pod_resources::peak;
use ferry_semantics::quota::COMPUTE;
use ferry_semantics::quota::amounts::amounts;

use super::spec::Whole;
use crate::cursor::{Cursor, NOT_NEGATIVE, Report};

pub type NameRule = fn(&mut FieldErrors, &Path, &str);

const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

pub fn is_integer(name: &str) -> bool {
    COUNTED.contains(&name) || is_extended(name)
}

/// A resource's name as any field takes it; whether it was well-formed.
pub fn any_name(errors: &mut FieldErrors, path: &Path, name: &str) -> bool {
    let reasons = names::qualified_name(name);
    if !reasons.is_empty() {
        errors.reasons(path.clone(), name, reasons);
        return false;
    }
    let standard = COMPUTE.contains(&name)
        || matches!(name, "storage" | "requests.storage")
        || COUNTED.contains(&name)
        || is_huge_pages(name)
        || name.starts_with("requests.hugepages-");
    if !name.contains('/') && !standard {
        errors.invalid(path.clone(), name, "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

pub fn container_name(errors: &mut FieldErrors, path: &Path, name: &str) {
    any_name(errors, path, name);
    if !name.contains('/') {
        if !["cpu", "memory", "ephemeral-storage"].contains(&name) && !is_huge_pages(name) {
            errors.invalid(path.clone(), name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path.clone(), name, "doesn't follow extended resource name standard");
    }
}

fn pod_level_name(errors: &mut FieldErrors, path: &Path, name: &str) {
    let known = ["cpu", "memory"].contains(&name) || is_huge_pages(name);
    if any_name(errors, path, name) && !known {
        errors.unsupported(path.clone(), name, &["cpu", "hugepages-", "memory"]);
    }
}

/// Not negative, and whole where the resource is counted.
pub fn amount(errors: &mut FieldErrors, path: &Path, name: &str, quantity: &Quantity) {
    if quantity.is_negative() {
        errors.invalid(path.clone(), quantity.to_string(), NOT_NEGATIVE);
    }
    if is_integer(name) && quantity.milli_value() % 1000 != 0 {
        errors.invalid(path.clone(), quantity.to_string(), "must be an integer");
    }
}

fn huge_pages(errors: &mut FieldErrors, path: &Path, name: &str, quantity: &Quantity) {
    let size = name.strip_prefix("hugepages-").and_then(|size| size.parse::<Quantity>().ok());
    let divisible = size.is_some_and(|size| size.value() > 0 && quantity.value() % size.value() == 0);
    if !divisible {
        let detail = format!("{quantity} is not positive integer multiple of {name}");
        errors.invalid(path.clone(), quantity.to_string(), detail);
    }
}

pub fn validate(errors: &mut FieldErrors, requirements: &Cursor<'_>, claims: &HashSet<&str>, name_rule: NameRule) {
    let is_compute = |name: &str| name == "cpu" || name == "memory";
    let (mut compute, mut huge) = (false, false);
    let mut each = |errors: &mut FieldErrors, name: &str, at: &Cursor<'_>| -> Quantity {
        let quantity = at.as_quantity().unwrap_or_default();
        name_rule(errors, &at.path, name);
        amount(errors, &at.path, name, &quantity);
        compute |= is_compute(name);
        huge |= is_huge_pages(name);
        quantity
    };
    for (name, at) in requirements.entries("limits") {
        let quantity = each(errors, name, &at);
        if is_huge_pages(name) {
            huge_pages(errors, &at.path, name, &quantity);
        }
    }
    let limits = requirements.get("limits");
    for (name, at) in requirements.entries("requests") {
        let quantity = each(errors, name, &at);
        let path = || requirements.at("requests");
        match limits.quantity(name) {
            Some(limit) if quantity != limit && !may_overcommit(name) => {
                errors.invalid(path(), quantity.to_string(), format!("must be equal to {name} limit of {limit}"));
            }
            Some(limit) if quantity > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.invalid(path(), quantity.to_string(), detail);
            }
            None if !may_overcommit(name) => {
                errors.required(limits.path.clone(), "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
        if is_huge_pages(name) {
            huge_pages(errors, &at.path, name, &quantity);
        }
    }
    if huge && !compute {
        errors.forbidden(requirements.path.clone(), "HugePages require cpu or memory");
    }
    claim_names(errors, requirements, claims);
}

fn claim_names(errors: &mut FieldErrors, requirements: &Cursor<'_>, claims: &HashSet<&str>) {
    // Names with and without a request, and those that have one.
    let (mut seen, mut parts): (HashSet<String>, HashSet<&str>) = (HashSet::new(), HashSet::new());
    for claim in requirements.items("claims") {
        let (name, request) = (claim.text("name"), claim.text("request"));
        let path = || claim.path.clone();
        if name.is_empty() {
            errors.required(path(), "");
            continue;
        }
        if seen.contains(name) {
            errors.duplicate(path(), name);
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                errors.reasons(claim.at("request"), request, names::dns1123_label(request));
                key = format!("{name}/{request}");
            }
            if seen.contains(&key) {
                errors.duplicate(path(), key.as_str());
            } else if request.is_empty() && parts.contains(name) {
                errors.duplicate(path(), name);
            }
            // As the text of both is taken apart again.
            parts.insert(name.split('/').next().unwrap_or_default());
            seen.insert(key);
        }
        // All names are listed each time.
        if !claims.contains(name) && !errors.is_full() {
            let mut known: Vec<&str> = claims.iter().copied().collect();
            known.sort_unstable();
            let mut error = FieldError::not_found(&path(), name);
            error.detail = "must be one of the names in pod.spec.resourceClaims".to_owned();
            error.detail +=
                &if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", known.join(", ")) };
            errors.push(error);
        }
    }
}

pub fn validate_overhead(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    if !spec.has("overhead") {
        return;
    }
    let wrapped = serde_json::json!({"limits": spec.raw("overhead")});
    validate(errors, &Cursor::new(&wrapped, spec.at("overhead")), &HashSet::new(), container_name);
}

/// Requests and limits of the pod as a whole.
pub fn validate_pod_level(errors: &mut FieldErrors, spec: &Cursor<'_>, whole: &Whole<'_>) {
    let requirements = spec.get("resources");
    if !requirements.exists() {
        return;
    }
    if whole.os == "windows" {
        return errors.forbidden(requirements.path, "may not be set for a windows pod");
    }
    if requirements.has("claims") {
        errors.forbidden(requirements.at("claims"), "claims may not be set for Resources at pod-level");
    }
    validate(errors, &requirements, &whole.claims, pod_level_name);
    for (name, total) in total(spec, "requests") {
        if let Some(pod) = requirements.get("requests").quantity(&name)
            && total > pod
        {
            let detail = format!("must be greater than or equal to aggregate container requests of {total}");
            errors.invalid(requirements.at("requests").key(&name), pod.to_string(), detail);
        }
    }
    for (index, container) in spec.items("containers").iter().enumerate() {
        for (name, at) in container.get("resources").entries("limits") {
            let limit = at.as_quantity().unwrap_or_default();
            if let Some(pod) = requirements.get("limits").quantity(name)
                && limit > pod
            {
                let path = requirements.at("containers").index(index).key(name).child("limits");
                errors.invalid(path, limit.to_string(), format!("must be less than or equal to pod limits of {pod}"));
            }
        }
    }
}

/// What all containers ask for at the same time: the running ones together, or the largest moment of starting up.
pub fn total(spec: &Cursor<'_>, which: &str) -> BTreeMap<String, Quantity> {
    let pointer = format!("/resources/{which}");
    let of = |container: &Cursor<'_>| amounts(container.value, &pointer);
    let init = spec.items("initContainers");
    let init = init.iter().map(|container| (container.text("restartPolicy") == "Always", of(container)));
    peak(init, spec.items("containers").iter().map(of))
}
