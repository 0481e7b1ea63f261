//! CRI over gRPC: requests to the engine, its answers and failures back.

mod containers;
mod images;
mod show;

use std::path::Path;
use std::sync::Arc;

use ferry_cri::v1;
use ferry_cri::v1::image_service_server::ImageServiceServer;
use ferry_cri::v1::runtime_service_server::RuntimeServiceServer;
use ferry_tasks::Tasks;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Response, Status};

use crate::engine::{Engine, Failure};
use crate::images::PullError;
use crate::streaming::Streaming;

/// Lists of a full node pass the 4 MiB that gRPC allows by default.
const MESSAGE_LIMIT: usize = 16 * 1024 * 1024;

pub(super) struct Services {
    pub(super) engine: Arc<Engine>,
    pub(super) streaming: Arc<Streaming>,
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let code = match &failure {
            Failure::NotFound(_) | Failure::Pull(PullError::NotFound(_)) => Code::NotFound,
            Failure::Invalid(_) | Failure::Pull(PullError::Name(_)) => Code::InvalidArgument,
            Failure::State(_) => Code::FailedPrecondition,
            Failure::Deadline(_) => Code::DeadlineExceeded,
            Failure::Pull(PullError::Denied(_)) => Code::PermissionDenied,
            Failure::Internal(_) | Failure::Pull(_) => Code::Unknown,
        };
        Self::new(code, failure.to_string())
    }
}

pub(super) type Answer<T> = Result<Response<T>, Status>;

pub(super) fn answer<T>(outcome: Result<T, Failure>) -> Answer<T> {
    outcome.map(Response::new).map_err(Status::from)
}

/// Binds the socket; the rest goes on beside the caller.
pub(crate) fn serve(
    engine: Arc<Engine>,
    streaming: Arc<Streaming>,
    socket: &Path,
    tasks: &Tasks,
) -> std::io::Result<()> {
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let services = Arc::new(Services { engine, streaming });
    let runtime = RuntimeServiceServer::from_arc(services.clone()).max_decoding_message_size(MESSAGE_LIMIT);
    let images = ImageServiceServer::from_arc(services).max_decoding_message_size(MESSAGE_LIMIT);
    let server = tonic::transport::Server::builder().add_service(runtime).add_service(images);
    tasks.spawn_critical_once("cri", async move {
        if let Err(error) = server.serve_with_incoming(UnixListenerStream::new(listener)).await {
            tracing::error!("the container runtime does not serve any more: {error}");
        }
    });
    Ok(())
}

/// Whether labels are as asked for.
pub(super) fn selected(
    labels: &std::collections::HashMap<String, String>,
    wanted: &std::collections::HashMap<String, String>,
) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

pub(super) fn version() -> v1::VersionResponse {
    v1::VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "ferry".into(),
        runtime_version: env!("CARGO_PKG_VERSION").into(),
        runtime_api_version: "v1".into(),
    }
}
