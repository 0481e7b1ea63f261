//! The API server and its store: where they are not well, nothing else can be.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason};
use crate::servers::CHECKS;
use crate::world::World;

/// What a failing check of `/readyz` means for everything in the cluster, the gravest first.
pub(super) fn findings(world: &World) -> Vec<Finding> {
    let checks = world.all(CHECKS);
    let why = |name: &str| {
        let found = checks.iter().find(|check| object::text(check, "/name") == name)?;
        Some(object::text(found, "/why"))
    };
    if let Some(told) = why("etcd") {
        let cause = "the API server does not reach a majority of its store: nothing can be written, and what is read may be old";
        return vec![
            finding(Reason::StoreUnreachable, cause)
                .detail(told)
                .advise("see which members answer: ferry server list")
                .advise("bring back enough of them; only if they are lost for good: ferry server recover --help"),
        ];
    }
    if let Some(told) = why("etcd-readiness") {
        return vec![match alarm(told) {
            Some("NOSPACE") => {
                finding(Reason::StoreFull, "the store is full: every write is refused, so that nobody can act")
                    .detail(told)
                    .advise("delete what is not needed, then: ferry server defragment, which also takes back the alarm")
                    .advise("or give etcd a larger --quota-backend-bytes")
            }
            Some("CORRUPT") => finding(
                Reason::StoreCorrupt,
                "a member of the store has found that its data differ from the others': writes are refused",
            )
            .detail(told)
            .advise("see which one: ferry server list; remove it and let it join anew"),
            _ => finding(Reason::ServerNotReady, "the API server's store is not ready: nothing can be written")
                .detail(told),
        }];
    }
    let others: Vec<&Value> = checks.iter().collect();
    let Some(first) = others.first() else { return Vec::new() };
    let cause = format!("the API server is not ready: {} fails", object::text(first, "/name"));
    let told = others.iter().map(|check| format!("{}: {}", object::text(check, "/name"), object::text(check, "/why")));
    vec![
        told.fold(finding(Reason::ServerNotReady, &cause), Finding::detail)
            .advise("kubectl get --raw '/readyz?verbose'"),
    ]
}

fn finding(reason: Reason, cause: &str) -> Finding {
    let mut finding = Finding::new(reason, &Value::Null, cause);
    finding.about = "the API server".to_owned();
    finding
}

/// The name of the alarm: the sentence is the store's own, `etcd has an alarm: NAME`.
fn alarm(told: &str) -> Option<&str> {
    told.split(": ").last().map(str::trim).filter(|name| name.chars().all(|c| c.is_ascii_uppercase()))
}
