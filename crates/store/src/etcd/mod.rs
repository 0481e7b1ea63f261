//! The etcd engine: for several API servers on one etcd cluster, with upstream's key layout.
//!
//! Every call ends within its deadline. Watches reconnect by themselves and go on where they ended.

mod convert;
mod stream;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmType, Certificate, Client, Compare, CompareOp, ConnectOptions, GetOptions, Identity, KvClient,
    PutOptions, SortOrder, SortTarget, TlsOptions, Txn, TxnOp, TxnOpResponse, WatchClient,
};
use ferry_tasks::Tasks;

use self::convert::{entry, failed, number, revision_of};
use crate::embedded::{check_distinct, check_ttl};
use crate::types::{Commit, Got, LeaseId, Op, Range, RangeResult, Revision, Transaction, WatchRequest};
use crate::{Result, Store, StoreError, WatchStream, key};

#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// `http://host:2379` or `https://host:2379`.
    pub endpoints: Vec<String>,
    pub tls: Option<EtcdTls>,
    /// User and password, where etcd has authentication on.
    pub user: Option<(String, String)>,
    /// No call takes longer.
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
            user: None,
            deadline: Duration::from_secs(5),
            compaction_interval: Some(Duration::from_secs(300)),
        }
    }
}

/// Keys per request of an unlimited range: bounds what etcd must put into one message.
const PAGE: usize = 1000;
const MESSAGE: usize = 1 << 30;

#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    pub(crate) deadline: Duration,
}

impl Connection {
    fn kv(&self) -> KvClient {
        self.client.kv_client().max_decoding_message_size(MESSAGE).max_encoding_message_size(MESSAGE)
    }

    pub(crate) fn watching(&self) -> WatchClient {
        self.client.watch_client().max_decoding_message_size(MESSAGE)
    }

    /// Whatever etcd or the network does, the caller gets an answer in time.
    pub(crate) async fn within<T>(
        &self,
        call: impl Future<Output = std::result::Result<T, etcd_client::Error>>,
    ) -> Result<T> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(failed(&error)),
            Err(_) => Err(StoreError::Unavailable(format!("etcd did not answer within {:?}", self.deadline))),
        }
    }

    /// The newest revision: a linearizable read of nothing.
    pub(crate) async fn revision(&self) -> Result<Revision> {
        let options = GetOptions::new().with_count_only();
        let answer = self.within(self.kv().get(key::ROOT, Some(options))).await?;
        Ok(revision_of(answer.header()))
    }

    /// Fails where a revision is compacted.
    pub(crate) async fn probe(&self, revision: Revision) -> Result<()> {
        let options = GetOptions::new().with_count_only().with_revision(number(revision.max(1))?);
        self.within(self.kv().get(key::ROOT, Some(options))).await.map(drop)
    }

    /// The answer to a revision that etcd refuses, with the numbers its own message lacks.
    pub(crate) async fn explain(&self, error: StoreError, requested: Revision) -> StoreError {
        match error {
            StoreError::Compacted { .. } => {
                let oldest = stream::compacted(self).await.unwrap_or(0);
                StoreError::Compacted { requested, oldest }
            }
            StoreError::Future { .. } => {
                let newest = self.revision().await.unwrap_or(0);
                StoreError::Future { requested, newest }
            }
            other => other,
        }
    }

    pub(crate) async fn page(&self, range: &Range) -> Result<RangeResult> {
        let start = match range.after.as_deref() {
            // The smallest key behind it.
            Some(after) if after >= range.prefix.as_str() => format!("{after}\0"),
            _ => range.prefix.clone(),
        };
        let mut options = GetOptions::new()
            .with_range(convert::prefix_end(&range.prefix))
            .with_limit(i64::try_from(range.limit).unwrap_or(i64::MAX))
            .with_sort(SortTarget::Key, SortOrder::Ascend);
        if let Some(revision) = range.revision {
            // 0 would mean the newest.
            options = options.with_revision(number(revision.max(1))?);
        }
        let mut answer = self.within(self.kv().get(start, Some(options))).await?;
        let revision = revision_of(answer.header());
        let count = usize::try_from(answer.count()).unwrap_or(0);
        let entries = answer.take_kvs().into_iter().map(entry).collect::<Result<Vec<_>>>()?;
        let remaining = count.saturating_sub(entries.len());
        Ok(RangeResult { revision, more: remaining > 0, remaining, entries })
    }
}

pub struct EtcdStore {
    connection: Connection,
}

impl EtcdStore {
    /// Returns at once, etcd up or not: calls fail as unavailable until it is. `tasks` owns the compaction.
    pub async fn connect(options: EtcdOptions, tasks: &Tasks) -> Result<Arc<Self>> {
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(Duration::from_secs(2))
            .with_keep_alive(Duration::from_secs(10), Duration::from_secs(5))
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if let Some(tls) = options.tls {
            let mut config = TlsOptions::new();
            if !tls.certificate_authority.is_empty() {
                config = config.ca_certificate(Certificate::from_pem(tls.certificate_authority));
            }
            if let Some((certificate, private_key)) = tls.identity {
                config = config.identity(Identity::from_pem(certificate, private_key));
            }
            if let Some(name) = tls.server_name {
                config = config.domain_name(name);
            }
            connect = connect.with_tls(config);
        }
        if let Some((user, password)) = options.user {
            connect = connect.with_user(user, password).with_auto_token_refresh(true);
        }
        let connecting = Client::connect(&options.endpoints, Some(connect));
        let client = match tokio::time::timeout(options.deadline, connecting).await {
            Ok(client) => client.map_err(|error| failed(&error))?,
            Err(_) => return Err(StoreError::Unavailable("etcd did not answer in time".into())),
        };
        let connection = Connection { client, deadline: options.deadline };
        if let Some(interval) = options.compaction_interval {
            tasks.spawn_until_stopped("etcd-compaction", compact_regularly(connection.clone(), interval));
        }
        Ok(Arc::new(Self { connection }))
    }
}

