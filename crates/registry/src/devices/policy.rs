//! How much of a shared capacity may be asked for: values or a range, with a default that is one of them.

use ferry_meta::{FieldError, FieldErrors, Path, Quantity};
use serde_json::Value;

use crate::cursor::{Cursor, Report};

const MOST_VALUES: usize = 10;

fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// Judges the policy of a capacity.
pub(super) fn check(errors: &mut FieldErrors, capacity: &Cursor<'_>) {
    let policy = capacity.get("requestPolicy");
    let (values, range) = (policy.items("validValues"), policy.get("validRange"));
    let Some(most) = amount(capacity.raw("value")) else { return };
    let default = amount(policy.raw("default"));
    let undefined = |what: &str| format!("required when {what} is defined");
    match (values.is_empty(), range.exists()) {
        (false, true) => {
            let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time";
            errors.forbidden(policy.path.clone(), detail);
        }
        (false, false) => match default {
            Some(default) => discrete(errors, &policy.at("validValues"), &values, &default, &most),
            None => errors.required(policy.at("default"), &undefined("validValues")),
        },
        (true, true) => match default {
            Some(default) => of_range(errors, &range, &default, &most),
            None => errors.required(policy.at("default"), &undefined("validRange")),
        },
        (true, false) => {}
    }
}

