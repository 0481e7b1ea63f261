//! Tokens that sign what joining nodes read, and that end.

use std::sync::Arc;

use ferry_client::Api;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;

use super::Kit;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_sign_what_joining_nodes_read_until_they_end() {
    let kit = Kit::new().await;
    kit.controllers(kit.config());
    let public: Api<Namespace> = Api::all(kit.client.clone());
    let _ = public
        .create(
            &PostParams::default(),
            &serde_json::from_value(json!({ "metadata": { "name": "kube-public" } })).unwrap(),
        )
        .await;
    let maps: Api<ConfigMap> = Api::namespaced(kit.client.clone(), "kube-public");
    let info = json!({ "metadata": { "name": "cluster-info" }, "data": { "kubeconfig": "how to reach it" } });
    kit.create_in(maps.clone(), info).await;
    let secrets: Api<Secret> = Api::namespaced(kit.client.clone(), "kube-system");
    let token = |id: &str, ends: Timestamp| {
        json!({ "metadata": { "name": format!("bootstrap-token-{id}") }, "type": "bootstrap.kubernetes.io/token", "stringData": {
            "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true", "expiration": ends.to_string(),
        } })
    };
    let in_seconds = |seconds: i64| Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap();
    kit.create_in(secrets.clone(), token("aaaaaa", in_seconds(3600))).await;
    let signatures = |map: &ConfigMap| {
        let keys = map.data.iter().flatten().filter_map(|(key, _)| key.strip_prefix("jws-kubeconfig-"));
        keys.map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |all: &[Arc<ConfigMap>], wanted: &[&str]| {
        all.iter().any(|map| map.name_any() == "cluster-info" && signatures(map) == wanted)
    };
    kit.until(maps.clone(), "a signature", |all| has(all, &["aaaaaa"])).await;
    // One that ends soon signs as long as it lives.
    kit.create_in(secrets.clone(), token("bbbbbb", in_seconds(3))).await;
    kit.until(secrets.clone(), "no second token", |all| {
        all.iter().all(|one| one.name_any() != "bootstrap-token-bbbbbb")
    })
    .await;
    kit.until(maps.clone(), "one signature", |all| has(all, &["aaaaaa"])).await;
    secrets.delete("bootstrap-token-aaaaaa", &Default::default()).await.unwrap();
    kit.until(maps, "no signature", |all| has(all, &[])).await;
    kit.stop().await;
}
