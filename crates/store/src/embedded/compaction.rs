//! Forgetting superseded values: by request, and by itself every few minutes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Options, Shared};
use crate::types::{EventKind, Revision};
use crate::{Result, StoreError};

/// Deletions per batch: small enough that writers in between hardly notice.
const SLICE: usize = 512;

impl Shared {
    /// Each change from the last compaction that came to its end to this one supersedes what came before it; a deletion
    /// leaves nothing.
    pub(crate) fn compact(&self, revision: Revision) -> Result<()> {
        let mut finished = self.compacting.lock();
        let (from, disk) = {
            let state = self.state.read();
            if revision > state.revision {
                return Err(StoreError::Future { requested: revision, newest: state.revision });
            }
            if revision <= state.compacted {
                return Err(StoreError::Compacted { requested: revision, oldest: state.compacted });
            }
            (*finished + 1, self.disk()?)
        };
        let view = disk.view();
        // The mark lies before the deletions in the log: no crash leaves a hole that is not marked.
        let mut mark = disk.batch();
        mark.compacted(revision);
        disk.write(mark)?;
        self.state.write().compacted = revision;
        let mut batch = disk.batch();
        let mut size = 0;
        view.scan(from, revision, |place, bytes| {
            let record = view.decode(place, bytes)?;
            if let Some(previous) = record.previous {
                batch.forget(previous);
                size += 1;
            }
            if record.kind == EventKind::Delete {
                batch.forget(place);
                size += 1;
            }
            if size >= SLICE {
                disk.write(std::mem::replace(&mut batch, disk.batch()))?;
                size = 0;
            }
            Ok(true)
        })?;
        batch.finished(revision);
        disk.write(batch)?;
        *finished = revision;
        Ok(())
    }
}

/// When to compact by itself, and up to where: history stays for a while, so that watches can resume.
pub(crate) struct Schedule {
    interval: Duration,
    retention: Duration,
    retained_revisions: u64,
    next: Option<Instant>,
    marks: VecDeque<(Instant, Revision)>,
    running: Option<JoinHandle<()>>,
}

impl Schedule {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            interval: options.compaction_interval,
            retention: options.retention,
            retained_revisions: options.retained_revisions,
            next: Instant::now().checked_add(options.compaction_interval),
            marks: VecDeque::new(),
            running: None,
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    pub(crate) fn tick(&mut self, now: Instant, shared: &Arc<Shared>) {
        if self.next.is_none_or(|at| now < at) {
            return;
        }
        self.next = now.checked_add(self.interval);
        let (newest, compacted) = {
            let state = shared.state.read();
            (state.revision, state.compacted)
        };
        self.marks.push_back((now, newest));
        let mut target = 0;
        while let Some((at, revision)) = self.marks.front()
            && now.saturating_duration_since(*at) >= self.retention
        {
            target = *revision;
            self.marks.pop_front();
        }
        let target = target.min(newest.saturating_sub(self.retained_revisions));
        if target <= compacted {
            return;
        }
        self.finish();
        let shared = shared.clone();
        let spawned = std::thread::Builder::new().name("store-compaction".into()).spawn(move || {
            if let Err(error) = shared.compact(target) {
                tracing::warn!("automatic compaction at revision {target} failed: {error}");
            }
        });
        match spawned {
            Ok(handle) => self.running = Some(handle),
            Err(error) => tracing::warn!("automatic compaction could not start: {error}"),
        }
    }

    pub(crate) fn finish(&mut self) {
        if let Some(handle) = self.running.take() {
            // A panic in it was already reported by the panic hook.
            let _ = handle.join();
        }
    }
}
