//! ResourceClaim: claims for pods that ask for them by a template, and reservations of pods that are gone taken back.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, owner, write};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;

use crate::Context;
use crate::common::pod;

const NAME: &str = "resource-claim-controller";
const COMPONENT: &str = "resource_claim";
/// On a claim made for a pod: which of the pod's claims it is.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// So many pods can have one claim.
const MOST_CONSUMERS: usize = 256;
/// Of a name that the server completes with a few characters.
const LONGEST_PREFIX: usize = 57;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Pod(ObjectKey),
    Claim(ObjectKey),
}

struct Reconciler {
    client: Client,
    recorder: Recorder,
    pods: Informer<Pod>,
    claims: Informer<ResourceClaim>,
    templates: Informer<ResourceClaimTemplate>,
    queue: WorkQueue<Key>,
    /// What was made, by the uid of the pod and its name for the claim: neither of the caches may know yet, and the server
    /// would make up another name for a second one.
    made: Mutex<HashMap<(String, String), String>>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), COMPONENT, &context.tasks),
        client,
        pods: context.informers.of(),
        claims: context.informers.of(),
        templates: context.informers.of(),
        queue: context.queue("resource_claim"),
        made: Mutex::default(),
    });
    let users = this.pods.index("resource claim", |pod| {
        named(pod).map(|name| ObjectKey::new(pod.namespace().unwrap_or_default(), name).to_string()).collect()
    });
    let handler = this.clone();
    this.pods.on_change(move |change| handler.pod_changed(change));
    let handler = this.clone();
    this.claims.on_change(move |change| {
        let claim = change.object();
        handler.queue.add(Key::Claim(ObjectKey::of(&**claim)));
        if let Some(owner) = owner::controller_of(&**claim).filter(|owner| owner.kind == "Pod") {
            handler.queue.add(Key::Pod(ObjectKey::new(claim.namespace().unwrap_or_default(), owner.name.clone())));
        }
        // One that is allocated is to be reserved for pods that are on a node already.
        for pod in users.get(&ObjectKey::of(&**claim).to_string()) {
            handler.queue.add(Key::Pod(ObjectKey::of(&*pod)));
        }
    });
    let handler = this.clone();
    this.templates.on_change(move |change| {
        let template = change.object();
        for pod in handler.pods.list_in(&template.namespace().unwrap_or_default()) {
            if templated(&pod).any(|(_, name)| name == template.name_any()) {
                handler.queue.add(Key::Pod(ObjectKey::of(&*pod)));
            }
        }
    });
    let synced = this.clone();
    let ready = async move {
        synced.pods.synced().await;
        synced.claims.synced().await;
        synced.templates.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, 4, ready, move |key| {
        let this = this.clone();
        async move {
            match key {
                Key::Pod(key) => this.pod(&key).await,
                Key::Claim(key) => this.claim(&key).await,
            }
        }
    });
}

/// The pod's claims that come from a template, with its name.
fn templated(pod: &Pod) -> impl Iterator<Item = (&PodResourceClaim, &str)> {
    let claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    claims.filter_map(|claim| Some((claim, claim.resource_claim_template_name.as_deref()?)))
}

/// The names of the claims that the pod shares with others.
fn named(pod: &Pod) -> impl Iterator<Item = &str> {
    let claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    claims.filter_map(|claim| claim.resource_claim_name.as_deref())
}

/// The name of the claim behind one of the pod's, as its status tells.
pub(super) fn told<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let statuses = pod.status.as_ref()?.resource_claim_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == name)?.resource_claim_name.as_deref()
}

fn is_done(pod: &Pod) -> bool {
    // A pod that is being deleted before it got a node never runs.
    pod::is_terminal(pod) || (pod::is_terminating(pod) && pod::node(pod).is_empty())
}

fn new_claim(pod: &Pod, wanted: &PodResourceClaim, template: &ResourceClaimTemplate) -> ResourceClaim {
    let template = template.spec.clone().unwrap_or_default();
    let meta = template.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM.into(), wanted.name.clone());
    let mut prefix = format!("{}-{}-", pod.name_any(), wanted.name);
    if prefix.len() > LONGEST_PREFIX {
        // As much of one as of the other.
        let of = |name: &str| name.get(..name.len() * LONGEST_PREFIX / prefix.len()).unwrap_or(name).to_owned();
        prefix = format!("{}-{}", of(&pod.name_any()), of(&wanted.name));
    }
    let mut owner = owner::controller_reference(pod);
    owner.block_owner_deletion = None;
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(prefix),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

