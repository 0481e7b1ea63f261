//! What a change of one object can affect.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use ferry_client::ObjectKey;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::attach::{self, AnyRoute, Reads};
use super::super::machines::Machine;
use super::super::objects::{Id, key};
use super::super::{GatewayState, Resolved, ingress};
use super::Incremental;
use crate::api::{
    BackendTLSPolicy, GRPCRoute, Gateway, GatewayClass, HTTPRoute, ListenerSet, Namespaces, ReferenceGrant, TCPRoute,
    TLSRoute, UDPRoute,
};

const SERVICE_NAME: &str = "kubernetes.io/service-name";

type Now<K> = Option<Arc<K>>;

/// An object as it is now; None: it is no more.
#[derive(Clone)]
pub enum Changed {
    Class(ObjectKey, Now<GatewayClass>),
    Gateway(ObjectKey, Now<Gateway>),
    ListenerSet(ObjectKey, Now<ListenerSet>),
    Http(ObjectKey, Now<HTTPRoute>),
    Grpc(ObjectKey, Now<GRPCRoute>),
    Tls(ObjectKey, Now<TLSRoute>),
    Tcp(ObjectKey, Now<TCPRoute>),
    Udp(ObjectKey, Now<UDPRoute>),
    Grant(ObjectKey, Now<ReferenceGrant>),
    Policy(ObjectKey, Now<BackendTLSPolicy>),
    Ingress(ObjectKey, Now<Ingress>),
    IngressClass(ObjectKey, Now<IngressClass>),
    Service(ObjectKey, Now<Service>),
    Slice(ObjectKey, Now<EndpointSlice>),
    Secret(ObjectKey, Now<Secret>),
    ConfigMap(ObjectKey, Now<ConfigMap>),
    Namespace(ObjectKey, Now<Namespace>),
    Node(ObjectKey, Now<Node>),
    /// Not an object: whether this process is the one that gives Gateways their addresses.
    Leads(bool),
}

/// What has to be made anew.
#[derive(Default)]
pub(super) struct Dirty {
    pub classes: bool,
    pub all_gateways: bool,
    pub gateways: BTreeSet<ObjectKey>,
    /// Gateways may have other addresses.
    pub addresses: bool,
    /// Other machines serve, or tell something else.
    pub machines: bool,
    /// All statuses are to be looked at.
    pub all_statuses: bool,
    /// Somebody needs keys who did not before, or the other way round.
    pub need_keys: bool,
    pub policies: bool,
    pub ingress: ingress::Changes,
    pub routes: BTreeSet<Id>,
    /// Services with other endpoints.
    pub endpoints: BTreeSet<ObjectKey>,
    pub statuses: BTreeSet<Id>,
}

type Readers = HashMap<Reads, BTreeSet<Arc<Id>>>;

impl Dirty {
    pub fn readers(&mut self, readers: &Readers, what: &Reads) {
        self.routes.extend(readers.get(what).into_iter().flatten().map(|id| (**id).clone()));
    }

    /// The routes that name a Gateway or one of its ListenerSets.
    pub fn gateway_routes(&mut self, readers: &Readers, state: &GatewayState) {
        self.readers(readers, &Reads::Gateway((*state.key).clone()));
        for set in &state.frontend.sets {
            self.readers(readers, &Reads::ListenerSet(set.key.clone()));
        }
    }

    pub fn gateway_statuses(&mut self, state: &GatewayState) {
        self.statuses.insert(Id { kind: "Gateway", key: (*state.key).clone() });
        self.statuses.extend(state.frontend.sets.iter().map(|set| Id { kind: "ListenerSet", key: set.key.clone() }));
    }

    /// Those of a Gateway that say how many routes are attached. A set that is refused has no listeners.
    pub fn counts_of_routes(&mut self, state: &GatewayState) {
        self.statuses.insert(Id { kind: "Gateway", key: (*state.key).clone() });
        let sets = state.frontend.sets.iter().filter(|set| !set.listeners.is_empty());
        self.statuses.extend(sets.map(|set| Id { kind: "ListenerSet", key: set.key.clone() }));
    }

