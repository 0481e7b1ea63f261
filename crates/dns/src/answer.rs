//! From a question to records: the rules of the Kubernetes DNS specification. Pure over the caches.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_server::proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_server::proto::rr::{Name, RData, Record, RecordType};

use crate::cluster::{Cluster, Host, Port, Target, undashed};

/// Seconds a positive answer may be kept.
const TTL: u32 = 30;
/// Seconds an absence may be kept: short, since what is asked for is often about to be created.
const NEGATIVE_TTL: u32 = 5;
/// The version of the specification that `dns-version` tells.
const SPECIFICATION: &str = "1.1.0";
/// A chain of external names longer than this is a loop.
const LONGEST_CHAIN: usize = 8;

#[derive(Clone, Debug)]
pub(crate) struct Zone {
    labels: Vec<String>,
    name: Name,
    service_addresses: Vec<IpAddr>,
}

/// What the server should do with a question.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Not ours: ask the upstreams.
    Forward,
    NoSuchName(Box<Record>),
    Records {
        answers: Vec<Record>,
        additionals: Vec<Record>,
        /// Present when there is nothing of the asked type.
        authority: Option<Box<Record>>,
        /// The end of a chain of external names outside of the cluster, still to be resolved.
        unresolved: Option<Name>,
    },
}

/// What stands at a name.
enum Found {
    Nothing,
    /// The name exists, be it only as a parent of others.
    Data(Vec<RData>, Vec<Record>),
    Alias(Name),
}

impl Zone {
    pub(crate) fn new(zone: &str, service_addresses: Vec<IpAddr>) -> Option<Self> {
        let mut name = Name::from_ascii(zone.trim_end_matches('.')).ok()?;
        name.set_fqdn(true);
        let labels = labels(&name);
        (!labels.is_empty()).then_some(Self { labels, name, service_addresses })
    }

    pub(crate) fn answer(&self, cluster: &Cluster, question: &Name, kind: RecordType) -> Outcome {
        if let Some(address) = reverse_address(question) {
            return self.reverse(cluster, address, question, kind);
        }
        let mut answers = Vec::new();
        let mut name = question.clone();
        for _ in 0..LONGEST_CHAIN {
            let Some(inside) = self.inside(&name) else {
                return match answers.is_empty() {
                    true => Outcome::Forward,
                    false => {
                        Outcome::Records { answers, additionals: Vec::new(), authority: None, unresolved: Some(name) }
                    }
                };
            };
            let inside: Vec<&str> = inside.iter().map(String::as_str).collect();
            match self.find(cluster, &inside, kind) {
                Found::Nothing if answers.is_empty() => return Outcome::NoSuchName(Box::new(self.authority())),
                Found::Nothing => break,
                Found::Data(data, additionals) => {
                    answers.extend(data.into_iter().map(|data| Record::from_rdata(name.clone(), TTL, data)));
                    let authority = answers.is_empty().then(|| Box::new(self.authority()));
                    return Outcome::Records { answers, additionals, authority, unresolved: None };
                }
                Found::Alias(target) => {
                    answers.push(Record::from_rdata(name, TTL, RData::CNAME(CNAME(target.clone()))));
                    if kind == RecordType::CNAME {
                        break;
                    }
                    name = target;
                }
            }
        }
        Outcome::Records { answers, additionals: Vec::new(), authority: None, unresolved: None }
    }

    /// The labels before the zone's, lower-cased; nothing for names outside.
    fn inside(&self, name: &Name) -> Option<Vec<String>> {
        let mut labels = labels(name);
        let start = labels.len().checked_sub(self.labels.len())?;
        (labels[start..] == self.labels[..]).then(|| {
            labels.truncate(start);
            labels
        })
    }

