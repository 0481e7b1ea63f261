//! The group scheduling.k8s.io.

use ferry_meta::FieldErrors;
use serde_json::Value;

use crate::cursor::{Cursor, Report, default_absent};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct PriorityClass(pub Plain);

const HIGHEST: i64 = 1_000_000_000;
/// The classes of the system: name and value.
const SYSTEM: [(&str, i64); 2] = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

fn why_not_known(class: &Cursor<'_>, name: &str) -> Option<String> {
    let Some((_, value)) = SYSTEM.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if class.number("value") != *value {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    class.is_true("globalDefault").then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

impl Strategy for PriorityClass {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        if let Some(class) = object.as_object_mut() {
            default_absent(class, "preemptionPolicy", "PreemptLowerPriority");
        }
    }

    /// The generation is one for ever.
    fn prepare_update(&self, _context: &Context<'_>, object: &mut Value, old: &Value) {
        common::set_generation(object, common::generation(old));
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let class = Cursor::root(object);
        let name = class.get("metadata").text("name");
        if name.starts_with("system-") {
            if let Some(reason) = why_not_known(&class, name) {
                let detail = format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {reason}"
                );
                errors.forbidden(class.at("metadata").child("name"), detail);
            }
        } else if class.number("value") > HIGHEST {
            let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
            errors.forbidden(class.at("value"), detail);
        }
        if let Some(policy) = class.raw("preemptionPolicy").as_str() {
            errors.one_of(class.at("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
        }
        errors
    }

    fn deletion_refusal(&self, name: &str) -> Option<&'static str> {
        let known = SYSTEM.iter().any(|(known, _)| *known == name);
        known.then_some("this is a system priority class and cannot be deleted")
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        if new.number("value") != old.number("value") {
            errors.forbidden(new.at("value"), "may not be changed in an update.");
        }
        let policy = "preemptionPolicy";
        errors.immutable(new.at(policy), new.raw(policy), old.raw(policy));
        errors
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::{FieldError, UserInfo};
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_a_maximum_and_names_of_the_system_are_reserved() {
        let user = UserInfo::new("u", &[]);
        let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
        let strategy = PriorityClass(Plain { has_generation: true, ..<Plain as Default>::default() });
        for (name, value, wanted) in [
            ("high", 1_000_000_000, ""),
            ("system-node-critical", 2_000_001_000, ""),
            ("high", 1_000_000_001, "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"),
            (
                "system-own",
                1,
                "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-own is not a known system priority class",
            ),
        ] {
            let class = json!({"metadata": {"name": name}, "value": value});
            let errors = strategy.validate_create(&context, &class);
            let said: Vec<String> = errors.iter().map(FieldError::line).collect();
            assert_eq!(said.join("; "), wanted, "{name} {value}");
        }
    }
}
