//! The status of the node: amounts, addresses, conditions, images.

use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::capacity;
use crate::context::Context;
use crate::eviction::Pressure;
use crate::shutdown;

const MOST_NAMES: usize = 5;

pub(super) fn is_ready(status: &NodeStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// The patch that writes a status. Addresses are replaced as a whole: they are merged by their type, and a node with addresses
/// of two families has two of one type.
pub(super) fn patch(status: &NodeStatus) -> Value {
    let mut status = json!(status);
    if let Some(Value::Array(addresses)) = status.get_mut("addresses") {
        addresses.insert(0, json!({"$patch": "replace"}));
    }
    json!({ "status": status })
}

/// Whether two statuses say the same, heartbeats aside.
pub(super) fn same(a: &NodeStatus, b: &NodeStatus) -> bool {
    let still = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        (
            status.conditions,
            status.addresses,
            status.capacity,
            status.allocatable,
            status.node_info,
            status.images,
            status.daemon_endpoints,
            status.volumes_in_use,
            status.features,
            status.runtime_handlers,
        )
    };
    still(a) == still(b)
}

/// Takes over conditions that somebody else has set to Unknown, because nobody heard of this node for a while: they differ from
/// what this kubelet wrote, and have to be written again.
pub(super) fn note_silence(known: &mut NodeStatus, seen: &NodeStatus) {
    for condition in known.conditions.iter_mut().flatten() {
        let unknown = seen.conditions.iter().flatten().find(|c| c.type_ == condition.type_ && c.status == "Unknown");
        if let Some(unknown) = unknown {
            *condition = unknown.clone();
        }
    }
}

pub(super) async fn status(context: &Context, old: &NodeStatus) -> NodeStatus {
    let config = &context.config;
    let amounts = context.amounts();
    let address = |kind: &str, address: &str| NodeAddress { type_: kind.to_owned(), address: address.to_owned() };
    let mut addresses: Vec<NodeAddress> =
        context.machine.addresses.iter().map(|ip| address("InternalIP", ip)).collect();
    addresses.push(address("Hostname", &config.node_name));
    let abilities = context.runtime_state.abilities.borrow().clone().unwrap_or_default();
    NodeStatus {
        features: abilities.features(),
        runtime_handlers: abilities.runtime_handlers(),
        addresses: Some(addresses),
        capacity: Some(amounts.capacity),
        allocatable: Some(amounts.allocatable),
        conditions: Some(conditions(context, old).await),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: context.port().into() }),
        }),
        images: Some(images(context).await),
        node_info: Some(capacity::system_info(&config.version, context.runtime.identity())),
        // Told even when there are none: a patch leaves out what is not named.
        volumes_in_use: Some(context.volumes.csi.in_use().borrow().iter().cloned().collect()),
        ..NodeStatus::default()
    }
}

async fn images(context: &Context) -> Vec<ContainerImage> {
    let mut images = context.runtime.images().await.unwrap_or_default();
    images.sort_by_key(|image| std::cmp::Reverse(image.size));
    images
        .into_iter()
        .take(context.config.settings.report.most_images.unwrap_or(usize::MAX))
        .map(|image| ContainerImage {
            names: Some(image.repo_digests.into_iter().chain(image.repo_tags).take(MOST_NAMES).collect()),
            size_bytes: Some(image.size.try_into().unwrap_or(i64::MAX)),
        })
        .collect()
}

/// One condition: its type, whether it holds, and its words.
type Judged = (&'static str, bool, &'static str, String);

async fn conditions(context: &Context, old: &NodeStatus) -> Vec<NodeCondition> {
    let ready = ready(context).await;
    let pressures = context.pressure.signals.borrow().clone();
    let judged = [Pressure::Memory, Pressure::Disk, Pressure::Processes].map(|p| pressure(p, pressures.contains(&p)));
    let judged = judged.into_iter().chain([ready]);
    let now = Time(context.clock.seconds());
    judged.map(|judged| condition(judged, old, now.clone())).collect()
}

