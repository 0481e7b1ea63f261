//! `kubectl proxy` on a port of its own, asked by plain HTTP, and a file that `-f` fetches from it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::lines::folder;
use crate::server::Server;

struct Proxy {
    process: Child,
    address: String,
}

impl Proxy {
    fn start(server: &Server, flags: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_ferry"))
            .args(["kubectl", "proxy"])
            .args(flags)
            .env("KUBECONFIG", server.config())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let address = first.trim().strip_prefix("Starting to serve on ").unwrap_or_else(|| panic!("{first}"));
        Self { address: address.to_owned(), process }
    }

    /// The answer, up to the end of the connection or of this text.
    fn ask(&self, method: &str, path: &str, headers: &str, until: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
        write!(socket, "{method} {path} HTTP/1.1\r\n{host}{headers}\r\n").unwrap();
        let (mut found, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let read = socket.read(&mut piece).unwrap();
            found.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&found).into_owned();
            if read == 0 || (!until.is_empty() && text.contains(until)) {
                return text;
            }
        }
    }

    fn get(&self, path: &str) -> String {
        self.ask("GET", path, "Connection: close\r\n", "")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_proxy_serves_the_api_and_a_folder() {
    let server = Server::start();
    let files = folder().join("files").display().to_string();
    let proxy = Proxy::start(&server, &["--port=0", "--www", &files, "--reject-methods=^DELETE$"]);
    for (path, begin, part) in [
        ("/version", "HTTP/1.1 200", "\"major\""),
        ("/api/v1/namespaces/default", "HTTP/1.1 200", "\"name\":\"default\""),
        ("/api/v1/namespaces/nope", "HTTP/1.1 404", "\"reason\":\"NotFound\""),
        ("//api/../version", "HTTP/1.1 301", "location: /version"),
        ("/api/v1/namespaces/default/pods/a/exec", "HTTP/1.1 403", "Forbidden"),
        ("/api/v1/namespaces/default/pods/a/%65xec", "HTTP/1.1 403", "Forbidden"),
        ("/static/env.txt", "HTTP/1.1 200", "text/plain"),
        ("/static/kuberc", "HTTP/1.1 301", "location: kuberc/"),
        ("/static/kuberc/", "HTTP/1.1 200", "good.yaml"),
        ("/static/../../../../etc/hostname", "HTTP/1.1 301", "location: /etc/hostname"),
        ("/static/%2e%2e/lines.txt", "HTTP/1.1 301", "location: /lines.txt"),
        ("/static/nope", "HTTP/1.1 404", "404 page not found"),
    ] {
        let answer = proxy.get(path);
        let told = answer.replace(": \"", ":\"");
        assert!(answer.starts_with(begin) && told.contains(part), "{path}: {answer}");
    }
    let foreign = proxy.ask("GET", "/version", "Host: evil.example.com\r\nConnection: close\r\n", "");
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
    let deleted = proxy.ask("DELETE", "/api/v1/namespaces/default", "Connection: close\r\n", "");
    assert!(deleted.starts_with("HTTP/1.1 403"), "{deleted}");
    let broken = proxy.get("/%zz");
    assert!(broken.starts_with("HTTP/1.1 400"), "{broken}");
    // Another protocol passes as it is: a watch in frames of a WebSocket.
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    let watched = proxy.ask("GET", "/api/v1/namespaces?watch=1", upgrade, "\"ADDED\"");
    assert!(watched.starts_with("HTTP/1.1 101"), "{watched}");
    // A file of another machine.
    let line = format!("create --dry-run=client -o name -f http://{}/static/many.yaml", proxy.address);
    let fetched = server.run(env!("CARGO_BIN_EXE_ferry").as_ref(), &["kubectl"], &line);
    let local = server.run(
        env!("CARGO_BIN_EXE_ferry").as_ref(),
        &["kubectl"],
        "create --dry-run=client -o name -f files/many.yaml",
    );
    assert_eq!((fetched.code, &fetched.output), (0, &local.output), "{}", fetched.errors);
    let line = format!("create -f http://{}/static/nope.yaml", proxy.address);
    let missing = server.run(env!("CARGO_BIN_EXE_ferry").as_ref(), &["kubectl"], &line);
    assert!(missing.errors.contains("server reported 404 Not Found, status code=404"), "{}", missing.errors);
}

#[test]
fn a_proxy_has_a_prefix_and_a_socket() {
    let server = Server::start();
    let proxy = Proxy::start(&server, &["--port=0", "--api-prefix=/custom"]);
    assert!(proxy.get("/custom/version").starts_with("HTTP/1.1 200"));
    assert!(proxy.get("/custom").starts_with("HTTP/1.1 301"));
    assert!(proxy.get("/version").starts_with("HTTP/1.1 404"));
    let own = proxy.ask("GET", "/custom/api/v1/nodes", "Authorization: Bearer wrong\r\nConnection: close\r\n", "");
    assert!(own.starts_with("HTTP/1.1 401"), "{own}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let proxy = Proxy::start(&server, &["--unix-socket", &path.display().to_string()]);
    assert_eq!(proxy.address, path.display().to_string());
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "for its owner alone");
    let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
