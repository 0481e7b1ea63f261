//! How each kind is read from and written to the wire.
//!
//! A decoder of a large kind is some thousand functions, and a generic one is compiled anew in every crate that calls
//! it. Here each is compiled once: whoever needs another kind adds it to the list.

use std::marker::PhantomData;

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
    authentication::v1::{TokenRequest, TokenReview},
    authorization::v1::SubjectAccessReview,
    autoscaling::v1::Scale,
    autoscaling::v2::HorizontalPodAutoscaler,
    batch::v1::{CronJob, Job},
    certificates::v1::{CertificateSigningRequest, ClusterTrustBundle, PodCertificateRequest},
    coordination::v1::Lease,
    core::v1::{
        ConfigMap, Endpoints, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplateSpec,
        ReplicationController, ResourceQuota, Secret, Service, ServiceAccount,
    },
    discovery::v1::EndpointSlice,
    networking::v1::{IPAddress, Ingress, IngressClass, ServiceCIDR},
    node::v1::RuntimeClass,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice},
    storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment, VolumeAttributesClass},
    storagemigration::v1::StorageVersionMigration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::core::{DynamicObject, PartialObjectMeta};
use serde::Deserialize;

/// A kind, or a part of one, with its JSON form.
pub trait Wire: Sized {
    /// Only the metadata of such an object is asked for.
    const METADATA_ONLY: bool = false;

    fn decode(json: &[u8]) -> Result<Self, serde_json::Error>;
    fn encode(&self) -> Result<Vec<u8>, serde_json::Error>;
}

macro_rules! kinds {
    ($($kind:ty;)*) => { $(
        impl Wire for $kind {
            #[inline(never)]
            fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
                serde_json::from_slice(json)
            }

            #[inline(never)]
            fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
                serde_json::to_vec(self)
            }
        }
    )* };
}

kinds! {
    APIService;
    CSIDriver;
    CSINode;
    CertificateSigningRequest;
    ClusterRole;
    ClusterRoleBinding;
    ClusterTrustBundle;
    ConfigMap;
    ControllerRevision;
    CronJob;
    CustomResourceDefinition;
    DaemonSet;
    Deployment;
    DeviceClass;
    DeviceTaintRule;
    EndpointSlice;
    Endpoints;
    Event;
    HorizontalPodAutoscaler;
    IPAddress;
    Ingress;
    IngressClass;
    Job;
    Lease;
    Namespace;
    Node;
    PersistentVolume;
    PersistentVolumeClaim;
    Pod;
    PodCertificateRequest;
    PodDisruptionBudget;
    PodTemplateSpec;
    ReplicaSet;
    ReplicationController;
    ResourceClaim;
    ResourceClaimTemplate;
    ResourceQuota;
    ResourceSlice;
    Role;
    RoleBinding;
    RuntimeClass;
    Scale;
    Secret;
    Service;
    ServiceAccount;
    ServiceCIDR;
    StatefulSet;
    StorageClass;
    StorageVersionMigration;
    SubjectAccessReview;
    TokenRequest;
    TokenReview;
    ValidatingAdmissionPolicy;
    VolumeAttachment;
    VolumeAttributesClass;
    DynamicObject;
}

/// All that is read of it. Its kind is known to who asked, and kube's own way to it copies the whole object first.
#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl Wire for PartialObjectMeta<DynamicObject> {
    const METADATA_ONLY: bool = true;

    fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
        let Metadata { metadata } = serde_json::from_slice(json)?;
        Ok(Self { types: None, metadata, _phantom: PhantomData })
    }

    fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }
}
