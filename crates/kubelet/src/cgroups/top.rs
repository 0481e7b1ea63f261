//! Limits above the pods: of all pods together, and of the groups in which the system runs.

use std::io;

use super::{CONTROLLERS, ControlGroups};
use crate::node_resources::Reserved;
use crate::spec::resources::shares;

impl ControlGroups {
    /// Makes the group of all pods, and limits it to what they may have together.
    pub(crate) async fn limit_all(&self) -> io::Result<()> {
        let Some((cpu, memory)) = self.all else { return Ok(()) };
        self.make(&self.top).await?;
        let mut limits = vec![self.shares(shares(cpu)), self.memory(Some(memory))];
        if self.counts_processes() {
            limits.push(self.processes_at_most(self.all_pids));
        }
        self.write(&self.top, &limits).await
    }

    /// Limits a group that somebody else has made, of parts of the system, to what is reserved for them; `compressible` is
    /// processor time alone.
    pub(crate) async fn limit_existing(&self, name: &str, reserved: &Reserved, compressible: bool) -> io::Result<()> {
        if reserved.given.is_empty() {
            return Err(io::Error::other(format!("{name:?} cgroup is not configured properly")));
        }
        let group = &self.read_name(name);
        let counted = CONTROLLERS.into_iter().filter(|c| *c != "pids" || self.counts_processes());
        let missing: Vec<String> = counted
            .map(|controller| self.folder(controller, group))
            .filter(|folder| !folder.is_dir())
            .map(|folder| folder.display().to_string())
            .collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("cgroup {name:?} has missing paths: {missing}"),
            ));
        }
        let mut limits: Vec<_> = reserved.cpu.map(|cpu| self.shares(shares(cpu))).into_iter().collect();
        if !compressible {
            limits.extend(reserved.memory.map(|memory| self.memory(Some(memory))));
            if let Some(Ok(processes)) = reserved.processes.map(u64::try_from) {
                limits.push(self.processes_at_most(Some(processes)));
            }
        }
        self.write(group, &limits).await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::node_resources::allocatable::TopLimits;
    use crate::node_resources::{NodeResources, Statements};

    fn reserved(amounts: &[(&str, &str)]) -> Reserved {
        let kube_reserved = amounts.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect();
        NodeResources::new(&Statements { kube_reserved, ..Statements::default() }).expect("amounts").kube_reserved
    }

    /// Plain folders stand for the kernel's, of either generation.
    fn mounts(unified: bool) -> tempfile::TempDir {
        let mounts = tempfile::tempdir().expect("a folder");
        if unified {
            fs::write(mounts.path().join("cgroup.controllers"), "cpu memory pids cpuset\n").expect("written");
        } else {
            fs::create_dir(mounts.path().join("pids")).expect("a folder");
            fs::write(mounts.path().join("pids/cgroup.procs"), "").expect("written");
        }
        mounts
    }

    #[tokio::test]
    async fn all_pods_together_are_held_to_what_is_left_for_them() {
        for unified in [false, true] {
            let mounts = mounts(unified);
            let limits = TopLimits { cpu: 1500, memory: 1 << 30, processes: 99 };
            let groups = ControlGroups::new(mounts.path(), Path::new("/box")).limiting_all(&limits);
            groups.limit_all().await.expect("limited");
            let read = |path: &str| fs::read_to_string(mounts.path().join(path)).expect(path);
            if unified {
                assert_eq!(read("box/kubepods/cpu.weight"), "59");
                assert_eq!(read("box/kubepods/memory.max"), "1073741824");
                assert_eq!(read("box/kubepods/pids.max"), "99");
                assert_eq!(read("box/cgroup.subtree_control"), "+cpu +memory +pids +cpuset");
            } else {
                assert_eq!(read("cpu/box/kubepods/cpu.shares"), "1536");
                assert_eq!(read("memory/box/kubepods/memory.limit_in_bytes"), "1073741824");
                assert_eq!(read("pids/box/kubepods/pids.max"), "99");
            }
        }
    }

    #[tokio::test]
    async fn groups_of_the_system_are_held_to_what_is_reserved_for_them() {
        let all = reserved(&[("cpu", "500m"), ("memory", "64Mi"), ("pid", "7")]);
        for unified in [false, true] {
            let mounts = mounts(unified);
            let groups = ControlGroups::new(mounts.path(), Path::new("/"));
            let folder =
                |controller: &str, name: &str| mounts.path().join(if unified { "" } else { controller }).join(name);
            let read = |controller: &str, name: &str, file: &str| {
                fs::read_to_string(folder(controller, name).join(file)).unwrap_or_default()
            };
            let missing =
                groups.limit_existing("/system.slice", &all, false).await.expect_err("it is not there").to_string();
            assert!(missing.starts_with("cgroup \"/system.slice\" has missing paths: "), "{missing}");
            for name in ["system.slice", "kube"] {
                CONTROLLERS.iter().for_each(|one| fs::create_dir_all(folder(one, name)).expect("a folder"));
            }
            groups.limit_existing("/system.slice", &all, false).await.expect("limited");
            groups.limit_existing("kube", &all, true).await.expect("limited");
            let (cpu, memory) =
                if unified { ("cpu.weight", "memory.max") } else { ("cpu.shares", "memory.limit_in_bytes") };
            for (name, limits) in [("system.slice", ["67108864", "7"]), ("kube", ["", ""])] {
                let want = if unified { "20" } else { "512" };
                assert_eq!(read("cpu", name, cpu), want, "{name}");
                assert_eq!([read("memory", name, memory), read("pids", name, "pids.max")], limits, "{name}");
            }
            // What nothing is reserved for cannot be held to it.
            let none = groups
                .limit_existing("/kube", &reserved(&[]), false)
                .await
                .expect_err("nothing is reserved")
                .to_string();
            assert_eq!(none, "\"/kube\" cgroup is not configured properly");
        }
    }
}
