//! What becomes of one object, given what is known of its owners and dependents.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PropagationPolicy;

use super::graph::{FOREGROUND, ORPHAN};

/// What is known of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Solid,
    /// It does not exist.
    Absent,
    /// It is being deleted and waits for its dependents.
    Waiting,
}

/// A dependent, as far as its owner's deletion is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dependent {
    /// The owner waits for it.
    pub(super) blocks: bool,
    /// It waits for dependents of its own.
    pub(super) foreground: bool,
}

#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    Nothing,
    /// Delete it, since no owner is left.
    Delete(PropagationPolicy),
    /// Delete it in the foreground after giving up the right to block owners: it is part of a circle.
    BreakCircle,
    /// Keep it with these owners only.
    Keep(Vec<OwnerReference>),
    /// Its dependents are gone: it may go.
    Unblock,
    /// Its dependents must be looked at before it may go.
    Wait,
    /// Take it out of its dependents' owners, then let it go.
    Orphan,
}

/// `owners` in the order of the object's references.
pub(super) fn plan(meta: &ObjectMeta, owners: &[Owner], dependents: &[Dependent]) -> Plan {
    let has = |finalizer: &str| meta.finalizers.iter().flatten().any(|known| known == finalizer);
    let deleting = meta.deletion_timestamp.is_some();
    if deleting && has(ORPHAN) {
        return Plan::Orphan;
    }
    if deleting && has(FOREGROUND) {
        let blocked = dependents.iter().any(|dependent| dependent.blocks);
        return if blocked { Plan::Wait } else { Plan::Unblock };
    }
    if deleting || owners.is_empty() {
        return Plan::Nothing;
    }
    if owners.contains(&Owner::Solid) {
        if owners.iter().all(|owner| *owner == Owner::Solid) {
            return Plan::Nothing;
        }
        let references = meta.owner_references.iter().flatten().zip(owners);
        let solid = references.filter(|(_, owner)| **owner == Owner::Solid).map(|(reference, _)| reference.clone());
        return Plan::Keep(solid.collect());
    }
    if owners.contains(&Owner::Waiting) && !dependents.is_empty() {
        let circle = dependents.iter().any(|dependent| dependent.foreground);
        return if circle { Plan::BreakCircle } else { Plan::Delete(PropagationPolicy::Foreground) };
    }
    Plan::Delete(if has(ORPHAN) {
        PropagationPolicy::Orphan
    } else if has(FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use Owner::{Absent, Solid, Waiting};

    const BLOCKS: Dependent = Dependent { blocks: true, foreground: false };
    const FREE: Dependent = Dependent { blocks: false, foreground: false };
    const CIRCLE: Dependent = Dependent { blocks: true, foreground: true };

    fn reference(uid: usize) -> OwnerReference {
        OwnerReference { uid: uid.to_string(), ..OwnerReference::default() }
    }

    fn check(deleting: bool, finalizers: &[&str], owners: &[Owner], dependents: &[Dependent], expected: Plan) {
        let meta = ObjectMeta {
            finalizers: Some(finalizers.iter().map(|text| (*text).to_owned()).collect()),
            deletion_timestamp: deleting.then_some(Time(Timestamp::UNIX_EPOCH)),
            owner_references: Some((0..owners.len()).map(reference).collect()),
            ..ObjectMeta::default()
        };
        assert_eq!(plan(&meta, owners, dependents), expected, "{finalizers:?} {owners:?} {dependents:?}");
    }

    #[test]
    fn an_object_goes_with_its_last_owner() {
        check(false, &[], &[], &[], Plan::Nothing);
        check(false, &[], &[Solid], &[BLOCKS], Plan::Nothing);
        check(false, &[], &[Absent], &[], Plan::Delete(PropagationPolicy::Background));
        check(false, &[ORPHAN], &[Absent], &[], Plan::Delete(PropagationPolicy::Orphan));
        check(false, &[FOREGROUND], &[Absent, Absent], &[], Plan::Delete(PropagationPolicy::Foreground));
        check(false, &[], &[Absent, Solid], &[], Plan::Keep(vec![reference(1)]));
        check(false, &[], &[Solid, Waiting], &[], Plan::Keep(vec![reference(0)]));
        check(true, &[], &[Absent], &[], Plan::Nothing);
    }

    #[test]
    fn foreground_waits_for_those_that_block() {
        check(true, &[FOREGROUND], &[], &[], Plan::Unblock);
        check(true, &[FOREGROUND], &[], &[FREE], Plan::Unblock);
        check(true, &[FOREGROUND], &[], &[FREE, BLOCKS], Plan::Wait);
        check(false, &[], &[Waiting], &[], Plan::Delete(PropagationPolicy::Background));
        check(false, &[], &[Waiting], &[FREE], Plan::Delete(PropagationPolicy::Foreground));
        check(false, &[], &[Waiting], &[CIRCLE], Plan::BreakCircle);
        check(true, &[ORPHAN], &[], &[BLOCKS], Plan::Orphan);
    }
}
