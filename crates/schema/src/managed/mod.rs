//! Managed fields and server-side apply.
//!
//! Call [`update`] on every ordinary write after decoding and defaulting and BEFORE admission and the strategy's own changes,
//! as upstream does: what those add (cluster IPs, tolerations) belongs to nobody. [`apply`] makes the object an apply patch
//! asks for; its result still wants defaulting, admission and validation.

mod check;
mod compare;
mod conflict;
mod created;
mod entries;
mod merge;
pub mod scale;
pub mod set;
mod versions;
mod walk;

use std::collections::HashMap;
use std::sync::LazyLock;

use ferry_meta::{GroupVersionKind, object};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::catalogue::Type;
use crate::decode;
use compare::Comparison;
use conflict::Conflict;
pub use conflict::{ApplyError, Conflicts};
use entries::{Entry, Managers};
use set::Set;
pub use versions::Versions;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Who writes what, and when.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The kind in the version of the request.
    pub gvk: &'a GroupVersionKind,
    pub manager: &'a str,
    /// Empty for the main resource.
    pub subresource: &'a str,
    /// Fields this request cannot change, which it thus cannot own: `status` on the main resource, `spec` on `status`.
    /// Dotted paths.
    pub reset: &'a [&'a str],
    pub now: Timestamp,
    /// The other versions of the kind, which managers may have written in; None where there is but one.
    pub versions: Option<&'a dyn Versions>,
}

impl Write<'_> {
    fn api_version(&self) -> String {
        self.gvk.api_version()
    }

    fn entry(&self, manager: &str, applied: bool, set: Set) -> Entry {
        Entry {
            manager: if manager.is_empty() { "unknown".to_owned() } else { manager.to_owned() },
            subresource: self.subresource.to_owned(),
            api_version: self.api_version(),
            applied,
            set,
            time: None,
        }
    }
}

/// Brings `metadata.managedFields` of `new` up to date after an ordinary write; None as `live` on create.
pub fn update(ty: &Type, write: &Write<'_>, live: Option<&Value>, new: &mut Value) {
    crate::normalize(ty, new);
    let empty;
    let live = match live {
        Some(live) => live,
        None if ty.schema().is_none() && entries::are_none(object::at(new, "/metadata/managedFields")) => {
            return create(ty, write, new);
        }
        None => {
            empty = crate::zero::structure(ty.catalogue(), ty.id());
            &empty
        }
    };
    let live_fields = object::at(live, "/metadata/managedFields");
    let from_live = || entries::read(live_fields).unwrap_or_default();
    let new_fields = object::at(new, "/metadata/managedFields");
    let managers = if !write.subresource.is_empty() {
        from_live()
    } else if entries::is_reset(new_fields) {
        Managers::new()
    } else {
        entries::read(new_fields).filter(|m| !m.is_empty()).unwrap_or_else(from_live)
    };
    set_managed_fields(new, Value::Null);
    // Objects whose entries were cleared are not tracked again until someone applies.
    if managers.is_empty() && !object::uid(live).is_empty() {
        return;
    }
    if check::is_untyped(ty, new) || check::is_untyped(ty, live) {
        return set_managed_fields(new, entries::write(&managers));
    }
    match after_update(ty, write, live, new, managers, write.manager) {
        Ok(mut managers) => {
            entries::cap(&mut managers);
            set_managed_fields(new, entries::write(&managers));
        }
        // The change cannot be told in a version that someone wrote in: what was known before stays.
        Err(_) => set_managed_fields(new, live_fields.cloned().unwrap_or_default()),
    }
}

