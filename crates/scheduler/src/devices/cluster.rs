//! The cluster's devices: what informers tell, and allocations that are decided but not yet told of.
//!
//! A claim that was given devices counts from the decision on, so that the next pod does not get them too. Once the API server
//! has it, the informer's word counts as soon as it is not older.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_client::{Change, Informer, Informers};
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Inventory, Selectors, Taken};

/// Before the name of a class: how pods ask for its devices as a resource.
const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

pub struct Devices {
    pub claims: Informer<ResourceClaim>,
    pub classes: Informer<DeviceClass>,
    pub slices: Informer<ResourceSlice>,
    pub rules: Informer<DeviceTaintRule>,
    pub selectors: Selectors,
    state: Arc<Mutex<State>>,
    /// Moves with each change of a claim.
    moved: watch::Sender<()>,
}

/// Devices at one moment.
#[derive(Clone, Default)]
pub struct Snapshot {
    pub inventory: Arc<Inventory>,
    pub taken: Arc<Taken>,
    pub rules: Arc<[Arc<DeviceTaintRule>]>,
}

#[derive(Default)]
struct State {
    inventory: Arc<Inventory>,
    taken: Arc<Taken>,
    /// Claims that have devices, by uid, as the informer tells.
    told: HashMap<String, Arc<ResourceClaim>>,
    /// Claims that were given devices here, by uid.
    assumed: HashMap<String, Assumed>,
    /// Classes by the resources that stand for them.
    resources: HashMap<String, Arc<DeviceClass>>,
}

struct Assumed {
    claim: Arc<ResourceClaim>,
    /// The revision at which the API server has it; nothing while it is on its way.
    written: Option<u64>,
    /// The newest revision that was heard of since the decision.
    heard: u64,
}

fn revision(claim: &ResourceClaim) -> u64 {
    claim.metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn uid(claim: &ResourceClaim) -> &str {
    claim.metadata.uid.as_deref().unwrap_or_default()
}

fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

impl State {
    fn counted(&self, uid: &str) -> Option<Arc<ResourceClaim>> {
        self.told.get(uid).or_else(|| self.assumed.get(uid).map(|assumed| &assumed.claim)).cloned()
    }

    /// Changes what is known of a claim, and what is taken with it.
    fn change(&mut self, uid: &str, change: impl FnOnce(&mut Self)) {
        let before = self.counted(uid);
        change(self);
        let after = self.counted(uid);
        let same = match (&before, &after) {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after),
            (before, after) => before.is_none() && after.is_none(),
        };
        if same {
            return;
        }
        let taken = Arc::make_mut(&mut self.taken);
        let of = |claim: &Arc<ResourceClaim>| claim.status.as_ref().and_then(|status| status.allocation.clone());
        if let Some(allocation) = before.as_ref().and_then(of) {
            taken.remove(&allocation);
        }
        if let Some(allocation) = after.as_ref().and_then(of) {
            taken.add(&allocation);
        }
    }

    fn claim_changed(&mut self, change: &Change<ResourceClaim>) {
        let (claim, gone) = (change.object(), matches!(change, Change::Deleted(_)));
        let uid = uid(claim);
        self.change(uid, |state| {
            if !gone && is_allocated(claim) {
                state.told.insert(uid.to_owned(), claim.clone());
            } else {
                state.told.remove(uid);
            }
            let Some(assumed) = state.assumed.get_mut(uid) else { return };
            assumed.heard = revision(claim);
            if gone || assumed.written.is_some_and(|written| assumed.heard >= written) {
                state.assumed.remove(uid);
            }
        });
    }
}

impl Devices {
    pub fn new(informers: &Informers) -> Self {
        Self::over(informers.of(), informers.of(), informers.of(), informers.of())
    }

    /// Empty, and nobody fills it but the caller.
    pub fn detached() -> Self {
        let devices =
            Self::over(Informer::detached(), Informer::detached(), Informer::detached(), Informer::detached());
        devices.claims.mark_synced();
        devices.classes.mark_synced();
        devices.slices.mark_synced();
        devices.rules.mark_synced();
        devices
    }

