//! What a definition as a whole may not be: of the community's groups without its word, or keeping what it also defaults.

use ferry_meta::{FieldErrors, Path, object};
use serde_json::Value;

use crate::cursor::{Cursor, Report};

const APPROVED: &str = "api-approved.kubernetes.io";

/// Why the note of approval that the community's groups need is none; `Ok` where it is one.
fn approved(definition: &Value) -> Result<(), String> {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let note = object::annotations(definition).get(APPROVED).and_then(Value::as_str).unwrap_or_default();
    let host = note.split_once("://").filter(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    });
    if note.is_empty() {
        Err(format!("protected groups must have approval annotation {APPROVED:?}, {SEE}"))
    } else if note.starts_with("unapproved") || host.is_some_and(|(_, rest)| !rest.is_empty() && !rest.starts_with('/'))
    {
        Ok(())
    } else {
        Err(format!(
            "protected groups must have approval annotation {APPROVED:?} with either a URL or a reason starting with \"unapproved\", {SEE}"
        ))
    }
}

/// Whether a definition is of the community's domains.
fn is_protected(definition: &Value) -> bool {
    let group = object::text(definition, "/spec/group");
    let of = |domain: &&str| group.strip_suffix(*domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    ["k8s.io", "kubernetes.io"].iter().any(of)
}

/// What the condition `KubernetesAPIApprovalPolicyConformant` of a definition says: whether it holds, why, and in which words.
/// None for definitions of others.
pub fn approval_condition(definition: &Value) -> Option<(bool, &'static str, String)> {
    if !is_protected(definition) {
        return None;
    }
    let note = object::annotations(definition).get(APPROVED).and_then(Value::as_str).unwrap_or_default();
    Some(match approved(definition) {
        Ok(()) if note.starts_with("unapproved") => {
            (false, "UnapprovedAnnotation", format!("not approved: {}", ferry_meta::field::quote(note)))
        }
        Ok(()) => (true, "ApprovedAnnotation", format!("approved in {note}")),
        Err(why) if note.is_empty() => (false, "MissingAnnotation", why),
        Err(why) => (false, "InvalidAnnotation", why),
    })
}

/// Groups of the community's domains are approved by it, or say that they are not.
pub(super) fn approval(errors: &mut FieldErrors, definition: &Value, old: Option<&Value>) {
    let verdict = approved(definition);
    if !is_protected(definition) || old.is_some_and(|old| approved(old) == verdict) {
        return;
    }
    let path = Path::new("metadata.annotations").key(APPROVED);
    match (verdict, object::annotations(definition).get(APPROVED).and_then(Value::as_str).unwrap_or_default()) {
        (Ok(()), _) => {}
        (Err(reason), "") => errors.required(path, &reason),
        (Err(reason), note) => errors.invalid(path, note, reason),
    }
}

pub(super) const KEEPS_UNKNOWN: &str =
    "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";

/// Defaults are for those who prune.
pub(super) fn keeps_unknown_fields(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    fn has_default(schema: &Value) -> bool {
        match schema {
            Value::Object(map) => map.iter().any(|(key, value)| {
                (key == "default" && !value.is_null())
                    || match key.as_str() {
                        "properties" => value.as_object().is_some_and(|fields| fields.values().any(has_default)),
                        "items" | "additionalProperties" => has_default(value),
                        _ => false,
                    }
            }),
            _ => false,
        }
    }
    let schemas = spec.items("versions");
    if schemas.iter().any(|version| has_default(version.get("schema").raw("openAPIV3Schema"))) {
        let detail = "must be false in order to use defaults in the schema";
        errors.invalid(spec.at("preserveUnknownFields"), true, detail);
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::FieldError;
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_of_the_community_are_approved() {
        let check = |group: &str, note: Option<&str>, old: Option<&str>, want: &str| {
            let definition = |note: Option<&str>| {
                let annotations = note.map_or(json!({}), |note| json!({ APPROVED: note }));
                json!({"metadata": {"annotations": annotations}, "spec": {"group": group}})
            };
            let mut errors = FieldErrors::new();
            let old = old.map(|note| definition(Some(note)));
            approval(&mut errors, &definition(note), old.as_ref());
            let line = errors.first().map(FieldError::line).unwrap_or_default();
            assert!(line.starts_with(want) && line.is_empty() == want.is_empty(), "{group} {note:?}: {line}");
        };
        check("example.com", None, None, "");
        check("notk8s.io", None, None, "");
        check("x.k8s.io", Some("https://github.com/kubernetes/kubernetes/pull/1"), None, "");
        check("x.kubernetes.io", Some("unapproved, for tests"), None, "");
        check("x.k8s.io", None, None, "metadata.annotations[api-approved.kubernetes.io]: Required value: protected");
        check("k8s.io", Some("me"), None, "metadata.annotations[api-approved.kubernetes.io]: Invalid value: \"me\"");
        check("k8s.io", Some("me"), Some("you"), "");
    }

    #[test]
    fn who_keeps_unknown_fields_has_no_defaults() {
        for (schema, refused) in [
            (json!({"properties": {"a": {"default": 1}}}), true),
            (json!({"properties": {"a": {"items": {"default": 1}}}}), true),
            (json!({"properties": {"default": {"type": "string"}}}), false),
        ] {
            let spec = json!({"versions": [{"schema": {"openAPIV3Schema": schema}}]});
            let mut errors = FieldErrors::new();
            keeps_unknown_fields(&mut errors, &Cursor::root(&spec));
            assert_eq!(!errors.is_empty(), refused, "{spec}");
        }
    }
}
