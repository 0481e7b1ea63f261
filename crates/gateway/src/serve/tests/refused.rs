//! Requests that are made to harm: read in one way or refused, and bounded.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::testing::{served, text};

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_read_in_one_way_or_refused() {
    let mut bed = Bed::http();
    let endpoint = backend(&bed.tasks, "one", false).await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.route(json!([{ "backendRefs": to("one") }]));
    bed.apply();
    let address = bed.at(8080);
    for (request, want) in [
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 200"),
        // Chunks count and the length is dropped: the backend sees one body, and what follows is a request to the gateway.
        (
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200",
        ),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200",
        ),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd", "HTTP/1.1 400"),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3, 4\r\n\r\nabcd", "HTTP/1.1 400"),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +3\r\n\r\nabc", "HTTP/1.1 400"),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0x3\r\n\r\nabc", "HTTP/1.1 400"),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, gzip\r\n\r\n", "HTTP/1.1 400"),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n", "HTTP/1.1 400"),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 400"),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n", "HTTP/1.1 400"),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", "HTTP/1.1 400"),
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400"),
        ("GET / HTTP/1.1\r\nhost: a\r\nbad name: x\r\n\r\n", "HTTP/1.1 400"),
        ("GET / HTTP/1.1\r\nhost: a\r\nx: a\r\n\tb\r\n\r\n", "HTTP/1.1 400"),
        ("GET /\\..\\x HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 400"),
        ("GET /a/..%2fsecret HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 400"),
        ("GET /a%00 HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 400"),
        ("GET / HTTP/1.1\r\nhost: good@evil\r\n\r\n", "HTTP/1.1 400"),
        ("GET / HTTP/1.1\r\nhost: good:evil\r\n\r\n", "HTTP/1.1 400"),
        ("GET / HTTP/1.1\r\nhost: good, evil\r\n\r\n", "HTTP/1.1 400"),
        ("GET http://good@evil/ HTTP/1.1\r\nhost: evil\r\n\r\n", "HTTP/1.1 400"),
        ("GE\u{0}T / HTTP/1.1\r\nhost: a\r\n\r\n", "HTTP/1.1 400"),
    ] {
        let line = raw(address, request).await;
        assert!(line.starts_with(want), "{request:?} is answered by {line:?}");
    }
    bed.tasks.stop(PATIENCE).await;
}

/// What hides behind a body is a request of its own to the gateway, with rules of its own, or nothing.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_smuggled_past_the_rules() {
    let mut bed = Bed::http();
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let endpoint = served(&bed.tasks, false, None, move |request: Request<hyper::body::Incoming>| {
        let is_secret = request.uri().path().starts_with("/secret");
        counter.fetch_add(usize::from(is_secret), Ordering::Relaxed);
        async move {
            let _ = request.into_body().collect().await;
            Ok(Response::new(text("fine")))
        }
    })
    .await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.route(json!([{ "matches": prefix("/open"), "backendRefs": to("one") }]));
    bed.apply();
    let hidden = "GET /secret HTTP/1.1\r\nhost: a\r\n\r\n";
    let length = hidden.len();
    for request in [
        format!(
            "POST /open HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
        ),
        format!(
            "POST /open HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n5\r\nabcde\r\n0\r\n\r\n{hidden}"
        ),
        format!("POST /open HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n{hidden}"),
        format!(
            "GET /open HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\ncontent-length: {length}\r\n\r\n{hidden}"
        ),
        format!(
            "POST /open HTTP/1.1\r\nhost: a\r\nconnection: content-length\r\ncontent-length: {length}\r\n\r\n{hidden}"
        ),
        format!(
            "POST /open HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{hidden}\r\n0\r\n\r\n"
        ),
        "POST /open/../secret HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "POST /open/%2e%2e/secret HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n".to_owned(),
    ] {
        let mut stream = TcpStream::connect(bed.at(8080)).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream.shutdown().await.expect("all was said");
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("in time");
        assert_eq!(seen.load(Ordering::Relaxed), 0, "{request:?} came through");
    }
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_headers_are_refused() {
    let mut bed = Bed::http();
    let endpoint = backend(&bed.tasks, "one", false).await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.route(json!([{ "backendRefs": to("one") }]));
    bed.apply();
    let many: String = (0..600).map(|number| format!("h{number}: x\r\n")).collect();
    let large = format!("h: {}\r\n", "x".repeat(200_000));
    for flood in [many, large] {
        let line = raw(bed.at(8080), &format!("GET / HTTP/1.1\r\nhost: a\r\n{flood}\r\n")).await;
        assert!(!line.contains(" 200"), "{line}");
    }
    let client = client(true);
    for (count, length, want) in [(20, 10, true), (600, 1, false), (20, 10_000, false)] {
        let mut request = Request::get(bed.url("/")).header("host", "example.com");
        for number in 0..count {
            request = request.header(format!("h{number}"), "x".repeat(length));
        }
        let sent = client.request(request.body(Full::default()).expect("a request"));
        let answer = tokio::time::timeout(PATIENCE, sent).await.expect("in time");
        assert_eq!(answer.is_ok_and(|answer| answer.status() == 200), want, "{count} of {length}");
    }
    bed.tasks.stop(PATIENCE).await;
}

