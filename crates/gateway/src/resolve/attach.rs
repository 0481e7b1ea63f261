//! Routes and the listeners that they are attached to.

use std::cell::{Cell, OnceCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use ferry_client::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::backends::{Asker, Backends, Use};
use super::conditions::{Condition, Problem};
use super::listeners::Listening;
use super::objects::{Id, Objects, Referrer, age, key, name, namespace};
use super::{Gateways, rules};
use crate::api::{
    BackendRef, GROUP, GRPCRoute, HTTPRoute, ParentRef, RouteFilter, Status, StreamRouteSpec, TCPRoute, TLSRoute,
    UDPRoute,
};
use crate::table::{Depth, Hostname, Rules, Specificity, Split, StreamRoute, TlsMode, Weighted, specificity};

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
    /// The same for all listeners of the Gateway.
    pub rules: Rules,
    /// The hosts that the rules are for, and how precisely the route names each.
    pub hosts: Vec<(Option<Hostname>, Specificity)>,
    pub streams: Vec<Arc<StreamRoute>>,
}

/// What came of a route.
#[derive(Debug, Default)]
pub struct Attachment {
    /// Those of its parents that are ours.
    pub parents: Box<[Attached]>,
    pub placed: Box<[Placed]>,
    /// The Services that it reaches, and the Gateways through which it does.
    pub ancestors: Box<[(ObjectKey, ObjectKey)]>,
    /// The memory that it takes in the tables of each Gateway, about.
    pub weights: Box<[(Arc<ObjectKey>, usize)]>,
}

/// What an entry takes beside its texts, and what each host of each listener does.
const ENTRY: usize = 512;
const PLACE: usize = 96;

impl Attachment {
    /// There is no room for it: it has what `last`, an older form of the route, puts into the tables, or nothing.
    pub fn refuse(&mut self, problem: &Problem, last: Option<Self>) {
        let mut problem = problem.clone();
        if last.is_some() {
            problem.message.push_str("; the form of the route that was accepted last is served");
        }
        let Self { placed, ancestors, .. } = last.unwrap_or_default();
        (self.placed, self.ancestors) = (placed, ancestors);
        for parent in self.parents.iter_mut().filter(|parent| parent.accepted.is_none()) {
            parent.accepted = Some(Box::new(problem.clone()));
        }
    }
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

/// A route of any kind.
pub type AnyRoute = Arc<dyn for<'a> Named<'a> + Send + Sync>;

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

struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

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

/// The oldest first, which is who has a place where there is not room for all.
pub fn by_age(objects: &Objects, ids: impl IntoIterator<Item = Id>) -> Vec<Id> {
    let mut ids: Vec<Id> = ids.into_iter().collect();
    if ids.len() > 1 {
        ids.sort_by_cached_key(|id| (find(objects, id).map(|route| age(route.metadata)), id.clone()));
    }
    ids
}

impl Route<'_> {
    /// How long its rules are as text.
    fn text(&self) -> usize {
        let mut count = Count(0);
        let written = match self.body {
            Body::Http(route) => serde_json::to_writer(&mut count, &route.spec.rules),
            Body::Grpc(route) => serde_json::to_writer(&mut count, &route.spec.rules),
            Body::Stream(spec) => serde_json::to_writer(&mut count, &spec.rules),
        };
        written.map_or(usize::MAX, |()| count.0)
    }

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
    let mut parents = Vec::new();
    let mut work = Work { backends, gateways, route, made: BTreeMap::new(), placed: BTreeMap::new() };
    for (place, parent) in route.parents.iter().enumerate() {
        if let Some((accepted, unresolved)) = work.attach_to(parent) {
            let (accepted, unresolved) = (accepted.map(Box::new), unresolved.map(Box::new));
            parents.push(Attached { parent: place, accepted, unresolved });
        }
    }
    let ancestors = std::mem::take(&mut *backends.ancestors.borrow_mut()).into_iter().collect();
    let weights = work.weights();
    Attachment {
        parents: parents.into(),
        placed: work.placed.into_values().collect(),
        ancestors,
        weights: weights.into(),
    }
}

