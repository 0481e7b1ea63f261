//! What CRI says of a container, as the `config.json` of an OCI bundle.

pub(crate) mod capabilities;
pub(crate) mod cdi;
mod confinement;
mod mounts;
mod resources;
pub(crate) mod seccomp;
pub(crate) mod user;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use ferry_cri::v1::{self, NamespaceMode};
use serde_json::{Value, json};

use crate::images::RunConfig;
use crate::users::Users;
pub(crate) use resources::resources;
use user::User;

/// What the container's file is made from.
pub(crate) struct Inputs<'a> {
    pub(crate) sandbox_id: &'a str,
    pub(crate) config: &'a v1::ContainerConfig,
    pub(crate) pod: &'a v1::PodSandboxConfig,
    pub(crate) image: &'a RunConfig,
    pub(crate) rootfs: &'a Path,
    pub(crate) user: &'a User,
    /// Of a pod with a user namespace.
    pub(crate) users: Option<&'a Users>,
    pub(crate) cgroup: &'a str,
    /// Where the pod's namespaces are kept, its files and its shared memory.
    pub(crate) namespaces: &'a Path,
    pub(crate) files: &'a Path,
    /// The process whose process namespace is joined.
    pub(crate) join_processes: Option<i32>,
    /// Bind mounts of images, in the order of the mounts that ask for them.
    pub(crate) image_mounts: &'a [PathBuf],
    /// Reads the files of device vendors.
    pub(crate) read_yaml: cdi::ReadYaml,
}

pub(crate) fn build(inputs: &Inputs<'_>) -> Result<Value, String> {
    let linux = inputs.config.linux.clone().unwrap_or_default();
    let context = linux.security_context.clone().unwrap_or_default();
    let amounts = linux.resources.clone().unwrap_or_default();
    let process = process(inputs, &context, &amounts)?;
    let mounts = mounts::mounts(inputs, &context)?;
    let privileged = context.privileged;
    let devices = devices(inputs.config, privileged)?;
    let mut allowed = vec![json!({"allow": privileged, "access": "rwm"})];
    if !privileged {
        allowed.extend(devices.iter().map(|(device, access)| {
            json!({"allow": true, "type": device["type"], "major": device["major"], "minor": device["minor"], "access": access})
        }));
    }
    let mut amounts = resources::first_resources(&amounts);
    amounts["devices"] = Value::Array(allowed);
    let paths = |list: &[String]| if privileged { Vec::new() } else { list.to_vec() };
    let mut spec = json!({
        "ociVersion": "1.0.2",
        "process": process,
        "root": {"path": inputs.rootfs, "readonly": context.readonly_rootfs},
        "mounts": mounts,
        "annotations": {
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.sandbox-id": inputs.sandbox_id,
        },
        "linux": {
            "cgroupsPath": inputs.cgroup,
            "resources": amounts,
            "namespaces": namespaces(inputs, &context),
            "devices": devices.into_iter().map(|(device, _)| device).collect::<Vec<_>>(),
            "maskedPaths": paths(&context.masked_paths),
            "readonlyPaths": paths(&context.readonly_paths),
            "rootfsPropagation": mounts::propagation(inputs.config),
        },
    });
    if let Some(users) = inputs.users {
        spec["linux"]["uidMappings"] = json!(users.uids);
        spec["linux"]["gidMappings"] = json!(users.gids);
    }
    if let Some(profile) = seccomp::profile(&context)? {
        spec["linux"]["seccomp"] = profile;
    }
    let named: Vec<String> = inputs.config.cdi_devices.iter().map(|device| device.name.clone()).collect();
    cdi::apply(&mut spec, &named, inputs.read_yaml)?;
    Ok(spec)
}

/// What is run: the container's own words before the image's.
fn arguments(config: &v1::ContainerConfig, image: &RunConfig) -> Result<Vec<String>, String> {
    let mut words = if config.command.is_empty() {
        let mut words = image.entrypoint.clone().unwrap_or_default();
        let rest = if config.args.is_empty() { image.cmd.clone().unwrap_or_default() } else { config.args.clone() };
        words.extend(rest);
        words
    } else {
        config.command.clone()
    };
    if !config.command.is_empty() {
        words.extend(config.args.iter().cloned());
    }
    if words.is_empty() { Err("no command specified".to_owned()) } else { Ok(words) }
}

/// Variables in the order in which they were first named.
#[derive(Default)]
struct Variables<'a> {
    list: Vec<(&'a str, Cow<'a, str>)>,
    /// An image may name very many.
    places: HashMap<&'a str, usize>,
}

impl<'a> Variables<'a> {
    fn set(&mut self, name: &'a str, value: impl Into<Cow<'a, str>>, replace: bool) {
        match self.places.get(name) {
            Some(place) if replace => self.list[*place].1 = value.into(),
            Some(_) => {}
            None => {
                self.places.insert(name, self.list.len());
                self.list.push((name, value.into()));
            }
        }
    }
}

