//! What is mounted into a container: the kernel's file systems, the pod's own files, and what the kubelet asks for.

use std::path::Path;

use ferry_cri::v1::{self, MountPropagation, NamespaceMode};
use serde_json::{Value, json};

use super::Inputs;
use crate::users::Users;

fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> Value {
    json!({"destination": destination, "type": kind, "source": source, "options": options})
}

pub(super) fn mounts(inputs: &Inputs<'_>, context: &v1::LinuxContainerSecurityContext) -> Result<Vec<Value>, String> {
    let privileged = context.privileged;
    let options = context.namespace_options.clone().unwrap_or_default();
    let access = if privileged { "rw" } else { "ro" };
    let mut list = vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", access]),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", access]),
    ];
    let asked = |path: &str| inputs.config.mounts.iter().any(|m| clean(&m.container_path) == path);
    let host_memory = options.ipc() == NamespaceMode::Node;
    let memory = if host_memory { Path::new("/dev/shm").to_owned() } else { inputs.files.join("shm") };
    if !asked("/dev/shm") {
        list.push(own_bind("/dev/shm", &memory, "rw", inputs.users));
    }
    // The kubelet brings a /etc/hosts of its own to pods with their own network.
    for (path, file) in [("/etc/resolv.conf", "resolv.conf"), ("/etc/hostname", "hostname"), ("/etc/hosts", "hosts")] {
        let source = inputs.files.join(file);
        if !asked(path) && source.exists() {
            let access = if context.readonly_rootfs { "ro" } else { "rw" };
            list.push(own_bind(path, &source, access, inputs.users));
        }
    }
    let mut images = inputs.image_mounts.iter();
    let mut wanted: Vec<&v1::Mount> = inputs.config.mounts.iter().collect();
    // Outer places first, or they would hide the inner ones. Images keep their order among each other.
    let mut sources: Vec<(usize, String)> = Vec::new();
    for (place, mount) in wanted.iter().enumerate() {
        if mount.image.is_some() {
            let source = images.next().ok_or("an image to mount is missing")?;
            sources.push((place, source.to_string_lossy().into_owned()));
        } else {
            sources.push((place, host_source(mount)?));
        }
    }
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|place| clean(&wanted[*place].container_path).split('/').filter(|p| !p.is_empty()).count());
    for place in order {
        list.push(bind(wanted[place], &sources[place].1, inputs.users)?);
    }
    wanted.clear();
    Ok(list)
}

fn clean(path: &str) -> &str {
    if path.len() > 1 { path.trim_end_matches('/') } else { path }
}

/// A place of the host that is not there becomes a folder, as with every runtime.
fn host_source(mount: &v1::Mount) -> Result<String, String> {
    let path = Path::new(&mount.host_path);
    if !path.is_absolute() {
        return Err(format!(
            "mount of {:?}: the host's path {:?} is not absolute",
            mount.container_path, mount.host_path
        ));
    }
    if !path.exists() && path.symlink_metadata().is_err() {
        std::fs::create_dir_all(path).map_err(|e| format!("failed to mkdir {:?}: {e}", mount.host_path))?;
    }
    let real = std::fs::canonicalize(path).map_err(|e| format!("failed to resolve {:?}: {e}", mount.host_path))?;
    Ok(real.to_string_lossy().into_owned())
}

/// A file of the pod's own.
fn own_bind(destination: &str, source: &Path, access: &str, users: Option<&Users>) -> Value {
    let mut options = vec!["rbind", "rprivate", access];
    options.extend(users.map(|_| "idmap"));
    mount(destination, "bind", &source.to_string_lossy(), &options)
}

fn bind(mount: &v1::Mount, source: &str, users: Option<&Users>) -> Result<Value, String> {
    let propagation = match mount.propagation() {
        MountPropagation::PropagationPrivate => "rprivate",
        MountPropagation::PropagationHostToContainer => "rslave",
        MountPropagation::PropagationBidirectional => "rshared",
    };
    let mut options = vec!["rbind", propagation];
    if mount.readonly || mount.image.is_some() {
        options.push(if mount.recursive_read_only { "rro" } else { "ro" });
    } else {
        options.push("rw");
    }
    options.extend(mount.mount_options.iter().map(String::as_str));
    // The layers of an image are shown as the pod's already.
    let mapped = mount.image.is_none() && !(mount.uid_mappings.is_empty() && mount.gid_mappings.is_empty());
    if mapped && !users.is_some_and(|users| users.are(&mount.uid_mappings, &mount.gid_mappings)) {
        return Err(format!("mount of {:?}: its users are not those of the pod", mount.container_path));
    }
    options.extend(mapped.then_some("idmap"));
    Ok(json!({"destination": mount.container_path, "type": "bind", "source": source, "options": options}))
}

/// Mounts that come and go outside are seen inside only where the root itself lets them through.
pub(super) fn propagation(config: &v1::ContainerConfig) -> &'static str {
    let any = |kind| config.mounts.iter().any(|mount| mount.propagation() == kind);
    if any(MountPropagation::PropagationBidirectional) {
        "rshared"
    } else if any(MountPropagation::PropagationHostToContainer) {
        "rslave"
    } else {
        "rprivate"
    }
}
