//! An API server or a store that is not well.

use serde_json::{Value, json};

use super::super::UNREAD;
use super::{Reason, Situation, check_all, findings, ready_pod, world};
use crate::servers::CHECKS;
use crate::world::World;

fn with(target: Value, checks: &[(&str, &str)]) -> World {
    let checks: Value = checks.iter().map(|(name, why)| json!({ "name": name, "why": why })).collect();
    world(target, &[(CHECKS, checks)])
}

#[test]
fn servers() {
    let unread = json!({ "kind": "Pod", "metadata": { "name": "p", "namespace": "d" }, UNREAD: true });
    let rows: Vec<Situation<'_>> = vec![
        (
            "lost quorum",
            with(unread.clone(), &[("etcd", "etcd does not answer"), ("etcd-readiness", "etcd does not answer")]),
            Reason::StoreUnreachable,
            &["does not reach a majority of its store", "object    the API server", "ferry server list"],
        ),
        (
            "full",
            with(ready_pod(), &[("etcd-readiness", "the store is unavailable: etcd has an alarm: NOSPACE")]),
            Reason::StoreFull,
            &["every write is refused", "etcd has an alarm: NOSPACE", "ferry server defragment"],
        ),
        (
            "corrupt",
            with(ready_pod(), &[("etcd-readiness", "etcd has an alarm: CORRUPT")]),
            Reason::StoreCorrupt,
            &["differ from the others'"],
        ),
        (
            "a task",
            with(ready_pod(), &[("informer-sync", "custom resources are not served yet")]),
            Reason::ServerNotReady,
            &["informer-sync fails", "custom resources are not served yet"],
        ),
    ];
    check_all(&rows);
    assert_eq!(findings(&with(ready_pod(), &[])), []);
}
