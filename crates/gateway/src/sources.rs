//! The informers that the gateway follows, and what it keeps of their objects.

use std::collections::HashSet;
use std::sync::Arc;

use ferry_client::informer::Cached;
use ferry_client::{Api, Informer, Informers, ObjectKey, Selection};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use kube::{Client, Resource};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::{
    BackendTLSPolicy, GRPCRoute, Gateway, GatewayClass, HTTPRoute, ListenerSet, ReferenceGrant, TCPRoute, TLSRoute,
    UDPRoute,
};
use crate::keys;
use crate::resolve::{Changed, Id};
use crate::{Keys, Role};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The objects that changed since somebody looked. An object that changes twice is there once.
#[derive(Default)]
pub struct Mailbox {
    ids: Mutex<HashSet<Id>>,
    notify: Notify,
}

impl Mailbox {
    pub fn put(&self, id: Id) {
        self.ids.lock().insert(id);
        self.notify.notify_one();
    }

    pub fn take(&self) -> HashSet<Id> {
        std::mem::take(&mut *self.ids.lock())
    }

    pub async fn changed(&self) {
        self.notify.notified().await;
    }
}

/// Of a kind that the server has not, there is nothing.
fn of_kind<K>(client: &Client, tasks: &Tasks, served: &[String], trim: fn(&mut K)) -> Informer<K>
where
    K: Cached + Resource<DynamicType = ()>,
{
    if served.iter().any(|kind| *kind == K::kind(&())) {
        return Informer::trimmed(Api::all(client.clone()), tasks, Selection::default(), trim);
    }
    nothing()
}

/// Nobody here asks for more of the metadata of objects of which there may be many.
fn trim<K: Resource>(object: &mut K) {
    let meta = object.meta_mut();
    (meta.labels, meta.owner_references, meta.finalizers, meta.generate_name) = (None, None, None, None);
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
    meta.annotations = meta.annotations.take().filter(|annotations| !annotations.is_empty());
}

/// No more is held of other people's secrets than may be needed here.
fn trim_secret(secret: &mut Secret) {
    trim(secret);
    let is_tls = secret.type_.as_deref() == Some("kubernetes.io/tls");
    let wanted = ["tls.crt", "tls.key", "ca.crt"];
    if let Some(data) = &mut secret.data {
        // A Secret of users has either `auth` or nothing but users.
        let has_users = !is_tls && secret.type_.as_deref().is_none_or(|kind| kind == "Opaque");
        data.retain(|key, value| {
            wanted.contains(&key.as_str()) || has_users && (key == "auth" || value.0.len() <= 256)
        });
    }
    secret.string_data = None;
}

fn trim_config_map(map: &mut ConfigMap) {
    trim(map);
    if let Some(data) = &mut map.data {
        data.retain(|key, _| key == "ca.crt");
    }
    map.binary_data = None;
}

macro_rules! sources {
    ($($field:ident: $type:ident as $changed:ident,)*) => {
        pub struct Sources {
            $($field: Informer<$type>,)*
            /// Copies of Secrets and ConfigMaps, where this process may not read those themselves.
            handed: Option<Informer<Secret>>,
        }

        impl Sources {
            /// `changed` is told of every object that there is, and of every change from now on.
            pub async fn synced(&self, changed: &Arc<Mailbox>) {
                $(self.$field.synced().await;)*
                $(
                    let mailbox = changed.clone();
                    self.$field.on_change(move |change| {
                        mailbox.put(Id { key: ObjectKey::of(&**change.object()), kind: stringify!($type) });
                    });
                )*
                if let Some(handed) = &self.handed {
                    handed.synced().await;
                    let mailbox = changed.clone();
                    handed.on_change(move |change| keys::of(change.object()).into_iter().for_each(|id| mailbox.put(id)));
                }
            }

            /// An object as it is now.
            pub fn read(&self, id: &Id) -> Option<Changed> {
                if let Some(handed) = self.handed.as_ref().filter(|_| matches!(id.kind, "Secret" | "ConfigMap")) {
                    let name = ObjectKey::new(keys::NAMESPACE, keys::name(id.kind, &id.key));
                    return Some(keys::read(id, handed.get_key(&name)));
                }
                $(
                    if id.kind == stringify!($type) {
                        return Some(Changed::$changed(id.key.clone(), self.$field.get_key(&id.key)));
                    }
                )*
                None
            }
        }
    };
}

