//! The wiring of a whole cluster in one process: what starts, in which order, and how it stops.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferry_apiserver::Kubelets;
use ferry_client::Informers;
use ferry_meta::UserInfo;
use ferry_meta::user::MASTERS;
use ferry_server::certificate_rotation::Renewals;
use ferry_server::front_door::{FrontDoor, Options};
use ferry_server::front_proxy;
use ferry_server::pki::{Pki, client_tls, server_tls, server_tls_by};
use ferry_server::reload::Reloads;
use ferry_server::server_options::{Authorities, CaSource, ServiceAccountOptions};
use ferry_tasks::Tasks;
use tokio::runtime::Handle;

use crate::config::{ClusterConfig, NodeConfig};
use crate::control_plane::ControlPlane;
use crate::fleet::{self, node, told};
use crate::process::Lock;
use crate::{folders, gateway, pki_plan, quorum, signals};

/// The first word of the line that says the node is Ready; `ferry up` waits for it.
pub const READY: &str = "ready";

const STOP_PATIENCE: Duration = Duration::from_secs(10);
const STATE_PATIENCE: Duration = Duration::from_secs(20);

/// Runs a cluster until it is told to stop. Containers and packet rules stay: `ferry down` takes them away.
///
/// The node runs on threads of its own, `node_runtime`: whatever stands still there, the API server answers.
pub async fn run(mut config: ClusterConfig, node_runtime: Handle) -> Result<()> {
    let progress = Progress { begin: Instant::now() };
    folders::prepare(&config.node.run_dir)?;
    let _lock = Lock::take(&config.node.run_dir.join("ferry.lock"))?;
    let listener =
        tokio::net::TcpListener::bind((config.bind_address, config.secure_port)).await.with_context(|| {
            format!("port {} is in use or not allowed; choose another with --secure-port", config.secure_port)
        })?;
    note_for_down(&config.node)?;

    let pki = Arc::new(Pki::open(&config.node.data_dir.join("pki"))?);
    let renewals = Renewals::new(pki.clone());
    let tasks = Tasks::new("ferry");
    tasks.watch_runtime("server", &Handle::current());
    tasks.watch_runtime("node", &node_runtime);
    // In this order: they stop the other way round, each before what it relies on.
    let state_tasks = tasks.child_on("state", Handle::current());
    let server_tasks = tasks.child_on("server", Handle::current());
    let led_tasks = tasks.child_on("control plane", Handle::current());
    let node_tasks = tasks.child_on("node", node_runtime);
    let work = async {
        let mut removed = None;
        if quorum::member::is_wanted(&config)? {
            let started = quorum::member::start(&config, &renewals, &state_tasks).await?;
            (config.state, removed) = (started.state, Some(started.removed));
            progress.say("etcd");
        }
        let door = open_front_door(&config, listener, &pki, &renewals, &server_tasks);
        // The runtime takes longest to start, so it starts beside the API server.
        let (door, ()) = tokio::try_join!(door, async {
            let (node, group) = (config.node.clone(), node_tasks.clone());
            node_tasks.run("start", async move { node::start_runtime(&node, &group).await }).await??;
            progress.say("container runtime");
            Ok(())
        })?;
        progress.say("API server");

        let client = door.client(UserInfo::new("system:kube-controller-manager", &[]));
        let informers = Informers::new(client, led_tasks.clone());
        let control_plane = ControlPlane::new(&config, &door, &pki)?;
        if config.state.is_shared() {
            control_plane.stand_for_election(&led_tasks);
        }
        tokio::try_join!(
            publish(&config, &door, &pki),
            async { if config.state.is_shared() { Ok(()) } else { control_plane.start(&informers, &led_tasks).await } },
            start_node(&config, &door, &pki, &renewals, &informers, &node_tasks),
        )?;
        let node_client = door.client(node_user(&config));
        let reports = told::gateway(&config.node.node_name, node_client, &node_tasks);
        if let Some(gateway) = config.node.gateway.clone() {
            let client = door.client(UserInfo::new(gateway::user(), &[]));
            gateway::start_on_server(gateway, client, &informers, config.state.is_shared(), reports, &node_tasks);
        }
        progress.say("node");
        progress.done(&config);
        if let Some(removed) = removed
            && removed.await.is_ok()
        {
            // Through the other servers' etcd it could go on, and nobody would know.
            bail!(quorum::member::REMOVED);
        }
        std::future::pending::<Result<()>>().await
    };
    let mut work = std::pin::pin!(work);
    // Told to stop or failed at whatever step: what was started stops, the etcd of this server too.
    let outcome = tokio::select! {
        failed = &mut work => failed,
        told = signals::wait() => told,
    };
    // One after the other, each with time of its own: what is stuck on the node must not cost the server its orderly end.
    for group in [&node_tasks, &led_tasks, &server_tasks] {
        group.stop(STOP_PATIENCE).await;
    }
    // Last: what stops before it says so in the store.
    state_tasks.stop(STATE_PATIENCE).await;
    tasks.stop(STOP_PATIENCE).await;
    outcome
}

