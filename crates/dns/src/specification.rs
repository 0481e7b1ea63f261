//! The Kubernetes DNS specification 1.1.0, line by line: each row is one of its statements.

use std::net::IpAddr;

use ferry_client::Informer;
use ferry_client::endpoint_slices::Slice;
use hickory_proto::rr::RecordType::{self, A, AAAA, CNAME, PTR, SRV, TXT};
use hickory_proto::rr::{Name, Record};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::answer::{Outcome, Zone, reverse_address};
use crate::cluster::Cluster;
use crate::plugins::kubernetes::Options;

fn parse<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

fn cluster() -> Cluster {
    let (services, slices, namespaces) = (Informer::detached(), Informer::detached(), Informer::detached());
    let ports =
        json!([{"name": "https", "port": 443, "protocol": "TCP"}, {"name": "quic", "port": 443, "protocol": "UDP"}]);
    for (name, spec) in [
        ("kubernetes", json!({"clusterIP": "10.3.0.1", "clusterIPs": ["10.3.0.1", "2001:db8::1"], "ports": ports})),
        ("unnamed", json!({"clusterIP": "10.3.0.2", "ports": [{"port": 80, "protocol": "TCP"}]})),
        ("headless", json!({"clusterIP": "None", "ports": ports})),
        ("early", json!({"clusterIP": "None", "publishNotReadyAddresses": true, "ports": ports})),
        ("nobody", json!({"clusterIP": "None", "ports": ports})),
        ("foo", json!({"type": "ExternalName", "externalName": "www.example.com"})),
    ] {
        services.apply(parse(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})));
    }
    let slice = |service: &str, family: &str, endpoints: Value| {
        let metadata = json!({"name": format!("{service}-{}", family.to_lowercase()), "namespace": "default",
            "labels": {"kubernetes.io/service-name": service}});
        let slice = json!({"metadata": metadata, "addressType": family, "endpoints": endpoints,
            "ports": [{"name": "https", "port": 8443, "protocol": "TCP"}, {"name": "quic", "port": 8443, "protocol": "UDP"}]});
        Slice::from(parse::<EndpointSlice>(slice))
    };
    slices.apply(slice("kubernetes", "IPv4", json!([{"addresses": ["10.10.0.1"], "hostname": "first"}])));
    slices.apply(slice(
        "headless",
        "IPv4",
        json!([
            {"addresses": ["10.3.0.100"], "hostname": "my-pet"}, {"addresses": ["10.3.0.101"]},
            {"addresses": ["10.3.0.102"], "hostname": "ill", "conditions": {"ready": false}},
        ]),
    ));
    slices.apply(slice("headless", "IPv6", json!([{"addresses": ["2001:db8::101"], "hostname": "my-pet"}])));
    // The controller tells endpoints ready that are published early.
    slices.apply(slice(
        "early",
        "IPv4",
        json!([{"addresses": ["10.3.0.110"], "hostname": "early-0", "conditions": {"ready": true, "serving": false}}]),
    ));
    slices.apply(slice(
        "nobody",
        "IPv4",
        json!([{"addresses": ["10.3.0.120"], "hostname": "none-0", "conditions": {"ready": false}}]),
    ));
    namespaces.apply(parse(json!({"metadata": {"name": "default"}})));
    services.mark_synced();
    slices.mark_synced();
    namespaces.mark_synced();
    Cluster::new(services, slices, namespaces)
}

/// Sorted records with their names, types and time to live; NXDOMAIN and NODATA where there are none.
fn ask(zone: &Zone, cluster: &Cluster, question: &str, kind: RecordType) -> Vec<String> {
    let name = Name::from_ascii(question).expect("a name");
    let outcome = match reverse_address(&name) {
        Some(address) => zone.reverse(cluster, address, &name, kind),
        None => zone.answer(cluster, &name, kind),
    };
    let shown = |record: &Record| format!("{} {} IN {} {}", record.name, record.ttl, record.record_type(), record.data);
    match outcome {
        Outcome::NoSuchName(_) => vec!["NXDOMAIN".to_owned()],
        Outcome::Alias(record, _) => vec![shown(&record)],
        Outcome::Records { answers, .. } if answers.is_empty() => vec!["NODATA".to_owned()],
        Outcome::Records { answers, .. } => {
            let mut lines: Vec<String> = answers.iter().map(shown).collect();
            lines.sort();
            lines
        }
    }
}

