//! DELETE of one object: preconditions, propagation, grace, finalizers.

use ferry_admission::Operation;
use ferry_meta::{ApiError, GroupResource, GroupVersionKind, object, time};
use ferry_registry::Resource;
use serde_json::{Value, json};

use crate::custom_resources::conversion;
use crate::request::call::Call;
use crate::request::context::{RequestContext, Stage};
use crate::request::negotiate;
use crate::request::negotiate::Encoding;
use crate::request::options::{DeleteOptions, Propagation, WriteOptions};
use crate::request::verb::Subresource;
use crate::response::answer::Answer;
use crate::response::render;
use crate::server::Core;
use crate::storage::codec;
use crate::storage::objects::{self, Stored};
use crate::write::{ATTEMPTS, Write, admission};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, body } = call;
    let options = read_options(context, &body)?;
    let info = &context.info;
    if let Some(why) = row.strategy.deletion_refusal(&info.name) {
        return Err(ApiError::forbidden(&row.group_resource(), &info.name, why));
    }
    warn_of_orphans(context, row, &options);
    let outcome = delete(core, context, row, &info.namespace, &info.name, &info.name, &options).await?;
    let code = if !outcome.gone && options.orphan_dependents == Some(false) { 202 } else { 200 };
    if outcome.gone && !row.strategy.delete_returns_object() {
        let status =
            objects::deleted_status(&row.group_resource(), object::name(&outcome.object), object::uid(&outcome.object));
        let json = serde_json::to_vec(&status).map_err(ApiError::internal)?;
        return Ok(Answer::Json { code, kind: GroupVersionKind::new("", "v1", "Status"), json: json.into() });
    }
    let json = codec::encode(&row.gvk, &outcome.object);
    render::object(context, row, code, &row.gvk, json.into())
}

/// Some kinds leave dependents behind unless told otherwise; whoever deletes one is told, even if there is none.
pub(crate) fn warn_of_orphans(context: &RequestContext, row: &Resource, options: &DeleteOptions) {
    let says = options.propagation.is_some() || options.orphan_dependents.is_some();
    if let Some(warning) = row.strategy.deletion_warning().filter(|_| !says) {
        context.warn(warning);
    }
}

/// From the body, or from the query when there is none.
pub(crate) fn read_options(context: &RequestContext, body: &[u8]) -> Result<DeleteOptions, ApiError> {
    if body.is_empty() {
        return DeleteOptions::from_query(&context.query);
    }
    let encoding: Encoding = negotiate::input(&context.headers)?;
    let options = codec::decode_delete_options(encoding, body)?;
    crate::filters::audit::request_object(context, &Value::Null, || options.clone());
    DeleteOptions::from_object(&options)
}

pub(crate) struct Deleted {
    /// The last state of the object.
    pub object: Value,
    /// False while finalizers or a grace period hold it.
    pub gone: bool,
}

/// `requested` is the name in the request, which is what admission is told: that of a collection names no object.
pub(crate) async fn delete(
    core: &Core,
    context: &RequestContext,
    row: &Resource,
    namespace: &str,
    name: &str,
    requested: &str,
    options: &DeleteOptions,
) -> Result<Deleted, ApiError> {
    let write_options = WriteOptions::for_deletion(options.dry_run);
    let subresource = &Subresource::Main;
    let write = Write { subresource, namespace, name, ..Write::new(core, context, row, &write_options) };
    let mut going = None;
    let mut attempts = write.attempts(conversion::NotDecodable::of_one);
    for _ in 0..ATTEMPTS {
        let live = match (attempts.load().await?, going) {
            // Whoever saw it go was faster to finish it; there may be another of its name by now.
            (Some(live), Some(before)) if object::uid(&live.object) != object::uid(&before) => {
                return Ok(Deleted { object: before, gone: true });
            }
            (None, Some(object)) => return Ok(Deleted { object, gone: true }),
            (Some(live), before) => {
                going = before;
                live
            }
            (None, None) => return Err(ApiError::not_found(&row.group_resource(), name)),
        };
        // What is on its way already may need nothing more.
        if object::is_being_deleted(&live.object) && !attempts.stands().await? {
            continue;
        }
        match tried(&write, requested, options, &live, &mut going).await {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => {}
            Err(error) if write.is_open() || attempts.stands().await? => return Err(error),
            Err(_) => {}
        }
    }
    Err(ApiError::modified(&row.group_resource(), name))
}

