//! StorageClasses, VolumeAttributesClasses and CSIStorageCapacities.

use std::collections::HashSet;

use ferry_meta::{FieldError, FieldErrors, Path, names, object};
use jiff::Timestamp;
use serde_json::Value;

use crate::cells;
use crate::check;
use crate::core::warnings;
use crate::cursor::{Cursor, IMMUTABLE, NOT_NEGATIVE, Report, default_absent};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct StorageClass(pub Plain);
pub struct VolumeAttributesClass(pub Plain);
pub struct CsiStorageCapacity(pub Plain);

const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 * 1024;

fn parameters(errors: &mut FieldErrors, class: &Cursor<'_>, may_be_empty: bool) {
    let (map, path) = (class.map("parameters"), class.at("parameters"));
    if map.len() > MAX_PARAMETERS {
        return errors.push(FieldError::too_long(&path, MAX_PARAMETERS));
    }
    let mut size = 0;
    for (key, value) in map {
        if key.is_empty() {
            errors.invalid(path.clone(), "", "field can not be empty.");
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > MAX_PARAMETER_BYTES {
        errors.push(FieldError::too_long(&path, MAX_PARAMETER_BYTES));
    }
    if !may_be_empty && map.is_empty() {
        errors.required(path, "must contain at least one key/value pair");
    }
}

/// Declared immutable: the refusal shows no value.
fn stays(errors: &mut FieldErrors, new: &Cursor<'_>, old: &Cursor<'_>, keys: &[&str]) {
    for key in keys.iter().filter(|key| new.raw(key) != old.raw(key)) {
        errors.invalid(new.at(key), Value::Null, IMMUTABLE);
    }
}

impl Strategy for StorageClass {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, _old: Option<&Value>) -> Vec<String> {
        let mut found = Vec::new();
        for topology in Cursor::root(object).items("allowedTopologies") {
            for expression in topology.items("matchLabelExpressions") {
                let message = warnings::old_label(expression.text("key"));
                found.extend(message.map(|message| format!("{}: {message}", expression.at("key"))));
            }
        }
        found
    }

    fn default(&self, object: &mut Value) {
        if let Some(class) = object.as_object_mut() {
            default_absent(class, "reclaimPolicy", "Delete");
            default_absent(class, "volumeBindingMode", "Immediate");
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let class = Cursor::root(object);
        let provisioner = class.text("provisioner");
        if !provisioner.is_empty() {
            let lower = provisioner.to_lowercase();
            errors.reasons(class.at("provisioner"), &lower, names::qualified_name(&lower));
        }
        parameters(&mut errors, &class, true);
        for (key, values) in
            [("reclaimPolicy", ["Delete", "Retain"]), ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"])]
        {
            let unset = |value: &str| key == "reclaimPolicy" && value.is_empty();
            if let Some(value) = class.raw(key).as_str().filter(|value| !values.contains(value) && !unset(value)) {
                errors.unsupported(class.at(key), value, &values);
            }
        }
        topologies(&mut errors, &class);
        // What is missing altogether is found by a later pass.
        if provisioner.is_empty() {
            errors.required(class.at("provisioner"), "");
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_create(context, object);
        let keys = ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"];
        stays(&mut errors, &Cursor::root(object), &Cursor::root(old), &keys);
        errors
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let class = Cursor::root(object);
        let or = |key: &str, text: &'static str| if class.has(key) { class.text(key) } else { text }.to_owned();
        vec![
            object::name(object).into(),
            class.text("provisioner").into(),
            or("reclaimPolicy", "Delete").into(),
            or("volumeBindingMode", "Immediate").into(),
            class.is_true("allowVolumeExpansion").into(),
            cells::age(object, now).into(),
        ]
    }
}

fn topologies(errors: &mut FieldErrors, class: &Cursor<'_>) {
    let terms = class.items("allowedTopologies");
    let mut known = HashSet::new();
    for term in &terms {
        // A term without expressions is the same as no term at all.
        let expressions = term.array("matchLabelExpressions");
        if expressions.is_empty() || !known.insert(expressions) {
            errors.duplicate(term.at("matchLabelExpressions"), "");
        }
        let mut seen: HashSet<&str> = HashSet::new();
        for requirement in term.items("matchLabelExpressions") {
            let values = requirement.items("values");
            let key = requirement.text("key");
            if values.is_empty() {
                errors.required(requirement.at("values"), "");
            }
            let mut known = HashSet::new();
            for value in values.iter().filter(|value| !known.insert(value.value)) {
                errors.duplicate(value.path.clone(), value.as_text());
            }
            errors.reasons(requirement.at("key"), key, names::label_key(key));
            if seen.contains(&key) {
                errors.duplicate(requirement.at("key"), key);
            }
            seen.insert(key);
        }
    }
}

impl Strategy for VolumeAttributesClass {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let class = Cursor::root(object);
        let driver = class.text("driverName").to_lowercase();
        if driver.is_empty() {
            errors.required(class.at("driverName"), "");
        } else {
            errors.reasons(class.at("driverName"), &driver, names::qualified_name(&driver));
        }
        parameters(&mut errors, &class, false);
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, was) = (Cursor::root(object), Cursor::root(old));
        for key in ["driverName", "parameters"] {
            if new.raw(key) != was.raw(key) {
                errors.forbidden(new.at(key), format!("updates to {key} are forbidden."));
            }
        }
        errors.extend(self.validate_create(context, object));
        errors
    }
}

impl Strategy for CsiStorageCapacity {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, _old: Option<&Value>) -> Vec<String> {
        let topology = Cursor::root(object).get("nodeTopology");
        let mut found = warnings::term(&topology, false);
        for key in topology.map("matchLabels").keys() {
            let path = topology.at("matchLabels").child(key);
            found.extend(warnings::old_label(key).map(|message| format!("{path}: {message}")));
        }
        found
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let capacity = Cursor::root(object);
        check::label_selector(&mut errors, &capacity.get("nodeTopology"));
        let class = capacity.text("storageClassName");
        errors.reasons(capacity.at("storageClassName"), class, names::dns1123_subdomain(class));
        if let Some(quantity) = capacity.quantity("capacity").filter(ferry_meta::Quantity::is_negative) {
            errors.invalid(capacity.at("capacity"), quantity.to_string(), NOT_NEGATIVE);
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = self.validate_create(context, object);
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        if new.raw("nodeTopology") != old.raw("nodeTopology") {
            let topology = new.raw("nodeTopology");
            let error = FieldError::invalid(&Path::new("nodeTopology"), topology.clone(), IMMUTABLE);
            errors.push(error.shown_as(crate::internal::show_pointer("LabelSelector", topology)));
        }
        errors.immutable(Path::new("storageClassName"), new.raw("storageClassName"), old.raw("storageClassName"));
        errors
    }
}
