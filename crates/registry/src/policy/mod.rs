//! The group policy.

use ferry_meta::{FieldError, FieldErrors};
use serde_json::Value;

use crate::apps::counts;
use crate::check;
use crate::cursor::{Cursor, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

/// PodDisruptionBudgets: how many pods of a set may be away at once.
pub struct PodDisruptionBudget(pub Plain);

impl Strategy for PodDisruptionBudget {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        let (least, most) = (spec.get("minAvailable"), spec.get("maxUnavailable"));
        if least.exists() && most.exists() {
            let detail = "minAvailable and maxUnavailable cannot be both set";
            let error = FieldError::invalid(&spec.path, spec.value.clone(), detail);
            errors.push(error.shown_as(crate::internal::show("PodDisruptionBudgetSpec", spec.value)));
        }
        for bound in [least, most].iter().filter(|bound| bound.exists()) {
            check::int_or_percent(&mut errors, bound);
            check::at_most_hundred_percent(&mut errors, bound);
        }
        check::label_selector(&mut errors, &spec.get("selector"));
        let policy = "unhealthyPodEvictionPolicy";
        let policies = ["AlwaysAllow", "IfHealthyBudget"];
        if let Some(text) = spec.raw(policy).as_str().filter(|text| !policies.contains(text)) {
            errors.unsupported(spec.at(policy), text, &policies);
        }
        errors
    }

    /// Upstream's own check leaves the metadata out, and the generic one looks at it only where that finds nothing.
    fn in_order(&self, metadata: FieldErrors, own: FieldErrors) -> FieldErrors {
        if own.is_empty() { metadata } else { own }
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        if context.subresource.is_empty() {
            return self.validate_create(context, object);
        }
        let mut errors = FieldErrors::new();
        let status = Cursor::root(object).get("status");
        check::conditions(&mut errors, &status, "conditions");
        counts(&mut errors, &status, &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]);
        errors
    }
}
