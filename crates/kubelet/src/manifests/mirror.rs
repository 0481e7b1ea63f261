//! What the API server shows of a pod from a file. It belongs to the node; deleting it does nothing to the pod.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{Api, write};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PostParams, Preconditions};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::context::Context;
use crate::pod;

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// The mirror of one pod as the API server has it.
pub(crate) type Mirror = watch::Receiver<Option<Arc<Pod>>>;

type Place = (String, String);

/// The pods from files and what the API server has of them, by namespace and name: nothing else ties a mirror to a pod,
/// for whoever may create pods writes their annotations.
#[derive(Default)]
pub(crate) struct Mirrors {
    known: Mutex<HashMap<Place, watch::Sender<Option<Arc<Pod>>>>>,
    /// The uids of the pods from files that run.
    statics: Mutex<HashMap<Place, String>>,
}

fn place(of: &Pod) -> Place {
    (pod::namespace(of).to_owned(), pod::name(of).to_owned())
}

impl Mirrors {
    /// A pod from a file begins to run.
    pub(crate) fn begins(&self, pod: &Pod) {
        self.statics.lock().insert(place(pod), pod::uid(pod).to_owned());
    }

    pub(crate) fn ends(&self, pod: &Pod) {
        let mut statics = self.statics.lock();
        if statics.get(&place(pod)).is_some_and(|uid| uid == pod::uid(pod)) {
            statics.remove(&place(pod));
        }
    }

    /// Whether a pod from a file has the name of this one.
    pub(crate) fn stands_for_one(&self, mirror: &Pod) -> bool {
        self.statics.lock().contains_key(&place(mirror))
    }

    /// The uid under which the runtime knows a pod: of a mirror that of the pod from a file with its name, if there is
    /// one.
    pub(crate) fn runtime_uid(&self, pod: &Pod) -> Option<String> {
        if pod::is_mirror(pod) {
            return self.statics.lock().get(&place(pod)).cloned();
        }
        Some(pod::uid(pod).to_owned())
    }

    pub(crate) fn of(&self, pod: &Pod) -> Mirror {
        self.known.lock().entry(place(pod)).or_default().subscribe()
    }

    pub(crate) fn put(&self, mirror: &Arc<Pod>) {
        self.known.lock().entry(place(mirror)).or_default().send_replace(Some(mirror.clone()));
    }

    pub(crate) fn gone(&self, mirror: &Pod) {
        let mut all = self.known.lock();
        let place = place(mirror);
        if let Some(known) = all.get(&place) {
            known.send_if_modified(|known| {
                let same = known.as_ref().is_some_and(|known| pod::uid(known) == pod::uid(mirror));
                if same {
                    *known = None;
                }
                same
            });
            // Mirrors of nothing come and go under any number of names.
            if known.borrow().is_none() && known.receiver_count() == 0 {
                all.remove(&place);
            }
        }
    }
}

/// Keeps the mirror of a pod as it should be, for ever. Once the pod is gone, [`remove`] takes it away.
pub(crate) async fn keep(context: Arc<Context>, of: Arc<Pod>) {
    let mut mirror = context.mirrors.of(&of);
    let mut delay = FIRST_RETRY;
    loop {
        let current = mirror.borrow_and_update().clone();
        let done = match current {
            Some(current) if is_of(&current, &of) && !pod::is_being_deleted(&current) => {
                delay = FIRST_RETRY;
                if mirror.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Some(current) => remove(&context, &current).await,
            None => create(&context, &of).await,
        };
        if let Err(why) = done {
            tracing::debug!(pod = pod::name(&of), "its mirror: {why}");
            delay = (delay * 2).min(LONGEST_RETRY);
        }
        // The watch tells what became of it; if it does not, try again.
        let _ = tokio::time::timeout(delay, mirror.changed()).await;
    }
}

fn is_of(mirror: &Pod, of: &Pod) -> bool {
    pod::mirrored(mirror) == Some(pod::uid(of))
}

async fn create(context: &Context, of: &Pod) -> Result<(), String> {
    let node = context.registration.uid.subscribe().wait_for(Option::is_some).await.map_err(|e| e.to_string())?.clone();
    let mut mirror = of.clone();
    mirror.status = None;
    mirror.metadata.uid = None;
    pod::mark_as_mirror(&mut mirror, pod::uid(of));
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: context.config.node_name.clone(),
        uid: node.unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    let api: Api<Pod> = Api::namespaced(context.client.clone(), pod::namespace(of));
    match api.create(&PostParams::default(), &mirror).await {
        Ok(_) => Ok(()),
        Err(error) => Err(write::short(&error)),
    }
}

/// Takes a mirror away at once: nothing runs that would have to be waited for.
pub(crate) async fn remove(context: &Context, mirror: &Pod) -> Result<(), String> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), pod::namespace(mirror));
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: mirror.metadata.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(pod::name(mirror), &params).await {
        Ok(_) => Ok(()),
        Err(error) if write::is_not_found(&error) || write::is_conflict(&error) => Ok(()),
        Err(error) => Err(write::short(&error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, uid: &str, annotations: Value) -> Arc<Pod> {
        let metadata = json!({"namespace": "n", "name": name, "uid": uid, "annotations": annotations});
        Arc::new(serde_json::from_value(json!({"metadata": metadata})).expect("a pod"))
    }

    /// Naming another pod's uid in the annotation once opened exec, attach, logs and port-forward into that pod.
    #[test]
    fn a_mirror_is_tied_to_its_pod_by_its_name_alone() {
        let mirrors = Mirrors::default();
        let of_file = pod("web-node", "from-file", json!({"kubernetes.io/config.source": "file"}));
        mirrors.begins(&of_file);
        let check = |name: &str, annotations: Value, want: Option<&str>| {
            let uid = mirrors.runtime_uid(&pod(name, "own", annotations.clone()));
            assert_eq!(uid.as_deref(), want, "{name} {annotations}");
        };
        check("web-node", json!({"kubernetes.io/config.mirror": "from-file"}), Some("from-file"));
        check("web-node", json!({"kubernetes.io/config.mirror": "an older one"}), Some("from-file"));
        check("mine", json!({"kubernetes.io/config.mirror": "from-file"}), None);
        check("mine", json!({"kubernetes.io/config.mirror": "a victim"}), None);
        check("mine", json!({}), Some("own"));
        mirrors.ends(&of_file);
        check("web-node", json!({"kubernetes.io/config.mirror": "from-file"}), None);
    }

    #[test]
    fn nothing_is_kept_of_mirrors_that_are_gone() {
        let mirrors = Mirrors::default();
        let stray = pod("stray", "1", json!({"kubernetes.io/config.mirror": "x"}));
        mirrors.put(&stray);
        mirrors.gone(&stray);
        assert!(mirrors.known.lock().is_empty());
        let kept = mirrors.of(&stray);
        mirrors.put(&stray);
        mirrors.gone(&stray);
        assert!(kept.borrow().is_none());
        assert_eq!(mirrors.known.lock().len(), 1, "who waits for it is told of the next one");
    }
}
