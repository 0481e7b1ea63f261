//! `metrics.k8s.io` of the server itself, and how it gives way to another.

use std::time::Duration;

use serde_json::{Value, json};

use crate::Fixture;

const GROUP: &str = "/apis/metrics.k8s.io";
const NODES: &str = "/apis/metrics.k8s.io/v1beta1/nodes";
const PODS: &str = "/apis/metrics.k8s.io/v1/namespaces/default/pods";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

fn versions(group: &Value) -> Vec<&str> {
    group["versions"].as_array().into_iter().flatten().filter_map(|v| v["version"].as_str()).collect()
}

impl Fixture {
    /// The versions of the group, once they are these.
    async fn served(&self, wanted: &[&str]) {
        loop {
            let (_, group) = self.json("GET", GROUP, &json!({})).await;
            if versions(&group) == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn a_server_without_resource_metrics_leaves_the_group_to_others() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.json("GET", GROUP, &json!({})).await.0, 404);
    assert_eq!(fixture.json("GET", NODES, &json!({})).await.0, 404);
    fixture.stop().await;
}

#[tokio::test]
async fn resource_metrics_are_served_as_any_resource() {
    let fixture = Fixture::with(|config, _| config.resource_metrics = true).await;
    fixture.served(&["v1", "v1beta1"]).await;
    let (code, list) = fixture.json("GET", NODES, &json!({})).await;
    assert_eq!((code, &list["kind"], &list["items"]), (200, &json!("NodeMetricsList"), &json!([])), "{list}");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    assert_eq!(fixture.json("POST", "/api/v1/nodes", &node).await.0, 201);
    // A node whose kubelet says nothing has no metrics; it is not one without usage.
    let (code, missing) = fixture.json("GET", &format!("{NODES}/n"), &json!({})).await;
    assert_eq!((code, &missing["message"]), (404, &json!("nodes.metrics.k8s.io \"n\" not found")));
    assert_eq!(fixture.json("GET", NODES, &json!({})).await.1["items"], json!([]));
    assert_eq!(fixture.json("DELETE", &format!("{NODES}/n"), &json!({})).await.0, 405);
    assert_eq!(fixture.json("GET", &format!("{NODES}?fieldSelector=spec.x%3Dy"), &json!({})).await.0, 400);

    // Rights are asked for as for anything else, and come with those of the namespace.
    let ask = || fixture.call(&fixture.bob, "GET", PODS, "application/json", "");
    assert_eq!(ask().await.0, 403);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "view"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "ferry:resource-metrics-reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    assert_eq!(fixture.json("POST", path, &binding).await.0, 201);
    let (code, list) = ask().await;
    assert_eq!((code, &list["kind"]), (200, &json!("PodMetricsList")), "{list}");

    let (code, document) = fixture.json("GET", "/openapi/v3/apis/metrics.k8s.io/v1beta1", &json!({})).await;
    let schema = &document["components"]["schemas"]["io.k8s.metrics.pkg.apis.metrics.v1beta1.NodeMetrics"];
    assert_eq!(code, 200);
    assert!(schema["properties"]["usage"].is_object(), "{schema}");
    fixture.stop().await;
}

#[tokio::test]
async fn another_server_of_the_group_comes_first() {
    let fixture = Fixture::with(|config, _| config.resource_metrics = true).await;
    fixture.served(&["v1", "v1beta1"]).await;
    let name = "v1beta1.metrics.k8s.io";
    assert_eq!(
        fixture.json("GET", &format!("{API_SERVICES}/{name}"), &json!({})).await.0,
        404,
        "nothing is in its way"
    );
    let registration = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name},
        "spec": {
            "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"namespace": "kube-system", "name": "metrics-server"}, "insecureSkipTLSVerify": true,
        },
    });
    assert_eq!(fixture.json("POST", API_SERVICES, &registration).await.0, 201);
    fixture.served(&["v1beta1"]).await;
    assert_eq!(fixture.json("GET", NODES, &json!({})).await.0, 503, "the other one is not there yet");
    assert_eq!(fixture.json("GET", PODS, &json!({})).await.0, 404);
    assert_eq!(fixture.json("DELETE", &format!("{API_SERVICES}/{name}"), &json!({})).await.0, 200);
    fixture.served(&["v1", "v1beta1"]).await;
    assert_eq!(fixture.json("GET", NODES, &json!({})).await.0, 200);
    fixture.stop().await;
}
