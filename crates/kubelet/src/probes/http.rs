//! HTTP requests to containers, for probes and lifecycle hooks.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::action;

/// A body is read to its end, but no further than this.
const LONGEST_BODY: usize = 10 * 1024;

pub(crate) struct Request {
    secure: bool,
    host: String,
    port: u16,
    path: String,
    headers: Vec<(String, String)>,
}

pub(crate) struct Answer {
    pub(crate) code: u16,
}

pub(crate) struct Failure {
    pub(crate) message: String,
    /// Nobody listens there.
    pub(crate) refused: bool,
}

impl Request {
    pub(crate) fn of(
        action: &HTTPGetAction,
        container: &Container,
        address: &str,
        agent: &str,
    ) -> Result<Self, String> {
        let path = action.path.as_deref().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let mut headers: Vec<(String, String)> =
            action.http_headers.iter().flatten().map(|h| (h.name.clone(), h.value.clone())).collect();
        let has = |headers: &[(String, String)], name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !has(&headers, "User-Agent") {
            headers.push(("User-Agent".into(), agent.into()));
        }
        if !has(&headers, "Accept") {
            headers.push(("Accept".into(), "*/*".into()));
        }
        Ok(Self {
            secure: action.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https")),
            host: action.host.as_deref().filter(|h| !h.is_empty()).unwrap_or(address).to_owned(),
            port: action::port(&action.port, container)?,
            path,
            headers,
        })
    }

    fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{}", join(&self.host, self.port), self.path)
    }
}

pub(crate) fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

pub(crate) fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        source = error.source();
    }
    false
}

pub(crate) async fn connect(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Failure> {
    let place = join(host, port);
    match tokio::time::timeout(timeout, TcpStream::connect(&place)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            Err(Failure { message: format!("dial tcp {place}: connect: connection refused"), refused: true })
        }
        Ok(Err(error)) => Err(Failure { message: format!("dial tcp {place}: connect: {error}"), refused: false }),
        Err(_) => Err(Failure { message: format!("dial tcp {place}: i/o timeout"), refused: false }),
    }
}

pub(crate) async fn get(request: &Request, timeout: Duration) -> Result<Answer, Failure> {
    let failed =
        |message: String, refused: bool| Failure { message: format!("Get {:?}: {message}", request.url()), refused };
    match tokio::time::timeout(timeout, send(request, timeout)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(failure)) => Err(failed(failure.message, failure.refused)),
        Err(_) => {
            let why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
            Err(failed(why.to_owned(), false))
        }
    }
}

async fn send(request: &Request, timeout: Duration) -> Result<Answer, Failure> {
    let stream = connect(&request.host, request.port, timeout).await?;
    if !request.secure {
        return exchange(request, stream).await;
    }
    let plain = |message: String| Failure { message, refused: false };
    let name = ServerName::try_from(request.host.clone()).map_err(|e| plain(e.to_string()))?;
    // Probes check whether a container answers, not who it is.
    let connector = tokio_rustls::TlsConnector::from(ferry_tls::unverified_client().map_err(|e| plain(e.to_string()))?);
    let stream = connector.connect(name, stream).await.map_err(|e| plain(e.to_string()))?;
    exchange(request, stream).await
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    request: &Request,
    stream: S,
) -> Result<Answer, Failure> {
    let plain = |message: String| Failure { message, refused: false };
    let mut built = http::Request::get(&request.path).header("Connection", "close");
    if !request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        built = built.header("Host", join(&request.host, request.port));
    }
    for (name, value) in &request.headers {
        built = built.header(name, value);
    }
    let built = built.body(Empty::<Bytes>::new()).map_err(|e| plain(e.to_string()))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| plain(e.to_string()))?;
    let answer = async {
        let response = sender.send_request(built).await.map_err(|e| plain(e.to_string()))?;
        let code = response.status().as_u16();
        // What the server says is of no interest, but hanging up on it would make it complain.
        let _ = Limited::new(response.into_body(), LONGEST_BODY).collect().await;
        Ok(Answer { code })
    };
    // The connection has to be driven while the answer is awaited.
    tokio::pin!(answer);
    tokio::pin!(connection);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        ended = &mut connection => match ended {
            Ok(()) => answer.await,
            Err(error) => Err(plain(error.to_string())),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_are_made_as_they_are_described() {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "ports": [{"name": "web", "containerPort": 8443}]}))
                .expect("one");
        let request = |action: serde_json::Value| {
            let action: HTTPGetAction = serde_json::from_value(action).expect("an action");
            Request::of(&action, &container, "10.0.0.7", "agent/1").expect("a request")
        };
        let full = request(json!({"path": "health", "port": "web", "host": "other.example", "scheme": "HTTPS",
            "httpHeaders": [{"name": "X-Probe", "value": "1"}, {"name": "user-agent", "value": "mine"}]}));
        assert_eq!(full.url(), "https://other.example:8443/health");
        let header = |request: &Request, name: &str| {
            let mut all = request.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
            all.next().map(|(_, value)| value.clone())
        };
        assert_eq!(header(&full, "x-probe").as_deref(), Some("1"));
        assert_eq!(header(&full, "User-Agent").as_deref(), Some("mine"));
        let plain = request(json!({"port": 80}));
        assert_eq!(plain.url(), "http://10.0.0.7:80/");
        assert_eq!(header(&plain, "User-Agent").as_deref(), Some("agent/1"));
    }
}
