//! exec, attach and port-forward: the client's connection joined to the runtime's streaming server.
//!
//! The runtime speaks SPDY/3.1 and the older WebSocket protocols itself, so those pass through byte by byte. What it
//! does not speak is translated: `v5.channel.k8s.io`, and SPDY wrapped in a WebSocket.

use ferry_connections::Received;
use ferry_cri::v1;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::idle::Idle;
use super::translate::{self, Wanted};
use super::{Body, Server, flag, query, text, tunnel};
use crate::runtime::RuntimeError;

const CHANNELS: &str = "v5.channel.k8s.io";
const WRAPPED_SPDY: &str = "SPDY/3.1+portforward.k8s.io";
const LONGEST_ERROR: usize = 64 * 1024;

/// How a client wants to talk.
enum Protocol {
    /// As the runtime does.
    Native,
    /// A WebSocket of channels with half-close.
    Channels,
    /// SPDY inside a WebSocket.
    Wrapped,
}

fn protocol(headers: &HeaderMap) -> Option<Protocol> {
    let upgrade = headers.get("upgrade").and_then(|v| v.to_str().ok())?.to_ascii_lowercase();
    if upgrade == "spdy/3.1" {
        return Some(Protocol::Native);
    }
    if upgrade != "websocket" {
        return None;
    }
    let offers = headers.get_all("sec-websocket-protocol");
    let offers = offers.iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    let offers: Vec<&str> = offers.map(str::trim).collect();
    Some(if offers.contains(&CHANNELS) {
        Protocol::Channels
    } else if offers.contains(&WRAPPED_SPDY) {
        Protocol::Wrapped
    } else {
        Protocol::Native
    })
}

