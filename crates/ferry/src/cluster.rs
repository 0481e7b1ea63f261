//! The wiring of a whole cluster in one process: what starts, in which order, and how it stops.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ferry_apiserver::Kubelets;
use ferry_client::{Informer, Informers};
use ferry_meta::UserInfo;
use ferry_meta::user::MASTERS;
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::Node;

use crate::config::{Cidr, ClusterConfig, ContainerRuntime};
use crate::front_door::{FrontDoor, Options};
use crate::node::containerd::Containerd;
use crate::node::{embedded, network};
use crate::pki::{Pki, client_tls, server_tls, server_tls_by};
use crate::process::Lock;
use crate::reload::Reloads;
use crate::renewal::Renewals;
use crate::server_options::{Authorities, CaSource};
use crate::{cluster_dns, pki_plan, signals};

/// The first word of the line that says the node is Ready; `ferry up` waits for it.
pub const READY: &str = "ready";

const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Runs a cluster until it is told to stop. Containers and packet rules stay: `ferry down` takes them away.
pub async fn run(config: ClusterConfig) -> Result<()> {
    let progress = Progress { begin: Instant::now() };
    fs::create_dir_all(&config.run_dir).with_context(|| format!("cannot create {}", config.run_dir.display()))?;
    let _lock = Lock::take(&config.run_dir.join("ferry.lock"))?;
    let listener =
        tokio::net::TcpListener::bind((config.bind_address, config.secure_port)).await.with_context(|| {
            format!("port {} is in use or not allowed; choose another with --secure-port", config.secure_port)
        })?;
    fs::create_dir_all(&config.data_dir).with_context(|| format!("cannot create {}", config.data_dir.display()))?;
    // `ferry down` must know it even when this process is gone.
    fs::write(config.data_dir.join("bridge"), &config.bridge)?;
    fs::write(config.data_dir.join("cgroup-root"), config.cgroup_root.as_os_str().as_encoded_bytes())?;

    let tasks = Tasks::new("ferry");
    let server_tasks = Tasks::new("server");
    let door = open_front_door(&config, listener, &server_tasks);
    // The runtime takes longest to start, so it starts beside the API server.
    let (door, ()) = tokio::try_join!(door, async {
        start_runtime(&config, &tasks).await?;
        progress.say("container runtime");
        Ok(())
    })?;
    let (door, pki, renewals) = door;
    progress.say("API server");

    let informers = Informers::new(door.client(UserInfo::new("system:kube-controller-manager", &[])), tasks.clone());
    start_control_plane(&config, &door, &pki, &informers, &tasks).await?;
    start_node(&config, &door, &pki, &renewals, &informers, &tasks).await?;
    progress.say("node");
    progress.done(&config);

    signals::wait().await?;
    tasks.stop(STOP_PATIENCE).await;
    door.server.stop(STOP_PATIENCE).await;
    server_tasks.stop(STOP_PATIENCE).await;
    Ok(())
}

async fn start_runtime(config: &ClusterConfig, tasks: &Tasks) -> Result<()> {
    match config.container_runtime {
        ContainerRuntime::Containerd => {
            let containerd = Containerd::new(&config.data_dir, &config.run_dir);
            let pid = containerd.ensure(config).await?;
            let supervised = config.clone();
            tasks.spawn_until_stopped("containerd", async move { containerd.supervise(supervised, pid).await });
            Ok(())
        }
        ContainerRuntime::Embedded => embedded::start(config, tasks).await,
        ContainerRuntime::Other(_) => Ok(()),
    }
}

