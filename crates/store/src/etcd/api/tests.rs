//! Every call on a real etcd: what the numbers of fields are is only proved there.

use std::net::TcpListener;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use ferry_testkit::free_port;
use futures::stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Code;

use super::super::server::{Authority, Server, free_ports};
use super::super::{EtcdStore, EtcdTls};
use super::rpc::alarm_request::AlarmAction;
use super::rpc::response_op::Response;
use super::rpc::*;
use super::{Client, describe, was_not_sent};
use crate::{Store, StoreError};

async fn up(url: &str) -> Client {
    let client = Client::new(url, None).expect("client");
    let up = async {
        while client.kv().range(range("a")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), up).await.expect("etcd is up");
    client
}

fn range(key: &str) -> RangeRequest {
    RangeRequest { key: key.into(), ..RangeRequest::default() }
}

fn put(key: &str, value: &'static str, lease: i64) -> PutRequest {
    PutRequest { key: key.into(), value: value.into(), lease, prev_kv: true, ..PutRequest::default() }
}

#[tokio::test]
async fn keys_and_leases() {
    let server = Server::start();
    let client = up(&server.url).await;
    let (mut kv, mut lease) = (client.kv(), client.lease());
    let granted = lease.lease_grant(LeaseGrantRequest { ttl: 1000, id: 77 }).await.expect("grant").into_inner();
    assert_eq!((granted.id, granted.ttl), (77, 1000));
    kv.put(put("a", "1", 77)).await.expect("put");
    let second = kv.put(put("a", "2", 77)).await.expect("put").into_inner();
    let previous = second.prev_kv.expect("the value before");
    assert_eq!((&*previous.key, &*previous.value, previous.version, previous.lease), (&b"a"[..], &b"1"[..], 1, 77));
    let now = kv.range(range("a")).await.expect("range").into_inner();
    let header = now.header.expect("header");
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term > 0);
    assert_eq!((now.count, now.more, now.kvs[0].version), (1, false, 2));
    assert_eq!((now.kvs[0].create_revision, now.kvs[0].mod_revision), (header.revision - 1, header.revision));

    let request = LeaseTimeToLiveRequest { id: 77, keys: true };
    let left = lease.lease_time_to_live(request).await.expect("time to live").into_inner();
    assert_eq!((left.id, left.granted_ttl, left.keys), (77, 1000, vec![b"a".to_vec()]));
    assert!((1..=1000).contains(&left.ttl), "{}", left.ttl);
    let once = stream::iter([LeaseKeepAliveRequest { id: 77 }]);
    let mut kept = lease.lease_keep_alive(once).await.expect("keep alive").into_inner();
    let kept = kept.message().await.expect("an answer").expect("one");
    assert_eq!((kept.id, kept.ttl), (77, 1000));
    lease.lease_revoke(LeaseRevokeRequest { id: 77 }).await.expect("revoke");
    let gone = kv.range(range("a")).await.expect("range").into_inner();
    assert_eq!(gone.count, 0, "keys go with their lease");
    let unknown = lease.lease_revoke(LeaseRevokeRequest { id: 77 }).await.expect_err("it is gone");
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(!was_not_sent(&unknown), "etcd itself said so");

    kv.put(put("b", "3", 0)).await.expect("put");
    let request = DeleteRangeRequest { key: "b".into(), range_end: "c".into(), prev_kv: true };
    let deleted = kv.delete_range(request).await.expect("delete").into_inner();
    assert_eq!((deleted.deleted, &*deleted.prev_kvs[0].value), (1, &b"3"[..]));
    let failure = vec![RequestOp { request: Some(request_op::Request::RequestRange(range("b"))) }];
    let is_there = Compare {
        result: compare::CompareResult::Greater.into(),
        target: compare::CompareTarget::Version.into(),
        key: "b".into(),
        target_union: Some(compare::TargetUnion::Version(0)),
        range_end: Vec::new(),
    };
    let request = TxnRequest { compare: vec![is_there], success: Vec::new(), failure };
    let answer = kv.txn(request).await.expect("txn").into_inner();
    assert!(!answer.succeeded);
    assert!(matches!(&answer.responses[0].response, Some(Response::ResponseRange(found)) if found.count == 0));
}

