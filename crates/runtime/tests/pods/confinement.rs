//! What keeps a container in: capabilities, devices, hidden files, signals, and the node's own program out of reach.

use ferry_cri::v1::{self, NamespaceMode};

use crate::kubelet::Kubelet;

fn context(context: v1::LinuxContainerSecurityContext) -> Option<v1::LinuxContainerConfig> {
    Some(v1::LinuxContainerConfig { security_context: Some(context), ..Default::default() })
}

fn own_processes() -> v1::NamespaceOption {
    v1::NamespaceOption { pid: NamespaceMode::Container.into(), ..Default::default() }
}

pub async fn limits(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("confined")).await;
    let root = v1::LinuxContainerSecurityContext {
        namespace_options: Some(own_processes()),
        run_as_user: Some(v1::Int64Value { value: 0 }),
        masked_paths: ["/proc/keys", "/sys/firmware", "/proc/nowhere"].map(str::to_owned).to_vec(),
        readonly_paths: ["/proc/sys", "/proc/nowhere"].map(str::to_owned).to_vec(),
        ..Default::default()
    };
    let mut config = kubelet.container_config("usual", "");
    config.command = vec!["sleep".into(), "1000".into()];
    config.linux = context(root.clone());
    let usual = kubelet.run(&pod, config).await;
    let status = kubelet.output(&usual, "cat /proc/1/status").await;
    for line in [
        "CapEff:\t00000000a80425fb",
        "CapBnd:\t00000000a80425fb",
        "CapInh:\t0000000000000000",
        "SigBlk:\t0000000000000000",
        "SigIgn:\t0000000000000000",
    ] {
        assert!(status.contains(line), "{line} in {status}");
    }
    assert_eq!(
        kubelet.output(&usual, "cat /proc/keys; ls /sys/firmware; echo x > /sys/firmware/x || echo no").await,
        "no"
    );
    assert_eq!(kubelet.output(&usual, "echo 1 > /proc/sys/kernel/panic || echo no").await, "no");
    assert_eq!(kubelet.output(&usual, "echo x > /sys/x || echo no").await, "no");
    let devices = kubelet.output(&usual, "echo $(ls /dev)").await;
    assert_eq!(devices, "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero");
    // A device that it was not given can be named but not used.
    let script = "busybox mknod /kmsg c 1 11 && head -c 1 /kmsg >/dev/null || echo no; echo x > /dev/null && echo yes";
    assert_eq!(kubelet.output(&usual, script).await, "no\nyes");

    let mut config = kubelet.container_config("none", "sleep 1000");
    let drop = v1::Capability { drop_capabilities: vec!["ALL".into()], ..Default::default() };
    config.linux = context(v1::LinuxContainerSecurityContext { capabilities: Some(drop), ..root.clone() });
    let none = kubelet.run(&pod, config).await;
    let status = kubelet.output(&none, "cat /proc/1/status /proc/self/status").await;
    assert_eq!(status.matches("CapEff:\t0000000000000000").count(), 2, "{status}");
    assert_eq!(status.matches("CapBnd:\t0000000000000000").count(), 2, "{status}");

    let mut config = kubelet.container_config("other", "sleep 1000");
    config.mounts.push(v1::Mount {
        container_path: "/proc/sys".into(),
        host_path: kubelet.folder.to_string_lossy().into_owned(),
        ..Default::default()
    });
    let id = kubelet.create(&pod, config).await.expect("a container");
    let error = kubelet.start_container(&id).await.expect_err("refused");
    assert!(error.message().contains("inside /proc"), "{}", error.message());
    kubelet.remove_pod(&pod).await;
}

