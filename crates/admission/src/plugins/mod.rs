//! The built-in plug-ins, one file each.

mod certificates;
mod default_classes;
mod default_toleration_seconds;
mod deny_external_ips;
mod event_rate_limit;
mod limit_ranger;
mod namespace_lifecycle;
mod network_policy_warning;
mod node_restriction;
mod pod_resize;
mod pod_security;
mod pod_topology_labels;
mod priority;
mod quota;
mod runtime_class;
mod service_account;
mod storage;
mod taint_nodes;

pub(crate) use certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
};
pub(crate) use default_classes::{DefaultIngressClass, DefaultStorageClass};
pub(crate) use default_toleration_seconds::DefaultTolerationSeconds;
pub(crate) use deny_external_ips::{DenyServiceExternalIps, NAME as DENY_EXTERNAL_IPS};
pub(crate) use event_rate_limit::EventRateLimit;
pub(crate) use limit_ranger::LimitRanger;
pub(crate) use namespace_lifecycle::NamespaceLifecycle;
pub(crate) use network_policy_warning::NetworkPolicyWarning;
pub(crate) use node_restriction::NodeRestriction;
pub(crate) use pod_resize::PodResizeValidator;
pub(crate) use pod_security::{PodSecurity, Settings};
pub(crate) use pod_topology_labels::PodTopologyLabels;
pub(crate) use priority::Priority;
pub(crate) use quota::ResourceQuota;
pub(crate) use runtime_class::RuntimeClass;
pub(crate) use service_account::ServiceAccount;
pub(crate) use storage::{PersistentVolumeClaimResize, StorageObjectInUseProtection};
pub(crate) use taint_nodes::TaintNodesByCondition;
