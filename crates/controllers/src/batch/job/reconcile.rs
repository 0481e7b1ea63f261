//! The loop of Job.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{
    Api, Change, Clock, Error, EventType, Expectations, Index, Informer, ObjectKey, Recorder, WorkQueue, owner, write,
};
use futures::future::join_all;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;

use super::backoff::Record;
use super::plan::{self, Observed, Plan};
use super::{is_finished, pod as job_pod, status};
use crate::Context;
use crate::common::pod_control::PodControl;
use crate::common::selector::Selector;
use crate::common::{claim, pod};

const NAME: &str = "job-controller";
/// How long the changes of a Job's pods are gathered before it is looked at; upstream waits a second.
const BATCH: Duration = Duration::from_millis(100);
const WORKERS: usize = 5;
const MANAGER: &str = "kubernetes.io/job-controller";

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Work {
    Job(ObjectKey),
    /// A pod whose Job is gone or has ended: its finalizer would keep it for ever.
    Orphan(ObjectKey),
}

/// What is known of a Job beyond its object.
#[derive(Default)]
struct Memory {
    /// Pods whose finalizer we removed and whose change has not been seen yet.
    released: HashSet<String>,
    record: Record,
    /// The revision of our last write: an older state in the cache is not acted on.
    written: Option<u64>,
}

struct Reconciler {
    client: Client,
    recorder: Recorder,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    pods_of: Index<Pod>,
    control: PodControl,
    expectations: Expectations,
    memories: Mutex<HashMap<ObjectKey, Memory>>,
    clock: Clock,
    queue: WorkQueue<Work>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let recorder = Recorder::new(client.clone(), NAME, &context.tasks);
    let (jobs, pods) = (context.informers.of::<Job>(), context.informers.of::<Pod>());
    let this = Arc::new(Reconciler {
        client: client.clone(),
        recorder: recorder.clone(),
        jobs: jobs.clone(),
        pods: pods.clone(),
        pods_of: pods.by_controller(),
        control: PodControl::new(client, recorder),
        expectations: Expectations::new(),
        memories: Mutex::default(),
        clock: context.config.clock.clone(),
        queue: context.queue("job"),
    });

    let handler = this.clone();
    jobs.on_change(move |change| handler.job_changed(change));
    let handler = this.clone();
    pods.on_change(move |change| handler.pod_changed(change));

    let ready = async move {
        jobs.synced().await;
        pods.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |work| {
        let this = this.clone();
        async move {
            match work {
                Work::Job(key) => this.reconcile(&key).await,
                Work::Orphan(key) => this.free_orphan(&key).await,
            }
        }
    });
}

impl Reconciler {
    fn job_changed(&self, change: &Change<Job>) {
        let job = change.object();
        let key = ObjectKey::of(&**job);
        if matches!(change, Change::Deleted(_)) {
            self.expectations.forget(&key);
            self.memories.lock().remove(&key);
            for pod in self.pods_of.get(job.metadata.uid.as_deref().unwrap_or_default()) {
                self.queue.add(Work::Orphan(ObjectKey::of(&*pod)));
            }
        }
        self.queue.add(Work::Job(key));
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let namespace = pod.namespace().unwrap_or_default();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let reference = owner::controller_of(&**pod);
        if let Some(left) = left(change).filter(|left| left.kind == "Job") {
            self.queue.add(Work::Job(ObjectKey::new(&*namespace, &*left.name)));
        }
        let Some(reference) = reference.filter(|reference| reference.kind == "Job") else {
            if reference.is_none() && job_pod::is_tracked(pod) && !matches!(change, Change::Deleted(_)) {
                self.queue.add(Work::Orphan(ObjectKey::of(&**pod)));
            }
            if may_be_adopted(change) {
                self.adopters(pod).for_each(|job| self.queue.add(Work::Job(ObjectKey::of(&*job))));
            }
            return;
        };
        let key = ObjectKey::new(&*namespace, &*reference.name);
        let job = self.jobs.get_key(&key).filter(|job| job.metadata.uid.as_deref() == Some(&reference.uid));
        let gone = matches!(change, Change::Deleted(_));
        if !gone && job_pod::is_tracked(pod) && job.as_ref().is_none_or(|job| is_finished(job)) {
            self.queue.add(Work::Orphan(ObjectKey::of(&**pod)));
        }
        if job.is_none() {
            return;
        }
        match change {
            Change::Added(_) if !pod::is_terminating(pod) => self.expectations.created(&key),
            Change::Modified { .. } if !pod::is_terminating(pod) => {}
            _ => self.expectations.deleted(&key, uid),
        }
        if (gone || !job_pod::is_tracked(pod))
            && let Some(memory) = self.memories.lock().get_mut(&key)
        {
            memory.released.remove(uid);
        }
        // Pods of one Job end in crowds: one look at all of them instead of one each.
        self.queue.add_after(Work::Job(key), BATCH);
    }

