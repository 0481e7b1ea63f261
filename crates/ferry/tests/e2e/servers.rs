//! Three servers, each a machine with an etcd member of its own: they are killed, stopped, cut off from each other, run out of disk and
//! have their clocks moved in turn, while clients write through all of them. What was acknowledged is there at the end, watches told all of it in order, and nothing was handed
//! out twice.
//!
//! What happens to whom comes from a seed, which is printed; `FERRY_SEED` repeats it, and `FERRY_FAULTS` says how much happens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::Client;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::cluster::{PATIENCE, until};
use crate::fleet::{Bed, address, refusal, sh, succeed};
use crate::server_faults::{Fault, NODE, befall, node_is_ready, prepare};

const SERVERS: [&str; 3] = ["s1", "s2", "s3"];
/// Where clients are: a machine that no fault befalls.
const CLIENT: &str = "c1";
/// How many things befall servers unless `FERRY_FAULTS` says otherwise.
const FAULTS: usize = 6;

fn up_flags() -> [&'static str; 3] {
    ["--cluster-init", "--pod-network=routes", "--cluster-cidr=10.201.0.0/16"]
}

/// The etcd of a server.
pub fn member(bed: &Bed, machine: &str) -> Option<Pid> {
    let data = format!("--data-dir={}/etcd", bed.path(machine, "data").display());
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        command.split(|byte| *byte == 0).any(|word| word == data.as_bytes()).then(|| Pid::from_raw(pid))?
    })
}

pub fn server_list(bed: &Bed) -> String {
    let mut command = bed.ferry("s1");
    succeed(command.arg("server").arg("list").arg(&bed.folders("s1")[0]))
}

