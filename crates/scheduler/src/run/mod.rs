//! The loop: takes in what happens, tries one pod after the other, and sends off what was decided.
//!
//! One task owns the cache and the queue, so that a search sees a state at rest and needs no lock. Whatever talks to
//! the API runs in tasks of its own and reports back through a channel.

mod changes;
mod confirmations;
mod effects;
mod events;
mod permit;
mod verdicts;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{EventType, Informer, Informers, Recorder, Subscription};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::Client;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::extender::{Extender, Extension};
use crate::framework::{Cycle, Events, Failure, Happening, Nomination, Permit, Point, Profile, Search, Surroundings};
use crate::listers::Listers;
use crate::metrics::{Metrics, Outcome};
use crate::model::{Cache, PodInfo};
use crate::nominations::Nominations;
use crate::queue::{Queue, QueuedPod};
use confirmations::Confirmations;
use effects::{Binding, Effects, Report};
use permit::Wait;
pub use verdicts::Verdicts;

/// Searches between two looks at what happened, so that a long queue does not starve the rest of the runtime.
const SEARCHES_IN_A_ROW: usize = 32;
/// How long pods wait for what is known of devices at the start: not every API server has them.
const DEVICES_PATIENCE: Duration = Duration::from_secs(10);
/// One search in so many has its points timed.
const TIMED: u64 = 10;

/// A pod that was to be placed is not: its node and its devices are free again.
const RELEASED: Events = Events::POD_GONE.and(Events::RESOURCE_CLAIM);

/// A running scheduler.
#[derive(Clone)]
pub struct Scheduler {
    verdicts: Verdicts,
    metrics: Arc<Metrics>,
}

impl Scheduler {
    /// Why pods found no node at their last attempt, per node and plugin.
    pub fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// The same of one pod as JSON, for those who ask why it waits.
    pub fn explanation(&self, namespace: &str, name: &str) -> Option<String> {
        self.verdicts.of(namespace, name).map(|diagnosis| diagnosis.to_json().to_string())
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }
}

/// What the loop runs with.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) profiles: Arc<HashMap<String, Profile>>,
    pub(crate) initial_backoff: Duration,
    pub(crate) longest_backoff: Duration,
    pub(crate) extenders: Arc<[Extender]>,
    /// How long a bound pod counts although the API server does not tell of it.
    pub(crate) longest_assumption: Duration,
}

pub(crate) fn start(settings: Settings, client: Client, informers: &Informers, tasks: &Tasks) -> Scheduler {
    start_with(settings, client, informers.of(), informers.of(), Listers::new(informers), tasks)
}

fn start_with(
    settings: Settings,
    client: Client,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    listers: Listers,
    tasks: &Tasks,
) -> Scheduler {
    let Settings { profiles, initial_backoff, longest_backoff, extenders, longest_assumption } = settings;
    let verdicts = Verdicts::default();
    let metrics = Arc::new(Metrics::default());
    let recorders: HashMap<String, Recorder> =
        profiles.keys().map(|name| (name.clone(), Recorder::new(client.clone(), name, tasks))).collect();
    for (name, recorder) in &recorders {
        if let Some(profile) = profiles.get(name) {
            profile.begin(Surroundings { listers: &listers, recorder, tasks });
        }
    }
    let scheduler = Scheduler { verdicts: verdicts.clone(), metrics: metrics.clone() };
    let group = tasks.clone();
    // Everything it knows comes from the informers again: bindings of an earlier life that are under way are seen there,
    // and a second one of the same pod is refused by the API server.
    tasks.spawn_critical("scheduler", move || {
        let (reports, incoming) = mpsc::unbounded_channel();
        let effects = Effects::new(
            client.clone(),
            recorders.clone(),
            profiles.clone(),
            extenders.clone(),
            reports,
            metrics.clone(),
            group.clone(),
        );
        let run = SchedulingLoop {
            cache: Cache::default(),
            nominations: Nominations::default(),
            queue: Queue::new(profiles.clone(), initial_backoff, longest_backoff),
            extenders: extenders.clone(),
            listers: listers.clone(),
            start: 0,
            profiles: profiles.clone(),
            effects,
            verdicts: verdicts.clone(),
            metrics: metrics.clone(),
            attempts: 0,
            confirmations: Confirmations::new(longest_assumption),
        };
        run.run(pods.clone(), nodes.clone(), incoming)
    });
    scheduler
}

struct SchedulingLoop {
    profiles: Arc<HashMap<String, Profile>>,
    cache: Cache,
    nominations: Nominations,
    queue: Queue,
    extenders: Arc<[Extender]>,
    listers: Listers,
    /// Where in the nodes' order the next search begins.
    start: usize,
    effects: Effects,
    verdicts: Verdicts,
    metrics: Arc<Metrics>,
    attempts: u64,
    confirmations: Confirmations,
}

