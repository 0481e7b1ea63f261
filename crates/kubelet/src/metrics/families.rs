//! The families of metrics that events add to: their names, what they tell, and their buckets.

use std::sync::LazyLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Counter {
    RuntimeOperations,
    RuntimeErrors,
    RunSandboxErrors,
    StartedPods,
    StartedPodErrors,
    StartedUserNamespacedPods,
    StartedUserNamespacedPodErrors,
    StartedContainers,
    StartedContainerErrors,
    TerminatedContainers,
    OrphanedPods,
    AdmissionRejections,
    ImagesCollected,
    DevicePluginRegistrations,
    PodResourcesRequests,
    PodResourcesList,
    PodResourcesGetAllocatable,
    PodResourcesGet,
    PodResourcesGetErrors,
}

impl Counter {
    pub(super) const ALL: [Self; 19] = [
        Self::RuntimeOperations,
        Self::RuntimeErrors,
        Self::RunSandboxErrors,
        Self::StartedPods,
        Self::StartedPodErrors,
        Self::StartedUserNamespacedPods,
        Self::StartedUserNamespacedPodErrors,
        Self::StartedContainers,
        Self::StartedContainerErrors,
        Self::TerminatedContainers,
        Self::OrphanedPods,
        Self::AdmissionRejections,
        Self::ImagesCollected,
        Self::DevicePluginRegistrations,
        Self::PodResourcesRequests,
        Self::PodResourcesList,
        Self::PodResourcesGetAllocatable,
        Self::PodResourcesGet,
        Self::PodResourcesGetErrors,
    ];

    pub(super) fn has_labels(self) -> bool {
        !matches!(
            self,
            Self::StartedPods
                | Self::StartedPodErrors
                | Self::StartedUserNamespacedPods
                | Self::StartedUserNamespacedPodErrors
                | Self::OrphanedPods
        )
    }

    /// Its name and its help text.
    pub(super) fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::RuntimeOperations => {
                ("kubelet_runtime_operations_total", "Cumulative number of runtime operations by operation type.")
            }
            Self::RuntimeErrors => (
                "kubelet_runtime_operations_errors_total",
                "Cumulative number of runtime operation errors by operation type.",
            ),
            Self::RunSandboxErrors => (
                "kubelet_run_podsandbox_errors_total",
                "Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.",
            ),
            Self::StartedPods => ("kubelet_started_pods_total", "Cumulative number of pods started"),
            Self::StartedPodErrors => {
                ("kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods")
            }
            Self::StartedUserNamespacedPods => (
                "kubelet_started_user_namespaced_pods_total",
                "Cumulative number of pods with user namespaces started.",
            ),
            Self::StartedUserNamespacedPodErrors => (
                "kubelet_started_user_namespaced_pods_errors_total",
                "Cumulative number of errors when starting pods with user namespaces.",
            ),
            Self::StartedContainers => ("kubelet_started_containers_total", "Cumulative number of containers started"),
            Self::StartedContainerErrors => {
                ("kubelet_started_containers_errors_total", "Cumulative number of errors when starting containers")
            }
            Self::TerminatedContainers => {
                ("kubelet_terminated_containers_total", "Cumulative number of container terminations.")
            }
            Self::OrphanedPods => (
                "kubelet_orphaned_runtime_pods_total",
                "Number of pods of the container runtime that nobody knew when they were found.",
            ),
            Self::AdmissionRejections => {
                ("kubelet_admission_rejections_total", "Cumulative number pod admission rejections by the Kubelet.")
            }
            Self::ImagesCollected => (
                "kubelet_image_garbage_collected_total",
                "Total number of images garbage collected by the kubelet, whether through disk usage or image age.",
            ),
            Self::DevicePluginRegistrations => (
                "kubelet_device_plugin_registration_total",
                "Cumulative number of device plugin registrations. Broken down by resource name.",
            ),
            Self::PodResourcesRequests => (
                "kubelet_pod_resources_endpoint_requests_total",
                "Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
            ),
            Self::PodResourcesList => (
                "kubelet_pod_resources_endpoint_requests_list",
                "Number of requests to the PodResource List endpoint. Broken down by server api version.",
            ),
            Self::PodResourcesGetAllocatable => (
                "kubelet_pod_resources_endpoint_requests_get_allocatable",
                "Number of requests to the PodResource GetAllocatableResources endpoint. Broken down by server api version.",
            ),
            Self::PodResourcesGet => (
                "kubelet_pod_resources_endpoint_requests_get",
                "Number of requests to the PodResource Get endpoint. Broken down by server api version.",
            ),
            Self::PodResourcesGetErrors => (
                "kubelet_pod_resources_endpoint_errors_get",
                "Number of requests to the PodResource Get endpoint which returned error. Broken down by server api version.",
            ),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Histogram {
    RuntimeOperations,
    RunSandbox,
    PodWorker,
    PodStart,
    ContainersPerPod,
    Relist,
    RelistInterval,
    ImagePull,
    DeviceAllocation,
}

/// Of what has no buckets of its own.
const USUAL: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const POD_START: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
const IMAGE_PULL: [f64; 18] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0,
    3600.0,
];
const CONTAINERS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];
static OPERATIONS: LazyLock<Vec<f64>> =
    LazyLock::new(|| std::iter::successors(Some(0.005), |bound| Some(bound * 2.5)).take(14).collect());

