//! Writing down what was decided: devices and reservations into claims, and taking them back.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::{Api, write};
use k8s_openapi::api::core::v1::{ContainerExtendedResourceRequest, Pod};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, Error, ResourceExt};
use serde_json::json;

use super::claims::{self, Readiness};
use crate::devices::Devices;
use crate::model::PodInfo;

/// While a claim has devices it does not go away.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// A conflict is somebody else's change that has nothing to do with this one, most often.
const MOST_TRIES: usize = 5;
/// How long a claim that was made here may take to be heard of.
const HEARING: Duration = Duration::from_secs(120);

/// What is to be done for a pod before it is bound.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) claims: Vec<Planned>,
}

#[derive(Clone)]
pub(super) struct Planned {
    /// As it was when the decision was made.
    pub(super) first: Arc<ResourceClaim>,
    pub(super) claim: Arc<ResourceClaim>,
    /// The devices it gets, where it has none.
    allocation: Option<AllocationResult>,
    /// The claim has to be made first; who of the pod's containers gets what of it.
    pub(super) mappings: Option<Vec<ContainerExtendedResourceRequest>>,
    pub(super) is_written: bool,
}

impl Planned {
    pub(super) fn new(
        claim: Arc<ResourceClaim>,
        allocation: Option<AllocationResult>,
        mappings: Option<Vec<ContainerExtendedResourceRequest>>,
    ) -> Self {
        Self { first: claim.clone(), claim, allocation, mappings, is_written: false }
    }

    /// The claim as it will be.
    pub(super) fn assumed(&self) -> Option<Arc<ResourceClaim>> {
        let mut claim = (*self.claim).clone();
        claim.status.get_or_insert_default().allocation = Some(self.allocation.clone()?);
        Some(Arc::new(claim))
    }
}

fn shown(claim: &ResourceClaim) -> String {
    format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any())
}

fn api(client: &Client, claim: &ResourceClaim) -> Api<ResourceClaim> {
    Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default())
}

/// Why something was not written, and whether a second look may help: after a conflict, and where the write may have been made
/// or may still be. One that is on its way meets the next one as a conflict.
struct Failed {
    message: String,
    again: bool,
}

impl Failed {
    fn new(what: &str, error: &Error) -> Self {
        let refused = write::status_of(error).is_some_and(|status| status.code < 500);
        let again = write::is_conflict(error) || !refused;
        Self { message: format!("{what}: {}", write::short(error)), again }
    }

    fn firm(message: String) -> Self {
        Self { message, again: false }
    }
}

/// Gives the claim its devices and reserves it for the pod. `keep` is told what was written.
pub(super) async fn bind(
    client: &Client,
    devices: &Devices,
    pod: &PodInfo,
    planned: &Planned,
    keep: impl Fn(&Arc<ResourceClaim>),
) -> Result<(), String> {
    let api = api(client, &planned.claim);
    let mut claim = match &planned.mappings {
        None => (*planned.claim).clone(),
        Some(_) => {
            let made = make(&api, &planned.claim).await?;
            keep(&Arc::new(made.clone()));
            made
        }
    };
    let mut tries = 0;
    let written = loop {
        tries += 1;
        match reserve(&api, claim.clone(), planned.allocation.as_ref(), pod).await {
            Ok(written) => break Arc::new(written),
            Err(failed) if failed.again && tries < MOST_TRIES => {
                let again = api.get(&claim.name_any()).await;
                claim = again.map_err(|error| {
                    format!("get updated claim {} after conflict: {}", shown(&planned.claim), write::short(&error))
                })?;
                if is_done(&claim, planned, pod) {
                    break Arc::new(claim);
                }
            }
            Err(failed) => return Err(failed.message),
        }
    };
    keep(&written);
    let Some(mappings) = &planned.mappings else {
        devices.written(written);
        return Ok(());
    };
    // Its devices count under the name it had so far until the informer has heard of it.
    let _ = tokio::time::timeout(HEARING, devices.until_told(&written)).await;
    devices.forget(&planned.first);
    tell(client, pod, &written.name_any(), mappings).await
}

/// Whether a write that was not answered was made.
fn is_done(claim: &ResourceClaim, planned: &Planned, pod: &PodInfo) -> bool {
    let has = claims::allocation(claim);
    claims::is_reserved_for(claim, pod)
        && planned.allocation.as_ref().is_none_or(|wanted| has.is_some_and(|has| has.devices == wanted.devices))
}

async fn make(api: &Api<ResourceClaim>, claim: &ResourceClaim) -> Result<ResourceClaim, String> {
    let mut new = claim.clone();
    new.metadata.uid = None;
    let made = api.create(&PostParams::default(), &new).await;
    made.map_err(|error| format!("create claim for extended resources {}: {}", shown(claim), write::short(&error)))
}

