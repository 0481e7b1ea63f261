//! The JSON schemas of the built-in kinds as `k8s-openapi` describes them: types, required fields, descriptions.
//!
//! The program has none of the code that makes them, only what it serves of them.

use k8s_openapi::schemars::SchemaGenerator;
use k8s_openapi::schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

macro_rules! register {
    ($generator:ident, $($kind:ty,)*) => {
        $($generator.subschema_for::<$kind>();)*
    };
}

/// Every type reachable from a built-in kind, by its OpenAPI name (`io.k8s.api.core.v1.PodSpec`).
pub(crate) fn schemas() -> Map<String, Value> {
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = false);
    let mut generator = SchemaGenerator::new(settings);
    register!(
        generator,
        k8s_openapi::api::admissionregistration::v1::MutatingAdmissionPolicy,
        k8s_openapi::api::admissionregistration::v1::MutatingAdmissionPolicyBinding,
        k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration,
        k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy,
        k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding,
        k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration,
        k8s_openapi::api::admissionregistration::v1alpha1::MutatingAdmissionPolicy,
        k8s_openapi::api::admissionregistration::v1alpha1::MutatingAdmissionPolicyBinding,
        k8s_openapi::api::admissionregistration::v1beta1::MutatingAdmissionPolicy,
        k8s_openapi::api::admissionregistration::v1beta1::MutatingAdmissionPolicyBinding,
        k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersion,
        k8s_openapi::api::apps::v1::ControllerRevision,
        k8s_openapi::api::apps::v1::DaemonSet,
        k8s_openapi::api::apps::v1::Deployment,
        k8s_openapi::api::apps::v1::ReplicaSet,
        k8s_openapi::api::apps::v1::StatefulSet,
        k8s_openapi::api::authentication::v1::SelfSubjectReview,
        k8s_openapi::api::authentication::v1::TokenRequest,
        k8s_openapi::api::authentication::v1::TokenReview,
        k8s_openapi::api::authorization::v1::LocalSubjectAccessReview,
        k8s_openapi::api::authorization::v1::SelfSubjectAccessReview,
        k8s_openapi::api::authorization::v1::SelfSubjectRulesReview,
        k8s_openapi::api::authorization::v1::SubjectAccessReview,
        k8s_openapi::api::autoscaling::v1::HorizontalPodAutoscaler,
        k8s_openapi::api::autoscaling::v1::Scale,
        k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler,
        k8s_openapi::api::batch::v1::CronJob,
        k8s_openapi::api::batch::v1::Job,
        k8s_openapi::api::certificates::v1::CertificateSigningRequest,
        k8s_openapi::api::certificates::v1::ClusterTrustBundle,
        k8s_openapi::api::certificates::v1::PodCertificateRequest,
        k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle,
        k8s_openapi::api::certificates::v1beta1::PodCertificateRequest,
        k8s_openapi::api::coordination::v1::Lease,
        k8s_openapi::api::coordination::v1alpha2::LeaseCandidate,
        k8s_openapi::api::coordination::v1beta1::LeaseCandidate,
        k8s_openapi::api::core::v1::Binding,
        k8s_openapi::api::core::v1::ComponentStatus,
        k8s_openapi::api::core::v1::ConfigMap,
        k8s_openapi::api::core::v1::Endpoints,
        k8s_openapi::api::core::v1::Event,
        k8s_openapi::api::core::v1::LimitRange,
        k8s_openapi::api::core::v1::Namespace,
        k8s_openapi::api::core::v1::Node,
        k8s_openapi::api::core::v1::PersistentVolume,
        k8s_openapi::api::core::v1::PersistentVolumeClaim,
        k8s_openapi::api::core::v1::Pod,
        k8s_openapi::api::core::v1::PodTemplate,
        k8s_openapi::api::core::v1::ReplicationController,
        k8s_openapi::api::core::v1::ResourceQuota,
        k8s_openapi::api::core::v1::Secret,
        k8s_openapi::api::core::v1::Service,
        k8s_openapi::api::core::v1::ServiceAccount,
        k8s_openapi::api::discovery::v1::EndpointSlice,
        k8s_openapi::api::events::v1::Event,
        k8s_openapi::api::flowcontrol::v1::FlowSchema,
        k8s_openapi::api::flowcontrol::v1::PriorityLevelConfiguration,
        k8s_openapi::api::lifecycle::v1alpha1::Eviction,
        k8s_openapi::api::lifecycle::v1alpha1::EvictionRequest,
        k8s_openapi::api::networking::v1::IPAddress,
        k8s_openapi::api::networking::v1::Ingress,
        k8s_openapi::api::networking::v1::IngressClass,
        k8s_openapi::api::networking::v1::NetworkPolicy,
        k8s_openapi::api::networking::v1::ServiceCIDR,
        k8s_openapi::api::node::v1::RuntimeClass,
        k8s_openapi::api::policy::v1::Eviction,
        k8s_openapi::api::policy::v1::PodDisruptionBudget,
        k8s_openapi::api::rbac::v1::ClusterRole,
        k8s_openapi::api::rbac::v1::ClusterRoleBinding,
        k8s_openapi::api::rbac::v1::Role,
        k8s_openapi::api::rbac::v1::RoleBinding,
        k8s_openapi::api::resource::v1::DeviceClass,
        k8s_openapi::api::resource::v1::DeviceTaintRule,
        k8s_openapi::api::resource::v1::ResourceClaim,
        k8s_openapi::api::resource::v1::ResourceClaimTemplate,
        k8s_openapi::api::resource::v1::ResourceSlice,
        k8s_openapi::api::resource::v1alpha3::DeviceTaintRule,
        k8s_openapi::api::resource::v1alpha3::ResourcePoolStatusRequest,
        k8s_openapi::api::resource::v1beta1::DeviceClass,
        k8s_openapi::api::resource::v1beta1::ResourceClaim,
        k8s_openapi::api::resource::v1beta1::ResourceClaimTemplate,
        k8s_openapi::api::resource::v1beta1::ResourceSlice,
        k8s_openapi::api::resource::v1beta2::DeviceClass,
        k8s_openapi::api::resource::v1beta2::DeviceTaintRule,
        k8s_openapi::api::resource::v1beta2::ResourceClaim,
        k8s_openapi::api::resource::v1beta2::ResourceClaimTemplate,
        k8s_openapi::api::resource::v1beta2::ResourceSlice,
        k8s_openapi::api::scheduling::v1::PriorityClass,
        k8s_openapi::api::scheduling::v1alpha3::CompositePodGroup,
        k8s_openapi::api::scheduling::v1alpha3::PodGroup,
        k8s_openapi::api::scheduling::v1alpha3::Workload,
        k8s_openapi::api::scheduling::v1beta1::PodGroup,
        k8s_openapi::api::scheduling::v1beta1::Workload,
        k8s_openapi::api::storage::v1::CSIDriver,
        k8s_openapi::api::storage::v1::CSINode,
        k8s_openapi::api::storage::v1::CSIStorageCapacity,
        k8s_openapi::api::storage::v1::StorageClass,
        k8s_openapi::api::storage::v1::VolumeAttachment,
        k8s_openapi::api::storage::v1::VolumeAttributesClass,
        k8s_openapi::api::storagemigration::v1::StorageVersionMigration,
        k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration,
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup,
        k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroupList,
        k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList,
        k8s_openapi::apimachinery::pkg::apis::meta::v1::APIVersions,
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Status,
        k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService,
        k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions,
        k8s_openapi::apimachinery::pkg::version::Info,
    );
    generator.take_definitions(true)
}

