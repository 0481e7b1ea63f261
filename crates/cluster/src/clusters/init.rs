//! The first process of a node: gives it mounts, a name and an address, runs Ferry in it, and collects processes that end.
//!
//! It says the host's number of its process on its output, is told by a line on its input that the link to the bridge is
//! there, and passes on what Ferry says. When it ends, the kernel ends every process of the node.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, FromArgMatches};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{Pid, Signal, WaitOptions, kill_process};
use serde::{Deserialize, Serialize};

use super::host;
use super::plan::{Home, Plan, Role};
use crate::cluster::READY;
use crate::fleet::join::{self, Hops};
use crate::fleet::membership::Membership;
use crate::options::JoinOptions;
use crate::process::Lock;
use crate::quorum::Record;
use crate::signals;

/// Each node has a `/run` of its own.
pub const RUN_DIR: &str = "/run/ferry";
/// How long a Ferry that ended is left alone before it is started again.
const RESTART: Duration = Duration::from_secs(1);
/// What systemd-resolved asks itself, where `/etc/resolv.conf` only names its own address.
const UPSTREAM_RESOLVERS: &str = "/run/systemd/resolve/resolv.conf";

/// What a node is told once its link is there.
#[derive(Default, Serialize, Deserialize)]
pub struct Start {
    /// For a node or a server that has not joined yet.
    pub token: Option<String>,
}

pub fn run(home: &Home, name: &str, index: usize) -> Result<()> {
    let plan = home.find(name)?;
    ensure!(index < plan.machines.len(), "the cluster has no node {index}");
    // Still the host's /proc, which knows this process by the host's number.
    let pid: i32 = fs::read_link("/proc/self")?.to_string_lossy().parse().context("/proc is none")?;
    ensure!(std::process::id() == 1, "this command is only for `ferry cluster`");
    let lock = Lock::take_as(&home.lock(&plan, index), pid)?;
    println!("{pid}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    ensure!(!line.is_empty(), "nobody waits for this node any more");
    let start: Start = serde_json::from_str(&line).context("the line that starts a node cannot be read")?;
    prepare_mounts().context("cannot set up the node's mounts")?;
    rustix::system::sethostname(plan.machines[index].name.as_bytes()).context("cannot set the node's host name")?;
    host::configure_inside(&plan, index)?;
    let data_dir = home.data_dir(&plan, index);
    if !has_joined(&plan, index, &data_dir)? {
        join_cluster(&plan, index, &data_dir, start.token.as_deref())?;
    }
    let supervised = supervise(&plan, index, &data_dir);
    drop(lock);
    supervised
}

/// The host's file systems, with `/proc` and `/run` of its own; what is mounted here stays here.
fn prepare_mounts() -> Result<()> {
    let resolvers = resolvers();
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    // Pods may ask for mounts that come and go with the node's.
    mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("proc", "/proc", "proc", flags | MountFlags::NOEXEC, c"")?;
    mount("tmpfs", "/run", "tmpfs", flags, c"mode=0755")?;
    let Some((file, text)) = resolvers else { return Ok(()) };
    if let Ok(inside) = file.strip_prefix("/run") {
        let file = Path::new("/run").join(inside);
        fs::create_dir_all(file.parent().unwrap_or(Path::new("/run")))?;
        fs::write(file, text)?;
    } else {
        let own = Path::new("/run/resolv.conf");
        fs::write(own, text)?;
        mount_bind(own, &file)?;
    }
    Ok(())
}

/// Where the addresses of DNS servers are, and what must be there in a node: the host's loopback is not its own.
fn resolvers() -> Option<(PathBuf, String)> {
    let file = fs::canonicalize("/etc/resolv.conf").ok()?;
    let text = fs::read_to_string(&file).ok()?;
    let upstream = || fs::read_to_string(UPSTREAM_RESOLVERS).ok();
    let text = if is_loopback_only(&text) { upstream().unwrap_or(text) } else { text };
    Some((file, text))
}

fn is_loopback_only(text: &str) -> bool {
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.filter_map(|address| address.trim().parse::<IpAddr>().ok()).all(|address| address.is_loopback())
}

/// Whether a machine knows its cluster; the first server is one.
pub fn has_joined(plan: &Plan, index: usize, data_dir: &Path) -> Result<bool> {
    Ok(match plan.machines[index].role {
        Role::Server => index == 0 || Record::read(data_dir)?.is_some(),
        Role::Node => Membership::read(data_dir)?.is_some(),
    })
}

fn join_cluster(plan: &Plan, index: usize, data_dir: &Path, token: Option<&str>) -> Result<()> {
    let token = token.context("this node has not joined yet, and got no token")?;
    let server = plan.server();
    let mut words = vec![server, token.to_owned()];
    words.extend(plan.flags(index, data_dir));
    if plan.machines[index].role == Role::Server {
        words.push("--server".to_owned());
    }
    let command = JoinOptions::augment_args(clap::Command::new("join").no_binary_name(true));
    let options = JoinOptions::from_arg_matches(&command.try_get_matches_from(words)?)?;
    match options.server {
        true => join::prepare_server(&options, &Hops::new()).map(drop),
        false => join::prepare(&options, &Hops::new()),
    }
}

/// Runs Ferry until this process is told to stop; started again when it ends by itself.
fn supervise(plan: &Plan, index: usize, data_dir: &Path) -> Result<()> {
    let (stop, told) = Stop::listen()?;
    let words: &[&str] = if plan.machines[index].role == Role::Server { &["run"] } else { &["node", "run"] };
    let mut ready = false;
    while !stop.asked.load(Ordering::SeqCst) {
        let log = fs::OpenOptions::new().create(true).append(true).open(data_dir.join("ferry.log"));
        let mut child = Command::new(std::env::current_exe()?)
            .args(words)
            .args(plan.flags(index, data_dir))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.context("cannot open the node's log")?)
            .spawn()
            .context("cannot run Ferry in the node")?;
        let said = child.stdout.take().map(pass_on);
        stop.wait_for(Pid::from_child(&child));
        // What it said before it ended is passed on in full.
        ready |= said.and_then(|said| said.join().ok()).unwrap_or_default();
        ensure!(ready || stop.asked.load(Ordering::SeqCst), "Ferry did not start in the node");
        let _ = told.recv_timeout(RESTART);
    }
    Ok(())
}

