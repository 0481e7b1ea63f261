//! Cluster IPs and node ports of Services.
//!
//! What is handed out is written in the same transaction as the Service: an IPAddress object per address and a marker key
//! per port. Two writers that choose the same one collide on that key, so there is no state in memory that could go stale,
//! and nothing to repair after a crash: only what was deleted by hand, and what an earlier release forgot.

mod ranges;
mod repair;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferry_meta::{ApiError, FieldError, GroupResource, GroupVersionKind, ObjectReader, Path, object, time};
use ferry_registry::Resource;
use ferry_registry::core::service as service_rules;
use ferry_registry::cursor::Cursor;
use ferry_store::{Entry, Op, Range};
use rand::Rng;
use serde_json::{Value, json};

use crate::server::Core;
use crate::storage::{codec, objects};

pub(crate) use ranges::DEFAULT;
pub use ranges::{BadNetwork, ServiceNetwork};
pub(crate) use repair::run as repair;

const ADDRESS_PREFIX: &str = "/registry/ipaddresses/";
const PORT_PREFIX: &str = "/registry/ranges/servicenodeports/";

/// What one write of a Service takes and gives back.
#[derive(Default)]
pub(crate) struct Allocation {
    addresses: Changes<String>,
    ports: Changes<i64>,
    /// Nothing is taken in the end, and refusals have other words.
    dry_run: bool,
    /// How often a chosen one was taken.
    lost: usize,
}

/// What becomes of the addresses, or of the ports.
#[derive(Default)]
struct Changes<T> {
    /// What the Service had before.
    had: BTreeSet<T>,
    taken: BTreeSet<T>,
    released: BTreeSet<T>,
    /// Of those that are taken: what was chosen here and is not the client's wish. Another is tried when somebody took it.
    chosen: BTreeSet<T>,
    /// What others are known to have, so that a second try does not take it again.
    in_use: BTreeSet<T>,
}

impl<T: Ord + Clone + Default> Changes<T> {
    fn since(had: BTreeSet<T>) -> Self {
        Self { had, ..Self::default() }
    }

    fn until(&mut self, now: &BTreeSet<T>) {
        self.taken = now.difference(&self.had).cloned().collect();
        self.released = self.had.difference(now).cloned().collect();
    }

    fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.released.is_empty()
    }
}

fn addresses(service: &Value) -> BTreeSet<String> {
    object::items(service, "/spec/clusterIPs")
        .iter()
        .filter_map(Value::as_str)
        .filter(|a| a.parse::<IpAddr>().is_ok())
        .map(str::to_owned)
        .collect()
}

fn ports(service: &Value) -> BTreeSet<i64> {
    let listed = object::items(service, "/spec/ports").iter().filter_map(|p| p.get("nodePort")?.as_i64());
    listed.chain([health_port(service)]).filter(|p| *p > 0).collect()
}

/// Fills in what a Service needs and does not have. `old` is None for a new one.
pub(super) fn of_service(
    core: &Core,
    row: &Resource,
    service: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Allocation, ApiError> {
    default_families(core, row, service, old)?;
    let mut allocation = Allocation {
        addresses: Changes::since(old.map(addresses).unwrap_or_default()),
        ports: Changes::since(old.map(ports).unwrap_or_default()),
        dry_run,
        lost: 0,
    };
    allocation.choose(core, row, service)?;
    allocation.addresses.until(&addresses(service));
    allocation.ports.until(&ports(service));
    Ok(allocation)
}

fn default_families(core: &Core, row: &Resource, service: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
    let errors = service_rules::default_families(service, old, &core.service_network.families());
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(&row.group_kind(), object::name(service), &errors)) }
}

/// What the deletion of a Service gives back.
pub(super) async fn releases(core: &Core, old: &Value) -> Result<Vec<Op>, ApiError> {
    release(core, old, &addresses(old), &ports(old)).await
}

/// Whose a port is: the value of its marker.
fn owner(service: &Value) -> String {
    format!("{}/{}", object::namespace(service), object::name(service))
}

