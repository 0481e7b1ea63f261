//! Amounts of processor time and memory, as the OCI specification words them.

use ferry_cri::v1::LinuxContainerResources;
use serde_json::{Value, json};

/// What this machine's control groups know of swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swap {
    /// The second generation: by itself.
    Own,
    /// The first: together with memory.
    WithMemory,
    Uncounted,
}

impl Swap {
    fn here() -> Self {
        let exists = |file: &str| std::path::Path::new("/sys/fs/cgroup").join(file).exists();
        match (exists("cgroup.controllers"), exists("memory/memory.memsw.limit_in_bytes")) {
            (true, _) => Self::Own,
            (false, true) => Self::WithMemory,
            (false, false) => Self::Uncounted,
        }
    }
}

/// Zero means that nothing is said.
pub(crate) fn resources(amounts: &LinuxContainerResources) -> Value {
    worded(amounts, Swap::here())
}

/// The same for a container that is made: without a word on it, one without a limit gets no swap either.
pub(crate) fn first_resources(amounts: &LinuxContainerResources) -> Value {
    without_swap(worded(amounts, Swap::here()), Swap::here())
}

fn without_swap(mut made: Value, machine: Swap) -> Value {
    if machine == Swap::Own && made["memory"].get("swap").is_none() {
        made["memory"]["swap"] = json!(0);
    }
    made
}

fn worded(amounts: &LinuxContainerResources, machine: Swap) -> Value {
    let mut made = json!({"cpu": {}, "memory": {}});
    let mut set = |part: &str, name: &str, value: Value, said: bool| {
        if said {
            made[part][name] = value;
        }
    };
    set("cpu", "shares", json!(amounts.cpu_shares), amounts.cpu_shares > 0);
    set("cpu", "quota", json!(amounts.cpu_quota), amounts.cpu_quota != 0);
    set("cpu", "period", json!(amounts.cpu_period), amounts.cpu_period > 0);
    set("cpu", "cpus", json!(amounts.cpuset_cpus), !amounts.cpuset_cpus.is_empty());
    set("cpu", "mems", json!(amounts.cpuset_mems), !amounts.cpuset_mems.is_empty());
    let limit = amounts.memory_limit_in_bytes;
    set("memory", "limit", json!(limit), limit != 0);
    let swap = amounts.memory_swap_limit_in_bytes;
    // Without a word on it, a container gets no swap beyond its memory.
    set("memory", "swap", json!(if swap != 0 { swap } else { limit }), limit > 0 && machine != Swap::Uncounted);
    let pages = amounts.hugepage_limits.iter().filter(|page| page.limit > 0);
    let pages: Vec<Value> = pages.map(|page| json!({"pageSize": page.page_size, "limit": page.limit})).collect();
    if !pages.is_empty() {
        made["hugepageLimits"] = Value::Array(pages);
    }
    if !amounts.unified.is_empty() && machine == Swap::Own {
        made["unified"] = json!(amounts.unified);
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(limit: i64, swap: i64, machine: Swap) -> Value {
        let amounts = LinuxContainerResources {
            memory_limit_in_bytes: limit,
            memory_swap_limit_in_bytes: swap,
            ..LinuxContainerResources::default()
        };
        without_swap(worded(&amounts, machine), machine)["memory"].clone()
    }

    #[test]
    fn nobody_swaps_who_was_not_told_to() {
        for (machine, limited, unlimited) in [
            (Swap::Own, json!({"limit": 1000, "swap": 1000}), json!({"swap": 0})),
            (Swap::WithMemory, json!({"limit": 1000, "swap": 1000}), json!({})),
            (Swap::Uncounted, json!({"limit": 1000}), json!({})),
        ] {
            assert_eq!(memory(1000, 0, machine), limited, "{machine:?}");
            assert_eq!(memory(0, 0, machine), unlimited, "{machine:?}");
        }
        assert_eq!(memory(1000, 1500, Swap::Own), json!({"limit": 1000, "swap": 1500}));
    }

    /// An update that says nothing of memory leaves its swap alone.
    #[test]
    fn updates_change_what_they_name() {
        let cpu = LinuxContainerResources { cpu_shares: 7, ..LinuxContainerResources::default() };
        assert_eq!(worded(&cpu, Swap::Own), json!({"cpu": {"shares": 7}, "memory": {}}));
    }
}