/// The kernel's own judgement of profiles that are compiled here.
pub async fn profiles(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("profiles")).await;
    let conditional = |action: &str| {
        serde_json::json!({"names": ["kill"], "action": action,
            "args": [{"index": 1, "value": 18, "op": "SCMP_CMP_EQ"}]})
    };
    let certain =
        serde_json::json!({"names": ["kill", "a_call_of_tomorrow"], "action": "SCMP_ACT_ERRNO", "errnoRet": 17});
    for (name, rules, sent) in [
        ("both", serde_json::json!([conditional("SCMP_ACT_LOG"), certain]), false),
        ("turned", serde_json::json!([certain, conditional("SCMP_ACT_LOG")]), false),
        ("held", serde_json::json!([conditional("SCMP_ACT_LOG")]), true),
        ("refused", serde_json::json!([conditional("SCMP_ACT_ERRNO")]), false),
    ] {
        let file = kubelet.folder.join(format!("{name}.json"));
        let profile = serde_json::json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64",
            "SCMP_ARCH_X86", "SCMP_ARCH_AARCH64"], "syscalls": rules});
        std::fs::write(&file, profile.to_string()).expect("written");
        let mut config = kubelet.container_config(name, "sleep 1000");
        let seccomp = v1::SecurityProfile {
            profile_type: v1::security_profile::ProfileType::Localhost.into(),
            localhost_ref: file.to_string_lossy().into_owned(),
        };
        config.linux = context(v1::LinuxContainerSecurityContext {
            namespace_options: Some(own_processes()),
            run_as_user: Some(v1::Int64Value { value: 0 }),
            seccomp: Some(seccomp),
            ..Default::default()
        });
        let id = kubelet.run(&pod, config).await;
        let seen = kubelet.output(&id, "busybox kill -CONT 1 2>/dev/null && echo sent || echo no").await;
        assert_eq!(seen, if sent { "sent" } else { "no" }, "{name}");
    }
    kubelet.remove_pod(&pod).await;
}

/// Mounts of the node: writable, read-only, read-only with all below, and those that come later.
pub async fn mounts(kubelet: &mut Kubelet) {
    let folder = kubelet.folder.join("shared-volume");
    std::fs::create_dir_all(folder.join("inner")).expect("a folder");
    rustix::mount::mount_bind(&folder, &folder).expect("mounted");
    rustix::mount::mount_change(&folder, rustix::mount::MountPropagationFlags::SHARED).expect("shared");
    rustix::mount::mount("tmpfs", folder.join("inner"), "tmpfs", rustix::mount::MountFlags::empty(), None)
        .expect("mounted");
    let pod = kubelet.run_pod(kubelet.pod_config("mounts")).await;
    let mut config = kubelet.container_config("c", "sleep 1000");
    let root = v1::LinuxContainerSecurityContext {
        namespace_options: Some(own_processes()),
        run_as_user: Some(v1::Int64Value { value: 0 }),
        ..Default::default()
    };
    config.linux = context(root);
    let mount = |path: &str, readonly, recursive_read_only, propagation: v1::MountPropagation| v1::Mount {
        container_path: path.into(),
        host_path: folder.to_string_lossy().into_owned(),
        readonly,
        recursive_read_only,
        propagation: propagation.into(),
        ..Default::default()
    };
    let private = v1::MountPropagation::PropagationPrivate;
    config.mounts = vec![
        mount("/rw", false, false, private),
        mount("/ro", true, false, private),
        mount("/rro", true, true, private),
        mount("/later", false, false, v1::MountPropagation::PropagationHostToContainer),
    ];
    let id = kubelet.run(&pod, config).await;
    let write = |path: &str| format!("(echo x > {path}/file) 2>/dev/null && echo yes || echo no");
    let places = ["/rw", "/rw/inner", "/ro", "/ro/inner", "/rro", "/rro/inner"];
    let script = places.map(write).join("; ");
    assert_eq!(kubelet.output(&id, &script).await, "yes\nyes\nno\nyes\nno\nno");
    std::fs::create_dir(folder.join("new")).expect("a folder");
    rustix::mount::mount("tmpfs", folder.join("new"), "tmpfs", rustix::mount::MountFlags::empty(), None)
        .expect("mounted");
    std::fs::write(folder.join("new/word"), "seen").expect("written");
    assert_eq!(kubelet.output(&id, "cat /later/new/word; cat /rw/new/word 2>/dev/null || echo no").await, "seenno");
    kubelet.remove_pod(&pod).await;
    for place in [folder.join("new"), folder.join("inner"), folder.clone()] {
        rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    }
}

/// A container's process begins as a copy of the shim: root inside could write the file that it was executed from, if the
/// file's mount let anybody.
pub async fn program(kubelet: &mut Kubelet) {
    let pod = kubelet.run_pod(kubelet.pod_config("program")).await;
    let program = std::fs::File::open(format!("/proc/{}/exe", crate::kubelet::shim_of(&pod))).expect("a program");
    let flags = rustix::fs::fstatvfs(&program).expect("its mount").f_flag;
    assert!(flags.contains(rustix::fs::StatVfsMountFlags::RDONLY), "{flags:?}");
    kubelet.remove_pod(&pod).await;
}
