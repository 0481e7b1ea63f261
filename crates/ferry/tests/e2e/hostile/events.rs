//! Somebody who may write Events and nothing else, and writes as many as they can.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use kube::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::limited::{JSON, call, grant, rule};
use super::raw::{Dialer, Stream};
use crate::Alone;
use crate::alone::{Apiserver, MALLORY, runtime};

pub const ALONE: &[Alone] = &[
    ("hostile::events::a_hundred_thousand_events_harm_nobody", a_hundred_thousand_events_harm_nobody),
    ("hostile::events::a_rate_limit_is_for_each_user", a_rate_limit_is_for_each_user),
];

const EVENTS: usize = 100_000;
const CONNECTIONS: usize = 16;
/// Requests that are sent before an answer is waited for.
const BURST: usize = 125;
/// What the process may grow by, for each Event that is there and for whatever is under way.
const BYTES_EACH: u64 = 2 << 10;
const MEGABYTES: u64 = 200;

const PATH: &str = "/api/v1/namespaces/default/events";
const MAPS: &str = "/api/v1/namespaces/kube-public/configmaps";

fn event(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": name, "uid": name},
        "reason": "Flooding", "message": "one of very many", "type": "Normal", "count": 1,
        "source": {"component": MALLORY}, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    })
}

/// Reads one answer behind another: the code of the next.
struct Answers {
    stream: Stream,
    read: Vec<u8>,
    at: usize,
}

