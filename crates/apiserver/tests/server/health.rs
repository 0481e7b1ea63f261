//! What health checks say, by the tree of tasks.

use std::time::Duration;

use serde_json::Value;

use super::Fixture;

#[tokio::test]
async fn a_task_that_is_gone_is_named() {
    let fixture = Fixture::new().await;
    let get = async |path: &str| {
        let (code, text) = fixture.call(&fixture.admin, "GET", path, "", "").await;
        let Value::String(text) = text else { panic!("{path}: {text}") };
        (code, text)
    };
    assert_eq!(get("/livez").await, (200, "ok".to_owned()));
    let (_, all) = get("/livez?verbose").await;
    for name in ["test/watch-cache", "apiserver/custom-resource-definitions", "apiserver/aggregation"] {
        assert!(all.contains(&format!("[+]task/{name} ok\n")), "{all}");
    }

    let elsewhere = fixture.tasks.child("node");
    elsewhere.spawn_critical_once("falls here", async { panic!("on purpose") });
    elsewhere.spawn_critical_once("stays here", std::future::pending());
    while get("/livez").await.0 == 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for root in ["livez", "healthz"] {
        let (code, text) = get(&format!("/{root}")).await;
        assert_eq!(code, 500);
        assert!(text.contains("[-]task/node/falls-here failed: reason withheld\n"), "{text}");
        assert!(text.contains("[+]task/node/stays-here ok\n"), "{text}");
        assert!(text.ends_with(&format!("{root} check failed\n")), "{text}");
    }
    let one = get("/livez/task/node/falls-here").await;
    assert_eq!(one, (500, "internal server error: it panicked: on purpose\n".to_owned()));
    assert_eq!(get("/livez/task/node/stays-here").await.0, 200);
    assert_eq!(get("/livez/task/node/unknown").await.0, 404);
    assert_eq!(get("/livez?exclude=task/node/falls-here").await.0, 200);
    assert_eq!(get("/readyz").await.0, 200, "requests can be served");
    let (_, figures) = get("/metrics/slis").await;
    assert!(figures.contains("kubernetes_healthcheck{name=\"task/node/falls-here\",type=\"livez\"} 0\n"), "{figures}");
    fixture.stop().await;
}
