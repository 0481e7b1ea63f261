//! The wiring of a whole cluster in one process: what starts, in which order, and how it stops.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ferry_apiserver::Kubelets;
use ferry_client::Informers;
use ferry_meta::UserInfo;
use ferry_meta::user::MASTERS;
use ferry_tasks::Tasks;

use crate::config::{ClusterConfig, NodeConfig};
use crate::fleet::{self, node};
use crate::front_door::{FrontDoor, Options};
use crate::pki::{Pki, client_tls, server_tls, server_tls_by};
use crate::process::Lock;
use crate::reload::Reloads;
use crate::renewal::Renewals;
use crate::server_options::{Authorities, CaSource};
use crate::{cluster_dns, folders, pki_plan, signals};

/// The first word of the line that says the node is Ready; `ferry up` waits for it.
pub const READY: &str = "ready";

const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Runs a cluster until it is told to stop. Containers and packet rules stay: `ferry down` takes them away.
pub async fn run(config: ClusterConfig) -> Result<()> {
    let progress = Progress { begin: Instant::now() };
    folders::prepare(&config.node.run_dir)?;
    let _lock = Lock::take(&config.node.run_dir.join("ferry.lock"))?;
    let listener =
        tokio::net::TcpListener::bind((config.bind_address, config.secure_port)).await.with_context(|| {
            format!("port {} is in use or not allowed; choose another with --secure-port", config.secure_port)
        })?;
    note_for_down(&config.node)?;

    let tasks = Tasks::new("ferry");
    let server_tasks = Tasks::new("server");
    let door = open_front_door(&config, listener, &server_tasks);
    // The runtime takes longest to start, so it starts beside the API server.
    let (door, ()) = tokio::try_join!(door, async {
        node::start_runtime(&config.node, &tasks).await?;
        progress.say("container runtime");
        Ok(())
    })?;
    let (door, pki, renewals) = door;
    progress.say("API server");

    let informers = Informers::new(door.client(UserInfo::new("system:kube-controller-manager", &[])), tasks.clone());
    start_control_plane(&config, &door, &pki, &informers, &tasks).await?;
    tokio::try_join!(
        publish(&config, &door, &pki, &informers, &tasks),
        start_node(&config.node, &door, &pki, &renewals, &informers, &tasks),
    )?;
    progress.say("node");
    progress.done(&config);

    signals::wait().await?;
    tasks.stop(STOP_PATIENCE).await;
    door.server.stop(STOP_PATIENCE).await;
    server_tasks.stop(STOP_PATIENCE).await;
    Ok(())
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
    tasks: &Tasks,
) -> Result<(FrontDoor, Arc<Pki>, Arc<Renewals>)> {
    let pki = Arc::new(Pki::open(&config.node.data_dir.join("pki"))?);
    let renewals = Renewals::new(pki.clone());
    let serving = pki_plan::serving(
        &config.node.node_name,
        config.node.node_ip,
        config.node.cluster.service_cidr,
        &config.node.cluster.cluster_domain,
    );
    let (reloads, flags) = (Reloads::new(), &config.server.authentication);
    let front_proxy = pki_plan::front_proxy(&pki, flags, &renewals)?;
    let client_ca = CaSource::Pem(pki.ca_certificate().to_owned());
    let authorities = Authorities::open(flags, client_ca, front_proxy.known_by, &reloads)?;
    let tls = server_tls_by(renewals.leaf(serving)?, authorities.verifier())?;
    let kubelets = client_tls(renewals.leaf(pki_plan::kubelet_client())?, pki.ca_certificate())?;
    let door = FrontDoor::open(
        Options {
            state: &config.state,
            key_dir: &config.node.data_dir.join("pki"),
            signing_key: &pki.signing_key()?,
            service_cidr: &config.node.cluster.service_cidr.to_string(),
            advertise: config.node.node_ip,
            port: config.secure_port,
            authorities,
            reloads: &reloads,
            static_tokens: None,
            kubelets: Kubelets { tls: Some(kubelets) },
            front_proxy: front_proxy.identity,
            server: &config.server,
            cbor: false,
        },
        tasks,
    )
    .await?;
    let (ca, written) = (pki.ca_certificate().to_owned(), config.clone());
    renewals.with_leaf(pki_plan::administrator(), move |admin| pki_plan::write_kubeconfig(&ca, admin, &written))?;
    renewals.start(tasks);
    reloads.start(tasks);
    let server = door.server.clone();
    tasks.spawn("serve", async move { server.serve(listener, tls).await });
    Ok((door, pki, renewals))
}

async fn start_control_plane(
    config: &ClusterConfig,
    door: &FrontDoor,
    pki: &Pki,
    informers: &Informers,
    tasks: &Tasks,
) -> Result<()> {
    let controllers = ferry_controllers::Config {
        root_ca: pki.ca_certificate().to_owned(),
        cluster_cidr: Some(config.node.cluster.cluster_cidr.to_string()),
        signing: Some(pki.signing_authority()),
        sign_token: Some(crate::legacy_tokens::signer(&pki.signing_key()?)?),
        provider: Some(Arc::new(ferry_controllers::Local)),
        ..ferry_controllers::Config::default()
    };
    let metrics = controllers.metrics.clone();
    door.server.add_metrics(move || metrics.text());
    let clients = door.clients();
    ferry_controllers::start(
        informers,
        move |name| clients(UserInfo::service_account("kube-system", name, "")),
        tasks,
        controllers,
    );
    let client = door.client(UserInfo::new("system:kube-scheduler", &[]));
    let scheduler = ferry_scheduler::start(ferry_scheduler::Config::new(&client), client, informers, tasks).await?;
    door.explain_by(scheduler);
    Ok(())
}

/// The node of this machine: its kubelet's certificates are made here, its clients enter the API server without sockets.
async fn start_node(
    config: &NodeConfig,
    door: &FrontDoor,
    pki: &Pki,
    renewals: &Renewals,
    informers: &Informers,
    tasks: &Tasks,
) -> Result<()> {
    let user = UserInfo::new(format!("system:node:{}", config.node_name), &["system:nodes"]);
    let serving = renewals.leaf(pki_plan::kubelet_serving(config))?;
    let identity = node::Identity {
        kubelet: door.client(user),
        tls: ferry_kubelet::Tls { server: server_tls(serving, pki.ca_certificate())? },
        informers: informers.clone(),
    };
    node::start(config, identity, tasks).await
}

/// What other machines need to join, and the Service of the cluster's DNS.
async fn publish(
    config: &ClusterConfig,
    door: &FrontDoor,
    pki: &Pki,
    informers: &Informers,
    tasks: &Tasks,
) -> Result<()> {
    let admin = door.client(UserInfo::new("system:apiserver", &[MASTERS]));
    let settings = &config.node.cluster;
    let server = format!("https://{}", config.advertised());
    fleet::publish::publish(&admin, &server, pki.ca_certificate(), &fleet::settings::Settings::of(settings)).await?;
    fleet::approval::start(admin.clone(), informers, tasks);
    fleet::leaving::start(admin.clone(), informers.of(), tasks);
    cluster_dns::publish(settings, admin, informers.of(), tasks).await
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
