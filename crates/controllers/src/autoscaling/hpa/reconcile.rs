//! The loop of the autoscaler: every 15 seconds each one is looked at.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, write};
use ferry_meta::selector::LabelSelector;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::limits::{self, Bounds, Decision, History};
use super::measure::{self, Scaled};
use super::source::Source;
use crate::Context;

const NAME: &str = "horizontal-pod-autoscaler";
const FAILED: &str = "FailedComputeMetricsReplicas";
const PERIOD: Duration = Duration::from_secs(15);

struct Loop {
    client: Client,
    recorder: Recorder,
    autoscalers: Informer<HorizontalPodAutoscaler>,
    pods: Informer<Pod>,
    source: Source,
    histories: Mutex<HashMap<ObjectKey, History>>,
    /// Which pods each autoscaler counts.
    selectors: Mutex<BTreeMap<ObjectKey, LabelSelector>>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let this = Arc::new(Loop {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        source: Source { client: client.clone() },
        client,
        autoscalers: context.informers.of(),
        pods: context.informers.of(),
        histories: Mutex::default(),
        selectors: Mutex::default(),
    });
    let queue: WorkQueue<ObjectKey> = context.queue("horizontalpodautoscaler");
    let (handler, keys) = (this.clone(), queue.clone());
    this.autoscalers.on_change(move |change| {
        let key = ObjectKey::of(&**change.object());
        match change {
            Change::Deleted(_) => {
                handler.histories.lock().remove(&key);
                handler.selectors.lock().remove(&key);
            }
            Change::Added(_) => keys.add(key),
            Change::Modified { old, new } if old.spec != new.spec => keys.add(key),
            Change::Modified { .. } => {}
        }
    });
    let synced = this.clone();
    let ready = async move {
        synced.autoscalers.synced().await;
        synced.pods.synced().await;
    };
    controller::run(&context.tasks, NAME, &queue, 5, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

fn matches(selector: &LabelSelector, pod: &Pod) -> bool {
    selector.matches_with(|key| pod.labels().get(key).map(String::as_str))
}

fn set(status: &mut HorizontalPodAutoscalerStatus, kind: &str, state: &str, reason: &str, message: impl Into<String>) {
    let list = status.conditions.get_or_insert_default();
    let known = list.iter().find(|known| known.type_ == kind && known.status == state);
    let since = known.and_then(|known| known.last_transition_time.clone()).unwrap_or_else(write::now);
    let made = HorizontalPodAutoscalerCondition {
        type_: kind.into(),
        status: state.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_transition_time: Some(since),
        observed_generation: None,
    };
    match list.iter().position(|known| known.type_ == kind) {
        Some(at) => list[at] = made,
        None => list.push(made),
    }
}

impl Loop {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(autoscaler) = self.autoscalers.get_key(key) else { return Ok(Action::Done) };
        let mut status = autoscaler.status.clone().unwrap_or_default();
        status.observed_generation = autoscaler.metadata.generation;
        let outcome = self.scale(key, &autoscaler, &mut status).await;
        if let Err((reason, problem)) = &outcome {
            self.recorder.event(&*autoscaler, EventType::Warning, reason, problem.clone());
        }
        if autoscaler.status.as_ref() != Some(&status) {
            let api: Api<HorizontalPodAutoscaler> = Api::namespaced(self.client.clone(), &key.namespace);
            let changed = HorizontalPodAutoscaler { status: Some(status), ..(*autoscaler).clone() };
            match api.replace_status(&key.name, &PostParams::default(), &changed).await {
                Err(error) if !write::is_not_found(&error) => return Err(error.into()),
                _ => {}
            }
        }
        // What is wrong now may be right in the next period; trying faster would not make metrics come.
        Ok(Action::After(PERIOD))
    }

    async fn scale(
        &self,
        key: &ObjectKey,
        autoscaler: &HorizontalPodAutoscaler,
        status: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<(), (&'static str, String)> {
        let spec = &autoscaler.spec;
        let target = &spec.scale_target_ref;
        let version = target.api_version.as_deref().unwrap_or("v1");
        let found = async {
            let resource = measure::resource_of(&self.client, version, &target.kind).await?;
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &resource);
            let url = format!("{}/{}/scale", api.resource_url(), target.name);
            let request = http::Request::get(&url).body(Vec::new()).map_err(|error| error.to_string())?;
            let scale: Scale = self.client.request(request).await.map_err(|error| write::short(&error))?;
            Ok::<_, String>((url, scale))
        };
        let (url, mut scale) = found.await.map_err(|problem| {
            let message = format!("the HPA controller was unable to get the target's current scale: {problem}");
            set(status, "AbleToScale", "False", "FailedGetScale", message);
            ("FailedGetScale", problem)
        })?;
        set(
            status,
            "AbleToScale",
            "True",
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        );
        let current = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
        status.current_replicas = Some(scale.status.as_ref().map_or(current, |status| status.replicas));
        let least = spec.min_replicas.unwrap_or(1);
        let bounds = Bounds { least, most: spec.max_replicas, behavior: spec.behavior.as_ref() };
        let mut why = String::new();
        let decision = if current == 0 && least != 0 {
            set(
                status,
                "ScalingActive",
                "False",
                "ScalingDisabled",
                "scaling is disabled since the replica count of the target is zero",
            );
            Decision { replicas: 0, limited: None, stabilized: None }
        } else if current > spec.max_replicas {
            "Current number of replicas above Spec.MaxReplicas".clone_into(&mut why);
            Decision { replicas: spec.max_replicas, limited: Some(limits::TOO_MANY), stabilized: None }
        } else if current < least {
            "Current number of replicas below Spec.MinReplicas".clone_into(&mut why);
            Decision { replicas: least, limited: Some(limits::TOO_FEW), stabilized: None }
        } else {
            let (asked, reason) = self.measure(key, autoscaler, &scale, current, status).await?;
            why = reason;
            let mut histories = self.histories.lock();
            limits::decide(histories.entry(key.clone()).or_default(), current, asked, &bounds, Instant::now())
        };
        tell(status, &decision);
        status.desired_replicas = decision.replicas;
        if decision.replicas == current {
            return Ok(());
        }
        scale.spec.get_or_insert_default().replicas = Some(decision.replicas);
        let body = serde_json::to_vec(&scale).unwrap_or_default();
        let request = http::Request::put(&url).header("content-type", "application/json").body(body);
        let written = match request {
            Ok(request) => self.client.request::<Scale>(request).await.map_err(|error| write::short(&error)),
            Err(error) => Err(error.to_string()),
        };
        if let Err(problem) = written {
            set(
                status,
                "AbleToScale",
                "False",
                "FailedUpdateScale",
                format!("the HPA controller was unable to update the target scale: {problem}"),
            );
            return Err(("FailedRescale", format!("New size: {}; reason: {why}; error: {problem}", decision.replicas)));
        }
        set(
            status,
            "AbleToScale",
            "True",
            "SucceededRescale",
            format!("the HPA controller was able to update the target scale to {}", decision.replicas),
        );
        self.recorder.event(
            autoscaler,
            EventType::Normal,
            "SuccessfulRescale",
            format!("New size: {}; reason: {why}", decision.replicas),
        );
        status.last_scale_time = Some(write::now());
        self.histories.lock().entry(key.clone()).or_default().scaled(decision.replicas - current, Instant::now());
        Ok(())
    }

    /// Two autoscalers that count these pods, where there are two: each would undo what the other does.
    fn rivals(&self, key: &ObjectKey, pods: &[Arc<Pod>]) -> Option<String> {
        let selectors = self.selectors.lock();
        let own = selectors.range(ObjectKey::new(key.namespace.clone(), "")..);
        let own = own.take_while(|(other, _)| other.namespace == key.namespace);
        let counts = |selector: &LabelSelector| pods.iter().any(|pod| matches(selector, pod));
        let names: Vec<String> = own
            .filter(|(_, selector)| counts(selector))
            .take(2)
            .map(|(other, _)| format!("{}/{}", other.namespace, other.name))
            .collect();
        (names.len() > 1).then(|| names.join(" "))
    }

    /// The most that any metric asks for, and why.
    async fn measure(
        &self,
        key: &ObjectKey,
        autoscaler: &HorizontalPodAutoscaler,
        scale: &Scale,
        current: i32,
        status: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<(i32, String), (&'static str, String)> {
        let text = scale.status.as_ref().and_then(|status| status.selector.clone()).unwrap_or_default();
        let selector = match LabelSelector::parse(&text) {
            Ok(selector) if !text.is_empty() => selector,
            outcome => {
                let message = "the HPA target's scale is missing a selector";
                set(status, "ScalingActive", "False", "InvalidSelector", message);
                let problem = outcome.map_or_else(
                    |error| format!("couldn't convert selector into a corresponding internal selector object: {error}"),
                    |_| "selector is required".to_owned(),
                );
                let reason = if text.is_empty() { "SelectorRequired" } else { "InvalidSelector" };
                self.recorder.event(autoscaler, EventType::Warning, reason, problem.clone());
                return Err((FAILED, problem));
            }
        };
        let mut pods = self.pods.list_in(&key.namespace);
        pods.retain(|pod| matches(&selector, pod));
        self.selectors.lock().insert(key.clone(), selector);
        if let Some(others) = self.rivals(key, &pods) {
            let problem = format!("pods by selector {text} are controlled by more than one HPA (e.g. [{others}])");
            set(status, "ScalingActive", "False", "AmbiguousSelector", problem.clone());
            self.recorder.event(autoscaler, EventType::Warning, "AmbiguousSelector", problem.clone());
            return Err((FAILED, problem));
        }
        let scaled = Scaled { namespace: &key.namespace, replicas: current, selector: &text, pods: &pods };
        let metrics = autoscaler.spec.metrics.clone().unwrap_or_default();
        let tolerance = measure::tolerance(autoscaler);
        let mut most: Option<(i32, String)> = None;
        let mut problems = Vec::new();
        let mut shown: Vec<MetricStatus> = Vec::new();
        for metric in &metrics {
            match measure::measure(&self.source, &scaled, metric, tolerance).await {
                Ok(measured) => {
                    shown.push(measured.status);
                    if most.as_ref().is_none_or(|(replicas, _)| measured.replicas > *replicas) {
                        most = Some((measured.replicas, measured.name));
                    }
                }
                Err((reason, problem)) => {
                    self.recorder.event(autoscaler, EventType::Warning, reason, problem.clone());
                    problems.push((reason, problem));
                }
            }
        }
        status.current_metrics = (!shown.is_empty()).then_some(shown);
        let failed = problems.len();
        match (most, problems.into_iter().next()) {
            // With a metric missing, nothing may shrink on what the others say.
            (most, Some((reason, problem))) if most.as_ref().is_none_or(|(replicas, _)| *replicas < current) => {
                let message = format!("the HPA was unable to compute the replica count: {problem}");
                set(status, "ScalingActive", "False", reason, message);
                let all = metrics.len();
                Err((FAILED, format!("invalid metrics ({failed} invalid out of {all}), first error is: {problem}")))
            }
            (None, _) => Ok((current, String::new())),
            (Some((replicas, name)), _) => {
                set(
                    status,
                    "ScalingActive",
                    "True",
                    "ValidMetricFound",
                    format!("the HPA was able to successfully calculate a replica count from {name}"),
                );
                let side = if replicas > current { "above target" } else { "below target" };
                let reason =
                    if replicas < current { "All metrics below target".to_owned() } else { format!("{name} {side}") };
                Ok((replicas, reason))
            }
        }
    }
}

fn tell(status: &mut HorizontalPodAutoscalerStatus, decision: &Decision) {
    match decision.stabilized {
        Some(true) => set(
            status,
            "AbleToScale",
            "True",
            "ScaleDownStabilized",
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        ),
        Some(false) => set(
            status,
            "AbleToScale",
            "True",
            "ScaleUpStabilized",
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        ),
        None => set(status, "AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size"),
    }
    match decision.limited {
        Some((reason, message)) => set(status, "ScalingLimited", "True", reason, message),
        None => set(
            status,
            "ScalingLimited",
            "False",
            "DesiredWithinRange",
            "the desired count is within the acceptable range",
        ),
    }
}
