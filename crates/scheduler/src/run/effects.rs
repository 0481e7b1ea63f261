//! What the scheduler does to the cluster: binds pods, says why it could not, and removes pods for others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use ferry_client::{EventType, Recorder, write};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::Request;
use kube::{Client, Error, Resource};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};

use super::permit::{self, Wait};
use crate::extender::{self, Extender, Extension};
use crate::framework::{Nomination, Point, Preemption, Profile};
use crate::metrics::Metrics;
use crate::model::PodInfo;
use crate::queue::QueuedPod;

/// Events may be no longer than this.
const LONGEST_MESSAGE: usize = 1024;
/// Requests under way at once.
const MOST_AT_ONCE: usize = 256;
const MOST_QUESTIONS: usize = 32;

/// What became of something that was sent off.
pub(super) enum Report {
    Bound(Binding),
    NotBound(Binding, String),
    /// A plugin that held it back at Permit does not let it go there.
    Refused {
        binding: Binding,
        plugin: &'static str,
        reason: String,
    },
    /// No room is made for it: nobody was removed, or not all. Nothing that happens tells of it.
    NotPreempted {
        pod: Arc<PodInfo>,
        /// Whether another attempt may do better.
        again: bool,
    },
    /// What the extenders said.
    Extended {
        queued: QueuedPod,
        outcome: Result<Extension, String>,
    },
}

/// A decision on its way to the API server.
pub(super) struct Binding {
    pub(super) queued: QueuedPod,
    pub(super) node: String,
    /// When the attempt began.
    pub(super) begin: Instant,
    /// Whether the points on its way are timed.
    pub(super) timed: bool,
}

#[derive(Clone)]
pub(super) struct Effects {
    client: Client,
    recorders: HashMap<String, Recorder>,
    profiles: Arc<HashMap<String, Profile>>,
    reports: mpsc::UnboundedSender<Report>,
    metrics: Arc<Metrics>,
    tasks: Tasks,
    places: Arc<Semaphore>,
    extenders: Arc<[Extender]>,
    /// Pods that extenders are asked about at once.
    questions: Arc<Semaphore>,
}

impl Effects {
    pub(super) fn new(
        client: Client,
        recorders: HashMap<String, Recorder>,
        profiles: Arc<HashMap<String, Profile>>,
        extenders: Arc<[Extender]>,
        reports: mpsc::UnboundedSender<Report>,
        metrics: Arc<Metrics>,
        tasks: Tasks,
    ) -> Self {
        let semaphore = |places| Arc::new(Semaphore::new(places));
        let (places, questions) = (semaphore(MOST_AT_ONCE), semaphore(MOST_QUESTIONS));
        Self { client, recorders, profiles, reports, metrics, tasks, places, extenders, questions }
    }

    pub(super) fn event(&self, pod: &PodInfo, kind: EventType, reason: &str, message: &str) {
        if let Some(recorder) = self.recorders.get(&pod.scheduler) {
            recorder.event(pod.pod.as_ref(), kind, reason, shortened(message));
        }
    }

    pub(super) fn unreserve(&self, profile: &Profile, pod: &PodInfo, node: &str) {
        profile.at(Point::Reserve).for_each(|(_, registered)| registered.plugin.unreserve(pod, node));
    }

    /// Asks the extenders about the nodes that can take a pod.
    pub(super) fn extend(&self, queued: QueuedPod, nodes: Vec<Arc<Node>>) {
        let (extenders, reports, questions) = (self.extenders.clone(), self.reports.clone(), self.questions.clone());
        self.tasks.spawn_until_stopped("extend", async move {
            let _place = questions.acquire().await;
            let outcome = extender::ask(&extenders, &queued.pod, nodes).await;
            let _ = reports.send(Report::Extended { queued, outcome });
        });
    }

