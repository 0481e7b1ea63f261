//! Ports of a node that pods want to themselves, and whether they can have them.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::PodSpec;

/// All addresses of the node.
const ANY: &str = "0.0.0.0";

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    pub address: String,
    pub protocol: String,
    pub port: i32,
}

/// Those that a pod wants, each once. Containers that end before others begin want none.
pub fn of(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let wanted = ports.filter_map(|port| {
        Some(HostPort {
            port: port.host_port.filter(|port| *port > 0)?,
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            address: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| ANY.into()),
        })
    });
    let mut ports: Vec<HostPort> = wanted.collect();
    ports.sort();
    ports.dedup();
    ports
}

/// Ports that are in use. A pod may name tens of thousands: none is compared with all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPorts {
    /// By number and protocol, how many have each address.
    used: HashMap<(i32, String), HashMap<String, usize>>,
}

impl HostPorts {
    pub fn add(&mut self, port: &HostPort) {
        let addresses = self.used.entry((port.port, port.protocol.clone())).or_default();
        *addresses.entry(port.address.clone()).or_default() += 1;
    }

    pub fn remove(&mut self, port: &HostPort) {
        let place = (port.port, port.protocol.clone());
        let Some(addresses) = self.used.get_mut(&place) else { return };
        if let Some(count) = addresses.get_mut(&port.address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&port.address);
            }
        }
        if addresses.is_empty() {
            self.used.remove(&place);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Whether one of these ports is taken.
    pub fn conflict_with(&self, wanted: &[HostPort]) -> bool {
        !self.is_empty()
            && wanted.iter().any(|port| {
                let used = self.used.get(&(port.port, port.protocol.clone()));
                used.is_some_and(|used| {
                    port.address == ANY || used.contains_key(ANY) || used.contains_key(&port.address)
                })
            })
    }
}

impl<'a> FromIterator<&'a HostPort> for HostPorts {
    fn from_iter<I: IntoIterator<Item = &'a HostPort>>(ports: I) -> Self {
        let mut all = Self::default();
        ports.into_iter().for_each(|port| all.add(port));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(text: &str) -> HostPort {
        let parts: Vec<&str> = text.split('/').collect();
        HostPort { address: parts[0].into(), protocol: parts[1].into(), port: parts[2].parse().expect("a number") }
    }

    #[test]
    fn a_port_is_had_once_at_an_address() {
        for (used, wanted, conflict) in [
            ("0.0.0.0/TCP/80", "0.0.0.0/TCP/80", true),
            ("0.0.0.0/TCP/80", "192.0.2.1/TCP/80", true),
            ("192.0.2.1/TCP/80", "0.0.0.0/TCP/80", true),
            ("192.0.2.1/TCP/80", "192.0.2.1/TCP/80", true),
            ("192.0.2.1/TCP/80", "192.0.2.2/TCP/80", false),
            ("0.0.0.0/TCP/80", "0.0.0.0/UDP/80", false),
            ("0.0.0.0/TCP/80", "0.0.0.0/TCP/81", false),
        ] {
            let (used, wanted) = (port(used), [port(wanted)]);
            let mut ports: HostPorts = [&used, &used].into_iter().collect();
            assert_eq!(ports.conflict_with(&wanted), conflict, "{used:?} {wanted:?}");
            ports.remove(&used);
            assert_eq!(ports.conflict_with(&wanted), conflict, "the other is still there");
            ports.remove(&used);
            ports.remove(&used);
            assert!(ports.is_empty() && !ports.conflict_with(&wanted));
        }
    }

    /// Compared each with each, these took minutes, in which nobody else was scheduled.
    #[test]
    fn very_many_ports_are_compared_with_very_many() {
        let at = |last: usize| {
            (0..100_000).map(move |number: usize| HostPort {
                address: format!("198.{}.{}.{last}", number >> 8 & 255, number & 255),
                protocol: "TCP".into(),
                port: i32::try_from(number >> 16).unwrap_or_default() + 1,
            })
        };
        let used: Vec<HostPort> = at(1).collect();
        let mut used: HostPorts = used.iter().collect();
        let wanted: Vec<HostPort> = at(2).collect();
        assert!(!used.conflict_with(&wanted));
        wanted.iter().for_each(|port| used.add(port));
        assert!(used.conflict_with(&wanted));
        wanted.iter().for_each(|port| used.remove(port));
        assert!(!used.conflict_with(&wanted));
    }
}
