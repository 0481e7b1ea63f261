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
mod tests {
    use super::super::Statements;
    use super::*;

    const MACHINE: Capacity = Capacity {
        cpu: 4000,
        memory: 8 << 30,
        storage: 100 << 30,
        processes: 1000,
        kept_memory: 100 << 20,
        kept_storage: 10 << 30,
    };

    fn taken(system: &[(&str, &str)], kube: &[(&str, &str)], enforced: &[&str]) -> NodeResources {
        let map = |list: &[(&str, &str)]| list.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        NodeResources::new(&Statements {
            system_reserved: map(system),
            kube_reserved: map(kube),
            enforce_node_allocatable: Some(enforced.iter().map(|name| (*name).to_owned()).collect()),
            ..Statements::default()
        })
        .expect("taken")
    }

    #[test]
    fn what_is_reserved_is_taken_off_and_the_rest_is_the_limit_of_all_pods() {
        let limits = |cpu, memory, processes| TopLimits { cpu, memory, processes };
        let check = |resources: NodeResources, want: (i64, i64, i64), top: TopLimits| {
            let seen = resources.allocatable(&MACHINE);
            assert_eq!((seen.cpu, seen.memory, seen.storage), want, "{resources:?}");
            assert_eq!(resources.top_limits(&MACHINE, 900), top, "{resources:?}");
        };
        let (usual, disk) = ((8 << 30) - (100 << 20), 90 << 30);
        check(taken(&[], &[], &["pods"]), (4000, usual, disk), limits(4000, 8 << 30, 900));
        let system = [("cpu", "500m"), ("memory", "1Gi"), ("pid", "100")];
        let kube = [("cpu", "250m"), ("memory", "512Mi"), ("ephemeral-storage", "5Gi"), ("pid", "50")];
        let (left, memory) = ((8 << 30) - (1536 << 20), (8 << 30) - (1636 << 20));
        check(taken(&system, &kube, &["pods"]), (3250, memory, 85 << 30), limits(3250, left, 850));
        // Not enforced, it is taken off all the same.
        for enforced in [&["none"][..], &[]] {
            check(taken(&system, &kube, enforced), (3250, memory, 85 << 30), limits(4000, 8 << 30, 1000));
        }
        check(taken(&[("cpu", "9")], &[], &["pods"]), (0, usual, disk), limits(0, 8 << 30, 900));
    }

    #[test]
    fn more_than_there_is_cannot_be_reserved() {
        let check = |resources: NodeResources, want: Result<(), &str>| {
            assert_eq!(resources.fits(&MACHINE).as_ref().map_err(String::as_str), want.as_ref().map_err(|w| *w));
        };
        check(taken(&[("cpu", "2")], &[("cpu", "2")], &["pods"]), Ok(()));
        check(
            taken(&[("cpu", "2")], &[("cpu", "2001m"), ("memory", "8Gi")], &["pods"]),
            Err(
                "invalid Node Allocatable configuration. Resource \"cpu\" has a reservation of 4001m but capacity of 4000m. \
                 Expected capacity >= reservation. Resource \"memory\" has a reservation of 8694792192 but capacity of \
                 8589934592. Expected capacity >= reservation.",
            ),
        );
        check(
            taken(&[], &[("ephemeral-storage", "91Gi")], &["none"]),
            Err(
                "invalid Node Allocatable configuration. Resource \"ephemeral-storage\" has a reservation of 108447924224 but \
                 capacity of 107374182400. Expected capacity >= reservation.",
            ),
        );
        check(
            taken(&[("pid", "1001")], &[], &["pods"]),
            Err(
                "invalid Node Allocatable configuration. Resource \"pid\" has a reservation of 1001 but capacity of 1000. \
                 Expected capacity >= reservation.",
            ),
        );
    }

    #[test]
    fn pods_per_core_cannot_exceed_max_pods() {
        for (per_core, processors, want) in [(0, 2, 110), (10, 2, 20), (100, 2, 110), (u32::MAX, 2, 110)] {
            let resources = NodeResources { pods_per_core: per_core, ..NodeResources::default() };
            assert_eq!(resources.most_pods(110, processors), want, "{per_core}");
        }
    }
}
