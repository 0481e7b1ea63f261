//! What the table is made from: one moment of the informers' caches.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_client::ObjectKey;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::api::{
    BackendTLSPolicy, GRPCRoute, Gateway, GatewayClass, HTTPRoute, ListenerSet, Namespaces, ReferenceGrant, TCPRoute,
    TLSRoute, UDPRoute,
};

#[derive(Clone, Default)]
pub struct Objects {
    pub classes: Vec<Arc<GatewayClass>>,
    pub gateways: Vec<Arc<Gateway>>,
    pub listener_sets: Vec<Arc<ListenerSet>>,
    pub http_routes: Vec<Arc<HTTPRoute>>,
    pub grpc_routes: Vec<Arc<GRPCRoute>>,
    pub tls_routes: Vec<Arc<TLSRoute>>,
    pub tcp_routes: Vec<Arc<TCPRoute>>,
    pub udp_routes: Vec<Arc<UDPRoute>>,
    pub grants: Vec<Arc<ReferenceGrant>>,
    pub policies: Vec<Arc<BackendTLSPolicy>>,
    pub ingresses: Vec<Arc<Ingress>>,
    pub ingress_classes: Vec<Arc<IngressClass>>,
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
            || self.grants.iter().any(|grant| {
                grant.metadata.namespace.as_deref() == Some(&to.namespace)
                    && grant.spec.from.iter().any(|known| {
                        known.group == from.group && known.kind == from.kind && known.namespace == from.namespace
                    })
                    && grant.spec.to.iter().any(|known| {
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
pub fn age(meta: &ObjectMeta) -> (i64, Box<str>) {
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
