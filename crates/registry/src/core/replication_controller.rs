//! ReplicationControllers.

use ferry_meta::FieldErrors;
use serde_json::{Value, json};

use super::pod;
use crate::apps::{long_running, replicaset, template_warnings};
use crate::batch::job::default_labels;
use crate::check;
use crate::cursor::{Cursor, Report, default_to, map_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct ReplicationController(pub Plain);

impl Strategy for ReplicationController {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        default_to(spec, "replicas", 1);
        if let Some(template) = map_mut(spec, "template") {
            pod::default_template(template);
        }
        let labels = object.pointer("/spec/template/metadata/labels").filter(|l| l.is_object()).cloned();
        let Some(labels) = labels else { return };
        let selector = object.pointer("/spec/selector").and_then(Value::as_object);
        if selector.is_none_or(|map| map.is_empty()) {
            object_at(object, &["spec"]).insert("selector".into(), labels);
        }
        default_labels(object);
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::prepare_update(self.has_status(), self.has_generation(), context, object, old);
        default_labels(object);
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        if spec.map("selector").is_empty() {
            errors.required(spec.at("selector"), "");
        }
        let template = spec.get("template");
        if template.exists() {
            let selector = json!({"matchLabels": spec.map("selector")});
            let metadata = template.get("metadata");
            if !spec.map("selector").is_empty() && !check::selects(&selector, metadata.map("labels")) {
                let labels = metadata.raw("labels").clone();
                errors.invalid(metadata.at("labels"), labels, "`selector` does not match template `labels`");
            }
            pod::validate_template(&mut errors, &template);
            long_running(&mut errors, &spec, "ReplicationController");
        } else {
            errors.required(template.path, "");
        }
        // Counts are checked after everything else.
        crate::apps::counts(&mut errors, &spec, &["replicas", "minReadySeconds"]);
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        if context.subresource == "status" {
            return replicaset::status(&Cursor::root(object).get("status"), "readyReplicas");
        }
        self.validate_create(context, object)
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        // What a name begins with is judged with the name alone.
        if prefix { Vec::new() } else { ferry_meta::names::long_name(name) }
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        if context.subresource == "status" {
            return Vec::new();
        }
        let name = crate::apps::name_warning(object).filter(|_| old.is_none());
        // Upstream takes the old template for the new one.
        let template = match old {
            Some(old) if common::generation(old) != common::generation(object) => template_warnings(old, None),
            Some(_) => Vec::new(),
            None => template_warnings(object, None),
        };
        name.into_iter().chain(template).collect()
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec!["status.replicas"]
    }

    fn field(&self, object: &Value, field: &str) -> String {
        replicaset::replicas_field(object, field)
    }
}
