//! The loop of ResourceQuota.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::informer::Cached;
use ferry_client::{Api, Change, Clock, Error, Informer, ObjectKey, Selection, WorkQueue, discovery, write};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerStatus, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, ResourceQuotaStatus,
    Secret, Service,
};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use super::plan::{self, Objects};
use crate::Context;
use crate::common::pod;

const NAME: &str = "resourcequota-controller";
type Metadata = PartialObjectMeta<DynamicObject>;

/// Everything is counted again after this long: resources that other servers answer for come and go untold.
const RECOUNT: Duration = Duration::from_secs(300);
/// What was counted may have been behind what admission had reserved already, and nobody would ever tell: a count that
/// changed something is looked at again when the caches have caught up.
const SETTLE: Duration = Duration::from_secs(2);
/// A watch that was just opened must know what there is before a count can rely on it.
const PATIENCE: Duration = Duration::from_secs(10);
const WATCHED: [(&str, &str); 8] = [
    ("", "pods"),
    ("", "services"),
    ("", "persistentvolumeclaims"),
    ("", "configmaps"),
    ("", "secrets"),
    ("", "replicationcontrollers"),
    ("", "resourcequotas"),
    ("resource.k8s.io", "resourceclaims"),
];

struct Reconciler {
    client: Client,
    quotas: Informer<ResourceQuota>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    claims: Informer<PersistentVolumeClaim>,
    maps: Informer<ConfigMap>,
    secrets: Informer<Secret>,
    controllers: Informer<ReplicationController>,
    device_claims: Informer<ResourceClaim>,
    /// Opened when a quota limits the number of a resource's objects.
    counted: Mutex<HashMap<ApiResource, Watch>>,
    queue: WorkQueue<ObjectKey>,
    tasks: Tasks,
    clock: Clock,
}

struct Watch {
    informer: Informer<Metadata>,
    tasks: Tasks,
}