/// A new object of a built-in type that nobody managed before.
fn create(ty: &Type, write: &Write<'_>, new: &mut Value) {
    set_managed_fields(new, Value::Null);
    let fields = created::fields(write, new, || {
        if check::is_keyless(ty.catalogue(), ty.id(), new) {
            return Value::Null;
        }
        let nothing = crate::zero::structure(ty.catalogue(), ty.id());
        let managers = after_update(ty, write, &nothing, new, Managers::new(), write.manager).unwrap_or_default();
        managers.into_values().next().map(|entry| entry.set.to_fields()).unwrap_or_default()
    });
    if !fields.is_null() {
        let mut entry = write.entry(write.manager, false, Set::default());
        entry.time = Some(ferry_meta::time::time(write.now));
        set_managed_fields(new, Value::Array(vec![entry.wire(Value::clone(&fields))]));
    }
}

fn set_managed_fields(object: &mut Value, entries: Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if entries.is_null() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), entries);
        }
    }
}

fn after_update(
    ty: &Type,
    write: &Write<'_>,
    live: &Value,
    new: &Value,
    mut managers: Managers,
    manager: &str,
) -> Result<Managers, String> {
    let ignored = Set::of_paths(write.reset);
    let changes = versions::Changes::of(ty, write, live, new, &mut managers, &ignored)?;
    changes.take_from_others(&mut managers, None);
    let mut own = changes.own.modified;
    own.add(changes.own.added);
    own.subtract(&STRIPPED);
    own.subtract(&OF_DELETION);
    if own.is_empty() {
        return Ok(managers);
    }
    let mut entry = write.entry(manager, false, own);
    if let Some(before) = managers.remove(&entry.identifier()) {
        entry.set.add(before.set);
    }
    entry.time = Some(ferry_meta::time::time(write.now));
    managers.insert(entry.identifier(), entry);
    Ok(managers)
}

/// Metadata that is the server's own.
static STRIPPED: LazyLock<Set> = LazyLock::new(|| {
    Set::of_paths(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
});

/// Nobody deletes by writing these: they are taken away before anything is stored, from what is created and updated before
/// anybody owns it.
static OF_DELETION: LazyLock<Set> =
    LazyLock::new(|| Set::of_paths(&["metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds"]));

/// Why a configuration cannot be merged into an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// It does not fit its type.
    #[error("failed to convert patch object to typed object: {0}")]
    Type(String),
    /// It says parts of what is replaced as a whole.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", .0.join(", "))]
    Atomic(Vec<String>),
}

/// The object with the values of a configuration, whoever owns them.
pub fn merge_configuration(ty: &Type, object: &Value, config: &Value) -> Result<Value, MergeError> {
    if let Some(complaints) = check::complaints(ty.catalogue(), ty.id(), config) {
        return Err(MergeError::Type(complaints));
    }
    let atomics = check::atomics(ty.catalogue(), ty.id(), config);
    if !atomics.is_empty() {
        return Err(MergeError::Atomic(atomics));
    }
    Ok(merge::merge(ty.catalogue(), ty.id(), object, config))
}

/// The object an apply patch asks for. `live` is None where it is to be created; `config` is the patch as it was sent.
pub fn apply(
    ty: &Type,
    write: &Write<'_>,
    live: Option<&Value>,
    config: &Value,
    force: bool,
) -> Result<Value, ApplyError> {
    check_config(ty, write, config)?;
    let empty;
    let live = match live {
        Some(live) => live,
        None => {
            empty = crate::zero::structure(ty.catalogue(), ty.id());
            &empty
        }
    };
    let managers = entries::read(object::at(live, "/metadata/managedFields"))
        .ok_or_else(|| ApplyError::Internal("failed to decode managed fields".to_owned()))?;
    if let Some(why) = check::complaints_of_object(ty.catalogue(), ty.id(), live) {
        let shown = shown(write, live);
        return Err(ApplyError::Internal(format!("failed to create typed live object ({shown}): {why}")));
    }
    let mut result = apply_to(ty, write, live, config, managers.clone(), force);
    if let (true, Err(ApplyError::Conflicts(conflicts))) = (write.manager == "kubectl", &result) {
        // Whoever applied from the client before may take over what that left behind.
        if let Some(allowed) = left_by_client(ty, write, live) {
            let rest = conflicts.without(&allowed);
            result = if rest.is_empty() {
                apply_to(ty, write, live, config, managers, true)
            } else {
                Err(ApplyError::Conflicts(rest))
            };
        }
    }
    let mut object = result?;
    if write.manager == "kubectl" && object::annotations(&object).get(LAST_APPLIED).is_some_and(|v| v != "") {
        let mut config = config.clone();
        if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        let mut text = String::from_utf8(crate::encode::encode_any(&config, false)).unwrap_or_default();
        text.push('\n');
        if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            annotations.insert(LAST_APPLIED.to_owned(), Value::String(text));
        }
    }
    Ok(object)
}

