//! Changes as managers see them who wrote in another version of the kind: their fields are those of that version.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Write;
use super::check;
use super::compare::{Comparison, compare};
use super::entries::{Entry, Managers};
use super::set::Set;
use crate::catalogue::Type;

/// The other versions of a kind.
pub trait Versions: Sync {
    /// An object in another version, with that version's type. None where there is no such version, or no more.
    fn convert(&self, api_version: &str, object: &Value) -> Option<Result<(Type, Value), String>>;
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
        let served = write.api_version();
        let mut wanted: BTreeSet<String> = managers.values().map(|entry| entry.api_version.clone()).collect();
        wanted.remove(&served);
        let mut gone = BTreeSet::new();
        for version in wanted {
            let (Some(before), Some(after)) = (versions.convert(&version, live), versions.convert(&version, new))
            else {
                gone.insert(version);
                continue;
            };
            let ((of, before), (_, after)) = (before?, after?);
            for object in [&before, &after] {
                if let Some(why) = check::complaints(of.catalogue(), of.id(), object) {
                    return Err(why);
                }
            }
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
