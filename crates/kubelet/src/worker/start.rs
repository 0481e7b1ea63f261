//! Starting one container: image, configuration, creation, start, hook.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::EventType;
use ferry_cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Secret};

use super::Worker;
use crate::events::PodEvents;
use crate::images::Image;
use crate::metrics::{self, Counter};
use crate::pod::{self, Role};
use crate::runtime::{self, PodState, RunState};
use crate::sources::missing;
use crate::spec::container::Prepared;
use crate::spec::room::Room;
use crate::spec::security::Seccomp;
use crate::spec::{container, env, env_file, hosts, resources, sandbox, services};
use crate::status::WaitReason;
use crate::volumes::{self, Mounts};
use crate::{hooks, logs};

/// Before a container that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// The gate has waited already.
const GATE_RETRY: Duration = Duration::from_secs(1);

/// Why a container was not started: the reason it waits, and since when.
struct NotStarted {
    why: WaitReason,
    not_before: Option<Timestamp>,
}

impl NotStarted {
    fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { why: WaitReason { reason: reason.into(), message: message.into() }, not_before: None }
    }
}

/// What the runtime has for a container already.
struct Given {
    image: Image,
    /// The images that it mounts, by volume.
    volumes: HashMap<String, String>,
    users: Option<v1::UserNamespace>,
}

impl Worker {
    pub(super) async fn start(&mut self, state: &PodState, name: &str, role: Role, restart_count: u32) {
        let pod = self.pod.clone();
        let Some((_, container)) = pod::container(&pod, name) else { return };
        let now = self.context.clock.now();
        if let Some(last) = state.latest(name).filter(|r| r.state == RunState::Exited) {
            let ended = last.finished_at.unwrap_or(now);
            let backoff = self.next_restart(name, ended, now);
            self.backoffs.restarts.insert(name.to_owned(), backoff);
        }
        let kind = metrics::container_type(role);
        self.context.metrics.count(Counter::StartedContainers, &[("container_type", kind)]);
        match self.try_start(state, &container, role, restart_count).await {
            Ok(()) => {
                self.reasons.remove(name);
                self.backoffs.not_before.remove(name);
                self.backoffs.told.remove(name);
            }
            Err(failed) => {
                let with = [("container_type", kind), ("code", failed.why.reason.as_str())];
                self.context.metrics.count(Counter::StartedContainerErrors, &with);
                let later = now.checked_add(RETRY).unwrap_or(now);
                self.backoffs.not_before.insert(name.to_owned(), failed.not_before.unwrap_or(later));
                self.reasons.insert(name.to_owned(), failed.why);
            }
        }
    }

    async fn try_start(
        &mut self,
        state: &PodState,
        container: &Container,
        role: Role,
        restart_count: u32,
    ) -> Result<(), NotStarted> {
        let name = container.name.as_str();
        let Some(sandbox) = state.ready_sandbox() else {
            return Err(NotStarted::new("CreateContainerError", "there is no sandbox"));
        };
        self.pass_network_gate(state, &sandbox.id).await?;
        let users = self.users().await.map_err(|why| NotStarted::new("CreateContainerConfigError", why))?;
        let sandbox_config = self
            .sandbox_config(sandbox.attempt, users.as_ref())
            .map_err(|why| NotStarted::new("CreateContainerConfigError", why))?;
        let image = self.image(container, &sandbox_config).await?;
        let volumes = self.volume_images(container, &sandbox_config).await?;
        let given = Given { image, volumes, users };
        let config = match self.container_config(state, container, role, restart_count, given).await {
            Ok(config) => config,
            Err(why) => {
                self.events().container(name, EventType::Warning, "Failed", format!("Error: {why}"));
                return Err(NotStarted::new("CreateContainerConfigError", why));
            }
        };
        let runtime = self.context.runtime.clone();
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let maker = runtime.clone();
        let id = match self.context.see_through(async move { maker.create_container(request).await }).await {
            Ok(id) => id,
            Err(error) => {
                self.events().container(name, EventType::Warning, "Failed", format!("Error: {}", error.message));
                return Err(NotStarted::new("CreateContainerError", error.message));
            }
        };
        self.sizes.started(&id, resources::size(container));
        self.events().container(name, EventType::Normal, "Created", "Container created");
        let (starter, started) = (runtime.clone(), id.clone());
        if let Err(error) = self.context.see_through(async move { starter.start_container(&started).await }).await {
            self.events().container(name, EventType::Warning, "Failed", format!("Error: {}", error.message));
            let why = NotStarted::new("RunContainerError", error.message);
            // The runtime has a record of the failure, and the restart policy decides on the next attempt.
            return Err(NotStarted { not_before: Some(self.context.clock.now()), ..why });
        }
        self.events().container(name, EventType::Normal, "Started", "Container started");
        if let Some(links) = &self.context.config.log_links {
            let folder = sandbox::log_folder(&self.context.config.log_dir, &self.pod);
            logs::link(links, &self.pod, name, &id, &folder.join(name).join(format!("{restart_count}.log"))).await;
        }
        self.after_start(state, container, &id).await
    }