struct Streams {
    pods: Subscription<Pod>,
    nodes: Subscription<Node>,
    namespaces: Subscription<Namespace>,
    claims: Subscription<PersistentVolumeClaim>,
    volumes: Subscription<PersistentVolume>,
    classes: Subscription<StorageClass>,
    csi_nodes: Subscription<CSINode>,
    device_claims: Subscription<ResourceClaim>,
    device_classes: Subscription<DeviceClass>,
    slices: Subscription<ResourceSlice>,
    taint_rules: Subscription<DeviceTaintRule>,
    reports: mpsc::UnboundedReceiver<Report>,
}

impl SchedulingLoop {
    async fn run(mut self, pods: Informer<Pod>, nodes: Informer<Node>, reports: mpsc::UnboundedReceiver<Report>) {
        nodes.synced().await;
        pods.synced().await;
        self.listers.namespaces.synced().await;
        // Whoever does not know which devices are taken would give them away twice.
        let devices = self.listers.devices.clone();
        if tokio::time::timeout(DEVICES_PATIENCE, devices.synced()).await.is_err() {
            tracing::warn!("claims of devices are not known: pods that have some are not scheduled");
        }
        let mut streams = Streams {
            pods: pods.subscribe(),
            nodes: nodes.subscribe(),
            namespaces: self.listers.namespaces.subscribe(),
            claims: self.listers.claims.subscribe(),
            volumes: self.listers.volumes.subscribe(),
            classes: self.listers.classes.subscribe(),
            csi_nodes: self.listers.csi_nodes.subscribe(),
            device_claims: devices.claims.subscribe(),
            device_classes: devices.classes.subscribe(),
            slices: devices.slices.subscribe(),
            taint_rules: devices.rules.subscribe(),
            reports,
        };
        loop {
            self.drain(&mut streams);
            self.expire();
            let mut idle = false;
            for _ in 0..SEARCHES_IN_A_ROW {
                match self.queue.pop(Instant::now()) {
                    Some(queued) => self.attempt(&queued, None),
                    None => {
                        idle = true;
                        break;
                    }
                }
            }
            self.tell_sizes();
            if idle {
                self.wait(&mut streams).await;
            } else {
                tokio::task::yield_now().await;
            }
        }
    }

    fn tell_sizes(&mut self) {
        for (queue, count) in self.queue.sizes() {
            self.metrics.pending(queue, count);
        }
        for (queue, event, count) in self.queue.arrivals() {
            self.metrics.incoming(queue, event, count);
        }
        for (plugin, profile, count) in self.queue.rejected() {
            self.metrics.unschedulable(plugin, &profile, count);
        }
        self.metrics.binding(self.queue.in_flight());
        for (kind, count) in [
            ("nodes", self.cache.node_count()),
            ("pods", self.cache.pod_count()),
            ("assumed_pods", self.cache.assumed_count()),
        ] {
            self.metrics.cache_size(kind, count);
        }
    }

    /// Gives up on bound pods that the API server never told of.
    fn expire(&mut self) {
        let now = Instant::now();
        while let Some(uid) = self.confirmations.overdue(now, &self.cache) {
            let Some(pod) = self.cache.placement(&uid).map(|(pod, _)| pod.clone()) else { continue };
            tracing::warn!(pod = pod.full_name(), "a pod was bound, but the API server does not tell of it");
            self.cache.forget(&uid);
            self.queue.happen(&Happening::of_pod(Events::POD_GONE, &pod), now);
        }
    }

    /// Nodes before pods, so that a pod's first attempt sees the nodes that came with it.
    fn drain(&mut self, streams: &mut Streams) {
        while let Some(change) = streams.namespaces.try_next() {
            self.namespace_changed(&change);
        }
        while let Some(change) = streams.nodes.try_next() {
            self.node_changed(&change);
        }
        while let Some(change) = streams.pods.try_next() {
            self.pod_changed(&change);
        }
        while let Ok(report) = streams.reports.try_recv() {
            self.reported(report);
        }
        let storage = std::iter::from_fn(|| streams.claims.try_next()).count()
            + std::iter::from_fn(|| streams.volumes.try_next()).count()
            + std::iter::from_fn(|| streams.classes.try_next()).count()
            + std::iter::from_fn(|| streams.csi_nodes.try_next()).count();
        if storage > 0 {
            self.happened(Events::STORAGE);
        }
        while let Some(change) = streams.device_claims.try_next() {
            self.claim_changed(&change);
        }
        let classes = std::iter::from_fn(|| streams.device_classes.try_next()).count();
        if classes > 0 {
            self.happened(Events::DEVICE_CLASS);
        }
        let offers = std::iter::from_fn(|| streams.slices.try_next()).count()
            + std::iter::from_fn(|| streams.taint_rules.try_next()).count();
        if offers > 0 {
            self.happened(Events::RESOURCE_SLICE);
        }
    }

