//! Keeps the node alive: when memory, disk or processes run short, pods have to go; and a pod that has more on disk
//! than it said it would goes at any time.
//!
//! `settings` says when something is short, `measure` looks, `plan` judges, `rank` and `limits` say who has to go and
//! what it is told. Only [`Evictor`] acts: it asks the pod's worker to end, as for a deletion.

pub(crate) mod limits;
pub(crate) mod measure;
mod plan;
mod rank;
mod settings;
pub(crate) mod usage;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::EventType;
use ferry_semantics::taints;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

pub(crate) use settings::Pressure;
pub use settings::{Amount, Eviction, SettingsError, Signal, Statements, Threshold};

use crate::collect;
use crate::context::Context;
use crate::events::PodEvents;
use crate::mailboxes::Mailboxes;
use crate::node;
use crate::pod;
use crate::status::WaitReason;
use crate::worker::{EndReason, Mailbox};
use plan::{History, Readings};
use rank::Candidate;
pub(crate) use rank::is_critical;

const REASON: &str = "Evicted";
/// How often the node is looked at.
const PERIOD: Duration = Duration::from_secs(10);
/// A pod gets this long to end when the shortage leaves no time.
const AT_ONCE: i64 = 1;
/// How long an evicted pod is waited for before the next look.
const CLEANED_WITHIN: Duration = Duration::from_secs(30);

/// How many pods the kubelet ended, for `/metrics`: by what was short, or by the limit that they exceeded.
#[derive(Default)]
pub(crate) struct Ended {
    evicted: Mutex<BTreeMap<String, u64>>,
    preempted: Mutex<BTreeMap<String, u64>>,
}

impl Ended {
    fn evicted(&self, signal: &str) {
        *self.evicted.lock().entry(signal.to_owned()).or_default() += 1;
    }

    pub(crate) fn preempted(&self, resource: &str) {
        *self.preempted.lock().entry(resource.to_owned()).or_default() += 1;
    }

    /// In the format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (name, help, label, counts) in [
            (
                "kubelet_evictions",
                "Cumulative number of pod evictions by eviction signal",
                "eviction_signal",
                &self.evicted,
            ),
            (
                "kubelet_preemptions",
                "Cumulative number of pod preemptions by preemption resource",
                "preemption_signal",
                &self.preempted,
            ),
        ] {
            text += &format!("# HELP {name} {help}\n# TYPE {name} counter\n");
            for (signal, count) in counts.lock().iter() {
                text += &format!("{name}{{{label}=\"{signal}\"}} {count}\n");
            }
        }
        text
    }
}

/// What a node that is short of memory is tainted with.
const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";

/// Whether the node takes a new pod in spite of its shortages; why not otherwise.
pub(crate) fn refusal(pod: &Pod, pressures: &[Pressure]) -> Option<WaitReason> {
    if pressures.is_empty() || is_critical(pod) {
        return None;
    }
    let tolerates_memory = || {
        let taint = taints::Taint { key: MEMORY_PRESSURE, value: "", effect: taints::NO_SCHEDULE };
        taints::tolerated(pod::spec(pod).tolerations.iter().flatten(), taint)
    };
    // Too little memory is a matter of those alone that did not say how much they need.
    if pressures == [Pressure::Memory] && (pod::qos_class(pod) != "BestEffort" || tolerates_memory()) {
        return None;
    }
    let names: Vec<&str> = pressures.iter().map(|pressure| pressure.condition()).collect();
    Some(WaitReason { reason: REASON.into(), message: format!("The node had condition: [{}]. ", names.join(" ")) })
}

pub(crate) struct Evictor {
    pub(crate) context: Arc<Context>,
    pub(crate) mailboxes: Mailboxes,
}

impl Evictor {
    /// Looks at the node now and then, for ever.
    pub(crate) async fn run(self) {
        let mut history = History::default();
        loop {
            let evicted = self.look(&mut history).await;
            if evicted.is_empty() {
                tokio::time::sleep(PERIOD).await;
                continue;
            }
            // What a pod held is given back only once it has ended: to look sooner would be to evict too many.
            let ends = futures::future::join_all(evicted.iter().map(|mailbox| mailbox.finished()));
            if tokio::time::timeout(CLEANED_WITHIN, ends).await.is_err() {
                tracing::warn!("evicted pods take long to end");
            }
        }
    }

    async fn look(&self, history: &mut History) -> Vec<Arc<Mailbox>> {
        let context = &self.context;
        let settings = &context.config.eviction;
        let (readings, dedicated) = measure::node(context).await;
        let judged = plan::judge(settings, history, &readings, context.clock.now());
        context.pressure.signals.send_if_modified(|known| {
            let changed = *known != judged.pressures;
            known.clone_from(&judged.pressures);
            changed
        });
        let active = self.mailboxes.active();
        let pods: Vec<Arc<Pod>> = active.iter().map(|mailbox| mailbox.pod()).collect();
        context.pressure.measures.forget_all_but(&pods.iter().map(|pod| pod::uid(pod)).collect::<HashSet<_>>());
        let limited: Vec<&Pod> = pods.iter().map(|pod| &**pod).filter(|pod| limits::has_limits(pod)).collect();
        if !limited.is_empty() {
            let evicted = self.enforce_limits(&active, &limited, dedicated).await;
            if !evicted.is_empty() {
                return evicted;
            }
        }
        let Some(urgent) = judged.due.first() else { return Vec::new() };
        let resource = urgent.signal.resource();
        tracing::warn!("the node is short of {resource} ({})", urgent.signal.name());
        let message = format!("Attempting to reclaim {resource}");
        context.recorder.event_for(node::reference(context), EventType::Warning, "EvictionThresholdMet", message);
        if self.reclaim(urgent.signal, dedicated).await {
            return Vec::new();
        }
        self.evict_one(&active, &judged.due, &readings, dedicated).await
    }

