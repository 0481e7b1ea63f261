//! Custom resources: served, defaulted and checked as their definition says, and gone with it.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, WatchEvent, WatchParams};
use serde_json::{Value, json};

use super::Fixture;

fn widgets(schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": schema}}}}}],
        }
    })
}

/// Returns once the definition's status says this, or once it is gone.
pub async fn until(fixture: &Fixture, wanted: impl Fn(Option<&Value>) -> bool) {
    let definitions = kube::core::ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    let api: Api<kube::core::DynamicObject> = Api::all_with(fixture.client(), &definitions);
    let mut events = api.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
    let now = api.get_opt("widgets.example.com").await.expect("an answer");
    if wanted(now.as_ref().map(|object| &object.data)) {
        return;
    }
    while let Some(event) = events.try_next().await.expect("an event") {
        let object = match &event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(&object.data),
            WatchEvent::Deleted(_) => None,
            _ => continue,
        };
        if wanted(object) {
            return;
        }
    }
    panic!("the watch ended");
}

pub fn is_established(definition: Option<&Value>) -> bool {
    definition.is_some_and(|d| ferry_registry::apiextensions::has_condition(d, "Established"))
}

#[tokio::test]
async fn custom_resources_live_as_long_as_their_definition() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
    let fixture = Fixture::new().await;
    assert_eq!(fixture.json("GET", WIDGETS, &Value::Null).await.0, 404);
    let definition = widgets(&json!({"n": {"type": "integer", "minimum": 1}, "d": {"type": "string", "default": "x"}}));
    assert_eq!(fixture.json("POST", DEFINITIONS, &definition).await.0, 201);
    until(&fixture, is_established).await;

    // Served at once: pruned, defaulted and checked.
    let widget = |name: &str, spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec});
    let (code, made) = fixture.json("POST", WIDGETS, &widget("a", json!({"n": 2, "unknown": 1}))).await;
    assert_eq!((code, &made["spec"]), (201, &json!({"n": 2, "d": "x"})), "{made}");
    let (code, refused) = fixture.json("POST", WIDGETS, &widget("b", json!({"n": 0}))).await;
    assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")));
    let (code, _) = fixture.call(&fixture.bob, "GET", WIDGETS, "", "").await;
    assert_eq!(code, 403);

    // What admission adds is held to the schema too.
    let mut marked = widget("marked", json!({"n": 3}));
    marked["metadata"]["annotations"] = json!({"test/add": "yes"});
    let (code, made) = fixture.json("POST", WIDGETS, &marked).await;
    assert_eq!((code, &made["spec"]), (201, &json!({"n": 4, "d": "x"})), "{made}");
    let (code, _) = fixture.json("DELETE", &format!("{WIDGETS}/marked"), &Value::Null).await;
    assert_eq!(code, 200);

    // A new default is seen by what was written before it.
    let schema =
        json!({"n": {"type": "integer"}, "d": {"type": "string"}, "new": {"type": "boolean", "default": true}});
    let patch = json!({"spec": {"versions": widgets(&schema)["spec"]["versions"]}});
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let (code, patched) =
        fixture.call(&fixture.admin, "PATCH", &path, "application/merge-patch+json", patch.to_string()).await;
    assert_eq!(code, 200, "{patched}");
    // Nothing tells when a changed schema is in force; every answer before is the old one, and none is refused.
    let served = async {
        loop {
            let (code, list) = fixture.json("GET", WIDGETS, &Value::Null).await;
            assert_eq!(code, 200, "{list}");
            if list["items"][0]["spec"] == json!({"n": 2, "d": "x", "new": true}) {
                return;
            }
            assert_eq!(list["items"][0]["spec"], json!({"n": 2, "d": "x"}));
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), served).await.expect("the new schema is in force");
    let (code, changed) = fixture
        .call(&fixture.admin, "PATCH", &format!("{WIDGETS}/a"), "application/merge-patch+json", r#"{"spec":{"n":0}}"#)
        .await;
    assert_eq!((code, &changed["metadata"]["generation"]), (200, &json!(2)), "{changed}");

    assert_eq!(fixture.json("DELETE", &path, &Value::Null).await.0, 200);
    until(&fixture, |definition| definition.is_none()).await;
    assert_eq!(fixture.json("GET", WIDGETS, &Value::Null).await.0, 404);
    assert_eq!(fixture.json("POST", DEFINITIONS, &definition).await.0, 201);
    until(&fixture, is_established).await;
    let (_, list) = fixture.json("GET", WIDGETS, &Value::Null).await;
    assert_eq!(list["items"], json!([]));
    fixture.stop().await;
}
