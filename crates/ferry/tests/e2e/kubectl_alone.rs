//! An API server by itself, for what needs no node: `ferry apiserver` in a folder of its own, driven by kubectl.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{PATIENCE, free_port, kubectl_path, pause};

pub struct Alone {
    pub folder: tempfile::TempDir,
    pub port: u16,
    kubectl: PathBuf,
    process: Child,
}

impl Alone {
    /// `flags` may name files of the folder as `{folder}`; `files` are written there first.
    pub fn start(files: &[(&str, &str)], flags: &[&str]) -> Self {
        let kubectl = kubectl_path();
        let folder = tempfile::Builder::new().prefix("ferry-alone-").tempdir().expect("a folder");
        std::fs::write(folder.path().join("tokens"), "root-token,root,1,\"system:masters\"\nbob-token,bob,2\n")
            .unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let port = free_port();
        let process = Self::spawn(&folder, port, flags);
        let alone = Self { folder, port, kubectl, process };
        alone.wait();
        alone
    }

    fn spawn(folder: &tempfile::TempDir, port: u16, flags: &[&str]) -> Child {
        let place = folder.path().to_str().expect("a path of plain characters");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.path().join("log")).unwrap();
        Command::new(env!("CARGO_BIN_EXE_ferry"))
            .args(["apiserver", "--bind-address=127.0.0.1", &format!("--secure-port={port}")])
            .args([format!("--data-dir={place}/data"), format!("--token-auth-file={place}/tokens")])
            .args(flags.iter().map(|flag| flag.replace("{folder}", place)))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("ferry runs")
    }

    fn wait(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.run("root-token", &["get", "--raw", "/readyz"], "").status.success() {
            assert!(Instant::now() < deadline, "the server does not get ready: {}", self.log());
            pause(Duration::from_millis(50));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn run(&self, token: &str, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(&self.kubectl)
            .args(["--kubeconfig=/dev/null", "--insecure-skip-tls-verify"])
            .args([format!("--server=https://127.0.0.1:{}", self.port), format!("--token={token}")])
            .args(arguments)
            .env("HOME", self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap()
    }

    /// What kubectl says as root; it must succeed. Warnings come with it.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run("root-token", arguments, input);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "kubectl {arguments:?}: {}\n{}", text(&output.stderr), self.log());
        text(&output.stdout) + &text(&output.stderr)
    }

    /// The same for what must be refused.
    pub fn refused(&self, token: &str, arguments: &[&str], input: &str) -> String {
        let output = self.run(token, arguments, input);
        assert!(!output.status.success(), "kubectl {arguments:?} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
