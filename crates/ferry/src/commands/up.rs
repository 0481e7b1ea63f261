//! `ferry up`: starts `ferry run` in the background and shows its progress until the node is Ready.

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::arguments::ClusterOptions;
use crate::cluster::READY;
use crate::config::ClusterConfig;
use crate::node::tools;
use crate::process;

/// How long a process that was just killed may hold on to its lock.
const DYING: Duration = Duration::from_secs(1);

pub fn run(options: &ClusterOptions) -> Result<()> {
    let config = ClusterConfig::check(options)?;
    tools::check(&config.container_runtime)?;
    if let Some(pid) = process::holder(&config.run_dir.join("ferry.lock"))?
        && !process::ends_within(pid, DYING)?
    {
        println!("the cluster runs already (process {pid})");
        println!("kubeconfig: {}", config.kubeconfig().display());
        return Ok(());
    }
    config.check_ports()?;
    fs::create_dir_all(&config.data_dir).with_context(|| format!("cannot create {}", config.data_dir.display()))?;

    let log_path = config.log_file();
    let log = fs::OpenOptions::new().create(true).append(true).open(&log_path).context("cannot open the log")?;
    let log_start = log.metadata()?.len();
    // The same flags again: what `up` checked, `run` takes.
    let arguments = std::env::args_os().skip(2);
    let mut child = Command::new(std::env::current_exe()?)
        .arg("run")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("cannot start the cluster's process")?;
    let progress = child.stdout.take().context("the cluster's process has no output")?;
    for line in BufReader::new(progress).lines() {
        let line = line?;
        println!("{line}");
        if line.starts_with(READY) {
            return Ok(());
        }
    }
    let status = child.wait()?;
    bail!("the cluster did not start ({status}); the end of {}:\n{}", log_path.display(), tail(&log_path, log_start)?)
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
