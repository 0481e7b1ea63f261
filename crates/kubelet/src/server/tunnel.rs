//! Connections to the runtime's streaming server, and bytes carried between them and a client.

use std::io;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Asks the runtime to upgrade with these headers. The connection has to be driven by the caller's tasks.
pub(crate) async fn open(url: &str, headers: HeaderMap, tasks: &ferry_tasks::Tasks) -> io::Result<Response<Incoming>> {
    let url: Uri = url.parse().map_err(io::Error::other)?;
    let host = url.host().ok_or_else(|| io::Error::other("the runtime's address has no host"))?;
    let port = url.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tasks.spawn_until_stopped("runtime stream", async move {
        let _ = connection.with_upgrades().await;
    });
    let path = url.path_and_query().map_or("/", |p| p.as_str());
    let mut request = Request::post(path).body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
    if headers.contains_key("sec-websocket-key") {
        *request.method_mut() = http::Method::GET;
    }
    *request.headers_mut() = headers;
    let authority = url.authority().map(|a| a.as_str()).unwrap_or_default();
    request.headers_mut().insert("host", authority.parse().map_err(io::Error::other)?);
    sender.send_request(request).await.map_err(io::Error::other)
}

/// The headers of a client's upgrade that the runtime needs to see.
pub(crate) fn upgrade_headers(from: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in from {
        let text = name.as_str();
        let wanted = matches!(text, "connection" | "upgrade" | "x-stream-protocol-version" | "origin")
            || text.starts_with("sec-websocket-");
        if wanted {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

/// The headers that ask for SPDY with one of these protocols.
pub(crate) fn spdy_headers(protocol: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("connection", http::HeaderValue::from_static("Upgrade"));
    headers.insert("upgrade", http::HeaderValue::from_static("SPDY/3.1"));
    headers.insert("x-stream-protocol-version", http::HeaderValue::from_static(protocol));
    headers
}

/// Bytes both ways, until either side ends.
pub(crate) async fn copy(client: Upgraded, mut runtime: impl AsyncRead + AsyncWrite + Unpin) {
    let mut client = TokioIo::new(client);
    let _ = tokio::io::copy_bidirectional(&mut client, &mut runtime).await;
}

/// A byte stream inside WebSocket messages: how kubectl sends SPDY through proxies.
pub(crate) async fn unwrap<C, R>(client: WebSocketStream<C>, runtime: R) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut source) = client.split();
    let (mut read, mut write) = tokio::io::split(runtime);
    let outward = async {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            let length = read.read(&mut buffer).await?;
            if length == 0 {
                return Ok::<_, io::Error>(());
            }
            let data = Bytes::copy_from_slice(&buffer[..length]);
            sink.send(Message::Binary(data)).await.map_err(io::Error::other)?;
        }
    };
    let inward = async {
        while let Some(message) = source.next().await {
            match message.map_err(io::Error::other)? {
                Message::Binary(data) => {
                    write.write_all(&data).await?;
                    write.flush().await?;
                }
                Message::Close(_) => break,
                _ => {}
            }
        }
        Ok::<_, io::Error>(())
    };
    tokio::select! {
        ended = outward => ended,
        ended = inward => ended,
    }
}
