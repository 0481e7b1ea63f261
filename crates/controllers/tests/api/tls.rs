//! What attackers send over the wire: TLS and bytes as they please, and each refusal on record.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use ferry_server::pki::{Leaf, Pair, Pki, Use, client_tls, server_tls_by};
use ferry_testbed::Kit;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(super) struct Wire {
    pub(super) kit: Kit,
    port: u16,
    log: std::path::PathBuf,
}

/// No certificate at all.
#[derive(Debug)]
struct Nobody;

impl ResolvesClientCert for Nobody {
    fn resolve(&self, _: &[&[u8]], _: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

fn resolver(certificate: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> Arc<dyn ResolvesClientCert> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let certified = CertifiedKey::from_der(vec![certificate], key, &provider).unwrap();
    Arc::new(SingleCertAndKey::from(certified))
}

fn of_pair(pair: &Pair) -> Arc<dyn ResolvesClientCert> {
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
    resolver(certificate, PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap())
}

fn leaf(pki: &Pki, name: &str, groups: &[&str]) -> Arc<dyn ResolvesClientCert> {
    let organizations = groups.iter().map(|group| (*group).to_owned()).collect();
    let leaf = Leaf { name: name.into(), common_name: name.into(), organizations, usage: Use::Client };
    of_pair(&pki.leaf(&leaf, jiff::Timestamp::now()).unwrap())
}

impl Wire {
    async fn new(folder: &Path) -> Self {
        Self::with(folder, &[]).await
    }

    pub(super) async fn with(folder: &Path, flags: &[&str]) -> Self {
        let (policy, log) = (folder.join("policy.json"), folder.join("audit.log"));
        let rules = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{ "level": "Metadata" }] });
        std::fs::write(&policy, rules.to_string()).unwrap();
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let own = [flag("audit-policy-file", &policy), flag("audit-log-path", &log)];
        let kit = Kit::with(&own.iter().map(String::as_str).chain(flags.iter().copied()).collect::<Vec<_>>()).await;
        let names = vec!["localhost".to_owned()];
        let usage = Use::Server { names, addresses: vec![] };
        let own = Leaf { name: "server".into(), common_name: "server".into(), organizations: vec![], usage };
        let serving =
            ferry_server::certificate_rotation::Current::new(&kit.pki.leaf(&own, jiff::Timestamp::now()).unwrap())
                .unwrap();
        let tls = server_tls_by(serving, kit.authorities.verifier()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = kit.door.server.clone();
        kit.tasks.spawn("serve", async move { server.serve(listener, tls).await });
        Self { kit, port, log }
    }

    /// Sends bytes and reads until the server closes, or the answers are complete.
    async fn send(&self, who: Arc<dyn ResolvesClientCert>, bytes: &[u8], answers: usize) -> std::io::Result<String> {
        let mut config = (*client_tls(who, self.kit.pki.ca_certificate()).unwrap()).clone();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        // Who is refused while it still sends may find the connection closed; what was answered is read all the same.
        let sent = stream.write_all(bytes).await;
        let mut read = Vec::new();
        loop {
            let mut part = [0; 16 * 1024];
            match stream.read(&mut part).await {
                Ok(0) => break,
                Err(error) if read.is_empty() => return sent.and(Err(error)),
                Err(_) => break,
                Ok(length) => read.extend_from_slice(&part[..length]),
            }
            let text = String::from_utf8_lossy(&read);
            if text.matches("HTTP/1.1 ").count() >= answers && text.contains("\r\n\r\n") {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&read).into_owned())
    }

    /// A GET with headers of any kind: the code, and its Audit-Id.
    async fn get(&self, who: Arc<dyn ResolvesClientCert>, path: &str, headers: &[(&str, String)]) -> (u16, String) {
        let mut request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("Connection: close\r\n\r\n");
        let answer = self.send(who, request.as_bytes(), 1).await.unwrap();
        (code(&answer), header(&answer, "audit-id"))
    }

