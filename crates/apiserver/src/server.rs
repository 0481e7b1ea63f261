//! What every request shares: store, cache, resource table, authentication, authorization, admission.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use ferry_admission::Plugin;
use ferry_auth::{AuthorizerChain, Chain, Impersonator, Rbac, TokenIssuer};
use ferry_meta::ApiError;
use ferry_registry::{Resource, ResourceTable};
use ferry_store::{Commit, LeaseId, Op, Store, StoreError, Transaction};
use ferry_tasks::Tasks;
use tokio::sync::Mutex;

use crate::cache::Cache;
use crate::observe::flight::Change;
use crate::observe::metrics::Metrics;
use crate::request::context::{Stage, Stages};
use crate::response::answer::Answer;
use crate::storage::objects;
use crate::write::allocate::ServiceNetwork;

/// What every request may use.
pub(crate) struct Core {
    pub store: Arc<dyn Store>,
    pub cache: Arc<Cache>,
    pub table: ArcSwap<ResourceTable>,
    pub authentication: Arc<Chain>,
    pub authorization: Arc<AuthorizerChain>,
    pub impersonation: Impersonator,
    pub rbac: Option<Arc<Rbac>>,
    pub admission: Vec<Arc<dyn Plugin>>,
    pub secret_rotation: Option<Arc<dyn crate::SecretRotation>>,
    pub flow_control: Option<ferry_fairness::FlowControl>,
    pub audit: Option<Arc<ferry_audit::Auditor>>,
    pub token_issuer: Option<Arc<TokenIssuer>>,
    pub service_network: ServiceNetwork,
    /// The first and the last node port.
    pub node_ports: (i64, i64),
    /// `host:port` for clients outside.
    pub advertised: String,
    pub metrics: Metrics,
    pub flight: crate::observe::flight::Recorder,
    /// What the scheduler of this process says of a pod without a node.
    pub verdicts: ArcSwapOption<crate::Verdicts>,
    pub event_leases: EventLeases,
    /// None where it is switched off.
    pub console: Option<crate::console::Pages>,
    pub kubelets: crate::transport::kubelet::Kubelets,
    pub aggregation: crate::aggregation::Aggregation,
    /// None where `metrics.k8s.io` is left to others.
    pub resource_metrics: Option<crate::resource_metrics::ResourceMetrics>,
    pub definitions: crate::custom_resources::definitions::Definitions,
    pub discovery: crate::discovery::Documents,
    pub openapi: crate::discovery::openapi::Documents,
    /// Calls the webhooks that convert custom resources.
    pub converter: ferry_admission::Webhooks,
    pub cbor: bool,
    pub heavy: crate::filters::heavy::Heavy,
    pub started: crate::nonresource::pages::Started,
    pub tasks: Tasks,
}

impl Core {
    pub(crate) fn table(&self) -> Arc<ResourceTable> {
        self.table.load_full()
    }

    /// Commits, and waits until the caches have it too: who was answered finds what they wrote. `by` is the request that
    /// it is done for, if it is not of the server's own accord.
    pub(crate) async fn commit(&self, transaction: Transaction, by: Option<&Stages>) -> Result<Commit, StoreError> {
        let (operation, key) = match transaction.ops.first() {
            Some(Op::Create { key, .. }) => ("create", key.clone()),
            Some(Op::Update { key, .. }) => ("update", key.clone()),
            Some(Op::Delete { key, .. }) => ("delete", key.clone()),
            _ => ("txn", String::new()),
        };
        let change = by.and_then(|_| Change::of(&transaction));
        let started = std::time::Instant::now();
        let outcome = match by.and_then(|stages| stages.fence.as_ref()) {
            // In a box: all other writers would carry it.
            Some(fence) => Box::pin(fence.commit(self, transaction)).await,
            None => self.store.commit(transaction).await,
        };
        let failed =
            matches!(&outcome, Err(error) if !matches!(error, StoreError::Conflict { .. } | StoreError::NotLeader(_)));
        self.metrics.stored(operation, &key, started.elapsed(), failed);
        if let Some(stages) = by {
            stages.done(Stage::Commit);
        }
        let commit = outcome?;
        // A cache that lags behind is the reader's concern; the write stands.
        let _ = self.cache.wait_for(commit.revision).await;
        if let Some(stages) = by {
            stages.committed(commit.revision, change.map(|change| Change { key, ..change }));
        }
        Ok(commit)
    }

    /// The row of a built-in resource of the core group.
    pub(crate) fn core_row(&self, plural: &str) -> Result<Arc<Resource>, ApiError> {
        let table = self.table();
        table.find("", "v1", plural).cloned().ok_or_else(|| ApiError::internal(format!("{plural} is not served")))
    }

    /// Where tokens of this server are explained to others.
    pub(crate) fn openid_configuration(&self) -> Answer {
        let Some(issuer) = &self.token_issuer else { return Answer::no_such_page() };
        let uri = format!("https://{}/openid/v1/jwks", self.advertised);
        let document = ferry_auth::openid_configuration(issuer.issuer(), &uri, issuer.published_keys());
        Answer::Plain { code: 200, content_type: "application/json", body: document.to_string().into() }
    }

    pub(crate) fn jwks(&self) -> Answer {
        let Some(issuer) = &self.token_issuer else { return Answer::no_such_page() };
        let keys = ferry_auth::jwks(issuer.published_keys());
        Answer::Plain { code: 200, content_type: "application/jwk-set+json", body: keys.to_string().into() }
    }
}

/// Events live for an hour. One lease serves all of a minute, so that a flood of events is no flood of leases.
#[derive(Default)]
pub(crate) struct EventLeases {
    current: Mutex<Option<(LeaseId, tokio::time::Instant)>>,
}

const EVENT_SECONDS: u64 = 3600;
const LEASE_SHARED: Duration = Duration::from_secs(60);

impl EventLeases {
    pub(crate) async fn current(&self, store: &dyn Store) -> Result<LeaseId, ApiError> {
        let mut current = self.current.lock().await;
        if let Some((lease, granted)) = *current
            && granted.elapsed() < LEASE_SHARED
        {
            return Ok(lease);
        }
        let lease =
            store.grant_lease(EVENT_SECONDS + LEASE_SHARED.as_secs()).await.map_err(|e| objects::store_error(&e))?;
        *current = Some((lease, tokio::time::Instant::now()));
        Ok(lease)
    }
}
