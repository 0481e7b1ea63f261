//! DeviceClasses.

use ferry_meta::{FieldErrors, Path, names};
use serde_json::Value;

use super::{configuration, fits, selectors};
use crate::cursor::{Cursor, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct DeviceClass(pub Plain);

impl Strategy for DeviceClass {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        if prefix { Vec::new() } else { names::long_name(name) }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        class_errors(object, None)
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        class_errors(object, Some(old))
    }
}

fn class_errors(object: &Value, old: Option<&Value>) -> FieldErrors {
    let (mut errors, mut late) = (FieldErrors::new(), FieldErrors::new());
    let spec = Cursor::root(object).get("spec");
    let selected = |object: &Value| object.pointer("/spec/selectors").cloned();
    let stored = old.is_some_and(|old| selected(old) == selected(object));
    selectors(&mut errors, &mut late, &spec, stored);
    if fits(&mut late, &spec, "config", 32) {
        for config in spec.items("config") {
            configuration(&mut errors, &mut late, &config);
        }
    }
    if let Some(name) = spec.raw("extendedResourceName").as_str() {
        extended_resource(&mut late, &spec.at("extendedResourceName"), name);
    }
    errors.extend(late);
    errors
}

/// A name that pods can ask for as a resource, and quotas count.
fn extended_resource(errors: &mut FieldErrors, path: &Path, name: &str) {
    if !name.contains('/') {
        let detail = "a name must be a domain-prefixed path, such as 'example.com/my-prop'";
        errors.invalid(path.clone(), name, detail);
    } else if name.contains("kubernetes.io/") {
        errors.invalid(path.clone(), name, "must not have \"kubernetes.io/\" domain");
    }
    if name.starts_with("requests.") {
        errors.invalid(path.clone(), name, "must not have \"requests.\" prefix");
    }
    errors.reasons(path.clone(), name, names::label_key(&format!("requests.{name}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_resources_have_a_domain() {
        for (name, want) in [
            ("example.com/gpu", ""),
            ("gpu", "a name must be a domain-prefixed path, such as 'example.com/my-prop'"),
            ("x.kubernetes.io/gpu", "must not have \"kubernetes.io/\" domain"),
            ("requests.x/gpu", "must not have \"requests.\" prefix"),
        ] {
            let mut errors = FieldErrors::new();
            extended_resource(&mut errors, &Path::new("p"), name);
            let said: Vec<&str> = errors.iter().map(|error| &*error.detail).collect();
            assert_eq!(said.join(";"), want, "{name}");
        }
    }
}
