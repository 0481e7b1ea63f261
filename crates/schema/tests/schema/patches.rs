//! Patches against typed objects.

use ferry_meta::ApiError;
use ferry_schema::Validation;
use ferry_schema::patch::{self, PatchError, PatchKind};
use serde_json::{Value, json};

use crate::kind;

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "finalizers": ["example.com/a", "example.com/b", "example.com/c"], "labels": {"l1": "1"}},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {"metadata": {}, "spec": {
                "containers": [
                    {"name": "one", "image": "a:1", "args": ["x"], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                     "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 443, "protocol": "TCP"}]},
                    {"name": "two", "image": "b:1"}, {"name": "three", "image": "c:1"}],
                "nodeSelector": {"a": "1"}, "tolerations": [{"key": "k", "operator": "Exists"}]}}}, "status": {}})
}

fn strategic(patch: Value) -> Result<Value, PatchError> {
    let ty = kind("apps", "v1", "Deployment");
    patch::apply(PatchKind::Strategic, &ty, &deployment(), patch.to_string().as_bytes(), Validation::Strict)
        .map(|d| d.object)
}

fn names(value: &Value, pointer: &str, key: &str) -> Vec<Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(|l| l.iter().map(|i| i[key].clone()).collect())
        .unwrap_or_default()
}

const CONTAINERS: &str = "/spec/template/spec/containers";

fn containers(patch: Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": patch}}}})
}

#[test]
fn lists_merge_by_their_keys_and_new_items_come_first() {
    let patched = strategic(containers(json!([{"name": "two", "image": "b:2"}, {"name": "new", "image": "n:1"}])))
        .expect("merged");
    assert_eq!(names(&patched, CONTAINERS, "name"), ["one", "two", "new", "three"]);
    let patched = strategic(containers(json!([{"name": "new", "image": "n:1"}]))).expect("merged");
    assert_eq!(names(&patched, CONTAINERS, "name"), ["new", "one", "two", "three"]);
    let patched = strategic(containers(json!([{"name": "one", "args": ["z"],
        "ports": [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 53, "protocol": "UDP"}]}])))
    .expect("merged");
    assert_eq!(names(&patched, "/spec/template/spec/containers/0/ports", "containerPort"), [80, 53, 443]);
    assert_eq!(patched.pointer("/spec/template/spec/containers/0/args"), Some(&json!(["z"])));
}

#[test]
fn directives_are_carried_out() {
    let patched = strategic(containers(json!([{"name": "two", "$patch": "delete"}]))).expect("merged");
    assert_eq!(names(&patched, CONTAINERS, "name"), ["one", "three"]);
    let patched =
        strategic(containers(json!([{"name": "one", "env": [{"$patch": "replace"}, {"name": "Z"}]}]))).expect("merged");
    assert_eq!(names(&patched, "/spec/template/spec/containers/0/env", "name"), ["Z"]);
    let patched = strategic(json!({"metadata": {"labels": {"$patch": "replace", "only": "this"}}})).expect("merged");
    assert_eq!(patched["metadata"]["labels"], json!({"only": "this"}));
    let patched =
        strategic(json!({"spec": {"template": {"spec": {"nodeSelector": {"$patch": "delete"}}}}})).expect("merged");
    assert_eq!(patched.pointer("/spec/template/spec/nodeSelector"), None);
    let patched =
        strategic(json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/b"]}})).expect("merged");
    assert_eq!(patched["metadata"]["finalizers"], json!(["example.com/a", "example.com/c"]));
    let patched = strategic(json!({"metadata": {"finalizers": ["example.com/z"],
        "$setElementOrder/finalizers": ["example.com/z", "example.com/c", "example.com/a"]}}))
    .expect("merged");
    assert_eq!(
        patched["metadata"]["finalizers"],
        json!(["example.com/z", "example.com/b", "example.com/c", "example.com/a"])
    );
    let patched = strategic(json!({"spec": {"template": {"spec": {"$setElementOrder/containers":
        [{"name": "three"}, {"name": "new"}, {"name": "one"}], "containers": [{"name": "new", "image": "n:1"}]}}}}))
    .expect("merged");
    assert_eq!(names(&patched, CONTAINERS, "name"), ["two", "three", "new", "one"]);
    let patched =
        strategic(json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}})).expect("merged");
    assert_eq!(patched["spec"]["strategy"], json!({"type": "Recreate"}));
}

#[test]
fn refusals_have_upstreams_code_and_words() {
    for (patch, code, message) in [
        (
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "x", "rollingUpdate": {}}}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            containers(json!([{"name": "one", "$patch": "nonsense"}])),
            500,
            "unknown patch type: nonsense in map: map[$patch:nonsense name:one]",
        ),
        (
            containers(json!([{"image": "nokey"}])),
            500,
            "map: map[image:nokey] does not contain declared merge key: name",
        ),
        (
            containers(json!({"name": "c"})),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[spec:map[template:map[spec:map[containers:map[name:c]]]]]\": cannot restore slice from map",
        ),
        (
            json!({"other": 1}),
            422,
            " \"\" is invalid: patch: Invalid value: \"map[other:1]\": strict decoding error: unknown field \"other\"",
        ),
        (json!([1]), 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ] {
        let error = ApiError::from(strategic(patch).expect_err("refused"));
        assert_eq!((error.code(), &*error.0.message), (code, message));
    }
}

#[test]
fn other_patches_are_checked_against_the_type() {
    let ty = kind("apps", "v1", "Deployment");
    let apply = |kind, body: &str| {
        patch::apply(kind, &ty, &deployment(), body.as_bytes(), Validation::Warn).map_err(ApiError::from)
    };
    for (kind, body, code, message) in [
        (PatchKind::Merge, "{\"a\":", 400, "invalid JSON patch"),
        (PatchKind::Merge, "null", 400, "Invalid JSON Patch"),
        (
            PatchKind::Merge,
            "[{}]",
            400,
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            PatchKind::Json,
            "{}",
            400,
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            PatchKind::Json,
            r#"[{"op":"test","path":"/spec/replicas","value":7}]"#,
            422,
            "the server rejected our request due to an error in our request",
        ),
    ] {
        let error = apply(kind, body).expect_err("refused");
        assert_eq!((error.code(), &*error.0.message), (code, message));
    }
    let error = apply(PatchKind::Merge, r#"{"spec":{"replicas":"x"}}"#).expect_err("refused");
    assert!(error.0.message.starts_with(" \"\" is invalid: patch: Invalid value: "), "{error}");
    assert!(
        error
            .0
            .message
            .ends_with("cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32")
    );
    let warned = apply(PatchKind::Json, r#"[{"op":"add","path":"/zz","value":1}]"#).expect("patched");
    assert_eq!(warned.warnings, ["unknown field \"zz\""]);
}
