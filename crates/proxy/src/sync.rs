//! The loop that carries changes from the informers to the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferry_client::endpoint_slices::Slice;
use ferry_client::{Change, EventType, Informer, Recorder, Subscription};
use ferry_nft::{Nft, Pace, Transaction, Watch, wait};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::ResourceExt;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::affinity;
use crate::conntrack;
use crate::endpoints::NodeView;
use crate::family::Family;
use crate::frame::{DISPATCHING_CHAIN, Frame};
use crate::health::{Check, Health, Servers};
use crate::listeners::Listeners;
use crate::plan::View;
use crate::proxier::Proxier;
use crate::table::Owner;

/// The taint of nodes that an autoscaler is about to delete.
const GOING: &str = "ToBeDeletedByClusterAutoscaler";
const ZONE: &str = "topology.kubernetes.io/zone";
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// Nothing tells when somebody begins to listen.
const LOOK_AT_LISTENERS: Duration = Duration::from_secs(15);

pub(crate) struct Sync {
    node_name: String,
    /// One for each family of addresses.
    states: Vec<Proxier>,
    nft: Nft,
    sources: Sources,
    ready: watch::Sender<bool>,
    recorder: Option<Recorder>,
    listening: Option<watch::Sender<BTreeSet<String>>>,
    /// Word of others who change the table.
    watch: Option<Watch>,
    table: String,
    health: Health,
    /// Ports for health checks, where they are served.
    servers: Option<(Servers, Tasks)>,
    /// What could not be served, and was told.
    unserved: Vec<(Owner, String)>,
}

/// Where changes come from.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) services: Informer<Service>,
    pub(crate) slices: Informer<Slice>,
    pub(crate) nodes: Informer<Node>,
}

struct Streams {
    services: Subscription<Service>,
    slices: Subscription<Slice>,
    nodes: Subscription<Node>,
}

impl Sync {
    pub(crate) fn new(
        node_name: String,
        frames: Vec<Frame>,
        nft: Nft,
        sources: Sources,
        ready: watch::Sender<bool>,
    ) -> Self {
        let table = frames.first().map(|frame| frame.table.clone()).unwrap_or_default();
        let state = |frame: Frame| {
            let node = NodeView { name: node_name.clone(), zone: None };
            let view = View { family: frame.family, node, pod_cidr: frame.pod_cidr.clone(), ..View::default() };
            Proxier::new(frame, view)
        };
        let states = frames.into_iter().map(state).collect();
        Self {
            node_name,
            states,
            nft,
            sources,
            ready,
            recorder: None,
            listening: None,
            watch: None,
            table,
            health: Health::default(),
            servers: None,
            unserved: Vec::new(),
        }
    }

    /// Who tells load balancers how it goes, and where their ports are served.
    pub(crate) fn with_health(self, health: Health, tasks: Tasks) -> Self {
        Self { health, servers: Some((Servers::default(), tasks)), ..self }
    }

    pub(crate) fn nft(&self) -> &Nft {
        &self.nft
    }

    /// Who tells when others change the rules.
    pub(crate) fn watching(self, watch: Watch) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Who tells owners of Services what they do not get.
    pub(crate) fn telling(self, recorder: Option<Recorder>) -> Self {
        Self { recorder, ..self }
    }

    /// Who is told what the node listens on.
    pub(crate) fn publishing(self, listening: watch::Sender<BTreeSet<String>>) -> Self {
        Self { listening: Some(listening), ..self }
    }

    async fn look_at_listeners(&mut self) {
        let Ok(listeners) = tokio::task::spawn_blocking(Listeners::read).await else { return };
        let now = listeners.names();
        for state in &mut self.states {
            state.listeners(listeners.clone());
        }
        if let Some(listening) = &self.listening {
            listening.send_if_modified(|told| {
                let changed = *told != now;
                *told = now;
                changed
            });
        }
    }

