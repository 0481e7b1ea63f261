//! The loop of Endpoints.

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, write};
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use kube::Client;
use kube::api::PostParams;

use super::plan;
use crate::Context;
use crate::common::trigger_time::{self, TriggerTimes};
use crate::common::{endpoint, throttle};

const NAME: &str = "endpoint-controller";
const WORKERS: usize = 5;

struct Reconciler {
    client: Client,
    recorder: Recorder,
    services: Informer<Service>,
    pods: Informer<Pod>,
    endpoints: Informer<Endpoints>,
    times: TriggerTimes,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let (services, pods) = (context.informers.of::<Service>(), context.informers.of::<Pod>());
    let endpoints = context.informers.of::<Endpoints>();
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        client,
        services: services.clone(),
        pods: pods.clone(),
        endpoints: endpoints.clone(),
        times: TriggerTimes::default(),
        queue: context.queue("endpoint"),
    });

    let handler = this.clone();
    services.on_change(move |change| handler.queue.add(ObjectKey::of(&**change.object())));
    let handler = this.clone();
    pods.on_change(move |change| endpoint::enqueue_services(&handler.services, &handler.queue, change));
    let handler = this.clone();
    endpoints.on_change(move |change| enqueue(&handler.services, &handler.queue, change));

    let leftover = this.queue.clone();
    let ready = async move {
        services.synced().await;
        pods.synced().await;
        endpoints.synced().await;
        // Services that went while nobody looked have left theirs behind.
        for one in endpoints.list() {
            leftover.add(ObjectKey::of(&*one));
        }
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let api: Api<Endpoints> = Api::namespaced(self.client.clone(), &key.namespace);
        let existing = self.endpoints.get_key(key);
        let Some(service) = self.services.get_key(key) else {
            self.times.forget(key);
            // Endpoints without a Service of the same name serve nobody. Leader locks of old were kept in some. One that
            // was made a moment ago may not be in the cache, and its Endpoints may be somebody's own.
            let services: Api<Service> = Api::namespaced(self.client.clone(), &key.namespace);
            if let Some(existing) = existing.filter(|existing| !is_lock(existing))
                && services.get_opt(&key.name).await?.is_none()
            {
                write::delete(&api, &*existing, None).await?;
            }
            return Ok(Action::Done);
        };
        let Some(selector) = endpoint::selector(&service) else { return Ok(Action::Done) };
        if endpoint::waits_for_its_end(&service) {
            return Ok(Action::Done);
        }
        let mut pods = self.pods.list_in(&key.namespace);
        pods.retain(|pod| selector.matches(pod.metadata.labels.as_ref()));
        throttle::rest(&self.queue, key, pods.len());
        let changed = self.times.next(key, &service, &pods);
        let Some(mut wanted) = plan::plan(&service, &pods, existing.as_deref()) else { return Ok(Action::Done) };
        trigger_time::annotate(&mut wanted.metadata.annotations, changed);
        let written = match &existing {
            None => api.create(&PostParams::default(), &wanted).await,
            Some(_) => api.replace(&key.name, &PostParams::default(), &wanted).await,
        };
        match written {
            Ok(_) => Ok(Action::Done),
            Err(error) if write::is_namespace_terminating(&error) => Ok(Action::Done),
            Err(error) => {
                if !write::is_conflict(&error) && !write::is_already_exists(&error) {
                    let (reason, words) = match existing {
                        None => ("FailedToCreateEndpoint", "Failed to create endpoint for service"),
                        Some(_) => ("FailedToUpdateEndpoint", "Failed to update endpoint"),
                    };
                    let message = format!("{words} {key}: {}", write::short(&error));
                    self.recorder.event(&wanted, EventType::Warning, reason, message);
                }
                Err(error.into())
            }
        }
    }
}

/// Our own writes come back too; a look at the cache is all they cost. Those without a Service are somebody's own.
fn enqueue(services: &Informer<Service>, queue: &WorkQueue<ObjectKey>, change: &Change<Endpoints>) {
    let key = ObjectKey::of(&**change.object());
    if services.get_key(&key).is_some() {
        queue.add(key);
    }
}

fn is_lock(endpoints: &Endpoints) -> bool {
    let annotations = endpoints.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key("control-plane.alpha.kubernetes.io/leader"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn endpoints_without_a_service_are_somebodys_own() {
        let services = Informer::<Service>::detached();
        let queue = WorkQueue::new();
        let metadata = json!({"name": "a", "namespace": "n"});
        let endpoints: Endpoints = serde_json::from_value(json!({"metadata": metadata})).expect("endpoints");
        enqueue(&services, &queue, &Change::Added(Arc::new(endpoints.clone())));
        assert_eq!(queue.len(), 0);
        services.apply(serde_json::from_value(json!({"metadata": metadata})).expect("a service"));
        enqueue(&services, &queue, &Change::Deleted(Arc::new(endpoints)));
        assert_eq!(queue.len(), 1);
    }
}
