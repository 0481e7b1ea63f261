//! Which names the cluster has: Services, their endpoints and namespaces, as the informers know them.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferry_client::endpoint_slices::{Member, Slice};
use ferry_client::{Index, Informer};
use k8s_openapi::api::core::v1::{Namespace, Service, ServicePort};
use kube::ResourceExt;
use tokio::sync::watch;

#[derive(Clone)]
pub(crate) struct Cluster {
    services: Informer<Service>,
    slices: Informer<Slice>,
    namespaces: Informer<Namespace>,
    services_by_address: Index<Service>,
    slices_by_service: Index<Slice>,
    slices_by_address: Index<Slice>,
    changes: Arc<AtomicU64>,
    untold: watch::Receiver<bool>,
}

/// One address of a service with the name it has below the service's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host {
    pub(crate) address: IpAddr,
    pub(crate) name: String,
    /// Name, protocol and number of the ports it serves: a slice's are there once, however many endpoints it has.
    pub(crate) ports: Arc<[Port]>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) number: u16,
}

/// How a service answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Virtual { addresses: Vec<IpAddr>, ports: Vec<Port> },
    Headless(Vec<Host>),
    External(String),
}

impl Cluster {
    pub(crate) fn new(services: Informer<Service>, slices: Informer<Slice>, namespaces: Informer<Namespace>) -> Self {
        let services_by_address = services
            .index("dns: address", |service: &Service| addresses_of(service).iter().map(IpAddr::to_string).collect());
        let slices_by_service =
            slices.index("dns: service", |slice: &Slice| slice.service.iter().map(ToString::to_string).collect());
        let slices_by_address = slices.index("dns: address", |slice: &Slice| {
            slice.endpoints.iter().flat_map(Member::addresses).map(IpAddr::to_string).collect()
        });
        let changes = Arc::new(AtomicU64::new(0));
        count(&services, &changes);
        count(&slices, &changes);
        count(&namespaces, &changes);
        let untold = watch::channel(false).1;
        Self {
            services,
            slices,
            namespaces,
            services_by_address,
            slices_by_service,
            slices_by_address,
            changes,
            untold,
        }
    }

    /// While `untold` says so, they are at best what was known before a restart.
    pub(crate) fn untold(self, untold: watch::Receiver<bool>) -> Self {
        Self { untold, ..self }
    }

    /// Another one after each change.
    pub(crate) fn version(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.services.is_synced() && self.slices.is_synced() && self.namespaces.is_synced()
    }

    /// Whether more may be there than is known.
    pub(crate) fn is_untold(&self) -> bool {
        *self.untold.borrow()
    }

    /// Waits until all is known, or as long as that.
    pub(crate) async fn told(&self, patience: Duration) {
        let mut untold = self.untold.clone();
        drop(tokio::time::timeout(patience, untold.wait_for(|untold| !untold)).await);
    }

    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.get("", namespace).is_some()
    }

    pub(crate) fn target(&self, namespace: &str, name: &str, pod_names: bool) -> Option<Target> {
        let service = self.services.get(namespace, name)?;
        let spec = service.spec.as_ref()?;
        if spec.type_.as_deref() == Some("ExternalName") {
            return spec.external_name.clone().map(Target::External);
        }
        if is_headless(&service) {
            return Some(Target::Headless(self.hosts(namespace, name, pod_names)));
        }
        let ports = spec.ports.iter().flatten().filter_map(service_port).collect();
        Some(Target::Virtual { addresses: addresses_of(&service), ports })
    }

    /// Endpoints that are ready (which the slices also claim of those that publish addresses before readiness).
    pub(crate) fn hosts(&self, namespace: &str, name: &str, pod_names: bool) -> Vec<Host> {
        let mut hosts = Vec::new();
        for slice in self.slices_by_service.get(&format!("{namespace}/{name}")) {
            let ports: Arc<[Port]> = slice
                .ports
                .iter()
                .map(|port| Port {
                    name: port.name.to_string(),
                    protocol: port.protocol.to_ascii_lowercase(),
                    number: port.number,
                })
                .collect();
            for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.ready) {
                for address in endpoint.addresses() {
                    let name = host_name(endpoint, address, pod_names).to_ascii_lowercase();
                    hosts.push(Host { address: *address, name, ports: ports.clone() });
                }
            }
        }
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// Names for an address, relative to `svc.<zone>`: services' first, else those of endpoints that have one.
    pub(crate) fn names_of(&self, address: IpAddr, pod_names: bool) -> Vec<String> {
        let text = address.to_string();
        let services = self.services_by_address.get(&text);
        if !services.is_empty() {
            return services.iter().map(|service| relative_name(service.as_ref())).collect();
        }
        let mut names = Vec::new();
        for slice in self.slices_by_address.get(&text) {
            let Some((namespace, service)) = slice.service.as_deref().and_then(|service| service.split_once('/'))
            else {
                continue;
            };
            let headless =
                slice.is_headless || self.services.get(namespace, service).is_some_and(|service| is_headless(&service));
            for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.ready) {
                let has_name = endpoint.names().is_some_and(|names| names.hostname.is_some());
                if endpoint.addresses().contains(&address) && (headless || has_name) {
                    let host = host_name(endpoint, &address, pod_names);
                    names.push(format!("{host}.{service}.{namespace}"));
                }
            }
        }
        names.sort();
        names.dedup();
        names
    }
}