impl Server {
    pub(super) async fn command(
        &self,
        kind: &str,
        namespace: &str,
        pod: &str,
        container: &str,
        request: Request<Received>,
    ) -> Response<Body> {
        let query = query(request.uri());
        let wanted = Wanted {
            stdin: flag(&query, &["input", "stdin"]),
            stdout: flag(&query, &["output", "stdout"]),
            stderr: flag(&query, &["error", "stderr"]),
            tty: flag(&query, &["tty"]),
        };
        if !(wanted.stdin || wanted.stdout || wanted.stderr) {
            return text(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr");
        }
        let Some(id) = self.running(namespace, pod, container).await else {
            return text(StatusCode::INTERNAL_SERVER_ERROR, format!("container not found ({container:?})"));
        };
        let command: Vec<String> = query.into_iter().filter(|(k, _)| k == "command").map(|(_, v)| v).collect();
        let url = self.command_url(kind, id, command, wanted).await;
        match (protocol(request.headers()), url) {
            (_, Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            (None, _) => text(StatusCode::BAD_REQUEST, "Upgrade request required"),
            (Some(Protocol::Channels), Ok(url)) => self.translated(request, &url, wanted).await,
            (Some(_), Ok(url)) => self.native(request, &url).await,
        }
    }

    async fn command_url(
        &self,
        kind: &str,
        id: String,
        cmd: Vec<String>,
        wanted: Wanted,
    ) -> Result<String, RuntimeError> {
        let Wanted { stdin, stdout, tty, .. } = wanted;
        // A terminal has one output only.
        let stderr = wanted.stderr && !tty;
        let runtime = &self.context.runtime;
        if kind == "exec" {
            return runtime.exec_url(v1::ExecRequest { container_id: id, cmd, tty, stdin, stdout, stderr }).await;
        }
        runtime.attach_url(v1::AttachRequest { container_id: id, stdin, tty, stdout, stderr }).await
    }

    pub(super) async fn port_forward(&self, namespace: &str, pod: &str, request: Request<Received>) -> Response<Body> {
        let Some(object) = self.pods.get(namespace, pod) else {
            return text(StatusCode::NOT_FOUND, format!("pod does not exist: {namespace}/{pod}"));
        };
        let ports = query(request.uri()).into_iter().filter(|(k, _)| k == "port" || k == "ports");
        let port = ports.flat_map(|(_, v)| v.split(',').filter_map(|p| p.parse().ok()).collect::<Vec<i32>>()).collect();
        let state = self.state(&object).await;
        let Some(sandbox) = state.ok().and_then(|s| s.ready_sandbox().map(|s| s.id.clone())) else {
            return text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("pod not found ({:?})", format!("{pod}_{namespace}")),
            );
        };
        let asked = v1::PortForwardRequest { pod_sandbox_id: sandbox, port };
        match (protocol(request.headers()), self.context.runtime.port_forward_url(asked).await) {
            (_, Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            (None, _) => text(StatusCode::BAD_REQUEST, "Upgrade request required"),
            (Some(Protocol::Wrapped), Ok(url)) => self.unwrapped(request, &url).await,
            (Some(_), Ok(url)) => self.native(request, &url).await,
        }
    }

    /// The id of a running container.
    async fn running(&self, namespace: &str, pod: &str, container: &str) -> Option<String> {
        let object = self.pods.get(namespace, pod)?;
        let state = self.state(&object).await.ok()?;
        state.running().find(|r| r.name == container).map(|r| r.id.clone())
    }

    /// Passes the upgrade through to the runtime.
    async fn native(&self, request: Request<Received>, url: &str) -> Response<Body> {
        let headers = tunnel::upgrade_headers(request.headers());
        let answer = match tunnel::open(url, headers, &self.tasks).await {
            Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => answer,
            Ok(answer) => return failed(answer).await,
            Err(error) => return text(StatusCode::BAD_GATEWAY, error.to_string()),
        };
        let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
        *response.headers_mut() = answer.headers().clone();
        let longest = self.context.config.settings.stream_idle;
        self.tasks.spawn_until_stopped("stream", async move {
            if let (Ok(client), Ok(runtime)) = (hyper::upgrade::on(request).await, hyper::upgrade::on(answer).await) {
                tunnel::copy(client, Idle::new(TokioIo::new(runtime), longest)).await;
            }
        });
        response
    }

    async fn translated(&self, request: Request<Received>, url: &str, wanted: Wanted) -> Response<Body> {
        let answer = match tunnel::open(url, tunnel::spdy_headers("v4.channel.k8s.io"), &self.tasks).await {
            Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => answer,
            Ok(answer) => return failed(answer).await,
            Err(error) => return text(StatusCode::BAD_GATEWAY, error.to_string()),
        };
        let response = accepted(request.headers(), CHANNELS);
        let longest = self.context.config.settings.stream_idle;
        self.tasks.spawn_until_stopped("stream", async move {
            if let (Ok(client), Ok(runtime)) = (hyper::upgrade::on(request).await, hyper::upgrade::on(answer).await) {
                let client = WebSocketStream::from_raw_socket(TokioIo::new(client), Role::Server, None).await;
                if let Err(error) = translate::run(client, Idle::new(TokioIo::new(runtime), longest), wanted).await {
                    tracing::debug!("a stream ended: {error}");
                }
            }
        });
        response
    }

    async fn unwrapped(&self, request: Request<Received>, url: &str) -> Response<Body> {
        let answer = match tunnel::open(url, tunnel::spdy_headers("portforward.k8s.io"), &self.tasks).await {
            Ok(answer) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => answer,
            Ok(answer) => return failed(answer).await,
            Err(error) => return text(StatusCode::BAD_GATEWAY, error.to_string()),
        };
        let response = accepted(request.headers(), WRAPPED_SPDY);
        let longest = self.context.config.settings.stream_idle;
        self.tasks.spawn_until_stopped("stream", async move {
            if let (Ok(client), Ok(runtime)) = (hyper::upgrade::on(request).await, hyper::upgrade::on(answer).await) {
                let client = WebSocketStream::from_raw_socket(TokioIo::new(client), Role::Server, None).await;
                let _ = tunnel::unwrap(client, Idle::new(TokioIo::new(runtime), longest)).await;
            }
        });
        response
    }
}

/// What the runtime said instead of upgrading.
async fn failed(answer: Response<Incoming>) -> Response<Body> {
    let code = answer.status();
    let body = Limited::new(answer.into_body(), LONGEST_ERROR).collect().await;
    let message = body.map(|b| String::from_utf8_lossy(&b.to_bytes()).into_owned()).unwrap_or_default();
    text(code, message)
}

/// The answer that makes a connection a WebSocket.
fn accepted(headers: &HeaderMap, protocol: &'static str) -> Response<Body> {
    let key = headers.get("sec-websocket-key").map(|k| derive_accept_key(k.as_bytes())).unwrap_or_default();
    let Ok(key) = key.parse() else { return text(StatusCode::BAD_REQUEST, "bad Sec-WebSocket-Key") };
    let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
    let out = response.headers_mut();
    out.clear();
    out.insert("connection", http::HeaderValue::from_static("Upgrade"));
    out.insert("upgrade", http::HeaderValue::from_static("websocket"));
    out.insert("sec-websocket-accept", key);
    out.insert("sec-websocket-protocol", http::HeaderValue::from_static(protocol));
    response
}
