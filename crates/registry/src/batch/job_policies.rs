//! What a Job does with pods that fail or succeed.

use std::collections::HashSet;

use ferry_meta::{FieldError, FieldErrors, names};

use crate::cursor::{Cursor, Report};

/// An error that shows no value.
pub(super) fn without_value(path: &ferry_meta::Path, detail: &str) -> FieldError {
    FieldError::invalid(path, serde_json::Value::Null, detail).shown_as("")
}

pub(super) fn failure(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let policy = spec.get("podFailurePolicy");
    if !policy.exists() {
        return;
    }
    let pod = spec.get("template").get("spec");
    let containers: Vec<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| pod.array(list))
        .filter_map(|container| container["name"].as_str())
        .collect();
    let rules = policy.items("rules");
    if rules.len() > 20 {
        errors.push(FieldError::too_many(&policy.at("rules"), rules.len(), 20));
    }
    for rule in rules {
        const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
        match rule.text("action") {
            "" => errors.required(rule.at("action"), "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]"),
            "FailIndex" if !spec.has("backoffLimitPerIndex") => {
                errors.invalid(rule.at("action"), "FailIndex", "requires the backoffLimitPerIndex to be set");
            }
            other if !ACTIONS.contains(&other) => errors.unsupported(rule.at("action"), other, &ACTIONS),
            _ => {}
        }
        let codes = rule.get("onExitCodes");
        if codes.exists() {
            exit_codes(errors, &codes, &containers);
        }
        let conditions = rule.items("onPodConditions");
        pod_conditions(errors, &rule, &conditions);
        match (codes.exists(), !conditions.is_empty()) {
            (true, true) => errors
                .push(without_value(&rule.path, "specifying both OnExitCodes and OnPodConditions is not supported")),
            (false, false) => {
                errors.push(without_value(&rule.path, "specifying one of OnExitCodes and OnPodConditions is required"));
            }
            _ => {}
        }
    }
}

fn exit_codes(errors: &mut FieldErrors, codes: &Cursor<'_>, containers: &[&str]) {
    match codes.text("operator") {
        "" => errors.required(codes.at("operator"), "valid values: [\"In\" \"NotIn\"]"),
        "In" | "NotIn" => {}
        other => errors.unsupported(codes.at("operator"), other, &["In", "NotIn"]),
    }
    if let Some(name) = codes.raw("containerName").as_str().filter(|name| !containers.contains(name)) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(codes.at("containerName"), name, detail);
    }
    let values: Vec<i64> = codes.array("values").iter().filter_map(serde_json::Value::as_i64).collect();
    if values.is_empty() {
        errors.invalid(codes.at("values"), codes.raw("values").clone(), "at least one value is required");
    } else if values.len() > 255 {
        errors.push(FieldError::too_many(&codes.at("values"), values.len(), 255));
    }
    let mut seen = HashSet::new();
    for (index, value) in values.iter().enumerate() {
        let path = codes.at("values").index(index);
        if codes.text("operator") == "In" && *value == 0 {
            errors.invalid(path.clone(), 0, "must not be 0 for the In operator");
        }
        if !seen.insert(value) {
            errors.duplicate(path, *value);
        }
    }
    if !values.is_sorted() {
        errors.invalid(codes.at("values"), codes.raw("values").clone(), "must be ordered");
    }
}

fn pod_conditions(errors: &mut FieldErrors, rule: &Cursor<'_>, conditions: &[Cursor<'_>]) {
    if conditions.len() > 20 {
        errors.push(FieldError::too_many(&rule.at("onPodConditions"), conditions.len(), 20));
    }
    for condition in conditions {
        let kind = condition.text("type");
        errors.reasons(condition.at("type"), kind, names::qualified_name(kind));
        match condition.text("status") {
            "" => errors.required(condition.at("status"), "valid values: [\"False\" \"True\" \"Unknown\"]"),
            "False" | "True" | "Unknown" => {}
            other => errors.unsupported(condition.at("status"), other, &["False", "True", "Unknown"]),
        }
    }
}

pub(super) fn success(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let policy = spec.get("successPolicy");
    if !policy.exists() {
        return;
    }
    if spec.text("completionMode") != "Indexed" {
        let error = FieldError::invalid(&policy.path, policy.value.clone(), "requires indexed completion mode");
        return errors.push(error.shown_as(crate::internal::show("SuccessPolicy", policy.value)));
    }
    let rules = policy.items("rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(policy.at("rules"), detail);
    }
    if rules.len() > 20 {
        errors.push(FieldError::too_many(&policy.at("rules"), rules.len(), 20));
    }
    let completions = spec.number("completions");
    for rule in rules {
        let (count, named) = (rule.int("succeededCount"), rule.raw("succeededIndexes").as_str());
        if count.is_none() && named.is_none() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.required(rule.path.clone(), detail);
        }
        // Indexes that cannot be read count as none.
        let total = named.map(|text| indexes(text, completions));
        if let (Some(text), Some(Err(reason))) = (named, &total) {
            let detail = format!("error parsing succeededIndexes: {reason}");
            errors.invalid(rule.at("succeededIndexes"), text, detail);
        }
        let Some(count) = count else { continue };
        errors.non_negative(rule.at("succeededCount"), count);
        if count > completions {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.invalid(rule.at("succeededCount"), count, detail);
        }
        let total = total.map(|named| named.map_or(0, |named| named.iter().map(|(low, high)| high - low + 1).sum()));
        if let Some(total) = total
            && count > total
        {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.invalid(rule.at("succeededCount"), count, detail);
        }
    }
}

/// The intervals that `1,3-5` names; they must rise and stay below the completions.
pub(super) fn indexes(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let mut found: Vec<(i64, i64)> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let ends: Vec<&str> = part.split('-').collect();
        if ends.len() > 2 {
            return Err(format!(
                "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        let mut interval = [0; 2];
        for (end, text) in interval.iter_mut().zip(&ends) {
            *end = text.parse::<i64>().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
            if *end >= completions {
                return Err(format!("too large index: {text:?}"));
            }
        }
        let [low, high] = if ends.len() == 1 { [interval[0]; 2] } else { interval };
        if ends.len() == 2 && low >= high {
            return Err(format!("non-increasing order, previous: {low}, current: {high}"));
        }
        if let Some((_, last)) = found.last().filter(|(_, last)| *last >= low) {
            return Err(format!("non-increasing order, previous: {last}, current: {low}"));
        }
        found.push((low, high));
    }
    Ok(found)
}
