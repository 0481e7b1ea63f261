//! The runtime over CRI gRPC.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ferry_cri::{Code, ConnectError, CriClient, v1};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use super::model::{self, PodState, Record, RunState, Sandbox, label};
use super::{Abilities, Glimpse, Result, Running, Runtime, RuntimeError};
use crate::cgroups::CgroupDriver;
use crate::metrics::{Counter, Histogram, Metrics};

pub(crate) struct CriRuntime {
    client: CriClient,
    name: String,
    version: String,
    metrics: Arc<Metrics>,
    /// Records of containers that have ended: they do not change any more, so that one question each is enough.
    ended: Mutex<HashMap<String, Record>>,
}

impl CriRuntime {
    pub(crate) async fn connect(
        endpoint: &str,
        patience: Duration,
        metrics: Arc<Metrics>,
    ) -> std::result::Result<Arc<Self>, ConnectError> {
        let (client, version) = CriClient::connect(endpoint).await?;
        Ok(Arc::new(Self {
            client: client.with_patience(patience),
            name: version.runtime_name,
            version: version.runtime_version,
            metrics,
            ended: Mutex::new(HashMap::new()),
        }))
    }

    /// Who makes control groups, as the runtime says; none from one that cannot say it.
    pub(crate) async fn cgroup_driver(&self) -> std::result::Result<Option<CgroupDriver>, String> {
        const TRIES: u32 = 3;
        let mut tries = 1;
        let told = loop {
            let asked = self.client.runtime_config(v1::RuntimeConfigRequest {});
            match self.metrics.of_runtime("runtime_config", asked).await {
                Ok(told) => break told,
                Err(status) if status.code() == Code::Unimplemented => return Ok(None),
                Err(status) if tries == TRIES => return Err(RuntimeError::from(status).to_string()),
                // It may still be starting.
                Err(_) => tokio::time::sleep(Duration::from_secs(2)).await,
            }
            tries += 1;
        };
        let Some(linux) = told.linux else { return Ok(None) };
        match v1::CgroupDriver::try_from(linux.cgroup_driver) {
            Ok(v1::CgroupDriver::Systemd) => Ok(Some(CgroupDriver::Systemd)),
            Ok(v1::CgroupDriver::Cgroupfs) => Ok(Some(CgroupDriver::Cgroupfs)),
            Err(_) => Err(format!("runtime returned an unknown cgroup driver {}", linux.cgroup_driver)),
        }
    }

    async fn sandbox(&self, listed: v1::PodSandbox) -> Result<Option<Sandbox>> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: listed.id.clone(), verbose: false };
        let status = match self.metrics.of_runtime("podsandbox_status", self.client.pod_sandbox_status(request)).await {
            Ok(response) => response.status.unwrap_or_default(),
            // Removed since it was listed.
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            Err(status) => return Err(status.into()),
        };
        let network = status.network.clone().unwrap_or_default();
        let addresses = std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|a| a.ip));
        Ok(Some(Sandbox {
            ready: status.state() == v1::PodSandboxState::SandboxReady,
            attempt: status.metadata.map(|m| m.attempt).unwrap_or_default(),
            created_at: status.created_at,
            addresses: addresses.filter(|ip| !ip.is_empty()).collect(),
            id: listed.id,
        }))
    }

    async fn record(&self, listed: &v1::Container) -> Result<Option<Record>> {
        if let Some(known) = self.ended.lock().get(&listed.id) {
            return Ok(Some(known.clone()));
        }
        let request = v1::ContainerStatusRequest { container_id: listed.id.clone(), verbose: false };
        let status = match self.metrics.of_runtime("container_status", self.client.container_status(request)).await {
            Ok(response) => response.status.unwrap_or_default(),
            Err(status) if status.code() == Code::NotFound => return Ok(None),
            Err(status) => return Err(status.into()),
        };
        let record = record(listed, status).await;
        if record.state == RunState::Exited {
            self.ended.lock().insert(record.id.clone(), record.clone());
        }
        Ok(Some(record))
    }
}

