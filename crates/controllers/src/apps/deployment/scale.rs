//! Moves replicas between a Deployment's ReplicaSets within the bounds of surge and unavailability.

use ferry_client::EventType;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::plan::{Draft, Set};
use super::revision::{DESIRED, MAXIMUM};
use crate::common::number::{Round, scaled, total};

/// maxSurge and maxUnavailable in pods. Both cannot be zero, or nothing could move.
pub(super) fn bounds(draft: &Draft) -> (i32, i32) {
    if !draft.is_rolling() {
        return (0, 0);
    }
    let quarter = IntOrString::String("25%".into());
    let rolling = draft.spec().strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref()).unwrap_or(&quarter);
    let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&quarter);
    let replicas = draft.replicas();
    let (surge, unavailable) = (scaled(surge, replicas, Round::Up), scaled(unavailable, replicas, Round::Down));
    (surge, if surge == 0 && unavailable == 0 { 1 } else { unavailable })
}

fn surge(draft: &Draft) -> i32 {
    bounds(draft).0
}

pub(super) fn max_unavailable(draft: &Draft) -> i32 {
    bounds(draft).1.min(draft.replicas())
}

fn all_replicas(draft: &Draft) -> i32 {
    total(draft.all().map(Set::replicas))
}

/// How many replicas the new ReplicaSet, which has `current`, may have now.
pub(super) fn for_new(draft: &Draft, current: i32) -> i32 {
    if !draft.is_rolling() {
        return draft.replicas();
    }
    let room = draft.replicas().saturating_add(surge(draft)) - all_replicas(draft);
    if room <= 0 { current } else { current + room.min(draft.replicas() - current) }
}

/// Writes down for which size of the Deployment a ReplicaSet was scaled.
pub(super) fn annotate_sizes(draft: &Draft, set: &mut ReplicaSet) {
    let replicas = draft.replicas();
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(DESIRED.into(), replicas.to_string());
    annotations.insert(MAXIMUM.into(), replicas.saturating_add(surge(draft)).to_string());
}

#[derive(Clone, Copy)]
enum Which {
    New,
    Old(usize),
}

