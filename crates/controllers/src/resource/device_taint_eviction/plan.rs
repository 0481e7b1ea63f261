//! When a pod has to go, and because of which taints: a pure function of its claims, the slices and the rules.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferry_semantics::taints::Toleration;
use k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, DeviceTaint, DeviceTaintRule, DeviceToleration, ResourceClaim, ResourceSlice,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

pub(super) const NO_EXECUTE: &str = "NoExecute";

/// When eviction is due, and the rules that ask for it, by uid.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Eviction {
    pub(super) when: Timestamp,
    pub(super) rules: BTreeSet<String>,
}

/// The pool of a device, as claims and slices are indexed.
pub(super) fn pool(driver: &str, pool: &str) -> String {
    format!("{driver}/{pool}")
}

pub(super) fn devices(claim: &ResourceClaim) -> &[DeviceRequestAllocationResult] {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results =
        allocation.and_then(|allocation| allocation.devices.as_ref()).and_then(|devices| devices.results.as_deref());
    results.unwrap_or_default()
}

pub(super) fn matches(rule: &DeviceTaintRule, driver: &str, pool: &str, device: &str) -> bool {
    let Some(selector) = &rule.spec.device_selector else { return false };
    let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    is(&selector.driver, driver) && is(&selector.pool, pool) && is(&selector.device, device)
}

/// The slices of a pool that count: those of its newest generation.
pub(super) fn current(slices: &[Arc<ResourceSlice>]) -> impl Iterator<Item = &ResourceSlice> {
    let newest = slices.iter().map(|slice| slice.spec.pool.generation).max();
    slices.iter().map(|slice| &**slice).filter(move |slice| Some(slice.spec.pool.generation) == newest)
}

/// One for all effects is not meant for this one.
fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    toleration.effect.as_deref() == Some(NO_EXECUTE) && Toleration::from(toleration).tolerates(taint)
}

/// None when the device's user may stay for ever.
fn due(taint: &DeviceTaint, tolerations: &[DeviceToleration], now: Timestamp) -> Option<Timestamp> {
    let added = taint.time_added.as_ref().map_or(now, |time| time.0);
    let matching: Vec<&DeviceToleration> = tolerations.iter().filter(|one| tolerates(one, taint)).collect();
    let Some(first) = matching.first() else { return Some(added) };
    let mut shortest = first.toleration_seconds?;
    for toleration in matching {
        shortest = shortest.min(toleration.toleration_seconds?);
    }
    // A time beyond the calendar is for ever.
    added.checked_add(SignedDuration::from_secs(shortest.max(0))).ok()
}

/// What the taints of a claim's devices ask for. `slices` gives the slices of a pool.
pub(super) fn of_claim(
    claim: &ResourceClaim,
    slices: impl Fn(&str) -> Vec<Arc<ResourceSlice>>,
    rules: &[Arc<DeviceTaintRule>],
    now: Timestamp,
) -> Option<Eviction> {
    let mut found: Option<Eviction> = None;
    for used in devices(claim) {
        let pool_slices = slices(&pool(&used.driver, &used.pool));
        let published = current(&pool_slices)
            .flat_map(|slice| slice.spec.devices.iter().flatten())
            .find(|device| device.name == used.device)
            .and_then(|device| device.taints.as_deref())
            .unwrap_or_default();
        let from_rules = rules
            .iter()
            .filter(|rule| matches(rule, &used.driver, &used.pool, &used.device))
            .map(|rule| (&rule.spec.taint, rule.metadata.uid.clone()));
        let all = published.iter().map(|taint| (taint, None)).chain(from_rules);
        for (taint, rule) in all.filter(|(taint, _)| taint.effect == NO_EXECUTE) {
            let tolerations = used.tolerations.as_deref().unwrap_or_default();
            if let Some(when) = due(taint, tolerations, now) {
                found = join(found, Eviction { when, rules: rule.into_iter().collect() });
            }
        }
    }
    found
}

/// Both reasons, at the earlier time.
pub(super) fn join(one: Option<Eviction>, mut other: Eviction) -> Option<Eviction> {
    if let Some(one) = one {
        other.when = other.when.min(one.when);
        other.rules.extend(one.rules);
    }
    Some(other)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(tolerations: Value, rule: Value, expected: Option<(i64, usize)>) {
        let claim: ResourceClaim = serde_json::from_value(json!({
            "metadata": { "name": "c" }, "spec": {},
            "status": { "allocation": { "devices": { "results": [
                { "request": "r", "driver": "d", "pool": "p", "device": "gpu-0", "tolerations": tolerations },
            ] } } },
        }))
        .expect("a claim");
        let slice = |generation: i64, taints: Value| -> Arc<ResourceSlice> {
            let json = json!({
                "metadata": { "name": "s" },
                "spec": { "driver": "d", "pool": { "name": "p", "generation": generation, "resourceSliceCount": 1 },
                    "devices": [{ "name": "gpu-0", "taints": taints }] },
            });
            Arc::new(serde_json::from_value(json).expect("a slice"))
        };
        let taint = json!([{ "key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "1970-01-01T00:01:40Z" }]);
        // The older generation is tainted too, which nobody may look at.
        let slices = vec![slice(2, taint.clone()), slice(1, json!([{ "key": "old", "effect": "NoExecute" }]))];
        let rule: DeviceTaintRule = serde_json::from_value(json!({
            "metadata": { "name": "r", "uid": "u" }, "spec": rule,
        }))
        .expect("a rule");
        let now = Timestamp::from_second(1000).expect("a time");
        let made = of_claim(&claim, |_| slices.clone(), &[Arc::new(rule)], now);
        assert_eq!(made.map(|made| (made.when.as_second(), made.rules.len())), expected, "{tolerations}");
    }

    #[test]
    fn claims_go_when_a_taint_is_not_tolerated() {
        let other =
            || json!({ "deviceSelector": { "driver": "other" }, "taint": { "key": "x", "effect": "NoExecute" } });
        check(json!([]), other(), Some((100, 0)));
        check(json!([{ "key": "k", "operator": "Exists", "effect": "NoExecute" }]), other(), None);
        check(
            json!([{ "key": "k", "value": "v", "effect": "NoExecute", "tolerationSeconds": 30 }]),
            other(),
            Some((130, 0)),
        );
        check(json!([{ "key": "k", "value": "w", "effect": "NoExecute" }]), other(), Some((100, 0)));
        let ours = json!({ "deviceSelector": { "device": "gpu-0" }, "taint": { "key": "x", "effect": "NoExecute" } });
        check(json!([{ "key": "k", "operator": "Exists", "effect": "NoExecute" }]), ours, Some((1000, 1)));
        let mild = json!({ "deviceSelector": {}, "taint": { "key": "x", "effect": "NoSchedule" } });
        check(json!([{ "operator": "Exists", "effect": "NoExecute" }]), mild, None);
    }
}
