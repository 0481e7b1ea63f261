//! Connections through a proxy: CONNECT, SOCKS5, or requests that the proxy itself forwards.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::{ClientBuilder, ConfigExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceBuilder};

use super::proxy::{Proxy, Scheme};

/// How long a proxy may think about a connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// A proxy's answer to CONNECT is not longer.
const MOST: usize = 64 << 10;

/// In Go's words.
#[derive(Debug)]
struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self("unexpected EOF".into()),
            _ => Self(error.to_string()),
        }
    }
}

/// A client that reaches the server of the configuration through a proxy. Where it `tunnels`, the proxy sees no request of plain text
/// either: so are connections made that are upgraded later.
pub fn client(mut config: kube::Config, proxy: Proxy, tunnels: bool) -> kube::Result<kube::Client> {
    let forwards = !tunnels && proxy.scheme != Scheme::Socks5;
    if forwards
        && config.cluster_url.scheme_str() == Some("http")
        && let Some(value) = authorization(&proxy).and_then(|value| http::HeaderValue::from_str(&value).ok())
    {
        config.headers.push((http::header::PROXY_AUTHORIZATION, value));
    }
    let mut plain = HttpConnector::new();
    plain.enforce_http(false);
    plain.set_connect_timeout(Some(Duration::from_secs(30)));
    // A proxy with TLS is known by the cluster's authorities, as in Go.
    let reach = config.rustls_https_connector_with_connector(plain)?;
    let connector = config.rustls_https_connector_with_connector(Connector { proxy, reach, forwards })?;
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

fn authorization(proxy: &Proxy) -> Option<String> {
    let (name, password) = proxy.user.as_ref()?;
    Some(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"))))
}

#[derive(Clone)]
struct Connector {
    proxy: Proxy,
    reach: HttpsConnector<HttpConnector>,
    forwards: bool,
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Failed;
    type Future = BoxFuture<'static, Result<Stream, Failed>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        self.reach.poll_ready(cx).map_err(|error| Failed(error.to_string()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let mut connector = self.clone();
        Box::pin(async move { connector.connect(&to).await })
    }
}

impl Connector {
    async fn connect(&mut self, to: &Uri) -> Result<Stream, Failed> {
        let (proxy, forwards) = (&self.proxy, self.forwards && to.scheme_str() == Some("http"));
        let host = to.host().unwrap_or_default();
        let port = to.port_u16().unwrap_or(if to.scheme_str() == Some("http") { 80 } else { 443 });
        let scheme = if proxy.scheme == Scheme::Https { "https" } else { "http" };
        let at = if proxy.host.contains(':') { format!("[{}]", proxy.host) } else { proxy.host.clone() };
        let place = format!("{at}:{}", proxy.port);
        let uri = format!("{scheme}://{place}").parse().map_err(|error| Failed(format!("{error}")))?;
        let reached = self.reach.call(uri).await;
        let inner =
            reached.map_err(|error| Failed(format!("proxyconnect tcp: {}", dialled(&*error, proxy, &place))))?;
        let mut stream = TokioIo::new(Stream { inner, forwards });
        if !forwards {
            let asked = async {
                match proxy.scheme {
                    Scheme::Socks5 => socks(&mut stream, proxy, host, port)
                        .await
                        .map_err(|why| Failed(format!("socks connect tcp {place}->{host}:{port}: {why}"))),
                    _ => tunnel(&mut stream, proxy, host, port).await,
                }
            };
            let asked = tokio::time::timeout(PATIENCE, asked).await;
            asked.map_err(|_| Failed("context deadline exceeded".into()))??;
        }
        Ok(stream.into_inner())
    }
}

/// Why there is no connection to the proxy.
fn dialled(error: &(dyn std::error::Error + 'static), proxy: &Proxy, place: &str) -> String {
    let mut source = Some(error);
    let mut last = String::new();
    while let Some(inner) = source {
        last = inner.to_string();
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::ConnectionRefused => return format!("dial tcp {place}: connect: connection refused"),
                io::ErrorKind::TimedOut => return format!("dial tcp {place}: i/o timeout"),
                io::ErrorKind::NetworkUnreachable => {
                    return format!("dial tcp {place}: connect: network is unreachable");
                }
                io::ErrorKind::HostUnreachable => return format!("dial tcp {place}: connect: no route to host"),
                _ => {}
            }
        }
        source = inner.source();
    }
    crate::refusal::in_words_of_go(&last, &proxy.host)
}