fn until_all_vote(bed: &Bed) {
    until("three servers vote and are healthy", || {
        let mut command = bed.ferry("s1");
        let output = command.arg("server").arg("list").arg(&bed.folders("s1")[0]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let good = text.lines().filter(|line| line.ends_with("healthy") && !line.contains("learner")).count();
        (output.status.success() && good == SERVERS.len()).then_some(())
    });
}

/// A server's token, made on the first server.
pub fn token(bed: &Bed) -> (String, String) {
    token_for(bed, "--server", ["ferry", "join", "--server"])
}

/// The address and the token on the line that the flag makes, which begins with these words.
pub fn token_for(bed: &Bed, flag: &str, begin: [&str; 3]) -> (String, String) {
    let mut command = bed.ferry("s1");
    command.args(["token", "create", flag, "--kubeconfig"]).arg(bed.kubeconfig()).arg(&bed.folders("s1")[0]);
    let line = succeed(&mut command);
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(&words[..3], begin, "{line}");
    (words[3].to_owned(), words[4].to_owned())
}

pub fn join(bed: &Bed, machine: &str, server: &str, token: &str) -> std::process::Command {
    let mut command = bed.ferry(machine);
    command.args(["join", "--server", server, token, "--secure-port", &bed.port.to_string()]);
    command.args(bed.node_flags(machine)).stdin(std::process::Stdio::null());
    command
}

/// Two machines become servers at once; a node's token makes none.
pub fn assemble(bed: &Bed) {
    bed.up("s1", &up_flags());
    let mut command = bed.ferry("s1");
    let line = succeed(command.args(["token", "create", "--kubeconfig"]).arg(bed.kubeconfig()));
    let node_token = line.split_whitespace().last().unwrap().to_owned();
    let (server, token) = token(bed);
    let refused = refusal(&join(bed, "s2", &server, &node_token).output().unwrap());
    assert!(refused.contains("for nodes") && !refused.contains(&node_token), "{refused}");
    let (head, rest) = token.split_once('@').unwrap();
    let (head, key) = head.rsplit_once('.').unwrap();
    let wrong = format!("{head}.{}@{rest}", "0".repeat(key.len()));
    let refused = refusal(&join(bed, "s2", &server, &wrong).output().unwrap());
    assert!(refused.contains("cannot be opened with this token"), "{refused}");

    let begin = Instant::now();
    let joining: Vec<_> = ["s2", "s3"]
        .map(|machine| {
            let log = std::fs::File::create(bed.path(machine, "join.log")).unwrap();
            let mut command = join(bed, machine, &server, &token);
            (machine, command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
        })
        .into();
    for (machine, mut process) in joining {
        let ended = process.wait().unwrap();
        let said = std::fs::read_to_string(bed.path(machine, "join.log")).unwrap();
        assert!(ended.success(), "{machine}: {said}");
    }
    println!("    two servers joined within {:.1} s", begin.elapsed().as_secs_f64());
    until_all_vote(bed);
    println!("{}", server_list(bed));
}

/// How clients reach all servers, by certificate.
struct Connections(Vec<kube::Config>);

fn connections(bed: &Bed) -> Connections {
    let text = std::fs::read_to_string(bed.kubeconfig()).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let user = &document["users"][0]["user"];
    let get = |name: &str| user[name].as_str().unwrap().to_owned();
    let config = |number: usize| {
        let mut config = kube::Config::new(format!("https://{}:{}", address(number), bed.port).parse().unwrap());
        config.accept_invalid_certs = true;
        config.default_namespace = "default".into();
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(2));
        config.read_timeout = Some(Duration::from_secs(20));
        config.auth_info.client_certificate_data = Some(get("client-certificate-data"));
        config.auth_info.client_key_data = Some(get("client-key-data").into());
        config
    };
    Connections((0..SERVERS.len()).map(config).collect())
}

impl Connections {
    fn connect(self) -> Vec<Client> {
        self.0.into_iter().map(|config| Client::try_from(config).unwrap()).collect()
    }
}

/// What the clients saw.
#[derive(Default)]
struct History {
    acknowledged: BTreeSet<String>,
    watched: BTreeSet<String>,
    services: BTreeSet<String>,
    /// The nodes that each pod was ever seen on, by its uid.
    nodes: BTreeMap<String, BTreeSet<String>>,
    problems: Vec<String>,
}

/// Runs `work` in the client's network until told to stop.
fn in_network<F>(bed: &Bed, work: impl FnOnce() -> F + Send + 'static) -> std::thread::JoinHandle<()>
where
    F: Future<Output = ()>,
{
    let network = format!("/run/netns/{}", bed.namespace(CLIENT));
    std::thread::spawn(move || {
        let network = std::fs::File::open(network).unwrap();
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), kind).unwrap();
        // Of one thread: it is this one that is in the network.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work());
    })
}

