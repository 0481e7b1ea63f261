//! The past of another engine, done again on an etcd that nobody wrote to: each revision there is one transaction, so that every
//! change gets the revision it had. Those of which nothing is left are filled with writes to a key of the migration's own.
//!
//! That key is part of every transaction and a condition of it: what is repeated changes nothing, and a migration that was cut
//! off goes on where it was.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use tonic::Response;

use super::api::Client;
use super::api::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use super::api::rpc::request_op::Request;
use super::api::rpc::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use super::call::Repeat;
use super::compaction::compact;
use super::connection::Connection;
use super::convert::{number, revision_of, unsigned};
use super::{EtcdOptions, step};
use crate::migration::{Change, Outline, Past, digest, kept};
use crate::types::{EventKind, Revision};
use crate::{Result, StoreError};

/// Outside of every cluster's prefix, which starts with a slash.
const PROGRESS: &[u8] = b"ferry-store-migration";
/// The revision of an etcd that was never written to.
const FIRST: Revision = 1;
/// etcd takes so many operations in a transaction unless it is told otherwise; one is for the progress.
const MOST_OPERATIONS: usize = 127;
/// Fillers that wait for etcd at a time, and how many are sent before it is looked how far they came.
const AT_ONCE: usize = 64;
const FILLERS: u64 = 8192;
/// How long a lease lives beyond its time: none may end while its key's revisions are still being made.
const LEASE_SECONDS: u64 = 3600;

pub struct Replay {
    connection: Connection,
    outline: Outline,
    changes: BTreeMap<Revision, Vec<Change>>,
    /// What tells this migration's progress from another's.
    source: Vec<u8>,
}

fn unusable(why: String) -> StoreError {
    StoreError::Incompatible { path: "this etcd".into(), why }
}

fn compare(result: CompareResult, revision: Revision) -> Result<Compare> {
    Ok(Compare {
        result: result.into(),
        target: CompareTarget::Mod.into(),
        key: PROGRESS.to_vec(),
        target_union: Some(TargetUnion::ModRevision(number(revision)?)),
        range_end: Vec::new(),
    })
}

impl Replay {
    /// Reads all of the source; etcd is not asked yet.
    pub fn new(options: &EtcdOptions, past: &dyn Past) -> Result<Self> {
        let outline = past.outline()?;
        let mut changes: BTreeMap<Revision, Vec<Change>> = BTreeMap::new();
        kept(past, &mut |change| {
            let entry = &change.entry;
            if entry.modified <= outline.compacted && entry.created < entry.modified {
                // The revision in which it was created is kept, what it was then is not.
                let mut created = change.clone();
                (created.kind, created.entry.modified) = (EventKind::Create, entry.created);
                changes.entry(entry.created).or_default().push(created);
            }
            changes.entry(entry.modified).or_default().push(change);
            Ok(())
        })?;
        if let Some((revision, all)) = changes.iter().find(|(_, all)| all.len() > MOST_OPERATIONS) {
            let count = all.len();
            return Err(unusable(format!(
                "revision {revision} has {count} changes at once, and etcd takes {MOST_OPERATIONS}; run the server until it is \
                 compacted (ten minutes), or migrate to an etcd that Ferry runs"
            )));
        }
        let source = format!("{:x} {}", digest(past)?.sum, outline.revision).into_bytes();
        Ok(Self { connection: Connection::new(options)?, outline, changes, source })
    }

    async fn send(&self, transaction: TxnRequest) -> Result<TxnResponse> {
        let send = |client: Client| {
            let transaction = transaction.clone();
            async move { client.kv().txn(transaction).await.map(Response::into_inner) }
        };
        // Done twice, the second finds its condition gone.
        self.connection.call(Repeat::Always, send).await
    }

    fn progress(&self) -> RequestOp {
        let value = self.source.clone().into();
        step(Request::RequestPut(PutRequest { key: PROGRESS.to_vec(), value, ..PutRequest::default() }))
    }

