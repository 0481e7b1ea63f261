//! The whole server over the embedded store, driven through its pipeline as clients drive it.

mod aggregation;
mod answers;
mod audit;
mod bad_input;
mod behind;
mod conversion;
mod custom_resources;
mod ended_events;
mod evictions;
mod fairness;
mod health;
mod leases;
mod matrix;
mod metrics;
mod node_ports;
mod pages;
mod past_changes;
mod refusals;
mod resource_metrics;
mod rights;
mod statuses;
mod subresources;
mod versions;
mod written;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ferry_admission::Dependencies;
use ferry_apiserver::cache::{Cache, Registration};
use ferry_apiserver::{ApiServer, Body, Config, Endpoint, Kubelets, Peer, Quotas, ServiceNetwork};
use ferry_auth::{AuthorizerChain, Chain, LoopbackTokens, Rbac};
use ferry_meta::UserInfo;
use ferry_registry::ResourceTable;
use ferry_store::{EmbeddedStore, Store};
use ferry_tasks::Tasks;
use futures::{StreamExt, TryStreamExt};
use http::Request;
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

struct Fixture {
    server: ApiServer,
    admin: String,
    bob: String,
    tasks: Tasks,
    _folder: tempfile::TempDir,
}

/// Stands for a webhook: adds a known and an unknown field to what is marked.
struct Adds;

#[async_trait::async_trait]
impl ferry_admission::Plugin for Adds {
    fn name(&self) -> &'static str {
        "Adds"
    }

    fn handles(&self, operation: ferry_admission::Operation) -> bool {
        operation == ferry_admission::Operation::Create
    }

    async fn mutate(&self, request: &mut ferry_admission::Request<'_>) -> Result<(), ferry_meta::ApiError> {
        if let Some(object) = request.object.as_deref_mut()
            && object.pointer("/metadata/annotations/test~1add").is_some()
        {
            object["spec"]["n"] = 4.into();
            object["spec"]["unknown"] = true.into();
        }
        Ok(())
    }
}

impl Fixture {
    async fn new() -> Self {
        Self::with(|_, _| {}).await
    }

    /// A server that differs from the plain one.
    async fn with(change: impl FnOnce(&mut Config, &Arc<LoopbackTokens>)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = EmbeddedStore::open(folder.path(), Default::default()).expect("a store");
        Self::on(store, folder, change).await
    }

    /// A server on that store.
    async fn on(
        store: Arc<dyn Store>,
        folder: tempfile::TempDir,
        change: impl FnOnce(&mut Config, &Arc<LoopbackTokens>),
    ) -> Self {
        let tasks = Tasks::new("test");
        let table = ResourceTable::builtin();
        let cache = Cache::start(store, &tasks, Registration::of_table(&table)).await.expect("a cache");
        let audiences = vec!["https://kubernetes.default.svc".to_owned()];
        let loopback = Arc::new(LoopbackTokens::new(audiences.clone()));
        let admin = loopback.issue(UserInfo::new("admin", &["system:masters"]));
        let bob = loopback.issue(UserInfo::new("bob", &["devs"]));
        let rbac = Arc::new(Rbac::new(cache.clone()));
        let authorization = Arc::new(AuthorizerChain::new().with("rbac", rbac.clone()));
        let quotas =
            Quotas::new(cache.clone(), &table).map(|q| -> Arc<dyn ferry_admission::QuotaStore> { Arc::new(q) });
        let admission = ferry_admission::Chain::new(Dependencies {
            reader: cache.clone(),
            authorizer: authorization.clone(),
            quotas,
            node_labels: Some(Arc::new(cache.node_labels())),
        });
        let mut config = Config {
            cache,
            table,
            authentication: Arc::new(Chain::new(audiences).with_tokens(loopback.clone())),
            authorization,
            rbac: Some(rbac),
            admission: admission.plugins().iter().cloned().chain([Arc::new(Adds) as _]).collect(),
            audit: None,
            flow_control: None,
            secret_rotation: None,
            token_issuer: None,
            service_network: ServiceNetwork::parse("10.96.0.0/24").expect("a range"),
            node_ports: (30000, 30063),
            advertised: "192.0.2.1:6443".into(),
            kubelets: Kubelets::default(),
            resource_metrics: false,
            console: true,
            front_proxy: None,
            cbor: true,
        };
        change(&mut config, &loopback);
        let server = ApiServer::new(config, &tasks);
        let endpoint = Endpoint { address: [192, 0, 2, 1].into(), port: 6443 };
        server.bootstrap(&admin, Some(endpoint)).await.expect("what every cluster starts with");
        Self { server, admin, bob, tasks, _folder: folder }
    }