/// `None`: another writer was faster.
async fn tried(
    write: &Write<'_>,
    requested: &str,
    options: &DeleteOptions,
    live: &Stored,
    going: &mut Option<Value>,
) -> Result<Option<Deleted>, ApiError> {
    let (row, name) = (write.row, write.name);
    if options.unreadable_only {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is \
             not allowed because the object is decodable from storage",
            row.key(write.namespace, name)
        );
        return Err(ApiError::conflict(&row.group_resource(), name, &why));
    }
    check_preconditions(row, live, options)?;
    admit(write, requested, options, &live.object).await?;
    attempt(write, options, live, going).await
}

/// Some kinds are deleted in a way of their own, which has its own words.
fn worded_otherwise(row: &Resource, name: &str, what: &str, given: &str, have: &str) -> Option<ApiError> {
    let start = row.strategy.precondition_refusal()?;
    let why = format!("{start}: {what} in precondition: {given}, {what} in object meta: {have}");
    Some(ApiError::conflict(&row.group_resource(), name, &why))
}

pub(crate) fn check_preconditions(row: &Resource, live: &Stored, options: &DeleteOptions) -> Result<(), ApiError> {
    // Events are kept as those of the core group, and called so.
    let kind = GroupResource::new(&*row.storage_gvk.group, &*row.gvk.kind);
    let name = object::name(&live.object);
    if let Some(uid) = options.precondition_uid.as_deref()
        && uid != object::uid(&live.object)
    {
        if let Some(error) = worded_otherwise(row, name, "UID", uid, object::uid(&live.object)) {
            return Err(error);
        }
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted \
             and then recreated",
            object::uid(&live.object)
        );
        return Err(ApiError::conflict(&kind, name, &why));
    }
    if let Some(version) = options.precondition_version.as_deref()
        && version != live.revision.to_string()
    {
        if let Some(error) = worded_otherwise(row, name, "ResourceVersion", version, &live.revision.to_string()) {
            return Err(error);
        }
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The \
             object might have been modified",
            live.revision
        );
        return Err(ApiError::conflict(&kind, name, &why));
    }
    Ok(())
}

async fn admit(write: &Write<'_>, requested: &str, options: &DeleteOptions, live: &Value) -> Result<(), ApiError> {
    let seen = options.object();
    let attributes = write.attributes(Operation::Delete, requested, &seen);
    admission::mutate(write.core, write.context, &attributes, None, Some(live)).await?;
    write.context.stages.done(Stage::Mutate);
    admission::validate(write.core, write.context, &attributes, None, Some(live)).await?;
    write.context.stages.done(Stage::Validate);
    Ok(())
}

/// `None`: another writer was faster; `going` is then what this one had written before.
async fn attempt(
    write: &Write<'_>,
    options: &DeleteOptions,
    live: &Stored,
    going: &mut Option<Value>,
) -> Result<Option<Deleted>, ApiError> {
    let (core, row) = (write.core, write.row);
    let mut object = live.object.clone();
    // One that is being emptied is not asked anything anew.
    if object::is_being_deleted(&object) && write.is_emptied_first(&object) {
        return Ok(Some(Deleted { object, gone: false }));
    }
    let grace = match begin_grace(row, &mut object, options) {
        Grace::Pending => return Ok(Some(Deleted { object, gone: false })),
        Grace::Started(seconds) => Some(seconds),
        Grace::None => None,
    };
    if let Some(finalizers) = finalizers_after(row, &object, options).filter(|_| write.has_dependents()) {
        set_finalizers(&mut object, finalizers);
    }
    let own_way = row.strategy.begin_deletion(&mut object, &time::time(time::now()));
    let held = write.is_held(&object);
    // A first deletion only marks it, whatever holds it; one that comes later may be the last.
    let terminates = write.terminates_first() && !object::is_being_deleted(&live.object);
    if terminates {
        begin_termination(&mut object);
    } else if held && grace.is_none() && !own_way {
        mark_deleting(&mut object);
    }
    let waits = held || terminates || grace.is_some_and(|seconds| seconds > 0);
    if !waits && grace.is_none() {
        // It goes at once, and is shown as it was.
        set_finalizers(&mut object, object::finalizers(&live.object).map(str::to_owned).collect());
    }
    if options.dry_run {
        return Ok(Some(Deleted { object, gone: !waits }));
    }
    let mut expected = live.revision;
    if waits || grace.is_some() {
        // Watchers are told that it goes before they are told that it is gone.
        let value = conversion::to_bytes(core, row, &object).await?;
        if waits && value == live.bytes {
            return Ok(Some(Deleted { object, gone: false }));
        }
        let Some(revision) = write.replace(value, expected).await? else { return Ok(None) };
        objects::set_version(&mut object, revision);
        if waits {
            return Ok(Some(Deleted { object, gone: false }));
        }
        expected = revision;
        *going = Some(object.clone());
    }
    let Some(revision) = write.remove(expected, &live.object).await? else { return Ok(None) };
    objects::set_version(&mut object, revision);
    Ok(Some(Deleted { object, gone: true }))
}

