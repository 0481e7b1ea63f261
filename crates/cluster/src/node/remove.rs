//! Takes away what a node made on its machine: mounts, the bridge, packet rules, control groups.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use ferry_cri::{CriClient, v1};
use rustix::mount::{UnmountFlags, unmount};

use crate::node::network::{nft, node_table, policy_table, proxy_table, tunnel_device};
use crate::node::tools::run;

/// Stops and removes every pod of a runtime; returns how many there were.
pub async fn pods(socket: &Path) -> Result<usize> {
    let (client, _) = CriClient::connect(&socket.to_string_lossy()).await?;
    let sandboxes = client.list_pod_sandbox(v1::ListPodSandboxRequest::default()).await?.items;
    for sandbox in &sandboxes {
        let pod_sandbox_id = sandbox.id.clone();
        client.stop_pod_sandbox(v1::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() }).await?;
        client.remove_pod_sandbox(v1::RemovePodSandboxRequest { pod_sandbox_id }).await?;
    }
    Ok(sandboxes.len())
}

/// Unmounts everything below the folders, innermost first.
pub fn mounts(folders: &[&Path]) {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .filter(|point| folders.iter().any(|folder| point.starts_with(folder)))
        .collect();
    points.sort();
    for point in points.iter().rev() {
        if let Err(error) = unmount(point, UnmountFlags::DETACH) {
            eprintln!("cannot unmount {}: {error}", point.display());
        }
    }
}

/// Removes the bridge and the packet rules; what is not there is no error.
pub fn network(bridge: &str) {
    let apply = |rules: &str| {
        if let Err(error) = nft(rules) {
            eprintln!("rules for pods may be left in chains of others: {error:#}");
        }
    };
    if let Err(problem) = ferry_nft::remove(bridge, apply) {
        eprintln!("rules for pods may be left in chains of others: {problem}");
    }
    for (family, table) in [
        ("inet", node_table(bridge)),
        ("ip", node_table(bridge)),
        ("ip", proxy_table(bridge)),
        ("ip6", proxy_table(bridge)),
        ("inet", policy_table(bridge)),
        ("bridge", policy_table(bridge)),
        ("inet", ferry_bridge::host_ports_table(bridge)),
    ] {
        let _ = run("nft", &["delete", "table", family, &table]);
    }
    if let Err(error) = ferry_bridge::remove_link(bridge) {
        eprintln!("{error}");
    }
    // Another cluster on this machine puts its own routes back at once.
    if let Err(error) = ferry_network::remove(&tunnel_device(bridge)) {
        eprintln!("{error}");
    }
}

/// Removes the emptied control groups of pods in every hierarchy, and the one that held them if it was made for them.
pub fn control_groups(root: &Path) {
    let Ok(hierarchies) = fs::read_dir("/sys/fs/cgroup") else { return };
    let name = root.strip_prefix("/").unwrap_or(root);
    for mount in hierarchies.flatten().map(|entry| entry.path()).chain([PathBuf::from("/sys/fs/cgroup")]) {
        let holder = mount.join(name);
        remove_tree(&holder.join("kubepods"));
        if !name.as_os_str().is_empty() {
            let _ = fs::remove_dir(holder);
        }
    }
}

/// Whether no hierarchy has it.
pub fn is_without_control_group(root: &Path) -> bool {
    let Ok(hierarchies) = fs::read_dir("/sys/fs/cgroup") else { return true };
    let name = root.strip_prefix("/").unwrap_or(root);
    let mut mounts = hierarchies.flatten().map(|entry| entry.path()).chain([PathBuf::from("/sys/fs/cgroup")]);
    !mounts.any(|mount| mount.join(name).exists())
}

/// rmdir from the leaves up: the files in a control group's folder cannot be deleted and need not be.
fn remove_tree(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for child in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir())) {
        remove_tree(&child.path());
    }
    let _ = fs::remove_dir(folder);
}