#[test]
fn every_statement_holds() {
    let address: IpAddr = [10, 3, 0, 10].into();
    let options = Options { pods: true, ttl: 5, ..Options::default() };
    let zone = Zone::named(Name::from_ascii("cluster.local.").expect("a name"), vec![address], options);
    let cluster = cluster();
    let svc = "default.svc.cluster.local.";
    let rows: Vec<(&str, String, RecordType, Vec<String>)> = vec![
        (
            "2.2: a TXT record tells the version",
            "dns-version.cluster.local.".into(),
            TXT,
            vec!["dns-version.cluster.local. 5 IN TXT 1.1.0".into()],
        ),
        (
            "2.3.1: a ClusterIP has an A record",
            format!("kubernetes.{svc}"),
            A,
            vec![format!("kubernetes.{svc} 5 IN A 10.3.0.1")],
        ),
        (
            "2.3.1: one of IPv6 an AAAA record",
            format!("kubernetes.{svc}"),
            AAAA,
            vec![format!("kubernetes.{svc} 5 IN AAAA 2001:db8::1")],
        ),
        (
            "2.3.1: without an address of the family there is nothing",
            format!("unnamed.{svc}"),
            AAAA,
            vec!["NODATA".into()],
        ),
        (
            "2.3.2: a named port has an SRV record that leads to the Service",
            format!("_https._tcp.kubernetes.{svc}"),
            SRV,
            vec![format!("_https._tcp.kubernetes.{svc} 5 IN SRV 0 100 443 kubernetes.{svc}")],
        ),
        (
            "2.3.2: by its own protocol",
            format!("_quic._udp.kubernetes.{svc}"),
            SRV,
            vec![format!("_quic._udp.kubernetes.{svc} 5 IN SRV 0 100 443 kubernetes.{svc}")],
        ),
        ("2.3.2: by no other", format!("_quic._tcp.kubernetes.{svc}"), SRV, vec!["NXDOMAIN".into()]),
        ("2.3.2: a port without a name has none", format!("_._tcp.unnamed.{svc}"), SRV, vec!["NXDOMAIN".into()]),
        (
            "2.3.3: the address leads back to the Service",
            "1.0.3.10.in-addr.arpa.".into(),
            PTR,
            vec![format!("1.0.3.10.in-addr.arpa. 5 IN PTR kubernetes.{svc}")],
        ),
        (
            "2.3.3: of IPv6 as well",
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.".into(),
            PTR,
            vec![format!(
                "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa. 5 IN PTR kubernetes.{svc}"
            )],
        ),
        (
            "2.4.1: a headless Service has a record for each ready endpoint",
            format!("headless.{svc}"),
            A,
            vec![format!("headless.{svc} 5 IN A 10.3.0.100"), format!("headless.{svc} 5 IN A 10.3.0.101")],
        ),
        (
            "2.4.1: of each family",
            format!("headless.{svc}"),
            AAAA,
            vec![format!("headless.{svc} 5 IN AAAA 2001:db8::101")],
        ),
        (
            "2.4.1: without a ready endpoint the name does not exist",
            format!("nobody.{svc}"),
            A,
            vec!["NXDOMAIN".into()],
        ),
        (
            "2.4.1: an endpoint with a hostname has a name of its own",
            format!("my-pet.headless.{svc}"),
            A,
            vec![format!("my-pet.headless.{svc} 5 IN A 10.3.0.100")],
        ),
        (
            "2.4.1: of both families",
            format!("my-pet.headless.{svc}"),
            AAAA,
            vec![format!("my-pet.headless.{svc} 5 IN AAAA 2001:db8::101")],
        ),
        (
            "2.4.1: one without has a name that the system gives",
            format!("10-3-0-101.headless.{svc}"),
            A,
            vec![format!("10-3-0-101.headless.{svc} 5 IN A 10.3.0.101")],
        ),
        ("2.4.1: one that is not ready has none", format!("ill.headless.{svc}"), A, vec!["NXDOMAIN".into()]),
        (
            "2.4.1: unless it is published early",
            format!("early-0.early.{svc}"),
            A,
            vec![format!("early-0.early.{svc} 5 IN A 10.3.0.110")],
        ),
        (
            "2.4.2: a named port has an SRV record for each ready endpoint",
            format!("_https._tcp.headless.{svc}"),
            SRV,
            vec![
                format!("_https._tcp.headless.{svc} 5 IN SRV 0 50 8443 10-3-0-101.headless.{svc}"),
                format!("_https._tcp.headless.{svc} 5 IN SRV 0 50 8443 my-pet.headless.{svc}"),
            ],
        ),
        ("2.4.2: none without a ready endpoint", format!("_https._tcp.nobody.{svc}"), SRV, vec!["NXDOMAIN".into()]),
        (
            "2.4.3: the address of a ready endpoint with a hostname leads back to it",
            "100.0.3.10.in-addr.arpa.".into(),
            PTR,
            vec![format!("100.0.3.10.in-addr.arpa. 5 IN PTR my-pet.headless.{svc}")],
        ),
        (
            "2.4.3: that of one that is not ready does not",
            "102.0.3.10.in-addr.arpa.".into(),
            PTR,
            vec!["NXDOMAIN".into()],
        ),
        (
            "2.5.1: an external name is an alias",
            format!("foo.{svc}"),
            CNAME,
            vec![format!("foo.{svc} 5 IN CNAME www.example.com.")],
        ),
        (
            "2.5.1: whatever is asked for",
            format!("foo.{svc}"),
            A,
            vec![format!("foo.{svc} 5 IN CNAME www.example.com.")],
        ),
        ("a Service that is not there", format!("absent.{svc}"), A, vec!["NXDOMAIN".into()]),
        (
            "names are not a matter of case",
            format!("KUBERNETES.{svc}"),
            A,
            vec![format!("KUBERNETES.{svc} 5 IN A 10.3.0.1")],
        ),
    ];
    for (statement, question, kind, expected) in rows {
        assert_eq!(ask(&zone, &cluster, &question, kind), expected, "{statement}");
    }
}
