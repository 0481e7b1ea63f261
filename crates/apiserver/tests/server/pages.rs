//! Lists, and what is deleted, page by page.

use serde_json::{Value, json};

use super::Fixture;

#[tokio::test]
async fn pages_of_a_list_are_of_one_moment() {
    let fixture = Fixture::new().await;
    let path = "/api/v1/namespaces/default/configmaps";
    for name in ["a", "b", "c", "d"] {
        fixture.json("POST", path, &json!({"metadata": {"name": name}})).await;
    }
    let (_, first) = fixture.json("GET", &format!("{path}?limit=2"), &Value::Null).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    fixture.json("DELETE", &format!("{path}/c"), &json!({})).await;
    fixture.json("POST", path, &json!({"metadata": {"name": "bb"}})).await;
    let token = first["metadata"]["continue"].as_str().expect("a token");
    let (_, second) = fixture.json("GET", &format!("{path}?limit=2&continue={token}"), &Value::Null).await;
    let names: Vec<_> =
        second["items"].as_array().into_iter().flatten().map(|i| i["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["c", "d"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_page_of_a_forgotten_past_is_refused_with_a_way_on() {
    let mut store = None;
    let fixture = Fixture::with(|config, _| store = Some(config.cache.store().clone())).await;
    let store = store.expect("the store");
    let maps = "/api/v1/namespaces/default/configmaps";
    for name in ["a", "b", "c"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        assert_eq!(fixture.json("POST", maps, &map).await.0, 201);
    }
    let (_, page) = fixture.json("GET", &format!("{maps}?limit=1"), &json!({})).await;
    let next =
        |page: &Value| format!("{maps}?limit=1&continue={}", page["metadata"]["continue"].as_str().expect("more"));
    let (code, second) = fixture.json("GET", &next(&page), &json!({})).await;
    assert_eq!((code, &second["items"][0]["metadata"]["name"]), (200, &json!("b")));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}});
    assert_eq!(fixture.json("POST", maps, &map).await.0, 201);
    store.compact(store.revision().await.expect("a revision")).await.expect("compacted");
    let (code, refused) = fixture.json("GET", &next(&page), &json!({})).await;
    assert_eq!((code, &refused["reason"]), (410, &json!("Expired")));
    let old = page["metadata"]["resourceVersion"].as_str().expect("a version");
    let (code, gone) =
        fixture.json("GET", &format!("{maps}?resourceVersion={old}&resourceVersionMatch=Exact"), &json!({})).await;
    let said = (code, &gone["message"]);
    assert_eq!(said, (410, &json!("The resourceVersion for the provided list is too old.")));
    for query in ["limit=1&resourceVersion=999999", "resourceVersion=999999&resourceVersionMatch=Exact"] {
        let (code, early) = fixture.json("GET", &format!("{maps}?{query}"), &json!({})).await;
        assert_eq!((code, &early["details"]["retryAfterSeconds"]), (504, &json!(1)), "{query}");
    }
    let (code, rest) = fixture.json("GET", &next(&refused), &json!({})).await;
    assert_eq!((code, &rest["items"][0]["metadata"]["name"]), (200, &json!("b")));
    // From here on the list is of one moment again.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bb"}});
    assert_eq!(fixture.json("POST", maps, &map).await.0, 201);
    let (_, last) = fixture.json("GET", &next(&rest), &json!({})).await;
    assert_eq!(last["items"][0]["metadata"]["name"], "c");
    assert_eq!(last["metadata"]["resourceVersion"], rest["metadata"]["resourceVersion"]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_collection_is_deleted_page_by_page_where_that_is_asked_for() {
    let fixture = Fixture::new().await;
    let path = "/api/v1/namespaces/default/configmaps";
    for name in ["a", "b", "c", "d", "e"] {
        fixture.json("POST", path, &json!({"metadata": {"name": name}})).await;
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().expect("items");
        items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
    };
    let (_, gone) = fixture.json("DELETE", &format!("{path}?limit=2"), &json!({})).await;
    assert_eq!(names(&gone), ["a", "b"]);
    let token = gone["metadata"]["continue"].as_str().expect("a token");
    let (_, gone) = fixture.json("DELETE", &format!("{path}?limit=2&continue={token}"), &json!({})).await;
    assert_eq!(names(&gone), ["c", "d"]);
    let (_, left) = fixture.json("GET", path, &Value::Null).await;
    assert_eq!(names(&left), ["e"]);
    let (_, gone) = fixture.json("DELETE", path, &json!({})).await;
    assert_eq!((names(&gone), &gone["metadata"]["continue"]), (vec!["e".to_owned()], &Value::Null));
    fixture.stop().await;
}
