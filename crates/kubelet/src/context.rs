//! What all parts of one node's kubelet share.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_client::{Clock, Informer, Recorder};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::cgroups::ControlGroups;
use crate::collect;
use crate::cpu_manager::CpuManager;
use crate::device_plugins::Devices;
use crate::dra::Dra;
use crate::eviction::measure::Measures;
use crate::eviction::{Ended, Pressure};
use crate::images::Images;
use crate::logs::LogFiles;
use crate::manifests::Mirrors;
use crate::memory_manager::MemoryManager;
use crate::memory_policy;
use crate::metrics::Metrics;
use crate::node::capacity::{self, Amounts};
use crate::node_resources::Quotas;
use crate::plugins::Plugins;
use crate::probes;
use crate::runtime::{self, Abilities, PodState, Runtime, RuntimeError};
use crate::shutdown::ShutdownState;
use crate::sources::Sources;
use crate::spec::resources::Placement;
use crate::topology_manager::TopologyManager;
use crate::user_namespaces::UserNamespaces;
use crate::volumes::Volumes;

pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) client: Client,
    pub(crate) recorder: Recorder,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Clock,
    pub(crate) machine: Machine,
    pub(crate) registration: Registration,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) runtime_state: RuntimeState,
    pub(crate) hardware: Hardware,
    /// The users of pods that have their own.
    pub(crate) users: Arc<UserNamespaces>,
    pub(crate) pressure: PressureState,
    pub(crate) shutdown: ShutdownState,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) images: Images,
    pub(crate) sources: Arc<Sources>,
    pub(crate) volumes: Volumes,
    pub(crate) services: Informer<Service>,
    /// What the API server has of pods from files.
    pub(crate) mirrors: Mirrors,
    pub(crate) log_files: Arc<LogFiles>,
    pub(crate) probe_counts: Arc<probes::Counts>,
}

/// What is known of the machine from the start.
pub(crate) struct Machine {
    pub(crate) addresses: Vec<String>,
    pub(crate) allocatable: BTreeMap<String, Quantity>,
    /// Of the whole node, in bytes.
    pub(crate) memory: i64,
    /// What the machine has to swap to, and how memory is counted.
    pub(crate) swap: memory_policy::Machine,
    /// Whether the kernel enforces AppArmor's profiles; looked at once, as the kernel decides it when it starts.
    pub(crate) apparmor: bool,
    /// The port of the kubelet's server.
    pub(crate) port: u16,
}

/// The Node of this kubelet at the API server.
pub(crate) struct Registration {
    /// The Node as the API server has it: labels and taints are others' too.
    pub(crate) nodes: Informer<Node>,
    /// The uid of the Node, once it is registered.
    pub(crate) uid: tokio::sync::watch::Sender<Option<String>>,
}

/// What the runtime said of itself and of its containers.
#[derive(Default)]
pub(crate) struct RuntimeState {
    /// Counts what happened in the runtime: exits, starts, removals.
    pub(crate) changes: tokio::sync::watch::Sender<u64>,
    /// What the runtime said it can do, when it was last asked.
    pub(crate) abilities: tokio::sync::watch::Sender<Option<Arc<Abilities>>>,
}

/// What pods are given of the machine.
pub(crate) struct Hardware {
    pub(crate) groups: ControlGroups,
    /// At which NUMA nodes pods are admitted.
    pub(crate) topology: Arc<TopologyManager>,
    /// The CPUs that containers have of their own, and those that the others share.
    pub(crate) cpus: Arc<CpuManager>,
    /// The NUMA nodes of containers' memory.
    pub(crate) memory: Arc<MemoryManager>,
    pub(crate) plugins: Arc<Plugins>,
    /// The devices of device plug-ins.
    pub(crate) devices: Arc<Devices>,
    /// The devices that pods claim.
    pub(crate) dra: Arc<Dra>,
}

/// What the node is short of, and what may go for it.
pub(crate) struct PressureState {
    pub(crate) measures: Arc<Measures>,
    pub(crate) signals: tokio::sync::watch::Sender<Vec<Pressure>>,
    /// Counts the pods that were ended.
    pub(crate) ended: Ended,
    /// The images that may go.
    pub(crate) images: collect::Images,
}

