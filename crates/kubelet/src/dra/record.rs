//! What is prepared of which claim, for which pods; in memory and on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PreparedDevice {
    /// The requests of the claim that it is for; all where there is none.
    pub(crate) request_names: Vec<String>,
    pub(crate) pool_name: String,
    pub(crate) device_name: String,
    pub(crate) cdi_device_ids: Vec<String>,
    pub(crate) share_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Claim {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The pods that use it.
    pub(super) pods: BTreeSet<String>,
    /// By driver. None: it was asked, and what came of it is not known.
    pub(super) drivers: BTreeMap<String, Option<Vec<PreparedDevice>>>,
}

/// By the uid of the claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct PreparedClaims {
    claims: BTreeMap<String, Claim>,
}

/// A claim of a pod as others are told of it.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) drivers: BTreeMap<String, Vec<PreparedDevice>>,
}

impl PreparedClaims {
    /// A pod begins to use a claim. Gives the drivers that have nothing prepared for it yet.
    pub(super) fn begin(&mut self, uid: &str, pod: &str, of: (&str, &str), drivers: &BTreeSet<String>) -> Vec<String> {
        let claim = self.claims.entry(uid.to_owned()).or_default();
        (claim.namespace, claim.name) = (of.0.to_owned(), of.1.to_owned());
        claim.pods.insert(pod.to_owned());
        for driver in drivers {
            claim.drivers.entry(driver.clone()).or_default();
        }
        claim.drivers.iter().filter(|(_, devices)| devices.is_none()).map(|(name, _)| name.clone()).collect()
    }

    /// Those of the drivers that have nothing prepared for a claim.
    pub(super) fn unprepared_of(&self, uid: &str, drivers: &BTreeSet<String>) -> Vec<String> {
        let known = self.claims.get(uid);
        let prepared = |driver: &&String| {
            known.and_then(|claim| claim.drivers.get(*driver)).is_some_and(|devices| devices.is_some())
        };
        drivers.iter().filter(|driver| !prepared(driver)).cloned().collect()
    }

    pub(super) fn prepared(&mut self, uid: &str, driver: &str, devices: Vec<PreparedDevice>) {
        if let Some(claim) = self.claims.get_mut(uid) {
            claim.drivers.insert(driver.to_owned(), Some(devices));
        }
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Claim> {
        self.claims.get(uid)
    }

    /// The claims that a pod uses.
    pub(super) fn of_pod(&self, pod: &str) -> Vec<String> {
        let used = self.claims.iter().filter(|(_, claim)| claim.pods.contains(pod));
        used.map(|(uid, _)| uid.clone()).collect()
    }

    /// The pod does not use the claim any more; another one still may.
    pub(super) fn leave(&mut self, uid: &str, pod: &str) {
        if let Some(claim) = self.claims.get_mut(uid) {
            claim.pods.remove(pod);
        }
    }

    pub(super) fn unprepared(&mut self, uid: &str, driver: &str) {
        if let Some(claim) = self.claims.get_mut(uid) {
            claim.drivers.remove(driver);
        }
    }

    pub(super) fn forget(&mut self, uid: &str) {
        self.claims.remove(uid);
    }

    pub(super) fn users(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self.claims.values().flat_map(|claim| &claim.pods).collect();
        all.into_iter().cloned().collect()
    }

    /// By name in the namespace of a pod: CDI devices are looked up by it.
    pub(super) fn of_name(&self, pod: &str, name: &str) -> Option<&Claim> {
        self.claims.values().find(|claim| claim.name == name && claim.pods.contains(pod))
    }

    pub(super) fn shown(&self, pod: &str) -> Vec<Shown> {
        let used = self.claims.values().filter(|claim| claim.pods.contains(pod));
        let shown = used.map(|claim| Shown {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            drivers: (claim.drivers.iter())
                .filter_map(|(name, devices)| Some((name.clone(), devices.clone()?)))
                .collect(),
        });
        shown.collect()
    }
}

pub(super) fn text(state: &PreparedClaims) -> String {
    serde_json::to_string(state).unwrap_or_default()
}

pub(super) fn write(file: &Path, text: &str) -> io::Result<()> {
    // Whole or not at all: half a record would leave devices prepared for ever.
    let half = file.with_extension("new");
    fs::write(&half, text)?;
    fs::rename(half, file)
}

pub(super) fn read(file: &Path) -> Result<PreparedClaims, String> {
    match fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PreparedClaims::default()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_prepared_is_known_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("state");
        assert_eq!(read(&file), Ok(PreparedClaims::default()));
        let mut state = PreparedClaims::default();
        let drivers = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(state.begin("claim", "pod", ("n", "c"), &drivers), ["a", "b"]);
        let device = PreparedDevice { device_name: "d".into(), ..PreparedDevice::default() };
        state.prepared("claim", "a", vec![device]);
        assert_eq!(state.begin("claim", "other", ("n", "c"), &drivers), ["b"], "what is prepared serves both");
        write(&file, &text(&state)).expect("written");
        assert_eq!(read(&file), Ok(state.clone()));
        state.leave("claim", "pod");
        assert_eq!((state.of_pod("pod").len(), state.users()), (0, vec!["other".to_owned()]));
        fs::write(&file, "{").expect("torn");
        assert!(read(&file).is_err());
    }
}
