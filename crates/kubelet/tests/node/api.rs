//! An API server in memory, as far as a kubelet talks to one: objects, watches, status patches, graceful deletion.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;

type Answer = UnsyncBoxBody<Bytes, Infallible>;

struct Change {
    kind: &'static str,
    collection: String,
    object: Value,
}

struct State {
    objects: BTreeMap<String, Value>,
    revision: u64,
}

#[derive(Clone)]
pub(crate) struct Api {
    state: Arc<Mutex<State>>,
    changes: broadcast::Sender<Arc<Change>>,
}

/// `/api/v1/namespaces/n/pods/p/status` apart.
struct Target {
    /// `api/v1/pods`: what a watch over all namespaces follows.
    collection: String,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

fn target(path: &str) -> Target {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let group = if parts[0] == "api" { 2 } else { 3 };
    let (base, mut rest) = (parts[..group].join("/"), &parts[group..]);
    let mut namespace = None;
    if rest.len() > 2 && rest[0] == "namespaces" {
        namespace = Some(rest[1].to_owned());
        rest = &rest[2..];
    }
    Target {
        collection: format!("{base}/{}", rest[0]),
        namespace,
        name: rest.get(1).map(|s| (*s).to_owned()),
        subresource: rest.get(2).map(|s| (*s).to_owned()),
    }
}

impl Target {
    fn key(&self, name: &str) -> String {
        format!("{}|{}|{name}", self.collection, self.namespace.as_deref().unwrap_or_default())
    }
}

impl Api {
    pub(crate) fn new() -> Self {
        let state = State { objects: BTreeMap::new(), revision: 1 };
        Self { state: Arc::new(Mutex::new(state)), changes: broadcast::Sender::new(4096) }
    }

    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let api = api.clone();
                async move { Ok::<_, Infallible>(api.answer(request).await) }
            }),
            "default",
        )
    }

    async fn answer(&self, request: Request<Body>) -> Response<Answer> {
        let (parts, body) = request.into_parts();
        let target = target(parts.uri.path());
        let query: BTreeMap<String, String> = query(parts.uri.query().unwrap_or_default());
        let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if parts.method == Method::GET && target.name.is_none() {
            let watching = query.get("watch").is_some_and(|w| w == "true" || w == "1");
            return if watching { self.watch(target, query) } else { self.list(&target, &query) };
        }
        let (code, answer) = self.one(&parts.method, &target, body);
        reply(code, &answer)
    }

    fn one(&self, method: &Method, target: &Target, mut body: Value) -> (u16, Value) {
        if target.subresource.as_deref() == Some("token") {
            #[expect(clippy::disallowed_methods, reason = "a token is valid by the machine's clock")]
            let expires = jiff::Timestamp::now() + std::time::Duration::from_secs(3600);
            body["status"] = json!({"token": "a-token", "expirationTimestamp": expires.to_string()});
            return (201, body);
        }
        if target.collection.ends_with("/subjectaccessreviews") {
            body["status"] = json!({"allowed": body["spec"]["user"] == crate::remote::CLIENT});
            return (201, body);
        }
        let name = target.name.clone().or_else(|| body["metadata"]["name"].as_str().map(str::to_owned));
        let key = target.key(&name.unwrap_or_default());
        let mut state = self.state.lock();
        let known = state.objects.get(&key).cloned();
        match (method.as_str(), known) {
            ("POST", Some(_)) => failure(409, "AlreadyExists"),
            ("POST", None) => {
                body["metadata"]["uid"] = json!(format!("uid-{}", state.revision));
                body["metadata"]["generation"] = json!(1);
                if let Some(namespace) = &target.namespace {
                    body["metadata"]["namespace"] = json!(namespace);
                }
                (201, self.store(&mut state, "ADDED", target, key, body))
            }
            (_, None) => failure(404, "NotFound"),
            ("GET", Some(object)) => (200, object),
            ("PUT", Some(_)) => (200, self.store(&mut state, "MODIFIED", target, key, body)),
            ("PATCH", Some(mut object)) => {
                merge(&mut object, body);
                (200, self.store(&mut state, "MODIFIED", target, key, object))
            }
            ("DELETE", Some(mut object)) => {
                let grace = body["gracePeriodSeconds"].as_i64();
                let bound = object["spec"]["nodeName"].is_string();
                if grace == Some(0) || !bound {
                    (200, self.store(&mut state, "DELETED", target, key, object))
                } else {
                    let grace = grace.or(object["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30);
                    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                    object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
                    (200, self.store(&mut state, "MODIFIED", target, key, object))
                }
            }
            _ => failure(405, "MethodNotAllowed"),
        }
    }

    fn store(&self, state: &mut State, kind: &'static str, target: &Target, key: String, mut object: Value) -> Value {
        state.revision += 1;
        object["metadata"]["resourceVersion"] = json!(state.revision.to_string());
        if kind == "DELETED" {
            state.objects.remove(&key);
        } else {
            state.objects.insert(key, object.clone());
        }
        let change = Change { kind, collection: target.collection.clone(), object: object.clone() };
        let _ = self.changes.send(Arc::new(change));
        object
    }

    fn list(&self, target: &Target, query: &BTreeMap<String, String>) -> Response<Answer> {
        let state = self.state.lock();
        let items: Vec<&Value> = state
            .objects
            .iter()
            .filter(|(key, object)| key.starts_with(&format!("{}|", target.collection)) && fits(object, target, query))
            .map(|(_, object)| object)
            .collect();
        reply(200, &json!({"metadata": {"resourceVersion": state.revision.to_string()}, "items": items}))
    }

    fn watch(&self, target: Target, query: BTreeMap<String, String>) -> Response<Answer> {
        let since: u64 = query.get("resourceVersion").and_then(|v| v.parse().ok()).unwrap_or(0);
        let state = self.state.lock();
        let receiver = self.changes.subscribe();
        // What happened between the list and this watch, as far as it is still there.
        let mut missed: Vec<Arc<Change>> = state
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&format!("{}|", target.collection)))
            .filter(|(_, o)| revision(o) > since)
            .map(|(_, o)| Arc::new(Change { kind: "ADDED", collection: target.collection.clone(), object: o.clone() }))
            .collect();
        if query.get("sendInitialEvents").is_some_and(|wanted| wanted == "true") {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            let metadata = json!({"resourceVersion": state.revision.to_string(), "annotations": annotations});
            let object = json!({ "metadata": metadata });
            missed.push(Arc::new(Change { kind: "BOOKMARK", collection: target.collection.clone(), object }));
        }
        drop(state);
        let seed = (missed.into_iter(), receiver, target, query);
        let lines = futures::stream::unfold(seed, |(mut missed, mut receiver, target, query)| async move {
            loop {
                let change = match missed.next() {
                    Some(change) => change,
                    None => receiver.recv().await.ok()?,
                };
                let wanted = change.kind == "BOOKMARK" || fits(&change.object, &target, &query);
                if change.collection == target.collection && wanted {
                    let line = format!("{}\n", json!({"type": change.kind, "object": change.object}));
                    let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(line)));
                    return Some((frame, (missed, receiver, target, query)));
                }
            }
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }

    /// The object at `collection|namespace|name`.
    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        self.state.lock().objects.get(key).cloned()
    }

    pub(crate) fn all(&self, collection: &str) -> Vec<Value> {
        let state = self.state.lock();
        let prefix = format!("{collection}|");
        state.objects.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(_, o)| o.clone()).collect()
    }

    /// What becomes of the object from now on, one after the other.
    pub(crate) fn changes_of(&self, key: &str) -> impl FnOnce() -> Vec<Value> + use<> {
        let mut changes = self.changes.subscribe();
        let name = key.rsplit('|').next().unwrap_or_default().to_owned();
        move || {
            let all = std::iter::from_fn(move || changes.try_recv().ok());
            all.filter(|c| c.object["metadata"]["name"] == *name && c.collection.ends_with("/pods"))
                .map(|c| c.object.clone())
                .collect()
        }
    }

    /// Waits until `wanted` holds of the object, and gives it. Says what it saw last when it takes too long.
    pub(crate) async fn until(&self, key: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut changes = self.changes.subscribe();
        let wait = async {
            loop {
                let object = self.get(key).unwrap_or(Value::Null);
                if wanted(&object) {
                    return object;
                }
                let _ = changes.recv().await;
            }
        };
        match tokio::time::timeout(std::time::Duration::from_secs(60), wait).await {
            Ok(object) => object,
            Err(_) => {
                let last = self.get(key).unwrap_or(Value::Null);
                let events: Vec<String> = self
                    .all("api/v1/events")
                    .iter()
                    .map(|e| format!("{} {} {}", e["involvedObject"]["name"], e["reason"], e["message"]))
                    .collect();
                panic!("{key} never was {what}: {}\nevents:\n{}", last["status"], events.join("\n"));
            }
        }
    }
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0)
}

