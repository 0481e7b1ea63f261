//! `/health`, `/ready` and `/metrics`, at the ports that the Corefile names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_connections::plain::{self, Answering};
use ferry_tasks::Tasks;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::handler::Handler;

/// A port that is taken is tried again this often.
const BIND_AGAIN: Duration = Duration::from_secs(5);

fn answer(code: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn page(handler: &Handler, path: &str) -> Response<Full<Bytes>> {
    match path {
        "/health" => answer(StatusCode::OK, "OK".into()),
        "/ready" if handler.is_ready() => answer(StatusCode::OK, "OK".into()),
        "/ready" => answer(StatusCode::SERVICE_UNAVAILABLE, "kubernetes".into()),
        "/metrics" => answer(StatusCode::OK, handler.metrics().text(&handler.settings())),
        _ => answer(StatusCode::NOT_FOUND, "404 page not found\n".into()),
    }
}

/// Serves the pages beside each address of the server. Nothing else depends on it: a port that is taken is waited for.
pub(crate) fn serve(handler: &Handler, addresses: &[SocketAddr], tasks: &Tasks) {
    let (handler, group) = (handler.clone(), tasks.clone());
    let mut hosts: Vec<_> = addresses.iter().map(SocketAddr::ip).collect();
    hosts.dedup();
    tasks.spawn_until_stopped("observed ports", async move {
        let mut running: BTreeMap<SocketAddr, JoinHandle<()>> = BTreeMap::new();
        let mut told = false;
        loop {
            let changed = handler.changed();
            let ports = handler.settings().observed.clone();
            running.retain(|address, task| {
                let keep = ports.contains(&address.port());
                if !keep {
                    task.abort();
                }
                keep
            });
            let mut all = Vec::new();
            for host in &hosts {
                all.extend(ports.iter().map(|port| SocketAddr::new(*host, *port)));
            }
            let mut failed = false;
            for address in all {
                if running.contains_key(&address) {
                    continue;
                }
                match TcpListener::bind(address).await {
                    Ok(listener) => {
                        let handler = handler.clone();
                        let answering: Answering = Arc::new(move |path| page(&handler, path));
                        let task = plain::answer(listener, answering, group.clone());
                        running.insert(address, group.spawn_until_stopped("observed port", task));
                    }
                    Err(error) => {
                        if !told {
                            tracing::warn!("the figures of DNS are not served at {address} yet: {error}");
                        }
                        (told, failed) = (true, true);
                    }
                }
            }
            match failed {
                true => drop(tokio::time::timeout(BIND_AGAIN, changed).await),
                false => changed.await,
            }
        }
    });
}