    /// The jobs that would take a pod of nobody.
    fn adopters(&self, pod: &Pod) -> impl Iterator<Item = Arc<Job>> {
        let jobs = self.jobs.list_in(&pod.namespace().unwrap_or_default()).into_iter();
        jobs.filter(|job| {
            let selector = Selector::new(job.spec.as_ref().and_then(|spec| spec.selector.as_ref()));
            !selector.is_everything() && selector.matches(pod.metadata.labels.as_ref()) && !is_finished(job)
        })
    }

    async fn free_orphan(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(pod) = self.pods.get_key(key).filter(|pod| job_pod::is_tracked(pod)) else { return Ok(Action::Done) };
        if let Some(reference) = owner::controller_of(&*pod) {
            if reference.kind != "Job" {
                return Ok(Action::Done);
            }
            let is_it = |job: &Job| job.metadata.uid.as_deref() == Some(&reference.uid);
            let mut job = self.jobs.get(&key.namespace, &reference.name).filter(|job| is_it(job));
            if job.is_none() {
                // A pod whose end is not counted yet would be lost to a Job that the cache does not show yet.
                let jobs: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
                job = jobs.get_opt(&reference.name).await?.filter(is_it).map(Arc::new);
            }
            if job.is_some_and(|job| is_managed_elsewhere(&job) || !is_finished(&job)) {
                return Ok(Action::Done);
            }
        } else if self.adopters(&pod).next().is_some() {
            return Ok(Action::Done);
        }
        self.release(&pod).await?;
        Ok(Action::Done)
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(job) = self.jobs.get_key(key) else { return Ok(Action::Done) };
        if is_finished(&job) || is_managed_elsewhere(&job) {
            self.memories.lock().remove(key);
            return Ok(Action::Done);
        }
        let seen = job.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
        let (released, record) = {
            let mut memories = self.memories.lock();
            let memory = memories.entry(key.clone()).or_default();
            if memory.written > seen {
                return Ok(Action::Done);
            }
            (memory.released.clone(), memory.record)
        };
        let pending = self.expectations.pending(key);
        let pods = self.claim(key, &job).await?;
        let observed = Observed {
            job: &job,
            pods: &pods,
            released: &released,
            settled: pending.is_none(),
            record,
            now: self.clock.seconds(),
        };
        let plan = plan::plan(&observed);
        let again = plan.again.into_iter().chain(pending).min();
        self.carry_out(key, &job, &pods, plan).await?;
        Ok(again.map_or(Action::Done, Action::After))
    }

    async fn claim(&self, key: &ObjectKey, job: &Job) -> Result<Vec<Arc<Pod>>, Error> {
        let uid = job.metadata.uid.clone().unwrap_or_default();
        let mut candidates = self.pods_of.get(&uid);
        candidates.extend(self.pods_of.get(&format!("/{}", key.namespace)));
        let selector = Selector::new(job.spec.as_ref().and_then(|spec| spec.selector.as_ref()));
        let claims = claim::sort(candidates, &uid, job.metadata.deletion_timestamp.is_some(), &selector);
        let owners: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        claim::settle(claims, &self.control.api(&key.namespace), &owners, &owner::controller_reference(job)).await
    }

