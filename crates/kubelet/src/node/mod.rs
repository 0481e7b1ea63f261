//! The node as an object: registered at the start, its status kept current, its lease renewed.

pub(crate) mod capacity;
mod lease;
mod status;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_client::{Api, EventType, write};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use crate::context::Context;
pub(crate) use lease::keep_lease;

/// While the node is not ready: it should not have to wait for the next period once it is.
const UNREADY_PERIOD: Duration = Duration::from_millis(250);
/// Plug-ins tell one after the other what they have.
const DEVICES_TOGETHER: Duration = Duration::from_millis(100);
const RETRY: Duration = Duration::from_millis(300);

pub(crate) fn api(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

pub(crate) fn object(context: &Context) -> Node {
    let config = &context.config;
    let (os, arch) = ("linux", capacity::architecture());
    let mut labels = config.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", config.node_name.as_str()),
        ("kubernetes.io/os", os),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", os),
        ("beta.kubernetes.io/arch", arch),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let annotation = ("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned());
    Node {
        metadata: ObjectMeta {
            name: Some(config.node_name.clone()),
            labels: Some(labels),
            annotations: Some(config.annotations.clone().into_iter().chain([annotation]).collect()),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            pod_cidr: config.pod_cidr.clone(),
            pod_cidrs: config.pod_cidr.clone().map(|cidr| vec![cidr]),
            provider_id: config.settings.report.provider_id.clone(),
            taints: (!config.taints.is_empty()).then(|| config.taints.clone()),
            ..NodeSpec::default()
        }),
        status: None,
    }
}

/// Makes the Node, or brings the labels of an existing one up to date. Tries until it is there.
pub(crate) async fn register(context: &Context) -> Node {
    let api = api(&context.client);
    if !context.config.settings.report.registers {
        return registered_by_others(context).await;
    }
    let mut node = object(context);
    loop {
        node.status = Some(status::status(context, &NodeStatus::default()).await);
        match api.create(&PostParams::default(), &node).await {
            Ok(created) => return created,
            Err(error) if write::is_already_exists(&error) => {
                let patch =
                    json!({"metadata": {"labels": node.metadata.labels, "annotations": node.metadata.annotations}});
                match api.patch(&context.config.node_name, &PatchParams::default(), &Patch::Strategic(patch)).await {
                    Ok(known) => return known,
                    Err(error) => tracing::debug!("the node's labels: {}", write::short(&error)),
                }
            }
            Err(error) => tracing::debug!("registering the node: {}", write::short(&error)),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// With `registerNode: false`, somebody else makes the Node.
async fn registered_by_others(context: &Context) -> Node {
    loop {
        match api(&context.client).get_opt(&context.config.node_name).await {
            Ok(Some(node)) => return node,
            Ok(None) => tracing::debug!("the Node {} is not there yet", context.config.node_name),
            Err(error) => tracing::debug!("the Node {}: {}", context.config.node_name, write::short(&error)),
        }
        tokio::time::sleep(RETRY).await;
    }
}

pub(crate) fn reference(context: &Context) -> ObjectReference {
    ObjectReference {
        kind: Some("Node".into()),
        name: Some(context.config.node_name.clone()),
        uid: Some(context.config.node_name.clone()),
        ..ObjectReference::default()
    }
}

/// Keeps the status on the API server current, for ever.
pub(crate) async fn keep_status(context: Arc<Context>, registered: Node) {
    let api = api(&context.client);
    context.recorder.event_for(reference(&context), EventType::Normal, "Starting", "Starting kubelet.");
    let mut known = registered.status.unwrap_or_default();
    let mut reported: Option<Instant> = None;
    let mut pressures = context.pressure.signals.subscribe();
    let mut in_use = context.volumes.csi.in_use();
    let mut devices = context.hardware.devices.changes();
    let mut shutdown = context.shutdown.changes();
    let settings = &context.config.settings.report;
    loop {
        if let Err(error) = context.ask_abilities().await {
            tracing::debug!("the runtime does not say what it can do: {error}");
        }
        if let Some(seen) =
            context.registration.nodes.get("", &context.config.node_name).and_then(|node| node.status.clone())
        {
            status::note_silence(&mut known, &seen);
        }
        let next = status::status(&context, &known).await;
        let due = reported.is_none_or(|at| at.elapsed() >= settings.report);
        if due || !status::same(&known, &next) {
            let mut stamped = next.clone();
            for condition in stamped.conditions.iter_mut().flatten() {
                condition.last_heartbeat_time = Some(Time(context.clock.now()));
            }
            let patch = Patch::Strategic(status::patch(&stamped));
            match api.patch_status(&context.config.node_name, &PatchParams::default(), &patch).await {
                Ok(_) => {
                    tell_changes(&context, &known, &next);
                    known = stamped;
                    reported = Some(Instant::now());
                }
                Err(error) if write::is_not_found(&error) => {
                    register(&context).await;
                    continue;
                }
                Err(error) => tracing::debug!("the node's status: {}", write::short(&error)),
            }
        }
        let ready = status::is_ready(&known) && reported.is_some();
        let wait = if ready || *shutdown.borrow() { settings.update } else { UNREADY_PERIOD.min(settings.update) };
        // A shortage is told at once: the scheduler should know; so is a volume in use, that nobody detaches it, and a
        // device that came or fell ill.
        tokio::select! {
            _ = pressures.changed() => {}
            _ = in_use.changed() => {}
            _ = shutdown.changed() => {}
            // Those of all plug-ins in one.
            _ = devices.changed() => tokio::time::sleep(DEVICES_TOGETHER).await,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn tell_changes(context: &Context, before: &NodeStatus, after: &NodeStatus) {
    let status_of = |kind: &str| before.conditions.iter().flatten().find(|c| c.type_ == kind).map(|c| &c.status);
    for condition in after.conditions.iter().flatten() {
        let Some(reason) = status::event_of(condition) else { continue };
        let known = status_of(&condition.type_);
        if known == Some(&condition.status) || (known.is_none() && reason == "NodeNotReady") {
            continue;
        }
        let message = format!("Node {} status is now: {reason}", context.config.node_name);
        context.recorder.event_for(reference(context), EventType::Normal, reason, message);
    }
}
