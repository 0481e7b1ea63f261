//! Routes and the listeners that they are attached to.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use ferry_client::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::backends::{Asker, Backends, Use};
use super::conditions::{Condition, Problem};
use super::listeners::Listening;
#[cfg(test)]
use super::objects::key;
use super::objects::{Id, Objects, Referrer, age, name, namespace};
use super::{Gateways, rules};
use crate::api::{
    BackendRef, GROUP, GRPCRoute, HTTPRoute, ParentRef, RouteFilter, Status, StreamRouteSpec, TCPRoute, TLSRoute,
    UDPRoute,
};
use crate::table::{Depth, Entry, Hostname, Split, StreamRoute, TlsMode, Weighted, specificity};

/// Which kind of route, and what only that kind has.
#[derive(Clone, Copy)]
pub enum Body<'a> {
    Http(&'a HTTPRoute),
    Grpc(&'a GRPCRoute),
    Stream(&'a StreamRouteSpec),
}

#[derive(Clone, Copy)]
pub struct Route<'a> {
    pub kind: &'static str,
    pub metadata: &'a ObjectMeta,
    pub status: &'a Status,
    pub parents: &'a [ParentRef],
    pub hostnames: &'a [String],
    pub body: Body<'a>,
}

/// What a parent of a route says of it.
#[derive(Debug, PartialEq)]
pub struct Attached {
    /// Its place among the route's.
    pub parent: usize,
    pub accepted: Option<Box<Problem>>,
    pub unresolved: Option<Box<Problem>>,
}

impl Attached {
    pub fn conditions(&self) -> [Condition; 2] {
        [
            Condition::of("Accepted", "Accepted", self.accepted.as_deref()),
            Condition::of("ResolvedRefs", "ResolvedRefs", self.unresolved.as_deref()),
        ]
    }
}

/// What a route puts into a listener.
#[derive(Debug)]
pub struct Placed {
    pub gateway: Arc<ObjectKey>,
    pub listener: usize,
    pub entries: Vec<(Option<Hostname>, Arc<Entry>)>,
    pub streams: Vec<Arc<StreamRoute>>,
}

/// What came of a route.
#[derive(Debug, Default)]
pub struct Attachment {
    /// Those of its parents that are ours.
    pub parents: Box<[Attached]>,
    pub placed: Box<[Placed]>,
    /// Policies of the Services that it reaches, and the Gateways through which it does.
    pub ancestors: Box<[(ObjectKey, ObjectKey)]>,
}

/// What an attachment is made from, apart from the route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reads {
    Gateway(ObjectKey),
    ListenerSet(ObjectKey),
    /// The Service itself and the policies for it, not its endpoints.
    Service(ObjectKey),
    /// The ReferenceGrants of a namespace.
    Grants(String),
}

pub trait Named<'a> {
    fn route(&'a self, kind: &'static str) -> Route<'a>;
}

macro_rules! routes {
    ($($type:ident $body:expr;)*) => { $(
        impl<'a> Named<'a> for $type {
            fn route(&'a self, kind: &'static str) -> Route<'a> {
                let make: fn(&'a $type) -> Body<'a> = $body;
                Route {
                    kind,
                    metadata: &self.metadata,
                    status: &self.status,
                    parents: &self.spec.parent_refs,
                    hostnames: &self.spec.hostnames,
                    body: make(self),
                }
            }
        }
    )* };
}

routes! {
    HTTPRoute |route| Body::Http(route);
    GRPCRoute |route| Body::Grpc(route);
    TLSRoute |route| Body::Stream(&route.spec);
    TCPRoute |route| Body::Stream(&route.spec);
    UDPRoute |route| Body::Stream(&route.spec);
}

pub fn find<'a>(objects: &'a Objects, id: &Id) -> Option<Route<'a>> {
    let (key, kind) = (&id.key, id.kind);
    match kind {
        "HTTPRoute" => objects.http_routes.get(key).map(|route| route.route(kind)),
        "GRPCRoute" => objects.grpc_routes.get(key).map(|route| route.route(kind)),
        "TLSRoute" => objects.tls_routes.get(key).map(|route| route.route(kind)),
        "TCPRoute" => objects.tcp_routes.get(key).map(|route| route.route(kind)),
        _ => objects.udp_routes.get(key).map(|route| route.route(kind)),
    }
}

#[cfg(test)]
pub fn keys(objects: &Objects) -> Vec<Id> {
    let mut all = Vec::new();
    let mut add = |meta: &ObjectMeta, kind| all.push(Id { key: key(meta), kind });
    objects.http_routes.iter().for_each(|route| add(&route.metadata, "HTTPRoute"));
    objects.grpc_routes.iter().for_each(|route| add(&route.metadata, "GRPCRoute"));
    objects.tls_routes.iter().for_each(|route| add(&route.metadata, "TLSRoute"));
    objects.tcp_routes.iter().for_each(|route| add(&route.metadata, "TCPRoute"));
    objects.udp_routes.iter().for_each(|route| add(&route.metadata, "UDPRoute"));
    all
}

