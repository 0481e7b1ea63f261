//! The books of devices: pure, so that every rule can be looked at by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ferry_plugins::deviceplugin::{ContainerAllocateResponse, Device};

use crate::topology_manager::hints::hints as topology_hints;
use crate::topology_manager::{Hint, NumaMask};

/// A plug-in that is gone may come back in this time, before its resource is taken off the node; upstream's.
const GRACE: Duration = Duration::from_secs(300);
const HEALTHY: &str = "Healthy";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DeviceState {
    healthy: bool,
    /// The NUMA nodes it is at.
    nodes: Vec<i64>,
}

#[derive(Debug, Default)]
struct Resource {
    devices: BTreeMap<String, DeviceState>,
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
    /// Set aside as pods were admitted, by pod, container and resource, until they are asked for.
    held: BTreeMap<(String, String, String), Hold>,
}

/// Devices for a container that is yet to have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hold {
    devices: BTreeSet<String>,
    /// Where they are to be; others at these nodes do as well.
    at: Option<NumaMask>,
}

/// A container's wish for devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    pub(super) uid: &'a str,
    pub(super) container: &'a str,
    pub(super) resource: &'a str,
    pub(super) count: usize,
}

impl Wish<'_> {
    fn key(&self) -> (String, String, String) {
        (self.uid.to_owned(), self.container.to_owned(), self.resource.to_owned())
    }
}

/// What a plug-in chooses from.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) count: usize,
    pub(super) available: BTreeSet<String>,
    /// They are taken first: those that an init container of the pod had, and those at the right place where there are no
    /// more than needed.
    pub(super) first: BTreeSet<String>,
    /// The others of those that are available: those at other nodes before those whose place is not known.
    pub(super) rest: Vec<String>,
}

impl Choice {
    /// Without a plug-in's advice.
    pub(super) fn plain(&self) -> BTreeSet<String> {
        self.first.iter().chain(&self.rest).take(self.count).cloned().collect()
    }
}

impl Resource {
    /// Whether any device is at a NUMA node.
    fn has_places(&self) -> bool {
        self.devices.values().any(|device| !device.nodes.is_empty())
    }

    fn nodes(&self, id: &str) -> NumaMask {
        let nodes = self.devices.get(id).into_iter().flat_map(|device| &device.nodes);
        nodes.filter_map(|node| u32::try_from(*node).ok()).collect()
    }

    fn choice(
        &self,
        count: usize,
        available: BTreeSet<String>,
        reusable: &BTreeSet<String>,
        at: Option<NumaMask>,
    ) -> Choice {
        let mut first: BTreeSet<String> = available.intersection(reusable).take(count).cloned().collect();
        let others = || available.difference(&first).cloned();
        let Some(at) = at.filter(|_| self.has_places()) else {
            let rest = others().collect();
            return Choice { count, available, first, rest };
        };
        let near: BTreeSet<String> = others().filter(|id| !self.nodes(id).common(at).is_empty()).collect();
        if count - first.len() < near.len() {
            let available = first.union(&near).cloned().collect();
            return Choice { count, available, first, rest: near.into_iter().collect() };
        }
        first.extend(near);
        let (elsewhere, anywhere): (Vec<String>, Vec<String>) =
            available.difference(&first).cloned().partition(|id| !self.nodes(id).is_empty());
        Choice { count, available, first, rest: elsewhere.into_iter().chain(anywhere).collect() }
    }

    /// Where so many of the available devices are; those that are `reusable` have to be there, too.
    fn hints(
        &self,
        available: &BTreeSet<String>,
        reusable: &BTreeSet<String>,
        count: usize,
        machine: NumaMask,
    ) -> Vec<Hint> {
        // Nodes without such devices make no difference.
        let places = self.devices.keys().flat_map(|id| self.nodes(id).nodes().collect::<Vec<_>>());
        let places: NumaMask = places.filter(|node| machine.contains(*node)).collect();
        let places = if places.is_empty() { machine } else { places };
        let is_at = |id: &&String, at: NumaMask| !self.nodes(id).common(at).is_empty();
        let could = places.combinations().filter(|at| self.devices.keys().filter(|id| is_at(id, *at)).count() >= count);
        let fewest = could.map(NumaMask::count).min().unwrap_or(places.count());
        let placed: BTreeSet<&String> = reusable.iter().filter(|id| !self.nodes(id).is_empty()).collect();
        let can = places.combinations().filter(|at| {
            let free = available.iter().filter(|id| !placed.contains(id) && is_at(id, *at)).count();
            placed.iter().all(|id| is_at(id, *at)) && free + placed.len() >= count
        });
        topology_hints(can, fewest)
    }
}

impl Ledger {
    pub(super) fn knows(&self, resource: &str) -> bool {
        self.resources.contains_key(resource)
    }

