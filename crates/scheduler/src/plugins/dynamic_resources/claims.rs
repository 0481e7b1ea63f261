//! The claims of a pod: whether they are there, whose they are, and whether their devices are ready.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequest, DeviceRequestAllocationResult, ResourceClaim};
use k8s_openapi::jiff::Timestamp;

use crate::devices::Devices;
use crate::model::PodInfo;

pub(super) fn wanted(pod: &PodInfo) -> &[PodResourceClaim] {
    pod.pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default()
}

/// The claims of the pod, or why it has to wait for them.
pub(super) fn of_pod(pod: &PodInfo, devices: &Devices) -> Result<Vec<Arc<ResourceClaim>>, String> {
    let mut claims = Vec::new();
    for wanted in wanted(pod) {
        let Some((name, made)) = name(pod, wanted)? else { continue };
        let Some(claim) = devices.claim(&pod.namespace, name) else {
            return Err(format!("could not find ResourceClaim \"{}/{name}\"", pod.namespace));
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("resourceclaim {name:?} is being deleted"));
        }
        if made && !is_owned_by(&claim, pod) {
            let (namespace, pod) = (&pod.namespace, pod.full_name());
            return Err(format!("ResourceClaim {namespace}/{name} was not created for Pod {pod} (Pod is not owner)"));
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// Whether the pod names the claim, be it there or not.
pub(super) fn names(pod: &PodInfo, claim: &ResourceClaim) -> bool {
    claim.metadata.namespace.as_deref().unwrap_or_default() == pod.namespace
        && wanted(pod).iter().any(|wanted| {
            let known = name(pod, wanted).ok().flatten();
            known.is_some_and(|(name, _)| claim.metadata.name.as_deref() == Some(name))
        })
}

/// The name of the claim, and whether it was made for the pod. Nothing where none is needed.
fn name<'a>(pod: &'a PodInfo, wanted: &'a PodResourceClaim) -> Result<Option<(&'a str, bool)>, String> {
    if let Some(name) = &wanted.resource_claim_name {
        return Ok(Some((name, false)));
    }
    if wanted.resource_claim_template_name.is_none() {
        let (pod, name) = (pod.full_name(), &wanted.name);
        return Err(format!("pod {pod:?}, spec.resourceClaim {name:?}: none of the supported fields are set"));
    }
    let statuses = pod.pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
    match statuses.into_iter().flatten().find(|status| status.name == wanted.name) {
        Some(status) => Ok(status.resource_claim_name.as_deref().map(|name| (name, true))),
        None => Err(format!("pod {:?}: ResourceClaim not created yet", pod.full_name())),
    }
}

pub(super) fn is_owned_by(claim: &ResourceClaim, pod: &PodInfo) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| *owner.uid == *pod.uid && owner.controller == Some(true))
}

pub(super) fn requests(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequest> {
    let devices = claim.spec.as_ref().and_then(|spec| spec.devices.as_ref());
    devices.into_iter().flat_map(|devices| devices.requests.iter().flatten())
}

pub(super) fn allocation(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

pub(super) fn results(allocation: &AllocationResult) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten())
}

pub(super) fn is_reserved_for(claim: &ResourceClaim, pod: &PodInfo) -> bool {
    let mut users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    users.any(|user| *user.uid == *pod.uid)
}

/// Whether nobody else has the claim.
pub(super) fn is_free_for(claim: &ResourceClaim, pod: &PodInfo) -> bool {
    let mut users = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    users.all(|user| *user.uid == *pod.uid)
}

/// Devices that must be made ready for their node before a pod may go there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    Waiting,
    Failed(String),
}

pub(super) fn readiness(claim: &ResourceClaim) -> Readiness {
    let Some(allocation) = allocation(claim) else { return Readiness::Waiting };
    for result in results(allocation).filter(|result| has_conditions(result)) {
        let told = claim.status.iter().flat_map(|status| status.devices.iter().flatten()).find(|device| {
            (&device.driver, &device.pool, &device.device) == (&result.driver, &result.pool, &result.device)
        });
        let Some(told) = told else { return Readiness::Waiting };
        let condition = |kind: &String| {
            let mut conditions = told.conditions.iter().flatten();
            conditions.find(|condition| condition.type_ == *kind && condition.status == "True")
        };
        if let Some(failed) = result.binding_failure_conditions.iter().flatten().find_map(condition) {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            return Readiness::Failed(format!(
                "device binding failed: claim={name}, reason={}, message={:?}",
                failed.reason, failed.message
            ));
        }
        if result.binding_conditions.iter().flatten().any(|kind| condition(kind).is_none()) {
            return Readiness::Waiting;
        }
    }
    Readiness::Ready
}

fn has_conditions(result: &DeviceRequestAllocationResult) -> bool {
    result.binding_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty())
}

/// Whether its devices have to become ready at all.
pub(super) fn is_to_wait(claim: &ResourceClaim) -> bool {
    allocation(claim).is_some_and(|allocation| results(allocation).any(has_conditions))
}

/// Whether its devices should have been ready by now.
pub(super) fn is_overdue(claim: &ResourceClaim, longest: Duration) -> bool {
    let since = allocation(claim).and_then(|allocation| allocation.allocation_timestamp.as_ref());
    is_to_wait(claim)
        && since.is_some_and(|since| {
            let age = Timestamp::now().duration_since(since.0);
            Duration::try_from(age).is_ok_and(|age| age > longest)
        })
}
