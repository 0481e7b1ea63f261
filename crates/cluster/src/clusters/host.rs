//! The host's part of a cluster's network: a bridge that all nodes are linked to, and one table of packet rules.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::file::Protocol;
use super::plan::{Plan, range};
use crate::node::network::{forward_ipv6, nft};
use crate::node::tools::{self, run};

/// The first number that no cluster has, whose range no route of the host leads to.
pub fn free_number(taken: &[u8]) -> Result<u8> {
    for number in 0..=u8::MAX {
        if taken.contains(&number) || run("ip", &["link", "show", &format!("ferry-c{number}")]).is_ok() {
            continue;
        }
        if run("ip", &["-4", "route", "show", "table", "all", "root", &range(number)])?.trim().is_empty() {
            return Ok(number);
        }
    }
    bail!("all ranges from 10.213.0.0/24 to 10.213.255.0/24 are in use; delete a cluster with `ferry cluster delete`")
}

/// Makes the bridge and the rules; may run again at any time.
pub fn prepare(plan: &Plan) -> Result<()> {
    let bridge = plan.bridge();
    if run("ip", &["link", "show", &bridge]).is_err() {
        // Of its own: otherwise it takes the lowest of its ports', which changes when a node comes or goes, and whoever remembers
        // the old one sends into the void for up to a minute.
        run("ip", &["link", "add", &bridge, "address", &plan.hardware_address(), "type", "bridge"])?;
    }
    ip(&format!("address replace {}/24 dev {bridge}\nlink set {bridge} up\n", plan.gateway()))?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot enable packet forwarding")?;
    if plan.has_ipv6() {
        ip(&format!("address replace {}/64 dev {bridge} nodad\n", plan.ipv6_gateway()))?;
        forward_ipv6().context("cannot enable IPv6 forwarding")?;
    }
    // For mirrors on the host's loopback and mapped ports that are asked for on it; the rules let nothing else through.
    let local = format!("/proc/sys/net/ipv4/conf/{bridge}/route_localnet");
    fs::write(&local, "1").with_context(|| format!("cannot write {local}"))?;
    nft(&(rules(plan) + &ipv6_rules(plan))).context("cannot set the cluster's packet rules on this machine")
}

fn rules(plan: &Plan) -> String {
    let (table, bridge, gateway) = (plan.table(), plan.bridge(), plan.gateway());
    let (mut mapped, mut mirrored) = (String::new(), String::new());
    for (index, machine) in plan.machines.iter().enumerate() {
        for mapping in &machine.port_mappings {
            let to = match mapping.host_address {
                Some(address) => format!("ip daddr {address}"),
                None => "fib daddr type local".to_owned(),
            };
            let protocol = match mapping.protocol {
                Protocol::Tcp => "tcp",
                Protocol::Udp => "udp",
            };
            let (host_port, port) = (mapping.host_port, mapping.port);
            let _ = writeln!(mapped, "  {to} {protocol} dport {host_port} dnat to {}:{port}", plan.address(index));
        }
    }
    for port in plan.mirrors().1 {
        let _ =
            writeln!(mirrored, "  iifname \"{bridge}\" ip daddr {gateway} tcp dport {port} dnat to 127.0.0.1:{port}");
    }
    let range = plan.range();
    format!(
        "add table ip {table}\ndelete table ip {table}\ntable ip {table} {{\n \
         chain guard {{\n  type filter hook prerouting priority raw; policy accept;\n  \
         iifname \"{bridge}\" ip daddr 127.0.0.0/8 drop\n }}\n \
         chain prerouting {{\n  type nat hook prerouting priority dstnat; policy accept;\n{mirrored}{mapped} }}\n \
         chain output {{\n  type nat hook output priority -100; policy accept;\n{mapped} }}\n \
         chain postrouting {{\n  type nat hook postrouting priority srcnat; policy accept;\n  \
         ip saddr {range} oifname != \"{bridge}\" masquerade\n  \
         oifname \"{bridge}\" ip saddr 127.0.0.0/8 masquerade\n }}\n}}\n"
    )
}

/// Nodes reach the world beyond with the host's address.
fn ipv6_rules(plan: &Plan) -> String {
    let (table, bridge, range) = (plan.table(), plan.bridge(), plan.ipv6_range());
    let table = format!("ip6 {table}");
    let mut text = format!("add table {table}\ndelete table {table}\n");
    if plan.has_ipv6() {
        let _ = write!(
            text,
            "table {table} {{\n chain postrouting {{\n  type nat hook postrouting priority srcnat; policy accept;\n  \
             ip6 saddr {range} oifname != \"{bridge}\" masquerade\n }}\n}}\n"
        );
    }
    text
}

/// Links a node to the bridge; `pid` is a process in its network.
pub fn connect(plan: &Plan, index: usize, pid: i32) -> Result<()> {
    let (link, bridge) = (plan.link(index), plan.bridge());
    // A node that was killed a moment ago may still have it.
    let _ = run("ip", &["link", "delete", &link]);
    let inside = format!("name eth0 address {} netns {pid}", plan.node_hardware_address(index));
    ip(&format!("link add {link} type veth peer {inside}\nlink set {link} master {bridge} up\n"))
}

/// In the node: its addresses and the way out.
pub fn configure_inside(plan: &Plan, index: usize) -> Result<()> {
    let mut lines = format!(
        "link set lo up\naddress add {}/24 dev eth0\nlink set eth0 up\nroute add default via {}\n",
        plan.address(index),
        plan.gateway()
    );
    if plan.has_ipv6() {
        let _ = writeln!(lines, "address add {}/64 dev eth0 nodad", plan.ipv6_address(index));
        let _ = writeln!(lines, "route add default via {}", plan.ipv6_gateway());
    }
    ip(&lines)
}

/// Takes all of it away; what is not there is no error.
pub fn remove(plan: &Plan) {
    for family in ["ip", "ip6"] {
        let _ = run("nft", &["delete", "table", family, &plan.table()]);
    }
    for index in 0..plan.machines.len() {
        let _ = run("ip", &["link", "delete", &plan.link(index)]);
    }
    let _ = run("ip", &["link", "delete", &plan.bridge()]);
}

/// Several commands of `ip` by one process.
fn ip(lines: &str) -> Result<()> {
    let program = tools::find("ip").context("ip is not installed")?;
    let mut child = Command::new(program)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run ip")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(lines.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("`ip` refused {lines:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::file::PortMapping;
    use super::super::plan::tests::plan;
    use super::*;

    #[test]
    fn rules_have_what_was_asked_for_and_guard_the_loopback() {
        let mut plan = plan(1);
        plan.registry_mirrors = [("docker.io".to_owned(), "http://127.0.0.1:5000".to_owned())].into();
        let address = Some("192.0.2.1".parse().unwrap());
        plan.machines[1].port_mappings = vec![
            PortMapping { host_port: 8080, port: 80, ..PortMapping::default() },
            PortMapping { host_port: 53, port: 30053, protocol: Protocol::Udp, host_address: address },
        ];
        let text = rules(&plan);
        for expected in [
            "iifname \"ferry-c3\" ip daddr 10.213.3.1 tcp dport 5000 dnat to 127.0.0.1:5000",
            "fib daddr type local tcp dport 8080 dnat to 10.213.3.3:80",
            "ip daddr 192.0.2.1 udp dport 53 dnat to 10.213.3.3:30053",
            "iifname \"ferry-c3\" ip daddr 127.0.0.0/8 drop",
            "ip saddr 10.213.3.0/24 oifname != \"ferry-c3\" masquerade",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
