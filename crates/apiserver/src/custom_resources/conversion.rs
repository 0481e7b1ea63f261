//! Custom resources whose definition names a webhook to turn them from one version into another.
//!
//! The webhook is asked once for all objects of a list, and what it answers for a cached object is kept with that object.
//! It may change everything but who the object is: of the metadata only labels and annotations are taken from it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_meta::error::{StatusCause, StatusDetails};
use ferry_meta::{ApiError, Reason, object};
use ferry_registry::Resource;
use ferry_store::{Entry, Revision};
use serde_json::{Value, json};

use crate::cache::CachedObject;
use crate::server::Core;
use crate::storage::{codec, objects};

/// Upstream waits as long for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

fn api_version(object: &Value) -> &str {
    object.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
}

/// Whether a cached object is in the row's version as it stands.
pub(crate) fn is_in_version(row: &Resource, object: &CachedObject) -> bool {
    object.starts_with(crate::response::render::type_prefix(row).as_bytes())
}

/// An object that is in the store and cannot be had in the version that is asked for.
pub(crate) struct NotDecodable {
    key: String,
    revision: Revision,
    why: String,
}

impl NotDecodable {
    fn reason(&self) -> String {
        format!("object not decodable revision={}: {}", self.revision, self.why)
    }

    fn corrupt(&self, key: &str) -> String {
        let why = self.reason();
        format!("StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}")
    }

    /// As a write tells it, and a watch.
    pub(crate) fn plain(self) -> ApiError {
        objects::bare_error(self.reason())
    }

    /// As whoever reads or deletes one object is told: not where the store keeps it.
    pub(crate) fn of_one(self) -> ApiError {
        ApiError::internal(self.corrupt(self.key.strip_prefix("/registry").unwrap_or(&self.key)))
    }

    pub(crate) fn of_list(self, row: &Resource) -> ApiError {
        let (why, resource) = (self.corrupt(&self.key), row.group_resource());
        let message = format!("failed to read one or more {resource} from the storage: {why}");
        let cause = StatusCause { reason: "UnexpectedServerResponse".into(), message: why, field: self.key };
        ApiError::new(500, Reason::StorageReadError, message).with_details(StatusDetails {
            name: "list".into(),
            group: resource.group,
            kind: resource.resource,
            causes: vec![cause],
            ..StatusDetails::default()
        })
    }
}

/// What the store has at a key, in the row's version.
pub(crate) async fn of_entry(core: &Core, row: &Resource, entry: &Entry, stored: Value) -> Result<Value, NotDecodable> {
    let failed = |why| NotDecodable { key: entry.key.to_string(), revision: entry.modified, why };
    from_stored(core, row, stored).await.map_err(failed)
}

/// A stored object in the row's version.
async fn from_stored(core: &Core, row: &Resource, stored: Value) -> Result<Value, String> {
    let Some(webhook) = row.strategy.conversion() else { return Ok(row.strategy.from_storage(stored)) };
    let wanted = row.gvk.api_version();
    let mut object = stored;
    if api_version(&object) != wanted {
        let converted = convert(core, row, webhook, &wanted, vec![object]).await?;
        object = converted.into_iter().next().unwrap_or_default();
    }
    fit(row, &mut object);
    Ok(object)
}

/// The bytes that go into the store: the object in the version that is stored.
pub(crate) async fn to_bytes(core: &Core, row: &Resource, object: &Value) -> Result<Bytes, ApiError> {
    let stored = row.storage_gvk.api_version();
    let Some(webhook) = row.strategy.conversion().filter(|_| row.gvk.api_version() != stored) else {
        return Ok(objects::to_bytes(row, object));
    };
    let converted = convert(core, row, webhook, &stored, vec![object.clone()]).await.map_err(objects::bare_error)?;
    let mut object = converted.into_iter().next().unwrap_or_default();
    // The row of the stored version drops what that version does not know.
    if let Some(row) = core.table().find_kind(&row.storage_gvk) {
        fit(row, &mut object);
    }
    Ok(codec::encode_stored(&row.storage_gvk, &object))
}

/// An object in another version of its resource, as admission shows it to whoever asks for that version.
pub(crate) async fn between(core: &Core, from: &Resource, to: &Resource, mut object: Value) -> Result<Value, String> {
    objects::set_kind(&mut object, from);
    if let Some(webhook) = from.strategy.conversion() {
        let converted = convert(core, from, webhook, &to.gvk.api_version(), vec![object]).await?;
        object = converted.into_iter().next().unwrap_or_default();
        fit(to, &mut object);
    } else if from.strategy.custom_type().is_none() {
        object = to.strategy.from_storage(from.strategy.to_storage(object));
    }
    objects::set_kind(&mut object, to);
    Ok(object)
}

