//! What the audit log holds after requests of every kind.

use std::path::Path;
use std::sync::Arc;

use ferry_apiserver::{Body, Peer};
use ferry_audit::{Auditor, Backend, Log, LogOptions, Policy};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::Fixture;

fn rules() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "omitManagedFields": true,
        "rules": [
            {"level": "None", "users": ["admin"], "nonResourceURLs": ["/healthz*"]},
            {"level": "Metadata", "resources": [{"resources": ["secrets"]}]},
            {"level": "RequestResponse", "namespaces": ["default"]},
            {"level": "Metadata"},
        ],
    })
}

async fn fixture(log: &Path) -> Fixture {
    let log = Log::open(LogOptions { path: log.to_owned(), ..LogOptions::default() }).expect("a log");
    let policy = Policy::parse(rules()).expect("a policy");
    let backend: Arc<dyn Backend> = Arc::new(log);
    Fixture::with(|config, _| config.audit = Some(Arc::new(Auditor::new(policy, vec![backend])))).await
}

fn events(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Asks, and returns the answer's Audit-Id with its code.
async fn ask(fixture: &Fixture, token: &str, method: &str, path: &str, body: &Value) -> (String, u16) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let body: Body = Full::new(bytes::Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.header("x-forwarded-for", "192.0.2.7, nonsense").body(body).expect("a request");
    let response = fixture.server.handle(request, Peer::default()).await;
    let id = response.headers()["audit-id"].to_str().expect("an id").to_owned();
    let code = response.status().as_u16();
    response.into_body().collect().await.expect("a body");
    (id, code)
}

#[tokio::test]
async fn the_answers_audit_id_finds_the_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.log");
    let fixture = fixture(&log).await;
    let find = |id: &str| -> Value {
        let mut found = events(&log);
        found.retain(|event| event["auditID"] == id && event["stage"] == "ResponseComplete");
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    };

    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let (id, code) = ask(&fixture, &fixture.admin, "POST", maps, &map).await;
    assert_eq!(code, 201);
    let event = find(&id);
    assert_eq!(event["level"], "RequestResponse");
    assert_eq!(event["verb"], "create");
    assert_eq!(event["user"]["username"], "admin");
    assert_eq!(event["requestURI"], maps);
    assert_eq!(event["sourceIPs"], json!(["192.0.2.7"]));
    assert_eq!(
        event["objectRef"],
        json!({"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"})
    );
    assert_eq!(event["requestObject"]["data"], json!({"k": "v"}));
    assert!(event["responseObject"]["metadata"]["uid"].is_string());
    assert!(event["responseObject"]["metadata"].get("managedFields").is_none());
    assert_eq!(event["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "allow");

    // A secret's content is on record only where the policy says so.
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "hunter2"}});
    let (id, _) = ask(&fixture, &fixture.admin, "POST", "/api/v1/namespaces/default/secrets", &secret).await;
    let event = find(&id);
    assert_eq!((&event["level"], &event["objectRef"]["name"]), (&json!("Metadata"), &json!("s")));
    assert!(event.get("requestObject").is_none() && event.get("responseObject").is_none());

    // Refused by the authorizers, then by authentication.
    let (id, code) = ask(&fixture, &fixture.bob, "GET", &format!("{maps}/a"), &Value::Null).await;
    assert_eq!(code, 403);
    let event = find(&id);
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(
        (&event["responseStatus"]["code"], &event["responseStatus"]["reason"]),
        (&json!(403), &json!("Forbidden"))
    );
    let (id, code) = ask(&fixture, "wrong", "GET", maps, &Value::Null).await;
    assert_eq!(code, 401);
    let event = events(&log).into_iter().find(|event| event["auditID"] == id).expect("a record");
    assert_eq!((&event["stage"], &event["user"]), (&json!("ResponseStarted"), &json!({"username": ""})));
    assert_eq!(event["responseStatus"]["message"], "Authentication failed, attempted: bearer");

    // Left out by a rule, or by its level.
    let (id, _) = ask(&fixture, &fixture.admin, "GET", "/healthz", &Value::Null).await;
    assert!(events(&log).iter().all(|event| event["auditID"] != id));
    let all = std::fs::read_to_string(&log).expect("a log");
    assert!(!all.contains("hunter2") && !all.contains("aHVudGVyMg"));
    fixture.stop().await;
}

#[tokio::test]
async fn a_watch_is_on_record_when_it_begins_and_when_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.log");
    let fixture = fixture(&log).await;
    let path = "/api/v1/namespaces/default/configmaps?watch=1";
    let request = Request::builder().uri(path).header("authorization", format!("Bearer {}", fixture.admin));
    let body: Body = Full::default().map_err(|never| match never {}).boxed_unsync();
    let response = fixture.server.handle(request.body(body).expect("a request"), Peer::default()).await;
    let id = response.headers()["audit-id"].to_str().expect("an id").to_owned();
    let stages = || -> Vec<Value> {
        events(&log).into_iter().filter(|e| e["auditID"] == id).map(|e| e["stage"].clone()).collect()
    };
    assert_eq!(stages(), ["ResponseStarted"]);
    drop(response);
    assert_eq!(stages(), ["ResponseStarted", "ResponseComplete"]);
    fixture.stop().await;
}

#[tokio::test]
async fn impersonation_shows_both_users() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.log");
    let fixture = fixture(&log).await;
    let request = Request::builder()
        .uri("/api/v1/namespaces/default/pods")
        .header("authorization", format!("Bearer {}", fixture.admin))
        .header("impersonate-user", "carol");
    let body: Body = Full::default().map_err(|never| match never {}).boxed_unsync();
    let response = fixture.server.handle(request.body(body).expect("a request"), Peer::default()).await;
    let id = response.headers()["audit-id"].to_str().expect("an id").to_owned();
    let event = events(&log).into_iter().find(|event| event["auditID"] == id).expect("a record");
    assert_eq!(
        (&event["user"]["username"], &event["impersonatedUser"]["username"]),
        (&json!("admin"), &json!("carol"))
    );
    fixture.stop().await;
}
