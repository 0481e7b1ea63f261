//! VolumeBinding: nodes that the pod's volumes can reach, and volumes for claims that wait to see the node first.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferry_client::Api;
use ferry_client::informer::until;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Semaphore;

use super::matching::{can_provision, find_volume, requested};
use super::{claim_name, class_of, is_bound, reaches, volume_name};
use crate::framework::{BindError, Cycle, Data, Events, Plugin, Point, PreFilter, Rejection, Verdict};
use crate::model::{NodeInfo, PodInfo};

/// On a claim: the node its volume is to be made for. Taken away again when that fails.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Pods whose volumes and claims are written at once.
const MOST_WRITES: usize = 64;

#[derive(Clone, Debug, Default)]
struct Claims {
    bound: Vec<Arc<PersistentVolumeClaim>>,
    /// The smallest first, so that it takes the smallest volume.
    waiting: Vec<Arc<PersistentVolumeClaim>>,
}

/// What to do for the waiting claims on the chosen node.
#[derive(Clone, Debug, Default)]
struct Plan {
    bind: Vec<(Arc<PersistentVolume>, Arc<PersistentVolumeClaim>)>,
    provision: Vec<Arc<PersistentVolumeClaim>>,
}

#[derive(Default)]
pub(in crate::plugins) struct VolumeBinding {
    client: Option<Client>,
    /// By pod, from Reserve until it is bound or given up.
    plans: Mutex<HashMap<String, Plan>>,
    /// How long making and binding volumes may take before the pod is tried anew.
    pub(in crate::plugins) bind_timeout: Duration,
    places: Places,
}

struct Places(Semaphore);

impl Default for Places {
    fn default() -> Self {
        Self(Semaphore::new(MOST_WRITES))
    }
}

impl VolumeBinding {
    pub(in crate::plugins) fn new(client: Client) -> Self {
        Self { client: Some(client), ..Self::default() }
    }

    /// Volumes that other pods are about to get.
    fn taken(&self) -> BTreeSet<String> {
        self.plans.lock().values().flat_map(|plan| &plan.bind).map(|(volume, _)| volume.name_any()).collect()
    }

    fn plan(&self, cycle: &Cycle<'_>, claims: &Claims, node: &NodeInfo) -> Result<Plan, Rejection> {
        let listers = cycle.listers;
        for claim in &claims.bound {
            let Some(volume) = volume_name(claim).and_then(|name| listers.volumes.get("", name)) else {
                return Err(Rejection::firm(
                    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
                ));
            };
            if !reaches(&volume, &node.labels) {
                return Err(Rejection::firm("node(s) didn't match PersistentVolume's node affinity"));
            }
        }
        let mut plan = Plan::default();
        if claims.waiting.is_empty() {
            return Ok(plan);
        }
        let unavailable = || Rejection::firm("node(s) didn't find available persistent volumes to bind");
        let volumes = listers.volumes.list();
        let mut taken = self.taken();
        for claim in &claims.waiting {
            match claim.annotations().get(SELECTED_NODE) {
                Some(selected) if **selected != *node.name => return Err(unavailable()),
                Some(_) => plan.provision.push(claim.clone()),
                None => match find_volume(claim, &volumes, node, &taken) {
                    Some(volume) => {
                        taken.insert(volume.name_any());
                        plan.bind.push((volume, claim.clone()));
                    }
                    None => plan.provision.push(claim.clone()),
                },
            }
        }
        let provisionable = |claim: &Arc<PersistentVolumeClaim>| {
            listers.classes.get("", class_of(claim)).is_some_and(|class| can_provision(&class, node))
        };
        if plan.provision.iter().all(provisionable) { Ok(plan) } else { Err(unavailable()) }
    }
}

/// Sorts the pod's claims, or says which of them keeps it from being placed at all.
fn claims(cycle: &Cycle<'_>) -> Result<Claims, String> {
    let (pod, listers) = (cycle.pod, cycle.listers);
    let mut claims = Claims::default();
    let mut unbound = false;
    for (name, own) in pod.volumes().iter().filter_map(|volume| claim_name(volume, pod)) {
        let Some(claim) = listers.claims.get(&pod.namespace, &name) else {
            return Err(match own {
                true => {
                    format!("waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\"")
                }
                false => format!("persistentvolumeclaim \"{name}\" not found"),
            });
        };
        if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost") {
            let volume = volume_name(&claim).unwrap_or_default();
            return Err(format!(
                "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
            ));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        let owners = claim.metadata.owner_references.iter().flatten();
        if own && !owners.into_iter().any(|owner| *owner.uid == *pod.uid && owner.controller == Some(true)) {
            return Err(format!(
                "PVC {}/{name} was not created for pod {} (pod is not owner)",
                pod.namespace,
                pod.full_name()
            ));
        }
        let waits = listers
            .classes
            .get("", class_of(&claim))
            .is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        if is_bound(&claim) {
            claims.bound.push(claim);
        } else if waits && volume_name(&claim).is_none() {
            claims.waiting.push(claim);
        } else {
            unbound = true;
        }
    }
    claims.waiting.sort_by_key(|claim| requested(claim));
    if unbound { Err("pod has unbound immediate PersistentVolumeClaims".into()) } else { Ok(claims) }
}

