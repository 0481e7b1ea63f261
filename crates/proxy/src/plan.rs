//! From a Service and its EndpointSlices to the chains, sets and elements that carry its traffic. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::claims::{Rank, Standing, readable};
use crate::conntrack::Frontend;
use crate::endpoints::{Choice, Endpoint, NodeView, choose};
use crate::family::Family;
use crate::frame::{MASQUERADE_CHAIN, REJECT_CHAIN};
use crate::health::Check;
use crate::listeners::Listeners;
use crate::table::{Collection, ElementKey, Fragment};

/// `ClientIP` affinity without a timeout of its own lasts three hours.
const DEFAULT_AFFINITY_SECONDS: i32 = 10_800;

/// What the plan depends on besides the service: where this node stands and which addresses are pods'.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) family: Family,
    pub(crate) node: NodeView,
    pub(crate) pod_cidr: String,
    pub(crate) listeners: Listeners,
}

/// Nothing for services that have no virtual address: headless ones and external names.
pub(crate) fn plan<'a>(
    service: &Service,
    slices: impl IntoIterator<Item = &'a EndpointSlice> + Clone,
    view: &View,
) -> Option<Fragment> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    let family = view.family;
    let cluster_addresses: Vec<IpAddr> = match &spec.cluster_ips {
        Some(list) if !list.is_empty() => list.iter().filter_map(|ip| family.parse(ip)).collect(),
        _ => spec.cluster_ip.iter().filter_map(|ip| family.parse(ip)).collect(),
    };
    if cluster_addresses.is_empty() {
        return None;
    }
    let name = identifier(service)?;
    let mut fragment = Fragment::default();
    for address in &cluster_addresses {
        fragment.elements.insert(element(Collection::ClusterAddresses, address.to_string()), None);
        fragment.cluster_addresses.insert(address.to_string());
    }
    let mut ready_local = BTreeSet::new();
    for port in spec.ports.iter().flatten() {
        let planner = PortPlanner::new(&name, spec, port, &cluster_addresses, service, view, &mut fragment.refused);
        let Some(planner) = planner else { continue };
        let choice = choose(port, slices.clone(), &view.node, family);
        planner.plan(&choice, &mut fragment);
        ready_local.extend(choice.ready_local);
    }
    let is_local = spec.external_traffic_policy.as_deref() == Some("Local");
    let health = spec.health_check_node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
    fragment.health = health.filter(|_| is_local).map(|port| Check { port, local: ready_local.len() });
    Some(fragment)
}

fn element(collection: Collection, key: String) -> ElementKey {
    ElementKey { collection, key }
}

/// Names stand in chain names, so anything the API server should never have let through ends here.
fn identifier(service: &Service) -> Option<String> {
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let namespace = service.metadata.namespace.as_deref().filter(|text| plain(text))?;
    let name = service.metadata.name.as_deref().filter(|text| plain(text))?;
    (namespace.len() + name.len() < 180).then(|| format!("{namespace}/{name}"))
}

struct PortPlanner<'a> {
    /// `namespace/name/protocol/port`, unique within the table.
    name: String,
    protocol: &'static str,
    port: u16,
    node_port: Option<u16>,
    cluster_addresses: &'a [IpAddr],
    external_addresses: Vec<IpAddr>,
    load_balancer_addresses: Vec<IpAddr>,
    source_ranges: Vec<String>,
    internal_local: bool,
    external_local: bool,
    affinity_seconds: Option<u32>,
    /// Since when the Service exists.
    since: i64,
    view: &'a View,
}

