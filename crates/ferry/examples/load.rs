//! A load generator for `make bench`: requests over kept connections against any API server, figures as JSON lines.
//!
//! `load --server 127.0.0.1:6443[,…] --token T [--connections 32] [--count 5000]`: the connections are shared out among the servers.
//! Certificates are not checked: it is for loopback.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;

#[derive(Parser, Clone)]
struct Options {
    #[arg(long, required = true, value_delimiter = ',')]
    server: Vec<SocketAddr>,
    #[arg(long)]
    token: String,
    #[arg(long, default_value_t = 32)]
    connections: usize,
    #[arg(long, default_value_t = 5000)]
    count: usize,
}

type Connection = SendRequest<Full<Bytes>>;

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let body = "x".repeat(900);
    let config_map = |n: usize| {
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"load-{n}"}},"data":{{"k":"{body}"}}}}"#)
    };
    let base = "/api/v1/namespaces/default/configmaps";
    let create = |offset: usize| move |n: usize| (Method::POST, base.to_owned(), "application/json", Some(offset + n));
    let make = |request: (Method, String, &'static str, Option<usize>)| {
        let text = match (&request.0, request.3) {
            (_, None) => String::new(),
            (&Method::PATCH, Some(n)) => format!(r#"{{"metadata":{{"annotations":{{"n":"{n}"}}}}}}"#),
            (_, Some(n)) => config_map(n),
        };
        (request.0, request.1, request.2, text)
    };
    let serial = options.count / 10;
    run(&options, "create, serial", 1, serial, |n| make(create(0)(n))).await?;
    run(&options, "create", options.connections, options.count, |n| make(create(serial)(n))).await?;
    let get = |n: usize| (Method::GET, format!("{base}/load-{n}"), "", None);
    run(&options, "get, serial", 1, serial, |n| make(get(n))).await?;
    run(&options, "get", options.connections, options.count, |n| make(get(n))).await?;
    let patch = |n: usize| (Method::PATCH, format!("{base}/load-{n}"), "application/merge-patch+json", Some(n));
    run(&options, "patch", options.connections, options.count, |n| make(patch(n))).await?;
    let list = |_: usize| (Method::GET, base.to_owned(), "", None);
    run(&options, "list, serial", 1, 10, |n| make(list(n))).await?;
    run(&options, "list, eight at once", 8, 24, |n| make(list(n))).await?;
    let delete = |_: usize| (Method::DELETE, base.to_owned(), "", None);
    run(&options, "deletecollection", 1, 1, |n| make(delete(n))).await
}

/// Makes `count` requests over `connections` connections and prints rate and latencies.
async fn run<F>(options: &Options, what: &str, connections: usize, count: usize, request: F) -> Result<()>
where
    F: Fn(usize) -> (Method, String, &'static str, String),
{
    let next = AtomicUsize::new(0);
    let bytes = AtomicUsize::new(0);
    let mut open = Vec::new();
    for server in options.server.iter().cycle().take(connections) {
        open.push((*server, connect(*server).await?));
    }
    let begin = Instant::now();
    let workers = open.into_iter().map(|(server, mut connection)| {
        let (next, bytes, request) = (&next, &bytes, &request);
        async move {
            let mut times = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return Ok::<_, anyhow::Error>(times);
                }
                let start = Instant::now();
                let size = send(server, &options.token, &mut connection, request(n)).await?;
                bytes.fetch_add(size, Ordering::Relaxed);
                times.push(start.elapsed());
            }
        }
    });
    let mut times: Vec<Duration> = futures::future::try_join_all(workers).await?.concat();
    let elapsed = begin.elapsed().as_secs_f64();
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    println!(
        r#"{{"what":"{what}","connections":{connections},"count":{count},"per_second":{:.0},"p50_ms":{:.3},"p99_ms":{:.3},"megabytes":{:.1}}}"#,
        count as f64 / elapsed,
        at(0.5),
        at(0.99),
        bytes.load(Ordering::Relaxed) as f64 / 1e6,
    );
    Ok(())
}

async fn connect(server: SocketAddr) -> Result<Connection> {
    let stream = tokio::net::TcpStream::connect(server).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    let stream = tokio_rustls::TlsConnector::from(ferry_tls::unverified_client()?)
        .connect(ServerName::from(server.ip()), stream)
        .await?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    #[expect(clippy::disallowed_methods, reason = "ends with its connection")]
    tokio::spawn(connection);
    Ok(sender)
}

async fn send(
    server: SocketAddr,
    token: &str,
    connection: &mut Connection,
    request: (Method, String, &str, String),
) -> Result<usize> {
    let (method, path, kind, body) = request;
    connection.ready().await?;
    let request = Request::builder()
        .method(method)
        .uri(&path)
        .header("host", server.to_string())
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", kind)
        .body(Full::new(Bytes::from(body)))?;
    let answer = connection.send_request(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        bail!("{path}: {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(body.len())
}
