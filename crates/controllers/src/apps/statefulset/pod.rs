//! The pod at an ordinal: its name, its labels, its volumes.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use kube::ResourceExt;

use crate::common::history::HASH_LABEL;
use crate::common::pod_control;

const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The number at the end of a pod's name, when what stands before it is the set's name.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let name = pod.metadata.name.as_deref()?;
    let (parent, number) = name.rsplit_once('-')?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (digits && parent == set.name_any()).then(|| number.parse().ok()).flatten()
}

pub(super) fn first(set: &StatefulSet) -> i32 {
    set.spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or_default()
}

pub(super) fn replicas(set: &StatefulSet) -> i32 {
    set.spec.replicas.unwrap_or(1).max(0)
}

pub(super) fn is_in_range(set: &StatefulSet, ordinal: i32) -> bool {
    (first(set)..first(set).saturating_add(replicas(set))).contains(&ordinal)
}

pub(super) fn revision(pod: &Pod) -> &str {
    pod.labels().get(HASH_LABEL).map_or("", String::as_str)
}

/// A new pod of that template and revision.
pub(super) fn make(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i32) -> Pod {
    let mut pod = pod_control::pod_from(template, set);
    pod.metadata.generate_name = None;
    identify(set, &mut pod, ordinal);
    pod.metadata.labels.get_or_insert_default().insert(HASH_LABEL.into(), revision.to_owned());
    let name = pod.metadata.name.clone();
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = name;
    spec.subdomain = set.spec.service_name.clone().filter(|service| !service.is_empty());
    store(set, &mut pod, ordinal);
    pod
}

fn identify(set: &StatefulSet, pod: &mut Pod, ordinal: i32) {
    let name = format!("{}-{ordinal}", set.name_any());
    pod.metadata.name = Some(name.clone());
    pod.metadata.namespace = set.metadata.namespace.clone();
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(NAME_LABEL.into(), name);
    labels.insert(INDEX_LABEL.into(), ordinal.to_string());
}

/// The set's claims take the place of volumes of the same name.
fn store(set: &StatefulSet, pod: &mut Pod, ordinal: i32) {
    let claims = claims(set, ordinal);
    if claims.is_empty() {
        return;
    }
    let volume = |(template, claim): &(String, PersistentVolumeClaim)| Volume {
        name: template.clone(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.name_any(),
            read_only: None,
        }),
        ..Volume::default()
    };
    let spec = pod.spec.get_or_insert_default();
    let others = spec.volumes.take().unwrap_or_default();
    let mut volumes: Vec<Volume> = claims.iter().map(volume).collect();
    volumes.extend(others.into_iter().filter(|other| !claims.iter().any(|(name, _)| *name == other.name)));
    spec.volumes = Some(volumes);
}

/// The claims of an ordinal, each with the name of its template.
pub(super) fn claims(set: &StatefulSet, ordinal: i32) -> Vec<(String, PersistentVolumeClaim)> {
    let templates = set.spec.volume_claim_templates.iter().flatten();
    let claim = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        claim.status = None;
        claim.metadata.name = Some(format!("{}-{}-{ordinal}", template.name_any(), set.name_any()));
        claim.metadata.namespace = set.metadata.namespace.clone();
        let labels = set.spec.selector.match_labels.clone().unwrap_or_default();
        claim.metadata.labels.get_or_insert_default().extend(labels);
        (template.name_any(), claim)
    };
    templates.map(claim).collect()
}

/// The name is one that a claim of the set could have.
pub(super) fn may_be_claim(set: &StatefulSet, name: &str) -> bool {
    let of = |template: &PersistentVolumeClaim| format!("{}-{}-", template.name_any(), set.name_any());
    let rest = |template| name.strip_prefix(&*of(template)).is_some_and(|rest| rest.parse::<u32>().is_ok());
    set.spec.volume_claim_templates.iter().flatten().any(rest)
}

/// An existing pod with its identity put right, or none when it is.
pub(super) fn corrected(set: &StatefulSet, pod: &Pod, ordinal: i32) -> Option<Pod> {
    let mut fixed = pod.clone();
    let labels = fixed.metadata.labels.get_or_insert_default();
    if labels.get(NAME_LABEL) == pod.metadata.name.as_ref() {
        return None;
    }
    identify(set, &mut fixed, ordinal);
    Some(fixed)
}