/// Whether the IPAddress or the marker is there for this Service.
fn is_own(entry: &Entry, service: &Value) -> bool {
    if entry.key.starts_with(PORT_PREFIX) {
        return entry.value == owner(service).as_bytes();
    }
    let Ok(address) = codec::decode_stored(&entry.value) else { return true };
    let parent = |field: &str| object::text(&address, &format!("/spec/parentRef/{field}")).to_owned();
    format!("{}/{}", parent("namespace"), parent("name")) == owner(service)
}

/// A marker that is gone already needs no release, and one of another Service stays.
async fn release(
    core: &Core,
    service: &Value,
    addresses: &BTreeSet<String>,
    ports: &BTreeSet<i64>,
) -> Result<Vec<Op>, ApiError> {
    let keys = addresses.iter().map(|a| format!("{ADDRESS_PREFIX}{a}"));
    let mut ops = Vec::new();
    for key in keys.chain(ports.iter().map(|p| format!("{PORT_PREFIX}{p}"))) {
        let got = core.store.get(&key).await.map_err(|e| objects::store_error(&e))?;
        let own = got.entry.filter(|entry| is_own(entry, service));
        ops.extend(own.map(|entry| Op::Delete { key, expected: entry.modified }));
    }
    Ok(ops)
}

impl Allocation {
    /// Fills in what the Service needs and does not have.
    fn choose(&mut self, core: &Core, row: &Resource, service: &mut Value) -> Result<(), ApiError> {
        let needs_address = matches!(object::text(service, "/spec/type"), "ClusterIP" | "NodePort" | "LoadBalancer");
        if needs_address && object::text(service, "/spec/clusterIP") != "None" {
            self.choose_addresses(core, row, service)?;
        }
        // Nothing is taken for a dry run, and so nothing is looked at.
        if wants_ports(service) && !self.dry_run {
            check_ports(core, row, service)?;
        }
        self.choose_ports(core, service)
    }

    /// Node ports for those that have none, then the port of the health check. Asked again after a port was lost.
    fn choose_ports(&mut self, core: &Core, service: &mut Value) -> Result<(), ApiError> {
        if wants_ports(service) {
            self.choose_listed_ports(core, service)?;
        }
        if health_port(service) == 0 && service_rules::needs_health_check_port(&Cursor::root(service)) {
            let port = self.free_port(core, &self.unavailable_ports(service))?;
            object::child_mut(service, "spec").insert("healthCheckNodePort".into(), port.into());
        }
        Ok(())
    }

    fn unavailable_ports(&self, service: &Value) -> BTreeSet<i64> {
        let mut used = ports(service);
        used.extend(self.ports.had.union(&self.ports.in_use));
        used
    }