/// Sees to it that these objects know their form in the row's version, so that reading them needs no webhook.
pub(crate) async fn prepare<'a>(
    core: &Core,
    row: &Resource,
    cached: impl Iterator<Item = &'a Arc<CachedObject>>,
) -> Result<(), NotDecodable> {
    let Some(webhook) = row.strategy.conversion() else { return Ok(()) };
    let wanted = row.gvk.api_version();
    let missing: Vec<&Arc<CachedObject>> =
        cached.filter(|object| !is_in_version(row, object) && !object.has_form(&wanted)).collect();
    let Some(first) = missing.first() else { return Ok(()) };
    let failed = |why| NotDecodable { key: row.key(first.namespace(), first.name()), revision: first.revision, why };
    let parsed = missing.iter().map(|object| object.parse().map_err(|error| error.to_string()));
    let parsed = parsed.collect::<Result<_, _>>().map_err(failed)?;
    let converted = convert(core, row, webhook, &wanted, parsed).await.map_err(failed)?;
    for (object, mut converted) in missing.into_iter().zip(converted) {
        fit(row, &mut converted);
        object.keep_form(&wanted, codec::encode(&row.gvk, &converted).into());
    }
    Ok(())
}

/// What the version's schema does not know goes.
fn fit(row: &Resource, object: &mut Value) {
    if let Some(schema) = row.strategy.custom_type().and_then(|ty| ty.schema()) {
        schema.prune(object);
    }
}

async fn convert(
    core: &Core,
    row: &Resource,
    webhook: &Value,
    to: &str,
    given: Vec<Value>,
) -> Result<Vec<Value>, String> {
    let from = given.first().map(|object| api_version(object).to_owned()).unwrap_or_default();
    let failed = |why: String| format!("conversion webhook for {from}, Kind={} failed: {why}", row.gvk.kind);
    let review = object::items(webhook, "/conversionReviewVersions")
        .iter()
        .filter_map(Value::as_str)
        .find(|version| ["v1", "v1beta1"].contains(version))
        .unwrap_or("v1");
    let uid = uuid::Uuid::new_v4().to_string();
    let question = json!({
        "kind": "ConversionReview",
        "apiVersion": format!("apiextensions.k8s.io/{review}"),
        "request": {"uid": uid, "desiredAPIVersion": to, "objects": given},
    });
    let config = webhook.get("clientConfig").unwrap_or(&Value::Null);
    let answer = core.converter.post(config, PATIENCE, question.to_string().into()).await;
    let answer = answer.map_err(|error| failed(error.to_string()))?;
    let answer = ferry_schema::decode::answer(&answer).map_err(|why| failed(why.to_string()))?;
    check(&answer, &uid).map_err(failed)?;
    let converted = object::items(&answer, "/response/convertedObjects").to_vec();
    if converted.len() != given.len() {
        return Err(failed(format!("webhook returned {} objects, expected {}", converted.len(), given.len())));
    }
    let mut out = Vec::with_capacity(converted.len());
    for (index, (mut new, old)) in converted.into_iter().zip(given).enumerate() {
        if api_version(&new) != to {
            return Err(failed(format!(
                "invalid converted object at index {index}: invalid groupVersion (expected {to}, received {})",
                api_version(&new)
            )));
        }
        if new.get("kind") != old.get("kind") {
            let kind = |of: &Value| object::text(of, "/kind").to_owned();
            return Err(failed(format!(
                "invalid converted object at index {index}: invalid kind (expected {}, received {})",
                kind(&old),
                kind(&new)
            )));
        }
        for key in ["name", "namespace", "uid"] {
            let value = |of: &Value| object::text(of, &format!("/metadata/{key}")).to_owned();
            if value(&new) != value(&old) {
                return Err(failed(format!(
                    "invalid metadata in converted object at index {index}: metadata.{key} must not be changed"
                )));
            }
        }
        keep_metadata(&mut new, &old);
        out.push(new);
    }
    Ok(out)
}

fn check(answer: &Value, uid: &str) -> Result<(), String> {
    let said = object::text(answer, "/response/uid");
    if said != uid {
        return Err(format!("expected response.uid={uid:?}, got {said:?}"));
    }
    if object::text(answer, "/response/result/status") != "Success" {
        let why = object::text(answer, "/response/result/message");
        return Err(if why.is_empty() { "unknown".to_owned() } else { why.to_owned() });
    }
    Ok(())
}

/// Labels and annotations may change on the way, nothing else of the metadata.
fn keep_metadata(new: &mut Value, old: &Value) {
    let mut metadata = old.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for key in ["labels", "annotations"] {
        match new.pointer_mut(&format!("/metadata/{key}")).map(Value::take).filter(|value| !value.is_null()) {
            Some(value) => metadata.insert(key.into(), value),
            None => metadata.remove(key),
        };
    }
    if let Some(map) = new.as_object_mut() {
        map.insert("metadata".into(), Value::Object(metadata));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_kept_but_for_labels_and_annotations() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "labels": {"x": "1"}, "finalizers": ["f"]}});
        let mut new = json!({"spec": {}, "metadata": {"name": "b", "annotations": {"n": "2"}}});
        keep_metadata(&mut new, &old);
        assert_eq!(new["metadata"], json!({"name": "a", "uid": "1", "finalizers": ["f"], "annotations": {"n": "2"}}));
    }

    #[test]
    fn answers_must_be_successful_and_about_the_question() {
        let answer = |status: &str| json!({"response": {"uid": "u", "result": {"status": status, "message": "no"}}});
        assert!(check(&answer("Success"), "u").is_ok());
        assert_eq!(check(&answer("Failure"), "u"), Err("no".into()));
        assert!(check(&answer("Success"), "v").is_err());
    }
}
