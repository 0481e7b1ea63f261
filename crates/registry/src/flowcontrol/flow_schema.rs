//! FlowSchemas: which requests belong to which priority level.

use ferry_meta::{FieldError, FieldErrors, names, object};
use serde_json::{Value, json};

use super::conditions;
use crate::cursor::{Cursor, Report, default_number, object_at};
use crate::internal;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common, label_name, subdomain_name};

pub struct FlowSchema(pub Plain);

const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const LAST_PRECEDENCE: i64 = 10_000;

impl Strategy for FlowSchema {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::prepare_update(self.has_status(), self.has_generation(), context, object, old);
        if context.subresource == "status" {
            common::keep_all_metadata(object, old);
        }
    }

    fn default(&self, object: &mut Value) {
        default_number(object_at(object, &["spec"]), "matchingPrecedence", 1000);
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let name = object::name(object);
        let schema = Cursor::root(object);
        let spec = schema.get("spec");
        validate(&mut errors, &spec, name);
        if fixed(name).is_some_and(|fixed| fixed != *spec.value) {
            let detail = format!("spec of '{name}' must equal the fixed value");
            let error = FieldError::invalid(&spec.path, spec.value.clone(), detail);
            errors.push(error.shown_as(internal::show("FlowSchemaSpec", spec.value)));
        }
        conditions(&mut errors, &schema.get("status"), "must not be empty");
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        if context.subresource.is_empty() {
            return self.validate_create(context, object);
        }
        let _ = old;
        let mut errors = FieldErrors::new();
        conditions(&mut errors, &Cursor::root(object).get("status"), "");
        errors
    }

    fn reset_fields(&self, subresource: &str) -> Vec<&'static str> {
        if subresource.is_empty() { vec!["status"] } else { vec!["metadata", "spec"] }
    }
}

/// Two schemas catch what must never be left out.
fn fixed(name: &str) -> Option<Value> {
    let everything = |subjects: Value| {
        json!([{
            "subjects": subjects,
            "resourceRules": [{
                "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"],
            }],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }])
    };
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    match name {
        "exempt" => Some(json!({
            "priorityLevelConfiguration": {"name": "exempt"},
            "matchingPrecedence": 1,
            "rules": everything(json!([group("system:masters")])),
        })),
        "catch-all" => Some(json!({
            "priorityLevelConfiguration": {"name": "catch-all"},
            "matchingPrecedence": LAST_PRECEDENCE,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": everything(json!([group("system:unauthenticated"), group("system:authenticated")])),
        })),
        _ => None,
    }
}

fn validate(errors: &mut FieldErrors, spec: &Cursor<'_>, name: &str) {
    let precedence = spec.number("matchingPrecedence");
    let mut refuse = |detail: String| errors.invalid(spec.at("matchingPrecedence"), precedence, detail);
    if precedence <= 0 {
        refuse("must be a positive value".to_owned());
    }
    if precedence > LAST_PRECEDENCE {
        refuse(format!("must not be greater than {LAST_PRECEDENCE}"));
    }
    if precedence == 1 && name != "exempt" {
        refuse("only the schema named 'exempt' may have matchingPrecedence 1".to_owned());
    }
    let method = spec.get("distinguisherMethod");
    if method.exists() && !["ByNamespace", "ByUser"].contains(&method.text("type")) {
        let error = FieldError::not_supported(&method.at("type"), method.value.clone(), &["ByNamespace", "ByUser"]);
        errors.push(error.shown_as(json!({"Type": method.text("type")}).to_string()));
    }
    let level = spec.get("priorityLevelConfiguration");
    match level.text("name") {
        "" => errors.required(level.at("name"), "must reference a priority level"),
        name => errors.reasons(level.at("name"), name, subdomain_name(name, false)),
    }
    for rule in spec.items("rules") {
        let subjects = rule.items("subjects");
        if subjects.is_empty() {
            errors.required(rule.at("subjects"), "subjects must contain at least one value");
        }
        for subject in subjects {
            one_subject(errors, &subject);
        }
        let (resources, others) = (rule.items("resourceRules"), rule.items("nonResourceRules"));
        if resources.is_empty() && others.is_empty() {
            let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
            errors.required(rule.path.clone(), detail);
        }
        for rule in resources {
            resource_rule(errors, &rule);
        }
        for rule in others {
            verbs(errors, &rule);
            paths(errors, &rule);
        }
    }
}

