//! `/configz`: the configuration the kubelet runs with, as a KubeletConfiguration.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::backoff::go_duration;
use crate::config::Config;
use crate::cpu_manager::CpuManagerPolicy;
use crate::eviction::{Amount, Threshold};
use crate::memory_manager::MemoryReservation;
use crate::memory_policy::SwapBehavior;
use crate::node_resources::NodeResources;

fn amount(amount: &Amount) -> String {
    match amount {
        Amount::Fixed(quantity) => quantity.to_string(),
        Amount::Share(share) => format!("{}%", share * 100.0),
    }
}

fn thresholds<'a>(
    thresholds: impl Iterator<Item = &'a Threshold>,
    text: impl Fn(&Threshold) -> Option<String>,
) -> Value {
    let pairs = thresholds.filter_map(|t| Some((t.signal.name().to_owned(), Value::from(text(t)?))));
    Value::Object(pairs.collect::<Map<_, _>>())
}

pub(super) fn document(config: &Config, port: u16) -> Value {
    let all = || config.eviction.thresholds.iter();
    let soft = || all().filter(|t| !t.is_hard());
    let (images, resources) = (&config.images, &config.resources);
    let (set, server) = (&config.settings, &config.settings.server);
    let mut own = json!({
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "enableServer": config.tls.is_some(),
        "staticPodPath": config.manifests.as_ref().map(|m| m.path.to_string_lossy().into_owned()),
        "fileCheckFrequency": go_duration(set.file_check),
        "address": config.listen_ip.unwrap_or(config.node_ip).to_string(),
        "port": port,
        "authentication": {"x509": {}, "webhook": {"enabled": server.tokens, "cacheTTL": go_duration(server.token_ttl)}, "anonymous": {"enabled": false}},
        "authorization": {"mode": "Webhook",
            "webhook": {"cacheAuthorizedTTL": go_duration(server.allowed_ttl), "cacheUnauthorizedTTL": go_duration(server.denied_ttl)}},
        "clusterDomain": config.cluster_domain,
        "clusterDNS": config.cluster_dns.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    let figures = json!({
        "nodeStatusUpdateFrequency": go_duration(set.report.update),
        "nodeStatusReportFrequency": go_duration(set.report.report),
        "nodeLeaseDurationSeconds": set.report.lease_seconds,
        "nodeStatusMaxImages": set.report.most_images.map_or(-1, |most| i64::try_from(most).unwrap_or(i64::MAX)),
        "imageMinimumGCAge": go_duration(images.minimum_age),
        "imageMaximumGCAge": go_duration(images.maximum_age),
        "imageGCHighThresholdPercent": images.high_percent,
        "imageGCLowThresholdPercent": images.low_percent,
        "cgroupRoot": config.cgroup_root.to_string_lossy(),
        "cgroupsPerQOS": true,
        "cgroupDriver": config.cgroup_driver.name(),
        "cpuManagerPolicy": resources.cpu_manager.name(),
        "cpuManagerReconcilePeriod": go_duration(resources.cpu_manager_reconcile_period),
        "memoryManagerPolicy": resources.memory_manager.name(),
        "topologyManagerPolicy": resources.topology.policy.name(),
        "topologyManagerScope": resources.topology.scope.name(),
        "maxPods": config.max_pods,
        "podCIDR": config.pod_cidr,
        "podPidsLimit": config.pod_pids.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX)),
        "resolvConf": config.resolv_conf.to_string_lossy(),
        "serializeImagePulls": set.pulls.at_once == Some(1),
        "maxParallelImagePulls": set.pulls.at_once,
        "registryPullQPS": set.pulls.rate.map_or(0, |(qps, _)| qps),
        "registryBurst": set.pulls.rate.map(|(_, burst)| burst),
        "runtimeRequestTimeout": go_duration(set.runtime_timeout),
        "streamingConnectionIdleTimeout": go_duration(set.stream_idle),
        "crashLoopBackOff": {"maxContainerRestartPeriod": go_duration(set.restarts.longest)},
        "allowedUnsafeSysctls": config.sysctls.unsafe_ones(),
        "imagePullCredentialsVerificationPolicy": config.image_credentials.name(),
    });
    let limits = json!({
        "evictionHard": thresholds(all().filter(|t| t.is_hard()), |t| Some(amount(&t.amount))),
        "evictionSoft": thresholds(soft(), |t| Some(amount(&t.amount))),
        "evictionSoftGracePeriod": thresholds(soft(), |t| Some(go_duration(t.grace))),
        "evictionMinimumReclaim": thresholds(all(), |t| t.reclaim.as_ref().map(amount)),
        "evictionPressureTransitionPeriod": go_duration(config.eviction.transition),
        "evictionMaxPodGracePeriod": config.eviction.longest_grace,
        "containerLogMaxSize": config.log_size.to_string(),
        "containerLogMaxFiles": config.log_files,
        "enforceNodeAllocatable": resources.enforcements.iter().map(|one| one.name()).collect::<Vec<_>>(),
        "failSwapOn": set.memory.fail_swap_on,
        "memorySwap": {"swapBehavior": match set.memory.swap {
            SwapBehavior::NoSwap => "NoSwap",
            SwapBehavior::LimitedSwap => "LimitedSwap",
        }},
        "memoryThrottlingFactor": set.memory.throttling_factor,
        "memoryReservationPolicy": if set.memory.reserves { "TieredReservation" } else { "None" },
        "singleProcessOOMKill": !set.memory.kills_together,
        "registerNode": set.report.registers,
        "seccompDefault": set.seccomp_default,
        "failCgroupV1": set.fail_cgroup_v1,
        "containerLogMonitorInterval": go_duration(set.logs.interval),
        "containerLogMaxWorkers": set.logs.workers,
        "enableDebuggingHandlers": server.debugging,
        "enableSystemLogHandler": server.system_logs,
        "enableSystemLogQuery": server.log_query,
        "healthzPort": set.healthz.map_or(0, |address| address.port()),
        "healthzBindAddress": set.healthz.map(|address| address.ip().to_string()),
        "eventRecordQPS": set.events.map_or(0, |rate| rate.per_second),
        "eventBurst": set.events.map(|rate| rate.burst),
        "shutdownGracePeriodByPodPriority": set.shutdown.iter().map(|period| {
            json!({"priority": period.priority, "shutdownGracePeriodSeconds": period.seconds})
        }).collect::<Vec<_>>(),
        "localStorageCapacityIsolation": true,
        "containerRuntimeEndpoint": format!("unix://{}", config.cri_endpoint.trim_start_matches("unix://")),
    });
    for more in [figures, limits, kept(resources), given(config), fixed()] {
        if let (Value::Object(own), Value::Object(more)) = (&mut own, more) {
            own.extend(more);
        }
    }
    json!({"kubeletconfig": own})
}

