//! What a worker is told from outside: the newest pod, that it is gone, that something about it changed.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::pod;
use crate::status::WaitReason;

struct Letters {
    pod: Arc<Pod>,
    gone: bool,
    sources_changed: bool,
    end_reason: Option<EndReason>,
}

/// Why the kubelet itself ends a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndReason {
    pub(crate) why: WaitReason,
    /// For the node's sake: the words of the pod's condition `DisruptionTarget`.
    pub(crate) disrupts: Option<String>,
}

pub(crate) struct Mailbox {
    state: Mutex<Letters>,
    /// Wakes the worker. A wake that comes while it is busy is kept.
    pub(crate) wake: Arc<Notify>,
    /// The grace period once the pod has to end; shorter ones may follow.
    ending: watch::Sender<Option<i64>>,
    /// Nothing of the pod runs any more, and its volumes are gone.
    finished: watch::Sender<bool>,
}

impl Mailbox {
    pub(crate) fn new(pod: Arc<Pod>) -> Arc<Self> {
        let mailbox = Arc::new(Self {
            ending: watch::Sender::new(None),
            finished: watch::Sender::new(false),
            state: Mutex::new(Letters { pod: pod.clone(), gone: false, sources_changed: false, end_reason: None }),
            wake: Arc::new(Notify::new()),
        });
        mailbox.put(pod);
        mailbox
    }

    pub(crate) fn put(&self, pod: Arc<Pod>) {
        if pod::is_being_deleted(&pod) {
            self.end(pod::grace_seconds(&pod));
        }
        self.state.lock().pod = pod;
        self.wake.notify_one();
    }

    /// The node does not take the pod.
    pub(crate) fn refuse(&self, why: WaitReason) {
        self.state.lock().end_reason = Some(EndReason { why, disrupts: None });
        self.wake.notify_one();
    }

    /// The pod ran long enough. The first reason stays.
    pub(crate) fn end_for(&self, end_reason: EndReason, grace: i64) {
        self.state.lock().end_reason.get_or_insert(end_reason);
        self.end(grace);
        self.wake.notify_one();
    }

    pub(crate) fn end_reason(&self) -> Option<EndReason> {
        self.state.lock().end_reason.clone()
    }

    pub(crate) fn is_of(&self, uid: &str) -> bool {
        pod::uid(&self.state.lock().pod) == uid
    }

    pub(crate) fn set_finished(&self) {
        self.finished.send_replace(true);
    }

    pub(crate) fn is_finished(&self) -> bool {
        *self.finished.borrow()
    }

    /// Returns once nothing is left of the pod but its object and its logs.
    pub(crate) async fn finished(&self) {
        let _ = self.finished.subscribe().wait_for(|done| *done).await;
    }

    /// The API server has the pod no more.
    pub(crate) fn put_gone(&self) {
        self.state.lock().gone = true;
        // Whoever removed it did not want to wait.
        self.end(0);
        self.wake.notify_one();
    }

    /// The file that the pod stood in is gone; it may end in its own time.
    pub(crate) fn put_removed(&self) {
        let mut state = self.state.lock();
        state.gone = true;
        let grace = pod::grace_seconds(&state.pod);
        drop(state);
        self.end(grace);
        self.wake.notify_one();
    }

    pub(crate) fn sources_changed(&self) {
        self.state.lock().sources_changed = true;
        self.wake.notify_one();
    }

    fn end(&self, grace: i64) {
        self.ending.send_if_modified(|known| {
            let shorter = known.is_none_or(|known| grace < known);
            if shorter {
                *known = Some(grace);
            }
            shorter
        });
    }

    pub(crate) fn pod(&self) -> Arc<Pod> {
        self.state.lock().pod.clone()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.state.lock().gone
    }

    /// Whether a ConfigMap or Secret of the pod changed since the last call.
    pub(crate) fn take_sources_changed(&self) -> bool {
        std::mem::take(&mut self.state.lock().sources_changed)
    }

    /// The grace period, when the pod has to end.
    pub(crate) fn grace(&self) -> Option<i64> {
        *self.ending.borrow()
    }

    /// Returns once the pod has to end, or has to end sooner than `known`.
    pub(crate) async fn ends_before(&self, known: Option<i64>) {
        let mut ending = self.ending.subscribe();
        let sooner = |grace: &Option<i64>| match (grace, known) {
            (Some(_), None) => true,
            (Some(grace), Some(known)) => *grace < known,
            (None, _) => false,
        };
        if ending.wait_for(sooner).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
