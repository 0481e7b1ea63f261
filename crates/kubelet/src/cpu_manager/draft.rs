//! The admission of a pod: what it is given counts once all of it is written down.

use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::MutexGuard;

use super::policy::{StaticPolicy, exclusive_cpus};
use super::state::CpuState;
use super::{CpuManager, CpuSet, hints};
use crate::pod;
use crate::status::WaitReason;
use crate::topology_manager::{Hint, HintProvider, Hints, unexpected};

const RESOURCE: &str = "cpu";

pub(crate) struct Draft<'a> {
    manager: &'a CpuManager,
    policy: &'a StaticPolicy,
    _changing: MutexGuard<'a, ()>,
    next: CpuState,
    reusable: CpuSet,
}

impl<'a> Draft<'a> {
    pub(super) fn new(manager: &'a CpuManager, policy: &'a StaticPolicy) -> Self {
        let changing = manager.changing.lock();
        Self { manager, policy, _changing: changing, next: manager.state.lock().clone(), reusable: CpuSet::default() }
    }

    /// What is not written down would be given out twice after a restart. Blocks.
    pub(crate) fn commit(self) -> Result<(), WaitReason> {
        if *self.manager.state.lock() == self.next {
            return Ok(());
        }
        if let Err(why) = self.manager.write(&self.next) {
            self.manager.counts.lock().not_written();
            return Err(unexpected(why));
        }
        self.manager.put(self.next);
        Ok(())
    }
}

impl HintProvider for Draft<'_> {
    fn container_hints(&self, of: &Pod, container: &Container) -> Hints {
        let count = exclusive_cpus(of, container);
        if count == 0 {
            return Hints::new();
        }
        let known = self.next.of(pod::uid(of), &container.name);
        let found = match known {
            Some(known) if known.len() != count => Vec::new(),
            Some(known) => hints::hints(self.policy, known, &CpuSet::default(), count),
            None => hints::hints(self.policy, &self.policy.available(&self.next), &self.reusable, count),
        };
        Hints::from([(RESOURCE.to_owned(), Some(found))])
    }

    fn pod_hints(&self, of: &Pod) -> Hints {
        let count = hints::cpus_of_pod(of);
        if count == 0 {
            return Hints::new();
        }
        let mut known = CpuSet::default();
        for container in pod::init_containers(of).iter().chain(pod::containers(of)) {
            let Some(has) = self.next.of(pod::uid(of), &container.name) else { continue };
            if has.len() != exclusive_cpus(of, container) {
                return Hints::from([(RESOURCE.to_owned(), Some(Vec::new()))]);
            }
            known = known.union(has);
        }
        let found = if known.len() == count {
            hints::hints(self.policy, &known, &CpuSet::default(), count)
        } else {
            hints::hints(self.policy, &self.policy.available(&self.next), &self.reusable.union(&known), count)
        };
        Hints::from([(RESOURCE.to_owned(), Some(found))])
    }

    fn allocate(&mut self, of: &Pod, container: &Container, at: Hint) -> Result<(), WaitReason> {
        let given = self.policy.allocate(&mut self.next, of, container, at.nodes, &mut self.reusable);
        self.manager.counts.lock().asked(self.policy.options.full_cores_only, given.as_ref());
        given.map(drop)
    }
}