    /// What the audit log says of a request.
    pub(super) fn on_record(&self, id: &str) -> Vec<Value> {
        let log = std::fs::read_to_string(&self.log).unwrap();
        let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["auditID"] == id).collect()
    }

    /// A GET with a token: all of the answer.
    pub(super) async fn get_by(&self, token: &str, path: &str) -> String {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        self.send(nobody(), request.as_bytes(), 1).await.unwrap()
    }

    /// Refused with one of the codes, and the audit log says so.
    async fn refused(
        &self,
        why: &str,
        who: Arc<dyn ResolvesClientCert>,
        path: &str,
        headers: &[(&str, String)],
        codes: &[u16],
    ) {
        let (code, id) = self.get(who, path, headers).await;
        assert!(codes.contains(&code), "{why}: {code}");
        assert!(!id.is_empty(), "{why}: no Audit-Id");
        let codes: Vec<Value> =
            self.on_record(&id).iter().map(|event| event["responseStatus"]["code"].clone()).collect();
        assert!(codes.contains(&json!(code)), "{why}: on record are {codes:?} for {id}");
    }
}

pub(super) fn code(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
}

pub(super) fn header(answer: &str, name: &str) -> String {
    let head = answer.split("\r\n\r\n").next().unwrap_or_default().to_lowercase();
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(have, _)| *have == name).map(|(_, value)| value.to_owned()).unwrap_or_default()
}

fn nobody() -> Arc<dyn ResolvesClientCert> {
    Arc::new(Nobody)
}

fn bearer(token: &str) -> (&'static str, String) {
    ("Authorization", format!("Bearer {token}"))
}

