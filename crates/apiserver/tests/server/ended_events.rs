//! Events that ended are still told of, to those who could have read them.

use std::sync::Arc;
use std::time::Duration;

use ferry_store::Store;
use serde_json::{Value, json};

use super::Fixture;

const EVENTS: &str = "/api/v1/namespaces/default/events";

fn event(name: &str, message: &str, about: Value) -> Value {
    json!({
        "metadata": {"name": name}, "type": "Warning", "reason": "BackOff", "message": message, "count": 3,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:10:00Z",
        "source": {"component": "kubelet"}, "involvedObject": about,
    })
}

async fn create(fixture: &Fixture, path: &str, body: &Value) {
    let (code, answer) = fixture.json("POST", path, body).await;
    assert_eq!(code, 201, "{answer}");
}

async fn ended(fixture: &Fixture, path: &str) -> Value {
    let (code, mut answer) = fixture.json("GET", &format!("/console/events{path}"), &Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    answer["events"].take()
}

/// What is told once it is as many.
async fn until(fixture: &Fixture, path: &str, count: usize) -> Value {
    let found = async {
        loop {
            let events = ended(fixture, path).await;
            if events.as_array().is_some_and(|events| events.len() == count) {
                return events;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect("the Events are told of")
}

#[tokio::test]
async fn an_event_that_is_gone_is_still_told_of() {
    let mut store: Option<Arc<dyn Store>> = None;
    let fixture = Fixture::with(|config, _| store = Some(config.cache.store().clone())).await;
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": "web", "uid": "u-1"});
    let markup = "<b>again & again</b> \u{1f}\"";
    create(&fixture, EVENTS, &event("one", markup, pod.clone())).await;
    create(&fixture, EVENTS, &event("two", "it goes on", pod)).await;
    let node = json!({"kind": "Node", "apiVersion": "v1", "name": "web", "uid": "u-2"});
    create(&fixture, EVENTS, &event("three", "of a node", node.clone())).await;
    let regarding = json!({
        "metadata": {"name": "four"}, "type": "Normal", "reason": "Drained", "note": "in the new version", "action": "Drain",
        "eventTime": "2026-01-01T00:20:00.000000Z", "reportingController": "example.com/drainer",
        "reportingInstance": "drainer-1", "regarding": node,
    });
    create(&fixture, "/apis/events.k8s.io/v1/namespaces/default/events", &regarding).await;

    let web = "/api/v1/namespaces/default/pods/web";
    assert_eq!(ended(&fixture, web).await, json!([]), "they are all there");
    for name in ["one", "three"] {
        let (code, answer) = fixture.json("DELETE", &format!("{EVENTS}/{name}"), &json!({})).await;
        assert_eq!(code, 200, "{answer}");
    }
    let events = until(&fixture, web, 1).await;
    let want = json!([{
        "type": "Warning", "reason": "BackOff", "message": markup, "count": 3, "uid": "u-1", "from": "kubelet",
        "first": "2026-01-01T00:00:00Z", "last": "2026-01-01T00:10:00Z",
    }]);
    assert_eq!(events, want);

    // The others expire, an hour earlier than they would: they share a lease.
    let store = store.expect("a store");
    let found = store.get("/registry/events/default/two").await.expect("an answer").entry.expect("an Event");
    store.revoke_lease(found.lease.expect("a lease")).await.expect("revoked");
    let events = until(&fixture, web, 2).await;
    assert_eq!(events[1]["message"], "it goes on");
    let events = until(&fixture, "/api/v1/nodes/web", 2).await;
    let told = |at: usize| (&events[at]["message"], &events[at]["from"], &events[at]["last"]);
    assert_eq!(told(0), (&json!("of a node"), &json!("kubelet"), &json!("2026-01-01T00:10:00Z")));
    let new = (&json!("in the new version"), &json!("example.com/drainer"), &json!("2026-01-01T00:20:00.000000Z"));
    assert_eq!(told(1), new);
    // Neither by another name, nor in another place, nor of another kind.
    for other in [
        "/api/v1/namespaces/default/pods/web-2",
        "/api/v1/namespaces/other/pods/web",
        "/apis/apps/v1/namespaces/default/deployments/web",
    ] {
        assert_eq!(ended(&fixture, other).await, json!([]), "{other}");
    }

    let (_, summary) = fixture.json("GET", "/debug/flight", &Value::Null).await;
    assert_eq!(summary["endedEvents"]["count"], 4, "{summary}");
    assert!(summary["endedEvents"]["bytes"].as_u64().is_some_and(|bytes| (1..10_000).contains(&bytes)), "{summary}");
    fixture.stop().await;
}

#[tokio::test]
async fn ended_events_ask_for_every_right_that_they_needed() {
    let fixture = Fixture::new().await;
    let page = "/console/events/api/v1/namespaces/default/pods/web";
    let node = "/console/events/api/v1/nodes/web";
    let ask = async |path: &str| {
        let (code, answer) = fixture.call(&fixture.bob, "GET", path, "", "").await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let grant = async |name: &str, namespace: Option<&str>, rule: Value| {
        let (kind, scope) = match namespace {
            Some(namespace) => ("Role", format!("/namespaces/{namespace}")),
            None => ("ClusterRole", String::new()),
        };
        let root = format!("/apis/rbac.authorization.k8s.io/v1{scope}");
        let role = json!({"metadata": {"name": name}, "rules": [rule]});
        let binding = json!({
            "metadata": {"name": name}, "subjects": [{"kind": "User", "name": "bob"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        });
        create(&fixture, &format!("{root}/{}s", kind.to_lowercase()), &role).await;
        create(&fixture, &format!("{root}/{}bindings", kind.to_lowercase()), &binding).await;
    };
    let resource = |verb: &str, name: &str| json!({"apiGroups": [""], "verbs": [verb], "resources": [name]});

    let (code, message) = ask(page).await;
    assert!(code == 403 && message.contains("/debug/flight"), "{code} {message}");
    grant("recorder", None, json!({"verbs": ["get"], "nonResourceURLs": ["/debug/flight/*"]})).await;
    let (code, message) = ask(page).await;
    assert!(code == 403 && message.contains("cannot get resource \"pods\""), "{code} {message}");
    grant("pods", Some("default"), resource("get", "pods")).await;
    let (code, message) = ask(page).await;
    assert!(code == 403 && message.contains("cannot list resource \"events\""), "{code} {message}");
    // Events of another namespace are no help, and neither is the right to one of them.
    grant("events", Some("kube-system"), resource("list", "events")).await;
    grant("one-event", Some("default"), resource("get", "events")).await;
    assert_eq!(ask(page).await.0, 403);
    grant("events", Some("default"), resource("list", "events")).await;
    assert_eq!(ask(page).await.0, 200);
    // Another pod's namespace, and what has none.
    assert_eq!(ask("/console/events/api/v1/namespaces/kube-system/pods/web").await.0, 403);
    assert_eq!(ask(node).await.0, 403);
    grant("nodes", None, resource("get", "nodes")).await;
    assert_eq!(ask(node).await.0, 200);

    for (method, path, want) in [
        ("POST", page, 405),
        ("GET", "/console/events/api/v1/namespaces/default/pods", 404),
        ("GET", "/console/events/api/v1/namespaces/default/pods/web/log", 404),
        ("GET", "/console/events/api/v1/namespaces/default/nodes/web", 404),
        ("GET", "/console/events/", 404),
        ("GET", "/console/events", 404),
    ] {
        assert_eq!(fixture.call(&fixture.admin, method, path, "", "").await.0, want, "{method} {path}");
    }
    assert_eq!(fixture.call("nobody", "GET", page, "", "").await.0, 401);
    fixture.stop().await;
}
