//! Security contexts: as whom a container runs and what it may do.

use std::sync::LazyLock;

use ferry_cri::v1::{
    Capability, Int64Value, LinuxContainerSecurityContext, NamespaceMode, NamespaceOption, SeLinuxOption,
    SecurityProfile, SupplementalGroupsPolicy, UserNamespace, security_profile::ProfileType,
};
use k8s_openapi::api::core::v1::{Container, Pod, SELinuxOptions, SeccompProfile};

use super::apparmor;
use crate::pod;

/// What the runtime hides of `/proc` and `/sys` from containers that are not privileged.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// How often each processor was too hot: what others compute shows in it. Looked for once, for processors do not come and
/// go with pods.
fn throttling() -> &'static [String] {
    static FOUND: LazyLock<Vec<String>> = LazyLock::new(|| {
        let entries = std::fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
        let processors = entries.filter(|entry| {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        });
        let mut places: Vec<_> = processors.map(|entry| entry.path().join("thermal_throttle")).collect();
        places.retain(|place| place.exists());
        places.sort();
        places.into_iter().map(|place| place.to_string_lossy().into_owned()).collect()
    });
    &FOUND
}

/// `users` are those of a pod that has its own.
pub(crate) fn namespaces(pod: &Pod, users: Option<&UserNamespace>) -> NamespaceOption {
    let spec = pod::spec(pod);
    let node_or_pod = |node: Option<bool>| if node == Some(true) { NamespaceMode::Node } else { NamespaceMode::Pod };
    let processes = if spec.host_pid == Some(true) {
        NamespaceMode::Node
    } else if spec.share_process_namespace == Some(true) {
        NamespaceMode::Pod
    } else {
        NamespaceMode::Container
    };
    NamespaceOption {
        network: node_or_pod(spec.host_network).into(),
        ipc: node_or_pod(spec.host_ipc).into(),
        pid: processes.into(),
        userns_options: users.cloned(),
        ..NamespaceOption::default()
    }
}

pub(crate) fn groups_policy(pod: &Pod) -> i32 {
    let policy = pod::spec(pod).security_context.as_ref().and_then(|c| c.supplemental_groups_policy.as_deref());
    let policy =
        if policy == Some("Strict") { SupplementalGroupsPolicy::Strict } else { SupplementalGroupsPolicy::Merge };
    policy.into()
}

pub(crate) fn supplemental_groups(pod: &Pod) -> Vec<i64> {
    let Some(context) = &pod::spec(pod).security_context else { return Vec::new() };
    context.fs_group.iter().chain(context.supplemental_groups.iter().flatten()).copied().collect()
}

/// Where the node's seccomp profiles are, and what a container without one gets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seccomp {
    pub(crate) root: String,
    /// The runtime's own profile for those that name none.
    pub(crate) runtime_default: bool,
}

pub(crate) fn seccomp(profile: Option<&SeccompProfile>, privileged: bool, node: &Seccomp) -> SecurityProfile {
    let kind = match profile.map(|p| p.type_.as_str()) {
        _ if privileged => ProfileType::Unconfined,
        Some("RuntimeDefault") => ProfileType::RuntimeDefault,
        Some("Localhost") => ProfileType::Localhost,
        None if node.runtime_default => ProfileType::RuntimeDefault,
        _ => ProfileType::Unconfined,
    };
    let file = profile.and_then(|p| p.localhost_profile.as_deref()).unwrap_or_default();
    let localhost_ref = if kind == ProfileType::Localhost { format!("{}/{file}", node.root) } else { String::new() };
    SecurityProfile { profile_type: kind.into(), localhost_ref }
}

pub(crate) fn selinux(options: Option<&SELinuxOptions>) -> Option<SeLinuxOption> {
    let options = options?;
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    Some(SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    })
}

/// As whom the image wants to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageUser {
    pub(crate) uid: Option<i64>,
    pub(crate) name: String,
}