fn discrete(errors: &mut FieldErrors, path: &Path, values: &[Cursor<'_>], default: &Quantity, most: &Quantity) {
    let amounts: Vec<(Path, Quantity)> =
        values.iter().filter_map(|value| Some((value.path.clone(), amount(value.value)?))).collect();
    for pair in amounts.windows(2) {
        if pair[0].1 > pair[1].1 {
            errors.invalid(pair[1].0.clone(), pair[1].1.to_string(), "values must be sorted in ascending order");
        }
    }
    if amounts.len() > MOST_VALUES {
        errors.push(FieldError::too_many(path, amounts.len(), MOST_VALUES));
    } else {
        for (path, value) in amounts.iter().filter(|(_, value)| value > most) {
            let detail = format!("option is larger than capacity value: {most}");
            errors.invalid(path.clone(), value.to_string(), detail);
        }
        for (number, (path, value)) in amounts.iter().enumerate() {
            if amounts[..number].iter().any(|(_, known)| known == value) {
                errors.duplicate(path.clone(), Value::from(decimal(value)));
            }
        }
    }
    let known = amounts.len() <= MOST_VALUES && amounts.iter().any(|(_, value)| value == default);
    if !known {
        let detail = "default value is not valid according to the requestPolicy";
        errors.invalid(path.clone(), default.to_string(), detail);
    }
}

/// Without a suffix.
fn decimal(value: &Quantity) -> String {
    if value.is_integer() {
        return value.value().to_string();
    }
    let milli = value.milli_value();
    let sign = if milli < 0 { "-" } else { "" };
    format!("{sign}{}.{:03}", milli.unsigned_abs() / 1000, milli.unsigned_abs() % 1000)
}

fn of_range(errors: &mut FieldErrors, range: &Cursor<'_>, default: &Quantity, most: &Quantity) {
    let Some(least) = amount(range.raw("min")) else {
        return errors.required(range.at("min"), "required when validRange is defined");
    };
    let (largest, step) = (amount(range.raw("max")), amount(range.raw("step")));
    let mut wrong = |key: &str, value: &Quantity, detail: String| {
        errors.invalid(range.at(key), value.to_string(), detail);
    };
    if least > *most {
        wrong("min", &least, format!("min is larger than capacity value: {most}"));
    }
    if *default < least {
        wrong("default", default, format!("default is less than min: {least}"));
    }
    if let Some(largest) = &largest {
        if least > *largest {
            wrong("max", &least, format!("min is larger than max: {largest}"));
        }
        if largest > most {
            wrong("max", largest, format!("max is larger than capacity value: {most}"));
        }
        if default > largest {
            wrong("default", default, format!("default is more than max: {largest}"));
        }
    }
    // With a fraction anywhere, steps are counted in thousandths.
    let ends = [Some(default), Some(&least), largest.as_ref(), step.as_ref()];
    let fine = ends.into_iter().flatten().any(|value| !value.is_integer());
    if fine {
        let mut sound = true;
        for (key, value) in ["default", "min", "max", "step"].into_iter().zip(ends) {
            if let Some(value) =
                value.filter(|value| Quantity::from_milli(value.milli_value(), value.format()) != **value)
            {
                wrong(key, value, "value cannot be represented as a milli value".into());
                sound = false;
            }
        }
        if !sound {
            return;
        }
    }
    let Some(step) = step else { return };
    if step.is_zero() || step.is_negative() {
        return wrong("step", &step, "must be greater than zero".into());
    }
    let one = least.add(&step);
    if one > *most {
        wrong("step", &step, format!("one step {one} is larger than capacity value: {most}"));
    }
    let limit = Quantity::from_units(i64::MAX, step.format());
    let mut sound = true;
    let all = [("default", Some(default)), ("min", Some(&least)), ("max", largest.as_ref()), ("step", Some(&step))];
    for (key, value) in all.into_iter().filter(|_| !fine).filter_map(|(key, value)| Some((key, value?))) {
        if value.is_negative() {
            wrong(key, value, "must be greater than or equal to 0".into());
            sound = false;
        } else if *value > limit {
            wrong(key, value, "must not be larger than 9223372036854775807".into());
            sound = false;
        }
    }
    // Both ends are within reach of steps from the least.
    let count = |value: &Quantity| i128::from(if fine { value.milli_value() } else { value.value() });
    for value in [Some(default), largest.as_ref()].into_iter().flatten().filter(|_| sound) {
        if (count(value) - count(&least)) % count(&step) != 0 {
            wrong("step", value, format!("value is not a multiple of a given step ({step}) from ({least})"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn says(policy: Value, expected: &[&str]) {
        let capacity = json!({"value": "10", "requestPolicy": policy});
        let mut errors = FieldErrors::new();
        check(&mut errors, &Cursor::new(&capacity, Path::new("c")));
        let said: Vec<String> = errors.iter().map(FieldError::line).collect();
        assert_eq!(said, expected, "{capacity}");
    }

    #[test]
    fn policies_are_judged_in_upstreams_words() {
        says(json!({}), &[]);
        says(json!({"default": "1"}), &[]);
        says(json!({"default": "2", "validRange": {"min": "1", "max": "9", "step": "1"}}), &[]);
        says(json!({"default": "4", "validValues": ["1", "4"]}), &[]);
        says(
            json!({"default": "1", "validValues": ["1"], "validRange": {"min": "1"}}),
            &[
                "c.requestPolicy: Forbidden: exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time",
            ],
        );
        says(
            json!({"validValues": ["1"]}),
            &["c.requestPolicy.default: Required value: required when validValues is defined"],
        );
        says(
            json!({"validRange": {"min": "1"}}),
            &["c.requestPolicy.default: Required value: required when validRange is defined"],
        );
        says(
            json!({"default": "3", "validValues": ["4", "1", "1", "11"]}),
            &[
                "c.requestPolicy.validValues[1]: Invalid value: \"1\": values must be sorted in ascending order",
                "c.requestPolicy.validValues[3]: Invalid value: \"11\": option is larger than capacity value: 10",
                "c.requestPolicy.validValues[2]: Duplicate value: \"1\"",
                "c.requestPolicy.validValues: Invalid value: \"3\": default value is not valid according to the requestPolicy",
            ],
        );
        says(
            json!({"default": "1", "validRange": {"min": "11", "max": "9", "step": "0"}}),
            &[
                "c.requestPolicy.validRange.min: Invalid value: \"11\": min is larger than capacity value: 10",
                "c.requestPolicy.validRange.default: Invalid value: \"1\": default is less than min: 11",
                "c.requestPolicy.validRange.max: Invalid value: \"11\": min is larger than max: 9",
                "c.requestPolicy.validRange.step: Invalid value: \"0\": must be greater than zero",
            ],
        );
        says(
            json!({"default": "4", "validRange": {"min": "1", "max": "8", "step": "2"}}),
            &[
                "c.requestPolicy.validRange.step: Invalid value: \"4\": value is not a multiple of a given step (2) from (1)",
                "c.requestPolicy.validRange.step: Invalid value: \"8\": value is not a multiple of a given step (2) from (1)",
            ],
        );
        says(json!({"default": "500m", "validRange": {"min": "250m", "max": "2", "step": "250m"}}), &[]);
        says(
            json!({"default": "600m", "validRange": {"min": "250m", "max": "2", "step": "250m"}}),
            &[
                "c.requestPolicy.validRange.step: Invalid value: \"600m\": value is not a multiple of a given step (250m) from (250m)",
            ],
        );
        // The fraction of a default counts as well.
        says(
            json!({"default": "1500m", "validRange": {"min": "1", "step": "1"}}),
            &[
                "c.requestPolicy.validRange.step: Invalid value: \"1500m\": value is not a multiple of a given step (1) from (1)",
            ],
        );
        says(
            json!({"default": "1", "validRange": {"min": "1u", "step": "1"}}),
            &["c.requestPolicy.validRange.min: Invalid value: \"1u\": value cannot be represented as a milli value"],
        );
        says(json!({"default": "1500m", "validValues": ["1200m", "1500m"]}), &[]);
        says(
            json!({"default": "1500m", "validValues": ["1500m", "1500m"]}),
            &["c.requestPolicy.validValues[1]: Duplicate value: \"1.500\""],
        );
        says(
            json!({"default": "1", "validRange": {"min": "1", "step": "1e30"}}),
            &[
                "c.requestPolicy.validRange.step: Invalid value: \"1e30\": one step 1000000000000000000000000000001 is larger than capacity value: 10",
                "c.requestPolicy.validRange.step: Invalid value: \"1e30\": must not be larger than 9223372036854775807",
            ],
        );
    }
}
