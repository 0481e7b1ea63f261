//! What is to become larger and does not: claims, and pods whose resources are changed while they run.

use ferry_meta::object;
use ferry_meta::quantity::Quantity;
use serde_json::Value;

use super::containers::edit;
use super::provisioner::class_of;
use super::{Finding, Reason, said};
use crate::named::{Found, Named};
use crate::world::{World, standing};

/// A claim that is bound, and asks for more than it has.
pub(super) fn claim(world: &World, claim: &Value) -> Option<Finding> {
    let failed = world.event(claim, &["VolumeResizeFailed", "ExternalExpandFailed"]);
    let size = object::text(claim, "/spec/resources/requests/storage");
    for kind in ["ControllerResizeError", "NodeResizeError", "Resizing", "FileSystemResizePending"] {
        if let Some(condition) = standing(claim, kind, "True") {
            let finding =
                Finding::new(Reason::ClaimResizing, claim, format!("it is bound, and is to grow to {size}: {kind}"));
            let finding = finding.detail(said(condition)).detail(failed.map(said).unwrap_or_default());
            return Some(match kind {
                "FileSystemResizePending" => {
                    finding.advise("the file system grows when a pod uses the claim").underway()
                }
                "Resizing" if failed.is_none() => finding.underway(),
                _ => finding.advise("look at the log of the resizer of its class"),
            });
        }
    }
    if let Some(found) = modifying(world, claim) {
        return Some(found);
    }
    let amount = |pointer: &str| Quantity::parse(object::text(claim, pointer)).ok();
    let (wanted, has) = (amount("/spec/resources/requests/storage")?, amount("/status/capacity/storage")?);
    if wanted.as_f64() <= has.as_f64() {
        return None;
    }
    let cause = format!("it has {has} and is to grow to {size}, and nobody has begun with that");
    let class = class_of(claim).unwrap_or_default();
    if let Some(told) = by_status(world, claim, size, &has.to_string()) {
        return Some(told.detail(failed.map(said).unwrap_or_default()));
    }
    let found = world.find("storageclasses", class);
    let provisioner = found.map(|class| object::text(class, "/provisioner")).unwrap_or_default();
    let finding = Finding::new(Reason::ClaimResizing, claim, cause).detail(failed.map(said).unwrap_or_default());
    Some(match (found, provisioner) {
        (Some(_), "kubernetes.io/no-provisioner") | (None, _) => finding
            .detail("a volume that somebody made by hand grows by nobody's doing")
            .advise(format!("move the data to a larger claim; a request cannot become smaller than {has} again")),
        _ => finding.advise(format!("see that the resizer of {provisioner} runs, and what it logs")),
    })
}

/// How far whoever makes it grow has come, as the claim itself says.
fn by_status(world: &World, claim: &Value, size: &str, has: &str) -> Option<Finding> {
    let status = object::text(claim, "/status/allocatedResourceStatuses/storage");
    let finding = |cause: String| Finding::new(Reason::ClaimResizing, claim, cause);
    Some(match status {
        "ControllerResizeInfeasible" | "NodeResizeInfeasible" => {
            let who = if status.starts_with("Node") { "the node" } else { "its driver" };
            finding(format!("it has {has}, and cannot grow to {size}: {who} says that this can never be"))
                .detail(super::warning(world, claim).map(said).unwrap_or_default())
                .advise(format!(
                    "ask for less, and more than {has}: kubectl edit -n {} pvc/{}",
                    object::namespace(claim),
                    object::name(claim)
                ))
        }
        "NodeResizePending" => finding(format!("its volume has {size}, and its file system {has}"))
            .detail("the file system grows when a pod uses the claim")
            .underway(),
        "ControllerResizeInProgress" | "NodeResizeInProgress" => {
            finding(format!("it has {has} and is growing to {size}")).underway()
        }
        _ => return None,
    })
}

/// The VolumeAttributesClass that a claim names.
pub(super) fn attributes(claim: &Value) -> Option<Named> {
    let name = object::text(claim, "/spec/volumeAttributesClassName");
    (!name.is_empty()).then(|| Named {
        group: "storage.k8s.io".to_owned(),
        kind: "VolumeAttributesClass".to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    })
}

/// A claim whose volume is to have other attributes than it has.
fn modifying(world: &World, claim: &Value) -> Option<Finding> {
    let wanted = attributes(claim)?;
    let has = object::text(claim, "/status/currentVolumeAttributesClassName");
    let name = &wanted.name;
    if has == name.as_str() {
        return None;
    }
    let (namespace, own) = (object::namespace(claim), object::name(claim));
    let now = if has.is_empty() { "none".to_owned() } else { format!("those of {has}") };
    let finding = |cause: String| Finding::new(Reason::ClaimModifying, claim, cause);
    let told = super::warning(world, claim).map(said).unwrap_or_default();
    let back = format!("or name another class: kubectl edit -n {namespace} pvc/{own}");
    if wanted.find(world) == Found::Absent {
        let cause = format!(
            "it is to have the attributes of {name}, and the VolumeAttributesClass {name:?} does not exist; it has {now}"
        );
        return Some(finding(cause).advise(format!("create the VolumeAttributesClass {name}")).advise(back));
    }
    Some(match object::text(claim, "/status/modifyVolumeStatus/status") {
        "Infeasible" => finding(format!("its driver refuses the attributes of {name}; it has {now}"))
            .detail(told)
            .advise(format!("correct the parameters in a class of another name, since they cannot be changed: kubectl get volumeattributesclass {name} -o yaml"))
            .advise(back),
        "InProgress" => finding(format!("it is getting the attributes of {name}; it has {now}")).detail(told).underway(),
        _ => finding(format!("it is to have the attributes of {name}, and nobody has begun with that; it has {now}"))
            .underway_if(super::is_young(world, claim))
            .detail(told)
            .advise("see that the resizer of its driver runs (csi-resizer), which does this too, and what it logs"),
    })
}

/// A pod whose resources are to change while it runs, and its node does not do so.
pub(super) fn pod(world: &World, pod: &Value) -> Option<Finding> {
    let node = object::text(pod, "/spec/nodeName");
    if let Some(pending) = standing(pod, "PodResizePending", "True") {
        let finding = |cause: String| Finding::new(Reason::PodResize, pod, cause).detail(said(pending));
        return Some(match object::text(pending, "/reason") {
            "Infeasible" => {
                finding(format!("it runs with its old resources: node {node} can never give it the new ones"))
                    .advise(format!("ask for less, or let it be made again on a larger node: {}", edit(world, pod)))
            }
            _ => finding(format!("it runs with its old resources: node {node} has no room for the new ones now"))
                .advise(format!(
                    "end pods there that are not needed: kubectl get pods -A --field-selector spec.nodeName={node}"
                ))
                .advise(format!("or ask for less: {}", edit(world, pod))),
        });
    }
    let under_way = standing(pod, "PodResizeInProgress", "True")?;
    let finding = |cause: String| Finding::new(Reason::PodResize, pod, cause).detail(said(under_way));
    Some(match object::text(under_way, "/reason") {
        "Error" => finding(format!("node {node} could not give it its new resources, and tries again"))
            .advise(format!("correct what the message names: {}", edit(world, pod))),
        _ => finding(format!("node {node} is giving it its new resources")).underway(),
    })
}