/// Forgets what was already old one interval ago. Several servers may do it: the second finds nothing to do.
async fn compact_regularly(connection: Connection, interval: Duration) {
    let mut last = None;
    loop {
        tokio::time::sleep(interval).await;
        let newest = match connection.revision().await {
            Ok(newest) => newest,
            Err(error) => {
                tracing::warn!("etcd is not compacted: {error}");
                continue;
            }
        };
        if let Some(target) = last.replace(newest)
            && let Ok(target) = number(target)
        {
            match connection.within(connection.kv().compact(target, None)).await {
                Ok(_) | Err(StoreError::Compacted { .. }) => {}
                Err(error) => tracing::warn!("etcd cannot be compacted at {target}: {error}"),
            }
        }
    }
}

/// What must hold for an operation, and what it does.
fn compares(op: &Op) -> Result<Vec<Compare>> {
    let mut all = vec![Compare::mod_revision(op.key(), CompareOp::Equal, number(op.expected())?)];
    if matches!(op, Op::Update { .. } | Op::Delete { .. }) {
        // 0 is no revision a key could have.
        all.push(Compare::mod_revision(op.key(), CompareOp::Greater, 0));
    }
    Ok(all)
}

fn action(op: Op) -> Option<TxnOp> {
    let with = |lease: Option<LeaseId>| lease.map(|lease| PutOptions::new().with_lease(lease));
    match op {
        Op::Create { key, value, lease } | Op::Update { key, value, lease, .. } => {
            Some(TxnOp::put(key, value.to_vec(), with(lease)))
        }
        Op::Delete { key, .. } => Some(TxnOp::delete(key, None)),
        Op::Check { .. } => None,
    }
}

#[async_trait::async_trait]
impl Store for EtcdStore {
    async fn get(&self, key: &str) -> Result<Got> {
        key::check_key(key)?;
        let mut answer = self.connection.within(self.connection.kv().get(key, None)).await?;
        let found = answer.take_kvs().into_iter().next().map(entry).transpose()?;
        Ok(Got { revision: revision_of(answer.header()), entry: found })
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
        let mut conditions = Vec::new();
        let mut on_failure = Vec::new();
        for op in &transaction.ops {
            key::check_key(op.key())?;
            if let Op::Create { key, value, .. } | Op::Update { key, value, .. } = op {
                key::check_value(key, value)?;
            }
            conditions.extend(compares(op)?);
            on_failure.push(TxnOp::get(op.key(), None));
        }
        check_distinct(&transaction.ops)?;
        let expected: Vec<(String, Revision, bool)> = transaction
            .ops
            .iter()
            .map(|op| (op.key().to_owned(), op.expected(), matches!(op, Op::Update { .. } | Op::Delete { .. })))
            .collect();
        let lease = transaction.ops.iter().find_map(|op| match op {
            Op::Create { lease, .. } | Op::Update { lease, .. } => *lease,
            _ => None,
        });
        let actions: Vec<TxnOp> = transaction.ops.into_iter().filter_map(action).collect();
        let sent = Txn::new().when(conditions).and_then(actions).or_else(on_failure);
        let answer = match self.connection.within(self.connection.kv().txn(sent)).await {
            Err(StoreError::UnknownLease(_)) => return Err(StoreError::UnknownLease(lease.unwrap_or_default())),
            answer => answer?,
        };
        if answer.succeeded() {
            return Ok(Commit { revision: revision_of(answer.header()) });
        }
        for (response, (key, expected, must_exist)) in answer.op_responses().into_iter().zip(expected) {
            let TxnOpResponse::Get(mut found) = response else { continue };
            let current = found.take_kvs().into_iter().next().map(entry).transpose()?;
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
        match self.connection.within(self.connection.kv().compact(number(revision)?, None)).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.connection.explain(error, revision).await),
        }
    }

    async fn revision(&self) -> Result<Revision> {
        self.connection.revision().await
    }

    async fn grant_lease(&self, ttl_seconds: u64) -> Result<LeaseId> {
        check_ttl(ttl_seconds)?;
        let mut leases = self.connection.client.lease_client();
        let answer = self.connection.within(leases.grant(number(ttl_seconds)?, None)).await?;
        Ok(answer.id())
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        let mut leases = self.connection.client.lease_client();
        match self.connection.within(leases.revoke(lease)).await {
            Ok(_) => Ok(()),
            Err(StoreError::UnknownLease(_)) => Err(StoreError::UnknownLease(lease)),
            Err(error) => Err(error),
        }
    }

    async fn health(&self) -> Result<()> {
        self.connection.revision().await?;
        let mut maintenance = self.connection.client.maintenance_client();
        let answer = self.connection.within(maintenance.alarm(AlarmAction::Get, AlarmType::None, None)).await?;
        match answer.alarms().iter().map(|alarm| alarm.alarm()).find(|alarm| *alarm != AlarmType::None) {
            None => Ok(()),
            Some(alarm) => Err(StoreError::Unavailable(format!("etcd has an alarm: {}", alarm.as_str_name()))),
        }
    }
}
