//! The machines that serve: what each tells of itself in an annotation of its Node, and which Gateways it serves at which of its
//! addresses. Whoever leads and the machines themselves come to the same, because both ask [`follow`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ferry_client::ObjectKey;
use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};

use super::addresses::{Port, Wanted, is_overflow};
use super::status::Bound;

/// The annotation of a Node with what the gateway of the machine tells, as JSON.
pub const SERVES: &str = "gateway.ferry.dev/serves";
/// A Node with this label is no place for traffic from outside; upstream's name.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// A Gateway's status has no room for more addresses.
pub const MOST_LISTED: usize = 16;
/// Ports that a machine tells of, and addresses of it that are read.
const MOST_PORTS: usize = 64;
const MOST_ADDRESSES: usize = 8;
const MOST_TEXT: usize = 16 << 10;

/// What a machine tells of its gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub addresses: Vec<IpAddr>,
    /// It may not read Secrets, but only what was handed over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_keys: bool,
    /// Where it does not serve at the port that was asked for. It serves all others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<Elsewhere>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Elsewhere {
    pub address: IpAddr,
    pub port: u16,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub datagrams: bool,
    /// None: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_at: Option<u16>,
}

impl Report {
    pub fn new(addresses: &[IpAddr], needs_keys: bool, bound: &Bound) -> Self {
        let own = bound.iter().filter(|((address, ..), _)| addresses.contains(address));
        let elsewhere = own.filter(|((_, port, _), outcome)| outcome.as_ref().ok() != Some(port));
        let elsewhere = elsewhere.map(|((address, port, datagrams), outcome)| Elsewhere {
            address: *address,
            port: *port,
            datagrams: *datagrams,
            served_at: outcome.as_ref().ok().copied(),
        });
        Self { addresses: addresses.to_vec(), needs_keys, elsewhere: elsewhere.take(MOST_PORTS).collect() }
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn read(text: &str) -> Option<Self> {
        if text.len() > MOST_TEXT {
            return None;
        }
        let mut read: Self = serde_json::from_str(text).ok()?;
        read.addresses.truncate(MOST_ADDRESSES);
        Some(read)
    }

    /// The port at which it really serves; None: it does not.
    pub fn served_at(&self, address: IpAddr, (port, datagrams): Port) -> Option<u16> {
        let is_this = |one: &&Elsewhere| one.address == address && one.port == port && one.datagrams == datagrams;
        self.elsewhere.iter().find(is_this).map_or(Some(port), |one| one.served_at)
    }
}

/// What is kept of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// It runs, and may have traffic from outside.
    is_ready: bool,
    report: Option<Report>,
    /// The addresses that its Node tells.
    told: Vec<IpAddr>,
}

impl Machine {
    pub fn read(node: &Node) -> Self {
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let is_ready = conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
        let is_excluded = node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EXCLUDED));
        let annotations = node.metadata.annotations.as_ref();
        let addresses = status.and_then(|status| status.addresses.as_ref());
        Self {
            is_ready: is_ready && !is_excluded,
            report: annotations.and_then(|all| Report::read(all.get(SERVES)?)),
            told: addresses.into_iter().flatten().filter_map(|one| one.address.parse().ok()).collect(),
        }
    }
}

/// All machines of the cluster, by name.
#[derive(Clone, Debug, Default)]
pub struct Machines(BTreeMap<String, Machine>);

impl Machines {
    /// Whether anything is another than before.
    pub fn set(&mut self, name: &str, now: Option<Machine>) -> bool {
        match now {
            Some(now) => self.0.insert(name.to_owned(), now.clone()) != Some(now),
            None => self.0.remove(name).is_some(),
        }
    }

    /// Whether some machine serves and may not read Secrets.
    pub fn need_keys(&self) -> bool {
        self.0.values().any(|machine| machine.report.as_ref().is_some_and(|report| report.needs_keys))
    }

