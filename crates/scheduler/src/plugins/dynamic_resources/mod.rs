//! DynamicResources: pods go where the devices they claim can be had, and have them before they are bound.
//!
//! A claim gets its devices when the first pod that uses it gets its node. They are found in Filter, count from Reserve on, and
//! are written into the claim in PreBind, together with the reservation for the pod.

mod binding;
mod claims;
mod extended;
mod state;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use ferry_client::{Change, EventType, Recorder};
use ferry_tasks::Tasks;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::config::types::DynamicResourcesArgs;
use crate::devices::Devices;
use crate::framework::{
    BindError, Cycle, CycleState, Data, Diagnosis, Events, Happening, Plugin, Point, PostFilter, PreFilter, PreScore,
    Rejection, Search, Surroundings, Verdict, normalize_by_maximum,
};
use crate::model::{NodeInfo, PodInfo};
use binding::{Plan, Planned};
use extended::Extended;
use state::StateData;

const MOST_WRITES: usize = 64;

pub(super) struct DynamicResources {
    client: Option<Client>,
    filter_timeout: Duration,
    binding_timeout: Duration,
    around: OnceLock<Around>,
    /// The pod that is being tried, and what is known of its claims. There is one at a time.
    trying: Mutex<Option<(Arc<str>, Arc<StateData>)>>,
    /// By pod, from Reserve until it is bound or given up.
    plans: Mutex<HashMap<Arc<str>, Plan>>,
    /// Claims that are written at once.
    places: Semaphore,
}

struct Around {
    devices: Arc<Devices>,
    recorder: Recorder,
    tasks: Tasks,
}

impl DynamicResources {
    pub(super) fn new(client: Option<Client>, args: &DynamicResourcesArgs) -> Self {
        Self {
            client,
            filter_timeout: args.filter_timeout,
            binding_timeout: args.binding_timeout,
            around: OnceLock::new(),
            trying: Mutex::default(),
            plans: Mutex::default(),
            places: Semaphore::new(MOST_WRITES),
        }
    }

    fn devices(&self) -> Option<&Arc<Devices>> {
        self.around.get().map(|around| &around.devices)
    }

    /// What is known of the claims of the pod that is being tried; the plugin keeps nothing of it.
    fn take(&self, pod: &PodInfo) -> Option<Arc<StateData>> {
        self.trying.lock().take().filter(|(uid, _)| *uid == pod.uid).map(|(_, state)| state)
    }

    fn tried(&self, pod: &PodInfo) -> Option<Arc<StateData>> {
        self.trying.lock().as_ref().filter(|(uid, _)| *uid == pod.uid).map(|(_, state)| state.clone())
    }

    /// Writes something that nobody waits for.
    fn later(&self, what: &'static str, work: impl Future<Output = Result<(), kube::Error>> + Send + 'static) {
        if let Some(around) = self.around.get() {
            around.tasks.spawn_until_stopped(what, async move {
                if let Err(error) = work.await {
                    tracing::warn!("{what}: {error}");
                }
            });
        }
    }
}

/// Whether the pod may ask for devices at all; most do not.
fn is_concerned(pod: &PodInfo) -> bool {
    !claims::wanted(pod).is_empty() || !pod.requests.scalars.is_empty()
}

