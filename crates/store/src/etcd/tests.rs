//! The etcd engine on a real etcd, which comes and goes.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_tasks::Tasks;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

use super::{EtcdOptions, EtcdStore};
use crate::conformance::{self, Corner, model};
use crate::{Op, Range, Store, StoreError, Transaction, WatchRequest};

/// An etcd of its own on loopback ports of its own.
struct Server {
    process: Child,
    ports: [u16; 2],
}

fn free_ports() -> [u16; 2] {
    // Both are bound at once, so that they differ.
    let sockets = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
    sockets.map(|socket| socket.local_addr().expect("an address").port())
}

impl Server {
    fn start(folder: &Path, ports: [u16; 2]) -> Self {
        let (client, peer) = (format!("http://127.0.0.1:{}", ports[0]), format!("http://127.0.0.1:{}", ports[1]));
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--max-request-bytes", "2097152", "--logger", "zap", "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd starts: it is in Debian's package etcd-server");
        Self { process, ports }
    }

    fn kill(&mut self) {
        self.process.kill().expect("kill");
        self.process.wait().expect("wait");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn connect(server: &Server) -> Arc<EtcdStore> {
    let options = EtcdOptions {
        compaction_interval: None,
        ..EtcdOptions::new(vec![format!("http://127.0.0.1:{}", server.ports[0])])
    };
    let store = EtcdStore::connect(options, &Tasks::new("test")).await.expect("connect");
    until_up(&store).await;
    store
}

async fn until_up(store: &EtcdStore) {
    let up = async {
        while store.health().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), up).await.expect("etcd is up");
}

fn create(name: &str) -> Transaction {
    let key = format!("/registry/things/{name}");
    Transaction::one(Op::Create { key, value: Bytes::from_static(b"k8s\0\x0a\x00"), lease: None })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms() {
    let folder = tempfile::tempdir().expect("folder");
    let server = Server::start(folder.path(), free_ports());
    conformance::run(connect(&server).await).await;
}

#[test]
fn agrees_with_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
    let folder = tempfile::tempdir().expect("folder");
    let server = Server::start(folder.path(), free_ports());
    let store = runtime.block_on(connect(&server));
    let mut runner = TestRunner::new(Config { cases: 16, failure_persistence: None, ..Config::default() });
    let mut run = 0;
    let steps = crate::steps::steps(30, false);
    for _ in 0..16 {
        let steps = steps.new_tree(&mut runner).expect("steps").current();
        run += 1;
        let corner = Corner::new(store.clone(), &format!("model-{run}"));
        runtime.block_on(model::check(corner, &steps, std::future::ready));
    }
}

#[tokio::test]
async fn an_etcd_that_goes_away_and_comes_back_loses_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let mut server = Server::start(folder.path(), free_ports());
    let store = connect(&server).await;
    let first = store.commit(create("a")).await.expect("create").revision;
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after: first - 1 }).await.expect("watch");
    assert_eq!(conformance::next(&mut watch).await.expect("a").revision, first);

    server.kill();
    let refused = store.commit(create("b")).await;
    assert!(matches!(&refused, Err(error @ StoreError::Unavailable(_)) if error.is_retryable()), "{refused:?}");
    assert!(matches!(store.get("/registry/things/a").await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.revision().await, Err(StoreError::Unavailable(_))));
    assert!(store.health().await.is_err());

    let _server = Server::start(folder.path(), server.ports);
    until_up(&store).await;
    let second = store.commit(create("c")).await.expect("create").revision;
    // The watch finds its way back, and has no gap.
    loop {
        let batch = conformance::next(&mut watch).await.expect("batch");
        if !batch.events.is_empty() && batch.revision == second {
            break;
        }
        assert!(batch.revision <= second);
    }
    let found = store.range(Range { prefix: "/registry/things/".into(), ..Range::default() }).await.expect("range");
    assert!(found.entries.iter().any(|entry| &*entry.key == "/registry/things/a"));
}

#[tokio::test]
async fn a_watch_that_missed_a_compaction_says_so() {
    let folder = tempfile::tempdir().expect("folder");
    let mut server = Server::start(folder.path(), free_ports());
    let store = connect(&server).await;
    let first = store.commit(create("a")).await.expect("create").revision;
    let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after: first }).await.expect("watch");
    conformance::next(&mut watch).await.expect("a mark");
    server.kill();
    let _server = Server::start(folder.path(), server.ports);
    until_up(&store).await;
    // Not polled meanwhile, the watch is still away when this happens.
    store.commit(create("b")).await.expect("create");
    let last = store.commit(create("c")).await.expect("create").revision;
    store.compact(last).await.expect("compact");
    let lost = conformance::next(&mut watch).await;
    assert!(matches!(lost, Err(StoreError::Compacted { oldest, .. }) if oldest == last), "{lost:?}");
}
