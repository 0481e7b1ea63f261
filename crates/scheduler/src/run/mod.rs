//! The loop: takes in what happens, tries one pod after the other, and sends off what was decided.
//!
//! One task owns the cache and the queue, so that a search sees a state at rest and needs no lock. Whatever talks to
//! the API runs in tasks of its own and reports back through a channel.

mod effects;
mod events;
mod verdicts;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{Change, EventType, Informer, Informers, Recorder, Subscription};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::Client;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::extender::{Extender, Extension};
use crate::framework::{Cycle, Events, Failure, Happening, Nomination, Permit, Point, Profile, Search};
use crate::listers::Listers;
use crate::metrics::{Metrics, Outcome};
use crate::model::{Cache, PodInfo};
use crate::nominations::Nominations;
use crate::queue::{Queue, QueuedPod};
use effects::{Binding, Effects, Report};
pub use verdicts::Verdicts;

/// Searches between two looks at what happened, so that a long queue does not starve the rest of the runtime.
const SEARCHES_IN_A_ROW: usize = 32;
/// One search in so many has its points timed.
const TIMED: u64 = 10;

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
    let Settings { profiles, initial_backoff, longest_backoff, extenders } = settings;
    let verdicts = Verdicts::default();
    let metrics = Arc::new(Metrics::default());
    let (reports, incoming) = mpsc::unbounded_channel();
    let recorders = profiles.keys().map(|name| (name.clone(), Recorder::new(client.clone(), name, tasks))).collect();
    let effects = Effects::new(client, recorders, profiles.clone(), extenders.clone(), reports, tasks.clone());
    let run = Loop {
        cache: Cache::default(),
        nominations: Nominations::default(),
        queue: Queue::new(profiles.clone(), initial_backoff, longest_backoff),
        extenders,
        listers,
        start: 0,
        profiles,
        effects,
        verdicts: verdicts.clone(),
        metrics: metrics.clone(),
        attempts: 0,
    };
    tasks.spawn_until_stopped("scheduler", run.run(pods, nodes, incoming));
    Scheduler { verdicts, metrics }
}

struct Loop {
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
}

struct Streams {
    pods: Subscription<Pod>,
    nodes: Subscription<Node>,
    namespaces: Subscription<Namespace>,
    claims: Subscription<PersistentVolumeClaim>,
    volumes: Subscription<PersistentVolume>,
    classes: Subscription<StorageClass>,
    csi_nodes: Subscription<CSINode>,
    reports: mpsc::UnboundedReceiver<Report>,
}

