//! The node agent: runs the pods that are bound to its node, over any container runtime that speaks CRI.
//!
//! Where to enter: [`start`] wires everything. A pod's way leads from `manager` (which pods there are) to `worker`
//! (one task per pod), which asks `plan` what to do and `status` what to report; both are pure functions. `spec` turns
//! a pod into what the runtime is told, `volumes` makes what is mounted, `probes` asks containers how they are, `node`
//! keeps the Node object, `plugins` meets drivers, `device_plugins` and `dra` give out
//! devices, and `server` answers for logs, exec, attach and port-forward. `eviction` ends pods when the
//! node runs short of something, `collect` removes what nobody needs.
//!
//! Containers are reached through the `runtime` trait over CRI alone. Must not depend on any server-side crate.

mod admit;
mod backoff;
mod cgroups;
mod checkpoint_file;
mod collect;
mod config;
mod context;
mod cpu_manager;
mod credentials;
mod device_plugins;
mod dra;
mod events;
mod eviction;
mod healthz;
mod hooks;
mod images;
mod kernel_defaults;
mod local_volumes;
mod logs;
mod mailboxes;
mod manager;
mod manifests;
mod memory_manager;
mod memory_policy;
mod metrics;
mod node;
mod node_resources;
mod plan;
mod plugins;
mod pod;
mod pod_resources;
mod pod_task;
mod preempt;
mod probes;
mod pull_limits;
mod pulled;
mod quantity;
mod runtime;
mod server;
mod settings;
mod shutdown;
mod sources;
mod spec;
mod status;
mod sysctls;
mod termination;
mod topology_manager;
mod user_namespaces;
mod volumes;
mod worker;

use std::sync::Arc;

use ferry_client::{Api, Informer, Recorder, Selection};
use ferry_tasks::Tasks;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use tokio::net::TcpListener;

pub use backoff::RestartDelays;
pub use cgroups::{CgroupDriver, slice_of};
pub use collect::ImageCollection;
pub use config::{Config, NetworkGate, Tls};
pub use eviction::{Amount, Eviction, SettingsError, Signal, Statements, Threshold};
pub use manifests::Manifests;
pub use memory_policy::{MemoryPolicy, SwapBehavior};
pub use node_resources::{NodeResources, ResourcesError, Statements as ResourceStatements};
pub use pulled::{Verification, VerificationError};
pub use settings::{Endpoints, Logs, Pulls, Report, Settings};
pub use shutdown::{LogindPlaces, ShutdownPeriod};
pub use sysctls::{SysctlError, Sysctls};

use context::{Context, Hardware, Machine, PressureState, Registration};
use eviction::Evictor;
use images::Images;
use mailboxes::Mailboxes;
use manager::Manager;
use pull_limits::PullLimits;
use runtime::{CriRuntime, Runtime};
use server::Server;
use sources::Sources;
use volumes::Volumes;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the container runtime is not there")]
    Runtime(#[from] ferry_cri::ConnectError),
    #[error("making {path}")]
    Folder { path: std::path::PathBuf, source: std::io::Error },
    #[error("{0}")]
    ControlGroups(String),
    /// It cannot do what the configuration asks for.
    #[error("{0}")]
    Machine(&'static str),
    #[error("{0}")]
    Resources(String),
    #[error("listening on port {port}")]
    Listen { port: u16, source: std::io::Error },
}

/// A running kubelet. It stops with the tasks it was started in.
pub struct Kubelet {
    context: Arc<Context>,
}

impl Kubelet {
    /// The port of the kubelet's server.
    pub fn port(&self) -> u16 {
        self.context.port()
    }
}

/// Registers the node and runs its pods until `tasks` stop. Containers go on running then.
pub fn start(config: Config, client: Client, tasks: &Tasks) -> BoxFuture<'_, Result<Kubelet, Error>> {
    // Boxed: what an async function does is compiled by whoever awaits it, which is the binary.
    Box::pin(begin(config, client, tasks))
}

