//! The etcd of this machine as a process that Ferry starts, watches and stops.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use ferry_tasks::Tasks;
use tokio::process::{Child, Command};

use super::member;
use super::record::{self, Record};
use crate::{node::tools, process, signals};

const STOP_PATIENCE: Duration = Duration::from_secs(15);
const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// The largest object and what its transaction adds to it.
const MAX_REQUEST_BYTES: usize = 2 << 20;
/// What `ferry envtest` puts where etcd is looked for says this with its version.
pub const STAND_IN: &str = "Ferry's stand-in";

/// Answered when this server was taken out of the cluster.
pub type Removed = tokio::sync::oneshot::Receiver<()>;

/// How the program is called.
pub struct Etcd {
    program: PathBuf,
    flags: Vec<String>,
    log: PathBuf,
    pid_file: PathBuf,
    data: PathBuf,
}

/// The program that was named, or `etcd` on the path, which must be new enough.
pub fn program(given: Option<&Path>) -> Result<PathBuf> {
    let program = match given {
        Some(path) => path.to_owned(),
        None => tools::find("etcd").context(
            "etcd is not installed on this machine; install it (Debian: etcd-server), or give its path with --etcd-binary",
        )?,
    };
    let output = std::process::Command::new(&program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        !text.contains(STAND_IN),
        "{} is {STAND_IN} for etcd, which is for tests and keeps no cluster; install etcd (Debian: etcd-server), or name the \
         program with --etcd-binary",
        program.display()
    );
    let version = version(&text).with_context(|| format!("{} is no etcd: it reports no version", program.display()))?;
    ensure!(
        version >= (3, 4),
        "{} is etcd {}.{}; servers need 3.4 or newer, which knows learners",
        program.display(),
        version.0,
        version.1
    );
    Ok(program)
}

