//! What a cookie is good for, and what not.

use http::Request;
use rustls_pki_types::CertificateDer;

use super::*;

const ID: &str = "__Host-ferry-console=id";

fn parts(method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
    let request = Request::builder().method(method).uri(path).header("host", "ferry:6443");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(()).expect("a request").into_parts().0
}

fn judged(method: &str, headers: &[(&str, &str)]) -> Result<Option<Wanted>, Refusal> {
    let mut request = parts(method, "/api/v1/pods", headers);
    let brought = take(&mut request.headers);
    judge(&request, &Certificates::default(), brought)
}

fn session() -> Result<Option<Wanted>, Refusal> {
    Ok(Some(Wanted::Session { id: digest("id"), key: "key".into() }))
}

#[test]
fn a_cookie_counts_beside_its_key_and_on_its_own_site_only() {
    let key = ("x-ferry-console", "key");
    let own = ("sec-fetch-site", "same-origin");
    for (method, headers, want) in [
        ("GET", &[("cookie", ID), key, own][..], session()),
        ("POST", &[("cookie", ID), key, own, ("origin", "https://ferry:6443")], session()),
        ("POST", &[("cookie", ID), key], session()),
        ("GET", &[("cookie", ID)], Ok(None)),
        ("GET", &[key], Ok(None)),
        ("POST", &[("cookie", ID)], Err(Refusal::Keyless)),
        ("DELETE", &[("cookie", ID), ("origin", "https://evil")], Err(Refusal::Keyless)),
        ("GET", &[("cookie", ID), ("upgrade", "websocket")], Err(Refusal::Keyless)),
        ("POST", &[("cookie", ID), key, ("origin", "https://evil")], Err(Refusal::Foreign)),
        ("POST", &[("cookie", ID), key, ("origin", "https://ferry:30443")], Err(Refusal::Foreign)),
        ("POST", &[("cookie", ID), key, ("origin", "http://ferry:6443")], Err(Refusal::Foreign)),
        ("POST", &[("cookie", ID), key, ("origin", "null")], Err(Refusal::Foreign)),
        ("GET", &[("cookie", ID), key, ("sec-fetch-site", "same-site")], Err(Refusal::Foreign)),
        ("GET", &[("cookie", ID), key, ("sec-fetch-site", "cross-site")], Err(Refusal::Foreign)),
        ("POST", &[("cookie", ID), key, ("authorization", "Bearer own")], Ok(None)),
    ] {
        assert_eq!(judged(method, headers), want, "{method} {headers:?}");
    }
}

#[test]
fn a_socket_brings_the_key_as_a_protocol_and_nobody_else_sees_it() {
    let socket = [
        ("cookie", "a=1; __Host-ferry-console=id; b=2"),
        ("upgrade", "websocket"),
        ("origin", "https://ferry:6443"),
        ("sec-websocket-protocol", "console.ferry.dev.key, v5.channel.k8s.io"),
    ];
    assert_eq!(judged("GET", &socket), session());
    let mut request = parts("GET", "/", &socket);
    take(&mut request.headers);
    assert_eq!(request.headers["sec-websocket-protocol"], "v5.channel.k8s.io");
    assert_eq!(request.headers["cookie"], "a=1; b=2");
    let mut foreign = socket;
    foreign[2].1 = "https://evil";
    assert_eq!(judged("GET", &foreign), Err(Refusal::Foreign));
    let mut alone = parts("GET", "/", &[("cookie", ID), ("x-ferry-console", "key"), ("x-ferry-console-code", "c")]);
    take(&mut alone.headers);
    assert_eq!(alone.headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["host"]);
}

#[test]
fn a_code_signs_in_and_does_nothing_else() {
    let code = ("x-ferry-console-code", "code");
    let judged = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let mut request = parts(method, path, headers);
        let brought = take(&mut request.headers);
        judge(&request, &Certificates::default(), brought)
    };
    assert_eq!(judged("POST", "/console/session", &[code]), Ok(Some(Wanted::Code("code".into()))));
    assert_eq!(judged("GET", "/console/session", &[code]), Err(Refusal::Foreign));
    assert_eq!(judged("POST", "/api/v1/namespaces", &[code]), Err(Refusal::Foreign));
    assert_eq!(judged("POST", "/console/session", &[code, ("origin", "https://evil")]), Err(Refusal::Foreign));
}

#[test]
fn a_certificate_that_the_browser_shows_by_itself_changes_nothing_for_other_sites() {
    let certificates: Certificates = vec![CertificateDer::from(vec![0])].into();
    let judged = |method: &str, headers: &[(&str, &str)]| {
        judge(&parts(method, "/api/v1/namespaces", headers), &certificates, Brought::default())
    };
    assert_eq!(judged("POST", &[("sec-fetch-site", "cross-site")]), Err(Refusal::Foreign));
    let (upgrade, evil) = (("upgrade", "websocket"), ("origin", "https://evil"));
    let old_browser = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)");
    assert_eq!(judged("GET", &[upgrade, evil, old_browser]), Err(Refusal::Foreign));
    assert_eq!(judged("GET", &[upgrade, evil, ("sec-fetch-site", "cross-site")]), Err(Refusal::Foreign));
    assert_eq!(judged("GET", &[upgrade, ("origin", "http://localhost")]), Ok(None), "Go's library for WebSockets");
    assert_eq!(judged("GET", &[("sec-fetch-site", "cross-site")]), Ok(None), "it cannot be read there");
    assert_eq!(judged("POST", &[]), Ok(None), "kubectl");
    assert_eq!(
        judged("GET", &[("upgrade", "websocket"), ("origin", "http://ferry:6443")]),
        Ok(None),
        "a Python client"
    );
    assert_eq!(judged("POST", &[("sec-fetch-site", "same-origin")]), Ok(None));
}

#[test]
fn what_is_no_text_or_too_long_is_no_session() {
    let mut headers = HeaderMap::new();
    headers.append("cookie", HeaderValue::from_bytes(b"a=\xff; __Host-ferry-console=id").expect("a value"));
    assert!(take(&mut headers).cookie.is_none());
    let mut headers = HeaderMap::new();
    headers.append("cookie", format!("{COOKIE}={}", "x".repeat(4096)).parse().expect("a value"));
    assert!(take(&mut headers).cookie.is_none());
}
