//! The front door: every read and write of cluster state passes the one pipeline in [`pipeline`].
//!
//! Server side only: must not depend on controllers, the scheduler, the kubelet or their client library.
//!
//! The modules, in the order in which a request meets them:
//!
//! | module | what is there |
//! |---|---|
//! | [`transport`] | connections in (the listener, the client without sockets) and out (kubelets, pods, Services) |
//! | [`pipeline`] | the stages of every request up to its handler, in one function |
//! | [`request`] | what the request asks for: verb, resource, options, representation, row of the table |
//! | [`filters`] | audit, priority and fairness, rights, room for large objects |
//! | [`aggregation`] | requests that another server answers |
//! | [`console`] | the console's files, its sessions, what it is told beyond the API |
//! | [`nonresource`] | paths that are no resource: health, version, the pages for operators |
//! | [`discovery`] | discovery documents and OpenAPI |
//! | [`verbs`] | one handler per verb, for every kind |
//! | [`subresources`] | subresources with a kind of their own, and kinds that are answered and never stored |
//! | [`resource_metrics`] | what nodes and pods use, from their kubelets |
//! | [`write`] | one new or changed object on its way to the store |
//! | [`read`] | reads, lists and watches, over the watch cache in [`cache`] |
//! | [`storage`] | objects as the store keeps them |
//! | [`custom_resources`] | definitions at work, conversion webhooks |
//! | [`response`] | answers, Tables, and how they become HTTP |
//! | [`observe`] | metrics, the flight recorder |
//! | [`controlplane`] | the objects that the server keeps of its own accord |
//! | [`server`] | what all of these share |

mod aggregation;
pub mod cache;
mod console;
mod controlplane;
mod custom_resources;
mod discovery;
mod filters;
mod nonresource;
mod observe;
mod pipeline;
mod read;
mod request;
mod resource_metrics;
mod response;
mod server;
mod storage;
mod subresources;
mod transport;
mod verbs;
mod write;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ferry_admission::Plugin;
use ferry_auth::{AuthorizerChain, Chain, Impersonator, Rbac, TokenIssuer};
use ferry_fairness::FlowControl;
use ferry_registry::ResourceTable;
use ferry_tasks::Tasks;
use futures::future::{BoxFuture, LocalBoxFuture};

pub use aggregation::FrontProxy;
pub use console::{Insight, InsightRequest};
pub use controlplane::bootstrap::Endpoint;
pub use ferry_connections::Peer;
pub use request::context::{Stage, Stages};
pub use response::answer::{Body, BoxError};
pub use storage::stored_values::{StoredAs, StoredValues};
pub use transport::kubelet::Kubelets;
pub use transport::reach::is_global_unicast;
pub use write::allocate::{BadNetwork, ServiceNetwork};
pub use write::quotas::Quotas;

use controlplane::{bootstrap, endpoint_reconciler, identity};
use custom_resources::definitions;
use discovery::openapi;
use filters::fairness;
use nonresource::pages;
use observe::{flight, metrics};
use server::Core;
use transport::{inprocess, listen};
use write::allocate;

/// What the server is made of.
pub struct Config {
    /// Reads come from here; writes go to its store.
    pub cache: Arc<cache::Cache>,
    pub table: ResourceTable,
    pub authentication: Arc<Chain>,
    pub authorization: Arc<AuthorizerChain>,
    /// Answers SelfSubjectRulesReviews and guards roles against escalation.
    pub rbac: Option<Arc<Rbac>>,
    /// In the order they run.
    pub admission: Vec<Arc<dyn Plugin>>,
    /// Which requests run at once; None lets all of them.
    pub flow_control: Option<FlowControl>,
    /// Carries out `ferry secrets rotate`.
    pub secret_rotation: Option<Arc<dyn SecretRotation>>,
    /// Writes down who asked for what; None where nobody wants to know.
    pub audit: Option<Arc<ferry_audit::Auditor>>,
    /// Answers TokenRequests.
    pub token_issuer: Option<Arc<TokenIssuer>>,
    pub service_network: ServiceNetwork,
    /// The first and the last port for NodePort Services.
    pub node_ports: (u16, u16),
    /// The address clients outside reach the server at, `host:port`.
    pub advertised: String,
    pub kubelets: Kubelets,
    /// Answers `metrics.k8s.io` from the kubelets' figures, as long as no APIService names another server for it.
    pub resource_metrics: bool,
    /// Without it, servers behind this one do not learn who asks.
    pub front_proxy: Option<FrontProxy>,
    /// Whether `/console/` is served.
    pub console: bool,
    /// Whether `application/cbor` is spoken, as upstream's gate CBORServingAndStorage has it.
    pub cbor: bool,
}

