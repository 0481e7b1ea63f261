//! `/healthz` without TLS and without authentication, where upstream's kubelet has it too: at a port of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_connections::plain::{self, Answering};
use ferry_tasks::Tasks;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use tokio::net::TcpListener;

/// Before an address that is taken is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// What is wrong with this node's kubelet.
pub(crate) fn failure(tasks: &Tasks) -> Option<String> {
    tasks.failure().or_else(|| tasks.runtime_failure("node"))
}

/// Serves for ever. Another kubelet of this machine may have the port: nothing but this is missing then.
pub(crate) async fn serve(address: SocketAddr, tasks: Tasks) {
    let mut told = false;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) if !told => {
                tracing::warn!("Failed to start healthz server: {address}: {error}; it is tried again every 5 s");
                told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    };
    let asked = tasks.clone();
    let handler: Answering = Arc::new(move |path| answer(path, failure(&asked).as_deref()));
    plain::answer(listener, handler, tasks.child("healthz connections")).await;
}

fn answer(path: &str, failure: Option<&str>) -> Response<Full<Bytes>> {
    let (code, body) = match (path, failure) {
        ("/healthz" | "/healthz/ping", None) => (StatusCode::OK, "ok"),
        // The reason stays in the log: anybody may ask here.
        ("/healthz" | "/healthz/ping", Some(_)) => (StatusCode::INTERNAL_SERVER_ERROR, "healthz check failed\n"),
        _ => (StatusCode::NOT_FOUND, "404 page not found\n"),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = code;
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = loop {
            match TcpStream::connect(address).await {
                Ok(stream) => break stream,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an answer");
        text
    }

    #[tokio::test]
    async fn health_is_told_to_anybody_at_a_port_of_its_own() {
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let tasks = Tasks::new("test");
        tasks.spawn_until_stopped("healthz", serve(address, tasks.clone()));
        let well = ask(address, "/healthz").await;
        assert!(well.starts_with("HTTP/1.1 200 OK") && well.ends_with("\r\n\r\nok"), "{well}");
        assert!(ask(address, "/pods").await.starts_with("HTTP/1.1 404"));
        assert!(tasks.stop(Duration::from_secs(10)).await);
    }

    #[test]
    fn the_reason_is_for_the_log() {
        let ill = answer("/healthz", Some("a secret of the node"));
        assert_eq!(ill.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!format!("{:?}", ill.body()).contains("secret"));
    }
}
