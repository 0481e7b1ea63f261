//! The streaming server of CRI: exec, attach and port-forward over SPDY/3.1 and WebSockets, on loopback.
//!
//! An address is handed out by gRPC and good for one connection within a minute.

mod channels;
mod command;
mod forward;
mod forward_channels;
mod input;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ferry_cri::v1;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::engine::Engine;

const GOOD_FOR: Duration = Duration::from_secs(60);
const MOST_WAITING: usize = 1000;

#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Exec(v1::ExecRequest),
    Attach(v1::AttachRequest),
    Forward(v1::PortForwardRequest),
}

pub(crate) struct Streaming {
    address: String,
    waiting: Mutex<HashMap<String, (Wanted, Instant)>>,
}

impl Streaming {
    pub(crate) async fn start(engine: Arc<Engine>) -> std::io::Result<Arc<Self>> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = format!("http://{}", listener.local_addr()?);
        let streaming = Arc::new(Self { address, waiting: Mutex::default() });
        let (server, tasks) = (streaming.clone(), engine.tasks.clone());
        tasks.clone().spawn_until_stopped("streaming", async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        let _ = stream.set_nodelay(true);
                        let (server, engine) = (server.clone(), engine.clone());
                        tasks.spawn_until_stopped("stream", async move {
                            let service = hyper::service::service_fn(move |request| {
                                let (server, engine) = (server.clone(), engine.clone());
                                async move { Ok::<_, std::convert::Infallible>(server.answer(&engine, request)) }
                            });
                            let connection = hyper::server::conn::http1::Builder::new();
                            let _ = connection.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
                        });
                    }
                    Err(error) => {
                        tracing::warn!("the streaming server does not accept: {error}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
        Ok(streaming)
    }

    /// An address for one connection.
    pub(crate) fn offer(&self, wanted: Wanted) -> Result<String, String> {
        let kind = match &wanted {
            Wanted::Exec(_) => "exec",
            Wanted::Attach(_) => "attach",
            Wanted::Forward(_) => "portforward",
        };
        let token = uuid::Uuid::new_v4().simple().to_string();
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, (_, at)| at.elapsed() < GOOD_FOR);
        if waiting.len() >= MOST_WAITING {
            return Err("maximum number of in-flight requests exceeded".to_owned());
        }
        waiting.insert(token.clone(), (wanted, Instant::now()));
        Ok(format!("{}/{kind}/{token}", self.address))
    }

    fn answer(&self, engine: &Arc<Engine>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let token = request.uri().path().rsplit('/').next().unwrap_or_default();
        let wanted = self.waiting.lock().remove(token).filter(|(_, at)| at.elapsed() < GOOD_FOR);
        let Some((wanted, _)) = wanted else {
            return text(StatusCode::NOT_FOUND, "this address is not good any more");
        };
        let Some((response, protocol)) = upgrade(request.headers(), matches!(wanted, Wanted::Forward(_))) else {
            return text(StatusCode::BAD_REQUEST, "unable to upgrade: no protocol in common");
        };
        let engine = engine.clone();
        engine.tasks.clone().spawn_until_stopped("stream", async move {
            let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
            let io = TokioIo::new(upgraded);
            let ended = match wanted {
                Wanted::Forward(wanted) => match protocol {
                    Protocol::Spdy { .. } => forward::run(&engine, &wanted, io).await,
                    Protocol::Channels { base64, .. } => forward_channels::run(&engine, &wanted, io, base64).await,
                },
                Wanted::Exec(wanted) => command::exec(&engine, &wanted, io, protocol).await,
                Wanted::Attach(wanted) => command::attach(&engine, &wanted, io, protocol).await,
            };
            if let Err(error) = ended {
                tracing::debug!("a stream ended: {error}");
            }
        });
        response
    }
}

/// How a client wants to talk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Protocol {
    Spdy {
        words: Words,
    },
    /// A WebSocket whose messages begin with the number of a channel; in text form they are base64.
    Channels {
        base64: bool,
        words: Words,
    },
}

/// What is said on the error stream when a command has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Words {
    /// A Status, whatever became of the command.
    Status,
    /// What went wrong, as plain text. Nothing where all went well: clients of before the fourth version take every word
    /// for an error.
    Errors,
}

impl Words {
    fn of(protocol: Option<&&str>) -> Self {
        match protocol {
            Some(protocol) if protocol.starts_with("v4.") || protocol.starts_with("v5.") => Self::Status,
            _ => Self::Errors,
        }
    }
}

fn text(status: StatusCode, why: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(why));
    *response.status_mut() = status;
    response
}

fn upgrade(headers: &HeaderMap, forward: bool) -> Option<(Response<Full<Bytes>>, Protocol)> {
    let wanted = headers.get(header::UPGRADE)?.to_str().ok()?.to_ascii_lowercase();
    let list = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter().filter_map(|v| v.to_str().ok());
        values.flat_map(|v| v.split(',')).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty()).collect()
    };
    let mut response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let protocol = if wanted == "spdy/3.1" {
        let known: &[&str] = if forward {
            &["portforward.k8s.io"]
        } else {
            &["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"]
        };
        let offered = list("x-stream-protocol-version");
        let chosen = known.iter().find(|known| offered.iter().any(|o| o == *known));
        response = response.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, "SPDY/3.1");
        match chosen {
            Some(chosen) => response = response.header("X-Stream-Protocol-Version", *chosen),
            None if offered.is_empty() => {}
            None => return None,
        }
        Protocol::Spdy { words: Words::of(chosen) }
    } else if wanted == "websocket" {
        let known: &[&str] = if forward {
            &["v4.channel.k8s.io", "v4.base64.channel.k8s.io"]
        } else {
            &[
                "v5.channel.k8s.io",
                "v4.channel.k8s.io",
                "channel.k8s.io",
                "v4.base64.channel.k8s.io",
                "base64.channel.k8s.io",
            ]
        };
        let offered = list("sec-websocket-protocol");
        let chosen = known.iter().find(|known| offered.iter().any(|o| o == *known));
        if chosen.is_none() && !offered.is_empty() {
            return None;
        }
        let key = headers.get("sec-websocket-key")?;
        response = response
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header("Sec-WebSocket-Accept", derive_accept_key(key.as_bytes()));
        if let Some(chosen) = chosen {
            response = response.header("Sec-WebSocket-Protocol", *chosen);
        }
        Protocol::Channels { base64: chosen.is_some_and(|c| c.contains("base64")), words: Words::of(chosen) }
    } else {
        return None;
    };
    Some((response.body(Full::default()).ok()?, protocol))
}
