//! In which order pods have to go when the node is short of something, and what they are told.

use std::cmp::{Ordering, Reverse};

use ferry_meta::quantity::{Format, Quantity};
use k8s_openapi::api::core::v1::Pod;

use super::plan::Readings;
use super::settings::{Eviction, Signal, Threshold};
use super::usage::{PodUsage, Usage};
use crate::cgroups::request_of;
use crate::pod;

/// A pod that runs, and what it uses; none where that is not known.
pub(crate) type Candidate<'a> = (&'a Pod, Option<&'a PodUsage>);

/// Whether a pod stays whatever happens.
pub(crate) fn is_critical(pod: &Pod) -> bool {
    const SYSTEM_CRITICAL: i32 = 2_000_000_000;
    pod::is_static(pod) || pod::is_mirror(pod) || pod::spec(pod).priority.is_some_and(|p| p >= SYSTEM_CRITICAL)
}

/// Puts those that have to go first to the front. `dedicated`: images have a disk of their own.
pub(crate) fn order(signal: Signal, dedicated: bool, candidates: &mut [Candidate<'_>]) {
    let priority = |pod: &Pod| pod::spec(pod).priority.unwrap_or(0);
    if signal == Signal::PidAvailable {
        let processes = |usage: Option<&PodUsage>| usage.map_or(i64::MAX, |usage| usage.processes);
        candidates.sort_by_key(|(pod, usage)| (priority(pod), Reverse(processes(*usage))));
        return;
    }
    let above = |(pod, usage): &Candidate<'_>| -> Option<(bool, i64)> {
        let (used, exceeds, request) = amounts(signal, dedicated, pod, (*usage)?);
        Some((used > exceeds, used.saturating_sub(request)))
    };
    candidates.sort_by(|one, other| {
        let (first, second) = (above(one), above(other));
        // What is not known goes first, then what is above its request; true sorts behind false.
        let unknown = second.is_none().cmp(&first.is_none());
        let exceeds = || second.is_some_and(|s| s.0).cmp(&first.is_some_and(|f| f.0));
        let most = || match (first, second) {
            (Some(first), Some(second)) => second.1.cmp(&first.1),
            _ => Ordering::Equal,
        };
        unknown.then_with(exceeds).then_with(|| priority(one.0).cmp(&priority(other.0))).then_with(most)
    });
}

/// What is used, what it must not exceed, and what is taken off before pods are compared.
fn amounts(signal: Signal, dedicated: bool, pod: &Pod, usage: &PodUsage) -> (i64, i64, i64) {
    let request = |key: &str| request_of(pod, key);
    let volumes = || usage.volumes.values().copied().sum::<Usage>();
    let measured = match signal {
        Signal::MemoryAvailable | Signal::PidAvailable => {
            return (usage.memory(), request("memory"), request("memory"));
        }
        Signal::NodeFsAvailable | Signal::NodeFsInodesFree if dedicated => usage.logs() + volumes(),
        Signal::ImageFsAvailable | Signal::ImageFsInodesFree if dedicated => usage.roots(),
        _ => usage.roots() + usage.logs() + volumes(),
    };
    let storage = request("ephemeral-storage");
    match signal {
        // Nobody can request inodes, yet upstream takes the requested bytes off.
        Signal::NodeFsInodesFree | Signal::ImageFsInodesFree => (measured.inodes, 0, storage),
        _ => (measured.bytes, storage, storage),
    }
}