enum Grace {
    None,
    /// Already on its way; a second request changes nothing.
    Pending,
    Started(i64),
}

/// Kinds with a grace period get a time to live; a second deletion may only shorten it.
fn begin_grace(row: &Resource, object: &mut Value, options: &DeleteOptions) -> Grace {
    let requested = options.grace_period.map(|s| if s < 0 { 1 } else { s });
    let Some(seconds) = row.strategy.grace_period(object, requested) else { return Grace::None };
    if object::is_being_deleted(object) {
        let current = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        if current == 0 {
            return Grace::None;
        }
        let Some(shorter) = requested.filter(|s| *s < current) else { return Grace::Pending };
        let ends = object::text(object, "/metadata/deletionTimestamp");
        // A period beyond every calendar does not tell when it began.
        let began = time::parse(ends).map(|end| time::later(end, current.saturating_neg()));
        let started = began.filter(|began| *began > jiff::Timestamp::UNIX_EPOCH).unwrap_or_else(time::now);
        set_deletion(object, time::later(started, shorter), shorter);
        return Grace::Started(shorter);
    }
    set_deletion(object, time::later(time::now(), seconds), seconds);
    bump_generation(object);
    Grace::Started(seconds)
}

fn set_deletion(object: &mut Value, at: jiff::Timestamp, seconds: i64) {
    let metadata = object::metadata_mut(object);
    metadata.insert("deletionTimestamp".into(), time::time(at).into());
    metadata.insert("deletionGracePeriodSeconds".into(), seconds.into());
}

fn bump_generation(object: &mut Value) {
    if let Some(generation) = object.pointer("/metadata/generation").and_then(Value::as_i64).filter(|g| *g > 0) {
        object::metadata_mut(object).insert("generation".into(), generation.saturating_add(1).into());
    }
}

/// For kinds without a grace period that finalizers hold.
fn mark_deleting(object: &mut Value) {
    if object.pointer("/metadata/deletionGracePeriodSeconds").is_none_or(Value::is_null) {
        bump_generation(object);
    }
    let now = time::now();
    let later = |text: &str| time::parse(text).is_some_and(|t| t > now);
    let current = object::text(object, "/metadata/deletionTimestamp").to_owned();
    let metadata = object::metadata_mut(object);
    if current.is_empty() || later(&current) {
        metadata.insert("deletionTimestamp".into(), time::time(now).into());
    }
    metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
}

/// A Namespace is emptied by its controller before it goes.
fn begin_termination(object: &mut Value) {
    if !object::is_being_deleted(object) {
        object::metadata_mut(object).insert("deletionTimestamp".into(), time::time(time::now()).into());
    }
    object::child_mut(object, "status").insert("phase".into(), json!("Terminating"));
}

fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    let metadata = object::metadata_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), json!(finalizers));
    }
}

/// The finalizers that carry out the propagation policy; None when they stand already.
fn finalizers_after(row: &Resource, object: &Value, options: &DeleteOptions) -> Option<Vec<String>> {
    let have: Vec<&str> = object::finalizers(object).collect();
    let preset = if have.contains(&ORPHAN) {
        Some(Propagation::Orphan)
    } else if have.contains(&FOREGROUND) {
        Some(Propagation::Foreground)
    } else {
        None
    };
    let default = if row.strategy.orphans_by_default() { Propagation::Orphan } else { Propagation::Background };
    let policy = match (options.orphan_dependents, options.propagation) {
        (Some(true), _) => Propagation::Orphan,
        (Some(false), _) => Propagation::Background,
        (None, Some(policy)) => policy,
        (None, None) => preset.unwrap_or(default),
    };
    let mut want: Vec<String> =
        have.iter().filter(|f| **f != ORPHAN && **f != FOREGROUND).map(|f| (*f).to_owned()).collect();
    match policy {
        Propagation::Orphan => want.push(ORPHAN.into()),
        Propagation::Foreground => want.push(FOREGROUND.into()),
        Propagation::Background => {}
    }
    let same = want.len() == have.len() && want.iter().all(|f| have.contains(&f.as_str()));
    (!same).then_some(want)
}