    async fn wait(&mut self, streams: &mut Streams) {
        let deadline = self.queue.next_deadline().into_iter().chain(self.confirmations.next_deadline()).min();
        let timer = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            change = streams.nodes.next() => self.node_changed(&change),
            change = streams.pods.next() => self.pod_changed(&change),
            Some(report) = streams.reports.recv() => self.reported(report),
            change = streams.namespaces.next() => self.namespace_changed(&change),
            _ = streams.claims.next() => self.happened(Events::STORAGE),
            _ = streams.volumes.next() => self.happened(Events::STORAGE),
            _ = streams.classes.next() => self.happened(Events::STORAGE),
            _ = streams.csi_nodes.next() => self.happened(Events::STORAGE),
            change = streams.device_claims.next() => self.claim_changed(&change),
            _ = streams.device_classes.next() => self.happened(Events::DEVICE_CLASS),
            _ = streams.slices.next() => self.happened(Events::RESOURCE_SLICE),
            _ = streams.taint_rules.next() => self.happened(Events::RESOURCE_SLICE),
            () = timer => {}
        }
    }

    fn happened(&mut self, events: Events) {
        self.queue.happen(&Happening::of(events), Instant::now());
    }

    /// One pod from the queue to a decision.
    fn attempt(&mut self, queued: &QueuedPod, extension: Option<&Extension>) {
        let pod = &queued.pod;
        let profiles = self.profiles.clone();
        let Some(profile) = profiles.get(&pod.scheduler) else { return self.queue.remove(&pod.uid) };
        let cycle = Cycle { pod, cache: &self.cache, listers: &self.listers };
        let begin = std::time::Instant::now();
        self.attempts += 1;
        let timed = self.attempts.is_multiple_of(TIMED);
        let metrics = timed.then_some(&*self.metrics);
        let search = Search { cycle, profile, nominations: &self.nominations, extension, metrics };
        if extension.is_none() && self.extenders.iter().any(|extender| extender.takes_part() && extender.concerns(pod))
        {
            match search.feasible(&mut self.start) {
                Ok((nodes, _)) => {
                    let nodes = nodes.iter().filter_map(|node| node.node.clone()).collect();
                    self.effects.extend(queued.clone(), nodes);
                }
                Err(failure) => self.unplaced(pod, failure, begin),
            }
            return;
        }
        let found = search.run(&mut self.start);
        self.metrics.algorithm(begin.elapsed());
        match found {
            Ok(placed) => {
                let node = placed.node;
                self.placed(profile, Binding { queued: queued.clone(), node, begin, timed });
            }
            Err(failure) => self.unplaced(pod, failure, begin),
        }
    }

    fn placed(&mut self, profile: &Profile, binding: Binding) {
        let Binding { queued, node, timed, .. } = &binding;
        let pod = &queued.pod;
        self.cache.assume(pod.clone(), node);
        self.nominations.remove(&pod.uid);
        let metrics = timed.then_some(&*self.metrics);
        let cycle = Cycle { pod, cache: &self.cache, listers: &self.listers };
        let reserved = permit::timed(metrics, "Reserve", profile, || {
            profile.at(Point::Reserve).try_for_each(|(_, registered)| {
                let reserved = registered.plugin.reserve(&cycle, node);
                reserved.map_err(|rejection| (registered.plugin.name(), rejection.message()))
            })
        });
        let permitted = reserved.and_then(|()| {
            permit::timed(metrics, "Permit", profile, || {
                let mut waits = Vec::new();
                for (_, registered) in profile.at(Point::Permit) {
                    let plugin = registered.plugin.name();
                    match registered.plugin.permit(pod, node) {
                        Permit::Allow => {}
                        Permit::Wait { longest, decision } => waits.push(Wait { plugin, longest, decision }),
                        Permit::Reject(reason) => return Err((plugin, reason)),
                    }
                }
                Ok(waits)
            })
        });
        match permitted {
            Ok(waits) => {
                self.verdicts.forget(pod);
                self.effects.bind(binding, waits);
            }
            Err((plugin, reason)) => {
                self.effects.unreserve(profile, pod, node);
                self.refused(&binding, plugin, &reason);
            }
        }
    }

    /// A plugin did not let the pod have the node that was found for it.
    fn refused(&mut self, binding: &Binding, plugin: &'static str, reason: &str) {
        let Binding { queued, begin, .. } = binding;
        let pod = &queued.pod;
        self.cache.forget(&pod.uid);
        self.metrics.attempt(&pod.scheduler, Outcome::Unschedulable, begin.elapsed());
        let message = format!("0/1 nodes are available: 1 {reason}.");
        self.effects.unscheduled(pod, "Unschedulable", &message, &Nomination::Clear);
        self.queue.failed(&pod.uid, vec![plugin], Instant::now());
    }

    fn unplaced(&mut self, pod: &Arc<PodInfo>, failure: Failure, begin: std::time::Instant) {
        let message = failure.message();
        let now = Instant::now();
        let outcome = if matches!(failure, Failure::Error(_)) { Outcome::Error } else { Outcome::Unschedulable };
        self.metrics.attempt(&pod.scheduler, outcome, begin.elapsed());
        match failure {
            Failure::Error(_) => {
                self.queue.errored(&pod.uid, now);
                self.nominations.remove(&pod.uid);
                self.effects.unscheduled(pod, "SchedulerError", &message, &Nomination::Clear);
            }
            Failure::NoNodes => {
                // Any node at all may help.
                let rejecting = vec!["NodeResourcesFit", "NodeName"];
                self.queue.failed(&pod.uid, rejecting, now);
                self.effects.unscheduled(pod, "Unschedulable", &message, &Nomination::Clear);
            }
            Failure::Unfit { diagnosis, nomination, preemption } => {
                match &nomination {
                    Nomination::Keep => {}
                    Nomination::Clear => self.nominations.remove(&pod.uid),
                    Nomination::Set(node) => self.nominations.set(pod.clone(), node),
                }
                let mut rejecting = diagnosis.plugins.clone();
                if preemption.is_some() {
                    rejecting.push("DefaultPreemption");
                }
                if self.profiles.get(&pod.scheduler).is_some_and(|p| p.at(Point::PostFilter).next().is_some()) {
                    self.metrics.tried_to_preempt();
                }
                self.queue.failed(&pod.uid, rejecting, now);
                self.verdicts.remember(pod, *diagnosis);
                self.effects.unscheduled(pod, "Unschedulable", &message, &nomination);
                if let Some(preemption) = preemption {
                    self.metrics.preempted(preemption.victims.len());
                    self.effects.preempt(pod.clone(), preemption);
                }
            }
        }
    }

    fn reported(&mut self, report: Report) {
        match report {
            Report::Extended { queued, outcome } => {
                // It may have been deleted or placed by someone else meanwhile.
                let Some(pod) = self.queue.get(&queued.pod.uid).cloned() else { return };
                let queued = QueuedPod { pod, ..queued };
                match outcome {
                    Ok(extension) => self.attempt(&queued, Some(&extension)),
                    Err(error) => {
                        self.effects.unscheduled(&queued.pod, "SchedulerError", &error, &Nomination::Clear);
                        self.queue.errored(&queued.pod.uid, Instant::now());
                    }
                }
            }
            Report::NotPreempted { pod, again } => {
                // It may have been deleted, or is being placed elsewhere.
                let waits = self.queue.contains(&pod.uid) && !self.cache.is_assumed(&pod.uid);
                if waits && (!again || self.queue.give_up_waiting(&pod.uid, Instant::now())) {
                    self.nominations.remove(&pod.uid);
                    self.effects.clear_nomination(&pod);
                }
            }
            Report::Refused { binding, plugin, reason } => {
                let pod = &binding.queued.pod;
                if !self.queue.contains(&pod.uid) {
                    return self.cache.forget(&pod.uid);
                }
                self.refused(&binding, plugin, &reason);
                self.queue.happen(&Happening::of_pod(RELEASED, pod), Instant::now());
            }
            Report::Bound(Binding { queued, node, begin, .. }) => {
                let pod = &queued.pod;
                self.metrics.attempt(&pod.scheduler, Outcome::Scheduled, begin.elapsed());
                self.metrics.bound(queued.attempts, queued.first.elapsed());
                // The informer may tell of it later; until then it stays assumed.
                self.queue.remove(&pod.uid);
                self.confirmations.expect(&pod.uid, Instant::now(), &self.cache);
                let message = format!("Successfully assigned {} to {node}", pod.full_name());
                self.effects.event(pod, EventType::Normal, "Scheduled", &message);
            }
            Report::NotBound(Binding { queued, node, begin, .. }, error) => {
                let pod = &queued.pod;
                self.metrics.attempt(&pod.scheduler, Outcome::Error, begin.elapsed());
                self.cache.forget(&pod.uid);
                let confirmed = self.cache.placement(&pod.uid).is_some();
                if confirmed || !self.queue.contains(&pod.uid) {
                    return self.queue.remove(&pod.uid);
                }
                self.effects.unscheduled(pod, "SchedulerError", &error, &Nomination::Clear);
                self.queue.errored(&pod.uid, Instant::now());
                tracing::warn!(pod = pod.full_name(), node, "a pod was not bound, trying again: {error}");
                // What it held is free again.
                self.queue.happen(&Happening::of_pod(RELEASED, pod), Instant::now());
            }
        }
    }
}

#[cfg(test)]
mod tests;