const PODS: &str = "/api/v1/namespaces/kube-system/pods";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_refusal_is_on_record() {
    let folder = tempfile::tempdir().unwrap();
    let wire = Wire::new(folder.path()).await;
    let pki = &wire.kit.pki;
    let bob = || leaf(pki, "bob", &["devs"]);
    assert_eq!(wire.get(leaf(pki, "root", &["system:masters"]), PODS, &[]).await.0, 200);

    // Tokens.
    let encode = |value: &Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
    let now = jiff::Timestamp::now().as_second();
    let issuer = "https://kubernetes.default.svc.cluster.local";
    let claims = json!({
        "iss": issuer, "aud": [issuer], "exp": now + 600, "nbf": now, "iat": now, "sub": "system:serviceaccount:kube-system:default",
        "kubernetes.io": { "namespace": "kube-system", "serviceaccount": { "name": "default", "uid": "x" } },
    });
    let key = ferry_auth::SigningKey::from_pem(&pki.signing_key().unwrap()).unwrap();
    let public = key.verifying_key().jwk().to_string();
    let changed = |field: &str, value: Value| {
        let mut claims = claims.clone();
        claims[field] = value;
        key.sign(&claims).unwrap()
    };
    let other = ferry_auth::SigningKey::from_pem(&ferry_auth::SigningKey::generate_pem().unwrap()).unwrap();
    let hmac = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(public);
    for (why, token) in [
        ("alg none", format!("{}.{}.", encode(&json!({ "alg": "none" })), encode(&claims))),
        ("key confusion", format!("{}.{}.{hmac}", encode(&json!({ "alg": "HS256" })), encode(&claims))),
        ("another key", other.sign(&claims).unwrap()),
        ("expired", changed("exp", json!(now - 3600))),
        ("not yet valid", changed("nbf", json!(now + 3600))),
        ("foreign audience", changed("aud", json!(["https://vault"]))),
        ("an account that is another", key.sign(&claims).unwrap()),
        ("junk", "junk".to_owned()),
    ] {
        wire.refused(why, nobody(), PODS, &[bearer(&token)], &[401]).await;
    }

    // People without rights, and their tricks.
    wire.refused("no rights", bob(), PODS, &[], &[403]).await;
    wire.refused("no credentials", nobody(), PODS, &[], &[403]).await;
    for path in [
        "/api/v1/namespaces/default/../kube-system/secrets",
        "/api/v1/namespaces/default%2f..%2fkube-system/secrets",
        "/api/v1/namespaces/default/secrets/..%2f..%2fkube-system%2fsecrets%2fs",
        "/api/v1/namespaces/%2e%2e/namespaces/kube-system/secrets",
        "//api/v1/namespaces/kube-system/secrets",
        "/api/v1//namespaces/kube-system/secrets",
        "/./api/v1/namespaces/kube-system/secrets",
        "/api/v1/namespaces/kube-system/secrets/",
    ] {
        wire.refused(path, bob(), path, &[], &[400, 403, 404]).await;
    }
    let text = |text: &str| text.to_owned();
    for headers in [
        vec![("Impersonate-User", text("root"))],
        vec![("Impersonate-User", text("bob")), ("Impersonate-Group", text("system:masters"))],
        vec![("Impersonate-User", text("system:serviceaccount:kube-system:default"))],
        vec![("Impersonate-Group", text("system:masters"))],
        vec![("X-Remote-User", text("root")), ("X-Remote-Group", text("system:masters"))],
    ] {
        wire.refused(&format!("{headers:?}"), bob(), PODS, &headers, &[400, 403, 500]).await;
    }
    // Ten thousand groups.
    let mut many = vec![("Impersonate-User", text("bob"))];
    many.extend((0..10_000).map(|number| ("Impersonate-Group", format!("group-{number}"))));
    let (code, _) = wire.get(bob(), PODS, &many).await;
    assert!(matches!(code, 403 | 431), "{code}");
    wire.kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_http_let_nothing_past() {
    let folder = tempfile::tempdir().unwrap();
    let wire = Wire::new(folder.path()).await;
    // Another CA with the same names, a certificate that was signed by itself, and a server's.
    let other = Pki::open(&folder.path().join("other")).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "root");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let own = params.self_signed(&key).unwrap().der().clone();
    let authority = wire.kit.pki.signing_authority();
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key).unwrap()).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let of_server = params.signed_by(&key, &issuer).unwrap().der().clone();
    let der = || PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let request = format!("GET {PODS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    for (why, who) in [
        ("another CA", leaf(&other, "root", &["system:masters"])),
        ("signed by itself", resolver(own, der())),
        ("a server's certificate", resolver(of_server, der())),
    ] {
        let answer = wire.send(who, request.as_bytes(), 1).await;
        assert!(answer.as_ref().map_or(true, |text| matches!(code(text), 0 | 401)), "{why}: {answer:?}");
    }
    let many: Vec<String> = (0..10_000).map(|number| format!("group-{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let answer = wire.send(leaf(&wire.kit.pki, "many", &many), request.as_bytes(), 1).await;
    assert!(answer.as_ref().map_or(true, |text| matches!(code(text), 0 | 401 | 403)), "10,000 groups: {answer:?}");

    // Headers that are too large, too many or malformed.
    let root = || leaf(&wire.kit.pki, "root", &["system:masters"]);
    let with = |headers: &str| format!("GET {PODS} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n");
    let large = format!("X-Long: {}", "x".repeat(3 << 20));
    for (why, headers) in [
        ("too large", large.as_str()),
        ("a space before the colon", "Content-Length : 5"),
        ("two lengths", "Content-Length: 5\r\nContent-Length: 6"),
        ("a length that is none", "Content-Length: -1"),
        ("a folded line", "X-A: b\r\n c: d\r\n : e"),
        ("a null", "X-A: \0"),
    ] {
        let answer = wire.send(root(), with(headers).as_bytes(), 1).await;
        let code = answer.as_ref().map_or(0, |text| code(text));
        assert!(matches!(code, 0 | 400 | 431), "{why}: {code}");
    }
    // What is hidden in a body is no request; were it taken for one, it would come without the first one's token.
    let hidden = format!("GET {PODS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let token = wire.kit.token("root", &["system:masters"]);
    for (why, framing, body) in [
        (
            "length before chunks",
            format!("Content-Length: {}\r\nTransfer-Encoding: chunked", hidden.len() + 5),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            "chunks by another name",
            "Content-Length: 3\r\nTransfer-Encoding: xchunked".to_owned(),
            format!("{{}} {hidden}"),
        ),
        (
            "two encodings",
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked".to_owned(),
            format!("0\r\n\r\n{hidden}"),
        ),
    ] {
        let request = format!(
            "POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n{framing}\r\n\r\n{body}"
        );
        let answer = wire.send(nobody(), request.as_bytes(), 2).await.unwrap_or_default();
        for code in answer.split("HTTP/1.1 ").skip(1).filter_map(|part| part.get(..3)) {
            assert!(matches!(code, "400" | "401" | "403" | "415" | "422" | "500" | "501"), "{why}: {answer}");
        }
    }
    // And the server goes on.
    assert_eq!(wire.get(root(), PODS, &[]).await.0, 200);
    wire.kit.stop().await;
}
