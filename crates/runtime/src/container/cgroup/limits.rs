//! Amounts of processor time, memory and processes as files of a control group.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::container::document::{Cpu, Resources};

/// A file and what is written to it; one that the kernel does not have is missed only if it `must` be there.
pub(super) struct Entry {
    file: String,
    value: String,
    must: bool,
}

impl Entry {
    pub(super) fn pair(&self) -> (&str, &str) {
        (&self.file, &self.value)
    }

    pub(super) fn for_systemd(mut self) -> Self {
        self.value = ferry_systemd::properties::written(&self.file, &self.value);
        self
    }
}

fn entry(file: &str, value: impl ToString) -> Entry {
    Entry { file: file.to_owned(), value: value.to_string(), must: true }
}

/// Minus one stands for no limit.
fn amount(value: i64) -> String {
    if value < 0 { "max".to_owned() } else { value.to_string() }
}

/// What both generations call by the same name.
fn of_both(resources: &Resources) -> impl Iterator<Item = Entry> + use<> {
    let Cpu { cpus, mems, .. } = &resources.cpu;
    let sets =
        [("cpuset.cpus", cpus), ("cpuset.mems", mems)].map(|(file, set)| (!set.is_empty()).then(|| entry(file, set)));
    let pids = resources.pids.limit.filter(|limit| *limit != 0).map(|limit| entry("pids.max", amount(limit)));
    sets.into_iter().flatten().chain(pids)
}

pub(super) fn unified(resources: &Resources) -> Vec<Entry> {
    let mut entries = Vec::new();
    let cpu = &resources.cpu;
    if let Some(shares) = cpu.shares.filter(|shares| *shares > 0) {
        // As the kubelet translates the shares of pods.
        entries.push(entry("cpu.weight", 1 + shares.clamp(2, 262_144).saturating_sub(2) * 9999 / 262_142));
    }
    if cpu.quota.is_some() || cpu.period.is_some() {
        let quota = cpu.quota.filter(|quota| *quota > 0).map_or("max".to_owned(), |quota| quota.to_string());
        entries.push(entry("cpu.max", format!("{quota} {}", cpu.period.unwrap_or(100_000))));
    }
    entries.extend(of_both(resources));
    let memory = &resources.memory;
    if let Some(limit) = memory.limit {
        entries.push(entry("memory.max", amount(limit)));
    }
    // Swap is told together with memory. Without a limit of that, zero stands for none at all.
    let beyond = match (memory.limit, memory.swap) {
        (Some(limit), Some(swap)) if limit < 0 || swap < 0 => Some(-1),
        (Some(limit), Some(swap)) => Some((swap - limit).max(0)),
        (None, Some(0)) => Some(0),
        _ => None,
    };
    if let Some(beyond) = beyond {
        entries.push(Entry { must: beyond != 0, ..entry("memory.swap.max", amount(beyond)) });
    }
    for pages in &resources.hugepage_limits {
        entries
            .push(Entry { must: pages.limit != 0, ..entry(&format!("hugetlb.{}.max", pages.page_size), pages.limit) });
    }
    entries.extend(resources.unified.iter().map(|(file, value)| entry(file, value)));
    entries
}

pub(super) fn first_generation(resources: &Resources) -> Vec<Entry> {
    let mut entries = Vec::new();
    let cpu = &resources.cpu;
    if let Some(shares) = cpu.shares.filter(|shares| *shares > 0) {
        entries.push(entry("cpu.shares", shares));
    }
    if let Some(period) = cpu.period.filter(|period| *period > 0) {
        entries.push(entry("cpu.cfs_period_us", period));
    }
    if let Some(quota) = cpu.quota.filter(|quota| *quota != 0) {
        entries.push(entry("cpu.cfs_quota_us", quota));
    }
    entries.extend(of_both(resources));
    let memory = &resources.memory;
    if let Some(limit) = memory.limit {
        entries.push(entry("memory.limit_in_bytes", limit));
    }
    if let Some(swap) = memory.swap {
        entries.push(entry("memory.memsw.limit_in_bytes", swap));
    }
    for pages in &resources.hugepage_limits {
        let file = format!("hugetlb.{}.limit_in_bytes", pages.page_size);
        entries.push(Entry { must: pages.limit != 0, ..entry(&file, pages.limit) });
    }
    entries
}

/// Writes all of them. Memory with swap can never be less than memory alone, nor a quota's share more than the parent's: what
/// is refused first is tried again after the rest.
pub(super) fn write(entries: &[Entry], find: impl Fn(&str) -> Option<PathBuf>) -> io::Result<()> {
    let attempt = |entry: &Entry| -> io::Result<()> {
        let Some(path) = find(&entry.file) else {
            let missing = format!("this machine has no control group file {:?}", entry.file);
            return if entry.must { Err(io::Error::new(io::ErrorKind::NotFound, missing)) } else { Ok(()) };
        };
        fs::write(&path, &entry.value).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write {:?} to {}: {error}", entry.value, path.display()))
        })
    };
    let again: Vec<&Entry> = entries.iter().filter(|entry| attempt(entry).is_err()).collect();
    again.into_iter().try_for_each(attempt)
}
