//! The loop of Deployment.

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{
    Api, Change, Clock, Error, EventType, Index, Informer, ObjectKey, Recorder, WorkQueue, owner, write,
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Client, ResourceExt};

use super::plan::{self, Note, Plan};
use super::status;
use crate::Context;
use crate::common::claim;
use crate::common::pod;
use crate::common::selector::Selector;
use crate::common::template;

const NAME: &str = "deployment-controller";
const WORKERS: usize = 5;

struct Reconciler {
    client: Client,
    recorder: Recorder,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    sets_of: Index<ReplicaSet>,
    pods_of: Index<Pod>,
    clock: Clock,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let deployments = context.informers.of::<Deployment>();
    let (sets, pods) = (context.informers.of::<ReplicaSet>(), context.informers.of::<Pod>());
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        client,
        deployments: deployments.clone(),
        sets_of: sets.by_controller(),
        sets: sets.clone(),
        pods_of: pods.by_controller(),
        clock: context.config.clock.clone(),
        queue: context.queue("deployment"),
    });

    let handler = this.clone();
    deployments.on_change(move |change| handler.queue.add(ObjectKey::of(&**change.object())));
    let handler = this.clone();
    sets.on_change(move |change| handler.set_changed(change));
    let handler = this.clone();
    pods.on_change(move |change| handler.pod_changed(change));

    let ready = async move {
        deployments.synced().await;
        sets.synced().await;
        pods.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl Reconciler {
    fn set_changed(&self, change: &Change<ReplicaSet>) {
        for set in change.old().into_iter().chain([change.object()]) {
            if let Some(deployment) = self.deployment_of(set) {
                self.queue.add(ObjectKey::of(&*deployment));
            }
        }
        let set = change.object();
        if owner::controller_of(&**set).is_none() && set.metadata.deletion_timestamp.is_none() {
            for deployment in self.deployments.list_in(&set.namespace().unwrap_or_default()) {
                let selector = Selector::new(Some(&deployment.spec.selector));
                if !selector.is_everything() && selector.matches(set.metadata.labels.as_ref()) {
                    self.queue.add(ObjectKey::of(&*deployment));
                }
            }
        }
    }

    fn deployment_of(&self, set: &ReplicaSet) -> Option<Arc<Deployment>> {
        let reference = owner::controller_of(set).filter(|reference| reference.kind == "Deployment")?;
        let found = self.deployments.get(set.metadata.namespace.as_deref()?, &reference.name)?;
        (found.metadata.uid.as_deref() == Some(&reference.uid)).then_some(found)
    }

    /// Only a Recreate rollout waits for pods to be gone; all else shows in the ReplicaSets.
    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        // One that its ReplicaSet lost is no more waited for than one that is gone.
        let lost = change.old().filter(|old| owner::controller_of(&***old) != owner::controller_of(&**pod));
        if lost.is_none() && !matches!(change, Change::Deleted(_)) && !pod::is_terminal(pod) {
            return;
        }
        let reference = owner::controller_of(&**lost.unwrap_or(pod));
        let Some(reference) = reference.filter(|reference| reference.kind == "ReplicaSet") else {
            return;
        };
        let set = self.sets.get(pod.metadata.namespace.as_deref().unwrap_or_default(), &reference.name);
        if let Some(deployment) = set.and_then(|set| self.deployment_of(&set)) {
            let strategy = deployment.spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
            if strategy == Some("Recreate") {
                self.queue.add(ObjectKey::of(&*deployment));
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(deployment) = self.deployments.get_key(key) else { return Ok(Action::Done) };
        let sets = self.claim(key, &deployment).await?;
        let uids: Vec<String> = sets.iter().filter_map(|set| set.metadata.uid.clone()).collect();
        let old_pods_run = |new: Option<&str>| {
            let old = uids.iter().filter(|uid| Some(uid.as_str()) != new);
            old.flat_map(|uid| self.pods_of.get(uid)).any(|pod| !pod::is_terminal(&pod))
        };
        let plan = plan::plan(&deployment, sets, old_pods_run, self.clock.seconds());
        self.carry_out(key, &deployment, plan).await
    }

    async fn claim(&self, key: &ObjectKey, deployment: &Deployment) -> Result<Vec<Arc<ReplicaSet>>, Error> {
        let uid = deployment.metadata.uid.clone().unwrap_or_default();
        let mut candidates = self.sets_of.get(&uid);
        candidates.extend(self.sets_of.get(&format!("/{}", key.namespace)));
        let selector = Selector::new(Some(&deployment.spec.selector));
        let going = deployment.metadata.deletion_timestamp.is_some();
        let claims = claim::sort(candidates, &uid, going, &selector);
        let reference = owner::controller_reference(deployment);
        claim::settle(claims, &self.sets_api(key), &self.deployments_api(key), &reference).await
    }

    fn sets_api(&self, key: &ObjectKey) -> Api<ReplicaSet> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    fn deployments_api(&self, key: &ObjectKey) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn carry_out(&self, key: &ObjectKey, observed: &Deployment, plan: Plan) -> Result<Action, Error> {
        let parameters = PostParams::default();
        if let Some(set) = &plan.create {
            self.create(key, observed, set).await?;
        }
        for set in &plan.update {
            self.sets_api(key).replace(&set.name_any(), &parameters, set).await?;
        }
        for Note { kind, reason, message } in plan.notes {
            self.recorder.event(observed, kind, reason, message);
        }
        for set in &plan.delete {
            write::delete(&self.sets_api(key), &**set, None).await?;
        }
        if let Some(deployment) = &plan.rewrite {
            self.deployments_api(key).replace(&key.name, &parameters, deployment).await?;
        }
        if let Some(deployment) = &plan.status {
            self.deployments_api(key).replace_status(&key.name, &parameters, deployment).await?;
        }
        Ok(plan.again.map_or(Action::Done, Action::After))
    }

    /// The name is made of the template's hash: creating the same twice is no harm, another one there is a collision.
    async fn create(&self, key: &ObjectKey, observed: &Deployment, set: &ReplicaSet) -> Result<(), Error> {
        let api = self.sets_api(key);
        let Err(error) = api.create(&PostParams::default(), set).await else { return Ok(()) };
        let mut deployment = observed.clone();
        if write::is_already_exists(&error) {
            let there = api.get(&set.name_any()).await?;
            let template = |set: &ReplicaSet| set.spec.template.clone().unwrap_or_default();
            if owner::is_controlled_by(&there, observed) && template::same(&template(&there), &template(set)) {
                // The cache lags behind; its next change brings us back.
                return Err(error.into());
            }
            let status = deployment.status.get_or_insert_default();
            status.collision_count = Some(status.collision_count.unwrap_or_default().saturating_add(1));
        } else if !write::is_namespace_terminating(&error) {
            let message = format!("Failed to create new replica set {:?}: {}", set.name_any(), write::short(&error));
            self.recorder.event(observed, EventType::Warning, "ReplicaSetCreateError", message.clone());
            status::creation_failed(&mut deployment, message, self.clock.seconds());
        }
        if deployment.status != observed.status {
            self.deployments_api(key).replace_status(&key.name, &PostParams::default(), &deployment).await?;
        }
        Err(error.into())
    }
}
