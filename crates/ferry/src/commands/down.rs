//! `ferry down`: stops the cluster's process, its pods and its containerd, and takes away what they made on this machine.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ferry_cluster::node::containerd::Containerd;
use ferry_cluster::node::places::Elsewhere;
use ferry_cluster::node::{dns_process, embedded, remove, unit};
use ferry_cluster::{process, quorum};

use crate::arguments::DownOptions;

const STOP_PATIENCE: Duration = Duration::from_secs(30);

pub fn run(options: &DownOptions) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "stopping a cluster needs root; run it as root or with sudo");
    let data_dir = std::path::absolute(&options.folders.data_dir)?;
    let run_dir = std::path::absolute(&options.folders.run_dir)?;

    if let Some(pid) = process::holder(&run_dir.join("ferry.lock"))? {
        if !unit::stop(pid)? {
            process::end(pid, STOP_PATIENCE).context("cannot stop the cluster's process")?;
        }
        println!("stopped the cluster's process");
    }
    // Its own, should the process have been killed.
    quorum::process::end_left(&data_dir, &run_dir)?;
    let containerd = Containerd::new(&data_dir, &run_dir);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(pid) = runtime.block_on(containerd.revive()).context("cannot reach the containers that still run")? {
        if options.graceful {
            told(runtime.block_on(remove::end_containers(&containerd.socket())));
        }
        match runtime.block_on(remove::pods(&containerd.socket())) {
            Ok(count) => println!("stopped {count} pods"),
            Err(error) => eprintln!("cannot stop all pods: {error:#}"),
        }
        process::end(pid, STOP_PATIENCE).context("cannot stop containerd")?;
        println!("stopped containerd");
    }
    if options.graceful {
        told(runtime.block_on(embedded::end_containers(&data_dir, &run_dir)));
    }
    match runtime.block_on(embedded::remove_pods(&data_dir, &run_dir)) {
        Ok(Some(count)) => println!("stopped {count} pods"),
        Ok(None) => {}
        Err(error) => eprintln!("cannot stop all pods: {error:#}"),
    }
    // Pods that end may still ask for names.
    if dns_process::end(&run_dir).context("cannot stop DNS")? {
        println!("stopped DNS");
    }
    let elsewhere = Elsewhere::read(&data_dir)?;
    elsewhere.unmount();
    remove::mounts(&[&data_dir, &run_dir]);
    let bridge = fs::read_to_string(data_dir.join("bridge")).unwrap_or_else(|_| "ferry0".to_owned());
    remove::network(bridge.trim());
    let groups = fs::read_to_string(data_dir.join("cgroup-root")).unwrap_or_else(|_| "/".to_owned());
    remove::control_groups(groups.trim().as_ref());
    if run_dir.exists() {
        remove_folder(&run_dir).with_context(|| format!("cannot remove {}", run_dir.display()))?;
    }
    if options.purge {
        for folder in elsewhere.remove()? {
            println!("removed {}", folder.display());
        }
    }
    if options.purge && data_dir.exists() {
        remove_folder(&data_dir).with_context(|| format!("cannot remove {}", data_dir.display()))?;
        println!("removed {}", data_dir.display());
    }
    Ok(())
}

/// What did not end in time is ended by force afterwards.
fn told(ended: Result<()>) {
    if let Err(error) = ended {
        eprintln!("not all containers ended by themselves: {error:#}");
    }
}

/// Removes a folder, which may be a mount of its own, with all that pods left in it.
fn remove_folder(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        ferry_podfs::remove_all(&entry?.path())?;
    }
    match fs::remove_dir(folder) {
        // It is a disk of its own, which is empty now.
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => Ok(()),
        removed => removed,
    }
}
