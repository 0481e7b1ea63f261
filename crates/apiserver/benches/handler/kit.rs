//! A server as `ferry apiserver` makes it, and how its work is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ferry_admission::{Dependencies, Kinds, NodeLabels, PolicyOptions, QuotaStore, WebhookOptions};
use ferry_apiserver::cache::{Cache, Registration};
use ferry_apiserver::{ApiServer, Body, Config, Endpoint, Kubelets, Peer, Quotas, ServiceNetwork};
use ferry_auth::{AuthorizerChain, Chain, LoopbackTokens, Rbac};
use ferry_fairness::{Fairness, FlowControl};
use ferry_meta::UserInfo;
use ferry_registry::ResourceTable;
use ferry_store::EmbeddedStore;
use ferry_tasks::Tasks;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};

pub struct Kit {
    pub server: ApiServer,
    token: String,
    pub tasks: Tasks,
    _folder: tempfile::TempDir,
}

impl Kit {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let tasks = Tasks::new("bench");
        let store = EmbeddedStore::open(folder.path(), Default::default()).expect("a store");
        let table = ResourceTable::builtin();
        let cache = Cache::start(store, &tasks, Registration::of_table(&table)).await.expect("a cache");
        let audiences = vec!["https://kubernetes.default.svc".to_owned()];
        let loopback = Arc::new(LoopbackTokens::new(audiences.clone()));
        let token = loopback.issue(UserInfo::new("admin", &["system:masters"]));
        let rbac = Arc::new(Rbac::new(cache.clone()));
        let authorization = Arc::new(AuthorizerChain::new().with("rbac", rbac.clone()));
        let quotas = Quotas::new(cache.clone(), &table).map(|q| -> Arc<dyn QuotaStore> { Arc::new(q) });
        let node_labels: Option<NodeLabels> = Some(Arc::new(cache.node_labels()));
        let dependencies =
            Dependencies { reader: cache.clone(), authorizer: authorization.clone(), quotas, node_labels };
        let rows = table.clone();
        let kinds: Kinds = Arc::new(move |kind| rows.find_kind(kind).map(|row| (row.group_resource(), row.namespaced)));
        let admission = ferry_admission::Chain::new(dependencies)
            .with_policies(&PolicyOptions { defaulter: None, kinds })
            .with_webhooks(&WebhookOptions { tasks: tasks.clone(), defaulter: None });
        let config = Config {
            authentication: Arc::new(Chain::new(audiences).with_tokens(loopback)),
            authorization,
            rbac: Some(rbac),
            admission: admission.plugins().to_vec(),
            audit: None,
            flow_control: Some(FlowControl::Fair(Fairness::new(cache.clone(), 600))),
            secret_rotation: None,
            token_issuer: None,
            service_network: ServiceNetwork::parse("10.96.0.0/16").expect("a range"),
            node_ports: (30000, 32767),
            advertised: "192.0.2.1:6443".into(),
            kubelets: Kubelets::default(),
            resource_metrics: false,
            console: true,
            front_proxy: None,
            cbor: false,
            cache,
            table,
        };
        let server = ApiServer::new(config, &tasks);
        let endpoint = Endpoint { address: [192, 0, 2, 1].into(), port: 6443 };
        server.bootstrap(&token, Some(endpoint)).await.expect("what every cluster starts with");
        let kit = Self { server, token, tasks, _folder: folder };
        let account = r#"{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}"#;
        kit.call("POST", "/api/v1/namespaces/default/serviceaccounts", "application/json", account.into()).await;
        kit
    }

    pub async fn open(&self, method: &str, path: &str, content_type: &str, body: String) -> Response<Body> {
        let body: Body = Full::new(bytes::Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.token))
            .header("user-agent", "bench")
            .header("content-type", content_type)
            .body(body)
            .expect("a request");
        self.server.handle(request, Peer::default()).await
    }

    /// The length of the answer, which must be a success.
    pub async fn call(&self, method: &str, path: &str, content_type: &str, body: String) -> usize {
        let response = self.open(method, path, content_type, body).await;
        let status = response.status();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        assert!(status.is_success(), "{method} {path}: {status}: {}", String::from_utf8_lossy(&bytes));
        bytes.len()
    }

    /// The length of an answer that goes on piece by piece, as a connection sends it.
    pub async fn drain(&self, path: &str) -> usize {
        let response = self.open("GET", path, "", String::new()).await;
        assert!(response.status().is_success(), "GET {path}: {}", response.status());
        let mut body = response.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame.expect("a frame").into_data().map_or(0, |data| data.len());
        }
        length
    }

    /// `count` requests from 32 callers. Prints the processor's time for each, all threads together.
    pub async fn measure<F>(self: &Arc<Self>, what: &str, count: usize, request: F)
    where
        F: Fn(usize) -> (&'static str, String, &'static str, String) + Send + Sync + 'static,
    {
        let (next, request) = (Arc::new(AtomicUsize::new(0)), Arc::new(request));
        let (begin, before) = (Instant::now(), cpu_micros());
        let callers = self.tasks.child("callers");
        let done: Vec<_> = (0..32)
            .map(|_| {
                let (kit, next, request) = (self.clone(), next.clone(), request.clone());
                let (sender, done) = tokio::sync::oneshot::channel();
                callers.spawn("caller", async move {
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= count {
                            break;
                        }
                        let (method, path, content_type, body) = request(n);
                        kit.call(method, &path, content_type, body).await;
                    }
                    let _ = sender.send(());
                });
                done
            })
            .collect();
        for done in done {
            done.await.expect("a caller that ends");
        }
        let cpu = (cpu_micros() - before) / count as f64;
        let rate = count as f64 / begin.elapsed().as_secs_f64();
        println!(r#"{{"what":"handler: {what}","count":{count},"cpu_us":{cpu:.1},"per_second":{rate:.0}}}"#);
    }
}

/// The processor's time of this process so far, in ticks of 10 ms.
pub fn cpu_micros() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("procfs");
    let after_name = stat.rsplit_once(") ").expect("a name").1;
    let ticks: f64 = after_name.split(' ').skip(11).take(2).map(|field| field.parse::<f64>().expect("ticks")).sum();
    ticks * 10_000.0
}

/// A line of /proc/self/status (VmRSS, VmHWM) in megabytes.
pub fn memory(line: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let found = status.lines().find_map(|have| have.strip_prefix(line)).unwrap_or_default();
    found.split_whitespace().find_map(|word| word.parse::<f64>().ok()).unwrap_or_default() / 1024.0
}

/// Makes VmHWM count anew.
pub fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// A pod of about 3 KB.
pub fn pod(name: &str, node: &str) -> String {
    let environment: Vec<String> = (0..12)
        .map(|n| {
            format!(
                r#"{{"name":"SETTING_{n}","value":"some value of a setting that is about as long as they are {n}"}}"#
            )
        })
        .collect();
    let node = if node.is_empty() { String::new() } else { format!(r#""nodeName":"{node}","#) };
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"app":"load","tier":"web"}}}},"spec":{{{node}"containers":[{{"name":"main","image":"registry.k8s.io/pause:3.10","ports":[{{"containerPort":8080}}],"env":[{}],"resources":{{"requests":{{"cpu":"100m","memory":"64Mi"}},"limits":{{"memory":"128Mi"}}}}}}]}}}}"#,
        environment.join(",")
    )
}

/// A ConfigMap of about 1 KB.
pub fn config_map(name: &str) -> String {
    let value = "x".repeat(900);
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"k":"{value}"}}}}"#)
}
