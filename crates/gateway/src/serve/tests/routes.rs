//! What routes ask for on the way: trailers, mirrors, retries, canaries, sessions, and backends behind TLS.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body::Frame;
use tokio::sync::mpsc;

use super::*;
use crate::testing::{served, text};

type Seen = Request<hyper::body::Incoming>;

fn grpc_route(service: &str) -> Value {
    json!({
        "metadata": { "name": "r", "namespace": "n" },
        "spec": { "parentRefs": [{ "name": "g" }], "rules": [{ "backendRefs": to(service) }] },
    })
}

async fn call(url: &str) -> Response<hyper::body::Incoming> {
    let request = Request::post(url).header("content-type", "application/grpc").header("te", "trailers");
    let request = request.body(Full::from("message")).expect("a request");
    tokio::time::timeout(PATIENCE, client(true).request(request)).await.expect("in time").expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_of_grpc_come_through() {
    let mut bed = Bed::http();
    let endpoint = served(&bed.tasks, true, None, |request: Seen| async move {
        assert_eq!(request.headers()["te"], "trailers");
        let said = request.into_body().collect().await.expect("a body").to_bytes();
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", "5".parse().expect("a value"));
        trailers.insert("grpc-message", "nobody".parse().expect("a value"));
        let frames = [Ok(Frame::data(said)), Ok(Frame::trailers(trailers))];
        let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
        Ok(Response::builder().header("content-type", "application/grpc").body(body.boxed_unsync()).expect("an answer"))
    })
    .await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.objects.grpc_routes = [read(grpc_route("one"))].into();
    bed.apply();
    let answer = call(&bed.url("/greeter/hello")).await;
    assert_eq!(answer.status(), 200);
    let body = answer.into_body().collect().await.expect("a body");
    let trailers = body.trailers().cloned().expect("trailers");
    assert_eq!(trailers["grpc-status"], "5");
    assert_eq!(trailers["grpc-message"], "nobody");
    assert_eq!(body.to_bytes(), "message");
    // What the gateway itself has to say is in gRPC's words too.
    bed.objects.grpc_routes = [read(grpc_route("absent"))].into();
    bed.apply();
    let answer = call(&bed.url("/greeter/hello")).await;
    assert_eq!((answer.status().as_u16(), answer.headers()["grpc-status"].to_str().unwrap()), (200, "14"));
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_get_copies_and_say_nothing() {
    let mut bed = Bed::http();
    let (sender, mut copies) = mpsc::unbounded_channel();
    let mirror = served(&bed.tasks, false, None, move |request: Seen| {
        let sender = sender.clone();
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let _ = sender.send((path, body));
            Ok(Response::builder().status(500).body(text("unheard")).expect("an answer"))
        }
    })
    .await;
    let one = backend(&bed.tasks, "one", false).await;
    add_service(&mut bed.objects, "one", &[one], None);
    add_service(&mut bed.objects, "mirror", &[mirror], None);
    bed.route(json!([{ "backendRefs": to("one"), "filters": [
        { "type": "RequestMirror", "requestMirror": { "backendRef": { "name": "mirror", "port": 80 } } },
    ] }]));
    bed.apply();
    let client = client(false);
    for number in 0..5 {
        let request = Request::post(bed.url(&format!("/{number}"))).body(Full::from("said")).expect("a request");
        let (code, body) = said(client.request(request).await.expect("an answer")).await;
        assert!(code == 200 && body.starts_with("one"), "{code} {body}");
        let copy = tokio::time::timeout(PATIENCE, copies.recv()).await.expect("in time");
        assert_eq!(copy, Some((format!("/{number}"), Bytes::from_static(b"said"))));
    }
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_sent_again_as_often_as_the_route_says() {
    let mut bed = Bed::http();
    let tries = Arc::new(AtomicUsize::new(0));
    let counter = tries.clone();
    // Two of three are refused.
    let endpoint = served(&bed.tasks, false, None, move |request: Seen| {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        async move {
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let code = if number % 3 == 2 { 200 } else { 503 };
            Ok(Response::builder().status(code).body(text(&String::from_utf8_lossy(&body))).expect("an answer"))
        }
    })
    .await;
    add_service(&mut bed.objects, "one", &[endpoint], None);
    for (attempts, code, want, count) in [(2, 503, 200, 3), (1, 503, 503, 2), (5, 500, 503, 1)] {
        tries.store(0, Ordering::Relaxed);
        bed.route(
            json!([{ "backendRefs": to("one"), "retry": { "attempts": attempts, "codes": [code], "backoff": "1ms" } }]),
        );
        bed.apply();
        let request = Request::post(bed.url("/")).body(Full::from("again")).expect("a request");
        let (status, body) = said(client(false).request(request).await.expect("an answer")).await;
        assert_eq!((status.as_u16(), body.as_str()), (want, "again"), "{attempts} attempts");
        assert_eq!(tries.load(Ordering::Relaxed), count, "{attempts} attempts");
    }
    bed.tasks.stop(PATIENCE).await;
}

/// The name of the backend that answers, with these headers.
async fn who(bed: &Bed, headers: &[(&str, &str)]) -> (String, Option<String>) {
    let mut request = Request::get(format!("http://{}/", bed.at(80))).header("host", "example.com");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = client(false).request(request.body(Full::default()).expect("a request")).await.expect("an answer");
    let cookie = answer.headers().get("set-cookie").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (code, body) = said(answer).await;
    assert_eq!(code, 200, "{body}");
    (body.split(' ').next().unwrap_or_default().to_owned(), cookie)
}

#[tokio::test(flavor = "multi_thread")]
async fn canaries_take_their_share() {
    let mut bed = Bed::http();
    for name in ["main", "canary"] {
        let endpoint = backend(&bed.tasks, name, false).await;
        add_service(&mut bed.objects, name, &[endpoint], None);
    }
    bed.ingress("main", json!({}), "main");
    let nginx = |name: &str| format!("nginx.ingress.kubernetes.io/{name}");
    let canary =
        json!({ nginx("canary"): "true", nginx("canary-weight"): "20", nginx("canary-by-header"): "x-canary" });
    bed.ingress("canary", canary, "canary");
    bed.apply();
    for (value, want) in [("always", "canary"), ("never", "main")] {
        for _ in 0..10 {
            assert_eq!(who(&bed, &[("x-canary", value)]).await.0, want);
        }
    }
    let mut taken = 0;
    for _ in 0..100 {
        taken += usize::from(who(&bed, &[]).await.0 == "canary");
    }
    assert!((15..=25).contains(&taken), "{taken} of 100");
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_leads_back_to_its_endpoint() {
    let mut bed = Bed::http();
    let mut endpoints = Vec::new();
    for name in ["a", "b", "c"] {
        endpoints.push(backend(&bed.tasks, name, false).await);
    }
    add_service(&mut bed.objects, "s", &endpoints, None);
    bed.ingress("i", json!({ "nginx.ingress.kubernetes.io/affinity": "cookie" }), "s");
    bed.apply();
    let mut seen = HashSet::new();
    for _ in 0..6 {
        let (first, cookie) = who(&bed, &[]).await;
        let cookie = cookie.expect("a cookie");
        let pair = cookie.split(';').next().unwrap_or_default();
        for _ in 0..5 {
            assert_eq!(who(&bed, &[("cookie", &format!("other=1; {pair}"))]).await, (first.clone(), None));
        }
        seen.insert(first);
    }
    assert_eq!(seen.len(), 3, "those without a cookie are spread");
    // An endpoint that is gone is replaced, and the cookie with it.
    let (first, cookie) = who(&bed, &[]).await;
    let pair = cookie.expect("a cookie").split(';').next().unwrap_or_default().to_owned();
    let left: Vec<_> =
        endpoints.iter().zip(["a", "b", "c"]).filter(|(_, name)| *name != first).map(|(one, _)| *one).collect();
    add_service(&mut bed.objects, "s", &left, None);
    bed.apply();
    let (second, cookie) = who(&bed, &[("cookie", &pair)]).await;
    assert!(second != first && cookie.is_some(), "{second} {cookie:?}");
    bed.tasks.stop(PATIENCE).await;
}

/// Who answers, and the value of the header `wanted` of the answer, for a request with this header.
async fn ask(bed: &Bed, header: Option<(&str, &str)>, wanted: &str) -> (String, Option<String>) {
    let mut request = Request::get(bed.url("/"));
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let answer = client(false).request(request.body(Full::default()).expect("a request")).await.expect("an answer");
    let shown = answer.headers().get(wanted).and_then(|value| value.to_str().ok()).map(str::to_owned);
    (said(answer).await.1.split(' ').next().unwrap_or_default().to_owned(), shown)
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_stay_with_their_backend_whatever_its_weight() {
    let mut bed = Bed::http();
    for name in ["old", "new"] {
        let endpoint = backend(&bed.tasks, name, false).await;
        add_service(&mut bed.objects, name, &[endpoint], None);
    }
    for (kind, wanted, given) in [("Cookie", "set-cookie", "cookie"), ("Header", "session", "session")] {
        let rules = |old: u32| {
            json!([{
                "backendRefs": [{ "name": "old", "port": 80, "weight": old }, { "name": "new", "port": 80, "weight": 100 - old }],
                "sessionPersistence": { "type": kind, "sessionName": "session", "absoluteTimeout": "1h" },
            }])
        };
        bed.route(rules(100));
        bed.apply();
        let (name, shown) = ask(&bed, None, wanted).await;
        let shown = shown.expect("a session").split(';').next().unwrap_or_default().to_owned();
        assert_eq!(name, "old");
        bed.route(rules(1));
        bed.apply();
        for _ in 0..10 {
            assert_eq!(ask(&bed, Some((given, &shown)), wanted).await.0, "old", "{kind}");
        }
        // A session of somebody else's making leads nowhere in particular.
        ask(&bed, Some((given, "session=ffff.0.0")), wanted).await;
    }
    bed.tasks.stop(PATIENCE).await;
}
