//! Device plug-ins: who has registered, which devices there are, and which container has which of them.
//!
//! [`ledger`] keeps the books and is pure, [`registration`] meets plug-ins, [`draft`] sets devices aside for a pod that is
//! admitted, [`allocate`] gets them, [`paced`] hears what plug-ins tell, [`checkpoint`] carries the books over a restart,
//! [`given`] is what a container gets by its devices.

mod allocate;
mod checkpoint;
mod draft;
mod given;
mod ledger;
mod paced;
mod registration;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use ferry_plugins::DevicePlugin;
use ferry_plugins::deviceplugin::DevicePluginOptions;
use ferry_tasks::Tasks;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) use given::Given;
pub(crate) use ledger::Held;
use ledger::Ledger;
pub(crate) use registration::serve;

use crate::metrics::Metrics;
use crate::node::capacity::Amounts;

/// The interface's version; a plug-in names it when it registers.
pub(crate) const VERSION: &str = "v1beta1";

/// A plug-in that answers for a resource.
#[derive(Clone)]
struct Endpoint {
    plugin: DevicePlugin,
    options: DevicePluginOptions,
    /// Of several that registered for the resource one after the other, only the last counts.
    generation: u64,
}

pub(crate) struct Devices {
    folder: PathBuf,
    metrics: Arc<Metrics>,
    tasks: Tasks,
    ledger: Mutex<Ledger>,
    endpoints: Mutex<BTreeMap<String, Endpoint>>,
    /// Counts what changed of the devices there are: the Node tells of it.
    changes: watch::Sender<u64>,
    /// One writes the books to disk at a time, and writes the newest.
    writing: tokio::sync::Mutex<()>,
}

impl Devices {
    /// With the books that an earlier kubelet of this node has left. Its plug-ins have to register again.
    pub(crate) fn open(root_dir: &Path, metrics: Arc<Metrics>, tasks: &Tasks) -> Arc<Self> {
        let folder = root_dir.join("device-plugins");
        let ledger = checkpoint::read(&folder, Instant::now()).unwrap_or_else(|why| {
            tracing::warn!("which container has which device is not known any more: {why}");
            Ledger::default()
        });
        Arc::new(Self {
            folder,
            metrics,
            tasks: tasks.clone(),
            ledger: Mutex::new(ledger),
            endpoints: Mutex::default(),
            changes: watch::Sender::new(0),
            writing: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Adds the devices to what the node has. A resource that is gone for good is told of as none.
    pub(crate) fn add_to(&self, amounts: &mut Amounts) {
        for (resource, (all, healthy)) in self.ledger.lock().amounts(Instant::now()) {
            amounts.capacity.insert(resource.clone(), Quantity(all.to_string()));
            amounts.allocatable.insert(resource, Quantity(healthy.to_string()));
        }
    }

    /// The devices of a pod are free again.
    pub(crate) async fn release(&self, uid: &str) {
        if self.ledger.lock().release(uid) {
            self.write().await;
        }
    }

    /// Pods that have devices.
    pub(crate) fn holders(&self) -> Vec<String> {
        self.ledger.lock().holders()
    }

    /// What the containers of a pod have.
    pub(crate) fn held(&self, uid: &str) -> BTreeMap<String, Vec<Held>> {
        self.ledger.lock().held(uid)
    }

    /// All healthy devices, by resource and place.
    pub(crate) fn healthy(&self) -> Vec<Held> {
        self.ledger.lock().healthy()
    }

    /// Devices that no plug-in has told of.
    #[cfg(test)]
    pub(crate) fn told(&self, resource: &str, devices: Vec<ferry_plugins::deviceplugin::Device>) {
        self.ledger.lock().told(resource, devices);
    }

    /// Writes the books down. What cannot be written is told, and written with the next change.
    async fn write(&self) {
        let _turn = self.writing.lock().await;
        let (folder, text) = (self.folder.clone(), checkpoint::text(&self.ledger.lock()));
        let written = tokio::task::spawn_blocking(move || checkpoint::write(&folder, &text)).await;
        match written.map_err(std::io::Error::other) {
            Ok(Ok(())) => {}
            Ok(Err(error)) | Err(error) => tracing::warn!("which container has which device is not written: {error}"),
        }
    }
}
