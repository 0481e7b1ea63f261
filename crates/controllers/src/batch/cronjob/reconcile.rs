//! The loop of CronJob.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{
    Api, Change, Clock, Error, EventType, Index, Informer, ObjectKey, Recorder, WorkQueue, owner, write,
};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{PostParams, PropagationPolicy};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;

use super::plan::{self, Plan};
use crate::Context;

const NAME: &str = "cronjob-controller";
const WORKERS: usize = 5;

struct Reconciler {
    client: Client,
    recorder: Recorder,
    crons: Informer<CronJob>,
    jobs: Index<Job>,
    clock: Clock,
    queue: WorkQueue<ObjectKey>,
    /// The Job last created for each CronJob, until the cache has it: the status that names it may not have been written.
    created: Mutex<HashMap<ObjectKey, ObjectReference>>,
    /// By uid, the time for which each CronJob last started a Job: the status that says so may not have been written or
    /// seen yet, and that Job may have ended and gone since.
    started: Mutex<HashMap<String, Timestamp>>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let (crons, jobs) = (context.informers.of::<CronJob>(), context.informers.of::<Job>());
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        client,
        crons: crons.clone(),
        jobs: jobs.by_controller(),
        clock: context.config.clock.clone(),
        queue: context.queue("cronjob"),
        created: Mutex::default(),
        started: Mutex::default(),
    });
    let handler = this.clone();
    crons.on_change(move |change| {
        if let Change::Deleted(cron) = change {
            handler.started.lock().remove(cron.metadata.uid.as_deref().unwrap_or_default());
        }
        handler.queue.add(ObjectKey::of(&**change.object()));
    });
    let handler = this.clone();
    jobs.on_change(move |change| {
        for job in change.old().into_iter().chain([change.object()]) {
            if let Some(reference) = owner::controller_of(&**job).filter(|reference| reference.kind == "CronJob") {
                handler.queue.add(ObjectKey::new(job.namespace().unwrap_or_default(), &*reference.name));
            }
        }
    });
    let ready = async move {
        crons.synced().await;
        jobs.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(cron) = self.crons.get_key(key) else {
            self.created.lock().remove(key);
            return Ok(Action::Done);
        };
        let mut jobs = self.jobs.get(cron.metadata.uid.as_deref().unwrap_or_default());
        self.add_unseen(key, &cron, &mut jobs).await?;
        let started = self.started.lock().get(cron.metadata.uid.as_deref().unwrap_or_default()).copied();
        let plan = plan::plan(&cron, &jobs, started, self.clock.seconds());
        let again = plan.again;
        self.carry_out(key, &cron, plan).await?;
        Ok(again.map_or(Action::Done, Action::After))
    }

    /// Adds the active jobs that the cache has not seen yet: only the API server knows that one is missing.
    async fn add_unseen(&self, key: &ObjectKey, cron: &CronJob, jobs: &mut Vec<Arc<Job>>) -> Result<(), Error> {
        let api: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        let created = self.created.lock().get(key).cloned();
        let active = cron.status.iter().flat_map(|status| status.active.iter().flatten());
        let mut unseen = false;
        for reference in active.chain(&created) {
            if jobs.iter().any(|job| job.metadata.uid == reference.uid) {
                continue;
            }
            let found = api.get_opt(reference.name.as_deref().unwrap_or_default()).await?;
            let found = found.filter(|job| job.metadata.uid == reference.uid).map(Arc::new);
            unseen |= found.is_some();
            jobs.extend(found);
        }
        if created.is_some() && !unseen {
            self.created.lock().remove(key);
        }
        Ok(())
    }

    async fn carry_out(&self, key: &ObjectKey, cron: &CronJob, plan: Plan) -> Result<(), Error> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &key.namespace);
        for (kind, reason, message) in plan.events {
            self.recorder.event(cron, kind, reason, message);
        }
        self.delete(&jobs, cron, &plan.replace).await?;
        let mut status = plan.status;
        if let Some((job, due)) = plan.create
            && let Some(created) = self.create(&jobs, cron, &job).await?
        {
            self.created.lock().insert(key.clone(), plan::reference_to(&created));
            self.note_start(cron, due);
            let active = status.active.get_or_insert_default();
            if !active.iter().any(|known| known.uid == created.metadata.uid) {
                active.push(plan::reference_to(&created));
            }
            status.last_schedule_time = Some(Time(due));
        }
        if cron.status.clone().unwrap_or_default() != status {
            let api: Api<CronJob> = Api::namespaced(self.client.clone(), &key.namespace);
            let last = status.last_schedule_time.clone();
            let mut updated = cron.clone();
            updated.status = Some(status);
            api.replace_status(&key.name, &PostParams::default(), &updated).await?;
            if let Some(last) = last {
                self.note_start(cron, last.0);
            }
        }
        self.delete(&jobs, cron, &plan.delete).await
    }

    fn note_start(&self, cron: &CronJob, due: Timestamp) {
        let mut started = self.started.lock();
        let last = started.entry(cron.metadata.uid.clone().unwrap_or_default()).or_insert(due);
        *last = due.max(*last);
    }

    async fn delete(&self, api: &Api<Job>, cron: &CronJob, jobs: &[Arc<Job>]) -> Result<(), Error> {
        for job in jobs {
            match write::delete(api, &**job, Some(PropagationPolicy::Background)).await {
                Ok(true) => {
                    let message = format!("Deleted job {}", job.name_any());
                    self.recorder.event(cron, EventType::Normal, "SuccessfulDelete", message);
                }
                Ok(false) => {}
                Err(error) => {
                    let message = format!("Deleted job: {}", write::short(&error));
                    self.recorder.event(cron, EventType::Warning, "FailedDelete", message);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// The name is made of the time: one that is there already was created before a crash. None when it is not ours.
    async fn create(&self, jobs: &Api<Job>, cron: &CronJob, job: &Job) -> Result<Option<Job>, Error> {
        match jobs.create(&PostParams::default(), job).await {
            Ok(created) => {
                let message = format!("Created job {}", created.name_any());
                self.recorder.event(cron, EventType::Normal, "SuccessfulCreate", message);
                Ok(Some(created))
            }
            Err(error) if write::is_already_exists(&error) => {
                let there = jobs.get(&job.name_any()).await?;
                Ok(owner::is_controlled_by(&there, cron).then_some(there))
            }
            Err(error) if write::is_namespace_terminating(&error) => Ok(None),
            Err(error) => {
                let message = format!("Error creating job: {}", write::short(&error));
                self.recorder.event(cron, EventType::Warning, "FailedCreate", message);
                Err(error.into())
            }
        }
    }
}
