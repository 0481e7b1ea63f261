//! From a Service and its EndpointSlices to the chains, sets and elements that carry its traffic. Pure.
//!
//! A Service has chains of its own only where clients are remembered and where they are told apart by their addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ferry_client::endpoint_slices::Slice;
use ferry_nft::Protocol;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};

use crate::claims::{Rank, Standing};
use crate::conntrack::Frontend;
use crate::endpoints::{Choice, Endpoint, NodeView, Ports, choose};
use crate::extent::extent;
use crate::family::Family;
use crate::fragment::{Fragment, Front, List, Refusal, Target};
use crate::health::Check;
use crate::listeners::Listeners;
use crate::service_address::ServiceAddress;
use crate::shape::{Pick, Shape, outside};

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

/// Nothing for services that have no virtual address: headless ones and external names. `admit` says whether there is room for as
/// many elements as this one stands for.
pub(crate) fn plan<'a>(
    service: &Service,
    slices: impl IntoIterator<Item = &'a Slice> + Clone,
    view: &View,
    admit: impl FnOnce(usize) -> Result<(), String>,
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
    fragment.cluster_addresses.clone_from(&cluster_addresses);
    if let Err(why) = extent(service, slices.clone()).and_then(admit) {
        fragment.refused.insert(why);
        return Some(fragment.settled());
    }
    let mut ready_local = BTreeSet::new();
    let ranges = source_ranges(spec, family);
    let of = OfService { name: &name, spec, service, cluster_addresses: &cluster_addresses, source_ranges: &ranges };
    let mut planners = Vec::new();
    for port in spec.ports.iter().flatten() {
        let planner = PortPlanner::new(&of, port, view, &mut fragment.refused);
        planners.extend(planner.map(|planner| (port, planner)));
    }
    fragment.claim(planners.iter().flat_map(|(_, planner)| planner.claims()));
    let ports = Ports::of(slices, family);
    for (port, planner) in planners {
        let choice = choose(port, &ports, &view.node);
        planner.plan(&choice, &mut fragment);
        ready_local.extend(choice.ready_local);
    }
    let is_local = spec.external_traffic_policy.as_deref() == Some("Local");
    let health = spec.health_check_node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
    fragment.health = health.filter(|_| is_local).map(|port| Check { port, local: ready_local.len() });
    Some(fragment.settled())
}

/// Names stand in chain names, so anything the API server should never have let through ends here.
fn identifier(service: &Service) -> Option<String> {
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let namespace = service.metadata.namespace.as_deref().filter(|text| plain(text))?;
    let name = service.metadata.name.as_deref().filter(|text| plain(text))?;
    (namespace.len() + name.len() < 180).then(|| format!("{namespace}/{name}"))
}

/// What all ports of a Service have in common.
#[derive(Clone, Copy)]
struct OfService<'a> {
    name: &'a str,
    spec: &'a ServiceSpec,
    service: &'a Service,
    cluster_addresses: &'a [IpAddr],
    source_ranges: &'a [String],
}

struct PortPlanner<'a> {
    /// `namespace/name/protocol/port`, unique within the table.
    name: String,
    protocol: Protocol,
    port: u16,
    node_port: Option<u16>,
    cluster_addresses: &'a [IpAddr],
    external_addresses: Vec<IpAddr>,
    load_balancer_addresses: Vec<IpAddr>,
    source_ranges: &'a [String],
    internal_local: bool,
    external_local: bool,
    affinity_seconds: Option<u32>,
    /// Since when the Service exists.
    since: i64,
    view: &'a View,
}