#[tokio::test]
async fn members() {
    let server = Server::start();
    let client = up(&server.url).await;
    let mut cluster = client.cluster();
    let peer = |port: u16| vec![format!("http://127.0.0.1:{port}")];
    let [first, second] = free_ports();
    let list = async || {
        let answer = client.cluster().member_list(MemberListRequest { linearizable: true }).await.expect("list");
        answer.into_inner().members
    };
    let only = list().await.remove(0);
    assert_eq!((only.name.as_str(), &only.client_urls, only.is_learner), ("default", &vec![server.url.clone()], false));

    let request = MemberAddRequest { peer_urls: peer(first), is_learner: true };
    let added = cluster.member_add(request).await.expect("add").into_inner();
    let learner = added.member.expect("the new one");
    assert_eq!((learner.is_learner, &learner.peer_urls, added.members.len()), (true, &peer(first), 2));
    let request = MemberUpdateRequest { id: learner.id, peer_urls: peer(second) };
    cluster.member_update(request).await.expect("update");
    let found = list().await.into_iter().find(|member| member.id == learner.id).expect("it is in the list");
    assert_eq!((found.peer_urls, found.name.as_str()), (peer(second), ""));
    let early = cluster.member_promote(MemberPromoteRequest { id: learner.id }).await.expect_err("it never started");
    assert!(early.message().contains("learner"), "{early:?}");
    cluster.member_remove(MemberRemoveRequest { id: learner.id }).await.expect("remove");
    assert_eq!(list().await.len(), 1);
}

#[tokio::test]
async fn status_space_and_snapshots() {
    let server = Server::start();
    let client = up(&server.url).await;
    let mut maintenance = client.maintenance();
    for _ in 0..3 {
        client.kv().put(put("large", "x".repeat(1 << 20).leak(), 0)).await.expect("put");
    }
    let revision = client.kv().range(range("large")).await.expect("range").into_inner().kvs[0].mod_revision;
    client.kv().compact(CompactionRequest { revision, physical: true }).await.expect("compact");
    let before = maintenance.status(StatusRequest {}).await.expect("status").into_inner();
    let this = before.header.expect("header").member_id;
    assert!(before.version.starts_with("3.") && before.leader == this && !before.is_learner, "{}", before.version);
    assert!(before.raft_index >= before.raft_applied_index && before.raft_applied_index > 0 && before.raft_term > 0);
    maintenance.defragment(DefragmentRequest {}).await.expect("defragment");
    let after = maintenance.status(StatusRequest {}).await.expect("status").into_inner();
    assert!(after.db_size < before.db_size, "{} {}", before.db_size, after.db_size);
    assert!(after.db_size_in_use <= after.db_size && after.db_size_in_use > 1 << 20);

    let mut pieces = maintenance.snapshot(SnapshotRequest {}).await.expect("snapshot").into_inner();
    let (mut snapshot, mut remaining) = (Vec::new(), u64::MAX);
    while let Some(piece) = pieces.message().await.expect("a piece") {
        assert!(piece.remaining_bytes <= remaining);
        remaining = piece.remaining_bytes;
        snapshot.extend_from_slice(&piece.blob);
    }
    assert_eq!(remaining, 0);
    let (database, checksum) = snapshot.split_last_chunk::<32>().expect("a checksum");
    assert_eq!(digest(&SHA256, database).as_ref(), checksum);
    assert_eq!(database.len(), usize::try_from(after.db_size).expect("a size"));
}

#[tokio::test]
async fn alarms_are_told_and_put_out() {
    let server = Server::start();
    let client = up(&server.url).await;
    let store = super::super::server::connect(&server).await;
    let mut maintenance = client.maintenance();
    let this = maintenance.status(StatusRequest {}).await.expect("status").into_inner().header.expect("header");
    let full = |action: AlarmAction| AlarmRequest {
        action: action.into(),
        member_id: this.member_id,
        alarm: AlarmType::Nospace.into(),
    };
    maintenance.alarm(full(AlarmAction::Activate)).await.expect("activate");
    let told = maintenance.alarm(AlarmRequest::default()).await.expect("alarms").into_inner().alarms;
    assert_eq!((told.len(), told[0].alarm(), told[0].member_id), (1, AlarmType::Nospace, this.member_id));
    let ill = EtcdStore::health(&store).await;
    assert!(matches!(&ill, Err(StoreError::Unavailable(why)) if why.contains("NOSPACE")), "{ill:?}");
    maintenance.alarm(full(AlarmAction::Deactivate)).await.expect("deactivate");
    EtcdStore::health(&store).await.expect("well again");
}