/// Tries each server until one takes it. What is there already was taken by one that could not say so.
async fn insist<K>(clients: &[Client], first: usize, object: &K, stop: &AtomicBool) -> bool
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    for step in 0.. {
        let api: Api<K> = Api::namespaced(clients[(first + step) % clients.len()].clone(), "default");
        let outcome = tokio::time::timeout(Duration::from_secs(8), api.create(&PostParams::default(), object)).await;
        match outcome {
            Ok(Ok(_)) => return true,
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => return true,
            _ if stop.load(Ordering::Relaxed) => return false,
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    false
}

async fn write(clients: Vec<Client>, writer: usize, history: Arc<Mutex<History>>, stop: Arc<AtomicBool>) {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("w{writer}-{number}");
        let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        if insist(&clients, writer + number, &map, &stop).await {
            history.lock().unwrap().acknowledged.insert(name);
        }
        let name = format!("s{writer}-{number}");
        let service: Service = serde_json::from_value(
            json!({ "metadata": { "name": name }, "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } }),
        )
        .unwrap();
        if number % 4 == 0 && insist(&clients, writer + number, &service, &stop).await {
            history.lock().unwrap().services.insert(name);
        }
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": format!("p{writer}-{number}") },
            "spec": { "nodeSelector": { "simulated": "yes" }, "containers": [{ "name": "c", "image": "example.test/none" }] },
        }))
        .unwrap();
        if number % 4 == 1 {
            insist(&clients, writer + number, &pod, &stop).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One watch over all of it, which goes on at another server where it was when one ends.
async fn follow<K>(
    clients: Vec<Client>,
    from: String,
    history: Arc<Mutex<History>>,
    stop: Arc<AtomicBool>,
    note: fn(&mut History, &K),
) where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug
        + Send
        + 'static,
{
    let mut reached: u64 = from.parse().unwrap();
    for attempt in 0.. {
        let api: Api<K> = Api::namespaced(clients[attempt % clients.len()].clone(), "default");
        let Ok(stream) = api.watch(&WatchParams::default().timeout(60), &reached.to_string()).await else {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut stream = stream.boxed();
        loop {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            // A server that is stopped keeps its connections: after a while another is asked.
            let event = match tokio::time::timeout(Duration::from_secs(3), stream.next()).await {
                Ok(Some(Ok(event))) => event,
                _ => break,
            };
            let (WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) = event else {
                if let WatchEvent::Error(status) = event {
                    history.lock().unwrap().problems.push(format!("a watch from {reached} failed: {status:?}"));
                    return;
                }
                continue;
            };
            let revision: u64 = object.meta().resource_version.as_ref().unwrap().parse().unwrap();
            let mut history = history.lock().unwrap();
            if revision <= reached {
                history.problems.push(format!("{revision} was told after {reached}"));
            }
            reached = revision;
            note(&mut history, &object);
        }
    }
}

/// A kubeconfig of the first server for programs on the client's machine.
fn kubeconfig_of(bed: &Bed, path: &Path, number: usize) {
    let mut document: Value = serde_json::from_str(&std::fs::read_to_string(bed.kubeconfig()).unwrap()).unwrap();
    let cluster = &mut document["clusters"][0]["cluster"];
    *cluster =
        json!({ "server": format!("https://{}:{}", address(number), bed.port), "insecure-skip-tls-verify": true });
    std::fs::write(path, document.to_string()).unwrap();
}

async fn settled(clients: &[Client], history: &Mutex<History>) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let services: Api<Service> = Api::namespaced(client.clone(), "default");
        let maps = maps.list(&ListParams::default()).await.unwrap();
        let names: BTreeSet<String> = maps.items.into_iter().filter_map(|map| map.metadata.name).collect();
        let services = services.list(&ListParams::default()).await.unwrap().items;
        let history = history.lock().unwrap();
        let lost: Vec<_> = history.acknowledged.difference(&names).collect();
        if !lost.is_empty() {
            problems.push(format!("server {number} lost {lost:?}"));
        }
        let known: BTreeSet<String> = services.iter().filter_map(|service| service.metadata.name.clone()).collect();
        let lost: Vec<_> = history.services.difference(&known).collect();
        if !lost.is_empty() {
            problems.push(format!("server {number} lost {lost:?}"));
        }
        let specs: Vec<_> = services.iter().filter_map(|service| service.spec.as_ref()).collect();
        let addresses: BTreeSet<_> = specs.iter().filter_map(|spec| spec.cluster_ip.as_deref()).collect();
        let ports: Vec<_> = specs.iter().filter_map(|spec| spec.ports.as_ref()?.first()?.node_port).collect();
        if addresses.len() != specs.len() || ports.iter().collect::<BTreeSet<_>>().len() != ports.len() {
            problems.push(format!("server {number}: of {} Services some share an address or a port", specs.len()));
        }
    }
    problems
}

pub fn three_servers_lose_nothing() {
    let seed = std::env::var("FERRY_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random::<u32>);
    println!("    FERRY_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed.into());
    let faults = std::env::var("FERRY_FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(FAULTS);
    let bed = Bed::new(&["s1", "s2", "s3", CLIENT, NODE]);
    for machine in SERVERS {
        prepare(&bed, machine);
    }
    assemble(&bed);
    let (address, node_token) = bed.token();
    let joined = bed.join(NODE, &address, &node_token);
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));

    let simulated = bed.path(CLIENT, "kubeconfig");
    kubeconfig_of(&bed, &simulated, 0);
    let mut nodes = bed.ferry(CLIENT);
    nodes.args(["node", "simulate", "--nodes=4", "--name-prefix=sim-", "--label=simulated=yes", "--kubeconfig"]);
    let nodes = nodes.arg(&simulated).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn();
    let mut nodes = nodes.expect("ferry runs");

    let (history, stop) = (Arc::new(Mutex::new(History::default())), Arc::new(AtomicBool::new(false)));
    let mut threads = Vec::new();
    for writer in 0..3 {
        let (history, stop) = (history.clone(), stop.clone());
        let configs = connections(&bed);
        threads.push(in_network(&bed, move || async move { write(configs.connect(), writer, history, stop).await }));
    }
    {
        let (history, stop, configs) = (history.clone(), stop.clone(), connections(&bed));
        threads.push(in_network(&bed, move || async move {
            let clients = configs.connect();
            let maps =
                follow::<ConfigMap>(clients.clone(), "1".into(), history.clone(), stop.clone(), |history, map| {
                    history.watched.extend(map.metadata.name.clone());
                });
            let pods = follow::<Pod>(clients, "1".into(), history, stop, |history, pod| {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
                history.nodes.entry(pod.metadata.uid.clone().unwrap_or_default()).or_default().extend(node);
            });
            futures::join!(maps, pods);
        }));
    }

    for fault in Fault::in_some_order(&mut random).into_iter().cycle().take(faults) {
        let machine = SERVERS[random.random_range(0..SERVERS.len())];
        let before = history.lock().unwrap().acknowledged.len();
        let begin = Instant::now();
        befall(&bed, fault, machine);
        until_all_vote(&bed);
        until("the node is Ready", || node_is_ready(&bed).then_some(()));
        until("writes go on", || (history.lock().unwrap().acknowledged.len() > before + 10).then_some(()));
        let after = history.lock().unwrap().acknowledged.len();
        println!(
            "    {fault:?} of {machine}: {} writes were acknowledged in {:.1} s",
            after - before,
            begin.elapsed().as_secs_f64()
        );
    }
    until("the watch has told all", || {
        let history = history.lock().unwrap();
        (history.acknowledged.is_subset(&history.watched) || !history.problems.is_empty()).then_some(())
    });
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("a client");
    }
    let (checked, configs) = (history.clone(), connections(&bed));
    let check = in_network(&bed, move || async move {
        let problems = tokio::time::timeout(PATIENCE, settled(&configs.connect(), &checked)).await.expect("an answer");
        checked.lock().unwrap().problems.extend(problems);
    });
    check.join().expect("the check");
    let _ = nodes.kill();
    let _ = nodes.wait();
    let history = history.lock().unwrap();
    println!(
        "    {} ConfigMaps, {} Services, {} pods of which {} were bound",
        history.acknowledged.len(),
        history.services.len(),
        history.nodes.len(),
        history.nodes.values().filter(|nodes| !nodes.is_empty()).count()
    );
    assert!(history.problems.is_empty(), "{:#?}", history.problems);
    let twice: Vec<_> = history.nodes.iter().filter(|(_, nodes)| nodes.len() > 1).collect();
    assert!(twice.is_empty(), "bound twice: {twice:?}");
    assert!(history.nodes.values().any(|nodes| !nodes.is_empty()), "no pod was bound");
    a_lost_quorum_is_told(&bed);
}

/// Two of three servers are away: whoever is left says what that means.
fn a_lost_quorum_is_told(bed: &Bed) {
    for machine in ["s2", "s3"] {
        sh(&format!("ip -n {} link set to-{machine} down", bed.namespace("hub")));
    }
    until("the list of servers tells that nothing can be written", || {
        let mut command = bed.ferry("s1");
        let output = command.arg("server").arg("list").arg(&bed.folders("s1")[0]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let away = text.lines().filter(|line| line.contains("unreachable")).count();
        (output.status.success() && text.contains("no write is possible now") && away == 2).then_some(())
    });
    until("why tells that nothing can be written", || {
        let mut command = bed.ferry("s1");
        let output = command.args(["why", "node/s1", "--kubeconfig"]).arg(bed.kubeconfig()).output().ok()?;
        String::from_utf8_lossy(&output.stdout).contains("nothing can be written").then_some(())
    });
}
