//! Flags of the node's resources, as upstream's kubelet calls them: what is kept from pods, which CPUs they get.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use ferry_kubelet::{NodeResources, ResourceStatements};
use ferry_server::server_options::duration;
use serde_json::Value;

use super::file::{number, put, text, texts, time};

#[derive(Args, Clone, Debug, Default)]
pub struct ResourceOptions {
    /// What the system keeps from pods: `cpu=200m,memory=500Mi,ephemeral-storage=1Gi,pid=1000`.
    #[arg(long, value_name = "NAME=AMOUNT,...")]
    pub system_reserved: Option<Pairs>,
    /// What the components of Kubernetes keep from pods, as `--system-reserved`.
    #[arg(long, value_name = "NAME=AMOUNT,...")]
    pub kube_reserved: Option<Pairs>,
    /// The CPUs of the system and the components of Kubernetes: `0-1,8`. Overrides `cpu` of `--system-reserved` and
    /// `--kube-reserved`.
    #[arg(long, value_name = "CPUS")]
    pub reserved_cpus: Option<String>,
    /// Whose limits are enforced: pods (the default), system-reserved, system-reserved-compressible, kube-reserved,
    /// kube-reserved-compressible, or none.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub enforce_node_allocatable: Option<Vec<String>>,
    /// The control group of the system, for `--enforce-node-allocatable=system-reserved`.
    #[arg(long, value_name = "GROUP")]
    pub system_reserved_cgroup: Option<String>,
    /// The control group of the components of Kubernetes, for `--enforce-node-allocatable=kube-reserved`.
    #[arg(long, value_name = "GROUP")]
    pub kube_reserved_cgroup: Option<String>,
    /// The maximum number of pods for each CPU; never more than `--max-pods`. 0, the default, means no such limit.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub pods_per_core: Option<i64>,
    /// Enforce CPU limits by CFS quotas. Default: true.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub cpu_cfs_quota: Option<bool>,
    /// The period of CFS quotas, from 1ms to 1s. Default: 100ms.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub cpu_cfs_quota_period: Option<Duration>,
    /// The CPU manager policy: `none` (the default), or `static`, which gives CPUs of their own to containers of Guaranteed
    /// pods that request whole CPUs.
    #[arg(long, value_name = "POLICY")]
    pub cpu_manager_policy: Option<String>,
    /// Options of the policy `static`: full-pcpus-only, distribute-cpus-across-numa, strict-cpu-reservation,
    /// prefer-align-cpus-by-uncorecache.
    #[arg(long, value_name = "NAME=BOOL,...")]
    pub cpu_manager_policy_options: Option<Pairs>,
    /// How often the CPUs of containers are compared with the assigned ones, besides after every change. Default: 10s.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub cpu_manager_reconcile_period: Option<Duration>,
    /// The memory manager policy: `None` (the default), or `Static`, which keeps the memory of containers of Guaranteed pods at
    /// as few NUMA nodes as possible.
    #[arg(long, value_name = "POLICY")]
    pub memory_manager_policy: Option<String>,
    /// The memory of each NUMA node that is reserved, for the policy `Static`: `0:memory=1Gi`. The sum has to be what
    /// `--system-reserved`, `--kube-reserved` and `memory.available` of `--eviction-hard` keep from pods.
    #[arg(long, value_name = "NODE:NAME=AMOUNT,...", value_delimiter = ';')]
    pub reserved_memory: Option<Vec<NodeMemory>>,
    /// The topology manager policy: `none` (the default), `best-effort`, `restricted` or `single-numa-node`. Devices, CPUs and
    /// memory of a container come from the same NUMA nodes.
    #[arg(long, value_name = "POLICY")]
    pub topology_manager_policy: Option<String>,
    /// What the topology manager places as a whole: `container` (the default) or `pod`.
    #[arg(long, value_name = "SCOPE")]
    pub topology_manager_scope: Option<String>,
    /// Options of the topology manager policy: prefer-closest-numa-nodes, max-allowable-numa-nodes.
    #[arg(long, value_name = "NAME=VALUE,...")]
    pub topology_manager_policy_options: Option<Pairs>,
}

/// `0:memory=1Gi,hugepages-2Mi=10Mi`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory(i64, Pairs);

impl FromStr for NodeMemory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "the reserved memory has incorrect format, expected numaNodeID:type=quantity[,type=quantity...], got {text}"
            )
        };
        let (node, limits) = text.split_once(':').ok_or_else(wrong)?;
        Ok(Self(node.trim().parse().map_err(|_| wrong())?, limits.parse()?))
    }
}

/// `name=value,name=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(BTreeMap<String, String>);

impl FromStr for Pairs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let pairs = parts.map(|part| match part.split_once('=') {
            Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
            None => Err(format!("malformed pair, expect string=string: {part:?}")),
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }
}