async fn begin(mut config: Config, client: Client, tasks: &Tasks) -> Result<Kubelet, Error> {
    let tasks = &tasks.child("kubelet");
    let clock = config.clock.clone();
    let groups = cgroups::ControlGroups::new(std::path::Path::new("/sys/fs/cgroup"), &config.cgroup_root)
        .limiting_processes(config.pod_pids, None)
        .with_memory(config.settings.memory);
    groups.check().map_err(Error::ControlGroups)?;
    prepare_folders(&mut config).await?;
    let here = memory_policy::Machine::here();
    if let Some(why) = memory_policy::refusal(&config.settings.memory, config.settings.fail_cgroup_v1, &here) {
        return Err(Error::Machine(why));
    }
    if config.settings.protect_kernel_defaults {
        kernel_defaults::check(std::path::Path::new("/proc/sys")).map_err(Error::Resources)?;
    }
    if user_namespaces::ranges(config.settings.ids_per_pod) < config.max_pods {
        let (ids, most) = (config.settings.ids_per_pod, config.max_pods);
        return Err(Error::Resources(format!("userNamespaces.idsPerPod {ids} is too much for {most} pods")));
    }
    if let Some(score) = config.settings.oom_score_adj
        && let Err(error) = tokio::fs::write("/proc/self/oom_score_adj", score.to_string()).await
    {
        tracing::warn!("oomScoreAdj {score} is not set: {error}");
    }
    let has = node::capacity::of_machine(&config);
    config.resources.fits(&has).map_err(Error::Resources)?;
    let groups = groups.limiting_all(&config.resources.top_limits(&has, node::capacity::most_of_pods()));
    let sys = std::path::Path::new("/sys");
    let (topology, numa) = (cpu_manager::topology::Topology::read(sys), topology_manager::numa::Numa::read(sys));
    let cpus =
        cpu_manager::CpuManager::open(&config.root_dir, &config.resources, topology).map_err(Error::Resources)?;
    let kept = config.resources.kept_memory(&has);
    let memory = memory_manager::MemoryManager::open(&config.root_dir, &config.resources, &numa, kept);
    let memory = memory.map_err(Error::Resources)?;
    let topology = topology_manager::TopologyManager::new(&config.resources.topology, numa);
    let topology = topology.map_err(Error::Resources)?;
    let metrics = Arc::<metrics::Metrics>::default();
    let patience = config.settings.runtime_timeout;
    let runtime = CriRuntime::connect(&config.cri_endpoint, patience, metrics.clone()).await?;
    // What the runtime says counts: both have to be of one mind.
    if let Some(driver) = runtime.cgroup_driver().await.map_err(Error::ControlGroups)? {
        config.cgroup_driver = driver;
    }
    let groups = groups.driven_by(config.cgroup_driver).await.map_err(Error::ControlGroups)?;
    let runtime: Arc<dyn Runtime> = runtime;
    refuse_other_driver(&config, &groups, &*runtime).await?;
    let listener = match &config.tls {
        Some(tls) => {
            let bound = server::bind(config.listen_ip.unwrap_or(config.node_ip), config.port).await;
            Some((bound.map_err(|source| Error::Listen { port: config.port, source })?, tls.clone()))
        }
        None => None,
    };
    let port = listener.as_ref().and_then(|(l, _)| l.local_addr().ok()).map_or(config.port, |a| a.port());
    let mailboxes = Mailboxes::default();
    let waking = mailboxes.clone();
    let sources = Sources::new(client.clone(), &config.node_name, tasks, move |uid| waking.sources_changed(uid));
    let plugins = Arc::<plugins::Plugins>::default();
    let devices = device_plugins::Devices::open(&config.root_dir, metrics.clone(), tasks);
    let dra = dra::Dra::open(&config.root_dir);
    let records = pulled::PullRecords::open(&config.root_dir, config.image_credentials.clone(), clock.clone());
    let records = records.map_err(|source| Error::Folder { path: config.root_dir.join("image_manager"), source })?;
    let own_pods = Selection::fields(format!("spec.nodeName={}", config.node_name));
    let context = Arc::new(Context {
        recorder: Recorder::at_rate(client.clone(), "kubelet", &config.node_name, config.settings.events, tasks),
        images: Images::new(
            runtime.clone(),
            records,
            PullLimits::new(config.settings.pulls),
            metrics.clone(),
            clock.clone(),
        ),
        volumes: Volumes::new(
            &config.root_dir,
            client.clone(),
            &config.node_name,
            sources.clone(),
            plugins.clone(),
            clock.clone(),
            tasks,
        ),
        services: Informer::with(client.clone(), tasks, Selection::default()),
        machine: Machine {
            addresses: std::iter::once(&config.node_ip)
                .chain(&config.other_node_ips)
                .map(ToString::to_string)
                .collect(),
            allocatable: node::capacity::amounts(&config).allocatable,
            memory: i64::try_from(node::capacity::memory("MemTotal")).unwrap_or(i64::MAX),
            swap: here,
            apparmor: spec::apparmor::is_enabled(),
            port,
        },
        registration: Registration {
            nodes: Informer::with(
                client.clone(),
                tasks,
                Selection::fields(format!("metadata.name={}", config.node_name)),
            ),
            uid: Default::default(),
        },
        runtime_state: Default::default(),
        hardware: Hardware {
            groups,
            topology: Arc::new(topology),
            cpus: Arc::new(cpus),
            memory: Arc::new(memory),
            plugins,
            devices,
            dra,
        },
        users: Arc::new(user_namespaces::UserNamespaces::new(&config.root_dir, config.settings.ids_per_pod)),
        pressure: PressureState {
            measures: Default::default(),
            signals: Default::default(),
            ended: Default::default(),
            images: collect::Images::new(clock.now()),
        },
        shutdown: shutdown::ShutdownState::open(&config.root_dir),
        metrics,
        tasks: tasks.clone(),
        log_files: Arc::default(),
        probe_counts: Default::default(),
        mirrors: Default::default(),
        clock,
        sources,
        runtime,
        client: client.clone(),
        config,
    });
    node_resources::enforce(&context).await.map_err(Error::Resources)?;
    if let Err(why) = context.images.recover().await {
        tracing::warn!("what became of earlier pulls is not known, and their images are pulled anew: {why}");
    }
    keep_registered(&context, tasks);
    let pods = Informer::<Pod>::trimmed(Api::all(client), tasks, own_pods, pod::comes_from_api);
    if let Some(listener) = listener {
        serve(&context, &pods, &mailboxes, listener, tasks);
    }
    keep_running(&context, &pods, &mailboxes, tasks);
    Manager::new(context.clone(), pods, mailboxes, tasks).start();
    Ok(Kubelet { context })
}

