//! How the server reaches kubelets, pods and Services: one request over one connection, upgrades included.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferry_meta::{ApiError, Reason};
use ferry_tasks::Tasks;
use http::header::{AUTHORIZATION, CONNECTION, HOST, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::response::answer::{Body, BoxError, full};
use crate::transport::reach;

pub(crate) const DIAL: Duration = Duration::from_secs(10);

/// The TLS of connections to kubelets, with the certificate the server shows them; without it nothing is forwarded.
#[derive(Clone, Default)]
pub struct Kubelets {
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// Where a request is forwarded to.
pub(crate) struct Target {
    pub host: String,
    pub port: u16,
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The node whose kubelet must answer, and nobody else who has its address now.
    pub kubelet_of: Option<String>,
    /// Path and query there.
    pub path: String,
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

async fn dial(target: &Target) -> Result<Box<dyn Io>, Failure> {
    let addresses = match reach::addresses(target.host.trim_matches(['[', ']']), target.port).await {
        Ok(addresses) => addresses,
        Err(reach::Unreached::NotAllowed) => return Err(Failure::Refused(reach::not_allowed())),
        Err(reach::Unreached::Unknown(error)) => return Err(Failure::Away(error.into())),
    };
    Ok(connect(target, &addresses).await?)
}

/// Why nothing came back.
enum Failure {
    /// It was not even tried.
    Refused(ApiError),
    Away(BoxError),
}

impl From<BoxError> for Failure {
    fn from(error: BoxError) -> Self {
        Self::Away(error)
    }
}

async fn connect(target: &Target, addresses: &[SocketAddr]) -> Result<Box<dyn Io>, BoxError> {
    let tcp = TcpStream::connect(addresses).await?;
    tcp.set_nodelay(true)?;
    let Some(tls) = &target.tls else { return Ok(Box::new(tcp)) };
    let name = ServerName::try_from(target.host.trim_matches(['[', ']']).to_owned())?;
    // HTTP/1.1 alone: upgrades need a connection of their own.
    let mut config = (**tls).clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
    if let Some(node) = &target.kubelet_of {
        prove_kubelet(node, stream.get_ref().1.peer_certificates())?;
    }
    Ok(Box::new(stream))
}

/// Nodes write their own address. Whoever answers there shows by its certificate that it is the node's kubelet, before it
/// is told anything.
fn prove_kubelet(node: &str, certificates: Option<&[CertificateDer<'_>]>) -> Result<(), BoxError> {
    let leaf = certificates.and_then(<[_]>::first).ok_or("it shows no certificate")?;
    let subject = ferry_x509::subject_of_certificate(leaf)?;
    let name = subject.common_name().unwrap_or_default();
    if name.strip_prefix("system:node:") == Some(node) && subject.organizations == ["system:nodes"] {
        return Ok(());
    }
    Err(format!("its certificate is that of {name:?}, not of the kubelet of node {node:?}").into())
}

/// Sends the request on and brings the answer back; an upgrade is tunnelled byte by byte until either side ends.
pub(crate) async fn forward(
    tasks: &Tasks,
    target: &Target,
    request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let answered = match tokio::time::timeout(DIAL, dial(target)).await {
        Ok(Ok(io)) => exchange(tasks, io, target, request).await,
        Ok(Err(Failure::Refused(refusal))) => return Err(refusal),
        Ok(Err(Failure::Away(error))) => Err(error),
        Err(_) => Err("timed out".into()),
    };
    answered.map_err(|error| {
        let message = format!("error trying to reach {}:{}: {error}", target.host, target.port);
        ApiError::new(503, Reason::ServiceUnavailable, message)
    })
}

/// One request over a connection that is there.
pub(crate) async fn exchange(
    tasks: &Tasks,
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    target: &Target,
    mut request: Request<Body>,
) -> Result<Response<Body>, BoxError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
    tasks.spawn_until_stopped("forwarded connection", async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!("a forwarded connection ended: {error}");
        }
    });
    let must_upgrade = must_upgrade(request.headers());
    let upgrade = request.headers().contains_key(UPGRADE).then(|| hyper::upgrade::on(&mut request));
    let mut answer = sender.send_request(outgoing(target, request)?).await?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(client) = upgrade
    {
        let server = hyper::upgrade::on(&mut answer);
        tasks.spawn_until_stopped("tunnel", async move {
            let (Ok(client), Ok(server)) = tokio::join!(client, server) else { return };
            let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        });
        let (parts, _) = answer.into_parts();
        return Ok(Response::from_parts(parts, full("")));
    }
    // Who was asked to switch and sends the client elsewhere, or answers as if it had been asked for a page, is not followed.
    if must_upgrade && answer.status().as_u16() < 400 {
        return Err(format!("invalid upgrade response: status code {}", answer.status().as_u16()).into());
    }
    let mut response = answer.map(|body| body.map_err(|e| -> BoxError { e.into() }).boxed_unsync());
    for header in ["connection", "keep-alive", "transfer-encoding", "upgrade"] {
        response.headers_mut().remove(header);
    }
    Ok(response)
}

/// Whether the client says that it goes on with another protocol.
fn must_upgrade(headers: &HeaderMap) -> bool {
    let words = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut words = words.flat_map(|value| value.split(','));
    headers.contains_key(UPGRADE) && words.any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

/// The client's request as the other side is to see it: without its credentials.
fn outgoing(target: &Target, request: Request<Body>) -> Result<Request<Body>, BoxError> {
    let (parts, body) = request.into_parts();
    let mut headers: HeaderMap = parts.headers;
    headers.remove(AUTHORIZATION);
    let upgrades = headers.contains_key(UPGRADE);
    if !upgrades {
        headers.remove(CONNECTION);
    }
    let impersonation: Vec<_> =
        headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in impersonation {
        headers.remove(name);
    }
    if headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        let kept: Vec<String> = headers
            .get_all(SEC_WEBSOCKET_PROTOCOL)
            .iter()
            .filter_map(|v| v.to_str().ok())
            .flat_map(|v| v.split(','))
            .map(|p| p.trim().to_owned())
            .filter(|p| !ferry_auth::authenticate::is_token_protocol(p))
            .collect();
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(&kept.join(", "))?);
    }
    headers.insert(HOST, HeaderValue::from_str(&format!("{}:{}", target.host, target.port))?);
    let mut outgoing = Request::builder().method(parts.method).uri(&*target.path).body(body)?;
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}
