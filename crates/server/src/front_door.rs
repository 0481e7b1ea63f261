//! The API server with everything it stands on: store, watch cache, authentication, authorization, admission.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use ferry_admission::{Defaulter, Kinds, PolicyOptions, QuotaStore, WebhookOptions};
use ferry_apiserver::cache::{Cache, Registration};
use ferry_apiserver::{ApiServer, Config, Endpoint, Kubelets, Quotas, ServiceNetwork};
use ferry_auth::{
    BootstrapTokens, Chain, LegacyTokens, LoopbackTokens, Rbac, RemovedNodes, ServiceAccountTokens, StaticTokens,
    TokenIssuer,
};
use ferry_meta::user::MASTERS;
use ferry_meta::{ObjectReader, UserInfo};
use ferry_registry::ResourceTable;
use ferry_tasks::Tasks;

use crate::encryption::Keys;
use crate::reload::Reloads;
use crate::server_options::{self, Authorities, ServerOptions, ServiceAccountKeys};
use crate::state::{Opened, StorageBackend};
use crate::store_socket::StoreSocket;
use crate::{legacy_tokens, trust};

const NODE_PORTS: (u16, u16) = (30000, 32767);

pub struct Options<'a> {
    pub state: &'a StorageBackend,
    /// The keys of what is encrypted at rest are kept here.
    pub key_dir: &'a Path,
    /// Who signs service-account tokens, and whose are believed.
    pub service_accounts: ServiceAccountKeys,
    pub service_cidr: &'a str,
    /// Where clients, pods among them, reach the server.
    pub advertise: IpAddr,
    pub port: u16,
    /// Whose certificates name users.
    pub authorities: Arc<Authorities>,
    /// Configuration that may change while the server runs.
    pub reloads: &'a Arc<Reloads>,
    /// The text of a token file.
    pub static_tokens: Option<&'a str>,
    pub kubelets: Kubelets,
    pub front_proxy: ferry_apiserver::FrontProxy,
    pub server: &'a ServerOptions,
    /// The flags of this process with their values, for `/flagz`.
    pub flags: Vec<(String, String)>,
    /// Whether `metrics.k8s.io` is answered here.
    pub resource_metrics: bool,
    /// Whether `application/cbor` is spoken.
    pub cbor: bool,
    /// The pod network is Ferry's own, on a machine that cannot enforce NetworkPolicies between its pods.
    pub lacks_policies: bool,
}

pub struct FrontDoor {
    pub server: ApiServer,
    loopback: Arc<LoopbackTokens>,
    _socket: Option<StoreSocket>,
}

