//! The request itself, with a clock beside it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use super::{Failure, HEADER, Hop, Target, Traced, micros};
use crate::table::{Depth, Hostname};

const PATIENCE: Duration = Duration::from_secs(30);
/// What is read of an answer.
const MOST: u64 = 8 << 20;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

fn failed(hop: Hop) -> impl Fn(BoxError) -> Failure {
    move |error| Failure::new(hop, with_sources(&*error))
}

/// An error and what it came from, once each.
fn with_sources(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = source.source();
    }
    text
}

async fn within<T, E: Into<BoxError>>(work: impl Future<Output = Result<T, E>>) -> Result<T, BoxError> {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(outcome) => outcome.map_err(Into::into),
        Err(_) => Err(format!("nothing came for {} s", PATIENCE.as_secs()).into()),
    }
}

/// Whether whoever listens there knows the token. No backend gets to see this: it asks for the server itself.
pub(super) async fn is_known(target: &Target, address: SocketAddr, token: &str) -> Result<bool, Failure> {
    let stream = open(target, address, &mut Traced::default()).await?;
    // Whatever such a server makes of it: the request itself tells more.
    let Ok((mut sender, connection)) = within(http1::handshake(TokioIo::new(stream))).await else { return Ok(false) };
    let Ok(request) = request(target, Method::OPTIONS, "*", token) else { return Ok(false) };
    let answered = tokio::select! {
        biased;
        answered = within(sender.send_request(request)) => answered.ok(),
        _ = connection => None,
    };
    Ok(answered.is_some_and(|answer: Response<Incoming>| answer.headers().contains_key(HEADER)))
}

/// Sends it once, on a connection of its own.
pub(super) async fn send(
    target: &Target,
    address: SocketAddr,
    token: &str,
    traced: &mut Traced,
) -> Result<(), Failure> {
    let began = Instant::now();
    let stream = open(target, address, traced).await?;
    speak(target, stream, token, traced, began).await.map_err(failed(Hop::Answer))
}

async fn open(target: &Target, address: SocketAddr, traced: &mut Traced) -> Result<Box<dyn Stream>, Failure> {
    let began = Instant::now();
    let stream = within(TcpStream::connect(address)).await.map_err(failed(Hop::Connection))?;
    // It only makes it faster.
    let _ = stream.set_nodelay(true);
    traced.connecting = micros(began.elapsed());
    if !target.is_secure {
        return Ok(Box::new(stream));
    }
    let begun = Instant::now();
    let secured = async {
        let config = ferry_tls::unverified_client()?;
        let name = ServerName::try_from(target.host.clone())?;
        within(TlsConnector::from(config).connect(name, stream)).await
    };
    let secured = secured.await.map_err(failed(Hop::Tls))?;
    traced.handshake = Some(micros(begun.elapsed()));
    describe(&secured, target, traced);
    Ok(Box::new(secured))
}

/// What the handshake showed. Nothing is verified here, so what a browser would mind is told.
fn describe(secured: &TlsStream<TcpStream>, target: &Target, traced: &mut Traced) {
    let session = secured.get_ref().1;
    let mut told = session.protocol_version().map(|version| format!("{version:?}")).unwrap_or_default();
    let first = session.peer_certificates().and_then(|all| all.first());
    if let Some((_, certificate)) = first.and_then(|one| x509_parser::parse_x509_certificate(one).ok()) {
        let names = names(&certificate);
        told = format!("{told}, certificate for {} until {}", names.join(", "), certificate.validity().not_after);
        traced.notes = remarks(&names, &target.host, certificate.validity().is_valid());
    }
    traced.tls = Some(told);
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let listed = certificate.subject_alternative_name().ok().flatten();
    let listed = listed.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    let name = |one: &GeneralName<'_>| match one {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress([a, b, c, d]) => Some(format!("{a}.{b}.{c}.{d}")),
        _ => None,
    };
    listed.iter().filter_map(name).take(8).collect()
}

fn remarks(names: &[String], host: &str, is_valid: bool) -> Vec<String> {
    let host = host.to_ascii_lowercase();
    let is_for = names.iter().any(|name| Hostname::parse(name, Depth::One).matches(&host));
    let mut remarks = Vec::new();
    if !is_for {
        remarks.push(format!("clients that verify the certificate refuse it: it is not for {host}"));
    }
    if !is_valid {
        remarks.push("clients that verify the certificate refuse it: it is over, or not valid yet".to_owned());
    }
    remarks
}

fn request(target: &Target, method: Method, path: &str, token: &str) -> Result<Request<Empty<Bytes>>, http::Error> {
    let host = target.uri.authority().map_or("", |authority| authority.as_str());
    Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, host)
        .header(http::header::USER_AGENT, "ferry-trace")
        .header(HEADER, token)
        .body(Empty::new())
}

async fn speak(
    target: &Target,
    stream: Box<dyn Stream>,
    token: &str,
    traced: &mut Traced,
    began: Instant,
) -> Result<(), BoxError> {
    let (mut sender, connection) = within(http1::handshake(TokioIo::new(stream))).await?;
    let path = target.uri.path_and_query().map_or("/", |path| path.as_str());
    let request = request(target, Method::GET, path, token)?;
    let sent = Instant::now();
    let answered = async {
        let response = within(sender.send_request(request)).await?;
        traced.head = micros(sent.elapsed());
        traced.status = response.status().as_u16();
        let text =
            |name| response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        traced.location = text(http::header::LOCATION).unwrap_or_default();
        traced.way = response.headers().get(HEADER).and_then(|way| serde_json::from_slice(way.as_bytes()).ok());
        let mut body = response.into_body();
        let whole = async {
            while let Some(frame) = body.frame().await {
                let length = frame?.data_ref().map_or(0, Bytes::len);
                traced.bytes += u64::try_from(length).unwrap_or_default();
                if traced.bytes > MOST {
                    return Ok::<_, BoxError>(false);
                }
            }
            Ok(true)
        };
        // An answer that goes on for ever has been an answer all the same.
        let whole = tokio::time::timeout(PATIENCE, whole).await.unwrap_or(Ok(false))?;
        traced.cut = !whole;
        traced.total = micros(began.elapsed());
        Ok(())
    };
    tokio::select! {
        biased;
        answered = answered => answered,
        Err(error) = connection => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::remarks;

    #[test]
    fn it_is_said_what_a_browser_would_mind() {
        let names = ["shop.example".to_owned(), "*.shop.example".to_owned(), "10.0.0.1".to_owned()];
        for (host, valid, want) in [
            ("shop.example", true, 0),
            ("A.shop.example", true, 0),
            ("a.b.shop.example", true, 1),
            ("10.0.0.1", true, 0),
            ("other.example", false, 2),
        ] {
            assert_eq!(remarks(&names, host, valid).len(), want, "{host}");
        }
    }
}
