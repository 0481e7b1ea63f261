//! The pod network of one node: its settings, the CNI configuration by which runtimes find it, and the way out.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use ferry_nft::{Guard, Guarded, Legacy, Nft, Passage};
use ferry_semantics::cidr::IpNet;
use ferry_server::pki::write_private;
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::config::NodeConfig;
use crate::node::tools::run;
use crate::ranges::{self, Ranges};

const BRIDGE_FILTERING: [&str; 2] =
    ["/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/net/bridge/bridge-nf-call-ip6tables"];

/// The packet-rule tables of a cluster are named after its bridge, so that two clusters on one machine do not meet.
pub fn node_table(bridge: &str) -> String {
    format!("{bridge}-node")
}

pub fn proxy_table(bridge: &str) -> String {
    format!("{bridge}-proxy")
}

/// Of both families of addresses, unlike the others.
pub fn policy_table(bridge: &str) -> String {
    format!("{bridge}-policy")
}

/// The device of the tunnel between nodes; the bridge's name may have as many characters as the kernel takes.
pub fn tunnel_device(bridge: &str) -> String {
    format!("{}-vx", &bridge[..bridge.len().min(12)])
}

/// Where packets end that are for a LoadBalancer Service's address and for none of its ports.
pub fn announced_device(bridge: &str) -> String {
    format!("{}-lb", &bridge[..bridge.len().min(12)])
}

/// What pods of this node are attached to.
pub async fn settings(config: &NodeConfig, pod_cidrs: &Ranges) -> Result<ferry_bridge::Settings> {
    Ok(ferry_bridge::Settings {
        bridge: config.bridge.clone(),
        // Where the node's address is no device's, the kernel's own default holds.
        mtu: ferry_network::pod_mtu(config.node_ip, config.cluster.pod_network).await.unwrap_or_default(),
        ranges: pod_cidrs.texts(),
        state: config.run_dir.join("pod-network"),
        nft: tool("nft")?.into(),
    })
}

/// The device of WireGuard between nodes.
pub fn wireguard_device(bridge: &str) -> String {
    format!("{}-wg", &bridge[..bridge.len().min(12)])
}

/// What this node encrypts for others with; none where the mode is another.
pub fn wireguard_key(config: &NodeConfig) -> Result<Option<ferry_network::wireguard::PrivateKey>> {
    if config.cluster.pod_network != ferry_network::Mode::Wireguard {
        return Ok(None);
    }
    let key = ferry_network::wireguard::PrivateKey::load(&config.data_dir.join("wireguard.key"));
    key.map(Some).context("this node has no key for --pod-network wireguard")
}

/// Makes the bridge with the gateway's address and lets the node forward; may run again at any time.
pub async fn prepare(settings: &ferry_bridge::Settings) -> Result<()> {
    let taken_back = ferry_bridge::prepare(settings.clone()).await.context("cannot set up the pod network")?;
    if taken_back > 0 {
        tracing::info!(addresses = taken_back, "reclaimed addresses of pods that are gone");
    }
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot enable packet forwarding")?;
    if settings.ranges.iter().any(|range| range.contains(':')) {
        forward_ipv6().context("cannot enable IPv6 forwarding")?;
    }
    // Packets between two pods of one bridge must pass the packet rules, or a Service's answer comes from the wrong address.
    if !filters_bridged_packets() {
        tracing::error!(
            "this kernel does not filter bridged packets (br_netfilter, {} and {}): NetworkPolicies are not enforced between pods on this node",
            BRIDGE_FILTERING[0],
            BRIDGE_FILTERING[1]
        );
    }
    Ok(())
}

/// A node that forwards takes no more word from routers, unless it is told to. Those devices that did go on with it.
pub fn forward_ipv6() -> std::io::Result<()> {
    for entry in fs::read_dir("/proc/sys/net/ipv6/conf")?.flatten() {
        let file = entry.path().join("accept_ra");
        if fs::read_to_string(&file).is_ok_and(|text| text.trim() == "1") {
            let _ = fs::write(&file, "2");
        }
    }
    fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")
}

/// The ranges of a node's pods, from the moment it has them.
pub fn pod_ranges(node: &Node) -> Option<Vec<String>> {
    let spec = node.spec.as_ref()?;
    let several = spec.pod_cidrs.clone().filter(|list| !list.is_empty());
    several.or_else(|| spec.pod_cidr.clone().map(|one| vec![one]))
}

/// Whether the kernel shows packets between two pods of one node to the packet rules, after it was told to. Loads the module
/// where there is one.
pub fn filters_bridged_packets() -> bool {
    if !BRIDGE_FILTERING.iter().all(|file| Path::new(file).exists()) {
        let _ = run("modprobe", &["br_netfilter"]);
    }
    BRIDGE_FILTERING.iter().all(|file| is_switched_on(Path::new(file)))
}

/// What counts is what the kernel says afterwards: it may have been on before, in a file that cannot be written.
fn is_switched_on(file: &Path) -> bool {
    let _ = fs::write(file, "1");
    fs::read_to_string(file).is_ok_and(|text| text.trim() == "1")
}

/// Keeps NetworkPolicies in force, and tells the kubelet through `newcomers` when they are at a new pod's address.
pub fn enforce_policies(
    config: &NodeConfig,
    pod_cidrs: &Ranges,
    sources: ferry_policy::Sources,
    newcomers: ferry_policy::Newcomers,
    tasks: &Tasks,
) -> Result<ferry_policy::Policies> {
    let (table, nft) = (policy_table(&config.bridge), vec![tool("nft")?]);
    // The ends of a range of two addresses or one are nothing special.
    let broadcasts = pod_cidrs.iter().filter_map(|range| match range {
        IpNet::V4(range) if range.prefix_len() < 31 => Some([range.network(), range.broadcast()]),
        _ => None,
    });
    let broadcasts = broadcasts.flatten().collect();
    let bridge = ferry_policy::Bridge { name: config.bridge.clone(), broadcasts };
    Ok(ferry_policy::start(&config.node_name, &table, bridge, nft, sources, newcomers, tasks))
}

