//! Routes and the listeners that they are attached to.

use std::cell::OnceCell;
use std::sync::Arc;

use ferry_client::ObjectKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::backends::{Asker, Backends, Use};
use super::conditions::{Condition, Problem};
use super::listeners::Listening;
use super::objects::{Objects, Referrer, age, key, name, namespace};
use super::{Gateways, rules};
use crate::api::{GROUP, GRPCRoute, HTTPRoute, ParentRef, StreamRouteSpec};
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
    pub status: &'a Value,
    pub parents: &'a [ParentRef],
    pub hostnames: &'a [String],
    pub body: Body<'a>,
}

/// What a parent of a route says of it.
pub struct Attached {
    pub parent: ParentRef,
    pub conditions: Vec<Condition>,
}

/// A route as it is to be told.
pub struct Told {
    pub kind: &'static str,
    pub key: ObjectKey,
    pub generation: i64,
    pub resource_version: Option<String>,
    pub status: Value,
    pub parents: Vec<Attached>,
}

pub fn routes(objects: &Objects) -> Vec<Route<'_>> {
    let mut all = Vec::new();
    all.extend(objects.http_routes.iter().map(|route| Route {
        kind: "HTTPRoute",
        metadata: &route.metadata,
        status: &route.status,
        parents: &route.spec.parent_refs,
        hostnames: &route.spec.hostnames,
        body: Body::Http(route),
    }));
    all.extend(objects.grpc_routes.iter().map(|route| Route {
        kind: "GRPCRoute",
        metadata: &route.metadata,
        status: &route.status,
        parents: &route.spec.parent_refs,
        hostnames: &route.spec.hostnames,
        body: Body::Grpc(route),
    }));
    macro_rules! streams {
        ($list:expr, $kind:literal) => {
            all.extend($list.iter().map(|route| Route {
                kind: $kind,
                metadata: &route.metadata,
                status: &route.status,
                parents: &route.spec.parent_refs,
                hostnames: &route.spec.hostnames,
                body: Body::Stream(&route.spec),
            }))
        };
    }
    streams!(objects.tls_routes, "TLSRoute");
    streams!(objects.tcp_routes, "TCPRoute");
    streams!(objects.udp_routes, "UDPRoute");
    all
}

/// Attaches a route to every parent that is ours, and says what came of it. None: no parent is.
pub fn attach(backends: &Backends<'_>, gateways: &mut Gateways, route: Route<'_>) -> Option<Told> {
    let mut parents = Vec::new();
    for parent in route.parents {
        if let Some(conditions) = attach_to(backends, gateways, route, parent) {
            parents.push(Attached { parent: parent.clone(), conditions });
        }
    }
    let told = Told {
        kind: route.kind,
        key: key(route.metadata),
        generation: route.metadata.generation.unwrap_or_default(),
        resource_version: route.metadata.resource_version.clone(),
        status: route.status.clone(),
        parents,
    };
    let was_ours = super::status::parents_of(route.status).iter().any(super::status::is_ours);
    (!told.parents.is_empty() || was_ours).then_some(told)
}

fn attach_to(
    backends: &Backends<'_>,
    gateways: &mut Gateways,
    route: Route<'_>,
    parent: &ParentRef,
) -> Option<Vec<Condition>> {
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
    let state = gateways.list.get_mut(gateway)?;
    let from = Referrer { group: GROUP, kind: route.kind, namespace: own };
    let (identity, defaults) = (state.identity.as_ref(), Some(&state.options));
    let asker = Asker { from, gateway: Some(&state.key), identity, defaults };
    let compiled = Lazy { backends, asker, route, rules: OnceCell::new() };
    let listener_namespace = match set {
        Some(set) => namespace(&state.frontend.sets.get(set)?.set.metadata).to_owned(),
        None => state.key.namespace.clone(),
    };
    let accepted = match compiled.unsupported() {
        Some(problem) => Some(problem),
        None => {
            let listeners = state.frontend.listeners.iter_mut().filter(|one| one.set == set);
            choose(backends.objects, &compiled, parent, &listener_namespace, listeners)
        }
    };
    let unresolved = compiled.unresolved();
    Some(vec![
        Condition::of("Accepted", "Accepted", accepted.as_ref()),
        Condition::of("ResolvedRefs", "ResolvedRefs", unresolved.as_ref()),
    ])
}

/// Attaches to all listeners that fit; the problem is that of the last step at which none was left.
fn choose<'l>(
    objects: &Objects,
    compiled: &Lazy<'_>,
    parent: &ParentRef,
    listener_namespace: &str,
    listeners: impl Iterator<Item = &'l mut Listening>,
) -> Option<Problem> {
    let route = compiled.route;
    let mut problem = Problem::new("NoMatchingParent", "no listener has this sectionName and port");
    let mut rank = 0;
    let mut note = |step: u8, new: Problem| {
        if step > rank {
            (rank, problem) = (step, new);
        }
    };
    let mut found = false;
    for listening in listeners {
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
        listening.attached += 1;
        compiled.put(listening, hosts);
    }
    (!found).then_some(problem)
}

/// The hosts that the route serves at the listener, each with what the route itself called it.
fn hosts(route: Route<'_>, listening: &Listening) -> Vec<(Option<Hostname>, Option<Hostname>)> {
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

    fn put(&self, listening: &mut Listening, hosts: Vec<(Option<Hostname>, Option<Hostname>)>) {
        let since = age(self.route.metadata);
        if let Body::Stream(spec) = self.route.body {
            let purpose = match listening.tls {
                Some(TlsMode::Passthrough) => Use::Passthrough,
                _ => Use::Tcp,
            };
            let split = Arc::new(self.split(spec, purpose).0);
            let label: Box<str> = format!("{} {}", self.route.kind, name(self.route.metadata)).into();
            for (hostname, named) in hosts {
                // The most precise first, by what the route itself says.
                let (exact, length) = specificity(named.as_ref());
                let precise = usize::from(exact) * 10_000 + length;
                let order = i64::try_from(precise).unwrap_or_default();
                let stream = StreamRoute { hostname, route: label.clone(), split: split.clone() };
                let place = (-order, since.clone());
                let key = (place.0, format!("{:020}{}", place.1.0, place.1.1).into());
                listening.streams.push((key, stream));
            }
            return;
        }
        for (hostname, named) in hosts {
            let precise = specificity(named.as_ref());
            for (place, (matchers, rule)) in self.rules().rules.iter().enumerate() {
                let entries = matchers.iter().map(|matcher| {
                    let entry = Entry::new(matcher.clone(), rule.clone(), precise, since.clone(), place);
                    (hostname.clone(), entry)
                });
                listening.entries.extend(entries);
            }
        }
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
