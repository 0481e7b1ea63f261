//! Revisions: which ReplicaSet has the current template, its number and annotations, going back, what is superfluous.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_client::{EventType, owner};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::plan::{Draft, Plan, Set};
use super::{scale, status};
use crate::common::template::{self, HASH_LABEL};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Annotations that a Deployment and its ReplicaSets do not share.
const OWN: [&str; 6] = [LAST_APPLIED, REVISION, HISTORY, DESIRED, MAXIMUM, ROLLBACK_TO];
const LONGEST_HISTORY: usize = 2000;
const LONGEST_NAME: usize = 253;

/// Finds the oldest ReplicaSet with the Deployment's template; all others are old.
pub(super) fn sort(deployment: &Arc<Deployment>, sets: Vec<Arc<ReplicaSet>>, now: Timestamp) -> Draft {
    let mut old: Vec<Set> = sets.into_iter().map(|was| Set { set: (*was).clone(), was: Some(was) }).collect();
    old.sort_by(|one, other| one.age().cmp(&other.age()));
    let position = old.iter().position(|set| {
        set.set.spec.template.as_ref().is_some_and(|one| template::same(one, &deployment.spec.template))
    });
    let new = position.map(|at| old.remove(at));
    Draft { deployment: (**deployment).clone(), observed: deployment.clone(), new, old, notes: Vec::new(), now }
}

fn revision_of(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Brings an existing ReplicaSet of the current template up to date: revision, annotations, minReadySeconds.
pub(super) fn sync_new(draft: &mut Draft) {
    let revision = draft.old.iter().map(|old| revision_of(&old.set)).max().unwrap_or_default().saturating_add(1);
    let min_ready = draft.spec().min_ready_seconds;
    let Some(mut new) = draft.new.take() else { return };
    annotate(&draft.deployment, &mut new.set, revision);
    let spec = &mut new.set.spec;
    if spec.min_ready_seconds.unwrap_or_default() != min_ready.unwrap_or_default() {
        spec.min_ready_seconds = min_ready;
    }
    let number = revision_of(&new.set);
    draft.deployment.annotations_mut().insert(REVISION.into(), number.to_string());
    if status::deadline(draft).is_some() && status::progressing(draft).is_none() {
        let message = format!("Found new replica set \"{}\"", new.name());
        status::set_progressing(draft, "True", "FoundNewReplicaSet", message);
    }
    draft.new = Some(new);
}

/// Makes a ReplicaSet of the current template where there is none.
pub(super) fn ensure_new(draft: &mut Draft) {
    if draft.new.is_some() {
        return;
    }
    let revision = draft.old.iter().map(|old| revision_of(&old.set)).max().unwrap_or_default().saturating_add(1);
    let mut set = Set { was: None, set: replica_set(&draft.deployment) };
    annotate(&draft.deployment, &mut set.set, revision);
    let replicas = scale::for_new(draft, 0);
    set.set.spec.replicas = Some(replicas);
    scale::annotate_sizes(draft, &mut set.set);
    let name = set.name().to_owned();
    if replicas > 0 {
        let message = format!("Scaled up replica set {name} from 0 to {replicas}");
        draft.note(EventType::Normal, "ScalingReplicaSet", message);
    }
    draft.deployment.annotations_mut().insert(REVISION.into(), revision.to_string());
    if status::deadline(draft).is_some() {
        let message = format!("Created new replica set \"{name}\"");
        status::set_progressing(draft, "True", "NewReplicaSetCreated", message);
    }
    draft.new = Some(set);
}

fn replica_set(deployment: &Deployment) -> ReplicaSet {
    let spec = deployment.spec.clone();
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = template::hash(&spec.template, collisions);
    let mut template = spec.template;
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.into(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector;
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.into(), hash.clone());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name(&deployment.name_any(), &hash)),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![owner::controller_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: ReplicaSetSpec {
            replicas: Some(0),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        },
        status: Some(ReplicaSetStatus::default()),
    }
}

/// Names are ASCII, so that cutting is safe.
fn name(deployment: &str, hash: &str) -> String {
    let room = LONGEST_NAME.saturating_sub(hash.len() + 1);
    format!("{}-{hash}", deployment.get(..room).unwrap_or(deployment))
}

