//! Group versions that other servers answer: APIServices with a Service behind them are checked, requests to them are
//! forwarded with the caller's name, and discovery lists them among our own.

mod check;
mod keeper;
mod listing;
mod proxy;

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use rustls::client::ResolvesClientCert;
use serde_json::Value;
use tokio::sync::Notify;

pub(crate) use keeper::run;
pub(crate) use listing::{aggregated_resources, with_remote};
pub(crate) use proxy::forward;

use crate::request::info::RequestInfo;

/// What this server proves itself with to servers behind it, so that they believe whom it names as the caller.
/// It is asked with each connection, so that a certificate can be renewed.
pub struct FrontProxy(pub Arc<dyn ResolvesClientCert>);

/// The servers behind this one, best group first.
pub(crate) type Remotes = Vec<Arc<Remote>>;

pub(crate) struct Aggregation {
    remotes: ArcSwap<Remotes>,
    front_proxy: Option<FrontProxy>,
    /// Groups and versions of custom resources came or went.
    pub(crate) table_changed: Notify,
}

/// One group version that another server answers, as it was last seen.
#[derive(Clone)]
pub(crate) struct Remote {
    pub group: String,
    pub version: String,
    group_priority: i64,
    version_priority: i64,
    service: ServiceReference,
    tls: Result<Arc<rustls::ClientConfig>, String>,
    /// What it was made of: when it is the same, so is it.
    made_of: Value,
    available: bool,
    /// Its resources as it listed them last, an APIResourceList.
    resources: Option<Value>,
    /// Its OpenAPI v3 document and the hash of it.
    pub openapi: Option<(Bytes, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ServiceReference {
    namespace: String,
    name: String,
    port: u16,
}

impl ServiceReference {
    /// The name that the server's certificate must hold.
    fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

impl Aggregation {
    pub(crate) fn new(front_proxy: Option<FrontProxy>) -> Self {
        Self { remotes: ArcSwap::default(), front_proxy, table_changed: Notify::new() }
    }

    pub(crate) fn remotes(&self) -> Arc<Remotes> {
        self.remotes.load_full()
    }

    /// The other server that is asked, if it is one.
    pub(crate) fn find(&self, info: &RequestInfo) -> Option<Arc<Remote>> {
        let remotes = self.remotes.load();
        if remotes.is_empty() {
            return None;
        }
        let mut parts = info.path.trim_matches('/').split('/');
        if parts.next() != Some("apis") {
            return None;
        }
        let (group, version) = (parts.next()?, parts.next()?);
        remotes.iter().find(|remote| remote.group == group && remote.version == version).cloned()
    }
}
