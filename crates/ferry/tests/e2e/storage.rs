//! Volumes of a storage driver: one that this process serves, which hands out folders.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ferry_plugins::csi::node_server::{Node, NodeServer};
use ferry_plugins::csi::node_service_capability::Type as Capability;
use ferry_plugins::csi::node_service_capability::{Rpc, rpc};
use ferry_plugins::csi::volume_capability::AccessType;
use ferry_plugins::csi::{self, NodeServiceCapability};
use ferry_plugins::registration::registration_server::{Registration, RegistrationServer};
use ferry_plugins::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use parking_lot::Mutex;
use tonic::{Request, Response, Status};

use crate::cluster::{Cluster, until};

const DRIVER: &str = "folders.example.com";

/// What it was asked, and the folder that holds its volumes.
struct Folders {
    root: PathBuf,
    asked: Mutex<Vec<String>>,
}

impl Folders {
    fn note(&self, what: impl Into<String>) {
        self.asked.lock().push(what.into());
    }

    fn volume(&self, id: &str) -> Result<PathBuf, Status> {
        let folder = self.root.join(id);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

fn bind(from: &Path, to: &str) -> Result<(), Status> {
    std::fs::create_dir_all(to)?;
    let done = Command::new("mount").arg("--bind").args([from, Path::new(to)]).status()?;
    if done.success() { Ok(()) } else { Err(Status::internal("not mounted")) }
}

fn unbind(from: &str) -> Result<(), Status> {
    let done = Command::new("umount").arg(from).status()?;
    std::fs::remove_dir(from)?;
    if done.success() { Ok(()) } else { Err(Status::internal("not unmounted")) }
}

#[tonic::async_trait]
impl Registration for Folders {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".into(),
            name: DRIVER.into(),
            endpoint: String::new(),
            supported_versions: vec!["1.0.0".into()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.note(format!("registered {}", status.into_inner().plugin_registered));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[tonic::async_trait]
impl Node for Folders {
    async fn node_get_info(
        &self,
        _: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        let segments = [("topology.folders.example.com/zone".to_owned(), "here".to_owned())].into();
        Ok(Response::new(csi::NodeGetInfoResponse {
            node_id: "the-node".into(),
            max_volumes_per_node: 7,
            accessible_topology: Some(csi::Topology { segments }),
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi::NodeGetCapabilitiesResponse>, Status> {
        let capabilities = [rpc::Type::StageUnstageVolume, rpc::Type::ExpandVolume].map(|kind| {
            let rpc = Rpc { r#type: kind.into() };
            NodeServiceCapability { r#type: Some(Capability::Rpc(rpc)) }
        });
        Ok(Response::new(csi::NodeGetCapabilitiesResponse { capabilities: capabilities.to_vec() }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> Result<Response<csi::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let bytes = request.capacity_range.unwrap_or_default().required_bytes;
        self.note(format!("expand {} to {bytes}", request.volume_id));
        Ok(Response::new(csi::NodeExpandVolumeResponse { capacity_bytes: bytes }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Result<Response<csi::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let (word, device) = (request.secrets.get("word"), request.publish_context.get("device"));
        self.note(format!("stage {} {word:?} {device:?}", request.volume_id));
        bind(&self.volume(&request.volume_id)?, &request.staging_target_path)?;
        Ok(Response::new(csi::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Result<Response<csi::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        unbind(&request.staging_target_path)?;
        self.note(format!("unstage {}", request.volume_id));
        Ok(Response::new(csi::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Result<Response<csi::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let about = |key: &str| request.volume_context.get(&format!("csi.storage.k8s.io/{key}")).cloned();
        let (pod, ephemeral) = (about("pod.name").unwrap_or_default(), about("ephemeral").unwrap_or_default());
        self.note(format!("publish to {pod}, ephemeral {ephemeral}, read-only {}", request.readonly));
        let from = match &*request.staging_target_path {
            "" => self.volume(&request.volume_id)?,
            staged => PathBuf::from(staged),
        };
        let kind = request.volume_capability.and_then(|capability| capability.access_type);
        if matches!(kind, Some(AccessType::Block(_))) {
            // The first loop device, whether there is a file behind it or not.
            Command::new("mknod").args([&*request.target_path, "b", "7", "0"]).status()?;
        } else {
            bind(&from, &request.target_path)?;
        }
        Ok(Response::new(csi::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<csi::NodeUnpublishVolumeResponse>, Status> {
        let target = request.into_inner().target_path;
        if Path::new(&target).is_dir() {
            unbind(&target)?;
        } else {
            std::fs::remove_file(target)?;
        }
        self.note("unpublish");
        Ok(Response::new(csi::NodeUnpublishVolumeResponse {}))
    }
}

/// Serves the driver until it is dropped.
struct Serving {
    folders: Arc<Folders>,
    socket: PathBuf,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Serving {
    fn start(cluster: &Cluster, root: &Path) -> Self {
        let socket = cluster.data_dir().join("kubelet/plugins_registry/folders.sock");
        let folders = Arc::new(Folders { root: root.to_owned(), asked: Mutex::default() });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let incoming = {
            let _inside = runtime.enter();
            tokio_stream::wrappers::UnixListenerStream::new(tokio::net::UnixListener::bind(&socket).unwrap())
        };
        let server = tonic::transport::Server::builder()
            .add_service(RegistrationServer::from_arc(folders.clone()))
            .add_service(NodeServer::from_arc(folders.clone()));
        runtime.spawn(server.serve_with_incoming(incoming));
        Self { folders, socket, runtime: Some(runtime) }
    }

    fn asked(&self) -> Vec<String> {
        self.folders.asked.lock().clone()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        std::fs::remove_file(&self.socket).ok();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn pod(name: &str, volume: &str) -> String {
    pod_with(name, r#""volumeMounts":[{"name":"v","mountPath":"/v"}]"#, volume)
}

fn pod_with(name: &str, part: &str, volume: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"spec":{{"terminationGracePeriodSeconds":1,"securityContext":{{"fsGroup":4711}},
        "containers":[{{"name":"c","image":"busybox:1.36","command":["sleep","100000"],{part}}}],"volumes":[{{"name":"v",{volume}}}]}}}}"#
    )
}

/// A volume of the driver and the claim that is bound to it.
fn volume_and_claim(name: &str, mode: &str, more: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"List","items":[
        {{"apiVersion":"v1","kind":"PersistentVolume","metadata":{{"name":"{name}"}},"spec":{{"capacity":{{"storage":"1Mi"}},"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Retain","storageClassName":"",
          "volumeMode":"{mode}","claimRef":{{"namespace":"default","name":"{name}"}},"csi":{{"driver":"{DRIVER}","volumeHandle":"{name}"{more}}}}}}},
        {{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{{"name":"{name}"}},"spec":{{"storageClassName":"","volumeMode":"{mode}","accessModes":["ReadWriteOnce"],"resources":{{"requests":{{"storage":"1Mi"}}}}}}}}]}}"#
    )
}

/// Does what the driver's attacher would do.
fn attach(cluster: &Cluster) {
    let attachment = until("a VolumeAttachment", || {
        let all = cluster.items(&["get", "volumeattachments"]);
        all.first().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
    });
    let attached = r#"{"status":{"attached":true,"attachmentMetadata":{"device":"sdx"}}}"#;
    cluster.kubectl(&[
        "patch",
        "volumeattachment",
        &attachment,
        "--subresource=status",
        "--type=merge",
        "-p",
        attached,
    ]);
}

pub fn a_driver_gives_and_takes_back_volumes(cluster: &mut Cluster) {
    let root = tempfile::tempdir().unwrap();
    let driver = Serving::start(cluster, root.path());
    cluster.apply(&format!(
        r#"{{"apiVersion":"storage.k8s.io/v1","kind":"CSIDriver","metadata":{{"name":"{DRIVER}"}},"spec":{{"podInfoOnMount":true,"fsGroupPolicy":"File","volumeLifecycleModes":["Persistent","Ephemeral"]}}}}"#
    ));
    let known = until("the driver in the CSINode", || {
        let node = cluster.json(&["get", "csinode", "e2e"]);
        node["spec"]["drivers"].as_array().filter(|drivers| !drivers.is_empty()).map(|drivers| drivers[0].clone())
    });
    assert_eq!((&known["nodeID"], &known["allocatable"]["count"]), (&"the-node".into(), &7.into()));
    let node = cluster.json(&["get", "node", "e2e"]);
    assert_eq!(node["metadata"]["labels"]["topology.folders.example.com/zone"], "here");
    until("the driver is told", || driver.asked().contains(&"registered true".to_owned()).then_some(()));

    // A volume that has to be attached first: this test is its attacher.
    cluster.kubectl(&["create", "secret", "generic", "for-driver", "--from-literal=word=sesame"]);
    let secret = r#","nodeStageSecretRef":{"namespace":"default","name":"for-driver"}"#;
    cluster.apply(&volume_and_claim("kept", "Filesystem", secret));
    cluster.apply(&pod("writer", r#""persistentVolumeClaim":{"claimName":"kept"}"#));
    until("a VolumeAttachment", || (!cluster.items(&["get", "volumeattachments"]).is_empty()).then_some(()));
    assert!(!driver.asked().iter().any(|asked| asked.starts_with("stage")), "not before it is attached");
    attach(cluster);
    cluster.kubectl(&["wait", "pod/writer", "--for=condition=Ready", "--timeout=180s"]);
    assert!(driver.asked().contains(&r#"stage kept Some("sesame") Some("sdx")"#.to_owned()), "{:?}", driver.asked());
    cluster.kubectl(&["exec", "writer", "--", "sh", "-c", "echo kept > /v/word"]);
    let group = std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(root.path().join("kept")).unwrap());
    assert_eq!(group, 4711, "the pod's group has the volume");
    until("the volume in use", || {
        let node = cluster.json(&["get", "node", "e2e"]);
        let used =
            node["status"]["volumesInUse"].as_array()?.contains(&format!("kubernetes.io/csi/{DRIVER}^kept").into());
        used.then_some(())
    });

    // Its disk grows, and so does the claim once the driver has seen to the file system.
    let grown = r#"{"spec":{"capacity":{"storage":"2Mi"}}}"#;
    cluster.kubectl(&["patch", "pv", "kept", "--type=merge", "-p", grown]);
    until("the claim has grown", || {
        (cluster.json(&["get", "pvc", "kept"])["status"]["capacity"]["storage"] == "2Mi").then_some(())
    });
    assert!(driver.asked().contains(&"expand kept to 2097152".to_owned()), "{:?}", driver.asked());

    // A kubelet that starts again finds it where it was, and takes it back in the end.
    let before = driver.asked().len();
    cluster.kill();
    cluster.up();
    assert_eq!(cluster.kubectl(&["exec", "writer", "--", "cat", "/v/word"]).trim(), "kept");
    until("the driver registers again", || (driver.asked().len() > before).then_some(()));
    cluster.kubectl(&["delete", "pod", "writer", "--wait=true"]);
    let after = driver.asked();
    assert!(
        after[before..].iter().all(|asked| !asked.starts_with("stage") && !asked.starts_with("publish")),
        "{after:?}"
    );
    assert!(after.ends_with(&["unpublish".to_owned(), "unstage kept".to_owned()]), "{after:?}");
    assert_eq!(std::fs::read_to_string(root.path().join("kept/word")).unwrap().trim(), "kept");
    until("it is detached", || cluster.items(&["get", "volumeattachments"]).is_empty().then_some(()));

    // A device in place of a file system.
    cluster.apply(&volume_and_claim("raw", "Block", ""));
    let opens = r#""volumeDevices":[{"name":"v","devicePath":"/dev/given"}]"#;
    cluster.apply(&pod_with("opener", opens, r#""persistentVolumeClaim":{"claimName":"raw"}"#));
    attach(cluster);
    cluster.kubectl(&["wait", "pod/opener", "--for=condition=Ready", "--timeout=180s"]);
    cluster.kubectl(&["exec", "opener", "--", "test", "-b", "/dev/given"]);
    cluster.kubectl(&["delete", "pod", "opener", "--wait=true"]);
    let after = driver.asked();
    assert!(after.ends_with(&["unpublish".to_owned(), "unstage raw".to_owned()]), "{after:?}");

    // A volume of the pod's own, which is never attached.
    cluster.apply(&pod("own", &format!(r#""csi":{{"driver":"{DRIVER}","readOnly":true}}"#)));
    cluster.kubectl(&["wait", "pod/own", "--for=condition=Ready", "--timeout=180s"]);
    let told = "publish to own, ephemeral true, read-only true".to_owned();
    assert!(driver.asked().contains(&told), "{:?}", driver.asked());
    cluster.kubectl(&["delete", "pod", "own", "--wait=true"]);
    assert_eq!(driver.asked().last().map(String::as_str), Some("unpublish"));

    drop(driver);
    until("the CSINode forgets the driver", || {
        let node = cluster.json(&["get", "csinode", "e2e"]);
        node["spec"]["drivers"].as_array().is_none_or(Vec::is_empty).then_some(())
    });
    // A pod whose driver is not there says so.
    cluster.apply(&pod("lost", &format!(r#""csi":{{"driver":"{DRIVER}"}}"#)));
    until("the event", || {
        let events = cluster.items(&["get", "events", "--field-selector=reason=FailedMount"]);
        let said = format!("driver name {DRIVER} not found in the list of registered CSI drivers");
        events.iter().any(|event| event["message"].as_str().is_some_and(|text| text.contains(&said))).then_some(())
    });
    cluster.kubectl(&[
        "delete",
        "pod/lost",
        "pvc/kept",
        "pvc/raw",
        "pv/kept",
        "pv/raw",
        "secret/for-driver",
        "--wait=true",
    ]);
    cluster.kubectl(&["delete", "csidriver", DRIVER]);
}
