//! Gives back what is not needed any more: images, ended containers, logs of pods that are gone.

mod images;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::Informer;
use k8s_openapi::api::core::v1::Pod;

pub use images::ImageCollection;
pub(crate) use images::Images;

use crate::context::Context;
use crate::logs;
use crate::mailboxes::Mailboxes;
use crate::runtime::RunState;

const LOGS_PERIOD: Duration = Duration::from_secs(60);
const IMAGES_PERIOD: Duration = Duration::from_secs(300);

/// Collects images now and then, for ever.
pub(crate) async fn images(context: Arc<Context>) {
    let settings = &context.config.images;
    if settings.high_percent >= 100 && settings.maximum_age.is_zero() {
        return std::future::pending().await;
    }
    loop {
        context.pressure.images.collect(&context).await;
        tokio::time::sleep(IMAGES_PERIOD).await;
    }
}

/// Removes the logs of pods that are gone, now and then. A worker that was killed leaves them behind.
pub(crate) async fn logs(context: Arc<Context>, pods: Informer<Pod>, mailboxes: Mailboxes) {
    pods.synced().await;
    loop {
        // First the folders, then the pods: a pod that comes between them has its folder later.
        let folders = folders_of_pods(&context.config.log_dir).await;
        if let Ok(running) = context.runtime.glimpse().await {
            let wanted = pods.list();
            for (name, uid) in folders {
                let known = running.contains_key(&uid)
                    || mailboxes.get(&uid).is_some()
                    || wanted.iter().any(|pod| context.mirrors.runtime_uid(pod).as_ref() == Some(&uid));
                if !known {
                    tracing::info!(folder = name, "removing the logs of a pod that is gone");
                    logs::remove(context.config.log_dir.join(name)).await;
                }
            }
        }
        if let Some(links) = &context.config.log_links {
            logs::remove_dangling(links, &context.config.log_dir).await;
        }
        tokio::time::sleep(LOGS_PERIOD).await;
    }
}

/// Folders named as those of pods, `namespace_name_uid`, with the uids.
async fn folders_of_pods(logs: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let Ok(mut entries) = tokio::fs::read_dir(logs).await else { return found };
    while let Ok(Some(entry)) = entries.next_entry().await {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let [_, _, uid] = name.split('_').collect::<Vec<_>>().as_slice() {
            found.push((name.clone(), (*uid).to_owned()));
        }
    }
    found
}

/// Removes the containers and sandboxes of pods that have ended and stay for their logs alone.
pub(crate) async fn all_ended_containers(context: &Context, mailboxes: &Mailboxes) {
    for uid in mailboxes.ended() {
        let Ok(state) = context.runtime.pod(&uid).await else { continue };
        let ended = |sandbox: &str| {
            let mut records = state.records.iter().filter(|record| record.sandbox == sandbox);
            records.all(|record| record.state == RunState::Exited)
        };
        for record in state.records.iter().filter(|record| record.state == RunState::Exited) {
            if let Err(error) = context.runtime.remove_container(&record.id).await {
                tracing::debug!(container = record.id, "not removed: {error}");
            }
        }
        for sandbox in state.sandboxes.iter().filter(|sandbox| !sandbox.ready && ended(&sandbox.id)) {
            if let Err(error) = context.runtime.remove_sandbox(&sandbox.id).await {
                tracing::debug!(sandbox = sandbox.id, "not removed: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn folders_of_pods_are_told_from_others() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["default_web_123", "kubelet", "a_b", "a_b_c_d"] {
            std::fs::create_dir(folder.path().join(name)).expect("made");
        }
        let found = folders_of_pods(folder.path()).await;
        assert_eq!(found, [("default_web_123".to_owned(), "123".to_owned())]);
    }
}
