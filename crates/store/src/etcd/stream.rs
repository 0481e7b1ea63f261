//! Watches on etcd.
//!
//! A watch is one on all keys of etcd, filtered here: every revision is then an event, and its arrival proves that all
//! before it have arrived. etcd's own progress marks do not, before 3.4.25 and 3.5.8, and come every ten minutes.

use std::collections::VecDeque;
use std::time::Duration;

use super::api::rpc::event::EventType;
use super::api::rpc::{self, WatchCreateRequest, WatchResponse};
use super::api::{Client, Watching};
use super::call::Repeat;
use super::connection::Connection;
use super::convert::{Layout, number, unsigned};
use crate::batches::Batches;
use crate::types::{Event, EventKind, Revision, WatchBatch, WatchRequest};
use crate::{Entry, Result, StoreError, WatchStream};

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(2);
/// How long nothing may come while there is something to come; twice as long each time that it did not help.
const STALL: Duration = Duration::from_millis(250);
/// As the first key it means the least one, as the end of a range that there is none.
const EVERYTHING: &[u8] = &[0];

struct Watch {
    connection: Connection,
    /// As it stands in etcd.
    prefix: Vec<u8>,
    responses: Option<Watching>,
    /// Everything up to here was delivered.
    reached: Revision,
    /// The newest revision at the start; a mark is due once it is reached.
    start: Option<Revision>,
    ready: VecDeque<WatchBatch>,
    pause: Duration,
    stall: Duration,
}

pub(super) async fn watch(connection: Connection, request: WatchRequest) -> Result<WatchStream> {
    let newest = connection.revision().await?;
    if request.after > newest {
        return Err(StoreError::Future { requested: request.after, newest });
    }
    let mut watch = Watch {
        prefix: connection.layout.outward(&request.prefix),
        connection,
        responses: None,
        // Revision 1 is that of an empty etcd: no event has it.
        reached: request.after.max(1),
        start: Some(newest),
        ready: VecDeque::new(),
        pause: RETRY_FIRST,
        stall: STALL,
    };
    watch.open().await?;
    if watch.reached < newest {
        // There is history to come, or the news that there is none: it belongs to the opening.
        let deadline = watch.connection.deadline;
        let first = match tokio::time::timeout(deadline, watch.next()).await {
            Ok(first) => first?,
            Err(_) => return Err(StoreError::Unavailable(format!("etcd did not answer within {deadline:?}"))),
        };
        watch.ready.push_front(first);
    }
    Ok(watch.into_stream())
}

/// The compacted revision: what etcd says to a watch that wants everything.
pub(super) async fn compacted(connection: &Connection) -> Option<Revision> {
    let ask = |client: Client| async move {
        let request =
            WatchCreateRequest { key: b"/registry/".into(), start_revision: 1, ..WatchCreateRequest::default() };
        let mut responses = client.watch(request).await?;
        while let Some(response) = responses.message().await? {
            if response.canceled {
                return Ok(Some(unsigned(response.compact_revision)));
            }
        }
        Ok(None)
    };
    connection.call(Repeat::Always, ask).await.ok().flatten()
}

impl Watch {
    async fn open(&mut self) -> Result<()> {
        // etcd lets a watch begin at the compacted revision itself, where deletions may be missing.
        if let Err(error) = self.connection.probe(self.reached).await {
            return Err(self.connection.explain(error, self.reached).await);
        }
        let request = WatchCreateRequest {
            key: EVERYTHING.into(),
            range_end: EVERYTHING.into(),
            start_revision: number(self.reached + 1)?,
            progress_notify: true,
            prev_kv: true,
            ..WatchCreateRequest::default()
        };
        let send = |client: Client| {
            let request = request.clone();
            async move { client.watch(request).await }
        };
        self.responses = Some(self.connection.call(Repeat::Always, send).await?);
        Ok(())
    }

    fn accept(&mut self, response: WatchResponse) -> Result<()> {
        if response.canceled {
            if response.compact_revision > 0 {
                let oldest = unsigned(response.compact_revision);
                return Err(StoreError::Compacted { requested: self.reached, oldest });
            }
            let reason = response.cancel_reason;
            if reason.contains("permission denied") {
                return Err(StoreError::Unavailable(format!("etcd: {reason}")));
            }
            self.responses = None;
            return Ok(());
        }
        for event in response.events {
            let Some(kv) = &event.kv else { continue };
            let revision = unsigned(kv.mod_revision);
            if revision > self.reached {
                self.reached = revision;
                // What comes next is a new revision: the mark of one without events says enough for all before it.
                if self.ready.back().is_some_and(|batch| batch.events.is_empty()) {
                    self.ready.pop_back();
                }
                self.ready.push_back(WatchBatch { revision, events: Vec::new() });
            }
            if kv.key.starts_with(&self.prefix)
                && let Some(batch) = self.ready.back_mut()
            {
                batch.events.push(convert(&self.connection.layout, event)?);
            }
        }
        Ok(())
    }
}

impl Batches for Watch {
    async fn next(&mut self) -> Result<WatchBatch> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(batch);
            }
            if self.start.is_some_and(|start| self.reached >= start) {
                self.start = None;
                return Ok(WatchBatch { revision: self.reached, events: Vec::new() });
            }
            let Some(responses) = &mut self.responses else {
                if let Err(error) = self.open().await {
                    if matches!(error, StoreError::Compacted { .. }) {
                        return Err(error);
                    }
                    tracing::debug!("a watch waits for etcd: {error}");
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(RETRY_LAST);
                }
                continue;
            };
            // A member that stands still, or is cut off, keeps its connection and says nothing for a long time.
            let message = tokio::select! {
                biased;
                message = responses.message() => message,
                () = self.connection.is_beyond(self.reached, self.stall) => {
                    tracing::debug!("a watch at revision {} is asked of another member of etcd", self.reached);
                    self.stall *= 2;
                    self.responses = None;
                    continue;
                }
            };
            match message {
                Ok(Some(response)) => {
                    (self.pause, self.stall) = (RETRY_FIRST, STALL);
                    self.accept(response)?;
                }
                ended => {
                    tracing::debug!("a watch lost etcd at revision {}: {:?}", self.reached, ended.err());
                    self.responses = None;
                    tokio::time::sleep(self.pause).await;
                    self.pause = (self.pause * 2).min(RETRY_LAST);
                }
            }
        }
    }
}

fn convert(layout: &Layout, event: rpc::Event) -> Result<Event> {
    let deleted = event.r#type() == EventType::Delete;
    let kv = event.kv.ok_or_else(|| StoreError::Corrupt("etcd sent an event without a key".into()))?;
    let kind = match deleted {
        true => EventKind::Delete,
        false if kv.create_revision == kv.mod_revision => EventKind::Create,
        false => EventKind::Update,
    };
    let mut entry_now = layout.entry(kv)?;
    if deleted {
        entry_now = Entry { created: 0, lease: None, ..entry_now };
    }
    let previous = event.prev_kv.map(|kv| layout.entry(kv)).transpose()?;
    Ok(Event { kind, entry: entry_now, previous })
}
