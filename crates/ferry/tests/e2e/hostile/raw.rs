//! TLS connections and HTTP/2 frames by hand, for what no well-behaved client sends.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub type Stream = TlsStream<TcpStream>;

/// Connects to servers of one certificate authority, with one protocol.
#[derive(Clone)]
pub struct Dialer {
    connector: TlsConnector,
    address: SocketAddr,
}

impl Dialer {
    pub fn new(authority: &Path, address: SocketAddr, protocol: &str) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Self { connector: Arc::new(config).into(), address }
    }

    pub async fn connect(&self) -> std::io::Result<Stream> {
        let stream = TcpStream::connect(self.address).await?;
        self.connector.connect(ServerName::from(self.address.ip()), stream).await
    }
}

pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
/// The largest payload that a server takes unless it says otherwise.
pub const FRAME: usize = 16 << 10;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// What begins a connection: the client lets the server send so much of each answer.
pub fn preface(window: u32) -> Vec<u8> {
    let mut settings = vec![0, 4];
    settings.extend(window.to_be_bytes());
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    out.extend(frame(SETTINGS, 0, 0, &settings));
    out
}

/// A field that the server does not remember.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    // Lengths have seven bits before they need more bytes.
    let text = |text: &str| {
        let mut out = match text.len() {
            short @ 0..127 => vec![u8::try_from(short).unwrap()],
            long => {
                let rest = long - 127;
                assert!(rest < 1 << 14);
                vec![127, u8::try_from(rest & 127).unwrap() | 128, u8::try_from(rest >> 7).unwrap()]
            }
        };
        out.extend(text.as_bytes());
        out
    };
    let mut out = vec![0];
    out.extend(text(name));
    out.extend(text(value));
    out
}

/// The fields that every request has.
pub fn get(path: &str, token: Option<&str>) -> Vec<u8> {
    let mut out = [(":method", "GET"), (":scheme", "https"), (":authority", "x"), (":path", path)]
        .map(|(n, v)| field(n, v))
        .concat();
    if let Some(token) = token {
        out.extend(field("authorization", &format!("Bearer {token}")));
    }
    out
}

/// A whole head, in as many frames as it takes.
pub fn head(stream: u32, block: &[u8]) -> Vec<u8> {
    let pieces: Vec<&[u8]> = block.chunks(FRAME).collect();
    let mut out = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let kind = if at == 0 { HEADERS } else { CONTINUATION };
        let ends = if at == 0 { END_STREAM } else { 0 } | if at + 1 == pieces.len() { END_HEADERS } else { 0 };
        out.extend(frame(kind, ends, stream, piece));
    }
    out
}

/// Sends until the server has had enough; whether it had.
pub async fn send(stream: &mut Stream, bytes: &[u8]) -> bool {
    // What the server says is taken, so that it is not the client that stands still.
    let (mut reader, mut writer) = tokio::io::split(stream);
    let write = async { writer.write_all(bytes).await.is_ok() && writer.flush().await.is_ok() };
    let read = async {
        let mut buffer = [0; 4096];
        while !matches!(reader.read(&mut buffer).await, Ok(0) | Err(_)) {}
    };
    tokio::select! {
        written = write => !written,
        () = read => true,
    }
}

/// Whether the server ends the connection within a while.
pub async fn is_ended(stream: &mut Stream, patience: Duration) -> bool {
    let mut buffer = [0; 4096];
    let ended = async { while !matches!(stream.read(&mut buffer).await, Ok(0) | Err(_)) {} };
    tokio::time::timeout(patience, ended).await.is_ok()
}
