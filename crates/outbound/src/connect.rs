//! Connections: TCP, then TLS where the scheme wants it, with upstream's words for what goes wrong.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use ferry_tasks::Tasks;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub type HttpsClient = Client<Connector, Full<Bytes>>;
/// From the host and port of a URL to where it is reached; the error is shown to the caller.
pub type Resolver = Arc<dyn Fn(&str, u16) -> Result<(String, u16), String> + Send + Sync>;

/// A client whose connections belong to `tasks` and end with them.
pub fn https(tasks: Tasks, tls: rustls::ClientConfig, resolver: Option<Resolver>) -> HttpsClient {
    let connector = Connector { tls: TlsConnector::from(Arc::new(tls)), resolver };
    Client::builder(TaskExecutor(tasks))
        .pool_idle_timeout(Duration::from_secs(90))
        .pool_max_idle_per_host(16)
        .build(connector)
}

#[derive(Debug)]
pub struct ConnectError(String);

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConnectError {}

/// The text of our own error inside the client's, else of the innermost one.
pub fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
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
pub struct Connector {
    tls: TlsConnector,
    resolver: Option<Resolver>,
}

impl Connector {
    async fn connect(self, uri: http::Uri) -> Result<Stream, ConnectError> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let plain = uri.scheme_str() == Some("http");
        let port = uri.port_u16().unwrap_or(if plain { 80 } else { 443 });
        let (address, port) = match &self.resolver {
            Some(resolve) => resolve(&host, port).map_err(ConnectError)?,
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
        if plain {
            return Ok(Stream(TokioIo::new(Box::new(stream))));
        }
        let name = ServerName::try_from(host.clone()).map_err(|error| ConnectError(error.to_string()))?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| ConnectError(tls_failure(&error, &host)))?;
        Ok(Stream(TokioIo::new(Box::new(stream))))
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

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection that stands.
pub struct Stream(TokioIo<Box<dyn Io>>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
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

#[derive(Clone)]
struct TaskExecutor(Tasks);

impl<F> hyper::rt::Executor<F> for TaskExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn_until_stopped("outbound connection", future);
    }
}
