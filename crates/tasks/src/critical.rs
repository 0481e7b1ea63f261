//! Tasks that others rely on: they are started again when they fall, and the tree tells which of them do not run.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::group::{Boxed, Group, Tasks, reason};

const FIRST_RESTART: Duration = Duration::from_secs(1);
const LONGEST_RESTART: Duration = Duration::from_secs(60);

/// Whether something that the process relies on runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// `task/GROUP/TASK`, or `runtime/NAME`.
    pub name: String,
    /// Why it does not run; None when it does.
    pub failure: Option<String>,
}

/// Those of one group, in the order they were started.
#[derive(Default)]
pub(crate) struct Criticals {
    next: AtomicU64,
    known: Mutex<BTreeMap<u64, Critical>>,
}

struct Critical {
    task: &'static str,
    failure: Option<String>,
}

/// A critical task is known by its group until this is dropped.
struct Entry {
    group: Weak<Group>,
    number: u64,
}

impl Entry {
    fn new(group: &Tasks, task: &'static str) -> Self {
        let criticals = &group.0.criticals;
        let number = criticals.next.fetch_add(1, Ordering::Relaxed);
        criticals.known.lock().insert(number, Critical { task, failure: None });
        Self { group: Arc::downgrade(&group.0), number }
    }

    fn set(&self, failure: Option<String>) {
        let Some(group) = self.group.upgrade() else { return };
        if let Some(critical) = group.criticals.known.lock().get_mut(&self.number) {
            critical.failure = failure;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(group) = self.group.upgrade() {
            group.criticals.known.lock().remove(&self.number);
        }
    }
}

impl Tasks {
    /// Runs what `make` makes until it ends by itself or the group stops, and again with back-off whenever it panics. A bug
    /// then costs a pause instead of the work. For what is one of many, such as the worker of a pod: whoever can make it fall
    /// must not make the whole process look ill.
    pub fn spawn_restarted<M, F>(&self, task: &'static str, mut make: M) -> JoinHandle<()>
    where
        M: FnMut() -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.restart(task, None, Box::new(move || Box::pin(make())))
    }

    /// Runs what `make` makes until the group stops, and again with back-off whenever it panics or ends: for loops that
    /// others rely on, and that find their state anew. While it does not run, the tree says so.
    pub fn spawn_critical<M, F>(&self, task: &'static str, mut make: M) -> JoinHandle<()>
    where
        M: FnMut() -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.restart(task, Some(Entry::new(self, task)), Box::new(move || Box::pin(make())))
    }

    /// As `spawn_critical`, for what cannot be made a second time: once it has ended, the tree is not healthy any more,
    /// and whoever looks after the process has to start it again.
    pub fn spawn_critical_once<F>(&self, task: &'static str, future: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (entry, group, stopping) = (Entry::new(self, task), self.0.name, self.stopping());
        let future: Boxed = Box::pin(future);
        self.until_stopped(
            task,
            Box::pin(async move {
                let why = match fall(future).await {
                    None if stopping.is_cancelled() => return,
                    None => "it ended".to_owned(),
                    Some(why) => why,
                };
                tracing::error!(group, task, "a critical task ended and is not restarted: {why}");
                entry.set(Some(why));
                // Known as failed for as long as the group is there.
                std::future::pending::<()>().await;
            }),
        )
    }

    fn restart(
        &self,
        task: &'static str,
        entry: Option<Entry>,
        mut make: Box<dyn FnMut() -> Boxed + Send>,
    ) -> JoinHandle<()> {
        let (group, stopping) = (self.0.name, self.stopping());
        self.until_stopped(
            task,
            Box::pin(async move {
                let mut delay = FIRST_RESTART;
                loop {
                    let begin = Instant::now();
                    // To make it may fail as well.
                    let why = match std::panic::catch_unwind(AssertUnwindSafe(&mut make)) {
                        Ok(future) => fall(future).await,
                        Err(panic) => Some(format!("it panicked: {}", reason(&*panic))),
                    };
                    let why = match why {
                        None if entry.is_none() || stopping.is_cancelled() => return,
                        None => "it ended".to_owned(),
                        Some(why) => why,
                    };
                    // What has run for long had got over whatever made it fail before.
                    if begin.elapsed() > LONGEST_RESTART {
                        delay = FIRST_RESTART;
                    }
                    tracing::error!(group, task, "a task ended and restarts in {delay:?}: {why}");
                    if let Some(entry) = &entry {
                        entry.set(Some(why));
                    }
                    tokio::time::sleep(delay).await;
                    if let Some(entry) = &entry {
                        entry.set(None);
                    }
                    delay = (delay * 2).min(LONGEST_RESTART);
                }
            }),
        )
    }

    /// How the critical tasks of this group and of those below it are, by name, and the runtimes of the whole tree where
    /// this is its root. Tasks of one name are told of together.
    pub fn health(&self) -> Vec<Health> {
        let mut all = BTreeMap::new();
        self.collect(&mut all);
        let tasks = all.into_iter().map(|((group, task), failure)| {
            // Fit for a path.
            Health { name: format!("task/{group}/{task}").replace(' ', "-"), failure }
        });
        tasks.chain(self.0.runtimes.health()).collect()
    }

    fn collect(&self, all: &mut BTreeMap<(&'static str, &'static str), Option<String>>) {
        for critical in self.0.criticals.known.lock().values() {
            let failure = all.entry((self.0.name, critical.task)).or_default();
            if failure.is_none() {
                failure.clone_from(&critical.failure);
            }
        }
        self.children().iter().for_each(|child| child.collect(all));
    }

    /// The first of them that does not run, in a sentence.
    pub fn failure(&self) -> Option<String> {
        self.health().into_iter().find_map(|health| Some(format!("{}: {}", health.name, health.failure?)))
    }
}

/// Why it panicked; None when it ended by itself.
async fn fall(future: Boxed) -> Option<String> {
    let panic = AssertUnwindSafe(future).catch_unwind().await.err()?;
    Some(format!("it panicked: {}", reason(&*panic)))
}
