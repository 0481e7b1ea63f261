//! Groups of tasks, and how they stop.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::critical::Criticals;
use crate::watchdog::Runtimes;

pub(crate) type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What was to be done ended before it was done: its group was stopped, or it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

impl std::fmt::Display for Ended {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the task ended before it was done")
    }
}

impl std::error::Error for Ended {}

/// A group of tasks with one owner. Clones are handles to the same group.
#[derive(Clone)]
pub struct Tasks(pub(crate) Arc<Group>);

pub(crate) struct Group {
    pub(crate) name: &'static str,
    tracker: TaskTracker,
    token: CancellationToken,
    /// Of the runtime that its tasks run on, where that is not the one they are started from.
    runtime: Option<Handle>,
    pub(crate) parent: Option<Tasks>,
    /// In the order they were made. Each lives as long as a handle to it or one of its tasks.
    children: Mutex<Vec<Weak<Group>>>,
    pub(crate) criticals: Criticals,
    /// Those of the whole tree, at its root.
    pub(crate) runtimes: Runtimes,
}

#[cfg(test)]
impl Group {
    pub(crate) fn children_known(&self) -> usize {
        self.children.lock().len()
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Tasks").field(&self.0.name).finish()
    }
}

impl Tasks {
    pub fn new(name: &'static str) -> Self {
        Self::make(name, CancellationToken::new(), None, None)
    }

    fn make(name: &'static str, token: CancellationToken, runtime: Option<Handle>, parent: Option<Self>) -> Self {
        Self(Arc::new(Group {
            name,
            tracker: TaskTracker::new(),
            token,
            runtime,
            parent,
            children: Mutex::default(),
            criticals: Criticals::default(),
            runtimes: Runtimes::default(),
        }))
    }

    /// A group below this one: it stops before it, and runs where it runs.
    #[must_use]
    pub fn child(&self, name: &'static str) -> Self {
        self.add(name, self.0.runtime.clone())
    }

    /// A group below this one whose tasks, and those of all groups below it, run on another runtime.
    #[must_use]
    pub fn child_on(&self, name: &'static str, runtime: Handle) -> Self {
        self.add(name, Some(runtime))
    }

    fn add(&self, name: &'static str, runtime: Option<Handle>) -> Self {
        let child = Self::make(name, self.0.token.child_token(), runtime, Some(self.clone()));
        let mut children = self.0.children.lock();
        if children.len() == children.capacity() {
            children.retain(|child| child.strong_count() > 0);
        }
        children.push(Arc::downgrade(&child.0));
        drop(children);
        child
    }

    pub(crate) fn children(&self) -> Vec<Self> {
        self.0.children.lock().iter().filter_map(Weak::upgrade).map(Self).collect()
    }

    /// The group that all of them stop with.
    #[must_use]
    pub fn root(&self) -> Self {
        let mut group = self;
        while let Some(parent) = &group.0.parent {
            group = parent;
        }
        group.clone()
    }

    /// Runs until it ends by itself; it should listen to `stopping()` and end soon after.
    pub fn spawn<F>(&self, task: &'static str, future: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.start(task, Box::pin(future))
    }

    /// One type of future for all tasks: the runtime's machinery is compiled once, not once for each task of the program.
    fn start(&self, task: &'static str, future: Boxed) -> JoinHandle<()> {
        // The group is there as long as its task is, so that whoever stops a group above finds it.
        let group = self.clone();
        let whole = async move {
            // A panic becomes a log line instead of silence.
            if let Err(panic) = AssertUnwindSafe(future).catch_unwind().await {
                tracing::error!(group = group.0.name, task, "a task panicked: {}", reason(&*panic));
            }
        };
        match &self.0.runtime {
            Some(runtime) => self.0.tracker.spawn_on(whole, runtime),
            None => self.0.tracker.spawn(whole),
        }
    }

    /// Runs until it ends by itself or the group stops, whichever is first: the future is dropped at an await point.
    pub fn spawn_until_stopped<F>(&self, task: &'static str, future: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.until_stopped(task, Box::pin(future))
    }

    pub(crate) fn until_stopped(&self, task: &'static str, future: Boxed) -> JoinHandle<()> {
        let token = self.0.token.clone();
        self.spawn(task, async move {
            let _ = token.run_until_cancelled(future).await;
        })
    }

    /// Whether whoever asks runs where the group's tasks run.
    pub fn is_here(&self) -> bool {
        let here = |runtime: &Handle| Handle::try_current().is_ok_and(|current| current.id() == runtime.id());
        self.0.runtime.as_ref().is_none_or(here)
    }

    /// Does something where the group's tasks run, and hands over what comes of it. It is dropped when nobody waits for it
    /// any more.
    ///
    /// # Errors
    /// When it panics, or the group stops before it is done.
    pub async fn run<F>(&self, task: &'static str, future: F) -> Result<F::Output, Ended>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let (sender, outcome) = tokio::sync::oneshot::channel();
        let running = self.spawn_until_stopped(task, async move {
            // Whoever asked may be gone by now.
            let _ = sender.send(future.await);
        });
        let _end = AbortOnDropHandle::new(running);
        outcome.await.map_err(|_| Ended)
    }

    /// Cancelled once the group is told to stop.
    pub fn stopping(&self) -> CancellationToken {
        self.0.token.clone()
    }

    /// Tells all tasks to stop and waits for them: first the groups below, the newest before those that it may rely on.
    /// False when some were still running at the deadline; they are told to stop all the same.
    pub async fn stop(&self, deadline: Duration) -> bool {
        let done = tokio::time::timeout(deadline, self.stop_all()).await.is_ok();
        if !done {
            self.0.token.cancel();
            let mut left = Vec::new();
            self.count_left(&mut left);
            tracing::warn!(group = self.0.name, "tasks did not stop in time: {}", left.join(", "));
        }
        done
    }

    fn stop_all(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            for child in self.children().iter().rev() {
                child.stop_all().await;
            }
            self.0.token.cancel();
            self.0.tracker.close();
            self.0.tracker.wait().await;
            // What its tasks made while they ended was told to stop at once.
            for child in self.children().iter().rev() {
                child.stop_all().await;
            }
        })
    }

    fn count_left(&self, left: &mut Vec<String>) {
        let count = self.0.tracker.len();
        if count > 0 {
            left.push(format!("{count} of {}", self.0.name));
        }
        self.children().iter().for_each(|child| child.count_left(left));
    }
}

/// What a panic said.
pub(crate) fn reason(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}
