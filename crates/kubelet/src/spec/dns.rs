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
mod tests;
