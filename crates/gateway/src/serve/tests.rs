//! The data plane with real sockets: tables made from objects, servers behind them, clients before them.

mod clients;
mod extras;
mod hostile;
mod refused;
mod routes;
mod traced;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ferry_tasks::Tasks;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Shared, Sockets};
use crate::resolve::Settings;
use crate::resolve::objects::Objects;
use crate::testing::{add_certificate, add_service, backend, gateway, objects, read, resolved, settings};

const PATIENCE: Duration = Duration::from_secs(60);

struct Bed {
    tasks: Tasks,
    sockets: Sockets,
    settings: Settings,
    objects: Objects,
}

impl Bed {
    /// A Gateway with HTTP at port 8080 and whatever else is named.
    fn new(listeners: Value) -> Self {
        let tasks = Tasks::new("test");
        let sockets = Sockets::new(Shared::new(&tasks, None), None);
        let mut objects = objects();
        objects.gateways.push(read(gateway("g", listeners)));
        Self { tasks, sockets, settings: settings(), objects }
    }

    fn http() -> Self {
        Self::new(json!([{ "name": "http", "port": 8080, "protocol": "HTTP" }]))
    }

    fn apply(&mut self) {
        let resolved = resolved(&self.objects, &self.settings);
        for (place, outcome) in self.sockets.apply(&resolved.ports) {
            assert_eq!(outcome, Ok(place.1), "{place:?}");
        }
    }

    fn route(&mut self, rules: Value) {
        self.annotated_route(json!({}), rules);
    }

    fn annotated_route(&mut self, annotations: Value, rules: Value) {
        let route = json!({
            "metadata": { "name": "r", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations },
            "spec": { "parentRefs": [{ "name": "g" }], "rules": rules },
        });
        self.objects.http_routes = [read(route)].into();
    }

    /// An Ingress of our class for everything below `/`.
    fn ingress(&mut self, name: &str, annotations: Value, service: &str) {
        if self.objects.ingress_classes.is_empty() {
            let class = json!({ "metadata": { "name": "ferry" }, "spec": { "controller": crate::INGRESS_CONTROLLER } });
            self.objects.ingress_classes.push(read(class));
        }
        let backend = json!({ "service": { "name": service, "port": { "number": 80 } } });
        let ingress = json!({
            "metadata": { "name": name, "namespace": "n", "annotations": annotations },
            "spec": { "ingressClassName": "ferry",
                      "rules": [{ "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": backend }] } }] },
        });
        self.objects.ingresses.push(read(ingress));
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.settings.addresses[0], port)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at(8080))
    }
}

fn client(h2: bool) -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).http2_only(h2).build_http()
}

