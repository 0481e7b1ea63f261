//! Renewals take a short way through the server, and nobody can tell.

use std::sync::Arc;

use ferry_admission::{Chain, Dependencies, PolicyOptions};
use ferry_meta::UserInfo;
use serde_json::{Value, json};

use super::Fixture;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";

fn lease(name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "labels": {"a": "b"}},
        "spec": {"holderIdentity": "me", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"},
    })
}

/// What does not tell one lease from its twin, and not one second from the next.
fn plain(mut lease: Value) -> Value {
    for field in ["name", "uid", "resourceVersion", "creationTimestamp"] {
        lease["metadata"].as_object_mut().expect("metadata").remove(field).expect("it is there");
    }
    for entry in lease["metadata"]["managedFields"].as_array_mut().expect("managers") {
        entry["time"] = Value::Null;
    }
    lease
}

#[tokio::test]
async fn a_renewed_lease_is_as_any_changed_object() {
    let fixture = Fixture::new().await;
    for name in ["patched", "put", "changed"] {
        assert_eq!(fixture.json("POST", LEASES, &lease(name)).await.0, 201);
    }
    for round in 1..4 {
        let time = format!("2026-01-01T00:00:0{round}.000000Z");
        let (patched, put, changed) =
            (format!("{LEASES}/patched"), format!("{LEASES}/put"), format!("{LEASES}/changed"));
        let body = json!({"spec": {"holderIdentity": "me", "leaseDurationSeconds": 40, "renewTime": time}});
        let (code, patched) = fixture.call(&fixture.admin, "PATCH", &patched, MERGE, body.to_string()).await;
        assert_eq!(code, 200, "{patched}");

        let (_, mut whole) = fixture.json("GET", &put, &Value::Null).await;
        whole["spec"]["renewTime"] = time.clone().into();
        let (code, answer) = fixture.json("PUT", &put, &whole).await;
        assert_eq!(code, 200, "{answer}");
        let (_, stored) = fixture.json("GET", &put, &Value::Null).await;
        assert_eq!(stored, answer, "the answer is what is stored");
        let (code, conflict) = fixture.json("PUT", &put, &whole).await;
        assert_eq!((code, &conflict["reason"]), (409, &json!("Conflict")), "the version sent is no longer the one");

        let mut unnamed = answer.clone();
        unnamed["spec"]["renewTime"] = "2026-01-01T00:01:00.000000Z".into();
        unnamed["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
        let (code, refused) = fixture.json("PUT", &put, &unnamed).await;
        assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")), "it names no version: {refused}");

        let body = json!([{"op": "replace", "path": "/spec/renewTime", "value": time}]);
        let (code, changed) = fixture.call(&fixture.admin, "PATCH", &changed, JSON, body.to_string()).await;
        assert_eq!((code, &changed["spec"]["renewTime"]), (200, &json!(time)));
        assert_eq!(plain(patched), plain(changed.clone()));
        assert_eq!(plain(answer), plain(changed));
    }
    // Another manager takes the time over, and only that.
    let body = json!({"spec": {"renewTime": "2026-01-01T00:00:09.000000Z"}});
    let path = format!("{LEASES}/patched?fieldManager=other");
    let (_, taken) = fixture.call(&fixture.admin, "PATCH", &path, MERGE, body.to_string()).await;
    let entries = taken["metadata"]["managedFields"].as_array().expect("managers");
    let of = |name: &str| {
        entries.iter().find(|entry| entry["manager"] == name).expect("an entry")["fieldsV1"]["f:spec"].clone()
    };
    assert_eq!(of("other"), json!({"f:renewTime": {}}));
    assert_eq!(entries.len(), 2, "{taken}");
    fixture.stop().await;
}

#[tokio::test]
async fn whoever_minds_a_renewal_is_asked() {
    let mut node = String::new();
    let fixture = Fixture::with(|config, tokens| {
        let dependencies = Dependencies {
            reader: config.cache.clone(),
            authorizer: config.authorization.clone(),
            quotas: None,
            node_labels: None,
        };
        let policies = PolicyOptions { defaulter: None, kinds: Arc::new(|_| None) };
        config.admission = Chain::new(dependencies).with_policies(&policies).plugins().to_vec();
        node = tokens.issue(UserInfo::new("system:node:own", &["system:nodes", "system:masters"]));
    })
    .await;
    let body = |second: u8| json!({"spec": {"renewTime": format!("2026-01-01T00:00:0{second}.000000Z")}}).to_string();
    for name in ["own", "foreign"] {
        assert_eq!(fixture.json("POST", LEASES, &lease(name)).await.0, 201);
        // From here on it is renewed by whom it is managed by.
        let path = format!("{LEASES}/{name}");
        assert_eq!(fixture.call(&fixture.admin, "PATCH", &path, MERGE, body(1)).await.0, 200);
    }
    let (code, _) = fixture.call(&node, "PATCH", &format!("{LEASES}/own"), MERGE, body(2)).await;
    assert_eq!(code, 200);
    let (code, refused) = fixture.call(&node, "PATCH", &format!("{LEASES}/foreign"), MERGE, body(2)).await;
    assert_eq!(code, 403, "{refused}");

    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = json!({"metadata": {"name": "never"}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["leases"]}]},
        "validations": [{"expression": "object.spec.renewTime == oldObject.spec.renewTime", "message": "not again"}]}});
    assert_eq!(fixture.json("POST", policies, &policy).await.0, 201);
    let binding =
        json!({"metadata": {"name": "never"}, "spec": {"policyName": "never", "validationActions": ["Deny"]}});
    let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    assert_eq!(fixture.json("POST", bindings, &binding).await.0, 201);
    let (code, refused) = fixture.call(&fixture.admin, "PATCH", &format!("{LEASES}/own"), MERGE, body(3)).await;
    assert_eq!(code, 422, "{refused}");
    fixture.stop().await;
}