/// What was given beside that; what was not is left out, as upstream leaves it out.
fn given(config: &Config) -> Value {
    let set = &config.settings;
    let mut told = json!({
        "podLogsDir": config.log_dir.to_string_lossy(),
        "syncFrequency": go_duration(set.sync.unwrap_or_default()),
        "protectKernelDefaults": set.protect_kernel_defaults,
        "userNamespaces": {"idsPerPod": set.ids_per_pod},
        "oomScoreAdj": set.oom_score_adj.or_else(own_oom_score),
        "maxOpenFiles": rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
    });
    for (field, value) in [
        ("preloadedImagesVerificationAllowlist", json!(config.image_credentials.allowed())),
        ("defaultPodSysctls", json!(set.default_sysctls.iter().cloned().collect::<BTreeMap<_, _>>())),
        ("featureGates", json!(set.feature_gates)),
        ("registerWithTaints", json!(config.taints)),
        ("providerID", json!(set.report.provider_id)),
    ] {
        let is_none = match &value {
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            value => value.is_null(),
        };
        if !is_none {
            told[field] = value;
        }
    }
    told
}

/// What nobody can change here, in the words that a KubeletConfiguration has for it.
fn fixed() -> Value {
    json!({
        "httpCheckFrequency": "0s",
        "tlsMinVersion": "VersionTLS12",
        "rotateCertificates": true,
        "volumeStatsAggPeriod": "0s",
        "hairpinMode": "promiscuous-bridge",
        "contentType": "application/json",
        // Requests are not held back.
        "kubeAPIQPS": -1,
        "kubeAPIBurst": 0,
        "mergeDefaultEvictionSettings": false,
        "enableControllerAttachDetach": true,
        "makeIPTablesUtilChains": false,
        "iptablesMasqueradeBit": 14,
        "iptablesDropBit": 15,
        "configMapAndSecretChangeDetectionStrategy": "Watch",
        "volumePluginDir": "",
        "logging": {"format": "text", "flushFrequency": "0s", "verbosity": 0,
            "options": {"text": {"infoBufferSize": "0"}, "json": {"infoBufferSize": "0"}}},
        // They are told by priority.
        "shutdownGracePeriod": "0s",
        "shutdownGracePeriodCriticalPods": "0s",
        "enableProfilingHandler": false,
        "enableDebugFlagsHandler": false,
    })
}