fn count<K: ferry_client::informer::Cached>(informer: &Informer<K>, changes: &Arc<AtomicU64>) {
    let changes = changes.clone();
    informer.on_change(move |_| {
        changes.fetch_add(1, Ordering::Release);
    });
}

fn relative_name(service: &Service) -> String {
    format!("{}.{}", service.name_any(), service.namespace().unwrap_or_default())
}

fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None"))
}

fn addresses_of(service: &Service) -> Vec<IpAddr> {
    let Some(spec) = &service.spec else { return Vec::new() };
    match &spec.cluster_ips {
        Some(list) if !list.is_empty() => list.iter().filter_map(|text| text.parse().ok()).collect(),
        _ => spec.cluster_ip.iter().filter_map(|text| text.parse().ok()).collect(),
    }
}

fn service_port(port: &ServicePort) -> Option<Port> {
    Some(Port {
        name: port.name.clone().unwrap_or_default(),
        protocol: port.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase(),
        number: u16::try_from(port.port).ok()?,
    })
}

/// The label of an endpoint: its own, perhaps that of its pod, else its address.
fn host_name(endpoint: &Member, address: &IpAddr, pod_names: bool) -> String {
    let names = endpoint.names();
    let own = names.and_then(|names| names.hostname.as_deref());
    let pod = || names.filter(|_| pod_names)?.target.as_deref();
    own.or_else(pod).map_or_else(|| dashed(address), str::to_owned)
}

/// An address as one label: `10-244-0-5`.
pub(crate) fn dashed(address: &IpAddr) -> String {
    let label = address.to_string().replace(['.', ':'], "-");
    // A label does not end with a dash.
    if label.ends_with('-') { label + "0" } else { label }
}

/// The address that a label of that form names; IPv6 where it cannot be IPv4.
pub(crate) fn undashed(label: &str) -> Option<IpAddr> {
    label.replace('-', ".").parse().ok().or_else(|| label.replace('-', ":").parse().ok())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::{Value, json};

    fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).expect("an object")
    }

    /// A cluster with a Service of each sort in `default`.
    pub(crate) fn sample() -> Cluster {
        let (services, slices, namespaces) = (Informer::detached(), Informer::detached(), Informer::detached());
        let meta = |name: &str| json!({"name": name, "namespace": "default"});
        let ports =
            json!([{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
        for spec in [
            json!({"metadata": meta("web"), "spec": {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": ports}}),
            json!({"metadata": meta("dual"), "spec": {"clusterIP": "10.96.0.8", "clusterIPs": ["10.96.0.8", "fd00::8"], "ports": ports}}),
            json!({"metadata": meta("db"), "spec": {"clusterIP": "None", "ports": ports}}),
            json!({"metadata": meta("empty"), "spec": {"clusterIP": "None"}}),
            json!({"metadata": meta("ext"), "spec": {"type": "ExternalName", "externalName": "Elsewhere.example."}}),
            json!({"metadata": meta("inner"), "spec": {"type": "ExternalName", "externalName": "web.default.svc.cluster.local"}}),
            json!({"metadata": meta("loop"), "spec": {"type": "ExternalName", "externalName": "loop.default.svc.cluster.local"}}),
        ] {
            services.apply(parse(spec));
        }
        let slice = |service: &str, endpoints: Value| {
            json!({
                "metadata": {"name": format!("{service}-1"), "namespace": "default", "labels": {"kubernetes.io/service-name": service}},
                "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            })
        };
        let parse_slice = |value| Slice::from(parse::<EndpointSlice>(value));
        slices.apply(parse_slice(slice("web", json!([{"addresses": ["10.244.0.9"]}]))));
        let members = json!([
            {"addresses": ["10.244.0.5"], "hostname": "db-0"}, {"addresses": ["10.244.0.6"]},
            {"addresses": ["10.244.0.7"], "hostname": "db-2", "conditions": {"ready": false}},
        ]);
        slices.apply(parse_slice(slice("db", members)));
        namespaces.apply(parse(json!({"metadata": {"name": "default"}})));
        services.mark_synced();
        slices.mark_synced();
        namespaces.mark_synced();
        Cluster::new(services, slices, namespaces)
    }

    /// A headless Service `many` in `default`, with this slice.
    pub(crate) fn headless(endpoints: Value, ports: Value) -> Cluster {
        let (services, slices, namespaces) = (Informer::detached(), Informer::detached(), Informer::detached());
        let meta = json!({"name": "many", "namespace": "default", "labels": {"kubernetes.io/service-name": "many"}});
        services.apply(parse(json!({"metadata": meta, "spec": {"clusterIP": "None"}})));
        let slice = json!({"metadata": meta, "addressType": "IPv4", "endpoints": endpoints, "ports": ports});
        slices.apply(Slice::from(parse::<EndpointSlice>(slice)));
        namespaces.apply(parse(json!({"metadata": {"name": "default"}})));
        services.mark_synced();
        slices.mark_synced();
        namespaces.mark_synced();
        Cluster::new(services, slices, namespaces)
    }

    #[test]
    fn labels_and_addresses_convert_both_ways() {
        for (address, label) in [("10.244.0.5", "10-244-0-5"), ("fd00::8", "fd00--8"), ("fd00::", "fd00--0")] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(dashed(&address), label);
            assert_eq!(undashed(label), Some(address));
        }
        assert_eq!(undashed("web"), None);
    }
}
