//! The API server's side of the kubelet's server: certificates, and requests over TLS.

use std::sync::Arc;

use bytes::Bytes;
use ferry_kubelet::Tls;
use futures::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use ferry_remotecommand::spdy::{Frame, Reader, Writer};

pub(crate) const CLIENT: &str = "kube-apiserver-kubelet-client";

pub(crate) struct Certificates {
    pub(crate) tls: Tls,
    client: Arc<ClientConfig>,
    stranger: Arc<ClientConfig>,
}

fn signed(name: &str, issuer: &Issuer<'_, KeyPair>) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, name);
    let certificate = params.signed_by(&key, issuer).expect("a certificate");
    (certificate.der().clone(), PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
}

pub(crate) fn certificates() -> Certificates {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("a certificate");
    let issuer = Issuer::new(params, key);
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).expect("added");
    let roots = Arc::new(roots);
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
    let (certificate, key) = signed("node", &issuer);
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![certificate], key)
        .expect("a server");
    let client = |name: &str| {
        let (certificate, key) = signed(name, &issuer);
        let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_root_certificates(roots.clone());
        Arc::new(config.with_client_auth_cert(vec![certificate], key).expect("a client"))
    };
    Certificates { tls: Tls { server: Arc::new(server) }, client: client(CLIENT), stranger: client("someone-else") }
}

impl Certificates {
    async fn connect(&self, config: &Arc<ClientConfig>, port: u16) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
        let name = "127.0.0.1".try_into().expect("a name");
        tokio_rustls::TlsConnector::from(config.clone()).connect(name, stream).await.expect("trusted")
    }

    pub(crate) async fn get(&self, port: u16, path: &str) -> (u16, String) {
        let stream = self.connect(&self.client, port).await;
        fetch(stream, path).await
    }

    pub(crate) async fn get_as_stranger(&self, port: u16, path: &str) -> (u16, String) {
        let stream = self.connect(&self.stranger, port).await;
        fetch(stream, path).await
    }

    /// Forwards a port the way kubectl does: SPDY, alone or wrapped in a WebSocket. Gives the answer to `send`.
    pub(crate) async fn forward(&self, port: u16, path: &str, target: &str, wrapped: bool, send: &[u8]) -> String {
        let mut frames = Vec::new();
        let mut writer = Writer::new(&mut frames);
        let headers = |kind: &'static str| [("streamtype", kind), ("port", target), ("requestid", "0")];
        let error = writer.open(&headers("error")).await.expect("opened");
        writer.data(error, &[], true).await.expect("sent");
        let data = writer.open(&headers("data")).await.expect("opened");
        writer.data(data, send, false).await.expect("sent");
        let stream = self.connect(&self.client, port).await;
        if wrapped {
            let mut request = format!("ws://127.0.0.1:{port}{path}").into_client_request().expect("a request");
            let protocol = "SPDY/3.1+portforward.k8s.io".parse().expect("a header");
            request.headers_mut().insert("sec-websocket-protocol", protocol);
            let (socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("upgraded");
            let (mut sink, source) = socket.split();
            sink.send(Message::Binary(Bytes::from(frames))).await.expect("sent");
            let bytes = source.filter_map(|message| async {
                match message {
                    Ok(Message::Binary(data)) => Some(Ok::<_, std::io::Error>(data)),
                    _ => None,
                }
            });
            return answer(Reader::of_client(tokio_util::io::StreamReader::new(Box::pin(bytes))), data).await;
        }
        let (mut read, mut write) = tokio::io::split(stream);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
             X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n"
        );
        write.write_all(head.as_bytes()).await.expect("sent");
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\n") {
            response.push(read.read_u8().await.expect("a head"));
        }
        assert!(response.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&response));
        write.write_all(&frames).await.expect("sent");
        answer(Reader::of_client(read), data).await
    }

    /// Runs a WebSocket session: sends the messages, then collects what comes until the end, by channel.
    pub(crate) async fn session(&self, port: u16, path: &str, protocol: &str, send: &[&[u8]]) -> Vec<(u8, String)> {
        let stream = self.connect(&self.client, port).await;
        let mut request = format!("ws://127.0.0.1:{port}{path}").into_client_request().expect("a request");
        request.headers_mut().insert("sec-websocket-protocol", protocol.parse().expect("a header"));
        let (mut socket, response) = tokio_tungstenite::client_async(request, stream).await.expect("upgraded");
        assert_eq!(response.headers()["sec-websocket-protocol"], protocol);
        for message in send {
            socket.send(Message::Binary(Bytes::copy_from_slice(message))).await.expect("sent");
        }
        let mut seen: Vec<(u8, String)> = Vec::new();
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Close(Some(frame)) = &message {
                // Without a code, kubectl takes the connection for broken.
                assert_eq!(frame.code, CloseCode::Normal);
            }
            let Message::Binary(data) = message else { continue };
            let text = String::from_utf8_lossy(&data[1..]).into_owned();
            match seen.iter_mut().find(|(channel, _)| *channel == data[0]) {
                Some((_, known)) => known.push_str(&text),
                None => seen.push((data[0], text)),
            }
        }
        seen
    }
}

async fn fetch(stream: TlsStream<TcpStream>, path: &str) -> (u16, String) {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a connection");
    let request = http::Request::get(path).header("host", "node").body(Empty::<Bytes>::new()).expect("a request");
    let answer = async {
        let response = sender.send_request(request).await.expect("an answer");
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    };
    tokio::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }
}

/// All that comes on one stream.
async fn answer<R: AsyncRead + Unpin>(mut reader: Reader<R>, stream: u32) -> String {
    let mut all = Vec::new();
    while let Some(frame) = reader.next().await.expect("a frame") {
        match frame {
            Frame::Data { stream: of, fin, data } if of == stream => {
                all.extend_from_slice(&data);
                if fin {
                    break;
                }
            }
            Frame::Reset { stream: of } if of == stream => break,
            _ => {}
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}