fn condition((kind, holds, reason, message): Judged, old: &NodeStatus, now: Time) -> NodeCondition {
    let status = if holds { "True" } else { "False" };
    let known = old.conditions.iter().flatten().find(|c| c.type_ == kind && c.status == status);
    NodeCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: Some(known.and_then(|c| c.last_transition_time.clone()).unwrap_or(now)),
    }
}

fn pressure(pressure: Pressure, holds: bool) -> Judged {
    let (reason, message) = match (pressure, holds) {
        (Pressure::Memory, true) => ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        (Pressure::Memory, false) => ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        (Pressure::Disk, true) => ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        (Pressure::Disk, false) => ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        (Pressure::Processes, true) => ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        (Pressure::Processes, false) => ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    };
    (pressure.condition(), holds, reason, message.to_owned())
}

/// The event that a changed condition is told by.
pub(super) fn event_of(condition: &NodeCondition) -> Option<&'static str> {
    Some(match (condition.type_.as_str(), condition.status == "True") {
        ("MemoryPressure", true) => "NodeHasInsufficientMemory",
        ("MemoryPressure", false) => "NodeHasSufficientMemory",
        ("DiskPressure", true) => "NodeHasDiskPressure",
        ("DiskPressure", false) => "NodeHasNoDiskPressure",
        ("PIDPressure", true) => "NodeHasInsufficientPID",
        ("PIDPressure", false) => "NodeHasSufficientPID",
        ("Ready", true) => "NodeReady",
        ("Ready", false) => "NodeNotReady",
        _ => return None,
    })
}

async fn ready(context: &Context) -> Judged {
    let conditions = match context.runtime.conditions().await {
        Ok(conditions) => conditions,
        Err(error) => {
            return ("Ready", false, "KubeletNotReady", format!("container runtime is down: {}", error.message));
        }
    };
    let mut problems = Vec::new();
    for (kind, what) in
        [("RuntimeReady", "container runtime not ready"), ("NetworkReady", "container runtime network not ready")]
    {
        match conditions.iter().find(|c| c.r#type == kind) {
            Some(c) if c.status => {}
            Some(c) => problems.push(format!("{what}: {kind}=false reason:{} message:{}", c.reason, c.message)),
            None => problems.push(format!("{what}: {kind} is unknown")),
        }
    }
    if context.shutdown.is_on() {
        problems.push(shutdown::STATUS.to_owned());
    }
    if problems.is_empty() {
        return ("Ready", true, "KubeletReady", "kubelet is posting ready status".to_owned());
    }
    let text = match problems.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    ("Ready", false, "KubeletNotReady", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(ready: &str, pressure: &str) -> NodeStatus {
        let conditions = json!([{"type": "Ready", "status": ready}, {"type": "MemoryPressure", "status": pressure}]);
        serde_json::from_value(json!({ "conditions": conditions })).expect("a status")
    }

    #[test]
    fn addresses_are_replaced_as_a_whole() {
        let addresses =
            json!([{"type": "InternalIP", "address": "10.0.0.2"}, {"type": "InternalIP", "address": "fd00::2"}]);
        let status = serde_json::from_value(json!({ "addresses": addresses })).expect("a status");
        let patch = patch(&status);
        assert_eq!(patch["status"]["addresses"][0], json!({"$patch": "replace"}));
        assert_eq!(patch["status"]["addresses"][2]["address"], "fd00::2");
        assert_eq!(super::patch(&NodeStatus::default())["status"].get("addresses"), None);
    }

    #[test]
    fn a_node_that_was_given_up_tells_its_state_again() {
        let written = status("True", "False");
        let mut known = written.clone();
        note_silence(&mut known, &status("True", "False"));
        assert!(same(&known, &written), "nothing is to be written");
        // What the kubelet wrote itself may come back late, and is no news.
        note_silence(&mut known, &status("False", "False"));
        assert!(same(&known, &written));
        note_silence(&mut known, &status("Unknown", "Unknown"));
        assert!(!same(&known, &written), "all of it is written again");
        note_silence(&mut known, &NodeStatus::default());
        assert!(!same(&known, &written));
    }
}
