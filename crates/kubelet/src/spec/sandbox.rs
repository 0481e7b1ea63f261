//! The configuration of a pod's sandbox.

use std::collections::HashMap;
use std::path::PathBuf;

use ferry_cri::v1::{
    DnsConfig, Int64Value, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, PodSandboxConfig, PodSandboxMetadata,
    PortMapping, Protocol, SecurityProfile, UserNamespace, security_profile::ProfileType,
};
use k8s_openapi::api::core::v1::Pod;

use super::{hosts, security};
use crate::runtime::label;
use crate::{pod, sysctls};

/// The folder that holds the logs of a pod's containers.
pub(crate) fn log_folder(root: &std::path::Path, pod: &Pod) -> PathBuf {
    root.join(format!("{}_{}_{}", pod::namespace(pod), pod::name(pod), pod::uid(pod)))
}

pub(crate) fn config(
    pod: &Pod,
    attempt: u32,
    users: Option<&UserNamespace>,
    dns: DnsConfig,
    cluster_domain: &str,
    log_root: &std::path::Path,
    cgroup_parent: String,
) -> Result<PodSandboxConfig, String> {
    let spec = pod::spec(pod);
    let mut labels: HashMap<String, String> = pod.metadata.labels.clone().unwrap_or_default().into_iter().collect();
    labels.insert(label::POD_NAME.into(), pod::name(pod).into());
    labels.insert(label::POD_NAMESPACE.into(), pod::namespace(pod).into());
    labels.insert(label::POD_UID.into(), pod::uid(pod).into());
    let hostname = if pod::host_network(pod) { String::new() } else { hosts::kernel_hostname(pod, cluster_domain)? };
    let shared = spec.security_context.clone().unwrap_or_default();
    let privileged = pod::containers(pod)
        .iter()
        .chain(pod::init_containers(pod))
        .any(|c| c.security_context.as_ref().is_some_and(|s| s.privileged == Some(true)));
    let context = LinuxSandboxSecurityContext {
        namespace_options: Some(security::namespaces(pod, users)),
        selinux_options: security::selinux(shared.se_linux_options.as_ref()),
        run_as_user: shared.run_as_user.map(|value| Int64Value { value }),
        run_as_group: shared.run_as_group.map(|value| Int64Value { value }),
        supplemental_groups: security::supplemental_groups(pod),
        supplemental_groups_policy: security::groups_policy(pod),
        privileged,
        seccomp: Some(SecurityProfile {
            profile_type: ProfileType::RuntimeDefault.into(),
            localhost_ref: String::new(),
        }),
        ..LinuxSandboxSecurityContext::default()
    };
    let sysctls = sysctls::of_pod(pod);
    Ok(PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: pod::name(pod).into(),
            uid: pod::uid(pod).into(),
            namespace: pod::namespace(pod).into(),
            attempt,
        }),
        hostname,
        log_directory: log_folder(log_root, pod).to_string_lossy().into_owned(),
        dns_config: Some(dns),
        port_mappings: port_mappings(pod),
        labels,
        annotations: pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent,
            security_context: Some(context),
            sysctls,
            ..LinuxPodSandboxConfig::default()
        }),
    })
}

fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    if pod::host_network(pod) {
        return Vec::new();
    }
    let sidecars = pod::init_containers(pod).iter().filter(|c| pod::is_sidecar(c));
    let ports = pod::containers(pod).iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    ports
        .map(|port| PortMapping {
            protocol: match port.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => Protocol::Sctp,
                _ => Protocol::Tcp,
            }
            .into(),
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or(0),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}
