//! `kubectl proxy`: the API of the cluster and a folder of files on a local port or socket, without credentials.

mod files;
mod filter;
mod forward;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::{Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use self::filter::Filter;
use self::forward::{Forward, Tunnel};
use super::{Command, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, switch, text};
use crate::log;
use crate::session::Context;
use crate::text::{flush, line, warn};

pub const COMMAND: Command = leaf(
    "proxy",
    "[--port=PORT] [--www=static-dir] [--www-prefix=prefix] [--api-prefix=prefix]",
    "Run a proxy to the Kubernetes API server",
    flags,
    |c| Box::pin(run(c)),
);

const PORT: &str = "8001";
/// More wait until one of them ends.
const CONNECTIONS: usize = 1024;
/// How long a client may take for the head of a request.
const HEAD: Duration = Duration::from_secs(60);

fn flags() -> Vec<Flag> {
    vec![
        text("www", "Also serve the files of this folder under the prefix.").short('w'),
        Flag::new("www-prefix", Kind::Text, "/static/", "The prefix of the files, where a folder is given.").short('P'),
        Flag::new("api-prefix", Kind::Text, "/", "The prefix of the API."),
        Flag::new("accept-paths", Kind::Text, "^.*", "Regular expressions of paths that are accepted."),
        Flag::new(
            "reject-paths",
            Kind::Text,
            "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach",
            "Regular expressions of paths that are rejected, even where --accept-paths has them.",
        ),
        Flag::new(
            "accept-hosts",
            Kind::Text,
            r"^localhost$,^127\.0\.0\.1$,^\[::1\]$",
            "Regular expressions of hosts that are accepted.",
        ),
        Flag::new("reject-methods", Kind::Text, "^$", "Regular expressions of HTTP methods that are rejected."),
        Flag::new("port", Kind::Int, PORT, "The port to serve on; 0 takes a free one.").short('p'),
        Flag::new("address", Kind::Text, "127.0.0.1", "The IP address to serve on."),
        switch("disable-filter", "Do not filter requests: any page of a browser that reaches the port may then ask."),
        text("unix-socket", "Unix socket to serve on.").short('u'),
        Flag::new("keepalive", Kind::Duration, "0s", "The keep-alive period of a connection; 0 disables it."),
        switch("append-server-path", "Put the path of the context's server before the path of each request."),
    ]
}

/// What is answered: streamed as it comes.
pub type Answer = Response<UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>>;
pub type Request = http::Request<Incoming>;

/// A text of the proxy's own, in the form of Go's server.
pub fn plain(code: StatusCode, text: &str) -> Answer {
    let body = Full::new(Bytes::from(format!("{text}\n"))).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("x-content-type-options", header::HeaderValue::from_static("nosniff"));
    answer
}

fn moved(to: &str) -> Answer {
    let mut answer = plain(StatusCode::MOVED_PERMANENTLY, "Moved Permanently.");
    if let Ok(value) = header::HeaderValue::from_str(to) {
        answer.headers_mut().insert(header::LOCATION, value);
    }
    answer
}

struct Server {
    api_prefix: String,
    files: Option<(String, PathBuf)>,
    filter: Option<Filter>,
    forward: Forward,
    tunnels: mpsc::UnboundedSender<Tunnel>,
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let with_slash = |name: &str| {
        let text = flags.text(name);
        if text.ends_with('/') { text.to_owned() } else { format!("{text}/") }
    };
    let chosen = context.chosen().await?;
    let config = crate::config::connect::config(chosen, 0).await?;
    let forward = Forward::new(config, flags.is("append-server-path"))?;
    if flags.is("disable-filter") {
        if flags.text("unix-socket").is_empty() {
            log::warning(
                "proxy.go",
                "Request filter disabled, your proxy is vulnerable to XSRF attacks, please be cautious",
            );
        }
    } else if flags.text("reject-paths").is_empty() || flags.text("reject-methods").is_empty() {
        log::warning(
            "proxy.go",
            "Request filter has been relaxed, your proxy may be vulnerable to attacks, please be cautious",
        );
    }
    let filter = match flags.is("disable-filter") {
        true => None,
        false => Some(Filter::of(flags)?),
    };
    if flags.text("port") != PORT && !flags.text("unix-socket").is_empty() {
        return Err(Error::say("cannot set --unix-socket and --port at the same time"));
    }
    let files = flags.given("www").map(|folder| (with_slash("www-prefix"), PathBuf::from(folder)));
    if let Some((_, folder)) = &files
        && !folder.is_dir()
    {
        log::warning("proxy.go", &format!("Static file directory {} is not a directory", folder.display()));
    }
    let (tunnels, opened) = mpsc::unbounded_channel();
    let server = Arc::new(Server { api_prefix: with_slash("api-prefix"), files, filter, forward, tunnels });
    match flags.given("unix-socket") {
        Some(path) => unix(Path::new(path), server, opened).await,
        None => tcp(flags.text("address"), flags.int("port"), server, opened).await,
    }
}

fn cannot_listen(network: &str, address: &str, error: &std::io::Error) -> Error {
    let why = match error.kind() {
        std::io::ErrorKind::AddrInUse => "bind: address already in use".to_owned(),
        std::io::ErrorKind::PermissionDenied => "bind: permission denied".to_owned(),
        std::io::ErrorKind::AddrNotAvailable => "bind: cannot assign requested address".to_owned(),
        _ => error.to_string(),
    };
    Error::say(format!("listen {network} {address}: {why}"))
}

async fn tcp(address: &str, port: i64, server: Arc<Server>, opened: mpsc::UnboundedReceiver<Tunnel>) -> Result<()> {
    let shown = format!("{address}:{port}");
    let Ok(port) = u16::try_from(port) else {
        return Err(Error::say(format!("listen tcp: address {port}: invalid port")));
    };
    let listener = tokio::net::TcpListener::bind((address.trim_matches(['[', ']']), port))
        .await
        .map_err(|error| cannot_listen("tcp", &shown, &error))?;
    let at = listener.local_addr().map_err(|error| Error::say(error.to_string()))?;
    started(&at.to_string());
    serve(|| async { listener.accept().await.map(|(socket, from)| (socket, from.ip().to_string())) }, server, opened)
        .await
}

/// For its owner alone. A socket that was left behind is removed; other files are not.
async fn unix(path: &Path, server: Arc<Server>, opened: mpsc::UnboundedReceiver<Tunnel>) -> Result<()> {
    use std::os::unix::fs::FileTypeExt;
    if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        let _ = std::fs::remove_file(path);
    }
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let bound = tokio::net::UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound.map_err(|error| cannot_listen("unix", &path.display().to_string(), &error))?;
    started(&path.display().to_string());
    serve(|| async { listener.accept().await.map(|(socket, _)| (socket, String::new())) }, server, opened).await
}

