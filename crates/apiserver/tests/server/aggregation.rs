//! A real HTTPS server behind this one, as an APIService names it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use ferry_apiserver::{FrontProxy, Peer};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::Fixture;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const WIDGETS: &str = "/apis/widgets.example.com/v1/namespaces/default/widgets";

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a CA");
        Self { pem: certificate.pem(), issuer: Issuer::new(params, key), certificate }
    }

    fn roots(&self) -> rustls::RootCertStore {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("a root");
        roots
    }

    fn leaf(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let leaf = params.signed_by(&key, &self.issuer).expect("a leaf");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        (leaf.der().clone(), key)
    }
}

/// Serves a list of widgets that says who asked, to callers with a certificate of `clients` alone.
async fn widget_server(own: &Authority, clients: &Authority, stop: CancellationToken) -> u16 {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(clients.roots()), provider.clone());
    let (certificate, key) = own.leaf("widgets.default.svc");
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![certificate], key)
        .expect("an identity");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let tasks = ferry_tasks::Tasks::new("widgets");
    let connections = tasks.clone();
    tasks.spawn("accept", async move {
        loop {
            let accepted = tokio::select! { () = stop.cancelled() => return, accepted = listener.accept() => accepted };
            let (acceptor, (tcp, _)) = (acceptor.clone(), accepted.expect("a connection"));
            connections.spawn("connection", async move {
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                let service =
                    hyper::service::service_fn(|request| async move { Ok::<_, hyper::Error>(answer(&request)) });
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), service).await;
            });
        }
    });
    port
}

fn answer(request: &Request<hyper::body::Incoming>) -> Response<Full<bytes::Bytes>> {
    let all =
        |name: &str| -> Vec<&str> { request.headers().get_all(name).iter().filter_map(|v| v.to_str().ok()).collect() };
    let body = match request.uri().path() {
        "/apis/widgets.example.com/v1" => {
            json!({"kind": "APIResourceList", "groupVersion": "widgets.example.com/v1", "resources": [
                {"name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": ["get", "list"]},
                {"name": "widgets/status", "singularName": "", "namespaced": true, "kind": "Widget", "verbs": ["get"]},
            ]})
        }
        // Whoever follows shows their credentials there.
        path if path.ends_with("/away") => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = http::StatusCode::TEMPORARY_REDIRECT;
            response.headers_mut().insert("location", http::HeaderValue::from_static("https://attacker.example/"));
            return response;
        }
        "/openapi/v3/apis/widgets.example.com/v1" => json!({"openapi": "3.0.0", "info": {"title": "Widgets"}}),
        path => json!({
            "path": path, "query": request.uri().query(), "user": all("x-remote-user"), "groups": all("x-remote-group"),
            "credentials": all("authorization"),
        }),
    };
    let mut response = Response::new(Full::new(body.to_string().into()));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

