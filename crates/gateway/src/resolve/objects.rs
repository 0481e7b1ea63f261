//! What the table is made from: one moment of the informers' caches.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ferry_client::ObjectKey;
use ferry_meta::selector::LabelSelector;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::grants::Granted;
use super::machines::Machines;
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
    /// Through `set_grant` alone.
    pub grants: Held<ReferenceGrant>,
    pub granted: Granted,
    pub policies: Held<BackendTLSPolicy>,
    pub ingresses: Held<Ingress>,
    pub ingress_classes: Held<IngressClass>,
    pub services: HashMap<ObjectKey, Arc<Service>>,
    /// By the Service that they are of.
    pub slices: HashMap<ObjectKey, Vec<Arc<EndpointSlice>>>,
    pub secrets: HashMap<ObjectKey, Arc<Secret>>,
    pub config_maps: HashMap<ObjectKey, Arc<ConfigMap>>,
    pub namespaces: HashMap<String, Arc<Namespace>>,
    pub machines: Machines,
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
        from.namespace == to.namespace || self.granted.permits(from, group, kind, to)
    }

    pub fn set_grant(&mut self, key: &ObjectKey, now: Option<Arc<ReferenceGrant>>) -> Option<Arc<ReferenceGrant>> {
        let old = self.grants.set(key, now.clone());
        self.granted.change(&key.namespace, old.as_deref(), now.as_deref());
        old
    }

    /// Whether a namespace is among those that may attach to something in the namespace `own`.
    pub fn allows(&self, allowed: &Allowed, own: &str, other: &str) -> bool {
        match allowed {
            Allowed::All => true,
            Allowed::Same => own == other,
            Allowed::Labelled(selector) => {
                let labels = self.namespaces.get(other).and_then(|found| found.metadata.labels.as_ref());
                selector.matches_with(|key| labels.and_then(|labels| labels.get(key)).map(String::as_str))
            }
            Allowed::Nobody => false,
        }
    }
}

/// The namespaces that may attach.
pub enum Allowed {
    All,
    Same,
    Labelled(LabelSelector),
    Nobody,
}

impl Allowed {
    /// `default` is what an empty field means.
    pub fn read(namespaces: Option<&Namespaces>, default: &str) -> Self {
        match namespaces.and_then(|namespaces| namespaces.from.as_deref()).unwrap_or(default) {
            "All" => Self::All,
            "Same" => Self::Same,
            "Selector" => {
                let selector = namespaces.and_then(|namespaces| namespaces.selector.as_ref());
                let selector = selector.and_then(|selector| serde_json::to_value(selector).ok());
                let selector = selector.and_then(|selector| LabelSelector::from_object(&selector).ok());
                selector.map_or(Self::Nobody, Self::Labelled)
            }
            _ => Self::Nobody,
        }
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
