//! The loop of the autoscaler: every now and then each one is looked at.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, write};
use ferry_meta::selector::LabelSelector;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, MetricStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::limits::{self, Bounds, History};
use super::mapping::{Mapping, group_version};
use super::measure::{self, Meter, Scaled};
use super::source::Source;
use super::{Settings, conditions};
use crate::Context;

const NAME: &str = "horizontal-pod-autoscaler";
const FAILED: &str = "FailedComputeMetricsReplicas";

struct Reconciler {
    client: Client,
    recorder: Recorder,
    autoscalers: Informer<HorizontalPodAutoscaler>,
    pods: Informer<Pod>,
    settings: Settings,
    meter: Meter,
    histories: Mutex<HashMap<ObjectKey, History>>,
    /// Which pods each autoscaler counts.
    selectors: Mutex<BTreeMap<ObjectKey, LabelSelector>>,
}

/// Reason and message of an event.
type Complaint = (&'static str, String);

/// The most that any metric asks for, and which one it is.
struct Wish {
    replicas: i32,
    name: String,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        settings: context.config.autoscaling,
        meter: Meter {
            source: Source { client: client.clone(), clock: context.config.clock.clone() },
            mapping: Mapping::new(client.clone()),
        },
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
            // A look at it that is under way may write down something yet: that goes when the key's turn comes.
            Change::Deleted(_) => {
                handler.selectors.lock().remove(&key);
                keys.add(key);
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

fn replicas_of(scale: &Scale) -> i32 {
    scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default()
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(autoscaler) = self.autoscalers.get_key(key) else {
            self.histories.lock().remove(key);
            self.selectors.lock().remove(key);
            return Ok(Action::Done);
        };
        let mut status = autoscaler.status.clone().unwrap_or_default();
        let outcome = self.scale(key, &autoscaler, &mut status).await;
        conditions::stamp(&mut status, &self.meter.source.clock.time());
        if autoscaler.status.as_ref() != Some(&status) {
            let api: Api<HorizontalPodAutoscaler> = Api::namespaced(self.client.clone(), &key.namespace);
            let changed = HorizontalPodAutoscaler { status: Some(status), ..(*autoscaler).clone() };
            match api.replace_status(&key.name, &PostParams::default(), &changed).await {
                Err(error) if !write::is_not_found(&error) => {
                    let problem = write::short(&error);
                    self.recorder.event(&*autoscaler, EventType::Warning, "FailedUpdateStatus", problem);
                }
                _ => {}
            }
        }
        if let Err((reason, problem)) = outcome {
            self.recorder.event(&*autoscaler, EventType::Warning, reason, problem);
        }
        // What is wrong now may be right in the next period; trying faster would not make metrics come.
        Ok(Action::After(self.settings.sync_period))
    }

    async fn scale_at(&self, url: &str) -> Result<Scale, kube::Error> {
        let request = http::Request::get(url).body(Vec::new()).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// Where the target's scale is, and what it says.
    async fn target(&self, namespace: &str, autoscaler: &HorizontalPodAutoscaler) -> Result<(String, Scale), String> {
        let target = &autoscaler.spec.scale_target_ref;
        let (group, _) = group_version(target.api_version.as_deref().unwrap_or_default())?;
        let resource = self.meter.mapping.resource(group, &target.kind).await?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let url = format!("{}/{}/scale", api.resource_url(), target.name);
        let scale = self.scale_at(&url).await.map_err(|error| write::short(&error))?;
        Ok((url, scale))
    }

    async fn scale(
        &self,
        key: &ObjectKey,
        autoscaler: &HorizontalPodAutoscaler,
        status: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<(), Complaint> {
        let spec = &autoscaler.spec;
        let (url, scale) = self.target(&key.namespace, autoscaler).await.map_err(|problem| {
            let message = format!("the HPA controller was unable to get the target's current scale: {problem}");
            conditions::able(status, false, "FailedGetScale", message);
            ("FailedGetScale", problem)
        })?;
        let message = "the HPA controller was able to get the target's current scale";
        conditions::able(status, true, "SucceededGetScale", message);
        let current = replicas_of(&scale);
        self.histories.lock().entry(key.clone()).or_insert_with(|| History::new(current, Instant::now()));
        status.observed_generation = autoscaler.metadata.generation;
        // None is not told: what is written must be what is read back.
        status.current_replicas = (current != 0).then_some(current);
        status.current_metrics = None;
        let least = spec.min_replicas.unwrap_or(1);
        let took_the_last = conditions::is_scaled_to_zero(status);
        let has_outside =
            spec.metrics.iter().flatten().any(|metric| ["Object", "External"].contains(&metric.type_.as_str()));
        let (desired, why) = if current == 0 && !(took_the_last && (least != 0 || has_outside)) {
            let message = "scaling is disabled since the replica count of the target is zero";
            conditions::active(status, false, "ScalingDisabled", message);
            (0, String::new())
        } else if current > spec.max_replicas {
            (spec.max_replicas, "Current number of replicas above Spec.MaxReplicas".to_owned())
        } else if current != 0 && current < least {
            (least, "Current number of replicas below Spec.MinReplicas".to_owned())
        } else {
            let wish = self.measure(key, autoscaler, &scale, status).await?;
            let why = match wish.replicas.cmp(&current) {
                std::cmp::Ordering::Greater => format!("{} above target", wish.name),
                std::cmp::Ordering::Less => "All metrics below target".to_owned(),
                std::cmp::Ordering::Equal => String::new(),
            };
            let bounds = Bounds {
                least,
                most: spec.max_replicas,
                behavior: spec.behavior.as_ref(),
                window: self.settings.downscale_stabilization,
            };
            let decision = {
                let (mut histories, now) = (self.histories.lock(), Instant::now());
                let history = histories.entry(key.clone()).or_insert_with(|| History::new(current, now));
                limits::decide(history, current, wish.replicas, &bounds, now)
            };
            conditions::decided(status, &decision);
            if current == 0 && decision.replicas < least {
                let below = "Current number of replicas below Spec.MinReplicas".to_owned();
                (least, if why.is_empty() { below } else { why })
            } else {
                (decision.replicas, why)
            }
        };
        if desired != current {
            self.rescale(autoscaler, &url, scale, (desired, &why), status).await?;
            conditions::scaled_to_zero(status, desired == 0 && least == 0 && has_outside);
            status.last_scale_time = Some(self.meter.source.clock.time());
            if spec.behavior.is_some()
                && let Some(history) = self.histories.lock().get_mut(key)
            {
                history.scaled(desired - current, Instant::now());
            }
        }
        status.desired_replicas = desired;
        Ok(())
    }

    async fn rescale(
        &self,
        autoscaler: &HorizontalPodAutoscaler,
        url: &str,
        scale: Scale,
        (desired, why): (i32, &str),
        status: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<(), Complaint> {
        let seen = Mutex::new(Some(scale));
        let attempt = async || {
            let known = seen.lock().take();
            let mut scale = match known {
                Some(scale) => scale,
                None => self.scale_at(url).await?,
            };
            scale.spec.get_or_insert_default().replicas = Some(desired);
            let body = serde_json::to_vec(&scale).map_err(kube::Error::SerdeError)?;
            let request = http::Request::put(url).header("content-type", "application/json").body(body);
            self.client.request::<Scale>(request.map_err(kube::Error::HttpError)?).await
        };
        if let Err(error) = write::retry_on_conflict(attempt).await {
            let problem = write::short(&error);
            let message = format!("the HPA controller was unable to update the target scale: {problem}");
            conditions::able(status, false, "FailedUpdateScale", message);
            return Err(("FailedRescale", format!("New size: {desired}; reason: {why}; error: {problem}")));
        }
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        conditions::able(status, true, "SucceededRescale", message);
        let told = format!("New size: {desired}; reason: {why}");
        self.recorder.event(autoscaler, EventType::Normal, "SuccessfulRescale", told);
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

    /// The selector of the scale, and the pods that it selects; where one of both is wrong, nothing is measured.
    fn pods(
        &self,
        key: &ObjectKey,
        autoscaler: &HorizontalPodAutoscaler,
        selector: &str,
        status: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<Vec<Arc<Pod>>, Complaint> {
        let mut refuse = |event: &'static str, reason: &str, message: Option<&str>, problem: String| {
            conditions::active(status, false, reason, message.unwrap_or(&problem));
            self.recorder.event(autoscaler, EventType::Warning, event, problem.clone());
            (FAILED, problem)
        };
        if selector.is_empty() {
            let message = Some("the HPA target's scale is missing a selector");
            return Err(refuse("SelectorRequired", "InvalidSelector", message, "selector is required".into()));
        }
        let parsed = LabelSelector::parse(selector).map_err(|error| {
            let problem = format!("couldn't convert selector into a corresponding internal selector object: {error}");
            refuse("InvalidSelector", "InvalidSelector", None, problem)
        })?;
        let mut pods = self.pods.list_in(&key.namespace);
        pods.retain(|pod| matches(&parsed, pod));
        self.selectors.lock().insert(key.clone(), parsed);
        match self.rivals(key, &pods) {
            None => Ok(pods),
            Some(others) => {
                let problem =
                    format!("pods by selector {selector} are controlled by more than one HPA (e.g. [{others}])");
                Err(refuse("AmbiguousSelector", "AmbiguousSelector", None, problem))
            }
        }
    }

    /// The most that any metric asks for. With one missing, nothing may shrink on what the others say.
    async fn measure(
        &self,
        key: &ObjectKey,
        autoscaler: &HorizontalPodAutoscaler,
        scale: &Scale,
        status: &mut HorizontalPodAutoscalerStatus,
    ) -> Result<Wish, Complaint> {
        let selector = scale.status.as_ref().and_then(|status| status.selector.clone()).unwrap_or_default();
        let pods = self.pods(key, autoscaler, &selector, status)?;
        let scaled = Scaled {
            namespace: &key.namespace,
            wanted: replicas_of(scale),
            there: scale.status.as_ref().map_or(0, |status| status.replicas),
            selector: &selector,
            pods: &pods,
            tolerance: measure::tolerance(autoscaler, self.settings.tolerance),
            settings: &self.settings,
            clock: &self.meter.source.clock,
        };
        let metrics = autoscaler.spec.metrics.as_deref().unwrap_or_default();
        let mut wish = Wish { replicas: 0, name: String::new() };
        let mut problems = Vec::new();
        let mut shown: Vec<MetricStatus> = Vec::new();
        for metric in metrics {
            match self.meter.measure(&scaled, metric).await {
                Ok(measured) => {
                    shown.push(measured.status);
                    if wish.replicas == 0 || measured.replicas > wish.replicas {
                        wish = Wish { replicas: measured.replicas, name: measured.name };
                    }
                }
                Err(problem) => {
                    // Who reads it finds each metric where it is in the spec.
                    shown.push(MetricStatus::default());
                    self.recorder.event(autoscaler, EventType::Warning, problem.reason, problem.text.clone());
                    problems.push(problem);
                }
            }
        }
        status.current_metrics = (!shown.is_empty()).then_some(shown);
        let (invalid, all) = (problems.len(), metrics.len());
        match problems.into_iter().next() {
            Some(first) if invalid == all || wish.replicas < scaled.wanted => {
                let message = format!("the HPA was unable to compute the replica count: {}", first.text);
                conditions::active(status, false, first.reason, message);
                let first = format!("{}{}", first.context, first.text);
                Err((FAILED, format!("invalid metrics ({invalid} invalid out of {all}), first error is: {first}")))
            }
            _ => {
                let message = format!("the HPA was able to successfully calculate a replica count from {}", wish.name);
                conditions::active(status, true, "ValidMetricFound", message);
                Ok(wish)
            }
        }
    }
}
