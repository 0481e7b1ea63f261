//! Slices of a Service with many pods: full, few, written once for each change; and whom their endpoints are for.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferry_client::Api;
use ferry_testbed::{Kit, is_ready};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

const PODS: usize = 350;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_of_many_pods_are_full_and_written_once_for_each_change() {
    let kit = Kit::cluster(2).await;
    let pod = |number: usize| -> Pod {
        let json = json!({ "metadata": { "name": format!("web-{number}"), "labels": { "app": "web" } }, "spec": {
            "nodeName": format!("node-{}", number % 2), "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }],
        } });
        serde_json::from_value(json).unwrap()
    };
    let pods = kit.api::<Pod>();
    stream::iter(0..PODS)
        .for_each_concurrent(16, |number| {
            let (pods, pod) = (pods.clone(), pod(number));
            async move {
                pods.create(&PostParams::default(), &pod).await.unwrap();
            }
        })
        .await;
    kit.until_pods("all pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == PODS).await;
    kit.create::<Service>(
        json!({ "metadata": { "name": "web" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } }),
    )
    .await;
    let sizes = |all: &[Arc<EndpointSlice>]| {
        let mut sizes: Vec<usize> = all.iter().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).collect();
        sizes.sort_unstable();
        sizes
    };
    kit.until(kit.api::<EndpointSlice>(), "full slices", |all| sizes(all) == [50, 100, 100, 100]).await;
    kit.at_rest().await;

    // A pod that stops being ready, one that goes, one that comes.
    let writes = || kit.witness.writes("endpointslice-controller", "endpointslices");
    let before = writes();
    let unready = Patch::Strategic(json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }));
    pods.patch_status("web-7", &PatchParams::default(), &unready).await.unwrap();
    kit.at_rest().await;
    // The node says that the pod is ready after all, which is a change of its own, and may undo the first unseen.
    assert!(writes() - before <= 2, "{} writes for one change", writes() - before);

    let before = writes();
    pods.delete("web-8", &DeleteParams::default()).await.unwrap();
    kit.until(kit.api::<EndpointSlice>(), "one less", |all| sizes(all).iter().sum::<usize>() == PODS - 1).await;
    kit.at_rest().await;
    // Terminating, then gone.
    assert!(writes() - before <= 2, "{} writes for a deletion", writes() - before);

    // Labels and annotations are nothing that a slice tells.
    let before = writes();
    let noted = Patch::Merge(json!({ "metadata": { "annotations": { "note": "x" }, "labels": { "colour": "red" } } }));
    pods.patch("web-9", &PatchParams::default(), &noted).await.unwrap();
    kit.at_rest().await;
    assert_eq!(writes(), before);
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_say_whom_they_are_for() {
    let kit = Kit::cluster(2).await;
    let nodes: Api<Node> = Api::all(kit.client.clone());
    for (node, zone) in [("node-0", "east"), ("node-1", "west")] {
        let label = Patch::Merge(json!({ "metadata": { "labels": { "topology.kubernetes.io/zone": zone } } }));
        nodes.patch(node, &PatchParams::default(), &label).await.unwrap();
    }
    for number in 0..6 {
        kit.create::<Pod>(
            json!({ "metadata": { "name": format!("web-{number}"), "labels": { "app": "web" } }, "spec": {
            "nodeName": format!("node-{}", number % 2), "containers": [{ "name": "c", "image": "i" }],
        } }),
        )
        .await;
    }
    kit.create::<Service>(json!({ "metadata": { "name": "web" }, "spec": {
        "selector": { "app": "web" }, "ports": [{ "port": 80 }], "trafficDistribution": "PreferSameZone",
    } }))
    .await;
    // By node: the zones and nodes that its endpoints are for.
    let hints = |all: &[Arc<EndpointSlice>]| -> BTreeSet<(String, Vec<String>, Vec<String>)> {
        let endpoints = all.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        endpoints
            .map(|endpoint| {
                let hints = endpoint.hints.clone().unwrap_or_default();
                let zones = hints.for_zones.into_iter().flatten().map(|zone| zone.name).collect();
                let nodes = hints.for_nodes.into_iter().flatten().map(|node| node.name).collect();
                (endpoint.node_name.clone().unwrap_or_default(), zones, nodes)
            })
            .collect()
    };
    let row = |node: &str, zones: &[&str], nodes: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
        (node.to_owned(), owned(zones), owned(nodes))
    };
    let until = async |what: &str, wanted: [(String, Vec<String>, Vec<String>); 2]| {
        let wanted = BTreeSet::from(wanted);
        kit.until(kit.api::<EndpointSlice>(), what, |all| hints(all) == wanted).await;
    };
    until("their zones", [row("node-0", &["east"], &[]), row("node-1", &["west"], &[])]).await;

    let services = kit.api::<Service>();
    let change = async |change: serde_json::Value| {
        services.patch("web", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    };
    change(json!({ "spec": { "trafficDistribution": "PreferSameNode" } })).await;
    until("their nodes", [row("node-0", &["east"], &["node-0"]), row("node-1", &["west"], &["node-1"])]).await;
    change(json!({ "spec": { "trafficDistribution": null } })).await;
    until("nobody in particular", [row("node-0", &[], &[]), row("node-1", &[], &[])]).await;

    // By the processors of the zones: as many of one as of the other.
    let mode =
        |mode: Option<&str>| json!({ "metadata": { "annotations": { "service.kubernetes.io/topology-mode": mode } } });
    change(mode(Some("Auto"))).await;
    until("zones by their processors", [row("node-0", &["east"], &[]), row("node-1", &["west"], &[])]).await;
    change(mode(None)).await;
    until("nobody again", [row("node-0", &[], &[]), row("node-1", &[], &[])]).await;
    kit.stop().await;
}

