//! Clients and backends that mean harm: what one of them does is not felt by others.

use std::sync::atomic::AtomicUsize;

use ferry_connections::{Connections, Limits};
use tokio::net::{TcpListener, UdpSocket};

use super::*;
use crate::serve::udp;

const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// Far more than anybody is let send for nothing.
const FLOOD: usize = 100_000;

/// Sends PING frames and takes the answers until the other end has had enough; false where it never has.
async fn is_cut_off(stream: TcpStream) -> bool {
    let (mut reader, mut writer) = stream.into_split();
    let send = async {
        for _ in 0..FLOOD / 1000 {
            if writer.write_all(&PING.repeat(1000)).await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    };
    let take = async {
        let (mut buffer, mut taken) = ([0; 4096], 0);
        while let Ok(length @ 1..) = reader.read(&mut buffer).await {
            taken += length;
            if taken >= FLOOD * PING.len() {
                return false;
            }
        }
        true
    };
    tokio::select! {
        () = send => true,
        cut = take => cut,
        () = tokio::time::sleep(PATIENCE) => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_only_sends_frames_is_cut_off() {
    let mut bed = Bed::http();
    bed.apply();
    let mut stream = TcpStream::connect(bed.at(8080)).await.expect("connected");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sent");
    stream.write_all(&SETTINGS).await.expect("sent");
    assert!(is_cut_off(stream).await);
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_only_sends_frames_is_cut_off() {
    let mut bed = Bed::http();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = listener.local_addr().expect("an address");
    add_service(&mut bed.objects, "loud", &[endpoint], Some("kubernetes.io/h2c"));
    bed.route(json!([{ "backendRefs": to("loud") }]));
    bed.apply();
    let (client, url) = (client(false), bed.url("/"));
    let backend = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        stream.write_all(&SETTINGS).await.expect("sent");
        is_cut_off(stream).await
    };
    let (cut, (code, _)) = tokio::join!(backend, get(&client, &url));
    assert!(cut);
    assert_eq!(code, 502);
    bed.tasks.stop(PATIENCE).await;
}

/// Each time it was asked again at once, without end.
#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_hangs_up_is_given_up() {
    let mut bed = Bed::http();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = listener.local_addr().expect("an address");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    bed.tasks.spawn_until_stopped("backend", async move {
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            drop(stream);
        }
    });
    add_service(&mut bed.objects, "one", &[endpoint], None);
    add_service(&mut bed.objects, "two", &[endpoint], Some("kubernetes.io/h2c"));
    bed.route(json!([
        { "matches": prefix("/one"), "backendRefs": to("one") },
        { "matches": prefix("/two"), "backendRefs": to("two") },
    ]));
    bed.apply();
    let client = client(false);
    for path in ["/one", "/two"] {
        for _ in 0..20 {
            asked.store(0, Ordering::Relaxed);
            let (code, _) = get(&client, &bed.url(path)).await;
            assert_eq!(code, 502, "{path}");
            let asked = asked.load(Ordering::Relaxed);
            assert!(asked <= 8, "{path}: connected {asked} times for one request");
        }
    }
    bed.tasks.stop(PATIENCE).await;
}

fn resident_megabytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("figures");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a figure");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") / 1024
}

/// A mirror's answer was kept to its end, and it need not have one.
#[tokio::test(flavor = "multi_thread")]
async fn answers_to_copies_are_kept_nowhere() {
    const MEGABYTES: usize = 400;
    let mut bed = Bed::http();
    let one = backend(&bed.tasks, "one", false).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endless = listener.local_addr().expect("an address");
    add_service(&mut bed.objects, "one", &[one], None);
    add_service(&mut bed.objects, "endless", &[endless], None);
    let mirror =
        json!([{ "type": "RequestMirror", "requestMirror": { "backendRef": { "name": "endless", "port": 80 } } }]);
    bed.route(json!([{ "backendRefs": to("one"), "filters": mirror }]));
    bed.apply();
    let before = resident_megabytes();
    assert_eq!(get(&client(false), &bed.url("/")).await.0, 200);
    let (mut stream, _) = listener.accept().await.expect("a copy");
    let mut buffer = [0; 4096];
    assert!(stream.read(&mut buffer).await.expect("a request") > 0);
    stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await.expect("sent");
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..MEGABYTES {
        stream.write_all(&piece).await.expect("taken");
    }
    let grown = resident_megabytes().saturating_sub(before);
    assert!(grown < MEGABYTES / 2, "it grew by {grown} MB");
    drop(stream);
    bed.tasks.stop(PATIENCE).await;
}

