//! From objects to tables and statuses: pure functions of one moment of the caches.

mod addresses;
pub mod annotations;
mod attach;
mod backends;
pub mod certificates;
#[cfg(test)]
mod company_tests;
mod conditions;
mod expressions;
mod filters;
mod grants;
mod handed;
mod incremental;
pub mod ingress;
mod listeners;
mod machines;
pub mod objects;
mod options;
mod policies;
mod room;
mod rules;
#[cfg(test)]
mod sharing_tests;
pub mod status;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ferry_client::ObjectKey;
use rustls::sign::CertifiedKey;

use crate::CONTROLLER;
use crate::api::{GROUP, Gateway, GatewayClass};
use crate::table::PortTable;
use addresses::{Port, Wanted, assign, is_overflow};
use attach::Attachment;
#[cfg(test)]
use backends::{Backends, Known};
#[cfg(not(test))]
use certificates::Authority;
#[cfg(test)]
pub use certificates::Authority;
use certificates::{Certificates, Fingerprint};
use conditions::Problem;
pub use handed::{Parts, Source, in_use};
pub use incremental::{Changed, Incremental};
use listeners::{Frontend, key_pair};
use machines::{Fleet, follow};
pub use machines::{Report, SERVES};
pub use objects::Id;
use objects::{Objects, Referrer, age, key, namespace};
use options::Options;
use policies::Policies;
pub use policies::system_authorities;
use room::share;
use tables::Tables;

/// Ports of the Gateways of one namespace, at all their addresses.
const MOST_PORTS_OF_NAMESPACE: usize = 512;
/// And of all namespaces: each is a socket of this machine. Of what others leave, a namespace has no larger part than of all.
const MOST_PORTS: usize = 8192;

/// What the table is made for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The machine's own addresses; Ingresses have the first.
    pub addresses: Vec<IpAddr>,
    /// The certificates that the machine trusts.
    pub system_authorities: Arc<Authority>,
    /// Gateways get their addresses here. Otherwise their statuses say whether they have any.
    pub leads: bool,
}

/// A Gateway and everything that was found out about it.
pub struct GatewayState {
    pub key: Arc<ObjectKey>,
    pub frontend: Frontend,
    pub identity: Option<(Fingerprint, Arc<CertifiedKey>)>,
    pub resolved: Option<Problem>,
    pub accepted: Option<Problem>,
    pub addresses: Vec<IpAddr>,
    pub options: Options,
    /// Why it has not the addresses that it asks for.
    pub unusable: Option<Problem>,
    /// What it refers to, whether that is there or not.
    pub secrets: HashSet<ObjectKey>,
    pub config_maps: HashSet<ObjectKey>,
}

impl GatewayState {
    /// Whether routes see no difference.
    fn is_same_to_routes(&self, other: &Self) -> bool {
        let print = |one: &Self| one.identity.as_ref().map(|(print, _)| *print);
        print(self) == print(other) && self.options == other.options && self.frontend.is_same_to_routes(&other.frontend)
    }
}

#[derive(Default)]
pub struct Gateways {
    /// The oldest first.
    pub list: Vec<GatewayState>,
    by_key: HashMap<ObjectKey, usize>,
    by_set: HashMap<ObjectKey, (usize, usize)>,
    /// Where other machines serve them.
    pub fleet: Fleet,
}

