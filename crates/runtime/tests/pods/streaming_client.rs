//! The clients' side of the streaming protocols, as little as the tests need.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

fn host(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").expect("a plain address");
    rest.split_at(rest.find('/').expect("a path"))
}

/// Talks over a WebSocket: sends `input`, gives what came on each channel.
pub async fn channels(url: &str, input: &[u8]) -> [Vec<u8>; 4] {
    let input = (!input.is_empty()).then(|| [&[0], input].concat());
    talk(url, "v4.channel.k8s.io", input.into_iter().collect()).await
}

/// The same, and closes the input behind it.
pub async fn channels_closed(url: &str, input: &[u8]) -> [Vec<u8>; 4] {
    talk(url, "v5.channel.k8s.io", vec![[&[0], input].concat(), vec![255, 0]]).await
}

async fn talk(url: &str, protocol: &str, messages: Vec<Vec<u8>>) -> [Vec<u8>; 4] {
    let (address, _) = host(url);
    let mut request = url.replace("http://", "ws://").into_client_request().expect("a request");
    request.headers_mut().insert("sec-websocket-protocol", protocol.parse().expect("a value"));
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("a WebSocket");
    for message in messages {
        socket.send(Message::Binary(message.into())).await.expect("sent");
    }
    let mut seen = [const { Vec::new() }; 4];
    let reading = async {
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Binary(data) = message
                && let Some((channel, data)) = data.split_first()
            {
                seen[usize::from(*channel)].extend_from_slice(data);
                if *channel == 3 {
                    break;
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("an end");
    seen
}

/// Forwards one connection over a WebSocket: sends `input`, gives what the port answered until it ended.
pub async fn forward_by_channels(url: &str, port: u16, input: &[u8]) -> Vec<u8> {
    let (address, _) = host(url);
    let mut request = url.replace("http://", "ws://").into_client_request().expect("a request");
    let offered = "v5.channel.k8s.io, v4.channel.k8s.io";
    request.headers_mut().insert("sec-websocket-protocol", offered.parse().expect("a value"));
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("a WebSocket");
    let message = [&[0], input].concat();
    socket.send(Message::Binary(message.into())).await.expect("sent");
    let mut seen = [const { Vec::new() }; 2];
    let reading = async {
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Binary(data) = message
                && let Some((channel, data)) = data.split_first()
            {
                seen[usize::from(*channel)].extend_from_slice(data);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("an end");
    let [data, errors] = seen;
    assert_eq!(errors, port.to_le_bytes());
    assert!(data.starts_with(&port.to_le_bytes()), "{data:?}");
    data[2..].to_vec()
}

/// Forwards one connection over SPDY: sends `input`, gives what the port answered and what went wrong.
pub async fn forward(url: &str, port: u16, input: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (address, path) = host(url);
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("an answer"));
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    let port = port.to_string();
    for (place, kind) in ["error", "data"].into_iter().enumerate() {
        let number = u32::try_from(place * 2 + 1).expect("small");
        let headers = [("streamtype", kind), ("port", port.as_str()), ("requestid", "0")];
        stream.write_all(&open(number, &headers, place == 0)).await.expect("sent");
    }
    stream.write_all(&data(3, input)).await.expect("sent");
    let (mut error, mut output) = (Vec::new(), Vec::new());
    let reading = async {
        let mut ended = 0;
        while ended < 2 {
            let first = stream.read_u32().await.expect("a frame");
            let second = stream.read_u32().await.expect("a frame");
            let mut body = vec![0; (second & 0xff_ffff) as usize];
            stream.read_exact(&mut body).await.expect("a frame");
            if first & 0x8000_0000 == 0 {
                if first == 3 { &mut output } else { &mut error }.extend_from_slice(&body);
                ended += usize::from(second >> 24 & 1 == 1);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("an end");
    (output, error)
}

fn open(stream: u32, headers: &[(&str, &str)], first: bool) -> Vec<u8> {
    let mut plain = u32::try_from(headers.len()).expect("few").to_be_bytes().to_vec();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        plain.extend_from_slice(&u32::try_from(text.len()).expect("short").to_be_bytes());
        plain.extend_from_slice(text.as_bytes());
    }
    let length = u16::try_from(plain.len()).expect("short");
    let mut body = [stream.to_be_bytes().as_slice(), &[0; 6]].concat();
    if first {
        body.extend_from_slice(&[0x78, 0x01]);
    }
    body.push(0);
    body.extend_from_slice(&length.to_le_bytes());
    body.extend_from_slice(&(!length).to_le_bytes());
    body.extend_from_slice(&plain);
    body.extend_from_slice(&[0, 0, 0, 0xff, 0xff]);
    let size = u32::try_from(body.len()).expect("short");
    [&[0x80, 3, 0, 1], size.to_be_bytes().as_slice(), &body].concat()
}

fn data(stream: u32, bytes: &[u8]) -> Vec<u8> {
    let size = u32::try_from(bytes.len()).expect("short");
    [stream.to_be_bytes().as_slice(), &size.to_be_bytes(), bytes].concat()
}
