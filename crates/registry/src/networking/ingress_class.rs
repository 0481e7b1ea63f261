//! IngressClasses.

use ferry_meta::{FieldError, FieldErrors, names, object};
use jiff::Timestamp;
use serde_json::Value;

use crate::cells;
use crate::cursor::{Cursor, Report, default_absent, map_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct IngressClass(pub Plain);

impl Strategy for IngressClass {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        if let Some(parameters) = map_mut(object_at(object, &["spec"]), "parameters") {
            default_absent(parameters, "scope", "Cluster");
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        let controller = spec.text("controller");
        if controller.len() > 250 {
            errors.push(FieldError::too_long(&spec.at("controller"), 250));
        }
        domain_prefixed_path(&mut errors, &spec, "controller");
        let parameters = spec.get("parameters");
        if parameters.exists() {
            let mut missing = FieldErrors::new();
            if let Some(group) = parameters.raw("apiGroup").as_str() {
                errors.reasons(parameters.at("apiGroup"), group, names::dns1123_subdomain(group));
            }
            for key in ["kind", "name"] {
                match parameters.text(key) {
                    // Found by a later pass.
                    "" => missing.required(parameters.at(key), ""),
                    text => errors.reasons(parameters.at(key), text, names::path_segment(text)),
                }
            }
            scope(&mut errors, &parameters);
            errors.extend(missing);
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (spec, was) = (Cursor::root(object).get("spec"), Cursor::root(old).get("spec"));
        if spec.text("controller") != was.text("controller") {
            errors.invalid(spec.at("controller"), spec.text("controller"), crate::cursor::IMMUTABLE);
        }
        errors.extend(self.validate_create(context, object));
        errors
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let default = object::annotations(object).get("ingressclass.kubernetes.io/is-default-class");
        let mark = if default.and_then(Value::as_str) == Some("true") { " (default)" } else { "" };
        let mut cells: Vec<Value> =
            self.0.cells.iter().map(|expression| cells::evaluate(expression, object, now)).collect();
        if let Some(name) = cells.first_mut() {
            *name = format!("{}{mark}", object::name(object)).into();
        }
        cells
    }
}

pub fn domain_prefixed_path(errors: &mut FieldErrors, parent: &Cursor<'_>, key: &str) {
    let text = parent.text(key);
    match text.split_once('/') {
        _ if text.is_empty() => errors.required(parent.at(key), ""),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            errors.reasons(parent.at(key), domain, names::dns1123_subdomain(domain));
            let good = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
            if !rest.bytes().all(good) {
                let pattern = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
                errors.invalid(parent.at(key), rest, names::regex_reason("Invalid path", pattern, &[]));
            }
        }
        _ => errors.invalid(parent.at(key), text, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

fn scope(errors: &mut FieldErrors, parameters: &Cursor<'_>) {
    let namespace = parameters.raw("namespace").as_str();
    match (parameters.text("scope"), namespace) {
        ("", _) if !parameters.has("scope") => errors.required(parameters.at("scope"), ""),
        ("Namespace", None) => {
            errors.required(parameters.at("namespace"), "`parameters.scope` is set to 'Namespace'");
        }
        ("Namespace", Some(name)) => errors.reasons(parameters.at("namespace"), name, names::dns1123_label(name)),
        ("Cluster", Some(_)) => {
            errors.forbidden(parameters.at("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        ("Cluster", None) => {}
        (other, _) => errors.unsupported(parameters.at("scope"), other, &["Cluster", "Namespace"]),
    }
}
