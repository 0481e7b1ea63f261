//! LimitRanges.

use std::collections::HashSet;

use std::collections::BTreeSet;

use ferry_meta::{FieldErrors, Path, Quantity, names};
use serde_json::{Map, Value, json};

use super::pod::{resource_list, resources};
use crate::cursor::{Cursor, Report, map_mut, maps_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct LimitRange(pub Plain);

fn fill(item: &mut Map<String, Value>, target: &str, source: &str) {
    let Some(source) = item.get(source).and_then(Value::as_object).cloned() else { return };
    if let Some(target) = map_mut(item, target) {
        for (key, value) in source {
            target.entry(key).or_insert(value);
        }
    }
}

impl Strategy for LimitRange {
    fn plain(&self) -> &Plain {
        &self.0
    }

    /// For containers, limits default to the maximum, requests to the limits and then to the minimum.
    fn default(&self, object: &mut Value) {
        for item in maps_mut(object_at(object, &["spec"]), "limits") {
            for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
                resource_list(item, list);
            }
            if item.get("type") != Some(&json!("Container")) {
                continue;
            }
            for list in ["default", "defaultRequest"] {
                if item.get(list).is_none_or(Value::is_null) {
                    item.insert(list.into(), json!({}));
                }
            }
            fill(item, "default", "max");
            fill(item, "defaultRequest", "default");
            fill(item, "defaultRequest", "min");
        }
    }

    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        // One without a name gets one that nobody else has.
        if ferry_meta::object::name(object).is_empty() {
            let name = ferry_meta::object::uid(object).to_owned();
            ferry_meta::object::metadata_mut(object).insert("name".into(), name.into());
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let mut seen: HashSet<&str> = HashSet::new();
        for item in Cursor::root(object).get("spec").items("limits") {
            let kind = item.text("type");
            type_name(&mut errors, item.at("type"), kind);
            if seen.contains(&kind) {
                errors.duplicate(item.at("type"), kind);
            }
            seen.insert(kind);
            one(&mut errors, &item, kind);
        }
        errors
    }
}

fn type_name(errors: &mut FieldErrors, path: Path, kind: &str) {
    let reasons = names::qualified_name(kind);
    if !reasons.is_empty() {
        errors.reasons(path, kind, reasons);
    } else if !kind.contains('/') && !["Container", "PersistentVolumeClaim", "Pod"].contains(&kind) {
        errors.invalid(path, kind, "must be a standard limit type or fully qualified");
    }
}

fn one(errors: &mut FieldErrors, item: &Cursor<'_>, kind: &str) {
    let mut keys: BTreeSet<&str> = BTreeSet::new();
    let mut list = |errors: &mut FieldErrors, name: &str| {
        for (key, at) in item.entries(name) {
            if ["Pod", "Container"].contains(&kind) {
                resources::container_name(errors, &at.path, key);
            } else {
                resources::any_name(errors, &at.path, key);
            }
            keys.insert(key);
        }
    };
    list(errors, "max");
    list(errors, "min");
    for name in ["default", "defaultRequest"] {
        if kind != "Pod" {
            list(errors, name);
        } else if !item.map(name).is_empty() {
            errors.forbidden(item.at(name), "may not be specified when `type` is 'Pod'");
        }
    }
    if kind == "PersistentVolumeClaim" && !["min", "max"].iter().any(|l| item.map(l).contains_key("storage")) {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(item.at("limits"), detail);
    }
    list(errors, "maxLimitRequestRatio");
    for key in keys {
        bounds(errors, item, key, kind == "Pod");
    }
}

fn bounds(errors: &mut FieldErrors, item: &Cursor<'_>, key: &str, is_pod: bool) {
    let get = |list: &str| item.get(list).quantity(key).filter(|_| !is_pod || !list.starts_with("default"));
    let (least, most) = (get("min"), get("max"));
    let (limit, request, ratio) = (get("default"), get("defaultRequest"), get("maxLimitRequestRatio"));
    let mut ordered =
        |low: &Option<Quantity>, high: &Option<Quantity>, list: &str, shown: bool, low_name: &str, high_name: &str| {
            if let (Some(low), Some(high)) = (low, high)
                && low > high
            {
                let value = if shown { low } else { high };
                let detail = format!("{low_name} value {low} is greater than {high_name} value {high}");
                errors.invalid(item.at(list).key(key), value.to_string(), detail);
            }
        };
    ordered(&least, &most, "min", true, "min", "max");
    ordered(&least, &request, "defaultRequest", false, "min", "default request");
    ordered(&request, &most, "defaultRequest", true, "default request", "max");
    ordered(&request, &limit, "defaultRequest", true, "default request", "default limit");
    ordered(&least, &limit, "default", true, "min", "default");
    ordered(&limit, &most, "default", false, "default", "max");
    let Some(ratio) = ratio else { return };
    let path = item.at("maxLimitRequestRatio").key(key);
    if ratio < Quantity::from_units(1, ferry_meta::quantity::Format::DecimalSi) {
        errors.invalid(path.clone(), ratio.to_string(), format!("ratio {ratio} is less than 1"));
    }
    if let (Some(least), Some(most)) = (least, most) {
        let highest = most.milli_value() as f64 / least.milli_value() as f64;
        if ratio.milli_value() as f64 / 1000.0 > highest {
            let detail = format!("ratio {ratio} is greater than max/min = {highest:.6}");
            errors.invalid(path, ratio.to_string(), detail);
        }
    }
}
