use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::serve::is_short_of_room;
use crate::socket::Socket;
use crate::sweep::sweep;
use crate::{AtItsEnd, Body, BoxError, Connections, Limits, Peer, abandoned_after};

fn table(unauthenticated: usize, authenticated: usize) -> Connections {
    Connections::new(Limits { unauthenticated, authenticated, ..Limits::new(8, 100_000) })
}

fn come(table: &Connections, address: &str) -> Arc<Connection> {
    table.admit(address.parse::<IpAddr>().expect("an address"), CancellationToken::new())
}

fn known(table: &Connections, user: &str) -> Arc<Connection> {
    let connection = come(table, "10.9.9.9");
    connection.authenticated(user);
    connection
}

fn cut(connections: &[&Arc<Connection>]) -> Vec<bool> {
    connections.iter().map(|connection| connection.is_cut()).collect()
}

#[tokio::test]
async fn the_address_with_most_connections_gives_way() {
    let table = table(4, 4);
    let other = come(&table, "10.0.0.1");
    let flood: Vec<_> = (0..20).map(|_| come(&table, "10.0.0.2")).collect();
    let newcomer = come(&table, "10.0.0.3");
    assert_eq!(cut(&[&other, &newcomer]), [false, false]);
    let left: Vec<usize> = (0..20).filter(|at| !flood[*at].is_cut()).collect();
    assert_eq!(left, [18, 19], "the oldest go first");
}

#[tokio::test]
async fn a_network_of_addresses_counts_as_one() {
    let table = table(2, 4);
    let other = come(&table, "2001:db8:0:1::1");
    let flood: Vec<_> = (1..9).map(|host| come(&table, &format!("2001:db8:0:2::{host}"))).collect();
    assert!(!other.is_cut());
    assert_eq!(flood.iter().filter(|connection| !connection.is_cut()).count(), 1);
    let mapped = come(&table, "::ffff:10.0.0.1");
    assert!(!mapped.is_cut() && !other.is_cut(), "an address of IPv4 stands for itself");
}

#[tokio::test]
async fn who_asks_for_something_stays_longer_than_who_is_silent() {
    let table = table(2, 4);
    let busy = come(&table, "10.0.0.1");
    let request = busy.begin(&HeaderMap::new());
    let silent = come(&table, "10.0.0.1");
    let newest = come(&table, "10.0.0.1");
    assert_eq!(cut(&[&busy, &silent, &newest]), [false, true, false]);
    drop(request);
    assert!(busy.is_idle());
}

#[tokio::test]
async fn users_are_not_in_the_way_of_those_who_are_not_known_yet() {
    let table = table(2, 3);
    let ann = [known(&table, "ann"), known(&table, "ann"), known(&table, "ann")];
    let _strangers: Vec<_> = (0..9).map(|_| come(&table, "10.0.0.1")).collect();
    assert_eq!(cut(&[&ann[0], &ann[1], &ann[2]]), [false, false, false]);
    let watch = ann[0].begin(&HeaderMap::new());
    let bob = known(&table, "bob");
    assert_eq!(cut(&[&ann[0], &ann[1], &ann[2], &bob]), [false, true, false, false], "the oldest idle one of ann's");
    let _more = [ann[2].begin(&HeaderMap::new()), bob.begin(&HeaderMap::new())];
    let carl = known(&table, "carl");
    assert_eq!(cut(&[&ann[0], &ann[2], &bob, &carl]), [true, false, false, false], "she has most, though all are busy");
    drop(watch);
}

#[tokio::test]
async fn a_connection_that_ends_makes_room() {
    let table = table(2, 2);
    let first = come(&table, "10.0.0.1");
    for _ in 0..10 {
        let (here, _there) = tokio::io::duplex(16);
        drop(Socket::new(here, come(&table, "10.0.0.1")));
    }
    assert!(!first.is_cut());
    table.make_room();
    assert!(first.is_cut() && table.is_empty());
}

#[tokio::test]
async fn silence_and_idleness_have_limits() {
    let table = table(8, 8);
    let (silent, stranger, user) = (come(&table, "10.0.0.1"), come(&table, "10.0.0.1"), known(&table, "ann"));
    let watching = known(&table, "bob");
    let watch = watching.begin(&HeaderMap::new());
    for connection in [&stranger, &user] {
        drop(connection.begin(&HeaderMap::new()));
    }
    let asked = |connection: &Arc<Connection>| connection.draining.is_cancelled();
    table.advance(19);
    sweep(&table);
    assert_eq!(cut(&[&silent, &stranger, &user, &watching]), [false; 4]);
    table.advance(2);
    sweep(&table);
    assert_eq!(cut(&[&silent, &stranger, &user, &watching]), [true, false, false, false]);
    table.advance(10);
    sweep(&table);
    assert!(asked(&stranger) && !stranger.is_cut() && !asked(&user), "asked to end before it is cut off");
    table.advance(11);
    sweep(&table);
    assert_eq!(cut(&[&stranger, &user, &watching]), [true, false, false]);
    table.advance(60);
    sweep(&table);
    assert!(asked(&user) && !asked(&watching));
    drop(watch);
    table.advance(91);
    sweep(&table);
    assert!(asked(&watching));
}