async fn record(listed: &v1::Container, status: v1::ContainerStatus) -> Record {
    let mut state = RunState::from(status.state());
    if state == RunState::Exited && status.reason == "StartError" && status.message.contains("context canceled") {
        // Whoever started it was killed in the middle: the container never ran, and its exit code says nothing.
        state = RunState::Created;
    }
    let annotation = |key: &str| status.annotations.get(key).cloned().unwrap_or_default();
    let exited = state == RunState::Exited;
    let mut record = Record {
        name: status.labels.get(label::CONTAINER_NAME).cloned().unwrap_or_default(),
        sandbox: listed.pod_sandbox_id.clone(),
        state,
        restart_count: annotation(label::RESTART_COUNT).parse().unwrap_or_default(),
        hash: annotation(label::HASH),
        image: status.image.as_ref().map(|i| i.image.clone()).unwrap_or_default(),
        created_at: status.created_at,
        started_at: model::time(status.started_at),
        finished_at: if exited { model::time(status.finished_at) } else { None },
        exit_code: status.exit_code,
        reason: if exited { status.reason.clone() } else { String::new() },
        message: if exited { status.message.clone() } else { String::new() },
        log_path: status.log_path.clone(),
        image_ref: status.image_ref.clone(),
        id: status.id.clone(),
    };
    if exited {
        crate::termination::explain(&status, &mut record).await;
    }
    record
}

fn of_pod(uid: &str) -> HashMap<String, String> {
    HashMap::from([(label::POD_UID.to_owned(), uid.to_owned())])
}

fn gone_is_fine(result: std::result::Result<(), ferry_cri::Status>) -> Result<()> {
    match result {
        Err(status) if status.code() == Code::NotFound => Ok(()),
        other => other.map_err(RuntimeError::from),
    }
}

#[async_trait]
impl Runtime for CriRuntime {
    fn identity(&self) -> (&str, &str) {
        (&self.name, &self.version)
    }

    async fn conditions(&self) -> Result<Vec<v1::RuntimeCondition>> {
        let response =
            self.metrics.of_runtime("status", self.client.status(v1::StatusRequest { verbose: false })).await?;
        Ok(response.status.unwrap_or_default().conditions)
    }

    async fn abilities(&self) -> Result<Abilities> {
        Ok(Abilities::read(
            self.metrics.of_runtime("status", self.client.status(v1::StatusRequest { verbose: false })).await?,
        ))
    }

    async fn glimpse(&self) -> Result<HashMap<String, Glimpse>> {
        let (sandboxes, containers) = futures::try_join!(
            self.metrics
                .of_runtime("list_podsandbox", self.client.list_pod_sandbox(v1::ListPodSandboxRequest::default())),
            self.metrics
                .of_runtime("list_containers", self.client.list_containers(v1::ListContainersRequest::default())),
        )?;
        let mut pods: BTreeMap<String, Glimpse> = BTreeMap::new();
        for sandbox in &sandboxes.items {
            let Some(uid) = sandbox.labels.get(label::POD_UID) else { continue };
            let pod = pods.entry(uid.clone()).or_default();
            pod.namespace = sandbox.labels.get(label::POD_NAMESPACE).cloned().unwrap_or_default();
            pod.name = sandbox.labels.get(label::POD_NAME).cloned().unwrap_or_default();
            pod.parts.push((sandbox.id.clone(), sandbox.state));
            pod.has_sandbox |= sandbox.state() == v1::PodSandboxState::SandboxReady;
        }
        for container in &containers.containers {
            let Some(uid) = container.labels.get(label::POD_UID) else { continue };
            let pod = pods.entry(uid.clone()).or_default();
            pod.parts.push((container.id.clone(), container.state));
            pod.containers.push(match container.state() {
                v1::ContainerState::ContainerCreated => "created",
                v1::ContainerState::ContainerRunning => "running",
                v1::ContainerState::ContainerExited => "exited",
                v1::ContainerState::ContainerUnknown => "unknown",
            });
        }
        // Forget what the runtime has forgotten.
        let mut ended = self.ended.lock();
        if !ended.is_empty() {
            let known: HashSet<&str> = containers.containers.iter().map(|c| c.id.as_str()).collect();
            ended.retain(|id, _| known.contains(id.as_str()));
        }
        drop(ended);
        Ok(pods
            .into_iter()
            .map(|(uid, mut pod)| {
                pod.parts.sort();
                pod.containers.sort_unstable();
                (uid, pod)
            })
            .collect())
    }

    async fn running(&self) -> Result<Vec<Running>> {
        let state = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
        let filter = v1::ContainerFilter { state: Some(state), ..Default::default() };
        let listed = self
            .metrics
            .of_runtime(
                "list_containers",
                self.client.list_containers(v1::ListContainersRequest { filter: Some(filter) }),
            )
            .await?;
        let running = listed.containers.into_iter().filter_map(|mut container| {
            let uid = container.labels.remove(label::POD_UID)?;
            let name = container.labels.remove(label::CONTAINER_NAME)?;
            Some(Running { id: container.id, uid, name })
        });
        Ok(running.collect())
    }

