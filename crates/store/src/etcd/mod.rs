//! The etcd engine: for several API servers on one etcd cluster, with upstream's key layout.
//!
//! Every call ends within its deadline. Watches reconnect by themselves and go on where they ended.

pub mod api;
mod bolt;
mod bolt_writer;
mod call;
mod compaction;
mod connection;
mod convert;
#[cfg(test)]
mod election_tests;
mod failure;
mod members;
#[cfg(test)]
mod migration_tests;
mod newest;
mod replay;
#[cfg(test)]
mod robustness;
#[cfg(test)]
mod server;
pub mod snapshot;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

use ferry_tasks::Tasks;
use futures::future::BoxFuture;
use tonic::Response;

use self::api::Client;
use self::api::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use self::api::rpc::request_op::Request;
use self::api::rpc::response_op::Response as Outcome;
use self::api::rpc::{
    AlarmRequest, AlarmType, Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest, PutRequest,
    RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use self::call::Repeat;
use self::compaction::compact;
use self::connection::Connection;
use self::convert::{number, revision_of};
use crate::embedded::{check_distinct, check_lease, check_ttl};
use crate::types::{Commit, Got, LeaseId, Op, Range, RangeResult, Revision, Transaction, WatchRequest};
use crate::{Result, Store, StoreError, WatchStream, key};

pub use self::members::{Members, has_quorum, member_status};
pub use self::replay::Replay;
pub use self::transfer::{DatabaseFile, leases_left, write_database};

#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// `http://host:2379` or `https://host:2379`.
    pub endpoints: Vec<String>,
    pub tls: Option<EtcdTls>,
    /// Where the keys lie: `/registry` unless several clusters share one etcd.
    pub prefix: String,
    /// No request to etcd takes longer.
    pub deadline: Duration,
    /// None leaves compaction to somebody else.
    pub compaction_interval: Option<Duration>,
}

/// PEM texts.
#[derive(Clone, Debug, Default)]
pub struct EtcdTls {
    pub certificate_authority: Vec<u8>,
    /// Certificate and key of the client.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the servers' certificates, where it is not the endpoint's host.
    pub server_name: Option<String>,
}

impl EtcdOptions {
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            tls: None,
            prefix: "/registry".into(),
            deadline: Duration::from_secs(5),
            compaction_interval: Some(Duration::from_secs(300)),
        }
    }
}

/// Keys per request of an unlimited range: bounds what etcd must put into one message.
const PAGE: usize = 1000;

pub struct EtcdStore {
    connection: Connection,
}

impl EtcdStore {
    /// Returns at once, etcd up or not: calls fail as unavailable until it is. `tasks` owns the compaction.
    pub fn connect(options: EtcdOptions, tasks: &Tasks) -> BoxFuture<'_, Result<Arc<Self>>> {
        Box::pin(async move { Self::open(&options, tasks) })
    }

    fn open(options: &EtcdOptions, tasks: &Tasks) -> Result<Arc<Self>> {
        let connection = Connection::new(options)?;
        if let Some(interval) = options.compaction_interval {
            let compacted = connection.clone();
            tasks.spawn_critical("etcd-compaction", move || compaction::regularly(compacted.clone(), interval));
        }
        Ok(Arc::new(Self { connection }))
    }
}