    /// One address of each family, in the order of the families.
    fn choose_addresses(&mut self, core: &Core, row: &Resource, service: &mut Value) -> Result<(), ApiError> {
        let texts = |pointer: &str| -> Vec<String> {
            object::items(service, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let (families, mut list) = (texts("/spec/ipFamilies"), texts("/spec/clusterIPs"));
        for (index, family) in families.iter().enumerate() {
            match list.get(index).filter(|address| !address.is_empty()).cloned() {
                Some(address) => self.check_address(core, row, service, family, &address)?,
                None => {
                    let chosen = self.free_address(core, service, family)?.to_string();
                    list.resize(list.len().max(index + 1), String::new());
                    list[index].clone_from(&chosen);
                    self.addresses.chosen.insert(chosen);
                }
            }
        }
        let spec = object::child_mut(service, "spec");
        spec.insert("clusterIP".into(), list.first().cloned().unwrap_or_default().into());
        spec.insert("clusterIPs".into(), list.into());
        Ok(())
    }

    /// An address that is not known to be in use; the transaction has the last word.
    fn free_address(&self, core: &Core, service: &Value, family: &str) -> Result<IpAddr, ApiError> {
        let addresses = GroupResource::new("networking.k8s.io", "ipaddresses");
        let taken = |address: IpAddr| {
            let name = address.to_string();
            self.addresses.in_use.contains(&name) || core.cache.get(&addresses, "", &name).is_some()
        };
        let ranges = ranges::usable(&core.service_network, &*core.cache, family);
        ranges.into_iter().find_map(|range| range.free(taken)).ok_or_else(|| {
            let name = object::name(service);
            ApiError::internal(format!("failed to allocate a serviceIP for Service {name:?}: range is full"))
        })
    }

    fn check_address(
        &self,
        core: &Core,
        row: &Resource,
        service: &Value,
        family: &str,
        address: &str,
    ) -> Result<(), ApiError> {
        // What it has it keeps; and what is no address at all is the validation's to refuse.
        let Ok(parsed) = address.parse::<IpAddr>() else { return Ok(()) };
        let ranges = ranges::usable(&core.service_network, &*core.cache, family);
        if self.addresses.had.contains(address) || ranges.iter().any(|range| range.contains(parsed)) {
            return Ok(());
        }
        if let Some(range) = ranges.first().filter(|_| self.dry_run) {
            let why =
                format!("the provided IP ({address}) is not in the valid range. The range of valid IPs is {range}");
            return Err(refused(row, service, address, &why));
        }
        Err(refused(row, service, address, "the provided network does not match the current range"))
    }

    fn choose_listed_ports(&mut self, core: &Core, service: &mut Value) -> Result<(), ApiError> {
        let mut used = self.unavailable_ports(service);
        let mut given = NodePorts::default();
        let Some(list) = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut) else { return Ok(()) };
        for entry in list.iter() {
            if let Some(node_port) = entry.get("nodePort").and_then(Value::as_i64).filter(|p| *p > 0) {
                given.add(port_of(entry), protocol_of(entry), node_port);
            }
        }
        for entry in list.iter_mut() {
            if entry.get("nodePort").and_then(Value::as_i64).unwrap_or(0) > 0 {
                continue;
            }
            // The same port under TCP and UDP shares one node port.
            let (port, protocol) = (port_of(entry), protocol_of(entry));
            let node_port = match given.of_another_protocol(port, &protocol) {
                Some(port) => port,
                None => self.free_port(core, &used)?,
            };
            used.insert(node_port);
            given.add(port, protocol, node_port);
            entry["nodePort"] = node_port.into();
        }
        Ok(())
    }

    /// A port that is not known to be in use; the transaction has the last word.
    fn free_port(&mut self, core: &Core, used: &BTreeSet<i64>) -> Result<i64, ApiError> {
        let (first, last) = core.node_ports;
        let start = rand::rng().random_range(first..=last);
        let port = (start..=last).chain(first..start).find(|port| !used.contains(port));
        let port = port.ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))?;
        self.ports.chosen.insert(port);
        Ok(port)
    }

    /// What stands beside the Service in its transaction.
    pub(crate) async fn operations(&self, core: &Core, service: &Value) -> Result<Vec<Op>, ApiError> {
        if self.addresses.is_empty() && self.ports.is_empty() {
            return Ok(Vec::new());
        }
        let owner = owner(service);
        let taken = self.addresses.taken.iter().map(|address| Op::Create {
            key: format!("{ADDRESS_PREFIX}{address}"),
            value: address_object(address, service).into(),
            lease: None,
        });
        let ports = self.ports.taken.iter().map(|port| Op::Create {
            key: format!("{PORT_PREFIX}{port}"),
            value: owner.clone().into(),
            lease: None,
        });
        let mut ops: Vec<Op> = taken.chain(ports).collect();
        ops.extend(release(core, service, &self.addresses.released, &self.ports.released).await?);
        Ok(ops)
    }

    /// Addresses and ports are taken before a Service is made: who asks for some that are taken is told so, even where the name
    /// is taken too.
    pub(crate) async fn check_free(&self, core: &Core, row: &Resource, service: &Value) -> Result<(), ApiError> {
        let given = self.addresses.taken.difference(&self.addresses.chosen);
        let addresses = given.map(|address| format!("{ADDRESS_PREFIX}{address}"));
        let in_order = object::items(service, "/spec/ports").iter().filter_map(|entry| entry.get("nodePort")?.as_i64());
        let ports = in_order.filter(|port| self.ports.taken.contains(port) && !self.ports.chosen.contains(port));
        let health = self.ports.taken.contains(&health_port(service)).then(|| health_port(service));
        let health = health.filter(|port| !self.ports.chosen.contains(port));
        for key in addresses.chain(ports.chain(health).map(|port| format!("{PORT_PREFIX}{port}"))) {
            let got = core.store.get(&key).await.map_err(|e| objects::store_error(&e))?;
            if got.entry.is_some() {
                return Err(already_allocated(row, service, &key));
            }
        }
        Ok(())
    }

    /// The key was taken: chooses another, or says that the one the client wants is not free.
    pub(crate) async fn lost(
        &mut self,
        core: &Core,
        row: &Resource,
        service: &mut Value,
        key: &str,
    ) -> Result<(), ApiError> {
        self.lost += 1;
        if let Some(address) = key.strip_prefix(ADDRESS_PREFIX) {
            // What was to be given back changed meanwhile.
            if self.addresses.released.contains(address) {
                return Ok(());
            }
            if self.addresses.chosen.remove(address) && self.lost < 1000 {
                self.addresses.in_use.insert(address.to_owned());
                let family = if address.contains(':') { "IPv6" } else { "IPv4" };
                let chosen = self.free_address(core, service, family)?.to_string();
                replace_address(service, address, &chosen);
                self.addresses.chosen.insert(chosen.clone());
                self.addresses.taken.remove(address);
                self.addresses.taken.insert(chosen);
                return Ok(());
            }
            return Err(already_allocated(row, service, key));
        }
        let Some(port) = key.strip_prefix(PORT_PREFIX).and_then(|p| p.parse::<i64>().ok()) else {
            return Err(ApiError::internal(format!("the write lost a race for {key}")));
        };
        if self.ports.released.contains(&port) {
            return Ok(());
        }
        if self.ports.chosen.remove(&port) && self.lost < 1000 {
            self.ports.in_use.insert(port);
            self.ports.in_use.extend(ports_in_use(core).await?);
            self.ports.taken.remove(&port);
            if health_port(service) == port {
                object::child_mut(service, "spec").remove("healthCheckNodePort");
            }
            for entry in service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
                if entry.get("nodePort").and_then(Value::as_i64) == Some(port) {
                    entry["nodePort"] = 0.into();
                }
            }
            let before = ports(service);
            self.choose_ports(core, service)?;
            self.ports.taken.extend(ports(service).difference(&before));
            return Ok(());
        }
        Err(already_allocated(row, service, key))
    }
}

