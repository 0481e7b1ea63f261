//! Volumes that cannot be mounted, and PersistentVolumes themselves.

use ferry_meta::object;
use ferry_semantics::node_selector;
use k8s_openapi::api::core::v1::{Node, NodeSelector};
use serde_json::Value;

use super::containers::{any_started, edit};
use super::{Finding, Reason, fit, named, references, said};
use crate::gather::ALL_CLAIMS;
use crate::world::{World, event_time, is_true, time_at, word};

/// Volumes that cannot be had on the node.
pub(super) fn mount(world: &World, pod: &Value) -> Option<Finding> {
    // The volumes come before the sandbox, and the sandbox before the images: an Event of before is over.
    if any_started(pod) || is_true(pod, "PodReadyToStartContainers") {
        return None;
    }
    let event = world.event(pod, &["FailedMount", "FailedAttachVolume", "FailedMapVolume"]);
    let later = world.event(pod, &["Pulling", "Pulled", "Created", "Started"]);
    if later.is_some() && later.and_then(event_time) > event.and_then(event_time) {
        return None;
    }
    let told = event.map(|event| object::text(event, "/message")).unwrap_or_default();
    if let Some(missing) = references::missing_for_volume(world, pod) {
        return Some(missing.detail(told));
    }
    let event = event?;
    if let Some(missing) = missing_account(world, pod) {
        return Some(missing.detail(told));
    }
    let finding = |cause: String| Finding::new(Reason::Volume, pod, cause).detail(told);
    let node = object::text(pod, "/spec/nodeName");
    if let Some(one) = references::come_since(world, pod, told) {
        let cause = format!("{one} was not there when the kubelet of {node} looked, and is there now");
        return Some(finding(cause).underway().detail("the kubelet tries again, at least every two minutes"));
    }
    for volume in object::items(pod, "/spec/volumes") {
        let (name, path) = (object::text(volume, "/name"), object::text(volume, "/hostPath/path"));
        let kind = object::text(volume, "/hostPath/type");
        // The kubelet names the path that it looked at.
        if !kind.is_empty() && !path.is_empty() && told.contains(path) {
            return Some(
                finding(format!(
                    "its volume {name:?} wants the host's {path} to be a {kind}, and on node {node} it is not"
                ))
                .advise(format!("create it on {node}, or correct hostPath: {}", edit(world, pod))),
            );
        }
        if let Some((bound, path)) = local(world, pod, volume)
            && told.contains(path)
        {
            let claim = object::text(volume, "/persistentVolumeClaim/claimName");
            return Some(
                finding(format!(
                    "its volume {name:?} (claim {claim}) is the PersistentVolume {bound}, whose path {path} cannot be had on node {node}"
                ))
                .advise(format!("create {path} on {node}"))
                .advise(format!(
                    "the path of a PersistentVolume cannot be changed: to name another, create it anew: kubectl delete pv {bound}"
                )),
            );
        }
        // A driver that has answered is there.
        let answered = told.contains("rpc error: code =") && told.contains(" desc =");
        if let Some(driver) = driver(world, pod, volume)
            && !answered
            && unregistered(world, node, driver)
        {
            return Some(
                finding(format!("its volume {name:?} needs the CSI driver {driver}, which node {node} does not have"))
                    .advise(format!(
                        "install the driver on {node}: kubectl get csinode {node} -o yaml shows those it has"
                    )),
            );
        }
    }
    if object::text(event, "/reason") == "FailedAttachVolume" {
        let users = other_users(world, pod);
        let found = finding(format!("a volume cannot be attached to node {node}"));
        return Some(match users.first() {
            Some((claim, other, there)) => {
                found.detail(format!("pod/{other} on node {there} uses the same claim {claim}")).advise(format!(
                    "if the volume can be on one node only, end pod/{other} first: ferry why -n {} pod/{other}",
                    object::namespace(pod)
                ))
            }
            None => found.advise(format!(
                "see its claims, and where their volumes are attached: kubectl get -n {} pvc,volumeattachments",
                object::namespace(pod)
            )),
        });
    }
    let unmounted = unmounted(told);
    let told_of = |volume: &&Value| {
        let name = object::text(volume, "/name");
        told.contains(&format!("volume {name:?}")) || unmounted.contains(&name)
    };
    let volumes = object::items(pod, "/spec/volumes");
    // A volume of a claim goes by the name of its PersistentVolume.
    let bound = |volume: &Value| persistent_behind(world, pod, volume).map(object::name);
    let by_bound = |volume: &&Value| bound(volume).is_some_and(|name| told.contains(&format!("volume {name:?}")));
    let found = volumes.iter().find(told_of).or_else(|| volumes.iter().find(by_bound));
    let which = match found.map(|volume| (object::text(volume, "/name"), bound(volume))) {
        Some((name, Some(bound))) => {
            let claim = found.map(|one| object::text(one, "/persistentVolumeClaim/claimName")).unwrap_or_default();
            let claim = if claim.is_empty() { String::new() } else { format!("claim {claim}, ") };
            format!("its volume {name:?} ({claim}PersistentVolume {bound})")
        }
        Some((name, None)) => format!("its volume {name:?}"),
        None => "a volume".to_owned(),
    };
    if let Some(name) = found.and_then(bound) {
        return Some(
            finding(format!("{which} cannot be mounted on node {node}"))
                .advise(format!("see where it leads, and that node {node} reaches it: kubectl get pv {name} -o yaml")),
        );
    }
    Some(
        finding(format!("{which} cannot be mounted on node {node}"))
            .advise(format!("correct what the message names: {}", edit(world, pod))),
    )
}

