//! How full the volumes of claims are.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ferry_metrics::{Kind, Page, labels};
use futures::future::join_all;
use parking_lot::Mutex;

use super::blocking;
use crate::node::capacity::{self, Disk};

/// A share whose server is dead is left out; the others are told.
const PATIENCE: Duration = Duration::from_millis(500);

/// One of the figures of a file system.
type Figure = fn(&Disk) -> u64;

/// A claim by its namespace and name.
type ClaimKey = (String, String);

#[derive(Debug, Default)]
pub(crate) struct ClaimStats {
    /// Where the volumes of claims are, by pod.
    places: Mutex<HashMap<String, BTreeMap<ClaimKey, PathBuf>>>,
    /// Those that are being asked: a file system that does not answer is asked once.
    asked: Arc<Mutex<HashSet<PathBuf>>>,
}

impl ClaimStats {
    pub(super) fn put(&self, uid: &str, claims: BTreeMap<ClaimKey, PathBuf>) {
        let mut places = self.places.lock();
        if claims.is_empty() {
            places.remove(uid);
        } else {
            places.insert(uid.to_owned(), claims);
        }
    }

    pub(super) fn forget(&self, uid: &str) {
        self.places.lock().remove(uid);
    }

    /// One place for each claim, of whichever pod.
    fn places(&self) -> BTreeMap<ClaimKey, PathBuf> {
        let places = self.places.lock();
        places.values().flatten().map(|(claim, path)| (claim.clone(), path.clone())).collect()
    }

    async fn ask(&self, path: PathBuf, of: impl FnOnce(&Path) -> Disk + Send + 'static) -> Option<Disk> {
        if !self.asked.lock().insert(path.clone()) {
            return None;
        }
        let asked = self.asked.clone();
        let answer = blocking(move || {
            let disk = of(&path);
            asked.lock().remove(&path);
            Ok(disk)
        });
        let disk = tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()?;
        (disk.size > 0).then_some(disk)
    }

    /// In the format of Prometheus.
    pub(crate) async fn metrics(&self) -> String {
        let asked = self.places().into_iter().map(|(claim, path)| async move {
            let disk = self.ask(path, capacity::disk).await?;
            Some((labels([("namespace", claim.0.as_str()), ("persistentvolumeclaim", claim.1.as_str())]), disk))
        });
        let found: Vec<(String, Disk)> = join_all(asked).await.into_iter().flatten().collect();
        let mut page = Page::new();
        let families: [(&str, &str, Figure); 6] = [
            ("kubelet_volume_stats_capacity_bytes", "Capacity in bytes of the volume", |disk| disk.size),
            ("kubelet_volume_stats_available_bytes", "Number of available bytes in the volume", |disk| disk.available),
            ("kubelet_volume_stats_used_bytes", "Number of used bytes in the volume", |disk| disk.used),
            ("kubelet_volume_stats_inodes", "Maximum number of inodes in the volume", |disk| disk.inodes),
            ("kubelet_volume_stats_inodes_free", "Number of free inodes in the volume", |disk| disk.inodes_free),
            ("kubelet_volume_stats_inodes_used", "Number of used inodes in the volume", |disk| {
                disk.inodes.saturating_sub(disk.inodes_free)
            }),
        ];
        for (name, help, of) in families.into_iter().filter(|_| !found.is_empty()) {
            let mut family = page.family(name, Kind::Gauge, help);
            for (with, disk) in &found {
                family.sample(with, of(disk));
            }
        }
        page.into_text()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[tokio::test]
    async fn volumes_of_claims_are_told_once_each() {
        let folder = tempfile::tempdir().expect("a folder");
        let stats = ClaimStats::default();
        assert_eq!(stats.metrics().await, "");
        let claim = |name: &str| ("default".to_owned(), name.to_owned());
        let of = |names: &[&str]| names.iter().map(|name| (claim(name), folder.path().to_owned())).collect();
        stats.put("a", of(&["data"]));
        stats.put("b", of(&["data"]));
        stats.put("c", BTreeMap::from([(claim("gone"), folder.path().join("gone"))]));
        let told = stats.metrics().await;
        let samples: BTreeSet<&str> =
            told.lines().filter(|line| line.starts_with("kubelet_volume_stats_capacity_bytes{")).collect();
        assert_eq!(samples.len(), 1, "{told}");
        let with = "kubelet_volume_stats_capacity_bytes{namespace=\"default\",persistentvolumeclaim=\"data\"} ";
        assert!(samples.iter().all(|line| line.starts_with(with)), "{told}");
        for family in ["available_bytes", "used_bytes", "inodes", "inodes_free", "inodes_used"] {
            assert!(told.contains(&format!("# TYPE kubelet_volume_stats_{family} gauge\n")), "{family}: {told}");
        }
        stats.forget("a");
        stats.put("b", BTreeMap::new());
        assert_eq!(stats.metrics().await, "");
    }

    /// A share of a dead server took a thread with every scrape.
    #[tokio::test]
    async fn a_file_system_that_does_not_answer_is_asked_once() {
        let stats = ClaimStats::default();
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let dead = PathBuf::from("/dead");
        let hung = stats.ask(dead.clone(), move |_| {
            let _ = wait.recv();
            Disk { size: 1, ..Disk::default() }
        });
        assert!(hung.await.is_none(), "nobody waits for it");
        assert!(stats.ask(dead.clone(), |_| unreachable!("it is being asked")).await.is_none());
        drop(release);
        let answers = async {
            while stats.ask(dead.clone(), |_| Disk { size: 2, ..Disk::default() }).await.is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), answers).await.expect("asked again");
    }
}
