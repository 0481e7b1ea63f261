//! Connections that are opened to be in the way: silent, slow, reset again and again, with heads without end.

use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ObjectMeta, PostParams, WatchEvent, WatchParams};
use tokio::io::AsyncWriteExt;

use super::raw::{self, Dialer, END_STREAM, HEADERS, RST_STREAM, WINDOW_UPDATE};
use crate::alone::{Apiserver, MALLORY, TOKEN, create, runtime};
use crate::cluster::{Cluster, PATIENCE};
use crate::{Alone, Scenario};

pub const ALONE: &[Alone] = &[
    ("hostile::connections::silent_ones_keep_nobody_out", silent_ones_keep_nobody_out),
    ("hostile::connections::slow_bodies_keep_nobody_out", slow_bodies_keep_nobody_out),
    ("hostile::connections::streams_reset_at_once_end_their_connection", streams_reset_at_once_end_their_connection),
    ("hostile::connections::heads_without_end_are_cut_off", heads_without_end_are_cut_off),
    ("hostile::connections::heads_of_many_fields_take_no_memory", heads_of_many_fields_take_no_memory),
    (
        "hostile::connections::frames_that_ask_for_nothing_end_their_connection",
        frames_that_ask_for_nothing_end_their_connection,
    ),
    ("hostile::connections::answers_that_nobody_takes_are_bounded", answers_that_nobody_takes_are_bounded),
    ("hostile::connections::watches_that_nobody_reads_are_bounded", watches_that_nobody_reads_are_bounded),
];

pub const SCENARIOS: &[Scenario] =
    &[("hostile::connections::the_kubelets_port_stays_open", the_kubelets_port_stays_open)];

/// More than the API server has ever held open at once.
const SILENT: usize = 8_400;
/// What the server may grow by while it is attacked, in kilobytes: connections of strangers and what is held for
/// clients are bounded, and a debug build is not lean.
const GROWTH: u64 = 256 << 10;

struct Target {
    server: Apiserver,
    folder: tempfile::TempDir,
    before: u64,
}

impl Target {
    async fn start() -> Self {
        allow_many_files();
        let folder = tempfile::tempdir().unwrap();
        let mut server = Apiserver::start(folder.path(), &[]);
        server.client().await;
        let before = server.resident_kilobytes();
        Self { server, folder, before }
    }

    fn dialer(&self, protocol: &str) -> Dialer {
        let (host, port) = self.server.address();
        let address = SocketAddr::new(host.parse().unwrap(), port);
        Dialer::new(&self.folder.path().join("pki/ca.crt"), address, protocol)
    }

    /// Somebody else, with a connection of their own, is served, and the server has not grown beyond bounds.
    async fn check(&mut self, growth: u64) {
        for _ in 0..3 {
            let namespaces: Api<Namespace> = Api::all(self.server.client().await);
            let served = tokio::time::timeout(PATIENCE, namespaces.get("default")).await;
            served.expect("others are served").unwrap();
        }
        let grown = self.server.most_resident_kilobytes().saturating_sub(self.before);
        assert!(grown < growth, "the server grew by {grown} KiB");
    }

    /// The value of a figure of the server.
    async fn figure(&mut self, name: &str) -> Option<u64> {
        let client = self.server.client().await;
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = client.request_text(request).await.unwrap();
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.rsplit(' ').next().unwrap().parse().ok()
    }

    /// Requests of ordinary users that wait for a seat.
    async fn waiting(&mut self) -> usize {
        let client = self.server.client().await;
        let page = "/debug/api_priority_and_fairness/dump_priority_levels";
        let text = client.request_text(http::Request::get(page).body(Vec::new()).unwrap()).await.unwrap();
        let row = text.lines().find(|line| line.starts_with("global-default")).unwrap();
        row.split(',').nth(4).unwrap().trim().parse().unwrap()
    }

    async fn strangers(&mut self) -> Option<u64> {
        self.figure("apiserver_connections{authenticated=\"false\"}").await
    }

