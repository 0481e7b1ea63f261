//! Which volume fits a claim best.

use std::sync::Arc;

use ferry_meta::Quantity;
use ferry_semantics::node_selector;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;

use crate::common::selector::Selector;

pub(super) fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    let legacy = claim.annotations().get("volume.beta.kubernetes.io/storage-class").map(String::as_str);
    legacy.or(claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref())).unwrap_or_default()
}

fn class_of_volume(volume: &PersistentVolume) -> &str {
    let legacy = volume.annotations().get("volume.beta.kubernetes.io/storage-class").map(String::as_str);
    legacy.or(volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref())).unwrap_or_default()
}

/// Whether the volume's claimRef names this claim.
pub(super) fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    reference.name == claim.metadata.name
        && reference.namespace == claim.metadata.namespace
        && reference.uid.as_deref().is_none_or(|uid| uid.is_empty() || claim.metadata.uid.as_deref() == Some(uid))
}

fn storage(
    amounts: Option<&std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> i64 {
    let text = amounts.and_then(|amounts| amounts.get("storage")).map(|quantity| quantity.0.as_str());
    text.and_then(|text| Quantity::parse(text).ok()).map_or(0, |quantity| quantity.value())
}

fn is_reachable(volume: &PersistentVolume, node: &Node) -> bool {
    let spec = volume.spec.as_ref();
    let required = spec.and_then(|spec| spec.node_affinity.as_ref()).and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|selector| node_selector::selects(selector, node))
}

/// Whether the volume can carry the claim, whoever it is promised to.
fn fits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(has), Some(wants)) = (&volume.spec, &claim.spec) else { return false };
    let modes = has.access_modes.as_deref().unwrap_or_default();
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".into());
    let attributes = |class: &Option<String>| class.clone().unwrap_or_default();
    storage(has.capacity.as_ref()) >= storage(wants.resources.as_ref().and_then(|r| r.requests.as_ref()))
        && wants.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && mode(&has.volume_mode) == mode(&wants.volume_mode)
        && attributes(&has.volume_attributes_class_name) == attributes(&wants.volume_attributes_class_name)
}

/// Why the volume that a claim asks for by name is not for it.
pub(super) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let (has, wants) = (volume.spec.clone().unwrap_or_default(), claim.spec.clone().unwrap_or_default());
    let modes = has.access_modes.unwrap_or_default();
    let mode = |mode: Option<String>| mode.unwrap_or_else(|| "Filesystem".into());
    let why = if volume.metadata.deletion_timestamp.is_some() {
        return Some(format!("the volume is marked for deletion {:?}", volume.name_any()));
    } else if storage(has.capacity.as_ref()) < storage(wants.resources.as_ref().and_then(|r| r.requests.as_ref())) {
        "requested PV is too small"
    } else if class_of_volume(volume) != class_of_claim(claim) {
        "storageClassName does not match"
    } else if has.volume_attributes_class_name.unwrap_or_default()
        != wants.volume_attributes_class_name.unwrap_or_default()
    {
        "volumeAttributesClassName does not match"
    } else if mode(has.volume_mode) != mode(wants.volume_mode) {
        "incompatible volumeMode"
    } else if !wants.access_modes.iter().flatten().all(|mode| modes.contains(mode)) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// The volume that was promised to the claim, or the smallest free one that fits. `delayed` takes promised ones only.
pub(super) fn choose<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [Arc<PersistentVolume>],
    delayed: bool,
    node: Option<&Node>,
) -> Option<&'a Arc<PersistentVolume>> {
    if let Some(promised) = volumes.iter().find(|volume| is_for(volume, claim) && fits(volume, claim)) {
        return Some(promised);
    }
    if delayed {
        return None;
    }
    let selector = claim.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let free = volumes.iter().filter(|volume| {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_none())
            && volume.metadata.deletion_timestamp.is_none()
            && matches!(phase, "" | "Pending" | "Available")
            && class_of_volume(volume) == class_of_claim(claim)
            && selector.is_none_or(|selector| Selector::new(Some(selector)).matches(volume.metadata.labels.as_ref()))
            && node.is_none_or(|node| is_reachable(volume, node))
            && fits(volume, claim)
    });
    free.min_by_key(|volume| (storage(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref())), volume.name_any()))
}
