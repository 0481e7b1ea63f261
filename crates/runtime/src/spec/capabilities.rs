//! Capabilities: those every container gets, those it adds and drops, and those this machine has at all.

use ferry_cri::v1::LinuxContainerSecurityContext;
use serde_json::{Value, json};

/// In the order of their numbers.
const NAMES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

const USUAL: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// What this process itself may do: more cannot be given.
fn own() -> Vec<&'static str> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(u64::MAX);
    NAMES.iter().enumerate().filter(|(number, _)| bits >> number & 1 == 1).map(|(_, name)| *name).collect()
}

pub(crate) fn have(name: &str) -> bool {
    own().contains(&name)
}

pub(crate) fn sets(context: &LinuxContainerSecurityContext) -> Result<Value, String> {
    let all = own();
    let mut granted: Vec<&str> = if context.privileged { all.clone() } else { USUAL.to_vec() };
    let mut ambient = Vec::new();
    if let Some(changes) = context.capabilities.as_ref().filter(|_| !context.privileged) {
        let is_all = |name: &String| name.eq_ignore_ascii_case("all");
        if changes.add_capabilities.iter().any(is_all) {
            granted.clone_from(&all);
        }
        if changes.drop_capabilities.iter().any(is_all) {
            granted.clear();
        }
        for name in changes.add_capabilities.iter().filter(|name| !is_all(name)) {
            let name = known(name)?;
            if !granted.contains(&name) {
                granted.push(name);
            }
        }
        for name in changes.drop_capabilities.iter().filter(|name| !is_all(name)) {
            let name = known(name)?;
            granted.retain(|have| *have != name);
        }
        for name in &changes.add_ambient_capabilities {
            ambient.push(known(name)?);
        }
    }
    let mut sets = json!({"bounding": granted, "effective": granted, "permitted": granted});
    if !ambient.is_empty() {
        sets["ambient"] = json!(ambient);
        sets["inheritable"] = json!(ambient);
    }
    Ok(sets)
}

/// Of a capability by its full name.
pub(crate) fn number(name: &str) -> Option<u32> {
    NAMES.iter().position(|known| *known == name).and_then(|place| u32::try_from(place).ok())
}

fn known(name: &str) -> Result<&'static str, String> {
    let upper = name.to_ascii_uppercase();
    let full = if upper.starts_with("CAP_") { upper } else { format!("CAP_{upper}") };
    NAMES.iter().find(|known| **known == full).copied().ok_or_else(|| format!("unknown capability {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferry_cri::v1::Capability;

    #[test]
    fn capabilities_are_added_and_dropped() {
        let check = |add: &[&str], drop: &[&str], has: &[&str], lacks: &[&str]| {
            let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
            let changes =
                Capability { add_capabilities: words(add), drop_capabilities: words(drop), ..Default::default() };
            let context = LinuxContainerSecurityContext { capabilities: Some(changes), ..Default::default() };
            let sets = sets(&context).expect("known ones");
            let bounding: Vec<&str> =
                sets["bounding"].as_array().expect("a list").iter().flat_map(Value::as_str).collect();
            assert!(has.iter().all(|name| bounding.contains(name)), "{bounding:?}");
            assert!(!lacks.iter().any(|name| bounding.contains(name)), "{bounding:?}");
        };
        check(&[], &[], &["CAP_KILL"], &["CAP_SYS_ADMIN"]);
        check(&["NET_ADMIN"], &["kill"], &["CAP_NET_ADMIN"], &["CAP_KILL"]);
        check(&["CHOWN"], &["ALL"], &["CAP_CHOWN"], &["CAP_KILL"]);
        let odd = Capability { add_capabilities: vec!["FLY".into()], ..Default::default() };
        let context = LinuxContainerSecurityContext { capabilities: Some(odd), ..Default::default() };
        assert!(sets(&context).is_err());
    }
}
