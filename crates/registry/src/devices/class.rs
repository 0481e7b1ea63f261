//! DeviceClasses.

use ferry_meta::FieldErrors;
use serde_json::Value;

use super::{configuration, fits, selectors};
use crate::at::{At, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct DeviceClass(pub Plain);

impl Strategy for DeviceClass {
    fn plain(&self) -> &Plain {
        &self.0
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
    let spec = At::root(object).get("spec");
    let selected = |object: &Value| object.pointer("/spec/selectors").cloned();
    let stored = old.is_some_and(|old| selected(old) == selected(object));
    selectors(&mut errors, &mut late, &spec, stored);
    if fits(&mut late, &spec, "config", 32) {
        for config in spec.items("config") {
            configuration(&mut errors, &mut late, &config);
        }
    }
    if let Some(name) = spec.raw("extendedResourceName").as_str()
        && !is_extended_resource(name)
    {
        late.invalid(spec.at("extendedResourceName"), name, "must be a valid extended resource name");
    }
    errors.extend(late);
    errors
}

fn is_extended_resource(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && ferry_meta::names::qualified_name(&format!("requests.{name}")).is_empty()
}
