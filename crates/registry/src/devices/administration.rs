//! Devices are given to administrators in namespaces that say so alone.

use ferry_meta::{FieldError, FieldErrors, GroupResource, Path, object};
use serde_json::Value;

use crate::strategy::Context;

const LABEL: &str = "resource.kubernetes.io/admin-access";

/// Refuses what the namespace of the object does not allow. `kind` is a claim or a template of one.
pub(super) fn check(kind: &str, context: &Context<'_>, object: &Value, old: Option<&Value>) -> FieldErrors {
    let Some((path, reader)) = place(kind, context.subresource, object, old).zip(context.reader) else {
        return FieldErrors::new();
    };
    let namespace = reader.get(&GroupResource::new("", "namespaces"), "", object::namespace(object));
    if namespace.is_some_and(|found| object::labels(&found).get(LABEL).is_some_and(|value| value == "true")) {
        return FieldErrors::new();
    }
    let detail = format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    FieldError::forbidden(&path, detail).into()
}

/// Where the first request or result with access for administrators stands, which not every namespace allows.
fn place(kind: &str, subresource: &str, object: &Value, old: Option<&Value>) -> Option<Path> {
    let first = |object: &Value, pointer: &str, inner: &str| {
        let asks = |item: &Value| item.pointer(inner).and_then(Value::as_bool) == Some(true);
        object.pointer(pointer).and_then(Value::as_array).and_then(|items| items.iter().position(asks))
    };
    let requests = match (kind, subresource, old) {
        ("ResourceClaim", "", None) => "/spec/devices/requests",
        ("ResourceClaimTemplate", "", None) => "/spec/spec/devices/requests",
        ("ResourceClaim", "status", Some(old)) => {
            const RESULTS: &str = "/status/allocation/devices/results";
            if first(old, RESULTS, "/adminAccess").is_some() {
                return None;
            }
            let at = first(object, RESULTS, "/adminAccess")?;
            let results = Path::new("status").child("allocation").child("devices").child("results");
            return Some(results.index(at).child("adminAccess"));
        }
        _ => return None,
    };
    let at = first(object, requests, "/exactly/adminAccess")?;
    Some(Path::new("spec").child("devices").child("requests").index(at).child("adminAccess"))
}
