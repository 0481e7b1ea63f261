//! A request's turn, and the status of the objects that decide on turns.

use std::sync::Arc;
use std::time::Duration;

use ferry_fairness::{Ask, Busy, FlowControl, LevelNow, Permit, SCHEMAS};
use ferry_meta::{ApiError, GroupResource, GroupVersionKind, Reason, object};
use ferry_registry::Resource;
use ferry_schema::managed;
use futures::StreamExt;
use http::HeaderValue;
use serde_json::{Value, json};

use crate::cache::{ResourceCache, StartFrom, WatchOptions};
use crate::filters::audit::is_long_running;
use crate::request::context::RequestContext;
use crate::request::verb::Verb;
use crate::response::answer::{Answer, full};
use crate::server::Core;
use crate::storage::{codec, objects};

/// Objects in a list for each seat it takes, and the most seats that one takes.
const OBJECTS_PER_SEAT: usize = 100;
const WIDEST: usize = 10;
/// A loop that cannot go on tries again after this.
const BACKOFF: Duration = Duration::from_millis(200);
const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Waits for the request's turn. Tunnels and logs are not counted: they would hold their seats for hours; a watch holds
/// its seat until it is open.
pub(crate) async fn enter(core: &Core, context: &mut RequestContext) -> Result<Option<Permit>, Busy> {
    let Some(control) = &core.flow_control else { return Ok(None) };
    if is_long_running(context) && context.info.verb != Verb::Watch {
        return Ok(None);
    }
    let info = &context.info;
    let ask = Ask {
        user: &context.user,
        verb: info.verb.as_str(),
        is_resource: info.is_resource,
        namespace: &info.namespace,
        group: &info.group,
        resource: &info.resource,
        subresource: info.subresource.as_str(),
        path: &info.path,
        width: width(core, context),
    };
    let entered = control.enter(&ask).await;
    context.flow = match &entered {
        Ok(permit) => permit.flow.clone(),
        Err(busy) => busy.flow.clone(),
    };
    entered.map(Some)
}

/// A long list takes the seats of several requests.
fn width(core: &Core, context: &RequestContext) -> usize {
    let info = &context.info;
    if info.verb != Verb::List || !matches!(core.flow_control, Some(FlowControl::Fair(_))) {
        return 1;
    }
    let resource = GroupResource::new(&*info.group, &*info.resource);
    let Some(cache) = core.cache.find(&resource) else { return 1 };
    let mut objects = cache.snapshot().len();
    if let Some(limit) = context.query.get("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0) {
        objects = objects.min(limit);
    }
    objects.div_ceil(OBJECTS_PER_SEAT).clamp(1, WIDEST)
}

/// What `/debug/api_priority_and_fairness/` shows: the levels, or their queues. None: there is no such page.
pub(crate) fn page(core: &Core, name: &str) -> Option<String> {
    let Some(FlowControl::Fair(fairness)) = &core.flow_control else { return None };
    let mut levels = fairness.now();
    levels.sort_by(|a, b| a.name.cmp(&b.name));
    match name {
        "dump_priority_levels" => Some(columns(&levels_table(&levels))),
        "dump_queues" => Some(columns(&queues_table(&levels))),
        _ => None,
    }
}

fn levels_table(levels: &[LevelNow]) -> Vec<Vec<String>> {
    let head = [
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ];
    let row = |level: &LevelNow| {
        let active = level.queues.iter().filter(|(waiting, in_use, _)| waiting + in_use > 0).count();
        let idle = !level.exempt && level.waiting == 0 && level.in_use == 0;
        let counts = level.counts;
        let mut row = vec![level.name.clone(), active.to_string(), idle.to_string(), "false".to_owned()];
        row.extend([level.waiting, level.in_use].map(|number| number.to_string()));
        row.extend([counts.dispatched, counts.rejected, counts.timed_out, 0].map(|number| number.to_string()));
        row
    };
    std::iter::once(head.map(str::to_owned).to_vec()).chain(levels.iter().map(row)).collect()
}

