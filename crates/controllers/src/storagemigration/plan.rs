//! What a migration says of itself, and whose turn it is.

use std::sync::Arc;

use k8s_openapi::api::storagemigration::v1::StorageVersionMigration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;

pub(super) fn is_true(migration: &StorageVersionMigration, kind: &str) -> bool {
    let conditions = migration.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == kind && condition.status == "True")
}

pub(super) fn is_over(migration: &StorageVersionMigration) -> bool {
    is_true(migration, "Succeeded") || is_true(migration, "Failed")
}

/// One migration of a resource runs at a time; of those that wait the oldest is next.
pub(super) fn is_next(migration: &StorageVersionMigration, all: &[Arc<StorageVersionMigration>]) -> bool {
    let age =
        |one: &StorageVersionMigration| (one.metadata.creation_timestamp.as_ref().map(|time| time.0), one.name_any());
    !all.iter().filter(|other| other.spec.as_ref().map(|spec| &spec.resource) == resource(migration)).any(|other| {
        let waits = !is_true(other, "Running") && !is_over(other);
        (is_true(other, "Running") && !is_over(other)) || (waits && age(other) < age(migration))
    })
}

fn resource(
    migration: &StorageVersionMigration,
) -> Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::GroupResource> {
    migration.spec.as_ref().map(|spec| &spec.resource)
}

/// What a condition says beside its state, and when.
pub(super) struct Told {
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) now: Time,
}

/// Adds or replaces a condition; the time moves with the state.
pub(super) fn set(migration: &mut StorageVersionMigration, kind: &str, state: &str, told: Told) {
    let Told { reason, message, now } = told;
    let list = migration.status.get_or_insert_default().conditions.get_or_insert_default();
    let at = list.iter().position(|known| known.type_ == kind);
    let since = at.filter(|at| list[*at].status == state).map(|at| list[at].last_transition_time.clone());
    let condition = Condition {
        type_: kind.into(),
        status: state.into(),
        reason: reason.into(),
        message,
        last_transition_time: since.unwrap_or(now),
        observed_generation: None,
    };
    match at {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn migration(name: &str, resource: &str, conditions: &[&str]) -> Arc<StorageVersionMigration> {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|kind| json!({ "type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }))
            .collect();
        let json = json!({
            "metadata": { "name": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "resource": { "group": "", "resource": resource } },
            "status": { "conditions": conditions },
        });
        Arc::new(serde_json::from_value(json).expect("a migration"))
    }

    #[test]
    fn one_migration_of_a_resource_runs_at_a_time() {
        let [a, b, other] = [("a", "pods"), ("b", "pods"), ("0", "secrets")].map(|(n, r)| migration(n, r, &[]));
        let all = [b.clone(), a.clone(), other.clone()];
        assert_eq!([&a, &b, &other].map(|one| is_next(one, &all)), [true, false, true]);
        let running = migration("z", "pods", &["Running"]);
        assert!(!is_next(&a, &[a.clone(), running]));
        let over = migration("z", "pods", &["Running", "Failed"]);
        assert!(is_next(&a, &[a.clone(), over]));
    }

    #[test]
    fn the_time_of_a_condition_moves_with_its_state() {
        let mut one = (*migration("a", "pods", &["Running"])).clone();
        let since = |one: &StorageVersionMigration| {
            one.status.as_ref().and_then(|s| s.conditions.as_ref()).map(|c| c[0].last_transition_time.0.to_string())
        };
        let told = || Told { reason: "R", message: String::new(), now: Time(Timestamp::UNIX_EPOCH) };
        set(&mut one, "Running", "True", told());
        assert_eq!(since(&one).as_deref(), Some("2026-01-01T00:00:00Z"));
        set(&mut one, "Running", "False", told());
        assert_ne!(since(&one).as_deref(), Some("2026-01-01T00:00:00Z"));
    }
}
