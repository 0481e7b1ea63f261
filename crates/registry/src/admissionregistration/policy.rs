//! Admission policies and their bindings.

use std::collections::HashSet;

use ferry_cel::Type;
use ferry_cel::admission::{self, Scope};
use ferry_meta::{FieldError, FieldErrors, GroupVersion, names};
use serde_json::Value;

use super::reserved;
use super::rules::{self, enumerated};
use crate::check;
use crate::cursor::{Cursor, Report, default_absent, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct Policy {
    pub plain: Plain,
    pub mutating: bool,
}

pub struct PolicyBinding {
    pub plain: Plain,
    pub mutating: bool,
}

const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

impl Strategy for Policy {
    fn plain(&self) -> &Plain {
        &self.plain
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        default_absent(spec, "failurePolicy", "Fail");
        rules::default_match(spec, "matchConstraints");
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        if context.subresource.is_empty() {
            return self.errors(object);
        }
        let mut errors = FieldErrors::new();
        let status = Cursor::root(object).get("status");
        for warning in status.get("typeChecking").items("expressionWarnings") {
            for key in ["warning", "fieldRef"].into_iter().filter(|key| warning.text(key).is_empty()) {
                errors.required(warning.at(key), "");
            }
        }
        check::conditions(&mut errors, &status, "conditions");
        errors
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = self.errors(object);
        reserved::name(&mut errors, object);
        errors
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        reserved::name_warning(object, old)
    }
}

impl Policy {
    fn errors(&self, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let policy = Cursor::root(object);
        let spec = policy.get("spec");
        enumerated(&mut errors, &spec, "failurePolicy", &["Fail", "Ignore"]);
        param_kind(&mut errors, &spec.get("paramKind"));
        let constraints = spec.get("matchConstraints");
        if constraints.exists() {
            matching(&mut errors, &constraints);
            if constraints.array("resourceRules").is_empty() {
                errors.required(constraints.at("resourceRules"), "");
            }
            if self.mutating {
                only_writes(&mut errors, &constraints);
            }
        } else {
            errors.required(constraints.path, "");
        }
        let params = spec.has("paramKind");
        rules::match_conditions(&mut errors, &spec, params);
        let scope = Scope { params, authorizer: true, ..Scope::default() };
        let scope = variables(&mut errors, &spec, scope, self.mutating);
        if self.mutating {
            mutations(&mut errors, &spec, &Scope { mutating: true, ..scope });
        } else {
            validations(&mut errors, &policy, &spec, &scope);
        }
        errors
    }
}

fn param_kind(errors: &mut FieldErrors, kind: &Cursor<'_>) {
    if !kind.exists() {
        return;
    }
    let version = kind.text("apiVersion");
    match GroupVersion::parse(version) {
        _ if version.is_empty() => errors.required(kind.at("apiVersion"), ""),
        None => {
            let detail = format!("unexpected GroupVersion string: {version}");
            errors.invalid(kind.at("apiVersion"), version, detail);
        }
        Some(parsed) => {
            let reasons = names::dns1123_subdomain(&parsed.group);
            if !parsed.group.is_empty() && !reasons.is_empty() {
                errors.invalid(kind.at("apiVersion"), parsed.group.as_str(), reasons.join(","));
            }
            let reasons = names::dns1035_label(&parsed.version);
            if parsed.version.is_empty() {
                errors.invalid(kind.at("apiVersion"), version, "version must be specified");
            } else if !reasons.is_empty() {
                errors.invalid(kind.at("apiVersion"), parsed.version.as_str(), reasons.join(","));
            }
        }
    }
    let text = kind.text("kind");
    let reasons = names::dns1035_label(&text.to_lowercase());
    if text.is_empty() {
        errors.required(kind.at("kind"), "");
    } else if !reasons.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", reasons.join(","));
        errors.invalid(kind.at("kind"), text, detail);
    }
}

fn matching(errors: &mut FieldErrors, resources: &Cursor<'_>) {
    let policies = ["Equivalent", "Exact"];
    match resources.raw("matchPolicy").as_str() {
        None => errors.required(resources.at("matchPolicy"), ""),
        Some(policy) if !policies.contains(&policy) => {
            errors.unsupported(resources.at("matchPolicy"), policy, &policies);
        }
        Some(_) => {}
    }
    check::label_selector(errors, &resources.get("namespaceSelector"));
    check::label_selector(errors, &resources.get("objectSelector"));
    for rule in ["resourceRules", "excludeResourceRules"].iter().flat_map(|list| resources.items(list)) {
        let mut seen: HashSet<&str> = HashSet::new();
        for name in rule.items("resourceNames") {
            errors.reasons(name.path.clone(), name.as_text(), names::path_segment(name.as_text()));
            if seen.contains(&name.as_text()) {
                errors.duplicate(name.path.clone(), name.as_text());
            }
            seen.insert(name.as_text());
        }
        rules::rule_with_operations(errors, &rule);
    }
}

