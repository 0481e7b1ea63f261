//! The loop of ReplicaSet and ReplicationController. This is the worked example of a controller: handlers turn
//! changes into keys, reconciling reads caches, asks the plan, writes, and reports in the status.

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{
    Api, Change, Clock, Error, Expectations, Index, Informer, ObjectKey, Recorder, WorkQueue, owner, write,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::PostParams;

use super::owner::ReplicaOwner;
use super::plan::{self, Plan};
use crate::Context;
use crate::common::pod_control::{self, PodControl};
use crate::common::{claim, pod, throttle};

const WORKERS: usize = 5;

struct Reconciler<Owner> {
    client: Client,
    owners: Informer<Owner>,
    siblings: Index<Owner>,
    pods: Index<Pod>,
    control: PodControl,
    expectations: Expectations,
    clock: Clock,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start<Owner: ReplicaOwner>(context: &Context) {
    let client = context.client(Owner::CONTROLLER);
    let recorder = Recorder::new(client.clone(), Owner::CONTROLLER, &context.tasks);
    let (owners, pods) = (context.informers.of::<Owner>(), context.informers.of::<Pod>());
    let this = Arc::new(Reconciler {
        client: client.clone(),
        siblings: owners.by_controller(),
        owners: owners.clone(),
        pods: pods.by_controller(),
        control: PodControl::new(client, recorder),
        expectations: Expectations::new(),
        clock: context.config.clock.clone(),
        queue: context.queue(Owner::QUEUE),
    });

    let handler = this.clone();
    owners.on_change(move |change| handler.owner_changed(change));
    let handler = this.clone();
    pods.on_change(move |change| handler.pod_changed(change));

    let ready = async move {
        owners.synced().await;
        pods.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, Owner::CONTROLLER, &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl<Owner: ReplicaOwner> Reconciler<Owner> {
    fn owner_changed(&self, change: &Change<Owner>) {
        let key = ObjectKey::of(&**change.object());
        if let Change::Deleted(_) = change {
            // A successor of the same name must not wait for what this one expected.
            self.expectations.forget(&key);
        }
        self.queue.add(key);
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let before = change.old().and_then(|old| owner::controller_of(&**old));
        let now = owner::controller_of(&**pod);
        if matches!(change, Change::Modified { .. }) && before != now {
            self.enqueue_controller(pod, before);
        }
        let Some(key) = self.enqueue_controller(pod, now) else {
            if now.is_none() && !matches!(change, Change::Deleted(_)) {
                self.enqueue_adopters(change);
            }
            return;
        };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        match change {
            Change::Deleted(_) => self.expectations.deleted(&key, uid),
            _ if pod::is_terminating(pod) => self.expectations.deleted(&key, uid),
            Change::Added(_) => self.expectations.created(&key),
            Change::Modified { .. } => {}
        }
    }

    /// The key of the owner that the reference means, if it is one of ours and still the same object.
    fn enqueue_controller(&self, pod: &Pod, reference: Option<&OwnerReference>) -> Option<ObjectKey> {
        let reference = reference.filter(|reference| reference.kind == <Owner as ReplicaOwner>::KIND)?;
        let key = ObjectKey::new(pod.metadata.namespace.clone().unwrap_or_default(), &*reference.name);
        let owner = self.owners.get_key(&key)?;
        if owner.meta().uid.as_deref() != Some(&reference.uid) {
            return None;
        }
        self.queue.add(key.clone());
        Some(key)
    }

    /// An orphan appeared or its labels changed: all who could adopt it look.
    fn enqueue_adopters(&self, change: &Change<Pod>) {
        let pod = change.object();
        let unchanged = change
            .old()
            .is_some_and(|old| old.metadata.labels == pod.metadata.labels && owner::controller_of(&**old).is_none());
        if unchanged || pod::is_terminating(pod) {
            return;
        }
        for owner in self.owners.list_in(pod.metadata.namespace.as_deref().unwrap_or_default()) {
            let selector = owner.selector();
            if !selector.is_everything() && selector.matches(pod.metadata.labels.as_ref()) {
                self.queue.add(ObjectKey::of(&*owner));
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(owner) = self.owners.get_key(key) else {
            self.expectations.forget(key);
            return Ok(Action::Done);
        };
        let pending = self.expectations.pending(key);
        let (active, terminating) = self.claim(key, &owner).await?;
        throttle::rest(&self.queue, key, active.len());
        let mut failure = None;
        if pending.is_none() && owner.meta().deletion_timestamp.is_none() {
            failure = self.carry_out(key, &owner, &active).await.err();
        }
        let now = self.clock.seconds();
        let message = failure.as_ref().map(write::short);
        if let Some(status) = plan::status(&*owner, &active, terminating, message.as_deref(), now) {
            let mut updated = (*owner).clone();
            updated.set_status(status);
            let owners: Api<Owner> = Api::namespaced(self.client.clone(), &key.namespace);
            owners.replace_status(&key.name, &PostParams::default(), &updated).await?;
        }
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        let waits = [pending, plan::next_availability(&*owner, &active, now)];
        Ok(waits.into_iter().flatten().min().map_or(Action::Done, Action::After))
    }

    /// The active pods that are the owner's after adoption and release, and the number of those that are going.
    async fn claim(&self, key: &ObjectKey, owner: &Owner) -> Result<(Vec<Arc<Pod>>, usize), Error> {
        let (uid, selector) = (owner.meta().uid.clone().unwrap_or_default(), owner.selector());
        let mut candidates = self.pods.get(&uid);
        candidates.extend(self.pods.get(&format!("/{}", key.namespace)));
        let terminating = candidates.iter().filter(|pod| {
            pod::is_terminating(pod)
                && !pod::is_terminal(pod)
                && owner::is_controlled_by(&***pod, owner)
                && selector.matches(pod.metadata.labels.as_ref())
        });
        let terminating = terminating.count();
        let going = owner.meta().deletion_timestamp.is_some();
        let claims = claim::sort(candidates.into_iter().filter(|pod| pod::is_active(pod)), &uid, going, &selector);
        let owners: Api<Owner> = Api::namespaced(self.client.clone(), &key.namespace);
        let reference = owner::controller_reference(owner);
        let active = claim::settle(claims, &self.control.api(&key.namespace), &owners, &reference).await?;
        Ok((active, terminating))
    }

    async fn carry_out(&self, key: &ObjectKey, owner: &Owner, active: &[Arc<Pod>]) -> Result<(), kube::Error> {
        match plan::plan(owner, active, || self.related(owner), self.clock.seconds()) {
            Plan::Nothing => Ok(()),
            Plan::Create(number) => self.create(key, owner, number).await,
            Plan::Delete(victims) => self.control.delete_all(&self.expectations, key, owner, &victims).await,
        }
    }

    /// The pods of all owners that share this one's controller.
    fn related(&self, owner: &Owner) -> Vec<Arc<Pod>> {
        let pods_of = |uid: Option<&String>| uid.map(|uid| self.pods.get(uid)).unwrap_or_default();
        match owner::controller_of(owner) {
            None => pods_of(owner.meta().uid.as_ref()),
            Some(controller) => {
                let siblings = self.siblings.get(&controller.uid);
                siblings.iter().flat_map(|sibling| pods_of(sibling.meta().uid.as_ref())).collect()
            }
        }
    }

    async fn create(&self, key: &ObjectKey, owner: &Owner, number: usize) -> Result<(), kube::Error> {
        let Some(template) = owner.template() else { return Ok(()) };
        let pods = vec![pod_control::pod_from(template, owner); number];
        self.control.create_all(&self.expectations, key, owner, &pods).await
    }
}
