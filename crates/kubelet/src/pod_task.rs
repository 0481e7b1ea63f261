//! The task of one pod: its worker, and for a pod from a file also its mirror.

use std::sync::Arc;

use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::Notify;

use crate::context::Context;
use crate::mailboxes::Mailboxes;
use crate::worker::{Mailbox, Worker};
use crate::{manifests, pod};

#[derive(Clone)]
pub(crate) struct PodTask {
    pub(crate) context: Arc<Context>,
    pub(crate) mailboxes: Mailboxes,
    /// Told when the pod has ended.
    pub(crate) ended: Arc<Notify>,
    pub(crate) tasks: Tasks,
}

impl PodTask {
    pub(crate) async fn run(self, pod: Arc<Pod>, mailbox: Arc<Mailbox>) {
        let Self { context, mailboxes, ended, tasks } = self;
        let worker = Worker::new(context.clone(), mailbox, &tasks);
        if pod::is_static(&pod) {
            tokio::select! {
                () = worker.run() => {}
                () = manifests::keep(context.clone(), pod.clone()) => {}
            }
            let mirror = context.mirrors.of(&pod).borrow().clone();
            if let Some(mirror) = mirror
                && let Err(why) = manifests::remove(&context, &mirror).await
            {
                tracing::debug!(pod = pod::name(&pod), "its mirror is not removed: {why}");
            }
            context.mirrors.ends(&pod);
        } else {
            worker.run().await;
        }
        mailboxes.forget(pod::uid(&pod));
        ended.notify_one();
    }
}
