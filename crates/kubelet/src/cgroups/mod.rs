//! Control groups of pods: each pod has one below its class of service, so that the kernel shares out processor time
//! by what pods asked for and holds a pod as a whole to its limits. The runtime makes the containers' groups inside. Groups are
//! named by plain parts here; where systemd makes them, `driver` has their names as slices.

mod amounts;
mod driver;
mod limits;
mod protection;
mod top;

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

pub use driver::{CgroupDriver, slice_of};

pub(crate) use amounts::{Amounts, limit_of, of as amounts_of, request_of, requests};

use crate::memory_policy::MemoryPolicy;
use crate::node_resources::allocatable::TopLimits;
use crate::pod;
use crate::spec::resources::shares;

/// The controllers a pod's limits need.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// Which CPUs and NUMA nodes containers may use.
const PLACEMENT: &str = "cpuset";
const CLASSES: [&str; 2] = ["burstable", "besteffort"];

pub(crate) struct ControlGroups {
    /// Where the hierarchies are mounted.
    mounts: PathBuf,
    /// The group of all pods, without the leading slash.
    top: PathBuf,
    unified: bool,
    /// How many processes and threads a pod may have; none for no limit of its own.
    pod_pids: Option<u64>,
    /// How many all pods together may have: what the kernel gives the whole machine.
    all_pids: Option<u64>,
    protection: protection::Protection,
    /// The processor time, in thousandths, and the memory, in bytes, that all pods together may have.
    all: Option<(i64, i64)>,
    /// What the burstable pods asked for, by uid, in thousandths: their class gets the sum.
    burstable: tokio::sync::Mutex<HashMap<String, i64>>,
    /// Where systemd makes the groups.
    slices: Option<driver::Slices>,
}

impl ControlGroups {
    /// All pods live in `kubepods` below `root`.
    pub(crate) fn new(mounts: &Path, root: &Path) -> Self {
        Self {
            unified: mounts.join("cgroup.controllers").exists(),
            mounts: mounts.to_owned(),
            top: root.strip_prefix("/").unwrap_or(root).join("kubepods"),
            pod_pids: None,
            all_pids: None,
            protection: protection::Protection::default(),
            all: None,
            burstable: tokio::sync::Mutex::default(),
            slices: None,
        }
    }

    /// The same, with limits to the processes of each pod and of all of them.
    pub(crate) fn limiting_processes(self, pod: Option<u64>, all: Option<u64>) -> Self {
        Self { pod_pids: pod, all_pids: all, ..self }
    }

    /// The same, with memory kept for pods and pods slowed down as the policy says.
    pub(crate) fn with_memory(self, policy: MemoryPolicy) -> Self {
        Self { protection: protection::Protection::new(policy), ..self }
    }

    /// The same, with limits to processor time and memory of all pods together.
    pub(crate) fn limiting_all(self, limits: &TopLimits) -> Self {
        Self { all_pids: Some(limits.processes), all: Some((limits.cpu, limits.memory)), ..self }
    }

    /// Without them no pod can run; said when the kubelet starts, not by every pod.
    pub(crate) fn check(&self) -> Result<(), String> {
        let offered = fs::read_to_string(self.mounts.join("cgroup.controllers")).unwrap_or_default();
        let is_there = |controller: &str| {
            if self.unified {
                offered.split_whitespace().any(|known| known == controller)
            } else {
                self.mounts.join(controller).join("cgroup.procs").exists()
            }
        };
        // Without `pids` nobody counts processes: only a limit to them needs it.
        let needed = CONTROLLERS.into_iter().filter(|controller| *controller != "pids" || self.pod_pids.is_some());
        let missing: Vec<&str> = needed.filter(|controller| !is_there(controller)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let (missing, mounts) = (missing.join(" and "), self.mounts.display());
        Err(format!("control groups for {missing} are not mounted at {mounts}; in a container, mount the host's there"))
    }

    fn class(pod: &Pod) -> &'static str {
        match pod::qos_class(pod) {
            "Guaranteed" => "",
            "BestEffort" => CLASSES[1],
            _ => CLASSES[0],
        }
    }

    fn group(&self, pod: &Pod) -> PathBuf {
        self.top.join(Self::class(pod)).join(format!("pod{}", pod::uid(pod)))
    }

    /// The parent of the pod's containers, as the runtime is told.
    pub(crate) fn parent(&self, pod: &Pod) -> String {
        Path::new("/").join(self.place(&self.group(pod))).to_string_lossy().into_owned()
    }

