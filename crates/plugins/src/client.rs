//! A plug-in on the other end of a Unix socket, with a deadline on every call.

use std::time::Duration;

use tonic::Request;
pub use tonic::transport::Channel;

use crate::csi;
use crate::csi::node_client::NodeClient;
use crate::deviceplugin::device_plugin_client::DevicePluginClient;
use crate::deviceplugin::{
    AllocateRequest, AllocateResponse, DevicePluginOptions, Empty, ListAndWatchResponse, PreStartContainerRequest,
    PreferredAllocationRequest, PreferredAllocationResponse,
};
use crate::dra::dra_plugin_client::DraPluginClient;
use crate::dra::{
    NodePrepareResourcesRequest, NodePrepareResourcesResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};
use crate::registration::registration_client::RegistrationClient;
use crate::registration::{InfoRequest, PluginInfo, RegistrationStatus};

/// Who is asked what it is: it has nothing else to do.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(10);
/// As upstream's for a device that is made ready before each start of its container.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(30);
/// As upstream's for the devices of claims.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(45);
/// As upstream's for calls of storage drivers.
const STORAGE_TIMEOUT: Duration = Duration::from_secs(120);

fn limited<T>(message: T, timeout: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(timeout);
    request
}

/// The whole answer. The deadline of a request is for the beginning of its answer alone: a plug-in could begin one and never end
/// it.
async fn answer<T>(
    timeout: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, tonic::Status> {
    let late = |_| tonic::Status::deadline_exceeded(format!("the plug-in did not answer within {timeout:?}"));
    tokio::time::timeout(timeout, call).await.map_err(late)?.map(tonic::Response::into_inner)
}

/// A plug-in that wants to be known.
pub struct Registrant {
    client: RegistrationClient<Channel>,
    timeout: Duration,
}

impl Registrant {
    pub fn new(channel: Channel) -> Self {
        Self { client: RegistrationClient::new(channel), timeout: REGISTRATION_TIMEOUT }
    }

    pub async fn info(&mut self) -> Result<PluginInfo, tonic::Status> {
        answer(self.timeout, self.client.get_info(limited(InfoRequest {}, self.timeout))).await
    }

    /// Tells it what came of it: nothing, or why not.
    pub async fn told(&mut self, outcome: Result<(), String>) -> Result<(), tonic::Status> {
        let status =
            RegistrationStatus { plugin_registered: outcome.is_ok(), error: outcome.err().unwrap_or_default() };
        let asked = limited(status, self.timeout);
        answer(self.timeout, self.client.notify_registration_status(asked)).await.map(drop)
    }
}

/// A storage driver. Clones share the connection, which comes back by itself after the driver restarts.
#[derive(Clone, Debug)]
pub struct Storage(NodeClient<Channel>);

/// The calls that differ only by their types.
macro_rules! calls {
    ($($name:ident: $method:ident ( $request:ident ) -> $response:ident;)*) => {
        impl Storage {
            $(pub async fn $name(&self, request: csi::$request) -> Result<csi::$response, tonic::Status> {
                answer(STORAGE_TIMEOUT, self.0.clone().$method(limited(request, STORAGE_TIMEOUT))).await
            })*
        }
    };
}

impl Storage {
    pub fn new(channel: Channel) -> Self {
        Self(NodeClient::new(channel))
    }
}

calls! {
    info: node_get_info(NodeGetInfoRequest) -> NodeGetInfoResponse;
    capabilities: node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
    stage: node_stage_volume(NodeStageVolumeRequest) -> NodeStageVolumeResponse;
    unstage: node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
    publish: node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse;
    unpublish: node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
    stats: node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
    expand: node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse;
}

/// A device plug-in. Clones share the connection.
#[derive(Clone, Debug)]
pub struct DevicePlugin(DevicePluginClient<Channel>);

impl DevicePlugin {
    pub fn new(channel: Channel) -> Self {
        Self(DevicePluginClient::new(channel))
    }

    pub async fn options(&self) -> Result<DevicePluginOptions, tonic::Status> {
        let asked = limited(Empty {}, REGISTRATION_TIMEOUT);
        answer(REGISTRATION_TIMEOUT, self.0.clone().get_device_plugin_options(asked)).await
    }

    /// Its devices now and whenever they change, for as long as it is there.
    pub async fn devices(&self) -> Result<tonic::Streaming<ListAndWatchResponse>, tonic::Status> {
        self.0.clone().list_and_watch(Empty {}).await.map(tonic::Response::into_inner)
    }

    pub async fn preferred(
        &self,
        request: PreferredAllocationRequest,
    ) -> Result<PreferredAllocationResponse, tonic::Status> {
        let asked = limited(request, DEVICE_TIMEOUT);
        answer(DEVICE_TIMEOUT, self.0.clone().get_preferred_allocation(asked)).await
    }

    pub async fn allocate(&self, request: AllocateRequest) -> Result<AllocateResponse, tonic::Status> {
        answer(DEVICE_TIMEOUT, self.0.clone().allocate(limited(request, DEVICE_TIMEOUT))).await
    }

    pub async fn before_start(&self, device_ids: Vec<String>) -> Result<(), tonic::Status> {
        let asked = limited(PreStartContainerRequest { device_ids }, DEVICE_TIMEOUT);
        answer(DEVICE_TIMEOUT, self.0.clone().pre_start_container(asked)).await.map(drop)
    }
}

/// A driver of devices that pods claim. Clones share the connection.
#[derive(Clone, Debug)]
pub struct DeviceDriver(DraPluginClient<Channel>);

impl DeviceDriver {
    pub fn new(channel: Channel) -> Self {
        Self(DraPluginClient::new(channel))
    }

    pub async fn prepare(
        &self,
        request: NodePrepareResourcesRequest,
    ) -> Result<NodePrepareResourcesResponse, tonic::Status> {
        let asked = limited(request, CLAIM_TIMEOUT);
        answer(CLAIM_TIMEOUT, self.0.clone().node_prepare_resources(asked)).await
    }

    pub async fn unprepare(
        &self,
        request: NodeUnprepareResourcesRequest,
    ) -> Result<NodeUnprepareResourcesResponse, tonic::Status> {
        let asked = limited(request, CLAIM_TIMEOUT);
        answer(CLAIM_TIMEOUT, self.0.clone().node_unprepare_resources(asked)).await
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use tonic::codegen::{BoxFuture, Service, http};
    use tonic::{Response, Status};

    use super::*;
    use crate::deviceplugin::device_plugin_server::{DevicePlugin as Served, DevicePluginServer};

    /// Has devices to tell of, and never tells.
    struct Silent;

    #[tonic::async_trait]
    impl Served for Silent {
        async fn list_and_watch(
            &self,
            _: Request<Empty>,
        ) -> Result<Response<tonic::codegen::BoxStream<ListAndWatchResponse>>, Status> {
            Ok(Response::new(Box::pin(tokio_stream::pending())))
        }
    }

    /// Begins every answer and ends none: that of a stream, for calls that have one answer.
    #[derive(Clone)]
    struct Stuck(DevicePluginServer<Silent>);

    impl tonic::server::NamedService for Stuck {
        const NAME: &'static str = "pluginregistration.Registration";
    }

    impl Service<http::Request<tonic::body::Body>> for Stuck {
        type Response = http::Response<tonic::body::Body>;
        type Error = Infallible;
        type Future = BoxFuture<Self::Response, Infallible>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, mut request: http::Request<tonic::body::Body>) -> Self::Future {
            *request.uri_mut() = http::Uri::from_static("/v1beta1.DevicePlugin/ListAndWatch");
            self.0.call(request)
        }
    }

    #[tokio::test]
    async fn an_answer_that_begins_and_never_ends_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let server = tonic::transport::Server::builder()
            .add_service(Stuck(DevicePluginServer::new(Silent)))
            .serve_with_incoming(incoming);
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).expect("an endpoint");
        let mut registrant =
            Registrant { timeout: Duration::from_millis(300), ..Registrant::new(endpoint.connect_lazy()) };
        let asked = tokio::time::timeout(Duration::from_secs(60), registrant.info());
        let answered = tokio::select! {
            answered = asked => answered.expect("a call that ends"),
            _ = server => unreachable!("the server goes on"),
        };
        assert_eq!(answered.expect_err("no answer").code(), tonic::Code::DeadlineExceeded);
    }
}
