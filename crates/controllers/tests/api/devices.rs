//! Claims of devices: made from templates, and given up when a device is tainted.

use ferry_client::Api;
use ferry_testbed::{Kit, is_ready};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceClaimTemplate};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_made_from_templates_and_pods_leave_tainted_devices() {
    let kit = Kit::cluster(1).await;
    let pod = json!({ "metadata": { "name": "user" }, "spec": {
        "nodeName": "node-0", "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "c", "image": "i", "resources": { "claims": [{ "name": "gpu" }] } }],
        "resourceClaims": [{ "name": "gpu", "resourceClaimTemplateName": "gpus" }],
    } });
    kit.create::<Pod>(pod).await;
    // The template may come later than the pod.
    assert!(kit.until_event("FailedResourceClaimCreation").await.contains("gpus"));
    let request = json!({ "name": "one", "exactly": { "deviceClassName": "gpu.example.com" } });
    kit.create::<ResourceClaimTemplate>(
        json!({ "metadata": { "name": "gpus" }, "spec": { "spec": { "devices": { "requests": [request] } } } }),
    )
    .await;
    let made = kit.until(kit.api::<ResourceClaim>(), "a claim", |all| !all.is_empty()).await;
    let claim = made[0].name_any();
    assert!(claim.starts_with("user-gpu-"), "{claim}");
    let told = |pod: &Pod| {
        let statuses =
            pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone()).unwrap_or_default();
        statuses.into_iter().filter_map(|status| status.resource_claim_name).collect::<Vec<_>>()
    };
    kit.until_pods("a pod that knows its claim", |pods| {
        pods.iter().any(|pod| told(pod) == [claim.clone()] && is_ready(pod))
    })
    .await;

    // Allocated as the scheduler does it.
    let uid = kit.api::<Pod>().get("user").await.unwrap().uid().unwrap();
    let status = json!({
        "allocation": { "devices": { "results": [
            { "request": "one", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0" },
        ] } },
        "reservedFor": [{ "resource": "pods", "name": "user", "uid": uid }],
    });
    let mut allocated = kit.api::<ResourceClaim>().get(&claim).await.unwrap();
    allocated.status = Some(serde_json::from_value(status).unwrap());
    kit.api::<ResourceClaim>().replace_status(&claim, &PostParams::default(), &allocated).await.unwrap();

    // A rule without effect tells what it would do; with one it does it.
    let rules: Api<DeviceTaintRule> = Api::all(kit.client.clone());
    let rule = |name: &str, effect: &str| {
        json!({ "metadata": { "name": name }, "spec": {
        "deviceSelector": { "driver": "gpu.example.com", "device": "gpu-0" }, "taint": { "key": "broken", "effect": effect },
    } })
    };
    let words = |rule: &DeviceTaintRule| {
        let conditions = rule.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().map(|one| (one.type_, one.reason, one.message)).next().unwrap_or_default()
    };
    // The controller hears of claims and of rules by different ways: what it does not know yet is told to a later rule.
    let mut told = String::new();
    for attempt in 0..100 {
        let name = format!("asks-{attempt}");
        kit.create_in(rules.clone(), rule(&name, "None")).await;
        let answered = |one: &DeviceTaintRule| one.name_any() == name && words(one).1 == "NoEffect";
        let asked = kit.until(rules.clone(), "an answer", |all| all.iter().any(|one| answered(one))).await;
        let (kind, _, message) = asked.iter().find(|one| answered(one)).map(|one| words(one)).unwrap();
        assert_eq!(kind, "EvictionInProgress");
        told = message;
        if told.contains("1 allocated device selected. 1 pod would be evicted in 1 namespace ") {
            break;
        }
    }
    assert!(told.contains("1 allocated device selected. 1 pod would be evicted in 1 namespace "), "{told}");
    kit.create_in(rules.clone(), rule("does", "NoExecute")).await;
    assert_eq!(kit.until_event("DeviceTaintManagerEviction").await, "Marking for deletion");
    kit.until_pods("no pod", |pods| pods.is_empty()).await;
    kit.until(kit.api::<ResourceClaim>(), "no claim", |all| all.is_empty()).await;
    kit.until(rules, "a rule that has done its work", |all| {
        all.iter()
            .any(|rule| words(rule).1 == "Completed" && words(rule).2 == "1 pod evicted since starting the controller.")
    })
    .await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_pods_share_is_given_back_by_those_that_are_gone() {
    let kit = Kit::cluster(1).await;
    let request = json!({ "name": "one", "exactly": { "deviceClassName": "gpu.example.com" } });
    kit.create::<ResourceClaim>(
        json!({ "metadata": { "name": "shared" }, "spec": { "devices": { "requests": [request] } } }),
    )
    .await;
    let pod = json!({ "metadata": { "name": "user" }, "spec": {
        "nodeName": "node-0", "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }],
        "resourceClaims": [{ "name": "gpu", "resourceClaimName": "shared" }],
    } });
    let uid = kit.create::<Pod>(pod).await.uid().unwrap();
    let status = json!({
        "allocation": { "devices": { "results": [
            { "request": "one", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0" },
        ] } },
        "reservedFor": [
            { "resource": "pods", "name": "user", "uid": uid }, { "resource": "pods", "name": "gone", "uid": "no-such-pod" },
        ],
    });
    let claims = kit.api::<ResourceClaim>();
    let patch = Patch::Merge(json!({ "status": status }));
    claims.patch_status("shared", &PatchParams::default(), &patch).await.unwrap();
    let users = |claim: &ResourceClaim| {
        let status = claim.status.clone().unwrap_or_default();
        status.reserved_for.unwrap_or_default().into_iter().map(|user| user.name).collect::<Vec<_>>()
    };
    kit.until(claims.clone(), "one user", |all| all.iter().any(|claim| users(claim) == ["user"])).await;
    kit.api::<Pod>().delete("user", &DeleteParams::default()).await.unwrap();
    kit.until(claims, "a free claim", |all| {
        all.iter().any(|claim| {
            users(claim).is_empty() && claim.status.as_ref().is_none_or(|status| status.allocation.is_none())
        })
    })
    .await;
    kit.stop().await;
}

/// Who allocates puts the finalizer there before there is an allocation: it stays until the last user is gone, or the claim is
/// deleted. What was made for extended resources is known by the pod's status alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_held_from_before_its_allocation_until_after_its_last_user() {
    const HELD: &str = "resource.kubernetes.io/delete-protection";
    let kit = Kit::cluster(1).await;
    let pod = json!({ "metadata": { "name": "user" }, "spec": {
        "nodeName": "node-0", "terminationGracePeriodSeconds": 0, "containers": [
            { "name": "c", "image": "i", "resources": { "limits": { "example.com/gpu": "1" } } },
        ],
    } });
    let uid = kit.create::<Pod>(pod).await.uid().unwrap();
    kit.until_pods("a pod", |pods| pods.iter().any(|pod| is_ready(pod))).await;
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "user", "uid": uid, "controller": true });
    let request = json!({ "name": "one", "exactly": { "deviceClassName": "gpu.example.com" } });
    let claims = kit.api::<ResourceClaim>();
    kit.create::<ResourceClaim>(json!({
        "metadata": { "name": "made", "finalizers": [HELD], "ownerReferences": [owner],
            "annotations": { "resource.kubernetes.io/extended-resource-claim": "true" } },
        "spec": { "devices": { "requests": [request] } },
    }))
    .await;
    kit.at_rest().await;
    assert_eq!(claims.get("made").await.unwrap().finalizers(), [HELD]);
    let merge = |change: serde_json::Value| (PatchParams::default(), Patch::Merge(json!({ "status": change })));
    let (parameters, change) = merge(json!({
        "allocation": { "devices": { "results": [
            { "request": "one", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0" },
        ] } },
        "reservedFor": [
            { "resource": "pods", "name": "user", "uid": uid },
            { "apiGroup": "example.com", "resource": "pods", "name": "somebody", "uid": "else" },
        ],
    }));
    claims.patch_status("made", &parameters, &change).await.unwrap();
    let (parameters, change) =
        merge(json!({ "extendedResourceClaimStatus": { "resourceClaimName": "made", "requestMappings": [
        { "containerName": "c", "resourceName": "example.com/gpu", "requestName": "one" },
    ] } }));
    kit.api::<Pod>().patch_status("user", &parameters, &change).await.unwrap();
    kit.at_rest().await;

    // The pod ends: its reservation goes, that of somebody else stays.
    let (parameters, change) = merge(json!({ "phase": "Succeeded" }));
    kit.api::<Pod>().patch_status("user", &parameters, &change).await.unwrap();
    let users = |claim: &ResourceClaim| {
        let status = claim.status.clone().unwrap_or_default();
        status.reserved_for.unwrap_or_default().into_iter().map(|user| user.name).collect::<Vec<_>>()
    };
    kit.until(claims.clone(), "one user", |all| all.iter().any(|claim| users(claim) == ["somebody"])).await;
    kit.at_rest().await;
    assert!(claims.get("made").await.unwrap().status.unwrap().allocation.is_some());
    // With the last one the devices are free, and what was made for the pod goes.
    let (parameters, change) =
        merge(json!({ "reservedFor": [{ "resource": "pods", "name": "gone", "uid": "no-such-pod" }] }));
    claims.patch_status("made", &parameters, &change).await.unwrap();
    kit.until(claims, "no claim", |all| all.is_empty()).await;
    assert!(kit.api::<Pod>().get_opt("user").await.unwrap().is_some());
    kit.stop().await;
}