/// A pod on a node that nobody knows is no endpoint, and the others are; when the node comes, so does its pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_unknown_nodes_wait_for_them() {
    let kit = Kit::cluster(1).await;
    kit.create::<Service>(
        json!({ "metadata": { "name": "web" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } }),
    )
    .await;
    for (name, node) in [("known", "node-0"), ("unknown", "ghost")] {
        let metadata = json!({ "name": name, "labels": { "app": "web" } });
        let spec = json!({ "nodeName": node, "containers": [{ "name": "c", "image": "i" }] });
        kit.create::<Pod>(json!({ "metadata": metadata, "spec": spec })).await;
    }
    let status = json!({ "status": {
        "phase": "Running", "podIP": "10.9.9.9", "podIPs": [{ "ip": "10.9.9.9" }],
        "conditions": [{ "type": "Ready", "status": "True" }],
    } });
    kit.api::<Pod>().patch_status("unknown", &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
    let pods = |all: &[Arc<EndpointSlice>]| -> Vec<String> {
        let endpoints = all.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let names = endpoints.filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.clone());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let why = kit.until_event("FailedToUpdateEndpointSlices").await;
    let skipped = "skipping Pod unknown for Service test/web: Node ghost Not Found";
    assert_eq!(why, format!("Error updating Endpoint Slices for Service test/web: {skipped}"));
    kit.until(kit.api::<EndpointSlice>(), "the pod that can be reached", |all| pods(all) == ["known"]).await;
    kit.create_in(Api::<Node>::all(kit.client.clone()), json!({ "metadata": { "name": "ghost" } })).await;
    let both = kit.until(kit.api::<EndpointSlice>(), "both pods", |all| pods(all) == ["known", "unknown"]).await;
    let when = "endpoints.kubernetes.io/last-change-trigger-time";
    assert!(both[0].metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Service"));

    // One that took the name has slices of its own: the others go with the Service that was.
    let again =
        json!({ "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] }, "metadata": { "name": "web" } });
    kit.api::<Service>().delete("web", &DeleteParams::default()).await.unwrap();
    let service: Service = kit.create(again).await;
    let all = kit
        .until(kit.api::<EndpointSlice>(), "slices of the new Service", |all| {
            let owners = all.iter().flat_map(|slice| slice.metadata.owner_references.iter().flatten());
            pods(all) == ["known", "unknown"]
                && owners.into_iter().all(|owner| Some(&owner.uid) == service.metadata.uid.as_ref())
        })
        .await;
    assert!(all[0].metadata.annotations.iter().flatten().any(|(key, _)| key == when), "since when that is so");
    kit.stop().await;
}
