//! The conditions that say what is left of a namespace, with upstream's reasons and words.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NamespaceCondition, NamespaceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::common::conditions;

/// What one pass over a namespace found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// Groups that could not be discovered.
    pub(super) undiscovered: Vec<String>,
    /// Why some could not be deleted.
    pub(super) failures: Vec<String>,
    /// How many are left of each resource, as `plural.group`.
    pub(super) remaining: BTreeMap<String, usize>,
    /// How many of those wait for each finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
}

impl Outcome {
    pub(super) fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// The status with the conditions of this outcome.
pub(super) fn status(old: &NamespaceStatus, outcome: &Outcome, now: &Time) -> NamespaceStatus {
    let mut status = old.clone();
    let mut failures = outcome.failures.clone();
    failures.sort();
    let counts = |counts: &BTreeMap<String, usize>, words: &str| -> String {
        let parts: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {words} {count} resource instances")).collect();
        parts.join(", ")
    };
    let rows = [
        (
            "NamespaceDeletionDiscoveryFailure",
            !outcome.undiscovered.is_empty(),
            (
                "DiscoveryFailed",
                format!(
                    "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
                    outcome.undiscovered.len(),
                    outcome.undiscovered.join(", ")
                ),
            ),
            ("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            ("GroupVersionParsingFailed", String::new()),
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            !outcome.failures.is_empty(),
            (
                "ContentDeletionFailed",
                format!(
                    "Failed to delete all resource types, {} remaining: {}",
                    outcome.failures.len(),
                    failures.join(", ")
                ),
            ),
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        (
            "NamespaceContentRemaining",
            !outcome.remaining.is_empty(),
            ("SomeResourcesRemain", format!("Some resources are remaining: {}", counts(&outcome.remaining, "has"))),
            ("ContentRemoved", "All content successfully removed"),
        ),
        (
            "NamespaceFinalizersRemaining",
            !outcome.finalizers.is_empty(),
            (
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    counts(&outcome.finalizers, "in")
                ),
            ),
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ];
    for (kind, bad, failed, fine) in rows {
        let (reason, message) = if bad { failed } else { (fine.0, fine.1.to_owned()) };
        set(&mut status, kind, bad, reason, message, now);
    }
    status
}

/// Unlike other conditions these are updated when only their words change, and a good one is written once, not kept
/// when it was never bad.
fn set(status: &mut NamespaceStatus, kind: &str, bad: bool, reason: &str, message: String, now: &Time) {
    let state = if bad { "True" } else { "False" };
    let known = conditions::find(status.conditions.as_ref(), kind);
    if known.is_some_and(|known| {
        known.status == state && known.reason.as_deref() == Some(reason) && known.message.as_ref() == Some(&message)
    }) {
        return;
    }
    let since = known.filter(|known| known.status == state).and_then(|known| known.last_transition_time.clone());
    let condition = NamespaceCondition {
        type_: kind.into(),
        status: state.into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_transition_time: Some(since.unwrap_or_else(|| now.clone())),
    };
    let list = status.conditions.get_or_insert_default();
    match list.iter_mut().find(|known| known.type_ == kind) {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn check(outcome: &Outcome, kind: &str, expected: &str) {
        let now = Time(Timestamp::UNIX_EPOCH);
        let made = status(&NamespaceStatus::default(), outcome, &now);
        assert_eq!(made.conditions.as_ref().map(Vec::len), Some(5));
        assert_eq!(status(&made, outcome, &now), made, "comes to rest");
        let condition = conditions::find(made.conditions.as_ref(), kind).expect("a condition");
        let text =
            [&condition.status, condition.reason.as_ref().expect("why"), condition.message.as_ref().expect("words")];
        assert_eq!(text.map(String::as_str).join("|"), expected);
    }

    #[test]
    fn conditions_say_what_is_left() {
        let clean = Outcome::default();
        check(&clean, "NamespaceContentRemaining", "False|ContentRemoved|All content successfully removed");
        let left = Outcome {
            remaining: BTreeMap::from([("pods.".into(), 2), ("widgets.example.com".into(), 1)]),
            finalizers: BTreeMap::from([("example.com/stuck".into(), 1)]),
            ..Outcome::default()
        };
        check(
            &left,
            "NamespaceContentRemaining",
            "True|SomeResourcesRemain|Some resources are remaining: pods. has 2 resource instances, widgets.example.com has 1 resource instances",
        );
        check(
            &left,
            "NamespaceFinalizersRemaining",
            "True|SomeFinalizersRemain|Some content in the namespace has finalizers remaining: example.com/stuck in 1 resource instances",
        );
        check(
            &left,
            "NamespaceDeletionContentFailure",
            "False|ContentDeleted|All content successfully deleted, may be waiting on finalization",
        );
    }
}
