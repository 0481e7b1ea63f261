//! A connection to a runtime's Unix socket, with a deadline on every call.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::Request;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::v1;
use crate::v1::image_service_client::ImageServiceClient;
use crate::v1::runtime_service_client::RuntimeServiceClient;

/// On a request to pull an image: its name is the path of an archive. Not in the message, which a pod has a part in.
pub const ARCHIVE: &str = "ferry-archive";

/// Lists of a full node pass the 4 MiB that gRPC allows by default.
const MESSAGE_LIMIT: usize = 16 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// As upstream's `--runtime-request-timeout`.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Ten years: the protocol has no words for much more.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// A pull may take as long as the network needs; this only ends one that hangs for good.
const PULL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the runtime endpoint {0:?} is no Unix socket path")]
    Endpoint(String),
    #[error("asking the runtime at {path} for its version: {status}")]
    Version { path: PathBuf, status: tonic::Status },
}

/// Both services of one runtime. Clones share the connection, which comes back by itself after the runtime restarts.
#[derive(Clone, Debug)]
pub struct CriClient {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    /// How long a call may take that has no time of its own.
    patience: Duration,
}

/// A channel to a Unix socket that connects on the first call and again whenever it broke.
pub fn channel(socket: &Path) -> Channel {
    let path = socket.to_owned();
    // The authority is only a header here; the connector decides where the bytes go.
    Endpoint::from_static("http://localhost").connect_timeout(CONNECT_TIMEOUT).connect_with_connector_lazy(
        tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }),
    )
}

/// A gRPC endpoint over TCP, for health checks of containers.
pub fn endpoint(url: &str) -> Result<Endpoint, tonic::transport::Error> {
    Endpoint::from_shared(url.to_owned())
}

impl CriClient {
    /// Connects to `/run/x.sock` or `unix:///run/x.sock` and asks for the version, so that a wrong path fails here.
    pub async fn connect(endpoint: &str) -> Result<(Self, v1::VersionResponse), ConnectError> {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        if !path.starts_with('/') {
            return Err(ConnectError::Endpoint(endpoint.to_owned()));
        }
        let client = Self::lazy(Path::new(path));
        match client.version().await {
            Ok(version) => Ok((client, version)),
            Err(status) => Err(ConnectError::Version { path: path.into(), status }),
        }
    }

    /// A client that connects on the first call.
    pub fn lazy(socket: &Path) -> Self {
        let channel = channel(socket);
        Self {
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MESSAGE_LIMIT),
            images: ImageServiceClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT),
            patience: CALL_TIMEOUT,
        }
    }

    /// The same, with another time for a call than the usual one.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    async fn version(&self) -> Result<v1::VersionResponse, tonic::Status> {
        let asked = v1::VersionRequest { version: "v1".into() };
        self.runtime.clone().version(limited(asked, CONNECT_TIMEOUT)).await.map(tonic::Response::into_inner)
    }

    /// Runs a command in a container. A timeout of zero means none but the call's own.
    pub async fn exec_sync(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse, tonic::Status> {
        let wait = match u64::try_from(request.timeout) {
            Ok(seconds) if seconds > 0 => Duration::from_secs(seconds).saturating_add(self.patience),
            _ => self.patience,
        };
        self.runtime.clone().exec_sync(limited(request, wait)).await.map(tonic::Response::into_inner)
    }

    /// Returns once the container is dead: after its own grace period, then a kill.
    pub async fn stop_container(&self, request: v1::StopContainerRequest) -> Result<(), tonic::Status> {
        let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        let wait = self.patience.saturating_add(grace);
        self.runtime.clone().stop_container(limited(request, wait)).await.map(|_| ())
    }

    /// Writes what a container is at this moment into an archive. No less than the usual time, and more if it wants more.
    pub async fn checkpoint_container(&self, mut request: v1::CheckpointContainerRequest) -> Result<(), tonic::Status> {
        let asked = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        let wait = asked.max(self.patience);
        request.timeout = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
        self.runtime.clone().checkpoint_container(limited(request, wait)).await.map(|_| ())
    }

    pub async fn pull_image(&self, request: v1::PullImageRequest) -> Result<v1::PullImageResponse, tonic::Status> {
        self.images.clone().pull_image(limited(request, PULL_TIMEOUT)).await.map(tonic::Response::into_inner)
    }

    /// Takes in the images of an archive on the runtime's machine; only the embedded runtime knows how. The reference that
    /// comes back names them.
    pub async fn load_archive(&self, archive: &Path) -> Result<v1::PullImageResponse, tonic::Status> {
        let image = v1::ImageSpec { image: archive.to_string_lossy().into_owned(), ..v1::ImageSpec::default() };
        let message = v1::PullImageRequest { image: Some(image), ..v1::PullImageRequest::default() };
        let mut request = limited(message, PULL_TIMEOUT);
        request.metadata_mut().insert(ARCHIVE, tonic::metadata::MetadataValue::from_static("true"));
        self.images.clone().pull_image(request).await.map(tonic::Response::into_inner)
    }

    /// The stream of container events; `Unimplemented` where the runtime does not offer it.
    pub async fn container_events(&self) -> Result<tonic::Streaming<v1::ContainerEventResponse>, tonic::Status> {
        // No deadline: the stream lives as long as the runtime.
        self.runtime.clone().get_container_events(v1::GetEventsRequest {}).await.map(tonic::Response::into_inner)
    }
}

