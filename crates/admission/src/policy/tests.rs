//! Policies at work, case by case.

use std::sync::Arc;

use ferry_auth::AlwaysDeny;
use ferry_meta::{ApiError, GroupResource};
use serde_json::{Value, json};

use super::*;
use crate::testing::{Case, Objects, SecondVersion};

fn kinds() -> Kinds {
    Arc::new(|kind| match kind.kind.as_str() {
        "ConfigMap" => Some((GroupResource::new("", "configmaps"), true)),
        _ => None,
    })
}

fn options() -> PolicyOptions {
    PolicyOptions { defaulter: None, kinds: kinds() }
}

/// A cluster with one policy of the spec given, bound as given.
fn cluster(kind: &str, spec: Value, binding: Value) -> Arc<Objects> {
    let objects = Objects::default();
    let group = "admissionregistration.k8s.io";
    let mut spec = spec;
    if spec.get("matchConstraints").is_none() {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]});
        spec["matchConstraints"] = json!({"resourceRules": [rule]});
    }
    let policy = json!({"metadata": {"name": "p", "uid": "1", "generation": 1}, "spec": spec});
    objects.put(group, &format!("{kind}admissionpolicies"), policy);
    let mut bound = json!({"policyName": "p", "validationActions": ["Deny"]});
    for (key, value) in binding.as_object().into_iter().flatten() {
        bound[key] = value.clone();
    }
    let binding = json!({"metadata": {"name": "b"}, "spec": bound});
    objects.put(group, &format!("{kind}admissionpolicybindings"), binding);
    objects.put("", "namespaces", json!({"metadata": {"name": "ns", "labels": {"env": "prod"}}}));
    objects.put("", "configmaps", json!({"metadata": {"name": "limits", "namespace": "ns"}, "data": {"max": "1"}}));
    Arc::new(objects)
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}, "data": {"a": "b"}})
}

async fn validated(spec: Value, binding: Value) -> Result<Vec<String>, ApiError> {
    let objects = cluster("validating", spec, binding);
    let plugin = ValidatingPolicies::new(objects, Arc::new(AlwaysDeny), &options());
    Case::create("", "configmaps", "ns", config_map("a")).validate(&plugin).await
}

/// Warnings, or the message of a refusal.
type Wanted = Result<Vec<&'static str>, String>;

