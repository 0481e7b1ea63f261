//! Who has which address: a file for each, named by it. A file appears whole or not at all, and only after the pod's device
//! does; so one without a device is left over from a pod that is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ferry_semantics::cidr;
use ipnet::IpNet;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::configuration::{Attachment, HostPort};
use crate::error::BridgeError;

/// Below this are the network's own address and the gateway's.
const FIRST: u128 = 2;

/// What is written down of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) container_id: String,
    pub(crate) interface: String,
    /// The node's end of the pod's pair of devices.
    pub(crate) link: String,
    /// `namespace/name`, for people.
    pub(crate) pod: String,
    #[serde(default)]
    pub(crate) host_ports: Vec<HostPort>,
}

impl Record {
    fn is_of(&self, container_id: &str, interface: &str) -> bool {
        self.container_id == container_id && self.interface == interface
    }

    pub(crate) fn is_among(&self, valid: &[Attachment]) -> bool {
        valid.iter().any(|one| self.is_of(&one.container_id, &one.ifname))
    }
}

/// The records of a node, while nobody else changes them.
pub(crate) struct Records {
    folder: PathBuf,
    _lock: File,
}

impl Records {
    /// Waits for whoever has them.
    pub(crate) fn lock(state: &Path) -> Result<Self, BridgeError> {
        let folder = state.join("addresses");
        let wrong = |source| BridgeError::File { what: format!("the records in {}", state.display()), source };
        fs::create_dir_all(&folder).map_err(wrong)?;
        let lock = File::create(state.join("lock")).map_err(wrong)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| wrong(error.into()))?;
        Ok(Self { folder, _lock: lock })
    }

    fn taken(&self) -> Result<BTreeSet<IpAddr>, BridgeError> {
        let entries = fs::read_dir(&self.folder).map_err(BridgeError::file("the records of addresses"))?;
        Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    /// All that can be read. What cannot is nobody's.
    pub(crate) fn all(&self) -> Result<BTreeMap<IpAddr, Record>, BridgeError> {
        let read = |address: IpAddr| {
            let bytes = fs::read(self.file(address)).ok()?;
            Some((address, serde_json::from_slice(&bytes).ok()?))
        };
        Ok(self.taken()?.into_iter().filter_map(read).collect())
    }

    /// Takes an address of each range.
    pub(crate) fn reserve(&self, networks: &[IpNet], record: &Record) -> Result<Vec<IpAddr>, BridgeError> {
        if !record.host_ports.is_empty() {
            self.check_host_ports(record)?;
        }
        let taken = self.taken()?;
        let mut addresses = Vec::new();
        for network in networks {
            let of_family = taken.iter().filter(|address| network.contains(*address)).count();
            let full = || BridgeError::Full { range: network.to_string(), taken: of_family };
            addresses.push(self.next(network, &taken).ok_or_else(full)?);
        }
        let text = serde_json::to_vec(record).map_err(|error| BridgeError::Configuration(error.to_string()))?;
        for (address, network) in addresses.iter().zip(networks) {
            self.write(&address.to_string(), &text)?;
            self.write(&last_file(network), address.to_string().as_bytes())?;
        }
        Ok(addresses)
    }

    fn check_host_ports(&self, record: &Record) -> Result<(), BridgeError> {
        for other in self.all()?.into_values().filter(|other| other.container_id != record.container_id) {
            let meeting = |port: &&HostPort| other.host_ports.iter().any(|taken| taken.meets(port));
            if let Some(port) = record.host_ports.iter().find(meeting) {
                let port = format!("{}/{}", port.host_port, port.protocol());
                return Err(BridgeError::HostPort { port, holder: other.pod });
            }
        }
        Ok(())
    }

    /// The next one after that which was taken last: an address rests as long as it can.
    fn next(&self, network: &IpNet, taken: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        let base = cidr::number(network.network());
        // The last address of an IPv4 range is for broadcasts.
        let end = cidr::size(network).saturating_sub(u128::from(network.addr().is_ipv4()));
        let usable = end.saturating_sub(FIRST);
        let last = fs::read_to_string(self.folder.join(last_file(network))).ok();
        let last = last.and_then(|text| text.trim().parse::<IpAddr>().ok()).filter(|last| network.contains(last));
        let start = last.map_or(0, |last| (cidr::number(last) - base).saturating_sub(FIRST).saturating_add(1));
        let attempts = usable.min(u128::try_from(taken.len()).unwrap_or(u128::MAX).saturating_add(1));
        (0..attempts)
            .filter_map(|step| cidr::nth(network, FIRST + start.checked_add(step)?.checked_rem(usable)?))
            .find(|address| !taken.contains(address))
    }

    /// Gives back what an attachment had, and says what that was.
    pub(crate) fn release(&self, container_id: &str, interface: &str) -> Result<Vec<Record>, BridgeError> {
        self.remove(|record| record.is_of(container_id, interface))
    }

    /// Gives back the addresses of those that are gone, and of files that say nothing.
    pub(crate) fn reclaim(&self, is_gone: impl Fn(&Record) -> bool) -> Result<Vec<Record>, BridgeError> {
        let readable: BTreeSet<IpAddr> = self.all()?.into_keys().collect();
        for address in self.taken()?.difference(&readable) {
            self.forget(*address)?;
        }
        self.remove(is_gone)
    }

    fn remove(&self, is_gone: impl Fn(&Record) -> bool) -> Result<Vec<Record>, BridgeError> {
        let mut removed = Vec::new();
        for (address, record) in self.all()?.into_iter().filter(|(_, record)| is_gone(record)) {
            self.forget(address)?;
            removed.push(record);
        }
        Ok(removed)
    }

    fn file(&self, address: IpAddr) -> PathBuf {
        self.folder.join(address.to_string())
    }

    fn forget(&self, address: IpAddr) -> Result<(), BridgeError> {
        match fs::remove_file(self.file(address)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(BridgeError::file(format!("the record of {address}"))(error))
            }
            _ => Ok(()),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), BridgeError> {
        let new = self.folder.join(".new");
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, self.folder.join(name)));
        written.map_err(BridgeError::file(format!("the record {name}")))
    }
}

