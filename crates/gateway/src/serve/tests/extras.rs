//! What annotations ask for: compression, limits, the PROXY protocol; and what is told of requests.

use std::io::Read;

use sha2::{Digest, Sha256};

use super::*;
use crate::testing::{served, text};

async fn open(annotations: Value) -> Bed {
    let mut bed = Bed::http();
    let endpoint = served(&bed.tasks, false, None, |request: Request<hyper::body::Incoming>| async move {
        let header =
            |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned();
        let said = format!("{} {} ", header("x-forwarded-for"), header("traceparent"));
        let answer = Response::builder().header("content-type", "text/plain").body(text(&said.repeat(100)));
        Ok(answer.expect("an answer"))
    })
    .await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.annotated_route(annotations, json!([{ "backendRefs": to("one") }]));
    bed.apply();
    bed
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_compressed_for_those_who_take_it() {
    let bed = open(json!({ "gateway.ferry.dev/compression": "true" })).await;
    for h2 in [false, true] {
        for (accept, want) in [("gzip, br", true), ("br", false)] {
            let request =
                Request::get(bed.url("/")).header("accept-encoding", accept).body(Full::default()).expect("a request");
            let answer = client(h2).request(request).await.expect("an answer");
            assert_eq!(answer.headers().contains_key("content-encoding"), want, "{accept}");
            let body = answer.into_body().collect().await.expect("a body").to_bytes();
            let mut read = String::new();
            match want {
                true => flate2::read::GzDecoder::new(&*body).read_to_string(&mut read).map(drop).expect("gzip"),
                false => read = String::from_utf8_lossy(&body).into_owned(),
            }
            assert_eq!(read, "127.0.0.1 - ".repeat(100));
        }
    }
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_ask_too_often_are_told_when_to_come_again() {
    let mut bed = open(json!({ "gateway.ferry.dev/rate-limit": "1/h burst=2" })).await;
    let client = client(false);
    let mut codes = Vec::new();
    for _ in 0..5 {
        codes.push(get(&client, &bed.url("/")).await.0.as_u16());
        // A table that is made anew forgets nothing.
        bed.apply();
    }
    assert_eq!(codes, [200, 200, 200, 429, 429]);
    let request = Request::get(bed.url("/")).body(Full::default()).expect("a request");
    let refused: Response<hyper::body::Incoming> = client.request(request).await.expect("an answer");
    let pause: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((3000..=3600).contains(&pause), "{pause}");
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn load_balancers_say_for_whom_they_speak() {
    let mut bed = open(json!({})).await;
    let mut gateway = gateway("g", json!([{ "name": "http", "port": 8080, "protocol": "HTTP" }]));
    gateway["metadata"]["annotations"] = json!({ "gateway.ferry.dev/proxy-protocol": "127.0.0.0/8" });
    bed.objects.gateways = [read(gateway)].into();
    bed.apply();
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    for (header, want) in [
        ("PROXY TCP4 192.0.2.7 10.0.0.1 1234 80\r\n", "192.0.2.7"),
        ("PROXY TCP6 2001:db8::7 2001:db8::1 1234 80\r\n", "2001:db8::7"),
        ("PROXY UNKNOWN\r\n", "127.0.0.1"),
        // Without a header nothing is served.
        ("", ""),
    ] {
        let mut stream = TcpStream::connect(bed.at(8080)).await.expect("a connection");
        stream.write_all(format!("{header}{request}").as_bytes()).await.expect("sent");
        let mut answer = String::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("in time");
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        assert_eq!(body.split(' ').next().unwrap_or_default(), want, "{header:?}");
    }
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_token_is_told_its_way() {
    let mut bed = open(json!({})).await;
    let token = "0123456789abcdef0123456789abcdef";
    let digest = crate::trace::hex(&Sha256::digest(token));
    let annotations = [(format!("{}x", crate::trace::PREFIX), digest)].into_iter().collect();
    for known in [true, false] {
        bed.sockets.shared().told.set(std::iter::once(&annotations).filter(|_| known));
        bed.apply();
        let request =
            Request::get(bed.url("/a")).header(crate::trace::HEADER, token).body(Full::default()).expect("a request");
        let answer = client(false).request(request).await.expect("an answer");
        let way = answer.headers().get(crate::trace::HEADER);
        assert_eq!(way.is_some(), known);
        let Some(way) = way else { continue };
        let way: crate::trace::Way = serde_json::from_slice(way.as_bytes()).expect("a way");
        assert_eq!((way.gateway.as_str(), way.listener.as_str()), ("n/g", "http"));
        assert_eq!((way.route.as_str(), way.rule.as_str(), way.backend.as_str()), ("HTTPRoute n/r", "0", "n/one:80"));
        assert!(way.endpoint.is_some() && way.attempts == 1 && way.total >= way.waiting, "{way:?}");
    }
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_go_on_with_the_span_of_the_access_log() {
    let folder = std::env::temp_dir().join(format!("ferry-gateway-{:x}", rand::random::<u64>()));
    let mut bed = open(json!({})).await;
    let log = super::super::AccessLog::open(&folder, &bed.tasks).await.expect("a log");
    bed.sockets = Sockets::new(Shared::new(&bed.tasks, Some(log)), None);
    bed.settings = settings();
    bed.apply();
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let request =
        Request::get(bed.url("/")).header("traceparent", format!("00-{trace}-{parent}-01")).body(Full::default());
    let (_, body) = said(client(false).request(request.expect("a request")).await.expect("an answer")).await;
    let line = tokio::time::timeout(PATIENCE, async {
        loop {
            // The file is written beside the answer.
            if let Some(line) = std::fs::read_to_string(&folder).ok().filter(|text| text.ends_with('\n')) {
                break line;
            }
            tokio::task::yield_now().await;
        }
    });
    let line: Value = serde_json::from_str(&line.await.expect("in time")).expect("a line of JSON");
    let _ = std::fs::remove_file(&folder);
    assert_eq!((line["trace_id"].as_str(), line["parent_span_id"].as_str()), (Some(trace), Some(parent)));
    let span = line["span_id"].as_str().expect("a span");
    assert!(span != parent && body.contains(&format!("00-{trace}-{span}-01")), "{body}");
    assert_eq!((line["route"].as_str(), line["backend"].as_str()), (Some("HTTPRoute n/r"), Some("n/one:80")));
    bed.tasks.stop(PATIENCE).await;
}
