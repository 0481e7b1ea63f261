//! A driver of devices that pods claim, of the test's own: registered by its socket, asked before a pod starts and after
//! its end.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::Api as Objects;
use ferry_plugins::dra::dra_plugin_server::{DraPlugin, DraPluginServer};
use ferry_plugins::dra::{
    Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use ferry_plugins::registration::registration_server::{Registration, RegistrationServer};
use ferry_plugins::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use ferry_plugins::{Request, Response, Routes, Status};
use ferry_tasks::Tasks;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::PostParams;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::Api;
use crate::containerd::Containerd;
use crate::{Node, is_ready, shell};

const DRIVER: &str = "things.example.com";

/// What it was asked.
#[derive(Default)]
struct Driver(Mutex<Vec<String>>);

#[async_trait::async_trait]
impl Registration for Driver {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".into(),
            name: DRIVER.into(),
            endpoint: String::new(),
            supported_versions: vec!["v1beta1.DRAPlugin".into(), "v1.DRAPlugin".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        assert!(status.plugin_registered, "{}", status.error);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[async_trait::async_trait]
impl DraPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let answer = request.into_inner().claims.into_iter().map(|claim| {
            self.0.lock().push(format!("prepare {}/{}", claim.namespace, claim.name));
            let broken = claim.name == "broken";
            let answer = NodePrepareResourceResponse {
                devices: vec![Device { pool_name: "pool".into(), device_name: "one".into(), ..Device::default() }],
                error: if broken { "it is on fire".into() } else { String::new() },
            };
            (claim.uid, answer)
        });
        Ok(Response::new(NodePrepareResourcesResponse { claims: answer.collect() }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let answer = request.into_inner().claims.into_iter().map(|claim| {
            self.0.lock().push(format!("unprepare {}/{}", claim.namespace, claim.name));
            (claim.uid, NodeUnprepareResourceResponse::default())
        });
        Ok(Response::new(NodeUnprepareResourcesResponse { claims: answer.collect() }))
    }
}

/// A pod that claims a device, and the claim, once somebody has allocated it.
async fn pod_with_claim(node: &Node, name: &str) -> String {
    let spec = json!({
        "resourceClaims": [{"name": "thing", "resourceClaimName": name}],
        "containers": [{"name": "main", "command": shell("trap 'exit 0' TERM; sleep 1000 & wait"),
            "resources": {"claims": [{"name": "thing"}]}}],
    });
    let key = node.create(name, spec).await;
    // It waits for the claim, and says so.
    told(node, name, "FailedPrepareDynamicResources").await;
    let uid = node.api.get(&key).expect("a pod")["metadata"]["uid"].clone();
    let claim = json!({
        "metadata": {"name": name}, "spec": {},
        "status": {
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
            "allocation": {"devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "pool", "device": "one"}]}},
        },
    });
    let claim = serde_json::from_value(claim).expect("a claim");
    let claims: Objects<ResourceClaim> = Objects::namespaced(node.api.client(), "default");
    claims.create(&PostParams::default(), &claim).await.expect("created");
    key
}

async fn told(node: &Node, pod: &str, reason: &str) {
    let seen = async {
        while !node.events_of(pod).iter().any(|event| event == reason) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), seen).await.expect(reason);
}

pub(crate) async fn claimed_devices_are_prepared_and_given_back(api: &Api, containerd: &Containerd) {
    let node = Node::start(api, containerd).await;
    let (driver, tasks) = (Arc::new(Driver::default()), Tasks::new("driver"));
    let socket = node.config.root_dir.join("plugins_registry/things.sock");
    let routes = Routes::new(RegistrationServer::from_arc(driver.clone()))
        .add_service(DraPluginServer::from_arc(driver.clone()));
    let key = pod_with_claim(&node, "claimed").await;
    let own = socket.clone();
    tasks.spawn_until_stopped("driver", async move {
        ferry_plugins::serve(&own, routes).await.expect("served");
    });
    api.until(&key, "ready", is_ready).await;
    assert_eq!(*driver.0.lock(), ["prepare default/claimed"]);

    // What is prepared is known to a kubelet that starts anew, and given back when the pod is gone.
    node.stop().await;
    let node = Node::start(api, containerd).await;
    let broken = pod_with_claim(&node, "broken").await;
    let asked = async {
        while !driver.0.lock().iter().any(|asked| asked == "prepare default/broken") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asked).await.expect("the driver is asked");
    let waiting = node.api.get(&broken).expect("a pod");
    assert_eq!(waiting["status"]["containerStatuses"][0]["state"]["running"], Value::Null, "{waiting}");
    node.delete(&key).await;
    node.delete(&broken).await;
    let mut asked = driver.0.lock().clone();
    asked.retain(|asked| asked != "prepare default/broken");
    assert_eq!(asked, ["prepare default/claimed", "unprepare default/claimed", "unprepare default/broken"]);
    node.stop().await;
    tasks.stop(Duration::from_secs(10)).await;
    std::fs::remove_file(&socket).expect("removed");
}