    /// A pod that a policy selects is closed before its first process can send anything.
    async fn pass_network_gate(&mut self, state: &PodState, sandbox: &str) -> Result<(), NotStarted> {
        let Some(gate) = self.context.config.network_gate.clone() else { return Ok(()) };
        if pod::host_network(&self.pod) || self.gated.as_deref() == Some(sandbox) {
            return Ok(());
        }
        let addresses = state.addresses().iter().filter_map(|address| address.parse().ok()).collect();
        if let Err(why) = gate(self.pod.clone(), addresses).await {
            let message = format!("network is not ready: {why}");
            self.events().pod(EventType::Warning, "NetworkNotReady", message.clone());
            let not_before = self.later(GATE_RETRY);
            return Err(NotStarted { not_before, ..NotStarted::new("ContainerCreating", message) });
        }
        self.gated = Some(sandbox.to_owned());
        Ok(())
    }

    async fn after_start(&mut self, state: &PodState, container: &Container, id: &str) -> Result<(), NotStarted> {
        let Some(hook) = container.lifecycle.as_ref().and_then(|l| l.post_start.as_ref()) else { return Ok(()) };
        let address = self.surroundings(state).pod_addresses.first().cloned().unwrap_or_default();
        let runtime = self.context.runtime.clone();
        let Err(why) = hooks::run(&*runtime, hook, container, id, &address).await else { return Ok(()) };
        tracing::debug!(container = container.name, "postStart hook failed: {why}");
        // The reason may hold secrets of the container, so that the event does not tell it.
        self.events().container(&container.name, EventType::Warning, "FailedPostStartHook", "PostStartHook failed");
        self.events().container(&container.name, EventType::Normal, "Killing", "FailedPostStartHook");
        let _ = runtime.stop_container(id, pod::grace_seconds(&self.pod).max(2)).await;
        Err(NotStarted {
            not_before: Some(self.context.clock.now()),
            ..NotStarted::new("PostStartHookError", "PostStartHook failed")
        })
    }

    async fn image(&mut self, container: &Container, sandbox: &v1::PodSandboxConfig) -> Result<Image, NotStarted> {
        let secrets = self.pull_secrets().await;
        let context = self.context.clone();
        let events = PodEvents { recorder: &context.recorder, pod: &self.pod };
        let ensured = context.images.ensure(&events, container, &secrets, sandbox, &mut self.backoffs.pulls).await;
        ensured.map_err(|failed| NotStarted { why: failed.why, not_before: Some(failed.not_before) })
    }

    /// The images that the container mounts, by volume; pulled as its own is.
    async fn volume_images(
        &mut self,
        container: &Container,
        sandbox: &v1::PodSandboxConfig,
    ) -> Result<HashMap<String, String>, NotStarted> {
        let pod = self.pod.clone();
        let mut found = HashMap::new();
        for volume in pod::spec(&pod).volumes.iter().flatten() {
            let mounted = container.volume_mounts.iter().flatten().any(|mount| mount.name == volume.name);
            let Some(source) = volume.image.as_ref().filter(|_| mounted) else { continue };
            let wanted = Container {
                name: container.name.clone(),
                image: source.reference.clone(),
                image_pull_policy: source.pull_policy.clone(),
                ..Container::default()
            };
            found.insert(volume.name.clone(), self.image(&wanted, sandbox).await?.id);
        }
        Ok(found)
    }