impl ResourceOptions {
    /// Takes a field of a file. Whether it is one of these.
    pub(super) fn take(&mut self, key: &str, value: &Value) -> Result<bool> {
        match key {
            "systemReserved" => put(&mut self.system_reserved, || map(key, value))?,
            "kubeReserved" => put(&mut self.kube_reserved, || map(key, value))?,
            "reservedSystemCPUs" => put(&mut self.reserved_cpus, || text(key, value))?,
            "enforceNodeAllocatable" => put(&mut self.enforce_node_allocatable, || texts(key, value))?,
            "systemReservedCgroup" => put(&mut self.system_reserved_cgroup, || text(key, value))?,
            "kubeReservedCgroup" => put(&mut self.kube_reserved_cgroup, || text(key, value))?,
            "podsPerCore" => put(&mut self.pods_per_core, || number(key, value))?,
            "cpuCFSQuota" => put(&mut self.cpu_cfs_quota, || boolean(key, value))?,
            "cpuCFSQuotaPeriod" => put(&mut self.cpu_cfs_quota_period, || time(key, value))?,
            "cpuManagerPolicy" => put(&mut self.cpu_manager_policy, || text(key, value))?,
            "cpuManagerPolicyOptions" => put(&mut self.cpu_manager_policy_options, || map(key, value))?,
            "cpuManagerReconcilePeriod" => put(&mut self.cpu_manager_reconcile_period, || time(key, value))?,
            "memoryManagerPolicy" => put(&mut self.memory_manager_policy, || text(key, value))?,
            "reservedMemory" => put(&mut self.reserved_memory, || node_memory(key, value))?,
            "topologyManagerPolicy" => put(&mut self.topology_manager_policy, || text(key, value))?,
            "topologyManagerScope" => put(&mut self.topology_manager_scope, || text(key, value))?,
            "topologyManagerPolicyOptions" => {
                put(&mut self.topology_manager_policy_options, || map(key, value))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn checked(&self) -> Result<NodeResources> {
        let map = |pairs: &Option<Pairs>| pairs.clone().unwrap_or_default().0;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        // An empty name is none.
        let name = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        Ok(NodeResources::new(&ResourceStatements {
            system_reserved: map(&self.system_reserved),
            kube_reserved: map(&self.kube_reserved),
            reserved_system_cpus: text(&self.reserved_cpus),
            // An empty flag is an empty list.
            enforce_node_allocatable: self.enforce_node_allocatable.clone().map(|mut names| {
                names.retain(|name| !name.is_empty());
                names
            }),
            system_reserved_cgroup: text(&self.system_reserved_cgroup),
            kube_reserved_cgroup: text(&self.kube_reserved_cgroup),
            pods_per_core: self.pods_per_core.unwrap_or(0),
            cpu_cfs_quota: self.cpu_cfs_quota,
            cpu_cfs_quota_period: self.cpu_cfs_quota_period,
            cpu_manager_policy: name(&self.cpu_manager_policy),
            cpu_manager_policy_options: map(&self.cpu_manager_policy_options),
            cpu_manager_reconcile_period: self.cpu_manager_reconcile_period,
            memory_manager_policy: name(&self.memory_manager_policy),
            reserved_memory: (self.reserved_memory.iter().flatten())
                .map(|NodeMemory(node, limits)| (*node, limits.0.clone()))
                .collect(),
            topology_manager_policy: name(&self.topology_manager_policy),
            topology_manager_scope: name(&self.topology_manager_scope),
            topology_manager_policy_options: map(&self.topology_manager_policy_options),
            alpha_options: false,
        })?)
    }
}

fn map(key: &str, value: &Value) -> Result<Pairs> {
    let given = value.as_object();
    ensure!(given.is_some(), "{key} is no map: {value}");
    let pairs = given.into_iter().flatten();
    let pairs = pairs.map(|(name, value)| Ok((name.clone(), text(&format!("{key}[{name}]"), value)?)));
    pairs.collect::<Result<_>>().map(Pairs)
}

fn node_memory(key: &str, value: &Value) -> Result<Vec<NodeMemory>> {
    let list = value.as_array();
    ensure!(list.is_some(), "{key} is no list: {value}");
    let of_nodes = list.into_iter().flatten().map(|item| {
        let node = item.get("numaNode").map_or(Ok(0), |node| number::<i64>(&format!("{key}.numaNode"), node))?;
        Ok(NodeMemory(node, map(&format!("{key}.limits"), item.get("limits").unwrap_or(&Value::Null))?))
    });
    of_nodes.collect()
}

fn boolean(key: &str, value: &Value) -> Result<bool> {
    value.as_bool().ok_or_else(|| anyhow::anyhow!("{key} is neither true nor false: {value}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        resources: ResourceOptions,
    }

    /// Each flag and the field of a file that says the same.
    #[test]
    fn flags_and_fields_say_the_same() {
        let check = |flags: &[&str], fields: Value| {
            let parsed = Flags::try_parse_from(["ferry"].iter().chain(flags)).expect("flags").resources;
            let mut read = ResourceOptions::default();
            for (key, value) in fields.as_object().expect("fields") {
                assert!(read.take(key, value).expect("taken"), "{key}");
            }
            let (one, other) = (parsed.checked().expect("checked"), read.checked().expect("checked"));
            assert_eq!(one, other, "{flags:?}");
            assert_eq!(one == NodeResources::default(), flags.is_empty(), "{flags:?}");
        };
        check(&[], json!({}));
        check(
            &["--system-reserved=cpu=200m,memory=1Gi", "--kube-reserved=pid=100"],
            json!({"systemReserved": {"cpu": "200m", "memory": "1Gi"}, "kubeReserved": {"pid": "100"}}),
        );
        check(&["--reserved-cpus=0"], json!({"reservedSystemCPUs": "0"}));
        let enforced = ["--enforce-node-allocatable=pods,system-reserved", "--system-reserved-cgroup=/system.slice"];
        check(
            &enforced,
            json!({"enforceNodeAllocatable": ["pods", "system-reserved"], "systemReservedCgroup": "/system.slice"}),
        );
        check(
            &["--enforce-node-allocatable=kube-reserved-compressible", "--kube-reserved-cgroup=/kube"],
            json!({"enforceNodeAllocatable": ["kube-reserved-compressible"], "kubeReservedCgroup": "/kube"}),
        );
        check(&["--enforce-node-allocatable="], json!({"enforceNodeAllocatable": []}));
        check(&["--pods-per-core=10"], json!({"podsPerCore": 10}));
        check(&["--cpu-cfs-quota=false"], json!({"cpuCFSQuota": false}));
        check(&["--cpu-cfs-quota-period=5ms"], json!({"cpuCFSQuotaPeriod": "5ms"}));
        check(
            &["--cpu-manager-policy=static", "--cpu-manager-policy-options=full-pcpus-only=true"],
            json!({"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}),
        );
        check(&["--cpu-manager-reconcile-period=3s"], json!({"cpuManagerReconcilePeriod": "3s"}));
        check(
            &["--memory-manager-policy=Static", "--reserved-memory=0:memory=1Gi,hugepages-2Mi=2Mi;1:memory=2Gi"],
            json!({"memoryManagerPolicy": "Static", "reservedMemory": [
                {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-2Mi": "2Mi"}}, {"numaNode": 1, "limits": {"memory": "2Gi"}}]}),
        );
        let options = "--topology-manager-policy-options=prefer-closest-numa-nodes=true,max-allowable-numa-nodes=16";
        check(
            &["--topology-manager-policy=restricted", "--topology-manager-scope=pod", options],
            json!({"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod", "topologyManagerPolicyOptions":
                {"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "16"}}),
        );
    }

    #[test]
    fn wrong_values_are_told() {
        let check = |key: &str, value: Value, want: &str| {
            let mut options = ResourceOptions::default();
            let got = options.take(key, &value).and_then(|_| options.checked().map(drop));
            assert_eq!(got.map_err(|why| why.to_string()), Err(want.to_owned()));
        };
        check("systemReserved", json!(["cpu"]), "systemReserved is no map: [\"cpu\"]");
        check("systemReserved", json!({"cpu": 1}), "systemReserved[cpu] is no text: 1");
        check(
            "kubeReserved",
            json!({"disk": "1Gi"}),
            "--kube-reserved value failed to parse: cannot reserve \"disk\" resource",
        );
        check("podsPerCore", json!("many"), "podsPerCore is no number that fits: \"many\"");
        check("cpuCFSQuota", json!("yes"), "cpuCFSQuota is neither true nor false: \"yes\"");
        check("cpuManagerPolicy", json!("dynamic"), "unknown policy: \"dynamic\"");
        check("memoryManagerPolicy", json!("static"), "unknown policy: \"static\"");
        check("reservedMemory", json!({"0": "1Gi"}), "reservedMemory is no list: {\"0\":\"1Gi\"}");
        check(
            "topologyManagerScope",
            json!("node"),
            "invalid configuration: topologyManagerScope (--topology-manager-scope) \"node\" must be one of: \"container\", \
             or \"pod\"",
        );
        assert!(Flags::try_parse_from(["ferry", "--reserved-memory=memory=1Gi"]).is_err());
        assert!(Flags::try_parse_from(["ferry", "--system-reserved=cpu"]).is_err());
    }
}
