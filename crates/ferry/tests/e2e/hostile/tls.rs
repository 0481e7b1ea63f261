//! Sessions of TLS that outlive what made them trusted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use rustls::HandshakeKind;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::limited::call;
use crate::Alone;
use crate::alone::{Apiserver, runtime, text};
use crate::cluster::PATIENCE;

pub const ALONE: &[Alone] = &[(
    "hostile::tls::a_session_does_not_outlive_the_authority_of_its_certificate",
    a_session_does_not_outlive_the_authority_of_its_certificate,
)];

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// How an administrator of this authority connects: sessions are kept, and taken up again.
fn administrator(authority: &Authority, server_ca: &[u8]) -> TlsConnector {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.distinguished_name.push(DnType::CommonName, "once-trusted");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server_ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        )
        .unwrap();
    TlsConnector::from(Arc::new(config))
}

async fn connect(address: (&str, u16), by: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await.unwrap();
    by.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
}

/// Reads what is there for administrators alone: the code of the answer, 404 for one of them.
async fn ask(stream: &mut TlsStream<TcpStream>) -> std::io::Result<u16> {
    stream.write_all(b"GET /api/v1/namespaces/none HTTP/1.1\r\nhost: it\r\n\r\n").await?;
    let mut seen = Vec::new();
    loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        seen.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&seen).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.expect("a length").trim().parse().unwrap();
        if body.len() >= length {
            return Ok(head.split(' ').nth(1).unwrap().parse().unwrap());
        }
    }
}

/// A connection, and a session that is taken up again with a ticket, are as good as the certificate that they began with,
/// and that is as good as its authority is now.
fn a_session_does_not_outlive_the_authority_of_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (authority(), authority());
    let file = folder.path().join("clients.pem");
    std::fs::write(&file, old.pem()).unwrap();
    let mut server = Apiserver::start(folder.path(), &["--client-ca-file", text(&file)]);
    runtime().block_on(async {
        let bystander: Client = server.client().await;
        let server_ca = std::fs::read(folder.path().join("pki/ca.crt")).unwrap();
        let (of_old, of_new) = (administrator(&old, &server_ca), administrator(&new, &server_ca));
        let mut kept = connect(server.address(), &of_old).await.unwrap();
        assert_eq!(ask(&mut kept).await.unwrap(), 404);
        let mut resumed = connect(server.address(), &of_old).await.unwrap();
        assert_eq!(resumed.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed), "there are tickets");
        assert_eq!(ask(&mut resumed).await.unwrap(), 404);

        std::fs::write(&file, new.pem()).unwrap();
        let begin = Instant::now();
        while let Ok(404) = ask(&mut kept).await {
            assert!(begin.elapsed() < PATIENCE, "the connection is still that of an administrator");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for connection in [kept, resumed] {
            let mut connection = connection;
            let code = ask(&mut connection).await;
            assert!(matches!(code, Ok(401 | 403) | Err(_)), "{code:?}");
        }
        // As many as there may be tickets left.
        for _ in 0..8 {
            let code = match connect(server.address(), &of_old).await {
                Ok(mut again) => ask(&mut again).await,
                Err(refused) => Err(refused),
            };
            assert!(matches!(code, Ok(401 | 403) | Err(_)), "{code:?}");
        }
        let mut other = connect(server.address(), &of_new).await.unwrap();
        assert_eq!(ask(&mut other).await.unwrap(), 404);
        let (code, _) = call(&bystander, "GET", "/api/v1/namespaces/default", &[], &Value::Null).await;
        assert_eq!(code, 200);
    });
}