    /// PreBind, Bind and PostBind in a task of their own, once all who hold the pod back at Permit let it go.
    pub(super) fn bind(&self, binding: Binding, waits: Vec<Wait>) {
        let (profiles, reports, places) = (self.profiles.clone(), self.reports.clone(), self.places.clone());
        let metrics = self.metrics.clone();
        let pod = &binding.queued.pod;
        let binder = self.extenders.iter().find(|extender| extender.binds() && extender.concerns(pod)).cloned();
        self.tasks.spawn_until_stopped("bind", async move {
            let (pod, node) = (&binding.queued.pod, binding.node.as_str());
            let Some(profile) = profiles.get(&pod.scheduler) else { return };
            let unreserve = || {
                profile.at(Point::Reserve).for_each(|(_, registered)| registered.plugin.unreserve(pod, node));
            };
            if let Err((plugin, reason)) = permit::decided(waits, &metrics).await {
                unreserve();
                let _ = reports.send(Report::Refused { binding, plugin, reason });
                return;
            }
            let timing = binding.timed.then_some(&*metrics);
            let bound = bind(profile, binder.as_ref(), pod, node, timing, &places).await;
            if let Err(error) = &bound {
                unreserve();
                tracing::debug!(pod = pod.full_name(), node, "binding failed: {error}");
            }
            // Nobody listens only when the scheduler is stopping.
            let _ = reports.send(match bound {
                Ok(()) => Report::Bound(binding),
                Err(error) => Report::NotBound(binding, error),
            });
        });
    }

    /// Says on the pod, and by an event, why it has no node.
    pub(super) fn unscheduled(&self, pod: &PodInfo, reason: &str, message: &str, nomination: &Nomination) {
        self.event(pod, EventType::Warning, "FailedScheduling", message);
        if let Some(patch) = status_patch(&pod.pod, reason, message, nomination) {
            self.write_status(pod, patch);
        }
    }

