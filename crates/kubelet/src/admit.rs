//! Whether this node takes a pod that was bound to it. The scheduler has asked the same, but others bind pods too.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::cgroups::requests;
use crate::preempt::Lack;
use crate::status::WaitReason;
use crate::{pod, quantity};

/// Why a pod is refused.
pub(crate) struct Refused {
    pub(crate) why: WaitReason,
    /// What it lacks, when that is the only reason: others may make room.
    pub(crate) lacks: Vec<Lack>,
}

/// What a pod is refused for; `others` are the pods the node has taken and that have not ended.
pub(crate) fn refusal<'a>(
    new: &Pod,
    others: impl Iterator<Item = &'a Pod> + Clone,
    allocatable: &BTreeMap<String, Quantity>,
) -> Option<Refused> {
    let lack = |key: &'static str, requested: i64, used: i64, capacity: Option<i64>| {
        let capacity = capacity.filter(|capacity| requested > 0 && used.saturating_add(requested) > *capacity)?;
        let why = WaitReason {
            reason: format!("OutOf{key}"),
            message: format!(
                "Node didn't have enough resource: {key}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        };
        Some((why, (key, requested.saturating_sub(capacity.saturating_sub(used)))))
    };
    let amount = |key: &str, number: fn(&Quantity) -> Option<i64>| allocatable.get(key).and_then(number);
    let (processor, memory) = requests(new);
    let used = others
        .clone()
        .map(requests)
        .fold((0_i64, 0_i64), |sum, one| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)));
    let count = i64::try_from(others.clone().count()).unwrap_or(i64::MAX);
    let lacking = [
        lack("pods", 1, count, amount("pods", quantity::value)),
        lack("cpu", processor, used.0, amount("cpu", quantity::milli)),
        lack("memory", memory, used.1, amount("memory", quantity::value)),
    ];
    let (words, lacks): (Vec<WaitReason>, Vec<Lack>) = lacking.into_iter().flatten().unzip();
    match (words.into_iter().next(), ports_taken(new, others)) {
        (Some(why), None) => Some(Refused { why, lacks }),
        (Some(why), Some(_)) | (None, Some(why)) => Some(Refused { why, lacks: Vec::new() }),
        (None, None) => None,
    }
}

fn ports_taken<'a>(new: &Pod, mut others: impl Iterator<Item = &'a Pod>) -> Option<WaitReason> {
    let wanted: Vec<&ContainerPort> = host_ports(new).collect();
    let taken = !wanted.is_empty()
        && others.any(|other| host_ports(other).any(|theirs| wanted.iter().any(|ours| conflict(ours, theirs))));
    taken.then(|| WaitReason {
        reason: "NodePorts".to_owned(),
        message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports".to_owned(),
    })
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let sidecars = pod::init_containers(pod).iter().filter(|c| pod::is_sidecar(c));
    let all = pod::containers(pod).iter().chain(sidecars);
    all.flat_map(|c| c.ports.iter().flatten()).filter(|port| port.host_port.is_some_and(|number| number > 0))
}

fn conflict(one: &ContainerPort, other: &ContainerPort) -> bool {
    let protocol = |port: &ContainerPort| port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let address =
        |port: &ContainerPort| port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
    let (ours, theirs) = (address(one), address(other));
    one.host_port == other.host_port
        && protocol(one) == protocol(other)
        && (ours == theirs || ours == "0.0.0.0" || theirs == "0.0.0.0")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(container: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}})).expect("a pod")
    }

    #[test]
    fn a_pod_that_does_not_fit_is_refused() {
        let port = |number: u16, ip: &str, protocol: &str| json!({"name": "c", "ports": [{"containerPort": 1, "hostPort": number, "hostIP": ip, "protocol": protocol}]});
        let asks =
            |cpu: &str, memory: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
        let allocatable = [("cpu", "2"), ("memory", "1Gi"), ("pods", "3")];
        let allocatable = allocatable.map(|(key, amount)| (key.to_owned(), Quantity(amount.to_owned()))).into();
        let check = |new: Value, others: &[Value], want: Option<&str>| {
            let others: Vec<Pod> = others.iter().cloned().map(of).collect();
            let refused = refusal(&of(new.clone()), others.iter(), &allocatable);
            assert_eq!(refused.map(|r| r.why.reason).as_deref(), want, "{new} beside {others:?}");
        };
        check(port(80, "", "TCP"), &[], None);
        check(port(80, "", "TCP"), &[port(80, "", "TCP")], Some("NodePorts"));
        check(port(80, "127.0.0.1", "TCP"), &[port(80, "0.0.0.0", "TCP")], Some("NodePorts"));
        check(port(80, "127.0.0.1", "TCP"), &[port(80, "192.0.2.1", "TCP")], None);
        check(port(80, "", "TCP"), &[port(80, "", "UDP"), port(81, "", "TCP")], None);
        check(asks("1500m", "1Mi"), &[asks("500m", "1Mi")], None);
        check(asks("1501m", "1Mi"), &[asks("500m", "1Mi")], Some("OutOfcpu"));
        check(asks("1m", "1025Mi"), &[], Some("OutOfmemory"));
        check(asks("0", "0"), &[asks("2", "1Gi")], None);
        check(asks("0", "0"), &[asks("0", "0"), asks("0", "0"), asks("0", "0")], Some("OutOfpods"));
    }
}
