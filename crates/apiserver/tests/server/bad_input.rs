//! What attackers send: refused, on record, and never a way around the rules.

use std::sync::Arc;

use ferry_apiserver::{Body, Peer};
use ferry_auth::{Chain, ServiceAccountTokens, SigningKey, TokenIssuer, X509};
use http::Request;
use http_body_util::{BodyExt, Full};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};

use super::Fixture;

const ISSUER: &str = "https://kubernetes.default.svc";

/// A server that knows service accounts and certificates, and what makes tokens for it.
struct Gate {
    fixture: Fixture,
    key: SigningKey,
}

impl Gate {
    async fn new() -> Self {
        let pem = SigningKey::generate_pem().expect("a key");
        let key = SigningKey::from_pem(&pem).expect("a key");
        let own = SigningKey::from_pem(&pem).expect("a key");
        let fixture = Fixture::with(|config, loopback| {
            let audiences = vec![ISSUER.to_owned()];
            let accounts =
                ServiceAccountTokens::new(audiences.clone(), vec![own.verifying_key().clone()], config.cache.clone());
            let issuer = TokenIssuer::new(ISSUER.into(), audiences.clone(), own, config.cache.clone());
            config.token_issuer = Some(Arc::new(issuer));
            config.authentication = Arc::new(
                Chain::new(audiences)
                    .with(Arc::new(X509::default()))
                    .with_tokens(loopback.clone())
                    .with_tokens(Arc::new(accounts)),
            );
        })
        .await;
        Self { fixture, key }
    }

    async fn code(&self, headers: &[(&str, &str)], path: &str, peer: Peer) -> u16 {
        self.answer(headers, path, peer).await.0
    }

    /// The code, and the message of the Status where that is the answer.
    async fn answer(&self, headers: &[(&str, &str)], path: &str, peer: Peer) -> (u16, String) {
        let body: Body = Full::default().map_err(|never| match never {}).boxed_unsync();
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.fixture.server.handle(request.body(body).expect("a request"), peer).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("an answer").to_bytes();
        let status: Value = serde_json::from_slice(&body).unwrap_or_default();
        (code, status["message"].as_str().unwrap_or_default().to_owned())
    }

    async fn with_token(&self, token: &str) -> u16 {
        let value = format!("Bearer {token}");
        self.code(&[("authorization", &value)], "/api/v1/namespaces/default/pods", Peer::default()).await
    }
}

/// A token made by hand: any header over any claims, signed or not.
fn forge(header: &Value, claims: &Value, signature: &[u8]) -> String {
    use base64::Engine;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    format!("{}.{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()), encode(signature))
}

#[tokio::test]
async fn forged_stale_and_foreign_tokens_are_refused() {
    let gate = Gate::new().await;
    let post = async |path: &str, body: Value| {
        let (code, answer) = gate.fixture.json("POST", path, &body).await;
        assert_eq!(code, 201, "{answer}");
        answer
    };
    let account = post("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]},
    });
    let pod = post("/api/v1/namespaces/default/pods", pod).await;
    let request = json!({"spec": {"boundObjectRef": {
        "kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod["metadata"]["uid"],
    }}});
    let answer = post("/api/v1/namespaces/default/serviceaccounts/robot/token", request).await;
    let token = answer["status"]["token"].as_str().expect("a token").to_owned();
    assert_eq!(gate.with_token(&token).await, 403, "known, without rights");

    let now = ferry_meta::time::now().as_second();
    let claims = json!({
        "iss": ISSUER, "aud": [ISSUER], "exp": now + 3600, "iat": now, "nbf": now, "sub": "system:serviceaccount:default:robot",
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "robot", "uid": account["metadata"]["uid"]}},
    });
    let changed = |pointer: &str, value: Value| {
        let mut claims = claims.clone();
        *claims.pointer_mut(pointer).expect("a claim") = value;
        claims
    };
    let sign = |claims: &Value| gate.key.sign_for_tests(claims);
    assert_eq!(gate.with_token(&sign(&claims)).await, 403, "well made");
    for (why, claims) in [
        ("expired", changed("/exp", json!(now - 3600))),
        ("not yet valid", changed("/nbf", json!(now + 3600))),
        ("for somebody else", changed("/aud", json!(["https://vault"]))),
        ("for nobody", changed("/aud", json!([]))),
        ("of another issuer", changed("/iss", json!("https://evil"))),
        ("for another subject", changed("/sub", json!("system:serviceaccount:kube-system:root"))),
        ("of an account that was replaced", changed("/kubernetes.io/serviceaccount/uid", json!("another"))),
        ("without an end", changed("/exp", Value::Null)),
    ] {
        assert_eq!(gate.with_token(&sign(&claims)).await, 401, "{why}");
    }
    let other = SigningKey::from_pem(&SigningKey::generate_pem().expect("a key")).expect("a key");
    assert_eq!(gate.with_token(&other.sign_for_tests(&claims)).await, 401, "another key");
    let public = gate.key.verifying_key().jwk().to_string();
    for (why, header, signature) in [
        ("alg none", json!({"alg": "none"}), Vec::new()),
        ("alg None", json!({"alg": "None"}), Vec::new()),
        ("no algorithm", json!({}), Vec::new()),
        ("HMAC with the public key", json!({"alg": "HS256"}), hmac(&public)),
        ("another algorithm", json!({"alg": "RS256"}), vec![7; 256]),
        (
            "a key of its own",
            json!({"alg": "ES256", "jwk": serde_json::from_str::<Value>(&public).expect("JSON")}),
            vec![0; 64],
        ),
        ("an unknown extension", json!({"alg": "ES256", "crit": ["x"]}), vec![0; 64]),
        ("all zeros", json!({"alg": "ES256"}), vec![0; 64]),
    ] {
        assert_eq!(gate.with_token(&forge(&header, &claims, &signature)).await, 401, "{why}");
    }
    for junk in ["a", "a.b.c", "....", "eyJhbGciOiJFUzI1NiJ9..", &"x".repeat(100_000)] {
        assert_eq!(gate.with_token(junk).await, 401, "junk");
    }

    // The pod is gone, and its token with it.
    let (code, _) =
        gate.fixture.json("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0", &Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(gate.with_token(&token).await, 401, "a revoked pod's token");
    gate.fixture.stop().await;
}

