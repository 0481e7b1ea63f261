//! What a file says reaches the kubelet; what it cannot say is told by name.

use std::time::Duration;

use ferry_kubelet::{CgroupDriver, SwapBehavior};
use serde_json::{Value, json};

use super::super::KubeletOptions;
use super::*;

fn read(fields: &Value) -> Result<FileFields> {
    let mut file = FileFields::default();
    for (key, value) in fields.as_object().into_iter().flatten() {
        assert!(file.take(key, value)?, "{key}");
    }
    Ok(file)
}

fn settings(fields: &Value) -> Settings {
    read(fields).and_then(|file| file.settings()).unwrap_or_else(|error| panic!("{fields}: {error:#}"))
}

fn refused(fields: &Value, why: &str) {
    let error = read(fields).and_then(|file| file.settings()).expect_err(why);
    assert!(format!("{error:#}").contains(why), "{fields}: {error:#}");
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_file_without_a_word_changes_nothing() {
    assert_eq!(settings(&json!({})), Settings::default());
    // What v1beta1 takes for nothing.
    let empty = json!({"nodeStatusUpdateFrequency": "0s", "nodeLeaseDurationSeconds": 0, "registryBurst": 0, "eventBurst": 0,
        "providerID": "", "address": "", "port": 0, "clusterDNS": [], "shutdownGracePeriod": "0s", "crashLoopBackOff": {},
        "authentication": {}, "authorization": {}, "memorySwap": {}, "shutdownGracePeriodByPodPriority": [], "featureGates": {}});
    assert_eq!(settings(&empty), Settings::default());
}

#[test]
fn pulls_are_limited_as_the_file_says() {
    let check = |fields: Value, at_once: Option<usize>, rate: Option<(u32, u32)>| {
        assert_eq!(settings(&fields).pulls, Pulls { at_once, rate }, "{fields}");
    };
    check(json!({"serializeImagePulls": true}), Some(1), None);
    check(json!({"serializeImagePulls": false}), None, None);
    check(json!({"maxParallelImagePulls": 3}), Some(3), None);
    check(json!({"serializeImagePulls": true, "maxParallelImagePulls": 1}), Some(1), None);
    check(json!({"registryPullQPS": 7}), None, Some((7, 10)));
    check(json!({"registryBurst": 7}), None, Some((5, 7)));
    check(json!({"registryPullQPS": 0, "registryBurst": 7}), None, None);
    refused(&json!({"maxParallelImagePulls": 0}), "maxParallelImagePulls 0 must be a positive number");
    refused(&json!({"registryPullQPS": -1}), "registryPullQPS (--registry-qps) -1 must not be a negative number");
    refused(
        &json!({"serializeImagePulls": true, "maxParallelImagePulls": 2}),
        "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false",
    );
}

#[test]
fn crashing_containers_wait_as_long_as_the_file_says() {
    let check = |fields: Value, first: u64, longest: u64| {
        let want = RestartDelays { first: seconds(first), longest: seconds(longest) };
        assert_eq!(settings(&fields).restarts, want, "{fields}");
    };
    let longest = |text: &str| json!({"crashLoopBackOff": {"maxContainerRestartPeriod": text}});
    check(longest("1m"), 10, 60);
    check(longest("2s"), 2, 2);
    check(json!({"featureGates": {"ReduceDefaultCrashLoopBackOffDecay": true}}), 1, 300);
    let both = json!({"ReduceDefaultCrashLoopBackOffDecay": true, "KubeletCrashLoopBackOffMax": false});
    check(json!({ "featureGates": both }), 1, 60);
    refused(
        &longest("301s"),
        "CrashLoopBackOff.MaxContainerRestartPeriod (got: 301 seconds) must be set between 1s and 300s",
    );
    refused(&longest("0s"), "must be set between 1s and 300s");
    let mut off = longest("1m");
    off["featureGates"] = json!({"KubeletCrashLoopBackOffMax": false});
    refused(&off, "FeatureGate KubeletCrashLoopBackOffMax not enabled");
}

#[test]
fn the_node_reports_as_often_as_the_file_says() {
    let report = |fields: Value| settings(&fields).report;
    let made = report(json!({"nodeStatusUpdateFrequency": "30s"}));
    assert_eq!((made.update, made.report), (seconds(30), seconds(30)));
    let made = report(json!({"nodeStatusUpdateFrequency": "30s", "nodeStatusReportFrequency": "2m"}));
    assert_eq!((made.update, made.report), (seconds(30), seconds(120)));
    let made = report(json!({"nodeLeaseDurationSeconds": 20, "providerID": "cloud://1", "registerNode": false}));
    assert_eq!((made.lease_seconds, made.provider_id.as_deref(), made.registers), (20, Some("cloud://1"), false));
    for (given, want) in [(-1, None), (0, Some(0)), (7, Some(7))] {
        assert_eq!(report(json!({"nodeStatusMaxImages": given})).most_images, want, "{given}");
    }
    refused(
        &json!({"nodeStatusMaxImages": -2}),
        "nodeStatusMaxImages (--node-status-max-images) -2 must be -1 or greater",
    );
    refused(&json!({"nodeLeaseDurationSeconds": -1}), "nodeLeaseDurationSeconds must be greater than 0");
}

#[test]
fn times_and_counts_reach_the_kubelet() {
    let made = settings(
        &json!({"containerLogMonitorInterval": "5s", "containerLogMaxWorkers": 3, "fileCheckFrequency": "7s",
        "syncFrequency": "8s", "runtimeRequestTimeout": "9s", "streamingConnectionIdleTimeout": "10s", "oomScoreAdj": -999,
        "eventRecordQPS": 4, "seccompDefault": true, "failCgroupV1": true}),
    );
    assert_eq!(made.logs, Logs { interval: seconds(5), workers: 3 });
    assert_eq!((made.file_check, made.sync, made.runtime_timeout), (seconds(7), Some(seconds(8)), seconds(9)));
    assert_eq!((made.stream_idle, made.oom_score_adj), (seconds(10), Some(-999)));
    assert_eq!(made.events, Some(EventRate { per_second: 4, burst: 100 }));
    assert!(made.seccomp_default && made.fail_cgroup_v1);
    assert_eq!(settings(&json!({"eventRecordQPS": 0})).events, None);
    refused(&json!({"containerLogMonitorInterval": "2s"}), "greater than or equal to 3s");
    refused(&json!({"containerLogMaxWorkers": 0}), "containerLogMaxWorkers must be greater than or equal to 1");
    refused(
        &json!({"oomScoreAdj": 1001}),
        "oomScoreAdj (--oom-score-adj) 1001 must be between -1000 and 1000, inclusive",
    );
    refused(&json!({"eventBurst": -1}), "eventBurst (--event-burst) -1 must not be a negative number");
    refused(&json!({"seccompDefault": "yes"}), "seccompDefault is no bool: \"yes\"");
    refused(&json!({"syncFrequency": "often"}), "syncFrequency");
}

#[test]
fn health_is_served_where_the_file_or_the_place_says() {
    let check = |fields: Value, usual: bool, want: Option<&str>| {
        let file = read(&fields).expect("read");
        assert_eq!(file.healthz(usual).map(|address| address.to_string()).as_deref(), want, "{fields}");
    };
    check(json!({}), false, None);
    check(json!({}), true, Some("127.0.0.1:10248"));
    check(json!({"healthzPort": 0}), true, None);
    check(json!({"healthzPort": 7000}), false, Some("127.0.0.1:7000"));
    check(json!({"healthzBindAddress": "0.0.0.0"}), false, Some("0.0.0.0:10248"));
    refused(
        &json!({"healthzPort": 70000}),
        "healthzPort (--healthz-port) 70000 must be between 1 and 65535, inclusive",
    );
    refused(&json!({"healthzBindAddress": "here"}), "healthzBindAddress: \"here\" is no address");
}

#[test]
fn who_may_ask_is_what_the_file_may_say() {
    let made = settings(
        &json!({"authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": false, "cacheTTL": "1m"},
        "x509": {"clientCAFile": "/ca.crt"}}, "authorization": {"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "2m",
        "cacheUnauthorizedTTL": "3s"}}, "enableDebuggingHandlers": false, "enableSystemLogQuery": true}),
    );
    let server = made.server;
    assert!(!server.tokens && !server.debugging && server.log_query && server.system_logs);
    assert_eq!((server.token_ttl, server.allowed_ttl, server.denied_ttl), (seconds(60), seconds(120), seconds(3)));
    refused(
        &json!({"authentication": {"anonymous": {"enabled": true}}}),
        "authentication.anonymous.enabled cannot be true here",
    );
    refused(
        &json!({"authorization": {"mode": "AlwaysAllow"}}),
        "authorization.mode \"AlwaysAllow\" is not possible here",
    );
    refused(
        &json!({"enableSystemLogHandler": false, "enableSystemLogQuery": true}),
        "enableSystemLogHandler is required for enableSystemLogQuery",
    );
    assert!(!read(&json!({"enableServer": false})).expect("read").serves());
}