type Problems = (Option<Problem>, Option<Problem>);

/// A route on its way to its parents. It is made once for each Gateway and put once into each listener, however many of its
/// parents lead there.
struct Work<'a> {
    backends: &'a Backends<'a>,
    gateways: &'a Gateways,
    route: Route<'a>,
    /// By the place of the Gateway.
    made: BTreeMap<usize, Rc<Lazy<'a>>>,
    placed: BTreeMap<(usize, usize), Placed>,
}

impl<'a> Work<'a> {
    fn attach_to(&mut self, parent: &ParentRef) -> Option<Problems> {
        if parent.group != GROUP {
            return None;
        }
        let (backends, gateways, route) = (self.backends, self.gateways, self.route);
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
        let lazy = self.made.entry(gateway).or_insert_with(|| Rc::new(Lazy::new(backends, asker, route))).clone();
        let (listener_namespace, range) = match set {
            Some(set) => {
                let set = state.frontend.sets.get(set)?;
                (&*set.key.namespace, set.listeners.clone())
            }
            None => (&*state.key.namespace, state.frontend.own()),
        };
        let accepted = match lazy.unsupported() {
            Some(problem) => Some(problem),
            None => {
                let listeners = range.clone().zip(state.frontend.listeners.get(range).unwrap_or_default());
                let put = |listener, listening: &Listening, hosts| {
                    let placed = self.placed.entry((gateway, listener));
                    placed.or_insert_with(|| lazy.placed(state.key.clone(), listener, listening, hosts));
                };
                choose(backends.objects, route, parent, listener_namespace, listeners, &lazy.hostnames, put)
            }
        };
        Some((accepted, lazy.unresolved()))
    }

    fn weights(&self) -> Vec<(Arc<ObjectKey>, usize)> {
        let text = std::cell::LazyCell::new(|| self.route.text());
        let mut weights: BTreeMap<usize, (Arc<ObjectKey>, usize)> = BTreeMap::new();
        for ((gateway, _), placed) in &self.placed {
            let expressions = self.made.get(gateway).map_or(0, |made| made.expressions.get());
            let rules = || placed.rules.len() * ENTRY + expressions + text.min(usize::MAX / 4) * 2;
            let (_, weight) = weights.entry(*gateway).or_insert_with(|| (placed.gateway.clone(), rules()));
            let of_listener = (placed.hosts.len() + placed.streams.len() + 1).saturating_mul(PLACE);
            *weight = weight.saturating_add(of_listener);
        }
        weights.into_values().collect()
    }
}

/// Attaches to all listeners that fit; the problem is that of the last step at which none was left.
fn choose<'l>(
    objects: &Objects,
    route: Route<'_>,
    parent: &ParentRef,
    listener_namespace: &str,
    listeners: impl Iterator<Item = (usize, &'l Listening)>,
    hostnames: &[Hostname],
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
        if !listening.kinds.contains(&route.kind)
            || !objects.allows(&listening.allowed, listener_namespace, namespace(route.metadata))
        {
            let message = format!("listener {} does not allow routes of this kind and namespace", listening.spec.name);
            note(1, Problem::new("NotAllowedByListeners", message));
            continue;
        }
        let hosts = hosts(route, hostnames, listening);
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

/// A host that a route serves at a listener, and how precisely the route itself names it.
type Hosts = (Option<Hostname>, Specificity);

fn hosts(route: Route<'_>, hostnames: &[Hostname], listening: &Listening) -> Vec<Hosts> {
    if matches!(route.kind, "TCPRoute" | "UDPRoute") {
        return vec![(None, specificity(None))];
    }
    let own = listening.hostname.as_ref();
    if hostnames.is_empty() {
        return vec![(own.cloned(), specificity(None))];
    }
    // Of several names that come to the same host, what the most precise one has is all that counts.
    let mut found: Vec<Hosts> = Vec::new();
    let mut places: HashMap<Hostname, usize> = HashMap::new();
    for name in hostnames {
        let Some(Some(host)) = Hostname::intersection(own, Some(name)) else { continue };
        match places.get(&host) {
            Some(place) => found[*place].1 = found[*place].1.max(name.specificity()),
            None => {
                places.insert(host.clone(), found.len());
                found.push((Some(host), name.specificity()));
            }
        }
    }
    found
}

/// A route whose rules are made when somebody asks for them.
struct Lazy<'a> {
    backends: &'a Backends<'a>,
    asker: Asker<'a>,
    route: Route<'a>,
    hostnames: Vec<Hostname>,
    compiled: OnceCell<(Rules, Problems)>,
    /// The memory of its regular expressions.
    expressions: Cell<usize>,
    /// Of streams that end here, and of those that do not.
    splits: [OnceCell<(Arc<Split>, Option<Problem>)>; 2],
}

