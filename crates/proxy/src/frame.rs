//! The fixed part of the table: hooks, the order of decisions, and the maps that services fill. The maps of endpoints are keyed by
//! the place that a packet is for and the number of the endpoint that was chosen for it (`shape`).

use std::fmt::Write;

use crate::family::Family;

/// The bit of the packet mark that asks for masquerading; the one Kubernetes has always used.
const MASQUERADE_MARK: &str = "0x4000";

pub(crate) const MASQUERADE_CHAIN: &str = "masquerade-later";
pub(crate) const REJECT_CHAIN: &str = "reject-it";
/// Through which packets come to all others.
pub(crate) const DISPATCHING_CHAIN: &str = "nat-prerouting";

#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) family: Family,
    pub(crate) table: String,
    pub(crate) pod_cidr: String,
    pub(crate) service_cidrs: Vec<String>,
    /// Addresses of the node at which node ports are served; empty: all.
    pub(crate) node_port_addresses: Vec<String>,
    /// Replies between pods of one bridge skip the host unless the kernel filters bridged packets. Where it cannot,
    /// such connections must be masqueraded, or the client sees answers from an address it never called.
    pub(crate) masquerade_between_pods: bool,
}

impl Frame {
    /// The family and the name of the table, as commands have them.
    pub(crate) fn place(&self) -> String {
        format!("{} {}", self.family.word(), self.table)
    }

    /// Empties the table first: the same transaction also creates it, so deleting never fails.
    pub(crate) fn render(&self) -> String {
        let Self { family, table, pod_cidr, service_cidrs, node_port_addresses, masquerade_between_pods } = self;
        let (ip, address, loopback) = (family.word(), family.address_type(), family.loopback());
        let mut text = format!("add table {ip} {table}\ndelete table {ip} {table}\n");
        let service_cidrs = service_cidrs.join(", ");
        let unknown_service = match service_cidrs.is_empty() {
            true => String::new(),
            false => format!("{ip} daddr {{ {service_cidrs} }} reject"),
        };
        let at_node = match node_port_addresses.is_empty() {
            true => format!("{ip} daddr != {loopback} fib daddr type local"),
            false => format!("{ip} daddr {{ {} }} fib daddr type local", node_port_addresses.join(", ")),
        };
        let between_pods = match masquerade_between_pods {
            true => format!("ct status dnat {ip} saddr {pod_cidr} {ip} daddr {pod_cidr} masquerade fully-random"),
            false => String::new(),
        };
        // `nft` knows what is in a map of endpoints only by the protocol that the ports are of.
        let endpoints = ["tcp", "udp", "sctp"].map(|protocol| {
            let (port, leads) = (format!("{protocol} dport"), format!("{ip} daddr . {protocol} dport"));
            format!(
                "  map endpoints-{protocol} {{ typeof {ip} daddr . {port} . numgen random mod 2 : {leads}; }}
  map node-endpoints-{protocol} {{ typeof {port} . numgen random mod 2 : {leads}; }}
"
            )
        });
        let endpoints = endpoints.concat();
        let _ = write!(
            text,
            "table {ip} {table} {{
  comment \"Kubernetes Services, kept by ferry: changes made by hand do not last\"

  set cluster-addresses {{ type {address}; }}
  set hairpin {{ type {address} . {address}; }}
  map services {{ type {address} . inet_proto . inet_service : verdict; }}
  map node-ports {{ type inet_proto . inet_service : verdict; }}
  map no-endpoints {{ type {address} . inet_proto . inet_service : verdict; }}
  map no-endpoint-node-ports {{ type inet_proto . inet_service : verdict; }}
  map firewall {{ type {address} . inet_proto . inet_service : verdict; }}
{endpoints}
  chain {MASQUERADE_CHAIN} {{
    meta mark set meta mark or {MASQUERADE_MARK}
  }}
  chain {REJECT_CHAIN} {{
    reject
  }}
  chain dispatch {{
    {ip} daddr @cluster-addresses {ip} saddr != {pod_cidr} jump {MASQUERADE_CHAIN}
    {ip} daddr . meta l4proto . th dport vmap @services
    {at_node} meta l4proto . th dport vmap @node-ports
  }}
  chain leftover {{
    ct status dnat return
    {ip} daddr . meta l4proto . th dport vmap @no-endpoints
    {at_node} meta l4proto . th dport vmap @no-endpoint-node-ports
    {ip} daddr @cluster-addresses reject
    {unknown_service}
  }}

  chain firewall-prerouting {{
    type filter hook prerouting priority -110; policy accept;
    ct state new {ip} daddr . meta l4proto . th dport vmap @firewall
  }}
  chain firewall-output {{
    type filter hook output priority -110; policy accept;
    ct state new {ip} daddr . meta l4proto . th dport vmap @firewall
  }}
  chain {DISPATCHING_CHAIN} {{
    type nat hook prerouting priority -100; policy accept;
    jump dispatch
  }}
  chain nat-output {{
    type nat hook output priority -100; policy accept;
    jump dispatch
  }}
  chain nat-postrouting {{
    type nat hook postrouting priority 100; policy accept;
    meta mark & {MASQUERADE_MARK} != 0 meta mark set meta mark xor {MASQUERADE_MARK} masquerade fully-random
    ct status dnat {ip} saddr . {ip} daddr @hairpin masquerade fully-random
    {between_pods}
  }}
  chain filter-input {{
    type filter hook input priority 0; policy accept;
    ct state new jump leftover
  }}
  chain filter-forward {{
    type filter hook forward priority 0; policy accept;
    ct state new jump leftover
  }}
  chain filter-output {{
    type filter hook output priority 0; policy accept;
    ct state new jump leftover
  }}
}}
"
        );
        text
    }
}