impl Gateways {
    pub fn find(&self, key: &ObjectKey) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    pub fn find_set(&self, key: &ObjectKey) -> Option<(usize, usize)> {
        self.by_set.get(key).copied()
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&GatewayState> {
        self.list.get(self.find(key)?)
    }
}

/// An address and a port, and whether it is one of datagrams.
pub type Place = (IpAddr, u16, bool);

/// What came of all objects.
#[derive(Default)]
pub struct Resolved {
    pub classes: Vec<Arc<GatewayClass>>,
    pub gateways: Gateways,
    /// Those that are attached to something of ours, or want to be.
    pub routes: BTreeMap<Arc<Id>, Attachment>,
    pub policies: Policies,
    /// The Gateways through which Services that have a policy are reached, and by how many routes.
    pub ancestors: BTreeMap<ObjectKey, BTreeMap<ObjectKey, usize>>,
    pub ingress: ingress::Ingresses,
    tables: Tables,
    /// Ports of Ingresses that they do not get, and why.
    pub conflicts: Vec<String>,
    pub ports: BTreeMap<Place, Arc<PortTable>>,
}

impl Resolved {
    /// How many routes are attached to a listener.
    pub fn attached(&self, gateway: &ObjectKey, listener: usize) -> usize {
        self.tables.attached(gateway, listener)
    }
}

/// Everything from the beginning. What follows changes is [`Incremental`], which has to come to the same.
#[cfg(test)]
pub fn resolve(objects: &Objects, settings: &Settings, certificates: &Certificates) -> Resolved {
    let mut resolved = Resolved { classes: classes(objects), ..Resolved::default() };
    resolved.gateways = gateways(objects, &resolved.classes, settings, certificates, |_| None);
    resolved.policies = Policies::judge(objects, certificates, &settings.system_authorities);
    let known = Known::default();
    let backends = Backends::new(objects, certificates, &resolved.policies, &known);
    for id in attach::by_age(objects, attach::keys(objects)) {
        let Some(route) = attach::find(objects, &id) else { continue };
        let mut attachment = attach::attach(&backends, &resolved.gateways, route);
        resolved.tables.admit(&id, &mut attachment, || None);
        for (service, gateway) in &attachment.ancestors {
            let counts = resolved.ancestors.entry(service.clone()).or_default();
            *counts.entry(gateway.clone()).or_default() += 1;
        }
        if !attachment.parents.is_empty() {
            resolved.routes.insert(Arc::new(id), attachment);
        }
    }
    resolved.ingress = ingress::Ingresses::resolve(&backends);
    resolved.tables.fill(resolved.routes.values());
    for state in &resolved.gateways.list {
        resolved.tables.serve(state);
    }
    (resolved.ports, resolved.conflicts) = resolved.tables.ports(&resolved.gateways, &resolved.ingress, settings);
    certificates.sweep();
    resolved
}

fn classes(objects: &Objects) -> Vec<Arc<GatewayClass>> {
    objects.classes.iter().filter(|class| class.spec.controller_name == CONTROLLER).cloned().collect()
}

/// `known` gives the Gateways of which nothing has changed, as they were found before.
fn gateways(
    objects: &Objects,
    classes: &[Arc<GatewayClass>],
    settings: &Settings,
    certificates: &Certificates,
    mut known: impl FnMut(&ObjectKey) -> Option<GatewayState>,
) -> Gateways {
    let ours = |gateway: &&Arc<Gateway>| {
        let named =
            |class: &Arc<GatewayClass>| class.metadata.name.as_deref() == Some(&gateway.spec.gateway_class_name);
        classes.iter().any(|class| named(class) && class.spec.parameters_ref.is_none())
    };
    let mut list: Vec<_> = objects.gateways.iter().filter(ours).collect();
    list.sort_by_key(|gateway| age(&gateway.metadata));
    let mut gateways = Gateways::default();
    let (mut wanted, mut names, mut crowded) = (Vec::new(), Vec::new(), Vec::new());
    let (mut all, mut of_namespaces) = (0, HashMap::<String, usize>::new());
    for gateway in &list {
        let key = key(&gateway.metadata);
        let state = known(&key).unwrap_or_else(|| state(objects, certificates, gateway));
        let place = gateways.list.len();
        for (number, set) in state.frontend.sets.iter().enumerate() {
            gateways.by_set.insert(set.key.clone(), (place, number));
        }
        let wants = self::wanted(gateway, &state);
        let count = wants.ports.len() * wants.asked.len().max(1);
        let of_namespace = of_namespaces.entry(key.namespace.clone()).or_default();
        let share = share(MOST_PORTS, all - *of_namespace, MOST_PORTS / MOST_PORTS_OF_NAMESPACE);
        let is_crowded = *of_namespace + count > share;
        crowded.push(is_crowded);
        if !is_crowded {
            (*of_namespace, all) = (*of_namespace + count, all + count);
            wanted.push(wants);
            names.push(key.clone());
        }
        gateways.by_key.insert(key, place);
        gateways.list.push(state);
    }
    let mut assigned = match settings.leads {
        true => {
            let machines = objects.machines.serving(&settings.addresses);
            let others: Vec<_> = machines.iter().flat_map(|one| one.report.addresses.iter().copied()).collect();
            let assigned = assign(&wanted, &settings.addresses, &others);
            gateways.fleet = Fleet::new(machines, &names, &wanted, &assigned);
            assigned
        }
        false => {
            let given: Vec<_> = wanted.iter_mut().map(|one| std::mem::take(&mut one.had)).collect();
            follow(&wanted, &given, &settings.addresses)
        }
    }
    .into_iter();
    for ((state, gateway), is_crowded) in gateways.list.iter_mut().zip(list).zip(crowded) {
        let mut addresses = if is_crowded { Vec::new() } else { assigned.next().unwrap_or_default() };
        let asked = gateway.spec.addresses.iter().filter(|address| has_value(address)).count();
        state.unusable = if is_crowded {
            let message = format!(
                "the Gateways of a namespace have no more than {MOST_PORTS_OF_NAMESPACE} ports, those of all no more than {MOST_PORTS}, and the last of them have fewer"
            );
            Some(Problem::new("AddressNotAssigned", message))
        } else if addresses.len() < asked {
            let message = "an address that it asks for is not one of a machine that serves, or another Gateway has its ports there";
            Some(Problem::new("AddressNotUsable", message))
        } else if addresses.is_empty() {
            Some(Problem::new("AddressNotAssigned", "there is no address left"))
        } else {
            None
        };
        addresses.retain(|address| settings.addresses.contains(address) || is_overflow(*address));
        state.addresses = addresses;
    }
    gateways
}

fn has_value(address: &crate::api::Address) -> bool {
    address.value.as_deref().is_some_and(|value| !value.is_empty())
}

fn wanted(gateway: &Gateway, state: &GatewayState) -> Wanted {
    let ports = state.frontend.listeners.iter().filter(|one| one.takes_routes()).filter_map(|one| {
        let transport = one.transport?;
        Some((one.spec.port, transport.is_datagram()))
    });
    let status = gateway.status.value();
    let had = status["addresses"].as_array().into_iter().flatten();
    let had = had.filter_map(|address| address["value"].as_str()?.parse().ok()).collect();
    let asked = gateway.spec.addresses.iter().filter_map(|address| address.value.as_deref()?.parse().ok());
    Wanted { ports: ports.collect::<BTreeSet<Port>>(), had, asked: asked.collect() }
}

fn state(objects: &Objects, certificates: &Certificates, gateway: &Gateway) -> GatewayState {
    let frontend = listeners::resolve(objects, certificates, gateway);
    let (mut accepted, mut resolved, mut identity) = (None, None, None);
    if gateway.spec.infrastructure.as_ref().is_some_and(|infrastructure| infrastructure.parameters_ref.is_some()) {
        accepted = Some(Problem::new("InvalidParameters", "infrastructure.parametersRef is not supported"));
    }
    let unsupported = |address: &&crate::api::Address| {
        address.type_ != "IPAddress"
            || has_value(address) && address.value.as_deref().is_some_and(|value| value.parse::<IpAddr>().is_err())
    };
    if let Some(address) = gateway.spec.addresses.iter().find(unsupported) {
        let message = format!("addresses of type {} cannot be had: only those of type IPAddress", address.type_);
        accepted = Some(Problem::new("UnsupportedAddress", message));
    }
    let options = Options::gateway(gateway.metadata.annotations.as_ref()).unwrap_or_else(|problem| {
        accepted = Some(problem);
        Options::default()
    });
    let backend = gateway.spec.tls.as_ref().and_then(|tls| tls.backend.as_ref());
    if let Some(reference) = backend.and_then(|backend| backend.client_certificate_ref.as_ref()) {
        let from = Referrer { group: GROUP, kind: "Gateway", namespace: namespace(&gateway.metadata) };
        match key_pair(objects, certificates, from, reference, "InvalidClientCertificateRef") {
            Ok(pair) => identity = Some(pair),
            Err(problem) => resolved = Some(problem),
        }
    }
    let (secrets, config_maps) = listeners::references(gateway, &frontend.sets);
    GatewayState {
        key: Arc::new(key(&gateway.metadata)),
        frontend,
        identity,
        resolved,
        accepted,
        addresses: Vec::new(),
        options,
        unusable: None,
        secrets,
        config_maps,
    }
}
