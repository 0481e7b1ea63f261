//! The autoscaler against a metrics server of the test's own, behind the API server as an APIService names it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ferry_client::Api;
use ferry_tasks::Tasks;
use ferry_testbed::{Kit, NAMESPACE, deployment, is_ready};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};

const GROUPS: [(&str, &str); 3] =
    [("metrics.k8s.io", "v1beta1"), ("custom.metrics.k8s.io", "v1beta2"), ("external.metrics.k8s.io", "v1beta1")];

/// What the metrics server tells: of every pod, and of the queue outside.
#[derive(Default)]
pub(super) struct Load {
    pods: AtomicI64,
    pub(super) cpu_milli: AtomicI64,
    pub(super) queue: AtomicI64,
    pub(super) requests_milli: AtomicI64,
    /// Whether anybody asked for objects that it says it has.
    pub(super) asked: tokio::sync::Notify,
}

impl Load {
    /// The names of pods are those of the Deployment's, which the server learns from the API like everybody else.
    fn answer(&self, path: &str, names: &[String]) -> Value {
        let now = Timestamp::now();
        if path.ends_with("/widgets") {
            self.asked.notify_one();
            return json!({ "kind": "WidgetList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": [] });
        }
        if path.starts_with("/apis/metrics.k8s.io/v1beta1/namespaces/") {
            let usage = json!({ "cpu": format!("{}m", self.cpu_milli.load(Ordering::SeqCst)), "memory": "10Mi" });
            let items: Vec<Value> = names
                .iter()
                .map(|name| json!({ "metadata": { "name": name, "namespace": NAMESPACE }, "timestamp": now, "window": "1s", "containers": [{ "name": "c", "usage": usage }] }))
                .collect();
            return json!({ "kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items });
        }
        if path.contains("/pods/") {
            let value = format!("{}m", self.requests_milli.load(Ordering::SeqCst));
            let items: Vec<Value> = names
                .iter()
                .map(|name| json!({ "describedObject": { "kind": "Pod", "name": name, "namespace": NAMESPACE }, "metric": { "name": "requests" }, "timestamp": now, "value": value }))
                .collect();
            return json!({ "kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {}, "items": items });
        }
        if path.contains("/services/") {
            let value = format!("{}m", self.requests_milli.load(Ordering::SeqCst));
            return json!({ "kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {}, "items": [
                { "describedObject": { "kind": "Service", "name": "web", "namespace": NAMESPACE }, "metric": { "name": "hits" }, "timestamp": now, "value": value },
            ] });
        }
        if path.contains("/namespaces/") {
            let value = self.queue.load(Ordering::SeqCst).to_string();
            return json!({ "kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}, "items": [{ "metricName": "queue", "metricLabels": {}, "timestamp": now, "value": value }] });
        }
        let version = path.trim_start_matches("/apis/");
        json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
            { "name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"] },
            { "name": "widgets", "singularName": "", "namespaced": true, "kind": "Widget", "verbs": ["delete", "list", "watch"] },
        ] })
    }
}

/// A real HTTPS server on a port of its own.
pub(super) async fn serve(kit: &Kit, load: &Arc<Load>) -> u16 {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tasks: Tasks = kit.tasks.clone();
    let connections = tasks.clone();
    let (load, pods) = (load.clone(), kit.api::<k8s_openapi::api::core::v1::Pod>());
    tasks.spawn_until_stopped("metrics", async move {
        loop {
            let Ok((tcp, _)) = listener.accept().await else { continue };
            let (acceptor, load, pods) = (acceptor.clone(), load.clone(), pods.clone());
            connections.spawn_until_stopped("connection", async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let (load, pods) = (load.clone(), pods.clone());
                    async move {
                        let all = pods.list(&Default::default()).await.map(|list| list.items).unwrap_or_default();
                        let names: Vec<String> = all.into_iter().filter_map(|pod| pod.metadata.name).collect();
                        load.pods.store(i64::try_from(names.len()).unwrap_or_default(), Ordering::SeqCst);
                        let body = load.answer(request.uri().path(), &names).to_string();
                        let mut response = http::Response::new(Full::new(Bytes::from(body)));
                        response
                            .headers_mut()
                            .insert("content-type", http::HeaderValue::from_static("application/json"));
                        Ok::<_, std::convert::Infallible>(response)
                    }
                });
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), service).await;
            });
        }
    });
    port
}

pub(super) async fn register(kit: &Kit, port: u16) {
    kit.create::<Service>(
        json!({ "metadata": { "name": "metrics" }, "spec": { "type": "ExternalName", "externalName": "localhost" } }),
    )
    .await;
    let kind = ApiResource {
        group: "apiregistration.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiregistration.k8s.io/v1".into(),
        kind: "APIService".into(),
        plural: "apiservices".into(),
    };
    let services: Api<DynamicObject> = Api::all_with(kit.client.clone(), &kind);
    for (group, version) in GROUPS {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": { "name": format!("{version}.{group}") },
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
                "service": { "namespace": NAMESPACE, "name": "metrics", "port": port },
            },
        }))
        .unwrap();
        services.create(&Default::default(), &object).await.unwrap();
    }
    tokio::time::timeout(ferry_testbed::PATIENCE, async {
        for (group, version) in GROUPS {
            let passed = |object: &DynamicObject| object.data["status"]["conditions"][0]["reason"] == "Passed";
            while !passed(&services.get(&format!("{version}.{group}")).await.unwrap()) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    })
    .await
    .expect("the metrics server is available");
}

