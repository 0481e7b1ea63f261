//! Which sysctls a pod may set: those that change nothing but the pod, and those that the administrator allows besides.

use std::collections::HashMap;

use ferry_cri::sysctl::dotted;
use k8s_openapi::api::core::v1::Pod;

use crate::pod;
use crate::status::WaitReason;

/// In a namespace of the pod, and without influence on other pods. Kernels that can run containers today have all of
/// them in the network namespace (4.15 was the last to gain one).
const SAFE: [&str; 14] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
];

/// The namespace that a sysctl belongs to, as upstream's messages call it; none where it is the node's own.
fn namespace(name: &str) -> Option<&'static str> {
    const IPC: [&str; 10] = [
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    ];
    match name {
        "kernel.domainname" => Some("UTS"),
        ipc if IPC.contains(&ipc) || ipc.starts_with("fs.mqueue.") => Some("IPC"),
        net if net.starts_with("net.") => Some("Net"),
        user if user.starts_with("user.") => Some("User"),
        _ => None,
    }
}

/// What a pod sets. Runtimes know only names with dots.
pub(crate) fn of_pod(pod: &Pod) -> HashMap<String, String> {
    let context = pod::spec(pod).security_context.as_ref();
    let set = context.and_then(|context| context.sysctls.as_ref()).into_iter().flatten();
    set.map(|sysctl| (dotted(&sysctl.name), sysctl.value.clone())).collect()
}

