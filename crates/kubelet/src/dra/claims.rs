//! Which claims a pod has, and whether it may use them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::pod;

/// A claim of a pod: its name, and whether it was made for this pod.
pub(super) type Claimed = (String, bool);

/// The claims that have to be prepared before the pod starts, or what is still missing.
pub(super) fn claims(of: &Pod) -> Result<Vec<Claimed>, String> {
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

/// The drivers whose devices were allocated for the claim, or why the pod cannot have them.
pub(super) fn drivers(of: &Pod, claim: &ResourceClaim, own: bool) -> Result<BTreeSet<String>, String> {
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
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    Ok(results.map(|result| result.driver.clone()).collect())
}

/// What a container uses: a claim by its name, and the request of it; all of the claim where none is named.
pub(crate) fn used(of: &Pod, container: &Container) -> Vec<(String, Option<String>)> {
    let status = pod::status(of);
    let name_of = |named: &str| {
        let claim = pod::spec(of).resource_claims.iter().flatten().find(|claim| claim.name == named)?;
        let made = status.resource_claim_statuses.iter().flatten().find(|made| made.name == named);
        claim.resource_claim_name.clone().or_else(|| made?.resource_claim_name.clone())
    };
    let named = container.resources.iter().flat_map(|resources| resources.claims.iter().flatten());
    let named = named.filter_map(|claim| Some((name_of(&claim.name)?, claim.request.clone())));
    // Extended resources that devices stand in for.
    let extended = status.extended_resource_claim_status.iter().flat_map(|status| {
        let own = status.request_mappings.iter().filter(|mapping| mapping.container_name == container.name);
        own.map(|mapping| (status.resource_claim_name.clone(), Some(mapping.request_name.clone())))
    });
    named.chain(extended).collect()
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
        let check = |owner: &str, user: &str, allocation: Value, own: bool, want: Result<&[&str], &str>| {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true});
            let user = json!({"resource": "pods", "name": "p", "uid": user});
            let claim: ResourceClaim = serde_json::from_value(json!({
                "metadata": {"name": "c", "uid": "cu", "ownerReferences": [owner]}, "spec": {},
                "status": {"reservedFor": [user], "allocation": allocation},
            }))
            .expect("a claim");
            let want = want.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>());
            assert_eq!(drivers(&pod(json!([]), json!({})), &claim, own), want.map_err(str::to_owned));
        };
        let device = json!({"devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"}]}});
        check("u", "u", device.clone(), true, Ok(&["gpu.example.com"]));
        check("x", "u", device.clone(), false, Ok(&["gpu.example.com"]));
        check("x", "u", device.clone(), true, Err("ResourceClaim n/c was not created for Pod n/p (Pod is not owner)"));
        check("u", "x", device, true, Err("pod p (u) is not allowed to use ResourceClaim c (cu)"));
        check("u", "u", Value::Null, true, Err("ResourceClaim c: not allocated"));
        check("u", "u", json!({"devices": {"results": []}}), true, Ok(&[]));
    }

    #[test]
    fn a_container_uses_the_claims_it_names() {
        let claims =
            json!([{"name": "gpu", "resourceClaimName": "c"}, {"name": "net", "resourceClaimTemplateName": "t"}]);
        let status = json!({
            "resourceClaimStatuses": [{"name": "net", "resourceClaimName": "p-net"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": [
                {"containerName": "main", "resourceName": "example.com/x", "requestName": "container-0-request-0"},
                {"containerName": "other", "resourceName": "example.com/x", "requestName": "container-1-request-0"}]},
        });
        let container = serde_json::from_value(json!({"name": "main", "resources": {"claims": [
            {"name": "gpu", "request": "big"}, {"name": "net"}, {"name": "unknown"}]}}));
        let seen = used(&pod(claims, status), &container.expect("a container"));
        let want = [("c", Some("big")), ("p-net", None), ("e", Some("container-0-request-0"))];
        assert_eq!(seen, want.map(|(name, request)| (name.to_owned(), request.map(str::to_owned))));
    }
}
