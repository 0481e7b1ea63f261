//! PriorityLevelConfigurations: how much of the server a level may use, and how its requests wait.

use ferry_meta::{FieldError, FieldErrors, Path, object};
use serde_json::{Value, json};

use super::conditions;
use crate::cursor::{Cursor, Report, default_number, default_to, map_mut, object_at};
use crate::internal;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct PriorityLevelConfiguration(pub Plain);

const MOST_QUEUES: i64 = 10_000_000;
const HASH_BITS: u32 = 60;
const ROUND_TRIP: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

impl Strategy for PriorityLevelConfiguration {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::prepare_update(self.has_status(), self.has_generation(), context, object, old);
        if context.subresource == "status" {
            common::keep_all_metadata(object, old);
        }
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        if let Some(exempt) = map_mut(spec, "exempt") {
            default_to(exempt, "nominalConcurrencyShares", 0);
            default_to(exempt, "lendablePercent", 0);
        }
        if let Some(limited) = map_mut(spec, "limited") {
            default_to(limited, "nominalConcurrencyShares", 30);
            default_to(limited, "lendablePercent", 0);
            let queuing = map_mut(limited, "limitResponse").and_then(|response| map_mut(response, "queuing"));
            if let Some(queuing) = queuing {
                default_number(queuing, "handSize", 8);
                default_number(queuing, "queues", 64);
                default_number(queuing, "queueLengthLimit", 50);
            }
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        // Found by a later pass, and so told last.
        let mut late = FieldErrors::new();
        let level = Cursor::root(object);
        if object::annotations(object).contains_key(ROUND_TRIP) {
            let detail = format!("annotation '{ROUND_TRIP}' is forbidden");
            errors.forbidden(Path::new("metadata").child("annotations"), detail);
        }
        let (name, spec) = (object::name(object), level.get("spec"));
        validate(&mut errors, &mut late, &spec, name);
        mandatory(&mut errors, &spec, name);
        conditions(&mut errors, &level.get("status"), "");
        errors.extend(late);
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        if context.subresource.is_empty() {
            return self.validate_create(context, object);
        }
        let mut errors = FieldErrors::new();
        conditions(&mut errors, &Cursor::root(object).get("status"), "");
        errors
    }

    fn reset_fields(&self, subresource: &str) -> Vec<&'static str> {
        if subresource.is_empty() { vec!["status"] } else { vec!["metadata", "spec"] }
    }
}

