//! What clients were told through several API servers on one etcd, while servers and members are killed, stopped, cut off from each
//! other in both directions or one, and slowed down, and the same on the embedded store: each object's history is that of one
//! register, a patch takes nothing of another's away, watches tell all of it in order, and no address or node port is given twice.
//!
//! Everything random comes from a seed, which is printed; `FERRY_SEED` repeats it. `FERRY_HISTORIES` says how many histories
//! are made at least; few are unless it is given.

mod faults;
mod links;
mod merging;
mod watching;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferry_testkit::linearizability::{Answer, Call, Operation, check};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use self::faults::Plane;
use self::watching::Watcher;
use crate::alone::{create, runtime};
use crate::cluster::PATIENCE;

const CLIENTS: usize = 5;
/// Objects of a round, each with a history of its own.
const KEYS: usize = 5;
const STEPS: usize = 14;
/// How many there are unless more are asked for. The one server of the embedded store is away each time it is killed.
const HISTORIES: [usize; 2] = [60, 25];
/// Whoever hears nothing for so long does not know what became of it.
const DEADLINE: Duration = Duration::from_secs(5);

/// What all clients of a run share.
pub struct World {
    /// By server; None while it is away.
    pub clients: Mutex<Vec<Option<kube::Client>>>,
    clock: AtomicU64,
    values: AtomicU64,
    log: Mutex<BTreeMap<String, Vec<Operation>>>,
    /// Name, address and node port of each Service as it was acknowledged.
    services: Mutex<Vec<(String, String, i32)>>,
    /// Name, value and revision of each write as it was acknowledged.
    pub written: Mutex<Vec<(String, u64, u64)>>,
    merged: merging::Merged,
    pub done: AtomicBool,
    /// Everything that can happen has happened once.
    pub befallen: AtomicBool,
}

