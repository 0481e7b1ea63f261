//! `describe`: what is known of one object and what happened to it. One file per kind; others are shown as they are.

mod apps;
mod certificate;
mod config;
mod containers;
mod generic;
mod network;
mod network_policy;
mod node;
mod parts;
mod pod;
mod policy;
mod rbac;
mod service;
mod storage;
mod volumes;
mod workloads;

pub use apps::replica_sets;
pub use containers::amount;
pub use pod::template;

use serde_json::Value;

use crate::error::Result;
use crate::resource::{Info, Selection, list};
use crate::session::Context;

const RBAC: &str = "rbac.authorization.k8s.io";

/// The text of one object.
pub async fn describe(context: &Context, info: &Info, with_events: bool) -> Result<String> {
    let object = &info.object;
    let events = match with_events {
        true => Some(events(context, object).await),
        false => None,
    };
    let text = match (&*info.resource.group, &*info.resource.kind) {
        ("", "Pod") => pod::pod(object),
        ("", "Service") => service::service(context, object).await?,
        ("", "Node") => node::node(context, object).await?,
        ("", "ConfigMap") => config::config_map(object),
        ("", "Secret") => return Ok(parts::align(&config::secret(object))),
        ("", "Namespace") => return Ok(parts::align(&config::namespace(context, object).await?)),
        ("apps", "Deployment") => apps::deployment(context, object).await?,
        ("apps", "ReplicaSet") => apps::replica_set(context, object).await?,
        ("apps", "StatefulSet") => workloads::stateful_set(context, object).await?,
        ("apps", "DaemonSet") => workloads::daemon_set(context, object).await?,
        ("batch", "Job") => workloads::job(object),
        ("batch", "CronJob") => workloads::cron_job(object),
        ("", "ServiceAccount") => policy::service_account(object),
        ("", "PersistentVolumeClaim") => policy::volume_claim(context, object).await?,
        ("", "ResourceQuota") => return Ok(parts::align(&policy::quota(object))),
        ("", "LimitRange") => return Ok(parts::align(&policy::limit_range(object))),
        ("policy", "PodDisruptionBudget") => policy::disruption_budget(object),
        ("scheduling.k8s.io", "PriorityClass") => policy::priority_class(object),
        ("storage.k8s.io", "StorageClass") => policy::storage_class(object),
        ("", "ReplicationController") => apps::replication_controller(context, object).await,
        ("", "Endpoints") => network::endpoints(object),
        ("", "PersistentVolume") => storage::volume(object),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(object),
        ("networking.k8s.io", "Ingress") => network::ingress(context, object).await,
        ("networking.k8s.io", "IngressClass") => network::ingress_class(object),
        ("networking.k8s.io", "ServiceCIDR") => network::service_cidr(object),
        ("networking.k8s.io", "IPAddress") => network::ip_address(object),
        ("networking.k8s.io", "NetworkPolicy") => {
            return Ok(parts::align(&network_policy::network_policy(object)));
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => certificate::request(object)?,
        ("storage.k8s.io", "CSINode") => storage::csi_node(object),
        ("storage.k8s.io", "VolumeAttributesClass") => storage::attributes_class(object),
        ("autoscaling", "HorizontalPodAutoscaler") if info.resource.version == "v2" => policy::autoscaler(object),
        (RBAC, "Role" | "ClusterRole") => return Ok(parts::align(&rbac::role(object))),
        (RBAC, "RoleBinding" | "ClusterRoleBinding") => return Ok(parts::align(&rbac::binding(object))),
        _ => generic::object(object),
    };
    Ok(match events {
        None => parts::align(&text),
        Some(events) if events.is_empty() => parts::align(&format!("{text}Events:\t<none>\n")),
        // The columns of events are aligned by themselves.
        Some(events) => parts::align(&text) + &parts::align(&parts::events(&events)),
    })
}

/// Events about an object, in the order of their last time.
async fn events(context: &Context, object: &Value) -> Vec<Value> {
    let metadata = &object["metadata"];
    let mut terms = Vec::new();
    for (field, value) in [
        ("involvedObject.uid", metadata["uid"].as_str()),
        ("involvedObject.name", metadata["name"].as_str()),
        ("involvedObject.namespace", metadata["namespace"].as_str()),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            terms.push(format!("{field}={value}"));
        }
    }
    let Ok(resource) = context.kind("v1", "Event").await else { return Vec::new() };
    let namespace = metadata["namespace"].as_str().map(str::to_owned);
    let selection = Selection { resource, namespace, labels: String::new(), fields: terms.join(",") };
    let mut found = list(context, &selection, 500).await.unwrap_or_default();
    found.sort_by_key(parts::event_time);
    found
}
