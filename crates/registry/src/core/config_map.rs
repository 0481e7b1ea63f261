//! ConfigMaps: keys, total size, and the flag that freezes them.

use ferry_meta::{FieldError, FieldErrors, Path, names};
use jiff::Timestamp;
use serde_json::Value;

use crate::cells;
use crate::cursor::{Cursor, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

/// What ConfigMaps and Secrets may hold.
pub const MAX_SIZE: usize = 1 << 20;
pub const FROZEN: &str = "field is immutable when `immutable` is set";

pub struct ConfigMap(pub Plain);

/// The number of bytes of a base64 text.
pub fn decoded_length(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|b| *b == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

/// A frozen object keeps the flag and the data.
pub fn frozen(errors: &mut FieldErrors, new: &Cursor<'_>, old: &Cursor<'_>, fields: &[&str]) {
    if !old.is_true("immutable") {
        return;
    }
    if !new.is_true("immutable") {
        errors.forbidden(new.at("immutable"), FROZEN);
    }
    for field in fields {
        if new.map(field) != old.map(field) {
            errors.forbidden(new.at(field), FROZEN);
        }
    }
}

impl Strategy for ConfigMap {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let at = Cursor::root(object);
        let mut size = 0;
        for (key, value) in at.entries("data") {
            errors.reasons(value.path.clone(), key, names::config_key(key));
            if at.map("binaryData").contains_key(key) {
                errors.invalid(value.path.clone(), key, "duplicate of key present in binaryData");
            }
            size += value.as_text().len();
        }
        for (key, value) in at.entries("binaryData") {
            errors.reasons(value.path.clone(), key, names::config_key(key));
            size += decoded_length(value.as_text());
        }
        if size > MAX_SIZE {
            errors.push(FieldError::too_long(&Path::new("[]"), MAX_SIZE));
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        frozen(&mut errors, &Cursor::root(object), &Cursor::root(old), &["data", "binaryData"]);
        errors.extend(self.validate_create(context, object));
        errors
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let at = Cursor::root(object);
        vec![
            ferry_meta::object::name(object).into(),
            (at.map("data").len() + at.map("binaryData").len()).into(),
            cells::age(object, now).into(),
        ]
    }
}
