//! Validating and mutating webhook configurations.

use std::collections::HashSet;

use ferry_meta::{FieldErrors, names};
use serde_json::{Map, Value, json};

use super::reserved;
use super::rules::{self, enumerated};
use crate::check;
use crate::cursor::{Cursor, Report, default_absent, default_to, map_mut, maps_mut};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub use super::rules::{client_config, review_versions};

pub struct WebhookConfiguration {
    pub plain: Plain,
    pub mutating: bool,
}

impl Strategy for WebhookConfiguration {
    fn plain(&self) -> &Plain {
        &self.plain
    }

    fn default(&self, object: &mut Value) {
        let none = &mut Map::new();
        for hook in maps_mut(object.as_object_mut().unwrap_or(none), "webhooks") {
            default_absent(hook, "failurePolicy", "Fail");
            default_absent(hook, "matchPolicy", "Equivalent");
            default_to(hook, "namespaceSelector", json!({}));
            default_to(hook, "objectSelector", json!({}));
            default_to(hook, "timeoutSeconds", 10);
            if self.mutating {
                default_absent(hook, "reinvocationPolicy", "Never");
            }
            maps_mut(hook, "rules").for_each(rules::default_rule);
            if let Some(service) = map_mut(hook, "clientConfig").and_then(|config| map_mut(config, "service")) {
                default_to(service, "port", 443);
            }
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = self.hooks(object);
        reserved::name(&mut errors, object);
        errors
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        self.hooks(object)
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut found = reserved::name_warning(object, old);
        found.extend(reserved::rule_warnings(object));
        found
    }
}

impl WebhookConfiguration {
    fn hooks(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let mut seen: HashSet<&str> = HashSet::new();
        for hook in Cursor::root(object).items("webhooks") {
            self.one(&mut errors, &hook);
            let missing = "must specify one of v1, v1beta1";
            review_versions(&mut errors, &hook, "admissionReviewVersions", missing);
            let name = hook.text("name");
            if !name.is_empty() && seen.contains(&name) {
                errors.duplicate(hook.at("name"), name);
            }
            seen.insert(name);
        }
        errors
    }

    fn one(&self, errors: &mut FieldErrors, hook: &Cursor<'_>) {
        qualified_domain(errors, hook, "name");
        hook.items("rules").iter().for_each(|rule| rules::rule_with_operations(errors, rule));
        enumerated(errors, hook, "failurePolicy", &["Fail", "Ignore"]);
        enumerated(errors, hook, "matchPolicy", &["Equivalent", "Exact"]);
        if !hook.has("sideEffects") {
            errors.required(hook.at("sideEffects"), "must specify one of None, NoneOnDryRun");
        }
        enumerated(errors, hook, "sideEffects", &["None", "NoneOnDryRun"]);
        if let Some(seconds) = hook.int("timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
            let detail = "the timeout value must be between 1 and 30 seconds";
            errors.invalid(hook.at("timeoutSeconds"), seconds, detail);
        }
        check::label_selector(errors, &hook.get("namespaceSelector"));
        check::label_selector(errors, &hook.get("objectSelector"));
        if self.mutating {
            enumerated(errors, hook, "reinvocationPolicy", &["IfNeeded", "Never"]);
        }
        client_config(errors, &hook.get("clientConfig"));
        rules::match_conditions(errors, hook, false);
    }
}

fn qualified_domain(errors: &mut FieldErrors, parent: &Cursor<'_>, key: &str) {
    let name = parent.text(key);
    let reasons = names::dns1123_subdomain(name);
    if name.is_empty() {
        errors.required(parent.at(key), "");
    } else if !reasons.is_empty() {
        errors.invalid(parent.at(key), name, reasons.join(","));
    } else if name.split('.').count() < 3 {
        let detail = "should be a domain with at least three segments separated by dots";
        errors.invalid(parent.at(key), name, detail);
    }
}
