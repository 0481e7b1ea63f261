//! A whole control plane in a test's own process: an API server on a store of its own, the controllers, the scheduler, simulated
//! nodes, a witness of what the controllers ask for, and everything that can go wrong between them and the server.
//!
//! For tests and benchmarks only, like `testkit`, which knows no server and so serves the crates below this one.
#![expect(clippy::unwrap_used, reason = "what goes wrong here is a failure of the test")]

mod faults;
mod lag;
mod witness;

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use ferry_apiserver::Kubelets;
use ferry_client::informer::Cached;
use ferry_client::{Api, Informer, Informers, Selection, finishing};
use ferry_meta::UserInfo;
use ferry_meta::user::MASTERS;
use ferry_server::certificate_rotation::Renewals;
use ferry_server::front_door::{FrontDoor, Options};
use ferry_server::pki::{LEAF_LIFETIME, Pair, Pki};
use ferry_server::reload::Reloads;
use ferry_server::server_options::{Authorities, CaSource, ServerOptions, ServiceAccountOptions};
use ferry_server::state::StorageBackend;
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Client, Resource};
use serde_json::{Value, json};

pub use faults::Faults;
pub use lag::Lag;
pub use witness::Witness;

/// Long enough for a machine that does other things too; nothing waits for it when all is well.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Where tests work.
pub const NAMESPACE: &str = "test";

/// The API server's own flags, as they are when none is given.
#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    server: ServerOptions,
}

/// An API server on a store of its own, and whatever is started on it.
pub struct Kit {
    pub client: Client,
    pub door: FrontDoor,
    pub pki: Arc<Pki>,
    pub authorities: Arc<Authorities>,
    pub tasks: Tasks,
    pub witness: Arc<Witness>,
    /// Those of the controllers.
    pub queues: ferry_client::Metrics,
    _folder: tempfile::TempDir,
}

impl Kit {
    /// The API server alone, with a namespace to work in.
    pub async fn new() -> Self {
        Self::with(&[]).await
    }

    /// The same, with flags.
    pub async fn with(flags: &[&str]) -> Self {
        Self::with_ranges("10.96.0.0/16", flags).await
    }

    /// The same, with ranges for addresses of Services.
    pub async fn with_ranges(service_cidr: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pki = Arc::new(Pki::open(&folder.path().join("pki")).unwrap());
        let server = Flags::parse_from([&["test"], flags].concat()).server;
        let (renewals, reloads) = (Renewals::new(pki.clone()), Reloads::new());
        let front_proxy = ferry_server::front_proxy::open(&pki, &server.authentication, &renewals).unwrap();
        let client_ca = CaSource::Pem(pki.ca_certificate().to_owned());
        let authorities = Authorities::open(&server.authentication, client_ca, front_proxy.known_by, &reloads).unwrap();
        let tasks = Tasks::new("test");
        let server_tasks = tasks.child_on("server", tokio::runtime::Handle::current());
        let door = FrontDoor::open(
            Options {
                state: &StorageBackend::Embedded { data_dir: folder.path().to_owned(), sync: true },
                key_dir: &folder.path().join("pki"),
                service_accounts: ServiceAccountOptions::default().keys(&pki.signing_key().unwrap()).unwrap(),
                service_cidr,
                advertise: [127, 0, 0, 1].into(),
                port: 6443,
                authorities: authorities.clone(),
                reloads: &reloads,
                static_tokens: None,
                kubelets: Kubelets { tls: None },
                front_proxy: front_proxy.identity,
                server: &server,
                flags: Vec::new(),
                resource_metrics: false,
                cbor: false,
                lacks_policies: false,
            },
            &server_tasks,
        )
        .await
        .unwrap();
        let client = door.client(UserInfo::new("admin", &[MASTERS]));
        let kit = Self {
            client,
            door,
            pki,
            authorities,
            tasks,
            witness: Arc::default(),
            queues: Default::default(),
            _folder: folder,
        };
        kit.create_in(Api::<Namespace>::all(kit.client.clone()), json!({ "metadata": { "name": NAMESPACE } })).await;
        kit
    }

    /// The API server, all controllers, the scheduler and that many nodes.
    pub async fn cluster(nodes: usize) -> Self {
        Self::cluster_with(nodes, |config| config).await
    }

    pub async fn cluster_with(
        nodes: usize,
        change: impl FnOnce(ferry_controllers::Config) -> ferry_controllers::Config,
    ) -> Self {
        let kit = Self::new().await;
        kit.controllers(change(kit.config()));
        kit.scheduler(&kit.tasks).await;
        kit.simulate(nodes).await;
        kit.until(kit.api::<ServiceAccount>(), "the default account", |all| !all.is_empty()).await;
        kit
    }

    /// A scheduler with the rights it has in a cluster, for as long as `tasks` go on.
    pub async fn scheduler(&self, tasks: &Tasks) {
        self.scheduler_with(self.door.client(UserInfo::new("system:kube-scheduler", &[])), tasks).await;
    }