pub(crate) fn context(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
    users: Option<&UserNamespace>,
    node: &Seccomp,
) -> Result<LinuxContainerSecurityContext, String> {
    let own = container.security_context.clone().unwrap_or_default();
    let shared = pod::spec(pod).security_context.clone().unwrap_or_default();
    let user = own.run_as_user.or(shared.run_as_user);
    refuse_root(pod, container, own.run_as_non_root.or(shared.run_as_non_root), user, image)?;
    let privileged = own.privileged == Some(true);
    let profile = own.seccomp_profile.as_ref().or(shared.seccomp_profile.as_ref());
    let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked") || privileged;
    let (apparmor, apparmor_profile) = apparmor::for_runtime(pod, container);
    // Older runtimes know the older field alone.
    #[expect(deprecated, reason = "CRI keeps it for them")]
    Ok(LinuxContainerSecurityContext {
        apparmor,
        apparmor_profile,
        capabilities: own.capabilities.map(|c| Capability {
            add_capabilities: c.add.unwrap_or_default(),
            drop_capabilities: c.drop.unwrap_or_default(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged,
        namespace_options: Some(namespaces(pod, users)),
        selinux_options: selinux(own.se_linux_options.as_ref().or(shared.se_linux_options.as_ref())),
        run_as_user: user.or(image.uid).map(|value| Int64Value { value }),
        run_as_username: if user.or(image.uid).is_none() { image.name.clone() } else { String::new() },
        run_as_group: own.run_as_group.or(shared.run_as_group).map(|value| Int64Value { value }),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: supplemental_groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: if unmasked {
            Vec::new()
        } else {
            strings(&MASKED).into_iter().chain(throttling().iter().cloned()).collect()
        },
        readonly_paths: if unmasked { Vec::new() } else { strings(&READ_ONLY) },
        seccomp: Some(seccomp(profile, privileged, node)),
        ..LinuxContainerSecurityContext::default()
    })
}

fn refuse_root(
    pod: &Pod,
    container: &Container,
    non_root: Option<bool>,
    user: Option<i64>,
    image: &ImageUser,
) -> Result<(), String> {
    if non_root != Some(true) {
        return Ok(());
    }
    let place = format!("(pod: {:?}, container: {})", pod::printed(pod), container.name);
    match user {
        Some(0) => Err(format!("container's runAsUser breaks non-root policy {place}")),
        Some(_) => Ok(()),
        None if image.uid.is_some_and(|uid| (1..=i64::from(i32::MAX)).contains(&uid)) => Ok(()),
        // What a runtime makes of it is not known: some have made root of it.
        None if image.uid.is_some_and(|uid| uid != 0) => Err(format!(
            "container has runAsNonRoot and image has user {}, which is out of range {place}",
            image.uid.unwrap_or_default()
        )),
        None if image.uid.is_none() && !image.name.is_empty() => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root {place}",
            image.name
        )),
        None => Err(format!("container has runAsNonRoot and image will run as root {place}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(context: serde_json::Value, own: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"securityContext": context,
            "containers": [{"name": "c", "securityContext": own}]}}))
        .expect("a pod")
    }

    #[test]
    fn the_containers_own_context_wins() {
        let pod = pod(json!({"runAsUser": 1, "fsGroup": 7, "supplementalGroups": [8]}), json!({"runAsUser": 2}));
        let made = context(&pod, &pod::containers(&pod)[0], &ImageUser::default(), None, &Seccomp::default())
            .expect("a context");
        assert_eq!(made.run_as_user.map(|v| v.value), Some(2));
        assert_eq!(made.supplemental_groups, [7, 8]);
        assert!(!made.privileged);
        for hidden in ["/proc/kcore", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"] {
            assert!(made.masked_paths.iter().any(|path| path == hidden), "{hidden}");
        }
    }

    #[test]
    fn root_is_refused_where_it_is_forbidden() {
        let check = |user: serde_json::Value, image: ImageUser, fine: bool| {
            let pod = pod(json!({"runAsNonRoot": true}), user);
            assert_eq!(context(&pod, &pod::containers(&pod)[0], &image, None, &Seccomp::default()).is_ok(), fine);
        };
        let named = || ImageUser { uid: None, name: "web".into() };
        check(json!({"runAsUser": 0}), ImageUser::default(), false);
        check(json!({"runAsUser": 5}), ImageUser::default(), true);
        check(json!({}), ImageUser::default(), false);
        check(json!({}), ImageUser { uid: Some(5), name: String::new() }, true);
        check(json!({}), named(), false);
        for uid in [-1, 1 << 31, 1 << 32] {
            check(json!({}), ImageUser { uid: Some(uid), name: String::new() }, false);
        }
    }

    #[test]
    fn namespaces_are_the_pods_or_the_nodes() {
        let check = |spec: serde_json::Value, want: [NamespaceMode; 3]| {
            let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).expect("a pod");
            let made = namespaces(&pod, None);
            assert_eq!([made.network(), made.ipc(), made.pid()], want, "{spec}");
        };
        let (pod, node, container) = (NamespaceMode::Pod, NamespaceMode::Node, NamespaceMode::Container);
        check(json!({"containers": []}), [pod, pod, container]);
        check(json!({"containers": [], "hostNetwork": true}), [node, pod, container]);
        check(json!({"containers": [], "hostIPC": true}), [pod, node, container]);
        check(json!({"containers": [], "hostPID": true, "shareProcessNamespace": false}), [pod, pod, node]);
        check(json!({"containers": [], "shareProcessNamespace": true}), [pod, pod, pod]);
    }

    #[test]
    fn profiles_of_the_node_are_files() {
        let profile =
            |kind: &str| SeccompProfile { type_: kind.to_owned(), localhost_profile: Some("a/b.json".to_owned()) };
        let check = |kind: &str, privileged: bool, want: (ProfileType, &str)| {
            let node = Seccomp { root: "/var/lib/kubelet/seccomp".to_owned(), runtime_default: true };
            let made = seccomp(Some(&profile(kind)), privileged, &node);
            assert_eq!((made.profile_type(), made.localhost_ref.as_str()), want);
        };
        check("Localhost", false, (ProfileType::Localhost, "/var/lib/kubelet/seccomp/a/b.json"));
        check("RuntimeDefault", false, (ProfileType::RuntimeDefault, ""));
        check("Unconfined", false, (ProfileType::Unconfined, ""));
        check("Localhost", true, (ProfileType::Unconfined, ""));
    }

    /// `seccompDefault`: the container's profile, the pod's, and then the node's word.
    #[test]
    fn who_names_no_profile_gets_the_nodes_default() {
        let check = |shared: serde_json::Value, own: serde_json::Value, runtime_default: bool, want: ProfileType| {
            let pod = pod(shared, own);
            let node = Seccomp { runtime_default, ..Seccomp::default() };
            let made = context(&pod, &pod::containers(&pod)[0], &ImageUser::default(), None, &node).expect("a context");
            assert_eq!(made.seccomp.expect("a profile").profile_type(), want, "{runtime_default}");
        };
        let named = |kind: &str| json!({"seccompProfile": {"type": kind}});
        check(json!({}), json!({}), false, ProfileType::Unconfined);
        check(json!({}), json!({}), true, ProfileType::RuntimeDefault);
        check(json!({}), named("Unconfined"), true, ProfileType::Unconfined);
        check(named("Unconfined"), json!({}), true, ProfileType::Unconfined);
        check(named("Unconfined"), named("RuntimeDefault"), false, ProfileType::RuntimeDefault);
        check(json!({}), json!({"privileged": true}), true, ProfileType::Unconfined);
    }

    #[test]
    fn windows_says_nothing_here() {
        let options = json!({"windowsOptions": {"runAsUserName": "x", "hostProcess": true}});
        let (plain, with) = (pod(json!({}), json!({})), pod(options.clone(), options));
        let made = |pod: &Pod| {
            context(pod, &pod::containers(pod)[0], &ImageUser::default(), None, &Seccomp::default()).expect("a context")
        };
        assert_eq!(made(&plain), made(&with));
    }

    #[test]
    fn unmasked_is_what_it_says() {
        let made = |own: serde_json::Value| {
            let pod = pod(json!({}), own);
            context(&pod, &pod::containers(&pod)[0], &ImageUser::default(), None, &Seccomp::default())
                .expect("a context")
        };
        let (usual, unmasked) = (made(json!({"procMount": "Default"})), made(json!({"procMount": "Unmasked"})));
        assert!(!usual.masked_paths.is_empty() && !usual.readonly_paths.is_empty());
        assert!(unmasked.masked_paths.is_empty() && unmasked.readonly_paths.is_empty() && !unmasked.privileged);
    }
}