    /// The devices that a plug-in told of. Gives whether that changed anything.
    pub(super) fn told(&mut self, resource: &str, devices: Vec<Device>) -> bool {
        let told: BTreeMap<String, DeviceState> = devices
            .into_iter()
            .map(|device| {
                let nodes = device.topology.into_iter().flat_map(|at| at.nodes).map(|node| node.id).collect();
                (device.id, DeviceState { healthy: device.health == HEALTHY, nodes })
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
    pub(super) fn choice(&self, wish: Wish<'_>, reusable: &BTreeSet<String>) -> Result<Option<Choice>, String> {
        let Wish { uid, container, resource, count } = wish;
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
        if !known.devices.values().any(|device| device.healthy) {
            return Err(format!("no healthy devices present; cannot allocate unhealthy devices {resource}"));
        }
        let available = self.available(wish, reusable);
        if available.len() < count {
            return Err(format!(
                "requested number of devices unavailable for {resource}. Requested: {count}, Available: {}",
                available.len()
            ));
        }
        let at = self.held.get(&wish.key()).and_then(|hold| hold.at);
        Ok(Some(known.choice(count, available, reusable, at)))
    }

    /// Healthy devices that nobody else has or waits for.
    fn available(&self, wish: Wish<'_>, reusable: &BTreeSet<String>) -> BTreeSet<String> {
        let taken = self.taken(wish);
        let devices = self.resources.get(wish.resource).into_iter().flat_map(|known| &known.devices);
        let healthy = devices.filter(|(_, device)| device.healthy).map(|(id, _)| id);
        healthy.filter(|id| reusable.contains(*id) || !taken.contains(id)).cloned().collect()
    }

    /// What others have, or are to have. What is set aside for an init container may be so for those after it, too.
    fn taken(&self, wish: Wish<'_>) -> BTreeSet<&String> {
        let given = self.pods.values().flat_map(BTreeMap::values).filter_map(|of| of.get(wish.resource));
        let (own, resource) = (self.held.get(&wish.key()), wish.resource);
        let held = self.held.iter().filter(|(key, _)| key.2 == resource).flat_map(|(_, hold)| &hold.devices);
        let held = held.filter(|id| !own.is_some_and(|own| own.devices.contains(*id)));
        given.flat_map(|of| &of.devices).chain(self.reserved.get(resource).into_iter().flatten()).chain(held).collect()
    }

    /// Holds what was chosen until the plug-in has answered; false where another was faster.
    pub(super) fn reserve(&mut self, wish: Wish<'_>, chosen: &BTreeSet<String>, reusable: &BTreeSet<String>) -> bool {
        let new: Vec<String> = chosen.difference(reusable).cloned().collect();
        let taken = self.taken(wish);
        if new.iter().any(|id| taken.contains(&id)) {
            return false;
        }
        self.reserved.entry(wish.resource.to_owned()).or_default().extend(new);
        true
    }

    /// Sets devices aside for a container that was admitted, at these nodes as far as there are any. What cannot be had is found
    /// out when it is asked for.
    pub(super) fn hold(
        &mut self,
        wish: Wish<'_>,
        at: Option<NumaMask>,
        reusable: &BTreeSet<String>,
    ) -> BTreeSet<String> {
        if let Some(known) = self.has_or_awaits(wish) {
            return known.clone();
        }
        self.held.insert(wish.key(), Hold { devices: BTreeSet::new(), at });
        let devices = match self.choice(wish, reusable) {
            Ok(Some(choice)) => choice.plain(),
            _ => BTreeSet::new(),
        };
        self.held.insert(wish.key(), Hold { devices: devices.clone(), at });
        devices
    }

    fn has_or_awaits(&self, wish: Wish<'_>) -> Option<&BTreeSet<String>> {
        let given = self.allocation(wish.uid, wish.container, wish.resource).map(|has| &has.devices);
        given.or_else(|| self.held.get(&wish.key()).map(|hold| &hold.devices).filter(|held| !held.is_empty()))
    }

    /// At which of the machine's NUMA nodes a container could have its devices; None where they are at no particular one.
    pub(super) fn hints(&self, wish: Wish<'_>, machine: NumaMask, reusable: &BTreeSet<String>) -> Option<Vec<Hint>> {
        let known = self.resources.get(wish.resource).filter(|known| known.has_places())?;
        let found = match self.has_or_awaits(wish) {
            Some(has) if has.len() == wish.count => known.hints(has, &BTreeSet::new(), wish.count, machine),
            Some(_) => Vec::new(),
            None => {
                let free = self.available(wish, &BTreeSet::new());
                known.hints(&free, reusable, wish.count, machine)
            }
        };
        Some(found)
    }

    /// The same of a pod: `wish` is for all of its containers together, whose names are given.
    pub(super) fn pod_hints(&self, wish: Wish<'_>, containers: &[&str], machine: NumaMask) -> Option<Vec<Hint>> {
        let known = self.resources.get(wish.resource).filter(|known| known.has_places())?;
        let of = |container: &&str| self.has_or_awaits(Wish { container, ..wish });
        let has: BTreeSet<String> = containers.iter().filter_map(of).flatten().cloned().collect();
        let found = match has.len() {
            0 => known.hints(&self.available(wish, &BTreeSet::new()), &BTreeSet::new(), wish.count, machine),
            count if count == wish.count => known.hints(&has, &BTreeSet::new(), wish.count, machine),
            _ => Vec::new(),
        };
        Some(found)
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
            self.held.remove(&(uid.to_owned(), container.to_owned(), resource.to_owned()));
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
        self.held.retain(|(holder, _, _), _| holder != uid);
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
mod tests;