    async fn enforce_limits(&self, active: &[Arc<Mailbox>], limited: &[&Pod], dedicated: bool) -> Vec<Arc<Mailbox>> {
        let used = measure::pods(&self.context, limited).await;
        let mut evicted = Vec::new();
        for mailbox in active {
            let pod = mailbox.pod();
            let Some(usage) = used.get(pod::uid(&pod)) else { continue };
            if let Some((limit, why)) = limits::exceeded(&pod, usage, dedicated)
                && self.evict(mailbox, &pod, AT_ONCE, why, false)
            {
                self.context.pressure.ended.evicted(limit);
                evicted.push(mailbox.clone());
            }
        }
        evicted
    }

    /// Gives back what nobody needs. True when that was enough.
    async fn reclaim(&self, signal: Signal, dedicated: bool) -> bool {
        let of_node = matches!(signal, Signal::NodeFsAvailable | Signal::NodeFsInodesFree);
        // What can be given back lies with the images.
        if signal.pressure() != Pressure::Disk || (of_node && dedicated) {
            return false;
        }
        collect::all_ended_containers(&self.context, &self.mailboxes).await;
        if let Err(why) = self.context.pressure.images.remove_unused(&self.context).await {
            tracing::warn!("images not removed: {why}");
        }
        let (readings, _) = measure::node(&self.context).await;
        self.context.config.eviction.is_made_good(&readings)
    }

    async fn evict_one(
        &self,
        active: &[Arc<Mailbox>],
        due: &[Threshold],
        readings: &Readings,
        dedicated: bool,
    ) -> Vec<Arc<Mailbox>> {
        let Some(urgent) = due.first() else { return Vec::new() };
        let settings = &self.context.config.eviction;
        let pods: Vec<Arc<Pod>> = active.iter().map(|mailbox| mailbox.pod()).collect();
        let plain: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let used = measure::pods(&self.context, &plain).await;
        let mut candidates: Vec<Candidate<'_>> = plain.iter().map(|pod| (*pod, used.get(pod::uid(pod)))).collect();
        rank::order(urgent.signal, dedicated, &mut candidates);
        for candidate in candidates {
            let pod = candidate.0;
            let own = pod::spec(pod).termination_grace_period_seconds.unwrap_or(30);
            let grace = match settings.longest_grace {
                _ if urgent.is_hard() => AT_ONCE,
                negative if negative < 0 => own,
                longest => longest.min(own),
            };
            let message = rank::message(settings, urgent.signal.resource(), candidate, due, readings);
            let Some(mailbox) = active.iter().find(|mailbox| mailbox.is_of(pod::uid(pod))) else { continue };
            if self.evict(mailbox, pod, grace.max(AT_ONCE), message, true) {
                self.context.pressure.ended.evicted(urgent.signal.name());
                return vec![mailbox.clone()];
            }
        }
        tracing::warn!("no pod can be evicted");
        Vec::new()
    }

    /// `disrupts`: for the node's sake, and not the pod's own fault.
    fn evict(&self, mailbox: &Mailbox, pod: &Pod, grace: i64, message: String, disrupts: bool) -> bool {
        if is_critical(pod) {
            return false;
        }
        tracing::warn!(pod = pod::name(pod), namespace = pod::namespace(pod), "evicted: {message}");
        let events = PodEvents { recorder: &self.context.recorder, pod };
        events.pod(EventType::Warning, REASON, message.clone());
        mailbox.end_for(
            EndReason {
                disrupts: disrupts.then(|| message.clone()),
                why: WaitReason { reason: REASON.into(), message },
            },
            grace,
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn those_that_were_ended_are_counted() {
        let ended = Ended::default();
        ended.evicted("memory.available");
        ended.evicted("memory.available");
        ended.preempted("cpu");
        let text = ended.text();
        assert!(text.contains("kubelet_evictions{eviction_signal=\"memory.available\"} 2\n"), "{text}");
        assert!(text.contains("kubelet_preemptions{preemption_signal=\"cpu\"} 1\n"), "{text}");
    }

    #[test]
    fn a_node_short_of_something_takes_fewer_pods() {
        let check = |spec: Value, pressures: &[Pressure], want: Option<&str>| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod");
            assert_eq!(refusal(&pod, pressures).map(|r| r.message).as_deref(), want, "{spec} {pressures:?}");
        };
        let plain = json!({"containers": [{"name": "a"}]});
        let asking = json!({"containers": [{"name": "a", "resources": {"requests": {"memory": "1Mi"}}}]});
        let critical = json!({"containers": [{"name": "a"}], "priority": 2_000_001_000});
        let tolerant = json!({"containers": [{"name": "a"}], "tolerations": [
            {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}]});
        let short_of_memory = Some("The node had condition: [MemoryPressure]. ");
        let short_of_both = Some("The node had condition: [MemoryPressure DiskPressure]. ");
        check(plain.clone(), &[], None);
        check(plain.clone(), &[Pressure::Memory], short_of_memory);
        check(asking.clone(), &[Pressure::Memory], None);
        check(tolerant.clone(), &[Pressure::Memory], None);
        for spec in [plain, asking, tolerant] {
            check(spec, &[Pressure::Memory, Pressure::Disk], short_of_both);
        }
        check(critical, &[Pressure::Memory, Pressure::Disk, Pressure::Processes], None);
    }
}
