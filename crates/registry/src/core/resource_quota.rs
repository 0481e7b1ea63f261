//! ResourceQuotas.

use ferry_meta::{FieldError, FieldErrors, Path, object};
use jiff::Timestamp;
use serde_json::Value;

use super::pod::{resource_list, resources};
use crate::cells;
use crate::cursor::{Cursor, IMMUTABLE, Report, object_at};
use crate::internal;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct ResourceQuota(pub Plain);

const COMPUTE: [&str; 6] = ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
const OTHERS: [&str; 13] = [
    "ephemeral-storage",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

fn is_standard(name: &str) -> bool {
    COMPUTE.contains(&name)
        || OTHERS.contains(&name)
        || resources::is_huge_pages(name)
        || name.starts_with("requests.hugepages-")
}

fn scope_fits(scope: &str, name: &str) -> bool {
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            name == "pods" || COMPUTE.contains(&name)
        }
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&name),
        _ => true,
    }
}

fn amounts(errors: &mut FieldErrors, parent: &Cursor<'_>, list: &str) {
    for (name, at) in parent.entries(list) {
        resources::any_name(errors, &at.path, name);
        if !name.contains('/') && !is_standard(name) {
            errors.invalid(at.path.clone(), name, "must be a standard resource for quota");
        }
        resources::amount(errors, &at.path, name, &at.as_quantity().unwrap_or_default());
    }
}

fn conflicting(errors: &mut FieldErrors, path: &Path, value: &Value, scopes: &[&str]) {
    for pair in [["BestEffort", "NotBestEffort"], ["NotTerminating", "Terminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid(path.clone(), value.clone(), "conflicting scopes");
        }
    }
}

fn validate_spec(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    amounts(errors, spec, "hard");
    let hard: Vec<&str> = spec.map("hard").keys().map(String::as_str).filter(|name| is_standard(name)).collect();
    let scopes: Vec<&str> = spec.texts("scopes").collect();
    let path = spec.at("scopes");
    for scope in &scopes {
        // All scopes are shown each time.
        if errors.is_full() {
            break;
        }
        if !SCOPES.contains(scope) {
            errors.invalid(path.clone(), spec.raw("scopes").clone(), "unsupported scope");
        }
        for _ in hard.iter().filter(|name| !scope_fits(scope, name)) {
            errors.invalid(path.clone(), spec.raw("scopes").clone(), "unsupported scope applied to resource");
        }
    }
    conflicting(errors, &path, spec.raw("scopes"), &scopes);
    let selector = spec.get("scopeSelector");
    let path = selector.at("matchExpressions");
    let mut selected: Vec<&str> = Vec::new();
    for requirement in selector.items("matchExpressions") {
        if errors.is_full() {
            break;
        }
        let (scope, operator) = (requirement.text("scopeName"), requirement.text("operator"));
        if !SCOPES.contains(&scope) {
            errors.invalid(path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in hard.iter().filter(|name| !scope_fits(scope, name)) {
            let error = FieldError::invalid(&path, selector.value.clone(), "unsupported scope applied to resource");
            errors.push(error.shown_as(internal::show("ScopeSelector", selector.value)));
        }
        let plain = SCOPES.contains(&scope) && !["PriorityClass", "VolumeAttributesClass"].contains(&scope);
        if plain && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(path.child("operator"), operator, detail);
        }
        let values = requirement.array("values");
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(path.child("values"), detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(path.child("values"), values.to_vec(), detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
        }
        selected.push(scope);
    }
    conflicting(errors, &path, spec.raw("scopes"), &selected);
}

/// Requests that may be more in all than limits: the rest of them is never had.
fn requests_above_limits(hard: &Cursor<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for resource in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let (requests, limits) = (format!("requests.{resource}"), format!("limits.{resource}"));
        let requests = match resource {
            "cpu" | "memory" if !hard.has(&requests) => resource,
            _ => requests.as_str(),
        };
        if let (Some(request), Some(limit)) = (hard.quantity(requests), hard.quantity(&limits))
            && request > limit
        {
            found.push(format!("ResourceQuota {requests} ({request}) should be less than {limits} ({limit})"));
        }
    }
    found
}

impl Strategy for ResourceQuota {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        resource_list(object_at(object, &["spec"]), "hard");
        let status = object_at(object, &["status"]);
        resource_list(status, "hard");
        resource_list(status, "used");
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate_spec(&mut errors, &Cursor::root(object).get("spec"));
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let quota = Cursor::root(object);
        if context.subresource == "status" {
            amounts(&mut errors, &quota.get("status"), "hard");
            amounts(&mut errors, &quota.get("status"), "used");
            return errors;
        }
        let spec = quota.get("spec");
        validate_spec(&mut errors, &spec);
        let sorted = |at: &Cursor<'_>| {
            let mut scopes: Vec<String> = at.texts("scopes").map(str::to_owned).collect();
            scopes.sort();
            scopes.dedup();
            scopes
        };
        if sorted(&spec) != sorted(&Cursor::root(old).get("spec")) {
            errors.invalid(spec.at("scopes"), spec.raw("scopes").clone(), IMMUTABLE);
        }
        errors
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_some() { Vec::new() } else { requests_above_limits(&Cursor::root(object).get("spec").get("hard")) }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let status = Cursor::root(object).get("status");
        let column = |limits: bool| {
            let names = status.map("hard").keys().filter(|name| name.starts_with("limits.") == limits);
            let texts = names.map(|name| {
                let amount = |list: &str| status.get(list).quantity(name).unwrap_or_default();
                format!("{name}: {}/{}", amount("used"), amount("hard"))
            });
            texts.collect::<Vec<_>>().join(", ")
        };
        vec![object::name(object).into(), column(false).into(), column(true).into(), cells::age(object, now).into()]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_above_limits_are_doubtful() {
        let of = |hard: Value| requests_above_limits(&Cursor::root(&hard));
        assert_eq!(
            of(json!({"requests.cpu": "2", "cpu": "9", "limits.cpu": "1500m", "memory": "2Gi", "limits.memory": "1Gi",
                "requests.ephemeral-storage": "2", "limits.ephemeral-storage": "1"})),
            [
                "ResourceQuota requests.cpu (2) should be less than limits.cpu (1500m)",
                "ResourceQuota memory (2Gi) should be less than limits.memory (1Gi)",
                "ResourceQuota requests.ephemeral-storage (2) should be less than limits.ephemeral-storage (1)",
            ]
        );
        assert_eq!(
            of(json!({"cpu": "1", "limits.cpu": "1", "storage": "2", "limits.storage": "1"})),
            [] as [String; 0]
        );
    }
}
