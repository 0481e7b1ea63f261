//! `ferry cluster`: clusters of several nodes on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use ferry_client::Api;
use ferry_cluster::clusters::file::{File, MachineFile};
use ferry_cluster::clusters::init::{self, Start};
use ferry_cluster::clusters::machine::{self, Waiting};
use ferry_cluster::clusters::plan::{Home, Machine, Plan, Role};
use ferry_cluster::clusters::{host, kubeconfig};
use ferry_cluster::config::parse_mirror;
use ferry_cluster::container_runtime::{ContainerRuntime, EMBEDDED_SOCKET};
use ferry_cluster::fleet::publish::JOINING;
use ferry_cluster::node::tools;
use ferry_cluster::quorum;
use ferry_cluster::quorum::handover::Receiver;
use ferry_cri::{CriClient, v1};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::fs::{FlockOperation, flock};

use crate::commands::{nodes, token};
use crate::fleet_options::{ClusterCommand, ClustersOptions, CreateOptions};

/// How long a node has to show the token that it joins with.
const TOKEN_LIFE: Duration = Duration::from_secs(600);

pub fn run(options: &ClustersOptions) -> Result<()> {
    let home = Home(std::path::absolute(&options.clusters_dir)?);
    if let ClusterCommand::List = options.command {
        return list(&home);
    }
    ensure!(rustix::process::geteuid().is_root(), "a cluster needs root for namespaces, mounts and packet rules");
    match &options.command {
        ClusterCommand::Create(options) => create(&home, options),
        ClusterCommand::List => list(&home),
        ClusterCommand::Delete { name } => name.iter().try_for_each(|name| delete(&home, name)),
        ClusterCommand::Stop { name } => stop(&home, name),
        ClusterCommand::Start { name } => start(&home, name),
        ClusterCommand::Kubeconfig { name } => {
            print!("{}", ferry_schema::yaml::to_yaml(&entry(&home, &home.find(name)?)?));
            Ok(())
        }
        ClusterCommand::Load { name, image } => load(&home, name, image),
        ClusterCommand::Machine { name, index } => init::run(&home, name, *index),
    }
}

/// One command at a time changes the clusters of this machine.
fn exclusive(home: &Home) -> Result<fs::File> {
    fs::create_dir_all(&home.0).with_context(|| format!("cannot create {}", home.0.display()))?;
    let folder = fs::File::open(&home.0)?;
    flock(&folder, FlockOperation::LockExclusive).context("cannot lock the clusters of this machine")?;
    Ok(folder)
}

fn create(home: &Home, options: &CreateOptions) -> Result<()> {
    let begin = Instant::now();
    tools::check(&ContainerRuntime::Embedded)?;
    ensure!(!home.0.starts_with("/run"), "--clusters-dir must not be in /run: each node has a /run of its own");
    let mut plan = planned(options)?;
    plan.check()?;
    if plan.servers() > 1 {
        quorum::process::program(None).with_context(|| format!("{} servers need an etcd", plan.servers()))?;
    }
    kubeconfig::check_free(&plan.kubeconfig, &plan.context())?;
    let _one = exclusive(home)?;
    ensure!(
        !home.folder(&plan.name).exists(),
        "there is a cluster called {} already; delete it with `ferry cluster delete {}` or choose another name",
        plan.name,
        plan.name
    );
    let taken: Vec<u8> = home.all()?.iter().map(|known| known.number).collect();
    plan.number = host::free_number(&taken)?;
    let folder = home.folder(&plan.name);
    fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let made = home.write(&plan).and_then(|()| bring_up(home, &plan, begin));
    if let Err(error) = made {
        // Nothing half-made stays.
        if let Err(left) = discard(home, &plan) {
            eprintln!("ferry: {left:#}");
        }
        return Err(error);
    }
    println!("ready: kubectl --context {} get nodes", plan.context());
    Ok(())
}