    /// How far etcd is; fails where anybody else wrote to it.
    async fn reached(&self) -> Result<Revision> {
        let asked = RangeRequest { key: PROGRESS.to_vec(), ..RangeRequest::default() };
        let answer = self.connection.get(asked).await?;
        let revision = revision_of(answer.header.as_ref());
        match answer.kvs.first() {
            None if revision == FIRST => Ok(FIRST),
            None => Err(unusable(format!(
                "it was written to (its revision is {revision}), and revisions can be kept in a new and empty one alone"
            ))),
            Some(found) if found.value != self.source => {
                Err(unusable("it holds a part of another migration; give a new and empty one".into()))
            }
            Some(found) if unsigned(found.mod_revision) != revision => Err(unusable(
                "somebody else wrote to it, or a lease in it ended, since the migration was cut off; give a new and empty one"
                    .into(),
            )),
            Some(_) => Ok(revision),
        }
    }

    /// Goes on from where etcd is, up to the newest revision of the source. `tell` hears how far it is.
    pub async fn run(&self, tell: impl Fn(Revision, Revision)) -> Result<()> {
        let newest = self.outline.revision;
        let mut reached = self.reached().await?;
        self.grant_leases().await?;
        for (revision, changes) in &self.changes {
            if *revision <= reached {
                continue;
            }
            self.fill(reached, revision - 1, &tell).await?;
            self.apply(*revision, changes).await?;
            reached = *revision;
        }
        self.fill(reached, newest, &tell).await?;
        tell(newest, newest);
        self.compact(self.outline.compacted).await
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        if revision <= FIRST {
            return Ok(());
        }
        match compact(&self.connection, number(revision)?).await {
            Ok(()) | Err(StoreError::Compacted { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn grant_leases(&self) -> Result<()> {
        for (id, seconds) in &self.outline.leases {
            let request = LeaseGrantRequest { ttl: number(seconds.saturating_add(LEASE_SECONDS))?, id: *id };
            let send = |client: Client| async move { client.lease().lease_grant(request).await };
            match self.connection.call(Repeat::Always, send).await {
                Ok(_) => {}
                Err(StoreError::Unavailable(why)) if why.contains("lease already exists") => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes nothing but progress until etcd is at a revision. None of these can go beyond it, however late it is carried out.
    async fn fill(&self, mut reached: Revision, limit: Revision, tell: &impl Fn(Revision, Revision)) -> Result<()> {
        let mut compacted = reached;
        while reached < limit {
            let filler = TxnRequest {
                compare: vec![compare(CompareResult::Less, limit)?],
                success: vec![self.progress()],
                failure: Vec::new(),
            };
            let sent = (0..FILLERS.min(limit - reached)).map(|_| self.send(filler.clone()));
            futures::stream::iter(sent).buffer_unordered(AT_ONCE).try_for_each(|_| futures::future::ok(())).await?;
            reached = self.reached().await?;
            tell(reached, self.outline.revision);
            // So that etcd need not hold millions of them.
            let target = reached.min(self.outline.compacted);
            if target >= compacted.saturating_add(4 * FILLERS) {
                self.compact(target).await?;
                compacted = target;
            }
        }
        Ok(())
    }

    async fn apply(&self, revision: Revision, changes: &[Change]) -> Result<()> {
        let layout = &self.connection.layout;
        let mut ordered: Vec<&Change> = changes.iter().collect();
        ordered.sort_by_key(|change| change.index);
        let mut success: Vec<RequestOp> = ordered
            .into_iter()
            .map(|change| {
                let (key, entry) = (layout.outward(&change.entry.key), &change.entry);
                step(match change.kind {
                    EventKind::Delete => {
                        Request::RequestDeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() })
                    }
                    _ => Request::RequestPut(PutRequest {
                        key,
                        value: entry.value.clone(),
                        lease: entry.lease.unwrap_or_default(),
                        ..PutRequest::default()
                    }),
                })
            })
            .collect();
        success.push(self.progress());
        // Of one that does not exist it is 0.
        let before = if revision == FIRST + 1 { 0 } else { revision - 1 };
        let condition = vec![compare(CompareResult::Equal, before)?];
        let answer = self.send(TxnRequest { compare: condition, success, failure: Vec::new() }).await?;
        // Refused, it may have been done by an earlier try whose answer was lost.
        if !answer.succeeded && self.reached().await? != revision {
            return Err(unusable(format!("somebody else wrote to it at revision {revision}")));
        }
        Ok(())
    }

    /// Takes the migration's own key away, once the copy is checked. From then on the etcd is the cluster's.
    pub async fn finish(&self) -> Result<()> {
        let key = PROGRESS.to_vec();
        let delete = step(Request::RequestDeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() }));
        self.send(TxnRequest { compare: Vec::new(), success: vec![delete], failure: Vec::new() }).await.map(drop)
    }
}