    async fn pull_secrets(&self) -> Vec<Arc<Secret>> {
        let namespace = pod::namespace(&self.pod);
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for reference in pod::spec(&self.pod).image_pull_secrets.iter().flatten() {
            match self.context.sources.secrets.get(&self.uid, namespace, &reference.name).await {
                Ok(Some(secret)) => found.push(secret),
                // No error: the image may be public.
                _ => missing.push(reference.name.as_str()),
            }
        }
        if !missing.is_empty() {
            let missing = missing.join(", ");
            let message = format!(
                "Unable to retrieve some image pull secrets ({missing}); attempting to pull the image may not succeed."
            );
            self.events().pod(EventType::Warning, "FailedToRetrieveImagePullSecret", message);
        }
        found
    }

    async fn container_config(
        &self,
        state: &PodState,
        container: &Container,
        role: Role,
        restart_count: u32,
        of_runtime: Given,
    ) -> Result<v1::ContainerConfig, String> {
        let around = self.surroundings(state);
        let objects = self.env_objects(container).await?;
        self.context.services.synced().await;
        let links = pod::spec(&self.pod).enable_service_links != Some(false);
        let services = services::variables(&self.context.services.list(), pod::namespace(&self.pod), links);
        let variables = env::variables(&self.pod, container, &objects, services, &around)?;
        let recursive_read_only = self.recursive_read_only(container).await?;
        self.check_groups_policy().await?;
        let mounts = self
            .container_mounts(
                container,
                &around.pod_addresses,
                variables.clone(),
                of_runtime.volumes,
                recursive_read_only,
            )
            .await?;
        let devices = volumes::container_devices(container, &self.mounted.clone().unwrap_or_default())?;
        let target = match role {
            Role::Ephemeral => self.ephemeral_target(state, &container.name),
            _ => None,
        };
        let mut given = self.context.hardware.devices.given(&self.pod, container).await?;
        given.add_cdi(self.context.hardware.dra.cdi_devices(&self.pod, container)?);
        let (name, version) = self.context.runtime.identity();
        if given.has_cdi() && !runtime::knows_cdi((name, version)) {
            return Err(format!("the runtime {name} {version} knows no CDI devices"));
        }
        let mut config = container::config(Prepared {
            pod: &self.pod,
            container,
            restart_count,
            image_ref: of_runtime.image.id,
            image_user: of_runtime.image.user,
            users: of_runtime.users.as_ref(),
            variables,
            mounts,
            devices,
            placement: self.context.placement(&self.uid, &container.name),
            seccomp: Seccomp {
                root: self.context.config.root_dir.join("seccomp").to_string_lossy().into_owned(),
                runtime_default: self.context.config.settings.seccomp_default,
            },
            memory: self.context.config.settings.memory,
            machine: self.context.memory_machine(),
            target,
        })?;
        given.put_into(&mut config);
        if let Some(users) = &of_runtime.users {
            container::show_as(users, &mut config.mounts);
        }
        Ok(config)
    }

    /// Whether the pod's runtime can make mounts read-only all the way down; asked only where somebody wants to know.
    async fn recursive_read_only(&self, container: &Container) -> Result<bool, String> {
        if !wants_recursive_read_only(container) {
            return Ok(false);
        }
        let handler = self.runtime_handler().await?;
        let abilities = self.context.abilities().await.map_err(|error| error.to_string())?;
        Ok(abilities.handler(&handler).recursive_read_only)
    }

    /// For the statuses of mounts, where a container of the pod wants them read-only all the way down.
    pub(super) async fn know_recursive_read_only(&mut self) {
        if self.recursive_read_only {
            return;
        }
        let pod = self.pod.clone();
        let ephemeral = pod::ephemeral_containers(&pod);
        let mut all = pod::init_containers(&pod).iter().chain(pod::containers(&pod)).chain(&ephemeral);
        if let Some(container) = all.find(|container| wants_recursive_read_only(container)) {
            self.recursive_read_only = self.recursive_read_only(container).await.unwrap_or_default();
        }
    }