impl Route<'_> {
    /// All that its attachment may depend on, by name: whoever comes with one of these names later counts as well.
    pub fn reads(&self) -> BTreeSet<Reads> {
        let own = namespace(self.metadata);
        let mut reads = BTreeSet::new();
        for parent in self.parents {
            let key = ObjectKey::new(parent.namespace.as_deref().unwrap_or(own), &parent.name);
            reads.insert(if parent.kind == "ListenerSet" { Reads::ListenerSet(key) } else { Reads::Gateway(key) });
        }
        let mut refer = |reference: &BackendRef| {
            let key = ObjectKey::new(reference.namespace.as_deref().unwrap_or(own), &reference.name);
            if key.namespace != own {
                reads.insert(Reads::Grants(key.namespace.clone()));
            }
            reads.insert(Reads::Service(key));
        };
        let mut all = |filters: &[RouteFilter], backends: &[BackendRef]| {
            let of_backends = backends.iter().flat_map(|backend| &backend.filters);
            let mirrors = filters.iter().chain(of_backends).filter_map(|filter| filter.request_mirror.as_ref());
            mirrors.map(|mirror| &mirror.backend_ref).chain(backends).for_each(&mut refer);
        };
        match self.body {
            Body::Http(route) => route.spec.rules.iter().for_each(|rule| all(&rule.filters, &rule.backend_refs)),
            Body::Grpc(route) => route.spec.rules.iter().for_each(|rule| all(&rule.filters, &rule.backend_refs)),
            Body::Stream(spec) => spec.rules.iter().for_each(|rule| all(&[], &rule.backend_refs)),
        }
        reads
    }
}

/// Attaches a route to every parent that is ours, and says what came of it.
pub fn attach(backends: &Backends<'_>, gateways: &Gateways, route: Route<'_>) -> Attachment {
    let (mut parents, mut placed) = (Vec::new(), Vec::new());
    for (place, parent) in route.parents.iter().enumerate() {
        if let Some((accepted, unresolved)) = attach_to(backends, gateways, route, parent, &mut placed) {
            let (accepted, unresolved) = (accepted.map(Box::new), unresolved.map(Box::new));
            parents.push(Attached { parent: place, accepted, unresolved });
        }
    }
    let ancestors = std::mem::take(&mut *backends.ancestors.borrow_mut()).into_iter().collect();
    Attachment { parents: parents.into(), placed: placed.into(), ancestors }
}

type Problems = (Option<Problem>, Option<Problem>);

fn attach_to(
    backends: &Backends<'_>,
    gateways: &Gateways,
    route: Route<'_>,
    parent: &ParentRef,
    placed: &mut Vec<Placed>,
) -> Option<Problems> {
    if parent.group != GROUP {
        return None;
    }
    let own = namespace(route.metadata);
    let wanted = ObjectKey::new(parent.namespace.as_deref().unwrap_or(own), &parent.name);
    let (gateway, set) = match parent.kind.as_str() {
        "Gateway" => (gateways.find(&wanted)?, None),
        "ListenerSet" => {
            let (gateway, set) = gateways.find_set(&wanted)?;
            (gateway, Some(set))
        }
        _ => return None,
    };
    let state = gateways.list.get(gateway)?;
    let from = Referrer { group: GROUP, kind: route.kind, namespace: own };
    let (identity, defaults) = (state.identity.as_ref(), Some(&state.options));
    let asker = Asker { from, gateway: Some(&*state.key), identity, defaults };
    let compiled = Lazy { backends, asker, route, rules: OnceCell::new() };
    let listener_namespace = match set {
        Some(set) => namespace(&state.frontend.sets.get(set)?.set.metadata).to_owned(),
        None => state.key.namespace.clone(),
    };
    let accepted = match compiled.unsupported() {
        Some(problem) => Some(problem),
        None => {
            let listeners = state.frontend.listeners.iter().enumerate().filter(|(_, one)| one.set == set);
            let put = |listener, listening: &Listening, hosts| {
                let (entries, streams) = compiled.made(listening, hosts);
                placed.push(Placed { gateway: state.key.clone(), listener, entries, streams });
            };
            choose(backends.objects, route, parent, &listener_namespace, listeners, put)
        }
    };
    Some((accepted, compiled.unresolved()))
}