    /// Somebody has to pay for what is held for clients, before it is too much.
    async fn somebody_pays(&mut self) {
        // A sixty-fourth of the machine's memory, but not less than 256 MB.
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
        let memory: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
        // What was given back may not have left the process yet.
        let growth = GROWTH + 2 * (memory / 64).max(256 << 10);
        let begin = std::time::Instant::now();
        while self.figure("apiserver_connections_cut_total{reason=\"memory\"}").await.is_none_or(|cut| cut == 0) {
            self.check(growth).await;
            assert!(begin.elapsed() < PATIENCE, "nobody pays for what is held for them");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.check(growth).await;
    }
}

fn allow_many_files() {
    let resource = rustix::process::Resource::Nofile;
    let limit = rustix::process::getrlimit(resource);
    rustix::process::setrlimit(resource, rustix::process::Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// Opens so many connections that say nothing once the handshake is done.
async fn silent(dialer: &Dialer, count: usize) -> Vec<raw::Stream> {
    let connecting = futures::stream::iter(0..count).map(|_| dialer.connect());
    connecting.buffer_unordered(32).filter_map(async |made| made.ok()).collect().await
}

fn silent_ones_keep_nobody_out() {
    runtime().block_on(async {
        let mut target = Target::start().await;
        let config_maps: Api<ConfigMap> = Api::default_namespaced(target.server.client().await);
        let mut watch = config_maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        let open = silent(&target.dialer("h2"), SILENT).await;
        assert_eq!(open.len(), SILENT, "all of them got in");
        target.check(GROWTH).await;
        // Who was known before is not in their way.
        create(&target.server.client().await, "seen").await.unwrap();
        loop {
            match watch.next().await.expect("the watch goes on").unwrap() {
                WatchEvent::Added(found) if found.metadata.name.as_deref() == Some("seen") => break,
                _ => {}
            }
        }
        assert!(target.strangers().await.is_some_and(|count| count <= 1024));
        // Those that are left are not left for long.
        let begin = std::time::Instant::now();
        while target.strangers().await != Some(0) {
            assert!(begin.elapsed() < PATIENCE, "silent connections stay");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        drop(open);
    });
}

/// A user with no rights but to be known takes as many seats as they can get and sends nothing.
fn slow_bodies_keep_nobody_out() {
    runtime().block_on(async {
        let mut target = Target::start().await;
        let dialer = target.dialer("http/1.1");
        let request = format!(
            "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {MALLORY}-token\r\n\
             content-type: application/json\r\ncontent-length: 1000000\r\n\r\n{{"
        );
        let mut open = silent(&dialer, 1000).await;
        for stream in &mut open {
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
        let begin = std::time::Instant::now();
        while target.waiting().await == 0 {
            assert!(begin.elapsed() < PATIENCE, "all of them have a seat");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let review = serde_json::from_value(serde_json::json!({
            "metadata": {}, "spec": { "resourceAttributes": { "verb": "get", "resource": "pods" } },
        }))
        .unwrap();
        // A minute was what a body could take.
        let asked = async {
            // Somebody whose requests wait in the same line, and who is no administrator.
            let reviews: Api<SelfSubjectAccessReview> = Api::all(target.server.bystander().await);
            reviews.create(&PostParams::default(), &review).await.unwrap()
        };
        let answer = tokio::time::timeout(Duration::from_secs(45), asked).await.expect("others have their turn");
        assert!(!answer.status.unwrap().allowed);
        assert!(raw::is_ended(&mut open[0], PATIENCE).await || raw::is_ended(&mut open[999], PATIENCE).await);
        target.check(GROWTH).await;
    });
}

fn streams_reset_at_once_end_their_connection() {
    runtime().block_on(async {
        let mut target = Target::start().await;
        let dialer = target.dialer("h2");
        let block = raw::get("/api/v1/pods", None);
        for _ in 0..8 {
            let mut stream = dialer.connect().await.unwrap();
            stream.write_all(&raw::preface(1 << 16)).await.unwrap();
            let mut refused = false;
            // A hundred thousand, a thousand in one piece.
            for round in 0..100 {
                let mut burst = Vec::new();
                for number in 0..1000 {
                    let id = (round * 1000 + number) * 2 + 1;
                    burst.extend(raw::head(id, &block));
                    burst.extend(raw::frame(RST_STREAM, 0, id, &8u32.to_be_bytes()));
                }
                refused = raw::send(&mut stream, &burst).await;
                if refused {
                    break;
                }
            }
            assert!(refused, "the connection goes on");
        }
        target.check(GROWTH).await;
    });
}

fn heads_without_end_are_cut_off() {
    runtime().block_on(async {
        let mut target = Target::start().await;
        let dialer = target.dialer("h2");
        for _ in 0..4 {
            let mut stream = dialer.connect().await.unwrap();
            stream.write_all(&raw::preface(1 << 16)).await.unwrap();
            let begin = raw::frame(HEADERS, END_STREAM, 1, &raw::get("/api/v1/pods", None));
            assert!(!raw::send(&mut stream, &begin).await);
            let more = raw::frame(raw::CONTINUATION, 0, 1, &raw::field("x-more", &"x".repeat(16_000)));
            let mut sent = 0;
            while !raw::send(&mut stream, &more).await {
                sent += more.len();
                assert!(sent < 64 << 20, "a head of {sent} bytes is still read");
            }
        }
        target.check(GROWTH).await;
    });
}

/// Each has to be answered or looked at, and none is a request that could be refused.
fn frames_that_ask_for_nothing_end_their_connection() {
    runtime().block_on(async {
        let mut target = Target::start().await;
        let dialer = target.dialer("h2");
        let zeros = [0; 8];
        let window = 1u32.to_be_bytes();
        let floods = [
            ("PING", raw::frame(raw::PING, 0, 0, &zeros)),
            ("SETTINGS", raw::frame(raw::SETTINGS, 0, 0, &[])),
            ("WINDOW_UPDATE", raw::frame(WINDOW_UPDATE, 0, 0, &window)),
            ("PRIORITY", raw::frame(raw::PRIORITY, 0, 3, &zeros[..5])),
            ("an unknown one", raw::frame(0xbe, 0, 0, &zeros)),
        ];
        for (name, frame) in &floods {
            let mut stream = dialer.connect().await.unwrap();
            stream.write_all(&raw::preface(1 << 16)).await.unwrap();
            let burst = frame.repeat(1000);
            let mut refused = false;
            for _ in 0..200 {
                refused = raw::send(&mut stream, &burst).await;
                if refused {
                    break;
                }
            }
            // All of it may have been on its way before the server had had enough.
            assert!(refused || raw::is_ended(&mut stream, PATIENCE).await, "{name} without end is taken");
        }
        // A connection without a request ends soon in any case; these were cut off for what they sent.
        let cut = target.figure("apiserver_connections_cut_total{reason=\"frames\"}").await;
        assert_eq!(cut, Some(floods.len() as u64));
        target.check(GROWTH).await;
    });
}

fn heads_of_many_fields_take_no_memory() {
    runtime().block_on(async {
        let mut target = Target::start().await;
        let dialer = target.dialer("h2");
        // As many as a megabyte of fields may have, and as many as are let through to be counted.
        for (fields, connections) in [(31_000, 4), (1_800, 16)] {
            let attack = |dialer: Dialer| async move {
                let mut stream = dialer.connect().await.unwrap();
                stream.write_all(&raw::preface(1 << 16)).await.unwrap();
                let mut heads = Vec::new();
                for number in 0..1000 {
                    let mut block = raw::get("/api/v1/pods", None);
                    // Remembered by the server, and said again in one byte.
                    block.extend([0x40, 1, b'a', 1, b'b']);
                    block.extend(std::iter::repeat_n(0xbe, fields));
                    heads.extend(raw::head(number * 2 + 1, &block));
                }
                raw::send(&mut stream, &heads).await;
            };
            futures::future::join_all((0..connections).map(|_| attack(dialer.clone()))).await;
            target.check(GROWTH).await;
        }
    });
}

/// One object of a megabyte, asked for four thousand times by a client that gives no room for an answer.
fn answers_that_nobody_takes_are_bounded() {
    runtime().block_on(async {
        let mut target = Target::start().await;
        let client = target.server.client().await;
        let data = Some([("large".to_owned(), "x".repeat(1_000_000))].into());
        let metadata = ObjectMeta { name: Some("large".into()), ..ObjectMeta::default() };
        let large = ConfigMap { metadata, data, ..ConfigMap::default() };
        Api::<ConfigMap>::default_namespaced(client).create(&PostParams::default(), &large).await.unwrap();
        let block = raw::get("/api/v1/namespaces/default/configmaps/large", Some(TOKEN));
        let mut open = Vec::new();
        for _ in 0..16 {
            let mut stream = target.dialer("h2").connect().await.unwrap();
            stream.write_all(&raw::preface(0)).await.unwrap();
            let all: Vec<u8> = (0..250).flat_map(|number| raw::head(number * 2 + 1, &block)).collect();
            raw::send(&mut stream, &all).await;
            open.push(stream);
        }
        target.somebody_pays().await;
        drop(open);
    });
}

/// A thousand watches of a client that reads nothing.
fn watches_that_nobody_reads_are_bounded() {
    runtime().block_on(async {
        let mut target = Target::start().await;
        // Each gets a copy of its own of every object.
        let path = "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=0&includeObject=Object";
        let mut watch = raw::get(path, Some(TOKEN));
        watch.extend(raw::field("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"));
        let dialer = target.dialer("h2");
        let mut open = Vec::new();
        for _ in 0..4 {
            // Every stream may send as much as it likes, but nobody reads.
            let mut stream = dialer.connect().await.unwrap();
            stream.write_all(&raw::preface(i32::MAX as u32)).await.unwrap();
            let window = (i32::MAX as u32 - 65_535).to_be_bytes();
            stream.write_all(&raw::frame(WINDOW_UPDATE, 0, 0, &window)).await.unwrap();
            let all: Vec<u8> = (0..1000).flat_map(|number| raw::head(number * 2 + 1, &watch)).collect();
            assert!(!raw::send(&mut stream, &all).await);
            open.push(stream);
        }
        let client = target.server.client().await;
        let config_maps: Api<ConfigMap> = Api::default_namespaced(client);
        for number in 0..60 {
            let data = Some([("large".to_owned(), "x".repeat(500_000))].into());
            let metadata = ObjectMeta { name: Some(format!("large-{number}")), ..ObjectMeta::default() };
            let large = ConfigMap { metadata, data, ..ConfigMap::default() };
            config_maps.create(&PostParams::default(), &large).await.unwrap();
        }
        target.somebody_pays().await;
        drop(open);
    });
}

fn the_kubelets_port_stays_open(cluster: &mut Cluster) {
    allow_many_files();
    let node = &cluster.items(&["get", "nodes"])[0];
    let addresses = node["status"]["addresses"].as_array().unwrap();
    let address =
        addresses.iter().find(|address| address["type"] == "InternalIP").unwrap()["address"].as_str().unwrap();
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().unwrap();
    let address = SocketAddr::new(address.parse().unwrap(), u16::try_from(port).unwrap());
    let dialer = Dialer::new(&cluster.data_dir().join("pki/ca.crt"), address, "http/1.1");
    let name = node["metadata"]["name"].as_str().unwrap();
    runtime().block_on(async {
        let open = silent(&dialer, 1_100).await;
        assert_eq!(open.len(), 1_100, "all of them got in");
        let page = format!("/api/v1/nodes/{name}/proxy/healthz");
        assert_eq!(cluster.kubectl(&["get", "--raw", &page, "--request-timeout=60s"]), "ok");
        drop(open);
    });
}
