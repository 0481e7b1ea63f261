//! The one loop that every controller runs: take a key, reconcile it, come back later when that failed.

use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ferry_tasks::Tasks;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::queue::{QueueKey, WorkQueue};
use crate::write;

/// What a reconciliation asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until something changes.
    Done,
    /// Once more after a while, even if nothing changes.
    After(Duration),
}

/// Why a reconciliation failed; it is tried again with back-off.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Starts `workers` workers on the queue once `ready` resolves, which waits for the caches the reconciler reads.
pub fn run<Key, Ready, Reconcile, Running>(
    tasks: &Tasks,
    name: &'static str,
    queue: &WorkQueue<Key>,
    workers: usize,
    ready: Ready,
    reconcile: Reconcile,
) where
    Key: QueueKey,
    Ready: Future<Output = ()> + Send + 'static,
    Reconcile: Fn(Key) -> Running + Send + Sync + 'static,
    Running: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let reconcile: Reconciler<Key> = Arc::new(move |key| Box::pin(reconcile(key)));
    start(tasks, name, queue, workers, Box::pin(ready), reconcile);
}

/// One type for all reconcilers of a kind of key: the loop around them is compiled once, not once for each controller.
type Reconciler<Key> = Arc<dyn Fn(Key) -> BoxFuture<'static, Result<Action, Error>> + Send + Sync>;

fn start<Key: QueueKey>(
    tasks: &Tasks,
    name: &'static str,
    queue: &WorkQueue<Key>,
    workers: usize,
    ready: BoxFuture<'static, ()>,
    reconcile: Reconciler<Key>,
) {
    let ready = ready.shared();
    for _ in 0..workers.max(1) {
        let (ready, queue, reconcile) = (ready.clone(), queue.clone(), reconcile.clone());
        tasks.spawn_critical(name, move || {
            let (ready, queue, reconcile) = (ready.clone(), queue.clone(), reconcile.clone());
            async move {
                ready.await;
                work(name, queue, reconcile).await;
            }
        });
    }
}

async fn work<Key: QueueKey>(name: &'static str, queue: WorkQueue<Key>, reconcile: Reconciler<Key>) {
    loop {
        let key = queue.next().await;
        // A panic is a bug of one key: it must not take the worker from all the others.
        let attempt = AssertUnwindSafe(async { reconcile(key.clone()).await });
        match attempt.catch_unwind().await {
            Ok(Ok(action)) => {
                queue.forget(&key);
                if let Action::After(delay) = action {
                    queue.add_after(key.clone(), delay);
                }
            }
            Ok(Err(error)) => {
                report(name, &*key, &error);
                queue.add_rate_limited(key.clone());
            }
            Err(_panic) => {
                tracing::error!(controller = name, key = ?*key, "reconciling panicked");
                queue.add_rate_limited(key.clone());
            }
        }
    }
}

/// Conflicts are everyday life: the cache was behind. All else should be seen.
fn report<Key: std::fmt::Debug>(name: &str, key: &Key, error: &Error) {
    let api = error.downcast_ref::<kube::Error>();
    match api {
        Some(error) if write::is_conflict(error) || write::is_already_exists(error) => {
            tracing::debug!(controller = name, ?key, "conflict, will retry: {}", write::short(error));
        }
        Some(error) => tracing::warn!(controller = name, ?key, "reconciling failed: {}", write::short(error)),
        None => tracing::warn!(controller = name, ?key, "reconciling failed: {error}"),
    }
}

/// An error that is only a text.
pub fn failure(text: impl Display) -> Error {
    text.to_string().into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn failures_and_panics_are_retried() {
        let tasks = Tasks::new("test");
        let queue = WorkQueue::new();
        let (attempts, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Notify::new()));
        let (count, finished) = (attempts.clone(), done.clone());
        run(&tasks, "test", &queue, 1, std::future::ready(()), move |_key: &str| {
            let (count, finished) = (count.clone(), finished.clone());
            async move {
                match count.fetch_add(1, Ordering::SeqCst) {
                    0 => Err(failure("first")),
                    1 => panic!("second"),
                    2 => Ok(Action::After(Duration::from_millis(1))),
                    _ => {
                        finished.notify_one();
                        Ok(Action::Done)
                    }
                }
            }
        });
        queue.add("key");
        done.notified().await;
        assert_eq!(attempts.load(Ordering::SeqCst), 4);
        assert!(tasks.stop(Duration::from_secs(1)).await);
    }
}
