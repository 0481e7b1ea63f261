//! A device plug-in that this process serves, on the embedded runtime: its device comes by CDI, from a file of the node.

use std::path::{Path, PathBuf};

use ferry_plugins::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use ferry_plugins::deviceplugin::registration_client::RegistrationClient;
use ferry_plugins::deviceplugin::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateResponse, Device, Empty, ListAndWatchResponse,
    RegisterRequest,
};
use ferry_plugins::{Request, Response, Routes, Status};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::json;

use crate::cluster::{Cluster, until};

const RESOURCE: &str = "example.com/thing";

struct Things;

#[tonic::async_trait]
impl DevicePlugin for Things {
    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<BoxStream<'static, Result<ListAndWatchResponse, Status>>>, Status> {
        let device = Device { id: "one".into(), health: "Healthy".into(), topology: None };
        let told = futures::stream::iter([Ok(ListAndWatchResponse { devices: vec![device] })]);
        Ok(Response::new(told.chain(futures::stream::pending()).boxed()))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let named = |id: &String| CdiDevice { name: format!("{RESOURCE}={id}") };
        let answer = request.into_inner().container_requests.into_iter().map(|asked| ContainerAllocateResponse {
            cdi_devices: asked.device_ids.iter().map(named).collect(),
            ..ContainerAllocateResponse::default()
        });
        Ok(Response::new(AllocateResponse { container_responses: answer.collect() }))
    }
}

/// The plug-in and the file that says what its device is; gone when dropped.
struct Plugin {
    runtime: Option<tokio::runtime::Runtime>,
    file: PathBuf,
}

impl Plugin {
    fn start(folder: &Path) -> Self {
        let file = PathBuf::from(format!("/var/run/cdi/ferry-e2e-{}.yaml", std::process::id()));
        std::fs::create_dir_all("/var/run/cdi").unwrap();
        let text = "cdiVersion: '0.6.0'\nkind: example.com/thing\ndevices:\n- name: one\n  containerEdits:\n    \
                    env: [THING=one]\n    deviceNodes:\n    - {path: /dev/thing, hostPath: /dev/zero}\n";
        std::fs::write(&file, text).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (socket, kubelet) = (folder.join("thing.sock"), folder.join("kubelet.sock"));
        until("the kubelet's socket", || std::os::unix::net::UnixStream::connect(&kubelet).ok());
        let own = socket.clone();
        runtime.spawn(async move { ferry_plugins::serve(&own, Routes::new(DevicePluginServer::new(Things))).await });
        until("the plug-in's socket", || std::os::unix::net::UnixStream::connect(&socket).ok());
        let request = RegisterRequest {
            version: "v1beta1".into(),
            endpoint: "thing.sock".into(),
            resource_name: RESOURCE.into(),
            options: None,
        };
        let registered =
            runtime.block_on(async { RegistrationClient::new(ferry_cri::channel(&kubelet)).register(request).await });
        registered.unwrap();
        Self { runtime: Some(runtime), file }
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        std::fs::remove_file(&self.file).ok();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub fn a_pod_gets_the_device_of_a_plugin() {
    let cluster = Cluster::start_with(vec!["--container-runtime-endpoint=embedded".to_owned()]);
    let _plugin = Plugin::start(&cluster.data_dir().join("kubelet/device-plugins"));
    until("the node offers it", || {
        let node = cluster.json(&["get", "node", "e2e"]);
        (node["status"]["allocatable"][RESOURCE] == "1").then_some(())
    });
    let pod = |name: &str| {
        let limits = json!({RESOURCE: "1"});
        let script = "echo $THING; head -c 2 /dev/thing | wc -c; sleep 3600";
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "busybox:1.36", "command": ["sh", "-c", script],
                "resources": {"limits": limits}}]}})
        .to_string()
    };
    cluster.apply(&pod("first"));
    until("the pod has it", || (cluster.try_kubectl(&["logs", "first"], "").stdout == b"one\n2\n").then_some(()));
    // There is one, and it is taken.
    cluster.apply(&pod("second"));
    until("the other pod waits", || {
        let pod = cluster.json(&["get", "pod", "second"]);
        let scheduled = pod["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "PodScheduled")?;
        scheduled["message"].as_str()?.contains("Insufficient example.com/thing").then_some(())
    });
    cluster.kubectl(&["delete", "pod", "first", "--wait=true"]);
    until("it is free again", || (cluster.try_kubectl(&["logs", "second"], "").stdout == b"one\n2\n").then_some(()));
    cluster.kubectl(&["delete", "pod", "second", "--wait=true"]);
}