fn started(at: &str) {
    line(format!("Starting to serve on {at}"));
    flush();
}

async fn serve<S, A>(
    accept: impl Fn() -> A,
    server: Arc<Server>,
    mut opened: mpsc::UnboundedReceiver<Tunnel>,
) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Future<Output = std::io::Result<(S, String)>>,
{
    let (mut open, mut tunnels) = (FuturesUnordered::new(), FuturesUnordered::new());
    loop {
        tokio::select! {
            accepted = accept(), if open.len() + tunnels.len() < CONNECTIONS => match accepted {
                Ok((socket, from)) => open.push(connection(socket, from, server.clone())),
                Err(error) => {
                    warn(format!("error: {error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(tunnel) = opened.recv() => tunnels.push(tunnel.run()),
            Some(()) = open.next(), if !open.is_empty() => {}
            Some(()) = tunnels.next(), if !tunnels.is_empty() => {}
        }
    }
}

async fn connection<S>(socket: S, from: String, server: Arc<Server>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |request: Request| {
        let (server, from) = (server.clone(), from.clone());
        async move { Ok::<_, Infallible>(server.answer(request, &from).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(hyper_util::rt::TokioTimer::new()).header_read_timeout(HEAD);
    // A client that goes away is no error of ours.
    let _ = builder.serve_connection(TokioIo::new(socket), service).with_upgrades().await;
}

impl Server {
    async fn answer(&self, request: Request, from: &str) -> Answer {
        let Some(path) = decoded(request.uri().path()) else {
            return plain(StatusCode::BAD_REQUEST, "400 Bad Request");
        };
        let clean = cleaned(&path);
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        if clean != path {
            return moved(&format!("{}{query}", encoded(&clean)));
        }
        let api = Some(&*self.api_prefix);
        let www = self.files.as_ref().map(|(prefix, _)| &**prefix);
        let longest = [api, www].into_iter().flatten().filter(|prefix| path.starts_with(prefix));
        let Some(prefix) = longest.max_by_key(|prefix| prefix.len()) else {
            // A prefix without its slash.
            return match [api, www].into_iter().flatten().any(|prefix| prefix == format!("{path}/")) {
                true => moved(&format!("{}/{query}", encoded(&path))),
                false => plain(StatusCode::NOT_FOUND, "404 page not found"),
            };
        };
        if let Some((files_prefix, folder)) = &self.files
            && files_prefix == prefix
        {
            return files::answer(&request, folder, &path[prefix.len()..]).await;
        }
        // What begins with /api is the API's own path.
        let (path, raw) = match prefix {
            "/" => (path.clone(), request.uri().path().to_owned()),
            api if api.starts_with("/api") => (path.clone(), request.uri().path().to_owned()),
            prefix => {
                let rest = format!("/{}", path[prefix.len()..].trim_start_matches('/'));
                (rest.clone(), encoded(&rest))
            }
        };
        if let Some(filter) = &self.filter
            && !filter.accepts(&request, &path)
        {
            return plain(StatusCode::FORBIDDEN, "Forbidden");
        }
        self.forward.answer(request, &format!("{raw}{query}"), from, &self.tunnels).await
    }
}

/// `%2F` and the like; none where it is no text.
fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

fn encoded(path: &str) -> String {
    path.split('/').map(crate::client::escaped).collect::<Vec<_>>().join("/")
}

/// Without `//`, `.` and `..`; a slash at the end stays.
fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let end = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn paths_are_cleaned_before_they_are_matched() {
        for (path, clean) in [
            ("/", "/"),
            ("//api//v1", "/api/v1"),
            ("/api/../../etc/passwd", "/etc/passwd"),
            ("/api/./v1/", "/api/v1/"),
            ("/..", "/"),
        ] {
            assert_eq!(super::cleaned(path), clean);
        }
        assert_eq!(super::decoded("/a%2fb%20c").as_deref(), Some("/a/b c"));
        assert_eq!((super::decoded("/%zz"), super::decoded("/%ff"), super::decoded("/%4")), (None, None, None));
    }
}