fn fits(object: &Value, target: &Target, query: &BTreeMap<String, String>) -> bool {
    if let Some(namespace) = &target.namespace
        && object["metadata"]["namespace"] != json!(namespace)
    {
        return false;
    }
    let selector = query.get("fieldSelector").map(String::as_str).unwrap_or_default();
    selector.split(',').filter_map(|part| part.split_once('=')).all(|(field, value)| {
        object.pointer(&format!("/{}", field.replace('.', "/"))).and_then(Value::as_str) == Some(value)
    })
}

fn query(text: &str) -> BTreeMap<String, String> {
    let decode = |t: &str| t.replace("%3D", "=").replace("%2C", ",").replace('+', " ");
    text.split('&').filter_map(|p| p.split_once('=')).map(|(k, v)| (decode(k), decode(v))).collect()
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code}),
    )
}

fn reply(code: u16, answer: &Value) -> Response<Answer> {
    let body = Full::new(Bytes::from(answer.to_string())).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).expect("a code");
    response
}

/// A strategic merge, with as many merge keys as a kubelet uses.
fn merge(into: &mut Value, patch: Value) {
    let (Value::Object(into), Value::Object(patch)) = (into, patch) else { return };
    for (key, value) in patch {
        match value {
            Value::Null => drop(into.remove(&key)),
            Value::Object(_) => merge(into.entry(key).or_insert_with(|| json!({})), value),
            Value::Array(items) if key == "conditions" => {
                let list = into.entry(key).or_insert_with(|| json!([]));
                for item in items {
                    let list = list.as_array_mut().expect("a list");
                    match list.iter_mut().find(|c| c["type"] == item["type"]) {
                        Some(known) => merge(known, item),
                        None => list.push(item),
                    }
                }
            }
            Value::Array(items) => {
                let items = items.into_iter().filter(|i| i.get("$patch").is_none()).collect();
                into.insert(key, Value::Array(items));
            }
            other => drop(into.insert(key, other)),
        }
    }
}