impl Answers {
    async fn more(&mut self) -> std::io::Result<()> {
        self.read.drain(..std::mem::take(&mut self.at));
        let taken = self.stream.read_buf(&mut self.read).await?;
        if taken == 0 { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    async fn next(&mut self) -> std::io::Result<u16> {
        let length = loop {
            let unread = &self.read[self.at..];
            if let Some(length) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break length;
            }
            self.more().await?;
        };
        let head = std::str::from_utf8(&self.read[self.at..self.at + length]).unwrap().to_ascii_lowercase();
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
        let size = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let end = length + 4 + size.parse::<usize>().unwrap();
        while self.read.len() - self.at < end {
            self.more().await?;
        }
        self.at += end;
        Ok(code)
    }
}

/// Sends so many over one connection without waiting for each; how many were taken.
async fn flood(dialer: Dialer, connection: usize, count: usize) -> std::io::Result<usize> {
    let mut answers = Answers { stream: dialer.connect().await?, read: Vec::new(), at: 0 };
    let mut taken = 0;
    for first in (0..count).step_by(BURST) {
        let mut burst = String::new();
        for number in first..count.min(first + BURST) {
            let body = event(&format!("e-{connection}-{number}")).to_string();
            burst.push_str(&format!(
                "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {MALLORY}-token\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ));
        }
        answers.stream.write_all(burst.as_bytes()).await?;
        answers.stream.flush().await?;
        for _ in first..count.min(first + BURST) {
            match answers.next().await? {
                201 => taken += 1,
                429 => {}
                other => panic!("an Event is answered with {other}"),
            }
        }
    }
    Ok(taken)
}

async fn maps(client: &Client) -> Value {
    let (code, list) = call(client, "GET", MAPS, &[], &Value::Null).await;
    assert_eq!(code, 200, "{list}");
    list["items"].clone()
}

async fn stored(client: &Client) -> usize {
    let (code, page) = call(client, "GET", &format!("{PATH}?limit=1"), &[], &Value::Null).await;
    assert_eq!(code, 200, "{page}");
    let remaining = page["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
    page["items"].as_array().unwrap().len() + usize::try_from(remaining).unwrap()
}

fn dialer(server: &Apiserver, folder: &Path) -> Dialer {
    let (host, port) = server.address();
    Dialer::new(&folder.join("pki/ca.crt"), SocketAddr::new(host.parse().unwrap(), port), "http/1.1")
}

async fn attacked(server: &mut Apiserver, folder: &Path) {
    let (admin, bystander) = (server.client().await, server.bystander().await);
    grant(&admin, json!([rule("", &["events"], &["create"])])).await;
    for number in 0..50 {
        let map = json!({"metadata": {"name": format!("m-{number}")}, "data": {"number": number.to_string()}});
        assert_eq!(call(&admin, "POST", MAPS, &[JSON], &map).await.0, 201);
    }
    let (before, id) = (maps(&admin).await, server.id());
    server.peak_kilobytes();
    let resident = server.resident_kilobytes();
    let dialer = dialer(server, folder);
    let begin = Instant::now();
    let mut delays: Vec<Duration> = Vec::new();
    let taken = {
        let mut floods =
            pin!(try_join_all((0..CONNECTIONS).map(|number| flood(dialer.clone(), number, EVENTS / CONNECTIONS))));
        loop {
            let look = async {
                let asked = Instant::now();
                assert_eq!(call(&bystander, "GET", "/version", &[], &Value::Null).await.0, 200);
                delays.push(asked.elapsed());
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            tokio::select! {
                taken = &mut floods => break taken.expect("nobody is cut off").iter().sum::<usize>(),
                () = look => {}
            }
        }
    };
    delays.sort_unstable();
    let grown = server.peak_kilobytes().saturating_sub(resident) / 1024;
    println!(
        "{taken} Events in {:?}; the bystander's 99th percentile of {} was {:?}; {grown} MB more at the peak",
        begin.elapsed(),
        delays.len(),
        delays[delays.len() * 99 / 100]
    );
    assert_eq!(taken, EVENTS, "nobody who does not ask for too much at once is refused");
    assert_eq!((stored(&admin).await, server.id()), (taken, id));
    let bound = MEGABYTES + taken as u64 * BYTES_EACH / (1 << 20);
    assert!(grown < bound, "it grew by {grown} MB");
    assert_eq!(maps(&admin).await, before, "what others have is there");
    // Who may write them may not read or remove them for it.
    let mallory = server.mallory().await;
    for (method, path) in [("GET", PATH), ("DELETE", PATH), ("GET", MAPS)] {
        assert_eq!(call(&mallory, method, path, &[], &Value::Null).await.0, 403, "{method} {path}");
    }
}

fn a_hundred_thousand_events_harm_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(attacked(&mut server, folder.path()));
    server.stop();
    // Nothing of it is in the way of the next start.
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        let admin = server.client().await;
        assert_eq!(stored(&admin).await, EVENTS);
        assert_eq!(maps(&admin).await.as_array().map(Vec::len), Some(50));
    });
}

/// With upstream's plug-in the flood ends at its source, and others go on.
fn a_rate_limit_is_for_each_user() {
    let (folder, burst) = (tempfile::tempdir().unwrap(), 50);
    let file = folder.path().join("admission.yaml");
    let limits = json!([{"type": "User", "qps": 1, "burst": burst}]);
    let plugin =
        json!({"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limits": limits});
    let configuration = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{"name": "EventRateLimit", "configuration": plugin}]});
    std::fs::write(&file, configuration.to_string()).unwrap();
    let file = format!("--admission-control-config-file={}", file.display());
    let mut server = Apiserver::start(folder.path(), &["--enable-admission-plugins=EventRateLimit", &file]);
    runtime().block_on(async {
        let admin = server.client().await;
        grant(&admin, json!([rule("", &["events"], &["create"])])).await;
        let (begin, dialer) = (Instant::now(), dialer(&server, folder.path()));
        let taken = flood(dialer, 0, 2_000).await.unwrap();
        let most = burst + usize::try_from(begin.elapsed().as_secs()).unwrap() + 1;
        assert!(taken >= burst && taken <= most, "{taken} of 2000 were taken");
        assert_eq!(stored(&admin).await, taken);
        let (code, answer) = call(&admin, "POST", PATH, &[JSON], &event("of-somebody-else")).await;
        assert_eq!(code, 201, "{answer}");
    });
}