/// Streams that are opened and given up at once cost their connection, and nobody else anything.
#[tokio::test(flavor = "multi_thread")]
async fn resets_end_their_connection_and_no_other() {
    let mut bed = Bed::http();
    let endpoint = backend(&bed.tasks, "one", false).await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.route(json!([{ "backendRefs": to("one") }]));
    bed.apply();
    let good = client(true);
    assert_eq!(get(&good, &bed.url("/x")).await.0, 200);
    let mut stream = TcpStream::connect(bed.at(8080)).await.expect("a connection");
    // The preface and empty SETTINGS; then HEADERS (GET / of host a) and RST_STREAM, again and again.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("sent");
    let block = [0x82, 0x86, 0x84, 0x41, 0x01, b'a'];
    let mut flood = Vec::new();
    for number in 0..20_000_u32 {
        let stream = (number * 2 + 1).to_be_bytes();
        flood.extend([0, 0, 6, 1, 0x05]);
        flood.extend(stream);
        flood.extend(block);
        flood.extend([0, 0, 4, 3, 0]);
        flood.extend(stream);
        flood.extend([0, 0, 0, 8]);
    }
    let (mut reader, mut writer) = stream.split();
    let mut answer = Vec::new();
    let reading = tokio::time::timeout(PATIENCE, reader.read_to_end(&mut answer));
    // Writing is cut off at some point. Nothing is closed at this end.
    let (_, ended) = tokio::join!(writer.write_all(&flood), reading);
    assert!(ended.is_ok(), "the connection is ended by the gateway");
    assert_eq!(get(&good, &bed.url("/x")).await.0, 200);
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_bodies_are_refused_before_they_are_read() {
    let mut bed = Bed::http();
    let endpoint = backend(&bed.tasks, "one", false).await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.annotated_route(json!({ "gateway.ferry.dev/max-body-size": "1k" }), json!([{ "backendRefs": to("one") }]));
    bed.apply();
    let address = bed.at(8080);
    let of = |length: usize| format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
    assert!(raw(address, &format!("{}{}", of(1000), "x".repeat(1000))).await.starts_with("HTTP/1.1 200"));
    // Nothing of the body is sent: the head says enough.
    assert!(raw(address, &of(1 << 40)).await.starts_with("HTTP/1.1 413"));
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    assert!(raw(address, &format!("{head}{chunk}0\r\n\r\n")).await.starts_with("HTTP/1.1 413"));
    bed.tasks.stop(PATIENCE).await;
}

/// Browsers ask without a password whether they may send one. What is answered here is all that they get to.
#[tokio::test(flavor = "multi_thread")]
async fn no_method_comes_to_a_backend_without_the_password() {
    let nginx = |name: &str| format!("nginx.ingress.kubernetes.io/{name}");
    for cors in [false, true] {
        let mut bed = Bed::http();
        let seen = Arc::new(AtomicUsize::new(0));
        let counter = seen.clone();
        let endpoint = served(&bed.tasks, false, None, move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            async { Ok(Response::new(text("fine"))) }
        })
        .await;
        add_service(&mut bed.objects, "one", &[endpoint], None);
        // user:open
        let secret = json!({ "metadata": { "name": "users", "namespace": "n" }, "data": { "auth": "dXNlcjp7UExBSU59b3Blbg==" } });
        bed.objects.secrets.insert(ferry_client::ObjectKey::new("n", "users"), read(secret));
        let annotations = json!({
            nginx("auth-type"): "basic", nginx("auth-secret"): "users", nginx("enable-cors"): cors.to_string(),
        });
        bed.ingress("i", annotations, "one");
        bed.apply();
        let asked = async |method: &str, headers: &[(&str, &str)]| {
            let mut request = Request::builder().method(method).uri(format!("http://{}/", bed.at(80)));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let answer = client(false).request(request.body(Full::default()).expect("a request")).await;
            answer.expect("an answer").status().as_u16()
        };
        for method in ["GET", "POST", "OPTIONS", "HEAD", "PROPFIND"] {
            assert_eq!(asked(method, &[]).await, 401, "{method}");
        }
        let preflight = [("origin", "https://a.example"), ("access-control-request-method", "GET")];
        assert_eq!(asked("OPTIONS", &preflight).await, if cors { 204 } else { 401 });
        assert_eq!(asked("GET", &preflight).await, 401);
        assert_eq!(seen.load(Ordering::Relaxed), 0);
        assert_eq!(asked("OPTIONS", &[("authorization", "Basic dXNlcjpvcGVu")]).await, 200);
        bed.tasks.stop(PATIENCE).await;
    }
}

/// A backend that begins to speak HTTP/2 on the connection would take requests that no rule was asked about.
#[tokio::test(flavor = "multi_thread")]
async fn no_connection_becomes_another_form_of_http() {
    let mut bed = Bed::http();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = listener.local_addr().expect("an address");
    let (heads, mut seen) = tokio::sync::mpsc::unbounded_channel();
    bed.tasks.spawn_until_stopped("backend", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { break };
                head.push(byte);
            }
            let _ = heads.send(String::from_utf8_lossy(&head).to_ascii_lowercase());
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
        }
    });
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.route(json!([{ "backendRefs": to("one") }]));
    bed.apply();
    for (protocol, passed) in [
        ("h2c", false),
        ("H2C", false),
        ("websocket, h2c", false),
        ("HTTP/2.0", false),
        ("TLS/1.2", false),
        ("websocket", true),
        ("spdy/3.1", true),
    ] {
        let request = format!(
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: {protocol}\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n"
        );
        let line = raw(bed.at(8080), &request).await;
        assert!(line.starts_with("HTTP/1.1 200"), "{protocol}: {line}");
        let head = tokio::time::timeout(PATIENCE, seen.recv()).await.expect("in time").expect("a request");
        assert_eq!(head.contains("\r\nupgrade: "), passed, "{protocol}: {head}");
        assert!(!head.contains("http2-settings"), "{head}");
    }
    bed.tasks.stop(PATIENCE).await;
}
