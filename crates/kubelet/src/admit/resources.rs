//! What a pod is given of the machine as it is admitted: CPUs, memory and devices at the same NUMA nodes.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::Pod;

use crate::context::Hardware;
use crate::cpu_manager::Draft;
use crate::memory_manager;
use crate::status::WaitReason;
use crate::topology_manager::HintProvider;

impl Hardware {
    /// Gives the containers of a pod their CPUs and their memory, and sets its devices aside; what they have they keep. Of a
    /// pod that is refused, some of it may have been given. Blocks.
    pub(crate) fn admit(&self, of: &Pod) -> Result<(), WaitReason> {
        let (mut cpus, mut memory) = (self.cpus.draft(), self.memory.draft());
        // Without a policy, devices are chosen when they are asked for.
        let mut devices = self.topology.is_followed().then(|| self.devices.draft(self.topology.numa().all()));
        let mut providers: Vec<&mut dyn HintProvider> = Vec::new();
        // In upstream's order: of several that cannot give what is asked for, the first one says so.
        providers.extend(devices.iter_mut().map(|draft| draft as &mut dyn HintProvider));
        providers.extend(cpus.iter_mut().map(|draft| draft as &mut dyn HintProvider));
        providers.extend(memory.iter_mut().map(|draft| draft as &mut dyn HintProvider));
        self.topology.admit(of, &mut providers)?;
        cpus.map_or(Ok(()), Draft::commit)?;
        memory.map_or(Ok(()), memory_manager::Draft::commit)
    }

    /// What a pod was admitted with is everybody's again. Claims stay prepared.
    pub(crate) async fn give_back(&self, uid: &str) {
        self.devices.release(uid).await;
        self.cpus.give_back(uid).await;
        self.memory.give_back(uid).await;
    }

    /// Pods that have CPUs or memory of their own.
    pub(crate) fn holders_at_nodes(&self) -> HashSet<String> {
        self.cpus.holders().into_iter().chain(self.memory.holders()).collect()
    }
}
