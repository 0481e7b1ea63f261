//! Nodes of a cluster as the host sees them: started, awaited and ended by the number of their first process.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::host;
use super::init::Start;
use super::plan::{Home, Plan};
use crate::cluster::READY;
use crate::node::{remove, tools};
use crate::{folders, process};

/// How long a node gets to stop in good order.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// How long the kernel may take until the control groups of processes that ended are free.
const GROUP_PATIENCE: Duration = Duration::from_secs(5);

/// A node that has its namespaces and its link, and waits to be told to start.
pub struct Waiting {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
    name: String,
    log: std::path::PathBuf,
    log_start: u64,
}

/// The host's number of a node's first process, if the node runs.
pub fn pid(home: &Home, plan: &Plan, index: usize) -> Result<Option<i32>> {
    process::holder(&home.lock(plan, index))
}

/// Makes a node's namespaces and links it to the bridge.
pub fn prepare(home: &Home, plan: &Plan, index: usize) -> Result<Waiting> {
    let name = plan.machines[index].name.clone();
    let data_dir = home.data_dir(plan, index);
    folders::prepare(&data_dir)?;
    let log = data_dir.join("ferry.log");
    let errors = fs::OpenOptions::new().create(true).append(true).open(&log).context("cannot open the node's log")?;
    let log_start = errors.metadata()?.len();
    let program = tools::find("unshare").context("unshare is not installed (package util-linux)")?;
    let mut process = Command::new(program)
        .args(["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--propagation", "slave", "--"])
        .arg(std::env::current_exe()?)
        .args(["cluster", "--clusters-dir"])
        .arg(&home.0)
        .args(["machine", &plan.name, &index.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(errors)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let output = process.stdout.take().context("the node has no output")?;
    let mut waiting = Waiting { process, output: BufReader::new(output).lines(), name, log, log_start };
    let connected = waiting.first_line().and_then(|pid| host::connect(plan, index, pid));
    if let Err(error) = connected {
        // Without its input it ends.
        drop(waiting.process.stdin.take());
        let _ = waiting.process.wait();
        return Err(error.context(format!("{} has no network", waiting.name)));
    }
    Ok(waiting)
}

impl Waiting {
    fn first_line(&mut self) -> Result<i32> {
        match self.output.next().transpose()?.map(|line| line.trim().parse()) {
            Some(Ok(pid)) => Ok(pid),
            _ => Err(self.failure("")),
        }
    }

    /// Lets the node start; returns once it is Ready.
    pub fn start(mut self, start: &Start) -> Result<()> {
        let mut input = self.process.stdin.take().context("the node takes no input")?;
        writeln!(input, "{}", serde_json::to_string(start)?)?;
        drop(input);
        let mut said = String::new();
        while let Some(line) = self.output.next().transpose()? {
            if line.starts_with(READY) {
                return Ok(());
            }
            said.push_str(&line);
            said.push('\n');
        }
        Err(self.failure(&said))
    }

    fn failure(&mut self, said: &str) -> anyhow::Error {
        // Without its input it ends, if it has not yet.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        let log = tail(&self.log, self.log_start);
        anyhow::anyhow!("{} did not start; it said:\n{said}{log}", self.name)
    }
}

/// The last lines of a log, of this start only.
fn tail(path: &Path, start: u64) -> String {
    let text = fs::read(path).unwrap_or_default();
    let new = text.get(usize::try_from(start).unwrap_or_default()..).unwrap_or_default();
    let text = String::from_utf8_lossy(new);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// Ends a node with all of its processes: in good order, or at once.
pub fn end(home: &Home, plan: &Plan, index: usize, at_once: bool) -> Result<()> {
    if let Some(pid) = pid(home, plan, index)? {
        let patience = if at_once { Duration::ZERO } else { STOP_PATIENCE };
        process::end(pid, patience).with_context(|| format!("cannot stop {}", plan.machines[index].name))?;
    }
    let group = plan.control_group(index);
    let begin = Instant::now();
    while !remove::is_without_control_group(group.as_ref()) {
        remove::control_groups(group.as_ref());
        if begin.elapsed() > GROUP_PATIENCE {
            bail!("the control group {group} of {} cannot be removed", plan.machines[index].name);
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    Ok(())
}

/// Ends all nodes at once: the kernel ends what runs in them.
pub fn end_all(home: &Home, plan: &Plan, at_once: bool) -> Result<()> {
    let all = 0..plan.machines.len();
    let ended: Vec<Result<()>> = std::thread::scope(|scope| {
        let running: Vec<_> = all.map(|index| scope.spawn(move || end(home, plan, index, at_once))).collect();
        let joined = running.into_iter().map(|one| one.join().unwrap_or_else(|_| bail!("it panicked")));
        joined.collect()
    });
    ended.into_iter().collect()
}
