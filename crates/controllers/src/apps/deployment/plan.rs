//! What a Deployment needs next, as a function of what is observed.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::EventType;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::{revision, scale, status};
use crate::common::selector::Selector;

/// An event about the Deployment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Note {
    pub(super) kind: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// One ReplicaSet while planning: as it is, and as it should be.
#[derive(Clone, Debug)]
pub(super) struct Set {
    /// None for one that is to be created.
    pub(super) was: Option<Arc<ReplicaSet>>,
    pub(super) set: ReplicaSet,
}

impl Set {
    pub(super) fn replicas(&self) -> i32 {
        self.set.spec.replicas.unwrap_or_default()
    }

    pub(super) fn available(&self) -> i32 {
        self.set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
    }

    pub(super) fn actual(&self) -> i32 {
        self.set.status.as_ref().map(|status| status.replicas).unwrap_or_default()
    }

    pub(super) fn name(&self) -> &str {
        self.set.metadata.name.as_deref().unwrap_or_default()
    }

    /// Oldest first; names decide between those of the same second.
    pub(super) fn age(&self) -> (Option<Timestamp>, &str) {
        // One that does not exist yet is the youngest.
        let created = self.set.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Some(created.unwrap_or(Timestamp::MAX)), self.name())
    }
}

/// What is being planned on.
pub(super) struct Draft {
    /// The Deployment; its annotations and conditions change while planning.
    pub(super) deployment: Deployment,
    pub(super) observed: Arc<Deployment>,
    /// The ReplicaSet of the current template, if there is one (yet).
    pub(super) new: Option<Set>,
    /// The others, oldest first.
    pub(super) old: Vec<Set>,
    pub(super) notes: Vec<Note>,
    pub(super) now: Timestamp,
}

impl Draft {
    pub(super) fn spec(&self) -> &DeploymentSpec {
        &self.deployment.spec
    }

    pub(super) fn replicas(&self) -> i32 {
        self.spec().replicas.unwrap_or(1)
    }

    pub(super) fn is_rolling(&self) -> bool {
        let strategy = self.spec().strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
        strategy.is_none_or(|strategy| strategy == "RollingUpdate")
    }

    pub(super) fn name(&self) -> String {
        self.deployment.name_any()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.new)
    }

    pub(super) fn note(&mut self, kind: EventType, reason: &'static str, message: String) {
        self.notes.push(Note { kind, reason, message });
    }
}

/// What to write. ReplicaSets first, then the Deployment.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Option<ReplicaSet>,
    pub(super) update: Vec<ReplicaSet>,
    pub(super) delete: Vec<Arc<ReplicaSet>>,
    /// The Deployment with another template or without its request to roll back.
    pub(super) rewrite: Option<Deployment>,
    /// The Deployment with another status or revision.
    pub(super) status: Option<Deployment>,
    pub(super) notes: Vec<Note>,
    /// When to look again if nothing happens.
    pub(super) again: Option<Duration>,
}

/// `sets` are those that the Deployment controls; `old_pods_run` tells whether pods of any but the given ReplicaSet
/// (by uid) still run, and is asked in a Recreate rollout only.
pub(super) fn plan(
    deployment: &Arc<Deployment>,
    sets: Vec<Arc<ReplicaSet>>,
    old_pods_run: impl FnOnce(Option<&str>) -> bool,
    now: Timestamp,
) -> Plan {
    let mut draft = revision::sort(deployment, sets, now);
    if Selector::new(Some(&draft.spec().selector)).is_everything() {
        return selects_everything(draft);
    }
    if deployment.metadata.deletion_timestamp.is_some() {
        revision::sync_new(&mut draft);
        return finish(draft, false, false);
    }
    status::note_pause(&mut draft);
    revision::sync_new(&mut draft);
    if draft.spec().paused == Some(true) {
        scale::in_proportion(&mut draft);
        return finish(draft, revision::rollback_target(deployment).is_none(), false);
    }
    if let Some(target) = revision::rollback_target(deployment) {
        return revision::roll_back(draft, target);
    }
    if scale::was_scaled(&draft) {
        scale::in_proportion(&mut draft);
        return finish(draft, false, false);
    }
    if draft.is_rolling() {
        revision::ensure_new(&mut draft);
        let scaled = scale::up_new(&mut draft) || scale::down_old(&mut draft);
        return finish(draft, !scaled, true);
    }
    let scaled = scale::down_all_old(&mut draft);
    let new_uid = draft.new.as_ref().and_then(|new| new.set.metadata.uid.clone());
    if scaled || draft.old.iter().any(|old| old.actual() > 0) || old_pods_run(new_uid.as_deref()) {
        return finish(draft, false, true);
    }
    revision::ensure_new(&mut draft);
    scale::to_full(&mut draft);
    finish(draft, true, true)
}

fn selects_everything(mut draft: Draft) -> Plan {
    draft.note(
        EventType::Warning,
        "SelectingAll",
        "This deployment is selecting all pods. A non-empty selector is required.".into(),
    );
    let mut deployment = draft.deployment;
    let generation = deployment.metadata.generation;
    let status = deployment.status.get_or_insert_default();
    let behind = status.observed_generation < generation;
    status.observed_generation = generation;
    Plan { status: behind.then_some(deployment), notes: draft.notes, ..Plan::default() }
}

/// Turns the draft into what to write. `may_clean` allows the removal of old ReplicaSets; `rolling_out` has progress
/// estimated.
fn finish(mut draft: Draft, may_clean: bool, rolling_out: bool) -> Plan {
    let paused = draft.spec().paused == Some(true);
    let observed = draft.observed.status.clone().unwrap_or_default();
    let delete = if may_clean && (paused || status::is_complete(&draft, &observed)) {
        revision::superfluous(&draft)
    } else {
        Vec::new()
    };
    let status = if rolling_out { status::of_rollout(&mut draft) } else { status::counted(&mut draft) };
    let again = if rolling_out { status::next_check(&draft, &status) } else { None };
    draft.deployment.status = Some(status);
    let changed = status::differs(&draft.observed, &draft.deployment);
    let Draft { deployment, new, old, notes, .. } = draft;
    let mut plan = Plan { delete, notes, again, status: changed.then_some(deployment), ..Plan::default() };
    for Set { was, set } in old.into_iter().chain(new) {
        match was {
            None => plan.create = Some(set),
            Some(was) if *was != set => plan.update.push(set),
            Some(_) => {}
        }
    }
    plan
}
