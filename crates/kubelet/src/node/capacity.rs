//! What the machine has.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::NodeSystemInfo;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::Config;

/// Kept back for the machine itself, as upstream's default eviction thresholds: memory in bytes, storage in percent.
pub(crate) const MEMORY_RESERVE: u64 = 100 * 1024 * 1024;
pub(crate) const STORAGE_RESERVE_PERCENT: u64 = 10;
/// What counts as room enough on a disk of any size.
pub(crate) const STORAGE_RESERVE_MOST: u64 = 2 << 30;

pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Bytes of one line of `/proc/meminfo`.
pub(crate) fn memory(key: &str) -> u64 {
    let table = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = table.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kibibytes = line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// Size and free space of the file system that holds a path, in bytes.
pub(crate) fn storage(path: &Path) -> (u64, u64) {
    match rustix::fs::statvfs(path) {
        Ok(info) => (info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize),
        Err(_) => (0, 0),
    }
}

/// How many processes may run, and how many do.
pub(crate) fn processes() -> (u64, u64) {
    let limit = fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|t| t.trim().parse().ok());
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let running = load.split_whitespace().nth(3).and_then(|f| f.split_once('/')?.1.parse().ok());
    (limit.unwrap_or(32_768), running.unwrap_or(0))
}

pub(crate) struct Amounts {
    pub(crate) capacity: BTreeMap<String, Quantity>,
    pub(crate) allocatable: BTreeMap<String, Quantity>,
}

pub(crate) fn amounts(config: &Config) -> Amounts {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = memory("MemTotal");
    let (storage, _) = storage(&config.root_dir);
    let kibi = |bytes: u64| Quantity(format!("{}Ki", bytes / 1024));
    let fixed = |capacity: &mut BTreeMap<String, Quantity>| {
        capacity.insert("cpu".into(), Quantity(processors.to_string()));
        capacity.insert("pods".into(), Quantity(config.max_pods.to_string()));
        for size in ["hugepages-1Gi", "hugepages-2Mi"] {
            capacity.insert(size.into(), Quantity("0".into()));
        }
    };
    let (mut capacity, mut allocatable) = (BTreeMap::new(), BTreeMap::new());
    fixed(&mut capacity);
    fixed(&mut allocatable);
    capacity.insert("memory".into(), kibi(memory));
    capacity.insert("ephemeral-storage".into(), kibi(storage));
    allocatable.insert("memory".into(), kibi(memory.saturating_sub(MEMORY_RESERVE)));
    let usable = storage / 100 * (100 - STORAGE_RESERVE_PERCENT);
    allocatable.insert("ephemeral-storage".into(), Quantity(usable.to_string()));
    Amounts { capacity, allocatable }
}

pub(crate) fn system_info(version: &str, runtime: (&str, &str)) -> NodeSystemInfo {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = text("/etc/os-release");
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let machine = text("/etc/machine-id");
    let system = text("/sys/class/dmi/id/product_uuid");
    NodeSystemInfo {
        architecture: architecture().to_owned(),
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        container_runtime_version: format!("{}://{}", runtime.0, runtime.1),
        kernel_version: text("/proc/sys/kernel/osrelease"),
        kubelet_version: version.to_owned(),
        operating_system: "linux".to_owned(),
        os_image: name.unwrap_or("Linux").trim_matches('"').to_owned(),
        system_uuid: if system.is_empty() { machine.clone() } else { system },
        machine_id: machine,
        ..NodeSystemInfo::default()
    }
}
