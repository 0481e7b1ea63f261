//! The loop that carries changes from the informers to the kernel.

use std::time::Duration;

use ferry_client::{Change, Informer, Subscription};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use tokio::sync::watch;

use crate::conntrack;
use crate::endpoints::NodeView;
use crate::frame::Frame;
use crate::nft::Nft;
use crate::plan::View;
use crate::state::State;

const ZONE: &str = "topology.kubernetes.io/zone";
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

pub(crate) struct Sync {
    node_name: String,
    state: State,
    nft: Nft,
    sources: Sources,
    ready: watch::Sender<bool>,
}

/// Where changes come from.
pub(crate) struct Sources {
    pub(crate) services: Informer<Service>,
    pub(crate) slices: Informer<EndpointSlice>,
    pub(crate) nodes: Informer<Node>,
}

struct Streams {
    services: Subscription<Service>,
    slices: Subscription<EndpointSlice>,
    nodes: Subscription<Node>,
}

impl Sync {
    pub(crate) fn new(
        node_name: String,
        frame: Frame,
        pod_cidr: String,
        nft: Nft,
        sources: Sources,
        ready: watch::Sender<bool>,
    ) -> Self {
        let view = View { node: NodeView { name: node_name.clone(), zone: None }, pod_cidr };
        Self { node_name, state: State::new(frame, view), nft, sources, ready }
    }

    pub(crate) async fn run(mut self) {
        let Sources { services, slices, nodes } = &self.sources;
        services.synced().await;
        slices.synced().await;
        nodes.synced().await;
        let mut streams =
            Streams { services: services.subscribe(), slices: slices.subscribe(), nodes: nodes.subscribe() };
        self.drain(&mut streams);
        let mut retry = self.resync().await;
        self.ready.send_replace(true);
        loop {
            tokio::select! {
                change = streams.services.next() => self.service(&change),
                change = streams.slices.next() => self.slice(&change),
                change = streams.nodes.next() => self.node(&change),
                () = wait(retry) => {}
            }
            self.drain(&mut streams);
            retry = match retry {
                Some(delay) => self.resync().await.map(|_| (delay * 2).min(LONGEST_RETRY)),
                None => self.apply().await,
            };
            if retry.is_none() {
                self.end_stale_flows().await;
            }
        }
    }

    /// Takes what is there already, so that one transaction carries a burst.
    fn drain(&mut self, streams: &mut Streams) {
        while let Some(change) = streams.services.try_next() {
            self.service(&change);
        }
        while let Some(change) = streams.slices.try_next() {
            self.slice(&change);
        }
        while let Some(change) = streams.nodes.try_next() {
            self.node(&change);
        }
    }

    fn service(&mut self, change: &Change<Service>) {
        self.state.service(change.object(), !matches!(change, Change::Deleted(_)));
    }

    fn slice(&mut self, change: &Change<EndpointSlice>) {
        self.state.slice(change.object(), !matches!(change, Change::Deleted(_)));
    }

    fn node(&mut self, change: &Change<Node>) {
        let node = change.object();
        if node.name_any() == self.node_name {
            self.state.zone(node.labels().get(ZONE).cloned());
        }
    }

    /// The difference only; when the kernel does not agree with what we think it holds, everything anew.
    async fn apply(&mut self) -> Option<Duration> {
        let transaction = self.state.transaction();
        if transaction.is_empty() {
            return None;
        }
        match self.nft.apply(&transaction).await {
            Ok(()) => None,
            Err(error) => {
                tracing::info!("writing the whole table of Services anew, since a change did not fit: {error}");
                self.resync().await
            }
        }
    }

    /// After the rules, so that a flow cannot come back to where it was.
    async fn end_stale_flows(&mut self) {
        let moved = self.state.take_moved();
        if moved.is_empty() {
            return;
        }
        match tokio::task::spawn_blocking(move || conntrack::end_stale(&moved)).await {
            Ok(Ok(0)) | Err(_) => {}
            Ok(Ok(ended)) => tracing::debug!("{ended} flows of datagrams to endpoints that are gone were ended"),
            Ok(Err(error)) => tracing::warn!("flows of datagrams may go on to endpoints that are gone: {error}"),
        }
    }

    async fn resync(&mut self) -> Option<Duration> {
        let whole = self.state.resync();
        match self.nft.apply(&whole).await {
            Ok(()) => None,
            Err(error) => {
                tracing::error!("Services are not up to date on this node, trying again: {error}");
                Some(FIRST_RETRY)
            }
        }
    }
}

async fn wait(retry: Option<Duration>) {
    match retry {
        Some(delay) => tokio::time::sleep(delay).await,
        None => std::future::pending().await,
    }
}
