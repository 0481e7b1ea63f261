//! Pods: namespaces, network, files of their own, a shim.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;

use ferry_cri::v1::{self, NamespaceMode};

use super::{Engine, Failure, Outcome, now};
use crate::cni::Attachment;
use crate::namespaces::Wanted;
use crate::protocol::ShimConfig;
use crate::state::{Sandbox, SandboxRecord, Stage};
use crate::users::{Range, Users};

const SHARED_MEMORY: u64 = 64 * 1024 * 1024;
/// Ids that are tried out, with nothing of anybody.
const PROBED: u32 = 65_536;

pub(crate) fn options(config: &v1::PodSandboxConfig) -> v1::NamespaceOption {
    let context = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    context.and_then(|context| context.namespace_options.clone()).unwrap_or_default()
}

impl Engine {
    pub(crate) async fn run_sandbox(
        self: &Arc<Self>,
        config: v1::PodSandboxConfig,
        handler: String,
    ) -> Outcome<String> {
        if config.metadata.is_none() {
            return Err(Failure::Invalid("the pod has no name".to_owned()));
        }
        if !handler.is_empty() && handler != "runc" {
            return Err(Failure::Invalid(format!("no runtime for {handler:?} is configured")));
        }
        let id = crate::long_id();
        let record = SandboxRecord {
            id: id.clone(),
            created_at: now(),
            handler,
            stage: Stage::Making,
            addresses: Vec::new(),
            network: None,
            pause: None,
        };
        let sandbox = Sandbox { record, config };
        match self.make_sandbox(sandbox).await {
            Ok(sandbox) => {
                self.state.lock().sandboxes.insert(id.clone(), sandbox);
                self.follow(&id);
                if let Err(error) = self.pause(&id).await {
                    let _ = self.remove_sandbox(&id).await;
                    return Err(error);
                }
                self.tell(&id, &id, v1::ContainerEventType::ContainerCreatedEvent);
                self.tell(&id, &id, v1::ContainerEventType::ContainerStartedEvent);
                Ok(id)
            }
            Err((sandbox, error)) => {
                self.take_down(&sandbox).await;
                let _ = ferry_podfs::remove_all(&self.sandbox_folder(&id));
                Err(error)
            }
        }
    }

    async fn make_sandbox(&self, mut sandbox: Sandbox) -> Result<Sandbox, (Box<Sandbox>, Failure)> {
        match self.make_parts(&mut sandbox).await {
            Ok(()) => Ok(sandbox),
            Err(error) => Err((Box::new(sandbox), error)),
        }
    }

    async fn make_parts(&self, sandbox: &mut Sandbox) -> Outcome<()> {
        let id = sandbox.record.id.clone();
        let folder = self.sandbox_folder(&id);
        std::fs::create_dir_all(&folder)?;
        sandbox.save_config(&folder)?;
        // After a crash whoever finds it knows what to take away.
        sandbox.save(&folder)?;
        let options = options(&sandbox.config);
        self.make_namespaces(sandbox, &options).await?;
        self.write_files(&sandbox.config, &options, &folder)?;
        if options.network() != NamespaceMode::Node {
            let namespace = self.namespaces(&id).join("net");
            let failed = |error| Failure::Internal(format!("failed to setup network for sandbox {id:?}: {error}"));
            sandbox.record.network = Some(self.config.network.plan().map_err(failed)?);
            sandbox.save(&folder)?;
            let to = Attachment { id: &id, namespace: &namespace, config: &sandbox.config };
            if let Some(attached) = &mut sandbox.record.network {
                self.config.network.add(&to, attached).await.map_err(failed)?;
                sandbox.record.addresses = attached.addresses();
            }
            sandbox.save(&folder)?;
        }
        let shim = self.shim(&id);
        let config = ShimConfig { socket: shim.socket.clone() };
        shim.start(&self.program, &config, &folder.join("shim.log")).await.map_err(Failure::Internal)?;
        sandbox.record.stage = Stage::Made;
        sandbox.save(&folder)?;
        Ok(())
    }

    async fn make_namespaces(&self, sandbox: &Sandbox, options: &v1::NamespaceOption) -> Outcome<()> {
        let own_network = options.network() != NamespaceMode::Node;
        let own_ipc = options.ipc() != NamespaceMode::Node;
        let users = Users::of(options).map_err(Failure::Invalid)?;
        let mut sysctls = BTreeMap::new();
        if own_network {
            // Without any capability a container may listen on port 80 and ping, as on any runtime of today.
            sysctls.insert("net.ipv4.ip_unprivileged_port_start".to_owned(), "0".to_owned());
            let last_group = users.as_ref().map_or(i32::MAX.cast_unsigned(), Users::last_group);
            sysctls.insert("net.ipv4.ping_group_range".to_owned(), format!("0 {last_group}"));
        }
        let asked = sandbox.config.linux.iter().flat_map(|linux| linux.sysctls.clone());
        for (name, value) in asked {
            let fits = (own_network && name.starts_with("net.")) || (own_ipc && of_ipc(&name));
            if !fits {
                return Err(Failure::Invalid(format!("sysctl {name:?} is not of one of the pod's own namespaces")));
            }
            sysctls.insert(name, value);
        }
        if !own_network && !own_ipc {
            return Ok(());
        }
        let folder = self.namespaces(&sandbox.record.id);
        std::fs::create_dir_all(&folder)?;
        let wanted = Wanted {
            folder,
            network: own_network,
            ipc: own_ipc,
            uts: own_network,
            hostname: sandbox.config.hostname.clone(),
            sysctls,
            users,
            probe: None,
        };
        self.namespaces_helper(&wanted).await.map_err(Failure::Internal)
    }