    fn over(
        claims: Informer<ResourceClaim>,
        classes: Informer<DeviceClass>,
        slices: Informer<ResourceSlice>,
        rules: Informer<DeviceTaintRule>,
    ) -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let (moved, _) = watch::channel(());
        let (own, bell) = (state.clone(), moved.clone());
        claims.on_change(move |change| {
            own.lock().claim_changed(change);
            bell.send_replace(());
        });
        let own = state.clone();
        slices.on_change(move |change| {
            let mut state = own.lock();
            let inventory = Arc::make_mut(&mut state.inventory);
            match change {
                Change::Deleted(slice) => inventory.remove(slice.metadata.name.as_deref().unwrap_or_default()),
                _ => inventory.set(change.object()),
            }
        });
        let (own, all) = (state.clone(), classes.clone());
        classes.on_change(move |_| own.lock().resources = resources(&all.list()));
        Self { claims, classes, slices, rules, selectors: Selectors::default(), state, moved }
    }

    /// Waits until all of it is known.
    pub async fn synced(&self) {
        self.claims.synced().await;
        self.classes.synced().await;
        self.slices.synced().await;
        self.rules.synced().await;
    }

    pub fn is_synced(&self) -> bool {
        self.claims.is_synced() && self.classes.is_synced() && self.slices.is_synced() && self.rules.is_synced()
    }

    pub fn snapshot(&self) -> Snapshot {
        let rules = self.rules.list().into();
        let state = self.state.lock();
        Snapshot { inventory: state.inventory.clone(), taken: state.taken.clone(), rules }
    }

    /// The claim as it was last heard of, or written here.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<Arc<ResourceClaim>> {
        let told = self.claims.get(namespace, name)?;
        let state = self.state.lock();
        let newer = state.assumed.get(uid(&told)).filter(|own| own.written.is_some_and(|at| at > revision(&told)));
        Some(newer.map_or(told, |own| own.claim.clone()))
    }

    /// Whether devices for it are on their way to the API server.
    pub fn is_pending(&self, claim: &ResourceClaim) -> bool {
        self.state.lock().assumed.get(uid(claim)).is_some_and(|own| own.written.is_none())
    }

    /// From now on the claim has the devices in its status.
    pub fn assume(&self, claim: Arc<ResourceClaim>) {
        let key = uid(&claim).to_owned();
        self.state.lock().change(&key, |state| {
            state.assumed.insert(key.clone(), Assumed { claim, written: None, heard: 0 });
        });
    }

    /// The API server has the claim as it is here.
    pub fn written(&self, claim: Arc<ResourceClaim>) {
        let (key, written) = (uid(&claim).to_owned(), revision(&claim));
        self.state.lock().change(&key, |state| {
            // What counts is what was heard of here. The informer's cache may be ahead of that for a moment: until then nobody else
            // would count these devices. One of which there is nothing here is gone.
            let heard = match (state.assumed.get(&key), state.told.get(&key)) {
                (Some(assumed), _) => assumed.heard,
                (None, Some(told)) => revision(told),
                (None, None) => u64::MAX,
            };
            if heard < written && is_allocated(&claim) {
                state.assumed.insert(key.clone(), Assumed { claim, written: Some(written), heard });
            } else {
                state.assumed.remove(&key);
            }
        });
    }

    /// What was on its way is not coming.
    pub fn forget(&self, claim: &ResourceClaim) {
        let key = uid(claim).to_owned();
        self.state.lock().change(&key, |state| {
            if state.assumed.get(&key).is_some_and(|own| own.written.is_none()) {
                state.assumed.remove(&key);
            }
        });
    }

    /// Waits until the claim, or that it is gone, is as wanted.
    pub async fn until(&self, namespace: &str, name: &str, wanted: impl Fn(Option<&ResourceClaim>) -> bool + Send) {
        let mut moved = self.moved.subscribe();
        while !wanted(self.claim(namespace, name).as_deref()) {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until the devices of the claim count because the API server told of them.
    pub async fn until_told(&self, claim: &ResourceClaim) {
        let mut moved = self.moved.subscribe();
        while !self.state.lock().told.contains_key(uid(claim)) {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }

    /// The class whose devices stand behind a resource that pods ask for.
    pub fn class_of(&self, resource: &str) -> Option<Arc<DeviceClass>> {
        self.state.lock().resources.get(resource).cloned()
    }

    /// Whether any resource can stand for devices.
    pub fn has_classes(&self) -> bool {
        !self.state.lock().resources.is_empty()
    }
}

/// Where several classes name one resource, the newest counts, then the first by name.
fn resources(classes: &[Arc<DeviceClass>]) -> HashMap<String, Arc<DeviceClass>> {
    let mut found: HashMap<String, Arc<DeviceClass>> = HashMap::new();
    let rank = |class: &DeviceClass| {
        let made = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (std::cmp::Reverse(made), class.metadata.name.clone())
    };
    for class in classes {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        found.insert(format!("{CLASS_PREFIX}{name}"), class.clone());
        if let Some(resource) = class.spec.as_ref().and_then(|spec| spec.extended_resource_name.as_ref()) {
            let known = found.get(resource);
            if known.is_none_or(|known| rank(class) < rank(known)) {
                found.insert(resource.clone(), class.clone());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use serde_json::json;

    use super::*;

    /// The informer's cache knows of a write before those who count do: in between, its devices are nobody else's.
    #[test]
    fn what_is_written_counts_at_every_moment() {
        let claims = Informer::<ResourceClaim>::detached();
        let devices: Arc<OnceLock<Arc<Devices>>> = Arc::default();
        let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
        let (own, counts) = (devices.clone(), seen.clone());
        // Told before the devices are.
        claims.on_change(move |change| {
            let Some(devices) = own.get() else { return };
            if !matches!(change, Change::Deleted(_)) {
                devices.written(change.object().clone());
            }
            counts.lock().push(devices.snapshot().taken.len());
        });
        let built =
            Arc::new(Devices::over(claims.clone(), Informer::detached(), Informer::detached(), Informer::detached()));
        assert!(devices.set(built.clone()).is_ok());
        let at = |version: usize, device: Option<&str>| {
            let result = |device| json!({"request": "r", "driver": "d", "pool": "n", "device": device});
            let status = device.map(|device| json!({"allocation": {"devices": {"results": [result(device)]}}}));
            let meta = json!({"name": "c", "namespace": "ns", "uid": "c", "resourceVersion": version.to_string()});
            serde_json::from_value::<ResourceClaim>(json!({"metadata": meta, "status": status})).expect("a claim")
        };
        claims.apply(at(1, None));
        built.assume(Arc::new(at(1, Some("one"))));
        claims.apply(at(2, Some("one")));
        assert_eq!((std::mem::take(&mut *seen.lock()), built.snapshot().taken.len()), (vec![0, 1], 1));
        // Given back: nothing is left of the decision.
        claims.apply(at(3, None));
        assert_eq!(built.snapshot().taken.len(), 0);
        built.assume(Arc::new(at(3, Some("two"))));
        claims.remove(at(4, Some("two")));
        built.written(Arc::new(at(4, Some("two"))));
        assert_eq!(built.snapshot().taken.len(), 0, "one that is gone has none");
    }
}
