//! Ports of the node that lead to a pod (`hostPort`): a table of packet rules for both families, written as a whole from the
//! records. There are few of them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use ferry_nft::Nft;

use crate::configuration::{HostPort, Settings};
use crate::error::BridgeError;
use crate::netlink::block_on;
use crate::records::{Record, Records};

/// The bit of the packet mark that asks this table for masquerading.
const MASQUERADE_MARK: &str = "0x2000";

/// The name of the table (family `inet`).
pub fn table(bridge: &str) -> String {
    format!("{bridge}-ports")
}

/// Writes the table from the records, in one transaction.
pub(crate) fn write(settings: &Settings, records: &Records) -> Result<(), BridgeError> {
    let script = render(settings, &records.all()?);
    let nft = Nft::new(vec![settings.nft.to_string_lossy().into_owned()]);
    block_on(async { Ok(nft.apply(&script).await?) })?;
    // The node's own loopback, sent to a pod, leaves by the bridge; the node's table lets no such packet come in by a wire.
    let _ = std::fs::write(format!("/proc/sys/net/ipv4/conf/{}/route_localnet", settings.bridge), "1");
    Ok(())
}

/// By protocol, port and address of the node, where packets go in each family.
type Targets<'a> = BTreeMap<(&'a str, u16, Option<IpAddr>), Vec<(IpAddr, u16)>>;

fn targets(records: &BTreeMap<IpAddr, Record>) -> Targets<'_> {
    let mut targets = Targets::new();
    for (pod, record) in records {
        let served = |port: &&HostPort| port.host_port > 0 && port.is_for(pod);
        for port in record.host_ports.iter().filter(served) {
            let key = (port.protocol(), port.host_port, port.address());
            let list = targets.entry(key).or_default();
            if !list.iter().any(|(known, _)| known.is_ipv4() == pod.is_ipv4()) {
                list.push((*pod, port.container_port));
            }
        }
    }
    targets
}

/// Only what is sent to an address of the node is taken: a `hostIP` is whatever the pod says, a Service's address too.
fn render(settings: &Settings, records: &BTreeMap<IpAddr, Record>) -> String {
    let table = table(&settings.bridge);
    let mut text = format!("add table inet {table}\ndelete table inet {table}\n");
    let targets = targets(records);
    if targets.is_empty() {
        return text;
    }
    let of = |v4: bool| settings.ranges.iter().filter(move |range| range.contains(':') != v4).cloned();
    let near4: Vec<String> = std::iter::once("127.0.0.0/8".to_owned()).chain(of(true)).collect();
    let near6: Vec<String> = of(false).collect();
    let (mut any, mut at4, mut at6, mut chains) = (String::new(), String::new(), String::new(), String::new());
    for ((protocol, port, address), pods) in &targets {
        // A name has no colons.
        let at = address.map_or_else(|| "all".to_owned(), |address| address.to_string().replace(':', "_"));
        let chain = format!("to-{protocol}/{port}/{at}");
        let _ = match address {
            None => writeln!(any, "   {protocol} . {port} : goto {chain},"),
            Some(IpAddr::V4(address)) => writeln!(at4, "   {address} . {protocol} . {port} : goto {chain},"),
            Some(IpAddr::V6(address)) => writeln!(at6, "   {address} . {protocol} . {port} : goto {chain},"),
        };
        let _ = writeln!(chains, " chain {chain} {{");
        for (pod, container_port) in pods {
            // A pod that is near answers past the node, and the loopback is in every namespace another.
            let (family, near, target) = match pod {
                IpAddr::V4(pod) => ("ip", &near4, format!("{pod}:{container_port}")),
                IpAddr::V6(pod) => ("ip6", &near6, format!("[{pod}]:{container_port}")),
            };
            let near = near.join(", ");
            let _ = writeln!(chains, "  {family} saddr {{ {near} }} meta mark set meta mark or {MASQUERADE_MARK}");
            let nfproto = if pod.is_ipv4() { "ipv4" } else { "ipv6" };
            let _ = writeln!(chains, "  meta nfproto {nfproto} meta l4proto {protocol} dnat {family} to {target}");
        }
        let _ = writeln!(chains, " }}");
    }
    let map = |name: &str, key: &str, elements: &str| match elements {
        "" => format!(" map {name} {{ type {key}inet_proto . inet_service : verdict; }}\n"),
        _ => {
            format!(" map {name} {{ type {key}inet_proto . inet_service : verdict; elements = {{\n{elements}  }} }}\n")
        }
    };
    let maps = map("ports", "", &any) + &map("ports4", "ipv4_addr . ", &at4) + &map("ports6", "ipv6_addr . ", &at6);
    let _ = write!(
        text,
        "table inet {table} {{
 comment \"hostPorts of pods, kept by ferry: changes made by hand do not last\"
{chains}{maps} chain dispatch {{
  fib daddr type local ip daddr . meta l4proto . th dport vmap @ports4
  fib daddr type local ip6 daddr . meta l4proto . th dport vmap @ports6
  fib daddr type local meta l4proto . th dport vmap @ports
 }}
 chain prerouting {{
  type nat hook prerouting priority -105; policy accept;
  jump dispatch
 }}
 chain output {{
  type nat hook output priority -105; policy accept;
  ip6 daddr != ::1 jump dispatch
  meta nfproto ipv4 jump dispatch
 }}
 chain postrouting {{
  type nat hook postrouting priority 95; policy accept;
  meta mark & {MASQUERADE_MARK} != 0 meta mark set meta mark xor {MASQUERADE_MARK} masquerade fully-random
 }}
}}
"
    );
    text
}
