//! `proxy` of pods and Services: where a request goes to, and TLS to servers that show whatever certificate they have.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use ferry_meta::{ApiError, GroupResource, ObjectReader, object};
use ferry_registry::Resource;
use rand::seq::IndexedRandom;
use serde_json::Value;

use super::connect::rest;
use crate::request::context::RequestContext;
use crate::server::Core;
use crate::storage::objects;
use crate::transport::kubelet::Target;
use crate::transport::reach;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    pub secure: bool,
    pub name: &'a str,
    pub port: &'a str,
}

/// `name`, `name:port` or `scheme:name:port`.
pub(super) fn split_name<'a>(kind: &str, name: &'a str) -> Result<Wanted<'a>, ApiError> {
    let wanted = match name.split(':').collect::<Vec<_>>().as_slice() {
        [name] => Wanted { secure: false, name, port: "" },
        [name, port] | ["http" | "", name, port] => Wanted { secure: false, name, port },
        ["https", name, port] => Wanted { secure: true, name, port },
        _ => Wanted { secure: false, name: "", port: "" },
    };
    if wanted.name.is_empty() {
        return Err(ApiError::bad_request(format!("invalid {kind} request {name:?}")));
    }
    Ok(wanted)
}

/// The addresses a pod says it has.
fn pod_addresses(pod: &Value) -> impl Iterator<Item = IpAddr> {
    object::items(pod, "/status/podIPs").iter().filter_map(|item| object::text(item, "/ip").parse().ok())
}

/// Whether the server goes to this address for that pod. An address of this machine is the pod's only if the pod is on its
/// network, and then only the ports are that it says are its own.
fn may_reach(pod: &Value, address: IpAddr, port: u16) -> bool {
    if !reach::is_global_unicast(address) {
        return false;
    }
    let on_the_host = pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true));
    let declares = || {
        let ports = object::items(pod, "/spec/containers").iter().flat_map(|c| object::items(c, "/ports"));
        ports.into_iter().any(|declared| declared.get("containerPort").and_then(Value::as_u64) == Some(port.into()))
    };
    !reach::is_own(address) || (on_the_host && declares())
}

pub(super) async fn pod(core: &Core, context: &RequestContext, row: &Resource) -> Result<Target, ApiError> {
    let Wanted { secure, name, port } = split_name("pod", &context.info.name)?;
    let pod = objects::must_load(core, row, &context.info.namespace, name).await?.object;
    let mut declared = object::items(&pod, "/spec/containers").iter().flat_map(|c| object::items(c, "/ports"));
    let port = match port {
        "" => match declared.next().and_then(|port| port.get("containerPort")?.as_u64()) {
            Some(first) => u16::try_from(first).ok(),
            None => Some(if secure { 443 } else { 80 }),
        },
        text => text.parse().ok(),
    };
    let port = port.ok_or_else(|| ApiError::bad_request(format!("invalid pod request {:?}", context.info.name)))?;
    match pod_addresses(&pod).next().filter(|address| may_reach(&pod, *address, port)) {
        Some(address) => to_pod(context, address, port, secure),
        None => Err(reach::not_allowed()),
    }
}

fn to_pod(context: &RequestContext, address: IpAddr, port: u16, secure: bool) -> Result<Target, ApiError> {
    let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
    Ok(Target { host, port, tls: unverified_tls(secure)?, kubelet_of: None, path: rest(context) })
}

/// A ready endpoint of the Service, at the port that is named, numbered, or the only one. Slices are anyone's to write who
/// may write in the namespace: an endpoint counts if it is a pod there that has this address.
pub(super) fn service(core: &Core, context: &RequestContext) -> Result<Target, ApiError> {
    let Wanted { secure, name, port: wanted } = split_name("service", &context.info.name)?;
    let namespace = &context.info.namespace;
    let (services, pods) = (GroupResource::new("", "services"), GroupResource::new("", "pods"));
    let missing = || ApiError::unavailable(format!("no endpoints available for service {name:?}"));
    let service = core.cache.get(&services, namespace, name).ok_or_else(missing)?;
    let ports = object::items(&service, "/spec/ports");
    let number = |p: &Value| p.get("port").and_then(Value::as_u64).unwrap_or(0).to_string();
    let chosen = match ports {
        [one] if wanted.is_empty() => Some(one),
        many => many.iter().find(|p| object::text(p, "/name") == wanted || number(p) == wanted),
    };
    let port_name = object::text(chosen.ok_or_else(missing)?, "/name");
    let mut found = Vec::new();
    for slice in core.cache.list(&GroupResource::new("discovery.k8s.io", "endpointslices"), namespace) {
        if object::labels(&slice).get("kubernetes.io/service-name").and_then(Value::as_str) != Some(name) {
            continue;
        }
        let port = object::items(&slice, "/ports").iter().find(|p| object::text(p, "/name") == port_name);
        let Some(port) = port.and_then(|p| p.get("port")?.as_u64()).and_then(|p| u16::try_from(p).ok()) else {
            continue;
        };
        for endpoint in object::items(&slice, "/endpoints") {
            let ready = endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false));
            if ready
                && let Some(address) =
                    endpoint_address(endpoint, namespace, |pod| core.cache.get(&pods, namespace, pod), port)
            {
                found.push((address, port));
            }
        }
    }
    let (address, port) = *found.choose(&mut rand::rng()).ok_or_else(missing)?;
    to_pod(context, address, port, secure)
}

