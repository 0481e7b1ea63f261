//! The controllers of `discovery.k8s.io`.

pub(crate) mod endpointslice;
pub(crate) mod mirroring;
