//! Which kinds have a strategy of their own.

use std::sync::Arc;

use ferry_meta::GroupVersionKind;

use crate::plain::Plain;
use crate::strategy::Strategy;
use crate::{apps, autoscaling, batch, coordination, core, discovery, policy, rbac};

/// The strategy of a kind; `plain` carries what the table's data says and is the answer where nothing else is known.
pub(crate) fn of(kind: &GroupVersionKind, plain: Plain) -> Arc<dyn Strategy> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "ConfigMap") => Arc::new(core::config_map::ConfigMap(plain)),
        ("", "Endpoints") => Arc::new(core::endpoints::Endpoints(plain)),
        ("", "Event") => Arc::new(core::event::CoreEvent(plain)),
        ("", "Namespace") => Arc::new(core::namespace::Namespace(plain)),
        ("", "Node") => Arc::new(core::node::Node(plain)),
        ("", "PersistentVolumeClaim") => Arc::new(core::persistent_volume_claim::PersistentVolumeClaim(plain)),
        ("", "Pod") => Arc::new(core::pod::Pod(plain)),
        ("", "PodTemplate") => Arc::new(core::pod_template::PodTemplate(plain)),
        ("", "ReplicationController") => Arc::new(core::replication_controller::ReplicationController(plain)),
        ("", "Secret") => Arc::new(core::secret::Secret(plain)),
        ("", "Service") => Arc::new(core::service::Service(plain)),
        ("apps", "ControllerRevision") => Arc::new(apps::controller_revision::ControllerRevision(plain)),
        ("apps", "DaemonSet") => Arc::new(apps::daemon_set::DaemonSet(plain)),
        ("apps", "Deployment") => Arc::new(apps::deployment::Deployment(plain)),
        ("apps", "ReplicaSet") => Arc::new(apps::replica_set::ReplicaSet(plain)),
        ("apps", "StatefulSet") => Arc::new(apps::stateful_set::StatefulSet(plain)),
        ("autoscaling", _) if kind.version == "v1" => Arc::new(autoscaling::HorizontalPodAutoscalerV1(plain)),
        ("autoscaling", _) => Arc::new(autoscaling::HorizontalPodAutoscaler(plain)),
        ("batch", "CronJob") => Arc::new(batch::cron_job::CronJob(plain)),
        ("batch", "Job") => Arc::new(batch::job::Job(plain)),
        ("coordination.k8s.io", "Lease") => Arc::new(coordination::Lease(plain)),
        ("discovery.k8s.io", "EndpointSlice") => Arc::new(discovery::endpoint_slice::EndpointSlice(plain)),
        ("events.k8s.io", "Event") => Arc::new(core::event::Event(plain)),
        ("policy", "PodDisruptionBudget") => Arc::new(policy::PodDisruptionBudget(plain)),
        ("rbac.authorization.k8s.io", "ClusterRole") => Arc::new(rbac::Role { plain, cluster: true }),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => Arc::new(rbac::Binding { plain, cluster: true }),
        ("rbac.authorization.k8s.io", "Role") => Arc::new(rbac::Role { plain, cluster: false }),
        ("rbac.authorization.k8s.io", "RoleBinding") => Arc::new(rbac::Binding { plain, cluster: false }),
        _ => Arc::new(plain),
    }
}
