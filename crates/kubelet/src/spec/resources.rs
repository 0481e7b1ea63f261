//! Requests and limits as the kernel counts them.

use ferry_cri::v1::{HugepageLimit, LinuxContainerResources};
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::node::capacity::{self, HugePages};
use crate::node_resources::Quotas;
use crate::pod::{self, Role};
use crate::quantity;

const FEWEST_SHARES: i64 = 2;
const MOST_SHARES: i64 = 262_144;
const SHARES_PER_PROCESSOR: i64 = 1024;
pub(crate) const PERIOD: i64 = 100_000;
const SHORTEST_QUOTA: i64 = 1000;

pub(crate) fn shares(milli: i64) -> i64 {
    if milli <= 0 {
        return FEWEST_SHARES;
    }
    (milli.saturating_mul(SHARES_PER_PROCESSOR) / 1000).clamp(FEWEST_SHARES, MOST_SHARES)
}

/// Microseconds per period; zero for no limit.
pub(crate) fn quota(milli: i64, period: i64) -> i64 {
    if milli <= 0 { 0 } else { (milli.saturating_mul(period) / 1000).max(SHORTEST_QUOTA) }
}

/// The amounts that may change while a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) shares: i64,
    pub(crate) quota: i64,
    pub(crate) memory: i64,
    /// The kernel counts no request; who is killed first when memory runs out depends on it.
    pub(crate) memory_request: i64,
}

pub(crate) fn size(container: &Container) -> Size {
    let resources = container.resources.as_ref();
    let limit = |key: &str| resources.and_then(|r| r.limits.as_ref()?.get(key));
    let request = |key: &str| resources.and_then(|r| r.requests.as_ref()?.get(key));
    let processor_limit = processor_limit(container);
    // Without a request, the limit is the request.
    let processor = request("cpu").and_then(quantity::milli).unwrap_or(processor_limit);
    Size {
        shares: shares(processor),
        quota: quota(processor_limit, PERIOD),
        memory: limit("memory").and_then(quantity::value).unwrap_or(0).max(0),
        memory_request: memory_request(container),
    }
}

/// In thousandths; zero for none.
fn processor_limit(container: &Container) -> i64 {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    limits.and_then(|limits| limits.get("cpu")).and_then(quantity::milli).unwrap_or(0)
}

/// How many bytes of each size of huge pages the container may have: those it asks for, and none besides.
fn huge_page_limits(container: &Container, sizes: &[HugePages]) -> Vec<HugepageLimit> {
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let limit = |pages: &HugePages| limits.and_then(|all| all.get(&pages.resource())).and_then(quantity::value);
    let bytes = |pages: &HugePages| limit(pages).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0);
    sizes.iter().map(|pages| HugepageLimit { page_size: pages.cgroup_name(), limit: bytes(pages) }).collect()
}

/// What the node gives a container, beside what the container says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placement {
    /// In bytes, of the whole node.
    pub(crate) node_memory: i64,
    pub(crate) quotas: Quotas,
    /// The container has CPUs of its own, and no other limit of processor time.
    pub(crate) exclusive: bool,
    /// Where it may run, as the kernel writes sets; empty for anywhere.
    pub(crate) cpus: String,
    /// The NUMA nodes that its memory comes from, as the kernel writes sets; empty for any.
    pub(crate) memory_nodes: String,
}

pub(crate) fn linux(pod: &Pod, container: &Container, placement: &Placement) -> LinuxContainerResources {
    let (size, node_memory) = (size(container), placement.node_memory);
    let (cpu_period, cpu_quota) = match placement.quotas {
        Quotas { enforced: false, .. } => (0, 0),
        Quotas { period, .. } if placement.exclusive => (period, -1),
        Quotas { period, .. } => (period, quota(processor_limit(container), period)),
    };
    LinuxContainerResources {
        cpu_shares: size.shares,
        cpu_period,
        cpu_quota,
        cpuset_cpus: placement.cpus.clone(),
        cpuset_mems: placement.memory_nodes.clone(),
        memory_limit_in_bytes: size.memory,
        oom_score_adj: oom_score(pod, container, node_memory),
        hugepage_limits: huge_page_limits(container, &capacity::huge_pages()),
        ..LinuxContainerResources::default()
    }
}

