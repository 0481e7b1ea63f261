//! Statuses on their way to the API server, beside the loop that makes them: what is served never waits for what is told.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{ObjectKey, write};
use ferry_tasks::Tasks;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::Client;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::GROUP;
use crate::resolve::Id;
use crate::resolve::status::Update;
use crate::sources::Mailbox;

const AT_ONCE: usize = 16;
const RETRY: Duration = Duration::from_secs(1);

/// What waits to be written: the newest for each object, as it goes out, which takes less room than its values.
#[derive(Clone)]
pub struct Statuses(Arc<Waiting>);

#[derive(Default)]
struct Waiting {
    updates: Mutex<BTreeMap<Id, Pending>>,
    /// What was written and has not come back through the informers yet: the object as it was when its status was made.
    written: Mutex<HashMap<Id, Option<String>>>,
    notify: Notify,
}

struct Pending {
    resource_version: Option<String>,
    patch: Vec<u8>,
}

impl Statuses {
    /// Writes until `tasks` stops. `changed` is told of objects whose status could not be written and has to be made anew.
    pub fn start(client: &Client, changed: &Arc<Mailbox>, tasks: &Tasks) -> Self {
        let this = Self(Arc::default());
        let (waiting, client, changed) = (this.0.clone(), client.clone(), changed.clone());
        tasks.spawn_until_stopped("gateway statuses", async move { waiting.write(&client, &changed).await });
        this
    }

    pub fn write(&self, updates: impl IntoIterator<Item = Update>) {
        let mut waiting = self.0.updates.lock();
        for update in updates {
            let patch = json!([
                { "op": "test", "path": "/metadata/resourceVersion", "value": update.resource_version },
                { "op": "add", "path": "/status", "value": update.status },
            ]);
            let pending = Pending { resource_version: update.resource_version, patch: patch.to_string().into_bytes() };
            waiting.insert(Id { kind: update.kind, key: update.key }, pending);
            self.0.notify.notify_one();
        }
    }

    /// What waits is written by somebody else now, if at all.
    pub fn clear(&self) {
        self.0.updates.lock().clear();
    }

    /// These objects have come from the informers.
    pub fn seen(&self, ids: &HashSet<Id>) {
        let mut written = self.0.written.lock();
        if !written.is_empty() {
            ids.iter().for_each(|id| drop(written.remove(id)));
        }
    }
}

impl Waiting {
    async fn write(&self, client: &Client, changed: &Mailbox) {
        let (mut under_way, mut busy) = (FuturesUnordered::new(), HashSet::new());
        let (mut failed, mut retry) = (Vec::new(), None);
        loop {
            while under_way.len() < AT_ONCE {
                let Some((id, pending)) = self.next(&busy) else { break };
                busy.insert(id.clone());
                under_way.push(async move {
                    let outcome = write_one(client, &id, pending.patch).await;
                    (id, pending.resource_version, outcome)
                });
            }
            tokio::select! {
                () = self.notify.notified() => {}
                Some((id, version, outcome)) = under_way.next() => {
                    busy.remove(&id);
                    if let Err(error) = self.note(&id, version, outcome) {
                        // One that lost against another writer is made again from what that one wrote.
                        tracing::debug!("the status of {} {} is not written yet: {}", id.kind, id.key, write::short(&error));
                        failed.push(id);
                        retry.get_or_insert_with(|| Instant::now() + RETRY);
                    }
                }
                () = tokio::time::sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {
                    retry = None;
                    failed.drain(..).for_each(|id| changed.put(id));
                }
            }
        }
    }

    /// What came of a write. Gives an error that is to be tried again after.
    fn note(&self, id: &Id, version: Option<String>, outcome: Result<(), kube::Error>) -> Result<(), kube::Error> {
        let mut written = self.written.lock();
        match outcome {
            // It is gone, and nothing will come back.
            Err(error) if write::is_not_found(&error) => drop(written.remove(id)),
            outcome => {
                outcome?;
                written.insert(id.clone(), version);
            }
        }
        Ok(())
    }

    /// Nothing is written for an object while another write for it is under way, and none twice for the same version of it.
    fn next(&self, busy: &HashSet<Id>) -> Option<(Id, Pending)> {
        let mut updates = self.updates.lock();
        let written = self.written.lock();
        loop {
            let id = updates.keys().find(|id| !busy.contains(*id))?.clone();
            let pending = updates.remove(&id)?;
            if written.get(&id).is_none_or(|version| *version != pending.resource_version) {
                return Some((id, pending));
            }
        }
    }
}

async fn write_one(client: &Client, id: &Id, patch: Vec<u8>) -> Result<(), kube::Error> {
    let plural = match id.kind {
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
    let ObjectKey { namespace, name } = &id.key;
    let path = match namespace.as_str() {
        "" => format!("/apis/{group}/v1/{plural}/{name}/status"),
        namespace => format!("/apis/{group}/v1/namespaces/{namespace}/{plural}/{name}/status"),
    };
    let request =
        http::Request::patch(path).header(http::header::CONTENT_TYPE, "application/json-patch+json").body(patch);
    write::send(client, request.map_err(kube::Error::HttpError)?).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_of_objects_that_are_gone() {
        let waiting = Waiting::default();
        let id = |name: &str| Id { key: ObjectKey::new("n", name), kind: "HTTPRoute" };
        let failed = |reason: &str, code: u16| {
            Err(kube::Error::Api(kube::core::Status::failure("", reason).with_code(code).boxed()))
        };
        let version = || Some("1".to_owned());
        for name in ["written", "gone"] {
            assert!(waiting.note(&id(name), version(), Ok(())).is_ok());
        }
        assert!(waiting.note(&id("gone"), version(), failed("NotFound", 404)).is_ok());
        assert!(waiting.note(&id("never"), version(), failed("NotFound", 404)).is_ok());
        assert!(waiting.note(&id("again"), version(), failed("Conflict", 409)).is_err());
        assert_eq!(waiting.written.lock().keys().cloned().collect::<Vec<_>>(), [id("written")]);
    }
}
