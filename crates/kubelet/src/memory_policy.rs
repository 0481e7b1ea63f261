//! What containers are told of memory beside its limit: swap, throttling and protection, as upstream reckons them.

use std::path::Path;

use ferry_cri::v1::LinuxContainerResources;
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::node::capacity;
use crate::{eviction, pod, quantity};

const PAGE: i64 = 4096;

/// Who may use the swap space of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwapBehavior {
    #[default]
    NoSwap,
    /// Containers of burstable pods, in proportion to the memory that they request.
    LimitedSwap,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryPolicy {
    pub swap: SwapBehavior,
    /// Whether a machine with swap space is refused.
    pub fail_swap_on: bool,
    /// The feature gate `MemoryQoS`: without it, there is neither throttling nor protection.
    pub qos: bool,
    /// Where between request and limit a container is slowed down (`memory.high`); none where it is not.
    pub throttling_factor: Option<f64>,
    /// Whether requested memory is kept from being taken back (`memory.min`, `memory.low`).
    pub reserves: bool,
    /// Whether the kernel kills a container as a whole instead of its largest process.
    pub kills_together: bool,
}

impl Default for MemoryPolicy {
    fn default() -> Self {
        Self {
            swap: SwapBehavior::NoSwap,
            fail_swap_on: false,
            qos: true,
            throttling_factor: None,
            reserves: false,
            kills_together: false,
        }
    }
}

/// What of the machine counts here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Machine {
    /// In bytes, as all here.
    pub(crate) memory: i64,
    pub(crate) allocatable: i64,
    pub(crate) swap: i64,
    /// Control groups of version 2 alone.
    pub(crate) unified: bool,
    /// Whether the kernel counts what a group swaps.
    pub(crate) counts_swap: bool,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let counted = if unified {
            unified_swap_file()
        } else {
            Some("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes".into())
        };
        Self {
            memory: 0,
            allocatable: 0,
            swap: i64::try_from(capacity::memory("SwapTotal")).unwrap_or(i64::MAX),
            unified,
            counts_swap: counted.is_some_and(|file: std::path::PathBuf| file.exists()),
        }
    }
}

/// The topmost group has no such file, this process's has.
fn unified_swap_file() -> Option<std::path::PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new("/sys/fs/cgroup").join(own).join("memory.swap.max"))
}

/// What is wrong with running on this machine; said when the kubelet starts.
pub(crate) fn refusal(policy: &MemoryPolicy, fail_cgroup_v1: bool, machine: &Machine) -> Option<&'static str> {
    if fail_cgroup_v1 && !machine.unified {
        return Some(
            "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be removed in a future release",
        );
    }
    if policy.kills_together && !machine.unified {
        return Some(
            "invalid configuration: singleProcessOOMKill must not be explicitly set to false when using cgroup v1",
        );
    }
    if policy.swap == SwapBehavior::LimitedSwap && !machine.unified {
        return Some("swap feature is enabled and LimitedSwap but it is only supported with cgroupv2");
    }
    if policy.fail_swap_on && machine.swap > 0 {
        return Some("running with swap on is not supported, please disable swap or set --fail-swap-on flag to false");
    }
    None
}

fn memory(container: &Container, limits: bool) -> i64 {
    let resources = container.resources.as_ref();
    let list = resources.and_then(|r| if limits { r.limits.as_ref() } else { r.requests.as_ref() });
    list.and_then(|list| list.get("memory")).and_then(quantity::value).unwrap_or(0)
}

impl MemoryPolicy {
    /// The amounts of a container with what this adds to them.
    pub(crate) fn applied(
        &self,
        mut amounts: LinuxContainerResources,
        pod: &Pod,
        container: &Container,
        machine: &Machine,
    ) -> LinuxContainerResources {
        if machine.counts_swap {
            if machine.unified {
                let swap = self.swap_of(pod, container, machine);
                amounts.unified.insert("memory.swap.max".to_owned(), swap.to_string());
            } else {
                amounts.memory_swap_limit_in_bytes = amounts.memory_limit_in_bytes;
            }
        }
        if !machine.unified {
            return amounts;
        }
        if self.kills_together {
            amounts.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
        }
        if !self.qos {
            // For one that was made while it was on.
            amounts.unified.insert("memory.high".to_owned(), "max".to_owned());
            return amounts;
        }
        for (file, bytes) in self.protection(pod, container) {
            amounts.unified.insert(file.to_owned(), bytes.to_string());
        }
        if let Some(high) = self.high(pod, container, machine) {
            amounts.unified.insert("memory.high".to_owned(), high.to_string());
        }
        amounts
    }

