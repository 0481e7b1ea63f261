//! The stand-in for etcd: owns the data folder for as long as the test runs, and tells the API server where it is.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ferry_cluster::{log, signals};
use ferry_tasks::Tasks;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Where the API server asks for the folder. etcd itself has no such page.
pub const STORE_PAGE: &str = "/ferry/store";
/// Whose flags and pages these are.
const VERSION: &str = "3.6.0";
const HEADER_PATIENCE: Duration = Duration::from_secs(5);
const MOST_CONNECTIONS: usize = 64;
const STOP_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, PartialEq)]
struct Options {
    listen: Vec<SocketAddr>,
    data_dir: PathBuf,
    sync: bool,
}

/// Tests look in here for the flags they want to give.
const HELP: &str = "\
Ferry's stand-in for etcd, for tests that start their own API server (docs/envtest.md). It speaks no etcd protocol.

  --listen-client-urls 'http://localhost:2379'
        Where to listen: loopback addresses, http only.
  --data-dir 'default.etcd'
        Where the API server keeps the state.
  --unsafe-no-fsync
        Answer writes before they are on the disk.

Other flags of etcd are ignored.";

pub fn run(words: Vec<String>) -> Result<()> {
    match words.first().map(String::as_str) {
        Some("--help" | "-h" | "help") => {
            println!("{HELP}");
            return Ok(());
        }
        Some("--version") => {
            println!("etcd Version: {VERSION}\n{} for etcd", ferry_cluster::quorum::process::STAND_IN);
            return Ok(());
        }
        _ => {}
    }
    log::start();
    let options = Options::parse(words)?;
    std::fs::create_dir_all(&options.data_dir)
        .with_context(|| format!("cannot make {}", options.data_dir.display()))?;
    let data_dir = options.data_dir.canonicalize().unwrap_or_else(|_| options.data_dir.clone());
    let store = json!({"dataDir": data_dir, "sync": options.sync});
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let tasks = Tasks::new("etcd");
        for address in options.listen {
            let listener = TcpListener::bind(address).await.with_context(|| {
                format!("{address} is in use or not allowed; choose another with --listen-client-urls")
            })?;
            tasks.spawn_until_stopped("accept", accept(listener, store.clone(), tasks.clone()));
        }
        signals::wait().await?;
        tasks.stop(STOP_PATIENCE).await;
        Ok(())
    })
}

impl Options {
    fn parse(words: Vec<String>) -> Result<Self> {
        let flags = flags(words)?;
        let urls = flags.get("listen-client-urls").map_or("http://localhost:2379", String::as_str);
        let listen = urls.split(',').map(address).collect::<Result<_>>()?;
        let data_dir = flags.get("data-dir").map_or("default.etcd", String::as_str).into();
        let sync = flags.get("unsafe-no-fsync").is_none_or(|value| value == "false");
        Ok(Self { listen, data_dir, sync })
    }
}

/// `--name=value`, `--name value` and `--name`; what etcd alone would do with other flags has no meaning here.
fn flags(words: Vec<String>) -> Result<HashMap<String, String>> {
    const VALUES: [&str; 2] = ["listen-client-urls", "data-dir"];
    let mut flags = HashMap::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix('-') else { continue };
        let name = name.strip_prefix('-').unwrap_or(name);
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None if VALUES.contains(&name) => {
                let value = words.next().with_context(|| format!("--{name} needs a value"))?;
                (name.to_owned(), value)
            }
            None => (name.to_owned(), "true".to_owned()),
        };
        flags.insert(name, value);
    }
    Ok(flags)
}

/// Whoever reaches it learns where a folder is: nobody beyond this machine does.
fn address(url: &str) -> Result<SocketAddr> {
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("--listen-client-urls {url}: only http:// is served here; for TLS use a real etcd");
    };
    let (host, port) = rest.trim_end_matches('/').rsplit_once(':').with_context(|| format!("{url} has no port"))?;
    let host = if host == "localhost" { "127.0.0.1" } else { host.trim_start_matches('[').trim_end_matches(']') };
    let ip: std::net::IpAddr = host.parse().with_context(|| format!("{url}: {host} is no address"))?;
    ensure!(ip.is_loopback(), "--listen-client-urls {url}: this stand-in for etcd listens on loopback addresses only");
    Ok((ip, port.parse().with_context(|| format!("{url}: {port} is no port"))?).into())
}

async fn accept(listener: TcpListener, store: Value, tasks: Tasks) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let store = store.clone();
                tasks.spawn_until_stopped("connection", async move {
                    let _permit = permit;
                    let _ = tokio::time::timeout(HEADER_PATIENCE * 2, connection(stream, store)).await;
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn connection(stream: TcpStream, store: Value) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(request.uri().path(), &store);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_PATIENCE).keep_alive(false);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!("a connection ended: {error}");
    }
}

fn answer(path: &str, store: &Value) -> Response<Full<Bytes>> {
    let page = match path {
        "/health" | "/livez" | "/readyz" => json!({"health": "true", "reason": ""}),
        "/version" => json!({"etcdserver": VERSION, "etcdcluster": VERSION}),
        STORE_PAGE => store.clone(),
        _ => {
            let mut nothing = Response::new(Full::new(Bytes::from_static(
                b"this is Ferry's stand-in for etcd; it speaks to Ferry's own API server only\n",
            )));
            *nothing.status_mut() = http::StatusCode::NOT_FOUND;
            return nothing;
        }
    };
    let mut response = Response::new(Full::new(page.to_string().into()));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        Options::parse(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn flags_are_those_that_tests_give() {
        let options = parse(
            "--listen-peer-urls=http://localhost:0 --unsafe-no-fsync=true --advertise-client-urls=http://127.0.0.1:4001 \
             --listen-client-urls=http://127.0.0.1:4001,http://[::1]:4002 --data-dir=/tmp/x",
        );
        let listen = vec!["127.0.0.1:4001".parse().unwrap(), "[::1]:4002".parse().unwrap()];
        assert_eq!(options.unwrap(), Options { listen, data_dir: "/tmp/x".into(), sync: false });
        let plain = parse("--data-dir /tmp/y").unwrap();
        assert_eq!((plain.sync, plain.data_dir), (true, "/tmp/y".into()));
        assert_eq!(plain.listen, ["127.0.0.1:2379".parse().unwrap()]);
        assert!(parse("--unsafe-no-fsync").unwrap().listen.len() == 1);
    }

    #[test]
    fn what_it_cannot_do_is_refused() {
        for (line, why) in [
            ("--listen-client-urls=http://0.0.0.0:2379", "loopback"),
            ("--listen-client-urls=https://127.0.0.1:2379", "TLS"),
            ("--listen-client-urls=http://127.0.0.1", "no port"),
            ("--listen-client-urls=http://127.0.0.1:x", "no port"),
            ("--data-dir", "needs a value"),
        ] {
            let told = format!("{:#}", parse(line).unwrap_err());
            assert!(told.contains(why), "{line}: {told}");
        }
    }
}