/// Served from here as it is, because the catalogue does not have it.
const OUTSIDE_THE_CATALOGUE: &str = "io.k8s.apimachinery.pkg.version.Info";

/// What `ferry_schema::openapi` reads: of each type its description and those of its properties.
pub(crate) fn descriptions() -> Map<String, Value> {
    let described = |schema: Value| {
        let mut kept = Map::new();
        if let Some(text) = schema.get("description") {
            kept.insert("description".into(), text.clone());
        }
        let properties: Map<String, Value> =
            (schema.get("properties").and_then(Value::as_object).into_iter().flatten())
                .filter_map(|(name, property)| {
                    Some((name.clone(), json!({"description": property.get("description")?})))
                })
                .collect();
        if !properties.is_empty() {
            kept.insert("properties".into(), properties.into());
        }
        Value::Object(kept)
    };
    (schemas().into_iter())
        .map(|(name, schema)| if name == OUTSIDE_THE_CATALOGUE { (name, schema) } else { (name, described(schema)) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_descriptions_are_current() {
        let committed = ferry_schema::openapi::built_in::schemas();
        let fresh = descriptions();
        assert!(fresh.len() > 600, "{} types", fresh.len());
        let differs = fresh.iter().find(|(name, schema)| committed.get(*name) != Some(*schema));
        assert_eq!(differs, None, "run `cargo run -p xtask -- catalogue`");
        assert_eq!(committed.len(), fresh.len(), "run `cargo run -p xtask -- catalogue`");
    }
}
