//! The kubelet's own server: logs, exec, attach and port-forward for the API server, figures for those who may see them.

mod access;
mod cadvisor;
mod checkpoint;
mod configz;
mod idle;
mod local_volumes;
mod log_query;
mod logs;
mod node_logs;
mod stream;
mod translate;
mod tunnel;
mod usage;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_client::Informer;
pub(crate) use ferry_connections::Body;
use ferry_connections::{Connections, Handler, Limits, Protocols, Received};
use ferry_metrics::{Kind, Page, labels};
use ferry_tasks::Tasks;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::Pod;
use tokio::net::TcpListener;

use access::Access;

use crate::config::Tls;
use crate::context::Context;
use crate::local_volumes::LocalVolumes;
use crate::mailboxes::Mailboxes;
use crate::metrics::Gauges;
use crate::runtime::{self, PodState};
use crate::settings::Endpoints;

/// More than the API server ever holds open.
const MOST_CONNECTIONS: usize = 1000;
const HELD_BYTES: usize = 64 << 20;

pub(crate) struct Server {
    pub(crate) context: Arc<Context>,
    pub(crate) pods: Informer<Pod>,
    pub(crate) mailboxes: Mailboxes,
    pub(crate) tasks: Tasks,
    pub(crate) last_seen: usage::LastSeen,
    pub(crate) connections: Connections,
    /// None where this node makes none.
    pub(crate) local_volumes: Option<LocalVolumes>,
}

/// Listens on the node's port.
pub(crate) async fn bind(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::new(address, port)).await
}

pub(crate) async fn serve(server: Arc<Server>, listener: Arc<TcpListener>, tls: Tls) {
    let context = &server.context;
    let access =
        Arc::new(Access::new(context.client.clone(), &context.config.node_name, context.config.settings.server));
    let tasks = server.tasks.clone();
    let connections = server.connections.clone();
    let handler: Handler = Arc::new(move |request, peer| {
        let (server, access) = (server.clone(), access.clone());
        Box::pin(async move {
            match access.check(&peer, &request).await {
                Ok(()) => server.answer(request).await,
                Err(refused) => refused,
            }
        })
    });
    // HTTP/1.1 alone: streams are upgrades, which HTTP/2 does not have.
    ferry_connections::serve(listener, tls.server, Protocols::Http1, connections, tasks, handler).await;
}

/// What clients may take of this server.
pub(crate) fn connections() -> Connections {
    Connections::new(Limits {
        // Who reads a log may stop for as long as upstream lets a stream stand still.
        stalled_authenticated: Duration::from_secs(4 * 3600),
        farewell: Duration::from_secs(2),
        ..Limits::new(MOST_CONNECTIONS, HELD_BYTES)
    })
}

pub(crate) fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    let body = Full::new(Bytes::from(text.into())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert("content-type", kind);
    response
}

fn json(document: &serde_json::Value) -> Response<Body> {
    let mut response = text(StatusCode::OK, document.to_string());
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", kind);
    response
}

impl Server {
    /// What the runtime has of a pod of the API server; nothing of a mirror that stands for no pod of this node.
    async fn state(&self, pod: &Pod) -> runtime::Result<PodState> {
        match self.context.mirrors.runtime_uid(pod) {
            Some(uid) => self.context.runtime.pod(&uid).await,
            None => Ok(PodState::default()),
        }
    }