fn only_writes(errors: &mut FieldErrors, resources: &Cursor<'_>) {
    let path = resources.at("resourceRules").child("operations");
    for rule in resources.items("resourceRules") {
        for operation in rule.texts("operations").filter(|o| !MUTATING_OPERATIONS.contains(o)) {
            errors.unsupported(path.clone(), operation, &MUTATING_OPERATIONS);
        }
    }
}

/// More expressions are not compiled: each takes all variables into account.
const MOST: usize = 1000;

fn few(errors: &mut FieldErrors, spec: &Cursor<'_>, list: &str) -> bool {
    let count = spec.array(list).len();
    if count > MOST {
        errors.push(FieldError::too_many(&spec.at(list), count, MOST));
    }
    count <= MOST
}

/// Each variable sees those before it; the scope in which all are known.
fn variables(errors: &mut FieldErrors, spec: &Cursor<'_>, mut scope: Scope, always: bool) -> Scope {
    let list = spec.items("variables");
    if always || !list.is_empty() {
        scope.variables = Some(Vec::new());
    }
    if !few(errors, spec, "variables") {
        return scope;
    }
    for variable in list {
        let name = variable.text("name");
        if name.trim().is_empty() {
            errors.required(variable.at("name"), "name is not specified");
        } else if !names::c_identifier(name).is_empty() || ferry_cel::RESERVED.contains(&name) {
            errors.invalid(variable.at("name"), name, "must be a valid CEL identifier");
        }
        let text = variable.text("expression");
        if text.trim().is_empty() {
            errors.required(variable.at("expression"), "expression is not specified");
            continue;
        }
        let ty = match admission::compile(&scope, text, &[]) {
            Ok(program) => admission::variable_type(program.result()),
            Err(error) => {
                errors.invalid(variable.at("expression"), text, error);
                Type::Dyn
            }
        };
        if let Some(known) = &mut scope.variables {
            known.push((name.to_owned(), ty));
        }
    }
    scope
}

fn validations(errors: &mut FieldErrors, policy: &Cursor<'_>, spec: &Cursor<'_>, scope: &Scope) {
    let quiet = Scope { authorizer: false, ..scope.clone() };
    let (checks, audits) = (spec.items("validations"), spec.items("auditAnnotations"));
    if checks.is_empty() && audits.is_empty() {
        for key in ["validations", "auditAnnotations"] {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.required(spec.at(key), detail);
        }
    }
    if !few(errors, spec, "validations") || !few(errors, spec, "auditAnnotations") {
        return;
    }
    for check in checks {
        match check.text("expression") {
            text if text.trim().is_empty() => errors.required(check.at("expression"), "expression is not specified"),
            text => rules::expression(errors, check.at("expression"), scope, text, &[Type::Bool]),
        }
        for key in ["messageExpression", "message"] {
            let text = check.text(key);
            if !text.is_empty() && text.trim().is_empty() {
                errors.invalid(check.at(key), text, "must be non-empty if specified");
            } else if key == "messageExpression" && !text.is_empty() {
                rules::expression(errors, check.at(key), &quiet, text, &[Type::String]);
            } else if key == "message" && text.trim().contains(['\n', '\r']) {
                errors.invalid(check.at(key), text, "must not contain line breaks");
            }
        }
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        enumerated(errors, &check, "reason", &reasons);
    }
    if audits.len() > 20 {
        let detail = "must not have more than 20 auditAnnotations";
        errors.invalid(spec.at("auditAnnotations"), spec.raw("auditAnnotations").clone(), detail);
    }
    let name = policy.get("metadata").text("name");
    let mut seen: HashSet<&str> = HashSet::new();
    for audit in audits {
        let key = audit.text("key");
        let whole = format!("{name}/{key}");
        if name.is_empty() {
            errors.invalid(audit.at("key"), key, "requires metadata.name be non-empty");
        } else {
            errors.reasons(audit.at("key"), &whole, names::qualified_name(&whole));
        }
        let expression = audit.text("valueExpression").trim();
        if expression.is_empty() {
            errors.required(audit.at("valueExpression"), "valueExpression is not specified");
        } else if expression.len() > 5 * 1024 {
            errors.required(audit.at("valueExpression"), "must not exceed 5120 bytes in length");
        } else {
            rules::expression(errors, audit.at("valueExpression"), scope, expression, &[Type::String, Type::Null]);
        }
        if seen.contains(&key) {
            errors.duplicate(audit.at("key"), key);
        }
        seen.insert(key);
    }
}

