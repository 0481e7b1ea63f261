//! The books of devices: pure, so that every rule can be looked at by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ferry_plugins::deviceplugin::{ContainerAllocateResponse, Device};

/// A plug-in that is gone may come back in this time, before its resource is taken off the node; upstream's.
const GRACE: Duration = Duration::from_secs(300);
const HEALTHY: &str = "Healthy";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    healthy: bool,
    /// The NUMA nodes it is at.
    nodes: Vec<i64>,
}

#[derive(Debug, Default)]
struct Resource {
    devices: BTreeMap<String, State>,
    /// Since when no plug-in answers for it.
    gone: Option<Instant>,
}

/// What a container has of a resource, and what the plug-in said is to be done with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Allocation {
    pub(super) devices: BTreeSet<String>,
    pub(super) answer: ContainerAllocateResponse,
}

/// Devices of one resource at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) resource: String,
    pub(crate) devices: Vec<String>,
    /// The NUMA nodes they are at.
    pub(crate) nodes: Vec<i64>,
}

/// By container and resource.
type OfPod = BTreeMap<String, BTreeMap<String, Allocation>>;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    resources: BTreeMap<String, Resource>,
    pods: BTreeMap<String, OfPod>,
    /// Chosen, while the plug-in is asked for them.
    reserved: BTreeMap<String, BTreeSet<String>>,
}

/// What a plug-in chooses from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) count: usize,
    pub(super) available: BTreeSet<String>,
    /// Those that an init container of the pod had: they are taken first.
    pub(super) first: BTreeSet<String>,
}

impl Ledger {
    pub(super) fn knows(&self, resource: &str) -> bool {
        self.resources.contains_key(resource)
    }

    /// The devices that a plug-in told of. Gives whether that changed anything.
    pub(super) fn told(&mut self, resource: &str, devices: Vec<Device>) -> bool {
        let told: BTreeMap<String, State> = devices
            .into_iter()
            .map(|device| {
                let nodes = device.topology.into_iter().flat_map(|at| at.nodes).map(|node| node.id).collect();
                (device.id, State { healthy: device.health == HEALTHY, nodes })
            })
            .collect();
        let known = self.resources.entry(resource.to_owned()).or_default();
        let changed = known.devices != told || known.gone.is_some();
        (known.devices, known.gone) = (told, None);
        changed
    }

    /// Nobody answers for a resource any more: none of its devices can be given out.
    pub(super) fn gone(&mut self, resource: &str, now: Instant) {
        if let Some(known) = self.resources.get_mut(resource) {
            known.devices.values_mut().for_each(|device| device.healthy = false);
            known.gone.get_or_insert(now);
        }
    }

    /// A resource that was known before the kubelet started again.
    pub(super) fn remember(&mut self, resource: &str, now: Instant) {
        self.resources.insert(resource.to_owned(), Resource { gone: Some(now), ..Resource::default() });
    }

    /// How many devices there are of each resource, and how many can be used.
    pub(super) fn amounts(&self, now: Instant) -> BTreeMap<String, (usize, usize)> {
        let count = |resource: &Resource| {
            let lost = resource.gone.is_some_and(|since| now.duration_since(since) >= GRACE);
            let healthy = resource.devices.values().filter(|device| device.healthy).count();
            if lost { (0, 0) } else { (resource.devices.len(), healthy) }
        };
        self.resources.iter().map(|(name, resource)| (name.clone(), count(resource))).collect()
    }

    /// What can be chosen from for a container; None where it has what it asks for.
    pub(super) fn choice(
        &self,
        uid: &str,
        container: &str,
        resource: &str,
        count: usize,
        reusable: &BTreeSet<String>,
    ) -> Result<Option<Choice>, String> {
        if let Some(has) = self.allocation(uid, container, resource) {
            return match has.devices.len() {
                has if has == count => Ok(None),
                has => Err(format!(
                    "pod {uid:?} container {container:?} changed request for resource {resource:?} from {has} to {count}"
                )),
            };
        }
        let known = self.resources.get(resource);
        let known = known.ok_or_else(|| format!("cannot allocate unregistered device {resource}"))?;
        let healthy: BTreeSet<&String> =
            known.devices.iter().filter(|(_, device)| device.healthy).map(|(id, _)| id).collect();
        if healthy.is_empty() {
            return Err(format!("no healthy devices present; cannot allocate unhealthy devices {resource}"));
        }
        let taken = self.taken(resource);
        let free = |id: &&&String| reusable.contains(**id) || !taken.contains(**id);
        let available: BTreeSet<String> = healthy.iter().filter(free).map(|id| (*id).clone()).collect();
        if available.len() < count {
            return Err(format!(
                "requested number of devices unavailable for {resource}. Requested: {count}, Available: {}",
                available.len()
            ));
        }
        let first: BTreeSet<String> = available.intersection(reusable).take(count).cloned().collect();
        Ok(Some(Choice { count, available, first }))
    }

