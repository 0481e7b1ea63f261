//! Amounts of processor time and memory, as the OCI specification words them.

use ferry_cri::v1::LinuxContainerResources;
use serde_json::{Value, json};

/// Zero means that nothing is said.
pub(crate) fn resources(amounts: &LinuxContainerResources) -> Value {
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
    let counted = std::path::Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists();
    // Without a word on it, a container gets no swap beyond its memory.
    set("memory", "swap", json!(if swap != 0 { swap } else { limit }), limit > 0 && counted);
    let pages = amounts.hugepage_limits.iter().filter(|page| page.limit > 0);
    let pages: Vec<Value> = pages.map(|page| json!({"pageSize": page.page_size, "limit": page.limit})).collect();
    if !pages.is_empty() {
        made["hugepageLimits"] = Value::Array(pages);
    }
    if !amounts.unified.is_empty() && std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        made["unified"] = json!(amounts.unified);
    }
    made
}
