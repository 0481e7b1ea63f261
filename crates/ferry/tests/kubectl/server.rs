//! An API server by itself, and a kubeconfig for it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lines::{Answer, Line, folder, made_equal};

pub struct Server {
    process: Child,
    folder: tempfile::TempDir,
    port: u16,
}

/// Only a test that fails waits for so long.
const PATIENCE: Duration = Duration::from_secs(60);

impl Server {
    pub fn start() -> Self {
        let here = tempfile::tempdir().unwrap();
        let path = |name: &str| here.path().join(name).display().to_string();
        let port = ferry_testkit::free_port();
        std::fs::write(path("tokens"), "root-token,root,1,\"system:masters\"\n").unwrap();
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{ "name": "a", "cluster": {
                "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true,
            } }],
            "users": [{ "name": "a", "user": { "token": "root-token" } }],
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        });
        std::fs::write(path("config"), config.to_string()).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_ferry"))
            .args(["apiserver", "--bind-address=127.0.0.1", &format!("--secure-port={port}")])
            // What the Service `kubernetes` leads to is printed, and is not to differ from machine to machine.
            .arg("--advertise-address=192.0.2.100")
            .args([format!("--data-dir={}", path("data")), format!("--token-auth-file={}", path("tokens"))])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(path("log")).unwrap())
            .spawn()
            .expect("ferry runs");
        let server = Self { process, folder: here, port };
        let begin = Instant::now();
        let ready = || server.run(env!("CARGO_BIN_EXE_ferry").as_ref(), &["kubectl"], "get --raw /readyz");
        while ready().code != 0 {
            let log = std::fs::read_to_string(server.folder.path().join("log")).unwrap_or_default();
            assert!(begin.elapsed() < PATIENCE, "the server does not get ready: {log}");
        }
        server
    }

    /// The kubeconfig of its administrator.
    pub fn config(&self) -> std::path::PathBuf {
        self.folder.path().join("config")
    }

    pub fn run(&self, program: &Path, before: &[&str], line: &str) -> Answer {
        let line = Line::parse(line);
        let here = self.folder.path().display().to_string();
        let stdin = match &line.stdin {
            Some(path) => Stdio::from(std::fs::File::open(folder().join(path)).unwrap()),
            None => Stdio::null(),
        };
        // One that waits for ever fails, and does not hold up the others.
        let output = Command::new("/usr/bin/timeout")
            .arg("60")
            .arg(program)
            .args(before)
            .args(line.words.iter().map(|word| word.replace("$HOME", &here)))
            .current_dir(folder())
            .env("KUBECONFIG", self.config())
            .env("HOME", self.folder.path())
            .env("TZ", "UTC")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env_remove("EDITOR")
            .env_remove("KUBERC")
            .env_remove("KUBE_EDITOR")
            .envs(line.environment)
            .stdin(stdin)
            .output()
            .expect("the program runs");
        Answer {
            output: made_equal(&output.stdout, self.port, &here),
            errors: made_equal(&output.stderr, self.port, &here),
            code: output.status.code().unwrap_or(-1),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
