//! Which slices a Service should have, changed as little as possible: one pod's change is one slice's change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ferry_client::owner;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::hints::{self, Mode, Shares};
use crate::common::{endpoint, pod};

pub(in crate::discovery) const SERVICE_LABEL: &str = "kubernetes.io/service-name";
pub(in crate::discovery) const MANAGER_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
pub(super) const PER_SLICE: usize = 100;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<Arc<EndpointSlice>>,
    /// By address family, for Services that share endpoints out by zone: why they are not.
    pub(super) unshared: Vec<(String, String)>,
}

/// Slices are per address family and set of ports: named ports can differ from pod to pod.
type Ports = Vec<EndpointPort>;
/// What two equal sets of ports have in common: as many as there are pods may differ.
type PortsKey = Vec<(Option<String>, Option<i32>, Option<String>, Option<String>)>;
/// By uid and address: a pod can be in a slice once.
type Endpoints = BTreeMap<(String, String), Endpoint>;

/// `pods` are those the Service selects, `existing` the slices of this controller for it, `zone` a node's zone, `shares` those of
/// zones in the processors of all nodes.
pub(super) fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    existing: &[Arc<EndpointSlice>],
    zone: impl Fn(&str) -> Option<String>,
    shares: impl Fn() -> Shares,
) -> Plan {
    let mut plan = Plan::default();
    let families = families(service, pods);
    // Those of a Service that had the same name go with it: whoever collects them would take what is in them along.
    let (existing, foreign): (Vec<_>, Vec<_>) =
        existing.iter().cloned().partition(|slice| owner::is_owned_by(&**slice, service));
    for slice in &existing {
        if !families.contains(&slice.address_type.as_str()) {
            plan.delete.push(slice.clone());
        }
    }
    for family in families {
        let mut wanted: Vec<(Ports, Endpoints)> = Vec::new();
        let mut places: HashMap<PortsKey, usize> = HashMap::new();
        for pod in pods.iter().filter(|pod| !pod::is_terminal(pod)) {
            let Some(address) = endpoint::address(pod, family == "IPv6") else { continue };
            let ports = ports(service, pod);
            let entry = endpoint_of(service, pod, address, &zone);
            let key = (pod.metadata.uid.clone().unwrap_or_default(), address.to_owned());
            let place = *places.entry(ports_key(&ports)).or_insert(wanted.len());
            if place == wanted.len() {
                wanted.push((ports, Endpoints::new()));
            }
            wanted[place].1.insert(key, entry);
        }
        let there: Vec<&Arc<EndpointSlice>> = existing.iter().filter(|slice| slice.address_type == family).collect();
        let mode = hints::mode(service);
        if mode != Mode::All {
            let known = there.iter().flat_map(|slice| slice.endpoints.iter().flatten());
            let mut before: HashMap<(String, String), String> =
                known.filter_map(|one| Some((key(one), hints::zone_of(one)?.to_owned()))).collect();
            let all = wanted.iter_mut().flat_map(|(_, endpoints)| endpoints.iter_mut());
            let mut all: Vec<_> = all.map(|(key, endpoint)| (endpoint, before.remove(key))).collect();
            if let Err(why) = hints::assign(mode, &mut all, &shares) {
                plan.unshared.push((family.to_owned(), why));
            }
        }
        if wanted.is_empty() {
            // Without pods one empty slice remains, so that watchers know that there are none.
            wanted.push((Vec::new(), Endpoints::new()));
        }
        fit(service, family, wanted, &there, &mut plan);
    }
    recycle(&mut plan);
    plan.delete.extend(foreign);
    plan
}

/// A slice that would go serves as one that would be new: watchers see one change instead of two.
fn recycle(plan: &mut Plan) {
    let mut fresh = Vec::new();
    for slice in std::mem::take(&mut plan.create) {
        match plan.delete.iter().position(|old| old.address_type == slice.address_type) {
            None => fresh.push(slice),
            Some(at) => {
                let old = plan.delete.remove(at);
                let mut reused = EndpointSlice { metadata: old.metadata.clone(), ..slice.clone() };
                reused.metadata.labels = slice.metadata.labels;
                reused.metadata.owner_references = slice.metadata.owner_references;
                plan.update.push(reused);
            }
        }
    }
    plan.create = fresh;
}

fn families<'a>(service: &'a Service, pods: &[Arc<Pod>]) -> Vec<&'a str> {
    let asked = service.spec.as_ref().and_then(|spec| spec.ip_families.as_ref()).filter(|list| !list.is_empty());
    if let Some(asked) = asked {
        return asked.iter().map(String::as_str).collect();
    }
    let ipv6_only = !pods.is_empty()
        && pods.iter().all(|pod| endpoint::address(pod, false).is_none() && endpoint::has_address(pod));
    vec![if ipv6_only { "IPv6" } else { "IPv4" }]
}

fn ports(service: &Service, pod: &Pod) -> Ports {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let mut made: Ports = ports
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(endpoint::target_port(port, pod)?),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".into())),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect();
    made.sort_by(|one, other| (&one.name, one.port, &one.protocol).cmp(&(&other.name, other.port, &other.protocol)));
    made
}

