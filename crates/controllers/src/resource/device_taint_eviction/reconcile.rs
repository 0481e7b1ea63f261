//! The loop of device taint eviction: a key is a pod that uses devices, or a rule whose status is to be told.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Clock, Error, EventType, Index, Informer, ObjectKey, Recorder, WorkQueue, owner, write};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;

use super::plan::{self, Eviction};
use super::status::{self, Counts};
use crate::Context;
use crate::common::disruption::{self, Disruption};
use crate::common::pod;
use crate::resource::claim::told;

const NAME: &str = "device-taint-eviction-controller";
const CONDITION: &str = "EvictionInProgress";
/// Between two changes of a rule's status.
const STATUS_PERIOD: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    Pod(ObjectKey),
    Rule(String),
}

struct Reconciler {
    client: Client,
    recorder: Recorder,
    pods: Informer<Pod>,
    claims: Informer<ResourceClaim>,
    claims_of_pool: Index<ResourceClaim>,
    slices: Informer<ResourceSlice>,
    slices_of_pool: Index<ResourceSlice>,
    rules: Informer<DeviceTaintRule>,
    /// Pods evicted by rule, by its uid.
    evicted: Mutex<HashMap<String, usize>>,
    /// Pods that are to go later.
    pending: Mutex<HashSet<ObjectKey>>,
    clock: Clock,
    queue: WorkQueue<Key>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let (claims, slices) = (context.informers.of::<ResourceClaim>(), context.informers.of::<ResourceSlice>());
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        client,
        pods: context.informers.of(),
        claims_of_pool: claims.index("pool", |claim| {
            let pools: HashSet<String> =
                plan::devices(claim).iter().map(|used| plan::pool(&used.driver, &used.pool)).collect();
            pools.into_iter().collect()
        }),
        claims,
        slices_of_pool: slices.index("pool", |slice| vec![plan::pool(&slice.spec.driver, &slice.spec.pool.name)]),
        slices,
        rules: context.informers.of(),
        evicted: Mutex::default(),
        pending: Mutex::default(),
        clock: context.config.clock.clone(),
        queue: context.queue("device_taint_eviction_controller"),
    });
    let handler = this.clone();
    this.pods.on_change(move |change| {
        let pod = change.object();
        if pod.spec.as_ref().is_some_and(|spec| spec.resource_claims.as_ref().is_some_and(|all| !all.is_empty())) {
            handler.queue.add(Key::Pod(ObjectKey::of(&**pod)));
        }
    });
    let handler = this.clone();
    this.claims.on_change(move |change| {
        change.old().into_iter().chain([change.object()]).for_each(|claim| handler.wake_users(claim));
    });
    let handler = this.clone();
    this.slices.on_change(move |change| {
        let spec = &change.object().spec;
        for claim in handler.claims_of_pool.get(&plan::pool(&spec.driver, &spec.pool.name)) {
            handler.wake_users(&claim);
        }
    });
    let handler = this.clone();
    this.rules.on_change(move |change| {
        let (old, new) = (change.old().map(|rule| &rule.spec), &change.object().spec);
        let moved = matches!(change, ferry_client::Change::Deleted(_)) || old != Some(new);
        if moved {
            handler.claims.list().iter().for_each(|claim| handler.wake_users(claim));
            handler.queue.add(Key::Rule(change.object().name_any()));
        }
    });
    let synced = this.clone();
    let ready = async move {
        synced.pods.synced().await;
        synced.claims.synced().await;
        synced.slices.synced().await;
        synced.rules.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, 4, ready, move |key| {
        let this = this.clone();
        async move {
            match key {
                Key::Pod(key) => this.pod(&key).await,
                Key::Rule(name) => this.rule(&name).await,
            }
        }
    });
}

