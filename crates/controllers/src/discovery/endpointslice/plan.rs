//! Which slices a Service should have, changed as little as possible: one pod's change is one slice's change.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_client::owner;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

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
}

/// Slices are per address family and set of ports: named ports can differ from pod to pod.
type Ports = Vec<EndpointPort>;
/// By uid and address: a pod can be in a slice once.
type Endpoints = BTreeMap<(String, String), Endpoint>;

/// `pods` are those the Service selects, `existing` the slices of this controller for it, `zone` a node's zone.
pub(super) fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    existing: &[Arc<EndpointSlice>],
    zone: impl Fn(&str) -> Option<String>,
) -> Plan {
    let mut plan = Plan::default();
    let families = families(service, pods);
    for slice in existing {
        if !families.contains(&slice.address_type.as_str()) {
            plan.delete.push(slice.clone());
        }
    }
    for family in families {
        let mut wanted: Vec<(Ports, Endpoints)> = Vec::new();
        for pod in pods.iter().filter(|pod| !pod::is_terminal(pod)) {
            let Some(address) = endpoint::address(pod, family == "IPv6") else { continue };
            let ports = ports(service, pod);
            let entry = endpoint_of(service, pod, address, &zone);
            let key = (pod.metadata.uid.clone().unwrap_or_default(), address.to_owned());
            match wanted.iter_mut().find(|(known, _)| *known == ports) {
                Some((_, endpoints)) => {
                    endpoints.insert(key, entry);
                }
                None => wanted.push((ports, Endpoints::from([(key, entry)]))),
            }
        }
        let there: Vec<&Arc<EndpointSlice>> = existing.iter().filter(|slice| slice.address_type == family).collect();
        if wanted.is_empty() {
            // Without pods one empty slice remains, so that watchers know that there are none.
            wanted.push((Vec::new(), Endpoints::new()));
        }
        fit(service, family, wanted, &there, &mut plan);
    }
    recycle(&mut plan);
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
        target_ref: Some(ObjectReference {
            kind: Some("Pod".into()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    }
}

fn key(endpoint: &Endpoint) -> (String, String) {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone()).unwrap_or_default();
    (uid, endpoint.addresses.first().cloned().unwrap_or_default())
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
    for slice in there {
        if !wanted.iter().any(|(ports, _)| *ports == sorted_ports(slice)) {
            plan.delete.push((*slice).clone());
        }
    }
    let labels = labels(service);
    for (ports, mut missing) in wanted {
        let mut kept: Vec<Draft> = Vec::new();
        for slice in there.iter().filter(|slice| sorted_ports(slice) == ports) {
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
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        let mut json = json!({
            "metadata": { "name": "web", "namespace": "a", "uid": "s", "labels": { "own": "label" } },
            "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
        });
        for (key, value) in spec.as_object().expect("a spec") {
            json["spec"][key] = value.clone();
        }
        serde_json::from_value(json).expect("a service")
    }

    fn pod(number: usize, ready: bool) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        let json = json!({
            "metadata": { "name": format!("p{number}"), "namespace": "a", "uid": format!("u{number:04}") },
            "spec": { "nodeName": "n", "containers": [{ "name": "c", "ports": [{ "name": "http", "containerPort": 8000 + number }] }] },
            "status": {
                "phase": "Running", "podIP": format!("10.0.{}.{}", number / 250, number % 250),
                "conditions": [{ "type": "Ready", "status": ready }],
            },
        });
        Arc::new(serde_json::from_value(json).expect("a pod"))
    }

    fn zone(_: &str) -> Option<String> {
        Some("z".into())
    }

    /// Carries a plan out on the slices.
    fn apply(slices: &mut Vec<Arc<EndpointSlice>>, plan: Plan) {
        for slice in plan.delete {
            slices.retain(|known| known.metadata.name != slice.metadata.name);
        }
        for slice in plan.update {
            let known = slices.iter_mut().find(|known| known.metadata.name == slice.metadata.name).expect("a slice");
            *known = Arc::new(slice);
        }
        for mut slice in plan.create {
            slice.metadata.name = Some(format!("web-{}", slices.len()));
            slices.push(Arc::new(slice));
        }
    }

    fn sizes(slices: &[Arc<EndpointSlice>]) -> Vec<usize> {
        slices.iter().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).collect()
    }

    /// Sizes of slices after each number of pods in turn, and how many slices were written.
    fn check(numbers: &[usize], expected: &[(&[usize], usize)]) {
        let (service, mut slices) = (service(json!({})), Vec::new());
        for (number, (wanted, writes)) in numbers.iter().zip(expected) {
            let pods: Vec<Arc<Pod>> = (0..*number).map(|number| pod(number, true)).collect();
            let made = plan(&service, &pods, &slices, zone);
            let written = made.create.len() + made.update.len() + made.delete.len();
            apply(&mut slices, made);
            assert_eq!((sizes(&slices).as_slice(), written), (*wanted, *writes), "{number} of {numbers:?}");
            assert_eq!(plan(&service, &pods, &slices, zone), Plan::default(), "comes to rest");
        }
    }

    #[test]
    fn slices_fill_and_change_little() {
        check(&[0, 3, 2, 4, 0], &[(&[0], 1), (&[3], 1), (&[2], 1), (&[4], 1), (&[0], 1)]);
        check(&[250, 251, 150, 160], &[(&[100, 100, 50], 3), (&[100, 100, 51], 1), (&[100, 50], 2), (&[100, 60], 1)]);
    }

    #[test]
    fn an_endpoint_tells_all() {
        let mut going = (*pod(1, true)).clone();
        going.metadata.deletion_timestamp = Some(ferry_client::write::now());
        let pods = [pod(0, true), Arc::new(going), pod(2, false)];
        let conditions = |service: &Service| {
            let made = plan(service, &pods, &[], zone);
            let slice = made.create[0].clone();
            let list = slice.endpoints.into_iter().flatten().filter_map(|endpoint| endpoint.conditions);
            list.map(|c| (c.ready, c.serving, c.terminating)).collect::<Vec<_>>()
        };
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(conditions(&service(json!({}))), [(yes, yes, no), (no, yes, yes), (no, no, no)]);
        let eager = service(json!({ "publishNotReadyAddresses": true }));
        assert_eq!(conditions(&eager), [(yes, yes, no), (yes, yes, yes), (yes, no, no)]);
        let slice = &plan(&service(json!({ "clusterIP": "None" })), &pods, &[], zone).create[0];
        assert_eq!(slice.labels()[HEADLESS_LABEL], "");
        assert_eq!(slice.labels()["own"], "label");
        let first = &slice.endpoints.as_ref().expect("endpoints")[0];
        assert_eq!((first.node_name.as_deref(), first.zone.as_deref()), (Some("n"), Some("z")));
        assert_eq!(slice.ports.as_ref().expect("ports")[0].port, Some(8080));
    }

    #[test]
    fn named_ports_that_differ_make_slices_of_their_own() {
        let service = service(json!({ "ports": [{ "port": 80, "targetPort": "http" }] }));
        let made = plan(&service, &[pod(0, true), pod(1, true)], &[], zone);
        let ports: Vec<_> = made.create.iter().map(|slice| slice.ports.as_ref().expect("ports")[0].port).collect();
        assert_eq!(ports, [Some(8000), Some(8001)]);
    }
}
