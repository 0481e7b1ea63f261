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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use ferry_plugins::deviceplugin::{Device, NumaNode as Place, TopologyInfo};
    use ferry_tasks::Tasks;
    use serde_json::{Value, json};

    use super::*;
    use crate::cgroups::ControlGroups;
    use crate::cpu_manager::CpuManager;
    use crate::cpu_manager::topology::machines;
    use crate::device_plugins::Devices;
    use crate::dra::Dra;
    use crate::memory_manager::MemoryManager;
    use crate::node_resources::{NodeResources, Statements};
    use crate::topology_manager::TopologyManager;
    use crate::topology_manager::numa::{Numa, NumaNode};

    const GPU: &str = "example.com/gpu";

    /// Two NUMA nodes, each with eight CPUs, a gibibyte and two devices. A CPU and 100 MiB of the first are reserved.
    fn hardware(folder: &Path, policy: &str, scope: &str) -> Hardware {
        let statements = Statements {
            kube_reserved: [("cpu".to_owned(), "1".to_owned()), ("memory".to_owned(), "100Mi".to_owned())].into(),
            cpu_manager_policy: Some("static".to_owned()),
            memory_manager_policy: Some("Static".to_owned()),
            reserved_memory: vec![(0, [("memory".to_owned(), "100Mi".to_owned())].into())],
            topology_manager_policy: Some(policy.to_owned()),
            topology_manager_scope: Some(scope.to_owned()),
            ..Statements::default()
        };
        let resources = NodeResources::new(&statements).expect("taken");
        let node = |id: u32| NumaNode { id, memory: 1 << 30, ..NumaNode::default() };
        let numa = Numa::of((0..2).map(node).collect());
        let devices = Devices::open(folder, Arc::default(), &Tasks::new("test"));
        let device = |id: &str, node: i64| Device {
            id: id.to_owned(),
            health: "Healthy".to_owned(),
            topology: Some(TopologyInfo { nodes: vec![Place { id: node }] }),
        };
        devices.told(GPU, vec![device("a", 0), device("b", 0), device("c", 1), device("d", 1)]);
        Hardware {
            groups: ControlGroups::new(folder, Path::new("/")),
            cpus: Arc::new(CpuManager::open(folder, &resources, Ok(machines::two_sockets())).expect("CPUs")),
            memory: Arc::new(MemoryManager::open(folder, &resources, &numa, 100 << 20).expect("memory")),
            topology: Arc::new(TopologyManager::new(&resources.topology, numa).expect("a policy")),
            plugins: Arc::default(),
            devices,
            dra: Dra::open(folder),
        }
    }

    fn container(name: &str, cpu: &str, memory: &str, devices: &str) -> Value {
        let amounts = json!({"cpu": cpu, "memory": memory, GPU: devices});
        json!({"name": name, "resources": {"limits": amounts, "requests": amounts}})
    }

    fn pod(uid: &str, containers: &[Value]) -> Pod {
        let pod = json!({"metadata": {"name": uid, "uid": uid}, "spec": {"containers": containers}});
        serde_json::from_value(pod).expect("a pod")
    }

    fn refused(hardware: &Hardware, of: &Pod) -> String {
        hardware.admit(of).expect_err("refused").reason
    }

    #[tokio::test]
    async fn devices_cpus_and_memory_are_at_one_node() {
        let folder = tempfile::tempdir().expect("a folder");
        let hardware = hardware(folder.path(), "single-numa-node", "container");
        let at = |uid: &str| {
            let (cpus, memory) = (hardware.cpus.exclusive(uid, "main"), hardware.memory.nodes(uid, "main"));
            (cpus.to_string(), memory)
        };
        // The first node has CPUs and devices, but not as much memory.
        hardware.admit(&pod("p", &[container("main", "2", "1000Mi", "1")])).expect("admitted");
        assert_eq!(at("p"), ("4,12".to_owned(), "1".to_owned()));
        // What it has it keeps.
        hardware.admit(&pod("p", &[container("main", "2", "1000Mi", "1")])).expect("admitted again");
        // Where nowhere is enough memory, it has no say in the place, and cannot be had then; as upstream has it.
        assert_eq!(refused(&hardware, &pod("q", &[container("main", "2", "1000Mi", "1")])), "UnexpectedAdmissionError");
        hardware.give_back("q").await;
        assert_eq!(at("q"), (String::new(), String::new()));
        hardware.admit(&pod("r", &[container("main", "2", "100Mi", "2")])).expect("admitted");
        assert_eq!(at("r").1, "0");
        // One device of the second node is left, and nobody else's.
        assert_eq!(refused(&hardware, &pod("s", &[container("main", "2", "1Mi", "2")])), "TopologyAffinityError");
        assert_eq!(hardware.holders_at_nodes(), ["p", "r"].map(str::to_owned).into());
        hardware.give_back("p").await;
        hardware.admit(&pod("s", &[container("main", "2", "1Mi", "2")])).expect("admitted");
        assert_eq!(at("s").1, "1");
    }

    #[tokio::test]
    async fn the_scope_is_a_container_or_the_pod() {
        let both = pod("p", &[container("main", "2", "500Mi", "1"), container("side", "2", "500Mi", "1")]);
        let nodes = |scope: &str| {
            let folder = tempfile::tempdir().expect("a folder");
            let hardware = hardware(folder.path(), "restricted", scope);
            hardware.admit(&both).expect("admitted");
            ["main", "side"].map(|name| hardware.memory.nodes("p", name))
        };
        assert_eq!(nodes("container"), ["0", "1"]);
        assert_eq!(nodes("pod"), ["1", "1"]);
    }
}
