//! Events that requests do not wait for: collected, and written together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ferry_tasks::Tasks;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::{Backend, Log, Receipt};

#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// Events that wait; more are dropped.
    pub buffer: usize,
    pub max_batch: usize,
    /// A batch that is not full is written after this.
    pub max_wait: Duration,
    /// Batches in a second, and how many at once.
    pub rate: Option<(f64, usize)>,
}

/// A log whose lines are written by a task of its own.
pub struct BatchedLog {
    events: mpsc::Sender<Bytes>,
    log: Arc<Log>,
    dropped: AtomicU64,
}

impl BatchedLog {
    pub fn start(log: Log, options: BatchOptions, tasks: &Tasks) -> Self {
        let (events, queue) = mpsc::channel(options.buffer.max(1));
        let log = Arc::new(log);
        tasks.spawn("audit log", write_all(log.clone(), options, queue, tasks.clone()));
        Self { events, log, dropped: AtomicU64::new(0) }
    }
}

impl Backend for BatchedLog {
    fn write(&self, event: &Bytes) -> Option<Receipt> {
        if self.events.try_send(event.clone()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::error!("an audit event was dropped: the log's buffer is full");
        }
        None
    }

    fn name(&self) -> &'static str {
        self.log.name()
    }

    fn lost(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed) + self.log.lost()
    }
}

async fn write_all(log: Arc<Log>, options: BatchOptions, mut queue: mpsc::Receiver<Bytes>, tasks: Tasks) {
    let stopping = tasks.stopping();
    let mut bucket = Bucket::new(options.rate);
    loop {
        let first = tokio::select! {
            () = stopping.cancelled() => break,
            first = queue.recv() => first,
        };
        let Some(first) = first else { return };
        let batch = collect(first, &mut queue, options.max_batch, options.max_wait, &tasks).await;
        tokio::select! {
            () = stopping.cancelled() => {}
            () = bucket.take() => {}
        }
        log.write_batch(&batch);
    }
    // What was told before the end is written before the end.
    queue.close();
    while let Some(event) = queue.recv().await {
        log.write_batch(&[event]);
    }
}

/// The first event and those that come within `max_wait` of it, until the batch is full or all is to stop.
pub(crate) async fn collect<T>(
    first: T,
    queue: &mut mpsc::Receiver<T>,
    max_batch: usize,
    max_wait: Duration,
    tasks: &Tasks,
) -> Vec<T> {
    let stopping = tasks.stopping();
    let mut batch = vec![first];
    let deadline = Instant::now() + max_wait;
    while batch.len() < max_batch {
        let next = tokio::select! {
            () = stopping.cancelled() => break,
            next = tokio::time::timeout_at(deadline, queue.recv()) => next,
        };
        match next {
            Ok(Some(event)) => batch.push(event),
            Ok(None) | Err(_) => break,
        }
    }
    batch
}

/// So many batches in a second.
pub(crate) struct Bucket {
    rate: Option<(f64, usize)>,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(rate: Option<(f64, usize)>) -> Self {
        Self { rate, tokens: rate.map_or(0.0, |(_, burst)| burst as f64), filled: Instant::now() }
    }

    pub(crate) async fn take(&mut self) {
        let Some((per_second, burst)) = self.rate.filter(|(per_second, _)| *per_second > 0.0) else { return };
        let now = Instant::now();
        let gained = now.duration_since(self.filled).as_secs_f64() * per_second;
        self.tokens = (self.tokens + gained).min(burst.max(1) as f64);
        self.filled = now;
        if self.tokens < 1.0 {
            tokio::time::sleep(Duration::from_secs_f64((1.0 - self.tokens) / per_second)).await;
            self.filled = Instant::now();
            self.tokens = 1.0;
        }
        self.tokens -= 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogOptions;

    #[tokio::test]
    async fn lines_are_written_together_and_what_finds_no_place_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let open = || Log::open(LogOptions { path: path.clone(), ..LogOptions::default() }).expect("a log");
        let lines = || std::fs::read_to_string(&path).expect("a log").lines().count();
        let options = BatchOptions { buffer: 4, max_batch: 4, max_wait: Duration::from_secs(3600), rate: None };
        let event = Bytes::from_static(b"{}");

        // Nobody has had a turn to write: the buffer takes four, and nobody waits.
        let tasks = Tasks::new("test");
        let log = BatchedLog::start(open(), options.clone(), &tasks);
        for _ in 0..7 {
            assert!(log.write(&event).is_none());
        }
        assert_eq!((log.lost(), lines()), (3, 0));
        // A full batch is written, one that is not waits for its time, or for the end.
        while lines() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(lines(), 4);
        log.write(&event);
        tokio::task::yield_now().await;
        assert_eq!(lines(), 4);
        tasks.stop(Duration::from_secs(10)).await;
        assert_eq!(lines(), 5);
    }
}
