//! Init containers: one after the other, before all others; sidecars among them stay.

use super::Work;
use crate::plan::Health;
use crate::pod::{self, Role};
use crate::runtime::RunState;

impl Work<'_> {
    /// Plans the init containers. True once the regular ones may run.
    pub(super) fn initialise(&mut self) -> bool {
        let (pod, state) = (self.observed.pod, self.observed.state);
        // Records of init containers may be gone by now, but a regular container only ever starts after them.
        let was_initialised = pod::containers(pod).iter().any(|c| state.current(&c.name).is_some());
        for container in pod::init_containers(pod) {
            let role = pod::role_of_init(container);
            let record = state.current(&container.name);
            if role == Role::Sidecar {
                self.keep(container, role, record.or_else(|| state.latest(&container.name)));
                let up = record.is_some_and(|record| {
                    let health = self.observed.health.get(&record.id).copied().unwrap_or(Health::UNPROBED);
                    record.state == RunState::Running && health.started
                });
                if !up && !was_initialised {
                    return false;
                }
                continue;
            }
            if was_initialised {
                continue;
            }
            match record {
                Some(record) if record.state == RunState::Exited && record.exit_code == 0 => {}
                // Of an earlier sandbox: it has to run again in this one.
                None => {
                    self.start(container, role, state.latest(&container.name));
                    return false;
                }
                Some(record) => {
                    self.keep(container, role, Some(record));
                    return false;
                }
            }
        }
        true
    }
}