    /// How much of its memory a container may swap.
    fn swap_of(&self, pod: &Pod, container: &Container, machine: &Machine) -> i64 {
        let (request, limit) = (memory(container, false), memory(container, true));
        let may = self.swap == SwapBehavior::LimitedSwap
            && !eviction::is_critical(pod)
            && pod::qos_class(pod) == "Burstable"
            && (request, limit) != (0, 0)
            && request != limit;
        if !may || machine.memory <= 0 || request > machine.memory {
            return 0;
        }
        let share = i128::from(request) * i128::from(machine.swap) / i128::from(machine.memory);
        i64::try_from(share).unwrap_or(i64::MAX)
    }

    fn protection(&self, pod: &Pod, container: &Container) -> Vec<(&'static str, i64)> {
        let request = memory(container, false);
        match pod::qos_class(pod) {
            _ if !self.reserves || request == 0 => vec![("memory.min", 0), ("memory.low", 0)],
            "Guaranteed" => vec![("memory.min", request)],
            _ => vec![("memory.low", request)],
        }
    }

    /// From where on a container is slowed down: as far from its request to its limit, or to the whole node, as the factor says.
    fn high(&self, pod: &Pod, container: &Container, machine: &Machine) -> Option<i64> {
        let (request, limit) = (memory(container, false), memory(container, true));
        let of_pod = pod::spec(pod).resources.as_ref().and_then(|r| r.limits.as_ref()?.get("memory"));
        if (limit == 0 && of_pod.is_some()) || (request == limit && request != 0) {
            return None;
        }
        let end = if limit != 0 { limit } else { machine.allocatable };
        self.between(request, end)
    }

    /// The pod's own group, where the pod as a whole has a limit.
    pub(crate) fn high_of_pod(&self, request: i64, limit: i64) -> Option<i64> {
        if !self.qos || (request == limit && request != 0) || limit == 0 {
            return None;
        }
        self.between(request, limit)
    }