sources! {
    http_routes: HTTPRoute as Http,
    grpc_routes: GRPCRoute as Grpc,
    tls_routes: TLSRoute as Tls,
    tcp_routes: TCPRoute as Tcp,
    udp_routes: UDPRoute as Udp,
    slices: EndpointSlice as Slice,
    services: Service as Service,
    classes: GatewayClass as Class,
    gateways: Gateway as Gateway,
    listener_sets: ListenerSet as ListenerSet,
    grants: ReferenceGrant as Grant,
    policies: BackendTLSPolicy as Policy,
    ingresses: Ingress as Ingress,
    ingress_classes: IngressClass as IngressClass,
    secrets: Secret as Secret,
    config_maps: ConfigMap as ConfigMap,
    namespaces: Namespace as Namespace,
    nodes: Node as Node,
}

/// Of a kind of which nothing is followed, there is nothing.
fn nothing<K: Cached>() -> Informer<K> {
    let informer = Informer::detached();
    informer.mark_synced();
    informer
}

impl Sources {
    pub fn start(
        client: &Client,
        shared: &Informers,
        ingress_classes: Informer<IngressClass>,
        role: &Role,
        tasks: &Tasks,
        served: &[String],
    ) -> Self {
        macro_rules! of_routes {
            ($type:ident) => {
                of_kind(client, tasks, served, |route: &mut $type| {
                    trim(route);
                    route.spec.shrink();
                })
            };
        }
        let (secrets, config_maps, handed) = match role.keys {
            Keys::All => (
                Informer::trimmed(Api::all(client.clone()), tasks, Selection::default(), trim_secret),
                Informer::trimmed(Api::all(client.clone()), tasks, Selection::default(), trim_config_map),
                None,
            ),
            Keys::Handed => {
                let copies = Api::namespaced(client.clone(), keys::NAMESPACE);
                let handed = Informer::trimmed(copies, tasks, Selection::default(), keys::trim);
                (nothing(), nothing(), Some(handed))
            }
        };
        Self {
            classes: of_kind(client, tasks, served, trim),
            gateways: of_kind(client, tasks, served, trim),
            listener_sets: of_kind(client, tasks, served, trim),
            http_routes: of_routes!(HTTPRoute),
            grpc_routes: of_routes!(GRPCRoute),
            tls_routes: of_routes!(TLSRoute),
            tcp_routes: of_routes!(TCPRoute),
            udp_routes: of_routes!(UDPRoute),
            grants: of_kind(client, tasks, served, trim),
            policies: of_kind(client, tasks, served, trim),
            ingresses: Informer::trimmed(Api::all(client.clone()), tasks, Selection::default(), trim),
            ingress_classes,
            services: shared.of(),
            slices: shared.of(),
            namespaces: shared.of(),
            nodes: if role.has_company { shared.of() } else { nothing() },
            secrets,
            config_maps,
            handed,
        }
    }

    /// A Secret as it is now.
    pub fn secret(&self, key: &ObjectKey) -> Option<Arc<Secret>> {
        self.secrets.get_key(key)
    }

    pub fn config_map(&self, key: &ObjectKey) -> Option<Arc<ConfigMap>> {
        self.config_maps.get_key(key)
    }
}

pub fn ingress_classes(client: &Client, tasks: &Tasks) -> Informer<IngressClass> {
    Informer::trimmed(Api::all(client.clone()), tasks, Selection::default(), trim)
}