/// Whether this process was told to stop, and whom it passes that on to.
#[derive(Default)]
struct Stop {
    asked: AtomicBool,
    ferry: AtomicI32,
}

impl Stop {
    /// Also what wakes whoever waits for nothing but that.
    fn listen() -> Result<(Arc<Self>, Receiver<()>)> {
        let (stop, (tell, told)) = (Arc::new(Self::default()), mpsc::channel());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let noted = stop.clone();
        std::thread::spawn(move || {
            while runtime.block_on(signals::wait()).is_ok() {
                noted.asked.store(true, Ordering::SeqCst);
                noted.pass_on();
                let _ = tell.send(());
            }
        });
        Ok((stop, told))
    }

    fn pass_on(&self) {
        if let Some(ferry) = Pid::from_raw(self.ferry.load(Ordering::SeqCst)) {
            let _ = kill_process(ferry, Signal::TERM);
        }
    }

    /// Collects processes that ended until Ferry is among them.
    fn wait_for(&self, ferry: Pid) {
        self.ferry.store(ferry.as_raw_nonzero().get(), Ordering::SeqCst);
        if self.asked.load(Ordering::SeqCst) {
            self.pass_on();
        }
        loop {
            match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, _))) if pid != ferry => {}
                Err(rustix::io::Errno::INTR) => {}
                _ => break,
            }
        }
        self.ferry.store(0, Ordering::SeqCst);
    }
}

/// Passes on what Ferry says; whether it was ready.
fn pass_on(output: ChildStdout) -> std::thread::JoinHandle<bool> {
    std::thread::spawn(move || {
        let mut ready = false;
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            ready |= line.starts_with(READY);
            // Whoever started the node has left by then.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
        ready
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_of_the_hosts_loopback_are_seen() {
        assert!(is_loopback_only("nameserver 127.0.0.53\nsearch .\n"));
        assert!(!is_loopback_only("nameserver 127.0.0.1\nnameserver 192.0.2.1\n"));
    }
}