    /// Those that serve beside this one, which has the addresses `own`. Nobody is believed to have an address that only the Nodes of
    /// others tell.
    pub fn serving(&self, own: &[IpAddr]) -> Vec<Serving> {
        let told: HashSet<_> = self.0.values().flat_map(|machine| &machine.told).collect();
        let mut all = Vec::new();
        for (name, machine) in self.0.iter().filter(|(_, machine)| machine.is_ready) {
            let Some(mut report) = machine.report.clone() else { continue };
            report.addresses.retain(|address| {
                let is_anothers = told.contains(address) && !machine.told.contains(address);
                !is_anothers && !own.contains(address) && is_reachable(*address)
            });
            if !report.addresses.is_empty() {
                all.push(Serving { name: name.clone(), report });
            }
        }
        all
    }
}

/// Whether other machines may have packets for it.
fn is_reachable(address: IpAddr) -> bool {
    let is_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.to_ipv4_mapped().is_some(),
    };
    !(is_local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

/// Another machine that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    pub name: String,
    pub report: Report,
}

/// The other machines, and where they serve the Gateways.
#[derive(Default)]
pub struct Fleet {
    pub machines: Vec<Serving>,
    of: HashMap<ObjectKey, Vec<(usize, IpAddr)>>,
}

impl Fleet {
    /// `given` are the addresses that the Gateways have here.
    pub fn new(machines: Vec<Serving>, keys: &[ObjectKey], gateways: &[Wanted], given: &[Vec<IpAddr>]) -> Self {
        let mut of: HashMap<ObjectKey, Vec<(usize, IpAddr)>> = HashMap::new();
        for (number, machine) in machines.iter().enumerate().take(MOST_LISTED) {
            let all = follow(gateways, given, &machine.report.addresses);
            for (key, addresses) in keys.iter().zip(all) {
                let addresses = addresses.into_iter().filter(|address| !is_overflow(*address));
                let mut places = addresses.map(|address| (number, address)).peekable();
                if places.peek().is_some() {
                    of.entry(key.clone()).or_default().extend(places);
                }
            }
        }
        Self { machines, of }
    }

    pub fn of(&self, gateway: &ObjectKey) -> impl Iterator<Item = (&Serving, IpAddr)> {
        let places = self.of.get(gateway).into_iter().flatten();
        places.filter_map(|(number, address)| Some((self.machines.get(*number)?, *address)))
    }

    pub fn is_same_for(&self, other: &Self, gateway: &ObjectKey) -> bool {
        self.of.get(gateway) == other.of.get(gateway)
    }
}

