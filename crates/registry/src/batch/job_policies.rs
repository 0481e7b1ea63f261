//! What a Job does with pods that fail or succeed.

use ferry_meta::{FieldError, FieldErrors, names};

use crate::at::{At, Report};

/// An error that shows no value.
pub(super) fn without_value(path: &ferry_meta::Path, detail: &str) -> FieldError {
    FieldError::invalid(path, serde_json::Value::Null, detail).shown_as("")
}

pub(super) fn failure(errors: &mut FieldErrors, spec: &At<'_>) {
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

fn exit_codes(errors: &mut FieldErrors, codes: &At<'_>, containers: &[&str]) {
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
    for (index, value) in values.iter().enumerate() {
        let path = codes.at("values").index(index);
        if codes.text("operator") == "In" && *value == 0 {
            errors.invalid(path.clone(), 0, "must not be 0 for the In operator");
        }
        if values[..index].contains(value) {
            errors.duplicate(path, *value);
        }
    }
    if !values.is_sorted() {
        errors.invalid(codes.at("values"), codes.raw("values").clone(), "must be ordered");
    }
}

fn pod_conditions(errors: &mut FieldErrors, rule: &At<'_>, conditions: &[At<'_>]) {
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

pub(super) fn success(errors: &mut FieldErrors, spec: &At<'_>) {
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
        let (count, indexes) = (rule.int("succeededCount"), rule.raw("succeededIndexes").as_str());
        if count.is_none() && indexes.is_none() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.required(rule.path.clone(), detail);
        }
        let total = indexes.map(|text| index_count(text, completions));
        if let (Some(text), Some(Err(reason))) = (indexes, &total) {
            let detail = format!("error parsing succeededIndexes: {reason}");
            errors.invalid(rule.at("succeededIndexes"), text, detail);
        }
        let Some(count) = count else { continue };
        errors.non_negative(rule.at("succeededCount"), count);
        if count > completions {
            let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.invalid(rule.at("succeededCount"), count, detail);
        }
        if let Some(Ok(total)) = total
            && count > total
        {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.invalid(rule.at("succeededCount"), count, detail);
        }
    }
}

/// How many indexes `1,3-5` names; they must rise and stay below the completions.
fn index_count(text: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, -1);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let mut ends = part.splitn(2, '-');
        let parse = |text: &str| {
            text.parse::<i64>().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))
        };
        let low = parse(ends.next().unwrap_or_default())?;
        let high = ends.next().map_or(Ok(low), parse)?;
        if low <= last {
            return Err(format!("non-increasing order, previous: {last}, current: {low}"));
        }
        if low >= completions || high >= completions {
            let bad = if low >= completions { low } else { high };
            return Err(format!("too large index: \"{bad}\""));
        }
        if high < low {
            return Err(format!("non-increasing order, previous: {low}, current: {high}"));
        }
        total += high - low + 1;
        last = high;
    }
    Ok(total)
}