impl Loop {
    async fn run(mut self, pods: Informer<Pod>, nodes: Informer<Node>, reports: mpsc::UnboundedReceiver<Report>) {
        nodes.synced().await;
        pods.synced().await;
        self.listers.namespaces.synced().await;
        let mut streams = Streams {
            pods: pods.subscribe(),
            nodes: nodes.subscribe(),
            namespaces: self.listers.namespaces.subscribe(),
            claims: self.listers.claims.subscribe(),
            volumes: self.listers.volumes.subscribe(),
            classes: self.listers.classes.subscribe(),
            csi_nodes: self.listers.csi_nodes.subscribe(),
            reports,
        };
        loop {
            self.drain(&mut streams);
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

    fn tell_sizes(&self) {
        for (queue, count) in self.queue.sizes() {
            self.metrics.pending(queue, count);
        }
        for (kind, count) in [
            ("nodes", self.cache.node_count()),
            ("pods", self.cache.pod_count()),
            ("assumed_pods", self.cache.assumed_count()),
        ] {
            self.metrics.cache_size(kind, count);
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
    }

    async fn wait(&mut self, streams: &mut Streams) {
        let deadline = self.queue.next_deadline();
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
            () = timer => {}
        }
    }

    fn happened(&mut self, events: Events) {
        self.queue.happen(&Happening { events, node: None, pod: None }, Instant::now());
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
            Ok(placed) => self.placed(profile, queued, &placed.node, begin),
            Err(failure) => self.unplaced(pod, failure, begin),
        }
    }

    fn placed(&mut self, profile: &Profile, queued: &QueuedPod, node: &str, begin: std::time::Instant) {
        let pod = &queued.pod;
        self.cache.assume(pod.clone(), node);
        self.nominations.remove(&pod.uid);
        let cycle = Cycle { pod, cache: &self.cache, listers: &self.listers };
        let reserved = profile.at(Point::Reserve).find_map(|(_, registered)| {
            registered
                .plugin
                .reserve(&cycle, node)
                .err()
                .map(|rejection| (registered.plugin.name(), rejection.message()))
        });
        let mut wait = Duration::ZERO;
        let refused = reserved.or_else(|| {
            profile.at(Point::Permit).find_map(|(_, registered)| match registered.plugin.permit(pod, node) {
                Permit::Allow => None,
                Permit::Wait(longest) => {
                    wait = wait.max(longest);
                    None
                }
                Permit::Reject(reason) => Some((registered.plugin.name(), reason)),
            })
        });
        if let Some((plugin, reason)) = refused {
            self.effects.unreserve(profile, pod, node);
            self.cache.forget(&pod.uid);
            let message = format!("0/1 nodes are available: 1 {reason}.");
            self.metrics.attempt(&pod.scheduler, Outcome::Unschedulable, begin.elapsed());
            self.effects.unscheduled(pod, "Unschedulable", &message, &Nomination::Clear);
            self.queue.failed(&pod.uid, vec![plugin], Instant::now());
            return;
        }
        self.verdicts.forget(pod);
        self.effects.bind(Binding { queued: queued.clone(), node: node.to_owned(), begin }, wait);
    }

    fn unplaced(&mut self, pod: &Arc<PodInfo>, failure: Failure, begin: std::time::Instant) {
        self.metrics.attempt(&pod.scheduler, Outcome::Unschedulable, begin.elapsed());
        let message = failure.message();
        let now = Instant::now();
        match failure {
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
            Report::Bound(Binding { queued, node, begin }) => {
                let pod = &queued.pod;
                self.metrics.attempt(&pod.scheduler, Outcome::Scheduled, begin.elapsed());
                self.metrics.bound(queued.attempts, queued.first.elapsed());
                // The informer may tell of it later; until then it stays assumed.
                self.queue.remove(&pod.uid);
                let message = format!("Successfully assigned {} to {node}", pod.full_name());
                self.effects.event(pod, EventType::Normal, "Scheduled", &message);
            }
            Report::NotBound(Binding { queued, node, begin }, error) => {
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
                let happening = Happening { events: Events::POD_GONE, node: None, pod: Some(pod) };
                self.queue.happen(&happening, Instant::now());
            }
        }
    }

    fn namespace_changed(&mut self, change: &Change<Namespace>) {
        let namespace = change.object();
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        let gone = matches!(change, Change::Deleted(_));
        let labels = (!gone).then(|| namespace.metadata.labels.clone().unwrap_or_default());
        self.cache.set_namespace(name, labels);
        self.happened(Events::NAMESPACE);
    }

    fn node_changed(&mut self, change: &Change<Node>) {
        let node = change.object();
        let name = node.metadata.name.clone().unwrap_or_default();
        let events = events::of_node(change);
        match change {
            Change::Deleted(_) => self.cache.remove_node(&name),
            _ => self.cache.set_node(node.clone()),
        }
        if !events.is_none() {
            let node = self.cache.node(&name);
            self.queue.happen(&Happening { events, node, pod: None }, Instant::now());
        }
    }

    fn pod_changed(&mut self, change: &Change<Pod>) {
        let object = change.object();
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let was_assumed = self.cache.is_assumed(uid);
        if !matches!(change, Change::Deleted(_)) && self.cache.confirm(object) {
            // What was assumed came true, or only the status changed.
            self.queue.remove(uid);
            self.nominations.remove(uid);
            if was_assumed && let Some((pod, _)) = self.cache.placement(uid) {
                let happening = Happening { events: Events::POD_PLACED, node: None, pod: Some(pod) };
                self.queue.happen(&happening, Instant::now());
            }
            return;
        }
        let pod = Arc::new(PodInfo::new(change.object().clone()));
        let placed = pod.node_name().is_some();
        let counted_before = self.cache.placement(&pod.uid).map(|(pod, _)| pod.clone());
        let now = Instant::now();
        if matches!(change, Change::Deleted(_)) || (placed && pod.has_ended()) {
            let was_counted = self.cache.remove_pod(&pod.uid);
            self.nominations.remove(&pod.uid);
            self.queue.remove(&pod.uid);
            self.verdicts.forget(&pod);
            if was_counted {
                self.queue.happen(&Happening { events: Events::POD_GONE, node: None, pod: Some(&pod) }, now);
            }
        } else if placed {
            self.queue.remove(&pod.uid);
            self.nominations.remove(&pod.uid);
            self.verdicts.forget(&pod);
            self.cache.set_pod(pod.clone());
            let counted_before = counted_before.filter(|_| !was_assumed);
            let events = events::of_placed_pod(counted_before.as_deref(), &pod);
            if !events.is_none() {
                self.queue.happen(&Happening { events, node: None, pod: Some(&pod) }, now);
            }
        } else if !self.cache.is_assumed(&pod.uid) || self.queue.contains(&pod.uid) {
            // An assumed pod that the queue no longer knows is bound already: this is older news.
            if let Some(node) = pod.nominated_node()
                && self.nominations.node_of(&pod.uid).is_none()
            {
                // From before a restart, or set by someone else.
                self.nominations.set(pod.clone(), node);
            }
            self.queue.set(pod, events::matters(change), now);
        }
    }
}

#[cfg(test)]
mod tests;
