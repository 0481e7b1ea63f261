//! What a claim and a volume need next: pure functions of what is in the caches.

use std::path::{Component, Path};

use ferry_semantics::local_volumes::{PROVISIONER, SERVES, name_for};
use k8s_openapi::api::core::v1::{
    LocalVolumeSource, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::refuse;

pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const ASKED: [&str; 2] = ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"];
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Holds a volume until its data is removed; upstream's provisioners have the same.
pub(super) const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Others' business first.
const PROTECTION: &str = "kubernetes.io/pv-protection";
const HOST_NAME: &str = "kubernetes.io/hostname";
/// The longest path that the kernel takes.
const LONGEST_PATH: usize = 4095;

#[derive(Debug, PartialEq)]
pub(super) enum ClaimStep {
    /// It is another provisioner's, or has what it needs.
    Ignore,
    /// It stays as it is, and is told why.
    Refuse(String),
    /// This node is not the one: the scheduler chooses again.
    Reschedule(String),
    Provision {
        node: String,
        name: String,
        bytes: i64,
    },
}

/// Whether a claim is this provisioner's to serve, as far as it says so itself.
pub(super) fn asks(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_none() && waits(claim)
}

fn waits(claim: &PersistentVolumeClaim) -> bool {
    let taken = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    taken.is_empty() && ASKED.iter().any(|key| claim.annotations().get(*key).is_some_and(|asked| asked == PROVISIONER))
}

fn selected(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.annotations().get(SELECTED_NODE).map(String::as_str).filter(|name| !name.is_empty())
}

/// The node on which a claim that is gone without a volume may have left a folder.
pub(super) fn attempted_on(claim: &PersistentVolumeClaim) -> Option<&str> {
    selected(claim).filter(|_| waits(claim))
}

pub(super) fn class_of(claim: &PersistentVolumeClaim) -> &str {
    let legacy = claim.annotations().get("volume.beta.kubernetes.io/storage-class").map(String::as_str);
    legacy.or(claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref())).unwrap_or_default()
}

/// `node` finds a node by its name. `serves` is false where no new volumes are to be made.
pub(super) fn claim<N: AsRef<Node>>(
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
    node: impl FnOnce(&str) -> Option<N>,
    serves: bool,
) -> ClaimStep {
    let Some(class) = class.filter(|class| asks(claim) && class.provisioner == PROVISIONER) else {
        return ClaimStep::Ignore;
    };
    if !serves {
        return ClaimStep::Refuse("the local-path provisioner is turned off (--local-path=false)".to_owned());
    }
    let bytes = match refuse::check(claim, class) {
        Ok(bytes) => bytes,
        Err(why) => return ClaimStep::Refuse(why),
    };
    // Until the scheduler has chosen a node there is nothing to do.
    let Some(selected) = selected(claim) else { return ClaimStep::Ignore };
    let Some(found) = node(selected) else {
        return ClaimStep::Reschedule("the node that was chosen for it does not exist".to_owned());
    };
    let found = found.as_ref();
    if let Err(why) = usable(found) {
        return ClaimStep::Reschedule(why);
    }
    match name_for(&claim.uid().unwrap_or_default()) {
        Some(name) => ClaimStep::Provision { node: selected.to_owned(), name, bytes },
        None => ClaimStep::Refuse("the claim has no UID that a folder could be named after".to_owned()),
    }
}

/// Whether volumes can be made on a node now.
fn usable(node: &Node) -> Result<(), String> {
    let name = node.name_any();
    if !serves(node) {
        return Err(format!("node {name} makes no local volumes: its kubelet is not Ferry's"));
    }
    // A volume leads pods to its node by this label. A node could carry another's, and lead them there.
    if node.labels().get(HOST_NAME) != Some(&name) {
        return Err(format!("node {name} has a label {HOST_NAME} that is not its name"));
    }
    if !is_ready(node) {
        return Err(format!("node {name} is not ready"));
    }
    Ok(())
}

pub(super) fn serves(node: &Node) -> bool {
    node.annotations().contains_key(SERVES)
}

pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether a node may say that the folder of a volume is there.
pub(super) fn is_path(path: &str, name: &str) -> bool {
    let parts = Path::new(path);
    path.len() <= LONGEST_PATH
        && parts.is_absolute()
        && parts.components().skip(1).all(|part| matches!(part, Component::Normal(_)))
        && parts.file_name().is_some_and(|last| last == name)
        && !path.ends_with('/')
}

pub(super) fn volume_for(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: &str,
    name: &str,
    path: &str,
) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let on_node = NodeSelectorRequirement {
        key: HOST_NAME.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![on_node]), match_fields: None };
    let policy = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some([(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned())].into()),
            finalizers: Some(vec![FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: Some(requests.into_iter().filter(|(resource, _)| resource == "storage").collect()),
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                namespace: claim.metadata.namespace.clone(),
                name: claim.metadata.name.clone(),
                uid: claim.metadata.uid.clone(),
                resource_version: claim.metadata.resource_version.clone(),
                ..ObjectReference::default()
            }),
            local: Some(LocalVolumeSource { path: path.to_owned(), fs_type: None }),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector { node_selector_terms: vec![term] }),
            }),
            persistent_volume_reclaim_policy: Some(policy),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    Ready,
    Away,
    Gone,
}

#[derive(Debug, PartialEq)]
pub(super) enum VolumeStep {
    Leave,
    /// Let it go, with whatever was its data.
    LetGo,
    /// Remove the data, then the volume.
    Remove {
        node: String,
    },
    /// Its data cannot be removed now.
    Tell(String),
}

/// Whether a volume was made here.
fn is_ours(volume: &PersistentVolume) -> bool {
    volume.annotations().get(PROVISIONED_BY).is_some_and(|by| by == PROVISIONER)
}

/// The node that has the volume: the one that its affinity leads to.
pub(super) fn node_of(volume: &PersistentVolume) -> Option<&str> {
    let required = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let [term] = required.node_selector_terms.as_slice() else { return None };
    let [only] = term.match_expressions.as_deref()? else { return None };
    match only.values.as_deref()? {
        [node] if only.key == HOST_NAME && only.operator == "In" => Some(node),
        _ => None,
    }
}

/// Whether an empty folder of a node is nobody's: no volume has its name, or the one that has it came to be on another node,
/// after an attempt here.
pub(super) fn is_left(volume: Option<&PersistentVolume>, node: &str) -> bool {
    volume.is_none_or(|volume| is_ours(volume) && node_of(volume).is_some_and(|other| other != node))
}

pub(super) fn volume(volume: &PersistentVolume, state: impl FnOnce(&str) -> NodeState) -> VolumeStep {
    let Some(spec) = volume.spec.as_ref().filter(|_| is_ours(volume)) else { return VolumeStep::Leave };
    let going = volume.metadata.deletion_timestamp.is_some();
    let held = volume.finalizers().iter().any(|one| one == FINALIZER);
    if going && (!held || volume.finalizers().iter().any(|one| one == PROTECTION)) {
        return VolumeStep::Leave;
    }
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if spec.persistent_volume_reclaim_policy.as_deref() != Some("Delete") {
        return if going { VolumeStep::LetGo } else { VolumeStep::Leave };
    }
    // A claim that has the volume keeps the data, also where nothing else protects the volume.
    if phase == "Bound" || (!going && phase != "Released") {
        return VolumeStep::Leave;
    }
    let name = volume.name_any();
    let path = spec.local.as_ref().map(|local| local.path.as_str()).unwrap_or_default();
    let Some(node) = node_of(volume).filter(|_| is_path(path, &name) && ferry_semantics::local_volumes::is_name(&name))
    else {
        // Somebody wrote it by hand: what it names is not ours to remove.
        let why = "it is not as the provisioner makes volumes. Remove its data by hand, then delete it";
        return if going { VolumeStep::LetGo } else { VolumeStep::Tell(why.to_owned()) };
    };
    match state(node) {
        NodeState::Ready => VolumeStep::Remove { node: node.to_owned() },
        NodeState::Away => {
            VolumeStep::Tell(format!("node {node} is not ready. Its data is removed when the node is back"))
        }
        NodeState::Gone if going => VolumeStep::LetGo,
        NodeState::Gone => VolumeStep::Tell(format!(
            "node {node} has left the cluster, and the data is on its disk. Delete the volume: kubectl delete pv {name}"
        )),
    }
}
