//! What changes of a pod's status are counted.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

use super::Worker;
use crate::metrics::{self, Counter, Histogram};
use crate::pod::Role;

impl Worker {
    /// `next` is about to take the place of the last status.
    pub(super) fn count_changes(&mut self, next: &PodStatus) {
        let runs = |status: &PodStatus| status.phase.as_deref() == Some("Running");
        if runs(next) {
            let first_seen = self.first_seen.take().filter(|_| !runs(&self.status));
            if let Some(first_seen) = first_seen {
                self.context.metrics.took(Histogram::PodStart, &[], first_seen.elapsed());
            }
        }
        for (role, exit_code, reason) in terminations(&self.status, next) {
            let exit_code = exit_code.to_string();
            let with = [
                ("container_type", metrics::container_type(role)),
                ("exit_code", exit_code.as_str()),
                ("reason", reason),
            ];
            self.context.metrics.count(Counter::TerminatedContainers, &with);
        }
    }
}

/// The containers that are terminated in the new status, and were not in the old one.
fn terminations<'a>(old: &PodStatus, new: &'a PodStatus) -> Vec<(Role, i32, &'a str)> {
    let lists = [
        (Role::Init, &old.init_container_statuses, &new.init_container_statuses),
        (Role::Regular, &old.container_statuses, &new.container_statuses),
        (Role::Ephemeral, &old.ephemeral_container_statuses, &new.ephemeral_container_statuses),
    ];
    let is_terminated =
        |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.terminated.is_some());
    let mut found = Vec::new();
    for (role, old, new) in lists {
        for status in new.iter().flatten() {
            let Some(end) = status.state.as_ref().and_then(|state| state.terminated.as_ref()) else { continue };
            let before = old.iter().flatten().find(|known| known.name == status.name);
            if !before.is_some_and(is_terminated) {
                found.push((role, end.exit_code, end.reason.as_deref().unwrap_or_default()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_container_that_ends_is_counted_once() {
        let ended = |code: i32| json!({"terminated": {"exitCode": code, "reason": "Error"}});
        let status = |init: Value, main: Value| -> PodStatus {
            let of = |state: Value| json!([{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]);
            serde_json::from_value(json!({"initContainerStatuses": of(init), "containerStatuses": of(main)}))
                .expect("a status")
        };
        let (waits, runs) = (json!({"waiting": {}}), json!({"running": {}}));
        let check = |old: &PodStatus, new: &PodStatus, want: &[(Role, i32)]| {
            let got: Vec<(Role, i32)> =
                terminations(old, new).into_iter().map(|(role, code, _)| (role, code)).collect();
            assert_eq!(got, want);
        };
        let first = status(waits.clone(), waits.clone());
        let second = status(ended(0), runs.clone());
        let third = status(ended(0), ended(7));
        check(&PodStatus::default(), &third, &[(Role::Init, 0), (Role::Regular, 7)]);
        check(&first, &second, &[(Role::Init, 0)]);
        check(&second, &third, &[(Role::Regular, 7)]);
        check(&third, &third, &[]);
        check(&third, &status(ended(0), runs), &[]);
    }
}