impl Reconciler {
    /// Looks at the pods that have reserved the claim.
    fn wake_users(&self, claim: &ResourceClaim) {
        let namespace = claim.namespace().unwrap_or_default();
        let users = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref());
        for user in users.into_iter().flatten().filter(|user| user.resource == "pods") {
            self.queue.add(Key::Pod(ObjectKey::new(&*namespace, &*user.name)));
        }
    }

    fn eviction(&self, pod: &Pod, rules: &[Arc<DeviceTaintRule>], now: Timestamp) -> Option<Eviction> {
        if pod::node(pod).is_empty() || !pod::is_active(pod) {
            return None;
        }
        let namespace = pod.namespace().unwrap_or_default();
        let mut found = None;
        for wanted in pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()) {
            let name = wanted.resource_claim_name.as_deref().or_else(|| told(pod, &wanted.name));
            let Some(claim) = name.and_then(|name| self.claims.get(&namespace, name)) else { continue };
            let made_for_it = wanted.resource_claim_template_name.is_none() || owner::is_controlled_by(&*claim, pod);
            let users = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref());
            let reserved = users.into_iter().flatten().any(|user| Some(&user.uid) == pod.metadata.uid.as_ref());
            if made_for_it
                && reserved
                && let Some(eviction) = plan::of_claim(&claim, |pool| self.slices_of_pool.get(pool), rules, now)
            {
                found = plan::join(found, eviction);
            }
        }
        found
    }

    async fn pod(&self, key: &ObjectKey) -> Result<Action, Error> {
        let now = self.clock.now();
        let found = self.pods.get_key(key);
        let eviction = found.as_ref().and_then(|pod| self.eviction(pod, &self.rules.list(), now));
        let (Some(pod), Some(eviction)) = (&found, eviction) else {
            let waited = self.pending.lock().remove(key);
            if let Some(pod) = found.filter(|pod| waited && pod::is_active(pod)) {
                self.recorder.event(&*pod, EventType::Normal, "DeviceTaintManagerEviction", "Cancelling deletion");
            }
            return Ok(Action::Done);
        };
        for rule in self.rules.list().iter().filter(|rule| rule.uid().is_some_and(|uid| eviction.rules.contains(&uid)))
        {
            self.queue.add(Key::Rule(rule.name_any()));
        }
        if eviction.when > now {
            self.pending.lock().insert(key.clone());
            return Ok(Action::After(Duration::try_from(eviction.when.duration_since(now)).unwrap_or_default()));
        }
        self.pending.lock().remove(key);
        self.recorder.event(&**pod, EventType::Normal, "DeviceTaintManagerEviction", "Marking for deletion");
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let announced = Disruption {
            reason: "DeletionByDeviceTaintManager",
            message: "Device Taint manager: deleting due to NoExecute taint",
            since: self.clock.time(),
        };
        disruption::mark(&api, pod, announced, None).await?;
        if write::delete(&api, &**pod, None).await? {
            let mut evicted = self.evicted.lock();
            for rule in eviction.rules {
                *evicted.entry(rule).or_default() += 1;
            }
        }
        Ok(Action::Done)
    }

    async fn rule(&self, name: &str) -> Result<Action, Error> {
        let Some(rule) = self.rules.get("", name) else { return Ok(Action::Done) };
        let uid = rule.uid().unwrap_or_default();
        let known = rule.status.as_ref().and_then(|status| status.conditions.as_ref());
        let known = known.into_iter().flatten().find(|condition| condition.type_ == CONDITION);
        if let Some(known) = known.filter(|known| known.observed_generation == rule.metadata.generation) {
            let age = self.clock.now().duration_since(known.last_transition_time.0);
            let left = STATUS_PERIOD.saturating_sub(Duration::try_from(age).unwrap_or_default());
            if !left.is_zero() {
                return Ok(Action::After(left));
            }
        }
        let effect = rule.spec.taint.effect.as_str();
        let told = status::words(effect, self.count(&rule, &uid));
        let same = known.is_some_and(|known| {
            (known.status.as_str(), known.reason.as_str(), known.message.as_str())
                == (told.status, told.reason, told.message.as_str())
                && known.observed_generation == rule.metadata.generation
        });
        // While pods are pending the number changes with them, and they wake this key.
        let again = if told.status == "True" { Action::After(STATUS_PERIOD) } else { Action::Done };
        if same {
            return Ok(again);
        }
        let wanted = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule",
            "metadata": { "name": name, "uid": uid },
            "status": { "conditions": [{
                "type": CONDITION, "status": told.status, "reason": told.reason, "message": told.message,
                "observedGeneration": rule.metadata.generation, "lastTransitionTime": self.clock.time(),
            }] },
        });
        let api: Api<DeviceTaintRule> = Api::all(self.client.clone());
        match api.patch_status(name, &PatchParams::apply(NAME).force(), &Patch::Apply(wanted)).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(again),
        }
    }

    fn count(&self, rule: &DeviceTaintRule, uid: &str) -> Counts {
        let mut counts =
            Counts { evicted: self.evicted.lock().get(uid).copied().unwrap_or_default(), ..Counts::default() };
        if !matches!(rule.spec.taint.effect.as_str(), plan::NO_EXECUTE | "None") {
            return counts;
        }
        // A rule without effect is asked what it would do with one.
        let mut evicting = rule.clone();
        evicting.spec.taint.effect = plan::NO_EXECUTE.into();
        let (alone, now) = ([Arc::new(evicting)], self.clock.now());
        let mut namespaces = HashSet::new();
        for pod in self.pods.list() {
            if self.eviction(&pod, &alone, now).is_some_and(|eviction| eviction.rules.contains(uid)) {
                counts.pods += 1;
                namespaces.insert(pod.namespace());
            }
        }
        counts.namespaces = namespaces.len();
        let slices = self.slices.list();
        let pools: HashSet<String> =
            slices.iter().map(|slice| plan::pool(&slice.spec.driver, &slice.spec.pool.name)).collect();
        for slices in pools.iter().map(|pool| self.slices_of_pool.get(pool)) {
            for slice in plan::current(&slices) {
                let (driver, pool) = (&slice.spec.driver, &slice.spec.pool.name);
                let devices = slice.spec.devices.iter().flatten();
                counts.published += devices.filter(|device| plan::matches(rule, driver, pool, &device.name)).count();
            }
        }
        for claim in self.claims.list() {
            let used = plan::devices(&claim).iter();
            counts.allocated += used.filter(|used| plan::matches(rule, &used.driver, &used.pool, &used.device)).count();
        }
        counts
    }
}