/// What a server would take for a signature if it used its public key as a shared secret.
fn hmac(key: &str) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    Sha256::digest(key).to_vec()
}

fn certificate(groups: usize) -> CertificateDer<'static> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "many");
    for group in 0..groups {
        params.distinguished_name.push(rcgen::DnType::OrganizationName, format!("group-{group}"));
    }
    let key = rcgen::KeyPair::generate().expect("a key");
    params.self_signed(&key).expect("a certificate").der().clone()
}

#[tokio::test]
async fn ten_thousand_groups_and_large_headers_are_survived() {
    let gate = Gate::new().await;
    let peer = Peer { certificates: Arc::from([certificate(10_000)]), ..Peer::default() };
    assert_eq!(gate.code(&[], "/api/v1/pods", peer).await, 403);
    let admin = format!("Bearer {}", gate.fixture.admin);
    let mut headers = vec![("authorization", admin.as_str()), ("impersonate-user", "eve")];
    headers.extend((0..10_000).map(|_| ("impersonate-group", "g")));
    assert_eq!(gate.code(&headers, "/api/v1/pods", Peer::default()).await, 403);
    let long = "x".repeat(900_000);
    assert_eq!(gate.code(&[("authorization", &admin), ("x-long", &long)], "/api/v1/pods", Peer::default()).await, 200);
    gate.fixture.stop().await;
}

#[tokio::test]
async fn tricks_with_paths_lead_nowhere() {
    let gate = Gate::new().await;
    let (code, _) = gate
        .fixture
        .json(
            "POST",
            "/api/v1/namespaces/kube-system/secrets",
            &json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}}),
        )
        .await;
    assert_eq!(code, 201);
    // Bob may read secrets of his own namespace.
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    assert_eq!(gate.fixture.json("POST", &format!("{rbac}/roles"), &role).await.0, 201);
    let binding = json!({
        "metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    assert_eq!(gate.fixture.json("POST", &format!("{rbac}/rolebindings"), &binding).await.0, 201);
    let bob = format!("Bearer {}", gate.fixture.bob);
    let ask = async |path: &str| gate.code(&[("authorization", &bob)], path, Peer::default()).await;
    assert_eq!(ask("/api/v1/namespaces/default/secrets").await, 200);
    for path in [
        "/api/v1/namespaces/kube-system/secrets/s",
        "/api/v1/namespaces/default/../kube-system/secrets/s",
        "/api/v1/namespaces/default%2f..%2fkube-system/secrets/s",
        "/api/v1/namespaces/default/secrets/..%2f..%2fkube-system%2fsecrets%2fs",
        "/api/v1/namespaces/default/secrets/%2e%2e/%2e%2e/kube-system/secrets/s",
        "//api/v1/namespaces/kube-system/secrets/s",
        "/api//v1/namespaces/kube-system/secrets/s",
        "/api/v1//namespaces/kube-system/secrets/s",
        "/api/v1/namespaces//secrets/s",
        "/api/v1/namespaces/kube-system%00/secrets/s",
        "/api/v1/NAMESPACES/kube-system/secrets/s",
        "/api/v1/watch/namespaces/kube-system/secrets/s",
        "/api/v1/proxy/namespaces/kube-system/secrets/s",
        "/api/v1/namespaces/kube-system/secrets/s/",
        "/api/v1/secrets?fieldSelector=metadata.namespace%3Ddefault",
    ] {
        let code = ask(path).await;
        assert!(matches!(code, 400 | 401 | 403 | 404 | 405), "{path}: {code}");
    }
    gate.fixture.stop().await;
}

#[tokio::test]
async fn impersonation_needs_rights_for_every_part() {
    let gate = Gate::new().await;
    let bob = format!("Bearer {}", gate.fixture.bob);
    for headers in [
        vec![("impersonate-user", "system:admin")],
        vec![("impersonate-user", "bob"), ("impersonate-group", "system:masters")],
        vec![("impersonate-user", "bob"), ("impersonate-uid", "0")],
        vec![("impersonate-user", "bob"), ("impersonate-extra-scopes", "all")],
        vec![("impersonate-user", "system:serviceaccount:kube-system:default")],
    ] {
        let mut all = vec![("authorization", bob.as_str())];
        all.extend(headers.iter().copied());
        assert_eq!(gate.code(&all, "/api/v1/pods", Peer::default()).await, 403, "{headers:?}");
    }
    // Groups without a user mean nothing, and a client's own word for who it is counts for nothing.
    for (header, code, says) in [
        (("impersonate-group", "system:masters"), 400, "without impersonating a user name"),
        (("x-remote-user", "system:admin"), 403, "User \"bob\" cannot list resource \"pods\""),
        (("x-remote-group", "system:masters"), 403, "User \"bob\" cannot list resource \"pods\""),
    ] {
        let headers = [("authorization", bob.as_str()), header];
        let (given, message) = gate.answer(&headers, "/api/v1/pods", Peer::default()).await;
        assert!(given == code && message.contains(says), "{header:?}: {given} {message}");
    }
    gate.fixture.stop().await;
}
