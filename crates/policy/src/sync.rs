//! The loop that carries changes from the informers and the kubelet to the kernel.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ferry_client::{Change, Informer, Subscription};
use ferry_nft::{Changed, Nft, Pace, Watch, wait};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::ResourceExt;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::Bridge;
use crate::cluster_policy::StoredClusterPolicy;
use crate::conntrack;
use crate::gate::{Newcomer, Newcomers};
use crate::node_policies::NodePolicies;
use crate::policy::Protocol;
use crate::ports::Ports;
use crate::stored::StoredPolicy;
use crate::table::{FIRST_CHAIN, Transaction};

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// Flows are listed at most this often, however many changes there are: a busy node remembers very many.
const LOOK_AT_FLOWS: Duration = Duration::from_millis(500);

/// Where changes come from.
#[derive(Clone)]
pub struct Sources {
    pub pods: Informer<Pod>,
    pub namespaces: Informer<Namespace>,
    pub policies: Informer<StoredPolicy>,
    pub nodes: Informer<Node>,
    pub cluster_policies: Informer<StoredClusterPolicy>,
}

struct Streams {
    pods: Subscription<Pod>,
    namespaces: Subscription<Namespace>,
    policies: Subscription<StoredPolicy>,
    nodes: Subscription<Node>,
    cluster_policies: Subscription<StoredClusterPolicy>,
}

pub(crate) struct Sync {
    state: NodePolicies,
    ports: Ports,
    /// Addresses of each pod that the kubelet told of since ports were looked at; none when there is nothing to look for.
    fresh: Option<Vec<BTreeSet<IpAddr>>>,
    table: String,
    nft: Nft,
    sources: Sources,
    newcomers: Newcomers,
    /// Those who are to be told when the kernel agrees.
    waiting: Vec<oneshot::Sender<()>>,
    ready: watch::Sender<bool>,
    /// Word of others who change the table.
    watch: Option<Watch>,
    /// When to look for flows that are forbidden by now.
    flows_at: Option<Instant>,
}

impl Sync {
    pub(crate) fn new(
        node: &str,
        table: &str,
        bridge: Bridge,
        nft: Nft,
        sources: Sources,
        newcomers: Newcomers,
        ready: watch::Sender<bool>,
    ) -> Self {
        Self {
            ports: Ports::new(table, &bridge.name),
            fresh: None,
            state: NodePolicies::new(node, table, bridge),
            table: table.to_owned(),
            nft,
            sources,
            newcomers,
            waiting: Vec::new(),
            ready,
            watch: None,
            flows_at: None,
        }
    }

    /// Who tells when others change the rules.
    pub(crate) fn watching(self, watch: Watch) -> Self {
        Self { watch: Some(watch), ..self }
    }

    pub(crate) fn nft(&self) -> &Nft {
        &self.nft
    }

    pub(crate) async fn run(mut self) {
        let Sources { pods, namespaces, policies, nodes, cluster_policies } = &self.sources;
        pods.synced().await;
        namespaces.synced().await;
        policies.synced().await;
        nodes.synced().await;
        cluster_policies.synced().await;
        let mut streams = Streams {
            pods: pods.subscribe(),
            namespaces: namespaces.subscribe(),
            policies: policies.subscribe(),
            nodes: nodes.subscribe(),
            cluster_policies: cluster_policies.subscribe(),
        };
        self.drain(&mut streams);
        let mut retry = self.resync().await;
        let mut watch = self.watch.take();
        let (mut pace, mut repair) = (Pace::default(), None);
        loop {
            if retry.is_none() {
                for one in self.waiting.drain(..) {
                    // Who is gone meanwhile need not be told.
                    let _ = one.send(());
                }
                self.ready.send_if_modified(|ready| !std::mem::replace(ready, true));
            }
            tokio::select! {
                changed = wait::changed(&mut watch) => {
                    if changed.is_err() {
                        watch = None;
                    }
                    if self.is_lost(changed).await {
                        repair.get_or_insert_with(|| pace.next(Instant::now()));
                    }
                    continue;
                }
                () = wait::until(repair) => {
                    tracing::info!("somebody changed table {}: it is written anew", self.table);
                    repair = None;
                    retry = retry.or(Some(FIRST_RETRY));
                }
                () = wait::until(self.flows_at) => {
                    self.end_forbidden_flows().await;
                    continue;
                }
                change = streams.pods.next() => self.pod(&change),
                change = streams.namespaces.next() => self.namespace(&change),
                change = streams.policies.next() => self.policy(&change),
                change = streams.nodes.next() => self.node(&change),
                change = streams.cluster_policies.next() => self.cluster_policy(&change),
                Some(newcomer) = self.newcomers.0.recv() => self.admit(newcomer),
                () = wait::after(retry) => {}
            }
            self.drain(&mut streams);
            retry = match retry {
                Some(delay) => self.resync().await.map(|_| (delay * 2).min(LONGEST_RETRY)),
                None => self.apply().await,
            };
        }
    }

