//! What a claim and a volume need next: pure functions of what is in the caches.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

use super::choose::{choose, class_of_claim, is_for, mismatch};

pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub(super) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
pub(super) const PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Upstream still takes the older mark, as its admission does.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// Provisioners of this name were once part of Kubernetes; those of this list have drivers that took over.
const BUILT_IN: &str = "kubernetes.io/";
const MIGRATED: [&str; 7] =
    ["aws-ebs", "azure-disk", "azure-file", "cinder", "gce-pd", "portworx-volume", "vsphere-volume"];
pub(super) const FIRST_CONSUMER: &str = "WaitForFirstConsumer";
pub(super) const POD_SCHEDULED: &str = "WaitForPodScheduled";

pub(super) struct Seen<'a> {
    pub(super) volumes: &'a [Arc<PersistentVolume>],
    pub(super) classes: &'a [Arc<StorageClass>],
    /// The node the scheduler chose for the claim's first pod.
    pub(super) node: Option<Arc<Node>>,
    /// The names of the pods that need the claim and have no node yet.
    pub(super) pods: &'a dyn Fn() -> Vec<String>,
}

#[derive(Debug, PartialEq)]
pub(super) enum ClaimStep {
    /// Binds the claim and the volume to each other, or completes what was begun.
    Bind(Arc<PersistentVolume>),
    Lost {
        reason: &'static str,
        message: String,
    },
    Pending {
        event: Option<Told>,
        provisioner: Option<String>,
    },
    /// A class became the default after the claim was made.
    TakeClass(String),
}

#[derive(Debug, PartialEq)]
pub(super) struct Told {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

fn pending(warning: bool, reason: &'static str, message: impl Into<String>) -> ClaimStep {
    ClaimStep::Pending { event: Some(Told { warning, reason, message: message.into() }), provisioner: None }
}

fn volume_name(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default()
}

fn find<'a>(volumes: &'a [Arc<PersistentVolume>], name: &str) -> Option<&'a Arc<PersistentVolume>> {
    volumes.iter().find(|volume| volume.metadata.name.as_deref() == Some(name))
}

pub(super) fn claim(claim: &PersistentVolumeClaim, seen: &Seen<'_>) -> ClaimStep {
    if claim.annotations().contains_key(BIND_COMPLETED) { bound(claim, seen) } else { unbound(claim, seen) }
}

fn bound(claim: &PersistentVolumeClaim, seen: &Seen<'_>) -> ClaimStep {
    let lost = |reason, message: &str| ClaimStep::Lost { reason, message: message.into() };
    if volume_name(claim).is_empty() {
        return lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!");
    }
    let Some(volume) = find(seen.volumes, volume_name(claim)) else {
        return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!");
    };
    let free = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none());
    if free || is_for(volume, claim) {
        return ClaimStep::Bind(volume.clone());
    }
    lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
}

fn unbound(claim: &PersistentVolumeClaim, seen: &Seen<'_>) -> ClaimStep {
    if !volume_name(claim).is_empty() {
        let Some(volume) = find(seen.volumes, volume_name(claim)) else {
            return ClaimStep::Pending { event: None, provisioner: None };
        };
        let name = volume.name_any();
        let free = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none());
        if free && let Some(why) = mismatch(volume, claim) {
            return pending(true, "VolumeMismatch", format!("Cannot bind to requested volume {name:?}: {why}"));
        }
        if free || is_for(volume, claim) {
            return ClaimStep::Bind(volume.clone());
        }
        return pending(true, "FailedBinding", format!("volume {name:?} already bound to a different claim."));
    }
    let class = class_of_claim(claim);
    let known = seen.classes.iter().find(|known| known.name_any() == class && !class.is_empty());
    let waits = known.is_some_and(|known| known.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
    let delayed = waits && !claim.annotations().contains_key(SELECTED_NODE);
    if let Some(volume) = choose(claim, seen.volumes, delayed, seen.node.as_deref()) {
        return ClaimStep::Bind(volume.clone());
    }
    if delayed {
        return match (seen.pods)().as_slice() {
            [] => pending(false, FIRST_CONSUMER, "waiting for first consumer to be created before binding"),
            [pod] => pending(false, POD_SCHEDULED, format!("waiting for pod {pod} to be scheduled")),
            pods => pending(false, POD_SCHEDULED, format!("waiting for pods {} to be scheduled", pods.join(","))),
        };
    }
    if class.is_empty() {
        let unset = claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_none());
        if unset && let Some(default) = default_class(seen.classes) {
            return ClaimStep::TakeClass(default);
        }
        let message = "no persistent volumes available for this claim and no storage class is set";
        return pending(false, "FailedBinding", message);
    }
    let Some(known) = known else {
        return pending(true, "ProvisioningFailed", format!("storageclass.storage.k8s.io {class:?} not found"));
    };
    if known.provisioner.strip_prefix(BUILT_IN).is_some_and(|name| !MIGRATED.contains(&name)) {
        let message = format!("no volume plugin matched name: {}", known.provisioner);
        return pending(true, "ProvisioningFailed", message);
    }
    let told = Told {
        warning: false,
        reason: "ExternalProvisioning",
        message: format!(
            "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered.",
            known.provisioner
        ),
    };
    ClaimStep::Pending { event: Some(told), provisioner: Some(known.provisioner.clone()) }
}

