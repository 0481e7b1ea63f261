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
/// As Go's client.
const MOST_REDIRECTS: usize = 10;

#[derive(Clone)]
pub(crate) struct Request {
    secure: bool,
    host: String,
    port: u16,
    path: String,
    headers: Vec<(String, String)>,
}

pub(crate) struct Answer {
    pub(crate) code: u16,
    /// The beginning of it.
    pub(crate) body: String,
    /// Where it says that the answer is.
    location: Option<String>,
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

    /// The request that a redirect asks for, to the same host only: a container must not make the node call others.
    fn redirected(&self, location: &str) -> Option<Self> {
        let target: http::Uri = match location {
            absolute if absolute.contains("://") => absolute.parse().ok()?,
            // The same protocol.
            other if other.starts_with("//") => format!("{}:{other}", self.scheme()).parse().ok()?,
            path => {
                let folder = self.path.split(['?', '#']).next()?.rsplit_once('/').map_or("", |(folder, _)| folder);
                let path = if path.starts_with('/') { path.to_owned() } else { format!("{folder}/{path}") };
                let path = path.split('#').next()?.to_owned();
                return Some(Self { path, ..self.clone() });
            }
        };
        let secure = match target.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let host = target.host()?.trim_start_matches('[').trim_end_matches(']');
        if !host.eq_ignore_ascii_case(&self.host) {
            return None;
        }
        // What names a virtual host is for the place that it was said of.
        let headers = self.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")).cloned().collect();
        let path = target.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let port = target.port_u16().unwrap_or(if secure { 443 } else { 80 });
        Some(Self { secure, host: host.to_owned(), port, path, headers })
    }

    fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    fn url(&self) -> String {
        format!("{}://{}{}", self.scheme(), join(&self.host, self.port), self.path)
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
    match tokio::time::timeout(timeout, follow(request, timeout)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(failure)) => Err(failed(failure.message, failure.refused)),
        Err(_) => {
            let why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
            Err(failed(why.to_owned(), false))
        }
    }
}

/// Follows redirects on the same host; one that leads elsewhere is the answer.
async fn follow(request: &Request, timeout: Duration) -> Result<Answer, Failure> {
    let mut request = request.clone();
    for _ in 0..=MOST_REDIRECTS {
        let answer = send(&request, timeout).await?;
        let moved = matches!(answer.code, 301 | 302 | 303 | 307 | 308);
        match answer.location.as_deref().filter(|_| moved).and_then(|location| request.redirected(location)) {
            Some(next) => request = next,
            None => return Ok(answer),
        }
    }
    Err(Failure { message: format!("stopped after {MOST_REDIRECTS} redirects"), refused: false })
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
        let location = response.headers().get(http::header::LOCATION).and_then(|value| value.to_str().ok());
        let location = location.map(str::to_owned);
        // Read to its end even where nobody asks: hanging up on a server would make it complain.
        let body = Limited::new(response.into_body(), LONGEST_BODY).collect().await;
        let body = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
        Ok(Answer { code, body, location })
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
        let followed = |location: &str| full.redirected(location).map(|request| request.url());
        for (location, want) in [
            ("/ready?x=1#y", Some("https://other.example:8443/ready?x=1")),
            ("ready", Some("https://other.example:8443/ready")),
            ("//other.example:81/a", Some("https://other.example:81/a")),
            ("http://OTHER.example/a?b", Some("http://OTHER.example:80/a?b")),
            ("https://other.example", Some("https://other.example:443/")),
            ("http://169.254.169.254/latest", None),
            ("//elsewhere.example/", None),
            ("file:///etc/passwd", None),
        ] {
            assert_eq!(followed(location).as_deref(), want, "{location}");
        }
        let plain = request(json!({"port": 80}));
        assert_eq!(plain.url(), "http://10.0.0.7:80/");
        assert_eq!(header(&plain, "User-Agent").as_deref(), Some("agent/1"));
    }

    /// Answers each path with a head, for as many requests as come.
    async fn serve(tasks: &ferry_tasks::Tasks, answer: fn(&str) -> &'static str) -> u16 {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tasks.spawn_until_stopped("server", async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { break };
                    head.push(byte);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let text = answer(head.split(' ').nth(1).unwrap_or_default());
                let end = "content-length: 4\r\nconnection: close\r\n\r\nbody";
                let _ = stream.write_all(format!("HTTP/1.1 {text}\r\n{end}").as_bytes()).await;
            }
        });
        port
    }

    #[tokio::test]
    async fn redirects_are_followed_on_the_same_host_and_no_further() {
        let tasks = ferry_tasks::Tasks::new("test");
        let port = serve(&tasks, |path| match path {
            "/moved" => "302 Found\r\nlocation: /there",
            "/there" => "500 Broken",
            "/away" => "302 Found\r\nlocation: http://192.0.2.1/",
            "/round" => "302 Found\r\nlocation: /round",
            "/nowhere" => "302 Found",
            _ => "200 OK",
        })
        .await;
        let ask = async |path: &str| {
            let action = serde_json::from_value(json!({"path": path, "port": port})).expect("an action");
            let request = Request::of(&action, &Container::default(), "127.0.0.1", "agent/1").expect("a request");
            let answer = get(&request, Duration::from_secs(60)).await;
            answer.map(|answer| (answer.code, answer.body)).map_err(|failure| failure.message)
        };
        for (path, code) in [("/", 200), ("/moved", 500), ("/away", 302), ("/nowhere", 302)] {
            assert_eq!(ask(path).await, Ok((code, "body".to_owned())), "{path}");
        }
        let endless = ask("/round").await.expect_err("it never ends");
        assert!(endless.ends_with("stopped after 10 redirects"), "{endless}");
        tasks.stop(Duration::from_secs(60)).await;
    }
}
