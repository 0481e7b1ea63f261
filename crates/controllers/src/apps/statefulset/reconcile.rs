//! The loop of StatefulSet. Names are known beforehand, so that a stale cache cannot make a pod twice.

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{
    Api, Change, Clock, Error, EventType, Index, Informer, ObjectKey, Recorder, WorkQueue, owner, write,
};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::PostParams;
use kube::{Client, ResourceExt};

use super::plan::{self, Observed, Revision, Step};
use super::{claims, pod as identity};
use crate::Context;
use crate::common::history::{self, Settled};
use crate::common::selector::Selector;
use crate::common::{claim, pod};

const NAME: &str = "statefulset-controller";
const WORKERS: usize = 5;

struct Reconciler {
    client: Client,
    recorder: Recorder,
    sets: Informer<StatefulSet>,
    pods: Index<Pod>,
    volume_claims: Informer<PersistentVolumeClaim>,
    revisions: Index<ControllerRevision>,
    clock: Clock,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let (sets, pods) = (context.informers.of::<StatefulSet>(), context.informers.of::<Pod>());
    let revisions = context.informers.of::<ControllerRevision>();
    let volume_claims = context.informers.of::<PersistentVolumeClaim>();
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        client,
        sets: sets.clone(),
        pods: pods.by_controller(),
        volume_claims: volume_claims.clone(),
        revisions: revisions.by_controller(),
        clock: context.config.clock.clone(),
        queue: context.queue("statefulset"),
    });

    let handler = this.clone();
    sets.on_change(move |change| handler.queue.add(ObjectKey::of(&**change.object())));
    let handler = this.clone();
    pods.on_change(move |change| handler.pod_changed(change));
    let handler = this.clone();
    volume_claims.on_change(move |change| handler.claim_changed(change));
    let handler = this.clone();
    revisions.on_change(move |change| history::wake("StatefulSet", &handler.queue, change));

    let ready = async move {
        sets.synced().await;
        pods.synced().await;
        revisions.synced().await;
        volume_claims.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

/// Whether the pod that has the name is the set's, or could become it: one that is nobody's is adopted once it is seen.
fn is_of(set: &StatefulSet, there: Option<&Pod>) -> bool {
    there.is_some_and(|there| {
        let selected = || Selector::new(Some(&set.spec.selector)).matches(there.metadata.labels.as_ref());
        owner::is_controlled_by(there, set) || (owner::controller_of(there).is_none() && selected())
    })
}

impl Reconciler {
    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let namespace = pod.namespace().unwrap_or_default();
        for state in change.old().into_iter().chain([pod]) {
            if let Some(reference) = owner::controller_of(&**state).filter(|reference| reference.kind == "StatefulSet")
            {
                self.queue.add(ObjectKey::new(&*namespace, &*reference.name));
            }
        }
        if owner::controller_of(&**pod).is_none() && !matches!(change, Change::Deleted(_)) {
            for set in self.sets.list_in(&namespace) {
                if Selector::new(Some(&set.spec.selector)).matches(pod.metadata.labels.as_ref()) {
                    self.queue.add(ObjectKey::of(&*set));
                }
            }
        }
        // One that was somebody else's may have had the name of a set's pod.
        if matches!(change, Change::Deleted(_)) {
            for set in self.sets.list_in(&namespace) {
                if identity::ordinal(&set, pod).is_some() {
                    self.queue.add(ObjectKey::of(&*set));
                }
            }
        }
    }

    /// Pods may wait for a claim that is gone to be made again, or for one that was left to a predecessor to be nobody's.
    fn claim_changed(&self, change: &Change<PersistentVolumeClaim>) {
        let claim = change.object();
        let owners = |claim: &PersistentVolumeClaim| claim.metadata.owner_references.clone();
        match change {
            Change::Deleted(_) => {}
            Change::Modified { old, new } if owners(old) != owners(new) => {}
            _ => return,
        }
        let name = claim.name_any();
        for set in self.sets.list_in(&claim.namespace().unwrap_or_default()) {
            if identity::may_be_claim(&set, &name) {
                self.queue.add(ObjectKey::of(&*set));
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(set) = self.sets.get_key(key) else { return Ok(Action::Done) };
        let selector = Selector::new(Some(&set.spec.selector));
        if selector.is_everything() {
            return Ok(Action::Done);
        }
        let api: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let revisions = self.claim_revisions(key, &set, &selector).await?;
        let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or_default();
        let reference = owner::controller_reference(&*set);
        let annotations = set.metadata.annotations.clone();
        let current = history::current(&revisions, &set.spec.template, &reference, Some(collisions), annotations);
        let newest = match history::settle(&self.revisions_api(key), current).await? {
            Settled::Revision(newest) => newest,
            Settled::Collision => {
                let mut updated = (*set).clone();
                updated.status.get_or_insert_default().collision_count = Some(collisions.saturating_add(1));
                api.replace_status(&key.name, &PostParams::default(), &updated).await?;
                return Ok(Action::Done);
            }
        };
        let update = Revision { name: newest.name_any(), template: set.spec.template.clone() };
        let named = set.status.as_ref().and_then(|status| status.current_revision.clone());
        let known = revisions.iter().find(|revision| revision.metadata.name == named);
        let current = match known.and_then(|known| Some((known.name_any(), history::template_of(known)?))) {
            Some((name, template)) => Revision { name, template },
            None => Revision { name: update.name.clone(), template: update.template.clone() },
        };
        let pods = self.claim_pods(key, &set, &selector).await?;
        let observed = Observed {
            set: &set,
            pods: &pods,
            current: &current,
            update: &update,
            collisions,
            now: self.clock.seconds(),
        };
        self.keep_claims(key, &set, &pods).await?;
        let carried_out = self.carry_out(key, &set, plan::steps(&observed)).await;
        if let Some(status) = plan::status(&observed) {
            let mut updated = (*set).clone();
            updated.status = Some(status);
            api.replace_status(&key.name, &PostParams::default(), &updated).await?;
        }
        carried_out?;
        let lives = |revision: &ControllerRevision| {
            let name = revision.name_any();
            name == update.name || name == current.name || pods.iter().any(|pod| identity::revision(pod) == name)
        };
        let limit = set.spec.revision_history_limit.unwrap_or(10);
        let gone = history::superfluous(&revisions, limit, |revision| !lives(revision), lives);
        history::delete(&self.revisions_api(key), &gone).await?;
        let seconds = set.spec.min_ready_seconds.unwrap_or_default();
        let waits = pods.iter().filter_map(|pod| match pod::availability(pod, seconds, observed.now) {
            pod::Availability::After(left) => Some(left),
            pod::Availability::NotReady | pod::Availability::Available => None,
        });
        Ok(waits.min().map_or(Action::Done, Action::After))
    }

    fn revisions_api(&self, key: &ObjectKey) -> Api<ControllerRevision> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    fn pods_api(&self, key: &ObjectKey) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn claim_revisions(
        &self,
        key: &ObjectKey,
        set: &StatefulSet,
        selector: &Selector,
    ) -> Result<Vec<Arc<ControllerRevision>>, Error> {
        let uid = set.metadata.uid.clone().unwrap_or_default();
        let mut candidates = self.revisions.get(&uid);
        candidates.extend(self.revisions.get(&format!("/{}", key.namespace)));
        let mut claims = claim::sort(candidates, &uid, set.metadata.deletion_timestamp.is_some(), selector);
        // What somebody has labelled otherwise is left alone.
        claims.release.clear();
        let owners: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut revisions =
            claim::settle(claims, &self.revisions_api(key), &owners, &owner::controller_reference(set)).await?;
        // Without the current revision all would be taken for updated: a cache that lags must not decide that it is gone.
        let current = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
        if let Some(current) = current.filter(|current| !revisions.iter().any(|known| known.name_any() == *current)) {
            let there = self.revisions_api(key).get_opt(current).await?;
            revisions.extend(there.filter(|there| owner::is_controlled_by(there, set)).map(Arc::new));
        }
        history::sort(&mut revisions);
        Ok(revisions)
    }

    /// Only pods with the set's name are its own or could be.
    async fn claim_pods(
        &self,
        key: &ObjectKey,
        set: &StatefulSet,
        selector: &Selector,
    ) -> Result<Vec<Arc<Pod>>, Error> {
        let uid = set.metadata.uid.clone().unwrap_or_default();
        let mut candidates = self.pods.get(&uid);
        candidates.extend(self.pods.get(&format!("/{}", key.namespace)));
        candidates.retain(|pod| identity::ordinal(set, pod).is_some());
        let claims = claim::sort(candidates, &uid, set.metadata.deletion_timestamp.is_some(), selector);
        let owners: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.namespace);
        claim::settle(claims, &self.pods_api(key), &owners, &owner::controller_reference(set)).await
    }

    /// Gives the claims of existing pods the owners that the retention policy asks for.
    async fn keep_claims(&self, key: &ObjectKey, set: &StatefulSet, pods: &[Arc<Pod>]) -> Result<(), Error> {
        if set.spec.volume_claim_templates.as_ref().is_none_or(Vec::is_empty) {
            return Ok(());
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        for pod in pods {
            let Some(ordinal) = identity::ordinal(set, pod) else { continue };
            for (_, claim) in identity::claims(set, ordinal) {
                let Some(there) = self.volume_claims.get(&key.namespace, &claim.name_any()) else { continue };
                if let Some(owners) = claims::owners(set, pod, &there) {
                    let mut updated = (*there).clone();
                    updated.metadata.owner_references = Some(owners);
                    api.replace(&claim.name_any(), &PostParams::default(), &updated).await?;
                }
            }
        }
        Ok(())
    }

    async fn carry_out(&self, key: &ObjectKey, set: &StatefulSet, steps: Vec<Step>) -> Result<(), Error> {
        let api = self.pods_api(key);
        for step in steps {
            match step {
                Step::Claim(pod) => self.create_claims(key, set, &pod).await?,
                Step::Create(pod) => {
                    if self.claims_go(key, set, &pod) {
                        // Made once they are gone, which we are told of.
                        continue;
                    }
                    if let Err(error) = self.create_claims(key, set, &pod).await {
                        let (set_name, name) = (set.name_any(), pod.name_any());
                        let message = format!("create Pod {name} in StatefulSet {set_name} failed error: {error}");
                        self.recorder.event(set, EventType::Warning, "FailedCreate", message);
                        return Err(error);
                    }
                    let result = api.create(&PostParams::default(), &pod).await.map(|_| ());
                    // The cache lags behind: what we wanted is there, and its event will come.
                    if let Err(error) = &result
                        && write::is_already_exists(error)
                        && is_of(set, api.get_opt(&pod.name_any()).await?.as_ref())
                    {
                        continue;
                    }
                    self.tell(set, "create", &pod, result)?;
                }
                Step::Delete(pod) => {
                    let result = write::delete(&api, &*pod, None).await.map(|_| ());
                    self.tell(set, "delete", &pod, result)?;
                }
                Step::Correct(pod) => {
                    let result = api.replace(&pod.name_any(), &PostParams::default(), &pod).await.map(|_| ());
                    self.tell(set, "update", &pod, result)?;
                }
            }
        }
        Ok(())
    }

    fn tell(&self, set: &StatefulSet, verb: &str, pod: &Pod, result: Result<(), kube::Error>) -> Result<(), Error> {
        let (set_name, name) = (set.name_any(), pod.name_any());
        let title = format!("{}{}", verb[..1].to_uppercase(), &verb[1..]);
        match result {
            Ok(()) => {
                let message = format!("{verb} Pod {name} in StatefulSet {set_name} successful");
                self.recorder.event(set, EventType::Normal, &format!("Successful{title}"), message);
                Ok(())
            }
            Err(error) if write::is_namespace_terminating(&error) => Ok(()),
            Err(error) => {
                let why = write::short(&error);
                let message = format!("{verb} Pod {name} in StatefulSet {set_name} failed error: {why}");
                self.recorder.event(set, EventType::Warning, &format!("Failed{title}"), message);
                Err(error.into())
            }
        }
    }

    /// Claims that were left to a predecessor of the pod go with it, and a new pod must not take them.
    fn claims_go(&self, key: &ObjectKey, set: &StatefulSet, pod: &Pod) -> bool {
        let Some(ordinal) = identity::ordinal(set, pod) else { return false };
        let claims = identity::claims(set, ordinal).into_iter();
        let there = claims.filter_map(|(_, claim)| self.volume_claims.get(&key.namespace, &claim.name_any()));
        claims::goes_with_predecessor(set, pod, there)
    }

    async fn create_claims(&self, key: &ObjectKey, set: &StatefulSet, pod: &Pod) -> Result<(), Error> {
        let Some(ordinal) = identity::ordinal(set, pod) else { return Ok(()) };
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        for (_, mut claim) in identity::claims(set, ordinal) {
            let name = claim.name_any();
            if let Some(there) = self.volume_claims.get(&key.namespace, &name) {
                // A claim on its way out would take the new pod's data with it.
                if there.metadata.deletion_timestamp.is_some() {
                    return Err(format!("pvc {name} is being deleted").into());
                }
                continue;
            }
            if let Some(owners) = claims::owners(set, pod, &claim) {
                claim.metadata.owner_references = Some(owners);
            }
            let (set_name, pod_name) = (set.name_any(), pod.name_any());
            match api.create(&PostParams::default(), &claim).await {
                Ok(_) => {
                    let message = format!("create Claim {name} Pod {pod_name} in StatefulSet {set_name} success");
                    self.recorder.event(set, EventType::Normal, "SuccessfulCreate", message);
                }
                Err(error) if write::is_already_exists(&error) => {}
                Err(error) => {
                    let why = write::short(&error);
                    let message =
                        format!("create Claim {name} for Pod {pod_name} in StatefulSet {set_name} failed error: {why}");
                    self.recorder.event(set, EventType::Warning, "FailedCreate", message);
                    return Err(format!("failed to create PVC {name}: {why}").into());
                }
            }
        }
        Ok(())
    }
}
