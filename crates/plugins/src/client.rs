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

/// A plug-in that wants to be known.
pub struct Registrant(RegistrationClient<Channel>);

impl Registrant {
    pub fn new(channel: Channel) -> Self {
        Self(RegistrationClient::new(channel))
    }

    pub async fn info(&mut self) -> Result<PluginInfo, tonic::Status> {
        let asked = limited(InfoRequest {}, REGISTRATION_TIMEOUT);
        self.0.get_info(asked).await.map(tonic::Response::into_inner)
    }

    /// Tells it what came of it: nothing, or why not.
    pub async fn told(&mut self, outcome: Result<(), String>) -> Result<(), tonic::Status> {
        let status =
            RegistrationStatus { plugin_registered: outcome.is_ok(), error: outcome.err().unwrap_or_default() };
        self.0.notify_registration_status(limited(status, REGISTRATION_TIMEOUT)).await.map(|_| ())
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
                self.0.clone().$method(limited(request, STORAGE_TIMEOUT)).await.map(tonic::Response::into_inner)
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
        self.0.clone().get_device_plugin_options(asked).await.map(tonic::Response::into_inner)
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
        self.0.clone().get_preferred_allocation(asked).await.map(tonic::Response::into_inner)
    }

    pub async fn allocate(&self, request: AllocateRequest) -> Result<AllocateResponse, tonic::Status> {
        self.0.clone().allocate(limited(request, DEVICE_TIMEOUT)).await.map(tonic::Response::into_inner)
    }

    pub async fn before_start(&self, device_ids: Vec<String>) -> Result<(), tonic::Status> {
        let asked = limited(PreStartContainerRequest { device_ids }, DEVICE_TIMEOUT);
        self.0.clone().pre_start_container(asked).await.map(|_| ())
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
        self.0.clone().node_prepare_resources(asked).await.map(tonic::Response::into_inner)
    }

    pub async fn unprepare(
        &self,
        request: NodeUnprepareResourcesRequest,
    ) -> Result<NodeUnprepareResourcesResponse, tonic::Status> {
        let asked = limited(request, CLAIM_TIMEOUT);
        self.0.clone().node_unprepare_resources(asked).await.map(tonic::Response::into_inner)
    }
}
