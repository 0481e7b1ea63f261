//! The expressions of device selectors: they compile, tell yes or no, and cannot cost too much.

use ferry_cel::device::{MOST, Selector};
use ferry_meta::FieldErrors;

use crate::cursor::{Cursor, Report};

/// Judges the expression of a `cel` selector.
pub(super) fn check(errors: &mut FieldErrors, cel: &Cursor<'_>) {
    let text = cel.text("expression");
    match Selector::compile(text) {
        Err(error) => errors.invalid(cel.at("expression"), text, error),
        Ok(selector) if selector.cost() > MOST => {
            errors.forbidden(cel.at("expression"), "too complex, exceeds cost limit");
        }
        Ok(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::{FieldError, Path};
    use serde_json::json;

    use super::*;

    fn complaint(expression: &str) -> String {
        let cel = json!({"expression": expression});
        let mut errors = FieldErrors::new();
        check(&mut errors, &Cursor::new(&cel, Path::new("cel")));
        errors.iter().map(FieldError::line).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn sound_expressions_pass() {
        for expression in [
            "true",
            "device.driver == 'gpu.example.com'",
            "device.attributes['gpu.example.com'].model == 'a100'",
            "device.attributes['gpu.example.com'].services.contains('x')",
            "device.attributes['gpu.example.com'].healthy",
            "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('10Gi'))",
            "device.capacity['gpu.example.com'].memory.compareTo(quantity('10Gi')) >= 0",
            "cel.bind(gpu, device.attributes['gpu.example.com'], gpu.a && gpu.b)",
            "device.attributes['gpu.example.com'].version.isGreaterThan(semver('1.0.0'))",
            "has(device.attributes['gpu.example.com'].model)",
            "'gpu.example.com' in device.attributes",
            "device.allowMultipleAllocations == true",
            "device.attributes.all(domain, size(device.attributes[domain]) > 0)",
        ] {
            assert_eq!(complaint(expression), "", "{expression}");
        }
    }

    #[test]
    fn others_are_refused_in_upstreams_words() {
        for (expression, wanted) in [
            (
                "nope",
                "cel.expression: Invalid value: \"nope\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^",
            ),
            (
                "device.driver",
                "cel.expression: Invalid value: \"device.driver\": must evaluate to bool or the unknown type, not string",
            ),
            (
                "device.nope",
                "cel.expression: Invalid value: \"device.nope\": compilation failed: ERROR: <input>:1:7: undefined field 'nope'\n | device.nope\n | ......^",
            ),
            (
                "device.attributes['d'].a.exists(x, true)",
                "cel.expression: Invalid value: \"device.attributes['d'].a.exists(x, true)\": compilation failed: ERROR: <input>:1:23: expression of type 'any' cannot be range of a comprehension (must be list, map, or dynamic)\n | device.attributes['d'].a.exists(x, true)\n | ......................^",
            ),
            (
                "dyn(device.attributes['d'].a)",
                "cel.expression: Invalid value: \"dyn(device.attributes['d'].a)\": must evaluate to bool or the unknown type, not dyn",
            ),
            (
                "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, a + b + c != '')))",
                "cel.expression: Forbidden: too complex, exceeds cost limit",
            ),
        ] {
            assert_eq!(complaint(expression), wanted, "{expression}");
        }
    }
}
