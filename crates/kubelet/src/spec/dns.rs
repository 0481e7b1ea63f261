//! The resolver of a pod: `/etc/resolv.conf` as its DNS policy asks for.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;

use ferry_cri::v1::DnsConfig;
use k8s_openapi::api::core::v1::Pod;

use crate::pod;

/// What glibc reads and upstream allows.
const MOST_SERVERS: usize = 3;
const MOST_SEARCHES: usize = 32;
const LONGEST_SEARCH: usize = 2048;
/// More of the node's file is not read.
const LONGEST_FILE: u64 = 64 * 1024;

/// The node's own resolver configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HostResolver {
    pub(crate) servers: Vec<String>,
    pub(crate) searches: Vec<String>,
    pub(crate) options: Vec<String>,
}

impl HostResolver {
    /// As the file is now: the host may have moved to another network since the last pod.
    pub(crate) fn read(path: &Path) -> Self {
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(LONGEST_FILE).read_to_string(&mut text));
        if let Err(error) = read {
            tracing::warn!("pods get no resolver of the node's: {}: {error}", path.display());
        }
        Self::parse(&text)
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut resolver = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => resolver.servers.extend(words.next().map(str::to_owned)),
                // The last `search` or `domain` line counts.
                Some("search" | "domain") => {
                    // systemd-resolved writes `search .` for none at all; a musl resolver asks for names of the root then.
                    let names = words.map(|name| name.trim_end_matches('.')).filter(|name| !name.is_empty());
                    resolver.searches = names.map(str::to_owned).collect();
                }
                Some("options") => resolver.options.extend(words.map(str::to_owned)),
                _ => {}
            }
        }
        resolver
    }
}

pub(crate) fn config(pod: &Pod, cluster_dns: &[IpAddr], cluster_domain: &str, host: &HostResolver) -> DnsConfig {
    let spec = pod::spec(pod);
    let mut policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    if policy == "ClusterFirst" && (pod::host_network(pod) || cluster_dns.is_empty()) {
        policy = "Default";
    }
    let mut config = match policy {
        "None" => DnsConfig::default(),
        "Default" => {
            // A pod has a loopback of its own, where none of the node's servers listens. The cluster's DNS asks them for it.
            let reachable = |server: &&String| {
                pod::host_network(pod) || !server.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            };
            let mut servers: Vec<String> = host.servers.iter().filter(reachable).cloned().collect();
            if servers.is_empty() && !host.servers.is_empty() {
                servers = cluster_dns.iter().map(ToString::to_string).collect();
            }
            DnsConfig { servers, searches: host.searches.clone(), options: host.options.clone() }
        }
        _ => {
            let namespace = pod::namespace(pod);
            let mut searches = Vec::new();
            if !cluster_domain.is_empty() {
                searches.push(format!("{namespace}.svc.{cluster_domain}"));
                searches.push(format!("svc.{cluster_domain}"));
                searches.push(cluster_domain.to_owned());
            }
            searches.extend(host.searches.iter().cloned());
            DnsConfig {
                servers: cluster_dns.iter().map(ToString::to_string).collect(),
                searches,
                options: vec!["ndots:5".to_owned()],
            }
        }
    };
    if let Some(own) = &spec.dns_config {
        config.servers.extend(own.nameservers.iter().flatten().cloned());
        config.searches.extend(own.searches.iter().flatten().cloned());
        for option in own.options.iter().flatten() {
            let Some(name) = &option.name else { continue };
            config.options.retain(|known| known.split(':').next() != Some(name));
            config.options.push(match &option.value {
                Some(value) if !value.is_empty() => format!("{name}:{value}"),
                _ => name.clone(),
            });
        }
    }
    dedup(&mut config.servers);
    dedup(&mut config.searches);
    config.servers.truncate(MOST_SERVERS);
    config.searches.truncate(MOST_SEARCHES);
    let mut length = 0;
    config.searches.retain(|search| {
        length += search.len() + 1;
        length <= LONGEST_SEARCH + 1
    });
    config
}

fn dedup(list: &mut Vec<String>) {
    let mut seen = std::collections::HashSet::new();
    list.retain(|item| seen.insert(item.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn policies_choose_between_cluster_and_node() {
        let host = HostResolver::parse("# c\nnameserver 192.0.2.53\nsearch example.test corp.test\noptions rotate\n");
        let check = |spec: serde_json::Value, servers: &[&str], searches: &[&str], options: &[&str]| {
            let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "web"}, "spec": spec}));
            let config = config(&pod.expect("a pod"), &["10.96.0.10".parse().expect("ip")], "cluster.local", &host);
            assert_eq!(config.servers, servers, "{spec}");
            assert_eq!(config.searches, searches, "{spec}");
            assert_eq!(config.options, options, "{spec}");
        };
        let cluster = ["web.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.test", "corp.test"];
        check(json!({"containers": []}), &["10.96.0.10"], &cluster, &["ndots:5"]);
        let node = (&["192.0.2.53"], ["example.test", "corp.test"], ["rotate"]);
        check(json!({"containers": [], "dnsPolicy": "Default"}), node.0, &node.1, &node.2);
        check(json!({"containers": [], "hostNetwork": true}), node.0, &node.1, &node.2);
        check(
            json!({"containers": [], "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
            &["10.96.0.10"],
            &cluster,
            &["ndots:5"],
        );
        let own =
            json!({"nameservers": ["1.1.1.1"], "searches": ["a.test"], "options": [{"name": "ndots", "value": "2"}]});
        check(
            json!({"containers": [], "dnsPolicy": "None", "dnsConfig": own}),
            &["1.1.1.1"],
            &["a.test"],
            &["ndots:2"],
        );
    }
    #[test]
    fn a_stub_on_the_nodes_loopback_is_of_no_use_to_a_pod() {
        let stub = HostResolver::parse("nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n");
        let check = |spec: serde_json::Value, host: &HostResolver, servers: &[&str], searches: &[&str]| {
            let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "web"}, "spec": spec}));
            let config = config(&pod.expect("a pod"), &["10.96.0.10".parse().expect("ip")], "c.test", host);
            assert_eq!(
                (config.servers, config.searches),
                (servers.iter().map(|s| (*s).to_owned()).collect(), searches.iter().map(|s| (*s).to_owned()).collect()),
                "{spec}"
            );
        };
        let of_the_node = json!({"containers": [], "dnsPolicy": "Default"});
        check(of_the_node.clone(), &stub, &["10.96.0.10"], &[]);
        check(json!({"containers": [], "hostNetwork": true}), &stub, &["127.0.0.53"], &[]);
        check(json!({"containers": []}), &stub, &["10.96.0.10"], &["web.svc.c.test", "svc.c.test", "c.test"]);
        let both = HostResolver::parse("nameserver ::1\nnameserver 192.0.2.53\nsearch example.test. . corp.test\n");
        check(of_the_node, &both, &["192.0.2.53"], &["example.test", "corp.test"]);
    }

    #[test]
    fn the_nodes_file_is_read_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("resolv.conf");
        assert_eq!(HostResolver::read(&path), HostResolver::default());
        for server in ["192.0.2.1", "192.0.2.2"] {
            std::fs::write(&path, format!("nameserver {server}\n")).expect("written");
            assert_eq!(HostResolver::read(&path).servers, [server]);
        }
    }
}