/// The address or port of a key belongs to another.
fn already_allocated(row: &Resource, service: &Value, key: &str) -> ApiError {
    if let Some(address) = key.strip_prefix(ADDRESS_PREFIX) {
        return refused(row, service, address, "provided IP is already allocated");
    }
    let port = key.strip_prefix(PORT_PREFIX).and_then(|port| port.parse::<i64>().ok()).unwrap_or_default();
    let index = object::items(service, "/spec/ports")
        .iter()
        .position(|entry| entry.get("nodePort").and_then(Value::as_i64) == Some(port))
        .unwrap_or(0);
    let path = Path::new("spec").child("ports").index(index).child("nodePort");
    let errors = FieldError::invalid(&path, port, "provided port is already allocated").into();
    ApiError::invalid(&row.group_kind(), object::name(service), &errors)
}

/// The node ports of a Service by port, with their protocols. Two of each port are enough to find one of another protocol:
/// how many ports there are is checked later.
#[derive(Default)]
struct NodePorts(BTreeMap<i64, Vec<(String, i64)>>);

impl NodePorts {
    fn add(&mut self, port: i64, protocol: String, node_port: i64) {
        let known = self.0.entry(port).or_default();
        if known.len() < 2 && known.iter().all(|(other, _)| *other != protocol) {
            known.push((protocol, node_port));
        }
    }

