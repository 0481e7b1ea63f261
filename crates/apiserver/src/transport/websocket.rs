//! WebSockets that this server ends itself: logs and watches. The streams of exec, attach and port-forward pass through to the kubelet.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::response::answer::{Body, full};
use crate::server::Core;

/// Clients have nothing to say on these sockets; what they say all the same is not kept.
const LARGEST_MESSAGE: usize = 16 * 1024;

/// How long a client has to answer the end of a socket.
const FAREWELL: Duration = Duration::from_secs(10);

pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    upgrade.eq_ignore_ascii_case("websocket") && headers.contains_key(SEC_WEBSOCKET_KEY)
}

/// The protocols that the client offers, without those that carry its token.
pub(crate) fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty() && !ferry_auth::authenticate::is_token_protocol(name))
}

/// A client that wants a socket.
pub(crate) struct Client {
    upgrade: hyper::upgrade::OnUpgrade,
    accept: Option<String>,
}

impl Client {
    pub(crate) fn of(request: &mut Request<Body>) -> Self {
        let accept = request.headers().get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
        Self { upgrade: hyper::upgrade::on(request), accept }
    }

    /// The answer that opens the socket. What happens on it then is `pump`'s.
    pub(crate) fn open<F>(
        self,
        core: &Core,
        name: &'static str,
        protocol: Option<&str>,
        pump: impl FnOnce(WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>) -> F + Send + 'static,
    ) -> Response<Body>
    where
        F: Future<Output = ()> + Send,
    {
        core.tasks.spawn_until_stopped(name, async move {
            let Ok(client) = self.upgrade.await else { return };
            let mut limits = WebSocketConfig::default();
            limits.max_message_size = Some(LARGEST_MESSAGE);
            limits.max_frame_size = Some(LARGEST_MESSAGE);
            pump(WebSocketStream::from_raw_socket(TokioIo::new(client), Role::Server, Some(limits)).await).await;
        });
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        for (name, text) in [(SEC_WEBSOCKET_ACCEPT, self.accept.as_deref()), (SEC_WEBSOCKET_PROTOCOL, protocol)] {
            if let Some(value) = text.and_then(|text| HeaderValue::from_str(text).ok()) {
                headers.insert(name, value);
            }
        }
        response
    }
}

/// Sends what the body says, until it ends or the client goes.
pub(crate) async fn pump<S>(
    mut socket: WebSocketStream<S>,
    mut body: Body,
    mut messages: impl FnMut(Bytes) -> Vec<Message>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        tokio::select! {
            said = socket.next() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            frame = body.frame() => {
                let Some(Ok(frame)) = frame else { break };
                let Ok(data) = frame.into_data() else { continue };
                // The socket copies what it sends: the bytes count as held for the client until it has taken them.
                let held = data.clone();
                for message in messages(data) {
                    if socket.send(message).await.is_err() {
                        return;
                    }
                }
                drop(held);
            }
        }
    }
    let _ = socket.close(None).await;
    // The client's answer to the close, so that what was sent last is not lost with the connection.
    let _ = tokio::time::timeout(FAREWELL, async { while let Some(Ok(_)) = socket.next().await {} }).await;
}

/// A watch over a WebSocket: every event of the answer is a message, as text where it is text.
pub(crate) fn watch(core: &Core, mut request: Request<Body>, answer: Response<Body>) -> Response<Body> {
    let protocol = offered(request.headers()).next().map(str::to_owned);
    let media = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (mut events, body) = (Events::of(media), answer.into_body());
    let client = Client::of(&mut request);
    client.open(core, "watch socket", protocol.as_deref(), move |socket| {
        pump(socket, body, move |data| events.messages(data))
    })
}

/// Takes the events of an answer apart. What comes may be cut anywhere: an event goes out as fragments of one message, as they
/// come, so that a large one is not held here and none is taken for another.
enum Events {
    /// JSON: an event ends with a line break, and has none inside.
    Lines { inside: bool },
    /// Protobuf: an event has its length before it; on a socket the message has it.
    Lengths { header: Vec<u8>, left: usize, inside: bool },
}

impl Events {
    fn of(media: &str) -> Self {
        match media.split(';').next() {
            Some("application/json") => Self::Lines { inside: false },
            _ => Self::Lengths { header: Vec::new(), left: 0, inside: false },
        }
    }