    async fn pod(&self, uid: &str) -> Result<PodState> {
        let sandboxes = v1::PodSandboxFilter { label_selector: of_pod(uid), ..Default::default() };
        let containers = v1::ContainerFilter { label_selector: of_pod(uid), ..Default::default() };
        let (sandboxes, containers) = futures::try_join!(
            self.metrics.of_runtime(
                "list_podsandbox",
                self.client.list_pod_sandbox(v1::ListPodSandboxRequest { filter: Some(sandboxes) })
            ),
            self.metrics.of_runtime(
                "list_containers",
                self.client.list_containers(v1::ListContainersRequest { filter: Some(containers) })
            ),
        )?;
        let sandboxes = futures::future::try_join_all(sandboxes.items.into_iter().map(|s| self.sandbox(s)));
        let records = futures::future::try_join_all(containers.containers.iter().map(|c| self.record(c)));
        let (sandboxes, records) = futures::try_join!(sandboxes, records)?;
        let mut state = PodState {
            sandboxes: sandboxes.into_iter().flatten().collect(),
            records: records.into_iter().flatten().collect(),
        };
        state.sort();
        Ok(state)
    }

    async fn events(&self) -> Result<Option<BoxStream<'static, String>>> {
        let mut stream = match self.metrics.of_runtime("get_container_events", self.client.container_events()).await {
            Ok(stream) => stream,
            Err(status) if status.code() == Code::Unimplemented => return Ok(None),
            Err(status) => return Err(status.into()),
        };
        let uids = async_stream(move |sender| async move {
            while let Ok(Some(event)) = stream.message().await {
                let uid = event.pod_sandbox_status.and_then(|s| s.labels.get(label::POD_UID).cloned());
                if let Some(uid) = uid
                    && sender.send(uid).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(Some(uids))
    }

    async fn run_sandbox(&self, config: v1::PodSandboxConfig, handler: &str) -> Result<String> {
        let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        let (since, with) = (Instant::now(), [("runtime_handler", handler)]);
        let made = self.metrics.of_runtime("run_podsandbox", self.client.run_pod_sandbox(request)).await;
        self.metrics.took(Histogram::RunSandbox, &with, since.elapsed());
        if made.is_err() {
            self.metrics.count(Counter::RunSandboxErrors, &with);
        }
        Ok(made?.pod_sandbox_id)
    }

    async fn stop_sandbox(&self, id: &str) -> Result<()> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        gone_is_fine(
            self.metrics.of_runtime("stop_podsandbox", self.client.stop_pod_sandbox(request)).await.map(|_| ()),
        )
    }

    async fn remove_sandbox(&self, id: &str) -> Result<()> {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        gone_is_fine(
            self.metrics.of_runtime("remove_podsandbox", self.client.remove_pod_sandbox(request)).await.map(|_| ()),
        )
    }

    async fn create_container(&self, request: v1::CreateContainerRequest) -> Result<String> {
        Ok(self.metrics.of_runtime("create_container", self.client.create_container(request)).await?.container_id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        self.metrics
            .of_runtime(
                "start_container",
                self.client.start_container(v1::StartContainerRequest { container_id: id.to_owned() }),
            )
            .await?;
        Ok(())
    }

    async fn stop_container(&self, id: &str, grace_seconds: i64) -> Result<()> {
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout: grace_seconds };
        gone_is_fine(self.metrics.of_runtime("stop_container", self.client.stop_container(request)).await)
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        gone_is_fine(
            self.metrics.of_runtime("remove_container", self.client.remove_container(request)).await.map(|_| ()),
        )
    }

    async fn container(&self, id: &str) -> Result<v1::ContainerStatus> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        Ok(self
            .metrics
            .of_runtime("container_status", self.client.container_status(request))
            .await?
            .status
            .unwrap_or_default())
    }

