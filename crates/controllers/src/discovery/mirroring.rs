//! EndpointSlice mirroring: Endpoints that somebody wrote by hand for a Service without a selector, as slices.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{
    Api, Change, Error, EventType, Expectations, Informer, ObjectKey, Recorder, WorkQueue, owner, write,
};
use k8s_openapi::api::core::v1::{EndpointAddress, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Client, ResourceExt};

use super::endpointslice::{MANAGER_LABEL, SERVICE_LABEL};
use crate::Context;

const NAME: &str = "endpointslicemirroring-controller";
/// As events name it, unlike the identity.
const COMPONENT: &str = "endpoint-slice-mirroring-controller";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP_LABEL: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";
const PER_SUBSET: usize = 1000;
/// Annotations of the Endpoints that say nothing of the slices.
const OWN_ANNOTATIONS: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "endpoints.kubernetes.io/last-change-trigger-time"];

struct Reconciler {
    client: Client,
    recorder: Recorder,
    endpoints: Informer<Endpoints>,
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    /// Slices that were created and not yet seen: a second one would have another name.
    expectations: Expectations,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), COMPONENT, &context.tasks),
        client,
        endpoints: context.informers.of(),
        services: context.informers.of(),
        slices: context.informers.of(),
        expectations: Expectations::new(),
    });
    let queue: WorkQueue<ObjectKey> = context.queue("endpoint_slice_mirroring");
    let keys = queue.clone();
    this.endpoints.on_change(move |change| keys.add(ObjectKey::of(&**change.object())));
    let keys = queue.clone();
    this.services.on_change(move |change| {
        // Only whether there is a selector matters here.
        let told = match change {
            Change::Modified { old, new } => selects(old) != selects(new),
            Change::Added(_) | Change::Deleted(_) => true,
        };
        if told {
            keys.add(ObjectKey::of(&**change.object()));
        }
    });
    let (handler, keys) = (this.clone(), queue.clone());
    this.slices.on_change(move |change| {
        for slice in change.old().into_iter().chain([change.object()]) {
            if slice.labels().get(MANAGER_LABEL).is_some_and(|manager| manager == MANAGER)
                && let Some(name) = slice.labels().get(SERVICE_LABEL)
            {
                let key = ObjectKey::new(slice.namespace().unwrap_or_default(), name.clone());
                if matches!(change, Change::Added(_)) {
                    handler.expectations.created(&key);
                }
                keys.add(key);
            }
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

fn selects(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| !selector.is_empty())
}

/// Whether the Endpoints are anybody's but a controller's.
fn is_mirrored(endpoints: &Endpoints, service: Option<&Service>) -> bool {
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

/// What of Endpoints does not get into slices.
#[derive(Debug, Default, PartialEq)]
struct Skipped {
    invalid: usize,
    surplus: usize,
}

/// The slices that say what the Endpoints say: one for each address family and set of ports.
fn wanted(endpoints: &Endpoints) -> (Vec<EndpointSlice>, Skipped) {
    let mut skipped = Skipped::default();
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
        let mut taken = 0;
        for (address, ready) in ready.chain(unready) {
            if taken == PER_SUBSET {
                skipped.surplus += 1;
                continue;
            }
            let family = match address.ip.parse() {
                Ok(std::net::IpAddr::V4(_)) => "IPv4",
                Ok(std::net::IpAddr::V6(_)) => "IPv6",
                Err(_) => {
                    skipped.invalid += 1;
                    continue;
                }
            };
            taken += 1;
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
    (slices.into_values().collect(), skipped)
}

fn key_of(slice: &EndpointSlice) -> Key {
    (slice.address_type.clone(), sorted(slice.ports.as_deref().unwrap_or_default()))
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let endpoints = self.endpoints.get_key(key);
        let service = self.services.get_key(key);
        if let Some(left) = self.expectations.pending(key) {
            return Ok(Action::After(left));
        }
        let mirrored = endpoints.filter(|endpoints| is_mirrored(endpoints, service.as_deref()));
        let (wanted, skipped) = mirrored.as_ref().map(|endpoints| wanted(endpoints)).unwrap_or_default();
        if let Some(endpoints) = &mirrored {
            self.tell(endpoints, &skipped);
        } else {
            self.expectations.forget(key);
        }
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut there: Vec<Arc<EndpointSlice>> = self.slices.list_in(&key.namespace);
        there.retain(|slice| {
            let label = |name: &str| slice.labels().get(name).map(String::as_str);
            label(MANAGER_LABEL) == Some(MANAGER) && label(SERVICE_LABEL) == Some(key.name.as_str())
        });
        for slice in wanted {
            match there.iter().position(|known| key_of(known) == key_of(&slice)) {
                None => {
                    self.expectations.expect_creations(key, 1);
                    if let Err(error) = api.create(&PostParams::default(), &slice).await {
                        self.expectations.creation_failed(key);
                        if write::is_namespace_terminating(&error) {
                            return Ok(Action::Done);
                        }
                        return Err(error.into());
                    }
                }
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

    fn tell(&self, endpoints: &Endpoints, skipped: &Skipped) {
        let Skipped { invalid, surplus } = skipped;
        if *invalid > 0 {
            let text = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
            self.recorder.event(endpoints, EventType::Warning, "InvalidIPAddress", text);
        }
        if *surplus > 0 {
            let text = format!(
                "A max of {PER_SUBSET} addresses can be mirrored to EndpointSlices per Endpoints subset. {surplus} addresses were skipped"
            );
            self.recorder.event(endpoints, EventType::Warning, "TooManyAddressesToMirror", text);
        }
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
        let (made, skipped) = wanted(&endpoints);
        assert_eq!(skipped, Skipped::default());
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
    fn what_does_not_fit_is_counted() {
        let addresses: Vec<Value> = (0..PER_SUBSET + 2)
            .map(|number| json!({ "ip": format!("10.0.{}.{}", number / 250, number % 250) }))
            .chain([json!({ "ip": "nonsense" })])
            .rev()
            .collect();
        let subset = json!({ "addresses": addresses, "ports": [{ "port": 1 }] });
        let endpoints = serde_json::from_value(json!({ "subsets": [subset] })).expect("endpoints");
        let (made, skipped) = wanted(&endpoints);
        assert_eq!(made[0].endpoints.as_ref().map(Vec::len), Some(PER_SUBSET));
        assert_eq!(skipped, Skipped { invalid: 1, surplus: 2 });
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