/// `ferry down` must know these even when this process is gone.
pub fn note_for_down(config: &NodeConfig) -> Result<()> {
    folders::prepare(&config.data_dir)?;
    fs::write(config.data_dir.join("bridge"), &config.bridge)?;
    fs::write(config.data_dir.join("cgroup-root"), config.cgroup_root.as_os_str().as_encoded_bytes())?;
    Ok(())
}

async fn open_front_door(
    config: &ClusterConfig,
    listener: tokio::net::TcpListener,
    pki: &Pki,
    renewals: &Arc<Renewals>,
    tasks: &Tasks,
) -> Result<FrontDoor> {
    let serving = pki_plan::serving(
        &config.node.node_name,
        &config.node.node_ips,
        &config.node.cluster.service_cidr,
        &config.node.cluster.cluster_domain,
    );
    let (reloads, flags) = (Reloads::new(), &config.server.authentication);
    let front_proxy = front_proxy::open(pki, flags, renewals)?;
    let client_ca = CaSource::Pem(pki.ca_certificate().to_owned());
    let authorities = Authorities::open(flags, client_ca, front_proxy.known_by, &reloads)?;
    let tls = server_tls_by(renewals.leaf(serving)?, authorities.verifier())?;
    let kubelets = client_tls(renewals.leaf(pki_plan::kubelet_client())?, pki.ca_certificate())?;
    let door = FrontDoor::open(
        Options {
            state: &config.state,
            key_dir: &config.node.data_dir.join("pki"),
            service_accounts: ServiceAccountOptions::default().keys(&pki.signing_key()?)?,
            service_cidr: &config.node.cluster.service_cidr.to_string(),
            advertise: config.node.node_ip,
            port: config.secure_port,
            authorities,
            reloads: &reloads,
            static_tokens: None,
            kubelets: Kubelets { tls: Some(kubelets) },
            front_proxy: front_proxy.identity,
            server: &config.server,
            flags: config.command_line.in_use(),
            resource_metrics: config.server.resource_metrics.unwrap_or(true),
            cbor: false,
            lacks_policies: config.node.cluster.pod_network != ferry_network::Mode::Cni
                && !crate::node::network::filters_bridged_packets(),
        },
        tasks,
    )
    .await?;
    let (ca, written) = (pki.ca_certificate().to_owned(), config.clone());
    renewals.with_leaf(pki_plan::administrator(), move |admin| pki_plan::write_kubeconfig(&ca, admin, &written))?;
    renewals.start(tasks);
    reloads.start(tasks);
    let server = door.server.clone();
    crate::insight::offer(&server);
    tasks.spawn("serve", async move { server.serve(listener, tls).await });
    Ok(door)
}

/// The kubelet of this machine.
fn node_user(config: &ClusterConfig) -> UserInfo {
    UserInfo::new(format!("system:node:{}", config.node.node_name), &["system:nodes"])
}

/// The node of this machine: its kubelet's certificates are made here, its clients enter the API server without sockets.
async fn start_node(
    cluster: &ClusterConfig,
    door: &FrontDoor,
    pki: &Pki,
    renewals: &Renewals,
    informers: &Informers,
    tasks: &Tasks,
) -> Result<()> {
    let config = &cluster.node;
    let user = node_user(cluster);
    let serving = renewals.leaf(pki_plan::kubelet_serving(config))?;
    let identity = node::Identity {
        kubelet: door.client(user),
        tls: ferry_kubelet::Tls { server: server_tls(serving, pki.ca_certificate())? },
        informers: informers.clone(),
        api_port: Some(cluster.secure_port),
    };
    let (config, group) = (config.clone(), tasks.clone());
    tasks.run("start", async move { node::start(&config, identity, &group).await }).await?
}

/// What other machines need to join.
async fn publish(config: &ClusterConfig, door: &FrontDoor, pki: &Pki) -> Result<()> {
    let admin = door.client(UserInfo::new("system:apiserver", &[MASTERS]));
    let server = format!("https://{}", config.advertised());
    let settings = fleet::settings::Settings::of(&config.node.cluster);
    let has_gateway = config.node.gateway.is_some();
    fleet::publish::publish(&admin, &server, pki.ca_certificate(), &settings, has_gateway).await
}

/// Lines for whoever started this process; nobody may be listening any more.
struct Progress {
    begin: Instant,
}

impl Progress {
    fn say(&self, what: &str) {
        self.line(&format!("{what:<18} ready after {} ms", self.begin.elapsed().as_millis()));
    }

    fn done(&self, config: &ClusterConfig) {
        self.line(&format!("{READY}: export KUBECONFIG={}", config.kubeconfig().display()));
    }

    fn line(&self, text: &str) {
        tracing::info!("{text}");
        let _ = writeln!(std::io::stdout(), "{text}");
    }
}
