//! The controllers of `rbac.authorization.k8s.io`.

pub(crate) mod clusterrole_aggregation;
