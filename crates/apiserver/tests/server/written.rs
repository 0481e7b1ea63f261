//! What a write is told where the body and what is there do not fit: kinds, versions, names, uids.

use serde_json::{Value, json};

use super::Fixture;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl Fixture {
    async fn patch(&self, path: &str, content_type: &str, body: &Value) -> (u16, Value) {
        self.call(&self.admin, "PATCH", path, content_type, body.to_string()).await
    }

    /// A definition of things in two versions, and one of them.
    async fn things(&self) -> String {
        let schema = |field: &str| {
            let spec = json!({"type": "object", "properties": {field: {"type": "string"}}});
            json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
        };
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": schema("one")},
                    {"name": "v2", "served": true, "storage": false, "schema": schema("two")},
                ],
            },
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(self.json("POST", path, &definition).await.0, 201);
        let path = "/apis/example.com/v1/namespaces/default/things";
        let thing =
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"one": "1"}});
        for _ in 0..500 {
            if self.json("POST", path, &thing).await.0 == 201 {
                return format!("{path}/a");
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("things are not served");
    }
}

/// The last part of the message of a patch whose result is refused.
fn why(answer: &Value) -> String {
    let message = answer["message"].as_str().unwrap_or_default();
    message.rsplit_once("}\": ").map_or(message, |(_, why)| why).to_owned()
}

#[tokio::test]
async fn patches_that_break_the_kind_of_a_built_in_object() {
    let fixture = Fixture::new().await;
    let (code, made) = fixture.json("POST", MAPS, &json!({"metadata": {"name": "a"}, "data": {"k": "aGk="}})).await;
    assert_eq!(code, 201, "{made}");
    let one = format!("{MAPS}/a");
    let scheme = "in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
    for (patch, code, wanted) in [
        (json!({"kind": null}), 200, String::new()),
        (json!({"kind": "ConfigMap", "apiVersion": "v1"}), 200, String::new()),
        (json!({"kind": "Secret"}), 422, "converting (v1.Secret) to (core.ConfigMap): unknown conversion".into()),
        // What is wrong with it as what it says it is comes first.
        (json!({"kind": "Secret", "data": {"k": "no"}}), 422, "illegal base64 data at input byte 0".into()),
        (json!({"kind": "Nothing"}), 422, format!("no kind \"Nothing\" is registered for version \"v1\" {scheme}")),
        (json!({"apiVersion": "v9"}), 422, format!("no kind \"ConfigMap\" is registered for version \"v9\" {scheme}")),
        (json!({"apiVersion": "a/b/c"}), 422, "unexpected GroupVersion string: a/b/c".into()),
        (
            json!({"kind": "Nothing", "apiVersion": null}),
            422,
            format!("no kind \"Nothing\" is registered for the internal version of group \"\" {scheme}"),
        ),
        (
            json!({"kind": "Secret", "apiVersion": null}),
            422,
            "converting (core.Secret) to (core.ConfigMap): unknown conversion".into(),
        ),
        (
            json!({"kind": 5}),
            422,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string".into(),
        ),
        (
            json!({"apiVersion": null}),
            400,
            "the name of the object (a based on URL) was undeterminable: name must be provided".into(),
        ),
    ] {
        let (got, answer) = fixture.patch(&one, MERGE_PATCH, &patch).await;
        assert_eq!((got, if code == 200 { String::new() } else { why(&answer) }), (code, wanted), "{patch}: {answer}");
    }
    let removed = json!([{"op": "remove", "path": "/apiVersion"}]);
    let (code, answer) = fixture.patch(&format!("{one}?fieldValidation=Strict"), JSON_PATCH, &removed).await;
    assert_eq!(code, 422, "{answer}");
    assert_eq!(why(&answer), "strict decoding error: unknown field \"data\", unknown field \"metadata\"");
    // A strategic merge works on the object's own type.
    let nothing = json!([{"op": "replace", "path": "", "value": null}]);
    assert_eq!(fixture.patch(&one, JSON_PATCH, &nothing).await.0, 422);
    let (code, _) = fixture
        .patch(&one, "application/strategic-merge-patch+json", &json!({"kind": "Secret", "apiVersion": null}))
        .await;
    assert_eq!(code, 200);
    fixture.stop().await;
}

#[tokio::test]
async fn patches_may_speak_of_another_version_of_the_kind() {
    let fixture = Fixture::new().await;
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let spec =
        json!({"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}});
    let (code, made) = fixture.json("POST", path, &json!({"metadata": {"name": "a"}, "spec": spec})).await;
    assert_eq!((code, &made["spec"]["targetCPUUtilizationPercentage"]), (201, &json!(80)), "{made}");
    let fields = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert_eq!(fields["f:targetCPUUtilizationPercentage"], json!({}), "{made}");
    let metrics = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 40}}}]);
    let patch = json!({"apiVersion": "autoscaling/v2", "spec": {"metrics": metrics}});
    let (code, answer) = fixture.patch(&format!("{path}/a"), MERGE_PATCH, &patch).await;
    assert_eq!((code, &answer["spec"]["targetCPUUtilizationPercentage"]), (200, &json!(40)), "{answer}");
    assert_eq!(answer["apiVersion"], json!("autoscaling/v1"));
    fixture.stop().await;
}