/// Pods whose processes are in the groups of another driver would have no limits and no figures.
async fn refuse_other_driver(
    config: &Config,
    groups: &cgroups::ControlGroups,
    runtime: &dyn Runtime,
) -> Result<(), Error> {
    // Whoever cannot be asked has its troubles told elsewhere.
    let running = runtime.running().await.unwrap_or_default();
    match running.iter().find(|one| groups.is_elsewhere(&one.uid)) {
        None => Ok(()),
        Some(one) => Err(Error::ControlGroups(format!(
            "pod {} runs in a control group of another driver than {}: pods have to be stopped before cgroupDriver is changed",
            one.uid,
            config.cgroup_driver.name()
        ))),
    }
}

/// The kubelet's folders, by paths without links.
async fn prepare_folders(config: &mut Config) -> Result<(), Error> {
    for folder in [&mut config.root_dir, &mut config.log_dir] {
        let made = async {
            tokio::fs::create_dir_all(&*folder).await?;
            // Files of pods are opened by paths without links.
            tokio::fs::canonicalize(&*folder).await
        };
        *folder = made.await.map_err(|source| Error::Folder { path: folder.clone(), source })?;
    }
    if let Some(links) = &config.log_links {
        let made = tokio::fs::create_dir_all(links).await;
        made.map_err(|source| Error::Folder { path: links.clone(), source })?;
    }
    if let Some(folder) = config.local_volumes.take() {
        let made = async {
            tokio::fs::create_dir_all(&folder).await?;
            tokio::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o750)).await?;
            tokio::fs::canonicalize(&folder).await
        };
        let folder = made.await.map_err(|source| Error::Folder { path: folder.clone(), source })?;
        config.annotations.insert(local_volumes::SERVES.to_owned(), folder.to_string_lossy().into_owned());
        config.local_volumes = Some(folder);
    }
    // Nobody else of this machine gets at the files of pods: Secrets, programs with the set-user-id bit.
    for folder in [config.root_dir.clone(), config.root_dir.join("pods")] {
        let closed = async {
            tokio::fs::create_dir_all(&folder).await?;
            tokio::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o750)).await
        };
        closed.await.map_err(|source| Error::Folder { path: folder.clone(), source })?;
    }
    Ok(())
}

