//! Statuses on their way to the API server, beside the loop that makes them: what is served never waits for what is told.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{ObjectKey, write};
use ferry_tasks::Tasks;
use futures::{StreamExt, stream};
use kube::Client;
use serde_json::json;
use tokio::sync::{Notify, watch};

use crate::api::GROUP;
use crate::resolve::status::Update;

const AT_ONCE: usize = 16;
const RETRY: Duration = Duration::from_secs(1);

/// The newest statuses; older ones that are not written yet are forgotten.
pub struct Statuses(watch::Sender<Arc<Vec<Update>>>);

impl Statuses {
    /// Writes until `tasks` stops. `changed` is told when some could not be written and have to be made anew.
    pub fn start(client: &Client, changed: &Arc<Notify>, tasks: &Tasks) -> Self {
        let (sender, mut newest) = watch::channel(Arc::<Vec<Update>>::default());
        let (client, changed) = (client.clone(), changed.clone());
        tasks.spawn_until_stopped("gateway statuses", async move {
            // What was written and has not come back through the informers yet.
            let mut written = HashSet::new();
            while newest.changed().await.is_ok() {
                let updates = newest.borrow_and_update().clone();
                let (now, is_behind) = write_all(&client, &updates, &written).await;
                written = now;
                if is_behind {
                    tokio::time::sleep(RETRY).await;
                    changed.notify_one();
                }
            }
        });
        Self(sender)
    }

    pub fn write(&self, updates: Vec<Update>) {
        if !updates.is_empty() {
            self.0.send_replace(Arc::new(updates));
        }
    }
}

/// An object as it was when its status was made.
type Version = (&'static str, ObjectKey, Option<String>);

/// What is written by now, and whether something is not. One that lost against another writer is made again from what that
/// one wrote.
async fn write_all(client: &Client, updates: &[Update], written: &HashSet<Version>) -> (HashSet<Version>, bool) {
    let writes: Vec<_> = updates.iter().map(|update| write_version(client, update, written)).collect();
    let outcomes: Vec<_> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
    let is_behind = outcomes.iter().any(Option::is_none);
    (outcomes.into_iter().flatten().collect(), is_behind)
}

/// None: it is not written yet.
async fn write_version(client: &Client, update: &Update, written: &HashSet<Version>) -> Option<Version> {
    let version = (update.kind, update.key.clone(), update.resource_version.clone());
    if written.contains(&version) {
        return Some(version);
    }
    match write_one(client, update).await {
        Ok(()) => Some(version),
        Err(error) if write::is_not_found(&error) => Some(version),
        Err(error) => {
            let (kind, key) = (update.kind, &update.key);
            tracing::debug!("the status of {kind} {key} is not written yet: {}", write::short(&error));
            None
        }
    }
}

async fn write_one(client: &Client, update: &Update) -> Result<(), kube::Error> {
    let plural = match update.kind {
        "GatewayClass" => "gatewayclasses",
        "Gateway" => "gateways",
        "ListenerSet" => "listenersets",
        "HTTPRoute" => "httproutes",
        "GRPCRoute" => "grpcroutes",
        "TLSRoute" => "tlsroutes",
        "TCPRoute" => "tcproutes",
        "UDPRoute" => "udproutes",
        "BackendTLSPolicy" => "backendtlspolicies",
        _ => "ingresses",
    };
    let group = if plural == "ingresses" { "networking.k8s.io" } else { GROUP };
    let ObjectKey { namespace, name } = &update.key;
    let path = match namespace.as_str() {
        "" => format!("/apis/{group}/v1/{plural}/{name}/status"),
        namespace => format!("/apis/{group}/v1/namespaces/{namespace}/{plural}/{name}/status"),
    };
    let patch = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": update.resource_version },
        { "op": "add", "path": "/status", "value": update.status },
    ]);
    let body = serde_json::to_vec(&patch).map_err(kube::Error::SerdeError)?;
    let request =
        http::Request::patch(path).header(http::header::CONTENT_TYPE, "application/json-patch+json").body(body);
    write::send(client, request.map_err(kube::Error::HttpError)?).await
}