fn queues_table(levels: &[LevelNow]) -> Vec<Vec<String>> {
    let head = [
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for level in levels {
        for (index, (waiting, in_use, served)) in level.queues.iter().enumerate() {
            let mut row = vec![level.name.clone()];
            row.extend([index, *waiting, *in_use, *in_use].map(|number| number.to_string()));
            row.push(format!("{served:.8}ss"));
            row.extend([*waiting, *waiting].map(|number| number.to_string()));
            row.push(format!("{:.8}ss", 0.0));
            rows.push(row);
        }
    }
    rows
}

/// Cells with commas behind them, in columns as wide as their widest.
fn columns(rows: &[Vec<String>]) -> String {
    const NARROWEST: usize = 8;
    let count = rows.first().map_or(0, Vec::len);
    let widest = |column: usize| rows.iter().map(|row| row[column].len() + 2).max().unwrap_or(0).max(NARROWEST);
    let widths: Vec<usize> = (0..count).map(widest).collect();
    let mut out = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            if column + 1 < count {
                out.push_str(&format!("{:width$}", format!("{cell},"), width = widths[column]));
            } else {
                out.push_str(cell);
            }
        }
        out.push('\n');
    }
    out
}

/// As upstream words it: plain text, since it may come before anything is known of the request.
pub(crate) fn too_busy(busy: &Busy) -> Answer {
    let mut response = http::Response::new(full("Too many requests, please try again later.\n"));
    *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(http::header::RETRY_AFTER, HeaderValue::from(busy.retry_after_seconds));
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    Answer::Ready(response)
}

/// Keeps the `Dangling` condition of FlowSchemas true.
pub(crate) async fn keep_conditions(core: Arc<Core>) {
    let table = core.table();
    let row = |plural: &str| table.find(GROUP, "v1", plural).cloned();
    let (Some(schemas), Some(levels)) = (row(SCHEMAS), row(ferry_fairness::LEVELS)) else {
        return std::future::pending().await;
    };
    loop {
        if let Err(error) = follow(&core, &schemas, &levels).await {
            tracing::warn!("the status of FlowSchemas cannot be kept: {error}");
        }
        tokio::time::sleep(BACKOFF).await;
    }
}

/// Ends when a watch does.
async fn follow(core: &Core, schemas: &Arc<Resource>, levels: &Arc<Resource>) -> Result<(), ApiError> {
    let cache = |row: &Resource| -> Result<Arc<ResourceCache>, ApiError> {
        core.cache.resource(&row.storage_prefix).ok_or_else(|| ApiError::internal("flow control is not served"))
    };
    let open = async |row: &Resource| {
        let options = WatchOptions { from: StartFrom::Unset, ..WatchOptions::default() };
        core.cache.watch(&cache(row)?, options).await.map_err(ApiError::internal)
    };
    let mut changes = futures::stream::select(open(schemas).await?, open(levels).await?);
    while changes.next().await.is_some() {
        for (name, condition) in ferry_fairness::wanted_conditions(&*core.cache) {
            let change = |object: &mut Value| {
                *object = applied(&schemas.gvk, object, &condition)?;
                Ok(())
            };
            match objects::modify(core, schemas, "", &name, None, change).await {
                Err(error) if !error.is(Reason::NotFound) => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A FlowSchema with a condition that the server applied to its status.
fn applied(gvk: &GroupVersionKind, schema: &Value, condition: &Value) -> Result<Value, ApiError> {
    let config = json!({
        "apiVersion": gvk.api_version(), "kind": gvk.kind, "metadata": {"name": object::name(schema)},
        "status": {"conditions": [condition]},
    });
    let ty = codec::type_of(gvk).ok_or_else(|| ApiError::internal("the catalogue has no FlowSchema"))?;
    let write = managed::Write {
        gvk,
        manager: "api-priority-and-fairness-config-consumer-v1",
        subresource: "status",
        reset: &["spec"],
        now: ferry_meta::time::now(),
        versions: None,
    };
    managed::apply(&ty, &write, Some(schema), &config, true)
        .map_err(|error| ApiError::internal(format!("the status of a FlowSchema: {error:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_stand_in_columns() {
        let level = LevelNow {
            name: "catch-all".into(),
            exempt: false,
            in_use: 0,
            waiting: 0,
            limits: Default::default(),
            counts: Default::default(),
            queues: vec![(0, 0, 0.0)],
        };
        let text = columns(&levels_table(std::slice::from_ref(&level)));
        assert!(text.starts_with("PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, "), "{text}");
        assert!(text.contains("\ncatch-all,         0,            true,   false,       0,"), "{text}");
        let text = columns(&queues_table(&[level]));
        assert!(text.contains("\ncatch-all,         0,      0,               0,                 0,"), "{text}");
    }
}
