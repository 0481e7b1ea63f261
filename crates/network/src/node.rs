//! What the network wants to know of a Node object.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;

use crate::plan::Member;
use crate::wireguard::PUBLIC_KEY;

/// The node's internal addresses, pod ranges and key. What cannot be read as an address is nobody's address.
pub fn member(node: &Node) -> Member {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    let spec = node.spec.as_ref();
    let ranges = spec.and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default();
    let ranges =
        if ranges.is_empty() { spec.and_then(|spec| spec.pod_cidr.clone()).into_iter().collect() } else { ranges };
    Member {
        name: node.metadata.name.clone().unwrap_or_default(),
        addresses: internal.filter_map(|address| address.address.parse::<IpAddr>().ok()).collect(),
        public_key: node.metadata.annotations.as_ref().and_then(|notes| notes.get(PUBLIC_KEY)?.parse().ok()),
        pod_cidrs: ranges.iter().filter_map(|range| range.parse().ok()).collect(),
    }
}
