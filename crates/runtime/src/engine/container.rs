//! Containers: a file system, a bundle, a process in the pod's namespaces.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferry_cri::v1::{self, ContainerEventType, NamespaceMode};
use serde_json::Value;

use super::sandbox::options;
use super::{Engine, Failure, Outcome, now};
use crate::images::Image;
use crate::protocol::{Create, Request};
use crate::spec::{self, user};
use crate::state::{Container, ContainerRecord, Sandbox, Stage};
use crate::users::Users;

const TERM: i32 = 15;

impl Engine {
    pub(crate) async fn create_container(
        self: &Arc<Self>,
        sandbox: &str,
        config: v1::ContainerConfig,
    ) -> Outcome<String> {
        let sandbox = self.sandbox_id(sandbox)?;
        let id = self.make_container(&sandbox, config, false).await?;
        self.tell(&id, &sandbox, ContainerEventType::ContainerCreatedEvent);
        Ok(id)
    }

    pub(super) async fn make_container(
        self: &Arc<Self>,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        hidden: bool,
    ) -> Outcome<String> {
        let Some(sandbox) = self.state.lock().sandboxes.get(sandbox_id).cloned() else {
            return Err(Failure::NotFound(format!("sandbox {sandbox_id:?} not found")));
        };
        if sandbox.record.stage != Stage::Made {
            return Err(Failure::State(format!("sandbox container {sandbox_id:?} is not running")));
        }
        let asked = config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
        let image = self.images.find(&asked);
        let image = image.ok_or_else(|| Failure::NotFound(format!("failed to resolve image {asked:?}: not found")))?;
        let id = crate::long_id();
        let record = self.record(&id, &sandbox, &config, &image, hidden)?;
        let container = Container { record, config };
        // From here on the image's layers are in use.
        self.state.lock().containers.insert(id.clone(), container.clone());
        let engine = self.clone();
        let made = tokio::task::spawn_blocking(move || engine.make_bundle(&sandbox, &container, &image)).await;
        match made.unwrap_or_else(|error| Err(Failure::Internal(error.to_string()))) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.state.lock().containers.remove(&id);
                // No process was made yet.
                self.take_away(&id, "").await;
                Err(error)
            }
        }
    }

    fn record(
        &self,
        id: &str,
        sandbox: &Sandbox,
        config: &v1::ContainerConfig,
        image: &Image,
        hidden: bool,
    ) -> Outcome<ContainerRecord> {
        let parent = sandbox.config.linux.as_ref().map(|linux| linux.cgroup_parent.as_str()).unwrap_or_default();
        let is_systemd = self.config.cgroup_driver == v1::CgroupDriver::Systemd;
        let cgroup = crate::container::cgroup::name(is_systemd, parent, id).map_err(Failure::Invalid)?;
        let log_path = if config.log_path.is_empty() || sandbox.config.log_directory.is_empty() {
            String::new()
        } else {
            Path::new(&sandbox.config.log_directory).join(&config.log_path).to_string_lossy().into_owned()
        };
        let asked = config.image.as_ref().map(|i| i.image.clone()).unwrap_or_default();
        Ok(ContainerRecord {
            id: id.to_owned(),
            sandbox: sandbox.record.id.clone(),
            created_at: now(),
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            stage: Stage::Making,
            image_id: image.id.clone(),
            image_ref: image.digests.first().unwrap_or(&image.id).clone(),
            image_name: image.tags.first().cloned().unwrap_or(asked),
            layers: self.layers(config, image),
            log_path,
            stop_signal: stop_signal(config, &image.config.stop_signal),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            cgroup,
            hidden,
            pid: 0,
        })
    }

    /// All layers that the container needs: its image's, and those of images it mounts.
    fn layers(&self, config: &v1::ContainerConfig, image: &Image) -> Vec<String> {
        let mounted = config.mounts.iter().filter_map(|mount| self.images.find(&mount.image.as_ref()?.image));
        image.layers.iter().cloned().chain(mounted.flat_map(|image| image.layers)).collect()
    }

    /// The file system and the file that describe the container. No process is made before it is started, so that one that
    /// cannot be run is told as a failure of starting it.
    fn make_bundle(&self, sandbox: &Sandbox, container: &Container, image: &Image) -> Outcome<()> {
        let (id, sandbox_id) = (container.record.id.clone(), sandbox.record.id.clone());
        let folder = self.container_folder(&id);
        let (upper, work, rootfs) = (folder.join("upper"), folder.join("work"), folder.join("rootfs"));
        for part in [&upper, &work, &rootfs] {
            std::fs::create_dir_all(part)?;
        }
        // It is the container's root, which whoever runs there has to enter.
        crate::state::open_to_all(&upper)?;
        container.save_config(&folder)?;
        container.save(&folder)?;
        let layers = self.images.folders(&image.layers)?;
        let users = Users::of(&options(&sandbox.config)).map_err(Failure::Invalid)?;
        let namespace = self.user_namespace(&sandbox_id, users.as_ref())?;
        if let Some((uid, gid)) = users.as_ref().map(Users::root) {
            std::os::unix::fs::chown(&upper, Some(uid), Some(gid))?;
        }
        assemble(namespace.as_ref(), &layers, Some((&upper, &work)), ",index=off", &rootfs)?;
        let context =
            container.config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default();
        let user = user::find(&rootfs, &context, &image.config.user).map_err(Failure::Invalid)?;
        if let Some(users) = &users {
            let groups: Vec<u32> = user.groups.iter().copied().chain([user.gid]).collect();
            users.check(user.uid, &groups).map_err(Failure::Invalid)?;
        }
        let image_mounts = self.mount_images(&container.config, &folder, namespace.as_ref())?;
        let join_processes = self.processes_to_join(sandbox, &context)?;
        let built = spec::build(&spec::Inputs {
            sandbox_id: &sandbox_id,
            config: &container.config,
            pod: &sandbox.config,
            image: &image.config,
            rootfs: &rootfs,
            user: &user,
            users: users.as_ref(),
            cgroup: &container.record.cgroup,
            namespaces: &self.namespaces(&sandbox_id),
            files: &self.sandbox_folder(&sandbox_id),
            join_processes,
            image_mounts: &image_mounts,
            read_yaml: self.config.read_yaml,
        })
        .map_err(Failure::Invalid)?;
        crate::state::write(&folder.join("config.json"), &serde_json::to_vec(&built).map_err(std::io::Error::from)?)?;
        let mut state = self.state.lock();
        if let Some(known) = state.containers.get_mut(&id) {
            known.record.uid = user.uid;
            known.record.gid = user.gid;
            known.record.groups = user.groups;
            if known.record.stage == Stage::Making {
                known.record.stage = Stage::Made;
            }
            known.save(&folder)?;
        }
        Ok(())
    }

    /// Whose processes the container sees besides its own.
    fn processes_to_join(
        &self,
        sandbox: &Sandbox,
        context: &v1::LinuxContainerSecurityContext,
    ) -> Outcome<Option<i32>> {
        let options = context.namespace_options.clone().unwrap_or_default();
        let state = self.state.lock();
        let target = match options.pid() {
            NamespaceMode::Target => &options.target_id,
            NamespaceMode::Pod => match &sandbox.record.pause {
                Some(pause) => pause,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let found = state.containers.get(target).filter(|c| c.record.stage == Stage::Running && c.record.pid > 0);
        let found = found
            .ok_or_else(|| Failure::State(format!("container {target:?} to share processes with does not run")))?;
        Ok(Some(found.record.pid))
    }

    /// That of a pod with users of its own.
    fn user_namespace(&self, sandbox: &str, users: Option<&Users>) -> Outcome<Option<File>> {
        let open = |_| File::open(self.namespaces(sandbox).join("user"));
        let opened = users.map(open).transpose();
        opened.map_err(|error| Failure::Internal(format!("the pod's user namespace: {error}")))
    }

    /// Images mounted as volumes, read-only; one folder for each, in order.
    fn mount_images(&self, config: &v1::ContainerConfig, folder: &Path, users: Option<&File>) -> Outcome<Vec<PathBuf>> {
        let mut places = Vec::new();
        for mount in &config.mounts {
            let Some(wanted) = &mount.image else { continue };
            let image = self.images.find(&wanted.image);
            let image =
                image.ok_or_else(|| Failure::NotFound(format!("image {:?} of a volume is not here", wanted.image)))?;
            let place = folder.join(format!("image-{}", places.len()));
            std::fs::create_dir_all(&place)?;
            assemble(users, &self.images.folders(&image.layers)?, None, "", &place)?;
            places.push(if mount.image_sub_path.is_empty() { place } else { inside(&place, &mount.image_sub_path)? });
        }
        Ok(places)
    }

    pub(crate) async fn start_container(self: &Arc<Self>, id: &str) -> Outcome<()> {
        let id = self.container_id(id)?;
        let container = self.state.lock().containers.get(&id).cloned();
        let container = container.ok_or_else(|| Failure::NotFound(format!("container {id:?} not found")))?;
        if container.record.stage != Stage::Made {
            return Err(Failure::State(format!("container {id:?} is in {:?} state", container.record.stage)));
        }
        let sandbox = container.record.sandbox.clone();
        let log_path = (!container.record.log_path.is_empty()).then(|| PathBuf::from(&container.record.log_path));
        let create = Create {
            id: id.clone(),
            bundle: self.container_folder(&id),
            log_path,
            log_limit: Some(self.config.log_limit),
            tty: container.config.tty,
            stdin: container.config.stdin,
            stdin_once: container.config.stdin_once,
            own_processes: owns_processes(&container),
            memory_events: memory_events(&container.record.cgroup),
        };
        let shim = self.shim(&sandbox);
        let started = async {
            let made = shim.call(&Request::Create(create)).await;
            made.map_err(|error| format!("failed to create the container's process: {error}"))?;
            let begun = shim.call(&Request::Start { id: id.clone() }).await;
            begun.map_err(|error| format!("failed to start the container's process: {error}"))
        };
        // Before it starts: it may have ended by the time the shim has answered.
        let at = now();
        if let Err(message) = started.await {
            self.change(&id, |record| {
                if record.stage != Stage::Ended {
                    record.stage = Stage::Ended;
                    record.finished_at = now();
                    record.exit_code = 128;
                }
                record.reason = "StartError".to_owned();
                record.message.clone_from(&message);
            });
            let _ = shim.call(&Request::Kill { id: id.clone(), signal: 9 }).await;
            self.tell(&id, &sandbox, ContainerEventType::ContainerStoppedEvent);
            return Err(Failure::Internal(message));
        }
        // The shim tells it too; whoever comes first.
        self.began(&id, at);
        Ok(())
    }

    pub(crate) fn began(&self, id: &str, at: i64) {
        let mut new = None;
        self.change(id, |record| {
            if record.stage == Stage::Made || record.stage == Stage::Making {
                record.stage = Stage::Running;
                record.started_at = at;
                new = Some(record.sandbox.clone());
            }
        });
        if let Some(sandbox) = new {
            self.tell(id, &sandbox, ContainerEventType::ContainerStartedEvent);
        }
    }

    /// Changes a record and writes it down.
    pub(crate) fn change(&self, id: &str, change: impl FnOnce(&mut ContainerRecord)) {
        let folder = self.container_folder(id);
        let mut state = self.state.lock();
        let Some(container) = state.containers.get_mut(id) else { return };
        change(&mut container.record);
        if let Err(error) = container.save(&folder) {
            tracing::error!(container = id, "its state is not written down: {error}");
        }
        drop(state);
        self.changed.notify_waiters();
    }

    pub(crate) async fn update_resources(&self, id: &str, amounts: v1::LinuxContainerResources) -> Outcome<()> {
        let id = self.container_id(id)?;
        let (sandbox, stage) = {
            let mut state = self.state.lock();
            let container = state.containers.get_mut(&id);
            let container = container.ok_or_else(|| Failure::NotFound(format!("container {id:?} not found")))?;
            (container.record.sandbox.clone(), container.record.stage)
        };
        if stage == Stage::Ended {
            return Err(Failure::State(format!("container {id:?} does not run")));
        }
        let resources = spec::resources(&amounts);
        self.shim(&sandbox).call(&Request::Update { id: id.clone(), resources }).await.map_err(Failure::Internal)?;
        let mut state = self.state.lock();
        if let Some(container) = state.containers.get_mut(&id) {
            let linux = container.config.linux.get_or_insert_default();
            merge(linux.resources.get_or_insert_default(), amounts);
            container.save_config(&self.container_folder(&id))?;
        }
        Ok(())
    }

    pub(crate) async fn reopen_log(&self, id: &str) -> Outcome<()> {
        let (id, sandbox) = self.running(id)?;
        self.shim(&sandbox).call(&Request::Reopen { id }).await.map_err(Failure::Internal)
    }

    /// The id and the pod of a container that runs.
    pub(crate) fn running(&self, id: &str) -> Outcome<(String, String)> {
        let id = self.container_id(id)?;
        let state = self.state.lock();
        match state.containers.get(&id) {
            Some(container) if container.record.stage == Stage::Running => Ok((id, container.record.sandbox.clone())),
            _ => Err(Failure::State(format!("container is not running: {id:?}"))),
        }
    }
}

fn assemble(
    users: Option<&File>,
    lower: &[PathBuf],
    upper: Option<(&Path, &Path)>,
    extra: &str,
    target: &Path,
) -> std::io::Result<()> {
    match users {
        Some(users) => crate::overlay::assemble_for(users.as_fd(), lower, upper, extra, target),
        None => crate::overlay::assemble(lower, upper, extra, target),
    }
}

fn owns_processes(container: &Container) -> bool {
    let context = container.config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    context.and_then(|c| c.namespace_options.as_ref()).is_some_and(|o| o.pid() == NamespaceMode::Container)
}

/// Only what is said changes.
fn merge(known: &mut v1::LinuxContainerResources, new: v1::LinuxContainerResources) {
    let pairs = [
        (&mut known.cpu_period, new.cpu_period),
        (&mut known.cpu_quota, new.cpu_quota),
        (&mut known.cpu_shares, new.cpu_shares),
        (&mut known.memory_limit_in_bytes, new.memory_limit_in_bytes),
        (&mut known.memory_swap_limit_in_bytes, new.memory_swap_limit_in_bytes),
    ];
    for (old, new) in pairs {
        if new != 0 {
            *old = new;
        }
    }
}

/// The process of a command in a container: as the container's own, with other words.
pub(crate) fn exec_process(bundle: &Path, command: &[String], tty: bool) -> Result<Value, String> {
    let bytes = std::fs::read(bundle.join("config.json")).map_err(|e| format!("the container's bundle: {e}"))?;
    let mut spec: Value = serde_json::from_slice(&bytes).map_err(|e| format!("the container's bundle: {e}"))?;
    let mut process = spec["process"].take();
    process["args"] = command.into();
    process["terminal"] = tty.into();
    if tty
        && let Some(variables) = process["env"].as_array_mut()
        && !variables.iter().any(|v| v.as_str().is_some_and(|v| v.starts_with("TERM=")))
    {
        variables.push("TERM=xterm".into());
    }
    // A command in a container is not the one to spare when memory is short; and a score cannot be lowered again.
    if let Some(object) = process.as_object_mut() {
        object.remove("oomScoreAdj");
    }
    Ok(process)
}

/// A folder or file below a mounted image, never outside of it.
fn inside(place: &Path, below: &str) -> Outcome<PathBuf> {
    let found = ferry_podfs::Root::open(place).and_then(|root| root.resolve(Path::new(below)));
    found.map_err(|error| Failure::Invalid(format!("subpath {below:?} of an image: {error}")))
}

fn memory_events(cgroup: &str) -> Vec<PathBuf> {
    let group = cgroup.trim_start_matches('/');
    vec![
        Path::new("/sys/fs/cgroup").join(group).join("memory.events"),
        Path::new("/sys/fs/cgroup/memory").join(group).join("memory.oom_control"),
    ]
}

fn stop_signal(config: &v1::ContainerConfig, image: &str) -> i32 {
    let own = config.stop_signal().as_str_name().trim_start_matches("SIGNAL_").to_owned();
    let own = own.replace("PLUS", "+").replace("MINUS", "-");
    let name = if own == "RUNTIME_DEFAULT" { image } else { &own };
    signal_number(name).unwrap_or(TERM)
}

/// `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`.
pub(crate) fn signal_number(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let name = name.trim_start_matches("SIG");
    if let Some(rest) = name.strip_prefix("RTMIN") {
        return Some(34 + rest.trim_start_matches('+').parse::<i32>().unwrap_or(0)).filter(|n| *n <= 64);
    }
    if let Some(rest) = name.strip_prefix("RTMAX") {
        return Some(64 - rest.trim_start_matches('-').parse::<i32>().unwrap_or(0)).filter(|n| *n >= 34);
    }
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    let name = match name {
        "CLD" => "CHLD",
        "IOT" => "ABRT",
        "POLL" => "IO",
        other => other,
    };
    NAMES.iter().position(|known| *known == name).and_then(|place| i32::try_from(place + 1).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_numbers() {
        let known = [("SIGTERM", 15), ("QUIT", 3), ("9", 9), ("SIGRTMIN+3", 37), ("SIGRTMAX-14", 50), ("SIGIOT", 6)];
        for (name, number) in known {
            assert_eq!(signal_number(name), Some(number), "{name}");
        }
        assert!(["", "SIGNONE", "0", "99", "RTMIN+40"].iter().all(|name| signal_number(name).is_none()));
        let own = v1::ContainerConfig { stop_signal: v1::Signal::Sigusr1.into(), ..Default::default() };
        assert_eq!(stop_signal(&own, "SIGQUIT"), 10);
        assert_eq!(stop_signal(&v1::ContainerConfig::default(), "SIGQUIT"), 3);
    }
}
