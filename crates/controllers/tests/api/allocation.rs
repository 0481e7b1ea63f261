//! Devices for pods: claimed by name or by template, given once, given back, and asked for as extended resources.

use std::collections::BTreeSet;

use ferry_client::Api;
use ferry_testbed::Kit;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

const DRIVER: &str = "gpu.example.com";

pub(super) async fn class(kit: &Kit, spec: Value) {
    let classes: Api<DeviceClass> = Api::all(kit.client.clone());
    kit.create_in(classes, json!({ "metadata": { "name": "gpu" }, "spec": spec })).await;
}

/// What the driver offers on a node.
pub(super) async fn slice(kit: &Kit, node: &str, devices: &[&str]) {
    let devices: Vec<Value> = devices
        .iter()
        .map(|name| json!({ "name": name, "attributes": { "model": { "string": name.split('-').next() } } }))
        .collect();
    offer(kit, node, json!(devices)).await;
}

async fn offer(kit: &Kit, node: &str, devices: Value) {
    let slices: Api<ResourceSlice> = Api::all(kit.client.clone());
    let pool = json!({ "name": node, "generation": 1, "resourceSliceCount": 1 });
    let spec = json!({ "driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices });
    kit.create_in(slices, json!({ "metadata": { "name": format!("slice-{node}") }, "spec": spec })).await;
}

fn request(model: &str) -> Value {
    let expression = format!("device.attributes['{DRIVER}'].model == '{model}'");
    let exactly = json!({ "deviceClassName": "gpu", "selectors": [{ "cel": { "expression": expression } }] });
    json!({ "devices": { "requests": [{ "name": "one", "exactly": exactly }] } })
}

fn pod(name: &str, claim: Value, overlay: Value) -> Value {
    let mut claim = claim;
    claim["name"] = json!("gpu");
    let container = json!({ "name": "c", "image": "i", "resources": { "claims": [{ "name": "gpu" }] } });
    let mut spec = json!({ "terminationGracePeriodSeconds": 0, "containers": [container], "resourceClaims": [claim] });
    for (key, value) in overlay.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({ "metadata": { "name": name }, "spec": spec })
}

pub(super) fn templated(name: &str) -> Value {
    pod(name, json!({ "resourceClaimTemplateName": "gpus" }), json!({}))
}

pub(super) fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

pub(super) fn why(pod: &Pod) -> String {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let scheduled = conditions.into_iter().flatten().find(|one| one.type_ == "PodScheduled" && one.status == "False");
    scheduled
        .map(|one| format!("{}: {}", one.reason.clone().unwrap_or_default(), one.message.clone().unwrap_or_default()))
        .unwrap_or_default()
}

/// The devices of a claim, and who has it reserved.
pub(super) fn has(claim: &ResourceClaim) -> (Vec<String>, Vec<String>) {
    let status = claim.status.clone().unwrap_or_default();
    let devices = status.allocation.and_then(|allocation| allocation.devices);
    let results = devices.and_then(|devices| devices.results).unwrap_or_default();
    let devices = results.into_iter().map(|one| format!("{}/{}", one.pool, one.device)).collect();
    (devices, status.reserved_for.unwrap_or_default().into_iter().map(|user| user.name).collect())
}

async fn placed(kit: &Kit, name: &str) -> String {
    let all = kit
        .until(kit.api::<Pod>(), name, |all| all.iter().any(|pod| pod.name_any() == name && !node_of(pod).is_empty()))
        .await;
    all.iter().find(|pod| pod.name_any() == name).map(|pod| node_of(pod).to_owned()).unwrap_or_default()
}

async fn pending(kit: &Kit, name: &str, message: &str) {
    kit.until(kit.api::<Pod>(), message, |all| {
        all.iter().any(|pod| pod.name_any() == name && why(pod).starts_with(message))
    })
    .await;
}

pub(super) async fn template(kit: &Kit, model: &str) {
    let spec = json!({ "metadata": { "name": "gpus" }, "spec": { "spec": request(model) } });
    kit.create::<ResourceClaimTemplate>(spec).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_pod_gets_a_device_of_its_own_and_gives_it_back() {
    let kit = Kit::cluster(3).await;
    class(&kit, json!({ "selectors": [{ "cel": { "expression": format!("device.driver == '{DRIVER}'") } }] })).await;
    slice(&kit, "node-0", &["small-0", "small-1"]).await;
    slice(&kit, "node-1", &["large-0", "large-1"]).await;
    template(&kit, "large").await;
    for name in ["a", "b"] {
        kit.create::<Pod>(templated(name)).await;
    }
    for name in ["a", "b"] {
        assert_eq!(placed(&kit, name).await, "node-1");
    }
    let claims = kit
        .until(kit.api::<ResourceClaim>(), "two claims", |all| {
            all.len() == 2 && all.iter().all(|claim| has(claim).1.len() == 1)
        })
        .await;
    let given: BTreeSet<Vec<String>> = claims.iter().map(|claim| has(claim).0).collect();
    assert_eq!(given, BTreeSet::from([vec!["node-1/large-0".to_owned()], vec!["node-1/large-1".to_owned()]]));
    for claim in &claims {
        assert_eq!(claim.finalizers(), ["resource.kubernetes.io/delete-protection"]);
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref()).unwrap();
        assert!(allocation.allocation_timestamp.is_some());
        let selector = serde_json::to_value(&allocation.node_selector).unwrap();
        assert_eq!(selector["nodeSelectorTerms"][0]["matchFields"][0]["values"], json!(["node-1"]));
    }

    // There is none left, which is said in upstream's words.
    kit.create::<Pod>(templated("third")).await;
    let message = "Unschedulable: 0/3 nodes are available: 3 cannot allocate all claims. preemption: 0/3 nodes are available: \
                   3 Preemption is not helpful for scheduling.";
    pending(&kit, "third", message).await;
    let freed = claims.iter().find(|claim| has(claim).1 == ["a"]).map(|claim| has(claim).0).unwrap();
    kit.api::<Pod>().delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(placed(&kit, "third").await, "node-1");
    kit.until(kit.api::<ResourceClaim>(), "the device of another", |all| {
        all.iter().any(|claim| has(claim) == (freed.clone(), vec!["third".to_owned()]))
    })
    .await;

    // A driver that comes later wakes whoever waits for it.
    kit.create::<Pod>(templated("fourth")).await;
    pending(&kit, "fourth", message).await;
    slice(&kit, "node-2", &["large-9"]).await;
    assert_eq!(placed(&kit, "fourth").await, "node-2");
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_by_name_is_shared_and_waited_for() {
    let kit = Kit::cluster(2).await;
    let named = || json!({ "resourceClaimName": "shared" });
    kit.create::<Pod>(pod("first", named(), json!({}))).await;
    class(&kit, json!({})).await;
    // The claim comes after the pod, and the class it names is not there.
    let claim = json!({ "metadata": { "name": "shared" }, "spec": request("large") });
    let mut classless = claim.clone();
    classless["metadata"]["name"] = json!("classless");
    classless["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = json!("none");
    kit.create::<ResourceClaim>(classless).await;
    kit.create::<Pod>(pod("classless", json!({ "resourceClaimName": "classless" }), json!({}))).await;
    pending(
        &kit,
        "classless",
        "Unschedulable: 0/2 nodes are available: request one: device class none does not exist.",
    )
    .await;
    kit.create::<ResourceClaim>(claim).await;
    pending(&kit, "first", "Unschedulable: 0/2 nodes are available: 2 cannot allocate all claims.").await;
    slice(&kit, "node-1", &["large-0"]).await;
    assert_eq!(placed(&kit, "first").await, "node-1");
    for name in ["second", "third"] {
        kit.create::<Pod>(pod(name, named(), json!({}))).await;
        assert_eq!(placed(&kit, name).await, "node-1", "where its devices are");
    }
    let users = |claim: &ResourceClaim| has(claim).1.into_iter().collect::<BTreeSet<_>>();
    let three = BTreeSet::from(["first", "second", "third"].map(str::to_owned));
    kit.until(kit.api::<ResourceClaim>(), "three users", |all| all.iter().any(|claim| users(claim) == three)).await;
    for name in ["first", "second", "third"] {
        kit.api::<Pod>().delete(name, &DeleteParams::default()).await.unwrap();
    }
    kit.until(kit.api::<ResourceClaim>(), "a free claim", |all| {
        all.iter().any(|claim| claim.name_any() == "shared" && has(claim) == (Vec::new(), Vec::new()))
    })
    .await;

    // Devices that a claim still has, and that are of no use where its pod must go, are given back.
    slice(&kit, "node-0", &["large-7"]).await;
    kit.create::<Pod>(pod("fourth", named(), json!({ "nodeSelector": { "kubernetes.io/hostname": "node-1" } }))).await;
    assert_eq!(placed(&kit, "fourth").await, "node-1");
    let gone = Patch::Merge(json!({ "status": { "reservedFor": null } }));
    kit.api::<Pod>().delete("fourth", &DeleteParams::default()).await.unwrap();
    kit.until(kit.api::<ResourceClaim>(), "a free claim", |all| {
        all.iter().any(|claim| claim.name_any() == "shared" && has(claim).1.is_empty())
    })
    .await;
    let held = json!({ "allocation": { "nodeSelector": { "nodeSelectorTerms": [{ "matchFields": [
        { "key": "metadata.name", "operator": "In", "values": ["node-1"] }] }] },
        "devices": { "results": [{ "request": "one", "driver": DRIVER, "pool": "node-1", "device": "large-0" }] } } });
    let parameters = PatchParams::default();
    kit.api::<ResourceClaim>()
        .patch_status("shared", &parameters, &Patch::Merge(json!({ "status": held })))
        .await
        .unwrap();
    kit.api::<ResourceClaim>().patch_status("shared", &parameters, &gone).await.unwrap();
    kit.create::<Pod>(pod("fifth", named(), json!({ "nodeSelector": { "kubernetes.io/hostname": "node-0" } }))).await;
    assert_eq!(placed(&kit, "fifth").await, "node-0");
    kit.until(kit.api::<ResourceClaim>(), "another device", |all| {
        all.iter().any(|claim| has(claim) == (vec!["node-0/large-7".to_owned()], vec!["fifth".to_owned()]))
    })
    .await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_stand_in_for_extended_resources() {
    let kit = Kit::cluster(2).await;
    class(&kit, json!({ "extendedResourceName": "example.com/gpu" })).await;
    slice(&kit, "node-1", &["large-0", "large-1", "large-2"]).await;
    let asking = |name: &str, amount: &str| {
        json!({ "metadata": { "name": name }, "spec": { "terminationGracePeriodSeconds": 0, "containers": [
            { "name": "c", "image": "i", "resources": { "limits": { "example.com/gpu": amount } } },
        ] } })
    };
    kit.create::<Pod>(asking("two", "2")).await;
    assert_eq!(placed(&kit, "two").await, "node-1");
    let made =
        kit.until(kit.api::<ResourceClaim>(), "a claim", |all| all.iter().any(|claim| has(claim).1 == ["two"])).await;
    let claim = &made[0];
    assert!(claim.name_any().starts_with("two-extended-resources-"), "{}", claim.name_any());
    assert_eq!(has(claim).0, ["node-1/large-0", "node-1/large-1"]);
    let status = kit.api::<Pod>().get("two").await.unwrap().status.unwrap().extended_resource_claim_status.unwrap();
    assert_eq!(status.resource_claim_name, claim.name_any());
    assert_eq!(status.request_mappings[0].request_name, "container-0-request-0");

    kit.create::<Pod>(asking("more", "2")).await;
    pending(&kit, "more", "Unschedulable: 0/2 nodes are available: 2 cannot allocate all claims.").await;
    kit.api::<Pod>().delete("two", &DeleteParams::default()).await.unwrap();
    assert_eq!(placed(&kit, "more").await, "node-1");
    kit.stop().await;
}

/// Devices that have to be made ready for their node keep the pod from it until they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_wait_for_devices_that_are_made_ready() {
    let kit = Kit::cluster(1).await;
    class(&kit, json!({})).await;
    let device = json!({ "name": "fabric-0", "attributes": { "model": { "string": "fabric" } }, "bindsToNode": true,
        "bindingConditions": ["example.com/attached"], "bindingFailureConditions": ["example.com/failed"] });
    offer(&kit, "node-0", json!([device])).await;
    let claim = json!({ "metadata": { "name": "fabric" }, "spec": request("fabric") });
    kit.create::<ResourceClaim>(claim).await;
    kit.create::<Pod>(pod("user", json!({ "resourceClaimName": "fabric" }), json!({}))).await;
    assert_eq!(
        kit.until_event("BindingConditionsPending").await,
        "waiting for binding conditions for device on node node-0"
    );
    kit.until(kit.api::<ResourceClaim>(), "a reserved claim", |all| all.iter().any(|claim| has(claim).1 == ["user"]))
        .await;
    assert_eq!(node_of(&kit.api::<Pod>().get("user").await.unwrap()), "");
    let attached = json!({ "type": "example.com/attached", "status": "True", "reason": "Attached", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let devices = json!([{ "driver": DRIVER, "pool": "node-0", "device": "fabric-0", "conditions": [attached] }]);
    let patch = Patch::Merge(json!({ "status": { "devices": devices } }));
    kit.api::<ResourceClaim>().patch_status("fabric", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(placed(&kit, "user").await, "node-0");
    kit.stop().await;
}

/// Every sort of offer and request goes through the server as the scheduler writes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_capacity_taints_preferences_and_administrators() {
    let kit = Kit::cluster(1).await;
    class(&kit, json!({})).await;
    let slices: Api<ResourceSlice> = Api::all(kit.client.clone());
    let pool = |name: &str, count: i64| json!({ "name": name, "generation": 1, "resourceSliceCount": count });
    let publish = async |name: &str, mut spec: Value| {
        spec["driver"] = json!(DRIVER);
        spec["nodeName"] = json!("node-0");
        kit.create_in(slices.clone(), json!({ "metadata": { "name": name }, "spec": spec })).await;
    };
    let part = |name: &str, memory: &str| {
        json!({ "name": name, "attributes": { "model": { "string": "part" } }, "consumesCounters": [
            { "counterSet": "whole", "counters": { "memory": { "value": memory } } },
        ] })
    };
    let counters = json!([{ "name": "whole", "counters": { "memory": { "value": "40Gi" } } }]);
    publish("counters", json!({ "pool": pool("parts", 2), "sharedCounters": counters })).await;
    let parts = json!([part("large", "40Gi"), part("half-0", "20Gi"), part("half-1", "20Gi")]);
    publish("parts", json!({ "pool": pool("parts", 2), "devices": parts })).await;
    let shared = json!({ "name": "nic", "attributes": { "model": { "string": "nic" } }, "allowMultipleAllocations": true,
        "capacity": { "bandwidth": { "value": "10G", "requestPolicy": { "default": "1G", "validRange": { "min": "1G", "step": "1G" } } } } });
    publish("shared", json!({ "pool": pool("nics", 1), "devices": [shared] })).await;
    let tainted = json!([
        { "name": "worn", "attributes": { "model": { "string": "old" } }, "taints": [{ "key": "worn", "effect": "NoSchedule" }] },
        { "name": "ruled", "attributes": { "model": { "string": "old" } } },
    ]);
    publish("tainted", json!({ "pool": pool("olds", 1), "devices": tainted })).await;
    let rules: Api<k8s_openapi::api::resource::v1::DeviceTaintRule> = Api::all(kit.client.clone());
    let rule = json!({ "deviceSelector": { "device": "ruled" }, "taint": { "key": "ruled", "effect": "NoSchedule" } });
    kit.create_in(rules, json!({ "metadata": { "name": "ruled" }, "spec": rule })).await;

    let model =
        |name: &str| json!([{ "cel": { "expression": format!("device.attributes['{DRIVER}'].model == '{name}'") } }]);
    let claim = async |name: &str, request: Value| {
        let spec = json!({ "devices": { "requests": [request] } });
        kit.create::<ResourceClaim>(json!({ "metadata": { "name": name }, "spec": spec })).await;
        kit.create::<Pod>(pod(name, json!({ "resourceClaimName": name }), json!({}))).await;
    };
    let exactly = |kind: &str, more: Value| {
        let mut exact = json!({ "deviceClassName": "gpu", "selectors": model(kind) });
        for (key, value) in more.as_object().into_iter().flatten() {
            exact[key] = value.clone();
        }
        json!({ "name": "one", "exactly": exact })
    };
    let gets = async |name: &str, devices: &[&str]| {
        placed(&kit, name).await;
        let found = kit.api::<ResourceClaim>().get(name).await.unwrap();
        assert_eq!(has(&found).0, devices, "{name}");
        found.status.unwrap().allocation.unwrap().devices.unwrap().results.unwrap()
    };

    // What one part takes is not there for the others.
    claim("halves", exactly("part", json!({ "count": 2 }))).await;
    gets("halves", &["parts/half-0", "parts/half-1"]).await;
    claim("late", exactly("part", json!({}))).await;
    pending(&kit, "late", "Unschedulable: 0/1 nodes are available: 1 cannot allocate all claims.").await;

    let bandwidth = |amount: &str| json!({ "capacity": { "requests": { "bandwidth": amount } } });
    claim("fast", exactly("nic", bandwidth("6500M"))).await;
    let fast = gets("fast", &["nics/nic"]).await;
    assert_eq!(fast[0].consumed_capacity.as_ref().unwrap()["bandwidth"].0, "7G", "rounded up to a step");
    claim("slow", exactly("nic", json!({}))).await;
    let slow = gets("slow", &["nics/nic"]).await;
    assert_ne!(slow[0].share_id, fast[0].share_id);
    claim("greedy", exactly("nic", bandwidth("3G"))).await;
    pending(&kit, "greedy", "Unschedulable: 0/1 nodes are available: 1 cannot allocate all claims.").await;

    claim("healthy", exactly("old", json!({}))).await;
    pending(&kit, "healthy", "Unschedulable: 0/1 nodes are available: 1 cannot allocate all claims.").await;
    claim("modest", exactly("old", json!({ "tolerations": [{ "key": "ruled", "operator": "Exists" }] }))).await;
    let modest = gets("modest", &["olds/ruled"]).await;
    assert_eq!(modest[0].tolerations.as_ref().map(Vec::len), Some(1));

    let possibility =
        |name: &str, kind: &str| json!({ "name": name, "deviceClassName": "gpu", "selectors": model(kind) });
    let either = json!({ "name": "one", "firstAvailable": [possibility("part", "part"), possibility("nic", "nic")] });
    claim("either", either).await;
    let either = gets("either", &["nics/nic"]).await;
    assert_eq!(either[0].request, "one/nic");

    // Administrators see what others have, in namespaces that say so.
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(kit.client.clone());
    let label = json!({ "metadata": { "labels": { "resource.kubernetes.io/admin-access": "true" } } });
    namespaces.patch(ferry_testbed::NAMESPACE, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    claim("admin", exactly("part", json!({ "adminAccess": true, "allocationMode": "All" }))).await;
    pending(&kit, "admin", "Unschedulable: 0/1 nodes are available: 1 cannot allocate all claims.").await;
    claim(
        "looking",
        exactly("old", json!({ "adminAccess": true, "tolerations": [{ "operator": "Exists" }], "count": 2 })),
    )
    .await;
    let looking = gets("looking", &["olds/worn", "olds/ruled"]).await;
    assert!(looking.iter().all(|one| one.admin_access == Some(true)));
    kit.stop().await;
}

/// Who may write the status of claims may not give devices away for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn giving_devices_away_is_a_right_of_its_own() {
    use ferry_meta::UserInfo;
    use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
    let kit = Kit::new().await;
    kit.create::<ResourceClaim>(json!({ "metadata": { "name": "claim" }, "spec": request("large") })).await;
    let grant = async |resources: &[&str], verbs: &[&str]| {
        let rules = json!([
            { "apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"] },
            { "apiGroups": ["resource.k8s.io"], "resources": resources, "verbs": verbs },
        ]);
        let roles: Api<ClusterRole> = Api::all(kit.client.clone());
        let _ = roles.delete("writer", &DeleteParams::default()).await;
        kit.create_in(roles, json!({ "metadata": { "name": "writer" }, "rules": rules })).await;
    };
    let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer" });
    let subject = json!({ "kind": "User", "name": "writer", "apiGroup": "rbac.authorization.k8s.io" });
    let bindings: Api<ClusterRoleBinding> = Api::all(kit.client.clone());
    kit.create_in(bindings, json!({ "metadata": { "name": "writer" }, "roleRef": reference, "subjects": [subject] }))
        .await;
    let claims: Api<ResourceClaim> =
        Api::namespaced(kit.door.client(UserInfo::new("writer", &[])), ferry_testbed::NAMESPACE);
    let write = async |status: Value| {
        let patch = Patch::Merge(json!({ "status": status }));
        let written = claims.patch_status("claim", &PatchParams::default(), &patch).await;
        written.map(|_| ()).map_err(|error| error.to_string())
    };
    let result = json!({ "request": "one", "driver": DRIVER, "pool": "p", "device": "d" });
    let given = json!({ "allocation": { "devices": { "results": [result] } } });
    let told = json!({ "devices": [{ "driver": DRIVER, "pool": "p", "device": "d" }] });

    grant(&["nothing"], &["patch"]).await;
    let refused = write(given.clone()).await.unwrap_err();
    let words = "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires \
                 resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: \
                 User \"writer\" cannot patch resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope";
    assert!(refused.contains(words), "{refused}");
    grant(&["resourceclaims/binding"], &["patch"]).await;
    write(given).await.unwrap();
    let refused = write(told.clone()).await.unwrap_err();
    let words = format!(
        "status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", \
         verb=\"[arbitrary-node:patch]\" permission: resourceclaims.resource.k8s.io \"{DRIVER}\" is forbidden: User \"writer\" \
         cannot arbitrary-node:patch resource \"resourceclaims/driver\""
    );
    assert!(refused.contains(&words), "{refused}");
    grant(&["resourceclaims/driver"], &["arbitrary-node:patch"]).await;
    write(told).await.unwrap();
    kit.stop().await;
}
