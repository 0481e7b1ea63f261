//! Turns of requests, through the pipeline.

use ferry_apiserver::{Body, Peer};
use ferry_fairness::{Count, Fairness, FlowControl};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::Fixture;

async fn ask(fixture: &Fixture, token: &str, path: &str) -> Response<Body> {
    let body: Body = Full::default().map_err(|never| match never {}).boxed_unsync();
    let request = Request::builder().uri(path).header("authorization", format!("Bearer {token}"));
    fixture.server.handle(request.body(body).expect("a request"), Peer::default()).await
}

async fn fair() -> Fixture {
    Fixture::with(|config, _| {
        config.flow_control = Some(FlowControl::Fair(Fairness::new(config.cache.clone(), 600)));
    })
    .await
}

const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

#[tokio::test]
async fn answers_name_the_schema_and_the_level() {
    let fixture = fair().await;
    let uid = async |path: &str| -> String {
        let (code, object) = fixture.json("GET", &format!("{FLOW}/{path}"), &Value::Null).await;
        assert_eq!(code, 200, "{object}");
        object["metadata"]["uid"].as_str().expect("a uid").to_owned()
    };
    for (token, path, schema, level) in [
        (&fixture.admin, "/api/v1/pods", "exempt", "exempt"),
        (&fixture.bob, "/healthz", "probes", "exempt"),
        (&fixture.bob, "/api/v1/pods", "global-default", "global-default"),
    ] {
        let response = ask(&fixture, token, path).await;
        let header = |name: &str| response.headers()[name].to_str().expect("text").to_owned();
        assert_eq!(header("x-kubernetes-pf-flowschema-uid"), uid(&format!("flowschemas/{schema}")).await, "{path}");
        let want = uid(&format!("prioritylevelconfigurations/{level}")).await;
        assert_eq!(header("x-kubernetes-pf-prioritylevel-uid"), want, "{path}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn who_finds_no_room_is_told_when_to_come_again() {
    let fixture = Fixture::with(|config, _| {
        config.flow_control = Some(FlowControl::InFlight { reading: Count::new(1), mutating: Count::new(1) });
    })
    .await;
    // Nothing runs beside it: there is room.
    assert_eq!(ask(&fixture, &fixture.bob, "/api/v1/pods").await.status(), 403);
    fixture.stop().await;

    let fixture = fair().await;
    // A level without seats holds everyone up: a jail, as upstream calls it.
    let jail = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": {"name": "jail"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"},
        }},
    });
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "bob"},
        "spec": {
            "matchingPrecedence": 10, "priorityLevelConfiguration": {"name": "jail"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "bob"}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
            }],
        },
    });
    assert_eq!(fixture.json("POST", &format!("{FLOW}/flowschemas"), &schema).await.0, 201);
    // Its level is not there yet: it says so, and does not count.
    assert_eq!(ask(&fixture, &fixture.bob, "/api/v1/pods").await.status(), 403);
    dangling(&fixture, "True").await;
    let (code, made) = fixture.json("POST", &format!("{FLOW}/prioritylevelconfigurations"), &jail).await;
    assert_eq!(code, 201, "{made}");
    dangling(&fixture, "False").await;
    let response = ask(&fixture, &fixture.bob, "/api/v1/pods").await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (429, &"1".parse().expect("a header"))
    );
    let text = response.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(text, "Too many requests, please try again later.\n");
    // Nobody else is held up.
    assert_eq!(fixture.json("GET", "/api/v1/pods", &Value::Null).await.0, 200);
    fixture.stop().await;
}

/// Waits until the schema's status says this.
async fn dangling(fixture: &Fixture, want: &str) {
    loop {
        let (_, schema) = fixture.json("GET", &format!("{FLOW}/flowschemas/bob"), &Value::Null).await;
        if schema.pointer("/status/conditions/0/status").and_then(Value::as_str) == Some(want) {
            return;
        }
        tokio::task::yield_now().await;
    }
}
