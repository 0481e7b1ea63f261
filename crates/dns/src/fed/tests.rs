//! A server that is fed by one that has informers, and one that has only the file of another.

use std::path::Path;

use hickory_proto::op::{Message, Query};
use hickory_proto::rr::{Name, RecordType};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use ferry_client::Informer;
use ferry_client::endpoint_slices::Slice;

use super::snapshot::Unusable;
use super::*;
use crate::Upstreams;

const PATIENCE: Duration = Duration::from_secs(60);

fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

#[derive(Clone)]
struct Objects(Informer<Service>, Informer<Slice>, Informer<Namespace>);

impl Objects {
    fn new() -> Self {
        let this = Self(Informer::detached(), Informer::detached(), Informer::detached());
        this.2.apply(parse(json!({"metadata": {"name": "default"}})));
        this.service("web", "10.96.0.7");
        let meta = json!({"name": "db", "namespace": "default", "labels": {"kubernetes.io/service-name": "db"}});
        this.0.apply(parse(json!({"metadata": meta, "spec": {"clusterIP": "None"}})));
        let slice: EndpointSlice = parse(json!({
            "metadata": meta, "addressType": "IPv4", "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": ["10.244.0.5"], "hostname": "db-0", "nodeName": "n", "targetRef": {"name": "pod-0"}},
                {"addresses": ["10.244.0.6"], "conditions": {"ready": false}},
            ],
        }));
        this.1.apply(slice.into());
        this.0.mark_synced();
        this.1.mark_synced();
        this.2.mark_synced();
        this
    }

    fn service(&self, name: &str, address: &str) {
        let ports = json!([{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30000}]);
        self.0.apply(parse(json!({
            "metadata": {"name": name, "namespace": "default", "annotations": {"much": "text"}},
            "spec": {"clusterIP": address, "clusterIPs": [address], "ports": ports, "selector": {"app": name}},
        })));
    }

    fn feeder(&self) -> Feeder {
        Feeder::of(self.0.clone(), self.1.clone(), self.2.clone())
    }
}

async fn start(zone: &str, file: &Path, tasks: &Tasks) -> (Fed, SocketAddr) {
    let bind = || {
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0")?;
        let connections = std::net::TcpListener::bind(datagrams.local_addr()?)?;
        std::io::Result::Ok((datagrams, connections))
    };
    // The port of the one may be taken for the other.
    let sockets = std::iter::repeat_with(bind).find_map(Result::ok).expect("sockets");
    let address = sockets.0.local_addr().expect("an address");
    let corefile = format!(".:53 {{\nkubernetes {zone} in-addr.arpa\n}}\n");
    let upstreams = Upstreams::These(Vec::new());
    // The one that is listened on differs in each test, and the file must not.
    let config = Config { zone: zone.into(), upstreams, corefile: Some(corefile), ..Config::default() };
    let fed = Fed::start(config, vec![sockets], file.to_owned(), tasks).await.expect("a server");
    (fed, address)
}

async fn ask(server: SocketAddr, name: &str, kind: RecordType) -> String {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).expect("a name"), kind));
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    socket.send_to(&message.to_vec().expect("bytes"), server).await.expect("sent");
    let mut buffer = [0; 4096];
    let length = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await.expect("an answer").expect("received");
    let message = Message::from_vec(&buffer[..length]).expect("a message");
    let answers: Vec<String> = message.answers.iter().map(|record| record.data.to_string()).collect();
    format!("{:?} {}", message.metadata.response_code, answers.join(" "))
}

async fn until(server: SocketAddr, name: &str, wanted: &str) {
    let wait = async {
        while ask(server, name, RecordType::A).await != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{name} is {wanted}"));
}

/// Feeds and is fed until both have had enough of it.
async fn feed(fed: &mut Fed, feeder: &Feeder, meanwhile: impl Future<Output = ()>) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::select! {
        ended = feeder.feed(ours) => panic!("{ended:?}"),
        ended = fed.follow(tokio::io::BufReader::new(theirs)) => panic!("{ended:?}"),
        () = meanwhile => {}
    }
}

