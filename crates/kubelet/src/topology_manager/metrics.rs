//! What the topology manager counts, under upstream's names.

use std::time::Duration;

use ferry_metrics::{Kind, Page};

use super::policy::TopologyScope;

/// The upper bounds of the buckets, in milliseconds: from 0.05 on, doubled each time.
const BUCKETS: usize = 15;

#[derive(Debug, Default)]
pub(super) struct Counts {
    requests: u64,
    errors: u64,
    durations: [u64; BUCKETS],
    milliseconds: f64,
    /// Of containers and of pods: given at one NUMA node, and not.
    aligned: [(u64, u64); 2],
}

fn bounds() -> impl Iterator<Item = f64> {
    std::iter::successors(Some(0.05), |bound| Some(bound * 2.0)).take(BUCKETS)
}

impl Counts {
    pub(super) fn admitted(&mut self, admitted: bool, took: Duration) {
        self.requests += 1;
        self.errors += u64::from(!admitted);
        let milliseconds = took.as_secs_f64() * 1000.0;
        self.milliseconds += milliseconds;
        if let Some(place) = bounds().position(|bound| milliseconds <= bound) {
            self.durations[place] += 1;
        }
    }

    pub(super) fn aligned(&mut self, scope: TopologyScope) {
        self.aligned[usize::from(scope == TopologyScope::Pod)].0 += 1;
    }

    pub(super) fn not_aligned(&mut self, scope: TopologyScope) {
        self.aligned[usize::from(scope == TopologyScope::Pod)].1 += 1;
    }

    pub(super) fn alignments(&self) -> [(TopologyScope, u64, u64); 2] {
        let [of_containers, of_pods] = self.aligned;
        [(TopologyScope::Container, of_containers.0, of_containers.1), (TopologyScope::Pod, of_pods.0, of_pods.1)]
    }

    pub(super) fn text(&self) -> String {
        let mut page = Page::new();
        let help = "The number of admission requests where resources have to be aligned.";
        page.family("kubelet_topology_manager_admission_requests_total", Kind::Counter, help).sample("", self.requests);
        let help = "The number of admission request failures where resources could not be aligned.";
        page.family("kubelet_topology_manager_admission_errors_total", Kind::Counter, help).sample("", self.errors);
        let help = "Duration in milliseconds to serve a pod admission request.";
        page.family("kubelet_topology_manager_admission_duration_ms", Kind::Histogram, help).histogram(
            "",
            bounds().zip(self.durations),
            self.milliseconds,
            self.requests,
        );
        page.into_text()
    }
}