    async fn carry_out(&self, key: &ObjectKey, job: &Job, pods: &[Arc<Pod>], plan: Plan) -> Result<(), Error> {
        let mut failure = None;
        let stopped = join_all(plan.stop.iter().map(|pod| self.control.delete(job, pod))).await;
        let all_stopped = stopped.iter().all(Result::is_ok);
        failure = failure.or(stopped.into_iter().find_map(Result::err));
        for pod in &plan.discard {
            self.release(pod).await?;
        }
        if !plan.discard.is_empty() {
            failure = failure.or(self.control.delete_all(&self.expectations, key, job, &plan.discard).await.err());
        }
        if !plan.create.is_empty() {
            failure = failure.or(self.control.create_all(&self.expectations, key, job, &plan.create).await.err());
        }

        let mut status = plan.status;
        let gone = plan.stop.len() + plan.discard.len();
        let active: Vec<&Arc<Pod>> = pods.iter().filter(|pod| pod::is_active(pod)).collect();
        let stays =
            |pod: &Pod| !plan.stop.iter().chain(&plan.discard).any(|gone| gone.metadata.uid == pod.metadata.uid);
        let ready = active.iter().filter(|pod| pod::is_ready(pod) && stays(pod)).count();
        let started = if failure.is_none() { plan.create.len() } else { 0 };
        let number = |length: usize| i32::try_from(length).unwrap_or(i32::MAX);
        let terminating = pods.iter().filter(|pod| pod::is_terminating(pod) && !pod::is_terminal(pod)).count() + gone;
        status.active = status::positive(number((active.len() + started).saturating_sub(gone)));
        status.ready = Some(number(ready));
        status.terminating = Some(number(terminating));

        let mut current = job.clone();
        self.write(key, &mut current, &status).await?;
        for (reason, message) in plan.events {
            self.recorder.event(job, EventType::Normal, reason, message);
        }
        self.memories.lock().entry(key.clone()).or_default().record = plan.record;

        let released = self.release_all(key, &plan.release).await;
        let free: HashSet<&str> = released.0.iter().map(String::as_str).collect();
        let tracked = pods.iter().filter(|pod| job_pod::is_tracked(pod)).filter_map(|pod| pod.metadata.uid.clone());
        let tracked: HashSet<String> = tracked.filter(|uid| !free.contains(uid.as_str())).collect();
        status::settle(&mut status, &tracked);
        let now = self.clock.seconds();
        let ended = plan.end.filter(|end| all_stopped && status::finish(&mut status, end, now));
        self.write(key, &mut current, &status).await?;
        if let Some(end) = ended {
            let wanted = job.spec.as_ref().and_then(|spec| spec.completions);
            if !end.is_failure() && wanted.is_some_and(|wanted| status.succeeded.unwrap_or_default() > wanted) {
                let message = "Too many succeeded pods running after completion count reached";
                self.recorder.event(job, EventType::Warning, "TooManySucceededPods", message);
            }
            let (kind, reason, message) = if end.is_failure() {
                (EventType::Warning, end.reason.as_str(), end.message.as_str())
            } else {
                (EventType::Normal, "Completed", "Job completed")
            };
            self.recorder.event(job, kind, reason, message);
        }
        if let Some(error) = failure.or(released.1) {
            return Err(error.into());
        }
        Ok(())
    }

