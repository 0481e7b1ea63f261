//! All nodes with their pods, kept by events and by what the scheduler itself has decided but not yet seen confirmed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;

use super::labels::{Labels, NodeRequirement};
use super::node::NodeInfo;
use super::node_sets::{NodeSet, NodeSets};
use super::pod::PodInfo;
use super::taints::{NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE};
use super::tally::{Attitude, Holding, Namespaces, Rule, Tallies, Tally};

/// Where a pod counts.
#[derive(Debug)]
struct Placement {
    slot: u32,
    pod: Arc<PodInfo>,
    /// Decided here, not yet confirmed by the API server.
    assumed: bool,
}

/// How many nodes have something that plugins need not look for otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub repelling: usize,
    pub unwelcoming: usize,
    pub cordoned: usize,
}

impl Marks {
    fn of(node: &NodeInfo) -> Self {
        let has = |effect: &str| node.taints.iter().any(|taint| taint.effect == effect);
        Self {
            repelling: usize::from(has(NO_SCHEDULE) || has(NO_EXECUTE)),
            unwelcoming: usize::from(has(PREFER_NO_SCHEDULE)),
            cordoned: usize::from(node.unschedulable),
        }
    }

    fn add(&mut self, other: Self) {
        self.repelling += other.repelling;
        self.unwelcoming += other.unwelcoming;
        self.cordoned += other.cordoned;
    }

    fn subtract(&mut self, other: Self) {
        self.repelling -= other.repelling;
        self.unwelcoming -= other.unwelcoming;
        self.cordoned -= other.cordoned;
    }
}

#[derive(Debug, Default)]
pub struct Cache {
    /// Slots keep their number while a node lives, so that columns and orders stay valid.
    slots: Vec<NodeInfo>,
    free: Vec<u32>,
    by_name: HashMap<Arc<str>, u32>,
    node_count: usize,
    /// Slots of nodes that exist, zones in turns: neighbours in the list are in different zones. Made when asked for.
    order: OnceLock<Vec<u32>>,
    placements: HashMap<Arc<str>, Placement>,
    assumed: usize,
    marks: Marks,
    namespaces: Namespaces,
    /// On how many nodes each image is.
    image_nodes: HashMap<String, usize>,
    /// Counts that searches ask for; what nobody asked for is not counted.
    tallies: Mutex<Tallies>,
    node_sets: Mutex<NodeSets>,
}

impl Cache {
    pub fn node_count(&self) -> usize {
        self.node_count
    }

    pub fn pod_count(&self) -> usize {
        self.placements.len()
    }

    pub fn assumed_count(&self) -> usize {
        self.assumed
    }

    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// The existing nodes, from some place in their order on and around.
    pub fn nodes_from(&self, start: usize) -> impl Iterator<Item = &NodeInfo> {
        let order = self.order.get_or_init(|| self.zones_in_turns());
        let (head, tail) = order.split_at(start.min(order.len()));
        tail.iter().chain(head).map(|slot| &self.slots[*slot as usize])
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes_from(0)
    }

