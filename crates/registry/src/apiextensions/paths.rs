//! Paths into the schema of a custom resource: the fields that lists may be selected by, and those that rules point to.

use std::collections::HashSet;

use ferry_meta::{FieldError, FieldErrors};
use serde_json::Value;

use crate::cursor::{Cursor, Report};

/// Fields by which lists of a custom resource may be selected.
pub(super) fn selectable_fields(errors: &mut FieldErrors, list: &Cursor<'_>, schema: &Value) {
    let mut seen: HashSet<String> = HashSet::new();
    for (index, field) in list.value.as_array().into_iter().flatten().enumerate() {
        let at = list.path.index(index).child("jsonPath");
        let path = field["jsonPath"].as_str().unwrap_or_default();
        if path.is_empty() {
            errors.required(at, "");
            continue;
        }
        let (steps, found) = match follow(path, schema, false) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(at, path, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if steps.first().is_some_and(|step| step == "metadata") {
            errors.invalid(at.clone(), path, "must not point to fields in metadata");
        }
        if !["string", "boolean", "integer"].contains(&found["type"].as_str().unwrap_or_default()) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(at.clone(), path, detail);
        }
        let key = steps.join(".");
        if seen.contains(&key) {
            errors.duplicate(at, path);
        } else {
            seen.insert(key);
        }
    }
    const MOST: usize = 8;
    if seen.len() > MOST {
        errors.push(FieldError::too_many(&list.path, seen.len(), MOST));
    }
}

/// The steps of `.a.b['c']` and the schema they lead to.
pub(super) fn follow<'a>(path: &str, schema: &'a Value, brackets: bool) -> Result<(Vec<String>, &'a Value), String> {
    let (mut rest, mut steps, mut at) = (path, Vec::new(), schema);
    while !rest.is_empty() {
        let step = match rest.as_bytes()[0] {
            b'.' => {
                let end = rest[1..].find(['.', '[', ']']).map_or(rest.len(), |end| end + 1);
                let step = rest[1..end].to_owned();
                rest = &rest[end..];
                step
            }
            b'[' if !brackets => return Err("array notation is not allowed".to_owned()),
            b'[' => {
                let quoted = rest[1..].strip_prefix('\'').ok_or("expected single quoted string")?;
                let end = quoted.find("']").ok_or("unexpected end of JSON path")?;
                rest = &quoted[end + 2..];
                quoted[..end].replace("\\'", "'")
            }
            _ => {
                let token = rest.split(['.', '[', ']']).next().unwrap_or(rest);
                return Err(format!("expected [ or . but got: {token}"));
            }
        };
        if step.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let named = at["properties"].as_object().filter(|fields| !fields.is_empty());
        let below = match named {
            Some(fields) => fields.get(&step),
            None => at.get("additionalProperties").filter(|additional| !additional.is_null()),
        };
        at = below.ok_or("does not refer to a valid field")?;
        steps.push(step);
    }
    Ok((steps, at))
}

/// A path as errors show it: names after dots, keys of maps in brackets.
pub(super) fn shown(path: &str, schema: &Value) -> Option<String> {
    let (steps, _) = follow(path, schema, true).ok()?;
    let (mut at, mut shown) = (schema, ferry_meta::Path::root());
    for step in steps {
        (at, shown) = match at["properties"].get(&step) {
            Some(below) => (below, shown.child(&step)),
            None => (&at["additionalProperties"], shown.key(&step)),
        };
    }
    Some(shown.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_to_fields() {
        let schema = json!({"properties": {"spec": {"properties": {"a": {"type": "string"}}}, "m": {"additionalProperties": {"type": "integer"}}}});
        let check = |path: &str, brackets: bool, want: Result<&str, &str>| {
            let found = follow(path, &schema, brackets).map(|(steps, _)| steps.join("/"));
            assert_eq!(found.as_deref().map_err(String::as_str), want, "{path}");
        };
        check(".spec.a", false, Ok("spec/a"));
        check("['spec'].a", true, Ok("spec/a"));
        check("['spec'].a", false, Err("array notation is not allowed"));
        check(".m.x", false, Ok("m/x"));
        check(".spec.b", false, Err("does not refer to a valid field"));
        check(".spec.", false, Err("unexpected end of JSON path"));
        check("spec", false, Err("expected [ or . but got: spec"));
    }
}