async fn said(response: Response<hyper::body::Incoming>) -> (StatusCode, String) {
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

async fn get(client: &Client<HttpConnector, Full<Bytes>>, url: &str) -> (StatusCode, String) {
    let request = Request::get(url).header("host", "example.com").body(Full::default()).expect("a request");
    let answer = tokio::time::timeout(PATIENCE, client.request(request)).await.expect("in time");
    said(answer.expect("an answer")).await
}

fn to(service: &str) -> Value {
    json!([{ "name": service, "port": 80 }])
}

fn prefix(path: &str) -> Value {
    json!([{ "path": { "type": "PathPrefix", "value": path } }])
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_take_their_rules() {
    let mut bed = Bed::http();
    let (one, two) = (backend(&bed.tasks, "one", false).await, backend(&bed.tasks, "two", true).await);
    add_service(&mut bed.objects, "one", &[one], None);
    add_service(&mut bed.objects, "two", &[two], Some("kubernetes.io/h2c"));
    let nobody: SocketAddr = "127.0.0.1:1".parse().expect("an address");
    add_service(&mut bed.objects, "halfway", &[nobody, one], None);
    bed.route(json!([
        { "matches": prefix("/one"), "backendRefs": to("one") },
        { "matches": prefix("/two"), "backendRefs": to("two") },
        { "matches": prefix("/halfway"), "backendRefs": to("halfway") },
        { "matches": prefix("/absent"), "backendRefs": to("absent") },
        { "matches": prefix("/nothing") },
        { "matches": prefix("/changed"), "backendRefs": to("one"), "filters": [
            { "type": "RequestHeaderModifier", "requestHeaderModifier": { "set": [{ "name": "x-test", "value": "set" }] } },
            { "type": "URLRewrite", "urlRewrite": { "hostname": "new.com", "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/new" } } },
        ] },
        { "matches": prefix("/moved"), "filters": [
            { "type": "RequestRedirect", "requestRedirect": { "scheme": "https", "hostname": "to.com", "statusCode": 301 } },
        ] },
        { "matches": prefix("/slow"), "backendRefs": to("one"), "timeouts": { "request": "50ms" } },
    ]));
    bed.apply();
    for h2 in [false, true] {
        let client = client(h2);
        for (path, status, text) in [
            ("/one/a?b=c", 200, "one /one/a?b=c"),
            ("/two", 200, "two /two"),
            ("/halfway", 200, "one /halfway"),
            ("/halfway", 200, "one /halfway"),
            ("/absent", 500, ""),
            ("/nothing", 500, ""),
            ("/unknown", 404, ""),
            ("/one/../two", 200, "two /two"),
            ("/changed/x", 200, "one /new/x new.com http set"),
            ("/moved", 301, ""),
            ("/slow", 504, ""),
        ] {
            let (code, body) = get(&client, &bed.url(path)).await;
            assert_eq!(code, status, "{path} {body}");
            assert!(body.starts_with(text), "{path} is answered by {body}");
        }
    }
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_while_everything_changes() {
    let secure = json!({ "name": "https", "port": 8443, "protocol": "HTTPS", "hostname": "example.com",
        "tls": { "mode": "Terminate", "certificateRefs": [{ "name": "c" }] } });
    let mut bed = Bed::new(json!([{ "name": "http", "port": 8080, "protocol": "HTTP" }, secure]));
    let mut endpoints = Vec::new();
    for name in ["a", "b", "c"] {
        endpoints.push(backend(&bed.tasks, name, false).await);
    }
    add_certificate(&mut bed.objects, "c", &["example.com"]);
    add_service(&mut bed.objects, "s", &endpoints, None);
    bed.route(json!([{ "backendRefs": to("s") }]));
    bed.apply();
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (url, https) = (bed.url("/x"), bed.at(8443));
    let load: Vec<_> = (0..6)
        .map(|number| {
            let (stop, sent, url) = (stop.clone(), sent.clone(), url.clone());
            bed.tasks.spawn("load", async move {
                let client = client(number % 2 == 1);
                while !stop.load(Ordering::Relaxed) {
                    if number < 4 {
                        let (code, body) = get(&client, &url).await;
                        assert_eq!(code, 200, "{body}");
                    } else {
                        // A handshake for each: some certificate is always there.
                        let config = ferry_tls::unverified_client().expect("a client");
                        let connector = TlsConnector::from(config);
                        let answer = secure_get_with(&connector, https, "example.com", "example.com").await;
                        let answer = answer.expect("an answer");
                        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for change in 0..1000_usize {
        // Another endpoint is away each time, the route is another one, and at times the certificate is.
        let kept: Vec<_> =
            endpoints.iter().enumerate().filter(|(place, _)| *place != change % 3).map(|(_, one)| *one).collect();
        add_service(&mut bed.objects, "s", &kept, None);
        bed.route(json!([
            { "matches": prefix(&format!("/{change}")), "backendRefs": to("absent") },
            { "backendRefs": to("s") },
        ]));
        if change % 10 == 0 {
            add_certificate(&mut bed.objects, "c", &["example.com"]);
        }
        bed.apply();
        tokio::task::yield_now().await;
    }
    stop.store(true, Ordering::Relaxed);
    for one in load {
        one.await.expect("no request failed");
    }
    assert!(sent.load(Ordering::Relaxed) > 0);
    bed.tasks.stop(PATIENCE).await;
}

fn connector(certificate: &rustls_pki_types::CertificateDer<'static>) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    TlsConnector::from(Arc::new(builder.expect("versions").with_root_certificates(roots).with_no_client_auth()))
}

/// What a client gets that asks for `name` and trusts this certificate alone.
async fn secure_get(
    address: SocketAddr,
    certificate: &rustls_pki_types::CertificateDer<'static>,
    name: &'static str,
    host: &str,
) -> std::io::Result<String> {
    secure_get_with(&connector(certificate), address, name, host).await
}

async fn secure_get_with(
    connector: &TlsConnector,
    address: SocketAddr,
    name: &'static str,
    host: &str,
) -> std::io::Result<String> {
    let stream = TcpStream::connect(address).await?;
    let name = rustls_pki_types::ServerName::try_from(name).expect("a name");
    let mut stream = connector.connect(name, stream).await?;
    let request = format!("GET /x HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // Whoever is at the end may close without a farewell.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("in time");
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_choose_certificates_that_change_while_running() {
    let https = |name: &str, hostname: &str| {
        json!({ "name": name, "port": 8443, "protocol": "HTTPS", "hostname": hostname,
                "tls": { "mode": "Terminate", "certificateRefs": [{ "name": name }] } })
    };
    let passthrough = json!({ "name": "pass", "port": 8443, "protocol": "TLS", "hostname": "pass.com", "tls": { "mode": "Passthrough" } });
    let mut bed = Bed::new(json!([https("a", "a.com"), https("b", "*.b.com"), passthrough]));
    let endpoint = backend(&bed.tasks, "one", false).await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.route(json!([{ "backendRefs": to("one") }]));
    let a = add_certificate(&mut bed.objects, "a", &["a.com"]);
    let b = add_certificate(&mut bed.objects, "b", &["x.b.com"]);
    // What is passed on ends at this very Gateway: its other listener has the certificate.
    let own = bed.at(8443);
    add_service(&mut bed.objects, "self", &[own], None);
    let route = json!({
        "metadata": { "name": "t", "namespace": "n" },
        "spec": { "parentRefs": [{ "name": "g" }], "hostnames": ["pass.com"], "rules": [{ "backendRefs": to("self") }] },
    });
    bed.objects.tls_routes = [read(route)].into();
    bed.apply();
    let address = bed.at(8443);
    assert!(secure_get(address, &a, "a.com", "a.com").await.expect("an answer").contains("one /x a.com https"));
    assert!(secure_get(address, &b, "x.b.com", "x.b.com").await.expect("an answer").contains("one /x"));
    assert!(secure_get(address, &a, "a.com", "x.b.com").await.expect("an answer").starts_with("HTTP/1.1 421"));
    assert!(secure_get(address, &a, "unknown.com", "a.com").await.is_err());
    let renewed = add_certificate(&mut bed.objects, "a", &["a.com"]);
    bed.apply();
    assert!(secure_get(address, &a, "a.com", "a.com").await.is_err(), "the old certificate is gone");
    assert!(secure_get(address, &renewed, "a.com", "a.com").await.expect("an answer").contains("one /x"));
    bed.tasks.stop(PATIENCE).await;
}

/// Sends these bytes and gives the first line of the answer.
async fn raw(address: SocketAddr, bytes: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(bytes.as_bytes()).await.expect("sent");
    let mut answer = vec![0; 4096];
    let length = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await.expect("in time").unwrap_or(0);
    String::from_utf8_lossy(&answer[..length]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_become_web_sockets() {
    let mut bed = Bed::http();
    let endpoint = backend(&bed.tasks, "one", false).await;
    add_service(&mut bed.objects, "one", &[endpoint], Some("kubernetes.io/ws"));
    bed.route(json!([{ "backendRefs": to("one") }]));
    bed.apply();
    let mut stream = TcpStream::connect(bed.at(8080)).await.expect("a connection");
    let request =
        "GET /ws HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("in time").expect("a head"));
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    // The table changes, and the connection stays.
    bed.apply();
    for message in ["hello", "again"] {
        stream.write_all(message.as_bytes()).await.expect("sent");
        let mut echo = vec![0; message.len()];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut echo)).await.expect("in time").expect("an echo");
        assert_eq!(echo, message.as_bytes());
    }
    drop(stream);
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_datagrams_are_carried() {
    let mut bed = Bed::new(json!([
        { "name": "tcp", "port": 9000, "protocol": "TCP" },
        { "name": "udp", "port": 9000, "protocol": "UDP" },
    ]));
    let endpoint = backend(&bed.tasks, "one", false).await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    let echo = Arc::new(tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a port"));
    let datagrams = echo.local_addr().expect("an address");
    bed.tasks.spawn_until_stopped("echo", async move {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = echo.recv_from(&mut buffer).await {
            let _ = echo.send_to(&buffer[..length], from).await;
        }
    });
    add_service(&mut bed.objects, "udp", &[datagrams], None);
    let udp = json!({ "metadata": { "name": "udp", "namespace": "n" }, "spec": { "ports": [{ "port": 80, "protocol": "UDP" }] } });
    let slice = json!({
        "metadata": { "name": "udp", "namespace": "n" }, "addressType": "IPv4",
        "ports": [{ "port": datagrams.port(), "protocol": "UDP" }], "endpoints": [{ "addresses": ["127.0.0.1"] }],
    });
    let key = ferry_client::ObjectKey::new("n", "udp");
    bed.objects.services.insert(key.clone(), read(udp));
    bed.objects.slices.insert(key, vec![read(slice)]);
    let route = |name: &str| {
        json!({ "metadata": { "name": name, "namespace": "n" },
                "spec": { "parentRefs": [{ "name": "g" }], "rules": [{ "backendRefs": to(name) }] } })
    };
    bed.objects.tcp_routes = [read(route("one"))].into();
    bed.objects.udp_routes = [read(route("udp"))].into();
    bed.apply();
    assert!(raw(bed.at(9000), "GET /x HTTP/1.1\r\nhost: a\r\n\r\n").await.starts_with("HTTP/1.1 200"));
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    socket.connect(bed.at(9000)).await.expect("connected");
    let mut buffer = [0; 16];
    let answered = async {
        loop {
            socket.send(b"hello").await.expect("sent");
            // Datagrams may be lost.
            if let Ok(Ok(length)) = tokio::time::timeout(Duration::from_secs(1), socket.recv(&mut buffer)).await {
                break buffer[..length].to_vec();
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, answered).await.expect("in time"), b"hello");
    bed.tasks.stop(PATIENCE).await;
}
