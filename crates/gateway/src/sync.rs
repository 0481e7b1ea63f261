//! The loop from the informers to the sockets and back to the statuses.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::informer::Cached;
use ferry_client::{Api, EventType, Informer, Informers, ObjectKey, Recorder, Selection, write};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ObjectReference, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::Notify;

use crate::api::{
    BackendTLSPolicy, GROUP, GRPCRoute, Gateway, GatewayClass, HTTPRoute, ListenerSet, ReferenceGrant, TCPRoute,
    TLSRoute, UDPRoute,
};
use crate::resolve::certificates::Certificates;
use crate::resolve::objects::Objects;
use crate::resolve::status;
use crate::resolve::{Settings, resolve, system_authorities};
use crate::serve::{AccessLog, Shared, Sockets};
use crate::statuses::Statuses;
use crate::{CLASS, CONTROLLER, Config, INGRESS_CONTROLLER, crd};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const RETRY: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(100);
/// A port that is in use may become free without a word.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Events that are remembered so that they are not told again.
const MOST_TOLD: usize = 10_000;

struct Sources {
    classes: Informer<GatewayClass>,
    gateways: Informer<Gateway>,
    listener_sets: Informer<ListenerSet>,
    http_routes: Informer<HTTPRoute>,
    grpc_routes: Informer<GRPCRoute>,
    tls_routes: Informer<TLSRoute>,
    tcp_routes: Informer<TCPRoute>,
    udp_routes: Informer<UDPRoute>,
    grants: Informer<ReferenceGrant>,
    policies: Informer<BackendTLSPolicy>,
    ingresses: Informer<Ingress>,
    ingress_classes: Informer<IngressClass>,
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    secrets: Informer<Secret>,
    config_maps: Informer<ConfigMap>,
    namespaces: Informer<Namespace>,
}

/// Of a kind that the server has not, there is nothing.
fn of_kind<K>(client: &Client, tasks: &Tasks, served: &[String]) -> Informer<K>
where
    K: Cached + Resource<DynamicType = ()>,
{
    if served.iter().any(|kind| *kind == K::kind(&())) {
        return Informer::with(client.clone(), tasks, Selection::default());
    }
    let informer = Informer::detached();
    informer.mark_synced();
    informer
}

/// No more is held of other people's secrets than may be needed here.
fn trim_secret(secret: &mut Secret) {
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
    if let Some(data) = &mut map.data {
        data.retain(|key, _| key == "ca.crt");
    }
    map.binary_data = None;
}

impl Sources {
    fn start(client: &Client, shared: &Informers, tasks: &Tasks, served: &[String]) -> Self {
        Self {
            classes: of_kind(client, tasks, served),
            gateways: of_kind(client, tasks, served),
            listener_sets: of_kind(client, tasks, served),
            http_routes: of_kind(client, tasks, served),
            grpc_routes: of_kind(client, tasks, served),
            tls_routes: of_kind(client, tasks, served),
            tcp_routes: of_kind(client, tasks, served),
            udp_routes: of_kind(client, tasks, served),
            grants: of_kind(client, tasks, served),
            policies: of_kind(client, tasks, served),
            ingresses: Informer::with(client.clone(), tasks, Selection::default()),
            ingress_classes: Informer::with(client.clone(), tasks, Selection::default()),
            services: shared.of(),
            slices: shared.of(),
            namespaces: shared.of(),
            secrets: Informer::trimmed(Api::all(client.clone()), tasks, Selection::default(), trim_secret),
            config_maps: Informer::trimmed(Api::all(client.clone()), tasks, Selection::default(), trim_config_map),
        }
    }

    async fn synced(&self, changed: &Arc<Notify>) {
        macro_rules! follow {
            ($($field:ident),*) => { $(
                self.$field.synced().await;
                let notify = changed.clone();
                self.$field.on_change(move |_| notify.notify_one());
            )* };
        }
        follow!(
            classes,
            gateways,
            listener_sets,
            http_routes,
            grpc_routes,
            tls_routes,
            tcp_routes,
            udp_routes,
            grants,
            policies,
            ingresses,
            ingress_classes,
            services,
            slices,
            secrets,
            config_maps,
            namespaces
        );
    }

    fn objects(&self) -> Objects {
        let mut slices: HashMap<ObjectKey, Vec<Arc<EndpointSlice>>> = HashMap::new();
        for slice in self.slices.list() {
            let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
            if let Some(service) = service {
                let key = ObjectKey::new(slice.metadata.namespace.as_deref().unwrap_or_default(), service);
                slices.entry(key).or_default().push(slice);
            }
        }
        Objects {
            classes: self.classes.list(),
            gateways: self.gateways.list(),
            listener_sets: self.listener_sets.list(),
            http_routes: self.http_routes.list(),
            grpc_routes: self.grpc_routes.list(),
            tls_routes: self.tls_routes.list(),
            tcp_routes: self.tcp_routes.list(),
            udp_routes: self.udp_routes.list(),
            grants: self.grants.list(),
            policies: self.policies.list(),
            ingresses: self.ingresses.list(),
            ingress_classes: self.ingress_classes.list(),
            services: by_key(&self.services),
            slices,
            secrets: by_key(&self.secrets),
            config_maps: by_key(&self.config_maps),
            namespaces: self
                .namespaces
                .list()
                .into_iter()
                .map(|one| (one.metadata.name.clone().unwrap_or_default(), one))
                .collect(),
        }
    }
}

