//! Whether the values of a custom resource are what its schema allows, in upstream's words and order.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use ferry_meta::bounds::Extent;
use ferry_meta::{FieldError, FieldErrors, Path};
use serde_json::{Map, Number, Value};

use super::{Additional, Schema, formats, lists};
use crate::catalogue::ListType;

/// As many values are compared with a schema: each with all alternatives of its place, which a definition may have many of.
const MOST_CHECKS: usize = 5_000_000;

impl Schema {
    /// The errors of an object. What an update leaves as it was is forgiven.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if let Err(excess) = Extent::of(object).check() {
            errors.push(placeless(excess.to_string()));
            return errors;
        }
        let left = Cell::new(MOST_CHECKS);
        check(self, object, old, &At { path: Path::root(), left: &left }, &mut errors);
        if left.get() == 0 {
            errors.push(placeless("the object has more values than can be compared with its schema".to_owned()));
        }
        errors
    }
}

/// Where a value stands, and how many may still be looked at.
struct At<'w> {
    path: Path,
    left: &'w Cell<usize>,
}

impl At<'_> {
    fn child(&self, key: &str) -> Self {
        Self { path: self.path.child(key), left: self.left }
    }

    fn index(&self, index: usize) -> Self {
        Self { path: self.path.index(index), left: self.left }
    }
}

fn check(schema: &Schema, value: &Value, old: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let (path, left) = (&at.path, at.left.get());
    if left == 0 || old == Some(value) || (value.is_null() && schema.nullable) {
        return;
    }
    at.left.set(left - 1);
    types(schema, value, path, errors);
    combinations(schema, value, old, at, errors);
    match value {
        Value::String(text) => strings(schema, text, path, errors),
        Value::Number(number) => numbers(schema, number, path, errors),
        Value::Array(items) => arrays(schema, items, old, at, errors),
        _ => {}
    }
    allowed_values(schema, value, path, errors);
    if let Value::Object(map) = value {
        objects(schema, map, old, at, errors);
    }
}

/// An error upstream cannot say the place of but in words.
fn placeless(text: String) -> FieldError {
    FieldError::invalid(&Path::root(), "", text)
}

/// The largest number without a fraction that a float may have to pass for an integer: beyond it not all of them are there.
const MOST_EXACT: f64 = 9_007_199_254_740_991.0;

/// What does not fit into 64 bits with a sign is a float.
fn is_whole_float(number: &Number) -> bool {
    !number.is_i64() && number.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() <= MOST_EXACT)
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn types(schema: &Schema, value: &Value, path: &Path, errors: &mut FieldErrors) {
    let found = type_name(value);
    let expected = if schema.int_or_string { "integer,string" } else { &*schema.kind };
    // Without a type even null will do.
    if expected.is_empty() {
        return;
    }
    let numeric = expected.split(',').any(|kind| matches!(kind, "integer" | "number"));
    let fits = expected.split(',').any(|kind| match kind {
        "integer" => found == kind || value.as_number().is_some_and(is_whole_float),
        "number" => found == kind || found == "integer",
        _ => found == kind,
    });
    let mut refuse = |expected: &str, found: &str| {
        let detail = format!("{} in body must be of type {expected}: \"{found}\"", path.as_str());
        errors.push(FieldError::type_invalid(path, found, detail));
    };
    match value {
        // Upstream holds what has a format against the format, and leaves texts and lists to it.
        Value::Bool(_) | Value::Number(_) | Value::Object(_) if !schema.format.is_empty() => {
            let format = match found {
                "integer" => "int64",
                "number" => "float64",
                _ => "",
            };
            if !fits && format != &*schema.format {
                refuse(&schema.format, format);
            }
        }
        Value::String(_) | Value::Array(_) if !schema.format.is_empty() && !numeric => {}
        _ if fits => {}
        _ => refuse(expected, found),
    }
}

