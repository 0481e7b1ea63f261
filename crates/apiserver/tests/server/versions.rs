//! Rules for one version of a resource mean requests in the others too.

use std::sync::Arc;

use ferry_admission::{Chain, Dependencies, PolicyOptions};
use serde_json::{Value, json};

use crate::Fixture;
use crate::custom_resources::{is_established, until};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// Refuses what does not hold in this version of the resource.
async fn must_hold(fixture: &Fixture, name: &str, (group, version, resource): (&str, &str, &str), expression: &str) {
    let rule = json!({"apiGroups": [group], "apiVersions": [version], "operations": ["*"], "resources": [resource]});
    let policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]}});
    let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    for (resource, object) in [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
    {
        let (code, made) = fixture.json("POST", &format!("{REGISTRATION}/{resource}"), &object).await;
        assert_eq!(code, 201, "{made}");
    }
}

async fn check(fixture: &Fixture, path: &str, object: &Value, allowed: bool) {
    let (code, answer) = fixture.json("POST", path, object).await;
    assert_eq!(code, if allowed { 201 } else { 422 }, "{path}: {answer}");
}

#[tokio::test]
async fn policies_are_not_evaded_by_another_version() {
    let fixture = Fixture::with(|config, _| {
        let dependencies = Dependencies {
            reader: config.cache.clone(),
            authorizer: config.authorization.clone(),
            quotas: None,
            node_labels: None,
        };
        let policies = PolicyOptions { defaulter: None, kinds: Arc::new(|_| None) };
        config.admission = Chain::new(dependencies).with_policies(&policies).plugins().to_vec();
    })
    .await;
    let v2 = ("autoscaling", "v2", "horizontalpodautoscalers");
    must_hold(&fixture, "hpa", v2, "object.spec.metrics[0].resource.target.averageUtilization <= 50").await;
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    for (name, percent, allowed) in [("low", 40, true), ("high", 60, false)] {
        let scaler = json!({"metadata": {"name": name}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "maxReplicas": 3, "targetCPUUtilizationPercentage": percent}});
        check(&fixture, path, &scaler, allowed).await;
    }

    must_hold(&fixture, "events", ("events.k8s.io", "v1", "events"), "object.note != 'secret'").await;
    let path = "/api/v1/namespaces/default/events";
    for (name, message, allowed) in [("open", "plain", true), ("hidden", "secret", false)] {
        let about = json!({"kind": "Pod", "namespace": "default", "name": "p"});
        let event = json!({"metadata": {"name": name}, "involvedObject": about, "message": message, "reason": "R",
                           "type": "Normal"});
        check(&fixture, path, &event, allowed).await;
    }

    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}}})
    };
    let definition = json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [version("v1", true), version("v2", false)]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(fixture.json("POST", definitions, &definition).await.0, 201);
    until(&fixture, is_established).await;
    let expression = "object.apiVersion == 'example.com/v2' && object.spec.n < 5";
    must_hold(&fixture, "widgets", ("example.com", "v2", "widgets"), expression).await;
    for (name, n, allowed) in [("few", 4, true), ("many", 5, false)] {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
                            "spec": {"n": n}});
        check(&fixture, "/apis/example.com/v1/namespaces/default/widgets", &widget, allowed).await;
    }
    fixture.stop().await;
}
