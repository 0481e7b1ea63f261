//! Chains that Services share. A chain knows how many endpoints there are to choose from, and finds the chosen one in a map by
//! the place that the packet is for: an endpoint that changes is an element that changes.

use ferry_nft::Protocol;

use crate::frame::{Frame, MASQUERADE_CHAIN};

/// Among the numbers of endpoints, where those of this node begin.
pub(crate) const LOCAL: u32 = 1 << 24;

/// How the endpoint for a packet is chosen. The numbers say among how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pick {
    Any(u32),
    /// Of those of this node.
    Local(u32),
    /// For clients whose address the endpoints do not get to see.
    Outside(u32),
    /// With `externalTrafficPolicy: Local`: any for clients of the cluster, those of this node for all others.
    OutsideLocal {
        any: u32,
        local: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    /// For ports of the node, not of an address.
    pub(crate) at_node: bool,
    pub(crate) protocol: Protocol,
    pub(crate) pick: Pick,
}

impl Shape {
    pub(crate) fn name(self) -> String {
        let (place, protocol) = (if self.at_node { "node-" } else { "" }, self.protocol);
        match self.pick {
            Pick::Any(count) => format!("{place}pick-{protocol}-{count}"),
            Pick::Local(count) => format!("{place}pick-local-{protocol}-{count}"),
            Pick::Outside(count) => format!("{place}outside-{protocol}-{count}"),
            Pick::OutsideLocal { any, local } => format!("{place}outside-{protocol}-{any}-local-{local}"),
        }
    }

    fn with(self, pick: Pick) -> Self {
        Self { pick, ..self }
    }

    /// The chains that this one leads to.
    pub(crate) fn parts(self) -> Vec<Self> {
        match self.pick {
            Pick::Any(_) | Pick::Local(_) => Vec::new(),
            Pick::Outside(count) => vec![self.with(Pick::Any(count))],
            Pick::OutsideLocal { any, local } => {
                let any = (any > 0).then(|| self.with(Pick::Any(any)));
                any.into_iter().chain((local > 0).then(|| self.with(Pick::Local(local)))).collect()
            }
        }
    }

    pub(crate) fn rules(self, frame: &Frame) -> Vec<String> {
        let (ip, protocol) = (frame.family.word(), self.protocol);
        let (key, map) = match self.at_node {
            true => (format!("{protocol} dport"), "node-endpoints"),
            false => (format!("{ip} daddr . {protocol} dport"), "endpoints"),
        };
        let balance = |number: String| {
            let rule = format!("dnat {ip} to {key} . {number} map @{map}-{protocol}");
            // Who finds nothing came while the endpoints changed, and tries again.
            vec![rule, "drop".to_owned()]
        };
        let chain = |pick| self.with(pick).name();
        match self.pick {
            Pick::Any(count) => balance(format!("numgen random mod {count}")),
            Pick::Local(count) => balance(format!("numgen random mod {count} offset {LOCAL}")),
            Pick::Outside(count) => outside(ip, &frame.pod_cidr, false, Some(&chain(Pick::Any(count))), None),
            Pick::OutsideLocal { any, local } => {
                let any = (any > 0).then(|| chain(Pick::Any(any)));
                let local = (local > 0).then(|| chain(Pick::Local(local)));
                outside(ip, &frame.pod_cidr, true, any.as_deref(), local.as_deref())
            }
        }
    }
}

/// The rules of a chain for addresses and ports by which a Service is reached from outside of the cluster, with the chains that
/// choose; none where there is nobody to choose.
pub(crate) fn outside(ip: &str, pod_cidr: &str, is_local: bool, any: Option<&str>, local: Option<&str>) -> Vec<String> {
    let mut rules = Vec::new();
    if is_local {
        if let Some(any) = any {
            // Clients inside the cluster reach every endpoint: the policy is for those outside.
            rules.push(format!("{ip} saddr {pod_cidr} goto {any}"));
            rules.push(format!("fib saddr type local jump {MASQUERADE_CHAIN}"));
            rules.push(format!("fib saddr type local goto {any}"));
        }
        rules.extend(local.map(|local| format!("goto {local}")));
    } else if let Some(any) = any {
        rules.push(format!("jump {MASQUERADE_CHAIN}"));
        rules.push(format!("goto {any}"));
    }
    rules
}