    async fn answer(&self, request: Request<Received>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match parts.as_slice() {
            [first, ..] if let Some(why) = disabled(first, &self.context.config.settings.server) => {
                text(StatusCode::METHOD_NOT_ALLOWED, why)
            }
            ["healthz"] => match crate::healthz::failure(&self.tasks) {
                None => text(StatusCode::OK, "ok"),
                Some(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
            },
            ["pods"] => self.pod_list(),
            ["metrics"] => self.metrics().await,
            ["metrics", "cadvisor"] => self.cadvisor_metrics().await,
            ["metrics", "probes"] => text(StatusCode::OK, self.context.probe_counts.text()),
            ["configz"] => json(&configz::document(&self.context.config, self.context.port())),
            ["runningpods"] => self.running_pods().await,
            ["metrics", "resource"] => self.resource_metrics().await,
            ["stats", "summary"] => self.summary().await,
            ["localVolumes"] => self.local_volumes(request.method(), None, request.uri()).await,
            ["localVolumes", name] => self.local_volumes(request.method(), Some(name), request.uri()).await,
            ["logs", ..] => self.node_logs_or_query(&path, request.uri()).await,
            ["containerLogs", namespace, pod, container] => self.logs(namespace, pod, container, request.uri()).await,
            [kind @ ("exec" | "attach"), namespace, pod, container]
            | [kind @ ("exec" | "attach"), namespace, pod, _, container] => {
                self.command(kind, namespace, pod, container, request).await
            }
            ["checkpoint", namespace, pod, container] => {
                self.checkpoint(request.method(), namespace, pod, container, request.uri()).await
            }
            ["portForward", namespace, pod] | ["portForward", namespace, pod, _] => {
                self.port_forward(namespace, pod, request).await
            }
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    fn pod_list(&self) -> Response<Body> {
        let items: Vec<serde_json::Value> =
            self.pods.list().iter().filter_map(|pod| serde_json::to_value(&**pod).ok()).collect();
        json(&serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
    }

    async fn metrics(&self) -> Response<Body> {
        let context = &self.context;
        // What the runtime does not tell now is left out of the sums.
        let seen = context.runtime.glimpse().await.unwrap_or_default();
        let volumes = context.volumes.claim_stats.metrics().await;
        let mut page = Page::new();
        let node = labels([("node", context.config.node_name.as_str())]);
        let help = "The node's name. The count is always 1.";
        page.family("kubelet_node_name", Kind::Gauge, help).sample(&node, 1);
        let version = if context.machine.swap.unified { 2 } else { 1 };
        let help = "cgroup version on the hosts.";
        page.family("kubelet_cgroup_version", Kind::Gauge, help).sample("", version);
        for text in [
            Gauges::read(&self.mailboxes, seen.values()).text(),
            context.metrics.text(),
            volumes,
            context.shutdown.metrics(),
            context.pressure.ended.text(),
            context.hardware.cpus.metrics(context.hardware.topology.alignments()),
            context.hardware.memory.metrics(),
            context.hardware.topology.metrics(),
            self.connections.metrics("kubelet"),
            self.tasks.runtime_metrics(),
        ] {
            page.append(&text);
        }
        text(StatusCode::OK, page.into_text())
    }
}

/// What upstream answers where a part of the server is turned off.
fn disabled(first: &str, settings: &Endpoints) -> Option<&'static str> {
    match first {
        "exec" | "attach" | "portForward" | "containerLogs" | "runningpods" | "logs" if !settings.debugging => {
            Some("Debug endpoints are disabled.\n")
        }
        "logs" if !settings.system_logs => Some("logs endpoint is disabled.\n"),
        _ => None,
    }
}

/// The parameters of a query, decoded, in their order.
pub(crate) fn query(uri: &http::Uri) -> Vec<(String, String)> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|p| !p.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (decode(k), decode(v))).collect()
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|h| std::str::from_utf8(h).ok());
        match (bytes[at], hex.and_then(|h| u8::from_str_radix(h, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Anything but "0" and "false" is true, the empty value too.
pub(crate) fn flag(query: &[(String, String)], names: &[&str]) -> bool {
    query.iter().any(|(k, v)| names.contains(&k.as_str()) && v != "0" && v != "false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_server_are_turned_off() {
        let check = |debugging: bool, system_logs: bool, off: &[&str]| {
            let settings = Endpoints { debugging, system_logs, ..crate::Settings::default().server };
            let all =
                ["exec", "attach", "portForward", "containerLogs", "runningpods", "logs", "pods", "metrics", "healthz"];
            let seen: Vec<&str> = all.into_iter().filter(|first| disabled(first, &settings).is_some()).collect();
            assert_eq!(seen, off);
        };
        check(true, true, &[]);
        check(true, false, &["logs"]);
        check(false, true, &["exec", "attach", "portForward", "containerLogs", "runningpods", "logs"]);
    }

    #[test]
    fn queries_are_decoded() {
        let uri: http::Uri =
            "/exec/a/b/c?command=sh&command=-c&command=echo%20a%2Bb+c&input=1&tty".parse().expect("a uri");
        let query = query(&uri);
        let commands: Vec<&str> = query.iter().filter(|(k, _)| k == "command").map(|(_, v)| v.as_str()).collect();
        assert_eq!(commands, ["sh", "-c", "echo a+b c"]);
        assert!(flag(&query, &["input", "stdin"]) && flag(&query, &["tty"]) && !flag(&query, &["error"]));
        assert_eq!(decode("%zz%4"), "%zz%4");
    }
}