/// Of the process as it is.
fn own_oom_score() -> Option<i32> {
    std::fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse().ok()
}

/// What is kept from pods; what was not given is left out, as upstream leaves it out.
fn kept(resources: &NodeResources) -> Value {
    let mut kept = json!({
        "cpuCFSQuota": resources.quotas.enforced,
        "cpuCFSQuotaPeriod": ferry_semantics::duration::show_unsigned(Duration::from_micros(resources.quotas.period.unsigned_abs())),
        "podsPerCore": resources.pods_per_core,
    });
    for (field, map) in
        [("systemReserved", &resources.system_reserved.given), ("kubeReserved", &resources.kube_reserved.given)]
    {
        if !map.is_empty() {
            kept[field] = json!(map);
        }
    }
    let cpus = resources.reserved_cpus.to_string();
    for (field, text) in [
        ("reservedSystemCPUs", &cpus),
        ("systemReservedCgroup", &resources.system_cgroup),
        ("kubeReservedCgroup", &resources.kube_cgroup),
    ] {
        if !text.is_empty() {
            kept[field] = json!(text);
        }
    }
    if let CpuManagerPolicy::Static(options) = &resources.cpu_manager
        && !options.given.is_empty()
    {
        kept["cpuManagerPolicyOptions"] = json!(options.given);
    }
    if !resources.topology.given.is_empty() {
        kept["topologyManagerPolicyOptions"] = json!(resources.topology.given);
    }
    if !resources.reserved_memory.is_empty() {
        let of_node = |one: &MemoryReservation| json!({"numaNode": one.numa_node, "limits": one.given});
        kept["reservedMemory"] = resources.reserved_memory.iter().map(of_node).collect();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::{self, Eviction};
    use crate::node_resources::Statements;

    #[test]
    fn thresholds_are_told_as_they_were_given() {
        let address = "127.0.0.1".parse().expect("an address");
        let mut config = Config::new("n", address, "/run/c.sock", "/var/lib/kubelet");
        let statements = eviction::Statements {
            soft: Some("memory.available<1Gi"),
            soft_grace: Some("memory.available=1m30s"),
            minimum_reclaim: Some("nodefs.available=2Gi"),
            ..eviction::Statements::default()
        };
        config.eviction = Eviction::default().with(statements).expect("thresholds");
        let told = &document(&config, 10250)["kubeletconfig"];
        assert_eq!(told["evictionHard"]["nodefs.available"], "10%");
        assert_eq!(told["evictionHard"]["memory.available"], "100Mi");
        assert_eq!(told["evictionSoft"], json!({"memory.available": "1Gi"}));
        assert_eq!(told["evictionSoftGracePeriod"], json!({"memory.available": "1m30s"}));
        assert_eq!(told["evictionMinimumReclaim"], json!({"nodefs.available": "2Gi"}));
        assert_eq!((&told["containerLogMaxSize"], &told["maxPods"]), (&json!("10485760"), &json!(110)));
        assert_eq!(told["containerRuntimeEndpoint"], "unix:///run/c.sock");
    }

    #[test]
    fn what_is_kept_from_pods_is_told() {
        let address = "127.0.0.1".parse().expect("an address");
        let mut config = Config::new("n", address, "/run/c.sock", "/var/lib/kubelet");
        let told = document(&config, 10250)["kubeletconfig"].take();
        assert_eq!(told["enforceNodeAllocatable"], json!(["pods"]));
        assert_eq!((&told["cpuManagerPolicy"], &told["cpuCFSQuotaPeriod"]), (&json!("none"), &json!("100ms")));
        assert_eq!((told.get("systemReserved"), told.get("reservedSystemCPUs")), (None, None));
        config.resources = NodeResources::new(&Statements {
            system_reserved: [("memory".to_owned(), "1Gi".to_owned())].into(),
            reserved_system_cpus: "1,0".to_owned(),
            enforce_node_allocatable: Some(Vec::new()),
            cpu_cfs_quota_period: Some(Duration::from_millis(5)),
            cpu_manager_policy: Some("static".to_owned()),
            memory_manager_policy: Some("Static".to_owned()),
            reserved_memory: vec![(1, [("memory".to_owned(), "1Gi".to_owned())].into())],
            topology_manager_policy: Some("restricted".to_owned()),
            topology_manager_scope: Some("pod".to_owned()),
            topology_manager_policy_options: [("prefer-closest-numa-nodes".to_owned(), "1".to_owned())].into(),
            cpu_manager_policy_options: [("full-pcpus-only".to_owned(), "true".to_owned())].into(),
            ..Statements::default()
        })
        .expect("taken");
        let told = document(&config, 10250)["kubeletconfig"].take();
        assert_eq!(told["enforceNodeAllocatable"], json!([]));
        assert_eq!(told["systemReserved"], json!({"cpu": "2", "memory": "1Gi"}));
        assert_eq!(told["reservedSystemCPUs"], "0-1");
        assert_eq!((&told["cpuManagerPolicy"], &told["cpuCFSQuotaPeriod"]), (&json!("static"), &json!("5ms")));
        assert_eq!(told["cpuManagerPolicyOptions"], json!({"full-pcpus-only": "true"}));
        assert_eq!(told["memoryManagerPolicy"], "Static");
        assert_eq!(told["reservedMemory"], json!([{"numaNode": 1, "limits": {"memory": "1Gi"}}]));
        assert_eq!(
            (&told["topologyManagerPolicy"], &told["topologyManagerScope"]),
            (&json!("restricted"), &json!("pod"))
        );
        assert_eq!(told["topologyManagerPolicyOptions"], json!({"prefer-closest-numa-nodes": "1"}));
    }
    /// Fields of a KubeletConfiguration that upstream's kubelet tells of whatever it was given.
    const ALWAYS: [&str; 86] = [
        "address",
        "authentication",
        "authorization",
        "cgroupDriver",
        "cgroupsPerQOS",
        "configMapAndSecretChangeDetectionStrategy",
        "containerLogMaxFiles",
        "containerLogMaxSize",
        "containerLogMaxWorkers",
        "containerLogMonitorInterval",
        "containerRuntimeEndpoint",
        "contentType",
        "cpuCFSQuota",
        "cpuCFSQuotaPeriod",
        "cpuManagerPolicy",
        "cpuManagerReconcilePeriod",
        "crashLoopBackOff",
        "enableControllerAttachDetach",
        "enableDebugFlagsHandler",
        "enableDebuggingHandlers",
        "enableProfilingHandler",
        "enableServer",
        "enableSystemLogHandler",
        "enforceNodeAllocatable",
        "eventBurst",
        "eventRecordQPS",
        "evictionPressureTransitionPeriod",
        "failCgroupV1",
        "failSwapOn",
        "fileCheckFrequency",
        "hairpinMode",
        "healthzBindAddress",
        "healthzPort",
        "httpCheckFrequency",
        "imageGCHighThresholdPercent",
        "imageGCLowThresholdPercent",
        "imageMaximumGCAge",
        "imageMinimumGCAge",
        "imagePullCredentialsVerificationPolicy",
        "iptablesDropBit",
        "iptablesMasqueradeBit",
        "kubeAPIBurst",
        "kubeAPIQPS",
        "localStorageCapacityIsolation",
        "logging",
        "makeIPTablesUtilChains",
        "maxOpenFiles",
        "maxPods",
        "memoryManagerPolicy",
        "memoryReservationPolicy",
        "memorySwap",
        "mergeDefaultEvictionSettings",
        "nodeLeaseDurationSeconds",
        "nodeStatusMaxImages",
        "nodeStatusReportFrequency",
        "nodeStatusUpdateFrequency",
        "oomScoreAdj",
        "podLogsDir",
        "podPidsLimit",
        "port",
        "registerNode",
        "registryBurst",
        "registryPullQPS",
        "resolvConf",
        "rotateCertificates",
        "runtimeRequestTimeout",
        "seccompDefault",
        "serializeImagePulls",
        "shutdownGracePeriod",
        "shutdownGracePeriodCriticalPods",
        "singleProcessOOMKill",
        "streamingConnectionIdleTimeout",
        "syncFrequency",
        "topologyManagerPolicy",
        "topologyManagerScope",
        "volumePluginDir",
        "volumeStatsAggPeriod",
        "clusterDomain",
        "clusterDNS",
        "cgroupRoot",
        "evictionHard",
        "memoryThrottlingFactor",
        "enableSystemLogQuery",
        "tlsMinVersion",
        "userNamespaces",
        "staticPodPath",
    ];

    #[test]
    fn every_field_that_upstream_tells_of_is_told() {
        let address = "127.0.0.1".parse().expect("an address");
        let mut config = Config::new("n", address, "/run/c.sock", "/var/lib/kubelet");
        let told = document(&config, 10250)["kubeletconfig"].take();
        for field in ALWAYS {
            assert!(told.get(field).is_some(), "{field}");
        }
        let given = ["featureGates", "registerWithTaints", "defaultPodSysctls", "providerID"];
        given.iter().for_each(|field| assert_eq!(told.get(field), None, "{field}"));
        assert_eq!((&told["syncFrequency"], &told["podLogsDir"]), (&json!("0s"), &json!("/var/log/pods")));
        assert!(told["oomScoreAdj"].is_i64() && told["maxOpenFiles"].as_u64() > Some(0));

        config.settings.sync = Some(Duration::from_secs(60));
        config.settings.oom_score_adj = Some(-999);
        config.settings.feature_gates = [("MemoryQoS".to_owned(), true)].into();
        config.settings.default_sysctls = vec![("net.ipv4.ip_forward".to_owned(), "1".to_owned())];
        config.settings.report.provider_id = Some("cloud://1".to_owned());
        config.taints = vec![serde_json::from_value(json!({"key": "a", "effect": "NoSchedule"})).expect("a taint")];
        config.image_credentials =
            crate::Verification::parse("NeverVerifyAllowlistedImages", &["registry.example.com/base".to_owned()])
                .expect("a policy");
        let told = document(&config, 10250)["kubeletconfig"].take();
        assert_eq!((&told["syncFrequency"], &told["oomScoreAdj"]), (&json!("1m0s"), &json!(-999)));
        assert_eq!(told["featureGates"], json!({"MemoryQoS": true}));
        assert_eq!(told["defaultPodSysctls"], json!({"net.ipv4.ip_forward": "1"}));
        assert_eq!((&told["providerID"], &told["registerWithTaints"][0]["key"]), (&json!("cloud://1"), &json!("a")));
        assert_eq!(told["preloadedImagesVerificationAllowlist"], json!(["registry.example.com/base"]));
    }
}
