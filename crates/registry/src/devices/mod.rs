//! The group resource.k8s.io: devices that drivers offer, and claims on them.
//!
//! `late` holds errors that upstream finds by a second, generic pass, so that they come last.

mod administration;
mod claim;
mod class;
mod network;
mod policy;
mod selector;
mod slice;
mod taint_rule;

pub use claim::{ResourceClaim, ResourceClaimTemplate};
pub use class::DeviceClass;
pub use slice::ResourceSlice;
pub use taint_rule::DeviceTaintRule;

use std::collections::HashSet;

use ferry_meta::{FieldError, FieldErrors, Path, names};
use serde_json::Value;

use crate::core::pod::csi_driver_name;
use crate::cursor::{Cursor, Report};

const LONGEST_EXPRESSION: usize = 10 * 1024;
const LONGEST_PARAMETERS: usize = 10 * 1024;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// The JSON of a value in the order of its type, as errors show it.
fn shown(ty: &str, value: &Value) -> String {
    let ty = ferry_schema::builtin().named(&format!("io.k8s.api.resource.v1.{ty}"));
    let bytes = ty.map(|ty| ferry_schema::encode_json(&ty, value));
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_else(|| value.to_string())
}

/// Whether a list is short enough to be looked into.
fn fits(late: &mut FieldErrors, parent: &Cursor<'_>, key: &str, most: usize) -> bool {
    let count = parent.array(key).len();
    if count > most {
        late.push(FieldError::too_many(&parent.at(key), count, most));
    }
    count <= most
}

/// Items whose key was there before.
fn repeated(errors: &mut FieldErrors, items: &[Cursor<'_>], key: impl Fn(&Cursor<'_>) -> Value) {
    let mut seen: HashSet<Value> = HashSet::new();
    for item in items {
        let key = key(item);
        if seen.contains(&key) {
            errors.duplicate(item.path.clone(), key);
        } else {
            seen.insert(key);
        }
    }
}

/// Items whose key was there before, shown whole.
fn repeated_items(errors: &mut FieldErrors, ty: &str, items: &[Cursor<'_>], key: impl Fn(&Cursor<'_>) -> Value) {
    let mut seen: HashSet<Value> = HashSet::new();
    for item in items {
        let key = key(item);
        if seen.contains(&key) {
            let error = FieldError::duplicate(&item.path, item.value.clone());
            errors.push(error.shown_as(shown(ty, item.value)));
        } else {
            seen.insert(key);
        }
    }
}

/// The name of a driver, as the generic pass words it.
pub(crate) fn driver_name(errors: &mut FieldErrors, path: Path, name: &str) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    let reasons = names::dns1123_subdomain(&name.to_lowercase());
    if reasons.iter().any(|reason| !reason.starts_with("must be no more than")) {
        let detail = names::regex_reason(
            "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["Example.com"],
        );
        errors.invalid(path.clone(), name, detail);
    }
    if name.len() > 253 {
        errors.invalid(path.clone(), name, "must be no more than 253 bytes");
    }
    if name.chars().count() > 63 {
        let mut error = FieldError::too_long(&path, 63);
        error.detail = error.detail.replace("bytes", "characters");
        errors.push(error);
    }
}

fn pool_name(errors: &mut FieldErrors, path: &Path, name: &str) {
    if name.is_empty() {
        return errors.required(path.clone(), "");
    }
    if name.len() > 253 {
        errors.push(FieldError::too_long(path, 253));
    }
    for part in name.split('/') {
        errors.reasons(path.clone(), part, names::dns1123_subdomain(part));
    }
}

/// `stored` selectors are taken as they are: they were sound when they were written.
fn selectors(errors: &mut FieldErrors, late: &mut FieldErrors, parent: &Cursor<'_>, stored: bool) {
    if !fits(late, parent, "selectors", 32) {
        return;
    }
    for selector in parent.items("selectors") {
        let cel = selector.get("cel");
        if !cel.exists() {
            errors.required(cel.path.clone(), "");
        } else if stored {
        } else if cel.text("expression").len() > LONGEST_EXPRESSION {
            errors.push(FieldError::too_long(&cel.at("expression"), LONGEST_EXPRESSION));
        } else {
            selector::check(errors, &cel);
        }
    }
}

fn configuration(errors: &mut FieldErrors, late: &mut FieldErrors, config: &Cursor<'_>) {
    let opaque = config.get("opaque");
    if !opaque.exists() {
        return errors.required(opaque.path.clone(), "");
    }
    driver_name(late, opaque.at("driver"), opaque.text("driver"));
    raw_object(errors, &opaque, "parameters");
}

