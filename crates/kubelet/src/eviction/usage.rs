//! What one pod uses, as the ranking of pods and their limits see it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Volume};

use crate::pod;

/// Of one place on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) bytes: i64,
    pub(crate) inodes: i64,
}

impl std::ops::Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), inodes: self.inodes.saturating_add(other.inodes) }
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| sum + one)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ContainerUsage {
    pub(crate) name: String,
    /// The working set, in bytes.
    pub(crate) memory: Option<i64>,
    /// What the container wrote over its image.
    pub(crate) root: Option<Usage>,
    pub(crate) logs: Option<Usage>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodUsage {
    pub(crate) containers: Vec<ContainerUsage>,
    /// Volumes that lie on the node's own disk, by name.
    pub(crate) volumes: BTreeMap<String, Usage>,
    /// Files the kubelet made for it.
    pub(crate) own: Usage,
    pub(crate) processes: i64,
}

impl PodUsage {
    pub(crate) fn memory(&self) -> i64 {
        self.containers.iter().filter_map(|c| c.memory).fold(0, i64::saturating_add)
    }

    pub(crate) fn roots(&self) -> Usage {
        self.containers.iter().filter_map(|c| c.root).sum()
    }

    pub(crate) fn logs(&self) -> Usage {
        self.containers.iter().filter_map(|c| c.logs).sum()
    }

    /// All that counts against the pod's `ephemeral-storage`.
    pub(crate) fn ephemeral(&self) -> Usage {
        self.roots() + self.logs() + self.volumes.values().copied().sum() + self.own
    }
}

/// Volumes whose content is the pod's own and lies on the node's disk, with their plugins.
pub(crate) fn local_volumes(pod: &Pod) -> impl Iterator<Item = (&Volume, &'static str)> {
    pod::spec(pod).volumes.iter().flatten().filter_map(|volume| {
        if volume.empty_dir.as_ref().is_some_and(|e| e.medium.as_deref().unwrap_or_default().is_empty()) {
            return Some((volume, "empty-dir"));
        }
        volume.config_map.is_some().then_some((volume, "configmap"))
    })
}
