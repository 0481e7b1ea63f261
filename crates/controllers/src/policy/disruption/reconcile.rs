//! The loop of disruption.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, owner, write};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Client, ResourceExt};

use super::plan;
use crate::Context;
use crate::common::selector::Selector;
use crate::common::{crowd, pod};

const NAME: &str = "disruption-controller";

struct Loop {
    client: Client,
    recorder: Recorder,
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<Pod>,
    deployments: Informer<Deployment>,
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
    replication_controllers: Informer<ReplicationController>,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let informers = &context.informers;
    let this = Arc::new(Loop {
        // Upstream's events name the component in another way than its identity.
        recorder: Recorder::new(client.clone(), "controllermanager", &context.tasks),
        client,
        budgets: informers.of(),
        pods: informers.of(),
        deployments: informers.of(),
        replica_sets: informers.of(),
        stateful_sets: informers.of(),
        replication_controllers: informers.of(),
        queue: context.queue("disruption"),
    });
    let handler = this.clone();
    this.budgets.on_change(move |change| handler.queue.add(ObjectKey::of(&**change.object())));
    let handler = this.clone();
    this.pods.on_change(move |change| handler.pod_changed(change));
    let handler = this.clone();
    this.deployments.on_change(move |change| handler.scale_changed(change, |set| set.spec.replicas));
    let handler = this.clone();
    this.stateful_sets.on_change(move |change| handler.scale_changed(change, |set| set.spec.replicas));
    let handler = this.clone();
    this.replica_sets.on_change(move |change| handler.scale_changed(change, |set| set.spec.replicas));

    let known = this.clone();
    let ready = async move {
        known.budgets.synced().await;
        known.pods.synced().await;
        known.deployments.synced().await;
        known.replica_sets.synced().await;
        known.stateful_sets.synced().await;
        known.replication_controllers.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, 2, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl Loop {
    fn pod_changed(&self, change: &Change<Pod>) {
        let facts = |pod: &Pod| (pod::is_ready(pod), pod::is_terminating(pod), pod.metadata.labels.clone());
        if let Change::Modified { old, new } = change
            && facts(old) == facts(new)
        {
            return;
        }
        let namespace = change.object().namespace().unwrap_or_default();
        for pod in change.old().into_iter().chain([change.object()]) {
            self.enqueue(&namespace, |labels| labels.matches(pod.metadata.labels.as_ref()));
        }
    }

    /// Whose budgets a change of scale concerns is known by the pods; few have any, so that all of the namespace look.
    fn scale_changed<K: kube::Resource>(&self, change: &Change<K>, scale: impl Fn(&K) -> Option<i32>) {
        if change.old().map(|old| scale(old)) != Some(scale(change.object())) {
            let namespace = change.object().meta().namespace.clone().unwrap_or_default();
            self.enqueue(&namespace, |_| true);
        }
    }

    fn enqueue(&self, namespace: &str, concerns: impl Fn(&Selector) -> bool) {
        for budget in self.budgets.list_in(namespace) {
            if selector(&budget).is_some_and(|selector| concerns(&selector)) {
                self.queue.add(ObjectKey::of(&*budget));
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(budget) = self.budgets.get_key(key) else { return Ok(Action::Done) };
        let pods = match selector(&budget) {
            None => Vec::new(),
            Some(selector) => {
                let mut pods = self.pods.list_in(&key.namespace);
                pods.retain(|pod| selector.matches(pod.metadata.labels.as_ref()) && !pod::is_terminal(pod));
                pods
            }
        };
        crowd::rest(&self.queue, key, pods.len());
        if pods.is_empty() {
            self.recorder.event(&*budget, EventType::Normal, "NoPods", "No matching pods found");
        }
        let now = write::now().0;
        let scale = if plan::needs_scale(&budget) { self.scale(key, &pods).await } else { Ok(0) };
        let scale = match scale {
            Ok(scale) => scale,
            Err(error) => {
                let message = format!("Failed to calculate the number of expected pods: {error}");
                self.recorder.event(&*budget, EventType::Warning, "CalculateExpectedPodCountFailed", message.clone());
                if let Some(status) = plan::failed(&budget, &message, now) {
                    self.write(key, &budget, status).await?;
                }
                return Err(error);
            }
        };
        let plan = plan::plan(&budget, &pods, scale, now);
        for name in plan.not_deleted {
            let message = format!("Pod was expected by PDB {key} to be deleted but it wasn't");
            if let Some(pod) = self.pods.get(&key.namespace, &name) {
                self.recorder.event(&*pod, EventType::Warning, "NotDeleted", message);
            }
        }
        if let Some(status) = plan.status {
            self.write(key, &budget, status).await?;
        }
        Ok(plan.again.map_or(Action::Done, Action::After))
    }

    async fn write(
        &self,
        key: &ObjectKey,
        budget: &PodDisruptionBudget,
        status: PodDisruptionBudgetStatus,
    ) -> Result<(), Error> {
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut updated = budget.clone();
        updated.status = Some(status);
        api.replace_status(&key.name, &PostParams::default(), &updated).await?;
        Ok(())
    }

    /// How many pods the owners of these pods want in all.
    async fn scale(&self, key: &ObjectKey, pods: &[Arc<Pod>]) -> Result<i32, Error> {
        let mut by_owner: HashMap<String, i32> = HashMap::new();
        for pod in pods {
            let Some(reference) = owner::controller_of(&**pod) else {
                return Err(format!("found no controller ref for pod {:?}", pod.name_any()).into());
            };
            let (uid, scale) = self.scale_of(&key.namespace, reference).await?;
            by_owner.insert(uid, scale);
        }
        Ok(by_owner.values().sum())
    }

    async fn scale_of(&self, namespace: &str, reference: &OwnerReference) -> Result<(String, i32), Error> {
        let name = &reference.name;
        let known = match reference.kind.as_str() {
            "ReplicaSet" => self.replica_sets.get(namespace, name).map(|set| {
                let parent = owner::controller_of(&*set).filter(|parent| parent.kind == "Deployment");
                let deployment = parent.and_then(|parent| self.deployments.get(namespace, &parent.name));
                match (parent, deployment) {
                    (Some(parent), Some(deployment)) => (parent.uid.clone(), deployment.spec.replicas),
                    _ => (reference.uid.clone(), set.spec.replicas),
                }
            }),
            "StatefulSet" => {
                self.stateful_sets.get(namespace, name).map(|set| (reference.uid.clone(), set.spec.replicas))
            }
            "ReplicationController" => self
                .replication_controllers
                .get(namespace, name)
                .map(|controller| (reference.uid.clone(), controller.spec.as_ref().and_then(|spec| spec.replicas))),
            _ => None,
        };
        if let Some((uid, replicas)) = known {
            return Ok((uid, replicas.unwrap_or(1)));
        }
        // Anything else tells by its scale subresource.
        let (group, version) = reference.api_version.split_once('/').unwrap_or(("", &reference.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &reference.kind));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let scale = api.get_scale(name).await?;
        let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or_default();
        Ok((reference.uid.clone(), replicas))
    }
}

/// A budget without a selector is about nothing, one with an empty selector about all of its namespace.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    let spec = budget.spec.as_ref()?;
    Some(Selector::new(spec.selector.as_ref()))
}
