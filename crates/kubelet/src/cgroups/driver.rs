//! Who makes control groups: the kubelet by folders, or systemd as slices.

use std::collections::HashMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use ferry_systemd::{Property, Systemd, properties, slices};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use super::limits::Entry;
use super::{ControlGroups, named};

/// Who makes the control groups of pods, and how they are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupDriver {
    #[default]
    Cgroupfs,
    Systemd,
}

impl CgroupDriver {
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Cgroupfs, Self::Systemd].into_iter().find(|driver| driver.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Cgroupfs => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }
}

/// Where the slice of a control group is below the mounts of control groups, where systemd is the driver.
pub fn slice_of(group: &Path) -> PathBuf {
    slices::path(group)
}

/// systemd, and what it was told of each slice last.
pub(super) struct Slices {
    systemd: Systemd,
    told: Mutex<HashMap<PathBuf, Vec<Property>>>,
}

impl Slices {
    pub(super) fn new(systemd: Systemd) -> Self {
        Self { systemd, told: Mutex::default() }
    }

    /// Makes a slice; one that is there already is only counted from now on.
    async fn start(&self, group: &Path) -> io::Result<()> {
        let unit = slices::unit(group);
        let whose = format!("Kubernetes pods in {}", group.display());
        self.systemd.start_slice(&unit, ferry_systemd::slice(&unit, whose), Vec::new()).await?;
        self.told.lock().entry(group.to_owned()).or_default();
        Ok(())
    }

    fn is_known(&self, group: &Path) -> bool {
        self.told.lock().contains_key(group)
    }

    /// Tells systemd what is to be written into files: it would write something else there otherwise, later. What it knows
    /// already is not told again.
    async fn tell(&self, group: &Path, entries: &[Entry]) -> io::Result<()> {
        let all = properties::of_files(entries.iter().map(|entry| (entry.file, entry.value.as_str())));
        let known = self.told.lock().get(group).cloned().unwrap_or_default();
        let new: Vec<Property> = all.into_iter().filter(|property| !known.contains(property)).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.systemd.set(&slices::unit(group), new.clone()).await?;
        let mut told = self.told.lock();
        let known = told.entry(group.to_owned()).or_default();
        known.retain(|known| new.iter().all(|property| property.name != known.name));
        known.extend(new);
        Ok(())
    }

    pub(super) async fn stop(&self, group: &Path) -> io::Result<()> {
        self.told.lock().remove(group);
        Ok(self.systemd.stop(&slices::unit(group)).await?)
    }
}

impl ControlGroups {
    /// The same, made by this driver; why that cannot be.
    pub(crate) async fn driven_by(self, driver: CgroupDriver) -> Result<Self, String> {
        if driver == CgroupDriver::Cgroupfs {
            return Ok(self);
        }
        if !Systemd::is_running() {
            return Err("cgroupDriver systemd: this machine was not started by systemd".to_owned());
        }
        if !self.unified {
            return Err(
                "cgroupDriver systemd needs control groups of version 2 alone; cgroupfs works with version 1 too"
                    .to_owned(),
            );
        }
        let systemd = Systemd::default();
        let version = systemd.version().await.map_err(|why| format!("cgroupDriver systemd: {why}"))?;
        tracing::info!("control groups of pods are slices of systemd {version}");
        Ok(self.sliced(systemd))
    }

    pub(super) fn sliced(self, systemd: Systemd) -> Self {
        Self { slices: Some(Slices::new(systemd)), ..self }
    }

    /// Where a group is below the mounts.
    pub(super) fn place(&self, group: &Path) -> PathBuf {
        if self.slices.is_some() { slices::path(group) } else { group.to_owned() }
    }

    /// The group of a container, as the runtimes name it.
    pub(crate) fn of_container(&self, pod: &Pod, runtime: &str, id: &str) -> String {
        let parent = self.parent(pod);
        if self.slices.is_none() {
            return format!("{parent}/{id}");
        }
        let prefix = match runtime {
            "containerd" => "cri-containerd",
            "cri-o" => "crio",
            other => other,
        };
        format!("{parent}/{prefix}-{id}.scope")
    }

    /// A group that somebody else has named, in the form of the driver.
    pub(super) fn read_name(&self, name: &str) -> PathBuf {
        if self.slices.is_some() { slices::plain(name) } else { name.trim_matches('/').into() }
    }

    /// The uid in the name of a pod's group, one of those in `above`.
    pub(super) fn uid_in(&self, above: &Path, name: &str) -> Option<String> {
        if self.slices.is_none() {
            return Some(name.strip_prefix("pod")?.to_owned());
        }
        let above = slices::unit(above);
        let own = name.strip_suffix(".slice")?.strip_prefix(above.strip_suffix(".slice")?)?;
        Some(own.strip_prefix("-pod")?.replace('_', "-"))
    }

    /// Has systemd make the slices of a group and of those above it.
    pub(super) async fn start_slices(&self, group: &Path) -> io::Result<()> {
        let Some(slices) = &self.slices else { return Ok(()) };
        let mut above = PathBuf::new();
        for part in group.components().filter(|part| matches!(part, Component::Normal(_))) {
            above.push(part);
            // Somebody may have stopped one since.
            if !slices.is_known(&above) || !self.folder("memory", &above).exists() {
                slices.start(&above).await?;
            }
        }
        Ok(())
    }

    /// Writes the files of a group, and tells systemd of them where the group is its own.
    pub(super) async fn write(&self, group: &Path, entries: &[Entry]) -> io::Result<()> {
        if let Some(slices) = &self.slices {
            slices.tell(group, entries).await?;
        }
        for entry in entries {
            let path = self.folder(entry.controller, group).join(entry.file);
            let value = match self.slices {
                Some(_) => properties::written(entry.file, &entry.value),
                None => entry.value.clone(),
            };
            std::fs::write(&path, value).map_err(|error| named(&path, &error))?;
        }
        Ok(())
    }

    /// Whether processes of a pod are in groups that another driver has made: they would be counted nowhere.
    pub(crate) fn is_elsewhere(&self, uid: &str) -> bool {
        if !self.unified {
            return false;
        }
        let of_class = |class: &&str| {
            let group = self.top.join(class).join(format!("pod{uid}"));
            let other = if self.slices.is_some() { group } else { slices::path(&group) };
            let events = std::fs::read_to_string(self.mounts.join(other).join("cgroup.events"));
            events.is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
        };
        ["", super::CLASSES[0], super::CLASSES[1]].iter().any(of_class)
    }
}

#[cfg(test)]
mod tests;
