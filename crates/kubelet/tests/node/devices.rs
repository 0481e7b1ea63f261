//! A device plug-in of the test's own, on the kubelet's real socket: registration, health, allocation, restarts, failures.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use ferry_plugins::deviceplugin::device_plugin_server::{DevicePlugin, DevicePluginServer};
use ferry_plugins::deviceplugin::registration_client::RegistrationClient;
use ferry_plugins::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationResponse, Device,
    DevicePluginOptions, DeviceSpec, Empty, ListAndWatchResponse, Mount, PreStartContainerRequest,
    PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest,
};
use ferry_plugins::podresources::pod_resources_lister_client::PodResourcesListerClient;
use ferry_plugins::podresources::{AllocatableResourcesRequest, GetPodResourcesRequest, ListPodResourcesRequest};
use ferry_plugins::{Request, Response, Routes, Status};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::api::Api;
use crate::containerd::Containerd;
use crate::{Node, is_ready, shell};

const RESOURCE: &str = "example.com/thing";

/// What the test has the plug-in do.
struct Script {
    /// The devices and whether they are well.
    devices: watch::Sender<Vec<(&'static str, bool)>>,
    /// Its process ends while it is asked for a device.
    dies: AtomicBool,
    started: AtomicUsize,
    file: PathBuf,
}

struct Plugin(Arc<Script>, mpsc::Sender<()>);

#[async_trait::async_trait]
impl DevicePlugin for Plugin {
    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<BoxStream<'static, Result<ListAndWatchResponse, Status>>>, Status> {
        let told = futures::stream::unfold((self.0.devices.subscribe(), true), |(mut devices, first)| async move {
            if !first {
                devices.changed().await.ok()?;
            }
            let health = |well: bool| if well { "Healthy" } else { "Unhealthy" }.to_owned();
            let list = devices.borrow_and_update().clone();
            let list =
                list.into_iter().map(|(id, well)| Device { id: id.to_owned(), health: health(well), topology: None });
            let told = ListAndWatchResponse { devices: list.collect() };
            Some((Ok(told), (devices, false)))
        });
        Ok(Response::new(told.boxed()))
    }

    /// The last ones first.
    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let answer = request.into_inner().container_requests.into_iter().map(|asked| {
            let size = usize::try_from(asked.allocation_size).expect("a size");
            let device_ids = asked.available_device_ids.into_iter().rev().take(size).collect();
            ContainerPreferredAllocationResponse { device_ids }
        });
        Ok(Response::new(PreferredAllocationResponse { container_responses: answer.collect() }))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        if self.0.dies.load(Ordering::SeqCst) {
            let _ = self.1.send(());
            std::future::pending::<()>().await;
        }
        let answer = request.into_inner().container_requests.into_iter().map(|asked| ContainerAllocateResponse {
            envs: [("THINGS".to_owned(), asked.device_ids.join("+"))].into(),
            mounts: vec![Mount {
                container_path: "/etc/thing".into(),
                host_path: self.0.file.to_string_lossy().into_owned(),
                read_only: true,
            }],
            devices: vec![DeviceSpec {
                container_path: "/dev/thing".into(),
                host_path: "/dev/zero".into(),
                permissions: "r".into(),
            }],
            annotations: [("example.com/things".to_owned(), asked.device_ids.join("+"))].into(),
            cdi_devices: Vec::new(),
        });
        Ok(Response::new(AllocateResponse { container_responses: answer.collect() }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        self.0.started.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: true, get_preferred_allocation_available: true };

/// A plug-in on threads of its own, as a process has them: it ends with all its connections when it is told to.
struct Running(mpsc::Sender<()>);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Serves the plug-in and registers it, as soon as the kubelet's socket is there.
async fn plug_in(folder: &Path, script: &Arc<Script>) -> Running {
    let (socket, kubelet) = (folder.join("thing.sock"), folder.join("kubelet.sock"));
    // What was in the folder before the kubelet serves there goes.
    let there = async {
        while tokio::net::UnixStream::connect(&kubelet).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), there).await.expect("the kubelet's socket");
    let (end, ended) = mpsc::channel();
    let routes = Routes::new(DevicePluginServer::new(Plugin(script.clone(), end.clone())));
    let own = socket.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.spawn(async move { ferry_plugins::serve(&own, routes).await });
        let _ = ended.recv();
        runtime.shutdown_background();
    });
    let register = async {
        loop {
            let mut kubelet = RegistrationClient::new(ferry_cri::channel(&kubelet));
            let request = RegisterRequest {
                version: "v1beta1".into(),
                endpoint: "thing.sock".into(),
                resource_name: RESOURCE.into(),
                options: Some(OPTIONS),
            };
            if socket.exists() && kubelet.register(request).await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), register).await.expect("registered");
    Running(end)
}

fn amounts(capacity: &'static str, allocatable: &'static str) -> impl Fn(&Value) -> bool {
    move |node| {
        node["status"]["capacity"][RESOURCE] == capacity && node["status"]["allocatable"][RESOURCE] == allocatable
    }
}

fn wants(count: u32, script: &str) -> Value {
    let amount = json!({RESOURCE: count.to_string()});
    json!({"restartPolicy": "Never", "containers": [
        {"name": "main", "command": shell(script), "resources": {"limits": amount, "requests": amount}}]})
}

const SLEEP: &str = "trap 'exit 0' TERM; sleep 1000 & wait";
const THIS_NODE: &str = "api/v1/nodes||test-node";

