//! The control group of a container: made, limited, emptied, taken away. Both generations of the kernel's interface.

mod devices;
mod limits;
mod scope;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Component, Path, PathBuf};

use super::document::Resources;
pub(super) use devices::Instruction as DeviceInstruction;
use ferry_systemd::properties;
use limits::Entry;
use scope::Scope;
pub(crate) use scope::name;

const MOUNTS: &str = "/sys/fs/cgroup";
/// Of the first generation's file systems.
const FIRST_GENERATION: u32 = 0x0027_E0EB;

/// Where one group is: a folder, or one in each hierarchy.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    unified: bool,
    folders: Vec<PathBuf>,
    /// Where systemd makes it.
    scope: Option<Scope>,
}

impl Group {
    /// `name` is the path below each hierarchy's root.
    pub(crate) fn new(name: &str) -> Self {
        Self::below(Path::new(MOUNTS), name)
    }

    fn below(mounts: &Path, name: &str) -> Self {
        let scope = Scope::of(name);
        let name = name.trim_matches('/');
        if mounts.join("cgroup.controllers").exists() {
            return Self { unified: true, folders: vec![mounts.join(name)], scope };
        }
        // Controllers that are mounted together have links with the names of each.
        let hierarchies: BTreeSet<PathBuf> = crate::state::folders(mounts)
            .into_iter()
            .filter(|folder| {
                let kind = rustix::fs::statfs(folder).map(|about| about.f_type);
                kind.is_ok_and(|kind| u32::try_from(kind).is_ok_and(|kind| kind == FIRST_GENERATION))
            })
            .collect();
        let folders = hierarchies.into_iter().map(|hierarchy| hierarchy.join(name)).collect();
        Self { unified: false, folders, scope: None }
    }

    /// The folder of one controller.
    fn folder(&self, file: &str) -> Option<&Path> {
        self.folders.iter().map(PathBuf::as_path).find(|folder| self.unified || folder.join(file).exists())
    }

    /// Whether systemd makes it, around a process that waits for that.
    pub(crate) fn is_scope(&self) -> bool {
        self.scope.is_some()
    }

    /// Where systemd takes it away by itself: the file that still tells of memory when it is gone.
    pub(crate) fn pod_memory_events(&self) -> Option<PathBuf> {
        let folder = self.folders.first().filter(|_| self.is_scope())?;
        Some(folder.parent()?.join("memory.events"))
    }

    /// Has systemd make it around a process, limited from the beginning. What systemd does not know is still to be made.
    pub(crate) async fn begin_scope(&self, process: i32, resources: &Resources) -> io::Result<()> {
        let Some(scope) = &self.scope else { return Ok(()) };
        scope.start(process, self.properties(resources)).await?;
        // systemd hands down the controllers that it knows.
        for folder in &self.folders {
            let above: Vec<&Path> = folder.ancestors().skip(1).take_while(|one| one.starts_with(MOUNTS)).collect();
            above.into_iter().rev().for_each(delegate);
        }
        Ok(())
    }