#[tokio::test]
async fn validations_decide() {
    let refused = |message: &str| {
        Err(format!(
            "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {message}"
        ))
    };
    let one = |expression: &str| json!({"validations": [{"expression": expression}]});
    let cases: Vec<(Value, Value, Wanted)> = vec![
        (one("object.metadata.name == 'a'"), json!({}), Ok(vec![])),
        (one("object.metadata.name == 'b'"), json!({}), refused("failed expression: object.metadata.name == 'b'")),
        (
            json!({"validations": [{"expression": "false", "messageExpression": "'no ' + object.metadata.name"}]}),
            json!({}),
            refused("no a"),
        ),
        (
            json!({"validations": [{"expression": "false", "message": "m", "messageExpression": "object.nope"}]}),
            json!({}),
            refused("m"),
        ),
        (
            one("object.nope == 1"),
            json!({}),
            refused("expression 'object.nope == 1' resulted in error: no such key: nope"),
        ),
        (
            json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.nope == 1"}]}),
            json!({}),
            Ok(vec![]),
        ),
        (
            one("false"),
            json!({"validationActions": ["Warn"]}),
            Ok(vec!["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: false"]),
        ),
        (
            json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name != 'a'"}], "validations": [{"expression": "false"}]}),
            json!({}),
            Ok(vec![]),
        ),
        (
            json!({"variables": [{"name": "n", "expression": "size(object.data)"}, {"name": "few", "expression": "variables.n < 1"}],
                "validations": [{"expression": "variables.few", "message": "many"}]}),
            json!({}),
            refused("many"),
        ),
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "validations": [{"expression": "size(object.data) < int(params.data.max)", "messageExpression": "'at most ' + params.data.max"}]}),
            json!({"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}}),
            refused("at most 1"),
        ),
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "false"}]}),
            json!({"paramRef": {"name": "none", "parameterNotFoundAction": "Deny"}}),
            refused(
                "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
            ),
        ),
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "false"}]}),
            json!({"paramRef": {"name": "none", "parameterNotFoundAction": "Allow"}}),
            Ok(vec![]),
        ),
        (
            json!({"paramKind": {"apiVersion": "nope.io/v1", "kind": "Nope"}, "validations": [{"expression": "false"}]}),
            json!({"paramRef": {"name": "none", "parameterNotFoundAction": "Deny"}}),
            Err("configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'nope.io/v1, Kind=Nope'".to_owned()),
        ),
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "Nope"}, "validations": [{"expression": "false"}]}),
            json!({"paramRef": {"name": "none", "parameterNotFoundAction": "Deny"}}),
            Err("configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Nope'".to_owned()),
        ),
        (
            json!({"paramKind": {"apiVersion": "nope.io/v1", "kind": "Nope"}, "failurePolicy": "Ignore",
                "validations": [{"expression": "false"}]}),
            json!({"paramRef": {"name": "none", "parameterNotFoundAction": "Deny"}}),
            Ok(vec![]),
        ),
        (
            one("namespaceObject.metadata.labels['env'] != 'prod'"),
            json!({}),
            refused("failed expression: namespaceObject.metadata.labels['env'] != 'prod'"),
        ),
        (
            one("authorizer.group('').resource('pods').check('get').allowed()"),
            json!({}),
            refused("failed expression: authorizer.group('').resource('pods').check('get').allowed()"),
        ),
        (
            one("request.operation == 'CREATE' && request.userInfo.username == 'bob' && request.namespace == 'ns'"),
            json!({}),
            Ok(vec![]),
        ),
        (one("false"), json!({"matchResources": {"objectSelector": {"matchLabels": {"x": "y"}}}}), Ok(vec![])),
        (one("false"), json!({"matchResources": {"namespaceSelector": {"matchLabels": {"env": "dev"}}}}), Ok(vec![])),
        (
            one("false"),
            json!({"matchResources": {"excludeResourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"], "resourceNames": ["a"]}]}}),
            Ok(vec![]),
        ),
    ];
    for (spec, binding, wanted) in cases {
        let found = validated(spec.clone(), binding).await.map_err(|error| error.0.message);
        let found = found.as_ref().map(|warnings| warnings.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(found, wanted.as_ref().cloned(), "{spec}");
    }
}

#[tokio::test]
async fn reasons_have_their_codes() {
    for (reason, code) in [("Invalid", 422), ("Forbidden", 403), ("RequestEntityTooLarge", 413)] {
        let spec = json!({"validations": [{"expression": "false", "reason": reason}]});
        let error = validated(spec, json!({})).await.unwrap_err();
        assert_eq!((error.0.reason.as_str(), error.0.code), (reason, code));
    }
}

#[tokio::test]
async fn an_expression_without_end_is_ended() {
    let spec = json!({"validations": [{"expression": "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, a + b + c >= 0)))"}]});
    let error = validated(spec, json!({})).await.unwrap_err();
    assert!(error.0.message.ends_with("operation cancelled: actual cost limit exceeded"), "{}", error.0.message);
}

async fn mutated(spec: Value) -> Result<Value, String> {
    let objects = cluster("mutating", spec, json!({}));
    let plugin = MutatingPolicies::new(objects, Arc::new(AlwaysDeny), &options(), Vec::new());
    let case = Case::create("", "configmaps", "ns", config_map("a")).of_kind("ConfigMap");
    case.mutate(&plugin).await.map_err(|error| error.0.message)
}