/// What the first version cannot say of an autoscaler is not lost when it writes the other half.
#[tokio::test]
async fn a_status_of_the_first_version_keeps_the_order_of_metrics() {
    let fixture = Fixture::new().await;
    let path = |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 40}}});
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}});
    let spec = json!({"maxReplicas": 3, "metrics": [cpu, pods],
        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}});
    let (code, made) = fixture.json("POST", &path("v2"), &json!({"metadata": {"name": "a"}, "spec": spec})).await;
    assert_eq!(code, 201, "{made}");
    let body = json!({"metadata": {"name": "a"}, "spec": {"maxReplicas": 9}, "status": {"currentReplicas": 2, "desiredReplicas": 2}});
    let (code, answer) = fixture.json("PUT", &format!("{}/a/status", path("v1")), &body).await;
    assert_eq!(code, 200, "{answer}");
    let (_, read) = fixture.json("GET", &format!("{}/a", path("v2")), &Value::Null).await;
    assert_eq!(read["spec"], made["spec"]);
    assert_eq!((&read["status"]["currentReplicas"], &read["metadata"]["generation"]), (&json!(2), &json!(1)));
    fixture.stop().await;
}

#[tokio::test]
async fn patches_that_break_the_kind_of_a_custom_resource() {
    let fixture = Fixture::new().await;
    let one = fixture.things().await;
    for (patch, code, wanted) in [
        (
            json!({"apiVersion": null}),
            500,
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
        (
            json!({"apiVersion": "other.io/v1"}),
            422,
            "Thing.other.io \"a\" is invalid: apiVersion: Invalid value: \"other.io/v1\": must be example.com/v1",
        ),
        (
            json!({"apiVersion": "example.com/v9"}),
            422,
            "Thing.example.com \"a\" is invalid: apiVersion: Invalid value: \"example.com/v9\": must be example.com/v1",
        ),
        (
            json!({"apiVersion": "example.com/v2", "spec": {"two": "2"}}),
            422,
            "Thing.example.com \"a\" is invalid: apiVersion: Invalid value: \"example.com/v2\": must be example.com/v1",
        ),
        (json!({"apiVersion": "a/b/c"}), 422, "unexpected GroupVersion string: a/b/c"),
        (
            json!({"kind": "Other"}),
            422,
            "Other.example.com \"a\" is invalid: kind: Invalid value: \"Other\": must be Thing",
        ),
        (
            json!({"kind": 5}),
            422,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        ),
    ] {
        let (got, answer) = fixture.patch(&one, MERGE_PATCH, &patch).await;
        assert_eq!((got, why(&answer).as_str()), (code, wanted), "{patch}: {answer}");
    }
    let (code, answer) = fixture.patch(&one, MERGE_PATCH, &json!({"kind": null})).await;
    assert_eq!(code, 422);
    assert!(answer["message"].as_str().is_some_and(|m| m.contains("\": Object 'Kind' is missing in '{")), "{answer}");
    fixture.stop().await;
}

/// A version that is no number is none for what is new, and a mistake for what is there.
#[tokio::test]
async fn versions_that_are_no_numbers() {
    let fixture = Fixture::new().await;
    let map = |name: &str, version: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": version}});
    for (name, version, wanted) in
        [("a", "new", 201), ("b", "-1", 201), ("c", "0", 201), ("d", "", 201), ("e", "7", 500)]
    {
        let (code, answer) = fixture.json("POST", MAPS, &map(name, version)).await;
        assert_eq!(code, wanted, "{version}: {answer}");
        assert_ne!(answer["metadata"]["resourceVersion"], json!(version), "{answer}");
    }
    let syntax = "strconv.ParseUint: parsing \"new\": invalid syntax";
    let (code, answer) = fixture.json("PUT", &format!("{MAPS}/a"), &map("a", "new")).await;
    assert_eq!((code, &answer["message"]), (500, &json!(syntax)), "{answer}");
    let (code, answer) =
        fixture.patch(&format!("{MAPS}/a"), MERGE_PATCH, &json!({"metadata": {"resourceVersion": "new"}})).await;
    assert_eq!((code, &answer["message"]), (500, &json!(syntax)), "{answer}");
    // Also where an apply finds nothing: a number would not matter there.
    let (code, answer) = fixture.patch(&format!("{MAPS}/x?fieldManager=m"), APPLY, &map("x", "new")).await;
    assert_eq!((code, &answer["message"]), (500, &json!(syntax)), "{answer}");
    let (code, answer) = fixture.patch(&format!("{MAPS}/x?fieldManager=m"), APPLY, &map("x", "7")).await;
    assert_eq!(code, 201, "{answer}");
    // Who only tries gets back what was sent.
    let (code, answer) = fixture.patch(&format!("{MAPS}/y?fieldManager=m&dryRun=All"), APPLY, &map("y", "7")).await;
    assert_eq!((code, &answer["metadata"]["resourceVersion"]), (201, &json!("7")), "{answer}");
    let (code, answer) =
        fixture.json("DELETE", &format!("{MAPS}/a"), &json!({"preconditions": {"resourceVersion": "new"}})).await;
    assert_eq!(code, 409, "{answer}");
    fixture.stop().await;
}

/// The uid is looked at first, then the namespace, then the name.
#[tokio::test]
async fn who_an_object_says_it_is_has_an_order() {
    let fixture = Fixture::new().await;
    let body = |uid: &str, namespace: &str, name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace, "uid": uid}});
    let apply = async |uid: &str, namespace: &str, name: &str| {
        let (code, answer) =
            fixture.patch(&format!("{MAPS}/a?fieldManager=m"), APPLY, &body(uid, namespace, name)).await;
        (code, answer["message"].as_str().unwrap_or_default().to_owned())
    };
    let (code, message) = apply("u", "other", "b").await;
    assert_eq!(code, 409);
    assert!(
        message.ends_with("uid mismatch: the provided object specified uid u, and no existing object was found"),
        "{message}"
    );
    let (code, message) = apply("", "other", "b").await;
    assert!(code == 400 && message.contains("does not match the namespace"), "{message}");
    let (code, message) = apply("", "default", "b").await;
    assert!(code == 400 && message.contains("does not match the name on the URL"), "{message}");
    assert_eq!(apply("", "default", "a").await.0, 201);
    let (code, answer) = fixture.json("PUT", &format!("{MAPS}/a"), &body("", "other", "b")).await;
    assert!(code == 400 && answer["message"].as_str().is_some_and(|m| m.contains("match the namespace")), "{answer}");
    fixture.stop().await;
}

