//! Changes as managers see them who wrote in another version of the kind: their fields are those of that version.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Write;
use super::compare::{Comparison, compare, field_set, with_named_fields};
use super::entries::{Entry, Managers};
use super::set::Set;
use super::{check, merge};
use crate::catalogue::Type;

/// The other versions of a kind.
pub trait Versions: Sync {
    /// An object, which says its version, in another one, with that version's type. None where there is no such version, or no
    /// more.
    fn convert(&self, to: &str, object: &Value) -> Option<Result<(Type, Value), String>>;
}

/// The same, for an object that fits the other version; an error tells why it does not.
fn fitting(versions: &dyn Versions, to: &str, object: &Value) -> Option<Result<(Type, Value), String>> {
    let (of, object) = match versions.convert(to, object)? {
        Ok(converted) => converted,
        Err(why) => return Some(Err(why)),
    };
    match check::complaints(of.catalogue(), of.id(), &object) {
        Some(why) => Some(Err(why)),
        None => Some(Ok((of, object))),
    }
}

/// Whether the live object fits every version that somebody wrote in.
pub(super) fn check_live(write: &Write<'_>, live: &Value, managers: &Managers) -> Result<(), String> {
    let Some(versions) = write.versions else { return Ok(()) };
    for version in others(write, managers) {
        if let Some(fits) = fitting(versions, &version, live) {
            fits?;
        }
    }
    Ok(())
}

/// The versions of managers but for the writer's own.
fn others(write: &Write<'_>, managers: &Managers) -> BTreeSet<String> {
    let mut all: BTreeSet<String> = managers.values().map(|entry| entry.api_version.clone()).collect();
    all.remove(&write.api_version());
    all
}

/// An object in one of its versions.
#[derive(Clone)]
struct Shape {
    version: String,
    ty: Type,
    object: Value,
}

impl Shape {
    /// None where there is no such version.
    fn at(self, write: &Write<'_>, version: &str) -> Option<Result<Self, String>> {
        // Where only a webhook could tell, all versions are taken for one.
        let Some(versions) = write.versions.filter(|_| self.version != version) else { return Some(Ok(self)) };
        let converted = fitting(versions, version, &self.object)?;
        Some(converted.map(|(ty, object)| Self { version: version.to_owned(), ty, object }))
    }

    fn named(&self, set: &Set) -> Set {
        with_named_fields(self.ty.catalogue(), self.ty.id(), set)
    }

    fn fields(&self) -> Set {
        self.named(&field_set(self.ty.catalogue(), self.ty.id(), &self.object))
    }

    fn without(&self, set: &Set) -> Self {
        let object = merge::remove(self.ty.catalogue(), self.ty.id(), &self.object, set);
        Self { version: self.version.clone(), ty: self.ty.clone(), object }
    }
}

/// Takes out what an applier set the last time, does not set now, and nobody else owns; each looks at it in its own version.
pub(super) fn prune(
    ty: &Type,
    write: &Write<'_>,
    merged: Value,
    managers: &Managers,
    last: &Entry,
) -> Result<Value, String> {
    let own = write.api_version();
    let whole = Shape { version: own.clone(), ty: ty.clone(), object: merged };
    let Some(at_last) = whole.clone().at(write, &last.api_version) else { return Ok(whole.object) };
    let whole = at_last.map_err(|why| format!("failed to convert merged object to last applied version: {why}"))?;
    let last_set = whole.named(&last.set);
    let (mut merged, mut pruned) = (whole.clone(), whole.without(&last_set));
    let mut owned: BTreeMap<&str, Set> = BTreeMap::new();
    for entry in managers.values() {
        owned.entry(&entry.api_version).or_default().add(entry.set.clone());
    }
    // Its own version first: another one may not be had without what comes back there.
    let first = owned.remove_entry(&*last.api_version);
    for (version, owned) in first.into_iter().chain(owned) {
        let (Some(now), Some(then)) = (merged.clone().at(write, version), pruned.clone().at(write, version)) else {
            continue;
        };
        let told = |what| {
            move |why| {
                format!("failed add back owned items: failed to convert {what} object at version {version}: {why}")
            }
        };
        (merged, pruned) = (now.map_err(told("merged"))?, then.map_err(told("pruned"))?);
        // Items others own come back, …
        let kept = pruned.fields().union(&merged.named(&owned));
        pruned = merged.without(&merged.fields().difference(&kept));
    }
    // … and so does what was only removed along with its parent.
    let pruned = match pruned.at(write, &last.api_version) {
        Some(back) => {
            let back = back.map_err(|why| {
                format!(
                    "failed add back dangling items: failed to convert pruned object to last applied version: {why}"
                )
            })?;
            whole.without(&whole.fields().difference(&back.fields()).intersection(&last_set))
        }
        None => whole,
    };
    match pruned.clone().at(write, &own) {
        Some(back) => back.map(|shape| shape.object),
        None => Ok(pruned.object),
    }
}

/// What a write changes, in each version that matters.
pub(super) struct Changes {
    /// In the version of the request.
    pub(super) own: Comparison,
    others: BTreeMap<String, Comparison>,
}

impl Changes {
    /// Managers of versions that are gone are forgotten; an error tells that the objects do not fit a version.
    pub(super) fn of(
        ty: &Type,
        write: &Write<'_>,
        live: &Value,
        new: &Value,
        managers: &mut Managers,
        ignored: &Set,
    ) -> Result<Self, String> {
        let own = compare(ty.catalogue(), ty.id(), live, new).without(ignored);
        let mut others = BTreeMap::new();
        let Some(versions) = write.versions else { return Ok(Self { own, others }) };
        let mut gone = BTreeSet::new();
        for version in self::others(write, managers) {
            let (Some(before), Some(after)) = (fitting(versions, &version, live), fitting(versions, &version, new))
            else {
                gone.insert(version);
                continue;
            };
            let (_, before) = before.map_err(|why| format!("failed to convert old object: {why}"))?;
            let (of, after) = after.map_err(|why| format!("failed to convert new object: {why}"))?;
            others.insert(version, compare(of.catalogue(), of.id(), &before, &after).without(ignored));
        }
        if !gone.is_empty() {
            managers.retain(|_, entry| !gone.contains(&entry.api_version));
        }
        Ok(Self { own, others })
    }

    pub(super) fn seen_by(&self, entry: &Entry) -> &Comparison {
        self.others.get(&entry.api_version).unwrap_or(&self.own)
    }

    /// What changed is no longer owned by anyone but the writer; what is gone by nobody.
    pub(super) fn take_from_others(&self, managers: &mut Managers, writer: Option<&str>) {
        for (id, entry) in managers.iter_mut() {
            if writer != Some(&**id) {
                let Comparison { removed, modified, added } = self.seen_by(entry);
                for set in [modified, added, removed] {
                    entry.set.subtract(set);
                }
            }
        }
        managers.retain(|_, entry| !entry.set.is_empty());
    }
}
