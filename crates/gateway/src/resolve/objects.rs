//! What the table is made from: one moment of the informers' caches.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ferry_client::ObjectKey;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::Resource;

use crate::api::{
    BackendTLSPolicy, GRPCRoute, Gateway, GatewayClass, HTTPRoute, ListenerSet, Namespaces, ReferenceGrant, TCPRoute,
    TLSRoute, UDPRoute,
};

/// The name of an object among those of all kinds; those of one namespace are beside each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    pub key: ObjectKey,
    pub kind: &'static str,
}

/// All objects of one kind, by namespace and name.
#[derive(Clone)]
pub struct Held<K>(BTreeMap<ObjectKey, Arc<K>>);

impl<K> Default for Held<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Resource> Held<K> {
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.0.get(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.0.values()
    }

    /// The objects of one namespace.
    pub fn of_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        let first = ObjectKey::new(namespace, "");
        self.0.range(first..).take_while(move |(key, _)| key.namespace == namespace).map(|(_, object)| object)
    }

    /// Puts an object in the place of the one of this name, or takes that one away; gives the one that was there.
    pub fn set(&mut self, key: &ObjectKey, now: Option<Arc<K>>) -> Option<Arc<K>> {
        match now {
            Some(now) => self.0.insert(key.clone(), now),
            None => self.0.remove(key),
        }
    }

    #[cfg(test)]
    pub fn push(&mut self, object: Arc<K>) {
        self.0.insert(key(object.meta()), object);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
impl<K: Resource, const N: usize> From<[Arc<K>; N]> for Held<K> {
    fn from(all: [Arc<K>; N]) -> Self {
        Self(all.into_iter().map(|object| (key(object.meta()), object)).collect())
    }
}

#[derive(Clone, Default)]
pub struct Objects {
    pub classes: Held<GatewayClass>,
    pub gateways: Held<Gateway>,
    pub listener_sets: Held<ListenerSet>,
    pub http_routes: Held<HTTPRoute>,
    pub grpc_routes: Held<GRPCRoute>,
    pub tls_routes: Held<TLSRoute>,
    pub tcp_routes: Held<TCPRoute>,
    pub udp_routes: Held<UDPRoute>,
    pub grants: Held<ReferenceGrant>,
    pub policies: Held<BackendTLSPolicy>,
    pub ingresses: Held<Ingress>,
    pub ingress_classes: Held<IngressClass>,
    pub services: HashMap<ObjectKey, Arc<Service>>,
    /// By the Service that they are of.
    pub slices: HashMap<ObjectKey, Vec<Arc<EndpointSlice>>>,
    pub secrets: HashMap<ObjectKey, Arc<Secret>>,
    pub config_maps: HashMap<ObjectKey, Arc<ConfigMap>>,
    pub namespaces: HashMap<String, Arc<Namespace>>,
}

/// An object that refers to another.
#[derive(Clone, Copy)]
pub struct Referrer<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
}

impl Objects {
    /// Whether a reference may cross namespaces: the other side has to grant it.
    pub fn permits(&self, from: Referrer<'_>, group: &str, kind: &str, to: &ObjectKey) -> bool {
        from.namespace == to.namespace
            || self.grants.of_namespace(&to.namespace).any(|grant| {
                grant.spec.from.iter().any(|known| {
                    known.group == from.group && known.kind == from.kind && known.namespace == from.namespace
                }) && grant.spec.to.iter().any(|known| {
                    let named = known.name.as_deref().filter(|name| !name.is_empty());
                    known.group == group && known.kind == kind && named.is_none_or(|name| name == to.name)
                })
            })
    }

    /// Whether a namespace is among those that may attach; `default` is what an empty field means.
    pub fn allows(&self, namespaces: Option<&Namespaces>, default: &str, own: &str, other: &str) -> bool {
        match namespaces.and_then(|namespaces| namespaces.from.as_deref()).unwrap_or(default) {
            "All" => true,
            "Same" => own == other,
            "Selector" => {
                let selector = namespaces.and_then(|namespaces| namespaces.selector.as_ref());
                selector.is_some_and(|selector| self.selects(selector, other))
            }
            _ => false,
        }
    }

    fn selects(&self, selector: &LabelSelector, namespace: &str) -> bool {
        let Ok(selector) = serde_json::to_value(selector) else { return false };
        let Ok(selector) = ferry_meta::selector::LabelSelector::from_object(&selector) else { return false };
        let labels = self.namespaces.get(namespace).and_then(|found| found.metadata.labels.as_ref());
        selector.matches_with(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
    }
}

/// Who came first: by creation, then by name.
pub fn age(meta: &ObjectMeta) -> (i64, Arc<str>) {
    let since = meta.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second());
    (since, name(meta).into())
}

/// `namespace/name`.
pub fn name(meta: &ObjectMeta) -> String {
    key(meta).to_string()
}

pub fn key(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(namespace(meta), meta.name.as_deref().unwrap_or_default())
}

pub fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}
