//! From objects to tables and statuses: pure functions of one moment of the caches.

mod addresses;
pub mod annotations;
mod attach;
mod backends;
pub mod certificates;
mod conditions;
mod filters;
pub mod ingress;
mod listeners;
pub mod objects;
mod options;
mod policies;
mod rules;
pub mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ferry_client::ObjectKey;
use rustls::sign::CertifiedKey;

use crate::CONTROLLER;
use crate::api::{GROUP, Gateway, GatewayClass};
use crate::table::{HttpRoutes, Listener, PortTable};
use addresses::{Port, Wanted, assign};
use attach::Told;
use backends::Backends;
use certificates::{Certificates, Fingerprint};
use conditions::Problem;
use listeners::{Frontend, key_pair};
use objects::{Objects, Referrer, age, key, namespace};
use options::Options;
pub use policies::system_authorities;
use policies::{Judged, Policies};

/// What the table is made for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The machine's own addresses; Ingresses have the first.
    pub addresses: Vec<IpAddr>,
    /// The certificates that the machine trusts.
    pub system_authorities: Vec<u8>,
}

/// A Gateway and everything that was found out about it.
pub struct GatewayState {
    pub key: ObjectKey,
    pub gateway: Arc<Gateway>,
    pub frontend: Frontend,
    pub identity: Option<(Fingerprint, Arc<CertifiedKey>)>,
    pub resolved: Option<Problem>,
    pub accepted: Option<Problem>,
    pub addresses: Vec<IpAddr>,
    pub options: Options,
    /// Why it has not the addresses that it asks for.
    pub unusable: Option<Problem>,
}

#[derive(Default)]
pub struct Gateways {
    pub list: Vec<GatewayState>,
    by_key: HashMap<ObjectKey, usize>,
    by_set: HashMap<ObjectKey, (usize, usize)>,
}

impl Gateways {
    pub fn find(&self, key: &ObjectKey) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    pub fn find_set(&self, key: &ObjectKey) -> Option<(usize, usize)> {
        self.by_set.get(key).copied()
    }
}

/// An address and a port, and whether it is one of datagrams.
pub type Place = (IpAddr, u16, bool);

pub struct Resolved {
    pub classes: Vec<Arc<GatewayClass>>,
    pub gateways: Gateways,
    pub routes: Vec<Told>,
    pub policies: Vec<Judged>,
    pub ancestors: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    pub ingress: ingress::Outcome,
    pub ports: BTreeMap<Place, Arc<PortTable>>,
}

pub fn resolve(objects: &Objects, settings: &Settings, certificates: &Certificates) -> Resolved {
    let classes: Vec<_> =
        objects.classes.iter().filter(|class| class.spec.controller_name == CONTROLLER).cloned().collect();
    let mut gateways = gateways(objects, &classes, settings, certificates);
    let backends = Backends {
        objects,
        certificates,
        policies: Policies::judge(objects, &settings.system_authorities),
        ancestors: Default::default(),
    };
    let routes = attach::routes(objects);
    let routes = routes.into_iter().filter_map(|route| attach::attach(&backends, &mut gateways, route)).collect();
    let mut ingress = ingress::resolve(&backends, certificates);
    let ports = ports(&mut gateways, &mut ingress, settings);
    certificates.sweep();
    Resolved {
        classes,
        gateways,
        routes,
        ancestors: backends.ancestors.into_inner(),
        policies: backends.policies.judged,
        ingress,
        ports,
    }
}

fn gateways(
    objects: &Objects,
    classes: &[Arc<GatewayClass>],
    settings: &Settings,
    certificates: &Certificates,
) -> Gateways {
    let ours = |gateway: &&Arc<Gateway>| {
        let named =
            |class: &Arc<GatewayClass>| class.metadata.name.as_deref() == Some(&gateway.spec.gateway_class_name);
        classes.iter().any(|class| named(class) && class.spec.parameters_ref.is_none())
    };
    let mut list: Vec<_> = objects.gateways.iter().filter(ours).cloned().collect();
    list.sort_by_key(|gateway| age(&gateway.metadata));
    let mut gateways = Gateways::default();
    let mut wanted = Vec::new();
    for gateway in list {
        let state = state(objects, certificates, gateway);
        let place = gateways.list.len();
        gateways.by_key.insert(state.key.clone(), place);
        for (number, set) in state.frontend.sets.iter().enumerate() {
            gateways.by_set.insert(key(&set.set.metadata), (place, number));
        }
        wanted.push(self::wanted(&state));
        gateways.list.push(state);
    }
    for (state, addresses) in gateways.list.iter_mut().zip(assign(&wanted, &settings.addresses)) {
        let asked = state.gateway.spec.addresses.iter().filter(|address| has_value(address)).count();
        if addresses.len() < asked && state.unusable.is_none() {
            let message =
                "an address that it asks for is not one of this machine, or another Gateway has its ports there";
            state.unusable = Some(Problem::new("AddressNotUsable", message));
        } else if addresses.is_empty() && state.unusable.is_none() {
            state.unusable = Some(Problem::new("AddressNotAssigned", "there is no address left"));
        }
        state.addresses = addresses;
    }
    gateways
}