fn combinations(schema: &Schema, value: &Value, old: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let outcome = |of: &Schema| {
        let mut found = FieldErrors::new();
        check(of, value, old, at, &mut found);
        found
    };
    let name = at.path.as_str();
    if !schema.any_of.is_empty() {
        let outcomes: Vec<FieldErrors> = schema.any_of.iter().map(outcome).collect();
        if !outcomes.iter().any(|found| found.is_empty()) {
            errors.push(placeless(format!("\"{name}\" must validate at least one schema (anyOf)")));
            errors.extend(outcomes.into_iter().next().unwrap_or_default());
        }
    }
    if !schema.one_of.is_empty() {
        let outcomes: Vec<FieldErrors> = schema.one_of.iter().map(outcome).collect();
        let valid = outcomes.iter().filter(|errors| errors.is_empty()).count();
        let rule = "must validate one and only one schema (oneOf).";
        if valid == 0 {
            errors.push(placeless(format!("\"{name}\" {rule} Found none valid")));
            errors.extend(outcomes.into_iter().next().unwrap_or_default());
        } else if valid > 1 {
            errors.push(placeless(format!("\"{name}\" {rule} Found {valid} valid alternatives")));
        }
    }
    if !schema.all_of.is_empty() {
        let outcomes: Vec<FieldErrors> = schema.all_of.iter().map(outcome).collect();
        let valid = outcomes.iter().filter(|found| found.is_empty()).count();
        outcomes.into_iter().for_each(|found| errors.extend(found));
        if valid < schema.all_of.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            errors.push(placeless(format!("\"{name}\" must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(not) = &schema.not
        && outcome(not).is_empty()
    {
        errors.push(placeless(format!("\"{name}\" must not validate the schema (not)")));
    }
}

fn strings(schema: &Schema, text: &str, path: &Path, errors: &mut FieldErrors) {
    let (limits, name) = (&schema.limits, path.as_str());
    let length = text.chars().count() as u64;
    // The first of these alone is told.
    if let Some(most) = limits.max_length.filter(|most| length > *most) {
        errors.push(FieldError::too_long(path, usize::try_from(most).unwrap_or(usize::MAX)));
    } else if let Some(least) = limits.min_length.filter(|least| length < *least) {
        errors.push(FieldError::invalid(path, text, format!("{name} in body should be at least {least} chars long")));
    } else if let Some(pattern) = &limits.pattern
        && !pattern.expression.as_ref().is_some_and(|expression| expression.is_match(text))
    {
        errors.push(FieldError::invalid(path, text, format!("{name} in body should match '{}'", pattern.text)));
    }
    if !schema.format.is_empty() && !formats::fits(&schema.format, text) {
        let detail = format!("{name} in body must be of type {}: {}", schema.format, crate::text::quote(text));
        errors.push(FieldError::type_invalid(path, text, detail));
    }
}

fn numbers(schema: &Schema, number: &Number, path: &Path, errors: &mut FieldErrors) {
    let (limits, name) = (&schema.limits, path.as_str());
    let Some(value) = number.as_f64() else { return };
    // As a float, the largest integer of 64 bits is one too large.
    let fits = number.is_i64() && &*schema.format != "int32";
    if let Some(problem) = unfit(schema, value, "Checked", name).filter(|_| !fits) {
        errors.push(problem);
    }
    // A limit that the type cannot have is told, and holds as it is. One that it can have loses its fraction where the value is
    // an integer.
    let limit = |errors: &mut FieldErrors, limit: f64, what: &str| match unfit(schema, limit, what, name) {
        Some(problem) => {
            errors.push(problem);
            limit
        }
        None if number.is_f64() => limit,
        None => limit.trunc(),
    };
    let shown = |limit: f64| crate::encode::go_float(limit);
    let refuse = |errors: &mut FieldErrors, detail: String| {
        let detail = format!("{name} in body should be {detail}");
        let error = FieldError::invalid(path, Value::Number(number.clone()), detail);
        errors.push(if number.is_i64() { error } else { error.shown_as(crate::text::go_float_short(value)) });
    };
    if let Some(factor) = limits.multiple_of.filter(|factor| *factor > 0.0) {
        let factor = limit(errors, factor, "MultipleOf");
        // Integers are divided as such, for not all of them are floats too.
        let exact = number.as_i64().filter(|_| factor.fract() == 0.0 && factor.abs() <= MOST_EXACT);
        let times =
            exact.map_or(value / factor, |whole| if whole.checked_rem(factor as i64) == Some(0) { 0.0 } else { 0.5 });
        if factor == 0.0 {
            let detail = format!("factor MultipleOf declared for {name} must be positive: 0");
            errors.push(FieldError::invalid(path, 0, detail));
        } else if (times - times.round()).abs() > 1e-9 * times.abs().max(1.0) {
            refuse(errors, format!("a multiple of {}", shown(factor)));
        }
    }
    if let Some(least) = limits.minimum {
        let least = limit(errors, least, "Minimum boundary");
        if limits.exclusive_minimum && value <= least {
            refuse(errors, format!("greater than {}", shown(least)));
        } else if value < least {
            refuse(errors, format!("greater than or equal to {}", shown(least)));
        }
    }
    if let Some(most) = limits.maximum {
        let most = limit(errors, most, "Maximum boundary");
        if limits.exclusive_maximum && value >= most {
            refuse(errors, format!("less than {}", shown(most)));
        } else if value > most {
            refuse(errors, format!("less than or equal to {}", shown(most)));
        }
    }
}

/// A number that an integer's type or format has no room for: a value, or a limit of the schema.
fn unfit(schema: &Schema, value: f64, what: &str, name: &str) -> Option<FieldError> {
    if &*schema.kind != "integer" || schema.int_or_string {
        return None;
    }
    // Both ends are powers of two, which floats have exactly.
    let (least, beyond) = match &*schema.format {
        "int32" => (f64::from(i32::MIN), -f64::from(i32::MIN)),
        _ => (i64::MIN as f64, -(i64::MIN as f64)),
    };
    if value.fract() == 0.0 && (least..beyond).contains(&value) {
        return None;
    }
    let format = match &*schema.format {
        "" => "(default format)".to_owned(),
        format => format!("with format {format}"),
    };
    Some(placeless(format!("{what} value must be of type integer {format} in {name}")))
}

fn arrays(schema: &Schema, items: &[Value], old: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let path = &at.path;
    if let Some(of) = &schema.items {
        // Only items with keys can be told to be the same ones as before.
        let before = old.and_then(Value::as_array).filter(|_| schema.list_type == ListType::Map);
        let mut known = HashMap::new();
        for was in before.into_iter().flatten() {
            known.entry(lists::known_by(schema, was)).or_insert(was);
        }
        for (index, item) in items.iter().enumerate() {
            let was = before.and_then(|_| known.get(&lists::known_by(schema, item))).copied();
            check(of, item, was, &at.index(index), errors);
        }
    }
    let (limits, count) = (&schema.limits, items.len() as u64);
    if let Some(least) = limits.min_items.filter(|least| count < *least) {
        let detail = format!("{} in body should have at least {least} items", path.as_str());
        errors.push(FieldError::invalid(path, count, detail));
    }
    if let Some(most) = limits.max_items.filter(|most| count > *most) {
        errors.push(FieldError::too_many(path, items.len(), usize::try_from(most).unwrap_or(usize::MAX)));
    }
    if limits.unique_items {
        let mut seen = HashSet::new();
        if !items.iter().all(|item| seen.insert(item)) {
            let detail = format!("{} in body shouldn't contain duplicates", path.as_str());
            errors.push(FieldError::invalid(path, "", detail));
        }
    }
}

fn allowed_values(schema: &Schema, value: &Value, path: &Path, errors: &mut FieldErrors) {
    let Some(allowed) = &schema.limits.one_of_values else { return };
    // Upstream turns what is there into the type of the allowed value: a float loses its fraction.
    let same = |one: &Value| match (one.as_i64(), value.as_number()) {
        (Some(one), Some(number)) if !number.is_i64() => {
            number.as_f64().is_some_and(|float| float.trunc() == one as f64)
        }
        _ => one == value || (one.is_number() && one.as_f64() == value.as_f64()),
    };
    let known = value.as_str().is_some_and(|text| schema.limits.one_of_texts.contains(text));
    // An error that is not kept need not list them.
    if !known && !errors.is_full() && !allowed.iter().any(same) {
        let texts: Vec<String> =
            allowed.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value.clone(), &texts));
    }
}

fn objects(schema: &Schema, map: &Map<String, Value>, old: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let path = &at.path;
    let (limits, count) = (&schema.limits, map.len() as u64);
    if let Some(least) = limits.min_properties.filter(|least| count < *least) {
        let detail = format!("{} in body should have at least {least} properties", path.as_str());
        errors.push(FieldError::invalid(path, count, detail));
    }
    if let Some(most) = limits.max_properties.filter(|most| count > *most) {
        errors.push(FieldError::too_many(path, map.len(), usize::try_from(most).unwrap_or(usize::MAX)));
    }
    let was = |key: &str| old.and_then(|old| old.get(key));
    if let Additional::Of(of) = &schema.additional {
        for (key, value) in map.iter().filter(|(key, _)| !schema.properties.contains_key(*key)) {
            check(of, value, was(key), &at.child(key), errors);
        }
    }
    for (key, of) in &schema.properties {
        if let Some(value) = map.get(key) {
            check(of, value, was(key), &at.child(key), errors);
        }
    }
    for key in limits.required.iter().filter(|key| !map.contains_key(*key)) {
        errors.push(FieldError::required(&path.child(key), ""));
    }
}
