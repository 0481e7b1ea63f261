//! The watchdog: a thread that looks whether the workers of the runtimes get on.
//!
//! A task that blocks holds up all others of its worker and, when as many block as there are workers, all of its runtime.
//! Nobody on that runtime can tell, so the watchdog is a thread beside them.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeMetrics};

use crate::critical::Health;
use crate::group::{Group, Tasks};

const LOOK: Duration = Duration::from_millis(500);
/// A worker that stands still for longer than this is told of. In looks: where the machine itself stands still, so does
/// the watchdog, and no worker is to blame.
const PATIENCE: u32 = 4;

/// The runtimes that are watched.
#[derive(Default)]
pub(crate) struct Runtimes {
    all: Mutex<Vec<Arc<Watched>>>,
    is_watched: AtomicBool,
}

struct Watched {
    name: &'static str,
    metrics: RuntimeMetrics,
    workers: Mutex<Vec<Worker>>,
    /// How often one of its workers stood still.
    stalls: AtomicU64,
}

#[derive(Clone, Default)]
struct Worker {
    last: Option<Progress>,
    /// For so many looks it has not moved.
    still: u32,
}

/// Moves whenever a worker gets on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Progress {
    parks: u64,
    busy: Duration,
}

impl Progress {
    fn of(metrics: &RuntimeMetrics, worker: usize) -> Self {
        Self { parks: metrics.worker_park_unpark_count(worker), busy: metrics.worker_total_busy_duration(worker) }
    }

    /// It has nothing to do.
    fn is_parked(self) -> bool {
        self.parks % 2 == 1
    }
}

impl Watched {
    fn look(&self) {
        let mut workers = self.workers.lock();
        workers.resize(self.metrics.num_workers(), Worker::default());
        for (number, worker) in workers.iter_mut().enumerate() {
            let now = Progress::of(&self.metrics, number);
            let is_still = worker.last == Some(now) && !now.is_parked();
            worker.last = Some(now);
            if is_still {
                worker.still = worker.still.saturating_add(1);
                if worker.still == PATIENCE {
                    self.stalls.fetch_add(1, Ordering::Relaxed);
                    let runtime = self.name;
                    tracing::error!(
                        runtime,
                        worker = number,
                        "a worker of a tokio runtime is blocked for more than {:?}",
                        LOOK * PATIENCE
                    );
                }
            } else {
                if worker.still >= PATIENCE {
                    let (runtime, stood) = (self.name, LOOK * worker.still);
                    tracing::warn!(runtime, worker = number, "a worker of a tokio runtime continues after {stood:?}");
                }
                worker.still = 0;
            }
        }
    }

    /// How many workers stand still now, and the longest of them for how long.
    fn still(&self) -> (usize, Duration) {
        let workers = self.workers.lock();
        let still = workers.iter().map(|worker| worker.still).filter(|still| *still >= PATIENCE);
        (still.clone().count(), LOOK * still.max().unwrap_or_default())
    }
}

impl Runtimes {
    pub(crate) fn health(&self) -> Vec<Health> {
        let all = self.all.lock().clone();
        let of = |runtime: &Arc<Watched>| {
            let (count, longest) = runtime.still();
            // One alone may be busy with something large, and the others do its work: that is in the log and the metric.
            let all = runtime.metrics.num_workers();
            let failure =
                (count >= all).then(|| format!("{count} of {all} workers stand still, for {longest:?} by now"));
            Health { name: format!("runtime/{}", runtime.name), failure }
        };
        all.iter().map(of).collect()
    }
}

impl Tasks {
    /// Has the watchdog of the tree look after a runtime.
    pub fn watch_runtime(&self, name: &'static str, runtime: &Handle) {
        let root = self.root();
        let watched =
            Watched { name, metrics: runtime.metrics(), workers: Mutex::default(), stalls: AtomicU64::new(0) };
        root.0.runtimes.all.lock().push(Arc::new(watched));
        if root.0.runtimes.is_watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let weak = Arc::downgrade(&root.0);
        let started = std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || watch(&weak));
        if let Err(error) = started {
            root.0.runtimes.is_watched.store(false, Ordering::Relaxed);
            tracing::error!("cannot start the watchdog of the tokio runtimes: {error}");
        }
    }

    /// Why a runtime of the tree does not get on; None when it does.
    pub fn runtime_failure(&self, name: &str) -> Option<String> {
        let all = self.root().0.runtimes.health();
        let mut of_runtime = all.into_iter().filter(|health| health.name.strip_prefix("runtime/") == Some(name));
        of_runtime.find_map(|health| Some(format!("{}: {}", health.name, health.failure?)))
    }

    /// What the watchdog of the tree has seen, in Prometheus' text format.
    pub fn runtime_metrics(&self) -> String {
        let all = self.root().0.runtimes.all.lock().clone();
        if all.is_empty() {
            return String::new();
        }
        let mut out =
            "# HELP ferry_runtime_stalled_workers Workers of a runtime that have stood still for two seconds.\n\
                       # TYPE ferry_runtime_stalled_workers gauge\n"
                .to_owned();
        for runtime in &all {
            let _ =
                writeln!(out, "ferry_runtime_stalled_workers{{runtime=\"{}\"}} {}", runtime.name, runtime.still().0);
        }
        out.push_str(
            "# HELP ferry_runtime_stalls_total How often a worker of a runtime stood still for two seconds.\n\
             # TYPE ferry_runtime_stalls_total counter\n",
        );
        for runtime in &all {
            let count = runtime.stalls.load(Ordering::Relaxed);
            let _ = writeln!(out, "ferry_runtime_stalls_total{{runtime=\"{}\"}} {count}", runtime.name);
        }
        out
    }
}

/// Until the tree is gone.
fn watch(root: &Weak<Group>) {
    loop {
        #[expect(clippy::disallowed_methods, reason = "a thread of its own, which no task runs on")]
        std::thread::sleep(LOOK);
        let Some(root) = root.upgrade() else { return };
        let all = root.runtimes.all.lock().clone();
        all.iter().for_each(|runtime| runtime.look());
    }
}