impl Fixture {
    /// The object once its Available condition has this reason.
    async fn available(&self, name: &str, reason: &str) -> Value {
        loop {
            let (code, object) = self.json("GET", &format!("{API_SERVICES}/{name}"), &json!({})).await;
            if code == 200 && object["status"]["conditions"][0]["reason"] == reason {
                return object;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn another_server_answers_for_its_group() {
    let (own, front) = (Authority::new(), Authority::new());
    let stop = CancellationToken::new();
    let port = widget_server(&own, &front, stop.clone()).await;
    let (certificate, key) = front.leaf("front-proxy-client");
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let certified = CertifiedKey::from_der(vec![certificate], key, &provider).expect("a pair");
    let resolver = Arc::new(SingleCertAndKey::from(certified));
    let fixture = Fixture::with(|config, _| config.front_proxy = Some(FrontProxy(resolver.clone()))).await;
    let ca = base64::engine::general_purpose::STANDARD.encode(&own.pem);
    let registration = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.widgets.example.com"},
        "spec": {
            "group": "widgets.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"namespace": "default", "name": "widgets", "port": port}, "caBundle": ca,
        },
    });
    assert_eq!(fixture.json("POST", API_SERVICES, &registration).await.0, 201);

    // Known, and not there yet.
    let missing = fixture.available("v1.widgets.example.com", "ServiceNotFound").await;
    assert_eq!(missing["status"]["conditions"][0]["message"], "service/widgets in \"default\" is not present");
    let (code, text) = fixture.json("GET", WIDGETS, &json!({})).await;
    assert_eq!((code, text), (503, json!("service unavailable\n")));

    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "widgets"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    assert_eq!(fixture.json("POST", SERVICES, &service).await.0, 201);
    let there = fixture.available("v1.widgets.example.com", "Passed").await;
    assert_eq!(there["status"]["conditions"][0]["status"], "True");

    // Forwarded with the caller's name, which the caller cannot forge, and without the caller's credentials.
    let request = Request::builder()
        .uri(format!("{WIDGETS}?limit=3"))
        .header("authorization", format!("Bearer {}", fixture.admin))
        .header("x-remote-user", "somebody-else")
        .body(Full::new(bytes::Bytes::new()).map_err(|never| match never {}).boxed_unsync())
        .expect("a request");
    let response = fixture.server.handle(request, Peer::default()).await;
    let seen = response.into_body().collect().await.expect("a body").to_bytes();
    let seen: Value = serde_json::from_slice(&seen).expect("JSON");
    assert_eq!(seen["user"], json!(["admin"]));
    assert_eq!(seen["groups"], json!(["system:masters", "system:authenticated"]));
    assert_eq!((&seen["path"], &seen["query"]), (&json!(WIDGETS), &json!("limit=3")));
    assert_eq!(seen["credentials"], json!([]));
    // Nobody is sent elsewhere, neither by an answer nor instead of another protocol.
    let (code, text) = fixture.json("GET", &format!("{WIDGETS}/away"), &json!({})).await;
    assert_eq!((code, text), (502, json!("the backend attempted to redirect this request, which is not permitted")));
    for (path, status) in [("away", 307), ("here", 200)] {
        let request = Request::builder()
            .uri(format!("{WIDGETS}/{path}"))
            .header("authorization", format!("Bearer {}", fixture.admin))
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .body(Full::new(bytes::Bytes::new()).map_err(|never| match never {}).boxed_unsync())
            .expect("a request");
        let response = fixture.server.handle(request, Peer::default()).await;
        assert_eq!((response.status().as_u16(), response.headers().get("location")), (503, None));
        let said = response.into_body().collect().await.expect("a body").to_bytes();
        let want = format!("error trying to reach service: invalid upgrade response: status code {status}\n");
        assert_eq!(said, want.as_bytes());
    }
    // Authorization comes first.
    let (code, _) = fixture.call(&fixture.bob, "GET", WIDGETS, "", "").await;
    assert_eq!(code, 403);

    // In discovery and in the descriptions.
    let (_, groups) = fixture.json("GET", "/apis", &json!({})).await;
    let listed = groups["groups"].as_array().expect("groups").iter().any(|g| g["name"] == "widgets.example.com");
    assert!(listed, "{groups}");
    assert_eq!(
        fixture.json("GET", "/apis/widgets.example.com", &json!({})).await.1["preferredVersion"]["version"],
        "v1"
    );
    let (_, index) = fixture.json("GET", "/openapi/v3", &json!({})).await;
    assert!(index["paths"]["apis/widgets.example.com/v1"].is_object(), "{index}");
    let (_, description) = fixture.json("GET", "/openapi/v3/apis/widgets.example.com/v1", &json!({})).await;
    assert_eq!(description["info"]["title"], "Widgets");
    let items = fixture.aggregated_groups().await;
    let group = items.iter().find(|g| g["metadata"]["name"] == "widgets.example.com").expect("the group");
    assert_eq!(group["versions"][0]["freshness"], "Current");
    assert_eq!(group["versions"][0]["resources"][0]["subresources"][0]["subresource"], "status");

    // Changed: it answers on while it is asked again, and what others say of it stays.
    let path = format!("{API_SERVICES}/v1.widgets.example.com");
    let mut told = there.clone();
    let seen = json!({"type": "Seen", "status": "True", "reason": "Test", "message": "seen"});
    told["status"]["conditions"].as_array_mut().expect("conditions").push(seen);
    assert_eq!(fixture.json("PUT", &format!("{path}/status"), &told).await.0, 200);
    for priority in 1..50 {
        let changed = json!({"spec": {"versionPriority": priority}}).to_string();
        let patched = fixture.call(&fixture.admin, "PATCH", &path, "application/merge-patch+json", changed).await;
        assert_eq!(patched.0, 200);
        assert_eq!(fixture.json("GET", WIDGETS, &json!({})).await.0, 200);
    }

    // Gone: refused at once, still listed, as stale.
    stop.cancel();
    let changed = json!({"metadata": {"annotations": {"look": "again"}}}).to_string();
    let path = format!("{SERVICES}/widgets");
    fixture.call(&fixture.admin, "PATCH", &path, "application/merge-patch+json", changed).await;
    let gone = fixture.available("v1.widgets.example.com", "FailedDiscoveryCheck").await;
    assert_eq!(gone["status"]["conditions"][1]["type"], "Seen");
    assert_eq!(fixture.json("GET", WIDGETS, &json!({})).await.0, 503);
    let items = fixture.aggregated_groups().await;
    let group = items.iter().find(|g| g["metadata"]["name"] == "widgets.example.com").expect("the group");
    assert_eq!(group["versions"][0]["freshness"], "Stale");

    // Not registered any more: no such group.
    fixture.json("DELETE", &format!("{API_SERVICES}/v1.widgets.example.com"), &json!({})).await;
    while fixture.json("GET", WIDGETS, &json!({})).await.0 != 404 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fixture.stop().await;
}

impl Fixture {
    async fn aggregated_groups(&self) -> Vec<Value> {
        let request = Request::builder()
            .uri("/apis")
            .header("authorization", format!("Bearer {}", self.admin))
            .header("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
            .body(Full::new(bytes::Bytes::new()).map_err(|never| match never {}).boxed_unsync())
            .expect("a request");
        let response = self.server.handle(request, Peer::default()).await;
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        let document: Value = serde_json::from_slice(&bytes).expect("JSON");
        document["items"].as_array().expect("items").clone()
    }
}

#[tokio::test]
async fn groups_of_custom_resources_are_among_the_api_services() {
    let fixture = Fixture::new().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    assert_eq!(fixture.json("POST", definitions, &definition).await.0, 201);
    let made = fixture.available("v1.example.org", "Local").await;
    assert_eq!(made["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
    assert_eq!((&made["spec"]["groupPriorityMinimum"], &made["spec"]["versionPriority"]), (&json!(1000), &json!(100)));
    // What the server finds out about a definition belongs to the server.
    let one = format!("{definitions}/boats.example.org");
    let established = loop {
        let (_, definition) = fixture.json("GET", &one, &json!({})).await;
        if definition["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty()) {
            break definition;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let entries = established["metadata"]["managedFields"].as_array().expect("managed fields").clone();
    let status = entries.iter().find(|entry| entry["subresource"] == "status").expect("an entry for the status");
    assert_eq!((&status["manager"], &status["operation"]), (&json!("kube-apiserver"), &json!("Update")));
    assert!(status["fieldsV1"]["f:status"]["f:acceptedNames"]["f:kind"].is_object(), "{status}");
    assert_eq!(fixture.json("DELETE", &one, &json!({})).await.0, 200);
    while fixture.json("GET", &format!("{API_SERVICES}/v1.example.org"), &json!({})).await.0 != 404 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fixture.stop().await;
}
