//! Connections to endpoints. Each endpoint has its own; those of an endpoint that left the table end with their last request.
//! Those of HTTP/1 are moved along by the requests on them (`line`), those of HTTP/2 are tasks of their own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferry_connections::{Body, Frames};
use ferry_tasks::Tasks;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::line::{Idle, Line};
use crate::table::{Backend, BackendTls, Protocol};

const CONNECT: Duration = Duration::from_secs(5);
/// How often connections that wait are looked after.
const SWEEP: Duration = Duration::from_secs(5);

/// Connections of equal keys are good for each other's requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub endpoint: SocketAddr,
    protocol: Protocol,
    tls: Option<(u64, ServerName<'static>)>,
}

impl Key {
    pub fn new(endpoint: SocketAddr, backend: &Backend) -> Self {
        let tls = backend.tls.as_ref().map(|tls| (tls.fingerprint, tls.name.clone()));
        Self { endpoint, protocol: backend.protocol, tls }
    }
}

pub struct Pools {
    endpoints: Mutex<HashMap<Key, Arc<Endpoint>>>,
    tasks: Tasks,
}

#[derive(Default)]
struct Endpoint {
    idle: Arc<Idle>,
    shared: tokio::sync::Mutex<Option<http2::SendRequest<Body>>>,
}

/// How a request got its connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    pub connecting: Duration,
    pub reused: bool,
}

pub enum Failure {
    /// Nothing was sent: the request can go elsewhere.
    Connect(String, Request<Body>),
    /// It went out, and no answer came back. The request was `reused`: its connection had been idle before.
    Exchange { error: hyper::Error, reused: bool },
}

/// A connection that is ready for one request, and whether it was there before.
enum Sender {
    Http1(Line, bool),
    Http2(http2::SendRequest<Body>, bool),
}

impl Pools {
    pub fn new(tasks: &Tasks) -> Self {
        Self { endpoints: Mutex::default(), tasks: tasks.clone() }
    }

    /// Lets go of the endpoints that are no longer in any table. Requests under way go on.
    pub fn retain(&self, is_known: impl Fn(&Key) -> bool) {
        let gone: Vec<_> = self.endpoints.lock().extract_if(|key, _| !is_known(key)).collect();
        drop(gone);
    }

