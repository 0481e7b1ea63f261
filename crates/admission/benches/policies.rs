//! What 20 policies on pods add to a write, as a JSON line: `cargo bench -p ferry-admission --bench policies`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use ferry_admission::{Chain, Dependencies, Operation, PolicyOptions, Request};
use ferry_auth::AlwaysDeny;
use ferry_auth::testing::Objects;
use ferry_meta::{GroupVersionKind, GroupVersionResource, UserInfo};
use serde_json::{Value, json};

const POLICIES: usize = 20;
const ROUNDS: u32 = 5000;
const GROUP: &str = "admissionregistration.k8s.io";

fn policy(number: usize) -> Value {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]});
    json!({"metadata": {"name": format!("p{number}"), "uid": format!("{number}"), "generation": 1}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "c", "expression": "request.userInfo.username != 'system:node'"}],
        "variables": [{"name": "containers", "expression": "object.spec.containers + object.spec.?initContainers.orValue([])"}],
        "validations": [
            {"expression": "variables.containers.all(c, c.image.startsWith('registry.example.com/') && !c.image.endsWith(':latest'))"},
            {"expression": "variables.containers.all(c, has(c.resources.limits) && quantity(c.resources.limits.memory).isLessThan(quantity('4Gi')))"},
            {"expression": "has(object.metadata.labels) && 'team' in object.metadata.labels && object.metadata.labels['team'].matches('^[a-z]+$')"},
        ],
    }})
}

fn pod() -> Value {
    let container = |number: usize| {
        json!({"name": format!("c{number}"), "image": "registry.example.com/app:1.2", "resources": {"limits": {"memory": "1Gi", "cpu": "1"}},
            "env": [{"name": "A", "value": "b"}], "ports": [{"containerPort": 80}]})
    };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns", "labels": {"team": "blue", "app": "x"}},
        "spec": {"containers": [container(0), container(1), container(2)], "nodeSelector": {"a": "b"}}})
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let objects = Objects::default();
    objects.put("", "namespaces", json!({"metadata": {"name": "ns", "labels": {"env": "prod"}}}));
    for number in 0..POLICIES {
        objects.put(GROUP, "validatingadmissionpolicies", policy(number));
        let binding = json!({"metadata": {"name": format!("b{number}")}, "spec": {"policyName": format!("p{number}"), "validationActions": ["Deny"]}});
        objects.put(GROUP, "validatingadmissionpolicybindings", binding);
    }
    let chain = Chain::new(Dependencies {
        reader: Arc::new(objects),
        authorizer: Arc::new(AlwaysDeny),
        quotas: None,
        node_labels: None,
    })
    .with_policies(&PolicyOptions { defaulter: None, kinds: Arc::new(|_| None) });
    let Some(plugin) = chain.plugins().iter().find(|plugin| plugin.name() == "ValidatingAdmissionPolicy") else {
        return;
    };
    let (kind, resource) = (GroupVersionKind::new("", "v1", "Pod"), GroupVersionResource::new("", "v1", "pods"));
    let (user, options) = (UserInfo::new("bob", &["devs"]), json!({}));
    let mut pod = pod();
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        let mut request = Request {
            operation: Operation::Create,
            kind: &kind,
            resource: &resource,
            subresource: "",
            namespace: "ns",
            name: "a",
            user: &user,
            dry_run: false,
            object: Some(&mut pod),
            old: None,
            options: &options,
            warnings: Vec::new(),
            annotations: Vec::new(),
            reinvoked: false,
            calls: Vec::new(),
            equivalents: None,
            requested: None,
        };
        if let Err(error) = black_box(plugin.validate(&mut request).await) {
            println!("{}", json!({"what": "policies", "error": error.0.message}));
            return;
        }
    }
    let micros = begin.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
    let text = format!("{micros:.1}");
    println!("{{\"what\":\"{POLICIES} policies of 3 validations on a pod\",\"us\":{text}}}");
}