/// What the autoscaler says of itself, by condition: its reason.
pub(super) fn reason(autoscaler: &HorizontalPodAutoscaler, kind: &str) -> String {
    let conditions = autoscaler.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.into_iter().find(|one| one.type_ == kind).and_then(|one| one.reason).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployments_follow_their_load() {
    let kit = Kit::cluster(1).await;
    let load = Arc::new(Load::default());
    load.cpu_milli.store(200, Ordering::SeqCst);
    load.requests_milli.store(1000, Ordering::SeqCst);
    let mut wanted = deployment("web", 2, "v1");
    wanted["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "100m" } });
    kit.create::<Deployment>(wanted).await;
    kit.until_pods("two pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 2).await;

    // Without metrics it says so and leaves the Deployment alone.
    let metric = |share: i64| json!([{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": share } } }]);
    let autoscaler = json!({ "metadata": { "name": "web" }, "spec": {
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "minReplicas": 1, "maxReplicas": 10,
        "metrics": metric(50), "behavior": { "scaleDown": { "stabilizationWindowSeconds": 0 }, "scaleUp": { "stabilizationWindowSeconds": 0,
            "policies": [{ "type": "Pods", "value": 3, "periodSeconds": 60 }] } },
    } });
    kit.create::<HorizontalPodAutoscaler>(autoscaler).await;
    let api = kit.api::<HorizontalPodAutoscaler>();
    kit.until(api.clone(), "a complaint", |all| {
        all.iter().any(|one| reason(one, "ScalingActive") == "FailedGetResourceMetric")
    })
    .await;
    kit.until_event("FailedGetResourceMetric").await;
    let why = kit.until_event("FailedComputeMetricsReplicas").await;
    let expected = "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: failed to \
        get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: ";
    assert!(why.starts_with(expected), "{why}");
    let port = serve(&kit, &load).await;
    register(&kit, port).await;

    // Four times the load that is wanted: eight pods, but three at a time.
    let replicas = |wanted: i32| {
        let kit = &kit;
        async move {
            kit.until(kit.api::<Deployment>(), "replicas", |all| {
                all.iter().any(|one| one.spec.replicas == Some(wanted))
            })
            .await
        }
    };
    // A change of the object is looked at when it is made; else it is every fifteen seconds.
    let change = |spec: Value| {
        let api = &api;
        async move { api.patch("web", &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await.unwrap() }
    };
    change(json!({ "maxReplicas": 9 })).await;
    replicas(5).await;
    let limited = kit
        .until(api.clone(), "limits", |all| all.iter().any(|one| reason(one, "ScalingLimited") == "ScaleUpLimit"))
        .await;
    assert_eq!(reason(&limited[0], "AbleToScale"), "SucceededRescale");
    kit.until_event("SuccessfulRescale").await;
    kit.until_pods("five pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 5).await;

    // A number of its own for each pod, and one from outside: the larger wish counts.
    load.requests_milli.store(3000, Ordering::SeqCst);
    load.queue.store(12, Ordering::SeqCst);
    let pods = json!({ "type": "Pods", "pods": { "metric": { "name": "requests" }, "target": { "type": "AverageValue", "averageValue": "5" } } });
    let outside = json!({ "type": "External", "external": { "metric": { "name": "queue" }, "target": { "type": "AverageValue", "averageValue": "3" } } });
    change(json!({ "metrics": [pods, outside] })).await;
    replicas(4).await;
    let seen = kit
        .until(api.clone(), "both metrics", |all| {
            all.iter()
                .any(|one| one.status.as_ref().and_then(|s| s.current_metrics.as_ref()).is_some_and(|m| m.len() == 2))
        })
        .await;
    assert_eq!(reason(&seen[0], "ScalingActive"), "ValidMetricFound");

    // Little to do: down to the least, but not below it.
    load.requests_milli.store(0, Ordering::SeqCst);
    load.queue.store(0, Ordering::SeqCst);
    change(json!({ "minReplicas": 2 })).await;
    replicas(2).await;
    kit.until(api.clone(), "the least", |all| all.iter().any(|one| reason(one, "ScalingLimited") == "TooFewReplicas"))
        .await;
    assert!(load.pods.load(Ordering::SeqCst) > 0);

    // A second one for the same pods: neither scales while both are there, and both say so.
    let rival = json!({ "metadata": { "name": "rival" }, "spec": {
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "maxReplicas": 10, "metrics": metric(50),
    } });
    kit.create::<HorizontalPodAutoscaler>(rival).await;
    let ambiguous = |name: &'static str| {
        let (kit, api) = (&kit, api.clone());
        async move {
            kit.until(api, "who is in the way", |all| {
                all.iter().any(|one| one.name_any() == name && reason(one, "ScalingActive") == "AmbiguousSelector")
            })
            .await;
        }
    };
    ambiguous("rival").await;
    let why = kit.until_event("AmbiguousSelector").await;
    assert_eq!(why, "pods by selector app=web are controlled by more than one HPA (e.g. [test/rival test/web])");
    load.requests_milli.store(30000, Ordering::SeqCst);
    change(json!({ "maxReplicas": 8 })).await;
    ambiguous("web").await;
    replicas(2).await;
    kit.api::<HorizontalPodAutoscaler>().delete("rival", &Default::default()).await.unwrap();
    kit.until(api.clone(), "one autoscaler", |all| all.len() == 1).await;
    kit.at_rest().await;
    change(json!({ "maxReplicas": 9 })).await;
    kit.until(api, "one that counts again", |all| {
        all.iter().all(|one| reason(one, "ScalingActive") == "ValidMetricFound")
    })
    .await;
    kit.stop().await;
}
