//! The runtime service.

use std::collections::HashMap;
use std::time::Duration;

use ferry_cri::v1;
use ferry_cri::v1::runtime_service_server::RuntimeService;
use futures::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio_stream::wrappers::BroadcastStream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::{Answer, Services, answer, selected, show, version};
use crate::engine::{Engine, Event, Failure, Outcome, exec_process};
use crate::protocol::{Exec, ExecOutcome, Frame, Kind, Request as ShimRequest, read_frame, write_frame};
use crate::state::{Container, Sandbox};
use crate::stats;
use crate::streaming::Wanted;

/// What is kept of each output of a command that is answered as a whole: probes and hooks read less, and each container may
/// have several at once. The rest is read and dropped. The interface allows up to 16 MiB.
const LONGEST_OUTPUT: usize = 64 * 1024;

#[tonic::async_trait]
impl RuntimeService for Services {
    async fn version(&self, _: Request<v1::VersionRequest>) -> Answer<v1::VersionResponse> {
        Ok(Response::new(version()))
    }

    async fn run_pod_sandbox(&self, request: Request<v1::RunPodSandboxRequest>) -> Answer<v1::RunPodSandboxResponse> {
        let request = request.into_inner();
        let (engine, config) = (self.engine.clone(), request.config.unwrap_or_default());
        // Beside the call: a caller that goes away must not leave a pod half-made.
        let made = finish(&self.engine, async move { engine.run_sandbox(config, request.runtime_handler).await }).await;
        answer(made.map(|pod_sandbox_id| v1::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<v1::StopPodSandboxRequest>,
    ) -> Answer<v1::StopPodSandboxResponse> {
        let (engine, id) = (self.engine.clone(), request.into_inner().pod_sandbox_id);
        let stopped = finish(&self.engine, async move { engine.stop_sandbox(&id).await }).await;
        answer(stopped.map(|()| v1::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<v1::RemovePodSandboxRequest>,
    ) -> Answer<v1::RemovePodSandboxResponse> {
        let (engine, id) = (self.engine.clone(), request.into_inner().pod_sandbox_id);
        let removed = finish(&self.engine, async move { engine.remove_sandbox(&id).await }).await;
        answer(removed.map(|()| v1::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<v1::PodSandboxStatusRequest>,
    ) -> Answer<v1::PodSandboxStatusResponse> {
        let request = request.into_inner();
        let sandbox = sandbox(&self.engine, &request.pod_sandbox_id).map_err(Status::from)?;
        let mut info = HashMap::new();
        if request.verbose {
            let record = serde_json::to_string(&sandbox.record).unwrap_or_default();
            info.insert("info".to_owned(), record);
        }
        let status = Some(show::sandbox_status(&sandbox));
        let response = v1::PodSandboxStatusResponse { status, info, ..Default::default() };
        Ok(Response::new(response))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<v1::ListPodSandboxRequest>,
    ) -> Answer<v1::ListPodSandboxResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let state = self.engine.state.lock();
        let fits = |sandbox: &&Sandbox| {
            sandbox.record.id.starts_with(&filter.id)
                && filter.state.as_ref().is_none_or(|s| s.state() == show::sandbox_state(sandbox))
                && selected(&sandbox.config.labels, &filter.label_selector)
        };
        let items = state.sandboxes.values().filter(fits).map(show::sandbox).collect();
        Ok(Response::new(v1::ListPodSandboxResponse { items }))
    }

    async fn create_container(
        &self,
        request: Request<v1::CreateContainerRequest>,
    ) -> Answer<v1::CreateContainerResponse> {
        let request = request.into_inner();
        let (engine, config) = (self.engine.clone(), request.config.unwrap_or_default());
        let made = async move { engine.create_container(&request.pod_sandbox_id, config).await };
        answer(finish(&self.engine, made).await.map(|container_id| v1::CreateContainerResponse { container_id }))
    }

    async fn start_container(&self, request: Request<v1::StartContainerRequest>) -> Answer<v1::StartContainerResponse> {
        let (engine, id) = (self.engine.clone(), request.into_inner().container_id);
        let started = finish(&self.engine, async move { engine.start_container(&id).await }).await;
        answer(started.map(|()| v1::StartContainerResponse {}))
    }

    async fn stop_container(&self, request: Request<v1::StopContainerRequest>) -> Answer<v1::StopContainerResponse> {
        let (engine, request) = (self.engine.clone(), request.into_inner());
        let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        let stopped =
            finish(&self.engine, async move { engine.stop_container(&request.container_id, grace).await }).await;
        answer(stopped.map(|()| v1::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<v1::RemoveContainerRequest>,
    ) -> Answer<v1::RemoveContainerResponse> {
        let (engine, id) = (self.engine.clone(), request.into_inner().container_id);
        let removed = finish(&self.engine, async move { engine.remove_container(&id).await }).await;
        answer(removed.map(|()| v1::RemoveContainerResponse {}))
    }

    async fn list_containers(&self, request: Request<v1::ListContainersRequest>) -> Answer<v1::ListContainersResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let state = self.engine.state.lock();
        let fits = |container: &&Container| {
            !container.record.hidden
                && container.record.id.starts_with(&filter.id)
                && container.record.sandbox.starts_with(&filter.pod_sandbox_id)
                && filter.state.as_ref().is_none_or(|s| s.state() == show::container_state(container))
                && selected(&container.config.labels, &filter.label_selector)
        };
        let containers = state.containers.values().filter(fits).map(show::container).collect();
        Ok(Response::new(v1::ListContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<v1::ContainerStatusRequest>,
    ) -> Answer<v1::ContainerStatusResponse> {
        let request = request.into_inner();
        let container = container(&self.engine, &request.container_id).map_err(Status::from)?;
        let mut info = HashMap::new();
        if request.verbose {
            let bundle = self.engine.container_folder(&container.record.id).join("config.json");
            let spec: serde_json::Value =
                std::fs::read(bundle).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default();
            let text = serde_json::json!({
                "sandboxID": container.record.sandbox, "pid": container.record.pid, "runtimeSpec": spec,
            });
            info.insert("info".to_owned(), text.to_string());
        }
        let status = Some(show::container_status(&container));
        Ok(Response::new(v1::ContainerStatusResponse { status, info }))
    }

    async fn update_container_resources(
        &self,
        request: Request<v1::UpdateContainerResourcesRequest>,
    ) -> Answer<v1::UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let amounts = request.linux.unwrap_or_default();
        let updated = self.engine.update_resources(&request.container_id, amounts).await;
        answer(updated.map(|()| v1::UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<v1::ReopenContainerLogRequest>,
    ) -> Answer<v1::ReopenContainerLogResponse> {
        let reopened = self.engine.reopen_log(&request.into_inner().container_id).await;
        answer(reopened.map(|()| v1::ReopenContainerLogResponse {}))
    }

    /// In the words of the runtimes that do not know it either: clients look for them.
    async fn checkpoint_container(
        &self,
        _: Request<v1::CheckpointContainerRequest>,
    ) -> Answer<v1::CheckpointContainerResponse> {
        Err(Status::unimplemented("method CheckpointContainer not implemented"))
    }

    async fn exec_sync(&self, request: Request<v1::ExecSyncRequest>) -> Answer<v1::ExecSyncResponse> {
        answer(exec_sync(&self.engine, request.into_inner()).await)
    }

    async fn exec(&self, request: Request<v1::ExecRequest>) -> Answer<v1::ExecResponse> {
        let request = request.into_inner();
        self.engine.running(&request.container_id).map_err(Status::from)?;
        let url = self.streaming.offer(Wanted::Exec(request)).map_err(Status::resource_exhausted)?;
        Ok(Response::new(v1::ExecResponse { url }))
    }

    async fn attach(&self, request: Request<v1::AttachRequest>) -> Answer<v1::AttachResponse> {
        let request = request.into_inner();
        self.engine.running(&request.container_id).map_err(Status::from)?;
        let url = self.streaming.offer(Wanted::Attach(request)).map_err(Status::resource_exhausted)?;
        Ok(Response::new(v1::AttachResponse { url }))
    }

    async fn port_forward(&self, request: Request<v1::PortForwardRequest>) -> Answer<v1::PortForwardResponse> {
        let request = request.into_inner();
        sandbox(&self.engine, &request.pod_sandbox_id).map_err(Status::from)?;
        let url = self.streaming.offer(Wanted::Forward(request)).map_err(Status::resource_exhausted)?;
        Ok(Response::new(v1::PortForwardResponse { url }))
    }

    async fn container_stats(&self, request: Request<v1::ContainerStatsRequest>) -> Answer<v1::ContainerStatsResponse> {
        let container = container(&self.engine, &request.into_inner().container_id).map_err(Status::from)?;
        let mut stats = stats::containers(&self.engine, vec![container]).await;
        Ok(Response::new(v1::ContainerStatsResponse { stats: stats.pop() }))
    }

    async fn list_container_stats(
        &self,
        request: Request<v1::ListContainerStatsRequest>,
    ) -> Answer<v1::ListContainerStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let wanted: Vec<Container> = {
            let state = self.engine.state.lock();
            let fits = |c: &&Container| {
                c.record.id.starts_with(&filter.id)
                    && c.record.sandbox.starts_with(&filter.pod_sandbox_id)
                    && selected(&c.config.labels, &filter.label_selector)
            };
            state.containers.values().filter(|c| stats::counted(c)).filter(fits).cloned().collect()
        };
        let stats = stats::containers(&self.engine, wanted).await;
        Ok(Response::new(v1::ListContainerStatsResponse { stats }))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<v1::PodSandboxStatsRequest>,
    ) -> Answer<v1::PodSandboxStatsResponse> {
        let sandbox = sandbox(&self.engine, &request.into_inner().pod_sandbox_id).map_err(Status::from)?;
        let stats = Some(stats::sandbox(&self.engine, &sandbox).await);
        Ok(Response::new(v1::PodSandboxStatsResponse { stats }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<v1::ListPodSandboxStatsRequest>,
    ) -> Answer<v1::ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter.unwrap_or_default();
        let wanted: Vec<Sandbox> = {
            let state = self.engine.state.lock();
            let fits = |s: &&Sandbox| {
                show::sandbox_state(s) == v1::PodSandboxState::SandboxReady
                    && s.record.id.starts_with(&filter.id)
                    && selected(&s.config.labels, &filter.label_selector)
            };
            state.sandboxes.values().filter(fits).cloned().collect()
        };
        let mut stats = Vec::with_capacity(wanted.len());
        for sandbox in &wanted {
            stats.push(stats::sandbox(&self.engine, sandbox).await);
        }
        Ok(Response::new(v1::ListPodSandboxStatsResponse { stats }))
    }

    async fn update_runtime_config(
        &self,
        _: Request<v1::UpdateRuntimeConfigRequest>,
    ) -> Answer<v1::UpdateRuntimeConfigResponse> {
        // The node's network is configured by a file.
        Ok(Response::new(v1::UpdateRuntimeConfigResponse {}))
    }

    async fn status(&self, _: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        let condition = |kind: &str, problem: Option<(&str, String)>| {
            let (reason, message) = problem.map(|(r, m)| (r.to_owned(), m)).unwrap_or_default();
            v1::RuntimeCondition { r#type: kind.into(), status: reason.is_empty(), reason, message }
        };
        let network = self.engine.config.network.ready().err();
        let network = network.map(|error| ("NetworkPluginNotReady", format!("Network plugin returns error: {error}")));
        let conditions = vec![condition("RuntimeReady", None), condition("NetworkReady", network)];
        let user_namespaces = self.engine.has_user_namespaces().await;
        let features = v1::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces };
        let handlers = ["", "runc"].map(|name| v1::RuntimeHandler { name: name.into(), features: Some(features) });
        let response = v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            info: HashMap::new(),
            runtime_handlers: handlers.to_vec(),
            features: Some(v1::RuntimeFeatures { supplemental_groups_policy: true, ..Default::default() }),
        };
        Ok(Response::new(response))
    }

    async fn get_container_events(
        &self,
        _: Request<v1::GetEventsRequest>,
    ) -> Answer<BoxStream<v1::ContainerEventResponse>> {
        let engine = self.engine.clone();
        let events = BroadcastStream::new(engine.events.subscribe());
        let told = events.map(move |event| match event {
            Ok(event) => Ok(tell(&engine, &event)),
            // Who missed some must look at everything.
            Err(_) => Err(Status::data_loss("events were missed")),
        });
        Ok(Response::new(Box::pin(told)))
    }

    async fn runtime_config(&self, _: Request<v1::RuntimeConfigRequest>) -> Answer<v1::RuntimeConfigResponse> {
        let linux = v1::LinuxRuntimeConfiguration { cgroup_driver: self.engine.config.cgroup_driver.into() };
        Ok(Response::new(v1::RuntimeConfigResponse { linux: Some(linux) }))
    }

    async fn update_pod_sandbox_resources(
        &self,
        _: Request<v1::UpdatePodSandboxResourcesRequest>,
    ) -> Answer<v1::UpdatePodSandboxResourcesResponse> {
        // The pod's control group is the kubelet's; this only tells of it.
        Ok(Response::new(v1::UpdatePodSandboxResourcesResponse {}))
    }
}

/// Runs to its end even when whoever asked goes away.
async fn finish<T: Send + 'static>(
    engine: &Engine,
    work: impl Future<Output = Outcome<T>> + Send + 'static,
) -> Outcome<T> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    engine.tasks.spawn("call", async move {
        let _ = sender.send(work.await);
    });
    receiver.await.unwrap_or_else(|_| Err(Failure::Internal("given up".to_owned())))
}

fn sandbox(engine: &Engine, id: &str) -> Outcome<Sandbox> {
    let id = engine.sandbox_id(id)?;
    let found = engine.state.lock().sandboxes.get(&id).cloned();
    found.ok_or_else(|| Failure::NotFound(format!("sandbox {id:?} not found")))
}

fn container(engine: &Engine, id: &str) -> Outcome<Container> {
    let id = engine.container_id(id)?;
    let found = engine.state.lock().containers.get(&id).filter(|c| !c.record.hidden).cloned();
    found.ok_or_else(|| Failure::NotFound(format!("container {id:?} not found")))
}

fn tell(engine: &Engine, event: &Event) -> v1::ContainerEventResponse {
    let state = engine.state.lock();
    let mine = state.containers.values().filter(|c| c.record.sandbox == event.sandbox && !c.record.hidden);
    v1::ContainerEventResponse {
        container_id: event.container.clone(),
        container_event_type: event.kind.into(),
        created_at: event.at,
        pod_sandbox_status: state.sandboxes.get(&event.sandbox).map(show::sandbox_status),
        containers_statuses: mine.map(show::container_status).collect(),
    }
}

async fn exec_sync(engine: &Engine, request: v1::ExecSyncRequest) -> Outcome<v1::ExecSyncResponse> {
    let (id, sandbox) = engine.running(&request.container_id)?;
    let process = exec_process(&engine.container_folder(&id), &request.cmd, false).map_err(Failure::Internal)?;
    let exec = Exec { id, process, tty: false, stdin: false };
    let mut stream = engine.shim(&sandbox).stream(&ShimRequest::Exec(exec)).await.map_err(Failure::Internal)?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let talk = async {
        while let Some(frame) = read_frame(&mut stream).await? {
            let to = match frame.kind {
                Kind::Output => &mut stdout,
                Kind::Errors => &mut stderr,
                Kind::End => return Ok(serde_json::from_slice::<ExecOutcome>(&frame.data).unwrap_or_default()),
                _ => continue,
            };
            let room = LONGEST_OUTPUT.saturating_sub(to.len());
            to.extend_from_slice(&frame.data[..frame.data.len().min(room)]);
        }
        Err(std::io::Error::other("the pod's shim ended"))
    };
    let limit = u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let outcome = match limit {
        None => talk.await,
        Some(limit) => match tokio::time::timeout(limit, talk).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let _ = write_frame(&mut stream, &Frame::new(Kind::End, "")).await;
                let _ = stream.shutdown().await;
                let why = format!("failed to exec in container: timeout {limit:?} exceeded: context deadline exceeded");
                return Err(Failure::Deadline(why));
            }
        },
    };
    match outcome? {
        ExecOutcome { error: Some(error), .. } => Err(Failure::Internal(format!(
            "failed to exec in container: failed to start exec: OCI runtime exec failed: {error}"
        ))),
        ExecOutcome { code, .. } => Ok(v1::ExecSyncResponse { stdout, stderr, exit_code: code }),
    }
}