/// A grace period may have any number of seconds; a limit of a call may not, or there is a panic.
fn limited<T>(message: T, timeout: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(timeout.min(LONGEST_WAIT));
    request
}

/// The calls that differ only by their types.
macro_rules! calls {
    ($($service:ident . $method:ident ( $request:ident ) -> $response:ident;)*) => {
        impl CriClient {
            $(pub async fn $method(&self, request: v1::$request) -> Result<v1::$response, tonic::Status> {
                self.$service.clone().$method(limited(request, self.patience)).await.map(tonic::Response::into_inner)
            })*
        }
    };
}

calls! {
    runtime.run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse;
    runtime.stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse;
    runtime.remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse;
    runtime.pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse;
    runtime.list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse;
    runtime.create_container(CreateContainerRequest) -> CreateContainerResponse;
    runtime.start_container(StartContainerRequest) -> StartContainerResponse;
    runtime.remove_container(RemoveContainerRequest) -> RemoveContainerResponse;
    runtime.list_containers(ListContainersRequest) -> ListContainersResponse;
    runtime.container_status(ContainerStatusRequest) -> ContainerStatusResponse;
    runtime.update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse;
    runtime.reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse;
    runtime.exec(ExecRequest) -> ExecResponse;
    runtime.attach(AttachRequest) -> AttachResponse;
    runtime.port_forward(PortForwardRequest) -> PortForwardResponse;
    runtime.container_stats(ContainerStatsRequest) -> ContainerStatsResponse;
    runtime.list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse;
    runtime.pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse;
    runtime.list_pod_sandbox_stats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse;
    runtime.update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse;
    runtime.status(StatusRequest) -> StatusResponse;
    runtime.runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse;
    runtime.update_pod_sandbox_resources(UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse;
    images.list_images(ListImagesRequest) -> ListImagesResponse;
    images.image_status(ImageStatusRequest) -> ImageStatusResponse;
    images.remove_image(RemoveImageRequest) -> RemoveImageResponse;
    images.image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};

    struct Echo;

    #[tonic::async_trait]
    impl RuntimeService for Echo {
        async fn version(
            &self,
            request: Request<v1::VersionRequest>,
        ) -> Result<tonic::Response<v1::VersionResponse>, tonic::Status> {
            let version = request.into_inner().version;
            Ok(tonic::Response::new(v1::VersionResponse { version, ..v1::VersionResponse::default() }))
        }
    }

    #[tokio::test]
    async fn a_client_meets_a_server_over_a_unix_socket() {
        let folder = std::env::temp_dir().join(format!("ferry-cri-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let socket = folder.join("cri.sock");
        let listener = tokio::net::UnixListener::bind(&socket).expect("a socket");
        let incoming = futures_stream(listener);
        let serve = tonic::transport::Server::builder().add_service(RuntimeServiceServer::new(Echo));
        let ask = async {
            let (client, version) =
                CriClient::connect(&format!("unix://{}", socket.display())).await.expect("a version");
            assert_eq!(version.version, "v1");
            let missing = client.status(v1::StatusRequest::default()).await.expect_err("not offered");
            assert_eq!(missing.code(), tonic::Code::Unimplemented);
        };
        tokio::select! {
            served = serve.serve_with_incoming(incoming) => served.expect("a server"),
            () = ask => {}
        }
        let _ = std::fs::remove_dir_all(&folder);
    }

    fn futures_stream(
        listener: tokio::net::UnixListener,
    ) -> impl tokio_stream::Stream<Item = std::io::Result<UnixStream>> {
        tokio_stream::wrappers::UnixListenerStream::new(listener)
    }

    #[tokio::test]
    async fn a_relative_path_is_refused() {
        let refused = CriClient::connect("run/x.sock").await.expect_err("refused");
        assert!(matches!(refused, ConnectError::Endpoint(_)));
    }
}
