//! The admission of a pod: its devices are set aside where its CPUs and its memory are.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::Devices;
use super::ledger::Wish;
use crate::cgroups::request_of;
use crate::pod;
use crate::status::WaitReason;
use crate::topology_manager::{Hint, HintProvider, Hints, NumaMask};

pub(crate) struct Draft<'a> {
    devices: &'a Devices,
    machine: NumaMask,
    /// What init containers have that have ended before others start, by resource.
    reusable: BTreeMap<String, BTreeSet<String>>,
}

impl Devices {
    /// Begins the admission of a pod on a machine with these NUMA nodes.
    pub(crate) fn draft(&self, machine: NumaMask) -> Draft<'_> {
        Draft { devices: self, machine, reusable: BTreeMap::new() }
    }
}

impl HintProvider for Draft<'_> {
    fn container_hints(&self, of: &Pod, container: &Container) -> Hints {
        let wanted = self.devices.wanted(of, container);
        let ledger = self.devices.ledger.lock();
        let none = BTreeSet::new();
        let hints = wanted.into_iter().map(|(resource, count)| {
            let wish = Wish { uid: pod::uid(of), container: &container.name, resource: &resource, count };
            let hints = ledger.hints(wish, self.machine, self.reusable.get(&resource).unwrap_or(&none));
            (resource, hints)
        });
        hints.collect()
    }

    fn pod_hints(&self, of: &Pod) -> Hints {
        let containers = || pod::init_containers(of).iter().chain(pod::containers(of));
        let names: Vec<&str> = containers().map(|container| container.name.as_str()).collect();
        let wanted = containers().flat_map(|container| self.devices.wanted(of, container));
        let resources: BTreeSet<String> = wanted.map(|(resource, _)| resource).collect();
        let ledger = self.devices.ledger.lock();
        let hints = resources.into_iter().map(|resource| {
            let count = usize::try_from(request_of(of, &resource)).unwrap_or(0);
            let wish = Wish { uid: pod::uid(of), container: "", resource: &resource, count };
            let hints = ledger.pod_hints(wish, &names, self.machine);
            (resource, hints)
        });
        hints.collect()
    }

    fn allocate(&mut self, of: &Pod, container: &Container, at: Hint) -> Result<(), WaitReason> {
        let ends = matches!(pod::container(of, &container.name), Some((pod::Role::Init, _)));
        for (resource, count) in self.devices.wanted(of, container) {
            let known = self.reusable.entry(resource.clone()).or_default();
            let wish = Wish { uid: pod::uid(of), container: &container.name, resource: &resource, count };
            let has = self.devices.ledger.lock().hold(wish, at.nodes, known);
            if ends {
                known.extend(has);
            } else {
                known.retain(|id| !has.contains(id));
            }
        }
        Ok(())
    }
}
