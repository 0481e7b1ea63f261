//! What the machine has.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::NodeSystemInfo;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::Config;
use crate::eviction::Signal;
use crate::node_resources::allocatable::Capacity;

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

/// A file system, sizes in bytes. All zero where it cannot be read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) size: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_free: u64,
}

/// The file system that holds a path.
pub(crate) fn disk(path: &Path) -> Disk {
    let Ok(info) = rustix::fs::statvfs(path) else { return Disk::default() };
    Disk {
        size: info.f_blocks.saturating_mul(info.f_frsize),
        available: info.f_bavail.saturating_mul(info.f_frsize),
        used: info.f_blocks.saturating_sub(info.f_bfree).saturating_mul(info.f_frsize),
        inodes: info.f_files,
        inodes_free: info.f_ffree,
    }
}

/// How many processes may run, and how many do.
pub(crate) fn processes() -> (u64, u64) {
    let number = |path: &str| fs::read_to_string(path).ok().and_then(|t| t.trim().parse::<u64>().ok());
    let limits = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"].into_iter().filter_map(number);
    let limit = limits.min();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let running = load.split_whitespace().nth(3).and_then(|f| f.split_once('/')?.1.parse().ok());
    (limit.unwrap_or(32_768), running.unwrap_or(0))
}

/// How many processes and threads all pods together may have: a part of the machine's is left for the node itself, so that it
/// can still end a pod that forks without end.
pub(crate) fn most_of_pods() -> u64 {
    let (limit, _) = processes();
    limit - limit / 16
}

/// Huge pages of one size, in bytes, and how many the kernel keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HugePages {
    pub(crate) size: u64,
    pub(crate) count: u64,
}

impl HugePages {
    /// `hugepages-2Mi`.
    pub(crate) fn resource(&self) -> String {
        format!("hugepages-{}", binary(self.size))
    }

    fn amount(&self) -> Quantity {
        Quantity(binary(self.size.saturating_mul(self.count)))
    }

    /// As control groups name the size: `2MB`.
    pub(crate) fn cgroup_name(&self) -> String {
        binary(self.size).trim_end_matches('i').to_owned() + "B"
    }
}

/// A number of bytes in the largest unit that leaves it whole.
pub(crate) fn binary(bytes: u64) -> String {
    let units = [(1_u64 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let fits = units.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    fits.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// The sizes of huge pages that the kernel knows.
pub(crate) fn huge_pages() -> Vec<HugePages> {
    huge_pages_in(Path::new("/sys/kernel/mm/hugepages"))
}

/// The same of one NUMA node: each has such a folder of its own.
pub(crate) fn huge_pages_in(folder: &Path) -> Vec<HugePages> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<HugePages> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let kibibytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
            Some(HugePages { size: kibibytes * 1024, count })
        })
        .collect();
    found.sort_by_key(|pages| pages.size);
    found
}

pub(crate) struct Amounts {
    pub(crate) capacity: BTreeMap<String, Quantity>,
    pub(crate) allocatable: BTreeMap<String, Quantity>,
}

/// The machine, as far as the sums of node allocatable need it.
pub(crate) fn of_machine(config: &Config) -> Capacity {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let (memory, storage) = (signed(memory("MemTotal")), signed(disk(&config.root_dir).size));
    Capacity {
        cpu: i64::try_from(processors()).unwrap_or(i64::MAX).saturating_mul(1000),
        memory,
        storage,
        processes: signed(processes().0),
        kept_memory: config.eviction.kept_back(Signal::MemoryAvailable, memory),
        // Nothing is known of a disk without a size.
        kept_storage: if storage == 0 { 0 } else { config.eviction.kept_back(Signal::NodeFsAvailable, storage) },
    }
}

pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(crate) fn amounts(config: &Config) -> Amounts {
    let pages = huge_pages();
    let has = of_machine(config);
    let left = config.resources.allocatable(&has);
    let kibi = |bytes: i64| Quantity(format!("{}Ki", bytes / 1024));
    let fixed = |amounts: &mut BTreeMap<String, Quantity>, cpu: i64| {
        let cpu = if cpu % 1000 == 0 { (cpu / 1000).to_string() } else { format!("{cpu}m") };
        amounts.insert("cpu".into(), Quantity(cpu));
        let pods = config.resources.most_pods(config.max_pods, processors());
        amounts.insert("pods".into(), Quantity(pods.to_string()));
        for pages in &pages {
            amounts.insert(pages.resource(), pages.amount());
        }
    };
    let (mut capacity, mut allocatable) = (BTreeMap::new(), BTreeMap::new());
    fixed(&mut capacity, has.cpu);
    fixed(&mut allocatable, left.cpu);
    capacity.insert("memory".into(), kibi(has.memory));
    capacity.insert("ephemeral-storage".into(), kibi(has.storage));
    // Huge pages are memory that nobody else can have.
    let huge = pages.iter().fold(0_u64, |sum, pages| sum.saturating_add(pages.size.saturating_mul(pages.count)));
    let huge = i64::try_from(huge).unwrap_or(i64::MAX);
    allocatable.insert("memory".into(), kibi(left.memory.saturating_sub(huge).max(0)));
    allocatable.insert("ephemeral-storage".into(), Quantity(left.storage.to_string()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_named_by_their_size() {
        for (size, count, resource, amount, group) in [
            (2 << 20, 0, "hugepages-2Mi", "0", "2MB"),
            (2 << 20, 512, "hugepages-2Mi", "1Gi", "2MB"),
            (1 << 30, 3, "hugepages-1Gi", "3Gi", "1GB"),
            (64 << 10, 1, "hugepages-64Ki", "64Ki", "64KB"),
        ] {
            let pages = HugePages { size, count };
            let seen = (pages.resource(), pages.amount().0, pages.cgroup_name());
            assert_eq!(seen, (resource.to_owned(), amount.to_owned(), group.to_owned()));
        }
    }
}