#[tokio::test]
async fn mutations_change_objects() {
    let apply =
        |expression: &str| json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    let patch = |expression: &str| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let denied = |why: &str| Err(format!("policy 'p' with binding 'b' denied request: {why}"));
    let cases: Vec<(Vec<Value>, Result<Value, String>)> = vec![
        (
            vec![
                apply("Object{metadata: Object.metadata{labels: {'n': string(size(object.metadata.name))}}}"),
                apply("Object{data: {'seen': object.metadata.labels['n']}}"),
            ],
            Ok(json!({"labels": {"n": "1"}, "data": {"a": "b", "seen": "1"}})),
        ),
        (
            vec![patch(
                "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('x/y'), value: 'z'}, JSONPatch{op: 'remove', path: '/data/a'}]",
            )],
            Ok(json!({"labels": null, "data": {"x/y": "z"}})),
        ),
        (
            vec![patch(
                "[JSONPatch{op: 'test', path: '/data/a', value: 'other'}, JSONPatch{op: 'remove', path: '/data/a'}]",
            )],
            Ok(json!({"labels": null, "data": {"a": "b"}})),
        ),
        (vec![patch("[JSONPatch{op: 'odd', path: '/x'}]")], denied("JSON Patch: Unexpected kind: odd")),
        (
            vec![patch("[JSONPatch{op: 'replace', path: '/nope/x', value: 1}]")],
            denied("JSON Patch: replace operation does not apply: doc is missing path: /nope/x: missing value"),
        ),
        (
            vec![patch("[JSONPatch{op: 'add', path: '/nope/x', value: 1}]")],
            denied("JSON Patch: add operation does not apply: doc is missing path: \"/nope/x\": missing value"),
        ),
        (
            vec![patch("[JSONPatch{op: 'remove', path: '/data/x'}]")],
            denied(
                "JSON Patch: error in remove for path: '/data/x': Unable to remove nonexistent key: x: missing value",
            ),
        ),
        (
            vec![patch("[JSONPatch{op: 'move', from: '/data/x', path: '/data/y'}]")],
            denied("JSON Patch: error in move for path: 'x': Unable to remove nonexistent key: x: missing value"),
        ),
        (
            vec![patch("[JSONPatch{op: 'move', from: '/nope/x', path: '/data/y'}]")],
            denied("JSON Patch: move operation does not apply: doc is missing from path: /nope/x: missing value"),
        ),
        (
            vec![patch("[JSONPatch{op: 'copy', from: '/data/a', path: '/nope/y'}]")],
            denied(
                "JSON Patch: copy operation does not apply: doc is missing destination path: /nope/y: missing value",
            ),
        ),
        (
            vec![patch("[JSONPatch{op: 'replace', path: '', value: 1}]")],
            denied("JSON Patch: replace operation value must be object or array: %!w(<nil>)"),
        ),
        (
            vec![apply("Object{metadata: Object.spec{labels: {'n': 'm'}}}")],
            denied(
                "type mismatch: unexpected type name \"Object.spec\", expected \"Object.metadata\", which matches field name path from root Object type",
            ),
        ),
    ];
    for (mutations, wanted) in cases {
        let found = mutated(json!({"mutations": mutations, "reinvocationPolicy": "Never"})).await;
        let found = found.map(|object| json!({"labels": object["metadata"]["labels"], "data": object["data"]}));
        assert_eq!(found, wanted, "{mutations:?}");
    }
}

#[tokio::test]
async fn a_policy_that_asks_for_it_sees_its_own_change_again() {
    for (reinvocation, wanted) in [("Never", "b!"), ("IfNeeded", "b!!")] {
        let expression = "[JSONPatch{op: 'replace', path: '/data/a', value: object.data.a + '!'}]";
        let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
        let made =
            mutated(json!({"mutations": [mutation], "reinvocationPolicy": reinvocation})).await.expect("admitted");
        assert_eq!(made["data"], json!({"a": wanted}), "{reinvocation}");
    }
}