fn last_file(network: &IpNet) -> String {
    if network.addr().is_ipv4() { "last.ipv4".to_owned() } else { "last.ipv6".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str) -> Record {
        let id = id.to_owned();
        Record {
            link: format!("veth{id}"),
            interface: "eth0".into(),
            pod: format!("a/{id}"),
            container_id: id,
            host_ports: vec![],
        }
    }

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().expect("a range")).collect()
    }

    #[test]
    fn addresses_go_round_and_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let records = Records::lock(folder.path()).expect("the records");
        let networks = networks(&["10.0.0.0/29", "fd00::/64"]);
        let take = |id: &str| {
            let taken = records.reserve(&networks, &record(id)).expect("addresses");
            taken.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(take("a"), ["10.0.0.2", "fd00::2"]);
        assert_eq!(take("b"), ["10.0.0.3", "fd00::3"]);
        assert_eq!(records.release("a", "eth0").expect("a release").len(), 2);
        assert!(records.release("a", "eth0").expect("again").is_empty());
        // Those that were never taken come first.
        for (id, wanted) in [("c", "10.0.0.4"), ("d", "10.0.0.5"), ("e", "10.0.0.6"), ("f", "10.0.0.2")] {
            assert_eq!(take(id)[0], wanted);
        }
        let full = records.reserve(&networks, &record("g")).expect_err("none is left");
        assert!(matches!(full, BridgeError::Full { taken: 5, .. }), "{full}");
        assert_eq!(records.all().expect("all").len(), 10, "who got none of one family has none of the other");
    }

    #[test]
    fn what_a_crash_left_is_taken_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let records = Records::lock(folder.path()).expect("the records");
        let networks = networks(&["10.0.0.0/30"]);
        records.reserve(&networks, &record("gone")).expect("an address");
        records.reserve(&networks, &record("new")).expect_err("the only one is taken");
        fs::write(folder.path().join("addresses/10.0.0.9"), "half a rec").expect("a file");
        let back = records.reclaim(|record| record.container_id == "gone").expect("a look");
        assert_eq!(back.len(), 1);
        assert_eq!(records.taken().expect("addresses").len(), 0, "what cannot be read is nobody's");
        records.reserve(&networks, &record("new")).expect("an address");
    }

    #[test]
    fn a_port_of_the_node_is_one_pods() {
        let folder = tempfile::tempdir().expect("a folder");
        let records = Records::lock(folder.path()).expect("the records");
        let networks = networks(&["10.0.0.0/24"]);
        let with = |id: &str, address: &str, protocol: &str| {
            let port =
                HostPort { host_port: 80, container_port: 8080, protocol: protocol.into(), host_ip: address.into() };
            Record { host_ports: vec![port], ..record(id) }
        };
        let take = |record: Record| records.reserve(&networks, &record).map(drop).map_err(|error| error.to_string());
        assert_eq!(take(with("a", "192.0.2.1", "tcp")), Ok(()));
        assert_eq!(take(with("b", "192.0.2.2", "tcp")), Ok(()));
        assert_eq!(take(with("c", "", "UDP")), Ok(()));
        assert_eq!(take(with("d", "::", "tcp")), Ok(()));
        let taken = |by: &str| Err(format!("host port 80/tcp is taken by pod a/{by}"));
        assert_eq!(take(with("e", "192.0.2.1", "")), taken("a"));
        assert_eq!(take(with("e", "0.0.0.0", "tcp")), taken("a"));
        assert_eq!(take(with("e", "fd00::1", "tcp")), taken("d"));
    }
}
