//! What containers and pods use, as their control groups tell.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ferry_cri::v1;

use crate::engine::{Engine, now};
use crate::state::{Container, Sandbox, Stage};

/// Whether a container is told of among all.
pub(crate) fn counted(container: &Container) -> bool {
    container.record.stage == Stage::Running && !container.record.hidden
}

fn value(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

/// A control group in one or in several hierarchies.
struct Group {
    unified: bool,
    name: PathBuf,
}

impl Group {
    fn new(name: &str) -> Self {
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        Self { unified, name: name.trim_start_matches('/').into() }
    }

    fn read(&self, controller: &str, file: &str) -> Option<String> {
        let mount = Path::new("/sys/fs/cgroup");
        let folder = if self.unified { mount.join(&self.name) } else { mount.join(controller).join(&self.name) };
        std::fs::read_to_string(folder.join(file)).ok()
    }

    fn number(&self, controller: &str, file: &str) -> Option<u64> {
        self.read(controller, file)?.trim().parse().ok()
    }

    /// Lines of a name and a number.
    fn table(&self, controller: &str, file: &str) -> HashMap<String, u64> {
        let text = self.read(controller, file).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.filter_map(|(name, number)| Some((name.to_owned(), number.trim().parse().ok()?))).collect()
    }

    fn processor(&self, at: i64) -> Option<v1::CpuUsage> {
        let used = if self.unified {
            self.table("cpu", "cpu.stat").get("usage_usec")? * 1000
        } else {
            self.number("cpuacct", "cpuacct.usage")?
        };
        Some(v1::CpuUsage { timestamp: at, usage_core_nano_seconds: value(used), ..Default::default() })
    }

    fn memory(&self, at: i64) -> Option<v1::MemoryUsage> {
        let table = self.table("memory", "memory.stat");
        let of = |name: &str| table.get(name).copied().unwrap_or(0);
        let (usage, inactive, rss, limit) = if self.unified {
            let limit = self.number("memory", "memory.max");
            (self.number("memory", "memory.current")?, of("inactive_file"), of("anon"), limit)
        } else {
            let limit = self.number("memory", "memory.limit_in_bytes").filter(|limit| *limit < 1 << 60);
            (self.number("memory", "memory.usage_in_bytes")?, of("total_inactive_file"), of("total_rss"), limit)
        };
        let working = usage.saturating_sub(inactive);
        Some(v1::MemoryUsage {
            timestamp: at,
            working_set_bytes: value(working),
            available_bytes: limit.and_then(|limit| value(limit.saturating_sub(working))),
            usage_bytes: value(usage),
            rss_bytes: value(rss),
            page_faults: value(of(if self.unified { "pgfault" } else { "total_pgfault" })),
            major_page_faults: value(of(if self.unified { "pgmajfault" } else { "total_pgmajfault" })),
            psi: None,
        })
    }

    fn processes(&self, at: i64) -> Option<v1::ProcessUsage> {
        let count = self.number("pids", "pids.current")?;
        Some(v1::ProcessUsage { timestamp: at, process_count: value(count) })
    }
}

/// Reading folders takes time: beside the server's own threads.
pub(crate) async fn containers(engine: &Engine, containers: Vec<Container>) -> Vec<v1::ContainerStats> {
    let places: Vec<PathBuf> = containers.iter().map(|c| engine.container_folder(&c.record.id).join("upper")).collect();
    let looked = tokio::task::spawn_blocking(move || {
        containers.iter().zip(places).map(|(container, upper)| one(container, &upper)).collect()
    });
    looked.await.unwrap_or_default()
}

fn one(container: &Container, upper: &Path) -> v1::ContainerStats {
    let (at, group) = (now(), Group::new(&container.record.cgroup));
    let (bytes, files) = crate::state::usage(upper);
    v1::ContainerStats {
        attributes: Some(v1::ContainerAttributes {
            id: container.record.id.clone(),
            metadata: container.config.metadata.clone(),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
        }),
        cpu: group.processor(at),
        memory: group.memory(at),
        writable_layer: Some(v1::FilesystemUsage {
            timestamp: at,
            fs_id: Some(v1::FilesystemIdentifier { mountpoint: upper.to_string_lossy().into_owned() }),
            used_bytes: value(bytes),
            inodes_used: value(files),
        }),
        swap: None,
        io: None,
    }
}

pub(crate) async fn sandbox(engine: &Engine, sandbox: &Sandbox) -> v1::PodSandboxStats {
    let (mine, pid): (Vec<Container>, i32) = {
        let state = engine.state.lock();
        let of_pod = || state.containers.values().filter(|c| c.record.sandbox == sandbox.record.id);
        let pid = of_pod().find(|c| c.record.stage == Stage::Running && c.record.pid > 0).map_or(0, |c| c.record.pid);
        (of_pod().filter(|c| counted(c)).cloned().collect(), pid)
    };
    let containers = containers(engine, mine).await;
    let parent = sandbox.config.linux.as_ref().map(|linux| linux.cgroup_parent.clone()).unwrap_or_default();
    let (at, group) = (now(), Group::new(&parent));
    let known = !parent.is_empty();
    v1::PodSandboxStats {
        attributes: Some(v1::PodSandboxAttributes {
            id: sandbox.record.id.clone(),
            metadata: sandbox.config.metadata.clone(),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
        }),
        linux: Some(v1::LinuxPodSandboxStats {
            cpu: known.then(|| group.processor(at)).flatten(),
            memory: known.then(|| group.memory(at)).flatten(),
            process: known.then(|| group.processes(at)).flatten(),
            network: sandbox.record.network.as_ref().and_then(|_| network(pid, at)),
            containers,
            io: None,
        }),
    }
}

/// The interfaces as a process of the pod sees them.
fn network(pid: i32, at: i64) -> Option<v1::NetworkUsage> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
    let mut interfaces: Vec<v1::NetworkInterfaceUsage> = text
        .lines()
        .filter_map(|line| {
            let (name, numbers) = line.split_once(':')?;
            let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            let of = |place: usize| numbers.get(place).copied().and_then(value);
            let name = name.trim().to_owned();
            Some(v1::NetworkInterfaceUsage {
                name,
                rx_bytes: of(0),
                rx_errors: of(2),
                tx_bytes: of(8),
                tx_errors: of(10),
            })
        })
        .filter(|interface| interface.name != "lo")
        .collect();
    let place = interfaces.iter().position(|i| i.name == "eth0");
    let default_interface = place.map(|place| interfaces.remove(place));
    Some(v1::NetworkUsage { timestamp: at, default_interface, interfaces })
}