    fn taken(&self, resource: &str) -> BTreeSet<&String> {
        let given = self.pods.values().flat_map(BTreeMap::values).filter_map(|of| of.get(resource));
        given.flat_map(|of| &of.devices).chain(self.reserved.get(resource).into_iter().flatten()).collect()
    }

    /// Holds what was chosen until the plug-in has answered; false where another was faster.
    pub(super) fn reserve(&mut self, resource: &str, chosen: &BTreeSet<String>, reusable: &BTreeSet<String>) -> bool {
        let new: BTreeSet<String> = chosen.difference(reusable).cloned().collect();
        let taken = self.taken(resource);
        if new.iter().any(|id| taken.contains(id)) {
            return false;
        }
        self.reserved.entry(resource.to_owned()).or_default().extend(new);
        true
    }

    /// What came of a reservation: an allocation, or nothing.
    pub(super) fn settle(
        &mut self,
        (uid, container, resource): (&str, &str, &str),
        chosen: BTreeSet<String>,
        answer: Option<ContainerAllocateResponse>,
    ) {
        if let Some(reserved) = self.reserved.get_mut(resource) {
            reserved.retain(|id| !chosen.contains(id));
        }
        if let Some(answer) = answer {
            self.give(uid, container, resource, Allocation { devices: chosen, answer });
        }
    }

    pub(super) fn give(&mut self, uid: &str, container: &str, resource: &str, allocation: Allocation) {
        let containers = self.pods.entry(uid.to_owned()).or_default();
        containers.entry(container.to_owned()).or_default().insert(resource.to_owned(), allocation);
    }

    pub(super) fn allocation(&self, uid: &str, container: &str, resource: &str) -> Option<&Allocation> {
        self.pods.get(uid)?.get(container)?.get(resource)
    }

    /// All that a container has, by resource.
    pub(super) fn of_container(&self, uid: &str, container: &str) -> Option<&BTreeMap<String, Allocation>> {
        self.pods.get(uid)?.get(container)
    }

    /// True where the pod had something.
    pub(super) fn release(&mut self, uid: &str) -> bool {
        self.pods.remove(uid).is_some()
    }

    pub(super) fn holders(&self) -> Vec<String> {
        self.pods.keys().cloned().collect()
    }

