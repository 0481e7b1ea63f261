//! The tables of all listeners, and of the ports that they are served at.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ferry_client::ObjectKey;

use super::addresses::Port;
use super::attach::{Attachment, Placed};
use super::objects::Id;
use super::room::Room;
use super::{GatewayState, Gateways, Place, Settings, ingress};
use crate::table::{HttpRoutes, Listener, PortTable, StreamRoute, Streams};

/// What the routes have put into one listener.
#[derive(Default)]
struct Filled {
    http: Arc<HttpRoutes>,
    streams: Streams,
    attached: usize,
}

/// By Gateway: the listeners in their order, and the ports.
#[derive(Default)]
pub struct Tables {
    filled: HashMap<Arc<ObjectKey>, Vec<Filled>>,
    served: HashMap<Arc<ObjectKey>, BTreeMap<Place, Arc<PortTable>>>,
    room: Room,
}

impl Tables {
    /// Takes the route in if there is room for it. If there is none, the attachment says so and has what `last` makes of the form
    /// of the route that was accepted last, or nothing to put anywhere. Whether the route is taken in.
    pub fn admit(&mut self, id: &Id, attachment: &mut Attachment, last: impl FnOnce() -> Option<Attachment>) -> bool {
        let Err(problem) = self.room.take(id, &attachment.weights) else { return true };
        let last = last().unwrap_or_default();
        let is_kept = self.room.keep(id, &last.weights) && !last.placed.is_empty();
        attachment.refuse(&problem, is_kept.then_some(last));
        false
    }

    /// Whether there was no room for the route as it is.
    pub fn is_refused(&self, id: &Id) -> bool {
        self.room.is_refused(id)
    }

    /// The route has no place any more.
    pub fn release(&mut self, id: &Id) {
        self.room.give_back(id);
    }

    /// Routes that were refused and that there is room for by now; each is given once.
    pub fn admissible(&mut self) -> Vec<Id> {
        self.room.admissible()
    }

    #[cfg(test)]
    pub fn fill<'a>(&mut self, attachments: impl Iterator<Item = &'a Attachment>) {
        let mut gathered: HashMap<_, Vec<&Placed>> = HashMap::new();
        for placed in attachments.flat_map(|attachment| &attachment.placed) {
            gathered.entry((placed.gateway.clone(), placed.listener)).or_default().push(placed);
        }
        for ((gateway, listener), all) in gathered {
            let mut streams: Vec<_> = all.iter().flat_map(|placed| placed.streams.iter().cloned()).collect();
            streams.sort_by(|a, b| a.order.cmp(&b.order));
            let of = |placed: &&Placed| {
                let rules = placed.rules.clone();
                placed.hosts.iter().map(move |(host, named)| (host.clone(), *named, rules.clone())).collect::<Vec<_>>()
            };
            let http = HttpRoutes::new(all.iter().flat_map(of));
            let filled = Filled { http: Arc::new(http), streams: Arc::new(streams), attached: all.len() };
            *self.of(&gateway, listener) = filled;
        }
    }

    fn of(&mut self, gateway: &Arc<ObjectKey>, listener: usize) -> &mut Filled {
        let all = self.filled.entry(gateway.clone()).or_default();
        if all.len() <= listener {
            all.resize_with(listener + 1, Filled::default);
        }
        &mut all[listener]
    }

    pub fn attached(&self, gateway: &ObjectKey, listener: usize) -> usize {
        self.filled.get(gateway).and_then(|all| all.get(listener)).map_or(0, |one| one.attached)
    }

    pub fn insert(&mut self, placed: &Placed) {
        let one = self.of(&placed.gateway, placed.listener);
        one.attached += 1;
        if !placed.rules.is_empty() && !placed.hosts.is_empty() {
            let http = Arc::make_mut(&mut one.http);
            placed.hosts.iter().for_each(|(hostname, named)| http.insert(hostname.as_ref(), *named, &placed.rules));
        }
        for stream in &placed.streams {
            let place = one.streams.partition_point(|known| known.order <= stream.order);
            Arc::make_mut(&mut one.streams).insert(place, stream.clone());
        }
    }

    pub fn remove(&mut self, placed: &Placed) {
        let one = self.of(&placed.gateway, placed.listener);
        one.attached = one.attached.saturating_sub(1);
        if !placed.rules.is_empty() && !placed.hosts.is_empty() {
            let http = Arc::make_mut(&mut one.http);
            placed.hosts.iter().for_each(|(hostname, named)| http.remove(hostname.as_ref(), *named, &placed.rules));
        }
        if !placed.streams.is_empty() {
            let is_other = |known: &Arc<StreamRoute>| !placed.streams.iter().any(|one| Arc::ptr_eq(one, known));
            Arc::make_mut(&mut one.streams).retain(is_other);
        }
    }

    /// What a Gateway that is no more had.
    pub fn forget(&mut self, gateway: &ObjectKey) {
        self.filled.remove(gateway);
        self.served.remove(gateway);
    }

    /// Makes the tables of a Gateway's ports anew.
    pub fn serve(&mut self, state: &GatewayState) {
        let mut by_port: BTreeMap<Port, PortTable> = BTreeMap::new();
        let listeners = state.frontend.listeners.iter().enumerate();
        for (place, listening) in listeners.filter(|(_, one)| state.accepted.is_none() && one.is_valid()) {
            let (Some(transport), Some(tls)) = (listening.transport, listening.tls.clone()) else { continue };
            let filled = self.of(&state.key, place);
            let listener = Listener {
                name: listening.spec.name.as_str().into(),
                hostname: listening.hostname.clone(),
                tls,
                http: filled.http.clone(),
                streams: filled.streams.clone(),
            };
            let port = (listening.spec.port, transport.is_datagram());
            let table = by_port.entry(port).or_insert_with(|| {
                let (gateway, proxies) = (state.key.to_string().into(), state.options.proxies.clone());
                PortTable::new(gateway, listening.spec.port, transport, Vec::new(), proxies)
            });
            table.listeners.push(Arc::new(listener));
        }
        let mut served = BTreeMap::new();
        for ((port, datagram), table) in by_port {
            let table = Arc::new(table);
            let places = state.addresses.iter().map(|address| (*address, port, datagram));
            served.extend(places.map(|place| (place, table.clone())));
        }
        self.served.insert(state.key.clone(), served);
    }

    /// The tables of all ports, at all addresses, and why Ingresses do not get theirs.
    pub fn ports(
        &self,
        gateways: &Gateways,
        ingress: &ingress::Ingresses,
        settings: &Settings,
    ) -> (BTreeMap<Place, Arc<PortTable>>, Vec<String>) {
        let (mut ports, mut conflicts) = (BTreeMap::new(), Vec::new());
        let Some(first) = settings.addresses.first() else { return (ports, conflicts) };
        for served in gateways.list.iter().filter_map(|state| self.served.get(&state.key)) {
            ports.extend(served.iter().map(|(place, table)| (*place, table.clone())));
        }
        for table in [&ingress.http, &ingress.https].into_iter().flatten() {
            let known = ports.entry((*first, table.port, false)).or_insert_with(|| table.clone());
            if Arc::ptr_eq(known, table) {
                continue;
            }
            if known.transport == table.transport {
                *known = Arc::new(known.with_fallback(table.clone()));
            } else {
                let of = &known.gateway;
                conflicts.push(format!("port {} belongs to Gateway {of}, with another protocol", table.port));
            }
        }
        (ports, conflicts)
    }
}