    /// The runtime may have been unknown when the pod was taken, or another one then.
    async fn check_groups_policy(&self) -> Result<(), String> {
        let context = pod::spec(&self.pod).security_context.as_ref();
        if context.and_then(|context| context.supplemental_groups_policy.as_deref()) != Some("Strict") {
            return Ok(());
        }
        let abilities = self.context.abilities().await.map_err(|error| error.to_string())?;
        if abilities.supplemental_groups_policy {
            Ok(())
        } else {
            Err("SupplementalGroupsPolicy=Strict is not supported in this node".to_owned())
        }
    }

    fn ephemeral_target(&self, state: &PodState, name: &str) -> Option<String> {
        let list = pod::spec(&self.pod).ephemeral_containers.as_deref()?;
        let target = list.iter().find(|c| c.name == name)?.target_container_name.as_deref()?;
        state.running().find(|r| r.name == target).map(|r| r.id.clone())
    }

    async fn env_objects(&self, container: &Container) -> Result<env::Objects, String> {
        let namespace = pod::namespace(&self.pod);
        let sources = &self.context.sources;
        let mut objects = env::Objects::default();
        let (config_maps, secrets) = env::references(container);
        for (name, required) in config_maps {
            let found = sources.config_maps.get(&self.uid, namespace, &name).await;
            match found.map_err(|e| ferry_client::write::short(&e))? {
                Some(map) => drop(objects.config_maps.insert(name, map)),
                None if required => return Err(missing("configmap", &name)),
                None => {}
            }
        }
        for (name, required) in secrets {
            let found = sources.secrets.get(&self.uid, namespace, &name).await;
            match found.map_err(|e| ferry_client::write::short(&e))? {
                Some(secret) => drop(objects.secrets.insert(name, secret)),
                None if required => return Err(missing("secret", &name)),
                None => {}
            }
        }
        objects.files = self.env_files(container).await?;
        Ok(objects)
    }

    /// The files of variables that the container refers to, as they are now.
    async fn env_files(&self, container: &Container) -> Result<HashMap<(String, String), (String, String)>, String> {
        let sources = container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref());
        let mounted = self.mounted.clone().unwrap_or_default();
        let (mut files, mut room) = (HashMap::new(), Room::of_files());
        for source in sources.filter_map(|source| source.file_key_ref.as_ref()) {
            if files.contains_key(&(source.volume_name.clone(), source.path.clone())) {
                continue;
            }
            let Some(place) = mounted.places.get(&source.volume_name) else { continue };
            let (folder, path) = (place.path.clone(), source.path.clone());
            let shown = folder.join(&path).to_string_lossy().into_owned();
            let read = volumes::blocking(move || env_file::read(&folder, &path).map_err(|error| error.to_string()));
            let content = read.await.map_err(|why| {
                tracing::debug!(pod = pod::name(&self.pod), file = shown, "a file of variables: {why}");
                "couldn't parse env file".to_owned()
            })?;
            room.take(content.len())?;
            files.insert((source.volume_name.clone(), source.path.clone()), (shown, content));
        }
        Ok(files)
    }

    async fn container_mounts(
        &self,
        container: &Container,
        addresses: &[String],
        variables: Vec<(String, String)>,
        images: HashMap<String, String>,
        recursive_read_only: bool,
    ) -> Result<Vec<v1::Mount>, String> {
        let hosts = if pod::host_network(&self.pod) {
            let own = tokio::fs::read_to_string("/etc/hosts").await.unwrap_or_default();
            hosts::host_network_file(&self.pod, &own)
        } else {
            hosts::pod_file(&self.pod, addresses, &self.context.config.cluster_domain)
        };
        let mounts = Mounts {
            container: container.clone(),
            mounted: self.mounted.clone().unwrap_or_default(),
            images,
            pod_folder: self.context.volumes.pod_folder(&self.uid),
            hosts: Some(hosts),
            variables,
            recursive_read_only,
        };
        volumes::blocking(move || volumes::container_mounts(&mounts)).await
    }
}

fn wants_recursive_read_only(container: &Container) -> bool {
    let modes = container.volume_mounts.iter().flatten().filter_map(|mount| mount.recursive_read_only.as_deref());
    modes.into_iter().any(|mode| mode != "Disabled")
}