    fn client(&self) -> kube::Client {
        self.server.client(&self.admin, "test")
    }

    async fn call(
        &self,
        token: &str,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Vec<u8>>,
    ) -> (u16, Value) {
        let body: Body = Full::new(bytes::Bytes::from(body.into())).map_err(|never| match never {}).boxed_unsync();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", content_type)
            .body(body)
            .expect("a request");
        let response = self.server.handle(request, Peer::default()).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into())))
    }

    async fn json(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.call(&self.admin, method, path, "application/json", body.to_string()).await
    }

    async fn stop(self) {
        assert!(self.server.stop(Duration::from_secs(30)).await);
        assert!(self.tasks.stop(Duration::from_secs(30)).await);
    }
}

fn config_map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let data = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let metadata = kube::api::ObjectMeta { name: Some(name.into()), ..Default::default() };
    ConfigMap { metadata, data: Some(data), ..Default::default() }
}

#[tokio::test]
async fn a_long_list_is_sent_in_pieces_and_is_whole() {
    let fixture = Fixture::new().await;
    let path = "/api/v1/namespaces/default/configmaps";
    for number in 0..40 {
        let map = json!({"metadata": {"name": format!("m{number:02}")}, "data": {"k": "x".repeat(9000)}});
        let (code, _) = fixture.call(&fixture.admin, "POST", path, "application/json", map.to_string()).await;
        assert_eq!(code, 201);
    }
    let request = Request::get(path).header("authorization", format!("Bearer {}", fixture.admin));
    let request = request
        .body(Full::<bytes::Bytes>::default().map_err(|never| match never {}).boxed_unsync())
        .expect("a request");
    let response = fixture.server.handle(request, Peer::default()).await;
    assert_eq!(response.headers()["content-type"], "application/json");
    let mut body = response.into_body();
    let (mut whole, mut pieces) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        whole.extend_from_slice(&frame.expect("a frame").into_data().expect("data"));
        pieces += 1;
    }
    assert!(pieces > 3 && whole.ends_with(b"]}\n"), "{pieces}");
    let list: Value = serde_json::from_slice(&whole).expect("JSON");
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    let items = list["items"].as_array().expect("items");
    let names = items.iter().map(ferry_meta::object::name).filter(|name| name.starts_with('m'));
    assert!(names.eq((0..40).map(|number| format!("m{number:02}"))));
    for item in items {
        let version: u64 = ferry_meta::object::resource_version(item).parse().expect("a version");
        assert!(version > 0 && item.get("kind").is_none() && item["metadata"]["uid"].is_string());
    }
    // A page of it, which is short, reads the same.
    let (_, page) = fixture.call(&fixture.admin, "GET", &format!("{path}?limit=2"), "", "").await;
    assert_eq!(page["items"][0], items[0]);
}

