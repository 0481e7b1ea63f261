//! Whether the kernel killed for want of memory in a container that has ended.

use std::cell::Cell;
use std::path::{Path, PathBuf};

/// What is known of kills in containers of this pod that are gone.
#[derive(Default)]
pub(crate) struct MemoryKills {
    of_ended: Cell<u64>,
}

impl MemoryKills {
    /// Where a container's own figure goes with its group, before anybody can read it: systemd takes a group away with its last
    /// process. The pod's figure has those of all containers in it, of the ended ones as well; what neither the others nor
    /// those that ended before it account for is its own.
    pub(crate) fn in_ended(&self, own: &[PathBuf], others: impl Iterator<Item = Option<u64>>, pod: &Path) -> bool {
        let others: u64 = others.flatten().sum();
        let all = count(pod).unwrap_or(0);
        let killed = find(own).unwrap_or_else(|| all.saturating_sub(others).saturating_sub(self.of_ended.get()));
        self.of_ended.set(self.of_ended.get().saturating_add(killed));
        killed > 0
    }

    /// What the pod's group counted before its first container here, in a group that others were in before.
    pub(crate) fn begin(&self, pod: &Path) {
        self.of_ended.set(count(pod).unwrap_or(0));
    }
}

/// The figure of the first file that is there.
pub(crate) fn find(files: &[PathBuf]) -> Option<u64> {
    files.iter().find_map(|file| count(file))
}

fn count(file: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reason of a container's end was lost where systemd was faster than its shim.
    #[test]
    fn a_group_that_is_gone_is_reckoned_from_its_pods() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        let write = |name: &str, count: u64| {
            std::fs::write(file(name), format!("low 0\noom 9\noom_kill {count}\noom_group_kill 0\n")).expect("written");
        };
        let kills = MemoryKills::default();
        write("pod", 2);
        // Others were in the pod's group before.
        kills.begin(&file("pod"));
        let ended = |own: &str, others: &[u64]| {
            kills.in_ended(&[file("none"), file(own)], others.iter().copied().map(Some), &file("pod"))
        };
        assert!(!ended("gone", &[0]));
        // In another that goes on.
        write("pod", 3);
        assert!(!ended("gone", &[1]));
        write("pod", 5);
        assert!(ended("gone", &[1]));
        assert!(!ended("gone", &[1]));
        // Its own figure counts as long as it is there.
        write("pod", 6);
        write("own", 1);
        assert!(ended("own", &[1]));
        assert!(!ended("gone", &[1]));
    }
}
