//! What is so now: it is counted when somebody asks.

use std::collections::BTreeMap;

use ferry_metrics::{Kind, Page, labels};

use crate::mailboxes::Mailboxes;
use crate::pod;
use crate::runtime::Glimpse;

/// Pods by what is true of them, and containers by the runtime's state.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    running_pods: usize,
    containers: BTreeMap<&'static str, usize>,
    /// From the API server, and from files.
    desired: [usize; 2],
    active: [usize; 2],
    /// By lifecycle, by whether they are desired, and by whether they come from files.
    working: BTreeMap<(&'static str, &'static str, bool), usize>,
    ephemeral_containers: usize,
}

impl Gauges {
    /// `seen` is what the runtime has.
    pub(crate) fn read<'a>(mailboxes: &Mailboxes, seen: impl Iterator<Item = &'a Glimpse>) -> Self {
        let mut gauges = Self::default();
        for glimpse in seen {
            gauges.running_pods += usize::from(glimpse.has_sandbox);
            for state in &glimpse.containers {
                *gauges.containers.entry(*state).or_default() += 1;
            }
        }
        for mailbox in mailboxes.all() {
            let of = mailbox.pod();
            let place = usize::from(pod::is_static(&of));
            gauges.desired[place] += usize::from(!mailbox.is_gone());
            let config = if mailbox.is_gone() { "orphan" } else { "desired" };
            let lifecycle = match (mailbox.is_finished(), mailbox.grace()) {
                (true, _) => "terminated",
                (false, Some(_)) => "terminating",
                (false, None) => "sync",
            };
            *gauges.working.entry((lifecycle, config, place == 1)).or_default() += 1;
            gauges.ephemeral_containers += pod::spec(&of).ephemeral_containers.as_ref().map_or(0, Vec::len);
        }
        for mailbox in mailboxes.active() {
            gauges.active[usize::from(pod::is_static(&mailbox.pod()))] += 1;
        }
        gauges
    }

    /// In the format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut page = Page::new();
        let help = "Number of pods that have a running pod sandbox";
        page.family("kubelet_running_pods", Kind::Gauge, help).sample("", self.running_pods);
        let help = "Number of containers currently running";
        let mut family = page.family("kubelet_running_containers", Kind::Gauge, help);
        for (state, count) in &self.containers {
            family.sample(&labels([("container_state", *state)]), count);
        }
        let help = "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the \
                    apiserver.";
        two(&mut page, "kubelet_desired_pods", help, self.desired);
        let help = "The number of pods the kubelet considers active and which are being considered when admitting new pods. \
                    static is true if the pod is not from the apiserver.";
        two(&mut page, "kubelet_active_pods", help, self.active);
        let help = "The number of mirror pods the kubelet will try to create (one per admitted static pod)";
        page.family("kubelet_mirror_pods", Kind::Gauge, help).sample("", self.active[1]);
        let help = "Number of pods the kubelet is actually running, by lifecycle phase, by whether the pod is desired, and by \
                    whether it is static.";
        let mut family = page.family("kubelet_working_pods", Kind::Gauge, help);
        for ((lifecycle, config, is_static), count) in &self.working {
            let is_static = if *is_static { "true" } else { "" };
            let with = labels([("lifecycle", *lifecycle), ("config", *config), ("static", is_static)]);
            family.sample(&with, count);
        }
        let help = "Current number of ephemeral containers in pods managed by this kubelet.";
        page.family("kubelet_managed_ephemeral_containers", Kind::Gauge, help).sample("", self.ephemeral_containers);
        page.into_text()
    }
}

fn two(page: &mut Page, name: &str, help: &str, [of_api, of_files]: [usize; 2]) {
    let mut family = page.family(name, Kind::Gauge, help);
    family.sample("static=\"\"", of_api).sample("static=\"true\"", of_files);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::worker::Mailbox;

    #[test]
    fn pods_and_containers_are_counted() {
        let mailboxes = Mailboxes::default();
        for (uid, source) in [("a", "api"), ("b", "api"), ("c", "file"), ("d", "api")] {
            let annotations = json!({"kubernetes.io/config.source": source});
            let spec = json!({"containers": [], "ephemeralContainers": [{"name": "debug"}]});
            let pod = json!({"metadata": {"name": uid, "uid": uid, "annotations": annotations}, "spec": spec});
            mailboxes
                .put(uid.to_owned(), Mailbox::new(std::sync::Arc::new(serde_json::from_value(pod).expect("a pod"))));
        }
        mailboxes.get("b").expect("there").put_gone();
        mailboxes.get("d").expect("there").set_finished();
        let glimpse = |has_sandbox: bool, containers: &[&'static str]| Glimpse {
            has_sandbox,
            containers: containers.to_vec(),
            ..Glimpse::default()
        };
        let seen = [glimpse(true, &["running", "exited"]), glimpse(false, &["exited"])];
        let text = Gauges::read(&mailboxes, seen.iter()).text();
        for line in [
            "kubelet_running_pods 1",
            "kubelet_running_containers{container_state=\"exited\"} 2",
            "kubelet_running_containers{container_state=\"running\"} 1",
            "kubelet_desired_pods{static=\"\"} 2",
            "kubelet_desired_pods{static=\"true\"} 1",
            "kubelet_active_pods{static=\"\"} 1",
            "kubelet_active_pods{static=\"true\"} 1",
            "kubelet_mirror_pods 1",
            "kubelet_working_pods{lifecycle=\"sync\",config=\"desired\",static=\"true\"} 1",
            "kubelet_working_pods{lifecycle=\"terminating\",config=\"orphan\",static=\"\"} 1",
            "kubelet_working_pods{lifecycle=\"terminated\",config=\"desired\",static=\"\"} 1",
            "kubelet_managed_ephemeral_containers 4",
        ] {
            assert!(text.lines().any(|seen| seen == line), "{line} in {text}");
        }
    }
}
