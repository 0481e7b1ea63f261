//! The controllers of the `apps` group, and ReplicationController, which is ReplicaSet's elder.

pub(crate) mod daemonset;
pub(crate) mod deployment;
pub(crate) mod replicaset;
pub(crate) mod statefulset;