fn by_key<K: Cached>(informer: &Informer<K>) -> HashMap<ObjectKey, Arc<K>> {
    informer.list().into_iter().map(|object| (ObjectKey::of(&*object), object)).collect()
}

pub async fn run(config: Config, client: Client, informers: &Informers, recorder: Recorder, tasks: &Tasks) {
    let served = prepare(&client).await;
    let sources = Sources::start(&client, informers, tasks, &served);
    let changed = Arc::new(Notify::new());
    sources.synced(&changed).await;
    let access_log = match &config.access_log {
        None => None,
        Some(path) => match AccessLog::open(path, tasks).await {
            Ok(log) => Some(log),
            Err(error) => {
                tracing::error!("requests are not logged: {} cannot be opened: {error}", path.display());
                None
            }
        },
    };
    let shared = Shared::new(tasks, access_log);
    if let Some(address) = config.metrics_bind_address {
        crate::serve::serve_metrics(address, &shared);
    }
    let settings = Settings { addresses: config.addresses.clone(), system_authorities: system_authorities() };
    let loopback = std::net::IpAddr::from([127, 0, 0, 1]);
    let alias = settings.addresses.first().filter(|first| **first != loopback).map(|first| (*first, loopback));
    let mut sockets = Sockets::new(shared.clone(), alias);
    let certificates = Certificates::default();
    let statuses = Statuses::start(&client, &changed, tasks);
    let mut told = HashSet::new();
    loop {
        let resolved = resolve(&sources.objects(), &settings, &certificates);
        let bound = sockets.apply(&resolved.ports);
        shared.told.set(resolved.classes.iter().filter_map(|class| class.metadata.annotations.as_ref()));
        let updates = status::updates(&resolved, &bound, &settings, &now());
        for warning in status::warnings(&resolved, &bound) {
            if told.len() > MOST_TOLD {
                told.clear();
            }
            if told.insert((warning.uid.clone(), warning.reason, warning.message.clone())) {
                let group = if warning.kind == "Ingress" { "networking.k8s.io" } else { GROUP };
                let regarding = ObjectReference {
                    api_version: Some(format!("{group}/v1")),
                    kind: Some(warning.kind.to_owned()),
                    namespace: Some(warning.key.namespace),
                    name: Some(warning.key.name),
                    uid: warning.uid,
                    ..ObjectReference::default()
                };
                recorder.event_for(regarding, EventType::Warning, warning.reason, warning.message);
            }
        }
        let is_short = bound.iter().any(|((_, port, _), outcome)| outcome.as_ref().ok() != Some(port));
        statuses.write(updates);
        match is_short {
            false => changed.notified().await,
            true => {
                let _ = tokio::time::timeout(LOOK_AGAIN, changed.notified()).await;
            }
        }
    }
}

fn now() -> String {
    let time = write::now();
    time.0.to_string()
}

/// Definitions and classes are there when this returns; gives the kinds that the server has.
async fn prepare(client: &Client) -> Vec<String> {
    let mut tries = 100;
    loop {
        let prepared = async {
            let expected = crd::install(client).await?;
            make_classes(client).await?;
            Ok::<_, kube::Error>((expected, crd::served(client).await?))
        };
        match prepared.await {
            Ok((expected, served)) => {
                let missing: Vec<_> = expected.into_iter().filter(|kind| !served.contains(kind)).collect();
                // Definitions take a moment. Somebody else's may never have the version that is read here.
                if missing.is_empty() || tries == 0 {
                    return served;
                }
                tries -= 1;
                tokio::time::sleep(SOON).await;
            }
            Err(error) => {
                tracing::info!("the gateway waits for its definitions: {}", write::short(&error));
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn make_classes(client: &Client) -> Result<(), kube::Error> {
    let labels = json!({ "app.kubernetes.io/managed-by": "ferry" });
    let classes = [
        (
            format!("/apis/{GROUP}/v1/gatewayclasses"),
            json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": "GatewayClass",
                "metadata": { "name": CLASS, "labels": labels },
                "spec": { "controllerName": CONTROLLER },
            }),
        ),
        (
            "/apis/networking.k8s.io/v1/ingressclasses".to_owned(),
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
                "metadata": { "name": CLASS, "labels": labels },
                "spec": { "controller": INGRESS_CONTROLLER },
            }),
        ),
    ];
    for (path, class) in classes {
        let body = serde_json::to_vec(&class).map_err(kube::Error::SerdeError)?;
        let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json").body(body);
        match write::send(client, request.map_err(kube::Error::HttpError)?).await {
            Err(error) if !write::is_already_exists(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
