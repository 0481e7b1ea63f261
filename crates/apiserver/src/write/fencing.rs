//! Writes of leaders: made only while their Lease is theirs.
//!
//! A leader that was stopped for longer than its lease may have a write under way when it goes on. So a request that names
//! a Lease and its holder is committed in one transaction with a look at that Lease: whoever took it over in between, on
//! whichever server, is not written over.
//!
//! The answer tells who holds a Lease, so only who may know that may ask.

use ferry_auth::Attributes;
use ferry_meta::{ApiError, UserInfo};
use ferry_store::{Commit, Entry, Op, Revision, StoreError, Transaction};
use http::HeaderMap;
use serde_json::Value;

use crate::server::Core;

/// `<namespace>/<name of the Lease>/<identity of its holder>`.
const HEADER: &str = "ferry-leader-lease";
/// A leader renews about once a second: to be caught by that several times in a row is no accident.
const ATTEMPTS: usize = 8;

/// The Lease that a write depends on.
#[derive(Debug)]
pub(crate) struct Fence {
    namespace: String,
    name: String,
    holder: String,
}

impl Fence {
    /// None where the request names no lease. One that cannot be read is nobody's, and nothing is written with it.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(HEADER)?.to_str().unwrap_or_default();
        let mut parts = text.splitn(3, '/').map(str::to_owned);
        let mut part = || parts.next().unwrap_or_default();
        Some(Self { namespace: part(), name: part(), holder: part() })
    }

    /// Refuses whoever may not read the Lease.
    pub(crate) async fn check_rights(&self, core: &Core, user: &UserInfo) -> Result<(), ApiError> {
        if self.is_of_component(user) {
            return Ok(());
        }
        let get = Attributes {
            version: "v1",
            namespace: &self.namespace,
            name: &self.name,
            ..Attributes::resource(user, "get", "coordination.k8s.io", "leases")
        };
        core.authorization.check(&get).await
    }

    /// The parts of a component write as service accounts of its Lease's namespace, which need no rights to that Lease.
    fn is_of_component(&self, user: &UserInfo) -> bool {
        let group = format!("system:serviceaccounts:{}", self.namespace);
        user.name.starts_with("system:kube-") || user.groups.contains(&group)
    }

    fn key(&self) -> String {
        format!("/registry/leases/{}/{}", self.namespace, self.name)
    }

    fn lost(&self) -> StoreError {
        StoreError::NotLeader(format!("{}/{}", self.namespace, self.name))
    }

    /// The revision of the lease, if the right one holds it.
    fn held_at(&self, lease: &Value, revision: Revision) -> Result<Revision, StoreError> {
        let holder = lease.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default();
        if holder.is_empty() || holder != self.holder { Err(self.lost()) } else { Ok(revision) }
    }

    fn held_in(&self, entry: Option<&Entry>) -> Result<Revision, StoreError> {
        let entry = entry.ok_or_else(|| self.lost())?;
        let lease = serde_json::from_slice(&entry.value).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.held_at(&lease, entry.modified)
    }

    pub(crate) async fn commit(&self, core: &Core, transaction: Transaction) -> Result<Commit, StoreError> {
        let key = self.key();
        // The lease itself is compared anyway.
        if transaction.ops.iter().any(|op| op.key() == key) {
            return core.store.commit(transaction).await;
        }
        let cached = core.cache.resource("leases").and_then(|leases| leases.get(&self.namespace, &self.name));
        let mut revision = match cached {
            Some(lease) => {
                let content = lease.parse().map_err(|error| StoreError::Corrupt(error.to_string()))?;
                match self.held_at(&content, lease.revision) {
                    Ok(revision) => revision,
                    // The cache may be behind: the store has the last word.
                    Err(_) => self.held_in(core.store.get(&key).await?.entry.as_ref())?,
                }
            }
            None if ferry_store::key::check_key(&key).is_err() => return Err(self.lost()),
            None => self.held_in(core.store.get(&key).await?.entry.as_ref())?,
        };
        for _ in 0..ATTEMPTS {
            let mut fenced = transaction.clone();
            fenced.ops.push(Op::Check { key: key.clone(), expected: revision });
            match core.store.commit(fenced).await {
                // Renewed in between, or taken over.
                Err(StoreError::Conflict { key: changed, current }) if changed == key => {
                    revision = self.held_in(current.as_deref())?;
                }
                outcome => return outcome,
            }
        }
        Err(StoreError::Unavailable(format!("{key} changes all the time")))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_is_that_of_its_holder() {
        let fence = |text: &'static str| {
            Fence::of(&HeaderMap::from_iter([(http::HeaderName::from_static(HEADER), HeaderValue::from_static(text))]))
        };
        let leader = fence("kube-system/kube-scheduler/host_1").expect("a lease");
        assert_eq!(leader.key(), "/registry/leases/kube-system/kube-scheduler");
        let held = |holder: &str| json!({"spec": {"holderIdentity": holder}});
        assert_eq!(leader.held_at(&held("host_1"), 7).ok(), Some(7));
        for other in ["host_2", ""] {
            assert!(matches!(leader.held_at(&held(other), 7), Err(StoreError::NotLeader(_))));
        }
        // A lease that was given up has no holder, and a header without one does not name it.
        assert!(fence("a/b").is_some_and(|nobody| nobody.held_at(&held(""), 7).is_err()));
        assert!(Fence::of(&HeaderMap::new()).is_none());
    }
}