    /// An existing node.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.by_name.get(name).map(|slot| &self.slots[*slot as usize]).filter(|node| node.node.is_some())
    }

    pub fn nodes_with_image(&self, image: &str) -> usize {
        self.image_nodes.get(image).copied().unwrap_or_default()
    }

    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// The nodes that meet a requirement.
    pub fn meeting(&self, requirement: &Arc<NodeRequirement>) -> Arc<NodeSet> {
        self.node_sets.lock().of(requirement, self.slots.iter().filter(|node| node.node.is_some()))
    }

    /// How many placed pods a rule selects, per domain.
    pub fn tally(&self, rule: &Arc<Rule>) -> Tally {
        let mut tallies = self.tallies.lock();
        if let Some(known) = tallies.known(rule) {
            return known;
        }
        let column = tallies.column(&rule.topology_key, self.values(&rule.topology_key));
        let placed = self.slots.iter().flat_map(|node| node.pods.iter().map(|pod| (node.slot, pod.as_ref())));
        tallies.start(rule, &column, placed, &self.namespaces)
    }

    /// An empty count over the domains of a key, for simulations.
    pub fn blank_tally(&self, topology_key: &str) -> Tally {
        let column = self.tallies.lock().column(topology_key, self.values(topology_key));
        Tally::new(Arc::default(), column)
    }

    /// The terms of placed pods that are about this pod.
    pub fn holdings(&self, pod: &PodInfo, wanted: impl Fn(Attitude) -> bool) -> Vec<Holding> {
        self.tallies.lock().holdings(pod, &self.namespaces, wanted)
    }

    fn values(&self, key: &str) -> impl Iterator<Item = (u32, Option<String>)> {
        let existing = self.slots.iter().filter(|node| node.node.is_some());
        existing.map(move |node| (node.slot, node.labels.get(key).cloned()))
    }

    /// Takes in the labels of a namespace, or that it is gone.
    pub fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        let before = match labels.clone() {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
        if before.unwrap_or_default() != labels.unwrap_or_default() {
            self.tallies.get_mut().namespace_changed();
        }
    }

    pub fn set_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let slot = self.slot(&name);
        let info = &mut self.slots[slot as usize];
        let was_new = info.node.is_none();
        let (images, labels) = (info.images.clone(), info.labels.clone());
        if was_new {
            self.node_count += 1;
        } else {
            self.marks.subtract(Marks::of(info));
        }
        info.set_node(node);
        self.marks.add(Marks::of(info));
        let relabelled = was_new || labels != info.labels;
        if was_new || zone(&labels) != zone(&info.labels) {
            self.order.take();
        }
        if images != info.images {
            let now = info.images.clone();
            self.count_images(images.keys(), false);
            self.count_images(now.keys(), true);
        }
        if relabelled {
            let info = &self.slots[slot as usize];
            self.tallies.get_mut().relabel(slot, Some(&info.labels));
            self.node_sets.get_mut().update(info);
        }
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(&slot) = self.by_name.get(name) else { return };
        let info = &mut self.slots[slot as usize];
        if info.node.take().is_none() {
            return;
        }
        self.node_count -= 1;
        self.marks.subtract(Marks::of(info));
        let images = std::mem::take(&mut info.images);
        info.labels = Arc::default();
        info.taints = Arc::default();
        info.unschedulable = false;
        self.count_images(images.keys(), false);
        self.tallies.get_mut().relabel(slot, None);
        self.release_if_unused(slot);
        self.order.take();
    }

    /// Takes in a pod as the API server tells of it; what was assumed about it is thereby confirmed or corrected.
    pub fn set_pod(&mut self, pod: Arc<PodInfo>) {
        self.remove_pod(&pod.uid);
        if let Some(node) = pod.node_name()
            && !pod.has_ended()
        {
            let node = node.to_owned();
            self.place(pod, &node, false);
        }
    }

    /// The API server tells of a pod as it was assumed: only the object is exchanged. False when more has changed.
    pub fn confirm(&mut self, pod: &Arc<k8s_openapi::api::core::v1::Pod>) -> bool {
        let Some(uid) = pod.metadata.uid.as_deref() else { return false };
        let Some(placement) = self.placements.get_mut(uid) else { return false };
        let Some(info) = placement.pod.confirmed(pod) else { return false };
        let node = &mut self.slots[placement.slot as usize];
        if info.node_name() != Some(&*node.name) {
            return false;
        }
        let Some(place) = node.pods.iter().position(|known| &*known.uid == uid) else { return false };
        node.pods[place] = info.clone();
        placement.pod = info;
        self.assumed -= usize::from(placement.assumed);
        placement.assumed = false;
        true
    }

    /// Counts a pod on a node before the API server knows.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.remove_pod(&pod.uid);
        self.place(pod, node, true);
    }

    /// Takes back an assumption that did not come true; nothing happens when it was confirmed meanwhile.
    pub fn forget(&mut self, uid: &str) {
        if self.is_assumed(uid) {
            self.remove_pod(uid);
        }
    }

    pub fn is_assumed(&self, uid: &str) -> bool {
        self.placements.get(uid).is_some_and(|placement| placement.assumed)
    }

    /// The pod as it counts now, and its node.
    pub fn placement(&self, uid: &str) -> Option<(&Arc<PodInfo>, &str)> {
        self.placements.get(uid).map(|placement| (&placement.pod, &*self.slots[placement.slot as usize].name))
    }

    pub fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(placement) = self.placements.remove(uid) else { return false };
        self.assumed -= usize::from(placement.assumed);
        self.slots[placement.slot as usize].remove_pod(uid);
        self.tallies.get_mut().count(&placement.pod, placement.slot, -1, &self.namespaces);
        self.release_if_unused(placement.slot);
        true
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: &str, assumed: bool) {
        let slot = self.slot(node);
        self.slots[slot as usize].add_pod(pod.clone());
        for (_, rule) in pod.affinities.held() {
            let slots = self.slots.iter().filter(|node| node.node.is_some());
            let values = slots.map(|node| (node.slot, node.labels.get(&rule.topology_key).cloned()));
            self.tallies.get_mut().column(&rule.topology_key, values);
        }
        self.tallies.get_mut().count(&pod, slot, 1, &self.namespaces);
        self.assumed += usize::from(assumed);
        self.placements.insert(pod.uid.clone(), Placement { slot, pod, assumed });
    }

    fn slot(&mut self, name: &str) -> u32 {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(NodeInfo::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let info = NodeInfo::named(name, slot);
        self.by_name.insert(info.name.clone(), slot);
        self.slots[slot as usize] = info;
        slot
    }

    fn release_if_unused(&mut self, slot: u32) {
        let info = &mut self.slots[slot as usize];
        if info.node.is_none() && info.pods.is_empty() {
            self.by_name.remove(&info.name);
            *info = NodeInfo { slot, ..NodeInfo::default() };
            self.free.push(slot);
        }
    }

    fn zones_in_turns(&self) -> Vec<u32> {
        let mut zones: BTreeMap<(&str, &str), Vec<u32>> = BTreeMap::new();
        for info in self.slots.iter().filter(|info| info.node.is_some()) {
            zones.entry(zone(&info.labels)).or_default().push(info.slot);
        }
        let longest = zones.values().map(Vec::len).max().unwrap_or_default();
        (0..longest).flat_map(|round| zones.values().filter_map(move |zone| zone.get(round).copied())).collect()
    }

    fn count_images<'a>(&mut self, images: impl Iterator<Item = &'a String>, present: bool) {
        for image in images {
            if present {
                *self.image_nodes.entry(image.clone()).or_default() += 1;
            } else if let Some(count) = self.image_nodes.get_mut(image) {
                *count -= 1;
                if *count == 0 {
                    self.image_nodes.remove(image);
                }
            }
        }
    }
}

