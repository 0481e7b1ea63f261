//! The way to a node: its kubelet, or another port of it.

use std::fmt::Write as _;
use std::net::IpAddr;

use ferry_meta::{ApiError, GroupResource, ObjectReader, object};
use serde_json::Value;

use super::connect::{escape, rest};
use super::proxy::{Wanted, split_name, unverified_tls};
use crate::request::context::RequestContext;
use crate::server::Core;
use crate::transport::kubelet::Target;
use crate::transport::reach;

/// Where a kubelet listens unless its node says otherwise.
const KUBELET_PORT: u16 = 10250;

/// The kubelet of the pod's node.
pub(super) fn of_pod(core: &Core, pod: &Value, path: &str, parameters: &[(&str, String)]) -> Result<Target, ApiError> {
    let node = object::text(pod, "/spec/nodeName");
    if node.is_empty() {
        return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", object::name(pod))));
    }
    let mut text = path.to_owned();
    for (index, (key, value)) in parameters.iter().enumerate() {
        let _ = write!(text, "{}{key}={}", if index == 0 { '?' } else { '&' }, escape(value));
    }
    // Upstream looks for the node as if it were a pod, and says so.
    if core.cache.get(&GroupResource::new("", "nodes"), "", node).is_none() {
        return Err(ApiError::not_found(&GroupResource::new("", "pods"), node));
    }
    kubelet(core, node, text)
}

/// A node by its name, or `name:port`, or `scheme:name:port`. At any port but the kubelet's the server is a stranger.
pub(super) fn node_proxy(core: &Core, context: &RequestContext) -> Result<Target, ApiError> {
    let Wanted { secure, name, port } = split_name("node", &context.info.name)?;
    let kubelet = kubelet(core, name, rest(context))?;
    if port.is_empty() || port == kubelet.port.to_string() {
        return Ok(kubelet);
    }
    let invalid = || ApiError::bad_request(format!("invalid node request {:?}", context.info.name));
    let port = port.parse().map_err(|_| invalid())?;
    // What listens on this machine beside a kubelet may believe whoever comes from here.
    if kubelet.host.parse::<IpAddr>().is_ok_and(|address| !reach::is_own(address)) {
        return Ok(Target { port, tls: unverified_tls(secure)?, kubelet_of: None, ..kubelet });
    }
    Err(reach::not_allowed())
}

/// The kubelet of a node.
pub(crate) fn kubelet(core: &Core, name: &str, path: String) -> Result<Target, ApiError> {
    let resource = GroupResource::new("", "nodes");
    let node = core.cache.get(&resource, "", name).ok_or_else(|| ApiError::not_found(&resource, name))?;
    let addresses = object::items(&node, "/status/addresses");
    let host = ["InternalIP", "Hostname", "InternalDNS", "ExternalIP"].into_iter().find_map(|kind| {
        let found = addresses.iter().find(|a| object::text(a, "/type") == kind)?;
        Some(object::text(found, "/address").to_owned())
    });
    let Some(host) = host else {
        return Err(ApiError::internal(format!("no preferred addresses found; known addresses: {addresses:?}")));
    };
    let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0).unwrap_or(KUBELET_PORT);
    let Some(tls) = &core.kubelets.tls else {
        return Err(ApiError::unavailable("this server has no credentials for kubelets"));
    };
    Ok(Target { host, port, tls: Some(tls.clone()), kubelet_of: Some(name.to_owned()), path })
}