/// Where a new key for what is encrypted at rest is asked for: POST, answered with the number of objects written anew.
pub const ROTATE_PATH: &str = "/ferry/v1/secrets/rotate";

/// What is said of a pod, by its namespace and name, as JSON.
pub(crate) type Verdicts = Box<dyn Fn(&str, &str) -> Option<String> + Send + Sync>;

/// Who can take a new key for what is encrypted at rest.
#[async_trait::async_trait]
pub trait SecretRotation: Send + Sync {
    /// Says how many objects were written anew.
    async fn rotate(&self) -> Result<usize, String>;
}

/// The API server. Clones are handles to the same one.
#[derive(Clone)]
pub struct ApiServer {
    core: Arc<Core>,
}

impl ApiServer {
    pub fn new(config: Config, tasks: &Tasks) -> Self {
        let resource_metrics = config.resource_metrics.then(resource_metrics::ResourceMetrics::new);
        let mut rows = config.table.rows().to_vec();
        rows.extend(resource_metrics.iter().flat_map(|metrics| metrics.rows()).cloned());
        let core = Core {
            store: config.cache.store().clone(),
            converter: ferry_admission::Webhooks::new(config.cache.clone(), tasks.child("conversion")),
            cache: config.cache,
            table: ArcSwap::from_pointee(ResourceTable::new(rows)),
            impersonation: Impersonator::new(config.authorization.clone()),
            authentication: config.authentication,
            authorization: config.authorization,
            rbac: config.rbac,
            admission: config.admission,
            audit: config.audit,
            flow_control: config.flow_control,
            secret_rotation: config.secret_rotation,
            token_issuer: config.token_issuer,
            service_network: config.service_network,
            node_ports: (config.node_ports.0.into(), config.node_ports.1.into()),
            advertised: config.advertised,
            metrics: metrics::Metrics::default(),
            flight: flight::Recorder::default(),
            verdicts: arc_swap::ArcSwapOption::empty(),
            event_leases: server::EventLeases::default(),
            console: config.console.then(console::Pages::default),
            kubelets: config.kubelets,
            aggregation: aggregation::Aggregation::new(config.front_proxy),
            resource_metrics,
            cbor: config.cbor,
            heavy: Default::default(),
            started: pages::Started::default(),
            definitions: definitions::Definitions::default(),
            discovery: discovery::Documents::default(),
            openapi: openapi::Documents::default(),
            tasks: tasks.child("apiserver"),
        };
        let core = Arc::new(core);
        let tree = core.tasks.root();
        core.metrics.add(move || tree.runtime_metrics());
        let own = core.clone();
        core.tasks.spawn_critical("custom-resource-definitions", move || definitions::run(own.clone()));
        // Only the console tells of them.
        if core.console.is_some() {
            let own = core.clone();
            core.tasks.spawn_critical("ended-events", move || flight::events::keep(own.clone()));
            let own = core.clone();
            core.tasks.spawn_critical("past-changes", move || flight::past::keep(own.clone()));
        }
        if core.flow_control.is_some() {
            let own = core.clone();
            core.tasks.spawn_critical("flow-schema-conditions", move || fairness::keep_conditions(own.clone()));
        }
        Self { core }
    }