fn mandatory(errors: &mut FieldErrors, spec: &Cursor<'_>, name: &str) {
    let (fixed, detail) = match name {
        "exempt" => {
            let mut fixed = spec.value.clone();
            fixed["type"] = "Exempt".into();
            if let Some(map) = fixed.as_object_mut() {
                map.retain(|key, _| key == "type" || key == "exempt");
            }
            (fixed, "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value")
        }
        "catch-all" => {
            let limited =
                json!({"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}, "lendablePercent": 0});
            (json!({"type": "Limited", "limited": limited}), "spec of 'catch-all' must equal the fixed value")
        }
        _ => return,
    };
    if fixed != *spec.value {
        let error = FieldError::invalid(&spec.path, spec.value.clone(), detail);
        errors.push(error.shown_as(internal::show("PriorityLevelConfigurationSpec", spec.value)));
    }
}

fn validate(errors: &mut FieldErrors, late: &mut FieldErrors, spec: &Cursor<'_>, name: &str) {
    let kind = spec.text("type");
    if (name == "exempt") != (kind == "Exempt") {
        errors.invalid(spec.at("type"), kind, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    if kind != "Exempt" && spec.has("exempt") {
        late.forbidden(spec.at("exempt"), "");
    }
    match (kind == "Limited", spec.has("limited")) {
        (true, false) => late.required(spec.at("limited"), ""),
        (false, true) => late.forbidden(spec.at("limited"), ""),
        _ => {}
    }
    // What is there is looked at, whether it belongs there or not.
    limited(errors, late, kind == "Limited", &spec.get("limited"));
    match kind {
        "Exempt" => shares(errors, &spec.get("exempt")),
        "Limited" => {}
        "" => late.required(spec.at("type"), ""),
        other => errors.unsupported(spec.at("type"), other, &["Exempt", "Limited"]),
    }
}

fn shares(errors: &mut FieldErrors, level: &Cursor<'_>) {
    if let Some(shares) = level.int("nominalConcurrencyShares").filter(|shares| *shares < 0) {
        errors.invalid(level.at("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
    lendable(errors, level);
}

fn lendable(errors: &mut FieldErrors, level: &Cursor<'_>) {
    if let Some(percent) = level.int("lendablePercent").filter(|percent| !(0..=100).contains(percent)) {
        errors.invalid(level.at("lendablePercent"), percent, "must be between 0 and 100, inclusive");
    }
}

fn limited(errors: &mut FieldErrors, late: &mut FieldErrors, applies: bool, level: &Cursor<'_>) {
    if !level.exists() {
        return;
    }
    let response = level.get("limitResponse");
    let kind = response.text("type");
    match (kind == "Queue", response.has("queuing")) {
        (true, false) => late.required(response.at("queuing"), ""),
        (false, true) => late.forbidden(response.at("queuing"), ""),
        _ => {}
    }
    if kind.is_empty() {
        late.required(response.at("type"), "");
    }
    // How its parts fit together is told in any case; the values count where they apply.
    if !applies {
        return;
    }
    if let Some(shares) = level.int("nominalConcurrencyShares").filter(|shares| *shares < 0) {
        errors.invalid(level.at("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
    match kind {
        "Queue" if response.has("queuing") => queuing(errors, &response.get("queuing")),
        "" | "Queue" | "Reject" => {}
        other => errors.unsupported(response.at("type"), other, &["Queue", "Reject"]),
    }
    lendable(errors, level);
    if let Some(percent) = level.int("borrowingLimitPercent").filter(|percent| *percent < 0) {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(level.at("borrowingLimitPercent"), percent, detail);
    }
}

fn queuing(errors: &mut FieldErrors, queuing: &Cursor<'_>) {
    let (length, queues, hand) =
        (queuing.number("queueLengthLimit"), queuing.number("queues"), queuing.number("handSize"));
    if length <= 0 {
        errors.invalid(queuing.at("queueLengthLimit"), length, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(queuing.at("queues"), queues, "must be positive");
    } else if queues > MOST_QUEUES {
        errors.invalid(queuing.at("queues"), queues, format!("must not be greater than {MOST_QUEUES}"));
    }
    if hand <= 0 {
        errors.invalid(queuing.at("handSize"), hand, "must be positive");
    } else if hand > queues {
        errors.invalid(queuing.at("handSize"), hand, format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        );
        errors.invalid(queuing.at("handSize"), hand, detail);
    }
}

/// The bits it takes to deal a hand from a deck.
fn entropy_bits(deck: i64, hand: i64) -> u32 {
    ((deck as f64).log2() * hand as f64).ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_judged() {
        let check = |spec: Value, name: &str, want: &[&str]| {
            let (mut errors, mut late) = (FieldErrors::new(), FieldErrors::new());
            validate(&mut errors, &mut late, &Cursor::new(&spec, Path::new("spec")), name);
            let lines: Vec<String> = errors.iter().chain(&late).map(FieldError::line).collect();
            assert_eq!(lines, want);
        };
        check(json!({"type": "Limited"}), "a", &["spec.limited: Required value"]);
        check(json!({"type": "Exempt"}), "exempt", &[]);
        check(
            json!({"type": "Exempt", "limited": {"nominalConcurrencyShares": -1}}),
            "exempt",
            &["spec.limited: Forbidden", "spec.limited.limitResponse.type: Required value"],
        );
        check(
            json!({"type": "Limited", "limited": {"nominalConcurrencyShares": -1, "limitResponse": {"type": "Queue",
                "queuing": {"handSize": 9, "queues": 8, "queueLengthLimit": 0}}}}),
            "a",
            &[
                "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
                "spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: 0: must be positive",
                "spec.limited.limitResponse.queuing.handSize: Invalid value: 9: should not be greater than queues (8)",
            ],
        );
    }
}