#[test]
fn pods_end_before_the_machine_as_the_file_says() {
    let check = |fields: Value, want: &[(i32, i64)]| {
        let seen: Vec<(i32, i64)> =
            settings(&fields).shutdown.iter().map(|period| (period.priority, period.seconds)).collect();
        assert_eq!(seen, want, "{fields}");
    };
    check(
        json!({"shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s"}),
        &[(0, 20), (2_000_000_000, 10)],
    );
    let one = |priority: i32, seconds: i64| json!({"priority": priority, "shutdownGracePeriodSeconds": seconds});
    let by_priority = json!([one(1000, 5), one(0, 60)]);
    check(json!({"shutdownGracePeriodByPodPriority": by_priority}), &[(0, 60), (1000, 5)]);
    let gate = |name: &str, mut fields: Value| {
        fields["featureGates"] = json!({name: false});
        fields
    };
    let simple = || json!({"shutdownGracePeriod": "30s"});
    refused(&gate("GracefulNodeShutdown", simple()), "requires feature gate GracefulNodeShutdown");
    refused(
        &gate("GracefulNodeShutdownBasedOnPodPriority", json!({"shutdownGracePeriodByPodPriority": by_priority})),
        "requires feature gate GracefulNodeShutdownBasedOnPodPriority",
    );
    refused(&json!({"shutdownGracePeriod": "500ms"}), "must be either zero or otherwise >= 1 sec");
    refused(
        &json!({"shutdownGracePeriod": "5s", "shutdownGracePeriodCriticalPods": "9s"}),
        "shutdownGracePeriodCriticalPods 9s must be <= shutdownGracePeriod 5s",
    );
    let mut both = simple();
    both["shutdownGracePeriodByPodPriority"] = by_priority;
    refused(&both, "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the same time");
    refused(&json!({"shutdownGracePeriodByPodPriority": [one(0, -1)]}), "must not be a negative number");
}

