//! Nodes that are machines of a cloud.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_client::Api;
use ferry_controllers::{Ensured, Instance, Machine, Provider};
use ferry_testbed::Kit;
use k8s_openapi::api::core::v1::{Node, NodeAddress, Service};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;

/// A cloud as the test wants it to be.
#[derive(Default)]
struct Cloud {
    machines: Mutex<BTreeMap<String, Instance>>,
    routes: Mutex<Vec<String>>,
}

impl Provider for Cloud {
    fn name(&self) -> &str {
        "test"
    }

    fn ensure_load_balancer(&self, _: &Service, _: &[Arc<Node>], _: &[Arc<Service>]) -> Result<Ensured, String> {
        Ok(Ensured::Pending)
    }

    fn delete_load_balancer(&self, _: &Service) -> Result<(), String> {
        Ok(())
    }

    fn instance(&self, node: &Node) -> Result<Instance, String> {
        Ok(self.machines.lock().get(&node.name_any()).cloned().unwrap_or(Instance::Gone))
    }

    fn has_routes(&self) -> bool {
        true
    }

    fn ensure_route(&self, node: &str, range: &str) -> Result<(), String> {
        let route = format!("{node} {range}");
        let mut routes = self.routes.lock();
        if !routes.contains(&route) {
            routes.push(route);
        }
        Ok(())
    }

    fn delete_route(&self, node: &str, range: &str) -> Result<(), String> {
        self.routes.lock().retain(|route| *route != format!("{node} {range}"));
        Ok(())
    }
}

fn taints(node: &Node) -> Vec<String> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.map(|taint| taint.key.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_learn_from_their_machines_and_go_with_them() {
    let kit = Kit::new().await;
    let cloud = Arc::new(Cloud::default());
    let machine = Machine {
        provider_id: Some("test://one".into()),
        instance_type: Some("large".into()),
        zone: Some("z1".into()),
        region: Some("r1".into()),
        addresses: Some(vec![
            NodeAddress { type_: "InternalIP".into(), address: "192.0.2.1".into() },
            NodeAddress { type_: "ExternalIP".into(), address: "203.0.113.1".into() },
        ]),
    };
    cloud.machines.lock().insert("one".into(), Instance::Running(machine));
    kit.controllers(ferry_controllers::Config { provider: Some(cloud.clone()), ..kit.config() });
    let nodes: Api<Node> = Api::all(kit.client.clone());
    let uninitialized =
        json!({ "key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule", "value": "true" });
    let node = json!({
        "metadata": { "name": "one", "labels": { "own": "label" } },
        "spec": { "taints": [uninitialized], "podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"] },
    });
    kit.create_in(nodes.clone(), node).await;
    let all = kit
        .until(nodes.clone(), "a node that is known to the cloud", |all| {
            let condition = |node: &Node| {
                let mut list = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
                list.any(|one| one.type_ == "NetworkUnavailable" && one.status == "False")
            };
            all.iter().any(|node| !taints(node).iter().any(|key| key.contains("uninitialized")) && condition(node))
        })
        .await;
    let node = &all[0];
    let spec = node.spec.clone().unwrap();
    assert_eq!(spec.provider_id.as_deref(), Some("test://one"));
    for (label, value) in [
        ("own", "label"),
        ("node.kubernetes.io/instance-type", "large"),
        ("topology.kubernetes.io/zone", "z1"),
        ("topology.kubernetes.io/region", "r1"),
    ] {
        assert_eq!(node.labels().get(label).map(String::as_str), Some(value), "{label}");
    }
    let addresses = node.status.clone().unwrap().addresses.unwrap();
    assert_eq!(addresses.iter().map(|one| one.address.as_str()).collect::<Vec<_>>(), ["192.0.2.1", "203.0.113.1"]);
    assert_eq!(*cloud.routes.lock(), ["one 10.9.0.0/24"]);

    // It never said that it is ready. Switched off, it takes no pods; gone, it goes.
    cloud.machines.lock().insert("one".into(), Instance::Stopped);
    kit.until(nodes.clone(), "a node that is shut down", |all| {
        all.iter().any(|node| taints(node).iter().any(|key| key == "node.cloudprovider.kubernetes.io/shutdown"))
    })
    .await;
    cloud.machines.lock().clear();
    kit.until(nodes, "no node", |all| all.is_empty()).await;
    kit.at_rest().await;
    assert!(cloud.routes.lock().is_empty());
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_gives_its_load_balancer_back_and_keeps_what_others_hold_it_by() {
    const OURS: &str = "service.kubernetes.io/load-balancer-cleanup";
    let kit = Kit::cluster(1).await;
    let web = json!({ "metadata": { "name": "web" }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    kit.create::<Service>(web).await;
    let addresses = |service: &Service| {
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        status.and_then(|status| status.ingress.as_ref()).map_or(0, Vec::len)
    };
    let services = kit.api::<Service>();
    kit.until(services.clone(), "an address", |all| {
        all.iter().any(|service| addresses(service) == 1 && service.finalizers() == [OURS])
    })
    .await;
    let change = async |change: serde_json::Value| {
        services.patch("web", &PatchParams::default(), &Patch::Strategic(change)).await.unwrap();
    };
    change(json!({ "metadata": { "finalizers": ["example.com/own"] } })).await;
    change(json!({ "spec": { "type": "ClusterIP" } })).await;
    kit.until(services.clone(), "no address", |all| {
        all.iter().any(|service| addresses(service) == 0 && service.finalizers() == ["example.com/own"])
    })
    .await;
    assert_eq!(kit.until_event("Type").await, "LoadBalancer -> ClusterIP");
    kit.stop().await;
}
