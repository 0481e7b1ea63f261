//! A real browser: Chromium without a window, driven by its DevTools protocol through a pipe, so that no port is open and it
//! ends when the pipe does.
//!
//! Whoever waits here waits for something on the page. What the browser complains about is kept: errors of scripts and
//! violations of the Content-Security-Policy.

mod road;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cluster::{PATIENCE, pause};
use road::Road;

/// Nothing leaves the machine, and nothing is asked for that the page did not ask for.
const FLAGS: &[&str] = &[
    "--headless",
    // Tests run as root, where Chromium's own sandbox cannot.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    // A page that nobody looks at is drawn more seldom.
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    "--hide-scrollbars",
    "--lang=en-US",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
];

/// The pipes that Chromium expects as its third and fourth file are its input and its output here.
const WITH_PIPES: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

/// What the page is asked with: elements that can be seen, and pressed.
const HELPERS: &str = include_str!("page.js");

pub const WIDE: (u32, u32) = (1440, 900);
pub const PHONE: (u32, u32) = (390, 844);

pub struct Browser {
    process: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<Value>,
    session: Option<String>,
    sent: u64,
    complaints: Vec<String>,
    pictures: PathBuf,
    name: &'static str,
    profile: tempfile::TempDir,
    pub road: Road,
}

impl Browser {
    /// With one empty page. A scenario that asks for it is skipped where there is none.
    /// It reaches one port of the loopback, and trusts the server with the public key of this digest.
    pub fn start(name: &'static str, port: u16, pin: &str) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let Some(program) = std::env::split_paths(&path).map(|folder| folder.join("chromium")).find(|it| it.exists())
        else {
            ferry_testkit::cannot_run("there is no Chromium; it is in Debian's package chromium")
        };
        let profile = tempfile::tempdir().unwrap();
        let errors = std::fs::File::create(profile.path().join("chromium.log")).unwrap();
        let road = Road::to(port);
        let mut process = Command::new("sh")
            .args(["-c", WITH_PIPES, "sh"])
            .args(road.command(program.to_str().unwrap()))
            .args(FLAGS)
            .arg(format!("--ignore-certificate-errors-spki-list={pin}"))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .expect("a shell runs");
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let (told, answers) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                let value = serde_json::from_slice(message.strip_suffix(&[0]).unwrap_or(&message));
                if told.send(value.unwrap_or_default()).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
        std::fs::create_dir_all(&pictures).unwrap();
        let requests = process.stdin.take();
        let (session, complaints) = (None, Vec::new());
        let mut browser =
            Self { process, requests, answers, session, sent: 0, complaints, pictures, name, profile, road };
        let page = browser.command("Target.createTarget", json!({ "url": "about:blank" }));
        let wanted = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.command("Target.attachToTarget", wanted);
        browser.session = session["sessionId"].as_str().map(ToOwned::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Audits"] {
            browser.command(&format!("{domain}.enable"), json!({}));
        }
        browser.command("Page.addScriptToEvaluateOnNewDocument", json!({ "source": HELPERS }));
        browser.resize(WIDE);
        browser
    }

    /// Sends a command and waits for its answer.
    pub fn command(&mut self, method: &str, parameters: Value) -> Value {
        self.attempt(method, &parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn attempt(&mut self, method: &str, parameters: &Value) -> Result<Value, String> {
        self.sent += 1;
        let id = self.sent;
        let mut request = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        let sent = self.requests.as_mut().map(|pipe| pipe.write_all(format!("{request}\0").as_bytes()));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.ended());
        }
        let begin = Instant::now();
        loop {
            match self.answers.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
                Ok(mut answer) if answer["id"] == id => match answer.get("error") {
                    Some(error) => return Err(error.to_string()),
                    None => return Ok(answer["result"].take()),
                },
                Ok(event) => self.complaints.extend(complaint(&event)),
                Err(RecvTimeoutError::Timeout) => return Err("it is not answered".into()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            }
        }
    }

