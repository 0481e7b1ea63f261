//! Mounts that take long. They go on while the worker of the pod looks after other things, and the worker asks again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferry_tasks::Tasks;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Unmounted;

/// How long a worker waits at a time: a pod that has to end waits no longer for its volumes.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a job that is stopped is waited for.
const END: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Job {
    result: watch::Receiver<Option<Result<(), String>>>,
    stop: CancellationToken,
}

/// Jobs by the folder that they mount at: one at a time for each.
pub(super) struct Jobs {
    tasks: Tasks,
    patience: Duration,
    running: Mutex<HashMap<PathBuf, Job>>,
}

impl Jobs {
    pub(super) fn new(tasks: &Tasks) -> Self {
        Self { tasks: tasks.clone(), patience: PATIENCE, running: Mutex::default() }
    }

    /// Waits for the job at a folder, which is begun unless it runs already.
    pub(super) async fn run<F>(&self, at: &Path, work: impl FnOnce() -> F) -> Result<(), Unmounted>
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let mut job = self.running.lock().entry(at.to_owned()).or_insert_with(|| self.begin(work())).clone();
        let result = match tokio::time::timeout(self.patience, job.result.wait_for(Option::is_some)).await {
            Err(_) => return Err(Unmounted::NotYet(format!("{} is still being mounted", at.display()))),
            Ok(Ok(result)) => result.clone().unwrap_or(Ok(())),
            Ok(Err(_)) => Err(format!("mounting {} was given up", at.display())),
        };
        let mut running = self.running.lock();
        if running.get(at).is_some_and(|known| known.result.same_channel(&job.result)) {
            running.remove(at);
        }
        Ok(result?)
    }

    fn begin<F>(&self, work: F) -> Job
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let ((tell, result), stop) = (watch::channel(None), CancellationToken::new());
        let stopped = stop.clone();
        self.tasks.spawn_until_stopped("mount", async move {
            if let Some(done) = stopped.run_until_cancelled(work).await {
                tell.send_replace(Some(done));
            }
        });
        Job { result, stop }
    }

    /// Gives up the jobs at a folder or below it.
    pub(super) async fn stop(&self, folder: &Path) {
        let mut stopped = Vec::new();
        self.running.lock().retain(|at, job| {
            let stays = !at.starts_with(folder);
            if !stays {
                stopped.push(job.clone());
            }
            stays
        });
        for mut job in stopped {
            job.stop.cancel();
            let _ = tokio::time::timeout(END, job.result.wait_for(Option::is_some)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_long_job_is_asked_for_again_and_begun_once() {
        let jobs = Jobs { patience: Duration::from_millis(50), ..Jobs::new(&Tasks::new("test")) };
        let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let work = |result: Result<(), String>| {
            let (begun, gate) = (begun.clone(), gate.clone());
            move || async move {
                begun.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.expect("open").forget();
                result
            }
        };
        let at = Path::new("/pods/a/share");
        for _ in 0..2 {
            let waits = jobs.run(at, work(Err("dead".to_owned()))).await.expect_err("it is at work");
            assert!(matches!(waits, Unmounted::NotYet(_)), "{waits}");
        }
        gate.add_permits(1);
        let failed = jobs.run(at, work(Ok(()))).await.expect_err("its result");
        assert!(matches!(&failed, Unmounted::Failed(why) if why == "dead"), "{failed}");
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        // And then anew.
        jobs.run(at, work(Ok(()))).await.expect_err("it is at work");
        assert_eq!(begun.load(Ordering::SeqCst), 2);

        // A pod that is removed waits for none of them, and leaves those of others alone.
        jobs.run(Path::new("/pods/b/share"), work(Ok(()))).await.expect_err("it is at work");
        jobs.stop(Path::new("/pods/a")).await;
        let left: Vec<PathBuf> = jobs.running.lock().keys().cloned().collect();
        assert_eq!(left, [PathBuf::from("/pods/b/share")]);
    }
}