    /// Writes the status when it differs from what was written last.
    async fn write(&self, key: &ObjectKey, current: &mut Job, status: &JobStatus) -> Result<(), Error> {
        let old = current.status.clone().unwrap_or_default();
        if status::normalised(&old) == status::normalised(status) {
            return Ok(());
        }
        let api: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut updated = current.clone();
        updated.status = Some(status::normalised(status));
        *current = api.replace_status(&key.name, &PostParams::default(), &updated).await?;
        let revision = current.metadata.resource_version.as_deref().and_then(|text| text.parse().ok());
        self.memories.lock().entry(key.clone()).or_default().written = revision;
        Ok(())
    }

    /// Lets pods go; returns the uids of those that are free and the first failure.
    async fn release_all(&self, key: &ObjectKey, pods: &[Arc<Pod>]) -> (Vec<String>, Option<kube::Error>) {
        let uids = || pods.iter().map(|pod| pod.metadata.uid.clone().unwrap_or_default());
        self.memories.lock().entry(key.clone()).or_default().released.extend(uids());
        let results = join_all(pods.iter().map(|pod| self.release(pod))).await;
        let (mut free, mut failure) = (Vec::new(), None);
        for (uid, result) in uids().zip(results) {
            match result {
                Ok(()) => free.push(uid),
                Err(error) => {
                    if let Some(memory) = self.memories.lock().get_mut(key) {
                        memory.released.remove(&uid);
                    }
                    failure.get_or_insert(error);
                }
            }
        }
        (free, failure)
    }

    async fn release(&self, pod: &Pod) -> Result<(), kube::Error> {
        if !job_pod::is_tracked(pod) {
            return Ok(());
        }
        let api = self.control.api(&pod.namespace().unwrap_or_default());
        let patch = json!({ "metadata": {
            "uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [job_pod::FINALIZER],
        } });
        match api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
            Err(error) if !write::is_not_found(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

fn is_managed_elsewhere(job: &Job) -> bool {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.is_some_and(|manager| manager != MANAGER)
}

/// The controller that a pod had until this change.
fn left(change: &Change<Pod>) -> Option<&OwnerReference> {
    let Change::Modified { old, new } = change else { return None };
    let before = owner::controller_of(&**old)?;
    let stays = owner::controller_of(&**new).is_some_and(|now| now.uid == before.uid);
    (!stays).then_some(before)
}

/// A pod of nobody that is new, was let go, or has other labels than before.
fn may_be_adopted(change: &Change<Pod>) -> bool {
    let is_free = |pod: &Pod| owner::controller_of(pod).is_none();
    match change {
        Change::Added(pod) => is_free(pod),
        Change::Modified { old, new } => is_free(new) && (!is_free(old) || old.metadata.labels != new.metadata.labels),
        Change::Deleted(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_is_let_go_concerns_its_job_and_those_that_would_take_it() {
        let pod = |owner: &str, label: &str| -> Arc<Pod> {
            let owners = if owner.is_empty() {
                json!([])
            } else {
                json!([{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": true}])
            };
            let value = json!({"metadata": {"name": "p", "labels": {"l": label}, "ownerReferences": owners}});
            Arc::new(serde_json::from_value(value).expect("a pod"))
        };
        let check = |change: Change<Pod>, leaves: &str, adopted: bool| {
            let seen = left(&change).map(|reference| reference.name.clone()).unwrap_or_default();
            assert_eq!((seen.as_str(), may_be_adopted(&change)), (leaves, adopted), "{change:?}");
        };
        check(Change::Added(pod("", "a")), "", true);
        check(Change::Added(pod("j", "a")), "", false);
        check(Change::Modified { old: pod("j", "a"), new: pod("", "a") }, "j", true);
        check(Change::Modified { old: pod("j", "a"), new: pod("k", "a") }, "j", false);
        check(Change::Modified { old: pod("j", "a"), new: pod("j", "b") }, "", false);
        check(Change::Modified { old: pod("", "a"), new: pod("", "a") }, "", false);
        check(Change::Modified { old: pod("", "a"), new: pod("", "b") }, "", true);
        check(Change::Deleted(pod("", "a")), "", false);
    }
}