    /// Every allocation with its pod, container and resource.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &str, &str, &Allocation)> {
        self.pods.iter().flat_map(|(uid, containers)| {
            containers.iter().flat_map(move |(container, resources)| {
                resources.iter().map(move |(resource, of)| (uid.as_str(), container.as_str(), resource.as_str(), of))
            })
        })
    }

    /// The resources with their devices.
    pub(super) fn registered(&self) -> BTreeMap<String, Vec<String>> {
        let all = self.resources.iter();
        all.map(|(name, resource)| (name.clone(), resource.devices.keys().cloned().collect())).collect()
    }

    pub(super) fn held(&self, uid: &str) -> BTreeMap<String, Vec<Held>> {
        let containers = self.pods.get(uid).into_iter().flatten();
        let held = |of: &BTreeMap<String, Allocation>| {
            of.iter().flat_map(|(resource, allocation)| self.by_place(resource, &allocation.devices)).collect()
        };
        containers.map(|(name, of)| (name.clone(), held(of))).collect()
    }

    pub(super) fn healthy(&self) -> Vec<Held> {
        let all = self.resources.iter().flat_map(|(name, resource)| {
            let ids = resource.devices.iter().filter(|(_, device)| device.healthy).map(|(id, _)| id.clone()).collect();
            self.by_place(name, &ids)
        });
        all.collect()
    }

    /// Devices that are at the same place together.
    fn by_place(&self, resource: &str, ids: &BTreeSet<String>) -> Vec<Held> {
        let known = self.resources.get(resource);
        let mut places: BTreeMap<Vec<i64>, Vec<String>> = BTreeMap::new();
        for id in ids {
            let nodes = known.and_then(|known| known.devices.get(id)).map(|device| device.nodes.clone());
            places.entry(nodes.unwrap_or_default()).or_default().push(id.clone());
        }
        let held = |(nodes, devices)| Held { resource: resource.to_owned(), devices, nodes };
        places.into_iter().map(held).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "example.com/gpu";

    fn set(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn with(devices: &[(&str, bool)]) -> Ledger {
        let mut ledger = Ledger::default();
        let health = |healthy: bool| if healthy { HEALTHY } else { "Unhealthy" }.to_owned();
        let told = devices.iter().map(|(id, ok)| Device { id: (*id).to_owned(), health: health(*ok), topology: None });
        assert!(ledger.told(GPU, told.collect()));
        ledger
    }

    fn take(ledger: &mut Ledger, uid: &str, container: &str, ids: &[&str]) {
        assert!(ledger.reserve(GPU, &set(ids), &set(&[])));
        ledger.settle((uid, container, GPU), set(ids), Some(ContainerAllocateResponse::default()));
    }

    #[test]
    fn what_cannot_be_given_says_why() {
        let none = set(&[]);
        let ask =
            |ledger: &Ledger, count: usize| ledger.choice("u", "c", GPU, count, &none).map(|choice| choice.is_some());
        let unknown = "cannot allocate unregistered device example.com/gpu";
        assert_eq!(ask(&Ledger::default(), 1), Err(unknown.to_owned()));
        let sick = "no healthy devices present; cannot allocate unhealthy devices example.com/gpu";
        assert_eq!(ask(&with(&[("a", false)]), 1), Err(sick.to_owned()));
        let mut ledger = with(&[("a", true), ("b", true), ("c", false)]);
        take(&mut ledger, "other", "c", &["a"]);
        let few = "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1";
        assert_eq!(ask(&ledger, 2), Err(few.to_owned()));
        assert_eq!(ask(&ledger, 1), Ok(true));
        take(&mut ledger, "u", "c", &["b"]);
        assert_eq!(ask(&ledger, 1), Ok(false), "it has what it asks for");
        assert!(ask(&ledger, 2).is_err(), "a container does not ask for another number later");
        assert!(ledger.release("other") && !ledger.release("other"));
        assert_eq!(ledger.choice("v", "c", GPU, 1, &none).map(|c| c.map(|c| c.available)), Ok(Some(set(&["a"]))));
    }

    #[test]
    fn what_is_being_given_is_not_given_twice() {
        let mut ledger = with(&[("a", true)]);
        assert!(ledger.reserve(GPU, &set(&["a"]), &set(&[])));
        assert!(!ledger.reserve(GPU, &set(&["a"]), &set(&[])));
        assert!(ledger.choice("u", "c", GPU, 1, &set(&[])).is_err());
        // The plug-in died in the middle of it.
        ledger.settle(("u", "c", GPU), set(&["a"]), None);
        assert!(ledger.choice("u", "c", GPU, 1, &set(&[])).is_ok_and(|choice| choice.is_some()));
        assert!(ledger.holders().is_empty());
    }

    #[test]
    fn devices_of_init_containers_are_used_again() {
        let mut ledger = with(&[("a", true), ("b", true)]);
        take(&mut ledger, "u", "init", &["b"]);
        let choice = ledger.choice("u", "main", GPU, 2, &set(&["b"])).expect("enough").expect("to choose");
        assert_eq!((choice.available, choice.first), (set(&["a", "b"]), set(&["b"])));
        assert!(ledger.reserve(GPU, &set(&["a", "b"]), &set(&["b"])));
    }

    #[test]
    fn a_plugin_that_is_gone_leaves_nothing_to_use_and_later_nothing_at_all() {
        let now = Instant::now();
        let mut ledger = with(&[("a", true), ("b", false)]);
        assert_eq!(ledger.amounts(now)[GPU], (2, 1));
        ledger.gone(GPU, now);
        assert_eq!(ledger.amounts(now)[GPU], (2, 0));
        assert_eq!(ledger.amounts(now + GRACE)[GPU], (0, 0));
        ledger.remember("example.com/known", now);
        assert_eq!(ledger.amounts(now)["example.com/known"], (0, 0));
    }

    #[test]
    fn devices_are_told_of_by_place() {
        let mut ledger = Ledger::default();
        let at = |id: &str, node: Option<i64>| Device {
            id: id.to_owned(),
            health: HEALTHY.to_owned(),
            topology: node.map(|id| ferry_plugins::deviceplugin::TopologyInfo {
                nodes: vec![ferry_plugins::deviceplugin::NumaNode { id }],
            }),
        };
        ledger.told(GPU, vec![at("a", Some(0)), at("b", Some(1)), at("c", Some(0)), at("d", None)]);
        take(&mut ledger, "u", "c", &["a", "b", "c"]);
        let held = |nodes: &[i64], ids: &[&str]| Held {
            resource: GPU.to_owned(),
            devices: ids.iter().map(|id| (*id).to_owned()).collect(),
            nodes: nodes.to_vec(),
        };
        assert_eq!(ledger.held("u")["c"], [held(&[0], &["a", "c"]), held(&[1], &["b"])]);
        assert_eq!(ledger.healthy().len(), 3);
    }
}