/// Events are in two groups. Who wrote in the other one owns nothing once somebody writes in this one.
#[tokio::test]
async fn fields_written_in_another_group_are_nobodys() {
    let fixture = Fixture::new().await;
    let core = "/api/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "a"}, "reason": "R", "message": "m", "type": "Normal",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    let (code, made) = fixture.json("POST", core, &event).await;
    assert_eq!((code, &made["metadata"]["managedFields"][0]["apiVersion"]), (201, &json!("v1")), "{made}");
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/a?fieldManager=two";
    let (code, answer) = fixture.patch(path, MERGE_PATCH, &json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(code, 200, "{answer}");
    let managers: Vec<&Value> =
        answer["metadata"]["managedFields"].as_array().into_iter().flatten().map(|entry| &entry["manager"]).collect();
    assert_eq!(managers, [&json!("two")], "{answer}");
    fixture.stop().await;
}

/// Entries that cannot be read are no entries: then the type of the configuration is what is wrong.
#[tokio::test]
async fn applied_entries_of_managed_fields_are_refused() {
    let fixture = Fixture::new().await;
    let path = format!("{MAPS}/a?fieldManager=m");
    for (entries, code, wanted) in [
        (json!([{"manager": "m"}]), 400, "metadata.managedFields must be nil"),
        (json!(["x"]), 500, ".metadata.managedFields[0]: expected map, got &{x}"),
        (
            json!([{"manager": 5}]),
            500,
            ".metadata.managedFields[0].manager: expected string, got &value.valueUnstructured{Value:5}",
        ),
    ] {
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": entries}});
        let (got, answer) = fixture.patch(&path, APPLY, &config).await;
        assert_eq!(got, code, "{answer}");
        assert!(answer["message"].as_str().is_some_and(|message| message.ends_with(wanted)), "{answer}");
    }
    fixture.stop().await;
}

/// Of a new object with a list item that does not say its key nobody owns anything.
#[tokio::test]
async fn objects_with_items_without_their_key_are_not_tracked() {
    let fixture = Fixture::new().await;
    let path = "/api/v1/namespaces/default/serviceaccounts";
    for (name, secrets, tracked) in [("a", json!([{"kind": "x"}]), false), ("b", json!([{"name": "x"}]), true)] {
        let (code, made) = fixture.json("POST", path, &json!({"metadata": {"name": name}, "secrets": secrets})).await;
        assert_eq!((code, made["metadata"]["managedFields"].is_array()), (201, tracked), "{made}");
    }
    fixture.stop().await;
}

/// A status leaves metadata alone: for kinds of flow control all of it, for others what a client can change by itself.
#[tokio::test]
async fn what_of_the_metadata_a_status_leaves_alone() {
    let fixture = Fixture::new().await;
    let schema = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/global-default/status";
    let range = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes/status";
    for (path, metadata, code) in [
        (schema, json!({"uid": "other", "deletionGracePeriodSeconds": 5, "labels": {"a": "b"}, "selfLink": "x"}), 200),
        (range, json!({"labels": {"a": "b"}, "selfLink": "x"}), 200),
        (range, json!({"deletionGracePeriodSeconds": 5}), 422),
        (range, json!({"uid": "other"}), 422),
    ] {
        let (got, answer) = fixture.patch(path, MERGE_PATCH, &json!({"metadata": metadata})).await;
        assert_eq!(got, code, "{metadata}: {answer}");
        if code == 200 {
            assert_eq!(
                (answer["metadata"].get("selfLink"), answer["metadata"].get("labels")),
                (None, None),
                "{answer}"
            );
        }
    }
    fixture.stop().await;
}

/// Selectors of custom resources know what their definition names, and no write keeps a link to itself.
#[tokio::test]
async fn custom_resources_are_selected_by_what_is_declared() {
    let fixture = Fixture::new().await;
    let one = fixture.things().await;
    let path = format!("{}?fieldSelector=spec.one%3Da", one.trim_end_matches("/a"));
    let (code, answer) = fixture.json("GET", &path, &Value::Null).await;
    assert_eq!((code, answer["message"].as_str()), (400, Some("field label not supported: spec.one")));
    let link = json!({"metadata": {"selfLink": "/x", "labels": {"a": "b"}}});
    let (code, answer) = fixture.patch(&one, MERGE_PATCH, &link).await;
    assert_eq!((code, answer["metadata"].get("selfLink")), (200, None), "{answer}");
}

/// A custom resource says what it is; what is wrong with its metadata is told before its version is looked at.
#[tokio::test]
async fn custom_resources_name_their_version_and_kind() {
    let fixture = Fixture::new().await;
    let one = fixture.things().await;
    let path = one.trim_end_matches("/a");
    let expected = "does not match the expected API version (example.com/v1)";
    for (query, body, wanted) in [
        ("", json!({"kind": "Thing", "metadata": {"name": "b"}}), format!("the API version in the data () {expected}")),
        (
            "",
            json!({"apiVersion": null, "kind": "Thing", "metadata": {"name": "b"}}),
            "Thing in version \"\" cannot be handled as a Thing: .apiVersion accessor error: <nil> is of the type <nil>, expected string".into(),
        ),
        (
            "",
            json!({"apiVersion": "x", "kind": "Other", "metadata": {"name": 1}}),
            "Other in version \"x\" cannot be handled as a Thing: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string".into(),
        ),
        (
            "?fieldValidation=Strict",
            json!({"apiVersion": "example.com/v1", "kind": "Other", "metadata": {"name": "b", "odd": 1}, "odd": 1}),
            "Other in version \"v1\" cannot be handled as a Other: strict decoding error: unknown field \"metadata.odd\"".into(),
        ),
        (
            "?fieldValidation=Ignore",
            json!({"apiVersion": "example.com/v1"}),
            "Thing in version \"v1\" cannot be handled as a Thing: Object 'Kind' is missing in '{\"apiVersion\":\"example.com/v1\"}'".into(),
        ),
        (
            "",
            json!({"apiVersion": "example.com/v1"}),
            "the object provided is unrecognized (must be of type Thing): Object 'Kind' is missing in '{\"apiVersion\":\"example.com/v1\"}' ({\"apiVersion\":\"example.com/v1\" ...)".into(),
        ),
    ] {
        let (code, answer) = fixture.json("POST", &format!("{path}{query}"), &body).await;
        assert_eq!((code, answer["message"].as_str().unwrap_or_default()), (400, &*wanted), "{body}");
    }
}

#[tokio::test]
async fn a_body_of_another_kind_is_told_so_before_its_fields() {
    let fixture = Fixture::new().await;
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let (code, answer) = fixture.json("POST", &format!("{MAPS}?fieldValidation=Strict"), &body).await;
    let wanted = "Namespace in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Namespace) to (core.ConfigMap): unknown conversion";
    assert_eq!((code, answer["message"].as_str().unwrap_or_default()), (400, wanted));
    // Upstream keeps no cache of Events, whose version is told about by the store.
    for (path, code, start) in
        [("events/e", 400, "invalid resource version: "), ("configmaps/m", 500, "resourceVersion: Invalid value")]
    {
        let path = format!("/api/v1/namespaces/default/{path}?resourceVersion=x");
        let (found, answer) = fixture.json("GET", &path, &Value::Null).await;
        assert!(found == code && answer["message"].as_str().is_some_and(|m| m.starts_with(start)), "{answer}");
    }
}