#[tokio::test]
async fn who_does_not_read_is_cut_off() {
    let table = table(8, 8);
    let (stranger, user) = (come(&table, "10.0.0.1"), known(&table, "ann"));
    let _requests = [stranger.begin(&HeaderMap::new()), user.begin(&HeaderMap::new())];
    let write = |connection: &Arc<Connection>| {
        let (here, there) = tokio::io::duplex(16);
        let mut socket = Socket::new(here, connection.clone());
        let writes = async move { socket.write_all(&[0; 64]).await.map_err(|error| error.kind()) };
        (Box::pin(writes), there)
    };
    let ((mut first, _unread), (mut second, mut there)) = (write(&stranger), write(&user));
    assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
    table.advance(31);
    sweep(&table);
    assert_eq!(first.await, Err(std::io::ErrorKind::ConnectionAborted));
    assert!(!user.is_cut(), "may take longer");
    for last in [false, false, true] {
        table.advance(200);
        there.read_exact(&mut [0; 16]).await.expect("read");
        assert_eq!(futures::poll!(&mut second).is_ready(), last);
        sweep(&table);
        assert!(!user.is_cut(), "reads, though slowly");
    }
}

#[tokio::test]
async fn a_reader_that_waits_hears_of_its_end() {
    let table = table(1, 1);
    let connection = come(&table, "10.0.0.1");
    let (here, _there) = tokio::io::duplex(16);
    let mut socket = Socket::new(here, connection.clone());
    let mut buffer = [0; 1];
    let mut read = Box::pin(socket.read(&mut buffer));
    assert!(futures::poll!(&mut read).is_pending());
    let _newcomer = come(&table, "10.0.0.1");
    assert_eq!(read.await.map_err(|error| error.kind()), Err(std::io::ErrorKind::ConnectionAborted));
}

#[tokio::test]
async fn the_one_with_most_in_memory_goes_when_it_is_too_much() {
    let table = table(8, 8);
    let (ann, bob) = (known(&table, "ann"), known(&table, "bob"));
    let peer = |connection: &Arc<Connection>| Peer { connection: Some(connection.clone()), ..Peer::default() };
    let taken = peer(&ann).body(Bytes::from(vec![0; 60_000]));
    let other = peer(&bob).body(Bytes::from(vec![0; 30_000]));
    assert_eq!((ann.held(), bob.held()), (60_000, 30_000));
    let body = bob.charge(20_000);
    assert_eq!(cut(&[&ann, &bob]), [true, false]);
    drop(taken);
    let more = peer(&bob).body(Bytes::from(vec![0; 50_000]));
    assert!(!bob.is_cut(), "what was cut off counts no more");
    drop((other, body, more));
    assert_eq!(bob.held(), 0);
    assert!(table.metrics("x").contains("x_connections_held_bytes 0\n"), "{}", table.metrics("x"));
    assert!(table.metrics("x").contains("x_connections_cut_total{reason=\"memory\"} 1\n"));
}

/// An answer may outlive its connection by a moment; nobody who is still there pays for it.
#[tokio::test]
async fn what_those_who_left_hold_is_nobody_elses_fault() {
    let table = table(8, 8);
    let (ann, bob) = (known(&table, "ann"), known(&table, "bob"));
    let left = Peer { connection: Some(ann.clone()), ..Peer::default() }.body(Bytes::from(vec![0; 60_000]));
    let (here, _there) = tokio::io::duplex(16);
    drop(Socket::new(here, ann.clone()));
    let charge = bob.charge(60_000);
    assert!(!bob.is_cut());
    assert!(table.metrics("x").contains("x_connections_held_bytes 60000\n"), "{}", table.metrics("x"));
    let late = ann.charge(60_000);
    assert!(!bob.is_cut());
    drop((left, charge, late));
    assert!(table.metrics("x").contains("x_connections_held_bytes 0\n"), "{}", table.metrics("x"));
}

#[test]
fn only_a_lack_of_room_costs_others_their_connection() {
    use rustix::io::Errno;
    for (errno, expected) in [
        (Errno::MFILE, true),
        (Errno::NFILE, true),
        (Errno::NOBUFS, true),
        (Errno::NOMEM, true),
        (Errno::CONNABORTED, false),
        (Errno::PERM, false),
        (Errno::PROTO, false),
        (Errno::NETDOWN, false),
        (Errno::HOSTUNREACH, false),
        (Errno::INTR, false),
    ] {
        assert_eq!(is_short_of_room(&errno.into()), expected, "{errno:?}");
    }
    assert!(!is_short_of_room(&std::io::Error::other("unknown")));
}

