//! The service controller: LoadBalancer Services get what the provider makes for them, and give it back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, write};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Node, Service};
use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;

use super::ports::{self, LISTENING_PORTS, Port};
use super::{Ensured, Provider};
use crate::Context;

const NAME: &str = "service-controller";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const ASK_AGAIN: Duration = Duration::from_secs(5);

struct Reconciler {
    client: Client,
    recorder: Recorder,
    provider: Arc<dyn Provider>,
    services: Informer<Service>,
    nodes: Informer<Node>,
    queue: WorkQueue<ObjectKey>,
    /// Who wants to be reached at a port, so that they are looked at again when somebody else lets it go or takes it.
    by_port: Mutex<BTreeMap<Port, BTreeSet<ObjectKey>>>,
}

/// Whether this controller cares for the Service: those with a class are somebody else's.
pub(super) fn is_ours(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none()
}

/// Whether the provider may send traffic to the node.
fn takes_traffic(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready =
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let leaving = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    ready
        && node.metadata.deletion_timestamp.is_none()
        && !node.labels().contains_key(EXCLUDED)
        && !leaving.into_iter().any(|taint| taint.key == "ToBeDeletedByClusterAutoscaler")
}

pub(crate) fn start(context: &Context) {
    let Some(provider) = context.config.provider.clone() else { return };
    let client = context.client(NAME);
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        client,
        provider,
        services: context.informers.of(),
        nodes: context.informers.of(),
        queue: context.queue("service"),
        by_port: Mutex::default(),
    });
    let handler = this.clone();
    this.services.on_change(move |change| {
        let service = change.object();
        if let Change::Modified { old, new } = change {
            handler.tell_type(old, new);
        }
        if is_ours(service) || service.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            handler.queue.add(ObjectKey::of(&**service));
        }
        handler.note_ports(change);
        handler.note_addresses(change);
    });
    let handler = this.clone();
    this.nodes.on_change(move |change| {
        let addresses = |node: &Node| node.status.as_ref().and_then(|status| status.addresses.clone());
        let told = change.old().is_none_or(|old| {
            takes_traffic(old) != takes_traffic(change.object())
                || addresses(old) != addresses(change.object())
                || old.annotations().get(LISTENING_PORTS) != change.object().annotations().get(LISTENING_PORTS)
        });
        if told || matches!(change, Change::Deleted(_)) {
            for service in handler.services.list().iter().filter(|service| is_ours(service)) {
                handler.queue.add(ObjectKey::of(&**service));
            }
        }
    });
    let synced = this.clone();
    let ready = async move {
        synced.services.synced().await;
        synced.nodes.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(service) = self.services.get_key(key) else { return Ok(Action::Done) };
        let wanted = is_ours(&service) && service.metadata.deletion_timestamp.is_none();
        if wanted { self.ensure(key, &service).await } else { self.give_back(key, &service).await }
    }

    async fn ensure(&self, key: &ObjectKey, service: &Service) -> Result<Action, Error> {
        // The finalizer first: what was made must be given back, whatever happens after.
        if !service.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            self.patch(key, service, json!({ "finalizers": [FINALIZER] })).await?;
            self.recorder.event(service, EventType::Normal, "EnsuringLoadBalancer", "Ensuring load balancer");
        }
        let nodes: Vec<Arc<Node>> = self.nodes.list().into_iter().filter(|node| takes_traffic(node)).collect();
        match self.provider.ensure_load_balancer(service, &nodes, &self.services.list()) {
            Err(problem) => {
                let message = format!("Error syncing load balancer: failed to ensure load balancer: {problem}");
                self.recorder.event(service, EventType::Warning, "SyncLoadBalancerFailed", message.clone());
                Err(message.into())
            }
            Ok(Ensured::Pending) => Ok(Action::After(ASK_AGAIN)),
            Ok(Ensured::Ready(ingress)) => {
                self.ensured(key, service, ingress).await?;
                Ok(Action::Done)
            }
            Ok(Ensured::Limited { ingress, reason, why }) => {
                self.recorder.event(service, EventType::Warning, reason, why);
                self.ensured(key, service, ingress).await?;
                Ok(Action::Done)
            }
        }
    }

    async fn ensured(
        &self,
        key: &ObjectKey,
        service: &Service,
        ingress: Vec<LoadBalancerIngress>,
    ) -> Result<(), Error> {
        let reachable = !ingress.is_empty();
        if self.report(key, service, ingress).await? && reachable {
            self.recorder.event(service, EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer");
        }
        Ok(())
    }

    /// Looks again at those for whom a port of this Service matters, if it came or went.
    fn note_ports(&self, change: &Change<Service>) {
        let key = ObjectKey::of(&**change.object());
        let now = Some(change.object()).filter(|_| !matches!(change, Change::Deleted(_)));
        let of = |service: Option<&Arc<Service>>| {
            let balanced = service.map(|service| ports::balanced(service)).unwrap_or_default();
            let all = service.map(|service| ports::node_ports(service)).unwrap_or_default();
            (all.union(&balanced).cloned().collect::<BTreeSet<Port>>(), balanced)
        };
        let old = match change {
            Change::Deleted(last) => Some(last),
            _ => change.old(),
        };
        let ((all_before, before), (all_now, now)) = (of(old), of(now));
        let mut by_port = self.by_port.lock();
        for port in before.difference(&now) {
            if let Some(keys) = by_port.get_mut(port) {
                keys.remove(&key);
                if keys.is_empty() {
                    by_port.remove(port);
                }
            }
        }
        for port in &now {
            by_port.entry(port.clone()).or_default().insert(key.clone());
        }
        // Whether it has a node may decide for others, too.
        let ingress = |service: &Arc<Service>| service.status.as_ref().and_then(|status| status.load_balancer.clone());
        let moved = old.and_then(ingress) != Some(change.object()).and_then(ingress);
        let touched: Vec<&Port> = match moved {
            true => all_before.union(&all_now).collect(),
            false => all_before.symmetric_difference(&all_now).collect(),
        };
        for port in touched {
            let concerned = by_port.get(port).into_iter().flatten().filter(|other| **other != key);
            concerned.for_each(|other| self.queue.add(other.clone()));
        }
    }

    /// Looks again at those without an address when somebody else lets one go.
    fn note_addresses(&self, change: &Change<Service>) {
        let count = |service: &Service| {
            let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
            balancer.and_then(|balancer| balancer.ingress.as_ref()).map_or(0, Vec::len)
        };
        let (before, now) = match change {
            Change::Deleted(last) => (count(last), 0),
            _ => (change.old().map_or(0, |old| count(old)), count(change.object())),
        };
        if now < before {
            let waiting = self.services.list().into_iter().filter(|service| is_ours(service) && count(service) == 0);
            waiting.for_each(|service| self.queue.add(ObjectKey::of(&*service)));
        }
    }

    async fn give_back(&self, key: &ObjectKey, service: &Service) -> Result<Action, Error> {
        if !service.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(Action::Done);
        }
        self.recorder.event(service, EventType::Normal, "DeletingLoadBalancer", "Deleting load balancer");
        if let Err(problem) = self.provider.delete_load_balancer(service) {
            let message = format!("Error syncing load balancer: failed to delete load balancer: {problem}");
            self.recorder.event(service, EventType::Warning, "SyncLoadBalancerFailed", message.clone());
            return Err(message.into());
        }
        self.report(key, service, Vec::new()).await?;
        self.patch(key, service, json!({ "$deleteFromPrimitiveList/finalizers": [FINALIZER] })).await?;
        self.recorder.event(service, EventType::Normal, "DeletedLoadBalancer", "Deleted load balancer");
        Ok(Action::Done)
    }

    fn tell_type(&self, old: &Service, new: &Service) {
        let kind = |service: &Service| {
            service.spec.as_ref().and_then(|spec| spec.type_.clone()).unwrap_or_else(|| "ClusterIP".into())
        };
        let (before, now) = (kind(old), kind(new));
        if before != now && [&before, &now].contains(&&"LoadBalancer".to_owned()) {
            self.recorder.event(new, EventType::Normal, "Type", format!("{before} -> {now}"));
        }
    }

    /// Adds our finalizer or takes it away, and none of somebody else's that the cache has not heard of.
    async fn patch(&self, key: &ObjectKey, service: &Service, finalizers: serde_json::Value) -> Result<(), Error> {
        let mut patch = json!({ "metadata": finalizers });
        patch["metadata"]["uid"] = json!(service.metadata.uid);
        let api: Api<Service> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// True when something changed.
    async fn report(
        &self,
        key: &ObjectKey,
        service: &Service,
        ingress: Vec<LoadBalancerIngress>,
    ) -> Result<bool, Error> {
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let known = status.and_then(|status| status.ingress.clone()).unwrap_or_default();
        let ips = |list: &[LoadBalancerIngress]| {
            list.iter().map(|one| (one.ip.clone(), one.hostname.clone())).collect::<Vec<_>>()
        };
        if ips(&known) == ips(&ingress) {
            return Ok(false);
        }
        let patch = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        let api: Api<Service> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Local;
    use super::*;

    #[test]
    fn services_get_the_nodes_that_take_traffic() {
        let node = |name: &str, ready: &str, labels: serde_json::Value, addresses: &[(&str, &str)]| {
            let addresses: Vec<_> = addresses.iter().map(|(kind, ip)| json!({ "type": kind, "address": ip })).collect();
            let node: Node = serde_json::from_value(json!({
                "metadata": { "name": name, "labels": labels },
                "status": { "addresses": addresses, "conditions": [{ "type": "Ready", "status": ready }] },
            }))
            .expect("a node");
            Arc::new(node)
        };
        let nodes = [
            node("a", "True", json!({}), &[("InternalIP", "10.0.0.1"), ("ExternalIP", "192.0.2.1")]),
            node("b", "True", json!({}), &[("InternalIP", "10.0.0.2"), ("InternalIP", "fd00::2")]),
            node("c", "False", json!({}), &[("InternalIP", "10.0.0.3")]),
            node("d", "True", json!({ EXCLUDED: "" }), &[("InternalIP", "10.0.0.4")]),
        ];
        let service: Service =
            serde_json::from_value(json!({ "spec": { "type": "LoadBalancer", "ipFamilies": ["IPv4"] } }))
                .expect("a service");
        assert!(is_ours(&service));
        let good: Vec<_> = nodes.iter().filter(|node| takes_traffic(node)).cloned().collect();
        let Ok(Ensured::Ready(made)) = Local.ensure_load_balancer(&service, &good, &[]) else { panic!("not ready") };
        let ips: Vec<_> = made.iter().filter_map(|ingress| ingress.ip.as_deref()).collect();
        assert_eq!(ips, ["10.0.0.2", "192.0.2.1"]);
    }
}