fn has_value(address: &crate::api::Address) -> bool {
    address.value.as_deref().is_some_and(|value| !value.is_empty())
}

fn wanted(state: &GatewayState) -> Wanted {
    let ports = state.frontend.listeners.iter().filter(|one| one.takes_routes()).filter_map(|one| {
        let transport = one.transport?;
        Some((one.spec.port, transport.is_datagram()))
    });
    let had = state.gateway.status["addresses"][0]["value"].as_str().and_then(|text| text.parse().ok());
    let asked = state.gateway.spec.addresses.iter().filter_map(|address| address.value.as_deref()?.parse().ok());
    Wanted { ports: ports.collect::<BTreeSet<Port>>(), had, asked: asked.collect() }
}

fn state(objects: &Objects, certificates: &Certificates, gateway: Arc<Gateway>) -> GatewayState {
    let own = key(&gateway.metadata);
    let frontend = listeners::resolve(objects, certificates, &gateway);
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
    let addresses = Vec::new();
    GatewayState { key: own, gateway, frontend, identity, resolved, accepted, addresses, options, unusable: None }
}

/// The tables of all ports, at all addresses.
fn ports(
    gateways: &mut Gateways,
    ingress: &mut ingress::Outcome,
    settings: &Settings,
) -> BTreeMap<Place, Arc<PortTable>> {
    let mut ports: BTreeMap<Place, PortTable> = BTreeMap::new();
    for state in &mut gateways.list {
        if state.accepted.is_some() {
            continue;
        }
        let mut by_port: BTreeMap<Port, PortTable> = BTreeMap::new();
        for listening in state.frontend.listeners.iter_mut().filter(|one| one.is_valid()) {
            let (Some(transport), Some(tls)) = (listening.transport, listening.tls.clone()) else { continue };
            let mut streams = std::mem::take(&mut listening.streams);
            streams.sort_by(|(a, _), (b, _)| a.cmp(b));
            let listener = Listener {
                name: listening.spec.name.as_str().into(),
                hostname: listening.hostname.clone(),
                tls,
                http: Arc::new(HttpRoutes::new(std::mem::take(&mut listening.entries))),
                streams: streams.into_iter().map(|(_, stream)| stream).collect(),
            };
            let port = (listening.spec.port, transport.is_datagram());
            let table = by_port.entry(port).or_insert_with(|| PortTable {
                gateway: state.key.to_string().into(),
                port: listening.spec.port,
                transport,
                listeners: Vec::new(),
                proxies: state.options.proxies.clone(),
                fallback: None,
            });
            table.listeners.push(Arc::new(listener));
        }
        let by_port: Vec<_> = by_port.into_iter().collect();
        for ((port, datagram), table) in by_port {
            // More than one address is rare: the listeners are shared, the table is not.
            for address in &state.addresses {
                let copy = PortTable {
                    gateway: table.gateway.clone(),
                    port: table.port,
                    transport: table.transport,
                    listeners: table.listeners.clone(),
                    proxies: table.proxies.clone(),
                    fallback: None,
                };
                ports.insert((*address, port, datagram), copy);
            }
        }
    }
    let Some(first) = settings.addresses.first() else { return BTreeMap::new() };
    for table in [ingress.http.take(), ingress.https.take()].into_iter().flatten() {
        match ports.get_mut(&(*first, table.port, false)) {
            Some(known) if known.transport == table.transport => known.fallback = Some(Arc::new(table)),
            Some(known) => {
                let text = format!("port {} belongs to Gateway {}, with another protocol", table.port, known.gateway);
                let told = ingress.ingresses.iter().map(|one| (one.clone(), "PortUnavailable", text.clone()));
                ingress.warnings.extend(told);
            }
            None => {
                ports.insert((*first, table.port, false), table);
            }
        }
    }
    ports.into_iter().map(|(place, table)| (place, Arc::new(table))).collect()
}