fn one_subject(errors: &mut FieldErrors, subject: &Cursor<'_>) {
    const KINDS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.text("kind");
    let Some((_, own)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        return errors.unsupported(subject.at("kind"), kind, &["Group", "ServiceAccount", "User"]);
    };
    let at = subject.get(own);
    if !at.exists() {
        errors.required(at.path.clone(), &format!("{own} is required when subject kind is '{kind}'"));
    } else {
        let name = at.text("name");
        if name.is_empty() {
            errors.required(at.at("name"), "");
        } else if kind == "ServiceAccount" && name != "*" {
            errors.reasons(at.at("name"), name, subdomain_name(name, false));
        }
        if kind == "ServiceAccount" {
            match at.text("namespace") {
                "" => errors.required(at.at("namespace"), "must specify namespace for service account"),
                namespace => errors.reasons(at.at("namespace"), namespace, label_name(namespace, false)),
            }
        }
    }
    // Upstream names the others in this order, whichever of them is its own.
    let others: [&str; 2] = match kind {
        "ServiceAccount" => ["user", "group"],
        "User" => ["serviceAccount", "group"],
        _ => ["serviceAccount", "user"],
    };
    for other in others.into_iter().filter(|other| subject.has(other)) {
        let needs = KINDS.iter().find(|(_, key)| *key == other).map_or("", |(kind, _)| *kind);
        errors.forbidden(subject.at(other), format!("{other} is forbidden when subject kind is not '{needs}'"));
    }
}

/// Whether a list is just `*`; an error when `*` stands among others.
fn alone(errors: &mut FieldErrors, rule: &Cursor<'_>, key: &str, others: &str) -> bool {
    if !rule.texts(key).any(|text| text == "*") {
        return false;
    }
    if rule.array(key).len() > 1 {
        let detail = format!("if '*' is present, must not specify other {others}");
        errors.invalid(rule.at(key), rule.raw(key).clone(), detail);
    }
    true
}

fn verbs(errors: &mut FieldErrors, rule: &Cursor<'_>) {
    if rule.array("verbs").is_empty() {
        errors.required(rule.at("verbs"), "verbs must contain at least one value");
    } else if !alone(errors, rule, "verbs", "verbs") && rule.texts("verbs").any(|verb| !VERBS.contains(&verb)) {
        errors.unsupported(rule.at("verbs"), rule.raw("verbs").clone(), &VERBS);
    }
}

fn paths(errors: &mut FieldErrors, rule: &Cursor<'_>) {
    let key = "nonResourceURLs";
    if rule.array(key).is_empty() {
        return errors.required(rule.at(key), "nonResourceURLs must contain at least one value");
    }
    if alone(errors, rule, key, "non-resource URLs") {
        return;
    }
    for path in rule.items(key) {
        let text = path.as_text();
        let stars = text.matches('*').count();
        let why = if text.is_empty() {
            "must not be empty"
        } else if text == "/" {
            continue;
        } else if !text.starts_with('/') {
            "must start with slash"
        } else if text.contains(' ') {
            "must not contain white-space"
        } else if text.contains("//") {
            "must not contain double slash"
        } else if stars > 1 || (stars == 1 && !text.ends_with("/*")) {
            "wildcard can only do suffix matching"
        } else {
            continue;
        };
        errors.invalid(path.path.clone(), text, why);
    }
}

fn resource_rule(errors: &mut FieldErrors, rule: &Cursor<'_>) {
    verbs(errors, rule);
    for (key, one, others) in [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")] {
        if rule.array(key).is_empty() {
            errors.required(rule.at(key), &format!("resource rules must supply at least one {one}"));
        } else {
            alone(errors, rule, key, others);
        }
    }
    if rule.array("namespaces").is_empty() && !rule.is_true("clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(rule.at("namespaces"), detail);
    } else if !alone(errors, rule, "namespaces", "namespaces") {
        for namespace in rule.items("namespaces") {
            for reason in names::dns1123_label(namespace.as_text()) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {reason}");
                errors.invalid(namespace.path.clone(), namespace.as_text(), detail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_judged() {
        let check = |spec: Value, want: &[&str]| {
            let mut errors = FieldErrors::new();
            validate(&mut errors, &Cursor::new(&spec, ferry_meta::Path::new("spec")), "a");
            let lines: Vec<String> = errors.iter().map(FieldError::line).collect();
            assert_eq!(lines, want);
        };
        check(
            json!({"matchingPrecedence": 1, "priorityLevelConfiguration": {}, "rules": [{"subjects": [{"kind": "User"}]}]}),
            &[
                "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
                "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
                "spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'",
                "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty",
            ],
        );
        let exempt = fixed("exempt").unwrap_or_default();
        let mut errors = FieldErrors::new();
        validate(&mut errors, &Cursor::new(&exempt, ferry_meta::Path::new("spec")), "exempt");
        assert!(errors.is_empty(), "{errors:?}");
    }
}