/// Copies the Deployment's annotations and raises the revision; a revision that is raised again goes to the history.
fn annotate(deployment: &Deployment, set: &mut ReplicaSet, revision: i64) {
    let copied = deployment.annotations().iter().filter(|(key, _)| !OWN.contains(&key.as_str()));
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.extend(copied.map(|(key, value)| (key.clone(), value.clone())));
    let before = annotations.get(REVISION).cloned();
    let number = match before.as_deref() {
        None | Some("") => 0,
        // Somebody wrote something else there: leave it alone.
        Some(text) => match text.parse::<i64>() {
            Ok(number) => number,
            Err(_) => return,
        },
    };
    if number >= revision {
        return;
    }
    annotations.insert(REVISION.into(), revision.to_string());
    if let Some(before) = before {
        remember(annotations, &before);
    }
}

fn remember(annotations: &mut BTreeMap<String, String>, revision: &str) {
    let history = annotations.get(HISTORY).cloned().unwrap_or_default();
    let mut revisions: Vec<&str> = history.split(',').filter(|text| !text.is_empty()).collect();
    revisions.push(revision);
    while revisions.len() > 1 && revisions.iter().map(|text| text.len() + 1).sum::<usize>() > LONGEST_HISTORY {
        revisions.remove(0);
    }
    annotations.insert(HISTORY.into(), revisions.join(","));
}

/// The revision that the deprecated annotation asks to go back to; 0 is the one before.
pub(super) fn rollback_target(deployment: &Deployment) -> Option<i64> {
    deployment.annotations().get(ROLLBACK_TO)?.parse().ok()
}

pub(super) fn roll_back(mut draft: Draft, target: i64) -> Plan {
    let mut revisions: Vec<i64> = draft.all().map(|set| revision_of(&set.set)).collect();
    revisions.sort_unstable();
    let target = if target == 0 { revisions.iter().rev().nth(1).copied().unwrap_or_default() } else { target };
    let found = draft.all().find(|set| target != 0 && revision_of(&set.set) == target).map(|set| set.set.clone());
    let mut deployment = (*draft.observed).clone();
    let name = draft.name();
    let not_found = "DeploymentRollbackRevisionNotFound";
    match found {
        None if target == 0 => draft.note(EventType::Warning, not_found, "Unable to find last revision.".into()),
        None => draft.note(EventType::Warning, not_found, "Unable to find the revision to rollback to.".into()),
        Some(set) => {
            let is_current = draft.new.as_ref().is_some_and(|new| new.set.metadata.uid == set.metadata.uid);
            if is_current {
                let message =
                    format!("The rollback revision contains the same template as current deployment {name:?}");
                draft.note(EventType::Warning, "DeploymentRollbackTemplateUnchanged", message);
            } else {
                adopt_template(&mut deployment, &set);
                let message = format!("Rolled back deployment {name:?} to revision {target}");
                draft.note(EventType::Normal, "DeploymentRollback", message);
            }
        }
    }
    deployment.annotations_mut().remove(ROLLBACK_TO);
    Plan { rewrite: Some(deployment), notes: draft.notes, ..Plan::default() }
}

/// The ReplicaSet's template and annotations become the Deployment's.
fn adopt_template(deployment: &mut Deployment, set: &ReplicaSet) {
    if let Some(mut template) = set.spec.template.clone() {
        if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
            labels.remove(HASH_LABEL);
        }
        deployment.spec.template = template;
    }
    let annotations = deployment.annotations_mut();
    annotations.retain(|key, _| OWN.contains(&key.as_str()));
    let shared = set.annotations().iter().filter(|(key, _)| !OWN.contains(&key.as_str()));
    annotations.extend(shared.map(|(key, value)| (key.clone(), value.clone())));
}

/// Old ReplicaSets beyond the history limit that run nothing.
pub(super) fn superfluous(draft: &Draft) -> Vec<Arc<ReplicaSet>> {
    let Some(limit) = draft.spec().revision_history_limit.filter(|limit| *limit != i32::MAX) else {
        return Vec::new();
    };
    let mut old: Vec<&Set> = draft.old.iter().filter(|old| old.set.metadata.deletion_timestamp.is_none()).collect();
    let surplus = old.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
    old.sort_by_key(|old| revision_of(&old.set));
    let idle = |old: &&Set| {
        let observed = old.set.status.as_ref().and_then(|status| status.observed_generation);
        old.actual() == 0 && old.replicas() == 0 && old.set.metadata.generation <= observed
    };
    old.into_iter().take(surplus).filter(idle).filter_map(|old| old.was.clone()).collect()
}