impl<'a> Lazy<'a> {
    fn new(backends: &'a Backends<'a>, asker: Asker<'a>, route: Route<'a>) -> Self {
        let hostnames = route.hostnames.iter().map(|text| Hostname::parse(text, Depth::Any)).collect();
        Self {
            backends,
            asker,
            route,
            hostnames,
            compiled: OnceCell::new(),
            expressions: Cell::new(0),
            splits: Default::default(),
        }
    }

    fn compiled(&self) -> &(Rules, Problems) {
        self.compiled.get_or_init(|| {
            let rules::Compiled { entries, expressions, unsupported, unresolved } = match self.route.body {
                Body::Http(route) => rules::http(self.backends, self.asker, route),
                Body::Grpc(route) => rules::grpc(self.backends, self.asker, route),
                Body::Stream(_) => rules::Compiled::default(),
            };
            self.expressions.set(expressions);
            (crate::table::rules(entries), (unsupported, unresolved))
        })
    }

    fn unsupported(&self) -> Option<Problem> {
        self.compiled().1.0.clone()
    }

    fn unresolved(&self) -> Option<Problem> {
        match self.route.body {
            Body::Stream(spec) => self.split(spec, false).1.clone(),
            _ => self.compiled().1.1.clone(),
        }
    }

    /// What a listener gets of it.
    fn placed(&self, gateway: Arc<ObjectKey>, listener: usize, listening: &Listening, hosts: Vec<Hosts>) -> Placed {
        let Body::Stream(spec) = self.route.body else {
            return Placed { gateway, listener, rules: self.compiled().0.clone(), hosts, streams: Vec::new() };
        };
        let since = age(self.route.metadata);
        let (split, _) = self.split(spec, matches!(listening.tls, Some(TlsMode::Passthrough)));
        let route: Arc<str> = format!("{} {}", self.route.kind, name(self.route.metadata)).into();
        let streams = hosts.into_iter().enumerate().map(|(place, (hostname, named))| {
            let order = (Reverse(named), self.route.kind, since.clone(), place);
            Arc::new(StreamRoute { hostname, route: route.clone(), split: split.clone(), order })
        });
        Placed { gateway, listener, rules: Rules::default(), hosts: Vec::new(), streams: streams.collect() }
    }

    fn split(&self, spec: &StreamRouteSpec, is_passthrough: bool) -> &(Arc<Split>, Option<Problem>) {
        let purpose = match (self.route.kind, is_passthrough) {
            ("UDPRoute", _) => Use::Udp,
            (_, true) => Use::Passthrough,
            (_, false) => Use::Tcp,
        };
        self.splits[usize::from(is_passthrough)].get_or_init(|| {
            let mut unresolved = None;
            let backends = spec.rules.iter().flat_map(|rule| &rule.backend_refs).map(|reference| {
                let (target, problem) = self.backends.resolve(self.asker, reference, purpose);
                unresolved = unresolved.take().or(problem);
                Weighted { weight: reference.weight.unwrap_or(1), target, filters: crate::table::Filters::default() }
            });
            let split = Arc::new(Split::new(backends.collect()));
            (split, unresolved)
        })
    }
}
