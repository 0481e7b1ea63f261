//! `ferry trace URL` against the data plane: every hop at which a request can end, and what is told of it.

use std::sync::atomic::AtomicUsize;

use sha2::{Digest, Sha256};

use super::*;
use crate::testing::{served, text};
use crate::trace::{Hop, PREFIX, Stop, Target, Traced, ask, hex};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn know(bed: &Bed, token: &str) {
    let annotations = [(format!("{PREFIX}1-a"), hex(&Sha256::digest(token)))].into_iter().collect();
    bed.sockets.shared().told.set(std::iter::once(&annotations));
}

/// A request for this URL, sent to that address.
async fn trace(url: &str, address: SocketAddr) -> Traced {
    let mut traced = Traced { address: Some(address), ..Traced::default() };
    ask(&Target::read(url).expect("a URL"), address, TOKEN, &mut traced).await;
    traced
}

fn hop(traced: &Traced) -> Option<Hop> {
    traced.failed.as_ref().map(|failed| failed.hop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_ends_at_the_hop_that_failed() {
    let mut bed = Bed::new(json!([
        { "name": "http", "port": 8080, "protocol": "HTTP" },
        { "name": "named", "port": 8081, "protocol": "HTTP", "hostname": "only.example" },
        { "name": "bytes", "port": 9000, "protocol": "TCP" },
    ]));
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let endpoint = served(&bed.tasks, false, None, move |request: Request<hyper::body::Incoming>| {
        counter.fetch_add(1, Ordering::Relaxed);
        let status = if request.uri().path() == "/broken" { 503 } else { 200 };
        async move { Ok(Response::builder().status(status).body(text("fine")).expect("an answer")) }
    })
    .await;
    let nobody: SocketAddr = "127.0.0.1:1".parse().expect("an address");
    add_service(&mut bed.objects, "one", &[endpoint], None);
    add_service(&mut bed.objects, "empty", &[], None);
    add_service(&mut bed.objects, "nobody", &[nobody], None);
    bed.route(json!([
        { "matches": prefix("/one"), "backendRefs": to("one") },
        { "matches": [{ "path": { "type": "Exact", "value": "/broken" } }], "backendRefs": to("one") },
        { "matches": prefix("/empty"), "backendRefs": to("empty") },
        { "matches": prefix("/absent"), "backendRefs": to("absent") },
        { "matches": prefix("/nobody"), "backendRefs": to("nobody") },
        { "matches": prefix("/nothing") },
        { "matches": [{ "path": { "type": "PathPrefix", "value": "/post" }, "method": "POST" }], "backendRefs": to("one") },
        { "matches": prefix("/moved"), "filters": [
            { "type": "RequestRedirect", "requestRedirect": { "hostname": "to.example", "statusCode": 302 } },
        ] },
    ]));
    bed.apply();
    know(&bed, TOKEN);
    for (path, status, want, stop) in [
        ("/one/a?b=c", 200, None, None),
        ("/broken", 503, Some(Hop::Pod), None),
        ("/moved", 302, None, None),
        ("/empty", 503, Some(Hop::Backend), Some(Stop::NoEndpoints)),
        ("/absent", 500, Some(Hop::Backend), Some(Stop::Reference)),
        ("/nobody", 502, Some(Hop::Pod), Some(Stop::Unreached)),
        ("/nothing", 500, Some(Hop::Rule), Some(Stop::NoBackend)),
        ("/post", 404, Some(Hop::Route), Some(Stop::NoRoute)),
        ("/elsewhere", 404, Some(Hop::Route), Some(Stop::NoRoute)),
    ] {
        let before = seen.load(Ordering::Relaxed);
        let traced = trace(&format!("http://shop.example{path}"), bed.at(8080)).await;
        let way = traced.way.clone().expect("a way");
        assert_eq!((traced.status, hop(&traced), way.stop), (status, want, stop), "{path}: {}", traced.text());
        assert_eq!((way.gateway.as_str(), way.listener.as_str()), ("n/g", "http"), "{path}");
        // The request comes to the backend once, however often the token was asked for.
        let sent = usize::from(path == "/one/a?b=c" || path == "/broken");
        assert_eq!(seen.load(Ordering::Relaxed) - before, sent, "{path}");
    }
    let traced = trace("http://shop.example/post", bed.at(8080)).await;
    let text = traced.text();
    let near = traced.failed.map(|failed| failed.details).unwrap_or_default();
    assert_eq!(near.first().map(String::as_str), Some("HTTPRoute n/r, rule 6, is for the method POST"), "{text}");
    for want in ["is for the path /broken alone", "is for /empty and what is below it"] {
        assert!(text.contains(want), "{want} is not in {text}");
    }
    let traced = trace("http://shop.example/nobody", bed.at(8080)).await;
    assert_eq!(traced.way.as_ref().and_then(|way| way.endpoint), Some(nobody));
    assert!(traced.way.is_some_and(|way| !way.because.is_empty()), "what the endpoint met");
    assert_eq!(trace("http://shop.example/moved", bed.at(8080)).await.location, "http://to.example:8080/moved");
    // A listener of another host, one that carries bytes, and a port at which nobody listens.
    let traced = trace("http://shop.example/one", bed.at(8081)).await;
    assert_eq!((hop(&traced), traced.status), (Some(Hop::Listener), 404), "{}", traced.text());
    assert!(traced.text().contains("listener named is for only.example"), "{}", traced.text());
    assert_eq!(hop(&trace("http://shop.example/one", bed.at(8082)).await), Some(Hop::Connection));
    let carried = trace("http://shop.example/one", bed.at(9000)).await;
    assert!(carried.way.is_none() && carried.failed.is_some(), "{carried:?}");
    // Somebody else's server, and a token that the gateway does not know.
    let other = trace("http://shop.example/one", endpoint).await;
    assert_eq!((other.status, hop(&other)), (200, Some(Hop::Listener)));
    know(&bed, "another token, which is long enough");
    let unknown = trace("http://shop.example/one", bed.at(8080)).await;
    assert_eq!((unknown.status, unknown.way, hop(&other)), (200, None, Some(Hop::Listener)));
    bed.tasks.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_shows_the_certificate_and_who_would_refuse_it() {
    let https = json!({ "name": "https", "port": 8443, "protocol": "HTTPS", "hostname": "*.example",
                        "tls": { "mode": "Terminate", "certificateRefs": [{ "name": "c" }] } });
    let mut bed = Bed::new(json!([https]));
    let endpoint = backend(&bed.tasks, "one", false).await;
    add_certificate(&mut bed.objects, "c", &["shop.example"]);
    add_service(&mut bed.objects, "one", &[endpoint], None);
    bed.route(json!([{ "backendRefs": to("one") }]));
    bed.apply();
    know(&bed, TOKEN);
    let traced = trace("https://shop.example:8443/", bed.at(8443)).await;
    assert_eq!((traced.status, hop(&traced), traced.notes.len()), (200, None, 0), "{}", traced.text());
    assert!(traced.tls.as_deref().is_some_and(|tls| tls.contains("certificate for shop.example")), "{traced:?}");
    assert!(traced.handshake.is_some());
    let other = trace("https://other.example:8443/", bed.at(8443)).await;
    assert_eq!((other.status, hop(&other)), (200, None), "{}", other.text());
    assert_eq!(other.notes, ["clients that verify the certificate refuse it: it is not for other.example"]);
    // No listener has a certificate for this name.
    assert_eq!(hop(&trace("https://shop.other/", bed.at(8443)).await), Some(Hop::Tls));
    bed.tasks.stop(PATIENCE).await;
}