#[async_trait]
impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::Reserve, Point::PreBind, Point::PostBind]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED.and(Events::NODE_LABELS).and(Events::STORAGE)
    }

    fn pre_filter(&self, cycle: &Cycle<'_>) -> PreFilter {
        if cycle.pod.claims.is_empty() {
            return PreFilter::Skip;
        }
        match claims(cycle) {
            Ok(claims) => PreFilter::with(claims),
            Err(reason) => PreFilter::Reject(Rejection::firm(reason)),
        }
    }

    fn filter(&self, cycle: &Cycle<'_>, data: Data<'_>, node: &NodeInfo) -> Verdict {
        let Some(claims) = data.and_then(|data| data.downcast_ref::<Claims>()) else { return Ok(()) };
        self.plan(cycle, claims, node).map(|_| ())
    }

    fn reserve(&self, cycle: &Cycle<'_>, node: &str) -> Verdict {
        if cycle.pod.claims.is_empty() {
            return Ok(());
        }
        let claims = claims(cycle).map_err(Rejection::firm)?;
        let Some(node) = cycle.cache.node(node) else { return Err(Rejection::firm("node(s) are gone")) };
        let plan = self.plan(cycle, &claims, node)?;
        if !plan.bind.is_empty() || !plan.provision.is_empty() {
            self.plans.lock().insert(cycle.pod.uid.to_string(), plan);
        }
        Ok(())
    }

    fn unreserve(&self, pod: &PodInfo, _: &str) {
        self.plans.lock().remove(&*pod.uid);
    }

    async fn pre_bind(&self, pod: &PodInfo, node: &str) -> Result<(), BindError> {
        let plan = self.plans.lock().get(&*pod.uid).cloned();
        let (Some(plan), Some(client)) = (plan, &self.client) else { return Ok(()) };
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &pod.namespace);
        let parameters = PatchParams::default();
        let failed = |error: kube::Error| BindError(error.to_string());
        let place = self.places.0.acquire().await;
        for (volume, claim) in &plan.bind {
            let patch = bind_patch(volume, claim);
            volumes.patch(&volume.name_any(), &parameters, &Patch::Merge(patch)).await.map_err(failed)?;
        }
        for claim in &plan.provision {
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}, "uid": claim.metadata.uid}});
            claims.patch(&claim.name_any(), &parameters, &Patch::Merge(patch)).await.map_err(failed)?;
        }
        drop(place);
        let provisioned: BTreeSet<String> = plan.provision.iter().map(|claim| claim.name_any()).collect();
        let all = plan.bind.iter().map(|(_, claim)| claim.name_any()).chain(provisioned.iter().cloned());
        let wait = async {
            for name in all {
                let (selected, expected) = (provisioned.contains(&name), node.to_owned());
                settled(&claims, &name, selected, expected).await?;
            }
            Ok(())
        };
        match tokio::time::timeout(self.bind_timeout, wait).await {
            Ok(done) => done,
            Err(_) => Err(BindError("binding volumes: context deadline exceeded".into())),
        }
    }

    fn post_bind(&self, pod: &PodInfo, _: &str) {
        self.plans.lock().remove(&*pod.uid);
    }
}

fn bind_patch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> serde_json::Value {
    json!({
        // The volume as we saw it: whoever changed it meanwhile may have given it to someone else.
        "metadata": {"resourceVersion": volume.metadata.resource_version, "annotations": {BOUND_BY_CONTROLLER: "yes"}},
        "spec": {"claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.metadata.name,
            "namespace": claim.metadata.namespace, "uid": claim.metadata.uid,
        }},
    })
}

/// Waits until the claim is bound, or until it is clear that it will not be.
async fn settled(
    claims: &Api<PersistentVolumeClaim>,
    name: &str,
    selected: bool,
    node: String,
) -> Result<(), BindError> {
    let given_up = move |claim: &PersistentVolumeClaim| {
        selected && claim.annotations().get(SELECTED_NODE).is_none_or(|chosen| *chosen != node)
    };
    let ended = {
        let given_up = given_up.clone();
        move |claim: Option<&PersistentVolumeClaim>| claim.is_none_or(|claim| is_bound(claim) || given_up(claim))
    };
    let claim = until(claims.clone(), name, ended).await;
    match claim {
        None => Err(BindError(format!("persistentvolumeclaim \"{name}\" not found"))),
        Some(claim) if is_bound(&claim) => Ok(()),
        Some(_) => Err(BindError(format!("provisioning failed for PVC \"{name}\""))),
    }
}
