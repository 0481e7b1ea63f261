//! Conditions: what is written, and what stays of what others wrote.

use serde_json::{Value, json};

/// Types that this controller writes and takes back.
const OWNED: &[&str] = &[
    "Accepted",
    "Programmed",
    "ResolvedRefs",
    "Conflicted",
    "OverlappingTLSConfig",
    "InsecureFrontendValidationMode",
    "PartiallyInvalid",
    "SupportedVersion",
];
/// No list of conditions may be longer.
const MOST: usize = 8;

/// Why something is not as it should be: the reason of a condition and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: &'static str,
    pub message: String,
}

impl Problem {
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub kind: &'static str,
    pub is_true: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Condition {
    /// True with `reason`, or False with the problem's.
    pub fn of(kind: &'static str, reason: &'static str, problem: Option<&Problem>) -> Self {
        match problem {
            None => Self { kind, is_true: true, reason, message: String::new() },
            Some(Problem { reason, message }) => Self { kind, is_true: false, reason, message: message.clone() },
        }
    }

    pub fn is(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, is_true: true, reason, message: message.into() }
    }

    pub fn is_not(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, is_true: false, reason, message: message.into() }
    }
}

/// The list as it is to be: those of others stay, and a condition that did not turn keeps its time.
pub fn merged(old: &Value, new: &[Condition], generation: i64, now: &str) -> Value {
    let known = old.as_array().map(Vec::as_slice).unwrap_or_default();
    let kind_of = |condition: &Value| condition["type"].as_str().unwrap_or_default().to_owned();
    let mut list: Vec<Value> = new
        .iter()
        .map(|condition| {
            let status = if condition.is_true { "True" } else { "False" };
            let before = known.iter().find(|known| kind_of(known) == condition.kind);
            let since = before
                .filter(|before| before["status"] == status)
                .and_then(|before| before["lastTransitionTime"].as_str())
                .unwrap_or(now);
            json!({
                "type": condition.kind,
                "status": status,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": generation,
                "lastTransitionTime": since,
            })
        })
        .collect();
    let foreign = known.iter().filter(|known| !OWNED.contains(&kind_of(known).as_str()));
    list.extend(foreign.cloned());
    list.truncate(MOST);
    Value::Array(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_conditions_of_others_stay() {
        let old = json!([
            { "type": "Accepted", "status": "True", "lastTransitionTime": "t1" },
            { "type": "Programmed", "status": "False", "lastTransitionTime": "t1" },
            { "type": "Conflicted", "status": "True", "lastTransitionTime": "t1" },
            { "type": "example.com/Other", "status": "True", "lastTransitionTime": "t0" },
        ]);
        let new = [Condition::is("Accepted", "Accepted", ""), Condition::is("Programmed", "Programmed", "")];
        let list = merged(&old, &new, 3, "t2");
        let seen: Vec<_> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|one| format!("{} {}", one["type"].as_str().unwrap(), one["lastTransitionTime"].as_str().unwrap()))
            .collect();
        assert_eq!(seen, ["Accepted t1", "Programmed t2", "example.com/Other t0"]);
        assert_eq!(merged(&list, &new, 3, "t9"), list, "a second look changes nothing");
    }
}