    fn find(&self, cluster: &Cluster, labels: &[&str], kind: RecordType) -> Found {
        let exists = || Found::Data(Vec::new(), Vec::new());
        let exists_if = |yes: bool| if yes { exists() } else { Found::Nothing };
        match labels {
            [] => Found::Data(self.apex(kind), Vec::new()),
            ["dns-version"] => {
                Found::Data(of_type(kind, [RData::TXT(TXT::new(vec![SPECIFICATION.into()]))]), Vec::new())
            }
            ["dns"] | ["svc"] | ["pod"] => exists(),
            ["ns", "dns"] => {
                Found::Data(of_type(kind, self.service_addresses.iter().copied().map(address)), Vec::new())
            }
            [namespace, "svc" | "pod"] => exists_if(cluster.has_namespace(namespace)),
            [host, namespace, "pod"] => match undashed(host) {
                Some(ip) if cluster.has_namespace(namespace) => Found::Data(of_type(kind, [address(ip)]), Vec::new()),
                _ => Found::Nothing,
            },
            [service, namespace, "svc"] => self.service(cluster, namespace, service, kind),
            [host, service, namespace, "svc"] => {
                let Some(target) = cluster.target(namespace, service) else { return Found::Nothing };
                match (host.strip_prefix('_'), target) {
                    (Some(protocol), Target::Virtual { ports, .. }) => {
                        exists_if(ports.iter().any(|port| port.protocol == protocol))
                    }
                    (Some(protocol), Target::Headless(hosts)) => {
                        exists_if(hosts.iter().flat_map(|host| &host.ports).any(|port| port.protocol == protocol))
                    }
                    // Endpoints have names of their own under services of both sorts.
                    (None, Target::Virtual { .. } | Target::Headless(_)) => {
                        let hosts = cluster.hosts(namespace, service);
                        let same: Vec<RData> = hosts
                            .iter()
                            .filter(|known| known.name == *host)
                            .map(|host| address(host.address))
                            .collect();
                        if same.is_empty() { Found::Nothing } else { Found::Data(of_type(kind, same), Vec::new()) }
                    }
                    _ => Found::Nothing,
                }
            }
            [port, protocol, service, namespace, "svc"] => {
                match (port.strip_prefix('_'), protocol.strip_prefix('_'), cluster.target(namespace, service)) {
                    (Some(port), Some(protocol), Some(target)) => {
                        let wanted = |known: &Port| known.name == port && known.protocol == protocol;
                        let (data, additionals) = self.endpoints(namespace, service, &target, wanted);
                        match data.is_empty() {
                            true => Found::Nothing,
                            false if kind == RecordType::SRV => Found::Data(data, additionals),
                            false => exists(),
                        }
                    }
                    _ => Found::Nothing,
                }
            }
            _ => Found::Nothing,
        }
    }

    fn service(&self, cluster: &Cluster, namespace: &str, service: &str, kind: RecordType) -> Found {
        match cluster.target(namespace, service) {
            None => Found::Nothing,
            Some(Target::External(target)) => match Name::from_ascii(target.trim_end_matches('.')) {
                Ok(mut target) => {
                    target.set_fqdn(true);
                    Found::Alias(target)
                }
                Err(_) => Found::Data(Vec::new(), Vec::new()),
            },
            Some(target) if kind == RecordType::SRV => {
                let (data, additionals) = self.endpoints(namespace, service, &target, |_| true);
                Found::Data(data, additionals)
            }
            Some(Target::Virtual { addresses, .. }) => {
                Found::Data(of_type(kind, addresses.into_iter().map(address)), Vec::new())
            }
            // A headless service without a ready endpoint has no address, and clients that wait for one must not
            // be told that the name is wrong for good: the name is there.
            Some(Target::Headless(hosts)) => {
                let mut data = of_type(kind, hosts.iter().map(|host| address(host.address)));
                shuffle(&mut data);
                Found::Data(data, Vec::new())
            }
        }
    }

    /// SRV records for the ports that are wanted, and the addresses of their targets.
    fn endpoints(
        &self,
        namespace: &str,
        service: &str,
        target: &Target,
        wanted: impl Fn(&Port) -> bool,
    ) -> (Vec<RData>, Vec<Record>) {
        let mut found: Vec<(u16, Name)> = Vec::new();
        let mut additionals = Vec::new();
        let mut add = |name: Option<Name>, addresses: &[IpAddr], ports: &[Port]| {
            let Some(name) = name else { return };
            let numbers: Vec<u16> = ports.iter().filter(|port| wanted(port)).map(|port| port.number).collect();
            if !numbers.is_empty() {
                let records = addresses.iter().map(|ip| Record::from_rdata(name.clone(), TTL, address(*ip)));
                additionals.extend(records);
            }
            found.extend(numbers.into_iter().map(|number| (number, name.clone())));
        };
        match target {
            Target::Virtual { addresses, ports } => add(self.name(&[service, namespace, "svc"]), addresses, ports),
            Target::Headless(hosts) => {
                for Host { address, name, ports } in hosts {
                    add(self.name(&[name, service, namespace, "svc"]), &[*address], ports);
                }
            }
            Target::External(_) => {}
        }
        let weight = u16::try_from(100 / found.len().max(1)).unwrap_or(1).max(1);
        let data = found.into_iter().map(|(port, name)| RData::SRV(SRV::new(0, weight, port, name))).collect();
        (data, additionals)
    }

