//! Which existing volume suits a claim on a node, or whether one can be made there. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferry_meta::quantity::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

use super::{class_of, reaches};
use crate::model::{NodeInfo, Selector};

/// The class of volumes that nobody provisions.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

fn amount(
    list: Option<&std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> Quantity {
    list.and_then(|list| list.get("storage")).and_then(|text| Quantity::parse(&text.0).ok()).unwrap_or_default()
}

pub(super) fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    amount(claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()))
}

/// The smallest suitable volume; one that names the claim already before all others.
pub(super) fn find_volume(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    node: &NodeInfo,
    taken: &BTreeSet<String>,
) -> Option<Arc<PersistentVolume>> {
    let spec = claim.spec.as_ref()?;
    let wanted = requested(claim);
    let selector = spec.selector.as_ref().map(|selector| Selector::new(Some(selector)));
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".into());
    let mut best: Option<(Quantity, Arc<PersistentVolume>)> = None;
    for volume in volumes {
        let Some(offer) = volume.spec.as_ref() else { continue };
        let capacity = amount(offer.capacity.as_ref());
        let ours = names(volume, claim);
        if taken.contains(&volume.name_any())
            || (offer.claim_ref.is_some() && !ours)
            || capacity < wanted
            || mode(&spec.volume_mode) != mode(&offer.volume_mode)
            || spec.volume_attributes_class_name.as_deref().unwrap_or_default()
                != offer.volume_attributes_class_name.as_deref().unwrap_or_default()
            || volume.metadata.deletion_timestamp.is_some()
        {
            continue;
        }
        let reachable = reaches(volume, &node.labels);
        if ours {
            return reachable.then(|| volume.clone());
        }
        let modes = |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect::<BTreeSet<_>>();
        let suits = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available")
            && selector.as_ref().is_none_or(|selector| selector.matches(volume.labels()))
            && offer.storage_class_name.as_deref().unwrap_or_default() == class_of(claim)
            && reachable
            && modes(&spec.access_modes).is_subset(&modes(&offer.access_modes));
        if suits && best.as_ref().is_none_or(|(smallest, _)| capacity < *smallest) {
            best = Some((capacity, volume.clone()));
        }
    }
    best.map(|(_, volume)| volume)
}

fn names(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    reference.is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && (reference.uid.as_deref().unwrap_or_default().is_empty() || reference.uid == claim.metadata.uid)
    })
}

/// Whether a volume of the class can be made for that node.
pub(super) fn can_provision(class: &StorageClass, node: &NodeInfo) -> bool {
    if class.provisioner.is_empty() || class.provisioner == NO_PROVISIONER {
        return false;
    }
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    let mut terms = terms.iter().filter_map(|term| term.match_label_expressions.as_ref()).peekable();
    terms.peek().is_none()
        || terms.any(|term| {
            term.iter().all(|rule| node.labels.get(&rule.key).is_some_and(|value| rule.values.contains(value)))
        })
}
