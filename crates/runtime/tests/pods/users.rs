//! Pods with users of their own: root inside is nobody on the machine, and files look as they would without.

use std::os::unix::fs::MetadataExt;

use ferry_cri::v1::{self, NamespaceMode};

use crate::kubelet::Kubelet;

const FIRST: u32 = 3_276_800;

fn users() -> v1::UserNamespace {
    let all = vec![v1::IdMapping { host_id: FIRST, container_id: 0, length: 65_536 }];
    v1::UserNamespace { mode: NamespaceMode::Pod.into(), uids: all.clone(), gids: all }
}

fn pod(kubelet: &Kubelet, name: &str, pid: NamespaceMode) -> v1::PodSandboxConfig {
    let mut config = kubelet.pod_config(name);
    let linux = config.linux.as_mut().expect("linux");
    linux.sysctls = [("net.ipv4.ip_local_port_range", "20000 30000"), ("kernel.shm_rmid_forced", "1")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    linux.security_context.as_mut().expect("a context").namespace_options = Some(options(pid));
    config
}

fn options(pid: NamespaceMode) -> v1::NamespaceOption {
    v1::NamespaceOption { pid: pid.into(), userns_options: Some(users()), ..Default::default() }
}

fn container(kubelet: &Kubelet, name: &str, user: i64, pid: NamespaceMode) -> v1::ContainerConfig {
    let mut config = kubelet.container_config(name, "sleep 1000");
    let context = v1::LinuxContainerSecurityContext {
        namespace_options: Some(options(pid)),
        run_as_user: Some(v1::Int64Value { value: user }),
        masked_paths: vec!["/proc/keys".into(), "/sys/firmware".into()],
        readonly_paths: vec!["/proc/sys".into()],
        supplemental_groups: vec![2000],
        ..Default::default()
    };
    config.linux = Some(v1::LinuxContainerConfig { security_context: Some(context), ..Default::default() });
    config
}

fn mount(path: &str, host: &std::path::Path) -> v1::Mount {
    let users = users();
    v1::Mount {
        container_path: path.into(),
        host_path: host.to_string_lossy().into_owned(),
        uid_mappings: users.uids,
        gid_mappings: users.gids,
        ..Default::default()
    }
}

/// The first process of a container on this machine.
async fn pid(kubelet: &Kubelet, id: &str) -> i32 {
    let request = v1::ContainerStatusRequest { container_id: id.into(), verbose: true };
    let info = kubelet.client.container_status(request).await.expect("a status").info;
    let info: serde_json::Value = serde_json::from_str(&info["info"]).expect("information");
    i32::try_from(info["pid"].as_i64().expect("a number")).expect("a number")
}

pub async fn root_of_a_user_namespace_is_nobody_outside(kubelet: &mut Kubelet) {
    kubelet.pull("base").await.expect("pulled");
    let told = kubelet.client.status(v1::StatusRequest::default()).await.expect("a status").runtime_handlers;
    assert!(told.iter().all(|handler| handler.features.is_some_and(|f| f.user_namespaces)), "{told:?}");

    let volume = kubelet.folder.join("users-volume");
    let memory = kubelet.folder.join("users-memory");
    for folder in [&volume, &memory] {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    rustix::mount::mount("tmpfs", &memory, "tmpfs", rustix::mount::MountFlags::empty(), None).expect("mounted");
    for folder in [&volume, &memory] {
        std::fs::write(folder.join("of-root"), "x").expect("written");
        std::fs::write(folder.join("of-web"), "x").expect("written");
        std::os::unix::fs::chown(folder.join("of-web"), Some(33), Some(2000)).expect("chown");
    }
    let own = NamespaceMode::Container;
    let sandbox = kubelet.run_pod(pod(kubelet, "users", own)).await;
    let mut config = container(kubelet, "root", 0, own);
    config.mounts = vec![mount("/volume", &volume), mount("/memory", &memory)];
    let root = kubelet.run(&sandbox, config).await;

    assert_eq!(
        kubelet.output(&root, "echo $(cat /proc/self/uid_map /proc/self/gid_map)").await,
        format!("0 {FIRST} 65536 0 {FIRST} 65536")
    );
    assert_eq!(kubelet.output(&root, "id -u; echo $(id -G)").await, "0\n0 2000");
    // Who is root inside is nobody in particular on the machine.
    let process = pid(kubelet, &root).await;
    let about = std::fs::metadata(format!("/proc/{process}")).expect("a process");
    assert_eq!((about.uid(), about.gid()), (FIRST, FIRST));
    let machine = std::fs::metadata("/proc/self/ns/user").expect("a namespace").ino();
    assert_ne!(std::fs::metadata(format!("/proc/{process}/ns/user")).expect("a namespace").ino(), machine);

    // Files of the image, the pod and its volumes are those of the users inside.
    let owners = "for f in / /etc/passwd /etc/hostname /volume/of-root /memory/of-root /dev /dev/null /dev/shm; do busybox stat -c %u:%g $f; done";
    assert_eq!(kubelet.output(&root, owners).await, ["0:0"; 8].join("\n"));
    assert_eq!(kubelet.output(&root, "busybox stat -c %u:%g /volume/of-web /memory/of-web").await, "33:2000\n33:2000");
    let script = "echo new > /volume/new && echo new > /memory/new && echo x > /dev/shm/x && echo x > /dev/null && echo x > /new && echo x >> /etc/hostname && echo done";
    assert_eq!(kubelet.output(&root, script).await, "done");
    for folder in [&volume, &memory] {
        assert_eq!(
            std::fs::metadata(folder.join("new")).expect("a file").uid(),
            0,
            "on the disk it is the volume's root"
        );
    }
    let data = kubelet.folder.join("data/containers").join(&root).join("upper/new");
    assert_eq!(std::fs::metadata(data).expect("a file").uid(), FIRST);

    // Namespaces and their settings are the pod's.
    let settings = "cat /proc/sys/net/ipv4/ip_local_port_range /proc/sys/kernel/shm_rmid_forced /proc/sys/net/ipv4/ip_unprivileged_port_start; hostname";
    assert_eq!(kubelet.output(&root, settings).await, "20000\t30000\n1\n0\nusers");
    assert_eq!(
        kubelet
            .output(&root, "cat /proc/keys; ls /sys/firmware; (echo 1 > /proc/sys/kernel/panic) 2>/dev/null || echo no")
            .await,
        "no"
    );
    let capabilities = kubelet.output(&root, "cat /proc/1/status").await;
    assert!(capabilities.contains("CapEff:\t00000000a80425fb"), "{capabilities}");
    // They count inside alone: a device of the machine cannot be made, and processes of others are not seen.
    assert_eq!(
        kubelet.output(&root, "busybox mknod /kmsg c 1 11 2>/dev/null || echo no; ls /proc/1/root/bin/sh").await,
        "no\n/proc/1/root/bin/sh"
    );
    kubelet.remove_pod(&sandbox).await;
    rustix::mount::unmount(&memory, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
}

/// Root of one pod is a stranger to files of another and of the machine, whatever it may do inside.
pub async fn a_user_namespace_ends_at_its_pod(kubelet: &mut Kubelet) {
    let own = NamespaceMode::Container;
    let secret = kubelet.folder.join("users-secret");
    std::fs::create_dir_all(&secret).expect("a folder");
    std::fs::write(secret.join("key"), "x").expect("written");
    std::fs::set_permissions(secret.join("key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("mode");
    let sandbox = kubelet.run_pod(pod(kubelet, "confined-users", own)).await;
    let mut config = container(kubelet, "all", 0, own);
    let context = config.linux.as_mut().and_then(|linux| linux.security_context.as_mut()).expect("a context");
    context.privileged = true;
    // A mount that is shown as it is on the machine.
    let machine = v1::Mount { uid_mappings: Vec::new(), gid_mappings: Vec::new(), ..mount("/machine", &secret) };
    config.mounts = vec![machine];
    // All devices of the machine are there, its disks among them, with the owners that they have on it.
    let device = format!("/dev/ferry-users-{}", std::process::id());
    let (kind, mode) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::from_raw_mode(0o600));
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(rustix::fs::CWD, &device, kind, mode, null).expect("a device");
    let all = kubelet.run(&sandbox, config).await;
    let script = format!("ls {device}; (cat {device}) 2>/dev/null || echo no; echo x > /dev/null && echo done");
    let seen = kubelet.output(&all, &script).await;
    std::fs::remove_file(&device).expect("removed");
    assert_eq!(seen, format!("{device}\nno\ndone"));
    let status = kubelet.output(&all, "cat /proc/1/status").await;
    assert!(!status.contains("CapEff:\t00000000a80425fb"), "all of them: {status}");
    assert_eq!(
        kubelet.output(&all, "busybox stat -c %u:%g /machine/key; cat /machine/key 2>/dev/null || echo no").await,
        "65534:65534\nno"
    );
    // What it may do counts in its own namespaces.
    let script = "mount -t tmpfs tmpfs /tmp 2>/dev/null || { busybox mkdir -p /tmp; mount -t tmpfs tmpfs /tmp; }; echo x > /tmp/x && echo mounted; busybox ip link add dummy9 type dummy 2>/dev/null; busybox hostname other && hostname";
    assert_eq!(kubelet.output(&all, script).await, "mounted\nother");
    let script = "(echo 1 > /proc/sys/kernel/panic) 2>/dev/null || echo no; (echo h > /proc/sysrq-trigger) 2>/dev/null || echo no";
    assert_eq!(kubelet.output(&all, script).await, "no\nno");

    // A user that has no id of the machine.
    let refused = kubelet.create(&sandbox, container(kubelet, "far", 70_000, own)).await.expect_err("refused");
    assert!(
        refused.message().contains("user 70000 is none of those of the pod's user namespace"),
        "{}",
        refused.message()
    );
    // Files that the kernel cannot show as others'.
    let mut config = container(kubelet, "unmapped", 0, own);
    config.mounts = vec![mount("/processes", std::path::Path::new("/proc/sys"))];
    let id = kubelet.create(&sandbox, config).await.expect("a container");
    let error = kubelet.start_container(&id).await.expect_err("refused");
    assert!(error.message().contains("MOUNT_ATTR_IDMAP"), "{}", error.message());
    let mut config = pod(kubelet, "shared-users", own);
    let linux = config.linux.as_mut().and_then(|linux| linux.security_context.as_mut()).expect("a context");
    linux.namespace_options.as_mut().expect("options").network = NamespaceMode::Node.into();
    let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    let error = kubelet.client.run_pod_sandbox(request).await.expect_err("refused");
    assert!(error.message().contains("cannot share the machine's network"), "{}", error.message());
    kubelet.remove_pod(&sandbox).await;
}

/// Shared processes, terminals, images as volumes, users that are not root; all of it after a restart of the server, too.
pub async fn pods_with_user_namespaces_are_pods(kubelet: &mut Kubelet) {
    let shared = NamespaceMode::Pod;
    let sandbox = kubelet.run_pod(pod(kubelet, "company", shared)).await;
    let image = Some(v1::ImageSpec { image: kubelet.image("base"), ..Default::default() });
    let mut config = container(kubelet, "web", 33, shared);
    config.mounts = vec![v1::Mount { container_path: "/image".into(), image, ..Default::default() }];
    let web = kubelet.run(&sandbox, config).await;
    let mut config = container(kubelet, "terminal", 0, shared);
    config.tty = true;
    config.command =
        ["sh", "-c", "busybox tty; busybox stat -c %u:%g $(busybox tty); sleep 1000"].map(str::to_owned).to_vec();
    let terminal = kubelet.run(&sandbox, config).await;
    kubelet.kill_and_restart().await;
    assert_eq!(kubelet.output(&web, "id -u; id -g; busybox stat -c %u:%g /image/etc/passwd").await, "33\n34\n0:0");
    assert_eq!(kubelet.output(&web, "ps | busybox grep -c '[s]leep 1000'").await, "3");
    while kubelet.log("company", "terminal").len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let log = kubelet.log("company", "terminal").join("\n");
    assert!(log.contains("/dev/pts/0") && log.contains("0:5"), "{log}");
    assert_eq!(kubelet.output(&terminal, "ls /dev/console").await, "/dev/console");
    let own = container(kubelet, "later", 33, shared);
    let later = kubelet.run(&sandbox, own).await;
    assert_eq!(kubelet.output(&later, "id -u").await, "33");
    kubelet.remove_pod(&sandbox).await;
}