fn planned(options: &CreateOptions) -> Result<Plan> {
    Plan::check_name(&options.name)?;
    let mut file = match &options.config {
        Some(path) => File::read(path)?,
        None => File::plain(options.servers, options.nodes),
    };
    if file.servers.is_empty() && options.config.is_some() {
        file.servers.push(MachineFile::default());
    }
    for mirror in &options.registry_mirror {
        let mirror = parse_mirror(mirror)?;
        file.registry_mirrors.insert(mirror.registry, mirror.url);
    }
    for (registry, url) in &file.registry_mirrors {
        parse_mirror(&format!("{registry}={url}"))?;
    }
    let named = |role, word: &str, all: &[MachineFile]| {
        let machine = |(number, machine): (usize, &MachineFile)| Machine {
            role,
            name: format!("{}-{word}-{number}", options.name),
            labels: machine.labels.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            taints: machine.taints.clone(),
            port_mappings: machine.port_mappings.clone(),
        };
        all.iter().enumerate().map(machine).collect::<Vec<_>>()
    };
    let mut machines = named(Role::Server, "server", &file.servers);
    machines.extend(named(Role::Node, "node", &file.nodes));
    Ok(Plan {
        name: options.name.clone(),
        number: 0,
        machines,
        registry_mirrors: file.registry_mirrors,
        pod_network: file.networking.pod_network,
        cluster_cidr: file.networking.pod_subnet,
        service_cidr: file.networking.service_subnet,
        kubeconfig: match &options.kubeconfig {
            Some(path) => std::path::absolute(path)?,
            None => kubeconfig::usual_file()?,
        },
    })
}

/// Starts what does not run, the server first, and returns when all nodes are Ready.
fn bring_up(home: &Home, plan: &Plan, begin: Instant) -> Result<()> {
    host::prepare(plan)?;
    let mut absent = Vec::new();
    for index in 0..plan.machines.len() {
        if machine::pid(home, plan, index)?.is_none() {
            absent.push(index);
        }
    }
    // The namespaces of all are made at once; nodes wait until there is a server to join.
    let waiting: Result<Vec<(usize, Waiting)>> =
        in_parallel(absent, |index| machine::prepare(home, plan, index).map(|waiting| (index, waiting)));
    let (servers, nodes): (Vec<_>, Vec<_>) =
        waiting?.into_iter().partition(|(index, _)| plan.machines[*index].role == Role::Server);
    let run = |(index, waiting): (usize, Waiting), start: &Start| -> Result<()> {
        waiting.start(start)?;
        let name = &plan.machines[index].name;
        println!("{:>7.1} s  {name} is Ready at {}", begin.elapsed().as_secs_f64(), plan.address(index));
        Ok(())
    };
    let (mut known, mut new) = (Vec::new(), Vec::new());
    for server in servers {
        let joined = init::has_joined(plan, server.0, &home.data_dir(plan, server.0))?;
        if joined { known.push(server) } else { new.push(server) }
    }
    // All at once: none is ready before most of them are there.
    in_parallel(known, |server| run(server, &Start::default()))?;
    let entry = entry(home, plan)?;
    let mut joining = false;
    for (index, _) in &nodes {
        joining |= !init::has_joined(plan, *index, &home.data_dir(plan, *index))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(client(&entry))?;
    if !new.is_empty() {
        let first = home.data_dir(plan, 0);
        let made = token::create_for_member(&client, TOKEN_LIFE, "ferry cluster", &first, Receiver::Server);
        let (_, token) = runtime.block_on(made)?;
        let start = Start { token: Some(token.to_string()) };
        let started: Result<Vec<()>> = in_parallel(new, |server| run(server, &start));
        runtime.block_on(forget(&client, &token.join.id));
        started?;
    }
    let token = if joining {
        Some(runtime.block_on(token::create(&client, TOKEN_LIFE, "ferry cluster", JOINING))?.1)
    } else {
        None
    };
    let start = Start { token: token.as_ref().map(ToString::to_string) };
    let started: Result<Vec<()>> = in_parallel(nodes, |node| run(node, &start));
    if let Some(token) = token {
        runtime.block_on(forget(&client, &token.id));
    }
    started?;
    kubeconfig::merge(&plan.kubeconfig, &entry)
}

/// Takes a token away that has done its work.
async fn forget(client: &kube::Client, token: &str) {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    // It ends by itself soon.
    let _ = secrets.delete(&format!("bootstrap-token-{token}"), &DeleteParams::default()).await;
}

fn in_parallel<T: Send, R: Send>(all: Vec<T>, work: impl Fn(T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = all.into_iter().map(|one| scope.spawn(move || work(one))).collect();
        let done: Vec<Result<R>> =
            running.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(anyhow!("it panicked")))).collect();
        done.into_iter().collect()
    })
}

/// The cluster's entry for kubeconfigs.
fn entry(home: &Home, plan: &Plan) -> Result<serde_json::Value> {
    kubeconfig::renamed(&home.data_dir(plan, 0).join("kubeconfig"), &plan.server(), &plan.context())
}

