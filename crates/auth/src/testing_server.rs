//! A small HTTP server on loopback, for tests of what is asked of others.

use std::sync::Arc;

use ferry_tasks::Tasks;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What the server was asked.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Vec<Request>>>);

/// Its path and its body.
type Request = (String, Vec<u8>);

impl Asked {
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    pub(crate) fn last(&self) -> Value {
        self.0.lock().last().map(|(_, body)| serde_json::from_slice(body).unwrap_or_default()).unwrap_or_default()
    }
}

/// Answers each request with the code and the body that `answer` makes of its path and body.
pub(crate) async fn serve(
    tasks: &Tasks,
    answer: impl Fn(&str, &[u8]) -> (u16, String) + Send + Sync + 'static,
) -> (String, Asked) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let asked = Asked::default();
    let seen = asked.clone();
    tasks.spawn_until_stopped("server", async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut bytes = Vec::new();
            let (path, body) = loop {
                if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                    break (String::new(), Vec::new());
                }
                let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
                let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
                let length: usize = length.parse().unwrap_or(0);
                if bytes.len() >= end + 4 + length {
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    break (path, bytes[end + 4..].to_vec());
                }
            };
            let (code, text) = answer(&path, &body);
            seen.0.lock().push((path, body));
            let head = format!("HTTP/1.1 {code} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
            let _ = stream.write_all(format!("{head}{text}").as_bytes()).await;
        }
    });
    (url, asked)
}
