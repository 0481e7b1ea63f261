//! The group apiregistration.k8s.io.

use ferry_meta::{FieldErrors, names, object};
use serde_json::{Value, json};

use crate::cursor::{Cursor, Report, default_to, map_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

/// APIServices: group versions served here or by another server.
pub struct ApiService(pub Plain);

impl Strategy for ApiService {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        if let Some(service) = map_mut(object_at(object, &["spec"]), "service") {
            default_to(service, "port", 443);
        }
    }

    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        let local = object.pointer("/spec/service").is_none_or(Value::is_null);
        let now = object.pointer("/metadata/creationTimestamp").cloned().unwrap_or_default();
        let mut status = json!({});
        if local {
            status["conditions"] = json!([{
                "type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local",
                "message": "Local APIServices are always available",
            }]);
        }
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), status);
        }
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        if context.subresource.is_empty() {
            return common::keep(object, old, "status");
        }
        common::keep(object, old, "spec");
        common::keep_metadata(object, old);
    }

    fn validate_create(&self, context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        let (group, version) = (spec.text("group"), spec.text("version"));
        let name = object::name(object);
        let required = format!("{version}.{group}");
        let generated = object::text(object, "/metadata/generateName");
        if !context.patch
            && !generated.is_empty()
            && generated != required
            && object::resource_version(object).is_empty()
        {
            let detail = format!("must be `spec.version+\".\"+spec.group`: \"{required}\"");
            errors.invalid(Cursor::root(object).at("metadata").child("generateName"), generated, detail);
        }
        if name != required && !name.is_empty() && names::path_segment(name).is_empty() {
            let detail = format!("must be `spec.version+\".\"+spec.group`: \"{required}\"");
            errors.invalid(Cursor::root(object).at("metadata").child("name"), name, detail);
        }
        if group.is_empty() && version != "v1" {
            errors.required(spec.at("group"), "only v1 may have an empty group and it better be legacy kube");
        }
        if !group.is_empty() {
            errors.reasons(spec.at("group"), group, names::dns1123_subdomain(group));
        }
        errors.reasons(spec.at("version"), version, names::dns1035_label(version));
        for (key, limit) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
            let number = spec.number(key);
            if number <= 0 || number > limit {
                errors.invalid(spec.at(key), number, format!("must be positive and less than {limit}"));
            }
        }
        origin(&mut errors, &spec);
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        if context.subresource.is_empty() {
            // Metadata is looked at once more, as that of a new object.
            let path = ferry_meta::Path::new("metadata");
            let spec = Cursor::root(object).get("spec");
            let required = format!("{}.{}", spec.text("version"), spec.text("group"));
            let named = |name: &str, prefix: bool| {
                let detail = format!("must be `spec.version+\".\"+spec.group`: \"{required}\"");
                if prefix && name != required { vec![detail] } else { Vec::new() }
            };
            let mut errors = crate::object_meta::metadata_errors(object, false, &path, &named);
            errors.extend(self.validate_create(context, object));
            return errors;
        }
        let mut errors = FieldErrors::new();
        for condition in Cursor::root(object).get("status").items("conditions") {
            let (status, values) = (condition.text("status"), ["True", "False", "Unknown"]);
            if !values.contains(&status) {
                errors.unsupported(condition.at("status"), status, &values);
            }
        }
        errors
    }
}

fn origin(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let (service, bundle) = (spec.get("service"), spec.text("caBundle"));
    let insecure = spec.is_true("insecureSkipTLSVerify");
    if !service.exists() {
        if !bundle.is_empty() {
            let size = format!("{} bytes", crate::core::config_map::decoded_length(bundle));
            errors.invalid(spec.at("caBundle"), size, "local APIServices may not have a caBundle");
        }
        if insecure {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.invalid(spec.at("insecureSkipTLSVerify"), true, detail);
        }
        return;
    }
    for key in ["namespace", "name"] {
        if service.text(key).is_empty() {
            errors.required(service.at(key), "");
        }
    }
    let reasons = names::port_number(service.number("port"));
    if !reasons.is_empty() {
        let detail = format!("port is not valid: {}", reasons.join(", "));
        errors.invalid(service.at("port"), service.number("port"), detail);
    }
    if insecure && !bundle.is_empty() {
        errors.invalid(spec.at("insecureSkipTLSVerify"), true, "may not be true if caBundle is present");
    }
}
