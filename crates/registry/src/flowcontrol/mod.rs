//! The group flowcontrol.apiserver.k8s.io: how requests are sorted into queues.

mod flow_schema;
mod priority_level;

pub use flow_schema::FlowSchema;
pub use priority_level::PriorityLevelConfiguration;

use std::collections::HashSet;

use ferry_meta::FieldErrors;

use crate::cursor::{Cursor, Report};

/// Conditions of a status: each type once. The words for a type that is missing differ between the kinds.
fn conditions(errors: &mut FieldErrors, status: &Cursor<'_>, missing: &str) {
    let mut seen: HashSet<&str> = HashSet::new();
    for condition in status.items("conditions") {
        let kind = condition.text("type");
        if seen.contains(&kind) {
            errors.duplicate(condition.at("type"), kind);
        }
        seen.insert(kind);
        if kind.is_empty() {
            errors.required(condition.at("type"), missing);
        }
    }
}
