//! What the flight recorder tells of a rollout, and what `ferry why` says of one that is stuck.

use ferry_client::Api;
use ferry_insight::{Cluster, trace, why};
use ferry_meta::UserInfo;
use ferry_testbed::{Kit, NAMESPACE, deployment, is_ready};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, ResourceQuota, Secret, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Client;
use serde_json::{Value, json};

async fn get(client: &Client, path: &str) -> Result<Value, u16> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.map_err(|error| match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    })
}

async fn why_of(kit: &Kit, kind: &str, name: &str) -> String {
    let cluster = Cluster::new(kit.client.clone());
    let resource = cluster.resolve(kind).await.unwrap();
    let world = why::look(&cluster, &resource, NAMESPACE, name).await.unwrap();
    why::render(&world, &why::findings(&world))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_is_told_hop_by_hop() {
    let kit = Kit::cluster(2).await;
    let service =
        json!({ "metadata": { "name": "web" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } });
    kit.create::<Service>(service).await;
    kit.create::<Deployment>(deployment("web", 3, "v1")).await;
    let cluster = Cluster::new(kit.client.clone());
    let resource = cluster.resolve("deploy").await.unwrap();
    let mut looks = 0;
    let mut ready = false;
    let follow = trace::follow(&cluster, &resource, NAMESPACE, "web", ferry_testbed::PATIENCE, |story, trace| {
        looks += 1;
        ready = trace::state(story, trace) == trace::State::Done;
        true
    });
    follow.await.unwrap();
    assert!(ready && looks > 0);

    let story = trace::read(&cluster, &resource, NAMESPACE, "web").await.unwrap();
    let hops = trace::hops(&story);
    let told = trace::lines(&hops).join("\n");
    assert!(hops.finished && hops.hops.iter().all(|hop| hop.exact), "{told}");
    let numbers: Vec<u8> = hops.hops.iter().map(|hop| hop.number).collect();
    assert!(numbers.starts_with(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 11]) && numbers.ends_with(&[12, 12]), "{told}");
    assert!(numbers.is_sorted() && hops.hops.is_sorted_by_key(|hop| hop.at), "{told}");
    for text in [
        "create deployment.apps/web",
        "controller: ReplicaSet web-",
        "controller: Pod web-",
        "scheduler binds",
        "service web",
    ] {
        assert!(told.contains(text), "{text}: {told}");
    }
    assert_eq!(why_of(&kit, "deployments", "web").await, "deployment/web in test: nothing holds it up\n");

    // Who wrote what, in order; renewals of leases are not among it.
    let flight =
        get(&kit.client, &format!("/debug/flight/apis/apps/v1/namespaces/{NAMESPACE}/deployments/web")).await.unwrap();
    let writes = flight["writes"].as_array().unwrap();
    assert_eq!((&writes[0]["verb"], &writes[0]["user"]), (&json!("create"), &json!("admin")));
    assert!(writes[0]["stages"]["commit"].as_u64() > Some(0), "{}", writes[0]);
    assert!(writes[1..].iter().all(|write| write["user"] == "system:serviceaccount:kube-system:deployment-controller"));
    let counts = |write: &Value| {
        write["changes"].as_array().is_some_and(|all| all.iter().any(|c| c["name"] == "readyReplicas" && c["to"] == 3))
    };
    assert!(writes.iter().any(counts), "{flight}");
    let lease = "/debug/flight/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/simulated-0";
    assert_eq!(get(&kit.client, lease).await.unwrap()["writes"], json!([]));
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recorder_answers_those_who_may_read_the_object() {
    let kit = Kit::new().await;
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "password": "swordfish" } });
    kit.create::<Secret>(secret).await;
    let path = format!("/debug/flight/api/v1/namespaces/{NAMESPACE}/secrets/s");
    let told = get(&kit.client, &path).await.unwrap();
    assert_eq!(told["writes"].as_array().map(Vec::len), Some(1));
    assert!(!told.to_string().contains("swordfish") && !told.to_string().contains("c3dvcmRmaXNo"), "{told}");

    let user = kit.door.client(UserInfo::new("curious", &["system:authenticated"]));
    assert_eq!(get(&user, &path).await, Err(403));
    let rules = json!([{ "nonResourceURLs": ["/debug/flight/*"], "verbs": ["get"] }]);
    kit.create_in(
        Api::<ClusterRole>::all(kit.client.clone()),
        json!({ "metadata": { "name": "flight" }, "rules": rules }),
    )
    .await;
    let binding = json!({
        "metadata": { "name": "flight" }, "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "flight" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "curious" }],
    });
    kit.create_in(Api::<ClusterRoleBinding>::all(kit.client.clone()), binding).await;
    // The path alone is not enough: the Secret itself must be readable, too.
    assert_eq!(get(&user, &path).await, Err(403));
    assert_eq!(get(&user, &format!("/debug/flight/api/v1/namespaces/{NAMESPACE}/nothing/s")).await, Err(404));
    let known = get(&kit.client, "/debug/flight").await.unwrap();
    assert!(known["bytes"].as_u64() <= known["budget"].as_u64() && known["writes"].as_u64() > Some(10), "{known}");
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stuck_says_where_and_why() {
    let kit = Kit::cluster(2).await;
    let mut greedy = deployment("greedy", 2, "v1");
    greedy["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "999" } });
    kit.create::<Deployment>(greedy).await;
    kit.until(kit.api::<Event>(), "two refusals", |all| {
        all.iter().filter(|event| event.reason.as_deref() == Some("FailedScheduling")).count() >= 2
    })
    .await;
    let told = why_of(&kit, "deploy", "greedy").await;
    for text in ["stuck at  scheduler", "and 1 more like it", "2 nodes (", "Insufficient cpu", "the pod asks for 999"] {
        assert!(told.contains(text), "{text}: {told}");
    }
    let quota = json!({ "metadata": { "name": "small" }, "spec": { "hard": { "pods": "2" } } });
    kit.create::<ResourceQuota>(quota).await;
    kit.until(kit.api::<ResourceQuota>(), "usage", |all| {
        all.iter().any(|quota| quota.status.as_ref().is_some_and(|s| s.used.is_some()))
    })
    .await;
    kit.create::<Deployment>(deployment("many", 1, "v1")).await;
    kit.until(kit.api::<Deployment>(), "the refusal", |all| {
        let conditions = |d: &Deployment| d.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        all.iter().any(|d| conditions(d).iter().any(|c| c.type_.as_deref() == Some("ReplicaFailure")))
    })
    .await;
    let told = why_of(&kit, "deploy", "many").await;
    assert!(told.contains("stuck at  admission") && told.contains("exceeded quota: small"), "{told}");
    kit.until_pods("none ready", |pods| pods.iter().all(|pod| !is_ready(pod))).await;
    kit.stop().await;
}
