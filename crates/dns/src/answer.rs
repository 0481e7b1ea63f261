//! From a question to records: the rules of the Kubernetes DNS specification. Pure over the caches.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use rand::seq::SliceRandom;

use crate::cluster::{Cluster, Host, Port, Target, undashed};
use crate::plugins::kubernetes::Options;

/// Seconds an absence may be kept: short, since what is asked for is often about to be created.
const NEGATIVE_TTL: u32 = 5;
/// The version of the specification that `dns-version` tells.
const SPECIFICATION: &str = "1.1.0";
/// No answer holds more SRV records: each takes 32 bytes of 65,535 at least. Ports and endpoints are multiplied.
const MOST_RECORDS: usize = 2048;

#[derive(Clone, Debug)]
pub(crate) struct Zone {
    labels: Vec<String>,
    name: Name,
    service_addresses: Vec<IpAddr>,
    options: Options,
}

/// What is known of a name of the cluster.
#[derive(Debug)]
pub(crate) enum Outcome {
    NoSuchName(Box<Record>),
    Records {
        answers: Vec<Record>,
        additionals: Vec<Record>,
        /// Present when there is nothing of the asked type.
        authority: Option<Box<Record>>,
    },
    /// An external name, still to be resolved.
    Alias(Box<Record>, Name),
}

/// What stands at a name.
enum Found {
    Nothing,
    /// The name exists, be it only as a parent of others.
    Data(Vec<RData>, Vec<Record>),
    Alias(Name),
}

