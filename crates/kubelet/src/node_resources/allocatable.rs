//! The sums: what pods may have of what the machine has.

use super::{Enforcement, NodeResources, Reserved};

/// What the machine has: processors in thousandths, memory and disk in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) storage: i64,
    pub(crate) processes: i64,
    /// Of the memory and the disk: what hard thresholds of eviction keep free.
    pub(crate) kept_memory: i64,
    pub(crate) kept_storage: i64,
}

/// What all pods together are held to: more than is allocatable, as eviction comes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopLimits {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) processes: u64,
}

/// What is allocatable to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocatable {
    pub(crate) cpu: i64,
    pub(crate) memory: i64,
    pub(crate) storage: i64,
}

impl NodeResources {
    fn reserved(&self, of: fn(&Reserved) -> Option<i64>) -> i64 {
        of(&self.system_reserved).unwrap_or(0).saturating_add(of(&self.kube_reserved).unwrap_or(0))
    }

    /// Processors that are kept from pods, in thousandths.
    pub(crate) fn reserved_cpu(&self) -> i64 {
        self.reserved(|reserved| reserved.cpu)
    }

    /// Memory that is kept from pods, in bytes.
    pub(crate) fn kept_memory(&self, has: &Capacity) -> u64 {
        let kept = self.reserved(|reserved| reserved.memory).saturating_add(has.kept_memory);
        u64::try_from(kept).unwrap_or(0)
    }

    pub(crate) fn allocatable(&self, has: &Capacity) -> Allocatable {
        let left = |all: i64, reserved: i64, kept: i64| all.saturating_sub(reserved).saturating_sub(kept).max(0);
        Allocatable {
            cpu: left(has.cpu, self.reserved_cpu(), 0),
            memory: left(has.memory, self.reserved(|reserved| reserved.memory), has.kept_memory),
            storage: left(has.storage, self.reserved(|reserved| reserved.storage), has.kept_storage),
        }
    }

    /// More cannot be kept than there is.
    pub(crate) fn fits(&self, has: &Capacity) -> Result<(), String> {
        let rows = [
            ("cpu", self.reserved_cpu(), has.cpu),
            ("memory", self.reserved(|reserved| reserved.memory).saturating_add(has.kept_memory), has.memory),
            (
                "ephemeral-storage",
                self.reserved(|reserved| reserved.storage).saturating_add(has.kept_storage),
                has.storage,
            ),
            ("pid", self.reserved(|reserved| reserved.processes), has.processes),
        ];
        let shown =
            |resource: &str, amount: i64| if resource == "cpu" { format!("{amount}m") } else { amount.to_string() };
        let too_much = rows.into_iter().filter(|(_, reserved, capacity)| reserved > capacity);
        let sentences: Vec<String> = too_much
            .map(|(resource, reserved, capacity)| {
                format!(
                    "Resource {resource:?} has a reservation of {} but capacity of {}. Expected capacity >= reservation.",
                    shown(resource, reserved),
                    shown(resource, capacity)
                )
            })
            .collect();
        if sentences.is_empty() {
            return Ok(());
        }
        Err(format!("invalid Node Allocatable configuration. {}", sentences.join(" ")))
    }

    /// `usual_processes` is what pods may have of processes where nothing is reserved of them.
    pub(crate) fn top_limits(&self, has: &Capacity, usual_processes: u64) -> TopLimits {
        let whole = |processes: i64| u64::try_from(processes).unwrap_or(0);
        if !self.enforcements.contains(&Enforcement::Pods) {
            return TopLimits { cpu: has.cpu, memory: has.memory, processes: whole(has.processes) };
        }
        let all = self.allocatable(&Capacity { kept_memory: 0, kept_storage: 0, ..*has });
        let reserved = self.reserved(|reserved| reserved.processes);
        let processes = if reserved > 0 { whole(has.processes.saturating_sub(reserved)) } else { usual_processes };
        TopLimits { cpu: all.cpu, memory: all.memory, processes }
    }

    /// How many pods the node takes.
    pub(crate) fn most_pods(&self, most: u32, processors: usize) -> u32 {
        if self.pods_per_core == 0 {
            return most;
        }
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        self.pods_per_core.saturating_mul(processors).min(most)
    }
}

#[cfg(test)]
mod tests;