    /// Makes the pod's group and writes its limits; may be called again when they change.
    pub(crate) async fn apply(&self, pod: &Pod, amounts: &Amounts) -> io::Result<()> {
        let group = self.group(pod);
        self.make(&group).await?;
        let mut top = vec![self.shares(self.all.map_or_else(processors, |(cpu, _)| shares(cpu)))];
        let mut own = vec![self.shares(amounts.shares)];
        // A pod that forks without end runs into its own limit, and all pods together into theirs before the machine does.
        if self.counts_processes() {
            top.push(self.processes_at_most(self.all_pids));
            own.push(self.processes_at_most(self.pod_pids));
        }
        self.write(&self.top, &top).await?;
        match Self::class(pod) {
            "burstable" => self.count_burstable(pod::uid(pod), Some(amounts.milli)).await?,
            "besteffort" => self.write(&self.top.join(CLASSES[1]), &[self.shares(2)]).await?,
            _ => {}
        }
        own.extend(self.quota(&group, amounts));
        own.push(self.memory(amounts.memory));
        self.write(&group, &own).await?;
        if self.unified { self.protect(pod, amounts.memory).await } else { Ok(()) }
    }

    fn counts_processes(&self) -> bool {
        if self.unified {
            let offered = fs::read_to_string(self.mounts.join("cgroup.controllers")).unwrap_or_default();
            return offered.split_whitespace().any(|known| known == "pids");
        }
        self.mounts.join("pids").join("cgroup.procs").exists()
    }

    /// Removes the group of a pod whose containers are gone. What is not there is no error.
    pub(crate) async fn remove(&self, uid: &str) {
        for class in ["", CLASSES[0], CLASSES[1]] {
            let group = self.top.join(class).join(format!("pod{uid}"));
            if let Some(slices) = self.slices.as_ref().filter(|_| self.folder("memory", &group).exists())
                && let Err(error) = slices.stop(&group).await
            {
                tracing::warn!("the slice of a pod that is gone is not stopped: {error}");
            }
            let place = self.place(&group);
            self.hierarchies().for_each(|mount| remove_tree(&mount.join(&place)));
        }
        if let Err(error) = self.unprotect(uid).await {
            tracing::debug!("protected memory of all pods not written: {error}");
        }
        if let Err(error) = self.count_burstable(uid, None).await {
            tracing::debug!("shares of burstable pods not written: {error}");
        }
    }

    /// The pods that have a group.
    pub(crate) fn known(&self) -> Vec<String> {
        let above = ["", CLASSES[0], CLASSES[1]].map(|class| self.top.join(class));
        let pods = above.iter().flat_map(|above| {
            let entries = fs::read_dir(self.folder("memory", above)).into_iter().flatten().flatten();
            entries.filter_map(move |entry| self.uid_in(above, entry.file_name().to_str()?))
        });
        pods.collect()
    }

    /// How many processes a pod has.
    pub(crate) fn processes(&self, pod: &Pod) -> Option<i64> {
        let group = self.folder("pids", &self.group(pod));
        fs::read_to_string(group.join("pids.current")).ok()?.trim().parse().ok()
    }