/// Attaches to all listeners that fit; the problem is that of the last step at which none was left.
fn choose<'l>(
    objects: &Objects,
    route: Route<'_>,
    parent: &ParentRef,
    listener_namespace: &str,
    listeners: impl Iterator<Item = (usize, &'l Listening)>,
    mut put: impl FnMut(usize, &Listening, Vec<Hosts>),
) -> Option<Problem> {
    let mut problem = Problem::new("NoMatchingParent", "no listener has this sectionName and port");
    let mut rank = 0;
    let mut note = |step: u8, new: Problem| {
        if step > rank {
            (rank, problem) = (step, new);
        }
    };
    let mut found = false;
    for (place, listening) in listeners {
        let named = parent.section_name.as_deref().is_none_or(|name| name == listening.spec.name);
        if !named || parent.port.is_some_and(|port| port != listening.spec.port) || !listening.takes_routes() {
            continue;
        }
        let allowed = listening.spec.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
        if !listening.kinds.contains(&route.kind)
            || !objects.allows(allowed, "Same", listener_namespace, namespace(route.metadata))
        {
            let message = format!("listener {} does not allow routes of this kind and namespace", listening.spec.name);
            note(1, Problem::new("NotAllowedByListeners", message));
            continue;
        }
        let hosts = hosts(route, listening);
        if hosts.is_empty() {
            let message = format!("no hostname is one of listener {}", listening.spec.name);
            note(2, Problem::new("NoMatchingListenerHostname", message));
            continue;
        }
        found = true;
        put(place, listening, hosts);
    }
    (!found).then_some(problem)
}

/// A host that a route serves at a listener, and what the route itself called it.
type Hosts = (Option<Hostname>, Option<Hostname>);

fn hosts(route: Route<'_>, listening: &Listening) -> Vec<Hosts> {
    if matches!(route.kind, "TCPRoute" | "UDPRoute") {
        return vec![(None, None)];
    }
    let own = listening.hostname.as_ref();
    if route.hostnames.is_empty() {
        return vec![(own.cloned(), None)];
    }
    let named = route.hostnames.iter().map(|text| Hostname::parse(text, Depth::Any));
    named.filter_map(|name| Some((Hostname::intersection(own, Some(&name))?, Some(name)))).collect()
}

/// Rules with the hosts that they are for, and routes of streams.
type Made = (Vec<(Option<Hostname>, Arc<Entry>)>, Vec<Arc<StreamRoute>>);

/// A route whose rules are made when the first listener takes it.
struct Lazy<'a> {
    backends: &'a Backends<'a>,
    asker: Asker<'a>,
    route: Route<'a>,
    rules: OnceCell<rules::Compiled>,
}

impl Lazy<'_> {
    fn rules(&self) -> &rules::Compiled {
        self.rules.get_or_init(|| match self.route.body {
            Body::Http(route) => rules::http(self.backends, self.asker, route),
            Body::Grpc(route) => rules::grpc(self.backends, self.asker, route),
            Body::Stream(_) => rules::Compiled::default(),
        })
    }

    fn unsupported(&self) -> Option<Problem> {
        self.rules().unsupported.clone()
    }

    fn unresolved(&self) -> Option<Problem> {
        match self.route.body {
            Body::Stream(spec) => self.split(spec, Use::Tcp).1,
            _ => self.rules().unresolved.clone(),
        }
    }

    /// What a listener gets of it.
    fn made(&self, listening: &Listening, hosts: Vec<Hosts>) -> Made {
        let since = age(self.route.metadata);
        if let Body::Stream(spec) = self.route.body {
            let purpose = match listening.tls {
                Some(TlsMode::Passthrough) => Use::Passthrough,
                _ => Use::Tcp,
            };
            let split = Arc::new(self.split(spec, purpose).0);
            let route: Arc<str> = format!("{} {}", self.route.kind, name(self.route.metadata)).into();
            let streams = hosts.into_iter().enumerate().map(|(place, (hostname, named))| {
                let order = (Reverse(specificity(named.as_ref())), self.route.kind, since.clone(), place);
                Arc::new(StreamRoute { hostname, route: route.clone(), split: split.clone(), order })
            });
            return (Vec::new(), streams.collect());
        }
        let mut entries = Vec::new();
        for (hostname, named) in hosts {
            let precise = specificity(named.as_ref());
            for (place, (matchers, rule)) in self.rules().rules.iter().enumerate() {
                let of_rule = matchers.iter().enumerate().map(|(number, matcher)| {
                    let entry = Entry::new(matcher.clone(), rule.clone(), precise, since.clone(), (place, number));
                    (hostname.clone(), Arc::new(entry))
                });
                entries.extend(of_rule);
            }
        }
        (entries, Vec::new())
    }

    fn split(&self, spec: &StreamRouteSpec, purpose: Use) -> (Split, Option<Problem>) {
        let purpose = if self.route.kind == "UDPRoute" { Use::Udp } else { purpose };
        let mut unresolved = None;
        let backends = spec.rules.iter().flat_map(|rule| &rule.backend_refs).map(|reference| {
            let (target, problem) = self.backends.resolve(self.asker, reference, purpose);
            unresolved = unresolved.take().or(problem);
            Weighted { weight: reference.weight.unwrap_or(1), target, filters: crate::table::Filters::default() }
        });
        let split = Split::new(backends.collect());
        (split, unresolved)
    }
}
