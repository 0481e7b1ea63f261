//! The group networking.k8s.io.

pub mod address;
pub mod ingress;
pub mod ingress_class;
pub mod network_policy;
