//! Pods and containers in the words of CRI.

use ferry_cri::v1;

use crate::state::{Container, Sandbox, Stage};

pub(super) fn sandbox_state(sandbox: &Sandbox) -> v1::PodSandboxState {
    if sandbox.record.stage == Stage::Made {
        v1::PodSandboxState::SandboxReady
    } else {
        v1::PodSandboxState::SandboxNotready
    }
}

pub(super) fn container_state(container: &Container) -> v1::ContainerState {
    match container.record.stage {
        Stage::Making | Stage::Made => v1::ContainerState::ContainerCreated,
        Stage::Running => v1::ContainerState::ContainerRunning,
        Stage::Ended => v1::ContainerState::ContainerExited,
    }
}

pub(super) fn sandbox(sandbox: &Sandbox) -> v1::PodSandbox {
    v1::PodSandbox {
        id: sandbox.record.id.clone(),
        metadata: sandbox.config.metadata.clone(),
        state: sandbox_state(sandbox).into(),
        created_at: sandbox.record.created_at,
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.record.handler.clone(),
    }
}

pub(super) fn sandbox_status(sandbox: &Sandbox) -> v1::PodSandboxStatus {
    let mut addresses = sandbox.record.addresses.iter().cloned();
    let ip = addresses.next().unwrap_or_default();
    v1::PodSandboxStatus {
        id: sandbox.record.id.clone(),
        metadata: sandbox.config.metadata.clone(),
        state: sandbox_state(sandbox).into(),
        created_at: sandbox.record.created_at,
        network: Some(v1::PodSandboxNetworkStatus {
            ip,
            additional_ips: addresses.map(|ip| v1::PodIp { ip }).collect(),
        }),
        linux: Some(v1::LinuxPodSandboxStatus {
            namespaces: Some(v1::Namespace {
                options: sandbox
                    .config
                    .linux
                    .as_ref()
                    .and_then(|l| l.security_context.as_ref()?.namespace_options.clone()),
            }),
        }),
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.record.handler.clone(),
    }
}

fn image(container: &Container) -> Option<v1::ImageSpec> {
    let asked = container.config.image.clone().unwrap_or_default();
    Some(v1::ImageSpec { image: container.record.image_name.clone(), ..asked })
}

pub(super) fn container(container: &Container) -> v1::Container {
    let record = &container.record;
    v1::Container {
        id: record.id.clone(),
        pod_sandbox_id: record.sandbox.clone(),
        metadata: container.config.metadata.clone(),
        image: container.config.image.clone(),
        image_ref: record.image_id.clone(),
        state: container_state(container).into(),
        created_at: record.created_at,
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        image_id: record.image_id.clone(),
    }
}

pub(super) fn container_status(container: &Container) -> v1::ContainerStatus {
    let record = &container.record;
    let resources = container.config.linux.as_ref().and_then(|linux| linux.resources.clone());
    let groups = record.groups.iter().map(|group| i64::from(*group)).collect();
    v1::ContainerStatus {
        id: record.id.clone(),
        metadata: container.config.metadata.clone(),
        state: container_state(container).into(),
        created_at: record.created_at,
        started_at: record.started_at,
        finished_at: record.finished_at,
        exit_code: record.exit_code,
        image: image(container),
        image_ref: record.image_ref.clone(),
        reason: record.reason.clone(),
        message: record.message.clone(),
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        mounts: container.config.mounts.clone(),
        log_path: record.log_path.clone(),
        resources: Some(v1::ContainerResources { linux: resources }),
        image_id: record.image_id.clone(),
        user: Some(v1::ContainerUser {
            linux: Some(v1::LinuxContainerUser {
                uid: record.uid.into(),
                gid: record.gid.into(),
                supplemental_groups: groups,
            }),
        }),
        stop_signal: container.config.stop_signal,
    }
}
