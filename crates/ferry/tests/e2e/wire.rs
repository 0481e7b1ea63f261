//! What clients other than kubectl do with a connection.

use std::path::Path;
use std::sync::Arc;

use futures::StreamExt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::Alone;
use crate::alone::{Apiserver, MALLORY, TOKEN, create, runtime};

pub const ALONE: &[Alone] = &[
    ("wire::a_watch_over_a_websocket", a_watch_over_a_websocket),
    ("wire::a_certificate_of_others_is_answered", a_certificate_of_others_is_answered),
];

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// A connection that trusts the cluster's CA, with this certificate if any.
async fn connect(server: &Apiserver, data_dir: &Path, identity: Option<Identity>) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(data_dir.join("pki/ca.crt")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        Some(identity) => builder.with_client_auth_cert(identity.chain, identity.key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let tcp = TcpStream::connect(server.address()).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.expect("TLS")
}

/// The code of a GET.
async fn get(mut connection: TlsStream<TcpStream>, path: &str, token: Option<&str>) -> u16 {
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{token}Connection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

/// Browsers and the informers of fabric8 watch this way.
fn a_watch_over_a_websocket() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        let admin = server.client().await;
        let revision = create(&admin, "before").await.unwrap();
        let open = async |query: String, accept: &str, token: &str| {
            let (host, port) = server.address();
            let path = format!("wss://{host}:{port}/api/v1/namespaces/default/configmaps?watch=1{query}");
            let mut request = path.into_client_request().unwrap();
            let headers = request.headers_mut();
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
            headers.insert("accept", accept.parse().unwrap());
            headers.insert("origin", format!("https://{host}:{port}").parse().unwrap());
            tokio_tungstenite::client_async(request, connect(&server, folder.path(), None).await).await
        };
        let since = format!("&resourceVersion={revision}");
        let (mut socket, answer) = open(since.clone(), "application/json", TOKEN).await.unwrap();
        assert_eq!(answer.status(), 101);
        let (mut binary, _) = open(since, "application/vnd.kubernetes.protobuf", TOKEN).await.unwrap();
        for name in ["one", "two"] {
            create(&admin, name).await.unwrap();
        }
        for name in ["one", "two"] {
            let Message::Text(text) = socket.next().await.unwrap().unwrap() else { panic!("text") };
            let event: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&"ADDED".into(), &name.into()));
            let Message::Binary(bytes) = binary.next().await.unwrap().unwrap() else { panic!("binary") };
            // A WatchEvent begins with its type, and holds the object in its own envelope.
            assert!(bytes.starts_with(b"\x0a\x05ADDED"), "{bytes:?}");
            assert!(bytes.windows(name.len()).any(|part| part == name.as_bytes()), "{bytes:?}");
        }
        socket.close(None).await.unwrap();
        // It ends when it should, and refusals are plain answers.
        let (mut short, _) = open("&timeoutSeconds=1".into(), "application/json", TOKEN).await.unwrap();
        let mut seen = 0;
        while let Some(Ok(message)) = short.next().await {
            seen += usize::from(message.is_text());
        }
        assert_eq!(seen, 3, "what was there, and then the end");
        let refused = open(String::new(), "application/json", &format!("{MALLORY}-token")).await;
        assert!(matches!(&refused, Err(Error::Http(answer)) if answer.status() == 403), "{refused:?}");
    });
}

/// As upstream: the connection stands, the answer is 401, and a token counts beside it.
fn a_certificate_of_others_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        server.client().await;
        let foreign = || {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name.push(rcgen::DnType::CommonName, "admin");
            params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
            Some(Identity { chain: vec![certificate.der().clone()], key })
        };
        let code = async |identity: Option<Identity>, path: &str, token: Option<&str>| {
            get(connect(&server, folder.path(), identity).await, path, token).await
        };
        let secrets = "/api/v1/secrets";
        assert_eq!(code(foreign(), secrets, None).await, 401, "nobody vouches for it");
        assert_eq!(code(foreign(), "/readyz", None).await, 401, "not even as an anonymous caller");
        assert_eq!(code(foreign(), secrets, Some(TOKEN)).await, 200, "the token says who it is");
        assert_eq!(code(foreign(), secrets, Some("wrong")).await, 401);
        assert_eq!(code(None, "/readyz", None).await, 200);
        assert_eq!(code(None, secrets, None).await, 403);
    });
}
