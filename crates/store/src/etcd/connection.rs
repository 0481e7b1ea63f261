//! The way to etcd: one client per member, tried in turn, and an answer within the deadline whatever they do.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Response;

use super::api::rpc::range_request::{SortOrder, SortTarget};
use super::api::rpc::{RangeRequest, RangeResponse};
use super::api::{Answer, Client, was_not_sent};
use super::convert::{Layout, failed, number, prefix_end, revision_of};
use super::{EtcdOptions, stream};
use crate::types::{Range, RangeResult, Revision};
use crate::{Result, StoreError, key};

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

impl Connection {
    /// Sends nothing yet. A balancing client would do for one member; with several it sends every other request to one
    /// that is down.
    pub(crate) fn new(options: &EtcdOptions) -> Result<Self> {
        let connect = |endpoint: &String| Client::new(endpoint, options.tls.as_ref());
        let members = options.endpoints.iter().map(connect).collect::<Result<Arc<[Client]>>>()?;
        if members.is_empty() {
            return Err(StoreError::InvalidEndpoint(String::new(), "there is none".into()));
        }
        Ok(Self {
            members,
            preferred: Arc::default(),
            deadline: options.deadline,
            layout: Layout::new(&options.prefix)?,
        })
    }

    /// Whatever etcd or the network does, the caller gets an answer in time.
    pub(crate) async fn call<T, F>(&self, repeat: Repeat, send: impl Fn(Client) -> F) -> Result<T>
    where
        F: Future<Output = Answer<T>>,
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
                Ok(Err(status)) => match failed(&status) {
                    unavailable @ StoreError::Unavailable(_) if repeat == Repeat::Always || was_not_sent(&status) => {
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

    pub(crate) async fn get(&self, request: RangeRequest) -> Result<RangeResponse> {
        self.call(Repeat::Always, |client| {
            let request = request.clone();
            async move { client.kv().range(request).await.map(Response::into_inner) }
        })
        .await
    }

    /// The newest revision: a linearizable read of nothing.
    pub(crate) async fn revision(&self) -> Result<Revision> {
        let answer = self.get(self.nothing()).await?;
        Ok(revision_of(answer.header.as_ref()))
    }

    /// Fails where a revision is compacted.
    pub(crate) async fn probe(&self, revision: Revision) -> Result<()> {
        self.get(RangeRequest { revision: number(revision.max(1))?, ..self.nothing() }).await.map(drop)
    }

    fn nothing(&self) -> RangeRequest {
        RangeRequest { key: self.layout.outward(key::ROOT), count_only: true, ..RangeRequest::default() }
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
        let request = RangeRequest {
            key: start,
            range_end: prefix_end(&self.layout.outward(&range.prefix)),
            limit: i64::try_from(range.limit).unwrap_or(i64::MAX),
            // 0 would mean the newest.
            revision: range.revision.map_or(Ok(0), |revision| number(revision.max(1)))?,
            sort_order: SortOrder::Ascend.into(),
            sort_target: SortTarget::Key.into(),
            ..RangeRequest::default()
        };
        let answer = self.get(request).await?;
        let revision = revision_of(answer.header.as_ref());
        let count = usize::try_from(answer.count).unwrap_or(0);
        let entries = answer.kvs.into_iter().map(|kv| self.layout.entry(kv)).collect::<Result<Vec<_>>>()?;
        let remaining = count.saturating_sub(entries.len());
        Ok(RangeResult { revision, more: remaining > 0, remaining, entries })
    }
}
