//! Which requests a webhook or policy sees, and how a webhook is reached.

use std::collections::HashSet;

use ferry_cel::Type;
use ferry_cel::admission::{self, Scope};
use ferry_meta::{FieldError, FieldErrors, Path, names};
use serde_json::{Map, Value, json};

use crate::cursor::{Cursor, Report, default_absent, default_to, map_mut, maps_mut};

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

pub(super) fn default_rule(rule: &mut Map<String, Value>) {
    default_absent(rule, "scope", "*");
}

/// The defaults of what a policy or binding matches.
pub(super) fn default_match(parent: &mut Map<String, Value>, key: &str) {
    let Some(resources) = map_mut(parent, key) else { return };
    default_absent(resources, "matchPolicy", "Equivalent");
    default_to(resources, "namespaceSelector", json!({}));
    default_to(resources, "objectSelector", json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        maps_mut(resources, list).for_each(default_rule);
    }
}

pub(super) fn enumerated(errors: &mut FieldErrors, parent: &Cursor<'_>, key: &str, values: &[&str]) {
    if let Some(value) = parent.raw(key).as_str().filter(|value| !values.contains(value)) {
        errors.unsupported(parent.at(key), value, values);
    }
}

fn alone(errors: &mut FieldErrors, rule: &Cursor<'_>, key: &str, what: &str) {
    if rule.array(key).len() > 1 && rule.texts(key).any(|value| value == "*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.invalid(rule.at(key), rule.raw(key).clone(), detail);
    }
}

pub(super) fn rule_with_operations(errors: &mut FieldErrors, rule: &Cursor<'_>) {
    if rule.array("operations").is_empty() {
        errors.required(rule.at("operations"), "");
    }
    alone(errors, rule, "operations", "operations");
    for operation in rule.items("operations").iter().filter(|o| !OPERATIONS.contains(&o.as_text())) {
        errors.unsupported(operation.path.clone(), operation.as_text(), &OPERATIONS);
    }
    for (key, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        if rule.array(key).is_empty() {
            errors.required(rule.at(key), "");
        }
        alone(errors, rule, key, what);
    }
    for version in rule.items("apiVersions").iter().filter(|version| version.as_text().is_empty()) {
        errors.required(version.path.clone(), "");
    }
    resources(errors, rule);
    enumerated(errors, rule, "scope", &["*", "Cluster", "Namespaced"]);
}

fn resources(errors: &mut FieldErrors, rule: &Cursor<'_>) {
    let items = rule.items("resources");
    if items.is_empty() {
        errors.required(rule.at("resources"), "");
    }
    let (mut all_below, mut below_all): (HashSet<&str>, HashSet<&str>) = (HashSet::new(), HashSet::new());
    let mut plain = false;
    for item in &items {
        let text = item.as_text();
        if text.is_empty() {
            errors.required(item.path.clone(), "");
            continue;
        }
        let Some((resource, sub)) = text.split_once('/') else {
            plain = text != "*";
            continue;
        };
        if all_below.contains(&resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {text}");
            errors.invalid(item.path.clone(), text, detail);
        }
        if below_all.contains(&sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {text}");
            errors.invalid(item.path.clone(), text, detail);
        }
        if sub == "*" {
            all_below.insert(resource);
        }
        if resource == "*" {
            below_all.insert(sub);
        }
    }
    let has = |text: &str| items.iter().any(|item| item.as_text() == text);
    let list = || rule.raw("resources").clone();
    if items.len() > 1 && has("*/*") {
        errors.invalid(rule.at("resources"), list(), "if '*/*' is present, must not specify other resources");
    }
    if has("*") && plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(rule.at("resources"), list(), detail);
    }
}

/// An expression that has to compile and give one of the types.
pub(super) fn expression(errors: &mut FieldErrors, path: Path, scope: &Scope, text: &str, wanted: &[Type]) {
    if let Err(error) = admission::compile(scope, text, wanted) {
        errors.invalid(path, text, error);
    }
}

/// Conditions under which a webhook or policy is asked at all; `params` tells whether they see parameters.
pub(super) fn match_conditions(errors: &mut FieldErrors, parent: &Cursor<'_>, params: bool) {
    let scope = Scope { params, authorizer: true, ..Scope::default() };
    let conditions = parent.items("matchConditions");
    if conditions.len() > 64 {
        errors.push(FieldError::too_many(&parent.at("matchConditions"), conditions.len(), 64));
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for condition in conditions {
        match condition.text("expression").trim() {
            "" => errors.required(condition.at("expression"), ""),
            text => expression(errors, condition.at("expression"), &scope, text, &[Type::Bool]),
        }
        let name = condition.text("name");
        errors.named(condition.at("name"), name, names::qualified_name);
        if !name.is_empty() && seen.contains(&name) {
            errors.duplicate(condition.at("name"), name);
        }
        seen.insert(name);
    }
}

/// Where a webhook is: an address or a Service, not both.
pub fn client_config(errors: &mut FieldErrors, config: &Cursor<'_>) {
    let service = config.get("service");
    match (config.raw("url").as_str(), service.exists()) {
        (Some(url), false) => address(errors, config, url),
        (None, true) => self::service(errors, &service),
        _ => errors.required(config.path.clone(), "exactly one of url or service is required"),
    }
}

fn address(errors: &mut FieldErrors, config: &Cursor<'_>, url: &str) {
    const FORM: &str = "; desired format: https://host[/path]";
    let path = || config.at("url");
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        errors.invalid(path(), scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if host.is_empty() {
        errors.invalid(path(), host, format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        errors.invalid(path(), user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(path(), fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(path(), query, "query parameters are not permitted in the URL");
    }
}

fn service(errors: &mut FieldErrors, service: &Cursor<'_>) {
    // Upstream hands the two over in the wrong order, so that each is missed under the other's name.
    for (key, shown) in [("namespace", "name"), ("name", "namespace")] {
        if service.text(key).is_empty() {
            errors.required(service.at(shown), "");
        }
    }
    let reasons = names::port_number(service.number("port"));
    if !reasons.is_empty() {
        let detail = format!("port is not valid: {}", reasons.join(", "));
        errors.invalid(service.at("port"), service.number("port"), detail);
    }
    let text = service.text("path");
    let path = || service.at("path");
    match text {
        "" | "/" => return,
        "//" => return errors.invalid(path(), text, "segment[0] may not be empty"),
        _ => {}
    }
    if !text.starts_with('/') {
        errors.invalid(path(), text, "must start with a '/'");
    }
    let inner = text.get(1..).unwrap_or_default();
    for (index, step) in inner.strip_suffix('/').unwrap_or(inner).split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(path(), text, format!("segment[{index}] may not be empty"));
            continue;
        }
        for reason in names::dns1123_subdomain(step) {
            errors.invalid(path(), text, format!("segment[{index}]: {reason}"));
        }
    }
}

/// Versions of a review a webhook understands.
pub fn review_versions(errors: &mut FieldErrors, parent: &Cursor<'_>, key: &str, missing: &str) {
    let versions = parent.items(key);
    if versions.is_empty() {
        return errors.required(parent.at(key), missing);
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for version in &versions {
        let text = version.as_text();
        if seen.contains(&text) {
            errors.invalid(version.path.clone(), text, "duplicate version");
            continue;
        }
        seen.insert(text);
        errors.reasons(version.path.clone(), text, names::dns1035_label(text));
    }
    if !seen.iter().any(|version| ["v1", "v1beta1"].contains(version)) {
        errors.invalid(parent.at(key), parent.raw(key).clone(), "must include at least one of v1, v1beta1");
    }
}
