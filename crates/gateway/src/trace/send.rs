//! The request itself, with a clock beside it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::{Error, HEADER, Traced, micros};

const PATIENCE: Duration = Duration::from_secs(30);
/// What is read of an answer.
const MOST: u64 = 8 << 20;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Sends it once, on a connection of its own.
pub async fn send(uri: &Uri, address: SocketAddr, token: &str, traced: &mut Traced) -> Result<(), Error> {
    let failed = |step: &'static str| move |source: BoxError| Error::Unreached { address, step, source };
    let began = Instant::now();
    let stream = within(TcpStream::connect(address)).await.map_err(failed("no connection"))?;
    stream.set_nodelay(true).map_err(|error| failed("no connection")(error.into()))?;
    traced.connecting = micros(began.elapsed());
    if uri.scheme_str() != Some("https") {
        return speak(uri, stream, token, traced, began).await.map_err(failed("no answer"));
    }
    let secured = async {
        let config = ferry_tls::unverified_client()?;
        let name = ServerName::try_from(uri.host().unwrap_or_default().to_owned())?;
        within(TlsConnector::from(config).connect(name, stream)).await
    };
    let begun = Instant::now();
    let secured = secured.await.map_err(failed("no TLS"))?;
    traced.handshake = Some(micros(begun.elapsed()));
    let session = secured.get_ref().1;
    let version = session.protocol_version().map(|version| format!("{version:?}")).unwrap_or_default();
    let whose = session.peer_certificates().and_then(|all| all.first()).and_then(|one| {
        let (_, read) = x509_parser::parse_x509_certificate(one).ok()?;
        Some(format!(", certificate until {}", read.validity().not_after))
    });
    traced.tls = Some(format!("{version}{}", whose.unwrap_or_default()));
    speak(uri, secured, token, traced, began).await.map_err(failed("no answer"))
}

async fn within<T, E: Into<BoxError>>(work: impl Future<Output = Result<T, E>>) -> Result<T, BoxError> {
    tokio::time::timeout(PATIENCE, work).await?.map_err(Into::into)
}

async fn speak<S>(uri: &Uri, stream: S, token: &str, traced: &mut Traced, began: Instant) -> Result<(), BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = within(http1::handshake(TokioIo::new(stream))).await?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let request = Request::get(path)
        .header(http::header::HOST, host)
        .header(http::header::USER_AGENT, "ferry-trace")
        .header(HEADER, token)
        .body(Empty::<Bytes>::new())?;
    let sent = Instant::now();
    let answered = async {
        let response = within(sender.send_request(request)).await?;
        traced.head = micros(sent.elapsed());
        traced.status = response.status().as_u16();
        traced.way = response.headers().get(HEADER).and_then(|way| serde_json::from_slice(way.as_bytes()).ok());
        let mut body = response.into_body();
        traced.bytes = 0;
        while let Some(frame) = within(async { Ok::<_, BoxError>(body.frame().await) }).await? {
            let length = frame?.data_ref().map_or(0, Bytes::len);
            traced.bytes += u64::try_from(length).unwrap_or_default();
            if traced.bytes > MOST {
                break;
            }
        }
        traced.total = micros(began.elapsed());
        Ok(())
    };
    tokio::select! {
        biased;
        answered = answered => answered,
        Err(error) = connection => Err(error.into()),
    }
}