#[tokio::test]
async fn heads_count_and_have_a_limit() {
    let table = table(8, 8);
    let connection = come(&table, "10.0.0.1");
    let head = |count: usize| {
        let mut head = HeaderMap::new();
        for _ in 0..count {
            head.append("a", http::HeaderValue::from_static("b"));
        }
        head
    };
    let mut request = connection.begin(&head(100)).expect("few enough");
    assert!(connection.held() >= 100 * 100);
    request.answered(false);
    assert_eq!(connection.held(), 0);
    assert!(connection.begin(&head(600)).is_none());
    drop(request);
    assert!(connection.is_idle());
}

#[tokio::test]
async fn a_large_answer_is_taken_back_with_its_connection() {
    let table = Connections::new(Limits::new(8, 1_000_000));
    let connection = known(&table, "ann");
    let peer = Peer { connection: Some(connection.clone()), ..Peer::default() };
    let bytes: Vec<u8> = (0..300_000u32).map(|number| number.to_le_bytes()[0]).collect();
    let whole = peer.body(bytes.clone().into());
    assert_eq!((whole.size_hint().exact(), connection.held()), (Some(300_000), 300_000));
    assert_eq!(whole.collect().await.expect("an answer").to_bytes(), bytes);
    assert_eq!(connection.held(), 0);

    let mut partly = peer.body(bytes.clone().into());
    let first = partly.frame().await.expect("a frame").expect("no error").into_data().expect("data");
    assert!(bytes.starts_with(&first) && first.len() < bytes.len() && !partly.is_end_stream());
    let shared = Bytes::from(bytes);
    let unasked = peer.body(shared.clone());
    assert!(!shared.is_unique());
    table.make_room();
    assert!(shared.is_unique(), "nothing of it is kept, though its body is");
    assert!(partly.frame().await.expect("a frame").is_err(), "a part is not the whole");
    drop(unasked);
    assert_eq!(peer.body(shared).collect().await.map(|rest| rest.to_bytes().len()).unwrap_or_default(), 0);
}

/// Says something forever, and tells when it is dropped.
struct Endless(Arc<AtomicBool>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"more")))))
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn streams_that_nobody_takes_let_go_of_what_they_hold() {
    let table = table(8, 8);
    let connection = known(&table, "ann");
    let peer = Peer { connection: Some(connection.clone()), ..Peer::default() };
    let _request = connection.begin(&HeaderMap::new());
    let stream = |end| {
        let dropped = Arc::new(AtomicBool::new(false));
        (abandoned_after(&peer, end, Endless(dropped.clone()).boxed_unsync()), dropped)
    };
    let (mut watch, watch_dropped) = stream(AtItsEnd::Complete);
    let (mut list, list_dropped) = stream(AtItsEnd::Broken);
    let (mut read, read_dropped) = stream(AtItsEnd::Broken);
    let (_unasked, unasked_dropped) = stream(AtItsEnd::Complete);
    async fn next(body: &mut Body) -> Option<bool> {
        body.frame().await.map(|frame| frame.is_ok())
    }
    for body in [&mut watch, &mut list, &mut read] {
        assert_eq!(next(body).await, Some(true));
    }
    table.advance(50);
    assert_eq!(next(&mut read).await, Some(true));
    table.advance(11);
    sweep(&table);
    let dropped = [&watch_dropped, &list_dropped, &read_dropped, &unasked_dropped];
    assert_eq!(dropped.map(|dropped| dropped.load(Ordering::Relaxed)), [true, true, false, false]);
    assert_eq!((next(&mut watch).await, next(&mut list).await, next(&mut read).await), (None, Some(false), Some(true)));
    drop((watch, list, read));
    assert!(read_dropped.load(Ordering::Relaxed), "nothing of it is kept");
}

/// HTTP/2 takes what its window has room for before anybody asks for it.
#[tokio::test]
async fn what_waits_of_bodies_counts() {
    let table = Connections::new(Limits::new(8, 1_000_000));
    let (ann, bob) = (known(&table, "ann"), known(&table, "bob"));
    ann.body_begins();
    ann.body_begins();
    ann.arrived(60_000);
    assert_eq!(ann.held(), 0, "little is not counted");
    ann.arrived(500_000);
    assert!((490_000..=560_000).contains(&ann.held()), "{}", ann.held());
    ann.taken(300_000);
    assert!((190_000..=260_000).contains(&ann.held()), "{}", ann.held());
    ann.body_ends();
    assert!(ann.held() > 0, "another may have the rest");
    ann.body_ends();
    assert_eq!(ann.held(), 0);
    bob.body_begins();
    bob.arrived(900_000);
    ann.body_begins();
    ann.arrived(300_000);
    assert_eq!(cut(&[&ann, &bob]), [false, true]);
    bob.body_ends();
    ann.body_ends();
    assert!(table.metrics("x").contains("x_connections_held_bytes 0\n"), "{}", table.metrics("x"));
}