/// `unmounted volumes=[a b]`: those that a kubelet waits for.
fn unmounted(told: &str) -> Vec<&str> {
    let list = told.split_once("unmounted volumes=[").and_then(|(_, rest)| rest.split(']').next());
    list.unwrap_or_default().split([' ', ',']).filter(|name| !name.is_empty()).collect()
}

/// A token for a ServiceAccount that was deleted after the pod was made.
fn missing_account(world: &World, pod: &Value) -> Option<Finding> {
    let (name, namespace) = (object::text(pod, "/spec/serviceAccountName"), object::namespace(pod));
    let of_token = |volume: &&Value| {
        object::items(volume, "/projected/sources").iter().any(|one| one.get("serviceAccountToken").is_some())
    };
    let volume = object::items(pod, "/spec/volumes").iter().find(of_token)?;
    let is_there = |account: &Value| object::name(account) == name;
    if name.is_empty() || world.seen("serviceaccounts")?.iter().any(is_there) {
        return None;
    }
    let cause = format!(
        "its volume {:?} needs a token of the ServiceAccount {name:?}, which does not exist in namespace {namespace}",
        object::text(volume, "/name")
    );
    Some(
        Finding::new(Reason::ServiceAccountMissing, pod, cause)
            .advise(format!("kubectl create serviceaccount -n {namespace} {}", word(name))),
    )
}

/// The PersistentVolume behind a volume, with its path on the node.
fn local<'a>(world: &'a World, pod: &Value, volume: &'a Value) -> Option<(&'a str, &'a str)> {
    let bound = persistent_behind(world, pod, volume)?;
    let paths = ["/spec/local/path", "/spec/hostPath/path"].map(|field| object::text(bound, field));
    let path = paths.into_iter().find(|path| !path.is_empty())?;
    Some((object::name(bound), path))
}

pub(super) fn persistent_behind<'a>(world: &'a World, pod: &Value, volume: &Value) -> Option<&'a Value> {
    let name = match object::text(volume, "/persistentVolumeClaim/claimName") {
        "" => format!("{}-{}", object::name(pod), object::text(volume, "/name")),
        name => name.to_owned(),
    };
    let claim = world.find("persistentvolumeclaims", &name)?;
    world.find("persistentvolumes", object::text(claim, "/spec/volumeName"))
}

/// The CSI driver behind a volume.
fn driver<'a>(world: &'a World, pod: &Value, volume: &'a Value) -> Option<&'a str> {
    let inline = object::text(volume, "/csi/driver");
    if !inline.is_empty() {
        return Some(inline);
    }
    let volume = persistent_behind(world, pod, volume)?;
    Some(object::text(volume, "/spec/csi/driver")).filter(|driver| !driver.is_empty())
}

fn unregistered(world: &World, node: &str, driver: &str) -> bool {
    // Without the object in which the kubelet lists them nothing is known of its drivers.
    let Some(of_node) = world.find("csinodes", node) else { return false };
    let drivers = object::items(of_node, "/spec/drivers");
    !drivers.iter().any(|known| object::text(known, "/name") == driver)
}

