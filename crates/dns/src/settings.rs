//! What a Corefile means: server blocks by zone, each with its plug-ins. What is not known is named.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hickory_proto::rr::Name;
use serde::{Deserialize, Serialize};

use crate::Upstreams;
use crate::corefile::{self, CorefileError, Directive, ServerBlock};
use crate::forward::Forward;
use crate::metrics::{Counters, Metrics};
use crate::plugins::autopath::Autopath;
use crate::plugins::cache::Cache;
use crate::plugins::hosts::Hosts;
use crate::plugins::kubernetes::Kubernetes;
use crate::plugins::rewrite::Rule;
use crate::plugins::zone;

const LONGEST_FILE: u64 = 1 << 20;
/// Where upstream's Deployment mounts the ConfigMap.
const MOUNTED: &str = "/etc/coredns/";

/// What is the same for every Corefile of this server.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) service_addresses: Vec<IpAddr>,
    /// What `/etc/resolv.conf` stands for.
    pub(crate) upstreams: Upstreams,
    /// Where we are reached ourselves.
    pub(crate) own: Vec<SocketAddr>,
    pub(crate) metrics: Arc<Metrics>,
}

/// The files that a Corefile may name: the keys beside it in its ConfigMap, and two of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Files(pub(crate) BTreeMap<String, String>);

impl Files {
    pub(crate) fn get(&self, path: &str) -> Result<Cow<'_, str>, String> {
        if let Some(key) = path.strip_prefix(MOUNTED) {
            let missing = || format!("the ConfigMap has no key {key}");
            return self.0.get(key).map(|text| Cow::Borrowed(text.as_str())).ok_or_else(missing);
        }
        if !matches!(path, "/etc/hosts" | "/etc/resolv.conf") {
            return Err(format!("{path} is not read: only keys of the ConfigMap ({MOUNTED}KEY) and /etc/hosts are"));
        }
        let mut bytes = Vec::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(LONGEST_FILE).read_to_end(&mut bytes));
        match read {
            Ok(_) => Ok(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())),
            // As if it were empty: it may come later, and inline entries are there.
            Err(_) => Ok(Cow::Borrowed("")),
        }
    }
}

/// The plug-ins of one zone.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) zone: Name,
    pub(crate) log: bool,
    pub(crate) loadbalance: bool,
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) rewrites: Vec<Rule>,
    pub(crate) autopath: Option<Autopath>,
    pub(crate) hosts: Option<Hosts>,
    pub(crate) kubernetes: Option<Kubernetes>,
    forwards: Vec<Arc<Forward>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) plugins: Vec<String>,
}

impl Block {
    pub(crate) fn forward(&self, name: &Name) -> Option<&Arc<Forward>> {
        let covering = self.forwards.iter().filter_map(|forward| Some((forward.covers(name)?, forward)));
        covering.max_by_key(|(labels, _)| *labels).map(|(_, forward)| forward)
    }
}

#[derive(Debug)]
pub(crate) struct Settings {
    blocks: Vec<Block>,
    /// Ports of `health`, `ready` and `prometheus`.
    pub(crate) observed: BTreeSet<u16>,
    /// What is not known of it.
    pub(crate) complaints: Vec<String>,
}

impl Settings {
    pub(crate) fn read(text: &str, files: &Files, surroundings: &Surroundings) -> Result<Self, CorefileError> {
        let mut this = Self { blocks: Vec::new(), observed: BTreeSet::new(), complaints: Vec::new() };
        for written in corefile::parse(text)? {
            let mut zones = Vec::new();
            for key in &written.keys {
                match served(key, written.line)? {
                    Ok(zone) => zones.push(zone),
                    Err(complaint) => this.complaints.push(format!("line {}: {complaint}", written.line)),
                }
            }
            for zone in &zones {
                if this.blocks.iter().any(|block| block.zone == *zone) {
                    return Err(CorefileError::at(written.line, format!("{zone} has a server block already")));
                }
                let block = this.block(zone, &zones, &written, files, surroundings)?;
                this.blocks.push(block);
            }
        }
        this.complaints.sort();
        this.complaints.dedup();
        Ok(this)
    }

