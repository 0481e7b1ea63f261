//! Sees what the controllers ask for: who wrote what, and who was refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::PATIENCE;

/// Of all controllers of a kit.
#[derive(Default)]
pub struct Witness {
    state: Mutex<Seen>,
    written: Notify,
}

#[derive(Default)]
struct Seen {
    identities: BTreeSet<String>,
    /// By identity, method and resource, the time of each.
    writes: BTreeMap<(String, String, String), Vec<Instant>>,
    refused: Vec<String>,
}

/// `pods` of `/api/v1/namespaces/test/pods/web-0`, `pods/status` of its status.
fn resource(path: &str) -> String {
    let mut words = path.trim_start_matches('/').split('/');
    let skipped = if words.next() == Some("apis") { 2 } else { 1 };
    let words: Vec<&str> = words.skip(skipped).collect();
    let words = match words.as_slice() {
        ["namespaces", _, rest @ ..] if !rest.is_empty() && !matches!(rest[0], "status" | "finalize") => rest,
        all => all,
    };
    match words {
        [resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        [resource, ..] => (*resource).to_owned(),
        [] => String::new(),
    }
}

impl Witness {
    /// A client that acts as before, and is seen.
    pub fn watch(self: &Arc<Self>, identity: &str, inner: Client) -> Client {
        self.state.lock().identities.insert(identity.to_owned());
        let (witness, identity) = (self.clone(), identity.to_owned());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (inner, witness, identity) = (inner.clone(), witness.clone(), identity.clone());
            async move {
                let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
                if method != "GET" {
                    let key = (identity.clone(), method.clone(), resource(&path));
                    witness.state.lock().writes.entry(key).or_default().push(Instant::now());
                    witness.written.notify_waiters();
                }
                let (parts, body) = inner.send(request).await?.into_parts();
                if parts.status != http::StatusCode::FORBIDDEN {
                    return Ok::<_, kube::Error>(http::Response::from_parts(parts, body.boxed_unsync()));
                }
                let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes);
                // Quotas and namespaces that end are refused too, and rightly.
                if text.contains(" cannot ") {
                    witness.state.lock().refused.push(format!("{identity}: {method} {path}: {text}"));
                }
                let body = Full::new(Bytes::clone(&bytes)).map_err(|never| match never {}).boxed_unsync();
                Ok(http::Response::from_parts(parts, body))
            }
        });
        Client::new(service, "default")
    }

    pub fn identities(&self) -> BTreeSet<String> {
        self.state.lock().identities.clone()
    }

    /// How often the identity wrote that resource.
    pub fn writes(&self, identity: &str, resource: &str) -> usize {
        let state = self.state.lock();
        let of = state.writes.iter().filter(|((who, _, what), _)| who == identity && what == resource);
        of.map(|(_, times)| times.len()).sum()
    }

    /// When the identity tried to create that resource, once it has so often.
    pub async fn attempts(&self, identity: &str, resource: &str, number: usize) -> Vec<Instant> {
        let key = (identity.to_owned(), "POST".to_owned(), resource.to_owned());
        let enough = async {
            loop {
                let mut written = std::pin::pin!(self.written.notified());
                written.as_mut().enable();
                let times = self.state.lock().writes.get(&key).cloned().unwrap_or_default();
                if times.len() >= number {
                    return times;
                }
                written.await;
            }
        };
        tokio::time::timeout(PATIENCE, enough).await.expect("so many attempts")
    }

    /// All writes but those of events and leases.
    pub fn all_writes(&self) -> usize {
        let state = self.state.lock();
        let of = state.writes.iter().filter(|((.., what), _)| !matches!(what.as_str(), "events" | "leases"));
        of.map(|(_, times)| times.len()).sum()
    }

    pub fn refused(&self) -> Vec<String> {
        self.state.lock().refused.clone()
    }
}

#[test]
fn resources_are_read_from_paths() {
    for (path, expected) in [
        ("/api/v1/namespaces/test/pods/web-0/status", "pods/status"),
        ("/api/v1/namespaces/test/pods", "pods"),
        ("/api/v1/namespaces/test/finalize", "namespaces/finalize"),
        ("/api/v1/namespaces/test", "namespaces"),
        ("/api/v1/nodes/n", "nodes"),
        ("/apis/apps/v1/namespaces/test/deployments/web/status", "deployments/status"),
        ("/apis/discovery.k8s.io/v1/namespaces/test/endpointslices", "endpointslices"),
    ] {
        assert_eq!(resource(path), expected, "{path}");
    }
}