#[tokio::test]
async fn the_leader_moves_and_is_missed() {
    let mut servers = Server::cluster();
    let mut members = Vec::new();
    for server in &servers {
        let client = up(&server.url).await;
        let status = client.maintenance().status(StatusRequest {}).await.expect("status").into_inner();
        members.push((client, status.header.expect("header").member_id, status.leader));
    }
    let leads = members.iter().position(|(_, id, leader)| id == leader).expect("a leader");
    let next = members[(leads + 1) % 3].1;
    members[leads].0.maintenance().move_leader(MoveLeaderRequest { target_id: next }).await.expect("move");
    let last = &members[leads].0;
    let leader = async || last.maintenance().status(StatusRequest {}).await.expect("status").into_inner().leader;
    assert_eq!(leader().await, next);

    servers[(leads + 1) % 3].kill();
    servers[(leads + 2) % 3].kill();
    // What is left of the cluster is told by the member that is left, while what needs a leader is refused.
    let alone = async {
        while leader().await != 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), alone).await.expect("without two of three there is no leader");
    let refused = last.kv().range(RangeRequest { serializable: true, ..range("a") }).await.expect_err("no leader");
    assert!(describe(&refused).contains("no leader"), "{refused:?}");
    let left = last.cluster().member_list(MemberListRequest { linearizable: false }).await.expect("list");
    assert_eq!(left.into_inner().members.len(), 3);
}

/// The figure of a gauge in etcd's metrics.
async fn gauge(server: &Server, name: &str) -> Option<f64> {
    let address = server.url.strip_prefix("http://").expect("plain");
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("connect");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.expect("write");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("read");
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[tokio::test]
async fn a_watch_that_is_dropped_ends_at_etcd() {
    let server = Server::start();
    let client = up(&server.url).await;
    let request = WatchCreateRequest { key: "a".into(), ..WatchCreateRequest::default() };
    let mut watches = Vec::new();
    for _ in 0..3 {
        let mut watch = client.watch(request.clone()).await.expect("watch");
        assert!(watch.message().await.expect("an answer").expect("one").created);
        watches.push(watch);
    }
    let open = async || gauge(&server, "etcd_debugging_mvcc_watch_stream_total").await.expect("a figure");
    assert_eq!(open().await, 3.0);
    drop(watches);
    let ended = async {
        while open().await > 0.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("etcd forgets them");
}

#[tokio::test]
async fn what_was_not_sent_is_known() {
    let nobody = Client::new(&format!("127.0.0.1:{}", free_port()), None).expect("client");
    let refused = nobody.kv().range(range("a")).await.expect_err("nobody is there");
    assert!(was_not_sent(&refused), "{refused:?}");
    assert!(describe(&refused).contains("refused"), "{}", describe(&refused));

    // TCP connects by the kernel's hand, and that is all.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let secure = Client::new(&address, Some(&EtcdTls::default())).expect("client");
    let silence = tokio::time::timeout(Duration::from_secs(60), secure.kv().range(range("a"))).await;
    let silence = silence.expect("the handshake is not waited for without end").expect_err("nothing is said");
    assert!(was_not_sent(&silence), "{silence:?}");
}

#[tokio::test]
async fn servers_may_have_another_name_than_their_address() {
    let authority = Authority::new();
    let server = Server::secure(&authority);
    let url = server.url.replace("127.0.0.1", "localhost");
    let tls = |server_name: Option<&str>| EtcdTls {
        certificate_authority: authority.pem(),
        identity: Some(authority.identity()),
        server_name: server_name.map(str::to_owned),
    };
    let named = Client::new(&url, Some(&tls(Some("127.0.0.1")))).expect("client");
    let up = async {
        while named.kv().range(range("a")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), up).await.expect("the name of the certificate is looked for");
    let unnamed = Client::new(&url, Some(&tls(None))).expect("client");
    let refused = unnamed.kv().range(range("a")).await.expect_err("the certificate is not for localhost");
    assert!(describe(&refused).contains("certificate"), "{}", describe(&refused));
}