/// Adds the node's defaults to what a pod sets itself, where the namespace is the pod's own.
pub(crate) fn add_defaults(defaults: &[(String, String)], pod: &Pod, sysctls: &mut HashMap<String, String>) {
    let spec = pod::spec(pod);
    let own = |name: &str| match namespace(name) {
        Some("IPC") => spec.host_ipc != Some(true),
        Some("User") => spec.host_users == Some(false),
        Some(_) => spec.host_network != Some(true),
        None => false,
    };
    for (name, value) in defaults.iter().filter(|(name, _)| own(name)) {
        sysctls.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

/// What pods may set on this node.
#[derive(Clone, Debug, Default)]
pub struct Sysctls {
    /// Beside the safe ones; a trailing `*` stands for anything.
    unsafe_ones: Vec<String>,
}

/// What is wrong with a sysctl of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SysctlError {
    #[error("{0:?} is no name of a sysctl, nor the beginning of one with a * behind it")]
    Pattern(String),
    #[error("the sysctls {0:?} are not known to be namespaced")]
    PatternNotNamespaced(String),
    #[error("{0:?} is not a valid sysctl name for defaultPodSysctls")]
    Default(String),
    #[error("{0:?} is not known to be namespaced for defaultPodSysctls")]
    DefaultNotNamespaced(String),
    #[error("duplicate sysctl {0:?} found in defaultPodSysctls")]
    DuplicateDefault(String),
}

impl Sysctls {
    /// `patterns` are sysctls that the administrator allows though they may reach beyond the pod.
    pub fn allowing(patterns: &[String]) -> Result<Self, SysctlError> {
        let mut unsafe_ones = Vec::new();
        for pattern in patterns {
            let name = dotted(pattern);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '/' | '_' | '-');
            let stem = name.strip_suffix('*').unwrap_or(&name);
            if stem.is_empty() || pattern.len() > 253 || !stem.chars().all(plain) {
                return Err(SysctlError::Pattern(pattern.clone()));
            }
            if namespace(stem).is_none() {
                return Err(SysctlError::PatternNotNamespaced(stem.to_owned()));
            }
            unsafe_ones.push(name);
        }
        Ok(Self { unsafe_ones })
    }

    /// `defaultPodSysctls`, checked: their names as they are written everywhere else.
    pub fn defaults(given: &[(String, String)]) -> Result<Vec<(String, String)>, SysctlError> {
        let mut all: Vec<(String, String)> = Vec::new();
        for (given, value) in given {
            let name = dotted(given);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '/' | '_' | '-');
            if name.is_empty() || name.len() > 253 || !name.chars().all(plain) {
                return Err(SysctlError::Default(given.clone()));
            }
            if namespace(&name).is_none() {
                return Err(SysctlError::DefaultNotNamespaced(given.clone()));
            }
            if all.iter().any(|(known, _)| *known == name) {
                return Err(SysctlError::DuplicateDefault(name));
            }
            all.push((name, value.clone()));
        }
        Ok(all)
    }

    /// What is allowed beside the safe ones.
    pub(crate) fn unsafe_ones(&self) -> &[String] {
        &self.unsafe_ones
    }

    fn is_allowed(&self, name: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(stem) => name.starts_with(stem),
            None => name == pattern,
        };
        SAFE.contains(&name) || self.unsafe_ones.iter().any(fits)
    }

    /// Why the node does not take a pod; none where it may set all it wants to.
    pub(crate) fn refusal(&self, pod: &Pod) -> Option<WaitReason> {
        let spec = pod::spec(pod);
        let wanted = spec.security_context.as_ref().and_then(|context| context.sysctls.as_ref());
        let why = wanted.into_iter().flatten().find_map(|sysctl| {
            let name = dotted(&sysctl.name);
            if !self.is_allowed(&name) {
                return Some(format!("{name:?} not allowlisted"));
            }
            let shared = match namespace(&name)? {
                "Net" => spec.host_network == Some(true),
                "IPC" => spec.host_ipc == Some(true),
                "User" => spec.host_users != Some(false),
                _ => false,
            };
            shared.then(|| format!("{name:?} not allowed with host {} enabled", namespace(&name).unwrap_or_default()))
        })?;
        Some(WaitReason { reason: "SysctlForbidden".to_owned(), message: format!("forbidden sysctl: {why}") })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn defaults_are_for_namespaces_of_the_pod() {
        let given = [("net.core.somaxconn", "1024"), ("kernel/shmmax", "7"), ("user.max_pid_namespaces", "3")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let defaults = Sysctls::defaults(&given).expect("defaults");
        let check = |spec: Value, want: &[(&str, &str)]| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("a pod");
            let mut set = HashMap::from([("net/ipv4/tcp_syncookies".to_owned(), "1".to_owned())]);
            if spec["own"] == true {
                set.insert("net.core.somaxconn".to_owned(), "5".to_owned());
            }
            add_defaults(&defaults, &pod, &mut set);
            set.remove("net/ipv4/tcp_syncookies");
            let mut seen: Vec<(&str, &str)> = set.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            seen.sort_unstable();
            assert_eq!(seen, want, "{spec}");
        };
        let (shm, net, user) =
            (("kernel.shmmax", "7"), ("net.core.somaxconn", "1024"), ("user.max_pid_namespaces", "3"));
        check(json!({"containers": []}), &[shm, net]);
        check(json!({"containers": [], "own": true}), &[shm, ("net.core.somaxconn", "5")]);
        check(json!({"containers": [], "hostNetwork": true}), &[shm]);
        check(json!({"containers": [], "hostIPC": true, "hostUsers": false}), &[net, user]);
        let refused = |names: &[&str], why: &str| {
            let given: Vec<_> = names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
            let error = Sysctls::defaults(&given).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(&["vm.swappiness"], "is not known to be namespaced for defaultPodSysctls");
        refused(&["Not A Name"], "is not a valid sysctl name");
        refused(&["net.core.somaxconn", "net/core/somaxconn"], "duplicate sysctl \"net.core.somaxconn\"");
    }

    #[test]
    fn runtimes_are_told_names_with_dots() {
        let names = ["kernel/shm_rmid_forced", "net.core.somaxconn", "net/ipv4/conf/eth0.1/forwarding"];
        let sysctls: Vec<Value> = names.map(|name| json!({"name": name, "value": "1"})).into();
        let spec = json!({"containers": [], "securityContext": {"sysctls": sysctls}});
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("a pod");
        let mut told: Vec<String> = of_pod(&pod).into_keys().collect();
        told.sort();
        assert_eq!(told, ["kernel.shm_rmid_forced", "net.core.somaxconn", "net.ipv4.conf.eth0/1.forwarding"]);
    }

    #[test]
    fn pods_set_what_is_safe_or_allowed() {
        let allowed = ["net.core.*", "kernel.msg*", "net/ipv4/conf/eth0.1/forwarding"].map(str::to_owned);
        let (usual, wide) = (Sysctls::default(), Sysctls::allowing(&allowed).expect("patterns"));
        let check = |sysctls: &Sysctls, name: &str, mut spec: Value, want: Option<&str>| {
            spec["containers"] = json!([]);
            spec["securityContext"] = json!({"sysctls": [{"name": name, "value": "1"}]});
            let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("a pod");
            let why = sysctls.refusal(&pod);
            assert!(why.as_ref().is_none_or(|why| why.reason == "SysctlForbidden"));
            let want = want.map(|want| format!("forbidden sysctl: {want}"));
            assert_eq!(why.map(|why| why.message), want, "{name}");
        };
        check(&usual, "kernel.shm_rmid_forced", json!({}), None);
        check(&usual, "net/ipv4/tcp_syncookies", json!({}), None);
        check(&usual, "kernel.msgmax", json!({}), Some("\"kernel.msgmax\" not allowlisted"));
        check(&usual, "net.core.somaxconn", json!({}), Some("\"net.core.somaxconn\" not allowlisted"));
        check(&usual, "vm.swappiness", json!({}), Some("\"vm.swappiness\" not allowlisted"));
        let shared = json!({"hostNetwork": true});
        let why = "\"net.ipv4.tcp_syncookies\" not allowed with host Net enabled";
        check(&usual, "net.ipv4.tcp_syncookies", shared.clone(), Some(why));
        check(&usual, "kernel.shm_rmid_forced", shared, None);
        let why = "\"kernel.shm_rmid_forced\" not allowed with host IPC enabled";
        check(&usual, "kernel.shm_rmid_forced", json!({"hostIPC": true}), Some(why));
        check(&wide, "kernel.msgmax", json!({}), None);
        check(&wide, "net.core.somaxconn", json!({}), None);
        check(&wide, "net.ipv4.conf.eth0/1.forwarding", json!({}), None);
        check(&wide, "kernel.shmmax", json!({}), Some("\"kernel.shmmax\" not allowlisted"));
        for (bad, why) in [("vm.*", "not known to be namespaced"), ("*", "is no name"), ("net.*.x", "is no name")] {
            let error = Sysctls::allowing(&[bad.to_owned()]).expect_err(bad).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