pub(crate) fn start(context: &Context) {
    let informers = &context.informers;
    let this = Arc::new(Reconciler {
        client: context.client(NAME),
        quotas: informers.of(),
        pods: informers.of(),
        services: informers.of(),
        claims: informers.of(),
        maps: informers.of(),
        secrets: informers.of(),
        controllers: informers.of(),
        device_claims: informers.of(),
        counted: Mutex::default(),
        tasks: context.tasks.clone(),
        clock: context.config.clock.clone(),
        queue: context.queue("resourcequota_primary"),
    });
    let handler = this.clone();
    this.quotas.on_change(move |change| {
        let quota = change.object();
        // What admission adds to `used` is newer than the caches here: counting then would take back what it reserved.
        let hard = |quota: &ResourceQuota| quota.status.as_ref().and_then(|status| status.hard.clone());
        let same = change.old().is_some_and(|old| old.spec == quota.spec && hard(old) == hard(quota));
        if !same && !matches!(change, Change::Deleted(_)) {
            handler.queue.add(ObjectKey::of(&**quota));
        }
    });
    // What is created was reserved by admission; only what is given back needs a look.
    let handler = this.clone();
    this.pods.on_change(move |change| {
        if matches!(change, Change::Deleted(_))
            || change.old().is_some_and(|old| counts_otherwise(old, change.object()))
        {
            handler.enqueue(change.object().namespace());
        }
    });
    this.watch(&this.services);
    this.watch(&this.claims);
    this.watch(&this.maps);
    this.watch(&this.secrets);
    this.watch(&this.controllers);
    // What is asked of devices never changes.
    let handler = this.clone();
    this.device_claims.on_change(move |change| {
        if matches!(change, Change::Deleted(_)) {
            handler.enqueue(change.object().namespace());
        }
    });

    let known = this.clone();
    let ready = async move {
        known.quotas.synced().await;
        known.pods.synced().await;
        known.services.synced().await;
        known.claims.synced().await;
        known.maps.synced().await;
        known.secrets.synced().await;
        known.controllers.synced().await;
        known.device_claims.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, 5, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.status.iter();
    status.flat_map(|status| status.container_statuses.iter().chain(&status.init_container_statuses)).flatten()
}

/// Whether containers that had something were given something else.
fn is_resized(old: &Pod, new: &Pod) -> bool {
    statuses(old).filter(|before| before.resources.is_some()).any(|before| {
        let now = statuses(new).find(|status| status.name == before.name);
        now.is_some_and(|now| now.resources.is_some() && now.resources != before.resources)
    })
}

/// Whether a pod takes something else than before, or is in the scope of other quotas. Each count is behind what admission has
/// reserved meanwhile: what says nothing new must not lead to one.
fn counts_otherwise(old: &Pod, new: &Pod) -> bool {
    let deadline = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    (!pod::is_terminal(old) && pod::is_terminal(new)) || deadline(old) != deadline(new) || is_resized(old, new)
}

impl Reconciler {
    fn watch<K: Cached>(self: &Arc<Self>, informer: &Informer<K>) {
        let handler = self.clone();
        informer.on_change(move |change| {
            if !matches!(change, Change::Added(_)) {
                handler.enqueue(change.object().meta().namespace.clone());
            }
        });
    }

    fn enqueue(&self, namespace: Option<String>) {
        for quota in self.quotas.list_in(&namespace.unwrap_or_default()) {
            self.queue.add(ObjectKey::of(&*quota));
        }
    }

    async fn reconcile(self: &Arc<Self>, key: &ObjectKey) -> Result<Action, Error> {
        let Some(quota) = self.quotas.get_key(key) else { return Ok(Action::Done) };
        let spec = quota.spec.clone().unwrap_or_default();
        let hard = texts(spec.hard.as_ref());
        let others = plan::counted(&hard, &WATCHED);
        let mut counts = BTreeMap::new();
        for (group, resource) in &others {
            let name = if group.is_empty() { format!("count/{resource}") } else { format!("count/{resource}.{group}") };
            counts.insert(name, self.count(&key.namespace, group, resource).await?);
        }
        let used =
            plan::used(&plan::scopes_of(&spec), &hard, &self.objects(&key.namespace, &hard), &counts, self.clock.now());
        let status = quota.status.clone().unwrap_or_default();
        let known = plan::same(&texts(status.hard.as_ref()), &hard) && plan::same(&texts(status.used.as_ref()), &used);
        if !known {
            let quantities =
                |map: BTreeMap<String, String>| map.into_iter().map(|(key, text)| (key, Quantity(text))).collect();
            let mut updated = (*quota).clone();
            updated.status = Some(ResourceQuotaStatus { hard: Some(quantities(hard)), used: Some(quantities(used)) });
            let api: Api<ResourceQuota> = Api::namespaced(self.client.clone(), &key.namespace);
            match api.replace_status(&key.name, &PostParams::default(), &updated).await {
                Err(error) if !write::is_not_found(&error) => return Err(error.into()),
                _ => return Ok(Action::After(SETTLE)),
            }
        }
        Ok(Action::After(RECOUNT))
    }

    /// Everything in the namespace that some limit could be about.
    fn objects(&self, namespace: &str, hard: &BTreeMap<String, String>) -> Vec<Objects> {
        let wanted = |(group, resource): (&'static str, &'static str)| {
            let measure = ferry_semantics::quota::Measure::of(group, resource);
            hard.keys().any(|key| measure.takes(group, resource, key))
        };
        let load = |resource: &str| match resource {
            "pods" => values(&self.pods, namespace),
            "services" => values(&self.services, namespace),
            "persistentvolumeclaims" => values(&self.claims, namespace),
            "configmaps" => values(&self.maps, namespace),
            "secrets" => values(&self.secrets, namespace),
            "replicationcontrollers" => values(&self.controllers, namespace),
            "resourceclaims" => values(&self.device_claims, namespace),
            _ => values(&self.quotas, namespace),
        };
        let relevant = WATCHED.into_iter().filter(|row| wanted(*row));
        relevant.map(|(group, resource)| Objects { group, resource, objects: load(resource) }).collect()
    }

    async fn count(self: &Arc<Self>, namespace: &str, group: &str, resource: &str) -> Result<usize, Error> {
        let named = |known: &ApiResource| known.group == group && known.plural == resource;
        let found = discovery::resources(&self.client).await?.resources;
        let row = found.into_iter().find(|row| named(&row.resource) && row.namespaced && row.allows("list"));
        let Some(row) = row else {
            let gone: Vec<Watch> =
                self.counted.lock().extract_if(|known, _| named(known)).map(|(_, watch)| watch).collect();
            for watch in gone {
                watch.tasks.stop(Duration::from_secs(1)).await;
            }
            return Ok(0);
        };
        if row.allows("watch") {
            // What goes between counting and watching would be counted until the next look.
            let informer = self.watch_counted(&row.resource);
            let _ = tokio::time::timeout(PATIENCE, informer.synced()).await;
        }
        let api: Api<Metadata> = Api::namespaced_with(self.client.clone(), namespace, &row.resource);
        Ok(api.list(&ListParams::default()).await?.items.len())
    }

    fn watch_counted(self: &Arc<Self>, resource: &ApiResource) -> Informer<Metadata> {
        let mut counted = self.counted.lock();
        let watch = counted.entry(resource.clone()).or_insert_with(|| {
            let tasks = self.tasks.child("quota's watch");
            let api: Api<Metadata> = Api::all_with(self.client.clone(), resource);
            let informer = Informer::trimmed(api, &tasks, Selection::default(), |object: &mut Metadata| {
                object.metadata.annotations = None;
                object.metadata.labels = None;
            });
            let handler = self.clone();
            informer.on_change(move |change| {
                if matches!(change, Change::Deleted(_)) {
                    handler.enqueue(change.object().metadata.namespace.clone());
                }
            });
            Watch { informer, tasks }
        });
        watch.informer.clone()
    }
}

fn values<K: Cached + Serialize>(informer: &Informer<K>, namespace: &str) -> Vec<Value> {
    informer.list_in(namespace).iter().filter_map(|object| serde_json::to_value(&**object).ok()).collect()
}

fn texts(map: Option<&BTreeMap<String, Quantity>>) -> BTreeMap<String, String> {
    map.into_iter().flatten().map(|(key, quantity)| (key.clone(), quantity.0.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_a_pod_takes_brings_a_count() {
        let pod = |change: Value| -> Pod {
            let mut pod =
                json!({ "metadata": { "name": "p" }, "spec": { "containers": [] }, "status": { "phase": "Running" } });
            ferry_meta::object::map(&change, "").iter().for_each(|(key, value)| {
                if let Some(place) = pod.pointer_mut(key) {
                    *place = value.clone();
                }
            });
            serde_json::from_value(pod).expect("a pod")
        };
        let given = |resources: Value| {
            pod(json!({ "/status": { "phase": "Running", "containerStatuses": [
                { "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0, "resources": resources } ] } }))
        };
        let (plain, small, large) = (
            pod(json!({})),
            given(json!({ "requests": { "cpu": "1" } })),
            given(json!({ "requests": { "cpu": "2" } })),
        );
        let mut over = plain.clone();
        over.status.get_or_insert_default().phase = Some("Failed".into());
        let mut short = plain.clone();
        short.spec.get_or_insert_default().active_deadline_seconds = Some(5);
        for (old, new, expected) in [
            (&plain, &small, false),
            (&given(Value::Null), &small, false),
            (&small, &small, false),
            (&small, &large, true),
            (&plain, &over, true),
            (&over, &over, false),
            (&plain, &short, true),
        ] {
            assert_eq!(counts_otherwise(old, new), expected, "{old:?} {new:?}");
        }
    }
}