/// JSON of a driver's own, which must be an object.
fn raw_object(errors: &mut FieldErrors, parent: &Cursor<'_>, key: &str) {
    match parent.raw(key) {
        Value::Null => errors.required(parent.at(key), ""),
        Value::Object(_) if parent.raw(key).to_string().len() > LONGEST_PARAMETERS => {
            errors.push(FieldError::too_long(&parent.at(key), LONGEST_PARAMETERS));
        }
        Value::Object(_) => {}
        _ => errors.invalid(parent.at(key), "<value omitted>", "must be a valid JSON object"),
    }
}

fn taint(errors: &mut FieldErrors, late: &mut FieldErrors, taint: &Cursor<'_>, old: Option<&Cursor<'_>>) {
    let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
    errors.reasons(taint.at("key"), key, names::label_key(key));
    errors.reasons(taint.at("value"), value, names::label_value(value));
    if old.is_none_or(|old| old.text("effect") != effect) {
        late.one_of(taint.at("effect"), effect, &EFFECTS);
    }
}

fn toleration(errors: &mut FieldErrors, late: &mut FieldErrors, toleration: &Cursor<'_>) {
    let (key, value) = (toleration.text("key"), toleration.text("value"));
    if !key.is_empty() {
        late.reasons(toleration.at("key"), key, names::label_key(key));
    }
    match toleration.text("operator") {
        "Exists" if !value.is_empty() => {
            errors.invalid(toleration.at("value"), value, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => errors.reasons(toleration.at("value"), value, names::label_value(value)),
        // Upstream takes none as Equal.
        "" => {}
        other => late.one_of(toleration.at("operator"), other, &["Equal", "Exists"]),
    }
    let effect = toleration.text("effect");
    if !effect.is_empty() {
        late.one_of(toleration.at("effect"), effect, &EFFECTS);
    }
}

fn identifier(errors: &mut FieldErrors, path: &Path, name: &str) {
    if name.len() > 32 {
        errors.push(FieldError::too_long(path, 32));
    }
    errors.reasons(path.clone(), name, names::c_identifier(name));
}

/// The name of an attribute or a capacity: an identifier, with a domain before a slash where it is another driver's.
fn qualified_name(errors: &mut FieldErrors, path: &Path, name: &str) {
    let Some((domain, rest)) = name.split_once('/') else { return identifier(errors, path, name) };
    if rest.contains('/') {
        return;
    }
    if domain.is_empty() {
        errors.invalid(path.clone(), "", "the domain must not be empty");
    } else {
        csi_driver_name(errors, path.clone(), domain);
    }
    if rest.is_empty() {
        errors.invalid(path.clone(), "", "the name must not be empty");
    } else {
        identifier(errors, path, rest);
    }
}

fn fully_qualified_name(errors: &mut FieldErrors, path: &Path, name: &str) {
    qualified_name(errors, path, name);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        errors.invalid(path.clone(), name, detail);
    }
}

/// What must be true before a device may be used, and what ends the wait.
fn binding_conditions(errors: &mut FieldErrors, late: &mut FieldErrors, parent: &Cursor<'_>) {
    const WAIT: &str = "bindingConditions";
    const FAIL: &str = "bindingFailureConditions";
    for key in [WAIT, FAIL] {
        if fits(late, parent, key, 4) {
            for name in parent.items(key) {
                errors.reasons(name.path.clone(), name.as_text(), names::label_key(name.as_text()));
            }
        }
    }
    repeated(errors, &parent.items(WAIT), |item| item.value.clone());
    let waits: HashSet<&Value> = parent.array(WAIT).iter().collect();
    let mut seen: HashSet<&Value> = HashSet::new();
    for name in parent.items(FAIL) {
        if seen.contains(&name.value) {
            errors.duplicate(name.path.clone(), name.value.clone());
        }
        seen.insert(name.value);
        if waits.contains(name.value) {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            errors.invalid(name.path.clone(), name.value.clone(), detail);
        }
    }
    let (waits, fails) = (!parent.array(WAIT).is_empty(), !parent.array(FAIL).is_empty());
    if fails && !waits {
        let detail = "bindingConditions are required to use bindingFailureConditions";
        errors.invalid(parent.at(WAIT), Value::Null, detail);
    }
    if waits && !fails {
        let detail = "bindingFailureConditions are required to use bindingConditions";
        errors.invalid(parent.at(FAIL), Value::Null, detail);
    }
}