async fn client(entry: &serde_json::Value) -> Result<kube::Client> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file: Kubeconfig = serde_json::from_value(entry.clone())?;
    ferry_cluster::kubeconfig::connect(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

fn list(home: &Home) -> Result<()> {
    let mut rows = vec![["NAME", "STATUS", "SERVERS", "NODES", "API SERVER", "CONTEXT"].map(str::to_owned)];
    for plan in home.all()? {
        let mut running = 0;
        for index in 0..plan.machines.len() {
            running += usize::from(machine::pid(home, &plan, index)?.is_some());
        }
        let status = match running {
            0 => "stopped".to_owned(),
            all if all == plan.machines.len() => "running".to_owned(),
            some => format!("{some} of {} nodes run", plan.machines.len()),
        };
        let servers = plan.machines.iter().filter(|machine| machine.role == Role::Server).count();
        let (server, context) = (plan.server(), plan.context());
        let nodes = plan.machines.len() - servers;
        rows.push([plan.name, status, servers.to_string(), nodes.to_string(), server, context]);
    }
    print!("{}", nodes::table(&rows));
    Ok(())
}

fn delete(home: &Home, name: &str) -> Result<()> {
    let _one = exclusive(home)?;
    match home.read(name)? {
        Some(plan) => discard(home, &plan)?,
        // A creation that was cut off at its very beginning.
        None if home.folder(name).exists() => fs::remove_dir(home.folder(name))?,
        None => {
            home.find(name)?;
        }
    }
    println!("deleted {name}");
    Ok(())
}

/// Takes everything of a cluster away, as much as can be, and says what could not.
fn discard(home: &Home, plan: &Plan) -> Result<()> {
    // What runs goes first: the folder must not change any more when it is removed.
    machine::end_all(home, plan, true)?;
    host::remove(plan);
    let forgotten = kubeconfig::remove(&plan.kubeconfig, &plan.context());
    let folder = home.folder(&plan.name);
    ferry_podfs::remove_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    forgotten.with_context(|| format!("the context {} stays", plan.context()))
}

fn stop(home: &Home, name: &str) -> Result<()> {
    let plan = home.find(name)?;
    let _one = exclusive(home)?;
    machine::end_all(home, &plan, false)?;
    host::remove(&plan);
    println!("stopped {name}; `ferry cluster start {name}` starts it again");
    Ok(())
}

fn start(home: &Home, name: &str) -> Result<()> {
    let begin = Instant::now();
    let plan = home.find(name)?;
    tools::check(&ContainerRuntime::Embedded)?;
    let _one = exclusive(home)?;
    bring_up(home, &plan, begin)?;
    println!("ready: kubectl --context {} get nodes", plan.context());
    Ok(())
}

/// Brings images to all nodes of a cluster that runs.
fn load(home: &Home, name: &str, images: &[String]) -> Result<()> {
    let plan = home.find(name)?;
    let mut sockets = Vec::new();
    for (index, machine) in plan.machines.iter().enumerate() {
        let pid = machine::pid(home, &plan, index)?;
        let pid =
            pid.with_context(|| format!("{} does not run; start it with `ferry cluster start {name}`", machine.name))?;
        // The node's own /run, seen from the host.
        sockets.push((machine.name.clone(), format!("/proc/{pid}/root{}/{}", init::RUN_DIR, EMBEDDED_SOCKET)));
    }
    for image in images {
        let path = Path::new(image);
        let archive = if path.is_file() { Some(Archive::copy(home, &plan, path)?) } else { None };
        ensure!(archive.is_some() || !(image.starts_with('/') || image.starts_with('.')), "there is no file {image}");
        in_parallel(sockets.clone(), |(node, socket)| {
            let loaded = bring(&socket, image, archive.as_ref().map(|archive| archive.0.as_path()));
            let loaded = loaded.with_context(|| format!("{node} did not take {image}"))?;
            println!("{node} has {loaded}");
            Ok(())
        })?;
    }
    Ok(())
}

/// An archive where all nodes see it, for as long as they read it.
struct Archive(PathBuf);

impl Archive {
    fn copy(home: &Home, plan: &Plan, from: &Path) -> Result<Self> {
        let copy = Self(home.folder(&plan.name).join(format!("load-{}.tar", std::process::id())));
        fs::copy(from, &copy.0).with_context(|| format!("cannot copy {}", from.display()))?;
        Ok(copy)
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn bring(socket: &str, image: &str, archive: Option<&Path>) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, _) = CriClient::connect(socket).await?;
        let loaded = match archive {
            Some(archive) => client.load_archive(archive).await,
            None => {
                let spec = v1::ImageSpec { image: image.to_owned(), ..v1::ImageSpec::default() };
                client.pull_image(v1::PullImageRequest { image: Some(spec), ..v1::PullImageRequest::default() }).await
            }
        };
        match loaded {
            Ok(loaded) if archive.is_some() => Ok(loaded.image_ref),
            Ok(_) => Ok(image.to_owned()),
            Err(status) => bail!("{}", status.message()),
        }
    })
}