fn mutations(errors: &mut FieldErrors, spec: &Cursor<'_>, scope: &Scope) {
    let list = spec.items("mutations");
    if list.is_empty() {
        errors.required(spec.at("mutations"), "mutations must contain at least one item");
    }
    if !few(errors, spec, "mutations") {
        return;
    }
    for mutation in list {
        let kinds = [("JSONPatch", "jsonPatch"), ("ApplyConfiguration", "applyConfiguration")];
        let kind = mutation.text("patchType");
        let Some((_, own)) = kinds.iter().find(|(name, _)| *name == kind) else {
            errors.one_of(mutation.at("patchType"), kind, &["ApplyConfiguration", "JSONPatch"]);
            continue;
        };
        // What it should have is looked at before what it should not.
        let other = kinds.iter().filter(|(name, _)| *name != kind).map(|(_, key)| *key);
        for key in std::iter::once(*own).chain(other) {
            let part = mutation.get(key);
            match (key == *own, part.exists()) {
                (true, false) => errors.required(part.path, &format!("must be specified when patchType is {kind}")),
                (true, true) => {
                    let wanted = if key == "jsonPatch" { admission::patch_type() } else { admission::object_type() };
                    match part.text("expression").trim() {
                        "" => errors.required(part.at("expression"), ""),
                        text => rules::expression(errors, part.at("expression"), scope, text, &[wanted]),
                    }
                }
                (false, true) => {
                    let detail = format!("must not be specified when patchType is {kind}");
                    errors.invalid(part.path, format!("{{{key}}}"), detail);
                }
                _ => {}
            }
        }
    }
    errors.one_of(spec.at("reinvocationPolicy"), spec.text("reinvocationPolicy"), &["IfNeeded", "Never"]);
}

impl Strategy for PolicyBinding {
    fn plain(&self) -> &Plain {
        &self.plain
    }

    fn default(&self, object: &mut Value) {
        rules::default_match(object_at(object, &["spec"]), "matchResources");
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let (mut errors, missing) = self.errors(object);
        reserved::name(&mut errors, object);
        errors.extend(missing);
        errors
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        let (mut errors, missing) = self.errors(object);
        errors.extend(missing);
        errors
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        reserved::name_warning(object, old)
    }
}

impl PolicyBinding {
    /// What is wrong with a binding, and what the later pass finds.
    fn errors(&self, object: &Value) -> (FieldErrors, FieldErrors) {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        // What is missing altogether is found by a later pass.
        let mut missing = FieldErrors::new();
        let name = spec.text("policyName");
        if name.is_empty() {
            let pass = if self.mutating { &mut errors } else { &mut missing };
            pass.required(spec.at("policyName"), "");
        } else {
            errors.reasons(spec.at("policyName"), name, names::dns1123_subdomain(name));
        }
        param_reference(&mut errors, &spec.get("paramRef"));
        let resources = spec.get("matchResources");
        if resources.exists() {
            matching(&mut errors, &resources);
            if self.mutating {
                only_writes(&mut errors, &resources);
            }
        }
        if !self.mutating {
            actions(&mut errors, &mut missing, &spec);
        }
        (errors, missing)
    }
}

fn param_reference(errors: &mut FieldErrors, reference: &Cursor<'_>) {
    if !reference.exists() {
        return;
    }
    let (name, selector) = (reference.text("name"), reference.get("selector"));
    let exclusive = "name and selector are mutually exclusive";
    if !name.is_empty() {
        errors.reasons(reference.at("name"), name, names::path_segment(name));
        if selector.exists() {
            errors.forbidden(reference.at("name"), exclusive);
        }
    }
    if selector.exists() {
        check::label_selector(errors, &selector);
        if !name.is_empty() {
            errors.forbidden(selector.path.clone(), exclusive);
        }
    } else if name.is_empty() {
        errors.required(reference.path.clone(), "one of name or selector must be specified");
    }
    let action = "parameterNotFoundAction";
    errors.one_of(reference.at(action), reference.text(action), &["Deny", "Allow"]);
}

fn actions(errors: &mut FieldErrors, missing: &mut FieldErrors, spec: &Cursor<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for action in spec.items("validationActions") {
        let text = action.as_text();
        if !["Audit", "Deny", "Warn"].contains(&text) {
            errors.unsupported(action.path.clone(), text, &["Audit", "Deny", "Warn"]);
        }
        if seen.contains(&text) {
            errors.duplicate(action.path.clone(), text);
        }
        seen.insert(text);
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.invalid(spec.at("validationActions"), spec.raw("validationActions").clone(), detail);
    }
    if seen.is_empty() {
        missing.required(spec.at("validationActions"), "");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_of_cel_are_no_names_of_variables() {
        for (name, wanted) in [
            ("replicas", ""),
            ("namespaced", ""),
            ("namespace", "must be a valid CEL identifier"),
            ("true", "must be a valid CEL identifier"),
            ("a-b", "must be a valid CEL identifier"),
        ] {
            let spec = json!({"variables": [{"name": name, "expression": "1"}]});
            let mut errors = FieldErrors::new();
            variables(&mut errors, &Cursor::root(&spec), Scope::default(), false);
            let said: Vec<&str> = errors.iter().map(|error| &*error.detail).collect();
            assert_eq!(said.join(";"), wanted, "{name}");
        }
    }
}
