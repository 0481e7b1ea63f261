//! What holds when a part of the process stands still.

use std::time::Duration;

use ferry_client::Api;
use ferry_testbed::{Kit, NAMESPACE, PATIENCE};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use serde_json::json;

async fn page(kit: &Kit, path: &str) -> (u16, String) {
    let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
    let answer = kit.client.send(request).await.unwrap();
    let code = answer.status().as_u16();
    (code, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

async fn until_alive(kit: &Kit, alive: bool) -> String {
    let look = async {
        loop {
            let (code, text) = page(kit, "/livez?verbose").await;
            if (code == 200) == alive {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stands_still_leaves_the_api_server_answering() {
    let kit = Kit::new().await;
    let node = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let tasks = kit.tasks.child_on("node", node.handle().clone());
    kit.tasks.watch_runtime("server", &tokio::runtime::Handle::current());
    kit.tasks.watch_runtime("node", node.handle());
    // A client of the node is served by the server's threads.
    let maps: Api<ConfigMap> = kit.api();
    let (own, map) = (maps.clone(), json!({ "metadata": { "name": "of-the-node", "namespace": NAMESPACE } }));
    let written = async move { own.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await };
    assert!(tasks.run("write", written).await.unwrap().is_ok());

    // As many pods as the node has workers, each of which waits for a file that never comes.
    let (files, waits): (Vec<_>, Vec<_>) = (0..2).map(|_| std::sync::mpsc::channel::<()>()).unzip();
    for wait in waits {
        tasks.spawn("pod worker", async move {
            let _ = wait.recv();
        });
    }
    let told = until_alive(&kit, false).await;
    assert!(told.contains("[-]runtime/node failed: reason withheld\n"), "{told}");
    assert!(told.contains("[+]runtime/server ok\n"), "{told}");
    assert!(!maps.list(&ListParams::default()).await.unwrap().items.is_empty());
    let (_, figures) = page(&kit, "/metrics").await;
    assert!(figures.contains("ferry_runtime_stalled_workers{runtime=\"node\"} 2\n"));
    assert!(figures.contains("ferry_runtime_stalled_workers{runtime=\"server\"} 0\n"));

    drop(files);
    until_alive(&kit, true).await;
    let (_, figures) = page(&kit, "/metrics").await;
    assert!(figures.contains("ferry_runtime_stalled_workers{runtime=\"node\"} 0\n"));
    assert!(figures.contains("ferry_runtime_stalls_total{runtime=\"node\"} 2\n"));
    assert!(kit.tasks.stop(PATIENCE).await);
    node.shutdown_background();
}
