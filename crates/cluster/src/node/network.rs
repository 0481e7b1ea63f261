//! The pod network of one node: a bridge that Ferry owns, a CNI configuration that attaches pods to it, and the way out.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use ferry_nft::{Guard, Guarded, Legacy, Nft, Passage};
use ferry_server::pki::write_private;
use ferry_tasks::Tasks;
use serde_json::json;

use crate::config::{Cidr, NodeConfig};
use crate::node::tools::run;

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
pub fn prepare(config: &NodeConfig, pod_cidr: Cidr) -> Result<()> {
    let bridge = config.bridge.as_str();
    if run("ip", &["link", "show", bridge]).is_err() {
        run("ip", &["link", "add", bridge, "type", "bridge"])?;
    }
    let gateway = format!("{}/{}", pod_cidr.address(1), pod_cidr.length);
    run("ip", &["addr", "replace", &gateway, "dev", bridge])?;
    run("ip", &["link", "set", bridge, "up"])?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot switch on forwarding of packets")?;
    // Packets between two pods of one bridge must pass the packet rules, or a Service's answer comes from the wrong address.
    if !filters_bridged_packets() {
        tracing::error!(
            "this kernel does not filter bridged packets (br_netfilter, {} and {}): NetworkPolicies do not hold between pods of this node",
            BRIDGE_FILTERING[0],
            BRIDGE_FILTERING[1]
        );
    }
    Ok(())
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
    pod_cidr: Cidr,
    sources: ferry_policy::Sources,
    newcomers: ferry_policy::Newcomers,
    tasks: &Tasks,
) -> Result<ferry_policy::Policies> {
    let (table, nft) = (policy_table(&config.bridge), vec![tool("nft")?]);
    // The ends of a range of two addresses or one are nothing special.
    let broadcasts = if pod_cidr.length < 31 { vec![pod_cidr.base, pod_cidr.last()] } else { Vec::new() };
    let bridge = ferry_policy::Bridge { name: config.bridge.clone(), broadcasts };
    Ok(ferry_policy::start(&config.node_name, &table, bridge, nft, sources, newcomers, tasks))
}

/// Keeps the node's own rules, and pods' packets let through where others on this machine drop what they do not know.
pub async fn guard(config: &NodeConfig, api_port: Option<u16>, tasks: &Tasks) -> Result<Guarded> {
    let settings = &config.cluster;
    let table = node_table(&config.bridge);
    let mut node = vec![("udp", settings.dns_port), ("tcp", settings.dns_port), ("tcp", config.kubelet_port)];
    node.extend(api_port.map(|port| ("tcp", port)));
    let guard = Guard {
        nft: Nft::new(vec![tool("nft")?]),
        script: rules(&table, settings.cluster_cidr),
        table,
        other_tables: vec![proxy_table(&config.bridge), policy_table(&config.bridge)],
        passage: Passage { name: config.bridge.clone(), pods: settings.cluster_cidr.to_string(), node },
        legacy: Legacy::default(),
    };
    guard.start(tasks).await.context("cannot write the node's packet rules")
}

/// Pods reach the world beyond the cluster with the node's address, and nobody reaches the node's loopback from a wire. The
/// kernel sees to that by itself until a plug-in for host ports lets packets of 127.0.0.0/8 cross the bridge. Looked at
/// before any address is translated, which is how such packets may come in rightly.
fn rules(table: &str, cidr: Cidr) -> String {
    format!(
        "add table ip {table}
delete table ip {table}
table ip {table} {{
 chain loopback {{
  type filter hook prerouting priority raw; policy accept;
  iifname != \"lo\" ip daddr 127.0.0.0/8 drop
  iifname != \"lo\" ip saddr 127.0.0.0/8 drop
 }}
 chain postrouting {{
  type nat hook postrouting priority srcnat; policy accept;
  ip saddr {cidr} ip daddr != {cidr} masquerade
 }}
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

/// Writes the CNI configuration that makes the runtime's network ready.
pub fn write_cni(config: &NodeConfig, pod_cidr: Cidr) -> Result<()> {
    let folder = config.data_dir.join("cni");
    fs::create_dir_all(&folder)?;
    let conf = json!({
        "cniVersion": "1.0.0",
        "name": "ferry",
        "plugins": [
            {
                "type": "bridge",
                "bridge": config.bridge,
                "isGateway": true,
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": config.run_dir.join("addresses"),
                    "ranges": [[{ "subnet": pod_cidr.to_string() }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    });
    let text = format!("{conf:#}\n");
    let path: &Path = &folder.join("10-ferry.conflist");
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