/// Whether a class is for claims that name none.
pub fn is_default_class(class: &StorageClass) -> bool {
    DEFAULT_CLASS.iter().any(|mark| class.annotations().get(*mark).is_some_and(|value| value == "true"))
}

/// Of several defaults the newest counts.
fn default_class(classes: &[Arc<StorageClass>]) -> Option<String> {
    let defaults = classes.iter().filter(|class| is_default_class(class));
    let newest = defaults.max_by_key(|class| {
        let made = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (made, std::cmp::Reverse(class.name_any()))
    });
    newest.map(|class| class.name_any())
}

#[derive(Debug, PartialEq)]
pub(super) enum VolumeStep {
    Phase {
        phase: &'static str,
        told: Option<Told>,
    },
    /// Free it: the claim it was meant for has another volume.
    Unbind,
    /// Its claim waits for it.
    WakeClaim,
}

/// `claim` is the one the volume's claimRef names, if there is one of that name.
pub(super) fn volume(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> VolumeStep {
    let phase = |phase| VolumeStep::Phase { phase, told: None };
    let Some(spec) = &volume.spec else { return phase("Available") };
    let Some(reference) = &spec.claim_ref else { return phase("Available") };
    if reference.uid.as_deref().unwrap_or_default().is_empty() {
        // Promised by an administrator: the claim has yet to take it.
        return if claim.is_some() { VolumeStep::WakeClaim } else { phase("Available") };
    }
    let Some(claim) = claim.filter(|claim| claim.metadata.uid == reference.uid) else { return released(volume) };
    let taken = volume_name(claim);
    if taken.is_empty() {
        return VolumeStep::WakeClaim;
    }
    if volume.metadata.name.as_deref() == Some(taken) {
        return phase("Bound");
    }
    let provisioned = volume.annotations().contains_key(PROVISIONED_BY);
    if provisioned && spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete") {
        return released(volume);
    }
    VolumeStep::Unbind
}

