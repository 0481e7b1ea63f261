//! ControllerRevisions: snapshots of a workload's template, written once.

use ferry_meta::FieldErrors;
use serde_json::Value;

use super::counts;
use crate::cursor::{Cursor, IMMUTABLE, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct ControllerRevision(pub Plain);

impl Strategy for ControllerRevision {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let revision = Cursor::root(object);
        counts(&mut errors, &revision, &["revision"]);
        match revision.raw("data") {
            Value::Null => errors.required(revision.at("data"), "data is mandatory"),
            Value::Object(_) => {}
            _ => errors.required(revision.at("data"), "data must be a valid JSON object"),
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, old) = (Cursor::root(object), Cursor::root(old));
        counts(&mut errors, &new, &["revision"]);
        // Upstream compares the bytes as they came, and a patch writes them anew: it refuses what an update may do.
        let renumbered = context.patch && new.raw("revision") != old.raw("revision");
        if new.raw("data") != old.raw("data") || renumbered {
            errors.invalid(new.at("data"), new.raw("data").clone(), IMMUTABLE);
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::UserInfo;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_update_may_renumber_but_not_change_the_data() {
        let revision =
            |number: i64, image: &str| json!({"metadata": {"name": "a"}, "data": {"i": image}, "revision": number});
        let user = UserInfo::new("u", &[]);
        for (new, patch, fits) in [
            (revision(2, "a"), false, true),
            (revision(2, "a"), true, false),
            (revision(1, "a"), true, true),
            (revision(1, "b"), false, false),
        ] {
            let context = Context { user: &user, subresource: "", dry_run: false, patch, reader: None };
            let errors =
                ControllerRevision(<Plain as Default>::default()).validate_update(&context, &new, &revision(1, "a"));
            assert_eq!(errors.is_empty(), fits, "{new} {patch}: {errors:?}");
        }
    }
}
