//! What is to become larger and does not: claims, and pods whose resources are changed while they run.

use ferry_meta::object;
use ferry_meta::quantity::Quantity;
use serde_json::Value;

use super::containers::edit;
use super::{Finding, Reason, said};
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
    let amount = |pointer: &str| Quantity::parse(object::text(claim, pointer)).ok();
    let (wanted, has) = (amount("/spec/resources/requests/storage")?, amount("/status/capacity/storage")?);
    if wanted.as_f64() <= has.as_f64() {
        return None;
    }
    let cause = format!("it has {has} and is to grow to {size}, and nobody has begun with that");
    let class = object::text(claim, "/spec/storageClassName");
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
