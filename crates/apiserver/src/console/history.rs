//! `/console/history/…`: the writes of one object, each with the object before and after it as long as the watch cache's log has
//! them, and with the fields that it changed for longer. `/console/events/…`: its Events that are no longer in the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferry_auth::Attributes;
use ferry_meta::ApiError;
use serde_json::{Value, json};

use crate::cache::CachedObject;
use crate::observe::flight::{self, json_answer};
use crate::request::context::RequestContext;
use crate::response::answer::Answer;
use crate::server::Core;

/// So many writes, the newest ones, and so many bytes of them.
const MOST: usize = 100;
const MOST_BYTES: usize = 4 << 20;

pub(super) async fn answer(core: &Core, context: &RequestContext, path: &str) -> Result<Answer, ApiError> {
    let Some((row, info)) = flight::named(core, &format!("/{path}")) else { return Ok(Answer::no_such_page()) };
    flight::may_get(core, context, &info).await?;
    let key = row.key(if row.namespaced { &info.namespace } else { "" }, &info.name);
    // Nothing that was in a Secret is shown again.
    let cache = core.cache.resource(&row.storage_prefix).filter(|_| row.storage_prefix != "secrets");
    // A write that the recorder has let go of may still be among the past changes, and the other way round.
    let mut records: BTreeMap<u64, Value> = core.flight.told(&key).into_iter().collect();
    let namespace = if row.namespaced { &*info.namespace } else { "" };
    for told in core.flight.past.of(namespace, &key) {
        records.insert(told["revision"].as_u64().unwrap_or(0), told);
    }
    let mut bytes = 0;
    let mut writes = Vec::new();
    for (revision, mut told) in records.into_iter().rev().take(MOST) {
        let change = cache.as_ref().and_then(|cache| cache.change(revision, &key));
        let mut put = |name: &str, object: Option<Arc<CachedObject>>| {
            let Some(object) = object else { return };
            bytes += object.json_length();
            if bytes <= MOST_BYTES {
                told[name] = object.parse().unwrap_or(Value::Null);
            }
        };
        if let Some(change) = change {
            put("before", change.before);
            put("after", change.after);
        }
        writes.push(told);
    }
    Ok(json_answer(&json!({ "oldest": flight::oldest(core), "writes": writes })))
}

/// Where the Events of objects are that have no namespace.
const EVENTS_OF_THE_CLUSTER: &str = "default";

/// For those who may read the object, and could have read its Events while they were there.
pub(super) async fn ended_events(core: &Core, context: &RequestContext, path: &str) -> Result<Answer, ApiError> {
    let Some((row, info)) = flight::named(core, &format!("/{path}")) else { return Ok(Answer::no_such_page()) };
    flight::may_get(core, context, &info).await?;
    let own_namespace = if row.namespaced { &*info.namespace } else { "" };
    let namespace = if row.namespaced { own_namespace } else { EVENTS_OF_THE_CLUSTER };
    let wanted = Attributes { namespace, version: "v1", ..Attributes::resource(&context.user, "list", "", "events") };
    core.authorization.check(&wanted).await?;
    let events = core.flight.ended_events.of(namespace, &row.gvk.kind, own_namespace, &info.name);
    Ok(Answer::Plain { code: 200, content_type: "application/json", body: format!("{{\"events\":{events}}}").into() })
}