#[test]
fn memory_is_as_the_file_says() {
    let made = settings(
        &json!({"memorySwap": {"swapBehavior": "LimitedSwap"}, "failSwapOn": true, "memoryThrottlingFactor": 0.5,
        "memoryReservationPolicy": "TieredReservation", "singleProcessOOMKill": false}),
    );
    let want = MemoryPolicy {
        swap: SwapBehavior::LimitedSwap,
        fail_swap_on: true,
        qos: true,
        throttling_factor: Some(0.5),
        reserves: true,
        kills_together: true,
    };
    assert_eq!(made.memory, want);
    assert!(!settings(&json!({"singleProcessOOMKill": true})).memory.kills_together);
    refused(
        &json!({"memorySwap": {"swapBehavior": "All"}}),
        "memorySwap.swapBehavior \"All\" must be one of: \"\", \"LimitedSwap\" or \"NoSwap\"",
    );
    refused(&json!({"memoryThrottlingFactor": 1.5}), "must be greater than 0 and less than or equal to 1.0");
    refused(&json!({"memoryReservationPolicy": "Some"}), "Valid options are \"None\" or \"TieredReservation\"");
    let off = |mut fields: Value| {
        fields["featureGates"] = json!({"MemoryQoS": false});
        fields
    };
    assert!(!settings(&off(json!({"memoryThrottlingFactor": 0.9}))).memory.qos);
    refused(&off(json!({"memoryThrottlingFactor": 0.5})), "must not be set when MemoryQoS feature gate is disabled");
    refused(
        &off(json!({"memoryReservationPolicy": "TieredReservation"})),
        "requires MemoryQoS feature gate to be enabled",
    );
}

