//! What the CPU manager counts, under upstream's names.

use ferry_metrics::{Kind, Page};

use super::policy::{Given, StaticPolicy};
use super::state::CpuState;
use super::topology::Level;
use crate::status::WaitReason;
use crate::topology_manager::TopologyScope;

#[derive(Debug, Default)]
pub(super) struct Counts {
    requests: u64,
    errors: u64,
    whole_cores: u64,
    not_whole_cores: u64,
    one_cache: u64,
}

impl Counts {
    /// A container was to get CPUs of its own, unless it shares them.
    pub(super) fn asked(&mut self, full_cores_only: bool, given: Result<&Option<Given>, &WaitReason>) {
        match given {
            Ok(None) => {}
            Ok(Some(given)) => {
                self.requests += 1;
                self.whole_cores += u64::from(full_cores_only);
                self.one_cache += u64::from(given.cache_aligned);
            }
            Err(_) => {
                self.requests += 1;
                self.errors += 1;
                self.not_whole_cores += u64::from(full_cores_only);
            }
        }
    }

    pub(super) fn not_written(&mut self) {
        self.errors += 1;
    }

    pub(super) fn text(&self, policy: Option<&StaticPolicy>, state: &CpuState) -> String {
        let mut page = Page::new();
        let mut counter = |name: &str, help: &str, value: u64| {
            page.family(name, Kind::Counter, help).sample("", value);
        };
        let help = "The number of cpu core allocations which required pinning.";
        counter("kubelet_cpu_manager_pinning_requests_total", help, self.requests);
        let help = "The number of cpu core allocations which required pinning failed.";
        counter("kubelet_cpu_manager_pinning_errors_total", help, self.errors);
        let Some(policy) = policy else { return page.into_text() };
        let exclusive = state.exclusive();
        let help = "The size of the shared CPU pool for non-guaranteed QoS pods, in millicores.";
        let shared = policy.available(state).len() * 1000;
        page.family("kubelet_cpu_manager_shared_pool_size_millicores", Kind::Gauge, help).sample("", shared);
        let help = "The total number of CPUs exclusively allocated to containers running on this node";
        page.family("kubelet_cpu_manager_exclusive_cpu_allocation_count", Kind::Gauge, help)
            .sample("", exclusive.len());
        let help = "Number of CPUs allocated per NUMA node";
        let mut family = page.family("kubelet_cpu_manager_allocation_per_numa", Kind::Gauge, help);
        for node in policy.topology.groups(Level::Node, &policy.topology.all()).into_keys() {
            let count = exclusive.common(&policy.topology.group(Level::Node, node)).len();
            family.sample(&format!("numa_node=\"{node}\""), count);
        }
        page.into_text()
    }

    /// What was given aligned: by this manager, and by the topology manager.
    pub(super) fn alignments(&self, is_static: bool, of_nodes: Option<[(TopologyScope, u64, u64); 2]>) -> String {
        let of = |scope: &str, boundary: &str| format!("scope=\"{scope}\",boundary=\"{boundary}\"");
        let mut page = Page::new();
        if !is_static && of_nodes.is_none() {
            return page.into_text();
        }
        let help = "Cumulative number of aligned compute resources allocated to containers by alignment type.";
        let mut family = page.family("kubelet_container_aligned_compute_resources_count", Kind::Counter, help);
        if is_static {
            family.sample(&of("container", "physical_cpu"), self.whole_cores);
            family.sample(&of("container", "uncore_cache"), self.one_cache);
        }
        for (scope, aligned, _) in of_nodes.into_iter().flatten() {
            family.sample(&of(scope.name(), "numa_node"), aligned);
        }
        let help =
            "Cumulative number of failures to allocate aligned compute resources to containers by alignment type.";
        let mut family = page.family("kubelet_container_aligned_compute_resources_failure_count", Kind::Counter, help);
        if is_static {
            family.sample(&of("container", "physical_cpu"), self.not_whole_cores);
        }
        for (scope, _, failed) in of_nodes.into_iter().flatten() {
            family.sample(&of(scope.name(), "numa_node"), failed);
        }
        page.into_text()
    }
}
