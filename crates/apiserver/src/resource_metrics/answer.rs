//! NodeMetrics and PodMetrics: made of the nodes and pods there are and of what their kubelets told.

use bytes::Bytes;
use ferry_meta::quantity::Format;
use ferry_meta::{ApiError, GroupResource, Quantity, time};
use serde_json::{Map, Value, json};

use super::ResourceMetrics;
use super::usage::{Usage, oldest};
use crate::cache::CachedObject;
use crate::read::selection::Selection;
use crate::request::call::Call;
use crate::request::options::ListOptions;
use crate::request::route::not_found;
use crate::request::verb::Verb;
use crate::response::answer::Answer;
use crate::response::render::{self, ListMeta};
use crate::storage::codec;

pub(crate) async fn handle(call: Call<'_>) -> Result<Answer, ApiError> {
    let Call { core, context, row, .. } = call;
    let Some(metrics) = &core.resource_metrics else { return Err(not_found()) };
    let measured = GroupResource::new("", &*row.plural);
    let cache = core.cache.find(&measured).ok_or_else(not_found)?;
    let encode = |object: &CachedObject| -> Option<Bytes> {
        let mut shown = of(metrics, object)?;
        shown["kind"] = row.gvk.kind.clone().into();
        shown["apiVersion"] = row.gvk.api_version().into();
        Some(codec::encode(&row.gvk, &shown).into())
    };
    let info = &context.info;
    if info.verb == Verb::List {
        let options = ListOptions::read(&context.query, false)?;
        let selection = Selection::new(row, &options, "")?;
        let snapshot = cache.snapshot();
        let selected = snapshot.range(&info.namespace, None).filter(|object| selection.matches(object));
        let items: Vec<Bytes> = selected.filter_map(|object| encode(object)).collect();
        return render::list(context, row, &ListMeta { revision: 0, continue_token: None, remaining: None }, &items);
    }
    let name = info.path_name();
    let shown = cache.get(&info.namespace, name).and_then(|object| encode(&object));
    let shown = shown.ok_or_else(|| ApiError::not_found(&row.group_resource(), name))?;
    render::object(context, row, 200, &row.gvk, shown)
}

/// The metrics of a node or pod; None where its kubelet told none.
fn of(metrics: &ResourceMetrics, object: &CachedObject) -> Option<Value> {
    let mut metadata = json!({"name": object.name(), "creationTimestamp": time::time(time::now())});
    if !object.labels.is_empty() {
        let labels: Map<String, Value> =
            object.labels.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))).collect();
        metadata["labels"] = labels.into();
    }
    if object.namespace().is_empty() {
        let usage = metrics.of_node(object.name())?.node()?;
        let (timestamp, window) = when(&usage)?;
        return Some(json!({"metadata": metadata, "timestamp": timestamp, "window": window, "usage": amounts(&usage)}));
    }
    metadata["namespace"] = object.namespace().into();
    // Only the node that a pod is bound to tells of it.
    let record = metrics.of_node(object.field("spec.nodeName"))?;
    let containers = record.pod(object.namespace(), object.name())?;
    let (timestamp, window) = when(&oldest(&containers)?)?;
    let containers: Vec<Value> =
        containers.iter().map(|(name, usage)| json!({"name": name, "usage": amounts(usage)})).collect();
    Some(json!({"metadata": metadata, "timestamp": timestamp, "window": window, "containers": containers}))
}

fn when(usage: &Usage) -> Option<(String, String)> {
    let at = jiff::Timestamp::from_millisecond(usage.at).ok()?;
    Some((time::time(at), ferry_semantics::duration::show(usage.window.checked_mul(1_000_000)?)))
}

fn amounts(usage: &Usage) -> Value {
    let bytes = i64::try_from(usage.memory).unwrap_or(i64::MAX);
    json!({
        "cpu": Quantity::parse(&format!("{}n", usage.cpu)).map(|cpu| cpu.to_string()).unwrap_or_default(),
        "memory": Quantity::from_units(bytes, Format::BinarySi).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_as_metrics_server_does() {
        let usage = |cpu, memory| Usage { at: 1_700_000_000_123, window: 15_012, cpu, memory };
        assert_eq!(amounts(&usage(3_489_123, 12 << 20)), json!({"cpu": "3489123n", "memory": "12Mi"}));
        // Below 1024 bytes the suffixes are decimal, as in Go.
        assert_eq!(amounts(&usage(250_000_000, 1000)), json!({"cpu": "250m", "memory": "1k"}));
        assert_eq!(amounts(&usage(0, 1536 << 10)), json!({"cpu": "0", "memory": "1536Ki"}));
        let when = when(&usage(0, 0)).expect("a time");
        assert_eq!(when, ("2023-11-14T22:13:20Z".to_owned(), "15.012s".to_owned()));
    }
}
