//! Evictions while the pod changes.

use std::sync::{Arc, OnceLock};

use ferry_admission::{Operation, Plugin, Request};
use ferry_meta::ApiError;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::Fixture;

/// Makes a pod ready as soon as somebody is about to delete it.
struct BecomesReady(Arc<OnceLock<kube::Client>>);

#[async_trait::async_trait]
impl Plugin for BecomesReady {
    fn name(&self) -> &'static str {
        "BecomesReady"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Delete
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if let (true, Some(client)) = (request.is("", "pods"), self.0.get()) {
            let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
            let pods: Api<Pod> = Api::namespaced(client.clone(), request.namespace);
            pods.patch_status(request.name, &PatchParams::default(), &Patch::Merge(&ready)).await.expect("patched");
        }
        Ok(())
    }
}

/// A pod that was free to go as it was pending is ready by the time it goes: then its budget is asked.
#[tokio::test]
async fn a_pod_that_becomes_ready_does_not_go_without_its_budget() {
    let client = Arc::new(OnceLock::new());
    let plugin = BecomesReady(client.clone());
    let fixture = Fixture::with(|config, _| config.admission.push(Arc::new(plugin))).await;
    let account = json!({"metadata": {"name": "default"}});
    fixture.json("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str| {
        json!({"metadata": {"name": name, "labels": {"app": "a"}},
               "spec": {"containers": [{"name": "c", "image": "i"}]}})
    };
    for name in ["late", "pending"] {
        let (code, made) = fixture.json("POST", pods, &pod(name)).await;
        assert_eq!(code, 201, "{made}");
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    assert_eq!(fixture.json("POST", budgets, &budget).await.0, 201);
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 0,
        "desiredHealthy": 1, "expectedPods": 1}});
    let path = format!("{budgets}/b/status");
    let (code, set) =
        fixture.call(&fixture.admin, "PATCH", &path, "application/merge-patch+json", status.to_string()).await;
    assert_eq!(code, 200, "{set}");

    let evict = async |name: &str, options: Value| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
                              "deleteOptions": options});
        fixture.json("POST", &format!("{pods}/{name}/eviction"), &eviction).await
    };
    // The version that a client names is that of the pod before it was marked.
    let (_, seen) = fixture.call(&fixture.admin, "GET", &format!("{pods}/pending"), "", "").await;
    let version = seen["metadata"]["resourceVersion"].clone();
    let (code, gone) = evict("pending", json!({"preconditions": {"resourceVersion": version}})).await;
    assert_eq!(code, 201, "{gone}");
    client.set(fixture.client()).map_err(drop).expect("once");
    let (code, refused) = evict("late", json!({})).await;
    assert_eq!(code, 429, "{refused}");
    assert_eq!(fixture.call(&fixture.admin, "GET", &format!("{pods}/late"), "", "").await.0, 200);
    fixture.stop().await;
}