    pub fn ingress_statuses(&mut self, resolved: &Resolved) {
        let all = resolved.ingress.all();
        self.statuses.extend(all.map(|one| Id { kind: "Ingress", key: key(&one.metadata) }));
    }
}

/// Whether an object differs in what it asks for. Statuses that come back do not.
fn differs<K, S: PartialEq>(old: &Now<K>, now: &Now<K>, parts: fn(&K) -> (&ObjectMeta, &S)) -> bool {
    match (old.as_deref(), now.as_deref()) {
        (Some(old), Some(now)) => {
            let ((old, old_spec), (now, spec)) = (parts(old), parts(now));
            old_spec != spec
                || old.annotations != now.annotations
                || old.creation_timestamp != now.creation_timestamp
                || old.uid != now.uid
        }
        (None, None) => false,
        _ => true,
    }
}

fn put<K>(all: &mut HashMap<ObjectKey, Arc<K>>, key: &ObjectKey, now: Now<K>) -> Now<K> {
    match now {
        Some(now) => all.insert(key.clone(), now),
        None => all.remove(key),
    }
}

fn is_by_label(namespaces: Option<&Namespaces>) -> bool {
    namespaces.is_some_and(|namespaces| namespaces.from.as_deref() == Some("Selector"))
}

fn reindex(readers: &mut Readers, id: &Id, old: BTreeSet<Reads>, now: BTreeSet<Reads>) {
    for gone in old.difference(&now) {
        if let Some(of) = readers.get_mut(gone) {
            of.remove(id);
            if of.is_empty() {
                readers.remove(gone);
            }
        }
    }
    let name = Arc::new(id.clone());
    for new in now.difference(&old) {
        readers.entry(new.clone()).or_default().insert(name.clone());
    }
}

fn reads(of: Option<&AnyRoute>, kind: &'static str) -> BTreeSet<Reads> {
    of.map(|one| one.route(kind).reads()).unwrap_or_default()
}

impl Incremental {
    /// Notes what a route is made from now, and its old form: there may be no room for the new one.
    fn reread(&mut self, id: &Id, old: Option<AnyRoute>, now: Option<AnyRoute>, is_same: bool) {
        let (kept, kind) = (self.accepted.remove(id), id.kind);
        let before = &reads(old.as_ref(), kind) | &reads(kept.as_ref(), kind);
        let accepted = match kept {
            None if !self.resolved.tables.is_refused(id) => old,
            kept => kept,
        };
        let accepted = accepted.filter(|_| is_same);
        let after = &reads(now.as_ref(), kind) | &reads(accepted.as_ref(), kind);
        self.accepted.extend(accepted.map(|route| (id.clone(), route)));
        reindex(&mut self.readers, id, before, after);
    }

    /// An old form of a route is not needed any more.
    pub(super) fn let_go(&mut self, id: &Id, last: &AnyRoute) {
        let now = attach::find(&self.objects, id).map(|route| route.reads()).unwrap_or_default();
        let before = &now | &last.route(id.kind).reads();
        reindex(&mut self.readers, id, before, now);
    }

