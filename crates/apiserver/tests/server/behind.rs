//! Two servers on one store, of which the second hears late of what was written through the first: nothing that it decides is decided by
//! what is no longer so.

use std::sync::Arc;

use ferry_store::{
    Commit, EmbeddedStore, Got, LeaseId, Range, RangeResult, Result, Revision, Store, Transaction, WatchRequest,
    WatchStream,
};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Fixture;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";

/// What the tests write. A server writes on its own, too.
const OWN: [&str; 3] = ["/registry/configmaps/default/", "/registry/leases/default/", "/registry/pods/default/"];

/// A store whose watches tell nothing until they are told to, or one of these objects is written through it.
struct Late {
    inner: Arc<dyn Store>,
    open: watch::Sender<bool>,
}

#[async_trait::async_trait]
impl Store for Late {
    async fn get(&self, key: &str) -> Result<Got> {
        self.inner.get(key).await
    }

    async fn range(&self, range: Range) -> Result<RangeResult> {
        self.inner.range(range).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Commit> {
        let own = transaction.ops.iter().any(|op| OWN.iter().any(|prefix| op.key().starts_with(prefix)));
        let commit = self.inner.commit(transaction).await?;
        if own {
            // Or whoever wrote it would wait.
            self.open.send_replace(true);
        }
        Ok(commit)
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream> {
        let watch = self.inner.watch(request).await?;
        let open = self.open.subscribe();
        let late = watch.then(move |batch| {
            let mut open = open.clone();
            async move {
                let _ = open.wait_for(|open| *open).await;
                batch
            }
        });
        Ok(late.boxed())
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn revision(&self) -> Result<Revision> {
        self.inner.revision().await
    }

    async fn grant_lease(&self, ttl_seconds: u64) -> Result<LeaseId> {
        self.inner.grant_lease(ttl_seconds).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        self.inner.revoke_lease(lease).await
    }

    async fn health(&self) -> Result<()> {
        self.inner.health().await
    }

    fn is_shared(&self) -> bool {
        true
    }
}

struct Two {
    first: Fixture,
    second: Fixture,
    late: Arc<Late>,
}

impl Two {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = EmbeddedStore::open(folder.path(), Default::default()).expect("a store");
        let late = Arc::new(Late { inner: inner.clone(), open: watch::Sender::new(true) });
        let first = Fixture::on(inner, folder, |_, _| {}).await;
        let second = Fixture::on(late.clone(), tempfile::tempdir().expect("a folder"), |_, _| {}).await;
        let account = json!({"metadata": {"name": "default"}});
        let (code, made) = first.json("POST", "/api/v1/namespaces/default/serviceaccounts", &account).await;
        assert_eq!(code, 201, "{made}");
        Self { first, second, late }
    }

    /// Something that both know of, and the second hears no more.
    async fn known(&self, path: &str, object: &Value) -> Value {
        self.late.open.send_replace(true);
        let (code, made) = self.first.json("POST", path, object).await;
        assert_eq!(code, 201, "{made}");
        let version = ferry_meta::object::resource_version(&made);
        let own = format!("{path}/{}?resourceVersion={version}", ferry_meta::object::name(object));
        let (code, seen) = self.second.json("GET", &own, &Value::Null).await;
        assert_eq!((code, &seen), (200, &made));
        self.late.open.send_replace(false);
        made
    }

    async fn by_first(&self, method: &str, path: &str, kind: &str, body: &Value) -> Value {
        let (code, answer) = self.first.call(&self.first.admin, method, path, kind, body.to_string()).await;
        assert!(code < 300, "{code} {answer}");
        answer
    }

    async fn by_second(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        self.second.call(&self.second.admin, method, path, kind, body.to_string()).await
    }

    async fn stop(self) {
        self.late.open.send_replace(true);
        self.second.stop().await;
        self.first.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_read_as_it_is_now() {
    let two = Two::new().await;
    let path = format!("{MAPS}/m");
    let old = two.known(MAPS, &map("m")).await;
    let new = two.by_first("PATCH", &path, MERGE, &json!({"data": {"k": "2"}})).await;
    assert_eq!(two.second.json("GET", &path, &Value::Null).await, (200, new));
    assert_eq!(two.second.json("GET", &format!("{path}?resourceVersion=0"), &Value::Null).await, (200, old));
    two.by_first("DELETE", &path, "application/json", &json!({})).await;
    assert_eq!(two.second.json("GET", &path, &Value::Null).await.0, 404);
    let young = two.by_first("POST", MAPS, "application/json", &map("young")).await;
    assert_eq!(two.second.json("GET", &format!("{MAPS}/young"), &Value::Null).await, (200, young));
    two.stop().await;
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "1"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_one_of_what_is_there_now() {
    let two = Two::new().await;
    let data =
        |data: &[(&str, &str)]| json!({"data": data.iter().copied().collect::<std::collections::BTreeMap<_, _>>()});
    // What the first makes of it, what the second is asked for, and what comes of that.
    let test = |value: &str| json!([{"op": "test", "path": "/data/k", "value": value}, {"op": "add", "path": "/data/by", "value": "2"}]);
    let cases: [(&str, &str, Value, u16, Value); 6] = [
        ("both changes stay", MERGE, data(&[("by", "2")]), 200, json!({"k": "2", "by": "2"})),
        ("what was there before is written again", MERGE, data(&[("k", "1")]), 200, json!({"k": "1"})),
        ("what is there already is not", MERGE, data(&[("k", "2")]), 200, json!({"k": "2"})),
        ("a test of what is there", JSON, test("2"), 200, json!({"k": "2", "by": "2"})),
        ("a test of what was there", JSON, test("1"), 422, json!({"k": "2"})),
        ("one that cannot be", MERGE, json!({"data": {"no key": "2"}}), 422, json!({"k": "2"})),
    ];
    for (number, (what, kind, body, code, wanted)) in cases.into_iter().enumerate() {
        let path = format!("{MAPS}/m{number}");
        two.known(MAPS, &map(&format!("m{number}"))).await;
        two.by_first("PATCH", &path, MERGE, &data(&[("k", "2")])).await;
        let tried = format!("{path}?dryRun=All");
        let (got, answer) = two.by_second("PATCH", &tried, kind, &body).await;
        assert_eq!(got, code, "{what}, tried: {answer}");
        let (got, answer) = two.by_second("PATCH", &path, kind, &body).await;
        assert_eq!(got, code, "{what}: {answer}");
        let now = two.by_first("GET", &path, MERGE, &Value::Null).await;
        assert_eq!(now["data"], wanted, "{what}");
        if code == 200 {
            assert_eq!(answer, now, "{what}");
        }
    }
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_compared_with_what_is_there_now() {
    let two = Two::new().await;
    let path = format!("{MAPS}/m");
    let old = two.known(MAPS, &map("m")).await;
    let mut new = two.by_first("PATCH", &path, MERGE, &json!({"data": {"k": "2"}})).await;
    let (code, refused) = two.by_second("PUT", &path, "application/json", &old).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")), "{refused}");
    new["data"]["k"] = "3".into();
    let (code, answer) = two.by_second("PUT", &path, "application/json", &new).await;
    assert_eq!((code, &answer["data"]["k"]), (200, &json!("3")), "{answer}");

    // One that is not known yet, and one that is gone.
    two.late.open.send_replace(false);
    two.by_first("POST", MAPS, "application/json", &map("young")).await;
    let young = format!("{MAPS}/young");
    let (code, answer) = two.by_second("PATCH", &young, MERGE, &json!({"data": {"by": "2"}})).await;
    assert_eq!((code, &answer["data"]), (200, &json!({"k": "1", "by": "2"})), "{answer}");
    for (method, kind) in [("PATCH", MERGE), ("PUT", "application/json"), ("DELETE", "application/json")] {
        let name = format!("gone-{}", method.to_lowercase());
        let gone = format!("{MAPS}/{name}");
        let mut body = two.known(MAPS, &map(&name)).await;
        two.by_first("DELETE", &gone, "application/json", &json!({})).await;
        if method == "DELETE" {
            body = json!({});
        }
        let (code, answer) = two.by_second(method, &gone, kind, &body).await;
        let code_wanted = if method == "PUT" { 409 } else { 404 };
        assert!([404, code_wanted].contains(&code), "{method}: {answer}");
        assert_eq!(two.first.json("GET", &gone, &Value::Null).await.0, 404, "{method}");
    }
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_is_one_of_what_is_there_now() {
    let two = Two::new().await;
    let deleting = |uid: &Value| json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
    let path = format!("{MAPS}/m");
    let old = two.known(MAPS, &map("m")).await;
    two.by_first("DELETE", &path, "application/json", &json!({})).await;
    let new = two.by_first("POST", MAPS, "application/json", &map("m")).await;
    let (code, refused) = two.by_second("DELETE", &path, "application/json", &deleting(&old["metadata"]["uid"])).await;
    assert_eq!(code, 409, "{refused}");
    let (code, answer) = two.by_second("DELETE", &path, "application/json", &deleting(&new["metadata"]["uid"])).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(two.first.json("GET", &path, &Value::Null).await.0, 404);

    // A finalizer that was added, and one that was taken away while the object was on its way.
    two.known(MAPS, &map("held")).await;
    let held = format!("{MAPS}/held");
    two.by_first("PATCH", &held, MERGE, &json!({"metadata": {"finalizers": ["example.com/held"]}})).await;
    let (code, answer) = two.by_second("DELETE", &held, "application/json", &json!({})).await;
    assert_eq!(code, 200, "{answer}");
    assert!(two.by_first("GET", &held, MERGE, &Value::Null).await["metadata"]["deletionTimestamp"].is_string());
    let (code, _) = two.second.json("GET", &held, &Value::Null).await;
    assert_eq!(code, 200);
    two.late.open.send_replace(false);
    two.by_first("PATCH", &held, MERGE, &json!({"metadata": {"finalizers": null}})).await;
    two.by_first("POST", MAPS, "application/json", &map("held")).await;
    let (code, answer) = two.by_second("DELETE", &held, "application/json", &json!({})).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(two.first.json("GET", &held, &Value::Null).await.0, 404, "the one that is there now");
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_short_ways_see_what_is_there_now() {
    let two = Two::new().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let at = |second: u8| format!("2026-01-01T00:00:0{second}.000000Z");
    let spec = |holder: &str, second| json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 40, "renewTime": at(second)}});
    let mut lease = spec("one", 0);
    lease["metadata"] = json!({"name": "l"});
    two.known(leases, &lease).await;
    let path = format!("{leases}/l");
    two.by_first(
        "PATCH",
        &path,
        MERGE,
        &json!({"spec": {"holderIdentity": "other"}, "metadata": {"labels": {"a": "b"}}}),
    )
    .await;
    let (code, answer) = two.by_second("PATCH", &path, MERGE, &spec("one", 1)).await;
    assert_eq!((code, &answer["spec"]["renewTime"]), (200, &json!(at(1))), "{answer}");
    assert_eq!(answer["metadata"]["labels"], json!({"a": "b"}), "what the first did stays");

    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    two.known(pods, &pod).await;
    let binding = |node: &str| json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    let own = format!("{pods}/p/binding");
    two.by_first("POST", &own, "application/json", &binding("one")).await;
    let (code, refused) = two.by_second("POST", &own, "application/json", &binding("two")).await;
    assert_eq!(code, 409, "{refused}");
    assert_eq!(two.by_first("GET", &format!("{pods}/p"), MERGE, &Value::Null).await["spec"]["nodeName"], json!("one"));
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_goes_as_its_objects_would_alone() {
    let two = Two::new().await;
    for number in 0..70 {
        let mut object = map(&format!("m{number}"));
        object["metadata"]["labels"] = json!({"of": "many"});
        if number % 10 == 0 {
            object["metadata"]["finalizers"] = json!(["example.com/held"]);
        }
        two.by_first("POST", MAPS, "application/json", &object).await;
    }
    let many = format!("{MAPS}?labelSelector=of%3Dmany");
    // Others take part.
    let nothing = json!({});
    let (first, second) = tokio::join!(
        two.by_second("DELETE", &many, "application/json", &nothing),
        two.first.call(&two.first.admin, "DELETE", &many, "application/json", "{}"),
    );
    assert_eq!((first.0, second.0), (200, 200), "{} {}", first.1, second.1);
    let left = two.by_first("GET", &many, MERGE, &Value::Null).await;
    let left = left["items"].as_array().expect("items");
    assert_eq!(left.len(), 7);
    assert!(left.iter().all(|item| item["metadata"]["deletionTimestamp"].is_string()));
    two.stop().await;
}