impl<'a> PortPlanner<'a> {
    fn new(of: &OfService<'a>, port: &ServicePort, view: &'a View, refused: &mut BTreeSet<String>) -> Option<Self> {
        let OfService { name: service_name, spec, service, cluster_addresses, source_ranges } = *of;
        let protocol = match port.protocol.as_deref().unwrap_or("TCP") {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
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
            source_ranges,
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
        let mut refuse = |place: ServiceAddress| {
            refused.insert(format!(
                "{place} is not served for this Service: node {} listens there itself",
                self.view.node.name
            ));
        };
        let mut keep = |address: &IpAddr| {
            let busy = listeners.has(*address, protocol.word(), port);
            if busy {
                refuse(ServiceAddress::at(*address, protocol, port));
            }
            !busy
        };
        self.external_addresses.retain(&mut keep);
        self.load_balancer_addresses.retain(&mut keep);
        if let Some(node_port) =
            self.node_port.filter(|node_port| listeners.has_port(self.view.family, protocol.word(), *node_port))
        {
            refuse(ServiceAddress::of_node(protocol, node_port));
            self.node_port = None;
        }
        self
    }

    fn place(&self, address: &IpAddr) -> ServiceAddress {
        ServiceAddress::at(*address, self.protocol, self.port)
    }

    /// The places where it is to be reached, and by what right.
    fn claims(&self) -> Vec<(ServiceAddress, Standing)> {
        let standing = |rank: Rank, at_node: bool| Standing { rank, since: self.since, at_node };
        let by_rank = [
            (self.cluster_addresses, Rank::Allocated),
            (&*self.load_balancer_addresses, Rank::LoadBalancer),
            (&*self.external_addresses, Rank::Named),
        ];
        let at = |address: &IpAddr, rank| (self.place(address), standing(rank, self.view.listeners.is_own(*address)));
        let addresses = by_rank.into_iter().flat_map(|(addresses, rank)| addresses.iter().map(move |one| (one, rank)));
        let node_port =
            self.node_port.map(|port| (ServiceAddress::of_node(self.protocol, port), standing(Rank::Allocated, false)));
        addresses.map(|(address, rank)| at(address, rank)).chain(node_port).collect()
    }

    fn plan(&self, choice: &Choice, fragment: &mut Fragment) {
        let external =
            !self.external_addresses.is_empty() || !self.load_balancer_addresses.is_empty() || self.node_port.is_some();
        let wants_any = !self.internal_local || external;
        let wants_local = self.internal_local || (external && self.external_local);
        let lists = Lists {
            any: choice.cluster.iter().filter(|_| wants_any).copied().collect(),
            local: choice.local.iter().filter(|_| wants_local).copied().collect(),
        };
        fragment.hairpin.extend(lists.any.iter().chain(&*lists.local).map(|endpoint| endpoint.address));
        if let Some(seconds) = self.affinity_seconds {
            self.remember(&self.own_chain("svc"), seconds, &lists.any, fragment);
            self.remember(&self.own_chain("local"), seconds, &lists.local, fragment);
        }
        let has_any = !choice.cluster.is_empty() || !choice.local.is_empty();
        // Traffic that must stay local is dropped while only other nodes can serve it, so that a load balancer tries
        // another node; without any endpoint at all it is refused.
        let refusal = if has_any { Refusal::Drop } else { Refusal::Reject };
        let list = if self.internal_local { &lists.local } else { &lists.any };
        for address in self.cluster_addresses {
            let Some(front) = fragment.front_mut(&self.place(address)) else { continue };
            if list.is_empty() {
                front.refuses = Some(refusal);
            } else if self.affinity_seconds.is_some() {
                let chain = self.own_chain(if self.internal_local { "local" } else { "svc" });
                front.serves = Some(Target::Own(chain.into()));
            } else {
                front.serves = Some(Target::Shared(self.shape(false, Pick::Any(count(list)))));
                front.any = list.clone();
            }
        }
        if self.protocol == Protocol::Udp {
            self.plan_datagrams(choice, fragment);
        }
        if external {
            self.plan_external(&lists, refusal, fragment);
        }
    }

    fn shape(&self, at_node: bool, pick: Pick) -> Shape {
        Shape { at_node, protocol: self.protocol, pick }
    }

    /// The name of a chain that only this port has.
    fn own_chain(&self, kind: &str) -> String {
        format!("{kind}-{}", self.name)
    }

    fn plan_external(&self, lists: &Lists, refusal: Refusal, fragment: &mut Fragment) {
        let Lists { any, local } = lists;
        let outside_usable = if self.external_local { !local.is_empty() } else { !any.is_empty() };
        let reachable = outside_usable || !any.is_empty();
        if self.affinity_seconds.is_some() && reachable {
            let chain = |kind, list: &List| (!list.is_empty()).then(|| self.own_chain(kind));
            let (any, local) = (chain("svc", any), chain("local", local));
            let pods = &self.view.pod_cidr;
            let rules = outside(self.ip(), pods, self.external_local, any.as_deref(), local.as_deref());
            fragment.chains.insert(self.own_chain("ext"), rules);
        }
        let own = self.affinity_seconds.map(|_| self.own_chain("ext"));
        let pick = match self.external_local {
            true => Pick::OutsideLocal { any: count(any), local: count(local) },
            false => Pick::Outside(count(any)),
        };
        let serve = |front: &mut Front, at_node: bool| {
            if reachable {
                match &own {
                    Some(chain) => front.serves = Some(Target::Own(chain.as_str().into())),
                    None => {
                        front.serves = Some(Target::Shared(self.shape(at_node, pick)));
                        front.any = any.clone();
                        front.local = if self.external_local { local.clone() } else { List::from([]) };
                    }
                }
            }
            if !outside_usable {
                front.refuses = Some(refusal);
            }
        };
        for address in self.external_addresses.iter().chain(&self.load_balancer_addresses) {
            if let Some(front) = fragment.front_mut(&self.place(address)) {
                serve(front, false);
            }
        }
        let node_port = self.node_port.map(|port| ServiceAddress::of_node(self.protocol, port));
        if let Some(front) = node_port.and_then(|place| fragment.front_mut(&place)) {
            serve(front, true);
        }
        if !self.source_ranges.is_empty() && !self.load_balancer_addresses.is_empty() {
            let firewall = self.own_chain("fw");
            let ranges = self.source_ranges.join(", ");
            fragment.chains.insert(firewall.clone(), vec![format!("{} saddr != {{ {ranges} }} drop", self.ip())]);
            for address in &self.load_balancer_addresses {
                if let Some(front) = fragment.front_mut(&self.place(address)) {
                    front.firewall = Some(firewall.as_str().into());
                }
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

    /// One rule picks a random endpoint. Each endpoint has a chain that remembers its clients.
    fn remember(&self, chain: &str, seconds: u32, endpoints: &[Endpoint], fragment: &mut Fragment) {
        if endpoints.is_empty() {
            return;
        }
        let (ip, protocol) = (self.ip(), self.protocol);
        let (mut rules, mut targets) = (Vec::new(), Vec::new());
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
        rules.push(format!("numgen random mod {} vmap {{ {} }}", endpoints.len(), targets.join(", ")));
        fragment.chains.insert(chain.to_owned(), rules);
    }

    fn ip(&self) -> &'static str {
        self.view.family.word()
    }
}

/// The endpoints that are chosen from.
struct Lists {
    any: List,
    local: List,
}

fn count(list: &List) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
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
    // Each behind the one that contains it, if any does: ranges have no other way to overlap.
    ranges.sort_by_key(|range| (range.addr(), range.prefix_len()));
    let mut kept: Vec<IpNet> = Vec::new();
    for range in ranges {
        if !kept.last().is_some_and(|outer| outer.contains(&range)) {
            kept.push(range);
        }
    }
    kept.sort_by_key(|range| (range.prefix_len(), range.addr()));
    kept.iter().map(ToString::to_string).collect()
}
