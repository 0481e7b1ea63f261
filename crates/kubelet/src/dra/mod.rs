//! Devices that pods claim (DRA): the drivers of this node, and what they have prepared for which pods.
//!
//! [`claims`] says which claims a pod has and whether it may use them, [`prepare`] has their devices prepared and given
//! back, [`record`] carries what is prepared over a restart.

mod claims;
mod prepare;
mod record;
mod slices;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferry_plugins::DeviceDriver;
use parking_lot::Mutex;

pub(crate) use claims::used;
use record::PreparedClaims;
pub(crate) use record::{PreparedDevice, Shown};
pub(crate) use slices::withdraw;

/// The interface that a driver has to offer.
pub(crate) const SERVICE: &str = "v1.DRAPlugin";

pub(crate) struct Dra {
    file: PathBuf,
    drivers: Mutex<BTreeMap<String, DeviceDriver>>,
    state: Mutex<PreparedClaims>,
    /// One pod at a time has the devices of a claim prepared or given back.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    writing: tokio::sync::Mutex<()>,
}

impl Dra {
    pub(crate) fn open(root_dir: &Path) -> Arc<Self> {
        let file = root_dir.join("dra_manager_state");
        let state = record::read(&file).unwrap_or_else(|why| {
            tracing::warn!("which claims are prepared is not known any more: {}: {why}", file.display());
            PreparedClaims::default()
        });
        Arc::new(Self {
            file,
            drivers: Mutex::default(),
            state: Mutex::new(state),
            turns: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn register(&self, name: &str, endpoint: &Path) {
        self.drivers.lock().insert(name.to_owned(), DeviceDriver::new(ferry_cri::channel(endpoint)));
        tracing::info!("the device driver {name} has registered");
    }

    pub(crate) fn forget(&self, name: &str) {
        self.drivers.lock().remove(name);
        tracing::info!("the device driver {name} is gone");
    }

    pub(crate) fn is_registered(&self, name: &str) -> bool {
        self.drivers.lock().contains_key(name)
    }

    fn driver(&self, name: &str) -> Result<DeviceDriver, String> {
        let known = self.drivers.lock().get(name).cloned();
        known.ok_or_else(|| format!("DRA driver {name} is not registered"))
    }

    fn turn(&self, claim: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.turns.lock().entry(claim.to_owned()).or_default().clone()
    }

    /// Pods whose claims are prepared.
    pub(crate) fn users(&self) -> Vec<String> {
        self.state.lock().users()
    }

    /// What is prepared for a pod.
    pub(crate) fn shown(&self, uid: &str) -> Vec<Shown> {
        self.state.lock().shown(uid)
    }

    async fn write(&self) -> Result<(), String> {
        let _turn = self.writing.lock().await;
        let (file, text) = (self.file.clone(), record::text(&self.state.lock()));
        let written = tokio::task::spawn_blocking(move || record::write(&file, &text)).await;
        let written = written.map_err(std::io::Error::other).and_then(|written| written);
        written.map_err(|error| format!("{}: {error}", self.file.display()))
    }
}
