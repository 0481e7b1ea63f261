//! The controllers of `resource.k8s.io`.

pub(crate) mod claim;