async fn open_front_door(
    config: &ClusterConfig,
    listener: tokio::net::TcpListener,
    tasks: &Tasks,
) -> Result<(FrontDoor, Arc<Pki>, Arc<Renewals>)> {
    let pki = Arc::new(Pki::open(&config.data_dir.join("pki"))?);
    let renewals = Renewals::new(pki.clone());
    let serving = pki_plan::serving(&config.node_name, config.node_ip, config.service_cidr, &config.cluster_domain);
    let (reloads, flags) = (Reloads::new(), &config.server.authentication);
    let front_proxy = pki_plan::front_proxy(&pki, flags, &renewals)?;
    let client_ca = CaSource::Pem(pki.ca_certificate().to_owned());
    let authorities = Authorities::open(flags, client_ca, front_proxy.known_by, &reloads)?;
    let tls = server_tls_by(renewals.leaf(serving)?, authorities.verifier())?;
    let kubelets = client_tls(renewals.leaf(pki_plan::kubelet_client())?, pki.ca_certificate())?;
    let door = FrontDoor::open(
        Options {
            state: &config.state,
            key_dir: &config.data_dir.join("pki"),
            signing_key: &pki.signing_key()?,
            service_cidr: &config.service_cidr.to_string(),
            advertise: config.node_ip,
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
        cluster_cidr: Some(config.cluster_cidr.to_string()),
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

/// Starts the kubelet, then the network once the node has a range of addresses, then waits until the node is Ready.
async fn start_node(
    config: &ClusterConfig,
    door: &FrontDoor,
    pki: &Pki,
    renewals: &Renewals,
    informers: &Informers,
    tasks: &Tasks,
) -> Result<()> {
    let user = UserInfo::new(format!("system:node:{}", config.node_name), &["system:nodes"]);
    let serving = renewals.leaf(pki_plan::kubelet_serving(config))?;
    let runtime = config.runtime_socket();
    let mut kubelet = ferry_kubelet::Config::new(
        &config.node_name,
        config.node_ip,
        &runtime.to_string_lossy(),
        config.data_dir.join("kubelet"),
    );
    kubelet.log_dir = config.data_dir.join("logs");
    kubelet.cluster_dns = vec![config.dns_address().into()];
    kubelet.cluster_domain.clone_from(&config.cluster_domain);
    kubelet.port = config.kubelet_port;
    kubelet.cgroup_root.clone_from(&config.cgroup_root);
    kubelet.sandbox_image = Some(config.pause_image.clone());
    config.kubelet.apply(&mut kubelet);
    kubelet.tls = Some(ferry_kubelet::Tls { server: server_tls(serving, pki.ca_certificate())? });
    ferry_kubelet::start(kubelet, door.client(user), tasks).await.context("cannot start the kubelet")?;

    let nodes = informers.of::<Node>();
    let range = until(&nodes, &config.node_name, |node| node.spec.as_ref()?.pod_cidr.clone()).await;
    let pod_cidr = Cidr::parse("pod-cidr", &range)?;
    network::prepare(config, pod_cidr)?;
    network::write_cni(config, pod_cidr)?;
    let proxy = ferry_proxy::Config {
        node_name: config.node_name.clone(),
        pod_cidr: config.cluster_cidr.to_string(),
        service_cidrs: vec![config.service_cidr.to_string()],
        table: network::proxy_table(&config.bridge),
        ..ferry_proxy::Config::default()
    };
    let proxy = ferry_proxy::start(proxy, informers, tasks).await.context("cannot start the service proxy")?;
    let admin = door.client(UserInfo::new("system:apiserver", &[MASTERS]));
    cluster_dns::start(config, pod_cidr.address(1), admin, informers, tasks).await?;
    proxy.ready().await;
    until(&nodes, &config.node_name, |node| {
        let conditions = node.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True").then_some(())
    })
    .await;
    Ok(())
}

/// Waits until a node shows what is looked for.
async fn until<T>(nodes: &Informer<Node>, name: &str, look: impl Fn(&Node) -> Option<T>) -> T {
    let mut changes = nodes.subscribe();
    loop {
        if let Some(found) = nodes.get("", name).and_then(|node| look(&node)) {
            return found;
        }
        changes.next().await;
    }
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
