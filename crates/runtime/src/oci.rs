//! The program that makes containers from a bundle: its command line, in one place.
//!
//! It is `runc`, or what takes the same arguments. It is always run by somebody who waits for it: the pod's shim, or
//! Ferry itself where the shim is gone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Clone, Debug)]
pub(crate) struct Oci {
    pub(crate) program: PathBuf,
    pub(crate) root: PathBuf,
}

impl Oci {
    fn command(&self, log: &Path) -> Command {
        let _ = std::fs::remove_file(log);
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(&self.root).arg("--log").arg(log).args(["--log-format", "json"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        command
    }

    pub(crate) fn create(
        &self,
        log: &Path,
        bundle: &Path,
        pid_file: &Path,
        console: Option<&Path>,
        id: &str,
    ) -> Command {
        let mut command = self.command(log);
        command.arg("create").arg("--bundle").arg(bundle).arg("--pid-file").arg(pid_file);
        if let Some(console) = console {
            command.arg("--console-socket").arg(console);
        }
        command.arg(id);
        command
    }

    pub(crate) fn exec(
        &self,
        log: &Path,
        process: &Path,
        pid_file: &Path,
        console: Option<&Path>,
        id: &str,
    ) -> Command {
        let mut command = self.command(log);
        command.args(["exec", "--detach", "--process"]).arg(process).arg("--pid-file").arg(pid_file);
        if let Some(console) = console {
            command.arg("--console-socket").arg(console);
        }
        command.arg(id);
        command
    }

    pub(crate) fn start(&self, log: &Path, id: &str) -> Command {
        let mut command = self.command(log);
        command.args(["start", id]);
        command
    }

    pub(crate) fn kill(&self, log: &Path, id: &str, signal: i32) -> Command {
        let mut command = self.command(log);
        command.args(["kill", id, &signal.to_string()]);
        command
    }

    pub(crate) fn kill_all(&self, log: &Path, id: &str) -> Command {
        let mut command = self.command(log);
        command.args(["kill", "--all", id, "KILL"]);
        command
    }

    /// Kills what is left of it, and takes away its state and control groups.
    pub(crate) fn delete(&self, log: &Path, id: &str) -> Command {
        let mut command = self.command(log);
        command.args(["delete", "--force", id]);
        command
    }

    pub(crate) fn update(&self, log: &Path, resources: &Path, id: &str) -> Command {
        let mut command = self.command(log);
        command.arg("update").arg("--resources").arg(resources).arg(id);
        command
    }
}

/// What the program wrote of its failure.
pub(crate) fn failure(log: &Path, code: i32) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let mut messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let last = messages.rfind(|m| m["level"] == "error" || m["level"] == "fatal");
    match last.and_then(|m| m["msg"].as_str().map(str::to_owned)) {
        Some(message) => message,
        None => format!("it ended with code {code} and said nothing"),
    }
}
