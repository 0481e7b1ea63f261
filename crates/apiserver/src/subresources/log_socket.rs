//! A log over a WebSocket: what the kubelet sends becomes messages, until it ends or the client goes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_meta::ApiError;
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::answer::{Body, full};
use crate::kubelet::{self, Target};
use crate::server::Core;

const BINARY: &str = "binary.k8s.io";
const BASE64: &str = "base64.binary.k8s.io";

/// Headers of the upgrade, which the kubelet is not to see: it answers with a plain body.
const HOP: [HeaderName; 6] =
    [CONNECTION, UPGRADE, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, SEC_WEBSOCKET_EXTENSIONS];

pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    upgrade.eq_ignore_ascii_case("websocket") && headers.contains_key(SEC_WEBSOCKET_KEY)
}

/// The first of the protocols offered that is known; none offered is one too.
fn protocol(headers: &HeaderMap) -> Result<Option<&'static str>, ApiError> {
    let offered: Vec<&str> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty() && !ferry_auth::authenticate::is_token_protocol(name))
        .collect();
    let known = offered.iter().find_map(|name| [BINARY, BASE64].into_iter().find(|known| known == name));
    if known.is_none() && !offered.is_empty() {
        return Err(ApiError::bad_request(format!("none of the WebSocket protocols {offered:?} is spoken here")));
    }
    Ok(known)
}

/// Opens the log at the kubelet and then the socket; a refusal of the kubelet comes back as the answer it is.
pub(super) async fn open(core: &Core, target: &Target, mut request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let protocol = protocol(request.headers())?;
    let key = request.headers().get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let client = hyper::upgrade::on(&mut request);
    for name in HOP {
        request.headers_mut().remove(name);
    }
    let answer = kubelet::forward(&core.tasks, target, request).await?;
    if !answer.status().is_success() {
        return Ok(answer);
    }
    core.tasks.spawn_until_stopped("log socket", async move {
        let Ok(client) = client.await else { return };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(client), Role::Server, None).await;
        pump(socket, answer.into_body(), protocol == Some(BASE64)).await;
    });
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(key) = key.and_then(|key| HeaderValue::from_str(&key).ok()) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, key);
    }
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok(response)
}

async fn pump<S: AsyncRead + AsyncWrite + Unpin>(mut socket: WebSocketStream<S>, mut body: Body, base64: bool) {
    let message = |data: &[u8]| {
        if base64 { Message::text(STANDARD.encode(data)) } else { Message::binary(data.to_vec()) }
    };
    // An empty message first: the client knows that the stream stands before the container says anything.
    if socket.send(message(&[])).await.is_err() {
        return;
    }
    loop {
        tokio::select! {
            said = socket.next() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            frame = body.frame() => {
                let Some(Ok(frame)) = frame else { break };
                if let Ok(data) = frame.into_data()
                    && socket.send(message(&data)).await.is_err()
                {
                    return;
                }
            }
        }
    }
    let _ = socket.close(None).await;
    // The client's answer to the close, so that what was sent last is not lost with the connection.
    while let Some(Ok(_)) = socket.next().await {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_log_becomes_messages() {
        for (base64, want) in [
            (false, vec![Message::binary(Vec::new()), Message::binary(b"alive\n".to_vec())]),
            (true, vec![Message::text(""), Message::text("YWxpdmUK")]),
        ] {
            let (near, far) = tokio::io::duplex(1024);
            let server = async {
                let socket = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
                pump(socket, full("alive\n"), base64).await;
            };
            let client = async {
                let mut socket = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
                let mut got = Vec::new();
                while let Some(Ok(message)) = socket.next().await {
                    if !message.is_close() {
                        got.push(message);
                    }
                }
                got
            };
            let ((), got) = tokio::join!(server, client);
            assert_eq!(got, want);
        }
    }

    #[test]
    fn the_protocol_is_the_first_that_is_known() {
        for (offered, want) in [
            ("", Some(None)),
            ("binary.k8s.io", Some(Some(BINARY))),
            ("v5.channel.k8s.io, base64.binary.k8s.io", Some(Some(BASE64))),
            ("base64url.bearer.authorization.k8s.io.AAAA", Some(None)),
            ("v5.channel.k8s.io", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(SEC_WEBSOCKET_PROTOCOL, offered.parse().expect("a header"));
            assert_eq!(protocol(&headers).ok(), want, "{offered}");
        }
    }
}