    fn ended(&self) -> String {
        let log = std::fs::read_to_string(self.profile.path().join("chromium.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("Chromium has ended; it said:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// The value of an expression; promises are waited for. The error is that of the script, or that the page went away.
    fn evaluate(&mut self, expression: &str) -> Result<Value, String> {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.attempt("Runtime.evaluate", &asked)?;
        match answer.get("exceptionDetails") {
            Some(error) => Err(error["exception"]["description"].as_str().unwrap_or("an exception").to_owned()),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    pub fn value(&mut self, expression: &str) -> Value {
        self.evaluate(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Waits until an expression gives something that is true, and returns it.
    pub fn until(&mut self, expression: &str) -> Value {
        let begin = Instant::now();
        loop {
            let found = self.evaluate(expression);
            if let Ok(value) = &found
                && !matches!(value, Value::Null | Value::Bool(false))
                && value != ""
                && value != 0
            {
                return value.clone();
            }
            // A page that is being loaded has no answer yet.
            assert!(begin.elapsed() < PATIENCE, "never true: {expression}; at last: {found:?}");
            pause(Duration::from_millis(50));
        }
    }

    /// Loads a page anew.
    pub fn load(&mut self, url: &str) {
        let answer = self.command("Page.navigate", json!({ "url": url }));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
    }

    /// Follows a link within the pages; what was shown before is gone when it returns.
    pub fn open(&mut self, hash: &str) {
        self.value(&format!("test.open({})", json!(hash)));
    }

    /// Waits for a text that somebody can read on the page.
    pub fn sees(&mut self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", json!(text)));
    }

    /// Presses what has this name, as soon as somebody could: it is in view, not covered, not disabled.
    pub fn press(&mut self, selector: &str, name: &str) {
        self.until(&format!("test.press({}, {})", json!(selector), json!(name)));
    }

    /// Writes into a field in place of what it says.
    pub fn fill(&mut self, selector: &str, text: &str) {
        self.until(&format!("test.choose({})", json!(selector)));
        self.command("Input.insertText", json!({ "text": text }));
    }

    /// Types into what has the focus.
    pub fn types(&mut self, text: &str) {
        for one in text.chars() {
            let key = if one == '\n' { "Enter".to_owned() } else { one.to_string() };
            let text = if one == '\n' { "\r".to_owned() } else { one.to_string() };
            self.command("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": key, "text": text }));
            self.command("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
        }
    }

    pub fn resize(&mut self, (width, height): (u32, u32)) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.command("Emulation.setDeviceMetricsOverride", size);
    }

    /// Keeps a picture of the page in the folder of the tests.
    pub fn picture(&mut self, name: &str) {
        // Two frames, so that what was asked for is drawn, and no animation half way.
        self.value("test.drawn()");
        self.keep_picture(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    fn keep_picture(&mut self, name: &str) -> Result<PathBuf, String> {
        let answer = self.attempt("Page.captureScreenshot", &json!({ "format": "png" }))?;
        let bytes = STANDARD.decode(answer["data"].as_str().unwrap_or_default()).map_err(|error| error.to_string())?;
        let path = self.pictures.join(format!("{name}.png"));
        std::fs::write(&path, bytes).map_err(|error| error.to_string())?;
        Ok(path)
    }

    /// What a screen reader, somebody with weak eyes and the owner of a small screen meet on this page.
    pub fn is_accessible(&mut self, page: &str) {
        let found = self.value("test.barriers()");
        assert_eq!(found, json!([]), "barriers on the page {page}");
    }

    /// What the browser complained about so far. Answers of the server that are no success are no complaints: the pages tell
    /// them.
    pub fn complaints(&mut self) -> Vec<String> {
        // What was said before this answer has been heard.
        self.value("test.drawn()");
        std::mem::take(&mut self.complaints)
    }

    pub fn has_no_complaint(&mut self) {
        assert_eq!(self.complaints(), Vec::<String>::new(), "what the browser complains about");
    }
}

/// What an event of the browser complains about.
fn complaint(event: &Value) -> Option<String> {
    let parameters = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(format!("an exception: {}", parameters["exceptionDetails"])),
        "Runtime.consoleAPICalled" if parameters["type"] == "error" => Some(format!("console.error: {parameters}")),
        "Log.entryAdded" if parameters["entry"]["level"] == "error" && parameters["entry"]["source"] != "network" => {
            Some(format!("the log: {}", parameters["entry"]))
        }
        "Audits.issueAdded" if parameters["issue"]["code"] == "ContentSecurityPolicyIssue" => {
            Some(format!("the Content-Security-Policy: {}", parameters["issue"]["details"]))
        }
        "Inspector.targetCrashed" => Some("the page has crashed".into()),
        _ => None,
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Nothing here may panic: it would end the program, and nobody would be told of the first panic.
        if std::thread::panicking() {
            let text = self.evaluate("location.href + '\\n' + document.body.innerText");
            println!(
                "the page says: {}",
                text.as_ref().map_or_else(|error| error.as_str(), |text| text.as_str().unwrap_or_default())
            );
            println!("the browser complains: {:?}", self.complaints);
            match self.keep_picture(&format!("failed-{}", self.name)) {
                Ok(path) => println!("its picture: {}", path.display()),
                Err(error) => println!("there is no picture of it: {error}"),
            }
        }
        // The end of the pipe is the end of the browser; the kill is for one that hangs.
        drop(self.requests.take());
        let begin = Instant::now();
        while self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            if begin.elapsed() > PATIENCE {
                let _ = self.process.kill();
            }
            pause(Duration::from_millis(20));
        }
    }
}