fn check_config(ty: &Type, write: &Write<'_>, config: &Value) -> Result<(), ApplyError> {
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != write.api_version() || kind != write.gvk.kind {
        // A version that cannot be read takes the kind along.
        let odd = api_version.matches('/').count() > 1;
        let (api_version, kind) = if odd { ("", "") } else { (api_version, kind) };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        return Err(ApplyError::BadRequest(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    if object::at(config, "/metadata/managedFields").is_some_and(entries::are_some) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    match check::complaints(ty.catalogue(), ty.id(), config) {
        None => Ok(()),
        Some(why) => {
            Err(ApplyError::Internal(format!("failed to create typed patch object ({}): {why}", shown(write, config))))
        }
    }
}

/// `namespace/name; group/version, Kind=kind`.
fn shown(write: &Write<'_>, object: &Value) -> String {
    let gvk = write.gvk;
    format!("{}/{}; {}/{}, Kind={}", object::namespace(object), object::name(object), gvk.group, gvk.version, gvk.kind)
}

fn apply_to(
    ty: &Type,
    write: &Write<'_>,
    live: &Value,
    config: &Value,
    mut managers: Managers,
    force: bool,
) -> Result<Value, ApplyError> {
    let (catalogue, id) = (ty.catalogue(), ty.id());
    let mut bare = live.clone();
    set_managed_fields(&mut bare, Value::Null);
    let live = &bare;
    if managers.is_empty() {
        // The first apply: whatever is there was set by unnamed updates.
        let nothing = crate::zero::structure(catalogue, id);
        managers = after_update(ty, write, &nothing, live, managers, "before-first-apply").map_err(|why| {
            ApplyError::Internal(format!("failed to update ManagedFields ({}): {why}", shown(write, live)))
        })?;
    }
    versions::check_live(write, live, &managers).map_err(ApplyError::Internal)?;
    let ignored = Set::of_paths(write.reset);
    let mut own =
        write.entry(write.manager, true, compare::field_set(catalogue, id, config).without_subtrees(&ignored));
    let identifier = own.identifier();
    let before = managers.remove(&identifier);
    own.time = before.as_ref().and_then(|entry| entry.time.clone());
    managers.insert(identifier.clone(), own);
    let merged = merge::merge(catalogue, id, live, config);
    let merged = match &before {
        Some(before) if !before.set.is_empty() => versions::prune(ty, write, merged, &managers, before)
            .map_err(|why| ApplyError::Internal(format!("failed to prune fields: {why}")))?,
        _ => merged,
    };
    let changes =
        versions::Changes::of(ty, write, live, &merged, &mut managers, &ignored).map_err(ApplyError::Internal)?;
    if !force {
        let conflicts = conflicts(&managers, &changes, &identifier);
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    changes.take_from_others(&mut managers, Some(&identifier));
    let unchanged = merged == *live;
    if let Some(entry) = managers.get_mut(&identifier) {
        entry.set.subtract(&STRIPPED);
        if entry.set.is_empty() {
            managers.remove(&identifier);
        } else if !unchanged {
            entry.time = Some(ferry_meta::time::time(write.now));
        }
    }
    let mut merged = merged;
    let refused = |why: String| {
        let (shown, gvk) = (shown(write, config), write.gvk);
        ApplyError::Internal(format!(
            "failed to convert new object ({shown}) to proper version: unable to convert unstructured object to \
             {}/{}, Kind={}: {why}",
            gvk.group, gvk.version, gvk.kind
        ))
    };
    if !unchanged && ty.schema().is_none() {
        if let Some(why) = crate::patch::first_error(ty, &merged) {
            return Err(refused(why));
        }
        crate::patch::truncate(ty, &mut merged);
    }
    let mut object = if unchanged {
        bare
    } else {
        decode::decode_value(ty, &merged, decode::Validation::Ignore)
            .map_err(|error| match error {
                decode::DecodeError::TooLarge(excess) => ApplyError::TooLarge(excess.to_string()),
                error => refused(error.to_string()),
            })?
            .object
    };
    set_managed_fields(&mut object, entries::write(&managers));
    Ok(object)
}

fn conflicts(managers: &Managers, changes: &versions::Changes, writer: &str) -> Conflicts {
    let mut found = Vec::new();
    for (id, entry) in managers {
        if id != writer {
            let Comparison { modified, added, .. } = changes.seen_by(entry);
            let mut fields = entry.set.intersection(modified);
            fields.add(entry.set.intersection(added));
            if !fields.is_empty() {
                found.push(Conflict { manager: entry.shown(), fields });
            }
        }
    }
    Conflicts(found)
}

/// The fields that a client-side apply set and nobody changed since.
fn left_by_client(ty: &Type, write: &Write<'_>, live: &Value) -> Option<Set> {
    let text = object::annotations(live).get(LAST_APPLIED)?.as_str()?;
    let (last, _) = decode::free_form(text.as_bytes(), false).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(&write.api_version()) {
        return None;
    }
    let (catalogue, id) = (ty.catalogue(), ty.id());
    let comparison = compare::compare(catalogue, id, &last, live);
    let set = compare::field_set(catalogue, id, &last);
    Some(set.difference(&comparison.modified).difference(&comparison.added).difference(&comparison.removed))
}

/// Whether a write changes nothing but the times of its managed fields; the times are put back then, so that the object is
/// the old one byte for byte.
pub fn keep_times(old: &Value, new: &mut Value) {
    let (Some(before), Some(after)) =
        (object::at(old, "/metadata/managedFields"), object::at(new, "/metadata/managedFields"))
    else {
        return;
    };
    if before == after || !same_but_times(before, after) {
        return;
    }
    if same_otherwise(old, new) {
        let before = before.clone();
        set_managed_fields(new, before);
    }
}

/// The entries of a map but for these.
fn without<'a>(
    object: &'a Map<String, Value>,
    keys: &'a [&str],
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    object.iter().filter(move |(key, _)| !keys.contains(&key.as_str()))
}

/// Whether two objects differ in their versions and managed fields at most.
fn same_otherwise(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return old == new };
    let metadata = match (old.get("metadata"), new.get("metadata")) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let server = ["managedFields", "resourceVersion"];
            without(old, &server).eq(without(new, &server))
        }
        (old, new) => old == new,
    };
    metadata && without(old, &["metadata"]).eq(without(new, &["metadata"]))
}

fn same_but_times(before: &Value, after: &Value) -> bool {
    let (Value::Array(before), Value::Array(after)) = (before, after) else { return false };
    let same = |one: &Value, two: &Value| match (one, two) {
        (Value::Object(one), Value::Object(two)) => without(one, &["time"]).eq(without(two, &["time"])),
        _ => false,
    };
    // A new time may have moved an entry; of whom it is, it alone is.
    let of =
        |entry: &'_ Value| ["manager", "operation", "apiVersion", "subresource"].map(|key| entry.get(key).cloned());
    before.len() == after.len()
        && (before.iter().zip(after).all(|(one, two)| same(one, two)) || {
            let after: HashMap<_, &Value> = after.iter().map(|entry| (of(entry), entry)).collect();
            let found = |entry: &Value| after.get(&of(entry)).is_some_and(|other| same(entry, other));
            after.len() == before.len() && before.iter().all(found)
        })
}
