//! A log over a WebSocket: what the kubelet sends becomes messages, until it ends or the client goes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_meta::ApiError;
use futures::SinkExt;
use http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::response::answer::Body;
use crate::server::Core;
use crate::transport::kubelet::{self, Target};
use crate::transport::websocket;

const BINARY: &str = "binary.k8s.io";
const BASE64: &str = "base64.binary.k8s.io";

/// Headers of the upgrade, which the kubelet is not to see: it answers with a plain body.
const HOP: [HeaderName; 6] =
    [CONNECTION, UPGRADE, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, SEC_WEBSOCKET_EXTENSIONS];

/// The first of the protocols offered that is known; none offered is one too.
fn protocol(headers: &HeaderMap) -> Result<Option<&'static str>, ApiError> {
    let offered: Vec<&str> = websocket::offered(headers).collect();
    let known = offered.iter().find_map(|name| [BINARY, BASE64].into_iter().find(|known| known == name));
    if known.is_none() && !offered.is_empty() {
        return Err(ApiError::bad_request(format!("none of the WebSocket protocols {offered:?} is spoken here")));
    }
    Ok(known)
}

/// Opens the log at the kubelet and then the socket; a refusal of the kubelet comes back as the answer it is.
pub(super) async fn open(core: &Core, target: &Target, mut request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let protocol = protocol(request.headers())?;
    let client = websocket::Client::of(&mut request);
    for name in HOP {
        request.headers_mut().remove(name);
    }
    let answer = kubelet::forward(&core.tasks, target, request).await?;
    if !answer.status().is_success() {
        return Ok(answer);
    }
    let (body, base64) = (answer.into_body(), protocol == Some(BASE64));
    Ok(client.open(core, "log socket", protocol, move |socket| pump(socket, body, base64)))
}

async fn pump<S: AsyncRead + AsyncWrite + Unpin>(mut socket: WebSocketStream<S>, body: Body, base64: bool) {
    let message = move |data: &[u8]| {
        if base64 { Message::text(STANDARD.encode(data)) } else { Message::binary(data.to_vec()) }
    };
    // An empty message first: the client knows that the stream stands before the container says anything.
    if socket.send(message(&[])).await.is_ok() {
        websocket::pump(socket, body, |data| vec![message(&data)]).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::answer::full;
    use crate::transport::websocket::tests::heard;

    #[tokio::test]
    async fn a_log_becomes_messages() {
        for (base64, want) in [
            (false, vec![Message::binary(Vec::new()), Message::binary(b"alive\n".to_vec())]),
            (true, vec![Message::text(""), Message::text("YWxpdmUK")]),
        ] {
            assert_eq!(heard(|socket| pump(socket, full("alive\n"), base64)).await, want);
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