impl World {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// One of those that are there.
    pub async fn some_client(&self, random: &mut StdRng) -> kube::Client {
        loop {
            let there: Vec<kube::Client> = self.clients.lock().unwrap().iter().flatten().cloned().collect();
            if !there.is_empty() {
                return there[random.random_range(0..there.len())].clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn note(&self, key: &str, operation: Operation) {
        self.log.lock().unwrap().entry(key.to_owned()).or_default().push(operation);
    }
}

pub fn value_of(object: &ConfigMap) -> u64 {
    object.data.as_ref().and_then(|data| data.get("value")).and_then(|text| text.parse().ok()).unwrap_or_default()
}

pub fn revision_of(object: &ConfigMap) -> u64 {
    object.metadata.resource_version.as_ref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn object(name: &str, value: u64, revision: Option<&str>) -> ConfigMap {
    let metadata = json!({ "name": name, "resourceVersion": revision, "labels": { "history": "yes" } });
    serde_json::from_value(json!({ "metadata": metadata, "data": { "value": value.to_string() } })).unwrap()
}

/// What a refusal means. One of a request that is wrong in itself is a failure of this test.
fn meaning(error: &kube::Error) -> Answer {
    match error {
        kube::Error::Api(status) => match status.code {
            404 => Answer::Missing,
            409 => Answer::Conflict,
            400 | 401 | 403 | 405 | 422 => panic!("refused: {status:?}"),
            _ => Answer::Unknown,
        },
        _ => Answer::Unknown,
    }
}

/// One client's round: what it does depends on what it was told.
async fn client(world: Arc<World>, round: usize, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut known: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for step in 0..STEPS {
        let name = format!("r{round}k{}", random.random_range(0..KEYS));
        let api: Api<ConfigMap> = Api::namespaced(world.some_client(&mut random).await, "default");
        let new = world.values.fetch_add(1, Ordering::SeqCst);
        // At the end everybody looks once more at what is there.
        let choice = if step + KEYS >= STEPS { 0 } else { random.random_range(0..11) };
        match (choice, known.get(&name).cloned()) {
            (0..=1, _) => read(&world, &api, &name, &mut known).await,
            (2, _) => list(&world, &api, round, &mut known).await,
            (3, _) => service(&world, &mut random, new).await,
            (10, _) => merging::add(&world, &mut random, round, new).await,
            (4..=5, Some((expected, revision))) => {
                let began = world.now();
                let preconditions = Some(Preconditions { resource_version: Some(revision), uid: None });
                let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
                let outcome = tokio::time::timeout(DEADLINE, api.delete(&name, &parameters)).await;
                let answer = match &outcome {
                    Ok(Ok(_)) => Answer::Done,
                    Ok(Err(error)) => meaning(error),
                    Err(_) => Answer::Unknown,
                };
                known.remove(&name);
                let ended = world.now();
                world.note(&name, Operation { began, ended, call: Call::Delete { expected }, answer });
            }
            (_, before) => write(&world, &api, &name, new, before, &mut known).await,
        }
    }
}

async fn write(
    world: &World,
    api: &Api<ConfigMap>,
    name: &str,
    new: u64,
    before: Option<(u64, String)>,
    known: &mut BTreeMap<String, (u64, String)>,
) {
    let began = world.now();
    let parameters = PostParams::default();
    let sent = object(name, new, before.as_ref().map(|(_, revision)| revision.as_str()));
    let (call, outcome) = match &before {
        None => (Call::Create(new), tokio::time::timeout(DEADLINE, api.create(&parameters, &sent)).await),
        Some((expected, _)) => {
            let call = Call::Update { expected: *expected, new };
            (call, tokio::time::timeout(DEADLINE, api.replace(name, &parameters, &sent)).await)
        }
    };
    known.remove(name);
    let answer = match &outcome {
        Ok(Ok(made)) => {
            known.insert(name.to_owned(), (new, made.metadata.resource_version.clone().unwrap()));
            world.written.lock().unwrap().push((name.to_owned(), new, revision_of(made)));
            Answer::Done
        }
        Ok(Err(error)) => meaning(error),
        Err(_) => Answer::Unknown,
    };
    let ended = world.now();
    world.note(name, Operation { began, ended, call, answer });
}

async fn read(world: &World, api: &Api<ConfigMap>, name: &str, known: &mut BTreeMap<String, (u64, String)>) {
    let began = world.now();
    let outcome = tokio::time::timeout(DEADLINE, api.get_opt(name)).await;
    let ended = world.now();
    if let Ok(Ok(found)) = outcome {
        remember(known, name, found.as_ref());
        let answer = Answer::Found(found.as_ref().map(value_of));
        world.note(name, Operation { began, ended, call: Call::Read, answer });
    }
}

fn remember(known: &mut BTreeMap<String, (u64, String)>, name: &str, found: Option<&ConfigMap>) {
    match found {
        Some(found) => {
            let revision = found.metadata.resource_version.clone().unwrap();
            known.insert(name.to_owned(), (value_of(found), revision))
        }
        None => known.remove(name),
    };
}

/// A list is a read of every object at one moment.
async fn list(world: &World, api: &Api<ConfigMap>, round: usize, known: &mut BTreeMap<String, (u64, String)>) {
    let began = world.now();
    let outcome = tokio::time::timeout(DEADLINE, api.list(&ListParams::default().labels("history=yes"))).await;
    let ended = world.now();
    let Ok(Ok(found)) = outcome else { return };
    for key in 0..KEYS {
        let name = format!("r{round}k{key}");
        let item = found.items.iter().find(|item| item.metadata.name.as_deref() == Some(&name));
        remember(known, &name, item);
        let answer = Answer::Found(item.map(value_of));
        world.note(&name, Operation { began, ended, call: Call::Read, answer });
    }
}

async fn service(world: &World, random: &mut StdRng, number: u64) {
    let api: Api<Service> = Api::namespaced(world.some_client(random).await, "default");
    let name = format!("s{number}");
    let wanted = json!({ "metadata": { "name": name }, "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } });
    let wanted = serde_json::from_value(wanted).unwrap();
    if let Ok(Ok(made)) = tokio::time::timeout(DEADLINE, api.create(&PostParams::default(), &wanted)).await {
        world.services.lock().unwrap().push(given_to(&made));
    }
}

fn given_to(service: &Service) -> (String, String, i32) {
    let spec = service.spec.clone().unwrap();
    let port = spec.ports.unwrap()[0].node_port.unwrap_or_default();
    (service.metadata.name.clone().unwrap(), spec.cluster_ip.unwrap_or_default(), port)
}

/// Nothing twice, and what was acknowledged is there as it was.
async fn check_services(world: &World, random: &mut StdRng) {
    let api: Api<Service> = Api::namespaced(world.some_client(random).await, "default");
    let there = insist(|| async { api.list(&ListParams::default()).await }).await;
    let there: Vec<_> = there.items.iter().map(given_to).collect();
    for given in world.services.lock().unwrap().iter() {
        assert!(there.contains(given), "{given:?} was acknowledged, and is not there: {there:?}");
    }
    let (mut addresses, mut ports) = (BTreeMap::new(), BTreeMap::new());
    for (name, address, port) in &there {
        let other = addresses.insert(address, name).filter(|_| address != "None");
        assert!(other.is_none(), "{address} was given to {name} and to {other:?}");
        let other = ports.insert(port, name).filter(|_| *port != 0);
        assert!(other.is_none(), "the node port {port} was given to {name} and to {other:?}");
    }
    println!("    {} Services, each with an address and a port of its own", there.len());
}

/// The answer that comes once whatever befell the servers is over.
async fn insist<T, F: Future<Output = kube::Result<T>>>(attempt: impl Fn() -> F) -> T {
    let begin = std::time::Instant::now();
    loop {
        match attempt().await {
            Ok(answer) => return answer,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Writes what watchers end with, and returns its revision. A try whose answer was lost may have done it.
async fn end(client: &kube::Client) -> u64 {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let made = insist(|| async {
        match create(client, watching::END).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                api.get(watching::END).await.map(|map| revision_of(&map))
            }
            outcome => outcome,
        }
    });
    made.await
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

#[expect(clippy::disallowed_methods, reason = "clients of a test, which are waited for")]
async fn rounds(world: &Arc<World>, seed: u64, histories: usize) {
    let mut round = 0;
    while round < histories.div_ceil(KEYS) || !world.befallen.load(Ordering::SeqCst) {
        let seeds = (0..CLIENTS).map(|client| seed ^ ((round * CLIENTS + client) as u64 + 1).wrapping_mul(0x9e37_79b9));
        let clients = seeds.map(|seed| tokio::spawn(client(world.clone(), round, seed)));
        for ended in futures::future::join_all(clients).await {
            ended.unwrap();
        }
        for (name, operations) in std::mem::take(&mut *world.log.lock().unwrap()) {
            if let Err(why) = check(&operations) {
                panic!("{name} is no register (FERRY_SEED={seed}): {why}\n{operations:#?}");
            }
        }
        round += 1;
    }
    println!("    {} histories are each that of one register", round * KEYS);
}

#[expect(clippy::disallowed_methods, reason = "watchers and faults of a test, which are waited for")]
fn run(plane: impl FnOnce() -> Plane, histories: usize) {
    let seed = number("FERRY_SEED").unwrap_or_else(rand::random);
    let histories = number("FERRY_HISTORIES").map_or(histories, |count| usize::try_from(count).unwrap());
    println!("    FERRY_SEED={seed} FERRY_HISTORIES={histories}");
    let runtime = runtime();
    runtime.block_on(async {
        let mut plane = plane();
        let world = Arc::new(World {
            clients: Mutex::new(plane.start().await),
            clock: AtomicU64::new(1),
            values: AtomicU64::new(1),
            log: Mutex::default(),
            services: Mutex::default(),
            written: Mutex::default(),
            merged: merging::Merged::default(),
            done: AtomicBool::new(false),
            befallen: AtomicBool::new(false),
        });
        let mut random = StdRng::seed_from_u64(seed);
        let watchers: Vec<_> = [1, 2].map(|watcher| tokio::spawn(Watcher::run(world.clone(), seed ^ watcher))).into();
        let faults = tokio::spawn({
            let (world, random) = (world.clone(), StdRng::seed_from_u64(seed ^ 3));
            async move { plane.befall(&world, random).await }
        });
        rounds(&world, seed, histories).await;
        world.done.store(true, Ordering::SeqCst);
        let _plane = tokio::time::timeout(4 * PATIENCE, faults).await.expect("the faults end").unwrap();
        check_services(&world, &mut random).await;
        merging::check(&world, &mut random).await;
        let last = end(&world.some_client(&mut random).await).await;
        for watcher in watchers {
            let watcher = tokio::time::timeout(PATIENCE, watcher).await.expect("a watch ends").unwrap();
            watcher.check(&world, last);
        }
    });
}

pub fn several_servers_are_one_register_for_each_object() {
    run(|| Plane::on_etcd(3), HISTORIES[0]);
}

pub fn one_server_is_one_register_for_each_object() {
    run(Plane::on_the_embedded_store, HISTORIES[1]);
}
