//! ServiceCIDR: says when a range may be used, and holds it while addresses of it are in use.

use std::net::IpAddr;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Clock, Error, Informer, ObjectKey, WorkQueue, write};
use ferry_semantics::cidr;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::SignedDuration;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::Context;

const NAME: &str = "service-cidrs-controller";
/// Addresses that somebody else wrote down are theirs to care for.
const MANAGER_LABEL: &str = "ipaddress.kubernetes.io/managed-by";
const MANAGER: &str = "ipallocator.k8s.io";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// So long a range that goes is kept: a server that has not heard of it may still give an address of it, and our own cache
/// of addresses may be behind that of ranges.
const GRACE: SignedDuration = SignedDuration::from_secs(10);

struct Reconciler {
    client: Client,
    ranges: Informer<ServiceCIDR>,
    addresses: Informer<IPAddress>,
    clock: Clock,
}

pub(crate) fn start(context: &Context) {
    let queue: WorkQueue<ObjectKey> = context.queue("servicecidrs");
    let this = Arc::new(Reconciler {
        client: context.client(NAME),
        ranges: context.informers.of(),
        addresses: context.informers.of(),
        clock: context.config.clock.clone(),
    });
    // Every range: one that comes may set free another that is held.
    let (handler, keys) = (this.clone(), queue.clone());
    let all = move || {
        for range in handler.ranges.list() {
            keys.add(ObjectKey::of(&*range));
        }
    };
    let wake = all.clone();
    this.ranges.on_change(move |_| wake());
    let handler = this.clone();
    this.addresses.on_change(move |_| {
        let held = handler.ranges.list().iter().any(|range| range.metadata.deletion_timestamp.is_some());
        if held {
            all();
        }
    });
    let synced = this.clone();
    let ready = async move {
        synced.ranges.synced().await;
        synced.addresses.synced().await;
    };
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

fn contains(range: &str, address: IpAddr) -> bool {
    cidr::parse(range).is_some_and(|range| range.contains(&address))
}

fn ranges(range: &ServiceCIDR) -> &[String] {
    range.spec.as_ref().and_then(|spec| spec.cidrs.as_deref()).unwrap_or_default()
}

/// Whether an address would be left without a range if this one went.
fn is_needed(range: &ServiceCIDR, others: &[Arc<ServiceCIDR>], addresses: &[Arc<IPAddress>]) -> bool {
    let stays = |other: &&Arc<ServiceCIDR>| {
        other.metadata.uid != range.metadata.uid && other.metadata.deletion_timestamp.is_none()
    };
    let elsewhere = |address: IpAddr| {
        others.iter().filter(stays).any(|other| ranges(other).iter().any(|text| contains(text, address)))
    };
    let ours =
        |address: &&Arc<IPAddress>| address.labels().get(MANAGER_LABEL).is_some_and(|manager| manager == MANAGER);
    let used = addresses.iter().filter(ours).filter_map(|address| address.name_any().parse::<IpAddr>().ok());
    used.into_iter().any(|address| ranges(range).iter().any(|text| contains(text, address)) && !elsewhere(address))
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(range) = self.ranges.get_key(key) else { return Ok(Action::Done) };
        let api: Api<ServiceCIDR> = Api::all(self.client.clone());
        let has = range.finalizers().iter().any(|known| known == FINALIZER);
        if range.metadata.deletion_timestamp.is_none() {
            if !has {
                let mut changed = (*range).clone();
                changed.finalizers_mut().push(FINALIZER.into());
                api.replace(&key.name, &PostParams::default(), &changed).await?;
                return Ok(Action::Done);
            }
            return self.tell(&range, "True", "", "Kubernetes Service CIDR is ready").await;
        }
        if !has {
            return Ok(Action::Done);
        }
        if is_needed(&range, &self.ranges.list(), &self.addresses.list()) {
            let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
            return self.tell(&range, "False", "Terminating", message).await;
        }
        let now = self.clock.now();
        let since = range.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
        let left = GRACE.saturating_sub(now.duration_since(since));
        // A clock that is wrong holds it no longer than the time it takes.
        if let Ok(left) = std::time::Duration::try_from(left.min(GRACE))
            && !left.is_zero()
        {
            return Ok(Action::After(left));
        }
        let mut changed = (*range).clone();
        changed.finalizers_mut().retain(|known| known != FINALIZER);
        match api.replace(&key.name, &PostParams::default(), &changed).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }

    async fn tell(&self, range: &ServiceCIDR, status: &str, reason: &str, message: &str) -> Result<Action, Error> {
        let known = range.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if known.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == status) {
            return Ok(Action::Done);
        }
        let condition = Condition {
            type_: "Ready".into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            last_transition_time: self.clock.time(),
            observed_generation: None,
        };
        let patch = json!({ "metadata": { "uid": range.metadata.uid }, "status": { "conditions": [condition] } });
        let api: Api<ServiceCIDR> = Api::all(self.client.clone());
        match api.patch_status(&range.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_held_while_an_address_needs_it() {
        let range = |uid: &str, cidr: &str| -> Arc<ServiceCIDR> {
            Arc::new(
                serde_json::from_value(json!({ "metadata": { "name": uid, "uid": uid }, "spec": { "cidrs": [cidr] } }))
                    .expect("a range"),
            )
        };
        let managed = |name: &str, manager: &str| -> Arc<IPAddress> {
            let parent = json!({ "resource": "services", "name": "s" });
            let metadata = json!({ "name": name, "labels": { MANAGER_LABEL: manager } });
            let address = json!({ "metadata": metadata, "spec": { "parentRef": parent } });
            Arc::new(serde_json::from_value(address).expect("an address"))
        };
        let address = |name: &str| managed(name, MANAGER);
        let (small, wide, six) = (range("a", "10.0.0.0/24"), range("b", "10.0.0.0/16"), range("c", "fd00::/64"));
        let all = [small.clone(), wide.clone(), six.clone()];
        assert!(!is_needed(&small, &all, &[address("10.0.0.9")]), "the wide one has it too");
        assert!(is_needed(&small, &[small.clone(), six.clone()], &[address("10.0.0.9")]));
        assert!(!is_needed(&small, std::slice::from_ref(&small), &[address("10.0.1.9")]));
        assert!(!is_needed(&small, std::slice::from_ref(&small), &[managed("10.0.0.9", "somebody")]));
        assert!(is_needed(&six, &all, &[address("fd00::7")]));
        assert!(contains("0.0.0.0/0", "1.2.3.4".parse().expect("an address")));
        assert!(!contains("nonsense", "1.2.3.4".parse().expect("an address")));
    }
}
