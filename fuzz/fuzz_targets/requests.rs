//! Requests into the pipeline of a whole server: none makes it panic, no answer is larger than anybody stored, and the server goes
//! on answering.
#![no_main]

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use ferry_admission::Dependencies;
use ferry_apiserver::cache::{Cache, Registration};
use ferry_apiserver::{ApiServer, Body, Config, Endpoint, Kubelets, Peer, Quotas, ServiceNetwork};
use ferry_auth::{AuthorizerChain, Chain, LoopbackTokens, Rbac};
use ferry_meta::UserInfo;
use ferry_registry::ResourceTable;
use ferry_store::EmbeddedStore;
use ferry_tasks::Tasks;
use http_body_util::{BodyExt, Full};
use libfuzzer_sys::fuzz_target;

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const PATHS: [&str; 32] = [
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/configmaps/m",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/p",
    "/api/v1/namespaces/default/pods/p/status",
    "/api/v1/namespaces/default/services",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apps/v1/namespaces/default/deployments/d",
    "/apis/apps/v1/namespaces/default/deployments/d/scale",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/events",
    "/api/v1/namespaces/default/pods/p/ephemeralcontainers",
    "/api/v1/namespaces/default/pods/p/eviction",
    "/api/v1/namespaces/default/pods/p/binding",
    "/api/v1/namespaces/default/serviceaccounts/default/token",
    "/api/v1/nodes/n/status",
    "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    "/apis/batch/v1/namespaces/default/cronjobs",
    "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/apps/v1/namespaces/default/statefulsets",
    "/api/v1/namespaces/default/resourcequotas",
    "/debug/flight/api/v1/namespaces/default/configmaps/m",
    "/apis",
];
const KINDS: [&str; 8] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const ACCEPTED: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/cbor",
];

struct Fixture {
    runtime: tokio::runtime::Runtime,
    server: ApiServer,
    token: String,
    _folder: tempfile::TempDir,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let folder = tempfile::tempdir().expect("a folder");
    let (server, token) = runtime.block_on(async {
        let tasks = Tasks::new("fuzz");
        let store = EmbeddedStore::open(folder.path(), Default::default()).expect("a store");
        let table = ResourceTable::builtin();
        let cache = Cache::start(store, &tasks, Registration::of_table(&table)).await.expect("a cache");
        let audiences = vec!["https://kubernetes.default.svc".to_owned()];
        let loopback = Arc::new(LoopbackTokens::new(audiences.clone()));
        let token = loopback.issue(UserInfo::new("admin", &["system:masters"]));
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
        let config = Config {
            cache,
            table,
            authentication: Arc::new(Chain::new(audiences).with_tokens(loopback)),
            authorization,
            rbac: Some(rbac),
            // It waits for accounts that a controller makes.
            admission: admission.plugins().iter().filter(|plugin| plugin.name() != "ServiceAccount").cloned().collect(),
            audit: None,
            flow_control: None,
            secret_rotation: None,
            token_issuer: None,
            service_network: ServiceNetwork::parse("10.96.0.0/24").expect("a range"),
            node_ports: (30000, 30063),
            advertised: "192.0.2.1:6443".into(),
            kubelets: Kubelets::default(),
            front_proxy: None,
            cbor: true,
        };
        let server = ApiServer::new(config, &tasks);
        let endpoint = Endpoint { address: [192, 0, 2, 1].into(), port: 6443 };
        server.bootstrap(&token, Some(endpoint)).await.expect("what every cluster starts with");
        // The tasks go on as long as the process does.
        std::mem::forget(tasks);
        (server, token)
    });
    Fixture { runtime, server, token, _folder: folder }
});

async fn send(fixture: &Fixture, method: &str, path: &str, kind: &str, accept: &str, body: &[u8]) -> u16 {
    let body: Body = Full::new(Bytes::copy_from_slice(body)).map_err(|never| match never {}).boxed_unsync();
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {}", fixture.token))
        .header("content-type", kind)
        .header("accept", accept)
        .body(body);
    let Ok(request) = request else { return 0 };
    let response = fixture.server.handle(request, Peer::default()).await;
    let code = response.status().as_u16();
    let answer = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    assert!(answer.len() < 16 << 20, "{method} {path}: {} bytes", answer.len());
    code
}

fuzz_target!(|data: &[u8]| {
    let [method, path, kind, accept, rest @ ..] = data else { return };
    let fixture = &*FIXTURE;
    let pick = |from: &[&'static str], by: &u8| from[usize::from(*by) % from.len()];
    // What stands before a line's end is the query.
    let (query, body) = match rest.iter().position(|byte| *byte == b'\n') {
        Some(at) if *path >= 128 => (std::str::from_utf8(&rest[..at]).unwrap_or_default(), &rest[at + 1..]),
        _ => ("", rest),
    };
    // A watch does not end.
    if query.contains("watch") || query.contains("follow") {
        return;
    }
    let path = if query.is_empty() { pick(&PATHS, path).to_owned() } else { format!("{}?{query}", pick(&PATHS, path)) };
    fixture.runtime.block_on(async {
        send(fixture, pick(&METHODS, method), &path, pick(&KINDS, kind), pick(&ACCEPTED, accept), body).await;
        assert_eq!(send(fixture, "GET", "/api/v1/namespaces/default", KINDS[0], ACCEPTED[0], b"").await, 200);
    });
});
