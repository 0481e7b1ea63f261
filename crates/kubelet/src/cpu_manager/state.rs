//! Which containers have CPUs of their own, and which CPUs all the others share.

use std::collections::BTreeMap;

use super::CpuSet;

/// By pod uid and container.
pub(crate) type Assignments = BTreeMap<String, BTreeMap<String, CpuSet>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuState {
    /// Of everybody without CPUs of its own. Empty where CPUs are not given out at all.
    pub(crate) shared: CpuSet,
    pub(crate) assigned: Assignments,
}

impl CpuState {
    pub(crate) fn of(&self, uid: &str, container: &str) -> Option<&CpuSet> {
        self.assigned.get(uid)?.get(container)
    }

    /// Where a container may run.
    pub(crate) fn of_or_shared(&self, uid: &str, container: &str) -> &CpuSet {
        self.of(uid, container).unwrap_or(&self.shared)
    }

    pub(crate) fn exclusive(&self) -> CpuSet {
        let sets = self.assigned.values().flat_map(BTreeMap::values);
        sets.fold(CpuSet::default(), |all, set| all.union(set))
    }

    /// Gives back whatever a pod has. Whether it had anything.
    pub(crate) fn release(&mut self, uid: &str) -> bool {
        let Some(sets) = self.assigned.remove(uid) else { return false };
        self.shared = sets.values().fold(self.shared.clone(), |all, set| all.union(set));
        true
    }
}