#[tokio::test]
async fn a_client_inside_reads_writes_and_watches() {
    let fixture = Fixture::new().await;
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client(), "default");
    let start = maps.list(&ListParams::default()).await.expect("a list").metadata.resource_version.expect("a version");
    let mut events = maps.watch(&WatchParams::default(), &start).await.expect("a watch").boxed();
    let made = maps.create(&PostParams::default(), &config_map("a", &[("k", "1")])).await.expect("created");
    let patch = json!({"data": {"k": "2", "n": "3"}});
    let patched = maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    assert_eq!(patched.metadata.uid, made.metadata.uid);
    // A patch that changes nothing is no write.
    let again = maps.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    assert_eq!(again.metadata.resource_version, patched.metadata.resource_version);
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
    assert!(maps.get_opt("a").await.expect("an answer").is_none());

    let mut seen = Vec::new();
    while seen.len() < 3 {
        match events.try_next().await.expect("an event").expect("more events") {
            WatchEvent::Added(map) => seen.push(("added", map)),
            WatchEvent::Modified(map) => seen.push(("modified", map)),
            WatchEvent::Deleted(map) => seen.push(("deleted", map)),
            other => panic!("not expected: {other:?}"),
        }
    }
    assert_eq!(seen.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), ["added", "modified", "deleted"]);
    assert_eq!(seen[2].1.data, patched.data);
    drop(events);
    fixture.stop().await;
}

#[tokio::test]
async fn stopping_the_server_ends_its_watches() {
    let fixture = Fixture::new().await;
    let maps: Api<ConfigMap> = Api::all(fixture.client());
    let events = maps.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
    // The stream ends by itself, or this waits forever.
    tokio::join!(events.count(), fixture.stop());
}

#[tokio::test]
async fn concurrent_services_never_share_an_address_or_a_port() {
    let fixture = Fixture::new().await;
    let services: Api<Service> = Api::namespaced(fixture.client(), "default");
    let service = |name: usize| -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": format!("s{name}")},
            "spec": {"type": "NodePort", "ports": [{"port": 80}]},
        }))
        .expect("a service")
    };
    // Sixty of sixty-four ports: most of the choices collide.
    let made =
        futures::future::join_all(
            (0..60).map(|name| {
                let (services, service) = (services.clone(), service(name));
                async move {
                    services.create(&PostParams::default(), &service).await.expect("created").spec.expect("a spec")
                }
            }),
        )
        .await;
    let addresses: BTreeSet<_> = made.iter().filter_map(|spec| spec.cluster_ip.clone()).collect();
    let ports: BTreeSet<_> =
        made.iter().flat_map(|spec| spec.ports.iter().flatten()).filter_map(|p| p.node_port).collect();
    assert_eq!((addresses.len(), ports.len()), (60, 60));

    let (code, refused) = fixture
        .json(
            "POST",
            "/api/v1/namespaces/default/services",
            &json!({"metadata": {"name": "x"}, "spec": {"clusterIP": addresses.first(), "ports": [{"port": 1}]}}),
        )
        .await;
    assert_eq!(code, 422, "{refused}");
    assert!(refused["message"].as_str().is_some_and(|m| m.contains("provided IP is already allocated")), "{refused}");
    let first = made[0].cluster_ip.clone().expect("an address");
    services.delete("s0", &DeleteParams::default()).await.expect("deleted");
    let freed = json!({"metadata": {"name": "y"}, "spec": {"clusterIP": first, "ports": [{"port": 1}]}});
    let (code, taken) = fixture.json("POST", "/api/v1/namespaces/default/services", &freed).await;
    assert_eq!(code, 201, "{taken}");
    fixture.stop().await;
}