    fn block(
        &mut self,
        zone: &Name,
        zones: &[Name],
        written: &ServerBlock,
        files: &Files,
        surroundings: &Surroundings,
    ) -> Result<Block, CorefileError> {
        let mut block = Block {
            zone: zone.clone(),
            log: false,
            loadbalance: false,
            cache: None,
            rewrites: Vec::new(),
            autopath: None,
            hosts: None,
            kubernetes: None,
            forwards: Vec::new(),
            counters: surroundings.metrics.of_zone(&zone.to_ascii()),
            plugins: Vec::new(),
        };
        for directive in &written.directives {
            let complaints = &mut self.complaints;
            match directive.name.as_str() {
                "log" => block.log = true,
                "loadbalance" => block.loadbalance = true,
                "cache" => block.cache = Some(Arc::new(Cache::read(directive, zones)?)),
                "rewrite" => block.rewrites.extend(Rule::read(directive, complaints)?),
                "autopath" => block.autopath = Some(Autopath::read(directive, files)?),
                "hosts" => block.hosts = Some(Hosts::read(directive, files, zones)?),
                "kubernetes" => {
                    block.kubernetes = Some(Kubernetes::read(directive, surroundings, zones, complaints)?);
                }
                "forward" => block.forwards.push(Arc::new(Forward::read(directive, surroundings, complaints)?)),
                "health" => self.observed.extend(port(directive, 8080)?),
                "ready" => self.observed.extend(port(directive, 8181)?),
                "prometheus" => self.observed.extend(port(directive, 9153)?),
                // Done whether they are written or not: failures are in the log, a change of the ConfigMap is followed, a
                // question that comes back waits for itself, answers are no longer than what passes without fragments.
                "errors" | "reload" | "loop" | "bufsize" | "cancel" | "minimal" => {}
                other => {
                    complaints.push(format!("line {}: the plug-in {other} is not known", directive.line));
                    continue;
                }
            }
            block.plugins.push(directive.name.clone());
        }
        Ok(block)
    }

    /// The block whose zone fits a name best.
    pub(crate) fn of(&self, name: &Name) -> Option<&Block> {
        let within = self.blocks.iter().filter(|block| block.zone.zone_of(name));
        within.max_by_key(|block| block.zone.num_labels())
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    pub(crate) async fn prepare(&self) {
        for forward in self.blocks.iter().flat_map(|block| &block.forwards) {
            forward.prepare().await;
        }
    }
}

/// The Corefile where nobody wrote another one: kubeadm's, with a cache that bridges outages of the upstreams.
pub(crate) fn usual(zone: &str) -> String {
    format!(
        ".:53 {{
    errors
    kubernetes {zone} in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }}
    prometheus :9153
    forward . /etc/resolv.conf {{
        policy sequential
        max_concurrent 1000
    }}
    cache 30 {{
        prefetch 10 1m 10%
        serve_stale 1h verify
    }}
    loop
    reload
    loadbalance
}}
"
    )
}

/// The zone of a block's key, or why it is not served.
fn served(key: &str, line: usize) -> Result<Result<Name, String>, CorefileError> {
    let key = match key.split_once("://") {
        None => key,
        Some(("dns", rest)) => rest,
        Some((scheme, _)) => return Ok(Err(format!("{key}: {scheme} is not served, only plain DNS is"))),
    };
    let (name, port) = match key.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        _ => (key, "53"),
    };
    if port != "53" {
        return Ok(Err(format!("{key}: only the port of the cluster's DNS is served, and it is written as 53")));
    }
    if let Some((address, bits)) = name.split_once('/') {
        let octets = match (address.parse::<Ipv4Addr>(), bits.parse::<usize>()) {
            (Ok(address), Ok(bits @ (8 | 16 | 24))) => address.octets()[..bits / 8].to_vec(),
            _ => return Ok(Err(format!("{key}: of ranges only those of IPv4 with 8, 16 or 24 bits are known"))),
        };
        let labels: Vec<String> = octets.iter().rev().map(u8::to_string).collect();
        return zone(&format!("{}.in-addr.arpa", labels.join(".")), line).map(Ok);
    }
    zone(if name.is_empty() { "." } else { name }, line).map(Ok)
}

fn port(directive: &Directive, otherwise: u16) -> Result<Option<u16>, CorefileError> {
    let Some(address) = directive.arguments.first() else { return Ok(Some(otherwise)) };
    let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
    let wrong = || CorefileError::at(directive.line, format!("{}: {address:?} has no port", directive.name));
    port.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests;