/// The endpoint's address, if it is that of the pod of this namespace that it names.
fn endpoint_address<P: std::ops::Deref<Target = Value>>(
    endpoint: &Value,
    namespace: &str,
    pod: impl Fn(&str) -> Option<P>,
    port: u16,
) -> Option<IpAddr> {
    let address: IpAddr = endpoint.pointer("/addresses/0")?.as_str()?.parse().ok()?;
    let target = endpoint.get("targetRef")?;
    if object::text(target, "/namespace") != namespace || object::text(target, "/kind") != "Pod" {
        return None;
    }
    let pod = pod(object::text(target, "/name"))?;
    let its_own = pod_addresses(&pod).any(|own| own == address) && may_reach(&pod, address, port);
    its_own.then_some(address)
}

/// Certificates of pods are signed by whoever made them; as upstream, the proxy looks at none.
pub(super) fn unverified_tls(secure: bool) -> Result<Option<Arc<rustls::ClientConfig>>, ApiError> {
    static CONFIG: OnceLock<Option<Arc<rustls::ClientConfig>>> = OnceLock::new();
    if !secure {
        return Ok(None);
    }
    let config = CONFIG.get_or_init(|| ferry_tls::unverified_client().ok());
    config.clone().map(Some).ok_or_else(|| ApiError::internal("TLS cannot be set up"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_may_carry_scheme_and_port() {
        for (text, want) in [
            ("web", Some((false, "web", ""))),
            ("web:80", Some((false, "web", "80"))),
            ("http:web:80", Some((false, "web", "80"))),
            ("https:web:", Some((true, "web", ""))),
            ("https:web:443", Some((true, "web", "443"))),
            (":web:443", Some((false, "web", "443"))),
            ("ftp:web:21", None),
            ("https::443", None),
            (":", None),
            ("a:b:c:d", None),
        ] {
            assert_eq!(split_name("pod", text).ok().map(|w| (w.secure, w.name, w.port)), want, "{text}");
        }
        assert!(unverified_tls(true).is_ok_and(|config| config.is_some()));
    }

    #[test]
    fn an_endpoint_is_a_pod_of_the_namespace_at_its_own_address() {
        let pod = |address: &str, host: bool| {
            json!({"spec": {"hostNetwork": host, "containers": [{"ports": [{"containerPort": 8080}]}]},
                "status": {"podIPs": [{"ip": "192.0.2.9"}, {"ip": address}]}})
        };
        let target = json!({"kind": "Pod", "namespace": "a", "name": "p"});
        let check = |endpoint: Value, pod: Value, port: u16, want: Option<&str>| {
            let found = |name: &str| (name == "p").then(|| Arc::new(pod.clone()));
            let got = endpoint_address(&endpoint, "a", found, port);
            assert_eq!(got.map(|ip| ip.to_string()).as_deref(), want, "{endpoint} {pod} {port}");
        };
        let at = |address: &str, target: &Value| json!({"addresses": [address], "targetRef": target});
        check(at("192.0.2.1", &target), pod("192.0.2.1", false), 80, Some("192.0.2.1"));
        // Not a pod's, another namespace's, another pod's, another address, a name.
        check(json!({"addresses": ["192.0.2.1"]}), pod("192.0.2.1", false), 80, None);
        check(
            at("192.0.2.1", &json!({"kind": "Pod", "namespace": "b", "name": "p"})),
            pod("192.0.2.1", false),
            80,
            None,
        );
        check(
            at("192.0.2.1", &json!({"kind": "Node", "namespace": "a", "name": "p"})),
            pod("192.0.2.1", false),
            80,
            None,
        );
        check(
            at("192.0.2.1", &json!({"kind": "Pod", "namespace": "a", "name": "q"})),
            pod("192.0.2.1", false),
            80,
            None,
        );
        check(at("192.0.2.2", &target), pod("192.0.2.1", false), 80, None);
        check(at("metadata.internal", &target), pod("192.0.2.1", false), 80, None);
        // Addresses that no pod has, whatever its status says.
        for address in ["127.0.0.1", "169.254.169.254", "::1", "0.0.0.0"] {
            check(at(address, &target), pod(address, false), 8080, None);
            check(at(address, &target), pod(address, true), 8080, None);
        }
    }
}
