//! The pod network of one node: a bridge that Ferry owns, a CNI configuration that attaches pods to it, and the way out.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::config::{Cidr, NodeConfig};
use crate::node::tools::run;
use crate::pki::write_private;

/// The packet-rule tables of a cluster are named after its bridge, so that two clusters on one machine do not meet.
pub fn node_table(bridge: &str) -> String {
    format!("{bridge}-node")
}

pub fn proxy_table(bridge: &str) -> String {
    format!("{bridge}-proxy")
}

/// The device of the tunnel between nodes; the bridge's name may have as many characters as the kernel takes.
pub fn tunnel_device(bridge: &str) -> String {
    format!("{}-vx", &bridge[..bridge.len().min(12)])
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
    let _ = fs::write("/proc/sys/net/bridge/bridge-nf-call-iptables", "1");
    masquerade(config)
}

/// Pods reach the world beyond the cluster with the node's address.
fn masquerade(config: &NodeConfig) -> Result<()> {
    let cidr = config.cluster.cluster_cidr;
    let table = node_table(&config.bridge);
    let rules = format!(
        "add table ip {table}\ndelete table ip {table}\ntable ip {table} {{\n chain postrouting {{\n  type nat hook postrouting priority srcnat; policy accept;\n  ip saddr {cidr} ip daddr != {cidr} masquerade\n }}\n}}\n"
    );
    nft(&rules)
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