/// From `etcd Version: 3.4.23`.
fn version(text: &str) -> Option<(u32, u32)> {
    let number = text.lines().find_map(|line| line.strip_prefix("etcd Version:"))?.trim();
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Etcd {
    pub fn new(program: PathBuf, record: &Record, data_dir: &Path, run_dir: &Path, quota: Option<u64>) -> Result<Self> {
        let [certificate, key, ca] =
            record::authority(data_dir)?.files(&record.leaf()).map(|path| path.display().to_string());
        let (data, client, peer) = (record::data(data_dir), record.client_url(), record.peer_url());
        let local = record::url([127, 0, 0, 1].into(), record.client_port);
        let token = crate::fleet::token::ca_hash(&fs::read_to_string(&ca)?)?;
        let mut flags = vec![
            format!("--name={}", record.name),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client},{local}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={}", record.initial_cluster.join(",")),
            format!("--initial-cluster-state={}", if record.joined { "existing" } else { "new" }),
            // Members of another cluster are told apart, should addresses be used again.
            format!("--initial-cluster-token={token}"),
            "--client-cert-auth=true".into(),
            "--peer-client-cert-auth=true".into(),
            format!("--max-request-bytes={MAX_REQUEST_BYTES}"),
            "--logger=zap".into(),
            "--log-level=warn".into(),
        ];
        for (flag, file) in [("cert-file", &certificate), ("key-file", &key), ("trusted-ca-file", &ca)] {
            flags.extend([format!("--{flag}={file}"), format!("--peer-{flag}={file}")]);
        }
        flags.extend(quota.map(|bytes| format!("--quota-backend-bytes={bytes}")));
        Ok(Self { program, flags, log: data_dir.join("etcd.log"), pid_file: run_dir.join("etcd.pid"), data })
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Starts it, and again whenever it ends, until the group stops; it is then told to stop, too. Once the other servers know
    /// this one no longer it is not started again, and that is told.
    pub fn start(self, record: Record, data_dir: PathBuf, tasks: &Tasks) -> Result<Removed> {
        end_running(&self.pid_file, &self.data)?;
        let mut child = self.spawn(&[])?;
        let stopping = tasks.stopping();
        let (tell, removed) = tokio::sync::oneshot::channel();
        tasks.spawn("etcd", async move {
            loop {
                let ended = tokio::select! {
                    ended = child.wait() => ended,
                    () = stopping.cancelled() => break,
                };
                if member::is_removed(&record, &data_dir).await {
                    tracing::error!("{}", member::removed_text(&record));
                    let _ = tell.send(());
                    return;
                }
                tracing::error!("etcd exited ({ended:?}); restarting it, see {}", self.log.display());
                loop {
                    if stopping.run_until_cancelled(tokio::time::sleep(RESTART_PAUSE)).await.is_none() {
                        return;
                    }
                    match self.spawn(&[]) {
                        Ok(started) => {
                            child = started;
                            break;
                        }
                        Err(error) => tracing::error!("{error:#}"),
                    }
                }
            }
            stop(&mut child).await;
            let _ = fs::remove_file(&self.pid_file);
        });
        Ok(removed)
    }

    /// Runs it with more flags for as long as `work` takes or until this process is told to stop, without starting it again.
    pub async fn run_while<T>(self, more: &[&str], work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut child = self.spawn(more)?;
        let outcome = tokio::select! {
            outcome = signals::unless_told(work) => outcome,
            ended = child.wait() => Err(anyhow!("etcd ended ({ended:?})")),
        };
        stop(&mut child).await;
        let _ = fs::remove_file(&self.pid_file);
        outcome
    }

    fn spawn(&self, more: &[&str]) -> Result<Child> {
        fs::create_dir_all(&self.data)?;
        fs::set_permissions(&self.data, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        let log = fs::OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        // A group of its own: Ctrl-C on Ferry's terminal must not reach it before Ferry is done with it.
        command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.args(&self.flags).args(more).spawn().context("cannot start etcd")?;
        if let Some(pid) = child.id() {
            fs::write(&self.pid_file, pid.to_string())?;
        }
        Ok(child)
    }
}

async fn stop(child: &mut Child) {
    let pid = child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(STOP_PATIENCE, child.wait()).await.is_err() {
        tracing::warn!("etcd does not stop; killing it");
        let _ = child.kill().await;
    }
}

/// Ends one that a server, or a command that made a new cluster, left behind when it was killed.
pub fn end_left(data_dir: &Path, run_dir: &Path) -> Result<()> {
    for folder in [run_dir, data_dir] {
        end_running(&folder.join("etcd.pid"), &record::data(data_dir))?;
    }
    Ok(())
}

/// Recognised by its data folder: a number in a file may long belong to someone else.
fn end_running(pid_file: &Path, data: &Path) -> Result<()> {
    let Ok(text) = fs::read_to_string(pid_file) else { return Ok(()) };
    let Ok(pid) = text.trim().parse::<i32>() else { return Ok(()) };
    let Ok(command) = fs::read(format!("/proc/{pid}/cmdline")) else { return Ok(()) };
    let own = format!("--data-dir={}", data.display());
    if command.split(|byte| *byte == 0).any(|argument| argument == own.as_bytes()) {
        process::end(pid, STOP_PATIENCE).context("cannot stop the etcd of an earlier start")?;
    }
    Ok(())
}

/// Fails when a member's port is in use.
pub fn check_ports(record: &Record) -> Result<()> {
    for (port, flag) in [(record.client_port, "etcd-client-port"), (record.peer_port, "etcd-peer-port")] {
        if let Err(error) = std::net::TcpListener::bind((record.address, port)) {
            bail!("etcd cannot use port {port} of {}: {error}; choose another with --{flag}", record.address);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version("etcd Version: 3.4.23\nGit SHA: x\n"), Some((3, 4)));
        assert_eq!(version("etcd Version: 3.10.0-rc.1\n"), Some((3, 10)));
        assert_eq!(version("bash, version 5"), None);
        assert!(program(Some(Path::new("/bin/true"))).unwrap_err().to_string().contains("is no etcd"));
        let folder = tempfile::tempdir().unwrap();
        let stand_in = folder.path().join("etcd");
        fs::write(&stand_in, format!("#!/bin/sh\necho 'etcd Version: 3.6.0'\necho \"{STAND_IN} for etcd\"\n")).unwrap();
        fs::set_permissions(&stand_in, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let error = program(Some(&stand_in)).unwrap_err().to_string();
        assert!(error.contains("is for tests"), "{error}");
    }

    #[test]
    fn what_a_killed_command_left_behind_is_ended() {
        let (data_dir, run_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = format!("--data-dir={}", record::data(data_dir.path()).display());
        for folder in [&data_dir, &run_dir] {
            // Waits for a line that nobody sends.
            let mut left = std::process::Command::new("sh");
            let mut left = left.args(["-c", "read line", &own]).stdin(Stdio::piped()).spawn().unwrap();
            let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
            // For a moment a program that has just been started has no words yet.
            while fs::read(format!("/proc/{}/cmdline", left.id())).unwrap().is_empty() {}
            let pid_file = folder.path().join("etcd.pid");
            fs::write(&pid_file, other.id().to_string()).unwrap();
            end_left(data_dir.path(), run_dir.path()).unwrap();
            assert!(other.try_wait().unwrap().is_none(), "the number is somebody else's by now");
            fs::write(&pid_file, left.id().to_string()).unwrap();
            end_left(data_dir.path(), run_dir.path()).unwrap();
            assert_eq!(left.wait().unwrap().code(), None, "by a signal");
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }
}