/// One address had all the places, and everybody else none.
#[tokio::test(flavor = "multi_thread")]
async fn one_address_does_not_take_the_places_of_others() {
    let tasks = Tasks::new("test");
    let echo = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let backend = echo.local_addr().expect("an address");
    let mut objects = objects();
    objects.gateways.push(read(gateway("g", json!([{ "name": "udp", "port": 9000, "protocol": "UDP" }]))));
    let key = ferry_client::ObjectKey::new("n", "udp");
    objects.services.insert(
        key.clone(),
        read(json!({ "metadata": { "name": "udp", "namespace": "n" }, "spec": { "ports": [{ "port": 80, "protocol": "UDP" }] } })),
    );
    let slice = json!({
        "metadata": { "name": "udp", "namespace": "n" }, "addressType": "IPv4",
        "ports": [{ "port": backend.port(), "protocol": "UDP" }], "endpoints": [{ "addresses": ["127.0.0.1"] }],
    });
    objects.slices.insert(key, vec![read(slice)]);
    objects.udp_routes = [read(json!({
        "metadata": { "name": "r", "namespace": "n" },
        "spec": { "parentRefs": [{ "name": "g" }], "rules": [{ "backendRefs": to("udp") }] },
    }))]
    .into();
    let table = resolved(&objects, &settings()).ports.into_values().next().expect("a table");
    let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a port"));
    let served = socket.local_addr().expect("an address");
    let connections = Connections::new(Limits { unauthenticated: 8, ..Limits::new(8, 1 << 20) });
    let (shared, table) = (Shared::new(&tasks, None), Arc::new(arc_swap::ArcSwap::new(table)));
    let serving = udp::serve(shared, tasks.child("datagrams"), socket, table, connections.clone());
    tasks.spawn_until_stopped("gateway", serving);

    // From where the backend hears of a client: another port where its place was lost meanwhile.
    let heard = async |from: &UdpSocket, text: &[u8]| {
        from.send_to(text, served).await.expect("sent");
        let mut buffer = [0; 64];
        loop {
            let (length, place) = echo.recv_from(&mut buffer).await.expect("received");
            if &buffer[..length] == text {
                break place;
            }
        }
    };
    let alice = UdpSocket::bind("127.0.0.2:0").await.expect("a port");
    let place = tokio::time::timeout(PATIENCE, heard(&alice, b"alice")).await.expect("in time");
    let mut flood = Vec::new();
    for number in 0..100 {
        let mallory = UdpSocket::bind("127.0.0.3:0").await.expect("a port");
        let text = format!("mallory {number}");
        tokio::time::timeout(PATIENCE, heard(&mallory, text.as_bytes())).await.expect("in time");
        flood.push(mallory);
    }
    let bob = UdpSocket::bind("127.0.0.4:0").await.expect("a port");
    tokio::time::timeout(PATIENCE, heard(&bob, b"bob")).await.expect("a newcomer gets in");
    let again = tokio::time::timeout(PATIENCE, heard(&alice, b"alice again")).await.expect("in time");
    assert_eq!(again, place, "her place was taken");
    assert!(connections.metrics("x").contains("x_connections{authenticated=\"false\"} 8\n"));
    tasks.stop(PATIENCE).await;
}

/// A route that leads back to its own Gateway, and copies and retries what it gets, kept the machine busy for ever.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_come_back_are_stopped() {
    let mut bed = Bed::http();
    let counted = Arc::new(AtomicU64::new(0));
    let count = counted.clone();
    let watcher = crate::testing::served(&bed.tasks, false, None, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(Response::new(crate::testing::text("seen"))) }
    })
    .await;
    let own = bed.at(8080);
    add_service(&mut bed.objects, "self", &[own], None);
    add_service(&mut bed.objects, "watcher", &[watcher], None);
    let copy = |name: &str| json!({ "type": "RequestMirror", "requestMirror": { "backendRef": { "name": name, "port": 80 } } });
    // What says that it was here is nothing that a route could take away.
    let forget = json!({ "type": "RequestHeaderModifier", "requestHeaderModifier": { "remove": ["x-ferry-passed", "x-forwarded-for"] } });
    bed.route(json!([{
        "backendRefs": to("self"), "filters": [forget, copy("watcher"), copy("self"), copy("self")],
        "retry": { "codes": [508], "attempts": 3, "backoff": "1ms" },
    }]));
    bed.apply();
    let (status, text) = get(&client(false), &bed.url("/")).await;
    assert_eq!((status.as_u16(), &*text), (508, "the request has come through this gateway before\n"));
    tokio::time::timeout(PATIENCE, async {
        while counted.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("the copy comes");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(counted.load(Ordering::Relaxed), 1, "only the first passage makes copies");
    bed.tasks.stop(PATIENCE).await;
}
