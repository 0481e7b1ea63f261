//! What all parts of one node's kubelet share.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_client::{Informer, Recorder};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Client;

use crate::Config;
use crate::images::Images;
use crate::logs::LogFiles;
use crate::runtime::{PodState, Runtime};
use crate::sources::Sources;
use crate::spec::dns::HostResolver;
use crate::volumes::Volumes;

pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) client: Client,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) recorder: Recorder,
    pub(crate) images: Images,
    pub(crate) sources: Arc<Sources>,
    pub(crate) volumes: Volumes,
    pub(crate) services: Informer<Service>,
    pub(crate) resolver: HostResolver,
    pub(crate) host_addresses: Vec<String>,
    pub(crate) allocatable: BTreeMap<String, Quantity>,
    pub(crate) log_files: Arc<LogFiles>,
    /// Counts what happened in the runtime: exits, starts, removals.
    pub(crate) runtime_changes: tokio::sync::watch::Sender<u64>,
    pub(crate) port: u16,
    /// Of the whole node, in bytes.
    pub(crate) memory: i64,
}

impl Context {
    /// The port of the kubelet's server.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn host_address(&self) -> &str {
        self.host_addresses.first().map(String::as_str).unwrap_or_default()
    }

    /// Removes the stopped containers, the sandboxes and the files of a pod.
    pub(crate) async fn remove_remains(&self, uid: &str, state: &PodState) -> Result<(), String> {
        self.sources.release(uid);
        for record in &state.records {
            self.runtime.remove_container(&record.id).await.map_err(|e| e.to_string())?;
        }
        for sandbox in &state.sandboxes {
            self.runtime.stop_sandbox(&sandbox.id).await.map_err(|e| e.to_string())?;
            self.runtime.remove_sandbox(&sandbox.id).await.map_err(|e| e.to_string())?;
        }
        self.volumes.remove(uid).await
    }
}