    async fn update_resources(&self, id: &str, amounts: v1::LinuxContainerResources) -> Result<()> {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(amounts),
            ..v1::UpdateContainerResourcesRequest::default()
        };
        self.metrics.of_runtime("update_container", self.client.update_container_resources(request)).await?;
        Ok(())
    }

    async fn checkpoint(&self, id: &str, archive: &Path, timeout_seconds: i64) -> Result<()> {
        let request = v1::CheckpointContainerRequest {
            container_id: id.to_owned(),
            location: archive.to_string_lossy().into_owned(),
            timeout: timeout_seconds,
        };
        Ok(self.metrics.of_runtime("checkpoint_container", self.client.checkpoint_container(request)).await?)
    }

    async fn usage(&self) -> Result<Vec<v1::ContainerStats>> {
        Ok(self
            .metrics
            .of_runtime(
                "list_container_stats",
                self.client.list_container_stats(v1::ListContainerStatsRequest::default()),
            )
            .await?
            .stats)
    }

    async fn reopen_log(&self, id: &str) -> Result<()> {
        self.metrics
            .of_runtime(
                "reopen_container_log",
                self.client.reopen_container_log(v1::ReopenContainerLogRequest { container_id: id.to_owned() }),
            )
            .await?;
        Ok(())
    }

    async fn exec(&self, id: &str, command: Vec<String>, timeout_seconds: i64) -> Result<v1::ExecSyncResponse> {
        let request = v1::ExecSyncRequest { container_id: id.to_owned(), cmd: command, timeout: timeout_seconds };
        Ok(self.metrics.of_runtime("exec_sync", self.client.exec_sync(request)).await?)
    }

    async fn exec_url(&self, request: v1::ExecRequest) -> Result<String> {
        Ok(self.metrics.of_runtime("exec", self.client.exec(request)).await?.url)
    }

    async fn attach_url(&self, request: v1::AttachRequest) -> Result<String> {
        Ok(self.metrics.of_runtime("attach", self.client.attach(request)).await?.url)
    }

    async fn port_forward_url(&self, request: v1::PortForwardRequest) -> Result<String> {
        Ok(self.metrics.of_runtime("port_forward", self.client.port_forward(request)).await?.url)
    }

    async fn image(&self, image: &str) -> Result<Option<v1::Image>> {
        let image = v1::ImageSpec { image: image.to_owned(), ..v1::ImageSpec::default() };
        let request = v1::ImageStatusRequest { image: Some(image), verbose: false };
        Ok(self
            .metrics
            .of_runtime("image_status", self.client.image_status(request))
            .await?
            .image
            .filter(|i| !i.id.is_empty()))
    }

    async fn images(&self) -> Result<Vec<v1::Image>> {
        Ok(self
            .metrics
            .of_runtime("list_images", self.client.list_images(v1::ListImagesRequest::default()))
            .await?
            .images)
    }

    async fn remove_image(&self, id: &str) -> Result<()> {
        let image = v1::ImageSpec { image: id.to_owned(), ..v1::ImageSpec::default() };
        let request = v1::RemoveImageRequest { image: Some(image) };
        gone_is_fine(self.metrics.of_runtime("remove_image", self.client.remove_image(request)).await.map(|_| ()))
    }

    async fn images_in_use(&self) -> Result<HashSet<String>> {
        let listed = self
            .metrics
            .of_runtime("list_containers", self.client.list_containers(v1::ListContainersRequest::default()))
            .await?
            .containers;
        let names = listed.into_iter().flat_map(|container| {
            [container.image_ref, container.image_id, container.image.map(|i| i.image).unwrap_or_default()]
        });
        Ok(names.filter(|name| !name.is_empty()).collect())
    }

    async fn image_folder(&self) -> Result<Option<PathBuf>> {
        let told = self
            .metrics
            .of_runtime("image_fs_info", self.client.image_fs_info(v1::ImageFsInfoRequest::default()))
            .await?
            .image_filesystems;
        let mut places = told.into_iter().filter_map(|place| place.fs_id).map(|id| PathBuf::from(id.mountpoint));
        Ok(places.find(|place| place.is_absolute()))
    }

    async fn pull(&self, request: v1::PullImageRequest) -> Result<String> {
        Ok(self.metrics.of_runtime("pull_image", self.client.pull_image(request)).await?.image_ref)
    }
}

/// A stream fed by a future that lives as long as the stream is read.
fn async_stream<F, Fut>(make: F) -> BoxStream<'static, String>
where
    F: FnOnce(tokio::sync::mpsc::Sender<String>) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    let feed = futures::stream::once(make(sender)).filter_map(|()| async { None::<String> });
    let read = futures::stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    futures::stream::select(feed, read).boxed()
}