/// Keeps the node's own rules, and pods' packets let through where others on this machine drop what they do not know.
pub async fn guard(
    config: &NodeConfig,
    network: &ferry_bridge::Settings,
    api_port: Option<u16>,
    tasks: &Tasks,
) -> Result<Guarded> {
    let settings = &config.cluster;
    let table = node_table(&config.bridge);
    let mut node = vec![("udp", settings.dns_port), ("tcp", settings.dns_port), ("tcp", config.kubelet_port)];
    node.extend(api_port.map(|port| ("tcp", port)));
    let guard = Guard {
        nft: Nft::new(vec![tool("nft")?]),
        script: rules(&table, &config.bridge, &settings.cluster_cidr),
        table,
        other_tables: vec![
            proxy_table(&config.bridge),
            policy_table(&config.bridge),
            ferry_bridge::host_ports_table(&config.bridge),
        ],
        repaired: Some(host_ports(network.clone())),
        passage: Passage { name: config.bridge.clone(), pods: settings.cluster_cidr.texts(), node },
        legacy: Legacy::both(),
    };
    guard.start(tasks).await.context("cannot write the node's packet rules")
}

/// Whoever flushed the node's rules flushed those of host ports, too.
fn host_ports(network: ferry_bridge::Settings) -> ferry_nft::Repaired {
    ferry_nft::Repaired(Arc::new(move || {
        let network = network.clone();
        Box::pin(async move {
            if let Err(error) = ferry_bridge::restore_host_ports(network).await {
                tracing::error!("{error}");
            }
        })
    }))
}

/// Pods reach the world beyond the cluster with the node's address, and nobody reaches the node's loopback from a wire. The
/// kernel sees to that by itself until a host port lets packets of 127.0.0.0/8 cross the bridge. Looked at
/// before any address is translated, which is how such packets may come in rightly.
///
/// Only what comes from this node's own bridge is masqueraded: other bridges of the machine may carry packets of another
/// cluster's pods (`ferry cluster`), whose range is the same more often than not, and the kernel shows those to the rules, too.
fn rules(table: &str, bridge: &str, pods: &Ranges) -> String {
    let mut out = String::new();
    for range in pods.iter() {
        let ip = if ranges::is_ipv4(&range) { "ip" } else { "ip6" };
        let _ = writeln!(out, "  iifname \"{bridge}\" {ip} saddr {range} {ip} daddr != {range} masquerade");
    }
    // An earlier version had a table of that name for IPv4 alone.
    format!(
        "add table ip {table}
delete table ip {table}
add table inet {table}
delete table inet {table}
table inet {table} {{
 chain loopback {{
  type filter hook prerouting priority raw; policy accept;
  iifname != \"lo\" ip daddr 127.0.0.0/8 drop
  iifname != \"lo\" ip saddr 127.0.0.0/8 drop
  iifname != \"lo\" ip6 daddr ::1 drop
  iifname != \"lo\" ip6 saddr ::1 drop
 }}
 chain postrouting {{
  type nat hook postrouting priority srcnat; policy accept;
{out} }}
}}
"
    )
}

fn tool(name: &str) -> Result<String> {
    let path = crate::node::tools::find(name).with_context(|| format!("{name} is not installed"))?;
    Ok(path.to_string_lossy().into_owned())
}

pub fn nft(rules: &str) -> Result<()> {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let program = crate::node::tools::find("nft").context("nft is not installed")?;
    let mut child = Command::new(program)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run nft")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(rules.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    anyhow::ensure!(
        output.status.success(),
        "nft refused the rules: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Writes the CNI configuration that makes the runtime's network ready, and puts this program where containerd looks for the
/// plug-ins in it.
pub fn write_cni(config: &NodeConfig, network: &ferry_bridge::Settings) -> Result<()> {
    let programs = &config.cni.bin_dir;
    fs::create_dir_all(programs)?;
    fs::create_dir_all(&config.cni.conf_dir)?;
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    for name in ferry_bridge::PROGRAMS {
        let (link, new) = (programs.join(name), programs.join(".new"));
        if fs::read_link(&link).is_ok_and(|target| target == own) {
            continue;
        }
        let _ = fs::remove_file(&new);
        let made = std::os::unix::fs::symlink(&own, &new).and_then(|()| fs::rename(&new, &link));
        made.with_context(|| format!("cannot make {}", link.display()))?;
    }
    let mut plugin = serde_json::to_value(network)?;
    plugin["type"] = json!(ferry_bridge::PLUGIN);
    plugin["capabilities"] = json!({ "portMappings": true, "bandwidth": true });
    let conf = json!({ "cniVersion": "1.0.0", "name": "ferry", "plugins": [plugin] });
    let text = format!("{conf:#}\n");
    let path: &Path = &config.cni.conf_dir.join("10-ferry.conflist");
    if fs::read_to_string(path).is_ok_and(|have| have == text) {
        return Ok(());
    }
    write_private(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let there = folder.path().join("there");
        fs::write(&there, "0\n").expect("a file");
        assert!(is_switched_on(&there));
        assert!(!is_switched_on(&folder.path().join("none/there")));
        // It takes what is written, and says something else.
        assert!(!is_switched_on(Path::new("/dev/null")));
    }
}