    /// Looks after the connections that nobody uses, until the end.
    pub async fn sweep(&self) {
        let mut beat = tokio::time::interval(SWEEP);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            let all: Vec<_> = self.endpoints.lock().values().cloned().collect();
            for endpoint in all {
                endpoint.idle.sweep();
            }
        }
    }

    fn endpoint(&self, key: &Key) -> Arc<Endpoint> {
        self.endpoints.lock().entry(key.clone()).or_default().clone()
    }

    pub async fn send(
        &self,
        endpoint: SocketAddr,
        backend: &Backend,
        mut request: Request<Body>,
        connect_timeout: Option<Duration>,
    ) -> Result<(Response<Body>, Sent), Failure> {
        let key = Key::new(endpoint, backend);
        let pool = self.endpoint(&key);
        let mut sent = Sent::default();
        loop {
            let idle = if backend.protocol == Protocol::Http2 { None } else { pool.idle.take() };
            let sender = match idle {
                Some(line) => Sender::Http1(line, true),
                None => {
                    let began = Instant::now();
                    // Not a part of every request: handshakes take much room.
                    let connecting = self.sender(&pool, &key, backend, connect_timeout.unwrap_or(CONNECT));
                    let sender = Box::pin(connecting).await;
                    sent.connecting += began.elapsed();
                    match sender {
                        Ok(sender) => sender,
                        Err(error) => return Err(Failure::Connect(error, request)),
                    }
                }
            };
            match sender {
                Sender::Http1(line, reused) => {
                    match line.send(request, Arc::downgrade(&pool.idle), &self.tasks).await {
                        Ok(response) => return Ok((response, Sent { reused, ..sent })),
                        Err(mut error) => match error.take_message() {
                            // The connection had ended; the request never left.
                            Some(unsent) if reused => request = unsent,
                            Some(unsent) => return Err(hung_up(&key, unsent)),
                            None => return Err(Failure::Exchange { error: error.into_error(), reused }),
                        },
                    }
                }
                Sender::Http2(mut sender, reused) => match sender.try_send_request(request).await {
                    Ok(response) => {
                        let response = response.map(|body| body.map_err(Into::into).boxed_unsync());
                        return Ok((response, Sent { reused, ..sent }));
                    }
                    Err(mut error) => match error.take_message() {
                        Some(unsent) => {
                            *pool.shared.lock().await = None;
                            if !reused {
                                return Err(hung_up(&key, unsent));
                            }
                            request = unsent;
                        }
                        None => return Err(Failure::Exchange { error: error.into_error(), reused: false }),
                    },
                },
            }
        }
    }

    async fn sender(
        &self,
        pool: &Arc<Endpoint>,
        key: &Key,
        backend: &Backend,
        patience: Duration,
    ) -> Result<Sender, String> {
        if backend.protocol == Protocol::Http1 {
            return tokio::time::timeout(patience, self.connect(key, backend)).await.map_err(|_| timed_out(key))?;
        }
        // Those who come meanwhile wait for the same connection, but not for all who tried to make it before them.
        let connected = async {
            let mut shared = pool.shared.lock().await;
            if let Some(sender) = shared.as_ref().filter(|sender| !sender.is_closed()) {
                return Ok(Sender::Http2(sender.clone(), true));
            }
            let made = self.connect(key, backend).await?;
            if let Sender::Http2(sender, _) = &made {
                *shared = Some(sender.clone());
            }
            Ok(made)
        };
        tokio::time::timeout(patience, connected).await.map_err(|_| timed_out(key))?
    }

    async fn connect(&self, key: &Key, backend: &Backend) -> Result<Sender, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", key.endpoint);
        let stream = TcpStream::connect(key.endpoint).await.map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        match &backend.tls {
            None => self.handshake(stream, backend.protocol == Protocol::Http2).await.map_err(|error| failed(&error)),
            Some(tls) => {
                let offered: &[&[u8]] = match backend.protocol {
                    Protocol::Http1 => &[b"http/1.1"],
                    Protocol::Http2 => &[b"h2"],
                    Protocol::Negotiated => &[b"h2", b"http/1.1"],
                };
                let stream = secure(stream, tls, offered).await.map_err(|error| failed(&error))?;
                let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                self.handshake(stream, http2).await.map_err(|error| failed(&error))
            }
        }
    }

    async fn handshake<S>(&self, stream: S, http2: bool) -> Result<Sender, hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if http2 {
            let io = TokioIo::new(Frames::of_server(stream));
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(Duration::from_secs(30))
                .adaptive_window(true)
                .handshake(io)
                .await?;
            self.tasks.spawn("backend connection", async move {
                let _ = connection.await;
            });
            return Ok(Sender::Http2(sender, false));
        }
        Ok(Sender::Http1(Line::new(stream).await?, false))
    }
}

/// A new connection that ends before it took anything is no better than none: another one would end as well, without end.
fn hung_up(key: &Key, unsent: Request<Body>) -> Failure {
    Failure::Connect(format!("{}: it hangs up at once", key.endpoint), unsent)
}

fn timed_out(key: &Key) -> String {
    format!("{}: it takes too long to connect", key.endpoint)
}

/// TLS to a backend.
pub async fn secure(
    stream: TcpStream,
    tls: &BackendTls,
    offered: &[&[u8]],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut config = (*tls.config).clone();
    config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
    TlsConnector::from(Arc::new(config)).connect(tls.name.clone(), stream).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::answer;

    /// Each of those who waited for an endpoint that says nothing once waited for all before them, too.
    #[tokio::test]
    async fn nobody_waits_longer_for_the_connection_of_another_than_for_an_own() {
        let tasks = Tasks::new("test");
        let pools = Pools::new(&tasks);
        let endpoint = SocketAddr::from(([127, 0, 0, 1], 1));
        let backend = Backend::new("n/one:80", Protocol::Http2, None, vec![endpoint]);
        let pool = pools.endpoint(&Key::new(endpoint, &backend));
        let _connecting = pool.shared.lock().await;
        let asked = pools.send(endpoint, &backend, Request::new(answer::empty()), Some(Duration::from_millis(10)));
        let sent = tokio::time::timeout(Duration::from_secs(60), asked).await.expect("it gives up");
        assert!(matches!(sent, Err(Failure::Connect(why, _)) if why.contains("too long to connect")));
        tasks.stop(Duration::from_secs(60)).await;
    }
}
