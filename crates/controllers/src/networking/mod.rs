//! The controllers of `networking.k8s.io`.

pub(crate) mod service_cidr;