impl Zone {
    pub(crate) fn named(name: Name, service_addresses: Vec<IpAddr>, options: Options) -> Self {
        Self { labels: labels(&name), name, service_addresses, options }
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn contains(&self, name: &Name) -> bool {
        self.name.zone_of(name)
    }

    pub(crate) fn depth(&self) -> usize {
        self.labels.len()
    }

    /// For a name of this zone.
    pub(crate) fn answer(&self, cluster: &Cluster, name: &Name, kind: RecordType) -> Outcome {
        let Some(inside) = self.inside(name) else { return Outcome::NoSuchName(Box::new(self.authority())) };
        let inside: Vec<&str> = inside.iter().map(String::as_str).collect();
        match self.find(cluster, &inside, kind) {
            Found::Nothing => Outcome::NoSuchName(Box::new(self.authority())),
            Found::Data(data, additionals) => {
                let record = |data| Record::from_rdata(name.clone(), self.options.ttl, data);
                let answers: Vec<Record> = data.into_iter().map(record).collect();
                let authority = answers.is_empty().then(|| Box::new(self.authority()));
                Outcome::Records { answers, additionals, authority }
            }
            Found::Alias(target) => {
                let data = RData::CNAME(CNAME(target.clone()));
                Outcome::Alias(Box::new(Record::from_rdata(name.clone(), self.options.ttl, data)), target)
            }
        }
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
            [.., namespace, "svc" | "pod"] if !self.shows(namespace) => Found::Nothing,
            [namespace, "svc" | "pod"] => exists_if(cluster.has_namespace(namespace)),
            [host, namespace, "pod"] => match undashed(host) {
                Some(ip) if self.options.pods && cluster.has_namespace(namespace) => {
                    Found::Data(of_type(kind, [address(ip)]), Vec::new())
                }
                _ => Found::Nothing,
            },
            [service, namespace, "svc"] => self.service(cluster, namespace, service, kind),
            [host, service, namespace, "svc"] => {
                let Some(target) = self.target(cluster, namespace, service) else { return Found::Nothing };
                match (host.strip_prefix('_'), target) {
                    (Some(protocol), Target::Virtual { ports, .. }) => {
                        exists_if(ports.iter().any(|port| port.protocol == protocol))
                    }
                    (Some(protocol), Target::Headless(hosts)) => {
                        exists_if(hosts.iter().flat_map(|host| &*host.ports).any(|port| port.protocol == protocol))
                    }
                    // Endpoints have names of their own under services of both sorts.
                    (None, Target::Virtual { .. } | Target::Headless(_)) if self.options.endpoints => {
                        let hosts = cluster.hosts(namespace, service, self.options.endpoint_pod_names);
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
                match (port.strip_prefix('_'), protocol.strip_prefix('_'), self.target(cluster, namespace, service)) {
                    (Some(port), Some(protocol), Some(target)) => {
                        // A port without a name has no record.
                        let wanted =
                            |known: &Port| !port.is_empty() && known.name == port && known.protocol == protocol;
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

    /// Whether the Corefile lets names of a namespace be told.
    fn shows(&self, namespace: &str) -> bool {
        let shown = &self.options.namespaces;
        shown.is_empty() || shown.iter().any(|known| known == namespace)
    }

    fn target(&self, cluster: &Cluster, namespace: &str, service: &str) -> Option<Target> {
        let pod_names = self.options.endpoint_pod_names;
        let target = cluster.target(namespace, service, pod_names)?;
        let empty = || cluster.hosts(namespace, service, pod_names).is_empty();
        match target {
            Target::Virtual { .. } if self.options.ignore_empty_service && empty() => None,
            Target::Headless(_) if !self.options.endpoints => Some(Target::Headless(Vec::new())),
            target => Some(target),
        }
    }

    fn service(&self, cluster: &Cluster, namespace: &str, service: &str, kind: RecordType) -> Found {
        match self.target(cluster, namespace, service) {
            None => Found::Nothing,
            Some(Target::External(target)) => match Name::from_ascii(target.trim_end_matches('.')) {
                Ok(mut target) => {
                    target.set_fqdn(true);
                    Found::Alias(target)
                }
                Err(_) => Found::Data(Vec::new(), Vec::new()),
            },
            // So the specification has it, for every type.
            Some(Target::Headless(hosts)) if hosts.is_empty() => Found::Nothing,
            Some(target) if kind == RecordType::SRV => {
                let (data, additionals) = self.endpoints(namespace, service, &target, |_| true);
                Found::Data(data, additionals)
            }
            Some(Target::Virtual { addresses, .. }) => {
                Found::Data(of_type(kind, addresses.into_iter().map(address)), Vec::new())
            }
            Some(Target::Headless(hosts)) => {
                let mut data = of_type(kind, hosts.iter().map(|host| address(host.address)));
                data.shuffle(&mut rand::rng());
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
        // An endpoint of both families has one name.
        let mut known: HashSet<(u16, Name)> = HashSet::new();
        let mut found: Vec<(u16, Name)> = Vec::new();
        let mut additionals = Vec::new();
        let mut add = |name: Option<Name>, addresses: &[IpAddr], ports: &[Port]| {
            let Some(name) = name else { return };
            let room = MOST_RECORDS - found.len();
            let numbers = ports.iter().filter(|port| wanted(port)).map(|port| port.number);
            let numbers: Vec<u16> = numbers.take(room).collect();
            if !numbers.is_empty() {
                let records =
                    addresses.iter().map(|ip| Record::from_rdata(name.clone(), self.options.ttl, address(*ip)));
                additionals.extend(records);
            }
            let new = numbers.into_iter().map(|number| (number, name.clone()));
            found.extend(new.filter(|one| known.insert(one.clone())));
        };
        match target {
            Target::Virtual { addresses, ports } => add(self.below(&[service, namespace, "svc"]), addresses, ports),
            Target::Headless(hosts) => {
                for Host { address, name, ports } in hosts {
                    add(self.below(&[name, service, namespace, "svc"]), &[*address], ports);
                }
            }
            Target::External(_) => {}
        }
        let weight = u16::try_from(100 / found.len().max(1)).unwrap_or(1).max(1);
        let data = found.into_iter().map(|(port, name)| RData::SRV(SRV::new(0, weight, port, name))).collect();
        (data, additionals)
    }

    /// The names of an address.
    pub(crate) fn reverse(&self, cluster: &Cluster, ip: IpAddr, question: &Name, kind: RecordType) -> Outcome {
        let mut names = cluster.names_of(ip, self.options.endpoint_pod_names);
        names.retain(|name| name.rsplit('.').next().is_some_and(|namespace| self.shows(namespace)));
        if names.is_empty() {
            return Outcome::NoSuchName(Box::new(self.authority()));
        }
        let names = names.iter().filter_map(|name| {
            let mut labels: Vec<&str> = name.split('.').collect();
            labels.push("svc");
            self.below(&labels)
        });
        let data = of_type(kind, names.map(|name| RData::PTR(PTR(name))));
        let answers: Vec<Record> =
            data.into_iter().map(|data| Record::from_rdata(question.clone(), self.options.ttl, data)).collect();
        let authority = answers.is_empty().then(|| Box::new(self.authority()));
        Outcome::Records { answers, additionals: Vec::new(), authority }
    }

    fn apex(&self, kind: RecordType) -> Vec<RData> {
        let server = self.below(&["ns", "dns"]).map(|name| RData::NS(NS(name)));
        of_type(kind, server.into_iter().chain([self.soa()]))
    }

    fn soa(&self) -> RData {
        let server = self.below(&["ns", "dns"]).unwrap_or_else(|| self.name.clone());
        let master = self.below(&["hostmaster"]).unwrap_or_else(|| self.name.clone());
        RData::SOA(SOA::new(server, master, 1, 7200, 1800, 86400, NEGATIVE_TTL))
    }

    fn authority(&self) -> Record {
        Record::from_rdata(self.name.clone(), NEGATIVE_TTL, self.soa())
    }

    fn below(&self, labels: &[&str]) -> Option<Name> {
        let name = Name::from_labels(labels.iter().map(|label| label.as_bytes())).ok()?;
        name.append_name(&self.name).ok()
    }
}

fn labels(name: &Name) -> Vec<String> {
    name.iter().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect()
}

pub(crate) fn address(ip: IpAddr) -> RData {
    match ip {
        IpAddr::V4(ip) => RData::A(A(ip)),
        IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
    }
}

fn of_type(kind: RecordType, data: impl IntoIterator<Item = RData>) -> Vec<RData> {
    data.into_iter().filter(|data| kind == RecordType::ANY || data.record_type() == kind).collect()
}

/// Clients take the first address: another one each time spreads them.
pub(crate) fn shuffle(answers: &mut [Record]) {
    // What an alias leads to stays behind it.
    let is_address = |record: &Record| matches!(record.record_type(), RecordType::A | RecordType::AAAA);
    let start = answers.iter().position(is_address).unwrap_or(answers.len());
    if answers[start..].iter().all(is_address) {
        answers[start..].shuffle(&mut rand::rng());
    }
}

/// The complete address that a name below `in-addr.arpa` or `ip6.arpa` stands for.
pub(crate) fn reverse_address(name: &Name) -> Option<IpAddr> {
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

    fn zone() -> Zone {
        let options = Options { pods: true, ttl: 30, ..Options::default() };
        Zone::named(Name::from_ascii("cluster.local.").expect("a name"), vec![[10, 96, 0, 10].into()], options)
    }

    fn check(question: &str, kind: RecordType, expected: &str) {
        let zone = zone();
        let name = Name::from_ascii(question).expect("a name");
        let outcome = match reverse_address(&name) {
            Some(address) => zone.reverse(&sample(), address, &name, kind),
            None => zone.answer(&sample(), &name, kind),
        };
        let text = |records: Vec<Record>| {
            let mut lines: Vec<String> = records.iter().map(|record| record.data.to_string()).collect();
            lines.sort();
            lines.join(", ")
        };
        let seen = match outcome {
            Outcome::NoSuchName(_) => "no such name".into(),
            Outcome::Records { answers, authority: Some(_), .. } if answers.is_empty() => "nothing".into(),
            Outcome::Alias(record, target) => format!("{} then {target}", text(vec![*record])),
            Outcome::Records { answers, additionals, .. } => {
                let mut seen = text(answers);
                if !additionals.is_empty() {
                    seen += &format!(" with {}", text(additionals));
                }
                seen
            }
        };
        assert_eq!(seen, expected, "{question} {kind}");
    }

    #[test]
    fn names_are_answered_as_specified() {
        use RecordType::{A, AAAA, NS, PTR, SOA, SRV, TXT};
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
            ("empty.default.svc.cluster.local.", A, "no such name"),
            ("empty.default.svc.cluster.local.", SRV, "no such name"),
            ("db.default.svc.cluster.local.", AAAA, "nothing"),
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
            ("example.com.default.svc.cluster.local.", A, "no such name"),
            ("ext.default.svc.cluster.local.", A, "Elsewhere.example. then Elsewhere.example."),
            (
                "inner.default.svc.cluster.local.",
                A,
                "web.default.svc.cluster.local. then web.default.svc.cluster.local.",
            ),
            ("7.0.96.10.in-addr.arpa.", PTR, "web.default.svc.cluster.local."),
            ("5.0.244.10.in-addr.arpa.", PTR, "db-0.db.default.svc.cluster.local."),
            ("6.0.244.10.in-addr.arpa.", PTR, "10-244-0-6.db.default.svc.cluster.local."),
            ("9.0.244.10.in-addr.arpa.", PTR, "no such name"),
            ("7.0.244.10.in-addr.arpa.", PTR, "no such name"),
            ("8.8.8.8.in-addr.arpa.", PTR, "no such name"),
            (
                "8.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.",
                PTR,
                "dual.default.svc.cluster.local.",
            ),
        ] {
            check(question, kind, expected);
        }
    }

    /// Every endpoint at every port was written out, of which no answer holds but a few.
    #[test]
    fn an_answer_is_made_of_what_fits_into_it() {
        let endpoints: Vec<_> = (0..1000_u32)
            .map(|at| serde_json::json!({"addresses": [Ipv4Addr::from(0x0A00_0000 + at).to_string()]}))
            .collect();
        let ports: Vec<_> =
            (1..=1000).map(|at| serde_json::json!({"name": format!("p{at}"), "port": at, "protocol": "TCP"})).collect();
        let cluster = crate::cluster::tests::headless(endpoints.into(), ports.into());
        let hosts = cluster.hosts("default", "many", false);
        assert_eq!(hosts.len(), 1000);
        assert!(hosts.iter().all(|host| std::sync::Arc::ptr_eq(&host.ports, &hosts[0].ports)), "they share them");
        for (question, most) in
            [("many.default.svc.cluster.local.", MOST_RECORDS), ("_p7._tcp.many.default.svc.cluster.local.", 1000)]
        {
            let name = Name::from_ascii(question).expect("a name");
            match zone().answer(&cluster, &name, RecordType::SRV) {
                Outcome::Records { answers, additionals, .. } => {
                    assert_eq!(answers.len(), most, "{question}");
                    assert!(additionals.len() <= 1000);
                }
                other => panic!("{question}: {other:?}"),
            }
        }
    }
}
