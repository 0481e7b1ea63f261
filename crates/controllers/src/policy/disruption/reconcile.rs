//! The loop of disruption.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Clock, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, owner, write};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Client, ResourceExt};

use super::plan;
use crate::Context;
use crate::common::number::total;
use crate::common::selector::Selector;
use crate::common::{disruption, pod, throttle};

const NAME: &str = "disruption-controller";

struct Reconciler {
    client: Client,
    recorder: Recorder,
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<Pod>,
    deployments: Informer<Deployment>,
    replica_sets: Informer<ReplicaSet>,
    stateful_sets: Informer<StatefulSet>,
    replication_controllers: Informer<ReplicationController>,
    clock: Clock,
    queue: WorkQueue<ObjectKey>,
    /// Pods that were announced to go.
    announced: WorkQueue<ObjectKey>,
}

/// How many pods there should be, and whether some of them belong to nobody who could tell.
struct Scale {
    expected: i32,
    unmanaged: bool,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let informers = &context.informers;
    let this = Arc::new(Reconciler {
        // Upstream's events name the component in another way than its identity.
        recorder: Recorder::new(client.clone(), "controllermanager", &context.tasks),
        client,
        budgets: informers.of(),
        pods: informers.of(),
        deployments: informers.of(),
        replica_sets: informers.of(),
        stateful_sets: informers.of(),
        replication_controllers: informers.of(),
        clock: context.config.clock.clone(),
        queue: context.queue("disruption"),
        announced: context.queue("stale_pod_disruption"),
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
    let handler = this.clone();
    this.replication_controllers
        .on_change(move |change| handler.scale_changed(change, |one| one.spec.as_ref().and_then(|spec| spec.replicas)));

    let known = this.clone();
    let ready = async move {
        known.budgets.synced().await;
        known.pods.synced().await;
        known.deployments.synced().await;
        known.replica_sets.synced().await;
        known.stateful_sets.synced().await;
        known.replication_controllers.synced().await;
    };
    let (queue, cleaner) = (this.queue.clone(), this.clone());
    controller::run(&context.tasks, NAME, &queue, 2, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
    let (queue, pods) = (cleaner.announced.clone(), cleaner.pods.clone());
    controller::run(&context.tasks, NAME, &queue, 1, async move { pods.synced().await }, move |key| {
        let this = cleaner.clone();
        async move { this.retract(&key).await }
    });
}

impl Reconciler {
    fn pod_changed(&self, change: &Change<Pod>) {
        let is_announced = |pod: &Pod| plan::stale_in(pod, self.clock.seconds()).is_some();
        if !matches!(change, Change::Deleted(_)) && is_announced(change.object()) {
            self.announced.add(ObjectKey::of(&**change.object()));
        }
        let facts = |pod: &Pod| {
            let owner = owner::controller_of(pod).map(|owner| owner.uid.clone());
            (pod::is_ready(pod), pod::is_terminating(pod), pod.metadata.labels.clone(), owner)
        };
        if let Change::Modified { old, new } = change
            && facts(old) == facts(new)
        {
            return;
        }
        let namespace = change.object().namespace().unwrap_or_default();
        for pod in change.old().into_iter().chain([change.object()]) {
            let concerned = self.enqueue(&namespace, |labels| labels.matches(pod.metadata.labels.as_ref()));
            if let [first, _, ..] = &concerned[..]
                && !matches!(change, Change::Deleted(_))
                && Arc::ptr_eq(pod, change.object())
            {
                let (name, chosen) = (pod.name_any(), first.name_any());
                let message = format!(
                    "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {chosen:?} arbitrarily."
                );
                self.recorder.event(&**pod, EventType::Warning, "MultiplePodDisruptionBudgets", message);
            }
        }
    }

    /// A pod that was announced to go and stayed is like any other again.
    async fn retract(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(pod) = self.pods.get_key(key) else { return Ok(Action::Done) };
        match plan::stale_in(&pod, self.clock.seconds()) {
            None => return Ok(Action::Done),
            Some(left) if !left.is_zero() => return Ok(Action::After(left)),
            Some(_) => {}
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        disruption::retract(&api, &pod, self.clock.time()).await?;
        Ok(Action::Done)
    }

    /// Whose budgets a change of scale concerns is known by the pods; few have any, so that all of the namespace look.
    fn scale_changed<K: kube::Resource>(&self, change: &Change<K>, scale: impl Fn(&K) -> Option<i32>) {
        if change.old().map(|old| scale(old)) != Some(scale(change.object())) {
            let namespace = change.object().meta().namespace.clone().unwrap_or_default();
            self.enqueue(&namespace, |_| true);
        }
    }

    fn enqueue(&self, namespace: &str, concerns: impl Fn(&Selector) -> bool) -> Vec<Arc<PodDisruptionBudget>> {
        let mut budgets = self.budgets.list_in(namespace);
        budgets.retain(|budget| selector(budget).is_some_and(|selector| concerns(&selector)));
        for budget in &budgets {
            self.queue.add(ObjectKey::of(&**budget));
        }
        budgets
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(budget) = self.budgets.get_key(key) else { return Ok(Action::Done) };
        let pods = match selector(&budget) {
            None => Vec::new(),
            Some(selector) => {
                let mut pods = self.pods.list_in(&key.namespace);
                pods.retain(|pod| selector.matches(pod.metadata.labels.as_ref()));
                pods
            }
        };
        throttle::rest(&self.queue, key, pods.len());
        if pods.is_empty() {
            self.recorder.event(&*budget, EventType::Normal, "NoPods", "No matching pods found");
        }
        let now = self.clock.seconds();
        let scale = if plan::needs_scale(&budget) {
            self.scale(key, &pods).await
        } else {
            Ok(Scale { expected: 0, unmanaged: false })
        };
        let scale = match scale {
            Ok(scale) => scale,
            Err(error) => {
                let message = format!("Failed to calculate the number of expected pods: {error}");
                self.recorder.event(&*budget, EventType::Warning, "CalculateExpectedPodCountFailed", message);
                if let Some(status) = plan::failed(&budget, &error.to_string(), now) {
                    self.write(key, &budget, status).await?;
                }
                return Err(error);
            }
        };
        if scale.unmanaged {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status \
                 of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these \
                 pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
                printed(selector)
            );
            self.recorder.event(&*budget, EventType::Warning, "UnmanagedPods", message);
        }
        let plan = plan::plan(&budget, &pods, scale.expected, now);
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
    async fn scale(&self, key: &ObjectKey, pods: &[Arc<Pod>]) -> Result<Scale, Error> {
        let mut by_owner: HashMap<String, i32> = HashMap::new();
        let mut asked: HashSet<&str> = HashSet::new();
        let mut unmanaged = false;
        for pod in pods {
            let Some(reference) = owner::controller_of(&**pod) else {
                unmanaged = true;
                continue;
            };
            if !asked.insert(&reference.uid) {
                continue;
            }
            let Some((uid, scale)) = self.scale_of(&key.namespace, reference).await? else {
                return Err(format!("found no controllers for pod {:?}", pod.name_any()).into());
            };
            by_owner.insert(uid, scale);
        }
        Ok(Scale { expected: total(by_owner.values().copied()), unmanaged })
    }

    /// The uid of whoever decides on the number, and the number; none when the owner is not there.
    async fn scale_of(&self, namespace: &str, reference: &OwnerReference) -> Result<Option<(String, i32)>, Error> {
        let name = &reference.name;
        let is = |uid: &Option<String>| uid.as_ref() == Some(&reference.uid);
        let known = match reference.kind.as_str() {
            "ReplicaSet" => self.replica_sets.get(namespace, name).filter(|set| is(&set.metadata.uid)).map(|set| {
                let parent = owner::controller_of(&*set).filter(|parent| parent.kind == "Deployment");
                let deployment = parent.and_then(|parent| self.deployments.get(namespace, &parent.name));
                match (parent, deployment.filter(|there| there.metadata.uid.as_ref() == parent.map(|of| &of.uid))) {
                    (Some(parent), Some(deployment)) => (parent.uid.clone(), deployment.spec.replicas),
                    _ => (reference.uid.clone(), set.spec.replicas),
                }
            }),
            "StatefulSet" => self
                .stateful_sets
                .get(namespace, name)
                .filter(|set| is(&set.metadata.uid))
                .map(|set| (reference.uid.clone(), set.spec.replicas)),
            "ReplicationController" => self
                .replication_controllers
                .get(namespace, name)
                .filter(|controller| is(&controller.metadata.uid))
                .map(|controller| (reference.uid.clone(), controller.spec.as_ref().and_then(|spec| spec.replicas))),
            _ => None,
        };
        if let Some((uid, replicas)) = known {
            return Ok(Some((uid, replicas.unwrap_or(1))));
        }
        // Anything else tells by its scale subresource.
        let (group, version) = reference.api_version.split_once('/').unwrap_or(("", &reference.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &reference.kind));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let scale = match api.get_scale(name).await {
            Ok(scale) => scale,
            Err(error) if write::is_not_found(&error) => {
                // The object is not there, or nothing of its kind has a scale.
                if !write::short(&error).contains("could not find the requested resource") {
                    return Ok(None);
                }
                let dot = if group.is_empty() { "" } else { "." };
                let resource = format!("{}{dot}{group}", resource.plural);
                return Err(format!("{resource} does not implement the scale subresource").into());
            }
            Err(error) => return Err(error.into()),
        };
        if scale.metadata.uid.as_ref() != Some(&reference.uid) {
            return Ok(None);
        }
        let replicas = scale.spec.and_then(|spec| spec.replicas).unwrap_or_default();
        Ok(Some((reference.uid.clone(), replicas)))
    }
}

/// As upstream's events show a selector.
fn printed(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".into() };
    let labels = selector.match_labels.iter().flatten();
    let labels: Vec<String> = labels.map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let values = expression.values.as_deref().unwrap_or_default().join(" ");
        format!(
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
            expression.key, expression.operator
        )
    });
    let expressions: Vec<String> = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.concat(),
        expressions.concat()
    )
}

/// A budget without a selector is about nothing, one with an empty selector about all of its namespace.
fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    let spec = budget.spec.as_ref()?;
    Some(Selector::new(spec.selector.as_ref()))
}
