//! A real browser: Chromium without a window, driven by its DevTools protocol.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_tungstenite::tungstenite::Message;

use crate::alone::runtime;
use crate::cluster::pause;

const PATIENCE: Duration = Duration::from_secs(120);
const PROGRAM: &str = "chromium-headless-shell";

type Socket = tokio_tungstenite::WebSocketStream<tokio::net::TcpStream>;

pub struct Browser {
    process: Child,
    runtime: Runtime,
    socket: Socket,
    sent: u64,
    _folder: tempfile::TempDir,
}

impl Browser {
    /// With one empty page. A scenario that asks for it is skipped where there is none.
    pub fn start() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|program| program.exists());
        let Some(program) = program else {
            ferry_testkit::cannot_run("there is no Chromium; it is in Debian's package chromium-headless-shell")
        };
        let folder = tempfile::tempdir().unwrap();
        let process = Command::new(program)
            // Tests run as root, where Chromium's own sandbox cannot; the server's certificate is of its own authority.
            .args(["--no-sandbox", "--ignore-certificate-errors", "--remote-debugging-port=0", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--window-size=1440,900"])
            .arg(format!("--user-data-dir={}", folder.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Chromium starts");
        let known = folder.path().join("DevToolsActivePort");
        let begin = Instant::now();
        let port: u16 = loop {
            let text = std::fs::read_to_string(&known).unwrap_or_default();
            if let Some(port) = text.lines().next().and_then(|line| line.parse().ok()) {
                break port;
            }
            assert!(begin.elapsed() < PATIENCE, "Chromium tells no port");
            pause(Duration::from_millis(20));
        };
        let runtime = runtime();
        let socket = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (socket, _) = tokio_tungstenite::client_async(page(port), stream).await.expect("the page answers");
            socket
        });
        let mut browser = Self { process, runtime, socket, sent: 0, _folder: folder };
        browser.command("Page.enable", &json!({}));
        browser.command("Runtime.enable", &json!({}));
        browser
    }

    /// Sends a command and waits for its answer.
    pub fn command(&mut self, method: &str, parameters: &Value) -> Value {
        self.sent += 1;
        let (id, text) = (self.sent, json!({ "id": self.sent, "method": method, "params": parameters }).to_string());
        let socket = &mut self.socket;
        let answered = async {
            socket.send(Message::text(text)).await.unwrap();
            loop {
                let message = socket.next().await.expect("the browser lives").unwrap();
                let Ok(answer) = serde_json::from_str::<Value>(message.to_text().unwrap_or_default()) else { continue };
                if answer["id"] == id {
                    return answer;
                }
            }
        };
        let answer = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, answered).await });
        let answer = answer.unwrap_or_else(|_| panic!("{method} is not answered"));
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    pub fn go(&mut self, url: &str) {
        self.command("Page.navigate", &json!({ "url": url }));
    }

    /// The value of an expression; promises are waited for.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true });
        let answer = self.command("Runtime.evaluate", &asked);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.value(&format!("Boolean({expression})")) != true {
            if begin.elapsed() >= PATIENCE {
                let text = self.value("document.body.innerText");
                panic!("never true: {expression}\nthe page says: {}", text.as_str().unwrap_or_default());
            }
            pause(Duration::from_millis(50));
        }
    }

    /// Waits for a text that somebody can read on the page.
    pub fn sees(&mut self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text)));
    }

    /// Waits for an element, and clicks it.
    pub fn click(&mut self, selector: &str) {
        let selector = json!(selector);
        self.until(&format!("document.querySelector({selector}) && !document.querySelector({selector}).disabled"));
        self.value(&format!("document.querySelector({selector}).click()"));
    }

    /// Writes into a field as a person does: whoever listens hears of it.
    pub fn fill(&mut self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!("document.querySelector({selector})"));
        self.value(&format!(
            "(() => {{ const field = document.querySelector({selector}); field.value = {text}; field.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
        ));
    }

    /// Types into what has the focus.
    pub fn types(&mut self, text: &str) {
        for one in text.chars() {
            let (key, text) =
                if one == '\n' { ("Enter".to_owned(), "\r".to_owned()) } else { (one.to_string(), one.to_string()) };
            self.command("Input.dispatchKeyEvent", &json!({ "type": "keyDown", "key": key, "text": text }));
            self.command("Input.dispatchKeyEvent", &json!({ "type": "keyUp", "key": key }));
        }
    }

    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.command("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Keeps a picture of the page where `FERRY_SCREENSHOTS` says.
    pub fn picture(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("FERRY_SCREENSHOTS").map(PathBuf::from) else { return };
        // What moves has come to rest by then, and nothing depends on it.
        pause(Duration::from_millis(400));
        let answer = self.command("Page.captureScreenshot", &json!({ "format": "png" }));
        let bytes = base64::engine::general_purpose::STANDARD.decode(answer["data"].as_str().unwrap()).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
    }
}

/// Where the first page is driven.
fn page(port: u16) -> String {
    let begin = Instant::now();
    loop {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request = format!("GET /json/list HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let (found, answer) = document(&mut stream);
        let pages = found.as_array().into_iter().flatten().find(|target| target["type"] == "page");
        if let Some(url) = pages.and_then(|target| target["webSocketDebuggerUrl"].as_str()) {
            return url.to_owned();
        }
        assert!(begin.elapsed() < PATIENCE, "Chromium has no page: {answer}");
        pause(Duration::from_millis(20));
    }
}

/// The JSON of an answer, as soon as all of it is there: the browser keeps the connection.
fn document(stream: &mut TcpStream) -> (Value, String) {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut part).unwrap_or(0);
        answer.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let found = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
        if let Some(found) = found {
            return (found, text);
        }
        if read == 0 {
            return (Value::Null, text);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