    fn tell_refused(&mut self) {
        // What both families refuse in the same words is told once.
        let mut told = BTreeSet::new();
        for (service, why) in self.states.iter_mut().flat_map(Proxier::take_refused) {
            let owner = format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any());
            if !told.insert((owner.clone(), why.clone())) {
                continue;
            }
            tracing::warn!("{owner}: {why}");
            if let Some(recorder) = &self.recorder {
                recorder.event(&*service, EventType::Warning, "PortNotServed", why);
            }
        }
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
        self.serve_checks().await;
        let mut watch = self.watch.take();
        let (mut pace, mut repair) = (Pace::default(), None);
        let mut look = tokio::time::interval(LOOK_AT_LISTENERS);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if retry.is_none() {
                self.tell_ready();
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
                _ = look.tick() => {
                    if self.states.iter().any(Proxier::has_external) {
                        self.look_at_listeners().await;
                    }
                }
                change = streams.services.next() => self.service(&change),
                change = streams.slices.next() => self.slice(&change),
                change = streams.nodes.next() => self.node(&change),
                () = wait::after(retry) => {}
            }
            self.drain(&mut streams);
            retry = match retry {
                Some(delay) => self.resync().await.map(|_| (delay * 2).min(LONGEST_RETRY)),
                None => self.apply().await,
            };
            if retry.is_none() {
                self.end_stale_flows().await;
            }
            self.serve_checks().await;
        }
    }

    /// Serves the ports for health checks of those Services that have one.
    async fn serve_checks(&mut self) {
        let Some((servers, tasks)) = &mut self.servers else { return };
        let checks = checks(&self.states);
        self.health.checks(checks.clone());
        let failed = servers.follow(&checks, &self.health, tasks).await;
        for (owner, why) in failed.iter().filter(|one| !self.unserved.contains(one)) {
            tracing::warn!("{owner}: {why}");
            if let Some((recorder, service)) =
                self.recorder.as_ref().zip(self.states.iter().find_map(|state| state.of(owner)))
            {
                recorder.event(&*service, EventType::Warning, "FailedToStartServiceHealthcheck", why.clone());
            }
        }
        self.unserved = failed;
    }

    /// Whether others changed the table.
    async fn is_lost(&self, changed: std::io::Result<ferry_nft::Changed>) -> bool {
        let (table, families) = (self.table.clone(), self.states.iter().map(Proxier::family));
        let families: Vec<u8> = families.map(Family::number).collect();
        let has = move |family: &u8| Watch::has_rules(*family, &table, DISPATCHING_CHAIN).unwrap_or(false);
        wait::is_lost(changed, &self.table, move || families.iter().all(has)).await
    }

    /// The kernel has what it should have.
    fn tell_ready(&self) {
        self.ready.send_if_modified(|ready| !std::mem::replace(ready, true));
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
        self.health.changed(1, 0);
        for state in &mut self.states {
            state.service(change.object(), !matches!(change, Change::Deleted(_)));
        }
    }

    fn slice(&mut self, change: &Change<Slice>) {
        self.health.changed(0, 1);
        for state in &mut self.states {
            state.slice(change.object(), !matches!(change, Change::Deleted(_)));
        }
    }

    fn node(&mut self, change: &Change<Node>) {
        let node = change.object();
        if node.name_any() == self.node_name {
            for state in &mut self.states {
                state.zone(node.labels().get(ZONE).cloned());
            }
            let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            let is_going = taints.into_iter().any(|taint| taint.key == GOING);
            self.health.leaving(is_going || node.metadata.deletion_timestamp.is_some());
        }
    }

    /// The difference only; when the kernel does not agree with what we think it holds, everything anew.
    async fn apply(&mut self) -> Option<Duration> {
        if self.states.iter().any(Proxier::wants_the_nodes) {
            self.look_at_listeners().await;
        }
        let joined = |states: &mut [Proxier]| {
            let mut transaction = Transaction::default();
            for state in states {
                transaction.join(state.transaction());
            }
            transaction
        };
        let transaction = match self.states.iter().any(Proxier::has_much_to_plan) {
            true => self.off_the_worker(joined).await,
            false => joined(&mut self.states),
        };
        self.tell_refused();
        if transaction.is_empty() {
            return None;
        }
        let begin = Instant::now();
        let applied = self.nft.commit(&transaction).await;
        self.health.synced(begin.elapsed(), false, applied.is_ok());
        match applied {
            Ok(()) => None,
            Err(error) => {
                tracing::info!("writing the whole table of Services anew, since a change did not fit: {error}");
                self.resync().await
            }
        }
    }

    /// What takes long does not keep other tasks of this node waiting.
    async fn off_the_worker<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut [Proxier]) -> T + Send + 'static,
    ) -> T {
        let mut states = std::mem::take(&mut self.states);
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&mut states);
            (states, done)
        });
        match done.await.map_err(JoinError::try_into_panic) {
            Ok((states, done)) => {
                self.states = states;
                done
            }
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime ends, and this task with it.
            Err(Err(_)) => std::future::pending().await,
        }
    }

    /// After the rules, so that a flow cannot come back to where it was.
    async fn end_stale_flows(&mut self) {
        for state in &mut self.states {
            let (family, moved) = (state.family(), state.take_moved());
            if moved.is_empty() {
                continue;
            }
            match tokio::task::spawn_blocking(move || conntrack::end_stale(family, &moved)).await {
                Ok(Ok(0)) | Err(_) => {}
                Ok(Ok(ended)) => tracing::debug!("{ended} flows of datagrams to endpoints that are gone were ended"),
                Ok(Err(error)) => tracing::warn!("flows of datagrams may go on to endpoints that are gone: {error}"),
            }
        }
    }

    /// What puts the clients of Services with affinity back into a table that is written anew.
    async fn remembered_clients(&self) -> String {
        let all: Vec<_> = self.states.iter().map(|state| (state.family(), state.affinities())).collect();
        let table = self.table.clone();
        let read = move || {
            let each = all.iter().map(|(family, sets)| affinity::remembered(*family, &table, sets));
            each.collect::<std::io::Result<String>>()
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => {
                tracing::warn!("clients of Services with session affinity may be sent elsewhere: {error}");
                String::new()
            }
            Err(_) => String::new(),
        }
    }

    async fn resync(&mut self) -> Option<Duration> {
        if self.states.iter().any(Proxier::wants_the_nodes) {
            self.look_at_listeners().await;
        }
        let whole: String =
            self.off_the_worker(|states| states.iter_mut().map(Proxier::resync).collect::<String>()).await;
        self.tell_refused();
        let clients = self.remembered_clients().await;
        let begin = Instant::now();
        let mut applied = self.nft.apply(&format!("{whole}{clients}")).await;
        if let (Err(error), false) = (&applied, clients.is_empty()) {
            tracing::warn!("clients of Services with session affinity may be sent elsewhere: {error}");
            applied = self.nft.apply(&whole).await;
        }
        self.health.synced(begin.elapsed(), true, applied.is_ok());
        match applied {
            Ok(()) => None,
            Err(error) => {
                tracing::error!("Services are not up to date on this node, trying again: {error}");
                Some(FIRST_RETRY)
            }
        }
    }
}

