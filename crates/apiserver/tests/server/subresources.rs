//! Subresources that take an object of their own: what becomes of its metadata, and of that of its parent.

use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::Fixture;
use crate::custom_resources::{is_established, until};
use ferry_apiserver::Peer;

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// The code and the warnings of an answer.
async fn warnings(fixture: &Fixture, path: &str, body: &Value) -> (u16, Vec<String>) {
    let request = Request::post(path)
        .header("authorization", format!("Bearer {}", fixture.admin))
        .header("content-type", "application/json")
        .body(Full::new(bytes::Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync())
        .expect("a request");
    let response = fixture.server.handle(request, Peer::default()).await;
    let found = response.headers().get_all("warning").iter().filter_map(|value| value.to_str().ok());
    (response.status().as_u16(), found.map(str::to_owned).collect())
}

#[tokio::test]
async fn owners_that_stand_twice_are_dropped_wherever_an_object_is_sent() {
    let fixture = Fixture::new().await;
    let account = json!({"metadata": {"name": "default"}});
    fixture.json("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(fixture.json("POST", "/api/v1/namespaces/default/pods", &pod).await.0, 201);
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let metadata = json!({"name": "p", "ownerReferences": [owner, owner]});
    let expected = ".metadata.ownerReferences contains duplicate entries";
    for (path, code, rest) in [
        ("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", 201, json!({"spec": {"namespace": "default"}})),
        ("/apis/authentication.k8s.io/v1/tokenreviews", 201, json!({"spec": {"token": "t"}})),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", 201, json!({})),
        ("/api/v1/namespaces/default/pods/q/eviction", 400, json!({})),
        ("/api/v1/namespaces/default/pods/p/binding", 201, json!({"target": {"kind": "Node", "name": "n"}})),
        ("/api/v1/namespaces/default/bindings", 409, json!({"target": {"kind": "Node", "name": "n"}})),
        ("/api/v1/namespaces/default/pods/p/eviction", 201, json!({})),
    ] {
        let mut body = rest;
        body["metadata"] = metadata.clone();
        let (answered, warnings) = warnings(&fixture, path, &body).await;
        assert_eq!((answered, warnings.len()), (code, 1), "{path}: {warnings:?}");
        assert!(warnings[0].contains(expected), "{path}: {warnings:?}");
    }
    let review = json!({"metadata": metadata, "spec": {"token": "t"}});
    let (_, review) = fixture.json("POST", "/apis/authentication.k8s.io/v1/tokenreviews", &review).await;
    assert_eq!(review["metadata"]["ownerReferences"], json!([owner]));
    fixture.stop().await;
}

async fn define(fixture: &Fixture) {
    let counted = json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "n": {"type": "integer"}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": counted, "status": counted}}},
                "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}}]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(fixture.json("POST", path, &definition).await.0, 201);
    until(fixture, is_established).await;
}

#[tokio::test]
async fn the_scale_of_a_custom_resource_can_be_changed_but_not_applied() {
    let fixture = Fixture::new().await;
    define(&fixture).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "spec": {"replicas": 2, "n": 1}});
    assert_eq!(fixture.json("POST", WIDGETS, &widget).await.0, 201);
    let path = format!("{WIDGETS}/w/scale");
    let owned = async || {
        let (_, widget) = fixture.json("GET", &format!("{WIDGETS}/w"), &Value::Null).await;
        let fields = widget["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        fields.iter().map(|entry| entry["fieldsV1"]["f:spec"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(owned().await, [json!({".": {}, "f:n": {}, "f:replicas": {}})]);
    // A uid in a patch is not looked at.
    let scaled = json!({"metadata": {"uid": "other"}, "spec": {"replicas": 5}});
    let (code, scale) = fixture.call(&fixture.admin, "PATCH", &path, MERGE, scaled.to_string()).await;
    assert_eq!((code, &scale["spec"]), (200, &json!({"replicas": 5})));
    let mut after = owned().await;
    after.sort_by_key(|fields| fields.to_string());
    assert_eq!(after, [json!({".": {}, "f:n": {}}), json!({"f:replicas": {}})]);
    let apply = async |replicas: i64| {
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w"},
            "spec": {"replicas": replicas}});
        let path = format!("{path}?fieldManager=m&force=true");
        let (code, answer) = fixture.call(&fixture.admin, "PATCH", &path, APPLY, scale.to_string()).await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let (code, refused) = apply(6).await;
    let changed = "failed to convert new object (/w; autoscaling/v1, Kind=Scale)";
    assert!(code == 500 && refused.starts_with(changed), "{refused}");
    // What nobody owns cannot be applied at all.
    let cleared = json!({"metadata": {"managedFields": [{}]}}).to_string();
    assert_eq!(fixture.call(&fixture.admin, "PATCH", &format!("{WIDGETS}/w"), MERGE, cleared).await.0, 200);
    let (code, refused) = apply(5).await;
    assert!(code == 500 && refused.starts_with("failed to create manager for existing fields: "), "{refused}");
    for wrong in
        [r#"{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":"6"}}"#, r#"{"kind":"Widget"}"#, "{"]
    {
        let (code, refused) = fixture.call(&fixture.admin, "PUT", &path, "application/json", wrong).await;
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(
            code == 400 && message.starts_with("no kind is registered for the type v1.Scale"),
            "{wrong}: {refused}"
        );
    }
    fixture.stop().await;
}

#[tokio::test]
async fn no_replicas_are_none_to_a_json_patch() {
    let fixture = Fixture::new().await;
    define(&fixture).await;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"replicas": 0}});
    assert_eq!(fixture.json("POST", WIDGETS, &widget).await.0, 201);
    let remove = json!([{"op": "remove", "path": "/spec/replicas"}]).to_string();
    let path = format!("{WIDGETS}/w/scale");
    assert_eq!(fixture.call(&fixture.admin, "PATCH", &path, JSON_PATCH, &*remove).await.0, 422);
    assert_eq!(fixture.json("GET", &path, &Value::Null).await.1["spec"], json!({}));
    fixture.stop().await;
}

/// The binding names the pod that is meant, and may name its version.
#[tokio::test]
async fn a_binding_of_another_version_places_nothing() {
    let fixture = Fixture::new().await;
    let account = json!({"metadata": {"name": "default"}});
    fixture.json("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (_, pod) = fixture.json("POST", "/api/v1/namespaces/default/pods", &pod).await;
    for (version, code) in [(&json!("1"), 409), (&pod["metadata"]["resourceVersion"], 201)] {
        let binding = json!({"metadata": {"name": "p", "resourceVersion": version}, "target": {"name": "n"}});
        let (answered, answer) = fixture.json("POST", "/api/v1/namespaces/default/pods/p/binding", &binding).await;
        assert_eq!(answered, code, "{answer}");
    }
    fixture.stop().await;
}