async fn reserve(
    api: &Api<ResourceClaim>,
    mut claim: ResourceClaim,
    allocation: Option<&AllocationResult>,
    pod: &PodInfo,
) -> Result<ResourceClaim, Failed> {
    let shown = shown(&claim);
    let name = claim.name_any();
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(Failed::firm(format!("claim {shown} got deleted in the meantime")));
    }
    if let Some(allocation) = allocation {
        if claims::allocation(&claim).is_some() {
            return Err(Failed::firm(format!("claim {shown} got allocated elsewhere in the meantime")));
        }
        if !claim.finalizers().iter().any(|known| known == FINALIZER) {
            claim.finalizers_mut().push(FINALIZER.to_owned());
            let held = api.replace(&name, &PostParams::default(), &claim).await;
            claim = held.map_err(|error| Failed::new(&format!("add finalizer to claim {shown}"), &error))?;
        }
        claim.status.get_or_insert_default().allocation = Some(allocation.clone());
    }
    let status = claim.status.get_or_insert_default();
    let Some(written) = &mut status.allocation else {
        return Err(Failed::firm(format!("claim {shown} got deallocated elsewhere in the meantime")));
    };
    written.allocation_timestamp.get_or_insert_with(write::now);
    status.reserved_for.get_or_insert_default().push(ResourceClaimConsumerReference {
        resource: "pods".into(),
        name: pod.name.clone(),
        uid: pod.uid.to_string(),
        api_group: None,
    });
    let what =
        if allocation.is_some() { "add allocation and reservation to claim" } else { "add reservation to claim" };
    let written = api.replace_status(&name, &PostParams::default(), &claim).await;
    written.map_err(|error| Failed::new(&format!("{what} {shown}"), &error))
}

/// Tells the pod which claim stands for its extended resources.
async fn tell(
    client: &Client,
    pod: &PodInfo,
    claim: &str,
    mappings: &[ContainerExtendedResourceRequest],
) -> Result<(), String> {
    let status = json!({ "extendedResourceClaimStatus": { "resourceClaimName": claim, "requestMappings": mappings } });
    let patch = json!({ "metadata": { "uid": pod.uid }, "status": status });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let told = pods.patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
    told.map(|_| ()).map_err(|error| {
        format!("update pod {} ExtendedResourceClaimStatus: {}", pod.full_name(), write::short(&error))
    })
}

/// Waits until all devices are ready for their node.
pub(super) async fn until_ready(
    devices: &Devices,
    bound: &[Arc<ResourceClaim>],
    longest: Duration,
) -> Result<(), String> {
    let wait = async {
        for claim in bound.iter().filter(|claim| claims::is_to_wait(claim)) {
            let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
            let waits = |claim: &ResourceClaim| claims::readiness(claim) == Readiness::Waiting;
            devices.until(&namespace, &name, |claim| claim.is_none_or(|claim| !waits(claim))).await;
            match devices.claim(&namespace, &name).map(|claim| claims::readiness(&claim)) {
                Some(Readiness::Ready | Readiness::Waiting) => {}
                Some(Readiness::Failed(message)) => return Err(message),
                None => return Err(format!("could not find ResourceClaim \"{namespace}/{name}\"")),
            }
        }
        Ok(())
    };
    match tokio::time::timeout(longest, wait).await {
        Ok(outcome) => outcome,
        Err(_) => Err("device binding timeout: context deadline exceeded".into()),
    }
}

/// Takes the devices from a claim that nobody uses.
pub(super) async fn deallocate(client: Client, claim: Arc<ResourceClaim>) -> Result<(), Error> {
    let mut free = (*claim).clone();
    free.status = None;
    // As it was seen: whoever reserved it meanwhile keeps it.
    api(&client, &claim).replace_status(&claim.name_any(), &PostParams::default(), &free).await.map(|_| ())
}

pub(super) async fn unreserve(client: Client, claim: Arc<ResourceClaim>, pod: String) -> Result<(), Error> {
    let gone = json!([{ "$patch": "delete", "uid": pod }]);
    let patch = json!({ "metadata": { "uid": claim.metadata.uid }, "status": { "reservedFor": gone } });
    let api = api(&client, &claim);
    let patched = api.patch_status(&claim.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await;
    unless_gone(patched.map(|_| ()))
}

/// Removes a claim that was made for extended resources.
pub(super) async fn delete(client: Client, claim: Arc<ResourceClaim>) -> Result<(), Error> {
    let (api, name) = (api(&client, &claim), claim.name_any());
    let released = write::retry_on_conflict(|| async {
        let mut claim = api.get(&name).await?;
        if claim.finalizers().iter().any(|known| known == FINALIZER) {
            claim.finalizers_mut().retain(|known| known != FINALIZER);
            api.replace(&name, &PostParams::default(), &claim).await?;
        }
        Ok(())
    });
    unless_gone(released.await)?;
    write::delete(&api, &*claim, None).await.map(|_| ())
}

fn unless_gone(outcome: Result<(), Error>) -> Result<(), Error> {
    outcome.or_else(|error| if write::is_not_found(&error) { Ok(()) } else { Err(error) })
}
