//! Requests through a proxy of the test's own.

#![expect(clippy::disallowed_methods, reason = "the servers of a test end with its runtime")]

use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::proxy::{Proxy, Scheme};
use super::through;

/// The heads of all requests.
type Heard = Arc<Mutex<Vec<String>>>;

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).to_lowercase()
}

/// Answers each request with its first line.
async fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::task::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = head(&mut stream).await;
            let line = head.lines().next().unwrap_or_default();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{line}", line.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    port
}

/// Passes on to wherever it is told, or says what it is given instead.
async fn http_proxy(refusal: Option<&'static str>) -> (u16, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, heard) = (listener.local_addr().unwrap().port(), Heard::default());
    let all = heard.clone();
    tokio::task::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = head(&mut stream).await;
            all.lock().unwrap().push(head.clone());
            if let Some(refusal) = refusal {
                stream.write_all(refusal.as_bytes()).await.unwrap();
                continue;
            }
            let target = head.split(' ').nth(1).unwrap().trim_start_matches("http://").to_owned();
            let mut to = TcpStream::connect(target.split('/').next().unwrap()).await.unwrap();
            match head.starts_with("connect ") {
                true => stream.write_all(b"HTTP/1.1 200 Connection established\r\nvia: x\r\n\r\n").await.unwrap(),
                false => to.write_all(head.as_bytes()).await.unwrap(),
            }
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut to).await;
        }
    });
    (port, heard)
}

/// Knows `jane` with `p:w` and nobody else; answers a request with this code.
async fn socks_proxy(code: u8) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::task::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut greeting = [0; 2];
            stream.read_exact(&mut greeting).await.unwrap();
            let mut methods = vec![0; usize::from(greeting[1])];
            stream.read_exact(&mut methods).await.unwrap();
            if !methods.contains(&2) {
                stream.write_all(&[5, 255]).await.unwrap();
                continue;
            }
            stream.write_all(&[5, 2]).await.unwrap();
            let mut told = [0; 10];
            stream.read_exact(&mut told).await.unwrap();
            assert_eq!(&told, b"\x01\x04jane\x03p:w");
            stream.write_all(&[1, 0]).await.unwrap();
            let mut request = [0; 10];
            stream.read_exact(&mut request).await.unwrap();
            assert_eq!(&request[..8], &[5, 1, 0, 1, 127, 0, 0, 1]);
            stream.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
            if code == 0 {
                let to = u16::from_be_bytes([request[8], request[9]]);
                let mut to = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut to).await;
            }
        }
    });
    port
}

fn proxy(scheme: Scheme, port: u16, user: bool) -> Proxy {
    let user = user.then(|| ("jane".to_owned(), "p:w".to_owned()));
    Proxy { scheme, host: "127.0.0.1".into(), port, user }
}

/// The body, or the last of the reasons why there is none.
async fn ask(port: u16, proxy: Proxy, tunnels: bool) -> Result<String, String> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = kube::Config::new(format!("http://127.0.0.1:{port}").parse().unwrap());
    let client = through::client(config, proxy, tunnels).unwrap();
    let request = http::Request::get("/version").body(kube::client::Body::empty()).unwrap();
    match client.send(request).await {
        Ok(answer) => Ok(String::from_utf8_lossy(&answer.into_body().collect().await.unwrap().to_bytes()).into_owned()),
        Err(error) => {
            let mut last: &dyn std::error::Error = &error;
            while let Some(inner) = last.source() {
                last = inner;
            }
            Err(last.to_string())
        }
    }
}

#[tokio::test]
async fn plain_requests_are_forwarded_with_credentials() {
    let (server, (port, heard)) = (server().await, http_proxy(None).await);
    let body = ask(server, proxy(Scheme::Http, port, true), false).await.unwrap();
    assert_eq!(body, format!("get http://127.0.0.1:{server}/version http/1.1"));
    let heard = heard.lock().unwrap().join("");
    assert!(heard.contains("\r\nproxy-authorization: basic amfuztpwonc=\r\n"), "{heard}");
}

#[tokio::test]
async fn a_tunnel_is_asked_for_once_and_the_server_sees_nothing_of_it() {
    let (server, (port, heard)) = (server().await, http_proxy(None).await);
    let body = ask(server, proxy(Scheme::Http, port, true), true).await.unwrap();
    assert_eq!(body, "get /version http/1.1");
    let heard = heard.lock().unwrap().clone();
    assert_eq!(heard.len(), 1);
    assert!(heard[0].starts_with(&format!("connect 127.0.0.1:{server} http/1.1\r\n")), "{heard:?}");
    assert!(heard[0].contains("\r\nproxy-authorization: basic amfuztpwonc=\r\n"), "{heard:?}");
}

#[tokio::test]
async fn a_proxy_that_refuses_is_an_error_in_its_words() {
    let server = server().await;
    for (answer, why) in [
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "Forbidden"),
        ("HTTP/1.1 407 Proxy Authentication Required\r\nx: y\r\n\r\n", "Proxy Authentication Required"),
        ("HTTP/1.1 502\r\n\r\n", "unknown status code"),
        ("hello\r\n\r\n", "malformed HTTP response \"hello\""),
        ("HTTP/1.1 200", "unexpected EOF"),
        ("", "unexpected EOF"),
    ] {
        let (port, _) = http_proxy(Some(answer)).await;
        assert_eq!(ask(server, proxy(Scheme::Http, port, false), true).await.unwrap_err(), why);
    }
}

#[tokio::test]
async fn a_proxy_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let why = ask(1, proxy(Scheme::Http, port, false), true).await.unwrap_err();
    assert_eq!(why, format!("proxyconnect tcp: dial tcp 127.0.0.1:{port}: connect: connection refused"));
}

#[tokio::test]
async fn socks() {
    let server = server().await;
    let port = socks_proxy(0).await;
    assert_eq!(ask(server, proxy(Scheme::Socks5, port, true), false).await.unwrap(), "get /version http/1.1");
    let begins = |port: u16| format!("socks connect tcp 127.0.0.1:{port}->127.0.0.1:{server}: ");
    let why = ask(server, proxy(Scheme::Socks5, port, false), false).await.unwrap_err();
    assert_eq!(why, begins(port) + "no acceptable authentication methods");
    let port = socks_proxy(2).await;
    let why = ask(server, proxy(Scheme::Socks5, port, true), false).await.unwrap_err();
    assert_eq!(why, begins(port) + "unknown error connection not allowed by ruleset");
}
