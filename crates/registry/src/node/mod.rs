//! The group node.k8s.io.

use std::collections::HashSet;

use ferry_meta::{FieldError, FieldErrors, names};
use serde_json::{Value, json};

use crate::core::pod::{resources, scheduling};
use crate::core::warnings;
use crate::cursor::{Cursor, IMMUTABLE, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct RuntimeClass(pub Plain);

impl Strategy for RuntimeClass {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, _old: Option<&Value>) -> Vec<String> {
        let scheduling = Cursor::root(object).get("scheduling");
        let old = scheduling.map("nodeSelector").keys().filter_map(|key| warnings::old_label(key));
        old.map(|message| format!("scheduling.nodeSelector: {message}")).collect()
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = parts(object);
        let class = Cursor::root(object);
        // The handler is checked after everything else.
        errors.named(class.at("handler"), class.text("handler"), |handler| {
            let reasons = names::dns1123_label(handler).into_iter();
            reasons.map(|reason| reason.replace("no more than 63 characters", "no more than 63 bytes")).collect()
        });
        errors
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let (mut errors, new) = (FieldErrors::new(), Cursor::root(object));
        let handler = new.text("handler");
        if !handler.is_empty() {
            errors.named(new.at("handler"), handler, names::dns1123_label);
        }
        errors.extend(parts(object));
        if new.raw("handler") != Cursor::root(old).raw("handler") {
            errors.invalid(new.at("handler"), Value::Null, IMMUTABLE);
        }
        if handler.is_empty() {
            errors.required(new.at("handler"), "");
        }
        errors
    }
}

/// What is wrong with all but the handler.
fn parts(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let class = Cursor::root(object);
    let overhead = class.get("overhead");
    if overhead.exists() {
        let wrapped = json!({"limits": overhead.raw("podFixed")});
        let at = Cursor::new(&wrapped, overhead.path.clone());
        resources::validate(&mut errors, &at, &HashSet::new(), resources::container_name);
    }
    let rules = class.get("scheduling");
    errors.extend(crate::object_meta::label_errors(rules.map("nodeSelector"), &rules.at("nodeSelector")));
    scheduling::tolerations(&mut errors, &rules, false);
    let tolerations = rules.items("tolerations");
    let mut seen = HashSet::new();
    // How long one lasts makes it no other.
    let known_by =
        |toleration: &Cursor<'_>| ["key", "operator", "value", "effect"].map(|key| toleration.text(key).to_owned());
    for toleration in tolerations.iter().filter(|toleration| !seen.insert(known_by(toleration))) {
        let error = FieldError::duplicate(&toleration.path, toleration.value.clone());
        errors.push(error.shown_as(crate::internal::show("Toleration", toleration.value)));
    }
    errors
}