#[tokio::test]
async fn writers_that_come_too_late_are_told() {
    let fixture = Fixture::new().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let (_, made) = fixture.json("POST", path, &json!({"metadata": {"name": "a"}, "data": {"n": "0"}})).await;
    let stale =
        json!({"metadata": {"name": "a", "resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"n": "1"}});
    assert_eq!(fixture.json("PUT", &format!("{path}/a"), &stale).await.0, 200);
    let (code, conflict) = fixture.json("PUT", &format!("{path}/a"), &stale).await;
    assert_eq!((code, &conflict["reason"]), (409, &json!("Conflict")));
    // Without a version the last one wins, and patches are tried again until they fit: none is lost.
    let patches = (0..32).map(|n| {
        let patch = json!({"data": {format!("k{n}"): "v"}}).to_string();
        let (fixture, path) = (&fixture, format!("{path}/a"));
        async move { fixture.call(&fixture.admin, "PATCH", &path, "application/merge-patch+json", patch).await.0 }
    });
    assert!(futures::future::join_all(patches).await.iter().all(|code| *code == 200));
    let (_, whole) = fixture.json("GET", &format!("{path}/a"), &Value::Null).await;
    assert_eq!(whole["data"].as_object().map(serde_json::Map::len), Some(33));
    fixture.stop().await;
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let fixture = Fixture::new().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let made = json!({"metadata": {"name": "a", "finalizers": ["example.com/f"]}});
    fixture.json("POST", path, &made).await;
    let (code, held) = fixture.json("DELETE", &format!("{path}/a"), &json!({})).await;
    assert_eq!(code, 200);
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
    let patch = json!({"metadata": {"finalizers": null}}).to_string();
    let one = format!("{path}/a");
    let (code, _) = fixture.call(&fixture.admin, "PATCH", &one, "application/merge-patch+json", patch).await;
    assert_eq!((code, fixture.json("GET", &one, &Value::Null).await.0), (200, 404));
    fixture.stop().await;
}

#[tokio::test]
async fn bad_requests_are_refused_and_leave_nothing() {
    let fixture = Fixture::new().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let deep = format!("{{\"metadata\":{{\"name\":\"deep\"}},\"x\":{}{}}}", "[".repeat(20_000), "]".repeat(20_000));
    let large = json!({"metadata": {"name": "large"}, "data": {"k": "x".repeat(3_200_000)}}).to_string();
    let admin = &fixture.admin;
    let twice = r#"{"metadata":{"name":"twice"},"data":{"a":"1","a":"2"}}"#.to_owned();
    let selector = |count: usize| {
        let values: Vec<String> = (0..count).map(|n| format!("value-{n}")).collect();
        format!("{path}?labelSelector=k%20in%20%28{}%29", values.join(","))
    };
    for (token, method, path, content_type, body, want) in [
        ("nobody", "GET", path, "application/json", String::new(), 401),
        (&*fixture.bob, "GET", path, "application/json", String::new(), 403),
        (admin, "POST", path, "application/json", "{".to_owned(), 400),
        (admin, "POST", path, "application/json", deep, 400),
        (admin, "POST", path, "application/json", large, 413),
        (admin, "POST", path, "text/plain", "{}".to_owned(), 415),
        (admin, "POST", path, "application/yaml", "a: [".to_owned(), 400),
        (admin, "POST", path, "application/vnd.kubernetes.protobuf", "k8s\0garbage".to_owned(), 400),
        (admin, "PATCH", &format!("{path}/none"), "application/json-patch+json", "[{".to_owned(), 400),
        (admin, "GET", &format!("{path}?labelSelector=%28"), "application/json", String::new(), 400),
        (admin, "GET", &format!("{path}?limit=1&continue=x"), "application/json", String::new(), 400),
        (admin, "GET", "/api/v1/namespaces/default/nothings", "application/json", String::new(), 404),
        (admin, "GET", "/no-such", "application/json", String::new(), 404),
        // A key that stands twice is refused by those who want it so.
        (admin, "POST", &format!("{path}?fieldValidation=Strict"), "application/json", twice, 400),
        (admin, "POST", &format!("{path}?fieldValidation=Maybe"), "application/json", "{}".to_owned(), 422),
        (admin, "POST", &format!("{path}?dryRun=Some"), "application/json", "{}".to_owned(), 422),
        (admin, "GET", &format!("{path}?limit=many"), "application/json", String::new(), 400),
        (admin, "GET", &format!("{path}?resourceVersion=new"), "application/json", String::new(), 400),
        (admin, "GET", &selector(4_000), "application/json", String::new(), 200),
        (
            admin,
            "GET",
            &format!("{path}?labelSelector={}", "%21".repeat(15_000)),
            "application/json",
            String::new(),
            400,
        ),
        (admin, "POST", path, "application/cbor", "\u{1f}".to_owned(), 400),
    ] {
        let (code, answer) = fixture.call(token, method, path, content_type, body).await;
        assert_eq!(code, want, "{method} {path} as {content_type}: {answer}");
    }
    // Bytes that are no text, and ten thousand levels in every language.
    let not_text = b"{\"metadata\":{\"name\":\"b\"},\"data\":{\"k\":\"\xff\xfe\"}}".to_vec();
    let mut cbor = vec![0x81; 10_000];
    cbor.push(0x01);
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(10_000), close.repeat(10_000)).into_bytes();
    for (content_type, body) in [
        ("application/yaml", b"metadata: {name: b}\ndata: {k: \"\xff\xfe\"}\n".to_vec()),
        ("application/yaml", nested("[", "]")),
        ("application/json", nested("{\"a\":", "}")),
        ("application/cbor", cbor),
        ("application/vnd.kubernetes.protobuf", [&b"k8s\0"[..], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat()),
    ] {
        let (code, answer) = fixture.call(admin, "POST", path, content_type, body).await;
        assert_eq!(code, 400, "{content_type}: {answer}");
    }
    // JSON with such bytes is taken, as upstream takes it, with what stands for them; this one is only tried.
    let (code, _) = fixture.call(admin, "POST", &format!("{path}?dryRun=All"), "application/json", not_text).await;
    assert!([201, 400, 422].contains(&code), "{code}");
    let (_, list) = fixture.json("GET", path, &Value::Null).await;
    assert_eq!(list["items"], json!([]));
    fixture.stop().await;
}

#[tokio::test]
async fn clients_may_speak_cbor() {
    let fixture = Fixture::new().await;
    let path = "/api/v1/namespaces/default/secrets";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c"}, "data": {"k": "aGk="}});
    let request = |method: &str, path: &str, body: Vec<u8>| {
        let body: Body = Full::new(bytes::Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
        Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", fixture.admin))
            .header("content-type", "application/cbor")
            .header("accept", "application/cbor")
            .body(body)
            .expect("a request")
    };
    let made =
        fixture.server.handle(request("POST", path, ferry_schema::cbor::encode(None, &secret)), Peer::default()).await;
    assert_eq!(made.headers()["content-type"], "application/cbor");
    assert_eq!(made.status().as_u16(), 201);
    let bytes = made.into_body().collect().await.expect("a body").to_bytes();
    let made = ferry_schema::cbor::decode(&bytes).expect("CBOR");
    assert_eq!((&made["data"]["k"], &made["type"]), (&json!("aGk="), &json!("Opaque")));
    let watch = format!("{path}?watch=1&timeoutSeconds=1");
    let mut events = fixture.server.handle(request("GET", &watch, Vec::new()), Peer::default()).await;
    assert_eq!(events.headers()["content-type"], "application/cbor-seq");
    let frame = events.body_mut().frame().await.expect("a frame").expect("no error");
    let event = ferry_schema::cbor::decode(&frame.into_data().expect("data")).expect("one event");
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("c")));
    drop(events);
    fixture.stop().await;
}

#[tokio::test]
async fn the_range_of_services_is_an_object_and_reviews_are_no_tables() {
    let fixture = Fixture::new().await;
    let (code, range) = fixture.json("GET", "/apis/networking.k8s.io/v1/servicecidrs/kubernetes", &Value::Null).await;
    assert_eq!((code, range["spec"]["cidrs"].as_array().map(Vec::len)), (200, Some(1)), "{range}");
    assert_eq!(range["status"]["conditions"][0]["type"], "Ready");

    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    for (accept, want) in [("application/json", 201), ("application/json;as=Table;v=v1;g=meta.k8s.io", 406)] {
        let body: Body =
            Full::new(bytes::Bytes::from(review.to_string())).map_err(|never| match never {}).boxed_unsync();
        let request = Request::builder()
            .method("POST")
            .uri("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header("authorization", format!("Bearer {}", fixture.admin))
            .header("content-type", "application/json")
            .header("accept", accept)
            .body(body)
            .expect("a request");
        assert_eq!(fixture.server.handle(request, Peer::default()).await.status(), want, "{accept}");
    }
    fixture.stop().await;
}
