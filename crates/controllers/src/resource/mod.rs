//! The controllers of `resource.k8s.io`.

pub(crate) mod claim;
pub(crate) mod device_taint_eviction;
