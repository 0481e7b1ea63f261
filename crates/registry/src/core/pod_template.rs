//! PodTemplates.

use ferry_meta::FieldErrors;
use serde_json::Value;

use super::pod;
use crate::cursor::{Cursor, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct PodTemplate(pub Plain);

impl Strategy for PodTemplate {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        pod::default_template(object_at(object, &["template"]));
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        pod::validate_template(&mut errors, &Cursor::root(object).get("template"));
        errors
    }

    fn warnings(&self, _context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        let generation = crate::strategy::common::generation;
        if old.is_some_and(|old| generation(old) == generation(object)) {
            return Vec::new();
        }
        pod::warnings::of(&Cursor::root(object).get("template"))
    }
}
