//! The HTTPS client of webhooks: connections are kept, answers bounded, and failures worded as upstream words them.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use ferry_meta::ObjectReader;
use ferry_tasks::Tasks;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::config::{Hook, Target};
use super::service;

/// No answer is read further than this.
const LARGEST_ANSWER: usize = 3 * 1024 * 1024;
/// So many different sets of authorities are remembered; more than any cluster has.
const CLIENTS: usize = 256;

type HttpsClient = Client<Connector, Full<Bytes>>;

pub(super) struct WebhookClient {
    reader: Arc<dyn ObjectReader>,
    tasks: Tasks,
    /// By the CA bundle, and whether hosts are Services.
    clients: Mutex<HashMap<(String, bool), HttpsClient>>,
}

impl WebhookClient {
    pub(super) fn new(reader: Arc<dyn ObjectReader>, tasks: Tasks) -> Self {
        Self { reader, tasks, clients: Mutex::default() }
    }

    /// The body of a 200 answer, or the text of what went wrong.
    pub(super) async fn post(&self, hook: &Hook, body: Bytes) -> Result<Bytes, String> {
        let (url, service) = match &hook.target {
            Target::Url(url) => (url.clone(), false),
            Target::Service { namespace, name, path, port } => {
                let path = if path.starts_with('/') { path.clone() } else { format!("/{path}") };
                (format!("https://{name}.{namespace}.svc:{port}{path}"), true)
            }
        };
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{separator}timeout={}s", hook.timeout.as_secs());
        let failed = |why: String| format!("Post \"{url}\": {why}");
        let client = self.client(&hook.ca_bundle, service).map_err(&failed)?;
        let request = http::Request::post(&url)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::ACCEPT, "application/json, */*")
            .header(http::header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(body))
            .map_err(|error| failed(error.to_string()))?;
        let call = async {
            let answer = client.request(request).await.map_err(|error| failed(deepest(&error)))?;
            let status = answer.status();
            let bytes = Limited::new(answer.into_body(), LARGEST_ANSWER)
                .collect()
                .await
                .map_err(|error| failed(deepest(&*error)))?
                .to_bytes();
            Ok::<_, String>((status, bytes))
        };
        let timed = tokio::time::timeout(hook.timeout, call).await;
        let (status, bytes) = timed.map_err(|_| failed("context deadline exceeded".into()))??;
        if status.is_success() { Ok(bytes) } else { Err(refused(status, &bytes)) }
    }

    fn client(&self, ca_bundle: &str, service: bool) -> Result<HttpsClient, String> {
        let mut clients = self.clients.lock();
        let key = (ca_bundle.to_owned(), service);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let connector = Connector {
            tls: TlsConnector::from(Arc::new(tls(ca_bundle)?)),
            services: service.then(|| self.reader.clone()),
        };
        let client = Client::builder(TaskExecutor(self.tasks.clone()))
            .pool_idle_timeout(Duration::from_secs(90))
            .pool_max_idle_per_host(16)
            .build(connector);
        if clients.len() >= CLIENTS {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }
}

/// As upstream's client words an answer that is no success.
fn refused(status: http::StatusCode, body: &[u8]) -> String {
    match status.as_u16() {
        404 => "the server could not find the requested resource".into(),
        401 => "the server has asked for the client to provide credentials".into(),
        403 => "unknown".into(),
        429 => "the server has received too many requests and has asked us to try again later".into(),
        500.. => {
            let text = String::from_utf8_lossy(&body[..body.len().min(1024)]);
            let text = text.trim();
            format!("an error on the server ({text:?}) has prevented the request from succeeding")
        }
        _ => "the server rejected our request for an unknown reason".into(),
    }
}

/// The bundle's authorities; without one, those of this machine.
pub fn authorities(ca_bundle: &str) -> Result<rustls::RootCertStore, String> {
    let mut roots = rustls::RootCertStore::empty();
    if ca_bundle.is_empty() {
        let system = std::fs::read("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
        for certificate in CertificateDer::pem_slice_iter(&system).flatten() {
            // One odd certificate among the machine's must not take the others away.
            let _ = roots.add(certificate);
        }
    } else {
        let pem = base64::engine::general_purpose::STANDARD
            .decode(ca_bundle)
            .map_err(|_| "unable to load root certificates: unable to parse bytes as PEM block".to_owned())?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| format!("unable to load root certificates: {error:?}"))?;
            roots.add(certificate).map_err(|error| format!("unable to load root certificates: {error}"))?;
        }
    }
    Ok(roots)
}

fn tls(ca_bundle: &str) -> Result<rustls::ClientConfig, String> {
    let roots = authorities(ca_bundle)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[derive(Debug)]
struct ConnectError(String);

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConnectError {}

/// The text of our own error inside the client's, else of the innermost one.
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut current = error;
    loop {
        if let Some(ours) = current.downcast_ref::<ConnectError>() {
            return ours.0.clone();
        }
        match current.source() {
            Some(source) => current = source,
            None => return current.to_string(),
        }
    }
}

#[derive(Clone)]
struct Connector {
    tls: TlsConnector,
    /// Hosts are `name.namespace.svc`, reached through their endpoints.
    services: Option<Arc<dyn ObjectReader>>,
}

impl Connector {
    async fn connect(self, uri: http::Uri) -> Result<Stream, ConnectError> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let (address, port) = match &self.services {
            Some(reader) => service::resolve(&**reader, &host, port).map_err(ConnectError)?,
            None => (host.clone(), port),
        };
        let shown = if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
        let stream = TcpStream::connect((address.as_str(), port)).await.map_err(|error| {
            let why = match error.kind() {
                std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
                std::io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
                std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
                _ => error.to_string(),
            };
            ConnectError(format!("dial tcp {shown}: {why}"))
        })?;
        let _ = stream.set_nodelay(true);
        let name = ServerName::try_from(host.clone()).map_err(|error| ConnectError(error.to_string()))?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| ConnectError(tls_failure(&error, &host)))?;
        Ok(Stream(TokioIo::new(stream)))
    }
}

fn tls_failure(error: &std::io::Error, host: &str) -> String {
    use rustls::CertificateError as Bad;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let why = match inner {
        Some(rustls::Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature)) => {
            "certificate signed by unknown authority".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(Bad::Expired | Bad::NotValidYet))
        | Some(rustls::Error::InvalidCertificate(Bad::ExpiredContext { .. } | Bad::NotValidYetContext { .. })) => {
            "certificate has expired or is not yet valid".to_owned()
        }
        Some(rustls::Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. })) => {
            format!("certificate is not valid for any names, but wanted to match {host}")
        }
        Some(rustls::Error::InvalidCertificate(other)) => other.to_string(),
        _ => return format!("tls: {error}"),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

impl tower_service::Service<http::Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: http::Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

pub(super) struct Stream(TokioIo<TlsStream<TcpStream>>);

impl hyper_util::client::legacy::connect::Connection for Stream {
    fn connected(&self) -> hyper_util::client::legacy::connect::Connected {
        hyper_util::client::legacy::connect::Connected::new()
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// The client's connections end with the server.
#[derive(Clone)]
struct TaskExecutor(Tasks);

impl<F> hyper::rt::Executor<F> for TaskExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn_until_stopped("webhook connection", future);
    }
}
