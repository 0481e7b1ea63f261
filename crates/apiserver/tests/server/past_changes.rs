//! What writes changed is told after the objects are gone, to those who may read the object; and the recorder's writes in pages.

use std::sync::Arc;
use std::time::Duration;

use ferry_store::Store;
use serde_json::{Value, json};

use super::Fixture;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The writes of an object, newest first, once so many are told with what they changed.
async fn history(fixture: &Fixture, path: &str, count: usize) -> Vec<Value> {
    let found = async {
        loop {
            let (code, answer) = fixture.json("GET", &format!("/console/history{path}"), &Value::Null).await;
            assert_eq!(code, 200, "{answer}");
            let writes = answer["writes"].as_array().cloned().unwrap_or_default();
            if writes.iter().filter(|write| write["differences"].is_array()).count() == count {
                return writes;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect("what writes changed is told")
}

#[tokio::test]
async fn what_a_write_changed_outlasts_the_object() {
    let fixture = Fixture::new().await;
    let one = format!("{MAPS}/one");
    for (method, path, body) in [
        ("POST", MAPS, json!({"metadata": {"name": "one"}, "data": {"a": "<b>1</b>", "c": "d"}})),
        ("PUT", &one, json!({"metadata": {"name": "one"}, "data": {"a": "2", "c": "d"}})),
        ("DELETE", &one, json!({})),
        (
            "POST",
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "one"}, "stringData": {"a": "hidden"}}),
        ),
    ] {
        let (code, answer) = fixture.json(method, path, &body).await;
        assert!((200..300).contains(&code), "{answer}");
    }
    let writes = history(&fixture, &one, 3).await;
    let told = |at: usize| writes[at]["differences"].as_array().cloned().unwrap_or_default();
    assert_eq!(told(1), [json!({"path": "data.a", "before": "\"<b>1</b>\"", "after": "\"2\""})]);
    assert!(told(2).contains(&json!({"path": "data.c", "after": "\"d\""})), "{writes:?}");
    assert_eq!((&writes[0]["removed"], &writes[2]["created"]), (&json!(true), &json!(true)));
    assert!(writes.iter().all(|write| write["user"] == "admin" && write["revision"].is_u64()), "{writes:?}");

    // Of a Secret only that it was written.
    let writes = history(&fixture, "/api/v1/namespaces/default/secrets/one", 0).await;
    assert_eq!((writes.len(), json!(writes).to_string().contains("hidden")), (1, false));
    let (_, summary) = fixture.json("GET", "/debug/flight", &Value::Null).await;
    let past = &summary["pastChanges"];
    assert!(past["bytes"].as_u64() < past["budget"].as_u64() && past["count"].as_u64() >= Some(3), "{summary}");
    fixture.stop().await;
}

#[tokio::test]
async fn the_writes_are_told_in_pages_to_those_who_may_see_them() {
    let mut store: Option<Arc<dyn Store>> = None;
    let fixture = Fixture::with(|config, _| store = Some(config.cache.store().clone())).await;
    for number in 0..20 {
        let map = json!({"metadata": {"name": format!("m{number}")}});
        assert_eq!(fixture.json("POST", MAPS, &map).await.0, 201);
    }
    let ask = async |query: &str| fixture.json("GET", &format!("/console/writes{query}"), &Value::Null).await.1;
    let names = |page: &Value| -> Vec<Value> {
        page["writes"].as_array().into_iter().flatten().map(|write| write["object"]["name"].clone()).collect()
    };
    let all = ask("").await;
    let (first, next) = (all["first"].as_u64().expect("a number"), all["next"].as_u64().expect("a number"));
    assert!(next - first >= 20 && all["storedSince"] == 1, "{all}");
    let page = ask(&format!("?from={}&most=3", next - 20)).await;
    assert_eq!(names(&page), ["m0", "m1", "m2"]);
    assert_eq!(page["writes"][1]["number"], next - 19);
    for (query, want) in
        [(format!("?from={next}"), 0), ("?from=18446744073709551615".into(), 0), ("?most=100000".into(), 20)]
    {
        assert!(names(&ask(&query).await).len() >= want, "{query}");
    }
    let revision = page["writes"][2]["revision"].as_u64().expect("a revision");
    store.expect("a store").compact(revision).await.expect("compacted");
    assert_eq!(ask("").await["storedSince"], revision);

    let (code, answer) = fixture.call(&fixture.bob, "GET", "/console/writes", "", "").await;
    assert!(code == 403 && answer["message"].as_str().is_some_and(|text| text.contains("/debug/flight")), "{answer}");
    fixture.stop().await;
}