#[test]
fn the_machine_is_as_the_file_says() {
    let made = settings(&json!({"protectKernelDefaults": true, "userNamespaces": {"idsPerPod": 131_072}}));
    assert_eq!((made.protect_kernel_defaults, made.ids_per_pod), (true, 131_072));
    assert_eq!(settings(&json!({"userNamespaces": {}})).ids_per_pod, 65_536);
    let ids = |count: i64| json!({"userNamespaces": {"idsPerPod": count}});
    refused(&ids(1), "userNamespaces.idsPerPod must not be less than 65536");
    refused(&ids(100_000), "userNamespaces.idsPerPod must be a multiple of 65536");
    refused(&ids(1 << 40), "userNamespaces.idsPerPod must not be more than 4294967295");
}

#[test]
fn default_sysctls_need_their_feature() {
    let sysctls = json!({"net.core.somaxconn": "1024"});
    refused(&json!({"defaultPodSysctls": sysctls}), "DefaultPodSysctls feature gate is required");
    let made = settings(&json!({"defaultPodSysctls": sysctls, "featureGates": {"DefaultPodSysctls": true}}));
    assert_eq!(made.default_sysctls, [("net.core.somaxconn".to_owned(), "1024".to_owned())]);
}

#[test]
fn what_has_a_flag_elsewhere_is_kept_for_it() {
    let node = read(
        &json!({"address": "192.0.2.1", "port": 1234, "clusterDNS": ["192.0.2.53"], "clusterDomain": "example.test",
        "resolvConf": "/run/resolv.conf", "containerRuntimeEndpoint": "unix:///run/x.sock", "tlsCertFile": "/c", "tlsPrivateKeyFile": "/k",
        "registerWithTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"}], "authentication": {"x509": {"clientCAFile": "/ca"}}}),
    );
    let node = node.expect("read").node;
    assert_eq!((node.address.map(|ip| ip.to_string()).as_deref(), node.port), (Some("192.0.2.1"), Some(1234)));
    assert_eq!(node.cluster_dns, Some(vec!["192.0.2.53".parse().expect("an address")]));
    assert_eq!(node.cluster_domain.as_deref(), Some("example.test"));
    assert_eq!(node.container_runtime_endpoint.as_deref(), Some("unix:///run/x.sock"));
    assert_eq!((node.client_ca_file, node.tls_cert_file), (Some("/ca".into()), Some("/c".into())));
    let taints = node.taints.expect("taints");
    assert_eq!(
        (taints[0].key.as_str(), taints[0].effect.as_str(), taints[0].value.as_deref()),
        ("a", "NoSchedule", Some("b"))
    );
    refused(&json!({"registerWithTaints": [{"key": "a", "effect": "Never"}]}), "invalid taint");
    refused(
        &json!({"registerWithTaints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]}),
        "taint.TimeAdded is not nil",
    );
    refused(&json!({"port": 70000}), "port (--port) 70000 must be between 1 and 65535, inclusive");
    refused(&json!({"clusterDNS": ["there"]}), "clusterDNS: \"there\" is no address");
}

#[test]
fn both_drivers_are_known_by_name() {
    let driver = |fields: Value| {
        let options = KubeletOptions { file: read(&fields).expect("read"), ..KubeletOptions::default() };
        let checked = options.check().expect("a configuration");
        (checked.cgroup_driver(), checked.runtime_cgroup_driver())
    };
    let cgroupfs = (CgroupDriver::Cgroupfs, ferry_cri::v1::CgroupDriver::Cgroupfs);
    for fields in [json!({}), json!({"cgroupDriver": ""}), json!({"cgroupDriver": "cgroupfs"})] {
        assert_eq!(driver(fields), cgroupfs);
    }
    let systemd = (CgroupDriver::Systemd, ferry_cri::v1::CgroupDriver::Systemd);
    assert_eq!(driver(json!({"cgroupDriver": "systemd"})), systemd);
    refused(&json!({"cgroupDriver": "systemctl"}), "cgroupDriver \"systemctl\" is not known: systemd or cgroupfs");
}