fn released(volume: &PersistentVolume) -> VolumeStep {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    let was_failed = volume.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"));
    match policy {
        // Whoever made the volume deletes it; nobody else knows how.
        Some("Delete") if !volume.annotations().contains_key(PROVISIONED_BY) => {
            let message = format!(
                "error getting deleter volume plugin for volume {:?}: no deletable volume plugin matched",
                volume.name_any()
            );
            let told = (!was_failed).then_some(Told { warning: true, reason: "VolumeFailedDelete", message });
            VolumeStep::Phase { phase: "Failed", told }
        }
        Some("Recycle") => {
            let message = "No recycler plugin found for the volume!".to_owned();
            let told = (!was_failed).then_some(Told { warning: true, reason: "VolumeFailedRecycle", message });
            VolumeStep::Phase { phase: "Failed", told }
        }
        _ => VolumeStep::Phase { phase: "Released", told: None },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }

    fn a_volume(name: &str, size: &str, change: Value) -> Arc<PersistentVolume> {
        let mut object = json!({ "metadata": { "name": name }, "spec": {
            "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
        } });
        merge(&mut object, change);
        Arc::new(serde_json::from_value(object).expect("a volume"))
    }

    fn a_claim(change: Value) -> PersistentVolumeClaim {
        let mut object = json!({ "metadata": { "name": "c", "namespace": "n", "uid": "u" }, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": { "requests": { "storage": "5Gi" } },
        } });
        merge(&mut object, change);
        serde_json::from_value(object).expect("a claim")
    }

    fn classes() -> Vec<Arc<StorageClass>> {
        let class = |name: &str, mode: &str, default: &str| {
            Arc::new(serde_json::from_value(json!({
                "metadata": { "name": name, "annotations": { DEFAULT_CLASS[0]: default } }, "provisioner": format!("example.com/{name}"),
                "volumeBindingMode": mode,
            })).expect("a class"))
        };
        vec![class("now", "Immediate", "true"), class("late", "WaitForFirstConsumer", "false")]
    }

    #[test]
    fn classes_are_the_default_by_the_older_mark_too() {
        let check = |annotations: Value, want: bool| {
            let class = json!({ "metadata": { "annotations": annotations }, "provisioner": "x" });
            let class: StorageClass = serde_json::from_value(class).expect("a class");
            assert_eq!(is_default_class(&class), want, "{annotations}");
        };
        check(Value::Null, false);
        check(json!({ DEFAULT_CLASS[0]: "true" }), true);
        check(json!({ DEFAULT_CLASS[1]: "true" }), true);
        check(json!({ DEFAULT_CLASS[0]: "false", DEFAULT_CLASS[1]: "true" }), true);
        check(json!({ DEFAULT_CLASS[0]: "yes", "other": "true" }), false);
    }

    #[test]
    fn claims_find_their_volume() {
        let volumes = [
            a_volume("large", "50Gi", json!({})),
            a_volume("small", "1Gi", json!({})),
            a_volume("right", "6Gi", json!({})),
            a_volume("taken", "5Gi", json!({ "spec": { "claimRef": { "namespace": "n", "name": "x", "uid": "y" } } })),
            a_volume("classy", "5Gi", json!({ "spec": { "storageClassName": "late" } })),
            a_volume(
                "promised",
                "9Gi",
                json!({ "spec": { "storageClassName": "late", "claimRef": { "namespace": "n", "name": "chosen" } } }),
            ),
        ];
        let classes = classes();
        let seen = Seen { volumes: &volumes, classes: &classes, node: None, pods: &Vec::new };
        let check = |change: Value, expected: &str| {
            let text = match claim(&a_claim(change.clone()), &seen) {
                ClaimStep::Bind(volume) => format!("bind {}", volume.name_any()),
                ClaimStep::Lost { reason, .. } => reason.to_owned(),
                ClaimStep::Pending { event, provisioner } => {
                    format!("{} {}", event.map_or("-", |told| told.reason), provisioner.unwrap_or_default())
                }
                ClaimStep::TakeClass(class) => format!("class {class}"),
            };
            assert_eq!(text.trim(), expected, "{change}");
        };
        let completed = json!({ BIND_COMPLETED: "yes" });
        check(json!({}), "bind right");
        check(json!({ "spec": { "resources": { "requests": { "storage": "99Gi" } } } }), "FailedBinding");
        check(json!({ "spec": { "storageClassName": null, "accessModes": ["ReadWriteMany"] } }), "class now");
        check(json!({ "spec": { "storageClassName": "now" } }), "ExternalProvisioning example.com/now");
        check(json!({ "spec": { "storageClassName": "none" } }), "ProvisioningFailed");
        check(json!({ "spec": { "storageClassName": "late" } }), "WaitForFirstConsumer");
        check(
            json!({ "spec": { "storageClassName": "late" }, "metadata": { "annotations": { SELECTED_NODE: "n1" } } }),
            "bind classy",
        );
        check(json!({ "metadata": { "name": "chosen" }, "spec": { "storageClassName": "late" } }), "bind promised");
        check(json!({ "spec": { "volumeName": "small" } }), "VolumeMismatch");
        check(json!({ "spec": { "volumeName": "large" } }), "bind large");
        check(json!({ "spec": { "volumeName": "classy" } }), "VolumeMismatch");
        check(json!({ "spec": { "volumeName": "taken" } }), "FailedBinding");
        check(json!({ "spec": { "volumeName": "absent" } }), "-");
        check(json!({ "metadata": { "annotations": completed } }), "ClaimLost");
        check(json!({ "metadata": { "annotations": completed }, "spec": { "volumeName": "absent" } }), "ClaimLost");
        check(json!({ "metadata": { "annotations": completed }, "spec": { "volumeName": "taken" } }), "ClaimMisbound");
    }

    #[test]
    fn what_does_not_fit_says_why() {
        let told = |volume: Arc<PersistentVolume>| {
            let asks = a_claim(json!({ "spec": { "volumeName": "v" } }));
            match claim(&asks, &Seen { volumes: &[volume], classes: &[], node: None, pods: &Vec::new }) {
                ClaimStep::Pending { event: Some(told), .. } => told.message,
                other => format!("{other:?}"),
            }
        };
        let check = |size: &str, change: Value, why: &str| {
            let message = told(a_volume("v", size, change));
            assert_eq!(message, format!("Cannot bind to requested volume \"v\": {why}"));
        };
        check("1Gi", json!({}), "requested PV is too small");
        check("9Gi", json!({ "spec": { "storageClassName": "x" } }), "storageClassName does not match");
        check("9Gi", json!({ "spec": { "volumeMode": "Block" } }), "incompatible volumeMode");
        check("9Gi", json!({ "spec": { "accessModes": ["ReadOnlyMany"] } }), "incompatible accessMode");
        let attributes = json!({ "spec": { "volumeAttributesClassName": "gold" } });
        check("9Gi", attributes, "volumeAttributesClassName does not match");
        let going = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        check("9Gi", going, "the volume is marked for deletion \"v\"");
    }

    #[test]
    fn who_waits_for_whom_is_said() {
        let classes = classes();
        for (pods, expected) in [
            (vec![], "waiting for first consumer to be created before binding"),
            (vec!["a"], "waiting for pod a to be scheduled"),
            (vec!["a", "b"], "waiting for pods a,b to be scheduled"),
        ] {
            let names = || pods.iter().map(|name| (*name).to_owned()).collect();
            let seen = Seen { volumes: &[], classes: &classes, node: None, pods: &names };
            let step = claim(&a_claim(json!({ "spec": { "storageClassName": "late" } })), &seen);
            let ClaimStep::Pending { event: Some(told), .. } = step else { panic!("{step:?}") };
            assert_eq!(told.message, expected);
        }
    }

    #[test]
    fn volumes_tell_their_phase() {
        let bound = |policy: &str| json!({ "spec": { "persistentVolumeReclaimPolicy": policy, "claimRef": { "namespace": "n", "name": "c", "uid": "u" } } });
        let promised = json!({ "spec": { "claimRef": { "namespace": "n", "name": "c" } } });
        let check = |change: Value, claim: Option<Value>, expected: &str| {
            let step = match volume(&a_volume("v", "1Gi", change.clone()), claim.map(a_claim).as_ref()) {
                VolumeStep::Phase { phase, .. } => phase,
                VolumeStep::Unbind => "unbind",
                VolumeStep::WakeClaim => "wake",
            };
            assert_eq!(step, expected, "{change}");
        };
        check(json!({}), None, "Available");
        check(promised.clone(), None, "Available");
        check(promised, Some(json!({})), "wake");
        check(bound("Retain"), Some(json!({ "spec": { "volumeName": "v" } })), "Bound");
        check(bound("Retain"), Some(json!({ "spec": { "volumeName": "w" } })), "unbind");
        check(bound("Retain"), None, "Released");
        check(bound("Retain"), Some(json!({ "metadata": { "uid": "another" } })), "Released");
        check(bound("Delete"), None, "Failed");
        check(bound("Recycle"), None, "Failed");
    }
}
