//! EndpointSlice mirroring: Endpoints that somebody wrote by hand for a Service without a selector, as slices.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, Informer, ObjectKey, WorkQueue, owner, write};
use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Client, ResourceExt};

use super::endpointslice::{MANAGER_LABEL, SERVICE_LABEL};
use crate::Context;

const NAME: &str = "endpointslicemirroring-controller";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP_LABEL: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";
const PER_SUBSET: usize = 1000;
/// Annotations of the Endpoints that say nothing of the slices.
const OWN_ANNOTATIONS: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "endpoints.kubernetes.io/last-change-trigger-time"];

struct Loop {
    client: Client,
    endpoints: Informer<Endpoints>,
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let this = Arc::new(Loop {
        client,
        endpoints: context.informers.of(),
        services: context.informers.of(),
        slices: context.informers.of(),
    });
    let queue: WorkQueue<ObjectKey> = context.queue("endpoint_slice_mirroring");
    let keys = queue.clone();
    this.endpoints.on_change(move |change| keys.add(ObjectKey::of(&**change.object())));
    let keys = queue.clone();
    this.services.on_change(move |change| {
        let selects = |service: &Service| service.spec.as_ref().is_some_and(|spec| spec.selector.is_some());
        // Only whether there is a selector matters here.
        let told = match change {
            Change::Modified { old, new } => selects(old) != selects(new),
            Change::Added(_) | Change::Deleted(_) => true,
        };
        if told {
            keys.add(ObjectKey::of(&**change.object()));
        }
    });
    let keys = queue.clone();
    this.slices.on_change(move |change| {
        let slice = change.object();
        if slice.labels().get(MANAGER_LABEL).is_some_and(|manager| manager == MANAGER)
            && let Some(name) = slice.labels().get(SERVICE_LABEL)
        {
            keys.add(ObjectKey::new(slice.namespace().unwrap_or_default(), name.clone()));
        }
    });
    let synced = this.clone();
    let ready = async move {
        synced.endpoints.synced().await;
        synced.services.synced().await;
        synced.slices.synced().await;
    };
    controller::run(&context.tasks, NAME, &queue, 4, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

/// Whether the Endpoints are anybody's but a controller's.
fn is_mirrored(endpoints: &Endpoints, service: Option<&Service>) -> bool {
    let selects = |service: &Service| {
        service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_some_and(|s| !s.is_empty())
    };
    service.is_some_and(|service| !selects(service))
        && endpoints.metadata.deletion_timestamp.is_none()
        && endpoints.labels().get(SKIP_LABEL).is_none_or(|value| value != "true")
        && !endpoints.annotations().contains_key(LEADER_ANNOTATION)
}

type Key = (String, Vec<(String, i32, String)>);

fn sorted(ports: &[EndpointPort]) -> Vec<(String, i32, String)> {
    let mut list: Vec<_> = ports
        .iter()
        .map(|port| {
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
            (port.name.clone().unwrap_or_default(), port.port.unwrap_or_default(), protocol)
        })
        .collect();
    list.sort();
    list
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

/// The slices that say what the Endpoints say: one for each address family and set of ports.
fn wanted(endpoints: &Endpoints) -> Vec<EndpointSlice> {
    let mut slices: BTreeMap<Key, EndpointSlice> = BTreeMap::new();
    let name = endpoints.name_any();
    let mut labels = endpoints.labels().clone();
    labels.insert(SERVICE_LABEL.into(), name.clone());
    labels.insert(MANAGER_LABEL.into(), MANAGER.into());
    let mut annotations = endpoints.annotations().clone();
    annotations.retain(|key, _| !OWN_ANNOTATIONS.contains(&key.as_str()));
    for subset in endpoints.subsets.iter().flatten() {
        let ports: Vec<EndpointPort> = subset
            .ports
            .iter()
            .flatten()
            .map(|port| EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(port.port),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".into())),
                app_protocol: port.app_protocol.clone(),
            })
            .collect();
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let unready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        for (address, ready) in ready.chain(unready).take(PER_SUBSET) {
            let family = if address.ip.contains(':') { "IPv6" } else { "IPv4" };
            let slice = slices.entry((family.to_owned(), sorted(&ports))).or_insert_with(|| EndpointSlice {
                metadata: ObjectMeta {
                    generate_name: Some(if name.len() < 253 { format!("{name}-") } else { name.clone() }),
                    namespace: endpoints.metadata.namespace.clone(),
                    labels: Some(labels.clone()),
                    annotations: (!annotations.is_empty()).then(|| annotations.clone()),
                    owner_references: Some(vec![owner::controller_reference(endpoints)]),
                    ..ObjectMeta::default()
                },
                address_type: family.to_owned(),
                ports: Some(ports.clone()),
                endpoints: Some(Vec::new()),
            });
            slice.endpoints.get_or_insert_default().push(endpoint(address, ready));
        }
    }
    slices.into_values().collect()
}

fn key_of(slice: &EndpointSlice) -> Key {
    (slice.address_type.clone(), sorted(slice.ports.as_deref().unwrap_or_default()))
}

impl Loop {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let endpoints = self.endpoints.get_key(key);
        let service = self.services.get_key(key);
        let mirrored = endpoints.filter(|endpoints| is_mirrored(endpoints, service.as_deref()));
        let wanted = mirrored.map(|endpoints| wanted(&endpoints)).unwrap_or_default();
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut there: Vec<Arc<EndpointSlice>> = self.slices.list_in(&key.namespace);
        there.retain(|slice| {
            let label = |name: &str| slice.labels().get(name).map(String::as_str);
            label(MANAGER_LABEL) == Some(MANAGER) && label(SERVICE_LABEL) == Some(key.name.as_str())
        });
        for slice in wanted {
            match there.iter().position(|known| key_of(known) == key_of(&slice)) {
                None => match api.create(&PostParams::default(), &slice).await {
                    Err(error) if write::is_namespace_terminating(&error) => return Ok(Action::Done),
                    other => drop(other?),
                },
                Some(at) => {
                    let known = there.swap_remove(at);
                    let same = known.endpoints == slice.endpoints
                        && known.metadata.labels == slice.metadata.labels
                        && known.metadata.annotations == slice.metadata.annotations;
                    if !same {
                        let mut changed = slice;
                        let (labels, annotations) =
                            (changed.metadata.labels.take(), changed.metadata.annotations.take());
                        changed.metadata = ObjectMeta { labels, annotations, ..known.metadata.clone() };
                        api.replace(&known.name_any(), &PostParams::default(), &changed).await?;
                    }
                }
            }
        }
        for slice in there {
            write::delete(&api, &*slice, None).await?;
        }
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn subsets_become_slices() {
        let endpoints: Endpoints = serde_json::from_value(json!({
            "metadata": { "name": "db", "namespace": "a", "uid": "u", "labels": { "x": "y" }, "annotations": { OWN_ANNOTATIONS[0]: "{}", "k": "v" } },
            "subsets": [
                { "addresses": [{ "ip": "10.0.0.1" }, { "ip": "fd00::1" }], "notReadyAddresses": [{ "ip": "10.0.0.2" }], "ports": [{ "port": 5432 }] },
                { "addresses": [{ "ip": "10.0.0.3" }], "ports": [{ "port": 5432 }] },
                { "addresses": [{ "ip": "10.0.0.4" }], "ports": [{ "port": 80, "name": "web" }] },
            ],
        }))
        .expect("endpoints");
        let made = wanted(&endpoints);
        let told: Vec<_> = made
            .iter()
            .map(|slice| {
                let list = slice.endpoints.iter().flatten();
                let text: Vec<String> = list
                    .map(|e| {
                        format!(
                            "{}{}",
                            e.addresses[0],
                            if e.conditions.as_ref().and_then(|c| c.ready) == Some(true) { "" } else { "!" }
                        )
                    })
                    .collect();
                format!("{} {}", slice.address_type, text.join(" "))
            })
            .collect();
        assert_eq!(told, ["IPv4 10.0.0.1 10.0.0.2! 10.0.0.3", "IPv4 10.0.0.4", "IPv6 fd00::1"]);
        assert_eq!(made[0].labels()[MANAGER_LABEL], MANAGER);
        assert_eq!(made[0].annotations().keys().collect::<Vec<_>>(), ["k"]);
    }

    #[test]
    fn only_those_of_services_without_a_selector() {
        let check = |labels: Value, selector: Option<Value>, expected: bool| {
            let endpoints =
                serde_json::from_value(json!({ "metadata": { "name": "e", "labels": labels } })).expect("endpoints");
            let service = selector.map(|selector| {
                serde_json::from_value::<Service>(json!({ "spec": { "selector": selector } })).expect("a service")
            });
            assert_eq!(is_mirrored(&endpoints, service.as_ref()), expected);
        };
        check(json!({}), Some(Value::Null), true);
        check(json!({}), Some(json!({ "app": "x" })), false);
        check(json!({}), None, false);
        check(json!({ SKIP_LABEL: "true" }), Some(Value::Null), false);
    }
}