fn memory_request(container: &Container) -> i64 {
    let resources = container.resources.as_ref();
    let of = |list: Option<&std::collections::BTreeMap<String, _>>| {
        list.and_then(|l| l.get("memory")).and_then(quantity::value)
    };
    let request = resources.and_then(|r| of(r.requests.as_ref()));
    request.or_else(|| resources.and_then(|r| of(r.limits.as_ref()))).unwrap_or(0)
}

/// Who is killed first when memory runs out: those who asked for nothing, then those who asked for little.
fn oom_score(pod: &Pod, container: &Container, node_memory: i64) -> i64 {
    let critical = pod::spec(pod).priority.is_some_and(|p| p >= 2_000_001_000);
    match pod::qos_class(pod) {
        _ if critical => return -997,
        "Guaranteed" => return -997,
        "BestEffort" => return 1000,
        _ => {}
    }
    let score = |request: i64| 1000 - request.saturating_mul(1000) / node_memory.max(1);
    let mut adjusted = score(memory_request(container));
    let is_sidecar = matches!(pod::container(pod, &container.name), Some((Role::Sidecar, _)));
    if is_sidecar {
        let least = pod::containers(pod).iter().map(memory_request).min().unwrap_or(0);
        adjusted = adjusted.min(score(least));
    }
    adjusted.clamp(3, 999)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn huge_pages_are_for_those_who_ask() {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "resources": {"limits": {"hugepages-2Mi": "64Mi"}}}))
                .expect("one");
        let sizes = [HugePages { size: 2 << 20, count: 100 }, HugePages { size: 1 << 30, count: 1 }];
        let limits = huge_page_limits(&container, &sizes);
        let seen: Vec<(&str, u64)> = limits.iter().map(|limit| (limit.page_size.as_str(), limit.limit)).collect();
        assert_eq!(seen, [("2MB", 64 << 20), ("1GB", 0)]);
    }

    #[test]
    fn amounts_become_kernel_numbers() {
        let check = |resources: serde_json::Value, expected: (i64, i64, i64, i64)| {
            let pod: Pod = serde_json::from_value(
                json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}),
            )
            .expect("a pod");
            let placement = Placement { node_memory: 1000, ..Placement::default() };
            let linux = linux(&pod, &pod::containers(&pod)[0], &placement);
            let seen = (linux.cpu_shares, linux.cpu_quota, linux.memory_limit_in_bytes, linux.oom_score_adj);
            assert_eq!(seen, expected, "{resources}");
        };
        check(json!({}), (2, 0, 0, 1000));
        check(json!({"requests": {"cpu": "500m"}}), (512, 0, 0, 999));
        check(json!({"limits": {"cpu": "250m"}, "requests": {"memory": "100"}}), (256, 25_000, 0, 900));
        check(json!({"limits": {"cpu": "1m", "memory": "64Mi"}}), (2, 1000, 67_108_864, -997));
    }

    #[test]
    fn processor_limits_are_enforced_as_the_node_says() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "c", "resources": {"limits": {"cpu": "2"}}}]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let check = |enforced: bool, period: i64, exclusive: bool, want: (i64, i64)| {
            let quotas = Quotas { enforced, period };
            let placement = Placement {
                quotas,
                exclusive,
                cpus: "0-1".to_owned(),
                memory_nodes: "0,2".to_owned(),
                ..Placement::default()
            };
            let linux = linux(&pod, &pod::containers(&pod)[0], &placement);
            assert_eq!(linux.cpuset_mems, "0,2");
            assert_eq!((linux.cpu_quota, linux.cpu_period), want, "{enforced} {period} {exclusive}");
            assert_eq!((linux.cpu_shares, linux.cpuset_cpus.as_str()), (2048, "0-1"));
        };
        check(true, 100_000, false, (200_000, 100_000));
        check(true, 5000, false, (10_000, 5000));
        check(true, 5000, true, (-1, 5000));
        check(false, 5000, false, (0, 0));
        check(false, 5000, true, (0, 0));
    }
}
