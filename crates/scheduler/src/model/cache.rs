//! All nodes with their pods, kept by events and by what the scheduler itself has decided but not yet seen confirmed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::node::NodeInfo;
use super::pod::PodInfo;

/// Where a pod counts.
#[derive(Debug)]
struct Placement {
    node: String,
    pod: Arc<PodInfo>,
    /// Decided here, not yet confirmed by the API server.
    assumed: bool,
}

#[derive(Debug, Default)]
pub struct Cache {
    /// Slots keep their index while a node lives, so that the order below stays valid.
    slots: Vec<NodeInfo>,
    free: Vec<usize>,
    by_name: HashMap<String, usize>,
    /// Slots of nodes that exist, zones in turns: neighbours in the list are in different zones.
    order: Vec<usize>,
    placements: HashMap<String, Placement>,
    /// Sums that let plugins skip work: pods with affinity terms, and with required anti-affinity.
    pods_with_affinity: usize,
    pods_with_anti_affinity: usize,
    /// On how many nodes each image is.
    image_nodes: HashMap<String, usize>,
}

impl Cache {
    pub fn node_count(&self) -> usize {
        self.order.len()
    }

    /// The existing nodes, from some place in their order on and around.
    pub fn nodes_from(&self, start: usize) -> impl Iterator<Item = &NodeInfo> {
        let (head, tail) = self.order.split_at(start.min(self.order.len()));
        tail.iter().chain(head).map(|slot| &self.slots[*slot])
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes_from(0)
    }

    /// An existing node.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.by_name.get(name).map(|slot| &self.slots[*slot]).filter(|node| node.node.is_some())
    }

    pub fn has_affinity(&self) -> bool {
        self.pods_with_affinity > 0
    }

    pub fn has_anti_affinity(&self) -> bool {
        self.pods_with_anti_affinity > 0
    }

    pub fn nodes_with_image(&self, image: &str) -> usize {
        self.image_nodes.get(image).copied().unwrap_or_default()
    }

    pub fn set_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let slot = self.slot(&name);
        let images_before = std::mem::take(&mut self.slots[slot].images);
        self.count_images(images_before.keys(), false);
        let info = &mut self.slots[slot];
        let was_new = info.node.is_none();
        let (region, zone) = info.zone();
        let place = (region.to_owned(), zone.to_owned());
        info.set_node(node);
        let (region, zone) = info.zone();
        let moved = was_new || place != (region.to_owned(), zone.to_owned());
        let images: Vec<String> = info.images.keys().cloned().collect();
        self.count_images(images.iter(), true);
        if moved {
            self.reorder();
        }
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(&slot) = self.by_name.get(name) else { return };
        let images = std::mem::take(&mut self.slots[slot].images);
        self.count_images(images.keys(), false);
        let info = &mut self.slots[slot];
        info.node = None;
        info.labels.clear();
        self.release_if_unused(slot);
        self.reorder();
    }

    /// Takes in a pod as the API server tells of it; what was assumed about it is thereby confirmed or corrected.
    pub fn set_pod(&mut self, pod: Arc<PodInfo>) {
        self.remove_pod(&pod.uid);
        if let Some(node) = pod.node_name()
            && !pod.has_ended()
        {
            let node = node.to_owned();
            self.place(pod, node, false);
        }
    }

    /// Counts a pod on a node before the API server knows.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.remove_pod(&pod.uid);
        self.place(pod, node.to_owned(), true);
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
        self.placements.get(uid).map(|placement| (&placement.pod, placement.node.as_str()))
    }

    pub fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(placement) = self.placements.remove(uid) else { return false };
        self.pods_with_affinity -= usize::from(!placement.pod.affinities.is_empty());
        self.pods_with_anti_affinity -= usize::from(!placement.pod.affinities.required_anti.is_empty());
        if let Some(&slot) = self.by_name.get(&placement.node) {
            self.slots[slot].remove_pod(uid);
            self.release_if_unused(slot);
        }
        true
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: String, assumed: bool) {
        self.pods_with_affinity += usize::from(!pod.affinities.is_empty());
        self.pods_with_anti_affinity += usize::from(!pod.affinities.required_anti.is_empty());
        let slot = self.slot(&node);
        self.slots[slot].add_pod(pod.clone());
        self.placements.insert(pod.uid.clone(), Placement { node, pod, assumed });
    }

    fn slot(&mut self, name: &str) -> usize {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = NodeInfo::named(name);
                slot
            }
            None => {
                self.slots.push(NodeInfo::named(name));
                self.slots.len() - 1
            }
        };
        self.by_name.insert(name.to_owned(), slot);
        slot
    }

    fn release_if_unused(&mut self, slot: usize) {
        let info = &self.slots[slot];
        if info.node.is_none() && info.pods.is_empty() {
            self.by_name.remove(&info.name);
            self.slots[slot] = NodeInfo::default();
            self.free.push(slot);
        }
    }

    fn reorder(&mut self) {
        let mut zones: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for (slot, info) in self.slots.iter().enumerate().filter(|(_, info)| info.node.is_some()) {
            zones.entry(info.zone()).or_default().push(slot);
        }
        let longest = zones.values().map(Vec::len).max().unwrap_or_default();
        self.order =
            (0..longest).flat_map(|round| zones.values().filter_map(move |zone| zone.get(round).copied())).collect();
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
        assert_eq!(cache.nodes().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["n2"]);
    }

    #[test]
    fn zones_take_turns() {
        let mut cache = Cache::default();
        for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")] {
            cache.set_node(node(name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})));
        }
        let names = |start| cache.nodes_from(start).map(|n| n.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names(0), ["a1", "b1", "a2", "a3"]);
        assert_eq!(names(2), ["a2", "a3", "a1", "b1"]);
    }
}
