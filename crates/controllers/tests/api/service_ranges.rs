//! Ranges of Service addresses: added, used, held and gone; and Services of both families.

use std::sync::Arc;

use ferry_client::Api;
use ferry_testbed::{Kit, NAMESPACE};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn service(name: &str, spec: Value) -> Service {
    let mut spec = spec;
    spec["ports"] = json!([{ "port": 80 }]);
    serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
}

fn addresses(service: &Service) -> Vec<String> {
    service.spec.as_ref().and_then(|spec| spec.cluster_ips.clone()).unwrap_or_default()
}

async fn in_use(kit: &Kit) -> Vec<String> {
    let all: Api<IPAddress> = Api::all(kit.client.clone());
    let mut names: Vec<String> =
        all.list(&Default::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect();
    names.sort();
    names
}

async fn until_ready(kit: &Kit, name: &str, wanted: &str) {
    let ranges: Api<ServiceCIDR> = Api::all(kit.client.clone());
    kit.until(ranges, wanted, |all| {
        all.iter().filter(|range| range.name_any() == name).any(|range| {
            let mut conditions = range.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.any(|condition| condition.type_ == "Ready" && condition.status == wanted)
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_get_addresses_of_every_range_that_is_ready() {
    let kit = Kit::new().await;
    let (services, ranges): (Api<Service>, Api<ServiceCIDR>) = (kit.api(), Api::all(kit.client.clone()));
    let create = async |name: &str, spec: Value| services.create(&PostParams::default(), &service(name, spec)).await;
    let chosen = || json!({ "clusterIP": "10.200.0.3" });
    let small = json!({ "metadata": { "name": "small" }, "spec": { "cidrs": ["10.200.0.0/29"] } });
    kit.create_in(ranges.clone(), small).await;
    // Nobody says whether it is ready, for there is nobody; then it is said that it is not.
    assert_eq!(addresses(&create("early", chosen()).await.unwrap()), ["10.200.0.3"]);
    services.delete("early", &DeleteParams::default()).await.unwrap();
    let state = |status: &str| {
        let now = ferry_client::write::now();
        let condition =
            json!({ "type": "Ready", "status": status, "reason": "", "message": "", "lastTransitionTime": now });
        Patch::Merge(json!({ "status": { "conditions": [condition] } }))
    };
    ranges.patch_status("small", &PatchParams::default(), &state("False")).await.unwrap();
    let refused = create("early", chosen()).await.unwrap_err().to_string();
    assert!(refused.contains("failed to allocate IP 10.200.0.3: the provided network does not match"), "{refused}");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let refused = services.create(&dry, &service("early", chosen())).await.unwrap_err().to_string();
    let words = "the provided IP (10.200.0.3) is not in the valid range. The range of valid IPs is 10.96.0.0/16";
    assert!(refused.contains(words), "{refused}");
    kit.controllers(kit.config());
    until_ready(&kit, "small", "True").await;
    for network in ["10.200.0.0", "10.200.0.7"] {
        let refused = create("network", json!({ "clusterIP": network })).await.unwrap_err().to_string();
        assert!(refused.contains("does not match the current range"), "{refused}");
    }
    assert_eq!(addresses(&create("chosen", chosen()).await.unwrap()), ["10.200.0.3"]);
    let refused = create("again", chosen()).await.unwrap_err().to_string();
    assert!(refused.contains("provided IP is already allocated"), "{refused}");

    // The range of the server goes: what it gave stays, and new addresses come from the other until that is full.
    let other = create("other", json!({})).await.unwrap();
    assert!(addresses(&other)[0].starts_with("10.96."), "{:?}", addresses(&other));
    ranges.delete("kubernetes", &DeleteParams::default()).await.unwrap();
    until_ready(&kit, "kubernetes", "False").await;
    let mut given = Vec::new();
    for number in 0..5 {
        given.extend(addresses(&create(&format!("s{number}"), json!({})).await.unwrap()));
    }
    given.sort();
    assert_eq!(given, ["10.200.0.1", "10.200.0.2", "10.200.0.4", "10.200.0.5", "10.200.0.6"]);
    let full = create("full", json!({})).await.unwrap_err().to_string();
    assert!(full.contains("failed to allocate a serviceIP for Service \"full\": range is full"), "{full}");
    let note = Patch::Merge(json!({ "metadata": { "annotations": { "note": "x" } } }));
    let kept = services.patch("other", &PatchParams::default(), &note).await.unwrap();
    assert_eq!(addresses(&kept), addresses(&other));
    // What is given back is given out again.
    services.delete("s0", &DeleteParams::default()).await.unwrap();
    assert!(given.contains(&addresses(&create("full", json!({})).await.unwrap())[0]));
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_have_addresses_of_both_families() {
    let kit = Kit::with_ranges("10.96.0.0/24,fd00:96::/112", &[]).await;
    let ranges: Api<ServiceCIDR> = Api::all(kit.client.clone());
    let own = ranges.get("kubernetes").await.unwrap().spec.unwrap().cidrs.unwrap();
    assert_eq!(own, ["10.96.0.0/24", "fd00:96::/112"]);
    let services: Api<Service> = kit.api();
    for (name, spec, wanted) in [
        ("one", json!({}), vec!["10.96.0."]),
        ("six", json!({ "ipFamilies": ["IPv6"] }), vec!["fd00:96::"]),
        ("both", json!({ "ipFamilyPolicy": "RequireDualStack" }), vec!["10.96.0.", "fd00:96::"]),
        (
            "turned",
            json!({ "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"] }),
            vec!["fd00:96::", "10.96.0."],
        ),
        (
            "chosen",
            json!({ "ipFamilyPolicy": "PreferDualStack", "clusterIP": "fd00:96::7", "clusterIPs": ["fd00:96::7"] }),
            vec!["fd00:96::7", "10.96.0."],
        ),
    ] {
        let made = services.create(&PostParams::default(), &service(name, spec)).await.unwrap();
        let got = addresses(&made);
        let fits = got.iter().zip(&wanted).all(|(have, start)| have.starts_with(start));
        assert!(fits && got.len() == wanted.len(), "{name}: {got:?}");
        assert_eq!(made.spec.unwrap().cluster_ip.as_deref(), Some(&*got[0]));
        let used = in_use(&kit).await;
        assert!(got.iter().all(|address| used.contains(address)), "{name}: {got:?} of {used:?}");
    }

    // A second address comes and goes with what the Service asks for.
    let change = async |policy: &str| {
        let patch = Patch::Merge(json!({ "spec": { "ipFamilyPolicy": policy } }));
        addresses(&services.patch("one", &PatchParams::default(), &patch).await.unwrap())
    };
    let (before, used) = (addresses(&services.get("one").await.unwrap()), in_use(&kit).await);
    let more = change("PreferDualStack").await;
    assert_eq!((more.len(), &more[..1]), (2, &before[..]));
    assert_eq!(in_use(&kit).await.len(), used.len() + 1);
    assert_eq!(change("SingleStack").await, before);
    assert_eq!(in_use(&kit).await, used);
    for service in services.list(&Default::default()).await.unwrap().items {
        services.delete(&service.name_any(), &DeleteParams::default()).await.unwrap();
    }
    assert_eq!(in_use(&kit).await, ["10.96.0.1"]);
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_of_services_are_held_while_they_are_used() {
    let kit = Kit::new().await;
    kit.controllers(kit.config());
    let ranges: Api<ServiceCIDR> = Api::all(kit.client.clone());
    kit.create_in(ranges.clone(), json!({ "metadata": { "name": "more" }, "spec": { "cidrs": ["10.200.0.0/24"] } }))
        .await;
    let state = |range: &ServiceCIDR| {
        let conditions = range.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|one| one.type_ == "Ready").map(|one| (one.status, one.reason)).unwrap_or_default()
    };
    let is = |all: &[Arc<ServiceCIDR>], wanted: &str| {
        all.iter().any(|range| range.name_any() == "more" && state(range).0 == wanted && !range.finalizers().is_empty())
    };
    kit.until(ranges.clone(), "a ready range", |all| is(all, "True")).await;
    let addresses: Api<IPAddress> = Api::all(kit.client.clone());
    let parent = json!({ "group": "", "resource": "services", "namespace": NAMESPACE, "name": "user" });
    let labels = json!({ "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io" });
    let metadata = json!({ "name": "10.200.0.9", "labels": labels });
    kit.create_in(addresses.clone(), json!({ "metadata": metadata, "spec": { "parentRef": parent } })).await;
    ranges.delete("more", &DeleteParams::default()).await.unwrap();
    let held = kit.until(ranges.clone(), "a held range", |all| is(all, "False")).await;
    assert_eq!(
        held.iter().find(|range| range.name_any() == "more").map(|range| state(range).1).as_deref(),
        Some("Terminating")
    );
    addresses.delete("10.200.0.9", &DeleteParams::default()).await.unwrap();
    kit.until(ranges, "no range", |all| all.iter().all(|range| range.name_any() != "more")).await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_a_service_has_stays_taken() {
    let kit = Kit::new().await;
    let (services, all): (Api<Service>, Api<IPAddress>) = (kit.api(), Api::all(kit.client.clone()));
    let one = services.create(&PostParams::default(), &service("one", json!({}))).await.unwrap();
    let [address] = &addresses(&one)[..] else { panic!("one address") };
    let before = all.get(address).await.unwrap();
    all.delete(address, &DeleteParams::default()).await.unwrap();
    let is_again = |all: &[Arc<IPAddress>]| {
        all.iter().any(|found| found.name_any() == *address && found.uid() != before.uid() && found.spec == before.spec)
    };
    kit.until(all.clone(), "the address is taken again", is_again).await;
    services.delete("one", &DeleteParams::default()).await.unwrap();
    // What is mended for another Service later tells that nothing was mended for this one.
    let two = services.create(&PostParams::default(), &service("two", json!({}))).await.unwrap();
    let [other] = &addresses(&two)[..] else { panic!("one address") };
    let old = all.get(other).await.unwrap().uid();
    all.delete(other, &DeleteParams::default()).await.unwrap();
    let mended = |all: &[Arc<IPAddress>]| all.iter().any(|found| found.name_any() == *other && found.uid() != old);
    kit.until(all, "the other is taken again", mended).await;
    assert!(other == address || !in_use(&kit).await.contains(address));
}
