//! Writes a pod's status to the API server, the newest only, until it is there.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::Api;
use ferry_client::write;
use ferry_semantics::backoff::Backoff;
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Patch, PatchParams};
use tokio::sync::watch;

use crate::context::Context;
use crate::manifests::Mirror;
use crate::{pod, status};

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// The status to write, counted.
#[derive(Clone)]
struct Wanted {
    number: u64,
    status: Arc<PodStatus>,
}

/// The worker goes on while its statuses are written; those that were overtaken are never sent.
pub(crate) struct Reporter {
    wanted: watch::Sender<Wanted>,
    written: watch::Receiver<u64>,
    tasks: Tasks,
}

impl Reporter {
    pub(crate) fn new(context: &Context, pod: &Pod, tasks: &Tasks) -> Self {
        let known = Arc::new(pod::status(pod).clone());
        let wanted = watch::Sender::new(Wanted { number: 0, status: known.clone() });
        let (done, written) = watch::channel(0);
        let api: Api<Pod> = Api::namespaced(context.client.clone(), pod::namespace(pod));
        let writing = wanted.subscribe();
        if pod::is_static(pod) {
            tasks.spawn_until_stopped("status", write_mirror(api, context.mirrors.of(pod), writing));
            // Nobody waits for a mirror: the pod runs and ends without it.
            let _ = done.send(u64::MAX);
        } else {
            tasks.spawn_until_stopped("status", write_statuses(api, pod.clone(), known, writing, done));
        }
        Self { wanted, written, tasks: tasks.clone() }
    }

    /// The status that was reported last.
    pub(crate) fn last(&self) -> Arc<PodStatus> {
        self.wanted.borrow().status.clone()
    }

    pub(crate) fn report(&self, status: &PodStatus) {
        self.wanted.send_if_modified(|wanted| {
            if *wanted.status == *status {
                return false;
            }
            *wanted = Wanted { number: wanted.number + 1, status: Arc::new(status.clone()) };
            true
        });
    }

    /// Reports it when nothing else has been reported by then.
    pub(crate) fn report_after(&self, wait: Duration, status: PodStatus) {
        let wanted = self.wanted.clone();
        let number = wanted.borrow().number;
        self.tasks.spawn_until_stopped("late status", async move {
            tokio::time::sleep(wait).await;
            wanted.send_if_modified(|wanted| {
                let late = wanted.number != number || *wanted.status == status;
                if !late {
                    *wanted = Wanted { number: number + 1, status: Arc::new(status) };
                }
                !late
            });
        });
    }

    /// Waits until the last reported status is on the server, or the pod is not.
    pub(crate) async fn flush(&mut self) {
        let number = self.wanted.borrow().number;
        let _ = self.written.wait_for(|done| *done >= number).await;
    }
}

async fn write_statuses(
    api: Api<Pod>,
    pod: Pod,
    mut known: Arc<PodStatus>,
    mut wanted: watch::Receiver<Wanted>,
    done: watch::Sender<u64>,
) {
    let mut delays = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
    while wanted.changed().await.is_ok() {
        loop {
            let next = wanted.borrow_and_update().clone();
            let Some(patch) = status::patch(&pod, &known, &next.status) else {
                known = next.status;
                let _ = done.send(next.number);
                break;
            };
            let patched = api.patch_status(pod::name(&pod), &PatchParams::default(), &Patch::Strategic(patch)).await;
            match patched {
                Ok(_) => {
                    known = next.status;
                    delays.reset();
                    let _ = done.send(next.number);
                    break;
                }
                // Gone, or another pod has its name by now: there is nobody to tell.
                Err(error) if write::is_not_found(&error) || write::is_conflict(&error) => {
                    let _ = done.send(u64::MAX);
                    return;
                }
                Err(error) => {
                    tracing::warn!(pod = pod::name(&pod), "status not written: {}", write::short(&error));
                    tokio::time::sleep(delays.next_delay()).await;
                }
            }
        }
    }
}

/// The status of a pod from a file goes to its mirror, whichever that is at the time.
async fn write_mirror(api: Api<Pod>, mut mirror: Mirror, mut wanted: watch::Receiver<Wanted>) {
    let mut delays = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
    loop {
        let current = mirror.borrow_and_update().clone();
        let next = wanted.borrow_and_update().clone();
        let patch = current
            .filter(|current| next.number > 0 && !pod::is_being_deleted(current))
            .and_then(|current| Some((status::patch(&current, pod::status(&current), &next.status)?, current)));
        if let Some((patch, current)) = patch {
            let patched =
                api.patch_status(pod::name(&current), &PatchParams::default(), &Patch::Strategic(patch)).await;
            match patched {
                Ok(_) => delays.reset(),
                Err(error) if write::is_not_found(&error) || write::is_conflict(&error) => {}
                Err(error) => {
                    tracing::warn!(pod = pod::name(&current), "status not written: {}", write::short(&error));
                    tokio::time::sleep(delays.next_delay()).await;
                    continue;
                }
            }
        }
        let alive = tokio::select! {
            changed = mirror.changed() => changed.is_ok(),
            changed = wanted.changed() => changed.is_ok(),
        };
        if !alive {
            return;
        }
    }
}