    /// Memory of the whole machine that cannot be taken back easily, in bytes; none where the kernel does not tell.
    /// `used` is what is not free, for the newer hierarchy, whose topmost group does not count.
    pub(crate) fn working_set(&self, used: u64) -> Option<u64> {
        let folder = self.folder("memory", Path::new(""));
        let table = fs::read_to_string(folder.join("memory.stat")).ok()?;
        let (key, used) = if self.unified {
            ("inactive_file", used)
        } else {
            let total = fs::read_to_string(folder.join("memory.usage_in_bytes")).ok()?;
            ("total_inactive_file", total.trim().parse().ok()?)
        };
        let idle = table.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse::<u64>().ok());
        Some(used.saturating_sub(idle?))
    }

    async fn count_burstable(&self, uid: &str, milli: Option<i64>) -> io::Result<()> {
        // Held until it is written: an older sum must not come behind a newer.
        let mut counted = self.burstable.lock().await;
        let before = match milli {
            Some(milli) => counted.insert(uid.to_owned(), milli),
            None => counted.remove(uid),
        };
        if before == milli {
            return Ok(());
        }
        let sum = counted.values().fold(0_i64, |sum, milli| sum.saturating_add(*milli));
        self.write(&self.top.join(CLASSES[0]), &[self.shares(shares(sum))]).await
    }

    async fn make(&self, group: &Path) -> io::Result<()> {
        if !self.unified {
            let made = CONTROLLERS.into_iter().filter(|c| *c != "pids" || self.counts_processes());
            return made.into_iter().try_for_each(|c| make_folder(&self.folder(c, group)));
        }
        self.start_slices(group).await?;
        // A controller works in a group only when every group above hands it down.
        let offered = fs::read_to_string(self.mounts.join("cgroup.controllers"))?;
        let handed = CONTROLLERS.iter().chain(&[PLACEMENT]);
        let wanted = handed.filter(|c| offered.split_whitespace().any(|o| o == **c));
        let enable: Vec<String> = wanted.map(|c| format!("+{c}")).collect();
        let mut folder = self.mounts.clone();
        for part in self.place(group).components() {
            put(&folder, "cgroup.subtree_control", &enable.join(" "))?;
            folder.push(part);
            make_folder(&folder)?;
        }
        Ok(())
    }

    fn folder(&self, controller: &str, group: &Path) -> PathBuf {
        let place = self.place(group);
        if self.unified { self.mounts.join(place) } else { self.mounts.join(controller).join(place) }
    }

    /// The runtime makes groups in every hierarchy, so all of them are looked through.
    fn hierarchies(&self) -> impl Iterator<Item = PathBuf> {
        let separate = if self.unified { None } else { fs::read_dir(&self.mounts).ok() };
        let separate = separate.into_iter().flatten().flatten().map(|entry| entry.path());
        separate.chain(self.unified.then(|| self.mounts.clone()))
    }
}

fn processors() -> i64 {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    shares(i64::try_from(count).unwrap_or(1).saturating_mul(1000))
}

fn put(folder: &Path, file: &str, text: &str) -> io::Result<()> {
    let path = folder.join(file);
    fs::write(&path, text).map_err(|error| named(&path, &error))
}

/// Open to everybody, as those of other kubelets, whatever the process's umask is: a container with users of its own has to find its
/// group.
fn make_folder(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|one| !one.exists()).collect();
    fs::create_dir_all(path).map_err(|error| named(path, &error))?;
    let open = |one: &Path| fs::set_permissions(one, Permissions::from_mode(0o755)).map_err(|error| named(one, &error));
    missing.into_iter().chain([path]).try_for_each(open)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// rmdir from the leaves up: the files of a group cannot be deleted and need not be.
