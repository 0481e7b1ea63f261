//! Which configurations of the node's resources make sense. The sentences are upstream's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Enforcement, NodeResources, Quotas, Reserved, ResourcesError, Statements};
use crate::cpu_manager::{CpuManagerPolicy, CpuSet};
use crate::memory_manager::{MemoryManagerPolicy, reserved};
use crate::topology_manager::TopologySettings;

const FLAG: &str = "enforceNodeAllocatable (--enforce-node-allocatable)";

impl NodeResources {
    pub fn new(said: &Statements) -> Result<Self, ResourcesError> {
        Self::check(said).map_err(ResourcesError)
    }

    fn check(said: &Statements) -> Result<Self, String> {
        let reserved = |flag: &str, given: &BTreeMap<String, String>| {
            Reserved::parse(given).map_err(|why| format!("{flag} value failed to parse: {why}"))
        };
        let mut kube_reserved = reserved("--kube-reserved", &said.kube_reserved)?;
        let mut system_reserved = reserved("--system-reserved", &said.system_reserved)?;
        let reserved_cpus = reserved_cpus(said)?;
        if !reserved_cpus.is_empty() {
            // They take the place of both amounts.
            kube_reserved = kube_reserved.with_cpus(None);
            system_reserved = system_reserved.with_cpus(Some(reserved_cpus.len()));
        }
        let pods_per_core = u32::try_from(said.pods_per_core).map_err(|_| {
            format!(
                "invalid configuration: podsPerCore (--pods-per-core) {} must not be a negative number",
                said.pods_per_core
            )
        })?;
        let usual = Self::default();
        Ok(Self {
            system_reserved,
            kube_reserved,
            reserved_cpus,
            enforcements: said.enforce_node_allocatable.as_ref().map_or(Ok(usual.enforcements), |given| {
                enforcements(given, &said.system_reserved_cgroup, &said.kube_reserved_cgroup)
            })?,
            system_cgroup: cgroup("systemReservedCgroup", &said.system_reserved_cgroup)?,
            kube_cgroup: cgroup("kubeReservedCgroup", &said.kube_reserved_cgroup)?,
            pods_per_core,
            quotas: Quotas {
                enforced: said.cpu_cfs_quota.unwrap_or(true),
                period: said.cpu_cfs_quota_period.map_or(Ok(usual.quotas.period), period)?,
            },
            cpu_manager: CpuManagerPolicy::parse(
                said.cpu_manager_policy.as_deref().unwrap_or("none"),
                &said.cpu_manager_policy_options,
                said.alpha_options,
            )?,
            cpu_manager_reconcile_period: said
                .cpu_manager_reconcile_period
                .filter(|period| !period.is_zero())
                .unwrap_or(usual.cpu_manager_reconcile_period),
            memory_manager: MemoryManagerPolicy::parse(said.memory_manager_policy.as_deref().unwrap_or("None"))?,
            reserved_memory: reserved::parse(&said.reserved_memory)?,
            topology: TopologySettings::parse(
                said.topology_manager_policy.as_deref().unwrap_or("none"),
                said.topology_manager_scope.as_deref().unwrap_or("container"),
                &said.topology_manager_policy_options,
            )?,
        })
    }
}

fn reserved_cpus(said: &Statements) -> Result<CpuSet, String> {
    if said.reserved_system_cpus.is_empty() {
        return Ok(CpuSet::default());
    }
    if !said.system_reserved_cgroup.is_empty() || !said.kube_reserved_cgroup.is_empty() {
        return Err("invalid configuration: can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup \
                    (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
            .to_owned());
    }
    CpuSet::parse(&said.reserved_system_cpus).map_err(|why| {
        let text = &said.reserved_system_cpus;
        format!("invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) {text}, error: {why}")
    })
}

fn period(period: Duration) -> Result<i64, String> {
    if period < Duration::from_millis(1) || period > Duration::from_secs(1) {
        return Err(format!(
            "invalid configuration: cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {} must be between 1ms and 1sec, inclusive",
            ferry_semantics::duration::show_unsigned(period)
        ));
    }
    Ok(i64::try_from(period.as_micros()).unwrap_or(i64::MAX))
}

/// A group that lies elsewhere than it seems to is not limited by mistake.
fn cgroup(field: &str, name: &str) -> Result<String, String> {
    if name.split('/').any(|part| part == "..") {
        return Err(format!("invalid configuration: {field} {name:?} must not contain \"..\""));
    }
    Ok(name.to_owned())
}

fn enforcements(given: &[String], system: &str, kube: &str) -> Result<BTreeSet<Enforcement>, String> {
    let has = |wanted: Enforcement| given.iter().any(|name| name == wanted.name());
    for (whole, part) in [
        (Enforcement::SystemReserved, Enforcement::SystemReservedCompressible),
        (Enforcement::KubeReserved, Enforcement::KubeReservedCompressible),
    ] {
        let (one, other) = (whole.name(), part.name());
        if has(whole) && has(part) {
            return Err(format!(
                "invalid configuration: both {one:?} and {other:?} cannot be specified together in {FLAG}"
            ));
        }
    }
    let mut found = BTreeSet::new();
    for name in given {
        let Some(enforcement) = Enforcement::parse(name) else {
            let known = Enforcement::ALL.map(|(name, _)| format!("{name:?}"));
            let (last, first) = known.split_last().unwrap_or((name, &[]));
            let known = format!("{} or {last}", first.join(", "));
            return Err(format!(
                "invalid configuration: option {name:?} specified for {FLAG}. Valid options are {known}"
            ));
        };
        if !found.insert(enforcement) {
            return Err(format!("invalid configuration: duplicated enforcements {name:?} in {FLAG}"));
        }
        let unnamed = |field: &str, flag: &str, kind: &str| {
            Err(format!(
                "invalid configuration: {field} ({flag}) must be specified when \"{kind}\" or \"{kind}-compressible\" \
                 included in {FLAG}"
            ))
        };
        match enforcement {
            Enforcement::SystemReserved | Enforcement::SystemReservedCompressible if system.is_empty() => {
                return unnamed("systemReservedCgroup", "--system-reserved-cgroup", "system-reserved");
            }
            Enforcement::KubeReserved | Enforcement::KubeReservedCompressible if kube.is_empty() => {
                return unnamed("kubeReservedCgroup", "--kube-reserved-cgroup", "kube-reserved");
            }
            Enforcement::None if given.len() > 1 => {
                return Err(format!(
                    "invalid configuration: {FLAG} may not contain additional enforcements when \"none\" is specified"
                ));
            }
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
