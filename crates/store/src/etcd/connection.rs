//! The way to etcd: one client per member, and what is read through them.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Response;

use super::api::Client;
use super::api::rpc::range_request::{SortOrder, SortTarget};
use super::api::rpc::{RangeRequest, RangeResponse};
use super::call::Repeat;
use super::convert::{Layout, number, prefix_end, revision_of};
use super::failure::Failed;
use super::newest::Newest;
use super::{EtcdOptions, stream};
use crate::types::{Range, RangeResult, Revision};
use crate::{Result, StoreError, key};

#[derive(Clone)]
pub(crate) struct Connection {
    pub(super) members: Arc<[Client]>,
    /// The member that answered last: one that is away is not asked first each time.
    pub(super) preferred: Arc<AtomicUsize>,
    /// When etcd last answered what it answers with a leader alone.
    pub(super) sign: Arc<Mutex<Option<Instant>>>,
    /// The newest revision that etcd has told of.
    seen: Arc<watch::Sender<Revision>>,
    /// None where nobody waits for a leader.
    pub(super) newest: Option<Newest>,
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
            sign: Arc::default(),
            seen: Arc::default(),
            newest: Some(Newest::default()),
            deadline: options.deadline,
            layout: Layout::new(&options.prefix)?,
        })
    }

    /// The same way, on which nobody waits for a leader.
    pub(crate) fn impatient(&self) -> Self {
        Self { newest: None, ..self.clone() }
    }

    pub(crate) async fn get(&self, request: RangeRequest) -> Result<RangeResponse> {
        self.read(Repeat::Read, request).await.map_err(|failed| failed.error)
    }

    async fn read(&self, repeat: Repeat, request: RangeRequest) -> std::result::Result<RangeResponse, Failed> {
        let send = |client: Client| {
            let request = request.clone();
            async move { client.kv().range(request).await.map(Response::into_inner) }
        };
        self.ask(repeat, send, |_| true).await
    }

    /// The newest revision: a linearizable read of nothing.
    pub(crate) async fn revision(&self) -> Result<Revision> {
        self.ask_revision().await.map_err(|failed| failed.error)
    }

    pub(super) async fn ask_revision(&self) -> std::result::Result<Revision, Failed> {
        let answer = self.read(Repeat::Read, self.nothing()).await?;
        let newest = revision_of(answer.header.as_ref());
        self.saw(newest);
        Ok(newest)
    }

    /// Watches that do not get there are asked of another member.
    pub(super) fn saw(&self, revision: Revision) {
        self.seen.send_if_modified(|seen| std::mem::replace(seen, revision.max(*seen)) < revision);
    }

    /// Returns once etcd has told of a newer revision, and some time went by since.
    pub(super) async fn is_beyond(&self, reached: Revision, time: Duration) {
        let mut seen = self.seen.subscribe();
        if seen.wait_for(|newest| *newest > reached).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(time).await;
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
        // A page takes its time: nobody else is asked for it soon.
        let answer = self.read(Repeat::Always, request).await.map_err(|failed| failed.error)?;
        let revision = revision_of(answer.header.as_ref());
        let count = usize::try_from(answer.count).unwrap_or(0);
        let entries = answer.kvs.into_iter().map(|kv| self.layout.entry(kv)).collect::<Result<Vec<_>>>()?;
        let remaining = count.saturating_sub(entries.len());
        Ok(RangeResult { revision, more: remaining > 0, remaining, entries })
    }
}
