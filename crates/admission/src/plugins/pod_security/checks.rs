//! The controls of the pod security standards, in upstream's order and words.

use std::collections::BTreeSet;

use ferry_meta::object::{annotations, items, text};
use serde_json::Value;

use super::policy::{Level, LevelVersion, Version};
use super::restricted;

/// What a control forbids: a short reason, and the detail that goes in parentheses.
pub(super) struct Violation {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

pub(super) struct Pod<'a> {
    pub(super) metadata: &'a Value,
    pub(super) spec: &'a Value,
    pub(super) version: Version,
}

type Check = fn(&Pod<'_>) -> Option<Violation>;

/// All violations of a level: the baseline's controls, then those of the restricted level, which stand in place of
/// the baseline's weaker ones.
pub(super) fn violations(policy: LevelVersion, metadata: &Value, spec: &Value) -> Vec<Violation> {
    let pod = Pod { metadata, spec, version: policy.version };
    const BASELINE: [Check; 9] = [
        app_armor,
        host_namespaces,
        host_ports,
        probe_hosts,
        privileged,
        proc_mount,
        selinux,
        sysctls,
        windows_host_process,
    ];
    let mut checks: Vec<Check> = Vec::new();
    match policy.level {
        Level::Privileged => {}
        Level::Baseline => {
            checks.extend([BASELINE[0], capabilities, BASELINE[1], host_path]);
            checks.extend(&BASELINE[2..7]);
            checks.extend([seccomp as Check, BASELINE[7], BASELINE[8]]);
        }
        Level::Restricted => {
            checks.push(BASELINE[0]);
            if !policy.version.has(22) {
                checks.push(capabilities);
            }
            checks.extend(&BASELINE[1..5]);
            // Since there is a weaker control of its own for the baseline, the strict one stands among the restricted.
            let strict = policy.version.has(35);
            if !strict {
                checks.push(proc_mount_anywhere);
            }
            checks.push(BASELINE[6]);
            if !policy.version.has(19) {
                checks.push(seccomp);
            }
            checks.extend(&BASELINE[7..]);
            let (first, rest) = restricted::CHECKS.split_at(2);
            checks.extend(first);
            if strict {
                checks.push(proc_mount_anywhere);
            }
            checks.extend(rest);
        }
    }
    checks.into_iter().filter_map(|check| check(&pod)).collect()
}

impl<'a> Pod<'a> {
    /// Init, then regular, then ephemeral containers, as upstream visits them.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Value> {
        crate::pod::containers(self.spec)
    }

    /// Names of the containers for which the test holds.
    pub(super) fn bad_containers(&self, test: impl FnMut(&&'a Value) -> bool) -> Vec<String> {
        self.containers().filter(test).map(|container| text(container, "/name").to_owned()).collect()
    }

    /// Root inside a user namespace of its own is nobody outside.
    pub(super) fn has_user_namespace(&self) -> bool {
        self.version.has(35) && self.spec.get("hostUsers").and_then(Value::as_bool) == Some(false)
    }
}

pub(super) fn violation(reason: &'static str, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason, detail: detail.into() })
}

pub(super) fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    items.join(", ")
}

pub(super) fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// `container "a"` or `containers "a", "b"`.
pub(super) fn titled(containers: &[String]) -> String {
    format!("{} {}", plural("container", "containers", containers.len()), quoted(containers))
}

/// `pod and containers "a", "b"`: who set something.
pub(super) fn setters(pod: bool, containers: &[String]) -> Vec<String> {
    let mut setters = Vec::new();
    if pod {
        setters.push("pod".to_owned());
    }
    if !containers.is_empty() {
        setters.push(titled(containers));
    }
    setters
}