    /// Takes over the object, and notes what it affects.
    pub(super) fn take(&mut self, change: Changed, dirty: &mut Dirty) {
        macro_rules! route {
            ($field:ident, $type:ident, $kind:literal, $key:ident, $now:ident) => {{
                let id = Id { key: $key, kind: $kind };
                let old = self.objects.$field.set(&id.key, $now);
                let now = self.objects.$field.get(&id.key).cloned();
                if differs(&old, &now, |route| (&route.metadata, &route.spec)) {
                    let any = |of: Now<$type>| of.map(|one| one as AnyRoute);
                    let is_same =
                        old.as_ref().map(|old| &old.metadata.uid) == now.as_ref().map(|now| &now.metadata.uid);
                    self.reread(&id, any(old), any(now), is_same);
                    dirty.routes.insert(id.clone());
                }
                dirty.statuses.insert(id);
            }};
        }
        match change {
            Changed::Http(key, now) => route!(http_routes, HTTPRoute, "HTTPRoute", key, now),
            Changed::Grpc(key, now) => route!(grpc_routes, GRPCRoute, "GRPCRoute", key, now),
            Changed::Tls(key, now) => route!(tls_routes, TLSRoute, "TLSRoute", key, now),
            Changed::Tcp(key, now) => route!(tcp_routes, TCPRoute, "TCPRoute", key, now),
            Changed::Udp(key, now) => route!(udp_routes, UDPRoute, "UDPRoute", key, now),
            Changed::Class(key, now) => {
                let old = self.objects.classes.set(&key, now.clone());
                dirty.classes = true;
                dirty.all_gateways |= differs(&old, &now, |class| (&class.metadata, &class.spec));
                dirty.statuses.insert(Id { key, kind: "GatewayClass" });
            }
            Changed::Gateway(key, now) => self.take_gateway(key, now, dirty),
            Changed::ListenerSet(key, now) => {
                let old = self.objects.listener_sets.set(&key, now.clone());
                if differs(&old, &now, |set| (&set.metadata, &set.spec)) {
                    for set in [&old, &now].into_iter().flatten() {
                        let parent = &set.spec.parent_ref;
                        let namespace = parent.namespace.as_deref().unwrap_or(&key.namespace);
                        dirty.gateways.insert(ObjectKey::new(namespace, &parent.name));
                    }
                }
                dirty.statuses.insert(Id { key, kind: "ListenerSet" });
            }
            Changed::Grant(key, now) => {
                let old = self.objects.set_grant(&key, now.clone());
                if differs(&old, &now, |grant| (&grant.metadata, &grant.spec)) {
                    let is_there = |one: &ObjectKey| one.namespace == key.namespace;
                    let mut policies = self.resolved.policies.config_maps.iter();
                    dirty.policies |= policies.any(is_there);
                    let refers = |state: &&GatewayState| state.secrets.iter().chain(&state.config_maps).any(is_there);
                    let of = self.resolved.gateways.list.iter().filter(refers);
                    dirty.gateways.extend(of.map(|state| (*state.key).clone()));
                    dirty.readers(&self.readers, &Reads::Grants(key.namespace));
                }
            }
            Changed::Policy(key, now) => {
                let old = self.objects.policies.set(&key, now.clone());
                dirty.policies |= differs(&old, &now, |policy| (&policy.metadata, &policy.spec));
                dirty.statuses.insert(Id { key, kind: "BackendTLSPolicy" });
            }
            Changed::Ingress(key, now) => {
                let old = self.objects.ingresses.set(&key, now.clone());
                let is_ours = |one: &Arc<Ingress>| ingress::is_ours(&self.objects, one);
                if differs(&old, &now, |ingress| (&ingress.metadata, &ingress.spec))
                    && [&old, &now].into_iter().flatten().any(is_ours)
                {
                    dirty.ingress.keys.insert(key.clone());
                }
                dirty.statuses.insert(Id { key, kind: "Ingress" });
            }
            Changed::IngressClass(key, now) => {
                self.objects.ingress_classes.set(&key, now);
                dirty.ingress.all = true;
            }
            other => self.take_other(other, dirty),
        }
    }

    fn take_gateway(&mut self, key: ObjectKey, now: Now<Gateway>, dirty: &mut Dirty) {
        let old = self.objects.gateways.set(&key, now.clone());
        if differs(&old, &now, |gateway| (&gateway.metadata, &gateway.spec)) {
            dirty.gateways.insert(key.clone());
        }
        // Whoever has an address keeps it.
        let had = |gateway: &Now<Gateway>| gateway.as_ref().map(|gateway| gateway.status.value()["addresses"].clone());
        dirty.addresses |= had(&old) != had(&now);
        dirty.statuses.insert(Id { key, kind: "Gateway" });
    }

