//! The strategy of custom resources: what their definition says, for one version.

use std::sync::Arc;

use ferry_meta::{FieldError, FieldErrors, Path, object};
use ferry_schema::structural::Schema;
use ferry_schema::{Type, go_float_short};
use jiff::Timestamp;
use serde_json::Value;

use super::embedded::embedded_errors;
use super::json_path::JsonPath;
use super::rules::Rules;
use crate::cells;
use crate::cursor::Report;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

/// Where a custom resource keeps what a Scale shows.
#[derive(Clone, Debug)]
pub struct ScalePaths {
    pub spec: String,
    pub status: String,
    pub selector: String,
}

impl ScalePaths {
    /// The fields of a path: `.spec.replicas` is `spec`, `replicas`.
    pub fn fields(path: &str) -> Vec<String> {
        JsonPath::parse(path).fields().unwrap_or_default().into_iter().map(str::to_owned).collect()
    }

    pub fn value<'a>(path: &str, object: &'a Value) -> Option<&'a Value> {
        if path.is_empty() { None } else { JsonPath::parse(path).first(object) }
    }
}

pub struct Custom {
    pub(super) plain: Plain,
    /// The type of this version.
    pub(super) ty: Type,
    /// The type of the stored version.
    pub(super) stored: Type,
    /// The types of all versions, of those too that are not served, by `group/version`.
    pub(super) versions: Arc<[(String, Type)]>,
    pub(super) scale: Option<ScalePaths>,
    /// Type and path of each column behind the name.
    pub(super) columns: Vec<(String, JsonPath)>,
    /// Dotted, without the leading dot.
    pub(super) selectable: Vec<String>,
    pub(super) deprecation: Option<String>,
    pub(super) published: Value,
    pub(super) rules: Option<Rules>,
    pub(super) conversion: Option<Value>,
}

impl Custom {
    fn schema(&self) -> Option<&Schema> {
        self.ty.schema()
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> FieldErrors {
        let Some(schema) = self.schema() else { return FieldErrors::new() };
        let mut errors = schema.validate(object, old);
        if let Some(scale) = &self.scale {
            scale_errors(&[&scale.spec, &scale.status], object, &mut errors);
            selector_errors(scale, object, &mut errors);
        }
        embedded_errors(schema, object, &Path::root(), &mut errors);
        self.duplicates(object, old, &mut errors);
        errors
    }

    /// A status is looked at by itself: texts name what is wrong from there on, paths from the root.
    fn validate_status(&self, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let schema = self.schema().and_then(|schema| schema.properties.get("status"));
        if let (Some(schema), Some(status)) = (schema, object.get("status")) {
            errors = schema.validate(status, old.get("status"));
            for error in errors.iter_mut() {
                let (place, whole) = (error.path.as_str().to_owned(), Path::new("status"));
                error.path = if place.is_empty() { whole } else { Path::new(format!("status.{place}").as_str()) };
            }
        }
        if let Some(scale) = &self.scale {
            scale_errors(&[&scale.status], object, &mut errors);
            selector_errors(scale, object, &mut errors);
        }
        self.duplicates(object, Some(old), &mut errors);
        errors
    }

    /// Repetitions that were there before do not stand in the way of other changes.
    fn duplicates(&self, object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        let Some(schema) = self.schema() else { return };
        if old.is_none_or(|old| schema.duplicates(old).is_empty()) {
            errors.extend(schema.duplicates(object));
        }
    }

    fn evaluate_rules(&self, object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        let Some(rules) = &self.rules else { return };
        if errors.iter().any(blocks_rules) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                          errors to complete validation";
            errors.push(FieldError::invalid(&Path::root(), Value::Null, detail));
        } else {
            errors.extend(rules.evaluate(object, old).errors);
        }
    }
}

/// Rules can only be evaluated for values of the right types and sizes.
fn blocks_rules(error: &FieldError) -> bool {
    use ferry_meta::ErrorType::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    matches!(error.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
}

/// A value as Go's `%v` has it, and its type.
fn go_value(value: &Value) -> (String, &'static str) {
    match value {
        Value::String(text) => (text.clone(), "string"),
        Value::Bool(_) => (value.to_string(), "bool"),
        Value::Number(number) if number.is_i64() => (number.to_string(), "int64"),
        Value::Number(number) => (go_float_short(number.as_f64().unwrap_or_default()), "float64"),
        Value::Array(_) => (value.to_string(), "[]interface {}"),
        Value::Object(_) => (value.to_string(), "map[string]interface {}"),
        Value::Null => ("<nil>".to_owned(), "<nil>"),
    }
}

/// The first part of a path that leads through what is no map, and that value.
fn no_map<'v>(path: &str, object: &'v Value) -> Option<(String, &'v Value)> {
    let (mut at, mut place) = (object, String::new());
    for field in ScalePaths::fields(path) {
        place = format!("{place}.{field}");
        match at {
            Value::Object(map) => at = map.get(&field)?,
            Value::Null => return None,
            other => return Some((place, other)),
        }
    }
    None
}