fn remove_tree(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for child in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir())) {
        remove_tree(&child.path());
    }
    if let Err(error) = fs::remove_dir(folder) {
        tracing::debug!("control group {} not removed: {error}", folder.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_resources::Quotas;
    use serde_json::{Value, json};

    fn pod(uid: &str, resources: Value) -> Pod {
        let container = json!({"name": "c", "resources": resources});
        let pod = json!({"metadata": {"name": "p", "uid": uid}, "spec": {"containers": [container]}});
        serde_json::from_value(pod).expect("a pod")
    }

    /// Plain folders stand for the kernel's: which files get which numbers is the same.
    #[test]
    fn groups_are_open_to_everybody() {
        let mounts = tempfile::tempdir().expect("a folder");
        let closed = mounts.path().join("ferry");
        fs::create_dir(&closed).expect("a folder");
        fs::set_permissions(&closed, Permissions::from_mode(0o700)).expect("closed");
        make_folder(&closed).expect("made");
        make_folder(&closed.join("kubepods/pod")).expect("made");
        for one in ["", "kubepods", "kubepods/pod"] {
            let mode = fs::metadata(closed.join(one)).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o755, "{one}");
        }
    }

    #[tokio::test]
    async fn limits_are_written_where_the_kernel_reads_them() {
        let mounts = tempfile::tempdir().expect("a folder");
        let read = |path: &str| fs::read_to_string(mounts.path().join(path)).expect(path);
        let groups = ControlGroups::new(mounts.path(), Path::new("/box"));
        let small = pod("a", json!({"requests": {"cpu": "250m"}, "limits": {"memory": "4Mi"}}));
        let large = pod("b", json!({"requests": {"cpu": "750m"}}));
        for pod in [&small, &large] {
            groups.apply(pod, &amounts_of(pod, Quotas::default())).await.expect("applied");
        }
        assert_eq!(groups.parent(&small), "/box/kubepods/burstable/poda");
        assert_eq!(read("cpu/box/kubepods/burstable/poda/cpu.shares"), "256");
        assert_eq!(read("cpu/box/kubepods/burstable/poda/cpu.cfs_quota_us"), "-1");
        assert_eq!(read("memory/box/kubepods/burstable/poda/memory.limit_in_bytes"), "4194304");
        assert_eq!(read("cpu/box/kubepods/burstable/cpu.shares"), "1024");
        let mut known = groups.known();
        known.sort();
        assert_eq!(known, ["a", "b"]);
        groups.remove("b").await;
        assert_eq!(read("cpu/box/kubepods/burstable/cpu.shares"), "256");
    }

    #[tokio::test]
    async fn processes_are_limited_where_the_kernel_counts_them() {
        let pod = pod("a", json!({}));
        for unified in [false, true] {
            let mounts = tempfile::tempdir().expect("a folder");
            let path = |path: &str| mounts.path().join(if unified { "" } else { "pids" }).join(path);
            let read = |name: &str| fs::read_to_string(path(name)).expect(name);
            let groups = |pod, all| ControlGroups::new(mounts.path(), Path::new("/")).limiting_processes(pod, all);
            let name = "kubepods/besteffort/poda/pids.max";
            if unified {
                fs::write(mounts.path().join("cgroup.controllers"), "cpu memory\n").expect("written");
            }
            // Where nobody counts, only a limit is too much.
            groups(None, Some(4)).apply(&pod, &amounts_of(&pod, Quotas::default())).await.expect("applied");
            assert!(!path(name).exists());
            assert!(groups(Some(7), Some(4)).check().is_err_and(|why| why.contains("pids are not mounted")));
            if unified {
                fs::write(mounts.path().join("cgroup.controllers"), "cpu memory pids\n").expect("written");
            } else {
                fs::create_dir(mounts.path().join("pids")).expect("a folder");
                fs::write(path("cgroup.procs"), "").expect("written");
            }
            groups(Some(7), Some(4000)).apply(&pod, &amounts_of(&pod, Quotas::default())).await.expect("applied");
            assert_eq!((read(name).as_str(), read("kubepods/pids.max").as_str()), ("7", "4000"));
            groups(None, None).apply(&pod, &amounts_of(&pod, Quotas::default())).await.expect("applied");
            assert_eq!((read(name).as_str(), read("kubepods/pids.max").as_str()), ("max", "max"));
        }
    }

    #[test]
    fn a_machine_without_control_groups_is_refused() {
        let mounts = tempfile::tempdir().expect("a folder");
        let check = || ControlGroups::new(mounts.path(), Path::new("/")).check();
        assert!(check().is_err_and(|why| why.starts_with("control groups for cpu and memory are not mounted")));
        for controller in ["cpu", "memory"] {
            fs::create_dir(mounts.path().join(controller)).expect("a folder");
            fs::write(mounts.path().join(controller).join("cgroup.procs"), "").expect("written");
        }
        assert_eq!(check(), Ok(()));
        fs::write(mounts.path().join("cgroup.controllers"), "cpu io\n").expect("written");
        assert!(check().is_err_and(|why| why.starts_with("control groups for memory are")));
        fs::write(mounts.path().join("cgroup.controllers"), "cpu io memory\n").expect("written");
        assert_eq!(check(), Ok(()));
    }

    #[tokio::test]
    async fn the_unified_hierarchy_hands_controllers_down() {
        let mounts = tempfile::tempdir().expect("a folder");
        fs::write(mounts.path().join("cgroup.controllers"), "cpu io memory\n").expect("written");
        let read = |path: &str| fs::read_to_string(mounts.path().join(path)).expect(path);
        let groups = ControlGroups::new(mounts.path(), Path::new("/"));
        let pod = pod("a", json!({"limits": {"cpu": "500m", "memory": "1Mi"}}));
        groups.apply(&pod, &amounts_of(&pod, Quotas::default())).await.expect("applied");
        assert_eq!(groups.parent(&pod), "/kubepods/poda");
        assert_eq!(read("cgroup.subtree_control"), "+cpu +memory");
        assert_eq!(read("kubepods/cgroup.subtree_control"), "+cpu +memory");
        assert_eq!(read("kubepods/poda/cpu.max"), "50000 100000");
        assert_eq!(read("kubepods/poda/memory.max"), "1048576");
        assert_eq!(read("kubepods/poda/cpu.weight"), "20");
    }
}
