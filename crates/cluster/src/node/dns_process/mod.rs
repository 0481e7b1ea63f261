//! DNS as a process of its own beside the node's: it answers while the node's process is dead or busy, and the node's process
//! starts it again when it is dead.
//!
//! Both hold the sockets. A query that comes while nobody answers waits in them, and the next DNS process answers it. `child` is
//! that process; it has no access to the API server and is told what it answers.

mod child;
mod launch;
mod sockets;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use ferry_tasks::Tasks;
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::node::exited::exited;
use crate::process;
use launch::Running;

/// The binary executed again with this as its first argument is the DNS process.
const COMMAND: &str = "dns-process";
/// What the two tell each other before the feed begins: the process answers; the one before it has gone; it has its place.
const ANSWERS: &str = "answers\n";
const TAKE: &str = "take\n";
const HELD: &str = "held\n";

const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// One that lives this long is started again at once; others wait longer each time.
const LONG_LIFE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What the process is started with. One that was started with something else is replaced.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arguments {
    pub dns: ferry_dns::Config,
    pub data_dir: PathBuf,
    pub run_dir: PathBuf,
}

impl Arguments {
    fn snapshot(&self) -> PathBuf {
        self.data_dir.join("dns-names")
    }

    fn log(&self) -> PathBuf {
        self.data_dir.join("dns.log")
    }

    fn socket(&self) -> PathBuf {
        self.run_dir.join("dns.sock")
    }

    fn lock(&self) -> PathBuf {
        lock(&self.run_dir)
    }
}

fn lock(run_dir: &Path) -> PathBuf {
    run_dir.join("dns.lock")
}

/// To be called first in `main`: runs the DNS process where this process was started as one.
pub fn helper(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.nth(1)? != COMMAND {
        return None;
    }
    let argument = arguments.next().and_then(|argument| argument.into_string().ok()).unwrap_or_default();
    Some(child::main(&argument))
}

/// Ends the DNS process of a node, whoever started it.
pub fn end(run_dir: &Path) -> Result<bool> {
    process::end_holder(&lock(run_dir), STOP_PATIENCE)
}

/// Finds the DNS process that runs already or starts one, and keeps one running and told until the group stops. It outlives
/// the group.
pub async fn start(arguments: Arguments, feeder: ferry_dns::Feeder, tasks: &Tasks) -> Result<()> {
    let running = launch::adopt_or_start(&arguments).await?;
    tasks.spawn_critical_once("dns process", supervise(arguments, feeder, running));
    Ok(())
}

async fn supervise(arguments: Arguments, feeder: ferry_dns::Feeder, mut running: Running) {
    let mut pause = Duration::ZERO;
    loop {
        let since = Instant::now();
        let mut uncollected = None;
        tokio::select! {
            ended = exited(running.pid) => match ended {
                Ok(()) => tracing::warn!("the DNS process ended; starting it again"),
                Err(error) => tracing::warn!("the DNS process cannot be watched, and is replaced: {error:#}"),
            },
            Err(error) = feeder.feed(&mut running.stream) => {
                tracing::warn!("the DNS process takes nothing in any more, and is replaced: {error}");
                uncollected = Pid::from_raw(running.pid);
            }
        }
        pause = if since.elapsed() > LONG_LIFE { Duration::ZERO } else { pause };
        running = loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            match launch::start(&arguments, running.sockets.try_clone()).await {
                Ok(running) => break running,
                Err(error) => tracing::error!("{error:#}"),
            }
        };
        // Its replacement has ended it. A child of ours stays a zombie until it is waited for.
        if uncollected.is_some() {
            let _ = waitpid(uncollected, WaitOptions::NOHANG);
        }
    }
}