/// Where load balancers ask for endpoints on this node. A pod of both families is one endpoint.
fn checks(states: &[Proxier]) -> BTreeMap<Owner, Check> {
    let mut all: BTreeMap<Owner, Check> = BTreeMap::new();
    for (owner, check) in states.iter().flat_map(Proxier::checks) {
        let known = all.entry(owner.clone()).or_insert(*check);
        known.local = known.local.max(check.local);
    }
    all
}

#[cfg(test)]
mod tests {
    use ferry_tasks::Tasks;

    use super::*;

    /// A command in the place of `nft` that refuses until a file is there.
    #[tokio::test]
    async fn it_is_ready_once_the_rules_are_in_the_kernel() {
        let folder = std::env::temp_dir().join(format!("ferry-proxy-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (tried, allowed) = (folder.join("tried"), folder.join("allowed"));
        let script = format!("cat > {}; test -e {}", tried.display(), allowed.display());
        let nft = Nft::new(["sh", "-c", &script].map(str::to_owned).to_vec());
        let sources =
            Sources { services: Informer::detached(), slices: Informer::detached(), nodes: Informer::detached() };
        sources.services.mark_synced();
        sources.slices.mark_synced();
        sources.nodes.mark_synced();
        let frame = Frame {
            family: Family::Ipv4,
            table: "t".into(),
            pod_cidr: "10.244.0.0/16".into(),
            service_cidrs: Vec::new(),
            node_port_addresses: Vec::new(),
            masquerade_between_pods: false,
        };
        let (sender, mut ready) = watch::channel(false);
        let tasks = Tasks::new("test");
        let sync = Sync::new("here".into(), vec![frame], nft, sources, sender);
        tasks.spawn_until_stopped("proxy", sync.run());
        // The second attempt begins after the first has failed.
        for _ in 0..2 {
            while !tried.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let _ = std::fs::remove_file(&tried);
        }
        assert!(!*ready.borrow(), "nothing is in the kernel");
        std::fs::write(&allowed, "").expect("a file");
        ready.wait_for(|ready| *ready).await.expect("ready");
        assert!(tasks.stop(Duration::from_secs(10)).await);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