impl Histogram {
    pub(super) const ALL: [Self; 9] = [
        Self::RuntimeOperations,
        Self::RunSandbox,
        Self::PodWorker,
        Self::PodStart,
        Self::ContainersPerPod,
        Self::Relist,
        Self::RelistInterval,
        Self::ImagePull,
        Self::DeviceAllocation,
    ];

    /// The upper bounds of its buckets.
    pub(super) fn bounds(self) -> &'static [f64] {
        match self {
            Self::RuntimeOperations => &OPERATIONS,
            Self::PodStart => &POD_START,
            Self::ImagePull => &IMAGE_PULL,
            Self::ContainersPerPod => &CONTAINERS,
            Self::RunSandbox | Self::PodWorker | Self::Relist | Self::RelistInterval | Self::DeviceAllocation => &USUAL,
        }
    }

    /// Its name and its help text.
    pub(super) fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::RuntimeOperations => (
                "kubelet_runtime_operations_duration_seconds",
                "Duration in seconds of runtime operations. Broken down by operation type.",
            ),
            Self::RunSandbox => (
                "kubelet_run_podsandbox_duration_seconds",
                "Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
            ),
            Self::PodWorker => (
                "kubelet_pod_worker_duration_seconds",
                "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
            ),
            Self::PodStart => (
                "kubelet_pod_start_duration_seconds",
                "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
            ),
            Self::ContainersPerPod => ("kubelet_containers_per_pod_count", "The number of containers per pod."),
            Self::Relist => ("kubelet_pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG."),
            Self::RelistInterval => {
                ("kubelet_pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG.")
            }
            Self::ImagePull => ("kubelet_image_pull_duration_seconds", "Duration in seconds to pull an image."),
            Self::DeviceAllocation => (
                "kubelet_device_plugin_alloc_duration_seconds",
                "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
            ),
        }
    }
}

/// Sizes of images are many: they are told in steps.
pub(crate) fn image_size(bytes: u64) -> &'static str {
    const STEPS: [(u64, &str); 12] = [
        (100 << 30, "GT100GB"),
        (60 << 30, "60GB-100GB"),
        (40 << 30, "40GB-60GB"),
        (30 << 30, "30GB-40GB"),
        (20 << 30, "20GB-30GB"),
        (10 << 30, "10GB-20GB"),
        (5 << 30, "5GB-10GB"),
        (1 << 30, "1GB-5GB"),
        (500 << 20, "500MB-1GB"),
        (100 << 20, "100MB-500MB"),
        (10 << 20, "10MB-100MB"),
        (0, "0-10MB"),
    ];
    STEPS.into_iter().find(|(least, _)| bytes > *least).map_or("N/A", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_images_are_told_in_steps() {
        for (bytes, want) in [
            (0, "N/A"),
            (1, "0-10MB"),
            (10 << 20, "0-10MB"),
            ((10 << 20) + 1, "10MB-100MB"),
            (600 << 20, "500MB-1GB"),
            (2 << 30, "1GB-5GB"),
            (101 << 30, "GT100GB"),
        ] {
            assert_eq!(image_size(bytes), want, "{bytes}");
        }
    }
}
