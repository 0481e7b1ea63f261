//! Who owns a set's claims, so that they go when the retention policy says so.

use std::sync::Arc;

use ferry_client::owner;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::pod;

fn deletes(set: &StatefulSet) -> (bool, bool) {
    let policy = set.spec.persistent_volume_claim_retention_policy.as_ref();
    let is_delete = |text: Option<&String>| text.is_some_and(|text| text == "Delete");
    (
        is_delete(policy.and_then(|policy| policy.when_scaled.as_ref())),
        is_delete(policy.and_then(|policy| policy.when_deleted.as_ref())),
    )
}

/// The owners a claim of this pod should have, or none when it has them. With the set as owner it goes with the set,
/// with a pod beyond the range as owner it goes with that pod.
pub(super) fn owners(set: &StatefulSet, pod: &Pod, claim: &PersistentVolumeClaim) -> Option<Vec<OwnerReference>> {
    let is_ours = |reference: &OwnerReference| {
        (reference.kind == "StatefulSet" && reference.name == set.name_any())
            || (reference.kind == "Pod" && reference.name == pod.name_any())
    };
    let uid = |reference: &OwnerReference| {
        Some(&reference.uid) == set.metadata.uid.as_ref() || Some(&reference.uid) == pod.metadata.uid.as_ref()
    };
    let old = claim.metadata.owner_references.clone().unwrap_or_default();
    // References to a predecessor of the same name: the garbage collector will see to them.
    if old.iter().any(|reference| is_ours(reference) && !uid(reference)) {
        return None;
    }
    let mut new: Vec<OwnerReference> = old.iter().filter(|reference| !is_ours(reference)).cloned().collect();
    let foreign = new.iter().any(|reference| reference.controller == Some(true));
    let (when_scaled, when_deleted) = deletes(set);
    let scaled_away = pod::ordinal(set, pod).is_some_and(|ordinal| !pod::is_in_range(set, ordinal));
    if !foreign {
        if when_scaled && scaled_away {
            new.push(owner::controller_reference(pod));
        } else if when_deleted {
            new.push(owner::controller_reference(set));
        }
    }
    (new != old).then_some(new)
}

/// One of these claims was given to a pod of that name that is no more: it goes with it, when scaling down deletes claims.
pub(super) fn goes_with_predecessor(
    set: &StatefulSet,
    pod: &Pod,
    claims: impl IntoIterator<Item = Arc<PersistentVolumeClaim>>,
) -> bool {
    let stale = |reference: &OwnerReference| {
        reference.kind == "Pod" && reference.name == pod.name_any() && Some(&reference.uid) != pod.metadata.uid.as_ref()
    };
    deletes(set).0 && claims.into_iter().any(|claim| claim.owner_references().iter().any(stale))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Policies when scaled and when deleted, the pod's ordinal in a set of two, and the kind of the owner.
    fn check(when_scaled: &str, when_deleted: &str, ordinal: i32, expected: Option<&str>) {
        let set: StatefulSet = serde_json::from_value(json!({
            "metadata": { "name": "web", "uid": "s" },
            "spec": {
                "replicas": 2, "selector": {}, "template": {},
                "persistentVolumeClaimRetentionPolicy": { "whenScaled": when_scaled, "whenDeleted": when_deleted },
            },
        }))
        .expect("a set");
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": format!("web-{ordinal}"), "uid": "p" } }))
            .expect("a pod");
        let mut claim = PersistentVolumeClaim::default();
        let made = owners(&set, &pod, &claim);
        let kind = made.as_ref().and_then(|list| list.first()).map(|reference| reference.kind.as_str());
        assert_eq!(kind, expected, "{when_scaled} {when_deleted} {ordinal}");
        claim.metadata.owner_references = made;
        assert_eq!(owners(&set, &pod, &claim), None, "comes to rest");
    }

    #[test]
    fn claims_go_with_the_set_or_the_pod() {
        check("Retain", "Retain", 0, None);
        check("Retain", "Delete", 0, Some("StatefulSet"));
        check("Retain", "Delete", 5, Some("StatefulSet"));
        check("Delete", "Retain", 0, None);
        check("Delete", "Retain", 5, Some("Pod"));
        check("Delete", "Delete", 1, Some("StatefulSet"));
        check("Delete", "Delete", 2, Some("Pod"));
    }
}