/// Scales and notes it. True when the size changed.
fn set_replicas(draft: &mut Draft, which: Which, replicas: i32) -> bool {
    let taken = match which {
        Which::New => draft.new.take(),
        Which::Old(at) => Some(draft.old[at].clone()),
    };
    let Some(mut set) = taken else { return false };
    let before = set.replicas();
    let changes = before != replicas;
    if changes {
        annotate_sizes(draft, &mut set.set);
        set.set.spec.replicas = Some(replicas);
        let direction = if before < replicas { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {} from {before} to {replicas}", set.name());
        draft.note(EventType::Normal, "ScalingReplicaSet", message);
    }
    match which {
        Which::New => draft.new = Some(set),
        Which::Old(at) => draft.old[at] = set,
    }
    changes
}

/// The number of replicas some active ReplicaSet was made for is not the one asked for now.
pub(super) fn was_scaled(draft: &Draft) -> bool {
    let made_for = |set: &Set| set.set.annotations().get(DESIRED).and_then(|text| text.parse::<i32>().ok());
    draft.all().filter(|set| set.replicas() > 0).filter_map(made_for).any(|desired| desired != draft.replicas())
}

/// Rolling update: more of the new, as the surge allows (or fewer, when there are too many).
pub(super) fn up_new(draft: &mut Draft) -> bool {
    let Some(new) = &draft.new else { return false };
    // One that is to be created has the right size already.
    if new.was.is_none() {
        return false;
    }
    let (current, wanted) = (new.replicas(), draft.replicas());
    let target = if current > wanted { wanted } else { for_new(draft, current) };
    set_replicas(draft, Which::New, target)
}

/// Rolling update: fewer of the old. First those that are not healthy, then as many as availability allows.
pub(super) fn down_old(draft: &mut Draft) -> bool {
    if draft.old.iter().all(|old| old.replicas() == 0) {
        return false;
    }
    let least = draft.replicas() - max_unavailable(draft);
    let new_unavailable = draft.new.as_ref().map_or(0, |new| new.replicas() - new.available());
    let mut allowed = all_replicas(draft) - least - new_unavailable;
    if allowed <= 0 {
        return false;
    }
    let mut scaled = false;
    for at in 0..draft.old.len() {
        let (replicas, available) = (draft.old[at].replicas(), draft.old[at].available());
        let unhealthy = (replicas - available).clamp(0, allowed);
        if replicas > 0 && unhealthy > 0 {
            scaled |= set_replicas(draft, Which::Old(at), replicas - unhealthy);
            allowed -= unhealthy;
        }
    }
    let available = total(draft.all().map(Set::available));
    let mut surplus = available - least;
    for at in 0..draft.old.len() {
        let replicas = draft.old[at].replicas();
        let fewer = replicas.min(surplus);
        if fewer > 0 {
            scaled |= set_replicas(draft, Which::Old(at), replicas - fewer);
            surplus -= fewer;
        }
    }
    scaled
}

/// Recreate: nothing of the old.
pub(super) fn down_all_old(draft: &mut Draft) -> bool {
    let mut scaled = false;
    for at in 0..draft.old.len() {
        scaled |= set_replicas(draft, Which::Old(at), 0);
    }
    scaled
}

/// Recreate: all of the new.
pub(super) fn to_full(draft: &mut Draft) {
    let replicas = draft.replicas();
    if draft.new.as_ref().is_some_and(|new| new.was.is_some()) {
        set_replicas(draft, Which::New, replicas);
    }
}

/// The Deployment's size changed, or it is paused: what exists grows or shrinks in proportion, so that a rollout does
/// not speed up because somebody scaled.
pub(super) fn in_proportion(draft: &mut Draft) {
    let wanted = draft.replicas();
    let mut active: Vec<Which> = (0..draft.old.len())
        .filter(|at| draft.old[*at].replicas() > 0)
        .map(Which::Old)
        .chain(draft.new.iter().filter(|new| new.replicas() > 0).map(|_| Which::New))
        .collect();
    if let [only] = active[..] {
        set_replicas(draft, only, wanted);
        return;
    }
    if active.is_empty() {
        let latest =
            if draft.new.is_some() { Some(Which::New) } else { draft.old.len().checked_sub(1).map(Which::Old) };
        if let Some(latest) = latest {
            set_replicas(draft, latest, wanted);
        }
        return;
    }
    if is_saturated(draft) {
        down_all_old(draft);
        return;
    }
    if !draft.is_rolling() {
        return;
    }
    let allowed = if wanted > 0 { wanted.saturating_add(surge(draft)) } else { 0 };
    let to_add = allowed - all_replicas(draft);
    let size = |which: &Which| at(draft, *which).map_or(0, Set::replicas);
    // The largest first; among equals the newest grows first and the oldest shrinks first.
    let age = |which: &Which| at(draft, *which).and_then(|set| set.age().0);
    if to_add > 0 {
        active.sort_by_key(|which| (std::cmp::Reverse(size(which)), std::cmp::Reverse(age(which))));
    } else {
        active.sort_by_key(|which| (std::cmp::Reverse(size(which)), age(which)));
    }
    let mut added = 0;
    let mut sizes: Vec<i32> = Vec::new();
    for which in &active {
        let share = at(draft, *which).map_or(0, |set| share(draft, set, to_add, added));
        sizes.push(size(which) + share);
        added += share;
    }
    if let Some(largest) = sizes.first_mut() {
        *largest = (*largest + to_add - added).max(0);
    }
    for (which, size) in active.into_iter().zip(sizes) {
        set_replicas(draft, which, size);
        refresh_sizes(draft, which);
    }
}

fn at(draft: &Draft, which: Which) -> Option<&Set> {
    match which {
        Which::New => draft.new.as_ref(),
        Which::Old(at) => draft.old.get(at),
    }
}

/// Even a ReplicaSet that keeps its size must know that the Deployment was scaled.
fn refresh_sizes(draft: &mut Draft, which: Which) {
    let Some(mut set) = at(draft, which).cloned() else { return };
    annotate_sizes(draft, &mut set.set);
    match which {
        Which::New => draft.new = Some(set),
        Which::Old(at) => draft.old[at] = set,
    }
}

fn is_saturated(draft: &Draft) -> bool {
    let wanted = draft.replicas();
    draft.new.as_ref().is_some_and(|new| {
        let desired = new.set.annotations().get(DESIRED).and_then(|text| text.parse::<i32>().ok());
        new.replicas() == wanted && desired == Some(wanted) && new.available() == wanted
    })
}

/// How many of the replicas to add (or remove) fall to this ReplicaSet.
fn share(draft: &Draft, set: &Set, to_add: i32, added: i32) -> i32 {
    if set.replicas() == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let allowed = to_add - added;
    let fraction = fraction(draft, set);
    if to_add > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
}

fn fraction(draft: &Draft, set: &Set) -> i32 {
    let wanted = draft.replicas();
    if wanted == 0 {
        return -set.replicas();
    }
    let noted = set.set.annotations().get(MAXIMUM).and_then(|text| text.parse::<i32>().ok()).filter(|max| *max != 0);
    let observed = draft.observed.status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
    let before = noted.unwrap_or(observed);
    if before == 0 {
        return 0;
    }
    let maximum = wanted.saturating_add(surge(draft));
    let size = f64::from(set.replicas()) * f64::from(maximum) / f64::from(before);
    // Sizes are far below where a float would lose a whole number.
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, which is what is wanted here")]
    let size = size.round() as i32;
    size.saturating_sub(set.replicas())
}