    /// Serves HTTPS until `stop`. The TLS configuration decides about client certificates and ALPN (h2, http/1.1).
    pub fn serve(&self, listener: tokio::net::TcpListener, tls: Arc<rustls::ServerConfig>) -> BoxFuture<'static, ()> {
        let (core, listener, connections) = (self.core.clone(), Arc::new(listener), listen::connections(&self.core));
        let served = self.core.tasks.spawn_critical("listener", move || {
            listen::serve(core.clone(), listener.clone(), tls.clone(), connections.clone())
        });
        // Boxed, as are the others: what an async function does is compiled by whoever awaits it, which is the binary.
        Box::pin(async move { drop(served.await) })
    }

    /// Adds the metrics of another component of this process to what `/metrics` tells.
    pub fn add_metrics(&self, source: impl Fn() -> String + Send + Sync + 'static) {
        self.core.metrics.add(source);
    }

    /// Answers `/debug/verdicts/<namespace>/<pod>` for those who may read the pod: why it has no node.
    pub fn set_verdicts(&self, of: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static) {
        self.core.verdicts.store(Some(Arc::new(Box::new(of))));
    }

    /// Answers `/console/why/…` and `/console/trace/…`, through a client that acts as whoever asks.
    pub fn set_insight(&self, ask: Insight) {
        if let Some(pages) = &self.core.console {
            pages.set_insight(ask);
        }
    }

    /// Tells `/flagz` what the process was started with.
    pub fn set_flags(&self, mut flags: Vec<(String, String)>) {
        flags.sort();
        self.core.started.flags.store(Arc::new(flags));
    }

    /// A client without sockets: its requests pass the same pipeline and prove themselves by this token.
    pub fn client(&self, token: &str, component: &str) -> kube::Client {
        inprocess::InProcess::new(self.core.clone(), token, component).client()
    }

    /// Writes what every cluster starts with. `token` is that of a caller in system:masters; `endpoint` is where pods
    /// reach this server.
    pub fn bootstrap<'a>(
        &'a self,
        token: &'a str,
        endpoint: Option<Endpoint>,
    ) -> LocalBoxFuture<'a, Result<(), ferry_meta::ApiError>> {
        Box::pin(self.write_beginning(token, endpoint))
    }

    async fn write_beginning(&self, token: &str, endpoint: Option<Endpoint>) -> Result<(), ferry_meta::ApiError> {
        self.core.definitions.wait().await;
        let caller = bootstrap::Bootstrap { core: &self.core, token };
        caller.run(endpoint).await?;
        let (core, token) = (self.core.clone(), caller.token.to_owned());
        self.core.tasks.spawn_critical("aggregation", move || aggregation::run(core.clone(), token.clone()));
        if self.core.resource_metrics.is_some() {
            let core = self.core.clone();
            self.core.tasks.spawn_critical("resource metrics", move || resource_metrics::run(core.clone()));
        }
        let core = self.core.clone();
        self.core.tasks.spawn_critical("addresses of Services", move || allocate::repair(core.clone()));
        if let Some(endpoint) = endpoint {
            endpoint_reconciler::begin(caller, endpoint).await?;
            let (core, token) = (self.core.clone(), caller.token.to_owned());
            let lease = move || identity::run(core.clone(), token.clone(), endpoint);
            self.core.tasks.spawn_critical("lease of this server", lease);
        }
        Ok(())
    }

    /// Answers one request, as if it had come over a connection of this peer.
    pub fn handle(&self, request: http::Request<Body>, peer: Peer) -> BoxFuture<'_, http::Response<Body>> {
        Box::pin(pipeline::handle(&self.core, request, peer))
    }

    /// Stops accepting, finishes requests, ends watches. False when some were still running at the deadline.
    pub async fn stop(&self, deadline: Duration) -> bool {
        self.core.tasks.stop(deadline).await
    }
}