fn endpoint_of(service: &Service, pod: &Pod, address: &str, zone: &impl Fn(&str) -> Option<String>) -> Endpoint {
    let (serving, terminating) = (pod::is_ready(pod), pod::is_terminating(pod));
    let node = pod::node(pod);
    Endpoint {
        addresses: vec![address.to_owned()],
        conditions: Some(EndpointConditions {
            ready: Some(endpoint::tolerates_unready(service) || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: endpoint::hostname(service, pod),
        node_name: (!node.is_empty()).then(|| node.to_owned()),
        zone: if node.is_empty() { None } else { zone(node) },
        target_ref: Some(endpoint::target_ref(pod)),
        ..Endpoint::default()
    }
}

fn key(endpoint: &Endpoint) -> (String, String) {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone()).unwrap_or_default();
    (uid, endpoint.addresses.first().cloned().unwrap_or_default())
}

fn ports_key(ports: &Ports) -> PortsKey {
    let parts = |port: &EndpointPort| (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone());
    ports.iter().map(parts).collect()
}

fn sorted_ports(slice: &EndpointSlice) -> Ports {
    let mut ports = slice.ports.clone().unwrap_or_default();
    for port in &mut ports {
        port.name.get_or_insert_default();
        port.protocol.get_or_insert_with(|| "TCP".into());
    }
    ports.sort_by(|one, other| (&one.name, one.port, &one.protocol).cmp(&(&other.name, other.port, &other.protocol)));
    ports
}

/// Distributes what is wanted over the slices there are, then over new ones.
fn fit(
    service: &Service,
    family: &str,
    wanted: Vec<(Ports, Endpoints)>,
    there: &[&Arc<EndpointSlice>],
    plan: &mut Plan,
) {
    let mut by_ports: HashMap<PortsKey, Vec<&Arc<EndpointSlice>>> =
        wanted.iter().map(|(ports, _)| (ports_key(ports), Vec::new())).collect();
    for slice in there {
        match by_ports.get_mut(&ports_key(&sorted_ports(slice))) {
            Some(of_ports) => of_ports.push(slice),
            None => plan.delete.push((*slice).clone()),
        }
    }
    let labels = labels(service);
    for (ports, mut missing) in wanted {
        let mut kept: Vec<Draft> = Vec::new();
        for slice in by_ports.remove(&ports_key(&ports)).unwrap_or_default() {
            kept.push(Draft::keep(slice, &mut missing, &labels));
        }
        let mut missing: Vec<Endpoint> = missing.into_values().collect();
        // Slices that change anyway take new endpoints first, then one that has room for all that is left.
        for draft in kept.iter_mut().filter(|draft| draft.changed && !draft.endpoints.is_empty()) {
            draft.take(&mut missing);
        }
        if !missing.is_empty() {
            let roomy = kept.iter_mut().filter(|draft| draft.endpoints.len() + missing.len() <= PER_SLICE);
            if let Some(draft) = roomy.max_by_key(|draft| draft.endpoints.len()) {
                draft.take(&mut missing);
            }
        }
        let used = kept.iter().filter(|draft| !draft.endpoints.is_empty()).count();
        let mut empty_one_needed = used == 0 && missing.is_empty();
        for draft in kept {
            if draft.endpoints.is_empty() && !std::mem::take(&mut empty_one_needed) {
                plan.delete.push(draft.was);
            } else if draft.changed {
                plan.update.push(draft.slice(&labels));
            }
        }
        if empty_one_needed {
            plan.create.push(slice(service, family, &ports, &labels, Vec::new()));
        }
        while !missing.is_empty() {
            let rest = missing.split_off(missing.len().min(PER_SLICE));
            plan.create.push(slice(service, family, &ports, &labels, missing));
            missing = rest;
        }
    }
}

/// An existing slice while planning.
struct Draft {
    was: Arc<EndpointSlice>,
    endpoints: Vec<Endpoint>,
    changed: bool,
}

impl Draft {
    /// Keeps those endpoints that are still wanted, in their newest state, and takes them off the list.
    fn keep(slice: &Arc<EndpointSlice>, missing: &mut Endpoints, labels: &BTreeMap<String, String>) -> Self {
        let mut draft = Self { was: slice.clone(), endpoints: Vec::new(), changed: slice.labels() != labels };
        for endpoint in slice.endpoints.iter().flatten() {
            match missing.remove(&key(endpoint)) {
                Some(wanted) => {
                    draft.changed |= wanted != *endpoint;
                    draft.endpoints.push(wanted);
                }
                None => draft.changed = true,
            }
        }
        draft
    }

    fn take(&mut self, missing: &mut Vec<Endpoint>) {
        let room = PER_SLICE.saturating_sub(self.endpoints.len());
        self.changed |= room > 0 && !missing.is_empty();
        self.endpoints.extend(missing.drain(..missing.len().min(room)));
    }

    fn slice(&self, labels: &BTreeMap<String, String>) -> EndpointSlice {
        let mut slice = (*self.was).clone();
        slice.endpoints = Some(self.endpoints.clone());
        slice.metadata.labels = Some(labels.clone());
        slice
    }
}

/// The Service's labels and those that say whose slice it is.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.labels().clone();
    labels.remove(HEADLESS_LABEL);
    if endpoint::is_headless(service) {
        labels.insert(HEADLESS_LABEL.into(), String::new());
    }
    labels.insert(SERVICE_LABEL.into(), service.name_any());
    labels.insert(MANAGER_LABEL.into(), MANAGER.into());
    labels
}

fn slice(
    service: &Service,
    family: &str,
    ports: &Ports,
    labels: &BTreeMap<String, String>,
    endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    let name = service.name_any();
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(if name.len() < 253 { format!("{name}-") } else { name }),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels.clone()),
            owner_references: Some(vec![owner::controller_reference(service)]),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        endpoints: Some(endpoints),
        ports: Some(ports.clone()),
    }
}

#[cfg(test)]
mod tests;
