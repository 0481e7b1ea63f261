//! The loop of EndpointSlice.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{
    Api, Change, Error, EventType, Expectations, Index, Informer, ObjectKey, Recorder, WorkQueue, write,
};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::{Client, ResourceExt};
use parking_lot::Mutex;

use super::hints::{self, Mode};
use super::plan::{self, MANAGER, MANAGER_LABEL, SERVICE_LABEL};
use super::written::Written;
use crate::Context;
use crate::common::trigger_time::{self, TriggerTimes};
use crate::common::{endpoint, pod, throttle};

const NAME: &str = "endpointslice-controller";
/// As events name it, unlike the identity.
const COMPONENT: &str = "endpoint-slice-controller";
const WORKERS: usize = 5;
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

struct Reconciler {
    client: Client,
    recorder: Recorder,
    services: Informer<Service>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    slices: Index<EndpointSlice>,
    written: Written,
    /// Slices that were created and not yet seen: names are made up by the server, so that a second one would be
    /// another.
    expectations: Expectations,
    queue: WorkQueue<ObjectKey>,
    /// Services that share endpoints out by zone: what was told of each.
    shared: Mutex<HashMap<ObjectKey, Vec<String>>>,
    times: TriggerTimes,
    /// Services with pods whose node nobody knows yet.
    unplaced: Mutex<HashSet<ObjectKey>>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let (services, pods) = (context.informers.of::<Service>(), context.informers.of::<Pod>());
    let (nodes, slices) = (context.informers.of::<Node>(), context.informers.of::<EndpointSlice>());
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), COMPONENT, &context.tasks),
        client,
        services: services.clone(),
        pods: pods.clone(),
        nodes: nodes.clone(),
        slices: slices.index("service", |slice| service_of(slice).map(|key| key.to_string()).into_iter().collect()),
        written: Written::new(slices.clone()),
        expectations: Expectations::new(),
        queue: context.queue("endpoint_slice"),
        shared: Mutex::default(),
        times: TriggerTimes::default(),
        unplaced: Mutex::default(),
    });

    let handler = this.clone();
    services.on_change(move |change| {
        let key = ObjectKey::of(&**change.object());
        if matches!(change, Change::Deleted(_)) {
            handler.expectations.forget(&key);
            handler.shared.lock().remove(&key);
            handler.times.forget(&key);
            handler.unplaced.lock().remove(&key);
        } else {
            handler.queue.add(key);
        }
    });
    let handler = this.clone();
    pods.on_change(move |change| endpoint::enqueue_services(&handler.services, &handler.queue, change));
    // Zones, processors and readiness of nodes decide how endpoints are shared out.
    let handler = this.clone();
    nodes.on_change(move |change| {
        let told = change.old().is_none_or(|old| hints::shares_of(old) != hints::shares_of(change.object()));
        if told || matches!(change, Change::Deleted(_)) {
            handler.shared.lock().keys().for_each(|key| handler.queue.add(key.clone()));
        }
        if matches!(change, Change::Added(_)) {
            handler.unplaced.lock().drain().for_each(|key| handler.queue.add(key));
        }
    });
    let handler = this.clone();
    slices.on_change(move |change| {
        handler.written.seen(change);
        // A slice whose labels changed may have been taken from one Service and be another's.
        let now = service_of(change.object());
        let before = change.old().and_then(|old| service_of(old)).filter(|key| now.as_ref() != Some(key));
        if let (Change::Added(_), Some(key)) = (change, &now) {
            handler.expectations.created(key);
        }
        before.into_iter().chain(now).for_each(|key| handler.queue.add(key));
    });

    let ready = async move {
        services.synced().await;
        pods.synced().await;
        nodes.synced().await;
        slices.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

/// The Service that a slice of this controller belongs to.
fn service_of(slice: &EndpointSlice) -> Option<ObjectKey> {
    let labels = slice.labels();
    if labels.get(MANAGER_LABEL).map(String::as_str) != Some(MANAGER) {
        return None;
    }
    Some(ObjectKey::new(slice.namespace().unwrap_or_default(), labels.get(SERVICE_LABEL)?))
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(service) = self.services.get_key(key) else { return Ok(Action::Done) };
        if let Some(left) = self.expectations.pending(key) {
            return Ok(Action::After(left));
        }
        let Some(selector) = endpoint::selector(&service) else { return Ok(Action::Done) };
        if endpoint::waits_for_its_end(&service) {
            return Ok(Action::Done);
        }
        let mut existing = self.slices.get(&key.to_string());
        // What is planned on slices as they were would be refused. Their change wakes this Service again.
        if existing.iter().any(|slice| self.written.is_unseen(slice)) {
            return Ok(Action::Done);
        }
        existing.retain(|slice| slice.metadata.deletion_timestamp.is_none());
        let mut pods = self.pods.list_in(&key.namespace);
        pods.retain(|pod| selector.matches(pod.metadata.labels.as_ref()));
        throttle::rest(&self.queue, key, pods.len());
        let changed = self.times.next(key, &service, &pods);
        let lost = self.drop_lost(key, &service, &mut pods);
        let zone = |node: &str| self.nodes.get("", node)?.labels().get(ZONE_LABEL).cloned();
        let shares = || hints::shares(self.nodes.list().iter().map(|node| &**node));
        let mut plan = plan::plan(&service, &pods, &existing, zone, shares);
        for slice in plan.create.iter_mut().chain(&mut plan.update) {
            trigger_time::annotate(&mut slice.metadata.annotations, changed);
        }
        self.tell(key, &service, &plan);
        let result = self.carry_out(key, plan).await;
        if let Err(error) = &result
            && !write::is_conflict(error)
        {
            let message = format!("Error updating Endpoint Slices for Service {key}: {}", write::short(error));
            self.recorder.event(&*service, EventType::Warning, "FailedToUpdateEndpointSlices", message);
        }
        result?;
        let Some(lost) = lost else { return Ok(Action::Done) };
        // The others are served; whether the node comes is looked at again.
        self.unplaced.lock().insert(key.clone());
        let message = format!("Error updating Endpoint Slices for Service {key}: {lost}");
        self.recorder.event(&*service, EventType::Warning, "FailedToUpdateEndpointSlices", message);
        Err(lost.into())
    }

    /// Leaves out pods whose node nobody knows, unless they are to be found whatever becomes of them; says which.
    fn drop_lost(&self, key: &ObjectKey, service: &Service, pods: &mut Vec<Arc<Pod>>) -> Option<String> {
        if endpoint::tolerates_unready(service) {
            return None;
        }
        let is_lost = |pod: &Pod| {
            !pod::is_terminal(pod) && endpoint::has_address(pod) && self.nodes.get("", pod::node(pod)).is_none()
        };
        let mut lost = Vec::new();
        pods.retain(|pod| {
            let is_lost = is_lost(pod);
            if is_lost {
                let (name, node) = (pod.name_any(), pod::node(pod));
                lost.push(format!("skipping Pod {name} for Service {key}: Node {node} Not Found"));
            }
            !is_lost
        });
        match lost.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        }
    }

    /// Events of whether endpoints are shared out by zone, when that changes.
    fn tell(&self, key: &ObjectKey, service: &Service, plan: &plan::Plan) {
        let asked = hints::mode(service) == Mode::Shares;
        let says = |(family, why): &(String, String)| format!("{why}, addressType: {family}");
        let now: Option<Vec<String>> = asked.then(|| plan.unshared.iter().map(says).collect());
        let mut known = self.shared.lock();
        if known.get(key) == now.as_ref() {
            return;
        }
        let before = match &now {
            Some(now) => known.insert(key.clone(), now.clone()),
            None => known.remove(key),
        };
        drop(known);
        let families = || {
            let asked = service.spec.as_ref().and_then(|spec| spec.ip_families.clone()).unwrap_or_default();
            if asked.is_empty() { vec!["IPv4".to_owned()] } else { asked }
        };
        let (enabled, disabled) = ("TopologyAwareHintsEnabled", "TopologyAwareHintsDisabled");
        match now {
            Some(why) if why.is_empty() => {
                for family in families() {
                    let text = format!("Topology Aware Hints has been enabled, addressType: {family}");
                    self.recorder.event(service, EventType::Normal, enabled, text);
                }
            }
            Some(why) => why.into_iter().for_each(|text| {
                self.recorder.event(service, EventType::Warning, disabled, text);
            }),
            None if before.is_some_and(|before| before.is_empty()) => {
                for family in families() {
                    let text = format!("Topology Aware Hints has been disabled, addressType: {family}");
                    self.recorder.event(service, EventType::Warning, disabled, text);
                }
            }
            None => {}
        }
    }

    async fn carry_out(&self, key: &ObjectKey, plan: plan::Plan) -> Result<(), kube::Error> {
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &key.namespace);
        let parameters = PostParams::default();
        self.expectations.expect_creations(key, plan.create.len());
        for (done, slice) in plan.create.iter().enumerate() {
            if let Err(error) = api.create(&parameters, slice).await {
                for _ in done..plan.create.len() {
                    self.expectations.creation_failed(key);
                }
                return if write::is_namespace_terminating(&error) { Ok(()) } else { Err(error) };
            }
        }
        for slice in &plan.update {
            self.written.note(&api.replace(&slice.name_any(), &parameters, slice).await?);
        }
        for slice in &plan.delete {
            write::delete(&api, &**slice, None).await?;
        }
        Ok(())
    }
}