/// Region and zone, by which nodes are taken in turns.
fn zone(labels: &Labels) -> (&str, &str) {
    let label = |key: &str| labels.get(key).map_or("", String::as_str);
    (label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn nodes_and_pods_may_come_and_go_in_any_order() {
        let mut cache = Cache::default();
        let bound = |name: &str| {
            pod(name, json!({"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}))
        };
        cache.set_pod(bound("early"));
        assert_eq!(cache.node_count(), 0);
        cache.set_node(node("n1", json!({})));
        assert_eq!(cache.node("n1").map(|n| n.requested.milli_cpu), Some(1000));
        cache.assume(
            pod("assumed", json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]})),
            "n1",
        );
        assert_eq!(cache.node("n1").map(|n| n.requested.milli_cpu), Some(3000));
        cache.forget("early");
        assert_eq!(cache.node("n1").map(|n| n.pods.len()), Some(2), "a confirmed pod is not forgotten");
        cache.forget("assumed");
        cache.remove_node("n1");
        assert!(cache.node("n1").is_none());
        cache.set_node(node("n2", json!({})));
        cache.set_node(node("n1", json!({})));
        assert_eq!(cache.node("n1").map(|n| n.requested.milli_cpu), Some(1000));
        assert!(cache.remove_pod("early"));
        assert_eq!(cache.node("n1").map(|n| (n.requested.milli_cpu, n.pods.len())), Some((0, 0)));
        cache.remove_node("n1");
        assert_eq!(cache.nodes().map(|n| &*n.name).collect::<Vec<_>>(), ["n2"]);
    }

    #[test]
    fn zones_take_turns() {
        let mut cache = Cache::default();
        for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")] {
            cache.set_node(node(name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})));
        }
        let names = |start| cache.nodes_from(start).map(|n| &*n.name).collect::<Vec<_>>();
        assert_eq!(names(0), ["a1", "b1", "a2", "a3"]);
        assert_eq!(names(2), ["a2", "a3", "a1", "b1"]);
    }
}