/// What must hold for an operation, and what it does.
fn compares(op: &Op, key: &[u8]) -> Vec<Compare> {
    let compare = |result: CompareResult, revision| Compare {
        result: result.into(),
        target: CompareTarget::Mod.into(),
        key: key.to_vec(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        range_end: Vec::new(),
    };
    // What etcd cannot count is no revision either.
    let expected = i64::try_from(op.expected()).unwrap_or(i64::MAX);
    let mut all = vec![compare(CompareResult::Equal, expected)];
    if matches!(op, Op::Update { .. } | Op::Delete { .. }) {
        // 0 is no revision a key could have.
        all.push(compare(CompareResult::Greater, 0));
    }
    all
}

fn read(key: Vec<u8>) -> RangeRequest {
    RangeRequest { key, ..RangeRequest::default() }
}

fn action(op: Op, key: Vec<u8>) -> Option<Request> {
    match op {
        Op::Create { value, lease, .. } | Op::Update { value, lease, .. } => {
            let lease = lease.unwrap_or_default();
            Some(Request::RequestPut(PutRequest { key, value, lease, ..PutRequest::default() }))
        }
        Op::Delete { .. } => {
            Some(Request::RequestDeleteRange(DeleteRangeRequest { key, ..DeleteRangeRequest::default() }))
        }
        Op::Check { .. } => None,
    }
}

fn step(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

#[async_trait::async_trait]
impl Store for EtcdStore {
    async fn get(&self, key: &str) -> Result<Got> {
        key::check_key(key)?;
        let layout = &self.connection.layout;
        let answer = self.connection.get(read(layout.outward(key))).await?;
        let found = answer.kvs.into_iter().next().map(|kv| layout.entry(kv)).transpose()?;
        Ok(Got { revision: revision_of(answer.header.as_ref()), entry: found })
    }

    async fn range(&self, range: Range) -> Result<RangeResult> {
        key::check_prefix(&range.prefix)?;
        let unlimited = range.limit == 0;
        let mut page = Range { limit: if unlimited { PAGE } else { range.limit }, ..range };
        let mut result: Option<RangeResult> = None;
        loop {
            let requested = page.revision.unwrap_or_default();
            let found = match self.connection.page(&page).await {
                Ok(found) => found,
                Err(error) => return Err(self.connection.explain(error, requested).await),
            };
            page.after = found.entries.last().map(|entry| entry.key.to_string());
            // All pages show the state of the first.
            page.revision = page.revision.or(Some(found.revision));
            let more = found.more;
            match &mut result {
                None => result = Some(found),
                Some(result) => {
                    result.entries.extend(found.entries);
                    (result.more, result.remaining) = (found.more, found.remaining);
                }
            }
            if !(unlimited && more) {
                break;
            }
        }
        result.ok_or_else(|| StoreError::Unavailable("etcd answered nothing".into()))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit> {
        let layout = &self.connection.layout;
        let mut conditions = Vec::new();
        let mut on_failure = Vec::new();
        for op in &transaction.ops {
            key::check_key(op.key())?;
            if let Op::Create { key, value, lease } | Op::Update { key, value, lease, .. } = op {
                key::check_value(key, value)?;
                check_lease(*lease)?;
            }
            let place = layout.outward(op.key());
            conditions.extend(compares(op, &place));
            on_failure.push(step(Request::RequestRange(read(place))));
        }
        check_distinct(&transaction.ops)?;
        let expected: Vec<(String, Revision, bool)> = transaction
            .ops
            .iter()
            .map(|op| (op.key().to_owned(), op.expected(), matches!(op, Op::Update { .. } | Op::Delete { .. })))
            .collect();
        // Once done, the condition never holds again: revisions do not come back. A key that was created may be gone again.
        let guarded = transaction.ops.iter().any(|op| matches!(op, Op::Update { .. } | Op::Delete { .. }));
        let lease = transaction.ops.iter().find_map(|op| match op {
            Op::Create { lease, .. } | Op::Update { lease, .. } => *lease,
            _ => None,
        });
        let actions: Vec<RequestOp> = transaction
            .ops
            .into_iter()
            .filter_map(|op| {
                let place = layout.outward(op.key());
                action(op, place).map(step)
            })
            .collect();
        let sent = TxnRequest { compare: conditions, success: actions, failure: on_failure };
        let send = |client: Client| {
            let sent = sent.clone();
            async move { client.kv().txn(sent).await.map(Response::into_inner) }
        };
        let answer = match guarded {
            true => self.connection.write(send, |answer: &TxnResponse| answer.succeeded).await,
            false => self.connection.call(Repeat::Unsent, send).await,
        };
        let answer = match answer {
            Err(StoreError::UnknownLease(_)) => return Err(StoreError::UnknownLease(lease.unwrap_or_default())),
            answer => answer?,
        };
        if answer.succeeded {
            let revision = revision_of(answer.header.as_ref());
            self.connection.saw(revision);
            return Ok(Commit { revision });
        }
        for (outcome, (key, expected, must_exist)) in answer.responses.into_iter().zip(expected) {
            let Some(Outcome::ResponseRange(found)) = outcome.response else { continue };
            let current = found.kvs.into_iter().next().map(|kv| layout.entry(kv)).transpose()?;
            let modified = current.as_ref().map_or(0, |entry| entry.modified);
            if modified != expected || (modified == 0 && must_exist) {
                return Err(StoreError::Conflict { key, current: current.map(Box::new) });
            }
        }
        Err(StoreError::Unavailable("etcd refused a transaction without a reason".into()))
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream> {
        key::check_prefix(&request.prefix)?;
        stream::watch(self.connection.clone(), request).await
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        let outcome = match number(revision) {
            Ok(revision) => compact(&self.connection, revision).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(_) => Ok(()),
            Err(error) => Err(self.connection.explain(error, revision).await),
        }
    }

    async fn revision(&self) -> Result<Revision> {
        self.connection.led().await
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn grant_lease(&self, ttl_seconds: u64) -> Result<LeaseId> {
        check_ttl(ttl_seconds)?;
        let request = LeaseGrantRequest { ttl: number(ttl_seconds)?, id: 0 };
        let send = |client: Client| async move { client.lease().lease_grant(request).await };
        Ok(self.connection.call(Repeat::Unsent, send).await?.into_inner().id)
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        check_lease(Some(lease))?;
        let request = LeaseRevokeRequest { id: lease };
        let send = |client: Client| async move { client.lease().lease_revoke(request).await };
        match self.connection.call(Repeat::Unsent, send).await {
            Ok(_) => Ok(()),
            Err(StoreError::UnknownLease(_)) => Err(StoreError::UnknownLease(lease)),
            Err(error) => Err(error),
        }
    }

    async fn answers(&self) -> Result<()> {
        // Whoever asks wants to know how it is now.
        self.connection.impatient().revision().await.map(drop)
    }

    async fn health(&self) -> Result<()> {
        self.answers().await?;
        let request = AlarmRequest::default();
        let send = |client: Client| async move { client.maintenance().alarm(request).await };
        let answer = self.connection.call(Repeat::Always, send).await?.into_inner();
        match answer.alarms.iter().map(|member| member.alarm).find(|alarm| *alarm != AlarmType::None as i32) {
            None => Ok(()),
            Some(alarm) => {
                let name = AlarmType::try_from(alarm).map_or("unknown", |alarm| alarm.as_str_name());
                Err(StoreError::Unavailable(format!("etcd has an alarm: {name}")))
            }
        }
    }
}