pub(super) fn flag(value: &Value, pointer: &str) -> Option<bool> {
    value.pointer(pointer).and_then(Value::as_bool)
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    const TYPE: &str = "/securityContext/appArmorProfile/type";
    const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
    let mut values = BTreeSet::new();
    let mut forbidden = |holder: &Value| {
        let kind = text(holder, TYPE);
        let bad = !matches!(kind, "" | "RuntimeDefault" | "Localhost");
        if bad {
            values.insert(kind.to_owned());
        }
        bad
    };
    let by_pod = forbidden(pod.spec);
    let containers = pod.bad_containers(|container| forbidden(container));
    let mut setters = setters(by_pod, &containers);
    let mut values: Vec<String> = values.into_iter().collect();
    let mut annotated: Vec<String> = annotations(pod.metadata)
        .iter()
        .filter(|(key, _)| key.starts_with(ANNOTATION))
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .filter(|(_, value)| !(value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/")))
        .map(|(key, value)| format!("{key}={}", ferry_meta::field::quote(value)))
        .collect();
    if !annotated.is_empty() {
        annotated.sort();
        setters.push(plural("annotation", "annotations", annotated.len()).to_owned());
        values.extend(annotated);
    }
    if setters.is_empty() {
        return None;
    }
    violation(
        plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len()),
        format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(values)),
    )
}

fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 13] = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    let mut forbidden = BTreeSet::new();
    let bad = pod.bad_containers(|container| {
        let added = items(container, "/securityContext/capabilities/add").iter().filter_map(Value::as_str);
        let bad: Vec<&str> = added.filter(|capability| !ALLOWED.contains(capability)).collect();
        forbidden.extend(bad.iter().map(|capability| (*capability).to_owned()));
        !bad.is_empty()
    });
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must not include {} in securityContext.capabilities.add", titled(&bad), quoted(forbidden));
    violation("non-default capabilities", detail)
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod.spec.get(*field).and_then(Value::as_bool) == Some(true))
        .map(|field| format!("{field}=true"))
        .collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

fn host_path(pod: &Pod<'_>) -> Option<Violation> {
    let volumes: Vec<&str> = items(pod.spec, "/volumes")
        .iter()
        .filter(|volume| crate::pod::is_set(volume, "/hostPath"))
        .map(|volume| text(volume, "/name"))
        .collect();
    if volumes.is_empty() {
        return None;
    }
    let detail = format!("{} {}", plural("volume", "volumes", volumes.len()), quoted(volumes));
    violation("hostPath volumes", detail)
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    // Sorted as texts, as upstream's set of strings is.
    let mut ports = BTreeSet::new();
    let bad = pod.bad_containers(|container| {
        let own = items(container, "/ports").iter().filter_map(|port| port.get("hostPort")?.as_i64());
        let own: Vec<i64> = own.filter(|port| *port != 0).collect();
        ports.extend(own.iter().map(i64::to_string));
        !own.is_empty()
    });
    if bad.is_empty() {
        return None;
    }
    let list: Vec<String> = ports.into_iter().collect();
    let (uses, what) = (plural("uses", "use", bad.len()), plural("hostPort", "hostPorts", list.len()));
    violation("hostPort", format!("{} {uses} {what} {}", titled(&bad), list.join(", ")))
}

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    if !pod.version.has(34) {
        return None;
    }
    const HANDLERS: [&str; 5] =
        ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];
    let mut hosts = BTreeSet::new();
    let bad: BTreeSet<String> = pod
        .bad_containers(|container| {
            let mut found = false;
            for handler in HANDLERS {
                for action in ["httpGet", "tcpSocket"] {
                    let host = text(container, &format!("{handler}/{action}/host"));
                    if !host.is_empty() {
                        hosts.insert(host.to_owned());
                        found = true;
                    }
                }
            }
            found
        })
        .into_iter()
        .collect();
    if bad.is_empty() {
        return None;
    }
    let bad: Vec<String> = bad.into_iter().collect();
    let what = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    let uses = plural("uses", "use", bad.len());
    violation("probe or lifecycle host", format!("{} {uses} {what} {}", titled(&bad), quoted(hosts)))
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let bad = pod.bad_containers(|container| flag(container, "/securityContext/privileged") == Some(true));
    if bad.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", titled(&bad)))
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { proc_mount_anywhere(pod) }
}

/// The restricted level makes no difference between namespaces of users.
fn proc_mount_anywhere(pod: &Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let bad = pod.bad_containers(|container| {
        let kind = text(container, "/securityContext/procMount");
        let bad = !matches!(kind, "" | "Default");
        if bad {
            kinds.insert(kind.to_owned());
        }
        bad
    });
    if bad.is_empty() {
        return None;
    }
    violation("procMount", format!("{} must not set securityContext.procMount to {}", titled(&bad), quoted(kinds)))
}

