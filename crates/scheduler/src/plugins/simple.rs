//! Plugins of a few lines: SchedulingGates, PrioritySort, NodeName, NodeUnschedulable, NodePorts.

use std::cmp::Ordering;

use ferry_semantics::host_ports::HostPorts;
use ferry_semantics::taints::{Taint, tolerated};

use crate::framework::{Cycle, Data, Events, Happening, Plugin, Point, PreFilter, Rejection, Verdict};
use crate::model::taints::{NO_SCHEDULE, UNSCHEDULABLE};
use crate::model::{NodeInfo, PodInfo};
use crate::queue::QueuedPod;

/// Keeps pods out of the queue while their gates stand.
pub(super) struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreEnqueue]
    }

    fn pre_enqueue(&self, pod: &PodInfo) -> Verdict {
        match pod.gates.is_empty() {
            true => Ok(()),
            false => Err(Rejection::firm(format!("waiting for scheduling gates: [{}]", pod.gates.join(" ")))),
        }
    }
}

/// Higher priority first, then the one that waits longer.
pub(super) struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::QueueSort]
    }

    fn order(&self, left: &QueuedPod, right: &QueuedPod) -> Ordering {
        let key = |queued: &QueuedPod| (std::cmp::Reverse(queued.pod.priority), queued.since, queued.sequence);
        key(left).cmp(&key(right))
    }
}

/// A pod that names its node goes there or nowhere.
pub(super) struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED
    }

    fn concerns(&self, cycle: &Cycle<'_>) -> bool {
        cycle.pod.node_name().is_some()
    }

    fn filter(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> Verdict {
        match cycle.pod.node_name() {
            Some(name) if name != &*node.name => Err(Rejection::firm("node(s) didn't match the requested node name")),
            _ => Ok(()),
        }
    }
}

/// Cordoned nodes take only pods that tolerate it.
pub(super) struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Filter]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED.and(Events::NODE_TAINTS)
    }

    fn helps(&self, _: &PodInfo, happening: &Happening<'_>) -> bool {
        happening.node.is_none_or(|node| !node.unschedulable)
    }

    fn concerns(&self, cycle: &Cycle<'_>) -> bool {
        cycle.cache.marks().cordoned > 0
    }

    fn filter(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> Verdict {
        if !node.unschedulable {
            return Ok(());
        }
        let taint = Taint { key: UNSCHEDULABLE, value: "", effect: NO_SCHEDULE };
        match tolerated(cycle.pod.tolerations(), taint) {
            true => Ok(()),
            false => Err(Rejection::firm("node(s) were unschedulable")),
        }
    }
}

/// Ports of the node can be had only once.
pub(super) struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED.and(Events::POD_GONE)
    }

    fn helps(&self, pod: &PodInfo, happening: &Happening<'_>) -> bool {
        happening.pod.is_none_or(|gone| {
            !pod.host_ports.is_empty() && gone.host_ports.iter().collect::<HostPorts>().conflict_with(&pod.host_ports)
        })
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        match cycle.pod.host_ports.is_empty() {
            true => PreFilter::Skip,
            false => PreFilter::Continue { data: None, nodes: None },
        }
    }

    fn filter(&self, cycle: &Cycle<'_>, _: Data<'_>, node: &NodeInfo) -> Verdict {
        match node.used_ports.conflict_with(&cycle.pod.host_ports) {
            true => Err(Rejection::preemptible("node(s) didn't have free ports for the requested pod ports")),
            false => Ok(()),
        }
    }
}