impl Context {
    /// What the runtime can do; it is asked where that is not known yet.
    pub(crate) async fn abilities(&self) -> runtime::Result<Arc<Abilities>> {
        let known = self.runtime_state.abilities.borrow().clone();
        match known {
            Some(known) => Ok(known),
            None => self.ask_abilities().await,
        }
    }

    /// Asks again: a runtime may have been replaced meanwhile.
    pub(crate) async fn ask_abilities(&self) -> runtime::Result<Arc<Abilities>> {
        let told = Arc::new(self.runtime.abilities().await?);
        self.runtime_state.abilities.send_replace(Some(told.clone()));
        Ok(told)
    }

    /// This Node, as far as it is known; before it is registered, what it will be registered with.
    pub(crate) fn node(&self) -> Arc<Node> {
        self.registration.nodes.get("", &self.config.node_name).unwrap_or_else(|| Arc::new(crate::node::object(self)))
    }

    /// What the node has now: huge pages, disks and devices may have come since the start.
    pub(crate) fn amounts(&self) -> Amounts {
        let mut amounts = capacity::amounts(&self.config);
        self.hardware.devices.add_to(&mut amounts);
        amounts
    }

    /// What a container's memory is reckoned by.
    pub(crate) fn memory_machine(&self) -> memory_policy::Machine {
        let allocatable = self.machine.allocatable.get("memory").and_then(crate::quantity::value);
        memory_policy::Machine {
            memory: self.machine.memory,
            allocatable: allocatable.unwrap_or(0),
            ..self.machine.swap
        }
    }

    /// The port of the kubelet's server.
    pub(crate) fn port(&self) -> u16 {
        self.machine.port
    }

    pub(crate) fn host_address(&self) -> &str {
        self.machine.addresses.first().map(String::as_str).unwrap_or_default()
    }

    /// How limits of processor time of a pod as a whole are enforced.
    pub(crate) fn pod_quotas(&self, uid: &str) -> Quotas {
        self.config.resources.quotas.unless(self.hardware.cpus.has_exclusive(uid))
    }

    /// What the node gives a container beside what the container says.
    pub(crate) fn placement(&self, uid: &str, container: &str) -> Placement {
        Placement {
            node_memory: self.machine.memory,
            quotas: self.config.resources.quotas,
            exclusive: !self.hardware.cpus.exclusive(uid, container).is_empty(),
            cpus: self.hardware.cpus.affinity(uid, container).to_string(),
            memory_nodes: self.hardware.memory.nodes(uid, container),
        }
    }

    /// Makes a call to the runtime that a stop of the kubelet does not cut short: half a start would look like a
    /// container that failed. Giving up waiting for it while the kubelet runs does end it.
    pub(crate) async fn see_through<T: Send + 'static>(
        &self,
        call: impl Future<Output = runtime::Result<T>> + Send + 'static,
    ) -> runtime::Result<T> {
        let given_up = CancellationToken::new();
        let _guard = GiveUp { given_up: given_up.clone(), stopping: self.tasks.stopping() };
        let (sender, answer) = tokio::sync::oneshot::channel();
        self.tasks.spawn("runtime call", async move {
            if let Some(result) = given_up.run_until_cancelled(call).await {
                let _ = sender.send(result);
            }
        });
        answer.await.unwrap_or_else(|_| Err(RuntimeError::given_up()))
    }

    /// Frees the devices of a pod that has no process any more.
    pub(crate) async fn give_devices_back(&self, uid: &str) -> Result<(), String> {
        self.hardware.give_back(uid).await;
        self.hardware.dra.unprepare(uid).await
    }

    /// Removes the stopped containers, the sandboxes and the files of a pod.
    pub(crate) async fn remove_remains(&self, uid: &str, state: &PodState) -> Result<(), String> {
        self.sources.release(uid);
        for record in &state.records {
            self.runtime.remove_container(&record.id).await.map_err(|e| e.to_string())?;
        }
        for sandbox in &state.sandboxes {
            self.runtime.stop_sandbox(&sandbox.id).await.map_err(|e| e.to_string())?;
            self.runtime.remove_sandbox(&sandbox.id).await.map_err(|e| e.to_string())?;
        }
        self.hardware.groups.remove(uid).await;
        self.give_devices_back(uid).await?;
        self.volumes.remove(uid).await
    }
}

struct GiveUp {
    given_up: CancellationToken,
    stopping: CancellationToken,
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        if !self.stopping.is_cancelled() {
            self.given_up.cancel();
        }
    }
}