/// The Node object and its lease.
fn keep_registered(context: &Arc<Context>, tasks: &Tasks) {
    let of_node = context.clone();
    tasks.spawn_critical("node status", move || {
        let context = of_node.clone();
        async move {
            let node = node::register(&context).await;
            context.registration.uid.send_replace(node.metadata.uid.clone());
            node::keep_status(context, node).await;
        }
    });
    let of_lease = context.clone();
    tasks.spawn_critical("lease", move || {
        let context = of_lease.clone();
        async move {
            let registered =
                context.registration.uid.subscribe().wait_for(Option::is_some).await.map(|uid| uid.clone());
            node::keep_lease(context, registered.unwrap_or_default()).await;
        }
    });
}

/// The kubelet's own server: logs, exec, metrics.
fn serve(
    context: &Arc<Context>,
    pods: &Informer<Pod>,
    mailboxes: &Mailboxes,
    (listener, tls): (TcpListener, Tls),
    tasks: &Tasks,
) {
    let server = Server {
        context: context.clone(),
        pods: pods.clone(),
        mailboxes: mailboxes.clone(),
        tasks: tasks.clone(),
        last_seen: Default::default(),
        connections: server::connections(),
        local_volumes: context
            .config
            .local_volumes
            .clone()
            .map(|folder| local_volumes::LocalVolumes::new(folder, context.config.root_dir.join("pods"), tasks)),
    };
    let (server, listener) = (Arc::new(server), Arc::new(listener));
    tasks.spawn_critical("server", move || server::serve(server.clone(), listener.clone(), tls.clone()));
}

/// What goes on beside the pods' workers.
fn keep_running(context: &Arc<Context>, pods: &Informer<Pod>, mailboxes: &Mailboxes, tasks: &Tasks) {
    let own = context.clone();
    tasks.spawn_critical("rotation", move || {
        logs::rotate(own.log_files.clone(), own.runtime.clone(), logs::Kept::of(&own.config))
    });
    let (own, boxes) = (context.clone(), mailboxes.clone());
    tasks.spawn_critical("eviction", move || Evictor { context: own.clone(), mailboxes: boxes.clone() }.run());
    let own = context.clone();
    tasks.spawn_critical("plug-ins", move || plugins::follow(own.clone()));
    let own = context.hardware.devices.clone();
    tasks.spawn_critical("device plug-ins", move || device_plugins::serve(own.clone()));
    let (own, known) = (context.clone(), pods.clone());
    tasks.spawn_critical("pod resources", move || pod_resources::serve(own.clone(), known.clone()));
    let own = context.clone();
    tasks.spawn_critical("CPU manager", move || cpu_manager::reconcile(own.clone()));
    let own = context.clone();
    tasks.spawn_critical("images", move || collect::images(own.clone()));
    if let Some(address) = context.config.settings.healthz {
        let group = tasks.clone();
        tasks.spawn_critical("healthz", move || healthz::serve(address, group.clone()));
    }
    if !context.config.settings.shutdown.is_empty() {
        let (own, boxes) = (context.clone(), mailboxes.clone());
        tasks.spawn_critical("node shutdown", move || shutdown::watch(own.clone(), boxes.clone()));
    }
    let (own, known, boxes) = (context.clone(), pods.clone(), mailboxes.clone());
    tasks.spawn_critical("stray logs", move || collect::logs(own.clone(), known.clone(), boxes.clone()));
}