    /// The kinds that others refer to.
    fn take_other(&mut self, change: Changed, dirty: &mut Dirty) {
        match change {
            Changed::Service(key, now) => {
                let old = put(&mut self.objects.services, &key, now.clone());
                let seen = |service: &Now<Service>| {
                    let spec = service.as_ref().map(|service| service.spec.as_ref());
                    spec.map(|spec| spec.map(|spec| (spec.ports.clone(), spec.type_.clone())))
                };
                if seen(&old) != seen(&now) {
                    dirty.ingress.keys.extend(self.resolved.ingress.of_service(&key).cloned());
                    dirty.readers(&self.readers, &Reads::Service(key));
                }
            }
            Changed::Slice(key, now) => self.take_slice(&key, now, dirty),
            Changed::Secret(key, now) => {
                let old = put(&mut self.objects.secrets, &key, now.clone());
                let data = |secret: &Now<Secret>| secret.as_ref().map(|secret| secret.data.clone());
                if data(&old) != data(&now) {
                    dirty.ingress.keys.extend(self.resolved.ingress.of_secret(&key).cloned());
                    let of = self.resolved.gateways.list.iter().filter(|state| state.secrets.contains(&key));
                    dirty.gateways.extend(of.map(|state| (*state.key).clone()));
                }
            }
            Changed::ConfigMap(key, now) => {
                let old = put(&mut self.objects.config_maps, &key, now.clone());
                let data = |map: &Now<ConfigMap>| map.as_ref().map(|map| map.data.clone());
                if data(&old) != data(&now) {
                    dirty.policies |= self.resolved.policies.config_maps.contains(&key);
                    let of = self.resolved.gateways.list.iter().filter(|state| state.config_maps.contains(&key));
                    dirty.gateways.extend(of.map(|state| (*state.key).clone()));
                }
            }
            Changed::Namespace(key, now) => {
                let old = match now.clone() {
                    Some(now) => self.objects.namespaces.insert(key.name.clone(), now),
                    None => self.objects.namespaces.remove(&key.name),
                };
                let labels = |one: &Now<Namespace>| one.as_ref().and_then(|one| one.metadata.labels.clone());
                if labels(&old) != labels(&now) {
                    self.relabelled(&key.name, dirty);
                }
            }
            Changed::Node(key, now) => {
                let needed = self.objects.machines.need_keys();
                dirty.addresses |= self.objects.machines.set(&key.name, now.map(|node| Machine::read(&node)));
                dirty.need_keys |= needed != self.objects.machines.need_keys();
            }
            Changed::Leads(leads) => {
                self.settings.leads = leads;
                dirty.addresses = true;
                dirty.all_statuses |= leads;
            }
            _ => {}
        }
    }

    /// What chooses namespaces by label chooses anew.
    fn relabelled(&self, namespace: &str, dirty: &mut Dirty) {
        for gateway in self.objects.gateways.iter() {
            let allowed = gateway.spec.allowed_listeners.as_ref();
            if is_by_label(allowed.and_then(|allowed| allowed.namespaces.as_ref())) {
                dirty.gateways.insert(key(&gateway.metadata));
            }
        }
        let mut listeners = self.resolved.gateways.list.iter().flat_map(|state| &state.frontend.listeners);
        let routes = |one: &super::super::listeners::Listening| {
            is_by_label(one.spec.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref()))
        };
        if !listeners.any(routes) {
            return;
        }
        let first = Id { key: ObjectKey::new(namespace, ""), kind: "" };
        let of = self.resolved.routes.range::<Id, _>(first..).map(|(id, _)| id);
        dirty.routes.extend(of.take_while(|id| id.key.namespace == namespace).map(|id| (**id).clone()));
    }

    fn take_slice(&mut self, key: &ObjectKey, now: Now<EndpointSlice>, dirty: &mut Dirty) {
        let service = now.as_ref().and_then(|slice| slice.metadata.labels.as_ref()?.get(SERVICE_NAME));
        let service = service.map(|service| ObjectKey::new(&*key.namespace, service));
        if let Some(old) = self.service_of.remove(key) {
            if let Some(slices) = self.objects.slices.get_mut(&old) {
                slices.retain(|slice| slice.metadata.name.as_deref() != Some(&key.name));
                if slices.is_empty() {
                    self.objects.slices.remove(&old);
                }
            }
            dirty.endpoints.insert(old);
        }
        if let (Some(service), Some(now)) = (service, now) {
            self.objects.slices.entry(service.clone()).or_default().push(now);
            self.service_of.insert(key.clone(), service.clone());
            dirty.endpoints.insert(service);
        }
    }
}