fn selinux(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let (mut user, mut role) = (false, false);
    let mut forbidden = |holder: &Value| {
        let get = |field: &str| text(holder, &format!("/securityContext/seLinuxOptions/{field}"));
        let kind = get("type");
        let known = matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || (kind == "container_engine_t" && pod.version.has(31));
        if !known {
            types.insert(kind.to_owned());
        }
        user |= !get("user").is_empty();
        role |= !get("role").is_empty();
        !known || !get("user").is_empty() || !get("role").is_empty()
    };
    let by_pod = forbidden(pod.spec);
    let containers = pod.bad_containers(|container| forbidden(container));
    let setters = setters(by_pod, &containers);
    if setters.is_empty() {
        return None;
    }
    let mut data = Vec::new();
    if !types.is_empty() {
        data.push(format!("{} {}", plural("type", "types", types.len()), quoted(types)));
    }
    if user {
        data.push("user may not be set".to_owned());
    }
    if role {
        data.push("role may not be set".to_owned());
    }
    let who = setters.join(" and ");
    violation("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {}", data.join("; ")))
}

fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if !pod.version.has(19) {
        return seccomp_annotations(pod);
    }
    let mut values = BTreeSet::new();
    let mut forbidden = |holder: &Value| {
        let kind = text(holder, "/securityContext/seccompProfile/type");
        let set = crate::pod::is_set(holder, "/securityContext/seccompProfile");
        let bad = set && !matches!(kind, "RuntimeDefault" | "Localhost");
        if bad {
            values.insert(kind.to_owned());
        }
        bad
    };
    let by_pod = forbidden(pod.spec);
    let containers = pod.bad_containers(|container| forbidden(container));
    let setters = setters(by_pod, &containers);
    if setters.is_empty() {
        return None;
    }
    let who = setters.join(" and ");
    violation("seccompProfile", format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(values)))
}

/// Before 1.19 profiles were annotations.
fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let keys = std::iter::once("seccomp.security.alpha.kubernetes.io/pod".to_owned()).chain(
        pod.containers().map(|c| format!("container.seccomp.security.alpha.kubernetes.io/{}", text(c, "/name"))),
    );
    let forbidden: BTreeSet<String> = keys
        .filter_map(|key| {
            let value = annotations(pod.metadata).get(&key)?.as_str()?;
            let good = matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
            (!good).then(|| format!("{key}={}", ferry_meta::field::quote(value)))
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", forbidden.len());
    let list: Vec<String> = forbidden.into_iter().collect();
    violation("seccompProfile", format!("forbidden {word} {}", list.join(", ")))
}

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let allowed = |name: &str| match name {
        "kernel.shm_rmid_forced"
        | "net.ipv4.ip_local_port_range"
        | "net.ipv4.tcp_syncookies"
        | "net.ipv4.ping_group_range"
        | "net.ipv4.ip_unprivileged_port_start" => true,
        "net.ipv4.ip_local_reserved_ports" => pod.version.has(27),
        "net.ipv4.tcp_keepalive_time"
        | "net.ipv4.tcp_fin_timeout"
        | "net.ipv4.tcp_keepalive_intvl"
        | "net.ipv4.tcp_keepalive_probes" => pod.version.has(29),
        "net.ipv4.tcp_rmem" | "net.ipv4.tcp_wmem" => pod.version.has(32),
        "net.ipv4.tcp_slow_start_after_idle" | "net.ipv4.tcp_notsent_lowat" => pod.version.has(37),
        _ => false,
    };
    let forbidden: Vec<&str> = items(pod.spec, "/securityContext/sysctls")
        .iter()
        .map(|sysctl| text(sysctl, "/name"))
        .filter(|name| !allowed(name))
        .collect();
    if forbidden.is_empty() { None } else { violation("forbidden sysctls", forbidden.join(", ")) }
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    const FIELD: &str = "/securityContext/windowsOptions/hostProcess";
    let by_pod = flag(pod.spec, FIELD) == Some(true);
    let containers = pod.bad_containers(|container| flag(container, FIELD) == Some(true));
    let setters = setters(by_pod, &containers);
    if setters.is_empty() {
        return None;
    }
    let who = setters.join(" and ");
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}