    fn between(&self, request: i64, end: i64) -> Option<i64> {
        let factor = self.throttling_factor?;
        if end <= 0 {
            return None;
        }
        let high = ((end - request) as f64).mul_add(factor, request as f64).floor() as i64 / PAGE * PAGE;
        (high > request).then_some(high)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    const GIB: i64 = 1 << 30;

    fn machine() -> Machine {
        Machine { memory: 4 * GIB, allocatable: 3 * GIB, swap: 2 * GIB, unified: true, counts_swap: true }
    }

    fn applied(policy: MemoryPolicy, machine: Machine, spec: &Value) -> LinuxContainerResources {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod");
        let amounts = LinuxContainerResources { memory_limit_in_bytes: 7, ..LinuxContainerResources::default() };
        policy.applied(amounts, &pod, &pod::containers(&pod)[0], &machine)
    }

    fn files(policy: MemoryPolicy, spec: &Value) -> BTreeMap<String, String> {
        applied(policy, machine(), spec).unified.into_iter().collect()
    }

    fn one(request: &str, limit: &str) -> Value {
        let list = |text: &str| if text.is_empty() { json!({}) } else { json!({"memory": text}) };
        json!({"containers": [{"name": "c", "resources": {"requests": list(request), "limits": list(limit)}}]})
    }

    #[test]
    fn burstable_containers_swap_in_proportion_to_their_requests() {
        let check = |behavior: SwapBehavior, spec: Value, want: i64| {
            let files = files(MemoryPolicy { swap: behavior, ..MemoryPolicy::default() }, &spec);
            assert_eq!(files["memory.swap.max"], want.to_string(), "{behavior:?} {spec}");
        };
        use SwapBehavior::{LimitedSwap, NoSwap};
        check(NoSwap, one("1Gi", "2Gi"), 0);
        check(LimitedSwap, one("1Gi", "2Gi"), GIB / 2);
        check(LimitedSwap, one("1Gi", ""), GIB / 2);
        check(LimitedSwap, one("", ""), 0);
        check(LimitedSwap, one("8Gi", ""), 0);
        let mut guaranteed = one("1Gi", "1Gi");
        guaranteed["containers"][0]["resources"] =
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
        check(LimitedSwap, guaranteed, 0);
        let mut critical = one("1Gi", "2Gi");
        critical["priority"] = json!(2_000_000_000);
        check(LimitedSwap, critical, 0);
    }

    #[test]
    fn version_one_has_limits_of_memory_and_swap_together() {
        let first = Machine { unified: false, ..machine() };
        let amounts = applied(MemoryPolicy::default(), first, &one("1Gi", "2Gi"));
        assert_eq!((amounts.memory_swap_limit_in_bytes, amounts.unified.len()), (7, 0));
        let uncounted = Machine { counts_swap: false, ..first };
        let amounts = applied(MemoryPolicy::default(), uncounted, &one("1Gi", "2Gi"));
        assert_eq!((amounts.memory_swap_limit_in_bytes, amounts.unified.len()), (0, 0));
    }

    #[test]
    fn requested_memory_is_protected_where_it_is_reserved() {
        let check = |reserves: bool, spec: Value, want: [Option<&str>; 2]| {
            let files = files(MemoryPolicy { reserves, ..MemoryPolicy::default() }, &spec);
            let seen = ["memory.min", "memory.low"].map(|file| files.get(file).map(String::as_str));
            assert_eq!(seen, want, "{spec}");
        };
        let guaranteed = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"},
            "requests": {"cpu": "1", "memory": "1Gi"}}}]});
        check(false, one("1Gi", "2Gi"), [Some("0"), Some("0")]);
        check(true, one("", ""), [Some("0"), Some("0")]);
        check(true, one("1Gi", "2Gi"), [None, Some("1073741824")]);
        check(true, guaranteed, [Some("1073741824"), None]);
    }

    #[test]
    fn containers_are_slowed_down_between_request_and_limit() {
        let check = |factor: Option<f64>, spec: Value, want: Option<i64>| {
            let files = files(MemoryPolicy { throttling_factor: factor, ..MemoryPolicy::default() }, &spec);
            assert_eq!(files.get("memory.high").cloned(), want.map(|high| high.to_string()), "{spec}");
        };
        check(None, one("1Gi", "2Gi"), None);
        check(Some(0.5), one("1Gi", "2Gi"), Some(GIB + GIB / 2));
        check(Some(0.9), one("", "1Mi"), Some(943_718 / PAGE * PAGE));
        check(Some(0.5), one("1Gi", "1Gi"), None);
        // Without a limit, as far as the pods' part of the node goes.
        check(Some(0.5), one("1Gi", ""), Some(2 * GIB));
        check(Some(0.5), one("", ""), Some(3 * GIB / 2));
        let mut of_pod = one("1Gi", "");
        of_pod["resources"] = json!({"limits": {"memory": "2Gi"}});
        check(Some(0.5), of_pod, None);
    }

    #[test]
    fn without_the_feature_nothing_is_slowed_down() {
        let off = MemoryPolicy { qos: false, throttling_factor: Some(0.5), ..MemoryPolicy::default() };
        let files = files(off, &one("1Gi", "2Gi"));
        assert_eq!(files.get("memory.high").map(String::as_str), Some("max"));
        assert_eq!(files.get("memory.min"), None);
    }

    #[test]
    fn a_container_is_killed_as_a_whole_where_that_is_wanted() {
        let policy = |kills_together| MemoryPolicy { kills_together, ..MemoryPolicy::default() };
        assert_eq!(files(policy(true), &one("", ""))["memory.oom.group"], "1");
        assert_eq!(files(policy(false), &one("", "")).get("memory.oom.group"), None);
    }

    #[test]
    fn machines_that_cannot_do_it_are_refused() {
        let first = Machine { unified: false, ..machine() };
        let dry = Machine { swap: 0, ..machine() };
        let check = |policy: MemoryPolicy, fail_v1: bool, machine: Machine, why: Option<&str>| {
            let refused = refusal(&policy, fail_v1, &machine);
            assert_eq!(refused.is_some(), why.is_some(), "{refused:?}");
            assert!(refused.unwrap_or_default().contains(why.unwrap_or_default()), "{refused:?}");
        };
        let usual = MemoryPolicy::default();
        check(usual, false, first, None);
        check(usual, true, machine(), None);
        check(usual, true, first, Some("not run on a host using cgroup v1"));
        check(MemoryPolicy { kills_together: true, ..usual }, false, first, Some("singleProcessOOMKill"));
        check(
            MemoryPolicy { swap: SwapBehavior::LimitedSwap, ..usual },
            false,
            first,
            Some("only supported with cgroupv2"),
        );
        check(
            MemoryPolicy { fail_swap_on: true, ..usual },
            false,
            machine(),
            Some("running with swap on is not supported"),
        );
        check(MemoryPolicy { fail_swap_on: true, ..usual }, false, dry, None);
    }
}
