//! Which kinds have a strategy of their own.

use std::sync::Arc;

use ferry_meta::GroupVersionKind;

use crate::plain::Plain;
use crate::strategy::Strategy;
use crate::{
    admissionregistration, apiextensions, apiregistration, apps, autoscaling, batch, certificates, coordination, core,
    devices, discovery, flowcontrol, networking, node, policy, rbac, resource_metrics, scheduling, storage,
    storagemigration,
};

/// The strategy of a kind; `plain` carries what the table's data says and is the answer where nothing else is known.
pub(crate) fn of(kind: &GroupVersionKind, plain: Plain) -> Arc<dyn Strategy> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "ConfigMap") => Arc::new(core::config_map::ConfigMap(plain)),
        ("", "Endpoints") => Arc::new(core::endpoints::Endpoints(plain)),
        ("", "Event") => Arc::new(core::event::CoreEvent(plain)),
        ("", "LimitRange") => Arc::new(core::limit_range::LimitRange(plain)),
        ("", "Namespace") => Arc::new(core::namespace::Namespace(plain)),
        ("", "Node") => Arc::new(core::node::Node(plain)),
        ("", "PersistentVolume") => Arc::new(core::persistent_volume::PersistentVolume(plain)),
        ("", "PersistentVolumeClaim") => Arc::new(core::persistent_volume_claim::PersistentVolumeClaim(plain)),
        ("", "Pod") => Arc::new(core::pod::Pod(plain)),
        ("", "PodTemplate") => Arc::new(core::pod_template::PodTemplate(plain)),
        ("", "ReplicationController") => Arc::new(core::replication_controller::ReplicationController(plain)),
        ("", "ResourceQuota") => Arc::new(core::resource_quota::ResourceQuota(plain)),
        ("", "Secret") => Arc::new(core::secret::Secret(plain)),
        ("", "ServiceAccount") => Arc::new(core::service_account::ServiceAccount(plain)),
        ("", "Service") => Arc::new(core::service::Service(plain)),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => {
            Arc::new(admissionregistration::policy::Policy { plain, mutating: true })
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding") => {
            Arc::new(admissionregistration::policy::PolicyBinding { plain, mutating: true })
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => {
            Arc::new(admissionregistration::webhook::WebhookConfiguration { plain, mutating: true })
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            Arc::new(admissionregistration::policy::Policy { plain, mutating: false })
        }
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            Arc::new(admissionregistration::policy::PolicyBinding { plain, mutating: false })
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => {
            Arc::new(admissionregistration::webhook::WebhookConfiguration { plain, mutating: false })
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Arc::new(apiextensions::CustomResourceDefinition(plain))
        }
        ("apiregistration.k8s.io", "APIService") => Arc::new(apiregistration::ApiService(plain)),
        ("apps", "ControllerRevision") => Arc::new(apps::controller_revision::ControllerRevision(plain)),
        ("apps", "DaemonSet") => Arc::new(apps::daemonset::DaemonSet(plain)),
        ("apps", "Deployment") => Arc::new(apps::deployment::Deployment(plain)),
        ("apps", "ReplicaSet") => Arc::new(apps::replicaset::ReplicaSet(plain)),
        ("apps", "StatefulSet") => Arc::new(apps::statefulset::StatefulSet(plain)),
        ("autoscaling", _) if kind.version == "v1" => Arc::new(autoscaling::HorizontalPodAutoscalerV1(plain)),
        ("autoscaling", _) => Arc::new(autoscaling::HorizontalPodAutoscaler(plain)),
        ("batch", "CronJob") => Arc::new(batch::cronjob::CronJob(plain)),
        ("batch", "Job") => Arc::new(batch::job::Job(plain)),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            Arc::new(certificates::CertificateSigningRequest(plain))
        }
        ("certificates.k8s.io", "ClusterTrustBundle") => {
            Arc::new(certificates::trust_bundle::ClusterTrustBundle(plain))
        }
        ("certificates.k8s.io", "PodCertificateRequest") => {
            Arc::new(certificates::pod_request::PodCertificateRequest(plain))
        }
        ("coordination.k8s.io", "Lease") => Arc::new(coordination::Lease(plain)),
        ("discovery.k8s.io", "EndpointSlice") => Arc::new(discovery::endpoint_slice::EndpointSlice(plain)),
        ("events.k8s.io", "Event") => Arc::new(core::event::Event(plain)),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => Arc::new(flowcontrol::FlowSchema(plain)),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            Arc::new(flowcontrol::PriorityLevelConfiguration(plain))
        }
        ("metrics.k8s.io", "PodMetrics") => Arc::new(resource_metrics::PodMetrics(plain)),
        ("networking.k8s.io", "IPAddress") => Arc::new(networking::address::IpAddress(plain)),
        ("networking.k8s.io", "Ingress") => Arc::new(networking::ingress::Ingress(plain)),
        ("networking.k8s.io", "IngressClass") => Arc::new(networking::ingress_class::IngressClass(plain)),
        ("networking.k8s.io", "NetworkPolicy") => Arc::new(networking::network_policy::NetworkPolicy(plain)),
        ("networking.k8s.io", "ServiceCIDR") => Arc::new(networking::address::ServiceCidr(plain)),
        ("node.k8s.io", "RuntimeClass") => Arc::new(node::RuntimeClass(plain)),
        ("policy", "PodDisruptionBudget") => Arc::new(policy::PodDisruptionBudget(plain)),
        ("rbac.authorization.k8s.io", "ClusterRole") => Arc::new(rbac::Role { plain, cluster: true }),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => Arc::new(rbac::Binding { plain, cluster: true }),
        ("rbac.authorization.k8s.io", "Role") => Arc::new(rbac::Role { plain, cluster: false }),
        ("rbac.authorization.k8s.io", "RoleBinding") => Arc::new(rbac::Binding { plain, cluster: false }),
        ("resource.k8s.io", "DeviceClass") => Arc::new(devices::DeviceClass(plain)),
        ("resource.k8s.io", "DeviceTaintRule") => Arc::new(devices::DeviceTaintRule(plain)),
        ("resource.k8s.io", "ResourceClaim") => Arc::new(devices::ResourceClaim(plain)),
        ("resource.k8s.io", "ResourceClaimTemplate") => Arc::new(devices::ResourceClaimTemplate(plain)),
        ("resource.k8s.io", "ResourceSlice") => Arc::new(devices::ResourceSlice(plain)),
        ("scheduling.k8s.io", "PriorityClass") => Arc::new(scheduling::PriorityClass(plain)),
        ("storage.k8s.io", "CSIDriver") => Arc::new(storage::csi::CsiDriver(plain)),
        ("storage.k8s.io", "CSINode") => Arc::new(storage::csi::CsiNode(plain)),
        ("storage.k8s.io", "CSIStorageCapacity") => Arc::new(storage::classes::CsiStorageCapacity(plain)),
        ("storage.k8s.io", "StorageClass") => Arc::new(storage::classes::StorageClass(plain)),
        ("storage.k8s.io", "VolumeAttachment") => Arc::new(storage::volume_attachment::VolumeAttachment(plain)),
        ("storage.k8s.io", "VolumeAttributesClass") => Arc::new(storage::classes::VolumeAttributesClass(plain)),
        ("storagemigration.k8s.io", "StorageVersionMigration") => {
            Arc::new(storagemigration::StorageVersionMigration(plain))
        }
        _ => Arc::new(plain),
    }
}