fn environment(inputs: &Inputs<'_>) -> Vec<String> {
    let mut variables = Variables::default();
    variables.set("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", true);
    if inputs.config.tty {
        variables.set("TERM", "xterm", true);
    }
    variables.set("HOSTNAME", &*inputs.pod.hostname, true);
    for variable in inputs.image.env.iter().flatten() {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        variables.set(name, value, true);
    }
    for variable in &inputs.config.envs {
        variables.set(&variable.key, String::from_utf8_lossy(&variable.value), true);
    }
    variables.set("HOME", &*inputs.user.home, false);
    variables.list.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn process(
    inputs: &Inputs<'_>,
    context: &v1::LinuxContainerSecurityContext,
    amounts: &v1::LinuxContainerResources,
) -> Result<Value, String> {
    let config = inputs.config;
    let folder = [&config.working_dir, &inputs.image.working_dir].into_iter().find(|f| !f.is_empty());
    let folder = folder.map_or("/", String::as_str);
    let sets = capabilities::sets(context)?;
    let mut process = json!({
        "terminal": config.tty,
        "user": {"uid": inputs.user.uid, "gid": inputs.user.gid, "additionalGids": inputs.user.groups},
        "args": arguments(config, inputs.image)?,
        "env": environment(inputs),
        "cwd": if folder.starts_with('/') { folder.to_owned() } else { format!("/{folder}") },
        "noNewPrivileges": context.no_new_privs,
        "capabilities": sets,
        "oomScoreAdj": amounts.oom_score_adj.max(lowest_score()),
    });
    if let Some(profile) = confinement::apparmor(context, Path::new("/sys/kernel/security/apparmor").exists())? {
        process["apparmorProfile"] = json!(profile);
    }
    confinement::selinux(context, Path::new("/sys/fs/selinux/enforce").exists())?;
    Ok(process)
}

/// Without CAP_SYS_RESOURCE a score cannot be lowered below our own.
fn lowest_score() -> i64 {
    if capabilities::have("CAP_SYS_RESOURCE") {
        return -1000;
    }
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").ok().and_then(|text| text.trim().parse().ok());
    own.unwrap_or(0)
}

fn namespaces(inputs: &Inputs<'_>, context: &v1::LinuxContainerSecurityContext) -> Vec<Value> {
    let options = context.namespace_options.clone().unwrap_or_default();
    let mut list = vec![json!({"type": "mount"})];
    let kept = |name: &str| inputs.namespaces.join(name);
    // One that is gone is missed when it is joined: without it the container would be in the machine's.
    let mut pod = |kind: &str, name: &str| list.push(json!({"type": kind, "path": kept(name)}));
    if options.network() != NamespaceMode::Node {
        pod("network", "net");
        pod("uts", "uts");
    }
    if options.ipc() != NamespaceMode::Node {
        pod("ipc", "ipc");
    }
    if inputs.users.is_some() {
        pod("user", "user");
    }
    match (options.pid(), inputs.join_processes) {
        (NamespaceMode::Node, _) => {}
        (_, Some(pid)) => list.push(json!({"type": "pid", "path": format!("/proc/{pid}/ns/pid")})),
        _ => list.push(json!({"type": "pid"})),
    }
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() && (!context.privileged || inputs.users.is_some()) {
        list.push(json!({"type": "cgroup"}));
    }
    list
}

/// Devices of the machine that the container sees, with what it may do to them.
fn devices(config: &v1::ContainerConfig, privileged: bool) -> Result<Vec<(Value, String)>, String> {
    let mut found = Vec::new();
    if privileged {
        host_devices(Path::new("/dev"), &mut found, 0);
        return Ok(found);
    }
    for device in &config.devices {
        let path = std::fs::canonicalize(&device.host_path).map_err(|e| format!("device {}: {e}", device.host_path))?;
        match one_device(&path, &device.container_path) {
            Some(value) => found.push((value, device.permissions.clone())),
            None => return Err(format!("{} is no device", device.host_path)),
        }
    }
    Ok(found)
}

fn host_devices(folder: &Path, found: &mut Vec<(Value, String)>, depth: usize) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
        let name = entry.file_name();
        if kind.is_dir() {
            let other = ["pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"];
            if depth < 4 && !other.iter().any(|skip| name == *skip) {
                host_devices(&path, found, depth + 1);
            }
        } else if name != "console"
            && name != "ptmx"
            && let Some(mut device) = one_device(&path, &path.to_string_lossy())
        {
            device["ownedByMachine"] = true.into();
            found.push((device, "rwm".to_owned()));
        }
    }
}

fn one_device(path: &Path, container_path: &str) -> Option<Value> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let metadata = std::fs::symlink_metadata(path).ok()?;
    let kind = match metadata.file_type() {
        t if t.is_char_device() => "c",
        t if t.is_block_device() => "b",
        _ => return None,
    };
    let number = metadata.rdev();
    Some(json!({
        "path": container_path, "type": kind,
        "major": rustix::fs::major(number), "minor": rustix::fs::minor(number),
        "fileMode": metadata.mode() & 0o777, "uid": metadata.uid(), "gid": metadata.gid(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_containers_words_go_before_the_images() {
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let image = RunConfig { entrypoint: Some(words(&["e"])), cmd: Some(words(&["c"])), ..RunConfig::default() };
        let check = |command: &[&str], args: &[&str], wanted: &[&str]| {
            let config = v1::ContainerConfig { command: words(command), args: words(args), ..Default::default() };
            assert_eq!(arguments(&config, &image).expect("words"), wanted);
        };
        check(&[], &[], &["e", "c"]);
        check(&[], &["a"], &["e", "a"]);
        check(&["x"], &[], &["x"]);
        check(&["x"], &["a"], &["x", "a"]);
        assert!(arguments(&v1::ContainerConfig::default(), &RunConfig::default()).is_err());
    }

    #[test]
    fn the_last_word_on_a_variable_counts_in_its_first_place() {
        let mut variables = Variables::default();
        for (name, value, replace) in
            [("A", "1", true), ("B", "2", true), ("A", "3", true), ("HOME", "/", false), ("B", "4", false)]
        {
            variables.set(name, value, replace);
        }
        let list: Vec<String> = variables.list.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(list, ["A=3", "B=2", "HOME=/"]);
    }
}
