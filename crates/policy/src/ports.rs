//! Every port of the bridge speaks for its own pod only: frames that leave a pod have its hardware address and one of its
//! addresses, also inside ARP and neighbour discovery. Policies know pods by their addresses, so nobody may borrow one.
//!
//! What belongs to a port is looked for when a pod has its network and no process yet, and kept until the port is gone: whoever
//! changes the addresses inside the pod afterwards gains nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferry_nft::{Device, Element, Elements, Family, Nft, NftError, Part, Port, Transaction, Verb, bridge_ports};

#[derive(Debug)]
pub(crate) struct Ports {
    table: String,
    bridge: String,
    bound: BTreeMap<u32, Port>,
    /// The kernel has the table with all that are bound.
    is_written: bool,
    /// This kernel has no rules for frames.
    is_impossible: bool,
}

impl Ports {
    pub(crate) fn new(table: &str, bridge: &str) -> Self {
        Self {
            table: table.to_owned(),
            bridge: bridge.to_owned(),
            bound: BTreeMap::new(),
            is_written: false,
            is_impossible: false,
        }
    }

    /// The numbers of those that are bound, but for those where somebody new is: a port is on the bridge before its pod has
    /// all of its addresses.
    pub(crate) fn known(&self, fresh: &[BTreeSet<IpAddr>]) -> BTreeSet<u32> {
        let is_settled = |port: &Port| fresh.iter().all(|one| one.is_disjoint(&port.addresses));
        self.bound.values().filter(|port| is_settled(port)).map(|port| port.index).collect()
    }

    /// What a port may be bound to, if its pod is known: the addresses that the kubelet tells of the pod, or the API server. What
    /// else is found there is nobody's.
    pub(crate) fn judged(&self, mut port: Port, own: &BTreeSet<IpAddr>, fresh: &[BTreeSet<IpAddr>]) -> Option<Port> {
        let before = self.bound.get(&port.index).map(|before| &before.addresses);
        let told = fresh.iter().find(|one| !one.is_disjoint(before.unwrap_or(&port.addresses)));
        let is_its = |address: &IpAddr| {
            let is_linked = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
            is_linked || before.is_some_and(|before| before.contains(address)) || told.unwrap_or(own).contains(address)
        };
        port.addresses.retain(is_its);
        let is_known = |address: &IpAddr| told.unwrap_or(own).contains(address);
        port.addresses.iter().any(is_known).then_some(port)
    }

    /// Whether the kernel has what it was told to.
    pub(crate) fn are_written(&mut self, written: bool) {
        self.is_written = written;
    }

    /// Binds the ports of pods with these addresses, and forgets those that are gone. The `fresh` ones are those of pods that
    /// the kubelet told of just now, each pod's by themselves.
    pub(crate) async fn update(
        &mut self,
        nft: &Nft,
        own: &BTreeSet<IpAddr>,
        fresh: &[BTreeSet<IpAddr>],
    ) -> Result<(), String> {
        if self.is_impossible {
            return Ok(());
        }
        let (bridge, known) = (self.bridge.clone(), self.known(fresh));
        let found = tokio::task::spawn_blocking(move || bridge_ports(&bridge, &known)).await;
        let (new, all) = found.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        // Others are about to get their addresses.
        let new = new.into_iter().filter_map(|port| self.judged(port, own, fresh)).collect();
        let transaction = self.transaction(new, &all);
        if transaction.is_empty() {
            return Ok(());
        }
        match nft.commit(&transaction).await {
            Ok(()) => {
                self.is_written = true;
                Ok(())
            }
            Err(NftError::Refused { message, .. }) if message.contains("not supported") => {
                self.is_impossible = true;
                tracing::error!(
                    "this kernel has no packet rules for bridges, so that pods with NET_RAW can use others' addresses: {message}"
                );
                Ok(())
            }
            Err(error) => {
                self.is_written = false;
                Err(error.to_string())
            }
        }
    }