/// What an evicted pod is told.
pub(crate) fn message(
    settings: &Eviction,
    resource: &str,
    (pod, usage): Candidate<'_>,
    due: &[Threshold],
    readings: &Readings,
) -> String {
    let mut text = format!("The node was low on resource: {resource}. ");
    let crossed = due.iter().filter(|t| t.signal.resource() == resource);
    if let Some((threshold, reading)) = crossed.filter_map(|t| Some((t, readings.get(&t.signal)?))).next() {
        let wanted = settings.wanted(threshold, *reading, false);
        text += &format!("Threshold quantity: {wanted}, available: {}. ", reading.printed(threshold.signal));
    }
    let Some(usage) = usage else { return text };
    let bytes = |bytes: i64| Quantity::from_units(bytes, Format::BinarySi);
    let own = pod::spec(pod).resources.as_ref().and_then(|r| r.requests.as_ref()).and_then(|r| r.get(resource));
    if let Some(request) = own.filter(|_| resource == "memory") {
        let (name, used) = (pod::name(pod), bytes(usage.memory()));
        text +=
            &format!("Pod {name} was using {used}, request is {}, has larger consumption of {resource}. ", request.0);
    }
    for used in &usage.containers {
        let mut all = pod::containers(pod).iter().chain(pod::init_containers(pod));
        let Some(container) = all.find(|c| c.name == used.name) else { continue };
        let amount = match resource {
            "memory" => used.memory,
            "ephemeral-storage" => used.root.zip(used.logs).map(|(root, logs)| (root + logs).bytes),
            _ => None,
        };
        let requested = container.resources.as_ref().and_then(|r| r.requests.as_ref()).and_then(|r| r.get(resource));
        let request = requested.and_then(|q| Quantity::parse(&q.0).ok()).unwrap_or_default();
        if let Some(amount) = amount.map(bytes).filter(|amount| *amount > request) {
            let name = &used.name;
            text += &format!(
                "Container {name} was using {amount}, request is {request}, has larger consumption of {resource}. "
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::plan::Reading;
    use super::super::settings::Statements;
    use super::super::usage::ContainerUsage;
    use super::*;

    const MEBI: i64 = 1 << 20;

    fn pod(name: &str, priority: i32, memory: &str, storage: &str) -> Pod {
        let requests = json!({"memory": memory, "ephemeral-storage": storage});
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"priority": priority,
            "containers": [{"name": "main", "resources": {"requests": requests}}]}}))
        .expect("a pod")
    }

    fn usage(memory: i64, root: i64, logs: i64, volume: i64, processes: i64) -> PodUsage {
        let of = |mebi: i64| Usage { bytes: mebi * MEBI, inodes: mebi };
        let container = ContainerUsage {
            name: "main".into(),
            memory: Some(memory * MEBI),
            root: Some(of(root)),
            logs: Some(of(logs)),
        };
        PodUsage {
            containers: vec![container],
            volumes: [("v".to_owned(), of(volume))].into(),
            own: Usage::default(),
            processes,
        }
    }

    #[test]
    fn pods_go_in_the_order_of_what_they_owe() {
        let pods = [
            // Above its request by 50 MiB of memory, 10 MiB of disk in all.
            (pod("over", 0, "50Mi", "10Mi"), Some(usage(100, 10, 5, 5, 1))),
            // Above by more, but worth more.
            (pod("dear", 10, "0", "0"), Some(usage(500, 1, 1, 100, 50))),
            (pod("more", 0, "50Mi", "0"), Some(usage(200, 30, 1, 0, 2))),
            // Uses the most of all, as it said it would.
            (pod("within", 0, "1Gi", "1Gi"), Some(usage(900, 200, 0, 0, 9))),
            (pod("worthless", -5, "1Gi", "1Gi"), Some(usage(1, 1, 1, 1, 3))),
            (pod("unknown", 100, "0", "0"), None),
        ];
        let check = |signal: Signal, dedicated: bool, want: &[&str]| {
            let mut list: Vec<Candidate<'_>> = pods.iter().map(|(pod, usage)| (pod, usage.as_ref())).collect();
            order(signal, dedicated, &mut list);
            let names: Vec<&str> = list.iter().map(|(pod, _)| pod::name(pod)).collect();
            assert_eq!(names, want, "{signal:?} {dedicated}");
        };
        check(Signal::MemoryAvailable, false, &["unknown", "more", "over", "dear", "worthless", "within"]);
        check(Signal::NodeFsAvailable, false, &["unknown", "more", "over", "dear", "worthless", "within"]);
        // Logs and volumes alone: `over` has just what it asked for.
        check(Signal::NodeFsAvailable, true, &["unknown", "more", "dear", "worthless", "over", "within"]);
        check(Signal::ImageFsAvailable, true, &["unknown", "more", "dear", "worthless", "over", "within"]);
        check(Signal::PidAvailable, false, &["worthless", "within", "more", "over", "dear", "unknown"]);
    }

    #[test]
    fn some_pods_stay() {
        let check = |pod: serde_json::Value, want: bool| {
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            assert_eq!(is_critical(&pod), want, "{pod:?}");
        };
        check(json!({"metadata": {}, "spec": {"containers": [], "priority": 2_000_000_000}}), true);
        check(json!({"metadata": {}, "spec": {"containers": [], "priority": 1_999_999_999}}), false);
        check(json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}), true);
        check(json!({"metadata": {"annotations": {"kubernetes.io/config.source": "file"}}}), true);
        check(json!({"metadata": {"annotations": {"kubernetes.io/config.source": "api"}}}), false);
    }

    #[test]
    fn the_message_names_the_shortage_and_who_uses_more_than_it_asked_for() {
        let statements =
            Statements { hard: Some("memory.available<1Gi,nodefs.available<10%"), ..Statements::default() };
        let settings = Eviction::default().with(statements).expect("settings");
        let readings = Readings::from([
            (Signal::MemoryAvailable, Reading { available: 512 * MEBI, capacity: 4096 * MEBI }),
            (Signal::NodeFsAvailable, Reading { available: 5 * MEBI, capacity: 100 * MEBI }),
        ]);
        let check = |resource: &str, pod: &Pod, usage: Option<&PodUsage>, want: &str| {
            assert_eq!(message(&settings, resource, (pod, usage), &settings.thresholds, &readings), want);
        };
        let small = pod("p", 0, "50Mi", "50Mi");
        let figures = usage(100, 40, 20, 0, 1);
        check(
            "memory",
            &small,
            Some(&figures),
            "The node was low on resource: memory. Threshold quantity: 1Gi, available: 512Mi. Container main was using 100Mi, request is 50Mi, has larger consumption of memory. ",
        );
        check(
            "ephemeral-storage",
            &small,
            Some(&figures),
            "The node was low on resource: ephemeral-storage. Threshold quantity: 10Mi, available: 5Mi. Container main was using 60Mi, request is 50Mi, has larger consumption of ephemeral-storage. ",
        );
        check(
            "memory",
            &pod("q", 0, "1Gi", "0"),
            Some(&figures),
            "The node was low on resource: memory. Threshold quantity: 1Gi, available: 512Mi. ",
        );
        check("pids", &small, None, "The node was low on resource: pids. ");
    }
}