#[async_trait]
impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn points(&self) -> &'static [Point] {
        &[
            Point::PreEnqueue,
            Point::PreFilter,
            Point::Filter,
            Point::PostFilter,
            Point::PreScore,
            Point::Score,
            Point::Reserve,
            Point::PreBind,
            Point::PostBind,
        ]
    }

    fn begin(&self, surroundings: Surroundings<'_>) {
        let Surroundings { listers, recorder, tasks } = surroundings;
        let around =
            Around { devices: listers.devices.clone(), recorder: recorder.clone(), tasks: tasks.child("devices") };
        // A plugin that serves two loops would keep what it knows of the first.
        let _ = self.around.set(around);
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED
            .and(Events::NODE_LABELS)
            .and(Events::NODE_ALLOCATABLE)
            .and(Events::RESOURCE_CLAIM)
            .and(Events::DEVICE_CLASS)
            .and(Events::RESOURCE_SLICE)
    }

    fn helps(&self, pod: &PodInfo, happening: &Happening<'_>) -> bool {
        let Some(devices) = self.devices() else { return true };
        // Most changes of claims are of no pod that waits: that is found out by names alone.
        happening.claim.is_none_or(|change| frees(change) || claims::names(pod, change.object()))
            && claims::of_pod(pod, devices)
                .is_ok_and(|own| happening.claim.is_none_or(|change| frees(change) || claim_helps(&own, change)))
    }

    fn pre_enqueue(&self, pod: &PodInfo) -> Verdict {
        let Some(devices) = self.devices().filter(|_| !claims::wanted(pod).is_empty()) else { return Ok(()) };
        claims::of_pod(pod, devices).map(|_| ()).map_err(Rejection::firm)
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        let (pod, devices) = (cycle.pod, &cycle.listers.devices);
        if !is_concerned(pod) {
            return PreFilter::Skip;
        }
        *self.trying.lock() = None;
        let claims = match claims::of_pod(pod, devices) {
            Ok(claims) => claims,
            Err(reason) => return PreFilter::Reject(Rejection::firm(reason)),
        };
        let extended = Extended::of(pod, devices);
        if claims.is_empty() && extended.is_none() {
            return PreFilter::Skip;
        }
        if !devices.is_synced() {
            return PreFilter::Reject(Rejection::error("claims of devices are not known yet"));
        }
        match StateData::new(pod, claims, extended, devices, (self.filter_timeout, self.binding_timeout)) {
            Ok(state) => {
                let state = Arc::new(state);
                *self.trying.lock() = Some((pod.uid.clone(), state.clone()));
                PreFilter::with(state)
            }
            Err(rejection) => PreFilter::Reject(rejection),
        }
    }

    fn filter(&self, _: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> Verdict {
        match data.and_then(|data| data.downcast_ref::<Arc<StateData>>()) {
            Some(state) => state.filter(node),
            None => Ok(()),
        }
    }

    /// Devices that are of no use where the pod could go are given back.
    fn post_filter(&self, search: &Search<'_>, _: &CycleState, _: &Diagnosis) -> PostFilter {
        let pod = search.cycle.pod;
        let unhelpful = |reason: &str| PostFilter::Unhelpful { reason: reason.to_owned(), clear: false };
        let (Some(state), Some(client)) = (self.take(pod), &self.client) else { return unhelpful("") };
        let unavailable = state.unavailable.lock().clone();
        let idle =
            unavailable.iter().map(|number| &state.claims[*number].0).find(|claim| claims::is_free_for(claim, pod));
        if let Some(claim) = idle {
            self.later("devices are given back", binding::deallocate(client.clone(), claim.clone()));
            return unhelpful("deallocation of ResourceClaim completed");
        }
        if let Some(stale) = state.extended.as_ref().and_then(|extended| extended.stale.clone()) {
            self.later("a claim is removed", binding::delete(client.clone(), stale));
            return unhelpful("deletion of ResourceClaim completed");
        }
        unhelpful("")
    }

    fn pre_score(&self, cycle: &Cycle<'_>, _: &[&NodeInfo]) -> PreScore {
        match self.tried(cycle.pod).filter(|state| state.has_preferences()) {
            Some(state) => PreScore::with(state),
            None => PreScore::Skip,
        }
    }

    fn score(&self, _: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> i64 {
        data.and_then(|data| data.downcast_ref::<Arc<StateData>>()).map_or(0, |state| state.score(&node.name))
    }

    fn normalize(&self, _: &Cycle<'_>, _: Data<'_>, _: &[&NodeInfo], scores: &mut [i64]) {
        normalize_by_maximum(scores, false);
    }

    fn reserve(&self, cycle: &Cycle<'_>, node: &str) -> Verdict {
        let pod = cycle.pod;
        if !is_concerned(pod) {
            return Ok(());
        }
        let Some(state) = self.take(pod) else { return Ok(()) };
        let outcome = state.found(node);
        if outcome.is_none() && state.to_allocate().next().is_some() {
            return Err(Rejection::error("claim allocation not found for node"));
        }
        let devices = &cycle.listers.devices;
        let on_node = outcome.as_ref().and_then(|outcome| outcome.variant.extended.clone());
        let mut fresh = outcome.into_iter().flat_map(|outcome| outcome.allocations);
        let mut plan = Plan::default();
        for (claim, _) in &state.claims {
            let allocation = match claims::allocation(claim) {
                Some(_) => None,
                None => fresh.next(),
            };
            plan.claims.push(Planned::new(claim.clone(), allocation, None));
        }
        if let Some(on_node) = on_node {
            plan.claims.push(Planned::new(on_node.claim, fresh.next(), Some(on_node.mappings)));
        }
        // What is taken is copied while somebody still looks at it as it was.
        drop(state);
        plan.claims.iter().filter_map(Planned::assumed).for_each(|claim| devices.assume(claim));
        self.plans.lock().insert(pod.uid.clone(), plan);
        Ok(())
    }

    fn unreserve(&self, pod: &PodInfo, _: &str) {
        let Some(plan) = self.plans.lock().remove(&pod.uid) else { return };
        let (Some(devices), Some(client)) = (self.devices(), &self.client) else { return };
        for planned in plan.claims {
            devices.forget(&planned.first);
            if planned.mappings.is_some() {
                if planned.is_written {
                    self.later("a claim is removed", binding::delete(client.clone(), planned.claim));
                }
            } else if claims::allocation(&planned.claim).is_some() && claims::is_reserved_for(&planned.claim, pod) {
                let work = binding::unreserve(client.clone(), planned.claim, pod.uid.to_string());
                self.later("a reservation is taken back", work);
            }
        }
    }

    async fn pre_bind(&self, pod: &PodInfo, node: &str) -> Result<(), BindError> {
        let planned = self.plans.lock().get(&pod.uid).map(|plan| plan.claims.clone());
        let (Some(planned), Some(around), Some(client)) = (planned, self.around.get(), &self.client) else {
            return Ok(());
        };
        for (number, one) in planned.iter().enumerate().filter(|(_, one)| !claims::is_reserved_for(&one.claim, pod)) {
            // What was written has to be taken back if something fails later.
            let keep = |claim: &Arc<ResourceClaim>| {
                if let Some(plan) = self.plans.lock().get_mut(&pod.uid) {
                    plan.claims[number].claim = claim.clone();
                    plan.claims[number].is_written = true;
                }
            };
            let _place = self.places.acquire().await;
            binding::bind(client, &around.devices, pod, one, keep).await.map_err(BindError)?;
        }
        let bound: Vec<Arc<ResourceClaim>> = self
            .plans
            .lock()
            .get(&pod.uid)
            .into_iter()
            .flat_map(|plan| plan.claims.iter().map(|one| one.claim.clone()))
            .collect();
        if !bound.iter().any(|claim| claims::is_to_wait(claim)) {
            return Ok(());
        }
        let message = format!("waiting for binding conditions for device on node {node}");
        around.recorder.event(pod.pod.as_ref(), EventType::Normal, "BindingConditionsPending", message);
        binding::until_ready(&around.devices, &bound, self.binding_timeout).await.map_err(BindError)
    }

    fn post_bind(&self, pod: &PodInfo, _: &str) {
        if is_concerned(pod) {
            self.plans.lock().remove(&pod.uid);
        }
    }
}

/// Whether a change of a claim that frees nothing may help a pod with these claims.
fn claim_helps(own: &[Arc<ResourceClaim>], change: &Change<ResourceClaim>) -> bool {
    let uses = |claim: &ResourceClaim| own.iter().any(|known| known.metadata.uid == claim.metadata.uid);
    match change {
        Change::Deleted(_) => false,
        Change::Added(claim) => uses(claim),
        Change::Modified { old, new } => uses(new) && old.status != new.status,
    }
}

/// Whether devices are free for whoever wants them.
fn frees(change: &Change<ResourceClaim>) -> bool {
    let allocated = |claim: &ResourceClaim| claims::allocation(claim).is_some();
    match change {
        Change::Deleted(claim) => allocated(claim),
        Change::Added(_) => false,
        Change::Modified { old, new } => allocated(old) && !allocated(new),
    }
}
