//! Plugins about volumes: where a pod's claims let it go, and binding those that wait for a pod.

mod binding;
mod limits;
mod matching;
mod restrictions;
mod zone;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Volume};
use kube::ResourceExt;

pub(super) use binding::VolumeBinding;
pub(super) use limits::NodeVolumeLimits;
pub(super) use restrictions::VolumeRestrictions;
pub(super) use zone::VolumeZone;

use crate::listers::Listers;
use crate::model::PodInfo;
use crate::model::labels::{Labels, NodeRequirement};

/// Set once the volume controller has finished binding a claim.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Where a class stood before the field for it.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

fn class_of(claim: &PersistentVolumeClaim) -> &str {
    let annotated = claim.annotations().get(CLASS_ANNOTATION);
    annotated.or_else(|| claim.spec.as_ref()?.storage_class_name.as_ref()).map_or("", String::as_str)
}

fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    volume_name(claim).is_some() && claim.annotations().contains_key(BIND_COMPLETED)
}

/// Whether the volume can be used on a node with these labels.
fn reaches(volume: &PersistentVolume, labels: &Labels) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
    affinity.is_none_or(|affinity| NodeRequirement::new(None, Some(affinity)).matches("", labels))
}

/// The name of the claim that a volume of the pod uses, and whether it was made for the pod.
fn claim_name(volume: &Volume, pod: &PodInfo) -> Option<(String, bool)> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some((source.claim_name.clone(), false)),
        (None, Some(_)) => Some((format!("{}-{}", pod.name, volume.name), true)),
        _ => None,
    }
}

/// The claims a pod uses that exist.
fn claims_of<'a>(pod: &'a PodInfo, listers: &'a Listers) -> impl Iterator<Item = Arc<PersistentVolumeClaim>> + 'a {
    pod.claims.iter().filter_map(|name| listers.claims.get(&pod.namespace, name))
}
