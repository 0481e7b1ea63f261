//! A cluster of its own for the tests: own folders, ports, bridge and address ranges, removed at the end whatever happens.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use ferry_testkit::free_port;
use serde_json::Value;

/// How long a state that must come may take to come. Long: a loaded machine is slow, and no test asserts on time.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Where its pods have their addresses.
pub const POD_RANGE: &str = "10.207.0.0/16";

pub struct Cluster {
    folder: tempfile::TempDir,
    run_dir: tempfile::TempDir,
    kubectl: PathBuf,
    flags: Vec<String>,
    port: u16,
    registry: String,
}

/// The kubectl that `hack/setup.sh --test` found or built. A scenario that asks for it is skipped where there is none.
pub fn kubectl_path() -> PathBuf {
    let path = ferry_testkit::cache().join("kubectl");
    if !path.exists() {
        ferry_testkit::cannot_run(NO_KUBECTL);
    }
    path
}

const NO_KUBECTL: &str = "there is no kubectl of 1.32 or newer";

impl Cluster {
    /// Why this machine can have no cluster that kubectl drives.
    pub fn missing() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("a node needs root".into());
        }
        (!ferry_testkit::cache().join("kubectl").exists()).then(|| NO_KUBECTL.into())
    }

    pub fn start() -> Self {
        Self::start_with(Vec::new())
    }

    pub fn start_with(more_flags: Vec<String>) -> Self {
        if let Some(reason) = Self::missing() {
            ferry_testkit::cannot_run(&reason);
        }
        let registry = std::env::var("FERRY_TEST_REGISTRY").unwrap_or_else(|_| "http://127.0.0.1:5057".into());
        let folder = tempfile::Builder::new().prefix("ferry-e2e-").tempdir().expect("a folder for the cluster");
        // As an administrator makes it: closing it is up to Ferry.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("a mode");
        // Short: the path of a socket has at most 108 bytes.
        let run_dir = tempfile::Builder::new().prefix("ferry-e2e-").tempdir_in("/run").expect("a folder for sockets");
        let text = |path: &std::path::Path| path.to_str().expect("a path of plain characters").to_owned();
        let port = free_port();
        let flags = [
            ("data-dir", text(folder.path())),
            ("run-dir", text(run_dir.path())),
            ("secure-port", port.to_string()),
            ("kubelet-port", free_port().to_string()),
            ("dns-port", free_port().to_string()),
            ("cluster-cidr", POD_RANGE.into()),
            ("service-cluster-ip-range", "10.208.0.0/16".into()),
            ("bridge", "ferrytest0".into()),
            ("cgroup-root", "/ferrytest".into()),
            ("node-name", "e2e".into()),
            ("registry-mirror", format!("docker.io={registry}")),
            ("registry-mirror", format!("registry.k8s.io={registry}")),
        ];
        // `containerd` runs every scenario on containerd.
        let runtime = std::env::var("FERRY_TEST_RUNTIME").ok();
        let runtime = runtime.map(|runtime| format!("--container-runtime-endpoint={runtime}"));
        let flags = flags.into_iter().map(|(name, value)| format!("--{name}={value}"));
        let flags = flags.chain(runtime.filter(|_| !more_flags.iter().any(|flag| flag.contains("runtime-endpoint"))));
        let flags = flags.chain(more_flags).collect();
        let cluster = Self { folder, run_dir, kubectl: kubectl_path(), flags, port, registry };
        cluster.up();
        cluster
    }

    pub fn ferry(&self) -> Command {
        Command::new(env!("CARGO_BIN_EXE_ferry"))
    }

    /// `ferry up` with this cluster's flags; returns when the node is Ready.
    pub fn up(&self) {
        let output = self.ferry().arg("up").args(&self.flags).output().expect("ferry runs");
        print!("{}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "ferry up failed: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// `ferry down`: the data stays.
    pub fn down(&self) {
        let folders = &self.flags[..2];
        let output = self.ferry().arg("down").args(folders).output().expect("ferry runs");
        assert!(output.status.success(), "ferry down failed: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Whether containers run without containerd.
    pub fn is_embedded(&self) -> bool {
        !self.flags.iter().any(|flag| flag == "--container-runtime-endpoint=containerd")
    }

    pub fn data_dir(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub fn run_dir(&self) -> &std::path::Path {
        self.run_dir.path()
    }

    /// The number of the cluster's process.
    pub fn pid(&self) -> i32 {
        let text = std::fs::read_to_string(self.run_dir.path().join("ferry.lock")).expect("the lock file");
        text.trim().parse().expect("a process id")
    }

    /// The end that gives nothing a chance to be put in order.
    pub fn kill(&self) {
        end(rustix::process::Pid::from_raw(self.pid()).expect("a process id"));
    }

    /// `host:port` of the registry that holds the test's images.
    pub fn registry(&self) -> &str {
        self.registry.trim_start_matches("http://")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub fn try_kubectl(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(&self.kubectl)
            .arg("--kubeconfig")
            .arg(self.folder.path().join("kubeconfig"))
            .args(arguments)
            .env("HOME", self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        child.stdin.take().expect("its input").write_all(input.as_bytes()).ok();
        child.wait_with_output().expect("kubectl ends")
    }

    /// Runs kubectl, which must succeed, and returns what it printed.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.kubectl_with(arguments, "")
    }

    pub fn kubectl_with(&self, arguments: &[&str], input: &str) -> String {
        let output = self.try_kubectl(arguments, input);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {} failed: {errors}", arguments.join(" "));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs kubectl, which must fail, and returns what it complained about.
    pub fn kubectl_refused(&self, arguments: &[&str], input: &str) -> String {
        let output = self.try_kubectl(arguments, input);
        assert!(!output.status.success(), "kubectl {} succeeded", arguments.join(" "));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub fn apply(&self, manifest: &str) {
        self.kubectl_with(&["apply", "-f", "-"], manifest);
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.extend(["-o", "json"]);
        serde_json::from_str(&self.kubectl(&all)).expect("kubectl prints JSON")
    }

    pub fn items(&self, arguments: &[&str]) -> Vec<Value> {
        self.json(arguments)["items"].as_array().cloned().unwrap_or_default()
    }

    /// What went on, for the reader of a failed run.
    pub fn show_state(&self) {
        for arguments in [&["get", "pods", "-A", "-o", "wide"][..], &["get", "events", "-A"]] {
            let output = self.try_kubectl(arguments, "");
            println!("{}", String::from_utf8_lossy(&output.stdout));
        }
        let log = std::fs::read_to_string(self.folder.path().join("ferry.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        println!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let output = self.ferry().arg("down").args(&self.flags[..2]).output();
        // A second panic would end the whole program, and nobody would be told of the first.
        if !std::thread::panicking() {
            let output = output.expect("ferry runs");
            assert!(output.status.success(), "ferry down failed: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// Kills a process and returns when it is gone, with its locks and ports: a signal alone only says that it will be.
pub fn end(pid: rustix::process::Pid) {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    let _ = pidfd_send_signal(&handle, Signal::KILL);
    poll(&mut [PollFd::new(&handle, PollFlags::IN)], None).expect("its end");
}

/// Waits until `probe` gives a value. The deadline only ends a test that has failed already.
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(begin.elapsed() < PATIENCE, "never happened: {what}");
        pause(Duration::from_millis(100));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test that looks at a real cluster from outside has no event to wait for"
)]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// One HTTP GET without a library: the body, or None when nothing answered well and in time.
pub fn http_get(address: &str, port: u16) -> Option<String> {
    http_get_path(address, port, "/")
}

pub fn http_get_path(address: &str, port: u16, path: &str) -> Option<String> {
    use std::io::Read;
    let target = format!("{address}:{port}").parse().ok()?;
    let mut stream = std::net::TcpStream::connect_timeout(&target, Duration::from_secs(5)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| body.trim().to_owned())
}

/// Asks the Service again and again in the background; `finish` returns how many requests were made and how many failed.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    worker: std::thread::JoinHandle<(usize, usize)>,
}

impl Traffic {
    pub fn start(address: String, port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let worker = std::thread::spawn(move || {
            let (mut made, mut failed) = (0, 0);
            while !seen.load(Ordering::Relaxed) {
                made += 1;
                failed += usize::from(http_get(&address, port).is_none());
                pause(Duration::from_millis(5));
            }
            (made, failed)
        });
        Self { stop, worker }
    }

    pub fn finish(self) -> (usize, usize) {
        self.stop.store(true, Ordering::Relaxed);
        self.worker.join().expect("the traffic's thread")
    }
}