    fn reverse(&self, cluster: &Cluster, ip: IpAddr, question: &Name, kind: RecordType) -> Outcome {
        let names = cluster.names_of(ip);
        if names.is_empty() {
            return Outcome::Forward;
        }
        let names = names.iter().filter_map(|name| {
            let mut labels: Vec<&str> = name.split('.').collect();
            labels.push("svc");
            self.name(&labels)
        });
        let data = of_type(kind, names.map(|name| RData::PTR(PTR(name))));
        let answers: Vec<Record> =
            data.into_iter().map(|data| Record::from_rdata(question.clone(), TTL, data)).collect();
        let authority = answers.is_empty().then(|| Box::new(self.authority()));
        Outcome::Records { answers, additionals: Vec::new(), authority, unresolved: None }
    }

    fn apex(&self, kind: RecordType) -> Vec<RData> {
        let server = self.name(&["ns", "dns"]).map(|name| RData::NS(NS(name)));
        of_type(kind, server.into_iter().chain([self.soa()]))
    }

    fn soa(&self) -> RData {
        let server = self.name(&["ns", "dns"]).unwrap_or_else(|| self.name.clone());
        let master = self.name(&["hostmaster"]).unwrap_or_else(|| self.name.clone());
        RData::SOA(SOA::new(server, master, 1, 7200, 1800, 86400, NEGATIVE_TTL))
    }

    fn authority(&self) -> Record {
        Record::from_rdata(self.name.clone(), NEGATIVE_TTL, self.soa())
    }

    fn name(&self, labels: &[&str]) -> Option<Name> {
        let name = Name::from_labels(labels.iter().map(|label| label.as_bytes())).ok()?;
        name.append_name(&self.name).ok()
    }
}

fn labels(name: &Name) -> Vec<String> {
    name.iter().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect()
}

fn address(ip: IpAddr) -> RData {
    match ip {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    }
}

fn of_type(kind: RecordType, data: impl IntoIterator<Item = RData>) -> Vec<RData> {
    data.into_iter().filter(|data| kind == RecordType::ANY || data.record_type() == kind).collect()
}

/// Clients take the first address: another one each time spreads them.
fn shuffle(data: &mut [RData]) {
    use rand::seq::SliceRandom;
    data.shuffle(&mut rand::rng());
}

