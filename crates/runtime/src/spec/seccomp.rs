//! Which system calls a container may make.
//!
//! `RuntimeDefault` lets through what programs need and nothing that reaches around the container; some calls come with the
//! capability that the kernel asks for anyway.

use ferry_cri::v1::LinuxContainerSecurityContext;
use ferry_cri::v1::security_profile::ProfileType;
use serde_json::{Value, json};

/// One name per word.
const ALLOWED: &str = include_str!("seccomp.txt");
/// Flags of clone(2) that make namespaces.
const NEW_NAMESPACES: u64 = 0x7E02_0000;
const ENOSYS: u32 = 38;
/// Sockets between a virtual machine and its host, which no network namespace holds back.
const AF_VSOCK: u64 = 40;

const WITH_CAPABILITY: &[(&str, &str)] = &[
    ("CAP_DAC_READ_SEARCH", "open_by_handle_at"),
    (
        "CAP_SYS_ADMIN",
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount open_tree perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog umount umount2 unshare",
    ),
    ("CAP_SYS_BOOT", "reboot"),
    ("CAP_SYS_CHROOT", "chroot"),
    ("CAP_SYS_MODULE", "delete_module init_module finit_module"),
    ("CAP_SYS_PACCT", "acct"),
    ("CAP_SYS_PTRACE", "kcmp pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace"),
    ("CAP_SYS_RAWIO", "iopl ioperm"),
    ("CAP_SYS_TIME", "settimeofday stime clock_settime clock_settime64"),
    ("CAP_SYS_TTY_CONFIG", "vhangup"),
    ("CAP_SYS_NICE", "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    ("CAP_SYSLOG", "syslog"),
    ("CAP_BPF", "bpf"),
    ("CAP_PERFMON", "perf_event_open"),
];

/// None where every call is allowed.
pub(super) fn profile(context: &LinuxContainerSecurityContext) -> Result<Option<Value>, String> {
    let Some(wanted) = context.seccomp.as_ref().filter(|_| !context.privileged) else { return Ok(None) };
    match wanted.profile_type() {
        ProfileType::Unconfined => Ok(None),
        ProfileType::Localhost => {
            let path = wanted.localhost_ref.trim_start_matches("localhost/");
            let bytes = std::fs::read(path).map_err(|e| format!("failed to load seccomp profile {path:?}: {e}"))?;
            let profile = serde_json::from_slice(&bytes).map_err(|e| format!("seccomp profile {path:?}: {e}"))?;
            Ok(Some(profile))
        }
        ProfileType::RuntimeDefault => {
            let sets = super::capabilities::sets(context)?;
            Ok(Some(usual(|name| sets["bounding"].as_array().is_some_and(|list| list.iter().any(|c| c == name)))))
        }
    }
}

pub(crate) fn usual(has: impl Fn(&str) -> bool) -> Value {
    let mut names: Vec<&str> = ALLOWED.split_whitespace().collect();
    for (_, more) in WITH_CAPABILITY.iter().filter(|(capability, _)| has(capability)) {
        names.extend(more.split_whitespace());
    }
    let mut calls = vec![json!({"names": names, "action": "SCMP_ACT_ALLOW"})];
    // Personalities that change nothing of what a program is protected from.
    for value in [0u64, 8, 0x2_0000, 0x2_0008, 0xffff_ffff] {
        let argument = json!([{"index": 0, "value": value, "op": "SCMP_CMP_EQ"}]);
        calls.push(json!({"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": argument}));
    }
    // The kernel looks at the lower half of the argument only: another family is one that differs in one of these bits.
    for bit in (0..6).map(|place| 1u64 << place) {
        let argument = json!([{"index": 0, "value": bit, "valueTwo": !AF_VSOCK & bit, "op": "SCMP_CMP_MASKED_EQ"}]);
        calls.push(json!({"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": argument}));
    }
    if !has("CAP_SYS_ADMIN") {
        let argument = json!([{"index": 0, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]);
        calls.push(json!({"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": argument}));
        // Its flags are behind a pointer; told that it does not exist, programs use clone.
        calls.push(json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS}));
    }
    let architectures = match std::env::consts::ARCH {
        "x86_64" => json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]),
        "aarch64" => json!(["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"]),
        _ => json!([]),
    };
    json!({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "architectures": architectures, "syscalls": calls})
}