impl FrontDoor {
    /// Opens the store, fills the caches and writes what every cluster starts with. Nothing listens yet.
    pub async fn open(options: Options<'_>, tasks: &Tasks) -> Result<Self> {
        let keys = Keys { folder: options.key_dir, given: options.server.encryption_provider_config.as_deref() };
        let Opened { store, encryption, socket } = options.state.open(&keys, tasks).await?;
        if options.server.encryption_provider_config_automatic_reload
            && let Some(encryption) = &encryption
        {
            encryption.watch(options.reloads)?;
        }
        let table = ResourceTable::builtin();
        let cache = Cache::start(store, tasks, Registration::of_table(&table)).await?;
        let node_labels: ferry_admission::NodeLabels = Arc::new(cache.node_labels());
        let reader: Arc<dyn ObjectReader> = cache.clone();

        let ServiceAccountKeys { issuers, audiences, signing, verifying } = options.service_accounts;
        let loopback = Arc::new(LoopbackTokens::new(audiences.clone()));
        let issuer = TokenIssuer::new(issuers[0].clone(), audiences.clone(), signing, reader.clone());
        let issuer = Arc::new(issuer.with_published_keys(verifying.clone()));
        let accounts = ServiceAccountTokens::new(issuers, verifying.clone(), reader.clone());
        let (legacy, uses) = LegacyTokens::new(verifying, audiences.clone(), reader.clone());
        let flags = &options.server.authentication_of_callers();
        let mut authentication = options
            .authorities
            .authenticators(Chain::new(audiences.clone()), RemovedNodes::new(reader.clone()))
            .with_tokens(loopback.clone());
        if let Some(text) = options.static_tokens {
            let tokens = StaticTokens::parse(text, audiences.clone()).context("the token file cannot be used")?;
            authentication = authentication.with_tokens(Arc::new(tokens));
        }
        let authentication = authentication
            .with_tokens(Arc::new(accounts))
            .with_tokens(Arc::new(legacy))
            .with_tokens(Arc::new(BootstrapTokens::new(reader.clone(), audiences.clone())));
        let authentication = flags.with_others(authentication, &audiences, options.reloads, tasks)?;

        let rbac = Arc::new(Rbac::new(reader.clone()));
        let authorization = options.server.authorization.chain(&reader, &rbac, options.reloads, tasks)?;
        let quotas = Quotas::new(cache.clone(), &table).map(|q| -> Arc<dyn QuotaStore> { Arc::new(q) });
        let admission = ferry_admission::Chain::new(ferry_admission::Dependencies {
            reader: reader.clone(),
            authorizer: authorization.clone(),
            quotas,
            node_labels: Some(node_labels),
        })
        .with_policies(&PolicyOptions { defaulter: Some(defaulter(&table)), kinds: kinds(&table) })
        .with_webhooks(&WebhookOptions { tasks: tasks.clone(), defaulter: Some(defaulter(&table)) });
        let admission = if options.lacks_policies { admission.with_network_policy_warnings() } else { admission };
        let admission = options.server.admission.select(admission)?;

        let audit = server_options::auditor(&options.server.audit, tasks)?;
        let server = ApiServer::new(
            Config {
                cache,
                table,
                authentication,
                authorization,
                rbac: Some(rbac),
                admission: admission.plugins().to_vec(),
                flow_control: Some(server_options::flow_control(options.server, reader.clone())),
                secret_rotation: encryption.map(|keys| -> Arc<dyn ferry_apiserver::SecretRotation> { keys }),
                audit: audit.clone(),
                token_issuer: Some(issuer),
                service_network: ServiceNetwork::parse(options.service_cidr)?,
                node_ports: NODE_PORTS,
                advertised: format!("{}:{}", options.advertise, options.port),
                kubelets: options.kubelets,
                resource_metrics: options.resource_metrics,
                console: options.server.console,
                front_proxy: Some(options.front_proxy),
                cbor: options.cbor,
            },
            tasks,
        );
        if let Some(audit) = audit {
            server.add_metrics(move || audit.metrics());
        }
        server.set_flags(options.flags);
        let endpoint = Endpoint { address: options.advertise, port: options.port };
        let master = loopback.issue(UserInfo::new("system:apiserver", &[MASTERS]));
        server.bootstrap(&master, Some(endpoint)).await.context("cannot write what every cluster starts with")?;
        legacy_tokens::track(server.client(&master, "kube-apiserver"))
            .await
            .context("cannot write since when uses of tokens are known")?;
        legacy_tokens::note_uses(server.client(&master, "kube-apiserver"), uses, tasks);
        trust::publish(server.client(&master, "kube-apiserver"), options.authorities, tasks)
            .await
            .context("cannot write what servers behind this one trust")?;
        Ok(Self { server, loopback, _socket: socket })
    }

    /// What gives out clients of this process for as long as it runs.
    pub fn clients(&self) -> impl Fn(UserInfo) -> kube::Client + Send + Sync + 'static {
        let (server, loopback) = (self.server.clone(), self.loopback.clone());
        move |user| client(&server, &loopback, user)
    }

    /// What such a client presents.
    pub fn token(&self, user: UserInfo) -> String {
        self.loopback.issue(user)
    }

    /// A client of this process that acts as a user, through the same door as everyone.
    pub fn client(&self, user: UserInfo) -> kube::Client {
        client(&self.server, &self.loopback, user)
    }
}

fn client(server: &ApiServer, loopback: &LoopbackTokens, user: UserInfo) -> kube::Client {
    let component = component(&user.name);
    server.client(&loopback.issue(user), component)
}

/// Under which name a component's writes stand in managed fields: upstream's, for people look for it there.
fn component(user: &str) -> &'static str {
    match user.strip_prefix("system:").unwrap_or_default() {
        "apiserver" => "kube-apiserver",
        "kube-scheduler" => "kube-scheduler",
        "kube-proxy" => "kube-proxy",
        "kube-controller-manager" => "kube-controller-manager",
        account if account.starts_with("serviceaccount:kube-system:") => "kube-controller-manager",
        node if node.starts_with("node:") => "kubelet",
        _ => "ferry",
    }
}

/// Where objects of a built-in kind are, and whether they are in namespaces.
fn kinds(table: &ResourceTable) -> Kinds {
    let table = table.clone();
    Arc::new(move |kind| table.find_kind(kind).map(|row| (row.group_resource(), row.namespaced)))
}

/// Defaults for what a webhook added to an object.
fn defaulter(table: &ResourceTable) -> Defaulter {
    let table = table.clone();
    Arc::new(move |resource, object| {
        if let Some(row) = table.find(&resource.group, &resource.version, &resource.resource) {
            row.strategy.default(object);
        }
    })
}
