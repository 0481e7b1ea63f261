//! The topology manager: the CPUs, the memory and the devices of a container at the same NUMA nodes.
//!
//! [`hints`] finds what suits all providers, [`policy`] decides whether that is good enough; both are pure. [`numa`] reads the
//! machine.

pub(crate) mod hints;
pub(crate) mod mask;
mod metrics;
pub(crate) mod numa;
mod policy;

use std::time::Instant;

use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;

use crate::pod;
use crate::status::WaitReason;
pub(crate) use hints::{Hint, Hints};
pub(crate) use mask::NumaMask;
use metrics::Counts;
use numa::Numa;
pub(crate) use policy::{TopologyPolicy, TopologyScope, TopologySettings};

/// Who has resources that are at NUMA nodes. One pod is admitted at a time.
pub(crate) trait HintProvider {
    /// Where a container could have what it asks for.
    fn container_hints(&self, of: &Pod, container: &Container) -> Hints;

    /// Where a pod could have what all its containers ask for.
    fn pod_hints(&self, of: &Pod) -> Hints;

    /// Gives a container what it asks for, at these nodes as far as that can be. What it has already stays.
    fn allocate(&mut self, of: &Pod, container: &Container, at: Hint) -> Result<(), WaitReason>;
}

/// What goes wrong though the pod was to fit.
pub(crate) fn unexpected(why: impl std::fmt::Display) -> WaitReason {
    WaitReason {
        reason: "UnexpectedAdmissionError".to_owned(),
        message: format!("Allocate failed due to {why}, which is unexpected"),
    }
}

#[derive(Debug)]
pub(crate) struct TopologyManager {
    settings: TopologySettings,
    numa: Numa,
    /// Held while a pod is admitted: hints tell of what nobody else takes meanwhile.
    admitting: Mutex<()>,
    counts: Mutex<Counts>,
}

impl TopologyManager {
    pub(crate) fn new(settings: &TopologySettings, numa: Numa) -> Result<Self, String> {
        settings.fits(&numa)?;
        Ok(Self { settings: settings.clone(), numa, admitting: Mutex::default(), counts: Mutex::default() })
    }

    /// Whether providers are asked where they could give something.
    pub(crate) fn is_followed(&self) -> bool {
        self.settings.policy != TopologyPolicy::None
    }

    pub(crate) fn numa(&self) -> &Numa {
        &self.numa
    }

    /// Gives the containers of a pod what they ask for, or tells why not; then some of it may have been given.
    pub(crate) fn admit(&self, of: &Pod, providers: &mut [&mut dyn HintProvider]) -> Result<(), WaitReason> {
        let _admitting = self.admitting.lock();
        let since = Instant::now();
        let admitted = self.allocate(of, providers);
        // Without a policy, what fails was not to be aligned.
        self.counts.lock().admitted(admitted.is_ok() || !self.is_followed(), since.elapsed());
        admitted
    }

    fn allocate(&self, of: &Pod, providers: &mut [&mut dyn HintProvider]) -> Result<(), WaitReason> {
        let aligned = self.settings.policy == TopologyPolicy::SingleNumaNode;
        let scope = self.settings.scope;
        let of_pod = match scope {
            TopologyScope::Pod => Some(self.place(providers.iter().map(|one| one.pod_hints(of)))?),
            TopologyScope::Container => None,
        };
        for container in pod::init_containers(of).iter().chain(pod::containers(of)) {
            let at = match of_pod {
                Some(at) => at,
                None => self.place(providers.iter().map(|one| one.container_hints(of, container)))?,
            };
            providers.iter_mut().try_for_each(|one| one.allocate(of, container, at))?;
            if aligned && of_pod.is_none() {
                self.counts.lock().aligned(scope);
            }
        }
        if aligned && of_pod.is_some() {
            self.counts.lock().aligned(scope);
        }
        Ok(())
    }

    fn place(&self, hints: impl Iterator<Item = Hints>) -> Result<Hint, WaitReason> {
        if !self.is_followed() {
            return Ok(Hint::default());
        }
        let (at, admits) = self.settings.merge(&self.numa, &hints.collect::<Vec<_>>());
        if admits {
            return Ok(at);
        }
        if self.settings.policy == TopologyPolicy::SingleNumaNode {
            self.counts.lock().not_aligned(self.settings.scope);
        }
        Err(WaitReason {
            reason: "TopologyAffinityError".to_owned(),
            message: "Resources cannot be allocated with Topology locality".to_owned(),
        })
    }

    /// How often the resources of a container or a pod were given at one NUMA node, and how often they could not be; None
    /// where nobody looks at that.
    pub(crate) fn alignments(&self) -> Option<[(TopologyScope, u64, u64); 2]> {
        self.is_followed().then(|| self.counts.lock().alignments())
    }

    /// In the format of Prometheus.
    pub(crate) fn metrics(&self) -> String {
        self.counts.lock().text()
    }
}

#[cfg(test)]
mod tests;
