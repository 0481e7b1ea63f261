//! The way to etcd: one client per member, tried in turn, and an answer within the deadline whatever they do.

use std::error::Error as _;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{
    Certificate, Client, ConnectOptions, GetOptions, Identity, KvClient, SortOrder, SortTarget, TlsOptions, WatchClient,
};
use tokio::time::Instant;

use super::convert::{Layout, failed, number, prefix_end, revision_of};
use super::{EtcdOptions, EtcdTls, stream};
use crate::types::{Range, RangeResult, Revision};
use crate::{Result, StoreError, key};

const MESSAGE: usize = 1 << 30;
const CONNECT: Duration = Duration::from_secs(2);

/// Whether a request may be sent to another member when it is not known what became of it at the first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Always,
    /// Only where it certainly was not sent: a write must not happen twice.
    Unsent,
}

#[derive(Clone)]
pub(crate) struct Connection {
    members: Arc<[Client]>,
    /// The member that answered last: one that is away is not asked first each time.
    preferred: Arc<AtomicUsize>,
    pub(crate) deadline: Duration,
    pub(crate) layout: Layout,
}

fn tls_options(tls: &EtcdTls) -> TlsOptions {
    let mut config = TlsOptions::new();
    if !tls.certificate_authority.is_empty() {
        config = config.ca_certificate(Certificate::from_pem(&tls.certificate_authority));
    }
    if let Some((certificate, private_key)) = &tls.identity {
        config = config.identity(Identity::from_pem(certificate, private_key));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name);
    }
    config
}

impl Connection {
    /// Sends nothing yet. A balancing client would do for one member; with several it sends every other request to one
    /// that is down.
    pub(crate) async fn new(options: &EtcdOptions) -> Result<Self> {
        let mut members = Vec::new();
        for endpoint in &options.endpoints {
            let mut connect = ConnectOptions::new()
                .with_connect_timeout(CONNECT)
                .with_keep_alive(Duration::from_secs(10), Duration::from_secs(5))
                .with_keep_alive_while_idle(true)
                .with_require_leader(true);
            if let Some(tls) = options.tls.as_ref().filter(|_| !endpoint.starts_with("http://")) {
                connect = connect.with_tls(tls_options(tls));
            }
            let client = Client::connect([endpoint], Some(connect)).await;
            members.push(client.map_err(|error| StoreError::InvalidEndpoint(endpoint.clone(), describe(&error)))?);
        }
        if members.is_empty() {
            return Err(StoreError::InvalidEndpoint(String::new(), "there is none".into()));
        }
        Ok(Self {
            members: members.into(),
            preferred: Arc::default(),
            deadline: options.deadline,
            layout: Layout::new(&options.prefix)?,
        })
    }

    /// Whatever etcd or the network does, the caller gets an answer in time.
    pub(crate) async fn call<T, F>(&self, repeat: Repeat, send: impl Fn(Client) -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, etcd_client::Error>>,
    {
        let (first, count) = (self.preferred.load(Ordering::Relaxed), self.members.len());
        let end = Instant::now() + self.deadline;
        let mut last = StoreError::Unavailable("etcd was not asked".into());
        for step in 0..count {
            let at = (first + step) % count;
            let left = end.saturating_duration_since(Instant::now());
            // A member that is silent must leave time for the others.
            let patience = if repeat == Repeat::Always { left / (count - step) as u32 } else { left };
            let outcome = tokio::time::timeout(patience, send(self.members[at].clone())).await;
            last = match outcome {
                Ok(Ok(answer)) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok(Err(error)) => match failed(&error) {
                    unavailable @ StoreError::Unavailable(_) if repeat == Repeat::Always || was_not_sent(&error) => {
                        unavailable
                    }
                    refused => {
                        if matches!(refused, StoreError::Unavailable(_)) {
                            self.preferred.store((at + 1) % count, Ordering::Relaxed);
                        }
                        return Err(refused);
                    }
                },
                Err(_) => {
                    let silent = StoreError::Unavailable(format!("etcd did not answer within {patience:?}"));
                    if repeat == Repeat::Unsent {
                        self.preferred.store((at + 1) % count, Ordering::Relaxed);
                        return Err(silent);
                    }
                    silent
                }
            };
        }
        Err(last)
    }

    pub(crate) async fn get(&self, key: Vec<u8>, options: GetOptions) -> Result<etcd_client::GetResponse> {
        self.call(Repeat::Always, |client| {
            let (mut kv, key, options) = (kv(&client), key.clone(), options.clone());
            async move { kv.get(key, Some(options)).await }
        })
        .await
    }

    /// The newest revision: a linearizable read of nothing.
    pub(crate) async fn revision(&self) -> Result<Revision> {
        let answer = self.get(self.layout.outward(key::ROOT), GetOptions::new().with_count_only()).await?;
        Ok(revision_of(answer.header()))
    }

    /// Fails where a revision is compacted.
    pub(crate) async fn probe(&self, revision: Revision) -> Result<()> {
        let options = GetOptions::new().with_count_only().with_revision(number(revision.max(1))?);
        self.get(self.layout.outward(key::ROOT), options).await.map(drop)
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
            Some(after) if after >= range.prefix.as_str() => self.layout.outward(&format!("{after}\0")),
            _ => self.layout.outward(&range.prefix),
        };
        let mut options = GetOptions::new()
            .with_range(prefix_end(&self.layout.outward(&range.prefix)))
            .with_limit(i64::try_from(range.limit).unwrap_or(i64::MAX))
            .with_sort(SortTarget::Key, SortOrder::Ascend);
        if let Some(revision) = range.revision {
            // 0 would mean the newest.
            options = options.with_revision(number(revision.max(1))?);
        }
        let mut answer = self.get(start, options).await?;
        let revision = revision_of(answer.header());
        let count = usize::try_from(answer.count()).unwrap_or(0);
        let entries = answer.take_kvs().into_iter().map(|kv| self.layout.entry(kv)).collect::<Result<Vec<_>>>()?;
        let remaining = count.saturating_sub(entries.len());
        Ok(RangeResult { revision, more: remaining > 0, remaining, entries })
    }
}

pub(crate) fn kv(client: &Client) -> KvClient {
    client.kv_client().max_decoding_message_size(MESSAGE).max_encoding_message_size(MESSAGE)
}

pub(crate) fn watching(client: &Client) -> WatchClient {
    client.watch_client().max_decoding_message_size(MESSAGE)
}

/// No connection stood, so nothing can have gone over it.
fn was_not_sent(error: &etcd_client::Error) -> bool {
    let etcd_client::Error::GRpcStatus(status) = error else { return false };
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The last cause says what happened: refused, a certificate that is not trusted, a name that is not known.
pub(crate) fn describe(error: &etcd_client::Error) -> String {
    let mut text = match error {
        etcd_client::Error::GRpcStatus(status) => status.message().to_owned(),
        other => other.to_string(),
    };
    let mut cause = match error {
        etcd_client::Error::GRpcStatus(status) => status.source(),
        other => other.source(),
    };
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