    async fn namespaces_helper(&self, wanted: &Wanted) -> Result<(), String> {
        let argument = serde_json::to_string(wanted).map_err(|e| e.to_string())?;
        let helper = tokio::process::Command::new(&self.program)
            .arg(crate::NAMESPACES_COMMAND)
            .arg(argument)
            .env(crate::program::ALLOCATOR.0, crate::program::ALLOCATOR.1)
            .stdin(Stdio::null())
            .output()
            .await
            .map_err(|e| e.to_string())?;
        if helper.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&helper.stderr).trim().to_owned())
    }

    /// Whether pods can have users of their own: the kernel decides, and the file system that images are on.
    pub(crate) async fn has_user_namespaces(&self) -> bool {
        let probe = async {
            let range = Range { container: 0, host: PROBED, size: PROBED };
            let users = Some(Users { uids: vec![range], gids: vec![range] });
            let wanted = Wanted { users, probe: Some(self.config.data_dir.clone()), ..Wanted::default() };
            let tried = self.namespaces_helper(&wanted).await;
            if let Err(why) = &tried {
                tracing::info!("pods cannot have user namespaces here: {why}");
            }
            tried.is_ok()
        };
        *self.user_namespaces.get_or_init(|| probe).await
    }

    /// What containers find in /etc and /dev/shm.
    fn write_files(
        &self,
        config: &v1::PodSandboxConfig,
        options: &v1::NamespaceOption,
        folder: &std::path::Path,
    ) -> Outcome<()> {
        let dns = config.dns_config.clone().unwrap_or_default();
        let resolv = if dns == v1::DnsConfig::default() {
            std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default()
        } else {
            let mut text = String::new();
            if !dns.searches.is_empty() {
                text.push_str(&format!("search {}\n", dns.searches.join(" ")));
            }
            for server in &dns.servers {
                text.push_str(&format!("nameserver {server}\n"));
            }
            if !dns.options.is_empty() {
                text.push_str(&format!("options {}\n", dns.options.join(" ")));
            }
            text
        };
        // Every user of the pod reads them.
        let write = |name: &str, text: &str| ferry_podfs::overwrite(&folder.join(name), text.as_bytes(), 0o644);
        write("resolv.conf", &resolv)?;
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let hostname = if config.hostname.is_empty() { own } else { config.hostname.clone() };
        write("hostname", &format!("{hostname}\n"))?;
        write("hosts", &std::fs::read_to_string("/etc/hosts").unwrap_or_default())?;
        if options.ipc() != NamespaceMode::Node {
            let memory = folder.join("shm");
            std::fs::create_dir_all(&memory)?;
            crate::overlay::shared_memory(&memory, SHARED_MEMORY)?;
        }
        Ok(())
    }

    /// Where containers see each other's processes, the pod has one that holds the namespace and buries orphans.
    async fn pause(self: &Arc<Self>, id: &str) -> Outcome<()> {
        let Some(sandbox) = self.state.lock().sandboxes.get(id).cloned() else { return Ok(()) };
        if options(&sandbox.config).pid() != NamespaceMode::Pod || options_missing(&sandbox.config) {
            return Ok(());
        }
        let image = &self.config.pause_image;
        if self.images.find(image).is_none() {
            self.images.pull(image, None).await?;
        }
        let context = v1::LinuxContainerSecurityContext {
            namespace_options: Some(v1::NamespaceOption {
                pid: NamespaceMode::Container.into(),
                ..options(&sandbox.config)
            }),
            readonly_rootfs: true,
            no_new_privs: true,
            capabilities: Some(v1::Capability { drop_capabilities: vec!["ALL".into()], ..Default::default() }),
            ..Default::default()
        };
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: "pause".into(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: image.clone(), ..Default::default() }),
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources { cpu_shares: 2, ..Default::default() }),
                security_context: Some(context),
            }),
            ..Default::default()
        };
        let container = self.make_container(id, config, true).await?;
        self.start_container(&container).await?;
        let mut state = self.state.lock();
        if let Some(sandbox) = state.sandboxes.get_mut(id) {
            sandbox.record.pause = Some(container);
            sandbox.save(&self.sandbox_folder(id))?;
        }
        Ok(())
    }
}

/// A caller that says nothing of namespaces does not ask for shared processes, though 0 stands for them.
fn options_missing(config: &v1::PodSandboxConfig) -> bool {
    let context = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    context.is_none_or(|context| context.namespace_options.is_none())
}

fn of_ipc(name: &str) -> bool {
    name.starts_with("fs.mqueue.")
        || name.starts_with("kernel.shm")
        || name.starts_with("kernel.msg")
        || name == "kernel.sem"
}
