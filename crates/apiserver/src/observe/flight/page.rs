//! What the recorder has, for whoever may read the object: `/debug/flight` and the object's own path behind it.

use std::sync::Arc;

use ferry_auth::Attributes;
use ferry_meta::{ApiError, time};
use ferry_registry::Resource;
use http::Method;
use serde_json::{Map, Value, json};

use super::changes;
use super::ring::{MOST, Record};
use crate::request::context::{RequestContext, Stage};
use crate::request::info::RequestInfo;
use crate::request::query::Query;
use crate::request::verb::Verb;
use crate::response::answer::Answer;
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
    let Some((row, info)) = named(core, &format!("/{}", rest.join("/"))) else { return Ok(Answer::no_such_page()) };
    may_get(core, context, &info).await?;
    let namespace = if row.namespaced { &*info.namespace } else { "" };
    let (records, oldest) = core.flight.of(&row.key(namespace, &info.name));
    Ok(json_answer(&document(core, &row, &info, &records, oldest)))
}

/// The object that a path of the API names. The path must be the object's own: another one would be judged by the rights of
/// another place.
pub(crate) fn named(core: &Core, path: &str) -> Option<(Arc<Resource>, RequestInfo)> {
    let info = RequestInfo::read(&Method::GET, path, &Query::parse(""));
    let row = core.table().find(&info.group, &info.version, &info.resource).cloned()?;
    let own = row.namespaced == info.in_namespace && info.verb == Verb::Get && info.subresource.is_main();
    own.then_some((row, info))
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
pub(crate) async fn may_get(core: &Core, context: &RequestContext, info: &RequestInfo) -> Result<(), ApiError> {
    let wanted = Attributes {
        user: &context.user,
        is_resource: true,
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
    core.authorization.check(&wanted).await
}

pub(crate) fn json_answer(value: &Value) -> Answer {
    Answer::Plain { code: 200, content_type: "application/json", body: value.to_string().into() }
}

fn micro_time(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros).map(time::micro_time).unwrap_or_default()
}

fn summary(core: &Core) -> Value {
    let (ended, ended_bytes) = core.flight.ended_events.size();
    let (past, past_bytes) = core.flight.past.size();
    let ring = core.flight.ring.lock();
    let (records, bytes) = ring.size();
    json!({
        "writes": records, "bytes": bytes, "budget": MOST.bytes(), "oldest": ring.oldest().map(micro_time),
        "endedEvents": { "count": ended, "bytes": ended_bytes },
        "pastChanges": { "count": past, "bytes": past_bytes, "budget": super::past::MOST.bytes },
    })
}

fn document(core: &Core, row: &Resource, info: &RequestInfo, records: &[Record], oldest: Option<i64>) -> Value {
    let namespace = if row.namespaced { &*info.namespace } else { "" };
    let key = row.key(namespace, &info.name);
    let writes: Vec<Value> = records.iter().map(|record| told(core, row, &key, record)).collect();
    json!({
        "kind": "Flight",
        "object": {
            "group": row.gvk.group, "version": row.gvk.version, "resource": row.plural, "kind": row.gvk.kind,
            "namespace": namespace, "name": info.name,
        },
        "oldest": oldest.map(micro_time),
        "writes": writes,
    })
}

/// Since when all writes are known.
pub(crate) fn oldest(core: &Core) -> Option<String> {
    core.flight.ring.lock().oldest().map(micro_time)
}

/// A write, and what it changed while the watch cache's log still has it.
pub(crate) fn told(core: &Core, row: &Resource, key: &str, record: &Record) -> Value {
    // Nothing that was in a Secret is looked at.
    let known = core.cache.resource(&row.storage_prefix).filter(|_| row.storage_prefix != "secrets");
    let changed = || {
        let change = known.as_ref()?.change(record.revision, key)?;
        let after = change.after?.parse().ok()?;
        let before = change.before.and_then(|before| before.parse().ok());
        Some((changes::between(before.as_ref(), &after), before.is_none()))
    };
    write(record, changed())
}

/// `changed`: what, and whether the object was new; None where it is no longer known.
pub(super) fn write(record: &Record, changed: Option<(Vec<Value>, bool)>) -> Value {
    let complete = changed.is_some();
    let (changes, created) = changed.unwrap_or_default();
    let uid = u128::from_ne_bytes(record.uid);
    let [user, agent, verb, subresource] = record.origin.parts();
    let stages: Map<String, Value> = Stage::ALL
        .iter()
        .zip(record.stages)
        .filter(|(_, micros)| *micros > 0)
        .map(|(stage, micros)| (stage.name().to_owned(), micros.into()))
        .collect();
    let until_handed: u64 = record.stages[..=Stage::FanOut as usize].iter().map(|micros| u64::from(*micros)).sum();
    let handed = record.received.saturating_add(i64::try_from(until_handed).unwrap_or(0));
    let calls = record.calls.iter().flat_map(|calls| calls.iter());
    json!({
        "revision": record.revision,
        "received": micro_time(record.received),
        "handed": micro_time(handed),
        "user": user, "agent": agent, "verb": verb, "subresource": subresource,
        "uid": (uid != 0).then(|| uuid::Uuid::from_u128(uid).to_string()),
        "stages": stages,
        "webhooks": calls.map(|(name, took)| json!({ "name": name, "took": took.as_micros() as u64 })).collect::<Vec<_>>(),
        "changes": changes,
        "complete": complete,
        "created": created,
        "removed": record.removed,
    })
}
