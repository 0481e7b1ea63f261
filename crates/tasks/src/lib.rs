//! The task tree: every task has a name and an owner, and stops with it.
//!
//! A bare `tokio::spawn` outlives whoever started it and hides its panic; a task of a `Tasks` group does neither.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const FIRST_RESTART: Duration = Duration::from_secs(1);
const LONGEST_RESTART: Duration = Duration::from_secs(60);

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A group of tasks with one owner. Clones are handles to the same group.
#[derive(Clone, Debug)]
pub struct Tasks {
    name: &'static str,
    tracker: TaskTracker,
    token: CancellationToken,
}

impl Tasks {
    pub fn new(name: &'static str) -> Self {
        Self { name, tracker: TaskTracker::new(), token: CancellationToken::new() }
    }

    /// A group that is told to stop whenever this one is.
    #[must_use]
    pub fn child(&self, name: &'static str) -> Self {
        Self { name, tracker: TaskTracker::new(), token: self.token.child_token() }
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
        let group = self.name;
        self.tracker.spawn(async move {
            // A panic becomes a log line instead of silence.
            if let Err(panic) = AssertUnwindSafe(future).catch_unwind().await {
                tracing::error!(group, task, "a task panicked: {}", reason(&*panic));
            }
        })
    }

    /// Runs until it ends by itself or the group stops, whichever is first: the future is dropped at an await point.
    pub fn spawn_until_stopped<F>(&self, task: &'static str, future: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let token = self.token.clone();
        let future: Boxed = Box::pin(future);
        self.spawn(task, async move {
            let _ = token.run_until_cancelled(future).await;
        })
    }

    /// Runs what `make` makes until it ends by itself or the group stops, and again with back-off whenever it panics: for
    /// loops that others rely on, and that find their state anew. A bug then costs a pause instead of the loop.
    pub fn spawn_restarted<M, F>(&self, task: &'static str, make: M) -> JoinHandle<()>
    where
        M: Fn() -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.restart(task, Box::new(move || Box::pin(make())))
    }

    fn restart(&self, task: &'static str, make: Box<dyn Fn() -> Boxed + Send>) -> JoinHandle<()> {
        let group = self.name;
        self.spawn_until_stopped(task, async move {
            let mut delay = FIRST_RESTART;
            loop {
                let (future, begin) = (make(), Instant::now());
                let Err(panic) = AssertUnwindSafe(future).catch_unwind().await else { return };
                // What has run for long had got over whatever made it fail before.
                if begin.elapsed() > LONGEST_RESTART {
                    delay = FIRST_RESTART;
                }
                tracing::error!(group, task, "a task panicked and starts again in {delay:?}: {}", reason(&*panic));
                drop(panic);
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(LONGEST_RESTART);
            }
        })
    }

    /// Cancelled once the group is told to stop.
    pub fn stopping(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Tells all tasks to stop and waits for them. False when some were still running at the deadline.
    pub async fn stop(&self, deadline: Duration) -> bool {
        self.token.cancel();
        self.tracker.close();
        let done = tokio::time::timeout(deadline, self.tracker.wait()).await.is_ok();
        if !done {
            tracing::warn!(group = self.name, "{} tasks did not stop in time", self.tracker.len());
        }
        done
    }
}

/// What a panic said.
fn reason(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn what_panics_starts_again_until_it_ends_by_itself() {
        let tasks = Tasks::new("test");
        let lives = Arc::new(AtomicUsize::new(0));
        let count = lives.clone();
        let ended = tasks.spawn_restarted("mortal", move || {
            let life = count.fetch_add(1, Ordering::SeqCst);
            async move { assert!(life >= 1, "life {life} ends in a panic") }
        });
        assert!(ended.await.is_ok());
        assert_eq!(lives.load(Ordering::SeqCst), 2);
        assert!(tasks.stop(Duration::from_secs(1)).await);
    }

    #[tokio::test]
    async fn what_starts_again_stops_with_its_group() {
        let tasks = Tasks::new("test");
        tasks.spawn_restarted("for ever", std::future::pending);
        tasks.spawn_restarted("never well", || async { panic!("always") });
        assert!(tasks.stop(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn stopping_a_parent_stops_its_children() {
        let parent = Tasks::new("parent");
        let child = parent.child("child");
        child.spawn_until_stopped("forever", std::future::pending());
        assert!(parent.stop(Duration::from_secs(5)).await);
        assert!(child.stop(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn a_panic_ends_its_own_task_only() {
        let tasks = Tasks::new("tests");
        let (heard, hears) = tokio::sync::oneshot::channel();
        tasks.spawn("falls", async { panic!("on purpose") }).await.expect("the panic stays inside");
        tasks.spawn("stands", async move { heard.send(()).expect("heard") });
        hears.await.expect("the other task ran");
        assert!(tasks.stop(Duration::from_secs(5)).await);
    }
}
