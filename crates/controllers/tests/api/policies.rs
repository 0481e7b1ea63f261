//! The status of admission policies, through the API.

use ferry_client::Api;
use ferry_testbed::Kit;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

fn policy(name: &str, group: &str, resources: &[&str], rest: Value) -> Value {
    let rules =
        json!([{ "apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": resources }]);
    let mut policy =
        json!({ "metadata": { "name": name }, "spec": { "matchConstraints": { "resourceRules": rules } } });
    if let (Some(spec), Value::Object(rest)) = (policy["spec"].as_object_mut(), rest) {
        spec.extend(rest);
    }
    policy
}

/// The warnings once the policy's present generation was looked at.
async fn warnings(
    kit: &Kit,
    policies: &Api<ValidatingAdmissionPolicy>,
    name: &str,
    generation: i64,
) -> Vec<(String, String)> {
    let seen = kit
        .until(policies.clone(), "a checked policy", |all| {
            all.iter().any(|policy| {
                policy.metadata.name.as_deref() == Some(name)
                    && policy.status.as_ref().and_then(|status| status.observed_generation) == Some(generation)
            })
        })
        .await;
    let policy = seen.iter().find(|policy| policy.metadata.name.as_deref() == Some(name)).unwrap();
    // An apply that takes the last warning away takes the emptied object with it.
    let checking = policy.status.as_ref().and_then(|status| status.type_checking.clone());
    let found = checking.and_then(|checking| checking.expression_warnings).unwrap_or_default();
    found.into_iter().map(|warning| (warning.field_ref, warning.warning)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_warned_of_expressions_that_do_not_fit_their_kinds() {
    let kit = Kit::new().await;
    let definition = json!({
        "metadata": { "name": "widgets.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "properties": { "spec": { "type": "object", "properties": {
                    "size": { "type": "integer" }, "port": { "x-kubernetes-int-or-string": true },
                } } },
            } } }],
        },
    });
    let definitions: Api<CustomResourceDefinition> = Api::all(kit.client.clone());
    kit.create_in(definitions.clone(), definition).await;
    kit.until(definitions, "a served definition", |all| {
        let conditions = all.iter().filter_map(|one| one.status.as_ref()?.conditions.as_ref()).flatten();
        conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    })
    .await;
    kit.controllers(kit.config());
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(kit.client.clone());

    // Nothing to say of what fits, nor of what may be anything.
    let fine = policy(
        "fine",
        "apps",
        &["deployments"],
        json!({
            "variables": [{ "name": "wanted", "expression": "object.spec.replicas" }],
            "validations": [
                { "expression": "variables.wanted > 1 && object.metadata.name.startsWith('a')" },
                { "expression": "object.spec.template.spec.containers.all(c, c.image != '')", "messageExpression": "'no ' + object.kind" },
            ],
        }),
    );
    kit.create_in(policies.clone(), fine).await;
    assert_eq!(warnings(&kit, &policies, "fine", 1).await, []);

    let wrong = policy(
        "wrong",
        "apps",
        &["deployments", "replicasets"],
        json!({
            "validations": [{ "expression": "object.replicas > 1", "messageExpression": "string(object.metadata.nme)" }],
        }),
    );
    kit.create_in(policies.clone(), wrong).await;
    let text = |kind: &str, at: usize, what: &str, text: &str| {
        format!(
            "apps/v1, Kind={kind}: ERROR: <input>:1:{at}: undefined field '{what}'\n | {text}\n | {}^\n",
            ".".repeat(at - 1)
        )
    };
    let both = |at, what, expression| {
        format!("{}\n{}", text("Deployment", at, what, expression), text("ReplicaSet", at, what, expression))
    };
    let wanted = vec![
        ("spec.validations[0].expression".to_owned(), both(7, "replicas", "object.replicas > 1")),
        ("spec.validations[0].messageExpression".to_owned(), both(23, "nme", "string(object.metadata.nme)")),
    ];
    assert_eq!(warnings(&kit, &policies, "wrong", 1).await, wanted);

    // What is corrected is looked at anew.
    let corrected = json!({ "spec": { "validations": [{ "expression": "object.spec.replicas > 1" }] } });
    policies.patch("wrong", &PatchParams::default(), &Patch::Merge(&corrected)).await.unwrap();
    assert_eq!(warnings(&kit, &policies, "wrong", 2).await, []);

    // Custom resources, as objects and as parameters.
    let custom = policy(
        "custom",
        "example.com",
        &["widgets"],
        json!({
            "paramKind": { "apiVersion": "example.com/v1", "kind": "Widget" },
            "validations": [
                { "expression": "object.spec.size < params.spec.size && object.spec.port == 80" },
                { "expression": "object.spec.size == 'big'" },
                { "expression": "params.spec.colour == 'red'" },
            ],
        }),
    );
    kit.create_in(policies.clone(), custom).await;
    let found = warnings(&kit, &policies, "custom", 1).await;
    let found: Vec<(&str, &str)> =
        found.iter().map(|(field, text)| (field.as_str(), text.lines().next().unwrap_or_default())).collect();
    assert_eq!(
        found,
        [
            (
                "spec.validations[1].expression",
                "example.com/v1, Kind=Widget: ERROR: <input>:1:18: found no matching overload for '_==_' applied to '(int, string)'",
            ),
            (
                "spec.validations[2].expression",
                "example.com/v1, Kind=Widget: ERROR: <input>:1:12: undefined field 'colour'",
            ),
        ]
    );
    kit.stop().await;
}
