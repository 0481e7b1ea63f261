//! For tests: objects out of JSON, and servers that answer.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use ferry_client::ObjectKey;
use ferry_connections::Body;
use ferry_tasks::Tasks;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::CONTROLLER;
use crate::resolve::objects::Objects;
use crate::resolve::{Resolved, Settings, resolve};

pub fn read<K: DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).expect("an object"))
}

/// A GatewayClass `ferry` and nothing else.
pub fn objects() -> Objects {
    let class = json!({ "metadata": { "name": "ferry" }, "spec": { "controllerName": CONTROLLER } });
    Objects { classes: [read(class)].into(), ..Objects::default() }
}

pub fn gateway(name: &str, listeners: Value) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "n", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "gatewayClassName": "ferry", "listeners": listeners },
    })
}

/// A Service `name` in namespace `n` with port 80, and these endpoints.
pub fn add_service(objects: &mut Objects, name: &str, endpoints: &[SocketAddr], app_protocol: Option<&str>) {
    let key = ObjectKey::new("n", name);
    let service = json!({
        "metadata": { "name": name, "namespace": "n" },
        "spec": { "ports": [{ "port": 80, "appProtocol": app_protocol }] },
    });
    objects.services.insert(key.clone(), read::<Service>(service));
    let slices = endpoints.iter().enumerate().map(|(number, endpoint)| {
        read::<EndpointSlice>(json!({
            "metadata": { "name": format!("{name}-{number}"), "namespace": "n" },
            "addressType": "IPv4",
            "ports": [{ "port": endpoint.port() }],
            "endpoints": [{ "addresses": [endpoint.ip().to_string()] }],
        }))
    });
    objects.slices.insert(key, slices.collect());
}

/// A Secret with a new key pair for these names; gives the certificate.
pub fn add_certificate(objects: &mut Objects, name: &str, hosts: &[&str]) -> rustls_pki_types::CertificateDer<'static> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(hosts).expect("a certificate");
    let encode = |text: String| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let secret = json!({
        "metadata": { "name": name, "namespace": "n" }, "type": "kubernetes.io/tls",
        "data": { "tls.crt": encode(made.cert.pem()), "tls.key": encode(made.signing_key.serialize_pem()) },
    });
    objects.secrets.insert(ObjectKey::new("n", name), read::<Secret>(secret));
    made.cert.der().clone()
}

/// Addresses of this machine alone, other ones for each test.
pub fn settings() -> Settings {
    let [a, b] = rand::random::<[u8; 2]>();
    let address = IpAddr::from([127, 80, a, b.clamp(1, 254)]);
    let system_authorities = Arc::new(crate::resolve::Authority::new(&[]));
    Settings { addresses: vec![address], system_authorities, leads: true }
}

pub fn resolved(objects: &Objects, settings: &Settings) -> Resolved {
    resolve(objects, settings, &Default::default())
}

/// A server on a port of its own that answers with its name, the path and some headers; `h2` speaks HTTP/2 alone.
pub async fn backend(tasks: &Tasks, name: &'static str, h2: bool) -> SocketAddr {
    served(tasks, h2, None, move |request| answer(name, request)).await
}

/// A server on a port of its own; `h2` speaks HTTP/2 alone.
pub async fn served<F, R>(tasks: &Tasks, h2: bool, tls: Option<Arc<rustls::ServerConfig>>, handler: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let group = tasks.clone();
    tasks.spawn_until_stopped("backend", async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let (handler, tls) = (handler.clone(), tls.clone());
            group.spawn_until_stopped("backend connection", async move {
                match tls {
                    None => speak(stream, h2, handler).await,
                    Some(tls) => {
                        let accepted = tokio_rustls::TlsAcceptor::from(tls).accept(stream).await;
                        if let Ok(stream) = accepted {
                            speak(stream, h2, handler).await;
                        }
                    }
                }
            });
        }
    });
    address
}

async fn speak<S, F, R>(stream: S, h2: bool, handler: F)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let (service, io) = (service_fn(handler), TokioIo::new(stream));
    if h2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).with_upgrades().await;
    }
}

async fn answer(name: &'static str, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    if request.headers().contains_key(http::header::UPGRADE) {
        let upgraded = hyper::upgrade::on(&mut request);
        // A test's own runtime ends it.
        #[expect(clippy::disallowed_methods, reason = "the backend of a test")]
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgraded.await.expect("an upgrade"));
            let (mut reader, mut writer) = tokio::io::split(&mut io);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        });
        let response = Response::builder().status(101).header("upgrade", "websocket").header("connection", "upgrade");
        return Ok(response.body(text("")).expect("a response"));
    }
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    if path.starts_with("/slow") {
        std::future::pending::<()>().await;
    }
    let header =
        |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned();
    let host = request.uri().host().map_or_else(|| header("host"), str::to_owned);
    let line = format!("{name} {path} {host} {} {}", header("x-forwarded-proto"), header("x-test"));
    let received = request.into_body().collect().await.map(|body| body.to_bytes().len()).unwrap_or_default();
    Ok(Response::new(text(&format!("{line} {received}"))))
}

pub fn text(text: &str) -> Body {
    http_body_util::Full::new(Bytes::from(text.to_owned())).map_err(|never| match never {}).boxed_unsync()
}
