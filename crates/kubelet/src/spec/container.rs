//! The configuration of one container.

use std::collections::HashMap;

use ferry_cri::v1::{
    ContainerConfig, ContainerMetadata, Device, ImageSpec, KeyValue, LinuxContainerConfig, Mount, Signal, UserNamespace,
};
use k8s_openapi::api::core::v1::{Container, Pod};

use super::env::expand;
use super::resources;
use super::room::Room;
use super::security::{self, ImageUser, Seccomp};
use crate::memory_policy::MemoryPolicy;
use crate::pod;
use crate::runtime::label;

/// What has been prepared for a container before it is made.
pub(crate) struct Prepared<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) container: &'a Container,
    pub(crate) restart_count: u32,
    /// The image as the runtime names it.
    pub(crate) image_ref: String,
    pub(crate) image_user: ImageUser,
    /// The users of a pod that has its own.
    pub(crate) users: Option<&'a UserNamespace>,
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) devices: Vec<Device>,
    pub(crate) placement: resources::Placement,
    pub(crate) seccomp: Seccomp,
    pub(crate) memory: MemoryPolicy,
    pub(crate) machine: crate::memory_policy::Machine,
    /// For an ephemeral container: the one whose processes it sees.
    pub(crate) target: Option<String>,
}

pub(crate) fn config(prepared: Prepared<'_>) -> Result<ContainerConfig, String> {
    let Prepared { pod, container, restart_count, .. } = prepared;
    let variables: HashMap<&str, &str> = prepared.variables.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let mut room = Room::of_arguments();
    let mut expanded = |list: &Option<Vec<String>>| -> Result<Vec<String>, String> {
        let list = list.iter().flatten();
        list.map(|text| expand(text, &mut room, |name| variables.get(name).map(|v| (*v).to_owned()))).collect()
    };
    let mut context = security::context(pod, container, &prepared.image_user, prepared.users, &prepared.seccomp)?;
    if let (Some(target), Some(namespaces)) = (prepared.target, context.namespace_options.as_mut()) {
        namespaces.pid = ferry_cri::v1::NamespaceMode::Target.into();
        namespaces.target_id = target;
    }
    let labels = HashMap::from([
        (label::POD_NAME.to_owned(), pod::name(pod).to_owned()),
        (label::POD_NAMESPACE.to_owned(), pod::namespace(pod).to_owned()),
        (label::POD_UID.to_owned(), pod::uid(pod).to_owned()),
        (label::CONTAINER_NAME.to_owned(), container.name.clone()),
    ]);
    let message_path = container.termination_message_path.clone().unwrap_or_default();
    let message_policy = container.termination_message_policy.clone().unwrap_or_else(|| "File".to_owned());
    let annotations = HashMap::from([
        (label::HASH.to_owned(), pod::container_hash(container)),
        (label::RESTART_COUNT.to_owned(), restart_count.to_string()),
        (label::TERMINATION_MESSAGE_PATH.to_owned(), message_path),
        (label::TERMINATION_MESSAGE_POLICY.to_owned(), message_policy),
        (label::GRACE_PERIOD.to_owned(), pod::grace_seconds(pod).to_string()),
    ]);
    let image = container.image.clone().unwrap_or_default();
    let (command, args) = (expanded(&container.command)?, expanded(&container.args)?);
    // One that the runtime does not know ends as its image says.
    let signal = container.lifecycle.as_ref().and_then(|l| l.stop_signal.as_deref());
    let signal = signal
        .and_then(|name| Signal::from_str_name(&format!("SIGNAL_{}", name.replace('+', "PLUS").replace('-', "MINUS"))));
    Ok(ContainerConfig {
        stop_signal: signal.unwrap_or_default().into(),
        metadata: Some(ContainerMetadata { name: container.name.clone(), attempt: restart_count }),
        image: Some(ImageSpec { image: prepared.image_ref, user_specified_image: image, ..ImageSpec::default() }),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: prepared.variables.into_iter().map(|(key, value)| KeyValue { key, value: value.into_bytes() }).collect(),
        mounts: prepared.mounts,
        devices: prepared.devices,
        labels,
        annotations,
        log_path: format!("{}/{restart_count}.log", container.name),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        linux: Some(LinuxContainerConfig {
            resources: Some(prepared.memory.applied(
                resources::linux(pod, container, &prepared.placement),
                pod,
                container,
                &prepared.machine,
            )),
            security_context: Some(context),
        }),
        ..ContainerConfig::default()
    })
}

/// The files of every mount are the pod's users', as they would be the machine's without a user namespace.
pub(crate) fn show_as(users: &UserNamespace, mounts: &mut [Mount]) {
    for mount in mounts.iter_mut().filter(|mount| mount.image.is_none()) {
        mount.uid_mappings.clone_from(&users.uids);
        mount.gid_mappings.clone_from(&users.gids);
    }
}