    /// Whether others changed the table.
    async fn is_lost(&self, changed: std::io::Result<Changed>) -> bool {
        let table = self.table.clone();
        let look = move || Watch::has_inet_rules(&table, FIRST_CHAIN).unwrap_or(false);
        wait::is_lost(changed, &self.table, look).await
    }

    /// Takes what is there already, so that one transaction carries a burst.
    fn drain(&mut self, streams: &mut Streams) {
        while let Some(change) = streams.namespaces.try_next() {
            self.namespace(&change);
        }
        while let Some(change) = streams.pods.try_next() {
            self.pod(&change);
        }
        while let Some(change) = streams.policies.try_next() {
            self.policy(&change);
        }
        while let Some(change) = streams.nodes.try_next() {
            self.node(&change);
        }
        while let Some(change) = streams.cluster_policies.try_next() {
            self.cluster_policy(&change);
        }
        while let Ok(newcomer) = self.newcomers.0.try_recv() {
            self.admit(newcomer);
        }
    }

    fn pod(&mut self, change: &Change<Pod>) {
        self.state.pod(change.object(), !matches!(change, Change::Deleted(_)));
    }

    fn namespace(&mut self, change: &Change<Namespace>) {
        self.state.namespace(change.object(), !matches!(change, Change::Deleted(_)));
    }

    fn policy(&mut self, change: &Change<StoredPolicy>) {
        self.state.policy(&change.object().0, !matches!(change, Change::Deleted(_)));
    }

    fn node(&mut self, change: &Change<Node>) {
        self.state.node(change.object(), !matches!(change, Change::Deleted(_)));
    }

    fn cluster_policy(&mut self, change: &Change<StoredClusterPolicy>) {
        let object = change.object();
        for complaint in self.state.cluster_policy(object, !matches!(change, Change::Deleted(_))) {
            tracing::warn!(
                policy = object.name_any(),
                "a ClusterNetworkPolicy is not in force as written: {complaint}"
            );
        }
    }

    fn admit(&mut self, newcomer: Newcomer) {
        self.fresh.get_or_insert_default().push(newcomer.addresses.iter().copied().collect());
        self.state.told(&newcomer.pod, newcomer.addresses);
        self.waiting.retain(|one| !one.is_closed());
        self.waiting.push(newcomer.done);
    }

    /// The difference only; when the kernel does not agree with what we think it holds, everything anew.
    async fn apply(&mut self) -> Option<Duration> {
        let Transaction { rules, forbids } = self.state.transaction();
        let ports = self.bind_ports().await;
        if rules.is_empty() {
            return ports;
        }
        match self.nft.commit(&rules).await {
            Ok(()) => {
                self.look_at_flows(forbids);
                ports
            }
            Err(error) => {
                tracing::info!("writing the whole table of NetworkPolicies anew, since a change did not fit: {error}");
                self.resync().await
            }
        }
    }

    async fn resync(&mut self) -> Option<Duration> {
        self.ports.are_written(false);
        self.fresh.get_or_insert_default();
        let Transaction { rules, forbids } = self.state.resync();
        let ports = self.bind_ports().await;
        match self.nft.commit(&rules).await {
            Ok(()) => {
                self.look_at_flows(forbids);
                ports
            }
            Err(error) => {
                tracing::error!("NetworkPolicies are not up to date on this node, trying again: {error}");
                Some(FIRST_RETRY)
            }
        }
    }

    /// None where every port of the bridge speaks for its own pod; otherwise when to try again.
    async fn bind_ports(&mut self) -> Option<Duration> {
        let fresh = self.fresh.take()?;
        if let Err(why) = self.ports.update(&self.nft, &self.state.own_addresses(), &fresh).await {
            self.fresh = Some(fresh);
            tracing::error!("pods of this node may be able to use others' addresses, trying again: {why}");
            return Some(FIRST_RETRY);
        }
        None
    }

    fn look_at_flows(&mut self, due: bool) {
        if due {
            self.flows_at.get_or_insert_with(|| Instant::now() + LOOK_AT_FLOWS);
        }
    }

    async fn end_forbidden_flows(&mut self) {
        self.flows_at = None;
        let isolated = self.state.isolated();
        if isolated.is_empty() {
            return;
        }
        let ended = async {
            let flows = blocking(move || conntrack::flows(&isolated)).await?;
            let allowed = |flow: &conntrack::Flow| self.state.allows(flow.from, flow.to, Protocol::Udp, flow.port);
            let forbidden: Vec<_> = flows.into_iter().filter(|flow| !allowed(flow)).collect();
            let count = forbidden.len();
            if count > 0 {
                blocking(move || conntrack::forget(&forbidden)).await?;
            }
            Ok::<_, std::io::Error>(count)
        };
        match ended.await {
            Ok(0) => {}
            Ok(count) => tracing::debug!("{count} flows of datagrams that policies forbid were ended"),
            Err(error) => tracing::warn!("flows of datagrams that policies forbid may go on: {error}"),
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}
