//! `ferry up`: starts `ferry run` in the background and shows its progress until the node is Ready.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferry_cluster::cluster::READY;
use ferry_cluster::config::{ClusterConfig, NodeConfig};
use ferry_cluster::node::tools;
use ferry_cluster::quorum::member;
use ferry_cluster::{folders, process, quorum};

use crate::arguments::{ClusterOptions, command_line};

/// How long a process that was just killed may hold on to its lock.
const DYING: Duration = Duration::from_secs(1);

pub fn run(options: &ClusterOptions) -> Result<()> {
    let line = command_line();
    let config = ClusterConfig::check(&quorum::with_known_settings(options, &line)?, line)?;
    tools::check(&config.node.container_runtime)?;
    if let Some(pid) = process::holder(&config.node.run_dir.join("ferry.lock"))?
        && !process::ends_within(pid, DYING)?
    {
        println!("the cluster runs already (process {pid})");
        println!("kubeconfig: {}", config.kubeconfig().display());
        return Ok(());
    }
    config.check_ports()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(config.node.check_network())?;
    if member::is_wanted(&config)? {
        member::record(&config)?;
        quorum::process::program(config.member.etcd_binary.as_deref())?;
    }
    // The same flags again: what `up` checked, `run` takes.
    start_in_background(&config.node, &["run"], std::env::args_os().skip(2))
}

/// Starts this program again with other words in the background, its log in the data folder, and shows what it says until it is
/// ready.
pub fn start_in_background(config: &NodeConfig, words: &[&str], flags: impl Iterator<Item = OsString>) -> Result<()> {
    folders::prepare(&config.data_dir)?;
    let log_path = config.log_file();
    let log = fs::OpenOptions::new().create(true).append(true).open(&log_path).context("cannot open the log")?;
    let log_start = log.metadata()?.len();
    let mut child = Command::new(std::env::current_exe()?)
        .args(words)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("cannot start the process in the background")?;
    let progress = child.stdout.take().context("the process in the background has no output")?;
    for line in BufReader::new(progress).lines() {
        let line = line?;
        println!("{line}");
        if line.starts_with(READY) {
            return Ok(());
        }
    }
    let status = child.wait()?;
    bail!("it did not start ({status}); the end of {}:\n{}", log_path.display(), tail(&log_path, log_start)?)
}

/// The last lines of the log, of this start only.
fn tail(path: &Path, start: u64) -> Result<String> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(start.max(length.saturating_sub(4096))))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}