/// What is at a path, as upstream's accessors read it: the error that they return where it is of another type.
fn accessed<'v, T>(
    path: &str,
    object: &'v Value,
    expected: &str,
    read: impl Fn(&'v Value) -> Option<T>,
) -> Result<Option<T>, String> {
    let wrong = |place: &str, found: &Value, expected: &str| {
        let (shown, kind) = go_value(found);
        format!("{place} accessor error: {shown} is of the type {kind}, expected {expected}")
    };
    if let Some((place, found)) = no_map(path, object) {
        return Err(wrong(&place, found, "map[string]interface{}"));
    }
    match ScalePaths::value(path, object) {
        None => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| wrong(path, value, expected)),
    }
}

fn scale_errors(paths: &[&String], object: &Value, errors: &mut FieldErrors) {
    for path in paths {
        let at = Path::new(path.as_str());
        match accessed(path, object, "int64", Value::as_i64) {
            Err(detail) => errors.invalid(at, 0, detail),
            Ok(Some(value)) if value < 0 => errors.invalid(at, value, "should be a non-negative integer"),
            Ok(Some(value)) if value > i64::from(i32::MAX) => {
                errors.invalid(at, value, format!("should be less than or equal to {}", i32::MAX));
            }
            Ok(_) => {}
        }
    }
}

fn selector_errors(scale: &ScalePaths, object: &Value, errors: &mut FieldErrors) {
    let path = scale.selector.as_str();
    if path.is_empty() {
        return;
    }
    if let Err(detail) = accessed(path, object, "string", Value::as_str) {
        errors.invalid(Path::new(path), "", detail);
    }
}

/// Of finalizers that are new and have no domain.
fn finalizer_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let finalizers = |object: &Value| -> Vec<String> {
        let list = object::items(object, "/metadata/finalizers");
        list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let before = old.map(finalizers).unwrap_or_default();
    let known = ["orphan", "foregroundDeletion"];
    let odd = |name: &String| !name.contains('/') && !known.contains(&name.as_str()) && !before.contains(name);
    let said = "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers";
    finalizers(object)
        .iter()
        .filter(|name| odd(name))
        .map(|name| format!("metadata.finalizers: {name:?}: {said}"))
        .collect()
}

impl Strategy for Custom {
    fn plain(&self) -> &Plain {
        &self.plain
    }

    fn custom_type(&self) -> Option<&Type> {
        Some(&self.ty)
    }

    fn type_in(&self, api_version: &str) -> Option<&Type> {
        self.versions.iter().find(|(version, _)| version == api_version).map(|(_, ty)| ty)
    }

    fn fills_in_stored(&self) -> bool {
        let status = self.stored.schema().and_then(|schema| schema.properties.get("status"));
        self.plain.has_status && status.is_some_and(|status| status.default.is_some())
    }

    fn scale_paths(&self) -> Option<&ScalePaths> {
        self.scale.as_ref()
    }

    fn default(&self, object: &mut Value) {
        if let Some(schema) = self.schema() {
            schema.fill_defaults(object);
        }
    }

    fn default_applied(&self, object: &mut Value) {
        // What an applier left empty reads null here, and upstream refuses that.
        if let Some(schema) = self.schema() {
            schema.fill_in(object);
        }
    }

    fn conversion(&self) -> Option<&Value> {
        self.conversion.as_ref()
    }

