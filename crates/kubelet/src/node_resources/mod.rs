//! What of the node's resources is kept from pods, and how pods are held to the rest.
//!
//! [`Statements`] is what a KubeletConfiguration says, [`NodeResources`] the same after its checks, [`allocatable`] does the sums,
//! `enforce` writes them into control groups.

pub(crate) mod allocatable;
mod check;
mod enforce;
mod reserved;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cpu_manager::{CpuManagerPolicy, CpuSet};
use crate::memory_manager::{MemoryManagerPolicy, MemoryReservation};
use crate::topology_manager::TopologySettings;
pub(crate) use enforce::enforce;
pub(crate) use reserved::Reserved;

/// As the fields of a KubeletConfiguration are given; none is upstream's default.
#[derive(Clone, Debug, Default)]
pub struct Statements {
    pub system_reserved: BTreeMap<String, String>,
    pub kube_reserved: BTreeMap<String, String>,
    pub reserved_system_cpus: String,
    pub enforce_node_allocatable: Option<Vec<String>>,
    pub system_reserved_cgroup: String,
    pub kube_reserved_cgroup: String,
    pub pods_per_core: i64,
    pub cpu_cfs_quota: Option<bool>,
    pub cpu_cfs_quota_period: Option<Duration>,
    pub cpu_manager_policy: Option<String>,
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    pub cpu_manager_reconcile_period: Option<Duration>,
    pub memory_manager_policy: Option<String>,
    /// By NUMA node.
    pub reserved_memory: Vec<(i64, BTreeMap<String, String>)>,
    pub topology_manager_policy: Option<String>,
    pub topology_manager_scope: Option<String>,
    pub topology_manager_policy_options: BTreeMap<String, String>,
    /// The feature gate CPUManagerPolicyAlphaOptions.
    pub alpha_options: bool,
}

/// Why a configuration is refused, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ResourcesError(pub(crate) String);

/// Whom limits are enforced on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Enforcement {
    Pods,
    SystemReserved,
    SystemReservedCompressible,
    KubeReserved,
    KubeReservedCompressible,
    None,
}

impl Enforcement {
    const ALL: [(&'static str, Self); 6] = [
        ("pods", Self::Pods),
        ("system-reserved", Self::SystemReserved),
        ("system-reserved-compressible", Self::SystemReservedCompressible),
        ("kube-reserved", Self::KubeReserved),
        ("kube-reserved-compressible", Self::KubeReservedCompressible),
        ("none", Self::None),
    ];

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, found)| found)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

/// How limits of processor time are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quotas {
    pub(crate) enforced: bool,
    /// In microseconds.
    pub(crate) period: i64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { enforced: true, period: 100_000 }
    }
}

impl Quotas {
    /// For a pod or a container with CPUs of its own: they are its limit.
    pub(crate) fn unless(self, exclusive: bool) -> Self {
        Self { enforced: self.enforced && !exclusive, ..self }
    }
}

/// What was said of the node's resources, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeResources {
    pub(crate) system_reserved: Reserved,
    pub(crate) kube_reserved: Reserved,
    /// The CPUs that the system and the kubelet have, where they are named one by one.
    pub(crate) reserved_cpus: CpuSet,
    pub(crate) enforcements: BTreeSet<Enforcement>,
    pub(crate) system_cgroup: String,
    pub(crate) kube_cgroup: String,
    /// Zero for no limit.
    pub(crate) pods_per_core: u32,
    pub(crate) quotas: Quotas,
    pub(crate) cpu_manager: CpuManagerPolicy,
    pub(crate) cpu_manager_reconcile_period: Duration,
    pub(crate) memory_manager: MemoryManagerPolicy,
    pub(crate) reserved_memory: Vec<MemoryReservation>,
    pub(crate) topology: TopologySettings,
}

impl Default for NodeResources {
    fn default() -> Self {
        Self {
            system_reserved: Reserved::default(),
            kube_reserved: Reserved::default(),
            reserved_cpus: CpuSet::default(),
            enforcements: [Enforcement::Pods].into(),
            system_cgroup: String::new(),
            kube_cgroup: String::new(),
            pods_per_core: 0,
            quotas: Quotas::default(),
            cpu_manager: CpuManagerPolicy::None,
            cpu_manager_reconcile_period: Duration::from_secs(10),
            memory_manager: MemoryManagerPolicy::None,
            reserved_memory: Vec::new(),
            topology: TopologySettings::default(),
        }
    }
}
