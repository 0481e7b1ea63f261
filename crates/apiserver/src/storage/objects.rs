//! Stored objects: reading them for a write, turning them into bytes, and the errors of the store as clients see them.

use bytes::Bytes;
use ferry_meta::error::{StatusCause, StatusDetails};
use ferry_meta::{ApiError, GroupResource, Reason, object};
use ferry_registry::Resource;
use ferry_store::{Entry, Op, Revision, StoreError, Transaction};
use serde_json::{Map, Value, json};

use crate::custom_resources::conversion::{self, NotDecodable};
use crate::request::context::Stages;
use crate::server::Core;
use crate::storage::{codec, json_splice};

/// An object as it stood in the store, in the row's version, with its resourceVersion.
pub(crate) struct Stored {
    pub object: Value,
    pub revision: Revision,
    /// As it is kept: the storage version, without a resourceVersion.
    pub bytes: Bytes,
}

/// As it is in the store.
pub(crate) async fn find(core: &Core, row: &Resource, namespace: &str, name: &str) -> Result<Option<Entry>, ApiError> {
    let key = row.key(namespace, name);
    let started = std::time::Instant::now();
    let got = core.store.get(&key).await;
    core.metrics.stored("get", &key, started.elapsed(), got.is_err());
    Ok(got.map_err(|e| store_error(&e))?.entry)
}

pub(crate) async fn load(core: &Core, row: &Resource, namespace: &str, name: &str) -> Result<Option<Stored>, ApiError> {
    match find(core, row, namespace, name).await? {
        Some(entry) => read(core, row, entry, NotDecodable::plain).await.map(Some),
        None => Ok(None),
    }
}

/// What stands in the store, in the row's version. `told` words what no webhook converts.
pub(super) async fn read(
    core: &Core,
    row: &Resource,
    entry: Entry,
    told: fn(NotDecodable) -> ApiError,
) -> Result<Stored, ApiError> {
    if row.strategy.conversion().is_none() {
        return parse(row, &entry);
    }
    let stored = codec::decode_stored(&entry.value).map_err(|e| ApiError::internal(format!("{}: {e}", entry.key)))?;
    let mut object = conversion::of_entry(core, row, &entry, stored).await.map_err(told)?;
    set_version(&mut object, entry.modified);
    set_kind(&mut object, row);
    Ok(Stored { object, revision: entry.modified, bytes: entry.value })
}

pub(crate) async fn must_load(core: &Core, row: &Resource, namespace: &str, name: &str) -> Result<Stored, ApiError> {
    load(core, row, namespace, name).await?.ok_or_else(|| ApiError::not_found(&row.group_resource(), name))
}

pub(crate) fn parse(row: &Resource, entry: &Entry) -> Result<Stored, ApiError> {
    let object = codec::decode_stored(&entry.value).map_err(|e| ApiError::internal(format!("{}: {e}", entry.key)))?;
    let mut object = row.strategy.from_storage(object);
    set_version(&mut object, entry.modified);
    set_kind(&mut object, row);
    Ok(Stored { object, revision: entry.modified, bytes: entry.value.clone() })
}

/// An object that is not kept, as it would come back from the store: empty lists do not survive there.
pub(crate) fn as_stored(row: &Resource, object: &mut Value) -> Result<(), ApiError> {
    let given = object::metadata_mut(object).remove("resourceVersion");
    let value = to_bytes(row, object);
    *object = parse(row, &Entry { key: "".into(), value, created: 0, modified: 0, lease: None })?.object;
    let metadata = object::metadata_mut(object);
    match given {
        Some(version) => metadata.insert("resourceVersion".into(), version),
        None => metadata.remove("resourceVersion"),
    };
    Ok(())
}

pub(crate) fn set_version(object: &mut Value, revision: Revision) {
    object::metadata_mut(object).insert("resourceVersion".into(), revision.to_string().into());
}

pub(crate) fn set_kind(object: &mut Value, row: &Resource) {
    if let Some(map) = object.as_object_mut() {
        map.insert("kind".into(), row.gvk.kind.clone().into());
        map.insert("apiVersion".into(), row.gvk.api_version().into());
    }
}

/// The bytes that go into the store.
pub(crate) fn to_bytes(row: &Resource, object: &Value) -> Bytes {
    // In the version that is stored there is nothing to turn: no need for a copy.
    let says = |key: &str, text: &str| object.get(key).and_then(Value::as_str) == Some(text);
    let stored = &row.storage_gvk;
    let plain = row.gvk == *stored && !row.strategy.fills_in_stored();
    if plain && says("kind", &stored.kind) && says("apiVersion", &stored.api_version()) {
        return codec::encode_stored(&row.storage_gvk, object);
    }
    let object = row.strategy.to_storage(object.clone());
    stored_bytes(row, object)
}

/// The same for a change of what is stored by a row whose version does not carry all of it: the half that the write leaves
/// alone stays as it lies there.
pub(crate) fn to_bytes_over(row: &Resource, object: &Value, live: &Bytes, kept: &str) -> Result<Bytes, ApiError> {
    let mut object = row.strategy.to_storage(object.clone());
    let mut was = codec::decode_stored(live).map_err(ApiError::internal)?;
    if let (Some(map), Some(half)) = (object.as_object_mut(), was.get_mut(kept)) {
        map.insert(kept.to_owned(), half.take());
    }
    Ok(stored_bytes(row, object))
}

fn stored_bytes(row: &Resource, mut object: Value) -> Bytes {
    if let Some(map) = object.as_object_mut() {
        map.insert("kind".into(), row.storage_gvk.kind.clone().into());
        map.insert("apiVersion".into(), row.storage_gvk.api_version().into());
    }
    codec::encode_stored(&row.storage_gvk, &object)
}

