//! A watch at one member.

use futures::channel::mpsc::{UnboundedSender, unbounded};
use tonic::{Status, Streaming};

use super::rpc::watch_client::WatchClient;
use super::rpc::watch_request::RequestUnion;
use super::rpc::{WatchCreateRequest, WatchRequest, WatchResponse};
use super::{Answer, Led};

/// Dropped, it ends at etcd too.
pub struct Watching {
    responses: Streaming<WatchResponse>,
    /// Nothing more is said to etcd. But as long as something could be, hyper keeps the stream open, whether or not
    /// somebody reads the responses; so this must go when they do, and not before.
    _requests: UnboundedSender<WatchRequest>,
}

impl Watching {
    pub(super) async fn open(mut client: WatchClient<Led>, request: WatchCreateRequest) -> Answer<Self> {
        let (sender, requests) = unbounded();
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(request)) };
        sender.unbounded_send(create).map_err(|error| Status::internal(error.to_string()))?;
        let responses = client.watch(requests).await?.into_inner();
        Ok(Self { responses, _requests: sender })
    }

    /// None where etcd ended it.
    pub async fn message(&mut self) -> Answer<Option<WatchResponse>> {
        self.responses.message().await
    }
}
