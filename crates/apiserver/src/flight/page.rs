//! What the recorder has, for whoever may read the object: `/debug/flight` and the object's own path behind it.

use std::sync::Arc;

use ferry_auth::{Attributes, Authorizer};
use ferry_meta::{ApiError, time};
use ferry_registry::Resource;
use http::Method;
use serde_json::{Map, Value, json};

use super::changes;
use super::ring::Record;
use crate::answer::Answer;
use crate::codec;
use crate::context::{RequestContext, Stage};
use crate::query::Query;
use crate::request::RequestInfo;
use crate::server::Core;

/// `/debug/flight/apis/apps/v1/namespaces/default/deployments/web`: all writes of one object that are still known.
/// `/debug/flight` alone: how much is known.
pub(crate) async fn page(core: &Arc<Core>, context: &RequestContext, rest: &[&str]) -> Result<Answer, ApiError> {
    if context.method != Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    if matches!(rest, [] | [""]) {
        return Ok(json_answer(&summary(core)));
    }
    let info = RequestInfo::read(&Method::GET, &format!("/{}", rest.join("/")), &Query::parse(""));
    let row = core.table().find(&info.group, &info.version, &info.resource).cloned();
    let Some(row) = row.filter(|_| info.verb == "get" && info.subresource.is_empty()) else {
        return Ok(Answer::no_such_page());
    };
    may_get(core, context, &info).await?;
    let namespace = if row.namespaced { &*info.namespace } else { "" };
    let (records, oldest) = core.flight.of(&row.key(namespace, &info.name));
    Ok(json_answer(&document(&row, &info, &records, oldest)))
}

/// `/debug/verdicts/<namespace>/<pod>`, for whoever may read the pod.
pub(crate) async fn verdict(
    core: &Arc<Core>,
    context: &RequestContext,
    namespace: &str,
    name: &str,
) -> Result<Answer, ApiError> {
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    may_get(core, context, &RequestInfo::read(&Method::GET, &path, &Query::parse(""))).await?;
    let said = core.verdicts.load_full().and_then(|verdicts| verdicts(namespace, name));
    Ok(said.map_or_else(Answer::no_such_page, |said| Answer::Plain {
        code: 200,
        content_type: "application/json",
        body: said.into(),
    }))
}

/// The path is allowed already; the object itself must be, too.
async fn may_get(core: &Core, context: &RequestContext, info: &RequestInfo) -> Result<(), ApiError> {
    let wanted = Attributes {
        user: &context.user,
        verb: "get",
        namespace: &info.namespace,
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource: "",
        name: &info.name,
        path: &info.path,
        fields: &[],
    };
    let decision = core.authorization.authorize(&wanted).await;
    if decision.is_allowed() { Ok(()) } else { Err(ferry_auth::forbidden(&wanted, decision.reason())) }
}

fn json_answer(value: &Value) -> Answer {
    Answer::Plain { code: 200, content_type: "application/json", body: value.to_string().into() }
}

fn micro_time(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros).map(time::micro_time).unwrap_or_default()
}

fn summary(core: &Core) -> Value {
    let ring = core.flight.ring.lock();
    let (records, bytes) = ring.size();
    json!({ "writes": records, "bytes": bytes, "budget": super::BUDGET, "oldest": ring.oldest().map(micro_time) })
}

fn document(row: &Resource, info: &RequestInfo, records: &[Record], oldest: Option<i64>) -> Value {
    let mut writes = Vec::with_capacity(records.len());
    let mut before: Option<Value> = None;
    for record in records {
        let creates = creates(record, before.is_some());
        let after = record.value.as_deref().and_then(|bytes| codec::decode_stored(bytes).ok());
        if creates {
            before = None;
        }
        // What stood there before is not known: nothing can be said to have changed.
        let known = creates || before.is_some();
        let changes = match &after {
            Some(after) if known => changes::between(before.as_ref(), after),
            _ => Vec::new(),
        };
        let complete = after.is_some() && known;
        writes.push(write(record, changes, complete));
        before = after;
    }
    json!({
        "kind": "Flight",
        "object": {
            "group": row.gvk.group, "version": row.gvk.version, "resource": row.plural, "kind": row.gvk.kind,
            "namespace": if row.namespaced { &*info.namespace } else { "" }, "name": info.name,
        },
        "oldest": oldest.map(micro_time),
        "writes": writes,
    })
}

/// A server-side apply of a new object is a patch: the first write of a uid, at the generation that new objects have.
fn creates(record: &Record, known_before: bool) -> bool {
    let [_, _, verb, subresource] = record.origin.parts();
    let first = || {
        let text = record.value.as_deref().unwrap_or_default();
        let has_no_status_manager = memchr::memmem::find(text, b"\"subresource\":\"status\"").is_none();
        let generation = memchr::memmem::find(text, b"\"generation\":");
        let is_first = generation.is_none_or(|at| text[at..].starts_with(b"\"generation\":1,"));
        is_first && has_no_status_manager
    };
    subresource.is_empty() && (verb == "create" || (!known_before && matches!(verb, "patch" | "update") && first()))
}

fn write(record: &Record, changes: Vec<Value>, complete: bool) -> Value {
    let [user, agent, verb, subresource] = record.origin.parts();
    let stages: Map<String, Value> = Stage::ALL
        .iter()
        .zip(record.stages)
        .filter(|(_, micros)| *micros > 0)
        .map(|(stage, micros)| (stage.name().to_owned(), micros.into()))
        .collect();
    let until_handed: u64 = record.stages[..=Stage::FanOut as usize].iter().map(|micros| u64::from(*micros)).sum();
    let handed = record.received.saturating_add(i64::try_from(until_handed).unwrap_or(0));
    let calls = record.calls.iter().flatten();
    json!({
        "revision": record.revision,
        "received": micro_time(record.received),
        "handed": micro_time(handed),
        "user": user, "agent": agent, "verb": verb, "subresource": subresource,
        "uid": (record.uid != 0).then(|| uuid::Uuid::from_u128(record.uid).to_string()),
        "stages": stages,
        "webhooks": calls.map(|(name, took)| json!({ "name": name, "took": took.as_micros() as u64 })).collect::<Vec<_>>(),
        "changes": changes,
        "complete": complete,
        "removed": record.removed,
    })
}