#[tokio::test]
async fn a_server_answers_what_it_is_told_and_after_a_restart_what_it_was_told() {
    let (tasks, folder) = (Tasks::new("test"), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("names");
    let (mut fed, server) = start("cluster.local", &file, &tasks).await;
    assert_eq!(ask(server, "web.default.svc.cluster.local.", RecordType::A).await, "ServFail ");
    let objects = Objects::new();
    feed(&mut fed, &objects.feeder(), async {
        until(server, "web.default.svc.cluster.local.", "NoError 10.96.0.7").await;
        assert_eq!(ask(server, "db-0.db.default.svc.cluster.local.", RecordType::A).await, "NoError 10.244.0.5");
        assert_eq!(ask(server, "db.default.svc.cluster.local.", RecordType::A).await, "NoError 10.244.0.5");
        assert_eq!(
            ask(server, "_http._tcp.web.default.svc.cluster.local.", RecordType::SRV).await,
            "NoError 0 100 80 web.default.svc.cluster.local."
        );
        assert_eq!(
            ask(server, "5.0.244.10.in-addr.arpa.", RecordType::PTR).await,
            "NoError db-0.db.default.svc.cluster.local."
        );
        assert_eq!(ask(server, "new.default.svc.cluster.local.", RecordType::A).await, "NXDomain ");
        objects.service("new", "10.96.0.9");
        until(server, "new.default.svc.cluster.local.", "NoError 10.96.0.9").await;
        objects.0.remove(parse(json!({"metadata": {"name": "new", "namespace": "default"}})));
        until(server, "new.default.svc.cluster.local.", "NXDomain ").await;
        while !file.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;

    // The one that comes after it has not been told anything yet: what it does not know may be new.
    let (mut after, server) = start("cluster.local", &file, &tasks).await;
    assert_eq!(ask(server, "web.default.svc.cluster.local.", RecordType::A).await, "NoError 10.96.0.7");
    assert_eq!(ask(server, "db-0.db.default.svc.cluster.local.", RecordType::A).await, "NoError 10.244.0.5");
    assert_eq!(ask(server, "new.default.svc.cluster.local.", RecordType::A).await, "ServFail ");
    // What has gone in between goes when all is told, and only then.
    objects.0.remove(parse(json!({"metadata": {"name": "web", "namespace": "default"}})));
    feed(&mut after, &objects.feeder(), until(server, "web.default.svc.cluster.local.", "NXDomain ")).await;

    let (_foreign, server) = start("elsewhere.test", &file, &tasks).await;
    assert_eq!(ask(server, "db.default.svc.elsewhere.test.", RecordType::A).await, "ServFail ");
}

#[tokio::test]
async fn a_corefile_is_told_and_kept_and_one_that_cannot_be_read_is_neither() {
    let (tasks, folder) = (Tasks::new("test"), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("names");
    let (mut fed, server) = start("cluster.local", &file, &tasks).await;
    let corefile = |text: &str| {
        let map = parse(json!({"metadata": {"name": "coredns"}, "data": {"Corefile": text}}));
        Line::Corefile(Written::of(&map)).bytes().expect("a line")
    };
    let mut said = Line::All.bytes().expect("a line");
    said.extend(corefile(".:53 {\nhosts {\n192.0.2.1 box.test\n}\n}\n"));
    said.extend(corefile(".:53 {\n"));
    said.extend(Line::Complete.bytes().expect("a line"));
    fed.follow(said.as_slice()).await.expect("read");
    assert_eq!(ask(server, "box.test.", RecordType::A).await, "NoError 192.0.2.1");
    while !file.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (_after, server) = start("cluster.local", &file, &tasks).await;
    assert_eq!(ask(server, "box.test.", RecordType::A).await, "NoError 192.0.2.1");
}

#[test]
fn a_file_is_read_as_it_was_written_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("names");
    let snapshot = Snapshot::new(path.clone(), "cluster.local 10.244.0.1:53");
    let lines = || (0..20).map(|number| Line::Namespace(format!("namespace-{number}")));
    let read = |snapshot: &Snapshot| {
        let mut read = Vec::new();
        snapshot.read(|line| read.push(line)).map(|there| there.then_some(read))
    };
    assert!(matches!(read(&snapshot), Ok(None)), "there is none yet");
    snapshot.write(lines()).expect("written");
    assert_eq!(read(&snapshot).expect("read"), Some(lines().collect()));
    use std::os::unix::fs::PermissionsExt;
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o600);

    let whole = std::fs::read(&path).expect("bytes");
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).expect("cut");
        let error = read(&snapshot).expect_err("a file that was cut");
        assert!(matches!(error, Unusable::Torn | Unusable::Foreign), "{length}: {error}");
    }
    for place in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        std::fs::write(&path, damaged).expect("damaged");
        assert!(read(&snapshot).is_err(), "byte {place} is another one");
    }
    std::fs::write(&path, &whole).expect("written");
    let other = Snapshot::new(path.clone(), "cluster.local 10.244.9.1:53");
    assert!(matches!(read(&other), Err(Unusable::Foreign)));
    mode(0o666);
    assert!(matches!(read(&snapshot), Err(Unusable::NotOwn)));
    mode(0o640);
    assert!(matches!(read(&snapshot), Ok(Some(_))));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    assert!(read(&Snapshot::new(link, "cluster.local 10.244.0.1:53")).is_err(), "links are not followed");
}

#[test]
fn a_file_does_not_grow_beyond_its_bound() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("names");
    let snapshot = || Snapshot::new(path.clone(), "x");
    let lines = |count: usize| (0..count).map(|number| Line::Namespace(format!("namespace-{number}")));
    snapshot().write(lines(100)).expect("written");
    let small = snapshot().bounded(1000);
    assert!(matches!(small.read(|_| panic!("a line")), Err(Unusable::TooLarge(_))));
    assert!(matches!(small.write(lines(100)), Err(Unusable::TooLarge(_))));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "an old one would be taken for the new");
    small.write(lines(10)).expect("written");
    assert!(matches!(small.read(|_| {}), Ok(true)));
}