#[tokio::test]
async fn each_mutation_that_fails_is_a_cause() {
    let failing = |path: &str| {
        let expression = format!("[JSONPatch{{op: 'remove', path: '{path}'}}]");
        json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
    };
    let spec = json!({"mutations": [failing("/data/x"), failing("/data/y")], "reinvocationPolicy": "Never"});
    let plugin =
        MutatingPolicies::new(cluster("mutating", spec, json!({})), Arc::new(AlwaysDeny), &options(), Vec::new());
    let case = Case::create("", "configmaps", "ns", config_map("a")).of_kind("ConfigMap");
    let error = case.mutate(&plugin).await.expect_err("refused").0;
    let causes: Vec<String> =
        error.details.clone().expect("details").causes.into_iter().map(|cause| cause.message).collect();
    assert_eq!(causes.len(), 2, "{causes:?}");
    assert!(causes[0].contains("/data/x") && causes[1].contains("/data/y") && error.message == causes[0], "{causes:?}");
}

#[tokio::test]
async fn what_is_no_object_any_more_is_refused_whatever_the_policy_says() {
    for policy in ["Fail", "Ignore"] {
        for (operation, wanted) in [
            (
                "path: '/data/x', value: 1",
                "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            ),
            ("path: '/nope', value: 1", "strict decoding error: unknown field \"nope\""),
        ] {
            let expression = format!("[JSONPatch{{op: 'add', {operation}}}]");
            let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
            let spec = json!({"mutations": [mutation], "reinvocationPolicy": "Never", "failurePolicy": policy});
            assert_eq!(mutated(spec).await, Err(format!("Internal error occurred: {wanted}")), "{policy}");
        }
    }
}

#[tokio::test]
async fn variables_may_build_on_each_other_a_thousandfold() {
    let mut variables = vec![json!({"name": "v0", "expression": "1"})];
    let next =
        |number: usize| json!({"name": format!("v{number}"), "expression": format!("variables.v{} + 1", number - 1)});
    variables.extend((1..1000).map(next));
    let spec = |wanted: usize| {
        let expression = format!("variables.v999 == {wanted}");
        json!({"variables": variables, "validations": [{"expression": expression}]})
    };
    assert_eq!(validated(spec(1000), json!({})).await.ok(), Some(vec![]));
    assert!(validated(spec(1001), json!({})).await.is_err());
}

/// A policy for another version gets the object in that one, and what it changes comes back in the request's.
#[tokio::test]
async fn policies_see_the_version_that_they_name() {
    let constraints = |policy: &str| {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v2"], "operations": ["*"], "resources": ["configmaps"]});
        json!({"matchPolicy": policy, "resourceRules": [rule]})
    };
    let case = || {
        let case = Case::create("", "configmaps", "ns", config_map("a")).of_kind("ConfigMap");
        case.also_in(SecondVersion::new("ConfigMap"))
    };
    let expression = "has(object.content) && request.kind.version == 'v2' && request.requestKind.version == 'v1'";
    for (policy, expression, refused) in
        [("Equivalent", expression, false), ("Equivalent", "has(object.data)", true), ("Exact", "false", false)]
    {
        let spec = json!({"matchConstraints": constraints(policy), "validations": [{"expression": expression}]});
        let objects = cluster("validating", spec, json!({}));
        let plugin = ValidatingPolicies::new(objects, Arc::new(AlwaysDeny), &options());
        let outcome = case().validate(&plugin).await;
        assert_eq!(outcome.is_err(), refused, "{policy} {expression}: {outcome:?}");
    }
    for (policy, want) in [("Equivalent", json!({"a": "c"})), ("Exact", json!({"a": "b"}))] {
        let patch = "[JSONPatch{op: 'replace', path: '/content/a', value: 'c'}]";
        let spec = json!({"matchConstraints": constraints(policy), "reinvocationPolicy": "Never", "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]});
        let objects = cluster("mutating", spec, json!({}));
        let plugin = MutatingPolicies::new(objects, Arc::new(AlwaysDeny), &options(), Vec::new());
        let made = case().mutate(&plugin).await.expect("admitted");
        assert_eq!((&made["data"], &made["apiVersion"]), (&want, &json!("v1")), "{policy}");
    }
}