pub(crate) async fn devices_are_given_out_and_taken_back(api: &Api, containerd: &Containerd) {
    let node = Node::start(api, containerd).await;
    let folder = node.config.root_dir.join("device-plugins");
    let script = Arc::new(Script {
        devices: watch::Sender::new(vec![("a", true), ("b", true), ("c", false)]),
        dies: AtomicBool::new(false),
        started: AtomicUsize::new(0),
        file: containerd.folder.join("thing.conf"),
    });
    std::fs::write(&script.file, "from the plug-in\n").expect("written");
    let plugin = plug_in(&folder, &script).await;
    api.until(THIS_NODE, "three devices, two of them well", amounts("3", "2")).await;

    let told = format!("echo $THINGS; cat /etc/thing; head -c 3 /dev/thing | wc -c; {SLEEP}");
    let first = node.create("first", wants(1, &told)).await;
    let pod = api.until(&first, "ready", is_ready).await;
    let log = node.log_with(&pod, "main", "F 3").await;
    assert!(log.contains("stdout F b\n") && log.contains("stdout F from the plug-in\n"), "{log}");
    assert_eq!(script.started.load(Ordering::SeqCst), 1, "it was asked before the start");
    monitors_see_devices(&node.config.root_dir).await;

    // One device is left, and this pod wants two.
    let greedy = node.create("greedy", wants(2, SLEEP)).await;
    let failed = api.until(&greedy, "failed", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(failed["status"]["reason"], "OutOfexample.com/thing");
    node.delete(&greedy).await;

    // A kubelet that starts anew knows who has what, and what there is once the plug-in is back.
    node.stop().await;
    drop(plugin);
    let node = Node::start(api, containerd).await;
    // Until then the Node says what the kubelet before it wrote.
    api.until(THIS_NODE, "no devices yet", amounts("0", "0")).await;
    let _plugin = plug_in(&folder, &script).await;
    api.until(THIS_NODE, "the devices again", amounts("3", "2")).await;
    let second = node.create("second", wants(1, &told)).await;
    let pod = api.until(&second, "ready", is_ready).await;
    let log = node.log_with(&pod, "main", "F 3").await;
    assert!(log.contains("stdout F a\n"), "the first pod still has the other: {log}");

    // What a pod had is free after it.
    node.delete(&first).await;
    let third = node.create("third", wants(1, &told)).await;
    api.until(&third, "ready", is_ready).await;
    node.delete(&third).await;
    node.delete(&second).await;

    a_device_that_falls_ill_is_not_given_out(&node, &script).await;
    a_plugin_that_dies_costs_its_pod_and_nothing_else(&node, &script).await;
    node.stop().await;
}

async fn monitors_see_devices(root_dir: &Path) {
    let socket = root_dir.join("pod-resources/kubelet.sock");
    let mut kubelet = PodResourcesListerClient::new(ferry_cri::channel(&socket));
    let listed = kubelet.list(ListPodResourcesRequest {}).await.expect("a list").into_inner().pod_resources;
    let pod = listed.iter().find(|pod| pod.name == "first").expect("the pod");
    let devices = &pod.containers[0].devices;
    assert_eq!((pod.namespace.as_str(), devices.len()), ("default", 1), "{pod:?}");
    assert_eq!(
        (devices[0].resource_name.as_str(), devices[0].device_ids.as_slice()),
        (RESOURCE, &["b".to_owned()][..])
    );
    let all = kubelet.get_allocatable_resources(AllocatableResourcesRequest {}).await.expect("an answer").into_inner();
    assert_eq!(all.devices[0].device_ids, ["a", "b"]);
    let asked = |name: &str| GetPodResourcesRequest { pod_name: name.into(), pod_namespace: "default".into() };
    let one = kubelet.get(asked("first")).await.expect("the pod").into_inner().pod_resources;
    assert_eq!(one.as_ref(), Some(pod));
    assert!(kubelet.get(asked("nobody")).await.is_err());
}

async fn a_device_that_falls_ill_is_not_given_out(node: &Node, script: &Script) {
    script.devices.send_replace(vec![("a", false), ("b", true), ("c", false)]);
    node.api.until(THIS_NODE, "one is left", amounts("3", "1")).await;
    let pod = node.create("careful", wants(1, &format!("echo $THINGS; {SLEEP}"))).await;
    let ready = node.api.until(&pod, "ready", is_ready).await;
    node.log_with(&ready, "main", "stdout F b\n").await;
    node.delete(&pod).await;
}

async fn a_plugin_that_dies_costs_its_pod_and_nothing_else(node: &Node, script: &Script) {
    script.dies.store(true, Ordering::SeqCst);
    let pod = node.create("unlucky", wants(1, SLEEP)).await;
    let failed = node.api.until(&pod, "failed", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(failed["status"]["reason"], "UnexpectedAdmissionError");
    let message = failed["status"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("Pod was rejected: Allocate failed due to "), "{message}");
    assert!(node.events_of("unlucky").contains(&"UnexpectedAdmissionError".to_owned()));
    node.api.until(THIS_NODE, "none of its devices can be used", amounts("3", "0")).await;
    let plain = node.create("plain-after", json!({"containers": [{"name": "main", "command": shell(SLEEP)}]})).await;
    node.api.until(&plain, "ready", is_ready).await;
    node.delete(&plain).await;
    node.delete(&pod).await;
}
