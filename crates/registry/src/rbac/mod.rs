//! The group rbac.authorization.k8s.io.

use ferry_meta::{FieldError, FieldErrors, names, object};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::cells;
use crate::check;
use crate::cursor::{Cursor, Report, default_to, maps_mut, object_at};
use crate::internal;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Roles and ClusterRoles.
pub struct Role {
    pub plain: Plain,
    pub cluster: bool,
}

/// RoleBindings and ClusterRoleBindings.
pub struct Binding {
    pub plain: Plain,
    pub cluster: bool,
}

impl Strategy for Role {
    fn plain(&self) -> &Plain {
        &self.plain
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let role = Cursor::root(object);
        // Missing verbs are found by a later pass and so come last.
        let mut verbs = FieldErrors::new();
        for rule in role.items("rules") {
            if rule.array("verbs").is_empty() {
                verbs.required(rule.at("verbs"), "");
            }
            if !rule.array("nonResourceURLs").is_empty() {
                let mut refuse = |detail: &str| {
                    errors.invalid(rule.at("nonResourceURLs"), rule.raw("nonResourceURLs").clone(), detail);
                };
                if !self.cluster {
                    refuse("namespaced rules cannot apply to non-resource URLs");
                }
                if ["apiGroups", "resources", "resourceNames"].iter().any(|key| !rule.array(key).is_empty()) {
                    refuse("rules cannot apply to both regular resources and non-resource URLs");
                }
                continue;
            }
            if rule.array("apiGroups").is_empty() {
                errors.required(rule.at("apiGroups"), "resource rules must supply at least one api group");
            }
            if rule.array("resources").is_empty() {
                errors.required(rule.at("resources"), "resource rules must supply at least one resource");
            }
        }
        let aggregation = role.get("aggregationRule");
        if aggregation.exists() {
            let selectors = aggregation.items("clusterRoleSelectors");
            if selectors.is_empty() {
                let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
                errors.required(aggregation.at("clusterRoleSelectors"), detail);
            }
            for selector in &selectors {
                check::label_selector(&mut errors, selector);
                if !check::is_sound_selector(selector) {
                    errors.invalid(selector.path.clone(), Value::Null, "invalid label selector.");
                }
            }
        }
        errors.extend(verbs);
        errors
    }
}

impl Strategy for Binding {
    fn plain(&self) -> &Plain {
        &self.plain
    }

    fn default(&self, object: &mut Value) {
        default_to(object_at(object, &["roleRef"]), "apiGroup", GROUP);
        let none = &mut Map::new();
        for subject in maps_mut(object.as_object_mut().unwrap_or(none), "subjects") {
            if ["User", "Group"].contains(&subject.get("kind").and_then(Value::as_str).unwrap_or_default()) {
                default_to(subject, "apiGroup", GROUP);
            }
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        // Missing names are found by a later pass and so come last.
        let mut missing = FieldErrors::new();
        let binding = Cursor::root(object);
        let reference = binding.get("roleRef");
        if reference.text("apiGroup") != GROUP {
            errors.unsupported(reference.at("apiGroup"), reference.text("apiGroup"), &[GROUP]);
        }
        let kinds: &[&str] = if self.cluster { &["ClusterRole"] } else { &["Role", "ClusterRole"] };
        if !kinds.contains(&reference.text("kind")) {
            errors.unsupported(reference.at("kind"), reference.text("kind"), kinds);
        }
        let name = reference.text("name");
        if !name.is_empty() {
            errors.reasons(reference.at("name"), name, names::path_segment(name));
        }
        for subject in binding.items("subjects") {
            if subject.text("name").is_empty() {
                missing.required(subject.at("name"), "");
            }
            one_subject(&mut errors, &subject, self.cluster);
        }
        if name.is_empty() {
            missing.required(reference.at("name"), "");
        }
        errors.extend(missing);
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_create(context, object);
        let (new, old) = (Cursor::root(object).get("roleRef"), Cursor::root(old).get("roleRef"));
        if new.value != old.value {
            let error = FieldError::invalid(&new.path, new.value.clone(), crate::cursor::IMMUTABLE);
            errors.push(error.shown_as(internal::show("RoleRef", new.value)));
        }
        errors
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let binding = Cursor::root(object);
        let reference = binding.get("roleRef");
        let subjects = binding.items("subjects");
        let of = |kind: &str| {
            let named = subjects.iter().filter(|s| s.text("kind") == kind).map(|s| match kind {
                "ServiceAccount" => format!("{}/{}", s.text("namespace"), s.text("name")),
                _ => s.text("name").to_owned(),
            });
            named.collect::<Vec<_>>().join(", ")
        };
        vec![
            object::name(object).into(),
            format!("{}/{}", reference.text("kind"), reference.text("name")).into(),
            cells::age(object, now).into(),
            of("User").into(),
            of("Group").into(),
            of("ServiceAccount").into(),
        ]
    }
}

fn one_subject(errors: &mut FieldErrors, subject: &Cursor<'_>, cluster: bool) {
    let (name, group) = (subject.text("name"), subject.text("apiGroup"));
    match subject.text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.reasons(subject.at("name"), name, names::dns1123_subdomain(name));
            }
            if !group.is_empty() {
                errors.unsupported(subject.at("apiGroup"), group, &[""]);
            }
            if cluster && subject.text("namespace").is_empty() {
                errors.required(subject.at("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                errors.unsupported(subject.at("apiGroup"), group, &[GROUP]);
            }
        }
        other => errors.unsupported(subject.at("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}
