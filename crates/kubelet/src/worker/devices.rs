//! Devices that a pod claims (DRA). No driver of devices can register here: a pod that claims one does not start without it.

use ferry_client::{Api, write};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::Worker;
use crate::pod;

/// A claim of a pod: its name, and whether it was made for this pod.
type Claimed = (String, bool);

/// The claims that have to be prepared before the pod starts, or what is still missing.
fn claims(of: &Pod) -> Result<Vec<Claimed>, String> {
    let (namespace, name, status) = (pod::namespace(of), pod::name(of), pod::status(of));
    let mut found = Vec::new();
    for claim in pod::spec(of).resource_claims.iter().flatten() {
        if let Some(name) = &claim.resource_claim_name {
            found.push((name.clone(), false));
        } else if claim.resource_claim_template_name.is_some() {
            let mut made = status.resource_claim_statuses.iter().flatten();
            match made.find(|made| made.name == claim.name) {
                Some(made) => found.extend(made.resource_claim_name.clone().map(|name| (name, true))),
                None => return Err(format!("pod \"{namespace}/{name}\": ResourceClaim not created yet")),
            }
        } else {
            let why = "none of the supported fields are set";
            return Err(format!("pod \"{namespace}/{name}\", spec.resourceClaim {:?}: {why}", claim.name));
        }
    }
    // Extended resources that devices stand in for.
    found.extend(status.extended_resource_claim_status.iter().map(|made| (made.resource_claim_name.clone(), false)));
    Ok(found)
}

/// Why the pod cannot have what is claimed; `Ok` where there is nothing to prepare.
fn prepare(of: &Pod, claim: &ResourceClaim, own: bool) -> Result<(), String> {
    let (namespace, name, uid) = (pod::namespace(of), pod::name(of), pod::uid(of));
    let claimed = claim.metadata.name.as_deref().unwrap_or_default();
    let owners = claim.metadata.owner_references.iter().flatten();
    if own && !owners.into_iter().any(|owner| owner.controller == Some(true) && owner.uid == uid) {
        let why = format!("was not created for Pod {namespace}/{name} (Pod is not owner)");
        return Err(format!("ResourceClaim {namespace}/{claimed} {why}"));
    }
    let status = claim.status.as_ref();
    if !status.iter().flat_map(|status| status.reserved_for.iter().flatten()).any(|user| user.uid == uid) {
        let claim_uid = claim.metadata.uid.as_deref().unwrap_or_default();
        return Err(format!("pod {name} ({uid}) is not allowed to use ResourceClaim {claimed} ({claim_uid})"));
    }
    let Some(allocation) = status.and_then(|status| status.allocation.as_ref()) else {
        return Err(format!("ResourceClaim {claimed}: not allocated"));
    };
    let mut results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    match results.next() {
        Some(result) => Err(format!("DRA driver {} is not registered", result.driver)),
        None => Ok(()),
    }
}

impl Worker {
    /// Prepares the devices of the pod.
    pub(super) async fn prepare_devices(&self) -> Result<(), String> {
        let api: Api<ResourceClaim> = Api::namespaced(self.context.client.clone(), pod::namespace(&self.pod));
        let failed = |why: String| format!("prepare dynamic resources: {why}");
        for (name, own) in claims(&self.pod).map_err(failed)? {
            let claim = api.get(&name).await;
            let claim =
                claim.map_err(|error| failed(format!("fetch ResourceClaim {name}: {}", write::short(&error))))?;
            prepare(&self.pod, &claim, own).map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(claims: Value, status: Value) -> Pod {
        let metadata = json!({"name": "p", "namespace": "n", "uid": "u"});
        let spec = json!({"containers": [], "resourceClaims": claims});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).expect("a pod")
    }

    #[test]
    fn claims_are_named_by_spec_and_status() {
        let template = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
        let made = |name: Value| json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]});
        let missing = "pod \"n/p\": ResourceClaim not created yet".to_owned();
        let unknown = "pod \"n/p\", spec.resourceClaim \"gpu\": none of the supported fields are set".to_owned();
        for (spec, status, want) in [
            (json!([]), json!({}), Ok(vec![])),
            (json!([{"name": "gpu", "resourceClaimName": "c"}]), json!({}), Ok(vec![("c".to_owned(), false)])),
            (template.clone(), made(json!("p-gpu")), Ok(vec![("p-gpu".to_owned(), true)])),
            // No claim was needed after all.
            (template.clone(), made(Value::Null), Ok(vec![])),
            (template, json!({}), Err(missing)),
            (json!([{"name": "gpu"}]), json!({}), Err(unknown)),
            (
                json!([]),
                json!({"extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": []}}),
                Ok(vec![("e".to_owned(), false)]),
            ),
        ] {
            assert_eq!(claims(&pod(spec, status)), want);
        }
    }

    #[test]
    fn a_pod_does_not_start_without_its_devices() {
        let check = |owner: &str, user: &str, allocation: Value, own: bool, want: Result<(), &str>| {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true});
            let user = json!({"resource": "pods", "name": "p", "uid": user});
            let claim: ResourceClaim = serde_json::from_value(json!({
                "metadata": {"name": "c", "uid": "cu", "ownerReferences": [owner]}, "spec": {},
                "status": {"reservedFor": [user], "allocation": allocation},
            }))
            .expect("a claim");
            assert_eq!(prepare(&pod(json!([]), json!({})), &claim, own), want.map_err(str::to_owned));
        };
        let device = json!({"devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"}]}});
        check("u", "u", device.clone(), true, Err("DRA driver gpu.example.com is not registered"));
        check("x", "u", device.clone(), false, Err("DRA driver gpu.example.com is not registered"));
        check("x", "u", device.clone(), true, Err("ResourceClaim n/c was not created for Pod n/p (Pod is not owner)"));
        check("u", "x", device, true, Err("pod p (u) is not allowed to use ResourceClaim c (cu)"));
        check("u", "u", Value::Null, true, Err("ResourceClaim c: not allocated"));
        check("u", "u", json!({"devices": {"results": []}}), true, Ok(()));
    }
}