    /// The transaction after which the kernel holds these ports too, and of the others only those among `all`.
    pub(crate) fn transaction(&mut self, new: Vec<Port>, all: &BTreeSet<u32>) -> Transaction {
        let mut transaction = Transaction::default();
        let again: BTreeSet<u32> = new.iter().map(|port| port.index).collect();
        let gone = self.bound.extract_if(.., |index, _| !all.contains(index) || again.contains(index));
        let gone: Vec<Port> = gone.map(|(_, port)| port).collect();
        if self.is_written {
            transaction.elements = self.elements(Verb::Delete, gone.iter());
            transaction.elements.extend(self.elements(Verb::Add, new.iter()));
            self.bound.extend(new.into_iter().map(|port| (port.index, port)));
        } else {
            transaction.before = frame(&self.table);
            self.bound.extend(new.into_iter().map(|port| (port.index, port)));
            transaction.elements = self.elements(Verb::Add, self.bound.values());
        }
        transaction
    }

    fn elements<'a>(&self, verb: Verb, ports: impl Iterator<Item = &'a Port>) -> Vec<Elements> {
        let mut lists: BTreeMap<&str, Vec<Element>> = BTreeMap::new();
        for port in ports {
            // `nft` could not write it.
            let Some(device) = Device::new(&port.name) else {
                tracing::error!("the pod at {:?} may use others' addresses, since a rule cannot name it", port.name);
                continue;
            };
            let mut add = |set, part: Option<Part>| {
                let key = [Part::Device(device)].into_iter().chain(part).collect();
                lists.entry(set).or_default().push(Element { key, value: None });
            };
            add("hardware", Some(Part::Hardware(port.hardware)));
            for address in &port.addresses {
                match address {
                    IpAddr::V4(_) => add("addresses-4", Some(Part::Address(*address))),
                    IpAddr::V6(sixth) => {
                        add("addresses-6", Some(Part::Address(*address)));
                        add("targets", Some(Part::Bits(sixth.octets())));
                    }
                }
            }
            // From then on the others count.
            add("ports", None);
        }
        let of = |(set, list): (&str, _)| Elements {
            verb,
            family: Family::Bridge,
            table: self.table.clone(),
            set: set.to_owned(),
            list,
        };
        lists.into_iter().map(of).collect()
    }
}

/// The fixed part. A port that is not bound passes: nothing of its pod has started, or the node is about to bind it. Who has no
/// address of IPv6 yet asks whether one is free, and for groups; nothing else comes without a source.
fn frame(table: &str) -> String {
    format!(
        "add table bridge {table}
delete table bridge {table}
table bridge {table} {{
  comment \"what each port of the bridge may send, kept by ferry: changes made by hand do not last\"

  set ports {{ type ifname; }}
  set hardware {{ type ifname . ether_addr; }}
  set addresses-4 {{ type ifname . ipv4_addr; }}
  set addresses-6 {{ type ifname . ipv6_addr; }}
  set targets {{ typeof iifname . @th,64,128; }}

  chain from-ports {{
    type filter hook prerouting priority -300; policy accept;
    iifname @ports jump from-pod
  }}
  chain from-pod {{
    iifname . ether saddr != @hardware drop
    ether type arp goto resolution
    ether type ip6 goto sixth
    ether type ip iifname . ip saddr @addresses-4 accept
    drop
  }}
  chain resolution {{
    iifname . arp saddr ether != @hardware drop
    arp saddr ip 0.0.0.0 accept
    iifname . arp saddr ip @addresses-4 accept
    drop
  }}
  chain sixth {{
    icmpv6 type {{ nd-router-advert, nd-redirect }} drop
    icmpv6 type nd-neighbor-advert iifname . @th,64,128 != @targets drop
    ip6 saddr :: ip6 daddr ff00::/8 meta l4proto icmpv6 accept
    iifname . ip6 saddr @addresses-6 accept
    drop
  }}
}}
"
    )
}