/// The JSON of a stored object in the row's version, without parsing it where the versions are one.
pub(crate) fn to_json(row: &Resource, bytes: &Bytes, revision: Revision) -> Result<Bytes, ApiError> {
    if row.gvk == row.storage_gvk
        && let Some(json) = json_splice::with_version(bytes, revision)
    {
        return Ok(json);
    }
    let entry = Entry { key: "".into(), value: bytes.clone(), created: revision, modified: revision, lease: None };
    Ok(codec::encode(&row.gvk, &parse(row, &entry)?.object).into())
}

/// The one place where a failure of the store becomes an answer. Conflicts are the caller's to judge.
pub(crate) fn store_error(error: &StoreError) -> ApiError {
    match error {
        StoreError::Compacted { requested, oldest } => {
            ApiError::expired(format!("too old resource version: {requested} ({oldest})"))
        }
        StoreError::Future { requested, newest } => too_large_version(*requested, *newest, 0),
        StoreError::TooLarge { size, max, .. } => ApiError::new(
            413,
            Reason::RequestEntityTooLarge,
            format!("Request entity too large: the object has {size} bytes, limit is {max}"),
        ),
        StoreError::Conflict { key, .. } => {
            ApiError::new(409, Reason::Conflict, format!("the precondition on {key} did not hold"))
        }
        StoreError::NotLeader(_) => ApiError::new(409, Reason::Conflict, error.to_string()),
        StoreError::InvalidKey { key, why } => ApiError::bad_request(format!("invalid key {key:?}: {why}")),
        StoreError::Unavailable(why) => ApiError::unavailable(format!("the store is unavailable: {why}")),
        // Not 503: whoever gets that sends the same write again.
        StoreError::Undecided(_) => ApiError::new(504, Reason::Timeout, format!("Timeout: {error}")),
        other => ApiError::internal(other),
    }
}

pub(crate) fn too_large_version(requested: Revision, newest: Revision, retry_after_seconds: i32) -> ApiError {
    let message = "Too large resource version";
    ApiError::new(504, Reason::Timeout, format!("Timeout: {message}: {requested}, current: {newest}")).with_details(
        StatusDetails {
            causes: vec![StatusCause {
                reason: "ResourceVersionTooLarge".into(),
                message: message.into(),
                field: String::new(),
            }],
            retry_after_seconds,
            ..StatusDetails::default()
        },
    )
}

/// `Status` for a deletion that is done.
pub(crate) fn deleted_status(resource: &GroupResource, name: &str, uid: &str) -> ferry_meta::Status {
    ferry_meta::Status {
        kind: "Status".into(),
        api_version: "v1".into(),
        status: "Success".into(),
        details: Some(StatusDetails {
            name: name.into(),
            group: resource.group.clone(),
            kind: resource.resource.clone(),
            uid: uid.into(),
            ..StatusDetails::default()
        }),
        ..ferry_meta::Status::default()
    }
}

/// A resourceVersion as a number; the empty one is 0. The error is Go's, answered with 500 where upstream does.
pub(crate) fn parse_version(text: &str) -> Result<Revision, String> {
    if text.is_empty() {
        return Ok(0);
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map_err(|_| format!("strconv.ParseUint: parsing {text:?}: value out of range"));
    }
    Err(format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))
}

/// An error that upstream does not dress up: 500, a message, no reason.
pub(crate) fn bare_error(message: impl Into<String>) -> ApiError {
    ApiError::new(500, Reason::Unknown, message)
}

/// Changes an object of the server's own accord (a binding, a quota's usage): no admission, no validation, compare-and-swap
/// until it holds. The change may refuse. `by` is the request that it is done for.
pub(crate) async fn modify(
    core: &Core,
    row: &Resource,
    namespace: &str,
    name: &str,
    by: Option<&Stages>,
    mut change: impl FnMut(&mut Value) -> Result<(), ApiError> + Send,
) -> Result<Value, ApiError> {
    loop {
        let Stored { mut object, revision, bytes } = must_load(core, row, namespace, name).await?;
        change(&mut object)?;
        let value = to_bytes(row, &object);
        if value == bytes {
            return Ok(object);
        }
        let op = Op::Update { key: row.key(namespace, name), value, expected: revision, lease: None };
        match core.commit(Transaction::one(op), by).await {
            Ok(commit) => {
                set_version(&mut object, commit.revision);
                return Ok(object);
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(store_error(&error)),
        }
    }
}

/// As `modify`, for the status, which then belongs to `manager`.
pub(crate) async fn modify_status(
    core: &Core,
    row: &Resource,
    name: &str,
    manager: &str,
    mut change: impl FnMut(&mut Value) + Send,
) -> Result<Value, ApiError> {
    modify(core, row, "", name, None, |object| {
        let before = object.clone();
        change(object);
        if *object == before {
            return Ok(());
        }
        codec::managed_update(&core.table(), row, "status", object, Some(&before), manager)
    })
    .await
}

/// Puts a condition in the place of the one of its type; where its status stays, so does the time of its last change.
pub(crate) fn set_condition(status: &mut Map<String, Value>, mut condition: Value) {
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else { return };
    match list.iter_mut().find(|have| have["type"] == condition["type"]) {
        Some(have) => {
            if have["status"] == condition["status"] {
                condition["lastTransitionTime"] = have["lastTransitionTime"].clone();
            }
            *have = condition;
        }
        None => list.push(condition),
    }
}

/// `Status` of something that was done and has no object to show.
pub(crate) fn success(code: u16) -> ferry_meta::Status {
    ferry_meta::Status {
        kind: "Status".into(),
        api_version: "v1".into(),
        status: "Success".into(),
        code,
        ..ferry_meta::Status::default()
    }
}
