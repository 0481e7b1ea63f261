//! TTL after finished: Jobs that have ended go when their time is up.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Clock, Error, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::PropagationPolicy;

use super::job::finished;
use crate::Context;

const NAME: &str = "ttl-after-finished-controller";

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let jobs = context.informers.of::<Job>();
    let queue: WorkQueue<ObjectKey> = context.queue("ttl_jobs_to_delete");
    let (keys, clock) = (queue.clone(), context.config.clock.clone());
    let time = clock.clone();
    jobs.on_change(move |change| {
        let job = change.object();
        if !matches!(change, Change::Deleted(_)) && time_left(job, time.seconds()).is_some() {
            keys.add(ObjectKey::of(&**job));
        }
    });
    let known = jobs.clone();
    let ready = async move { known.synced().await };
    controller::run(&context.tasks, NAME, &queue, 5, ready, move |key: ObjectKey| {
        let (client, jobs, clock) = (client.clone(), jobs.clone(), clock.clone());
        async move { reconcile(client, &jobs, &clock, &key).await }
    });
}

/// What is left of the job's time after its end; none when it has not ended or may stay.
fn time_left(job: &Job, now: Timestamp) -> Option<Duration> {
    let seconds = u64::try_from(job.spec.as_ref()?.ttl_seconds_after_finished?).ok()?;
    let ended = finished(job)?.last_transition_time.as_ref()?.0;
    let passed = Duration::try_from(now.duration_since(ended)).unwrap_or_default();
    Some(Duration::from_secs(seconds).saturating_sub(passed))
}

async fn reconcile(client: Client, jobs: &Informer<Job>, clock: &Clock, key: &ObjectKey) -> Result<Action, Error> {
    let Some(job) = jobs.get_key(key).filter(|job| job.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::Done);
    };
    match time_left(&job, clock.seconds()) {
        None => return Ok(Action::Done),
        Some(left) if !left.is_zero() => return Ok(Action::After(left)),
        Some(_) => {}
    }
    // Its time may have been changed a moment ago: ask before deleting.
    let api: Api<Job> = Api::namespaced(client, &key.namespace);
    let Some(fresh) = api.get_opt(&key.name).await?.map(Arc::new) else { return Ok(Action::Done) };
    if fresh.metadata.uid == job.metadata.uid && time_left(&fresh, clock.seconds()) == Some(Duration::ZERO) {
        write::delete(&api, &*fresh, Some(PropagationPolicy::Foreground)).await?;
    }
    Ok(Action::Done)
}