/// Where a machine that does not lead serves each Gateway: `given` are the addresses that the one that leads has given to it. A
/// Gateway without a wish is served at the first address of the machine where its ports are free; the oldest come first.
pub fn follow(gateways: &[Wanted], given: &[Vec<IpAddr>], own: &[IpAddr]) -> Vec<Vec<IpAddr>> {
    let mut taken: BTreeMap<IpAddr, BTreeSet<Port>> = BTreeMap::new();
    let mut places = vec![Vec::new(); gateways.len()];
    let all = || gateways.iter().zip(given).enumerate();
    for (place, (wanted, given)) in all() {
        let is_fixed = |address: &&IpAddr| is_overflow(**address) || !wanted.asked.is_empty() && own.contains(*address);
        for address in given.iter().filter(is_fixed) {
            taken.entry(*address).or_default().extend(&wanted.ports);
            places[place].push(*address);
        }
    }
    for (place, (wanted, given)) in all() {
        if !wanted.asked.is_empty() || !places[place].is_empty() || given.is_empty() {
            continue;
        }
        let is_free = |address: &&IpAddr| taken.get(address).is_none_or(|ports| ports.is_disjoint(&wanted.ports));
        if let Some(address) = own.iter().find(is_free).copied() {
            taken.entry(address).or_default().extend(&wanted.ports);
            places[place].push(address);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn node(ready: &str, told: &[&str], serves: &Value) -> Machine {
        let addresses: Vec<_> = told.iter().map(|one| json!({ "type": "InternalIP", "address": one })).collect();
        Machine::read(
            &serde_json::from_value(json!({
                "metadata": { "annotations": { SERVES: serves.to_string() } },
                "status": { "addresses": addresses, "conditions": [{ "type": "Ready", "status": ready }] },
            }))
            .unwrap(),
        )
    }

    #[test]
    fn a_machine_is_believed_to_have_its_own_addresses() {
        let mut machines = Machines::default();
        assert!(machines.set("a", Some(node("True", &["192.0.2.1"], &json!({ "addresses": ["192.0.2.1"] })))));
        assert!(!machines.set("a", Some(node("True", &["192.0.2.1"], &json!({ "addresses": ["192.0.2.1"] })))));
        let claims = json!({ "addresses": ["192.0.2.1", "127.0.0.1", "169.254.0.1", "::", "192.0.2.9", "192.0.2.2", "203.0.113.2"] });
        machines.set("b", Some(node("True", &["192.0.2.2"], &claims)));
        machines.set("down", Some(node("Unknown", &["192.0.2.3"], &json!({ "addresses": ["192.0.2.3"] }))));
        for (name, wrong) in [("c", json!("x")), ("d", json!({ "addresses": 7 })), ("e", json!([]))] {
            machines.set(name, Some(node("True", &["192.0.2.4"], &wrong)));
        }
        let serving = machines.serving(&[ip("192.0.2.9")]);
        let shown: Vec<_> = serving.iter().map(|one| (one.name.as_str(), one.report.addresses.clone())).collect();
        assert_eq!(shown, [("a", vec![ip("192.0.2.1")]), ("b", vec![ip("192.0.2.2"), ip("203.0.113.2")])]);
        machines.set("b", None);
        assert_eq!(machines.serving(&[]).len(), 1);
    }

    #[test]
    fn what_a_machine_tells_is_read_as_it_was_written() {
        let bound = Bound::from([
            ((ip("192.0.2.1"), 80, false), Ok(80)),
            ((ip("192.0.2.1"), 443, false), Ok(8443)),
            ((ip("192.0.2.1"), 53, true), Err("port 53 is in use".to_owned())),
            ((ip("127.0.0.1"), 81, false), Err("not told: nobody else asks there".to_owned())),
        ]);
        let report = Report::new(&[ip("192.0.2.1")], true, &bound);
        let read = Report::read(&report.text()).unwrap();
        assert_eq!(read, report);
        let at = |port| read.served_at(ip("192.0.2.1"), port);
        assert_eq!(
            [at((80, false)), at((443, false)), at((53, true)), at((53, false))],
            [Some(80), Some(8443), None, Some(53)]
        );
        assert_eq!(read.elsewhere.len(), 2);
        assert!(Report::read(&format!("{{\"addresses\": []{}}}", " ".repeat(MOST_TEXT))).is_none());
    }

    #[test]
    fn machines_follow_the_one_that_leads() {
        let check = |gateways: &[(&[u16], &[&str], &[&str])], own: &[&str], want: &[&str]| {
            let ips = |list: &[&str]| list.iter().map(|one| ip(one)).collect::<Vec<_>>();
            let wanted: Vec<_> = gateways
                .iter()
                .map(|(ports, _, asked)| Wanted {
                    ports: ports.iter().map(|port| (*port, false)).collect(),
                    had: Vec::new(),
                    asked: ips(asked),
                })
                .collect();
            let given: Vec<_> = gateways.iter().map(|(_, given, _)| ips(given)).collect();
            let places = follow(&wanted, &given, &ips(own));
            let shown: Vec<_> =
                places.iter().map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")).collect();
            assert_eq!(shown, want);
        };
        let leader = &["192.0.2.1"][..];
        // What has no address yet is not served; what is reached on one machine alone is so on each.
        check(
            &[(&[80], leader, &[]), (&[80], &["127.64.0.1"], &[]), (&[81], &[], &[])],
            &["192.0.2.2"],
            &["192.0.2.2", "127.64.0.1", ""],
        );
        // A machine with fewer addresses leaves out the younger.
        check(
            &[(&[80], leader, &[]), (&[80], &["192.0.2.9"], &[]), (&[81], leader, &[])],
            &["192.0.2.2"],
            &["192.0.2.2", "", "192.0.2.2"],
        );
        // An address that was asked for is served by the machine that has it.
        check(
            &[(&[80], leader, &[]), (&[80], &["192.0.2.2"], &["192.0.2.2"]), (&[80], leader, leader)],
            &["192.0.2.2", "192.0.2.3"],
            &["192.0.2.3", "192.0.2.2", ""],
        );
    }
}