    /// No node is kept for the pod any more.
    pub(super) fn clear_nomination(&self, pod: &PodInfo) {
        let patch = json!({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": null}});
        self.write_status(pod, patch);
    }

    fn write_status(&self, pod: &PodInfo, patch: serde_json::Value) {
        let (client, namespace, name) = (self.client.clone(), pod.namespace.clone(), pod.name.clone());
        let places = self.places.clone();
        self.tasks.spawn_until_stopped("pod condition", async move {
            let _place = places.acquire().await;
            if let Err(error) = patch_status(&client, &namespace, &name, patch).await {
                tracing::debug!(pod = name, "the status of a pod was not written: {error}");
            }
        });
    }

    /// Removes the victims. The pod is woken by their end.
    pub(super) fn preempt(&self, preemptor: Arc<PodInfo>, preemption: Preemption) {
        if self.extenders.is_empty() {
            return self.remove(&preemptor, preemption);
        }
        let own = self.clone();
        self.tasks.spawn_until_stopped("preempt", async move {
            let again = match extender::preempt(&own.extenders, &preemptor, preemption).await {
                Ok(Some(agreed)) => return own.remove(&preemptor, agreed),
                Ok(None) => false,
                Err(error) => {
                    tracing::warn!(pod = preemptor.full_name(), "no pod is preempted: {error}");
                    true
                }
            };
            let _ = own.reports.send(Report::NotPreempted { pod: preemptor, again });
        });
    }

    fn remove(&self, preemptor: &Arc<PodInfo>, preemption: Preemption) {
        let recorder = self.recorders.get(&preemptor.scheduler).cloned();
        let Preemption { node, victims } = preemption;
        for victim in victims.into_iter().filter(|victim| !victim.is_terminating) {
            let (client, recorder, places) = (self.client.clone(), recorder.clone(), self.places.clone());
            let (preemptor, node, reports) = (preemptor.clone(), node.clone(), self.reports.clone());
            self.tasks.spawn_until_stopped("preempt", async move {
                let _place = places.acquire().await;
                match evict(&client, &preemptor, &victim).await {
                    Ok(()) => {
                        let message = format!("Preempted by pod {} on node {node}", preemptor.uid);
                        if let Some(recorder) = recorder {
                            recorder.event(victim.pod.as_ref(), EventType::Normal, "Preempted", message);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(victim = victim.full_name(), "a pod was not removed for another: {error}");
                        let _ = reports.send(Report::NotPreempted { pod: preemptor, again: true });
                    }
                }
            });
        }
    }
}

async fn patch_status(client: &Client, namespace: &str, name: &str, patch: serde_json::Value) -> Result<(), Error> {
    let requests = Request::new(Pod::url_path(&(), Some(namespace)));
    let patch = Patch::Strategic(patch);
    let request = requests.patch_subresource("status", name, &PatchParams::default(), &patch);
    write::send(client, request.map_err(Error::BuildRequest)?).await
}

async fn bind(
    profile: &Profile,
    binder: Option<&Extender>,
    pod: &PodInfo,
    node: &str,
    metrics: Option<&Metrics>,
    places: &Semaphore,
) -> Result<(), String> {
    let note = |point: &str, begin: Instant, succeeds: bool| {
        if let Some(metrics) = metrics {
            metrics.point(point, &profile.scheduler_name, succeeds, begin.elapsed());
        }
    };
    let begin = Instant::now();
    for (_, registered) in profile.at(Point::PreBind) {
        let plugin = registered.plugin.name();
        let prepared = registered.plugin.pre_bind(pod, node).await;
        prepared.map_err(|error| format!("running PreBind plugin {plugin:?}: {error}"))?;
    }
    note("PreBind", begin, true);
    // Not before: volumes and devices may take minutes to be ready, and others go on.
    let _place = places.acquire().await;
    let begin = Instant::now();
    let bound = bind_by_one(profile, binder, pod, node).await;
    note("Bind", begin, bound.is_ok());
    if bound.is_ok() {
        let begin = Instant::now();
        profile.at(Point::PostBind).for_each(|(_, registered)| registered.plugin.post_bind(pod, node));
        note("PostBind", begin, true);
    }
    bound
}

async fn bind_by_one(profile: &Profile, binder: Option<&Extender>, pod: &PodInfo, node: &str) -> Result<(), String> {
    if let Some(extender) = binder {
        return extender.bind(pod, node).await.map_err(|error| format!("binding rejected: {error}"));
    }
    for (_, registered) in profile.at(Point::Bind) {
        if let Some(bound) = registered.plugin.bind(pod, node).await {
            return bound.map_err(|error| format!("binding rejected: {error}"));
        }
    }
    Err("no plugin bound the pod".into())
}

async fn evict(client: &Client, preemptor: &PodInfo, victim: &PodInfo) -> Result<(), Error> {
    let condition = PodCondition {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
        reason: Some("PreemptionByScheduler".into()),
        message: Some(format!("{}: preempting to accommodate a higher priority pod", preemptor.scheduler)),
        last_transition_time: Some(Time(Timestamp::now())),
        observed_generation: victim.pod.metadata.generation,
        ..PodCondition::default()
    };
    let patch = json!({"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}});
    let unless_gone = |outcome: Result<(), Error>| match outcome {
        Err(Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        other => other,
    };
    unless_gone(patch_status(client, &victim.namespace, &victim.name, patch).await)?;
    let parameters = DeleteParams {
        preconditions: Some(kube::api::Preconditions { uid: Some(victim.uid.to_string()), resource_version: None }),
        ..DeleteParams::default()
    };
    let requests = Request::new(Pod::url_path(&(), Some(&victim.namespace)));
    let request = requests.delete(&victim.name, &parameters).map_err(Error::BuildRequest)?;
    unless_gone(write::send(client, request).await)
}

/// Nothing when the pod says it already.
fn status_patch(pod: &Pod, reason: &str, message: &str, nomination: &Nomination) -> Option<serde_json::Value> {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let known = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
    let same = known.is_some_and(|known| {
        known.status == "False"
            && known.reason.as_deref() == Some(reason)
            && known.message.as_deref() == Some(message)
            && known.observed_generation == pod.metadata.generation
    });
    let nominated = status.and_then(|status| status.nominated_node_name.as_deref()).unwrap_or_default();
    let wanted = match nomination {
        Nomination::Keep => nominated,
        Nomination::Clear => "",
        Nomination::Set(node) => node.as_str(),
    };
    if same && wanted == nominated {
        return None;
    }
    let mut patch = serde_json::Map::new();
    if !same {
        let since = known.filter(|known| known.status == "False").and_then(|known| known.last_transition_time.clone());
        let condition = PodCondition {
            type_: "PodScheduled".into(),
            status: "False".into(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(since.unwrap_or_else(|| Time(Timestamp::now()))),
            observed_generation: pod.metadata.generation,
            ..PodCondition::default()
        };
        patch.insert("conditions".into(), json!([condition]));
    }
    if wanted != nominated {
        let value = if wanted.is_empty() { json!(null) } else { json!(wanted) };
        patch.insert("nominatedNodeName".into(), value);
    }
    Some(json!({"metadata": {"uid": pod.metadata.uid}, "status": patch}))
}

fn shortened(message: &str) -> String {
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let mut end = LONGEST_MESSAGE - 4;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &message[..end])
}
