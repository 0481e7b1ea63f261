//! Short answers without TLS: health and metrics, for whoever can reach the port.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_tasks::Tasks;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use crate::{Connections, Limits, Socket};

const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Of one port. Load balancers and scrapers ask one after the other.
const MOST_CONNECTIONS: usize = 32;

/// From a path to an answer, at once.
pub type Answering = Arc<dyn Fn(&str) -> Response<Full<Bytes>> + Send + Sync>;

/// Answers every request at once, until it is dropped.
pub async fn answer(listener: TcpListener, handler: Answering, tasks: Tasks) {
    // Those who say nothing must not keep a load balancer from asking: whoever has most gives way.
    let limits = Limits { unauthenticated: MOST_CONNECTIONS, ..Limits::new(MOST_CONNECTIONS, usize::MAX) };
    let connections = Connections::new(limits);
    loop {
        let Ok((stream, client)) = listener.accept().await else {
            // Out of descriptors, most likely: a moment later some may be free.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let handler = handler.clone();
        let stream = Socket::new(stream, connections.admit(client.ip(), tasks.stopping().child_token()));
        tasks.spawn_until_stopped("health connection", async move {
            // Whatever a client does, its place is free again soon.
            let _ = tokio::time::timeout(READ_TIMEOUT * 2, connection(stream, handler)).await;
        });
    }
}

async fn connection(stream: Socket<TcpStream>, handler: Answering) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = handler(request.uri().path());
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT).keep_alive(false);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!("a connection without TLS ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;

    use super::*;

    async fn connect(from: [u8; 4], to: std::net::SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((from, 0).into()).expect("an address");
        socket.connect(to).await.expect("connected")
    }

    /// A pod that held all places kept load balancers from finding out that the node is well.
    #[tokio::test]
    async fn silent_clients_keep_nobody_from_asking() {
        let tasks = Tasks::new("test");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let handler: Answering = Arc::new(|_| Response::new(Full::from("well")));
        tasks.spawn_until_stopped("health", answer(listener, handler, tasks.child("connections")));
        let mut silent = Vec::new();
        for _ in 0..MOST_CONNECTIONS + 8 {
            silent.push(connect([127, 0, 0, 5], address).await);
        }
        let mut other = connect([127, 0, 0, 6], address).await;
        other.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
        let mut text = String::new();
        other.read_to_string(&mut text).await.expect("an answer");
        assert!(text.ends_with("well"), "{text}");
        // It did not wait until they had used up their time.
        let is_open = |stream: &TcpStream| matches!(stream.try_read(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        let open = silent.iter().filter(|stream| is_open(stream)).count();
        assert!(open >= MOST_CONNECTIONS / 2, "{open} are open");
        tasks.stop(Duration::from_secs(10)).await;
    }
}