    fn of_another_protocol(&self, port: i64, protocol: &str) -> Option<i64> {
        self.0.get(&port)?.iter().find(|(other, _)| other != protocol).map(|(_, node_port)| *node_port)
    }
}

/// All that have a marker: a second choice is made from the others, however few these are.
async fn ports_in_use(core: &Core) -> Result<Vec<i64>, ApiError> {
    let range = Range { prefix: PORT_PREFIX.to_owned(), ..Range::default() };
    let markers = core.store.range(range).await.map_err(|e| objects::store_error(&e))?;
    Ok(markers.entries.iter().filter_map(|entry| entry.key.strip_prefix(PORT_PREFIX)?.parse().ok()).collect())
}

/// Whether each of its ports gets a node port.
fn wants_ports(service: &Value) -> bool {
    match object::text(service, "/spec/type") {
        "NodePort" => true,
        "LoadBalancer" => service.pointer("/spec/allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)),
        _ => false,
    }
}

fn health_port(service: &Value) -> i64 {
    service.pointer("/spec/healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0)
}

/// Ports that people choose must be in the range; those they keep were checked when they were chosen.
fn check_ports(core: &Core, row: &Resource, service: &Value) -> Result<(), ApiError> {
    let (first, last) = core.node_ports;
    for (index, entry) in object::items(service, "/spec/ports").iter().enumerate() {
        let port = entry.get("nodePort").and_then(Value::as_i64).unwrap_or(0);
        if port != 0 && !(first..=last).contains(&port) {
            let path = Path::new("spec").child("ports").index(index).child("nodePort");
            let why = format!("provided port is not in the valid range. The range of valid ports is {first}-{last}");
            let errors = FieldError::invalid(&path, port, why).into();
            return Err(ApiError::invalid(&row.group_kind(), object::name(service), &errors));
        }
    }
    Ok(())
}

fn port_of(entry: &Value) -> i64 {
    entry.get("port").and_then(Value::as_i64).unwrap_or(0)
}

fn protocol_of(entry: &Value) -> String {
    entry.get("protocol").and_then(Value::as_str).unwrap_or("TCP").to_owned()
}

fn replace_address(service: &mut Value, from: &str, to: &str) {
    let spec = object::child_mut(service, "spec");
    if spec.get("clusterIP").and_then(Value::as_str) == Some(from) {
        spec.insert("clusterIP".into(), to.into());
    }
    for one in spec.get_mut("clusterIPs").and_then(Value::as_array_mut).into_iter().flatten() {
        if one.as_str() == Some(from) {
            *one = to.into();
        }
    }
}

/// An address that its writer chose and cannot have.
fn refused(row: &Resource, service: &Value, address: &str, why: &str) -> ApiError {
    let list = service.pointer("/spec/clusterIPs").cloned().unwrap_or_default();
    let path = Path::new("spec").child("clusterIPs");
    let errors = FieldError::invalid(&path, list, format!("failed to allocate IP {address}: {why}")).into();
    ApiError::invalid(&row.group_kind(), object::name(service), &errors)
}

fn address_object(address: &str, service: &Value) -> Vec<u8> {
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    let mut object = json!({
        "kind": "IPAddress",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": {
            "name": address,
            "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": time::time(time::now()),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family,
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {
            "group": "",
            "resource": "services",
            "namespace": object::namespace(service),
            "name": object::name(service),
        }},
    });
    let kind = GroupVersionKind::new("networking.k8s.io", "v1", "IPAddress");
    if let Some(ty) = codec::type_of(&kind) {
        codec::track(&ty, &kind, "", &[], &mut object, None, "kube-apiserver");
    }
    codec::encode(&kind, &object)
}