    /// The same with a client of its own.
    pub async fn scheduler_with(&self, client: Client, tasks: &Tasks) {
        let client = finishing::client(client, tasks);
        let informers = Informers::new(client.clone(), tasks.clone());
        let config = ferry_scheduler::Config::new(&client);
        let scheduler = ferry_scheduler::start(config, client, &informers, tasks).await.unwrap();
        self.door.server.set_verdicts(move |namespace, name| scheduler.explanation(namespace, name));
    }

    /// A token of somebody's, as clients on the network show it.
    pub fn token(&self, name: &str, groups: &[&str]) -> String {
        self.door.token(UserInfo::new(name, groups))
    }

    pub fn config(&self) -> ferry_controllers::Config {
        let Pair { certificate, key } = self.pki.signing_authority();
        ferry_controllers::Config {
            root_ca: self.pki.ca_certificate().to_owned(),
            signing: Some(ferry_controllers::Authority { certificate, key, lifetime: LEAF_LIFETIME }),
            sign_token: Some(ferry_server::legacy_tokens::signer(&self.pki.signing_key().unwrap()).unwrap()),
            provider: Some(Arc::new(ferry_controllers::Local)),
            metrics: self.queues.clone(),
            ..ferry_controllers::Config::default()
        }
    }

    pub fn controllers(&self, config: ferry_controllers::Config) {
        let clients = self.door.clients();
        let informers =
            Informers::new(self.door.client(UserInfo::new("system:kube-controller-manager", &[])), self.tasks.clone());
        let witness = self.witness.clone();
        let account =
            move |name: &str| witness.watch(name, clients(UserInfo::service_account("kube-system", name, "")));
        ferry_controllers::start(&informers, account, &self.tasks, config);
    }

    pub async fn simulate(&self, nodes: usize) {
        let config = ferry_simulator::Config {
            nodes,
            lease_period: Duration::from_secs(1),
            ..ferry_simulator::Config::default()
        };
        ferry_simulator::start(config, self.client.clone(), &self.tasks).registered().await;
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub async fn create_in<K>(&self, api: Api<K>, object: Value) -> K
    where
        K: Cached,
    {
        let object = K::decode(object.to_string().as_bytes()).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    pub async fn create<K>(&self, object: Value) -> K
    where
        K: Cached + Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        self.create_in(self.api(), object).await
    }

    /// Waits until what is there is as it should be; says what was there instead when it never is.
    pub async fn until<K: Cached>(
        &self,
        api: Api<K>,
        what: &str,
        mut is: impl FnMut(&[Arc<K>]) -> bool,
    ) -> Vec<Arc<K>> {
        let tasks = self.tasks.child("until");
        let informer = Informer::over(api, &tasks, Selection::default());
        let mut changes = informer.subscribe();
        let seen = tokio::time::timeout(PATIENCE, async {
            informer.synced().await;
            loop {
                let all = informer.list();
                if is(&all) {
                    return all;
                }
                changes.next().await;
            }
        })
        .await;
        tasks.stop(Duration::from_secs(5)).await;
        let there = |object: &Arc<K>| String::from_utf8_lossy(&object.encode().unwrap_or_default()).into_owned();
        seen.unwrap_or_else(|_| {
            panic!("never seen: {what}; there is {:#?}", informer.list().iter().map(there).collect::<Vec<_>>())
        })
    }

    pub async fn until_pods(&self, what: &str, mut is: impl FnMut(&[&Pod]) -> bool) {
        self.until(self.api::<Pod>(), what, |all| is(&all.iter().map(|pod| &**pod).collect::<Vec<_>>())).await;
    }

    /// Whether a key waits for a worker, or is in the hands of one: on a busy machine that may take long.
    fn is_busy(&self) -> bool {
        let text = self.queues.text();
        let gauges = ["workqueue_depth{", "workqueue_unfinished_work_seconds{"];
        let mut figures = text.lines().filter(|line| gauges.iter().any(|gauge| line.starts_with(gauge)));
        figures.any(|line| !line.ends_with(" 0"))
    }

    pub async fn at_rest(&self) {
        self.at_rest_for(Duration::from_secs(1)).await;
    }

    /// Waits until the controllers have written nothing for so long and have nothing in their hands; what burns never does.
    pub async fn at_rest_for(&self, time: Duration) {
        let quiet = async {
            loop {
                let before = self.witness.all_writes();
                tokio::time::sleep(time).await;
                if !self.is_busy() && self.witness.all_writes() == before {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, quiet).await.expect("the controllers come to rest");
    }

    /// Waits for an event with that reason; its message.
    pub async fn until_event(&self, reason: &str) -> String {
        let has = |event: &Event| event.reason.as_deref() == Some(reason);
        let all = self.until(self.api::<Event>(), reason, |all| all.iter().any(|event| has(event))).await;
        all.iter().find(|event| has(event)).and_then(|event| event.message.clone()).unwrap_or_default()
    }

    /// Whatever a test is about, no controller asks for what its role does not give.
    pub async fn stop(self) {
        self.tasks.stop(Duration::from_secs(20)).await;
        assert_eq!(self.witness.refused(), [""; 0]);
    }
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none()
        && conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub fn deployment(name: &str, replicas: i32, image: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "terminationGracePeriodSeconds": 1, "containers": [{ "name": "c", "image": image }] },
            },
        },
    })
}