impl<'a> PortPlanner<'a> {
    fn new(
        service_name: &str,
        spec: &ServiceSpec,
        port: &ServicePort,
        cluster_addresses: &'a [IpAddr],
        service: &Service,
        view: &'a View,
        refused: &mut BTreeSet<String>,
    ) -> Option<Self> {
        let protocol = match port.protocol.as_deref().unwrap_or("TCP") {
            "TCP" => "tcp",
            "UDP" => "udp",
            "SCTP" => "sctp",
            _ => return None,
        };
        let number = u16::try_from(port.port).ok()?;
        let affinity_seconds = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
            let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
            let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(DEFAULT_AFFINITY_SECONDS);
            u32::try_from(seconds).unwrap_or(1).clamp(1, 86_400)
        });
        let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let load_balancer_addresses = match spec.type_.as_deref() {
            Some("LoadBalancer") => ingress
                .and_then(|balancer| balancer.ingress.as_ref())
                .into_iter()
                .flatten()
                .filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"))
                .filter_map(|ingress| view.family.parse(ingress.ip.as_ref()?))
                .collect(),
            _ => Vec::new(),
        };
        let planner = Self {
            name: format!("{service_name}/{protocol}/{number}"),
            protocol,
            port: number,
            node_port: port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0),
            cluster_addresses,
            external_addresses: spec.external_ips.iter().flatten().filter_map(|ip| view.family.parse(ip)).collect(),
            load_balancer_addresses,
            source_ranges: source_ranges(spec, view.family),
            internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
            affinity_seconds,
            since: service.metadata.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second()),
            view,
        }
        .without_the_nodes_own(refused);
        Some(planner)
    }

    /// What the node listens on itself is not taken from it.
    fn without_the_nodes_own(mut self, refused: &mut BTreeSet<String>) -> Self {
        let (protocol, port, listeners) = (self.protocol, self.port, &self.view.listeners);
        let mut refuse = |place: &str| {
            let what = readable(place);
            refused.insert(format!(
                "{what} is not served for this Service: node {} listens there itself",
                self.view.node.name
            ));
        };
        let mut keep = |address: &IpAddr| {
            let busy = listeners.has(*address, protocol, port);
            if busy {
                refuse(&format!("{address} . {protocol} . {port}"));
            }
            !busy
        };
        self.external_addresses.retain(&mut keep);
        self.load_balancer_addresses.retain(&mut keep);
        if let Some(node_port) =
            self.node_port.filter(|node_port| listeners.has_port(self.view.family, protocol, *node_port))
        {
            refuse(&format!("{protocol} . {node_port}"));
            self.node_port = None;
        }
        self
    }

    /// The places where it is to be reached, and by what right.
    fn claim(&self, fragment: &mut Fragment) {
        let mut claim = |place: String, rank: Rank, at_node: bool| {
            let standing = Standing { rank, since: self.since, at_node };
            let known = fragment.claims.entry(place).or_insert(standing);
            *known = standing.min(*known);
        };
        for (addresses, rank) in [
            (self.cluster_addresses, Rank::Allocated),
            (&self.load_balancer_addresses, Rank::LoadBalancer),
            (&self.external_addresses, Rank::Named),
        ] {
            for address in addresses {
                claim(self.address_key(address), rank, self.view.listeners.is_own(*address));
            }
        }
        if let Some(node_port) = self.node_port {
            claim(format!("{} . {node_port}", self.protocol), Rank::Allocated, false);
        }
    }

    fn plan(&self, choice: &Choice, fragment: &mut Fragment) {
        self.claim(fragment);
        let cluster_chain = format!("svc-{}", self.name);
        let local_chain = format!("local-{}", self.name);
        let external =
            !self.external_addresses.is_empty() || !self.load_balancer_addresses.is_empty() || self.node_port.is_some();
        let wants_cluster = !self.internal_local || external;
        let wants_local = self.internal_local || (external && self.external_local);
        if wants_cluster && !choice.cluster.is_empty() {
            self.balance(&cluster_chain, &choice.cluster, fragment);
        }
        if wants_local && !choice.local.is_empty() {
            self.balance(&local_chain, &choice.local, fragment);
        }
        let has_any = !choice.cluster.is_empty() || !choice.local.is_empty();
        // Traffic that must stay local is dropped while only other nodes can serve it, so that a load balancer tries
        // another node; without any endpoint at all it is refused.
        let refusal = if has_any { "drop".to_owned() } else { format!("goto {REJECT_CHAIN}") };

        let (internal_chain, internal_usable) = match self.internal_local {
            true => (&local_chain, !choice.local.is_empty()),
            false => (&cluster_chain, !choice.cluster.is_empty()),
        };
        for address in self.cluster_addresses {
            let key = self.address_key(address);
            match internal_usable {
                true => self.add(fragment, Collection::Services, key, format!("goto {internal_chain}")),
                false => self.add(fragment, Collection::NoEndpoints, key, refusal.clone()),
            }
        }
        if self.protocol == "udp" {
            self.plan_datagrams(choice, fragment);
        }
        if external {
            self.plan_external(choice, &cluster_chain, &local_chain, &refusal, fragment);
        }
    }

    fn plan_external(
        &self,
        choice: &Choice,
        cluster_chain: &str,
        local_chain: &str,
        refusal: &str,
        fragment: &mut Fragment,
    ) {
        let chain = format!("ext-{}", self.name);
        let mut rules = Vec::new();
        if self.external_local {
            if !choice.cluster.is_empty() {
                // Clients inside the cluster reach every endpoint: the policy is for those outside.
                rules.push(format!("{} saddr {} goto {cluster_chain}", self.ip(), self.view.pod_cidr));
                rules.push(format!("fib saddr type local jump {MASQUERADE_CHAIN}"));
                rules.push(format!("fib saddr type local goto {cluster_chain}"));
            }
            if !choice.local.is_empty() {
                rules.push(format!("goto {local_chain}"));
            }
        } else if !choice.cluster.is_empty() {
            rules.push(format!("jump {MASQUERADE_CHAIN}"));
            rules.push(format!("goto {cluster_chain}"));
        }
        let outside_usable = if self.external_local { !choice.local.is_empty() } else { !choice.cluster.is_empty() };
        let reachable = !rules.is_empty();
        if reachable {
            fragment.chains.insert(chain.clone(), rules);
        }
        for address in self.external_addresses.iter().chain(&self.load_balancer_addresses) {
            let key = self.address_key(address);
            if reachable {
                self.add(fragment, Collection::Services, key.clone(), format!("goto {chain}"));
            }
            if !outside_usable {
                self.add(fragment, Collection::NoEndpoints, key, refusal.to_owned());
            }
        }
        if let Some(node_port) = self.node_port {
            let key = format!("{} . {node_port}", self.protocol);
            if reachable {
                self.add(fragment, Collection::NodePorts, key.clone(), format!("goto {chain}"));
            }
            if !outside_usable {
                self.add(fragment, Collection::NoEndpointNodePorts, key, refusal.to_owned());
            }
        }
        if !self.source_ranges.is_empty() && !self.load_balancer_addresses.is_empty() {
            let firewall = format!("fw-{}", self.name);
            let ranges = self.source_ranges.join(", ");
            fragment.chains.insert(firewall.clone(), vec![format!("{} saddr != {{ {ranges} }} drop", self.ip())]);
            for address in &self.load_balancer_addresses {
                self.add(fragment, Collection::Firewall, self.address_key(address), format!("goto {firewall}"));
            }
        }
    }

    fn plan_datagrams(&self, choice: &Choice, fragment: &mut Fragment) {
        let inside = if self.internal_local { &choice.local } else { &choice.cluster };
        for address in self.cluster_addresses {
            let frontend = Frontend { address: Some(*address), port: self.port };
            fragment.datagrams.insert(frontend, inside.iter().copied().collect());
        }
        // With the policy Local, clients inside the cluster may still reach all.
        let outside: BTreeSet<Endpoint> = choice.cluster.iter().chain(&choice.local).copied().collect();
        let addresses = self.external_addresses.iter().chain(&self.load_balancer_addresses);
        let frontends = addresses.map(|address| Frontend { address: Some(*address), port: self.port });
        let node_port = self.node_port.map(|port| Frontend { address: None, port });
        fragment.datagrams.extend(frontends.chain(node_port).map(|frontend| (frontend, outside.clone())));
    }

    /// One rule picks a random endpoint. With affinity each endpoint has a chain that remembers its clients.
    fn balance(&self, chain: &str, endpoints: &[Endpoint], fragment: &mut Fragment) {
        for endpoint in endpoints {
            let key = format!("{0} . {0}", endpoint.address);
            fragment.elements.insert(element(Collection::Hairpin, key), None);
        }
        let (ip, protocol) = (self.ip(), self.protocol);
        let count = endpoints.len();
        let mut rules = Vec::new();
        if let Some(seconds) = self.affinity_seconds {
            let mut targets = Vec::new();
            for (index, endpoint) in endpoints.iter().enumerate() {
                // A name has no colons.
                let address = endpoint.address.to_string().replace(':', "_");
                let at = format!("{}/{address}/{}", self.name, endpoint.port);
                let (target, clients) = (format!("ep-{at}"), format!("clients-{at}/{seconds}"));
                fragment.affinities.insert(clients.clone(), seconds);
                fragment.chains.insert(
                    target.clone(),
                    vec![
                        format!("update @{clients} {{ {ip} saddr }}"),
                        format!("meta l4proto {protocol} dnat to {}", endpoint.target()),
                    ],
                );
                rules.push(format!("{ip} saddr @{clients} goto {target}"));
                targets.push(format!("{index} : goto {target}"));
            }
            rules.push(format!("numgen random mod {count} vmap {{ {} }}", targets.join(", ")));
        } else if let [endpoint] = endpoints {
            rules.push(format!("meta l4proto {protocol} dnat to {}", endpoint.target()));
        } else {
            let targets: Vec<String> = endpoints
                .iter()
                .enumerate()
                .map(|(index, Endpoint { address, port })| format!("{index} : {address} . {port}"))
                .collect();
            let targets = targets.join(", ");
            rules.push(format!("meta l4proto {protocol} dnat {ip} to numgen random mod {count} map {{ {targets} }}"));
        }
        fragment.chains.insert(chain.to_owned(), rules);
    }

    fn ip(&self) -> &'static str {
        self.view.family.word()
    }

    fn address_key(&self, address: &IpAddr) -> String {
        format!("{address} . {} . {}", self.protocol, self.port)
    }

    fn add(&self, fragment: &mut Fragment, collection: Collection, key: String, verdict: String) {
        fragment.elements.insert(element(collection, key), Some(verdict));
    }
}

/// Only well-formed ranges of the family; nftables refuses ranges that contain each other, so contained ones are left out.
fn source_ranges(spec: &ServiceSpec, family: Family) -> Vec<String> {
    let mut ranges: Vec<IpNet> = spec
        .load_balancer_source_ranges
        .iter()
        .flatten()
        .filter_map(|text| text.trim().parse::<IpNet>().ok())
        .filter(|range| family.has(&range.addr()))
        .map(|range| range.trunc())
        .collect();
    ranges.sort_by_key(|range| (range.prefix_len(), range.addr()));
    let mut kept: Vec<IpNet> = Vec::new();
    for range in ranges {
        if !kept.iter().any(|outer| outer.contains(&range)) {
            kept.push(range);
        }
    }
    kept.iter().map(ToString::to_string).collect()
}