    /// Makes the group and limits it; nobody is in it yet, but where systemd has made it.
    pub(crate) fn make(&self, resources: &Resources) -> io::Result<()> {
        for folder in &self.folders {
            self.make_folder(folder)?;
        }
        self.write(resources)?;
        if self.unified {
            let folder = self.folders.first().ok_or_else(|| io::Error::other("no control groups are mounted"))?;
            return devices::attach(folder, &resources.devices);
        }
        devices::write(self.folder("devices.deny"), &resources.devices)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        let failed =
            |error: io::Error| io::Error::new(error.kind(), format!("control group {}: {error}", folder.display()));
        let missing: Vec<&Path> = folder.ancestors().take_while(|one| !one.exists()).collect();
        for one in missing.into_iter().rev() {
            match fs::create_dir(one) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
                _ => {}
            }
            if let Some(parent) = one.parent().filter(|_| self.unified) {
                delegate(parent);
            }
        }
        if self.unified {
            return Ok(());
        }
        // Without processors and memory of its own nobody can be in it. From the top, and not only in those made here: whoever
        // made the others at the same time may not have come to this yet.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let mut chain: Vec<&Path> = folder.ancestors().take_while(|one| one.join(file).exists()).collect();
            chain.pop();
            chain.into_iter().rev().try_for_each(|one| inherit(one, file)).map_err(failed)?;
        }
        Ok(())
    }

    /// Changes its limits.
    pub(crate) async fn limit(&self, resources: &Resources) -> io::Result<()> {
        if let Some(scope) = &self.scope {
            scope.limit(self.properties(resources)).await?;
        }
        self.write(resources)
    }

    fn write(&self, resources: &Resources) -> io::Result<()> {
        let find = |file: &str| self.folder(file).map(|folder| folder.join(file)).filter(|path| path.exists());
        limits::write(&self.wanted(resources), find)
    }

    fn wanted(&self, resources: &Resources) -> Vec<Entry> {
        match (&self.scope, self.unified) {
            (_, false) => limits::first_generation(resources),
            (None, true) => limits::unified(resources),
            (Some(_), true) => limits::unified(resources).into_iter().map(Entry::for_systemd).collect(),
        }
    }

    /// What is written into files, as systemd has to know it: it would write something else there, later.
    fn properties(&self, resources: &Resources) -> Vec<ferry_systemd::Property> {
        let wanted = self.wanted(resources);
        properties::of_files(wanted.iter().map(Entry::pair))
    }

    /// The caller joins it.
    pub(crate) fn join(&self) -> io::Result<()> {
        self.folders.iter().try_for_each(|folder| {
            let joined = fs::write(folder.join("cgroup.procs"), "0");
            joined.map_err(|error| {
                io::Error::new(error.kind(), format!("cannot join control group {}: {error}", folder.display()))
            })
        })
    }

    /// The caller joins it, or the group below it that the container's first process has made for itself: a group that shares
    /// its limits out among those below it can hold no process (systemd does that).
    pub(crate) fn join_beside(&self, first: BorrowedFd<'_>) -> io::Result<()> {
        match (self.join(), self.folders.first()) {
            (Err(error), Some(folder)) if self.unified && error.kind() == io::ErrorKind::ResourceBusy => {
                match group_of(first, folder) {
                    Some(below) => Self { unified: true, folders: vec![below], scope: None }.join(),
                    None => Err(error),
                }
            }
            (joined, _) => joined,
        }
    }

    /// Its folders in the hierarchies of the first generation; none in the second.
    pub(crate) fn hierarchies(&self) -> Vec<PathBuf> {
        if self.unified { Vec::new() } else { self.folders.clone() }
    }

    /// Whether anything is left of it.
    pub(crate) fn exists(&self) -> bool {
        self.folders.iter().any(|folder| folder.exists())
    }

    /// Kills whoever is in it or in groups below; true when nobody was.
    pub(crate) fn kill(&self) -> bool {
        if let Some(folder) = self.folders.first().filter(|_| self.unified)
            && fs::write(folder.join("cgroup.kill"), "1").is_ok()
        {
            return fs::read_to_string(folder.join("cgroup.events")).is_ok_and(|text| text.contains("populated 0"));
        }
        let folder = self.folder("pids.current").or_else(|| self.folders.first().map(PathBuf::as_path));
        let mut empty = true;
        for group in folder.into_iter().flat_map(groups_below) {
            for pid in fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().lines() {
                // 0 is a process of another process namespace, which is not ours.
                if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw) {
                    empty = false;
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
        empty
    }

    /// Takes its folders away, inner ones first; fails while somebody is in it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for folder in &self.folders {
            for group in groups_below(folder).into_iter().rev() {
                match fs::remove_dir(&group) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Kills and takes away: who was killed needs a moment to go.
    pub(crate) async fn take_away(&self) -> io::Result<()> {
        const TRIES: u32 = 200;
        let mut wait = std::time::Duration::from_millis(1);
        for _ in 0..TRIES {
            if !self.exists() {
                return Ok(());
            }
            // The kernel may still hold a group for a moment after its last process.
            if self.kill() && self.remove().is_ok() {
                return Ok(());
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(std::time::Duration::from_millis(100));
        }
        self.remove()
    }
}

/// The group of a process, if it is below `folder`.
fn group_of(process: BorrowedFd<'_>, folder: &Path) -> Option<PathBuf> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    let pid = about.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim();
    let pid: u32 = pid.parse().ok()?;
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    // While it is there, its number is no other's.
    super::signal(process, 0).ok()?;
    inner_group(Path::new(MOUNTS), &groups, folder)
}

/// The group that `/proc/N/cgroup` tells of.
fn inner_group(mounts: &Path, groups: &str, folder: &Path) -> Option<PathBuf> {
    let name = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = mounts.join(name);
    let is_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    (is_plain && group != folder && group.starts_with(folder)).then_some(group)
}

/// A group and all below it, outer ones first. Containers make groups below theirs, so their number is bounded.
fn groups_below(folder: &Path) -> Vec<PathBuf> {
    const MOST: usize = 100_000;
    let mut found = vec![folder.to_owned()];
    let mut place = 0;
    while let Some(next) = found.get(place).cloned() {
        if found.len() < MOST {
            found.extend(crate::state::folders(&next));
        }
        place += 1;
    }
    found
}

/// Lets groups below have limits. A controller that cannot be passed on is missed where it is needed.
fn delegate(parent: &Path) {
    let offered = fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
    let passed = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
    for controller in offered.split_whitespace().filter(|one| !passed.split_whitespace().any(|known| known == *one)) {
        let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

fn inherit(folder: &Path, file: &str) -> io::Result<()> {
    let (own, Some(parent)) = (folder.join(file), folder.parent()) else { return Ok(()) };
    if own.exists() && fs::read_to_string(&own)?.trim().is_empty() {
        fs::write(&own, fs::read_to_string(parent.join(file))?.trim())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