    fn messages(&mut self, mut data: Bytes) -> Vec<Message> {
        let mut messages = Vec::new();
        match self {
            Self::Lines { inside } => {
                while !data.is_empty() {
                    let end = data.iter().position(|byte| *byte == b'\n');
                    let part = data.split_to(end.map_or(data.len(), |end| end + 1));
                    messages.push(fragment(part, Data::Text, inside, end.is_some()));
                }
            }
            Self::Lengths { header, left, inside } => {
                while !data.is_empty() {
                    if !*inside && *left == 0 {
                        header.extend(data.split_to(data.len().min(4 - header.len())));
                        let Ok(length) = <[u8; 4]>::try_from(header.as_slice()) else { break };
                        header.clear();
                        *left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                        if *left == 0 {
                            messages.push(fragment(Bytes::new(), Data::Binary, inside, true));
                        }
                        continue;
                    }
                    let part = data.split_to(data.len().min(*left));
                    *left -= part.len();
                    messages.push(fragment(part, Data::Binary, inside, *left == 0));
                }
            }
        }
        messages
    }
}

fn fragment(part: Bytes, kind: Data, inside: &mut bool, is_last: bool) -> Message {
    let kind = if *inside { Data::Continue } else { kind };
    *inside = !is_last;
    Message::Frame(Frame::message(part, OpCode::Data(kind), is_last))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The messages that a client gets from a server that does this with the socket.
    pub(crate) async fn heard<F>(serve: impl FnOnce(WebSocketStream<tokio::io::DuplexStream>) -> F) -> Vec<Message>
    where
        F: Future<Output = ()>,
    {
        let (near, far) = tokio::io::duplex(1024);
        let server = async { serve(WebSocketStream::from_raw_socket(far, Role::Server, None).await).await };
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
        tokio::join!(server, client).1
    }

    /// The messages that a client puts together from the fragments.
    async fn received(media: &str, pieces: &[&'static [u8]]) -> Vec<Message> {
        let mut events = Events::of(media);
        let frames = pieces.iter().map(|piece| Ok(http_body::Frame::data(Bytes::from_static(piece))));
        let body = http_body_util::StreamBody::new(futures::stream::iter(frames.collect::<Vec<_>>())).boxed_unsync();
        heard(|socket| pump(socket, body, move |data| events.messages(data))).await
    }

    #[tokio::test]
    async fn what_a_client_has_not_taken_counts_as_held() {
        struct Counted(Vec<u8>, #[expect(dead_code, reason = "counts its owners")] std::sync::Arc<()>);
        impl AsRef<[u8]> for Counted {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let count = std::sync::Arc::new(());
        let data = Bytes::from_owner(Counted(vec![b'x'; 100_000], count.clone()));
        let frames = futures::stream::iter([Ok(http_body::Frame::data(data))]);
        let body = http_body_util::StreamBody::new(frames).boxed_unsync();
        let (near, far) = tokio::io::duplex(1024);
        let mut events = Events::of("application/json");
        let socket = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
        let mut pumped = Box::pin(pump(socket, body, move |data| events.messages(data)));
        assert!(futures::poll!(&mut pumped).is_pending());
        assert_eq!(std::sync::Arc::strong_count(&count), 2, "most of it is still here");
        drop(near);
        pumped.await;
        assert_eq!(std::sync::Arc::strong_count(&count), 1);
    }

    #[tokio::test]
    async fn every_event_is_a_message_wherever_the_body_is_cut() {
        let text = |text: &str| Message::text(text);
        let both = [text("{\"a\":\"\u{fc}\"}\n"), text("{\"b\":2}\n")];
        let pieces: [&[&'static [u8]]; 3] = [
            &[b"{\"a\":\"\xc3\xbc\"}\n{\"b\":2}\n"],
            // In the middle of a character, of an event, and before its end.
            &[b"{\"a\":\"\xc3", b"\xbc\"", b"}\n{\"b\"", b":2}", b"\n"],
            &[b"{\"a\":\"\xc3\xbc\"}\n", b"{\"b\":2}\n"],
        ];
        for pieces in pieces {
            assert_eq!(received("application/json", pieces).await, both);
        }
        let protobuf = "application/vnd.kubernetes.protobuf;stream=watch";
        let binary = |bytes: &'static [u8]| Message::binary(bytes);
        let pieces: [&[&'static [u8]]; 2] =
            [&[b"\0\0\0\x06a\0\0\0\x01b\0\0\0\x01c"], &[b"\0\0", b"\0\x06a\0\0", b"\0\x01b\0\0\0", b"\x01", b"c"]];
        for pieces in pieces {
            // What looks like a length inside an event is none.
            assert_eq!(received(protobuf, pieces).await, [binary(b"a\0\0\0\x01b"), binary(b"c")]);
        }
    }
}
