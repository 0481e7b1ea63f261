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
use tokio::sync::Semaphore;

const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Of one port. Load balancers and scrapers ask one after the other.
const MOST_CONNECTIONS: usize = 32;

/// From a path to an answer, at once.
pub type Answering = Arc<dyn Fn(&str) -> Response<Full<Bytes>> + Send + Sync>;

/// Answers every request at once, until it is dropped.
pub async fn answer(listener: TcpListener, handler: Answering, tasks: Tasks) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: a moment later some may be free.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let handler = handler.clone();
        tasks.spawn_until_stopped("health connection", async move {
            let _permit = permit;
            // Whatever a client does, its place is free again soon.
            let _ = tokio::time::timeout(READ_TIMEOUT * 2, connection(stream, handler)).await;
        });
    }
}

async fn connection(stream: TcpStream, handler: Answering) {
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