/// Pods on other nodes that use one of its claims: the claim, the pod, its node.
fn other_users(world: &World, pod: &Value) -> Vec<(String, String, String)> {
    let node = object::text(pod, "/spec/nodeName");
    let mut found = Vec::new();
    for claim in fit::volumes::claims(pod) {
        for other in world.all(crate::gather::ALL_PODS) {
            let there = object::text(other, "/spec/nodeName");
            let same = object::namespace(other) == object::namespace(pod) && object::uid(other) != object::uid(pod);
            if same && !there.is_empty() && there != node && fit::volumes::claims(other).contains(&claim) {
                found.push((claim.clone(), object::name(other).to_owned(), there.to_owned()));
            }
        }
    }
    found
}

/// A volume that no node can have.
fn nowhere(world: &World, volume: &Value) -> Option<Finding> {
    let nodes = world.seen("nodes").filter(|nodes| !nodes.is_empty())?;
    if !matches!(object::text(volume, "/status/phase"), "Available" | "Bound") {
        return None;
    }
    let affinity: NodeSelector = serde_json::from_value(volume.pointer("/spec/nodeAffinity/required")?.clone()).ok()?;
    let takes = |node: &Value| {
        serde_json::from_value::<Node>(node.clone()).is_ok_and(|node| node_selector::selects(&affinity, &node))
    };
    if nodes.iter().any(takes) {
        return None;
    }
    let name = object::name(volume);
    let cause = format!(
        "no node can have it: its nodeAffinity is for {}",
        fit::node_terms(&volume["spec"]["nodeAffinity"]["required"])
    );
    Some(
        Finding::new(Reason::VolumeNode, volume, cause)
            .detail(format!("the nodes are {}", named(&nodes.iter().map(object::name).collect::<Vec<_>>())))
            .advise("bring that node back, or give a node the label: kubectl get nodes --show-labels")
            .advise(format!("a volume's nodeAffinity cannot be changed: to name another node, create it anew: kubectl delete pv {name}")),
    )
}

/// A PersistentVolume of its own.
pub(super) fn persistent(world: &World, volume: &Value) -> Option<Finding> {
    let name = object::name(volume);
    let claim = volume.pointer("/spec/claimRef");
    let claimed = claim.map(|claim| format!("{}/{}", object::text(claim, "/namespace"), object::text(claim, "/name")));
    if let Some(found) = nowhere(world, volume) {
        return Some(found);
    }
    match object::text(volume, "/status/phase") {
        "Released" => {
            let policy = object::text(volume, "/spec/persistentVolumeReclaimPolicy");
            let claimed = claimed.unwrap_or_default();
            let since = time_at(volume, "/status/lastPhaseTransitionTime");
            if policy == "Delete" {
                let cause =
                    format!("its claim {claimed} is gone, and nobody has deleted it yet (reclaim policy Delete)");
                return Some(
                    Finding::new(Reason::VolumeReleased, volume, cause)
                        .underway_if(since.is_some_and(|since| super::is_soon(world, since)))
                        .detail(super::warning(world, volume).map(said).unwrap_or_default())
                        .advise("see that its provisioner runs, which deletes it, and what that logs"),
                );
            }
            let cause =
                format!("its claim {claimed} is gone, and it is kept for what is on it (reclaim policy {policy})");
            Some(
                Finding::new(Reason::VolumeReleased, volume, cause)
                    .note()
                    .advise(format!("if what is on it may be used again: kubectl patch pv {name} --type=merge -p '{{\"spec\":{{\"claimRef\":null}}}}'"))
                    .advise(format!("if it is not needed: kubectl delete pv {name}")),
            )
        }
        "Failed" => Some(
            Finding::new(Reason::VolumeReleased, volume, "it could not be reclaimed after its claim was deleted")
                .detail(object::text(volume, "/status/message"))
                .detail(super::warning(world, volume).map(said).unwrap_or_default()),
        ),
        "Available" => {
            // A volume that is kept for a claim waits for that one.
            let claim = claim?;
            let there = world.seen(ALL_CLAIMS)?.iter().find(|item| {
                object::name(item) == object::text(claim, "/name")
                    && object::namespace(item) == object::text(claim, "/namespace")
            });
            let cause = match there {
                None => format!("it is kept for the claim {}, which does not exist yet", claimed.unwrap_or_default()),
                Some(claim) => {
                    let misfits = super::misfit::misfits(claim, volume);
                    return (!misfits.is_empty()).then(|| super::claim::findings(world, claim)).flatten();
                }
            };
            Some(Finding::new(Reason::NoVolume, volume, cause).note().advise("create that claim when it is needed"))
        }
        _ => None,
    }
}
