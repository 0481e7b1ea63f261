//! The expressions of device selectors: they compile, tell yes or no, and cannot cost too much.

use std::sync::{Arc, LazyLock};

use ferry_cel::{Decl, Environment, Shape, Type};
use ferry_meta::FieldErrors;

use crate::at::{At, Report};

/// What one expression may cost at most.
const MOST: u64 = 1_000_000;
/// How many attributes and capacities a device can have.
const MOST_NAMES: u64 = 32;
const LONGEST_VALUE: u64 = 64;
const LONGEST_DRIVER: u64 = 63;

static DEVICE: LazyLock<(Environment, Decl)> = LazyLock::new(|| {
    let of = |ty: Type, max_elements: u64| Decl { max_elements, ..Decl::of(ty) };
    let map = |values: Decl| Decl {
        ty: Type::map(Type::String, values.ty.clone()),
        max_elements: MOST_NAMES,
        shape: Shape::Map(Arc::new(values)),
        ..Decl::of(Type::Dyn)
    };
    let device = Decl::object(
        "kubernetes.DRADevice",
        &[
            ("driver", of(Type::String, LONGEST_DRIVER)),
            ("attributes", map(map(of(Type::Dyn, LONGEST_VALUE)))),
            ("capacity", map(map(of(Type::Opaque("kubernetes.Quantity"), 0)))),
            ("allowMultipleAllocations", of(Type::Bool, 1)),
        ],
    );
    (Environment::new().binding().variable("device", device.ty.clone()), device)
});

/// Judges the expression of a `cel` selector.
pub(super) fn check(errors: &mut FieldErrors, cel: &At<'_>) {
    let text = cel.text("expression");
    let (environment, device) = &*DEVICE;
    let program = match environment.compile(text) {
        Ok(program) => program,
        Err(error) => return errors.invalid(cel.at("expression"), text, format!("compilation failed: {error}")),
    };
    match program.result() {
        Type::Bool | Type::Dyn => {}
        other => {
            let detail = format!("must evaluate to bool or the unknown type, not {}", other.go_name());
            return errors.invalid(cel.at("expression"), text, detail);
        }
    }
    if environment.estimate(&program, Some(device)).max > MOST {
        errors.forbidden(cel.at("expression"), "too complex, exceeds cost limit");
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
        check(&mut errors, &At::new(&cel, Path::new("cel")));
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
                "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, a + b + c != '')))",
                "cel.expression: Forbidden: too complex, exceeds cost limit",
            ),
        ] {
            assert_eq!(complaint(expression), wanted, "{expression}");
        }
    }
}