/// Asks for a way through; what follows is between the server and this side.
async fn tunnel(stream: &mut TokioIo<Stream>, proxy: &Proxy, host: &str, port: u16) -> Result<(), Failed> {
    let to = format!("{host}:{port}");
    let mut request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: Go-http-client/1.1\r\n");
    if let Some(value) = authorization(proxy) {
        request.push_str(&format!("Proxy-Authorization: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    // Byte by byte: what stands behind the head is the server's.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        if head.len() == MOST {
            return Err(Failed("net/http: server response headers exceeded limit".into()));
        }
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let line = head.lines().next().unwrap_or_default();
    let malformed = || Failed(format!("malformed HTTP response {}", crate::text::quote(line)));
    let (version, status) = line.split_once(' ').ok_or_else(malformed)?;
    let status = status.trim_start();
    let (code, text) = status.split_once(' ').map_or((status, None), |(code, text)| (code, Some(text)));
    if !version.starts_with("HTTP/") {
        return Err(malformed());
    }
    match code.parse::<u16>() {
        Ok(200) => Ok(()),
        Ok(100..=999) => Err(Failed(text.unwrap_or("unknown status code").to_owned())),
        _ => Err(Failed(format!("malformed HTTP status code {}", crate::text::quote(code)))),
    }
}

/// RFC 1928 with the names and passwords of RFC 1929.
async fn socks(stream: &mut TokioIo<Stream>, proxy: &Proxy, host: &str, port: u16) -> Result<(), Failed> {
    let fail = |why: &str| Failed(why.to_owned());
    let methods: &[u8] = if proxy.user.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
    stream.write_all(methods).await?;
    stream.flush().await?;
    let (version, method) = (stream.read_u8().await?, stream.read_u8().await?);
    if version != 5 {
        return Err(Failed(format!("unexpected protocol version {version}")));
    }
    match (method, &proxy.user) {
        (0, _) => {}
        (2, Some((name, password))) => {
            let length = |text: &str| u8::try_from(text.len()).map_err(|_| fail("invalid username/password"));
            let (first, second) = (length(name)?, length(password)?);
            if first == 0 {
                return Err(fail("invalid username/password"));
            }
            let told = [&[1, first], name.as_bytes(), &[second], password.as_bytes()].concat();
            stream.write_all(&told).await?;
            stream.flush().await?;
            if stream.read_u8().await? != 1 {
                return Err(fail("invalid username/password version"));
            }
            if stream.read_u8().await? != 0 {
                return Err(fail("username/password authentication failed"));
            }
        }
        (255, _) => return Err(fail("no acceptable authentication methods")),
        (other, _) => return Err(Failed(format!("unsupported authentication method {other}"))),
    }
    let mut request = vec![5, 1, 0];
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => request.extend([&[1][..], &address.octets()].concat()),
        Ok(IpAddr::V6(address)) => request.extend([&[4][..], &address.octets()].concat()),
        Err(_) => {
            let length = u8::try_from(host.len()).map_err(|_| fail("FQDN too long"))?;
            request.extend([&[3, length], host.as_bytes()].concat());
        }
    }
    request.extend(port.to_be_bytes());
    stream.write_all(&request).await?;
    stream.flush().await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [version, answer, _, kind] = head;
    if version != 5 {
        return Err(Failed(format!("unexpected protocol version {version}")));
    }
    if answer != 0 {
        return Err(Failed(format!("unknown error {}", refusal(answer))));
    }
    let address = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        other => return Err(Failed(format!("unknown address type {other}"))),
    };
    let mut bound = vec![0; address + 2];
    stream.read_exact(&mut bound).await?;
    Ok(())
}

fn refusal(answer: u8) -> String {
    let known = match answer {
        1 => "general SOCKS server failure",
        2 => "connection not allowed by ruleset",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "command not supported",
        8 => "address type not supported",
        other => return format!("unknown code: {other}"),
    };
    known.to_owned()
}

/// To the server, or to a proxy that forwards requests.
struct Stream {
    inner: MaybeHttpsStream<TokioIo<TcpStream>>,
    forwards: bool,
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        // Then requests name the server, not only the path.
        Connected::new().proxy(self.forwards)
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
