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

const ANNOTATION: &str = "kubernetes.io/config.mirror";
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// The mirror of one pod as the API server has it.
pub(crate) type Mirror = watch::Receiver<Option<Arc<Pod>>>;

type Place = (String, String);

/// All mirrors of the node, by namespace and name.
#[derive(Default)]
pub(crate) struct Mirrors(Mutex<HashMap<Place, watch::Sender<Option<Arc<Pod>>>>>);

fn place(of: &Pod) -> Place {
    (pod::namespace(of).to_owned(), pod::name(of).to_owned())
}

impl Mirrors {
    pub(crate) fn of(&self, pod: &Pod) -> Mirror {
        self.0.lock().entry(place(pod)).or_default().subscribe()
    }

    pub(crate) fn put(&self, mirror: &Arc<Pod>) {
        self.0.lock().entry(place(mirror)).or_default().send_replace(Some(mirror.clone()));
    }

    pub(crate) fn gone(&self, mirror: &Pod) {
        if let Some(known) = self.0.lock().get(&place(mirror)) {
            known.send_if_modified(|known| {
                let same = known.as_ref().is_some_and(|known| pod::uid(known) == pod::uid(mirror));
                if same {
                    *known = None;
                }
                same
            });
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
    let node = context.node_uid.subscribe().wait_for(Option::is_some).await.map_err(|e| e.to_string())?.clone();
    let mut mirror = of.clone();
    mirror.status = None;
    mirror.metadata.uid = None;
    mirror.metadata.annotations.get_or_insert_default().insert(ANNOTATION.to_owned(), pod::uid(of).to_owned());
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