/// The complete address that a name below `in-addr.arpa` or `ip6.arpa` stands for.
fn reverse_address(name: &Name) -> Option<IpAddr> {
    let labels = labels(name);
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    match labels.as_slice() {
        [d, c, b, a, "in-addr", "arpa"] => {
            let mut octets = [0_u8; 4];
            for (octet, text) in octets.iter_mut().zip([a, b, c, d]) {
                *octet = text.parse().ok()?;
            }
            Some(IpAddr::V4(Ipv4Addr::from(octets)))
        }
        [nibbles @ .., "ip6", "arpa"] if nibbles.len() == 32 => {
            let mut value = 0_u128;
            for nibble in nibbles.iter().rev() {
                let digit = (nibble.len() == 1).then(|| u128::from_str_radix(nibble, 16).ok())??;
                value = (value << 4) | digit;
            }
            Some(IpAddr::V6(Ipv6Addr::from(value)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::sample;

    fn check(question: &str, kind: RecordType, expected: &str) {
        let zone = Zone::new("cluster.local", vec![[10, 96, 0, 10].into()]).expect("a zone");
        let name = Name::from_ascii(question).expect("a name");
        let text = |records: Vec<Record>| {
            let mut lines: Vec<String> = records.iter().map(|record| record.data.to_string()).collect();
            lines.sort();
            lines.join(", ")
        };
        let seen = match zone.answer(&sample(), &name, kind) {
            Outcome::Forward => "forward".into(),
            Outcome::NoSuchName(_) => "no such name".into(),
            Outcome::Records { answers, authority: Some(_), .. } if answers.is_empty() => "nothing".into(),
            Outcome::Records { answers, additionals, unresolved, .. } => {
                let mut seen = text(answers);
                if !additionals.is_empty() {
                    seen += &format!(" with {}", text(additionals));
                }
                if let Some(name) = unresolved {
                    seen += &format!(" then {name}");
                }
                seen
            }
        };
        assert_eq!(seen, expected, "{question} {kind}");
    }

    #[test]
    fn names_are_answered_as_specified() {
        use RecordType::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
        for (question, kind, expected) in [
            ("web.default.svc.cluster.local.", A, "10.96.0.7"),
            ("WEB.Default.svc.Cluster.LOCAL.", A, "10.96.0.7"),
            ("web.default.svc.cluster.local.", AAAA, "nothing"),
            ("dual.default.svc.cluster.local.", AAAA, "fd00::8"),
            ("web.other.svc.cluster.local.", A, "no such name"),
            ("nothing.default.svc.cluster.local.", A, "no such name"),
            ("db.default.svc.cluster.local.", A, "10.244.0.5, 10.244.0.6"),
            ("db-0.db.default.svc.cluster.local.", A, "10.244.0.5"),
            ("10-244-0-6.db.default.svc.cluster.local.", A, "10.244.0.6"),
            ("db-2.db.default.svc.cluster.local.", A, "no such name"),
            ("empty.default.svc.cluster.local.", A, "nothing"),
            (
                "_http._tcp.web.default.svc.cluster.local.",
                SRV,
                "0 100 80 web.default.svc.cluster.local. with 10.96.0.7",
            ),
            ("_dns._udp.web.default.svc.cluster.local.", A, "nothing"),
            ("_tcp.web.default.svc.cluster.local.", A, "nothing"),
            ("_http._udp.web.default.svc.cluster.local.", SRV, "no such name"),
            (
                "_http._tcp.db.default.svc.cluster.local.",
                SRV,
                "0 50 8080 10-244-0-6.db.default.svc.cluster.local., 0 50 8080 db-0.db.default.svc.cluster.local. with 10.244.0.5, 10.244.0.6",
            ),
            ("1-2-3-4.default.pod.cluster.local.", A, "1.2.3.4"),
            ("1-2-3-4.other.pod.cluster.local.", A, "no such name"),
            ("x.default.pod.cluster.local.", A, "no such name"),
            ("default.svc.cluster.local.", A, "nothing"),
            ("other.svc.cluster.local.", A, "no such name"),
            ("svc.cluster.local.", A, "nothing"),
            ("cluster.local.", SOA, "ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5"),
            ("cluster.local.", NS, "ns.dns.cluster.local."),
            ("ns.dns.cluster.local.", A, "10.96.0.10"),
            ("dns-version.cluster.local.", TXT, "1.1.0"),
            ("example.com.", A, "forward"),
            ("notcluster.local.", A, "forward"),
            ("example.com.default.svc.cluster.local.", A, "no such name"),
            ("ext.default.svc.cluster.local.", A, "Elsewhere.example. then Elsewhere.example."),
            ("ext.default.svc.cluster.local.", CNAME, "Elsewhere.example."),
            ("inner.default.svc.cluster.local.", A, "10.96.0.7, web.default.svc.cluster.local."),
            ("7.0.96.10.in-addr.arpa.", PTR, "web.default.svc.cluster.local."),
            ("5.0.244.10.in-addr.arpa.", PTR, "db-0.db.default.svc.cluster.local."),
            ("6.0.244.10.in-addr.arpa.", PTR, "10-244-0-6.db.default.svc.cluster.local."),
            ("9.0.244.10.in-addr.arpa.", PTR, "forward"),
            ("8.8.8.8.in-addr.arpa.", PTR, "forward"),
            (
                "8.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.",
                PTR,
                "dual.default.svc.cluster.local.",
            ),
        ] {
            check(question, kind, expected);
        }
    }

    #[test]
    fn an_alias_of_itself_ends() {
        let zone = Zone::new("cluster.local.", Vec::new()).expect("a zone");
        let name = Name::from_ascii("loop.default.svc.cluster.local.").expect("a name");
        let Outcome::Records { answers, .. } = zone.answer(&sample(), &name, RecordType::A) else {
            panic!("the alias itself is an answer")
        };
        assert_eq!(answers.len(), LONGEST_CHAIN);
    }
}
