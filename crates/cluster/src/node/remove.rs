//! Takes away what a node made on its machine: mounts, the bridge, packet rules, control groups.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use ferry_cri::{CriClient, v1};
use rustix::mount::{UnmountFlags, unmount};

use crate::node::network::{
    announced_device, nft, node_table, policy_table, proxy_table, tunnel_device, wireguard_device,
};
use crate::node::tools::run;

/// What a kubelet notes at each container, in seconds.
const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
const USUAL_GRACE_PERIOD: i64 = 30;
/// How often mounts are looked for: what ended a moment ago may have made one more.
const MOUNT_LOOKS: usize = 3;

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

/// Lets the containers of a runtime end by themselves, each in the time that its pod gives it.
pub async fn end_containers(socket: &Path) -> Result<()> {
    let (client, _) = CriClient::connect(&socket.to_string_lossy()).await?;
    let running = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
    let filter = v1::ContainerFilter { state: Some(running), ..v1::ContainerFilter::default() };
    let listed = client.list_containers(v1::ListContainersRequest { filter: Some(filter) }).await?;
    let ends = listed.containers.into_iter().map(|container| {
        let grace = container.annotations.get(GRACE_PERIOD).and_then(|seconds| seconds.parse().ok());
        let timeout = grace.unwrap_or(USUAL_GRACE_PERIOD);
        client.stop_container(v1::StopContainerRequest { container_id: container.id, timeout })
    });
    futures::future::join_all(ends).await.into_iter().collect::<Result<(), _>>().map_err(Into::into)
}

/// Unmounts everything below the folders, though not a disk that is mounted at one of them, the newest first: a mount may lie over others at the same place, and whoever mounts
/// while this looks is found the next time.
pub fn mounts(folders: &[&Path]) {
    for _ in 0..MOUNT_LOOKS {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = points_below(&table, folders);
        if points.is_empty() {
            return;
        }
        for point in points {
            if let Err(error) = unmount(&point, UnmountFlags::DETACH)
                // One above it took it along.
                && error != rustix::io::Errno::INVAL
            {
                eprintln!("cannot unmount {}: {error}", point.display());
            }
        }
    }
}

/// As the kernel lists them, oldest first, turned around.
fn points_below(table: &str, folders: &[&Path]) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(1)).map(unescaped);
    let mut points: Vec<PathBuf> =
        points.filter(|point| folders.iter().any(|folder| point.starts_with(folder) && point != *folder)).collect();
    points.reverse();
    points
}

/// The kernel writes blanks, tabs, line ends and backslashes as three octal digits.
pub(super) fn unescaped(point: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(point.len());
    let mut rest = point.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten();
        let value = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Removes the bridge and the packet rules; what is not there is no error.
pub fn network(bridge: &str) {
    let apply = |rules: &str| {
        if let Err(error) = nft(rules) {
            eprintln!("packet rules for pods may be left in chains of other software: {error:#}");
        }
    };
    if let Err(problem) = ferry_nft::remove(bridge, apply) {
        eprintln!("packet rules for pods may be left in chains of other software: {problem}");
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
    if let Err(error) = ferry_network::remove_announced(&announced_device(bridge)) {
        eprintln!("{error}");
    }
    for device in [tunnel_device(bridge), wireguard_device(bridge)] {
        // Another cluster on this machine puts its own routes back at once.
        if let Err(error) = ferry_network::remove(&device) {
            eprintln!("{error}");
        }
    }
}

/// Removes the emptied control groups of pods in every hierarchy, and the one that held them if it was made for them.
pub fn control_groups(root: &Path) {
    let Ok(hierarchies) = fs::read_dir("/sys/fs/cgroup") else { return };
    let name = root.strip_prefix("/").unwrap_or(root);
    for slice in [ferry_kubelet::slice_of(&name.join("kubepods")), ferry_kubelet::slice_of(name)] {
        // Only where systemd was the driver; the root of all is no slice of ours.
        if let Some(unit) = slice.file_name().filter(|_| Path::new("/sys/fs/cgroup").join(&slice).exists())
            && let Err(error) = run("systemctl", &["stop", &unit.to_string_lossy()])
        {
            eprintln!("{error:#}");
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_taken_away_newest_first_and_by_their_whole_names() {
        let table = "proc /proc proc rw 0 0\n\
                     tmpfs /run/a/pods/z tmpfs rw 0 0\n\
                     tmpfs /run/a/pods/with\\040blank tmpfs rw 0 0\n\
                     tmpfs /run/ab/other tmpfs rw 0 0\n\
                     ext4 /run/a ext4 rw 0 0\n\
                     overlay /run/a/pods/z overlay rw 0 0\n";
        let found = points_below(table, &[Path::new("/run/a")]);
        assert_eq!(found, ["/run/a/pods/z", "/run/a/pods/with blank", "/run/a/pods/z"].map(PathBuf::from));
        assert_eq!(unescaped("/a\\134b\\x"), PathBuf::from("/a\\b\\x"));
    }
}
