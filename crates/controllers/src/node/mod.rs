//! The controllers that care for nodes and what is bound to them.

pub(crate) mod ipam;
pub(crate) mod lifecycle;
pub(crate) mod pod_gc;
pub(crate) mod taint_eviction;
pub(crate) mod ttl;

use ferry_client::{Index, Informer};
use k8s_openapi::api::core::v1::Pod;

use crate::common::pod;

/// Pods by the node they are bound to.
pub(crate) fn pods_by_node(pods: &Informer<Pod>) -> Index<Pod> {
    pods.index("node", |pod| vec![pod::node(pod).to_owned()])
}
