//! A user with few rights, and requests as no client library makes them.

use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};

use crate::alone::MALLORY;

/// One request with headers of one's own: the answer's code and body.
pub async fn call(client: &Client, method: &str, path: &str, headers: &[(&str, &[u8])], body: &Value) -> (u16, Value) {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, http::HeaderValue::from_bytes(value).unwrap());
    }
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let answer = client.send(request.body(body.into()).unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))))
}

pub const JSON: (&str, &[u8]) = ("content-type", b"application/json");
pub const MERGE: (&str, &[u8]) = ("content-type", b"application/merge-patch+json");
pub const APPLY: (&str, &[u8]) = ("content-type", b"application/apply-patch+yaml");

/// Gives Mallory these rights everywhere, and no others.
pub async fn grant(admin: &Client, rules: Value) {
    let path = "/apis/rbac.authorization.k8s.io/v1";
    let api = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": {"name": MALLORY}, "rules": rules});
    let binding = json!({
        "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": MALLORY},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": MALLORY},
        "subjects": [{"apiGroup": api, "kind": "User", "name": MALLORY}],
    });
    for (kind, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("{path}/{kind}/{MALLORY}?fieldManager=test&force=true");
        let (code, answer) = call(admin, "PATCH", &path, &[APPLY], &object).await;
        assert!(matches!(code, 200 | 201), "{answer}");
    }
}

pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}