/// The claim with the pod among those it is reserved for, where it is allocated, has room and the pod is not there yet.
fn reserved_for(claim: &ResourceClaim, pod: &Pod) -> Option<ResourceClaim> {
    let mut claim = claim.clone();
    let status = claim.status.as_mut().filter(|status| status.allocation.is_some())?;
    let list = status.reserved_for.get_or_insert_default();
    if list.len() >= MOST_CONSUMERS || list.iter().any(|known| Some(&known.uid) == pod.metadata.uid.as_ref()) {
        return None;
    }
    list.push(ResourceClaimConsumerReference {
        resource: "pods".into(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        ..ResourceClaimConsumerReference::default()
    });
    Some(claim)
}

impl Reconciler {
    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let namespace = pod.namespace().unwrap_or_default();
        let mut any = false;
        for claim in pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()) {
            any = true;
            if let Some(name) = claim.resource_claim_name.as_deref().or_else(|| told(pod, &claim.name)) {
                self.queue.add(Key::Claim(ObjectKey::new(&*namespace, name)));
            }
        }
        // What the scheduler made for extended resources is only given back: nobody but the scheduler makes it.
        let status = pod.status.as_ref().and_then(|status| status.extended_resource_claim_status.as_ref());
        if let Some(made) = status {
            self.queue.add(Key::Claim(ObjectKey::new(&*namespace, &*made.resource_claim_name)));
        }
        if !any {
            return;
        }
        if matches!(change, Change::Deleted(_)) {
            self.made.lock().retain(|(uid, _), _| Some(uid) != pod.metadata.uid.as_ref());
        } else {
            self.queue.add(Key::Pod(ObjectKey::of(&**pod)));
        }
    }

    /// The name of the claim that was made for the pod, as long as it is there.
    async fn made_for(
        &self,
        api: &Api<ResourceClaim>,
        pod: &Pod,
        wanted: &PodResourceClaim,
    ) -> Result<Option<String>, Error> {
        let ours = |claim: &ResourceClaim| {
            owner::is_controlled_by(claim, pod) && claim.annotations().get(POD_CLAIM) == Some(&wanted.name)
        };
        let known = self.claims.list_in(&pod.namespace().unwrap_or_default()).into_iter().find(|claim| ours(claim));
        if let Some(claim) = known {
            return Ok(Some(claim.name_any()));
        }
        let key = (pod.uid().unwrap_or_default(), wanted.name.clone());
        let remembered = self.made.lock().get(&key).cloned();
        for name in told(pod, &wanted.name).map(str::to_owned).into_iter().chain(remembered) {
            if api.get_opt(&name).await?.is_some_and(|claim| ours(&claim)) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    async fn make(
        &self,
        api: &Api<ResourceClaim>,
        pod: &Pod,
        wanted: &PodResourceClaim,
        template: &str,
    ) -> Result<String, Error> {
        let made = match self.templates.get(&pod.namespace().unwrap_or_default(), template) {
            None => Err(format!(
                "resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found"
            )),
            Some(template) => api
                .create(&PostParams::default(), &new_claim(pod, wanted, &template))
                .await
                .map_err(|error| format!("create ResourceClaim : {}", write::short(&error))),
        };
        match made {
            Ok(claim) => {
                let key = (pod.uid().unwrap_or_default(), wanted.name.clone());
                self.made.lock().insert(key, claim.name_any());
                Ok(claim.name_any())
            }
            Err(why) => {
                let message = format!("PodResourceClaim {}: {why}", wanted.name);
                self.recorder.event(pod, EventType::Warning, "FailedResourceClaimCreation", message.clone());
                Err(message.into())
            }
        }
    }

    /// Pods that somebody else than the scheduler put on a node use what was allocated: it must not be taken from them.
    async fn reserve(&self, api: &Api<ResourceClaim>, pod: &Pod) -> Result<(), Error> {
        if pod::node(pod).is_empty() {
            return Ok(());
        }
        let namespace = pod.namespace().unwrap_or_default();
        for wanted in pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()) {
            let name = wanted.resource_claim_name.as_deref().or_else(|| told(pod, &wanted.name));
            let Some(claim) = name.and_then(|name| self.claims.get(&namespace, name)) else { continue };
            if wanted.resource_claim_name.is_some() || owner::is_controlled_by(&*claim, pod) {
                let Some(reserved) = reserved_for(&claim, pod) else { continue };
                api.replace_status(&claim.name_any(), &PostParams::default(), &reserved).await?;
            }
        }
        Ok(())
    }

    async fn pod(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(pod) = self.pods.get_key(key).filter(|pod| !is_done(pod) && !pod::is_terminating(pod)) else {
            return Ok(Action::Done);
        };
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut found = Vec::new();
        for (wanted, template) in templated(&pod) {
            let name = match self.made_for(&api, &pod, wanted).await? {
                Some(name) => name,
                None => self.make(&api, &pod, wanted, template).await?,
            };
            if told(&pod, &wanted.name) != Some(name.as_str()) {
                found.push(json!({ "name": wanted.name, "resourceClaimName": name }));
            }
        }
        if !found.is_empty() {
            let patch =
                json!({ "metadata": { "uid": pod.metadata.uid }, "status": { "resourceClaimStatuses": found } });
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
            match pods.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
                Err(error) if !write::is_not_found(&error) => return Err(error.into()),
                _ => {}
            }
        }
        self.reserve(&api, &pod).await?;
        Ok(Action::Done)
    }

    /// Whether the pod needs what is reserved for it. The cache may not have heard of it yet: that it is gone, and its
    /// devices with it, is believed of the API server alone.
    async fn needs(&self, namespace: &str, name: &str, uid: &str) -> Result<bool, Error> {
        let is = |pod: &Pod| pod.uid().as_deref() == Some(uid);
        if let Some(pod) = self.pods.get(namespace, name).filter(|pod| is(pod)) {
            return Ok(!is_done(&pod));
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        Ok(pods.get_opt(name).await?.is_some_and(|pod| is(&pod) && !is_done(&pod)))
    }

    /// Takes away the finalizer of a claim without devices.
    async fn let_go(&self, api: &Api<ResourceClaim>, mut claim: ResourceClaim) -> Result<(), Error> {
        let name = claim.name_any();
        if claim.finalizers().iter().any(|known| known == FINALIZER) {
            claim.finalizers_mut().retain(|known| known != FINALIZER);
            api.replace(&name, &PostParams::default(), &claim).await?;
        }
        Ok(())
    }

    /// Takes back what is reserved for pods that are gone or done; with the last of them the devices are free.
    async fn claim(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(Action::Done) };
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let status = claim.status.clone().unwrap_or_default();
        let reserved = status.reserved_for.clone().unwrap_or_default();
        let mut kept = Vec::new();
        for consumer in &reserved {
            // Whoever else has it reserved is not known here.
            let is_pod = consumer.resource == "pods" && consumer.api_group.as_deref().unwrap_or_default().is_empty();
            if !is_pod || self.needs(&key.namespace, &consumer.name, &consumer.uid).await? {
                kept.push(consumer.clone());
            }
        }
        let free = kept.is_empty()
            && status.allocation.is_some()
            && (!reserved.is_empty() || claim.metadata.deletion_timestamp.is_some());
        if kept.len() != reserved.len() || free {
            let mut changed = (*claim).clone();
            let next = changed.status.get_or_insert_default();
            next.reserved_for = (!kept.is_empty()).then(|| kept.clone());
            if free {
                next.allocation = None;
                next.devices = None;
            }
            let changed = api.replace_status(&key.name, &PostParams::default(), &changed).await?;
            if kept.is_empty() {
                self.let_go(&api, changed).await?;
            }
            return Ok(Action::Done);
        }
        // One that stays is left alone: who allocates it puts the finalizer there first.
        let going = claim.metadata.deletion_timestamp.is_some();
        if going && kept.is_empty() && claim.finalizers().iter().any(|known| known == FINALIZER) {
            self.let_go(&api, (*claim).clone()).await?;
            return Ok(Action::Done);
        }
        // A claim that was made for a pod goes when the pod is done; one that is gone takes it along by its owner reference.
        let owner = owner::controller_of(&*claim).filter(|owner| owner.kind == "Pod");
        // The cache may still have a pod of that name that ended before.
        let of = |pod: &Arc<Pod>| owner.is_some_and(|owner| pod.metadata.uid.as_deref() == Some(&owner.uid));
        if let Some(pod) = owner.and_then(|owner| self.pods.get(&key.namespace, &owner.name)).filter(of)
            && kept.is_empty()
            && is_done(&pod)
            && !going
        {
            write::delete(&api, &*claim, None).await?;
        }
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests;
