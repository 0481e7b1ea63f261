//! What must not be learned or had by the shape of a request.

use ferry_apiserver::{Body, Peer};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::json;

use crate::Fixture;

/// Discovery is open to everyone by rules for paths; a resource whose name is empty is none of these.
#[tokio::test]
async fn a_resource_without_a_name_is_no_plain_path() {
    let fixture = Fixture::new().await;
    let (code, _) = fixture.call(&fixture.bob, "GET", "/apis/apps/v1", "", "").await;
    assert_eq!(code, 200);
    for path in ["/apis/apps/v1//namespaces/default/deployments", "/api/v1//namespaces/default/secrets"] {
        let (code, refused) = fixture.call(&fixture.bob, "GET", path, "", "").await;
        assert_eq!((code, &refused["reason"]), (403, &json!("Forbidden")), "{path}: {refused}");
    }
    fixture.stop().await;
}

/// A write that depends on a Lease tells who holds it, so whoever may not read the Lease is refused whatever it says.
#[tokio::test]
async fn leases_are_not_told_to_those_who_may_not_read_them() {
    let mut part = String::new();
    let fixture = Fixture::with(|_, tokens| {
        part = tokens.issue(ferry_meta::UserInfo::service_account("kube-system", "part", ""));
    })
    .await;
    let lease = json!({"metadata": {"name": "led"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    assert_eq!(fixture.json("POST", leases, &lease).await.0, 201);
    let writer = json!({"metadata": {"name": "writer"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]});
    let bound = json!({"metadata": {"name": "writer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"},
                     {"kind": "ServiceAccount", "namespace": "kube-system", "name": "part"}]});
    for (resource, object) in [("roles", writer), ("rolebindings", bound)] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/default/{resource}");
        assert_eq!(fixture.json("POST", &path, &object).await.0, 201);
    }
    for (user, token, holder, want) in [
        ("bob", &fixture.bob, None, 201),
        ("bob", &fixture.bob, Some("me"), 403),
        ("bob", &fixture.bob, Some("other"), 403),
        ("admin", &fixture.admin, Some("me"), 201),
        ("admin", &fixture.admin, Some("other"), 409),
        ("part", &part, Some("me"), 201),
        ("part", &part, Some("other"), 409),
    ] {
        let name = format!("{user}-{}", holder.unwrap_or("plain"));
        let body: Body = Full::new(bytes::Bytes::from(json!({"metadata": {"name": name}}).to_string()))
            .map_err(|never| match never {})
            .boxed_unsync();
        let mut request = Request::post("/api/v1/namespaces/default/configmaps")
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        if let Some(holder) = holder {
            request = request.header("ferry-leader-lease", format!("kube-system/led/{holder}"));
        }
        let answer = fixture.server.handle(request.body(body).expect("a request"), Peer::default()).await;
        assert_eq!(answer.status().as_u16(), want, "{name}");
    }
    fixture.stop().await;
}

/// Labels decide which roles take in the rules of another: whoever may write roles, and lacks the rights of one, labelled it, and had
/// its rights by a role that everybody may have.
#[tokio::test]
async fn a_label_on_a_role_is_for_those_who_have_its_rights() {
    let fixture = Fixture::new().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let writer = json!({"metadata": {"name": "writer"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["get", "create", "update", "patch"]}]});
    assert_eq!(fixture.json("POST", roles, &writer).await.0, 201);
    let subjects = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]);
    for role in ["writer", "view"] {
        let bound = json!({"metadata": {"name": format!("bob-{role}")}, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        assert_eq!(fixture.json("POST", bindings, &bound).await.0, 201);
    }
    let label = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}).to_string();
    let apply = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "cluster-admin",
        "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}})
    .to_string();
    for (kind, query, body) in [
        ("application/merge-patch+json", "", &label),
        ("application/strategic-merge-patch+json", "", &label),
        ("application/apply-patch+yaml", "?fieldManager=m&force=true", &apply),
    ] {
        let path = format!("{roles}/cluster-admin{query}");
        let (code, refused) = fixture.call(&fixture.bob, "PATCH", &path, kind, body.as_str()).await;
        assert_eq!((code, &refused["reason"]), (403, &json!("Forbidden")), "{kind}: {refused}");
    }
    let (code, _) = fixture.call(&fixture.bob, "GET", "/api/v1/secrets", "", "").await;
    assert_eq!(code, 403);
    // One's own rights may be given on.
    let path = format!("{roles}/writer");
    let (code, _) = fixture.call(&fixture.bob, "PATCH", &path, "application/merge-patch+json", label.as_str()).await;
    assert_eq!(code, 200);
    fixture.stop().await;
}