    fn published_schema(&self) -> Option<&Value> {
        Some(&self.published)
    }

    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        if self.plain.has_status
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        common::set_generation(object, 1);
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        if context.subresource == "status" {
            let status = object.get("status").cloned();
            let metadata = object::metadata_mut(object);
            let kept: Vec<(&str, Option<Value>)> =
                ["managedFields", "resourceVersion"].map(|key| (key, metadata.remove(key))).into();
            *object = old.clone();
            if let Some(map) = object.as_object_mut() {
                match status {
                    Some(status) => map.insert("status".into(), status),
                    None => map.remove("status"),
                };
            }
            let metadata = object::metadata_mut(object);
            for (key, value) in kept {
                match value {
                    Some(value) => metadata.insert(key.into(), value),
                    None => metadata.remove(key),
                };
            }
            return;
        }
        let mut but = vec!["metadata", "apiVersion"];
        if self.plain.has_status {
            common::keep(object, old, "status");
            but.push("status");
        }
        let changed = !common::same_but(object, old, &but);
        common::set_generation(object, common::generation(old) + i64::from(changed));
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        self.validate(object, None)
    }

    fn last_errors(&self, object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        self.evaluate_rules(object, old, errors);
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        if context.subresource == "status" {
            self.validate_status(object, old)
        } else {
            self.validate(object, Some(old))
        }
    }

    /// Finalizers that others may have too, and rules that do not hold for what an update left as it was.
    fn warnings(&self, _context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = finalizer_warnings(object, old);
        if let (Some(rules), Some(_)) = (&self.rules, old) {
            warnings.extend(rules.evaluate(object, old).warnings.iter().map(FieldError::line));
        }
        warnings
    }

    fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }

    fn selectable_fields(&self) -> Vec<&str> {
        self.selectable.iter().map(String::as_str).collect()
    }

    fn reset_fields(&self, subresource: &str) -> Vec<&'static str> {
        match subresource {
            "" if self.plain.has_status => vec!["status"],
            "status" => vec!["spec", "metadata"],
            _ => Vec::new(),
        }
    }

    /// With the defaults that the stored version has: they are there whenever it is read. A status that came with a new
    /// object went before it was stored, its defaults come back.
    fn to_storage(&self, mut object: Value) -> Value {
        if let Some(schema) = self.stored.schema() {
            if self.stored.name() != self.ty.name() {
                schema.prune(&mut object);
            }
            schema.fill_in(&mut object);
        }
        object
    }

    fn from_storage(&self, mut object: Value) -> Value {
        // The stored version's schema may have changed since the object was written.
        if let Some(schema) = self.stored.schema() {
            schema.prune(&mut object);
            schema.fill_defaults(&mut object);
        }
        if let Some(schema) = self.schema()
            && self.stored.name() != self.ty.name()
        {
            schema.prune(&mut object);
        }
        object
    }

    fn cells(&self, value: &Value, now: Timestamp) -> Vec<Value> {
        let mut all = vec![object::name(value).into()];
        all.extend(self.columns.iter().map(|(kind, path)| cell(kind, path.first(value), now)));
        all
    }
}

/// A value as a column of this type shows it; null where it does not fit.
fn cell(kind: &str, value: Option<&Value>, now: Timestamp) -> Value {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Value::Null };
    match (kind, value) {
        ("string", Value::String(_)) => value.clone(),
        ("string", other) => other.to_string().into(),
        ("integer", Value::Number(number)) => {
            number.as_i64().or_else(|| number.as_f64().map(|float| float as i64)).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => {
            if ferry_meta::time::parse(text).is_some() {
                cells::since(text, now).into()
            } else {
                "<invalid>".into()
            }
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn new_finalizers_without_a_domain_are_warned_of() {
        let object = |list: &[&str]| json!({"metadata": {"finalizers": list}});
        for (now, before, count) in [
            (object(&["x", "a.b/c", "orphan"]), None, 1),
            (object(&["x"]), Some(object(&["x"])), 0),
            (object(&["x", "y"]), Some(object(&["x"])), 1),
            (json!({}), None, 0),
        ] {
            assert_eq!(finalizer_warnings(&now, before.as_ref()).len(), count, "{now}");
        }
    }

    #[test]
    fn selectors_of_a_scale_are_texts_of_any_length() {
        let scale =
            ScalePaths { spec: ".spec.n".into(), status: ".status.n".into(), selector: ".status.in.selector".into() };
        for (status, wanted) in [
            (json!({}), ""),
            (json!({"in": {"selector": "a".repeat(2000)}}), ""),
            (
                json!({"in": {"selector": 5}}),
                ".status.in.selector: Invalid value: \"\": .status.in.selector accessor error: 5 is of the type int64, expected string",
            ),
            (
                json!({"in": "x"}),
                ".status.in.selector: Invalid value: \"\": .status.in.selector accessor error: x is of the type string, expected map[string]interface{}",
            ),
        ] {
            let mut errors = FieldErrors::new();
            selector_errors(&scale, &json!({"status": status}), &mut errors);
            assert_eq!(errors.iter().map(FieldError::line).collect::<String>(), wanted);
        }
    }
}
