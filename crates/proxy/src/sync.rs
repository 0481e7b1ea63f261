//! The loop that carries changes from the informers to the kernel.

use std::time::Duration;

use ferry_client::{Change, Informer, Informers, Subscription};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use tokio::sync::watch;

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
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    nodes: Informer<Node>,
    ready: watch::Sender<bool>,
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
        informers: &Informers,
        ready: watch::Sender<bool>,
    ) -> Self {
        let view = View { node: NodeView { name: node_name.clone(), zone: None }, pod_cidr };
        Self {
            node_name,
            state: State::new(frame, view),
            nft,
            services: informers.of(),
            slices: informers.of(),
            nodes: informers.of(),
            ready,
        }
    }

    pub(crate) async fn run(mut self) {
        self.services.synced().await;
        self.slices.synced().await;
        self.nodes.synced().await;
        let mut streams = Streams {
            services: self.services.subscribe(),
            slices: self.slices.subscribe(),
            nodes: self.nodes.subscribe(),
        };
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
