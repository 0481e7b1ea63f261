//! For whom an endpoint is meant: those in its zone or on its node, as the Service's traffic distribution says, or zones in
//! proportion to their processors.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, ForNode, ForZone};
use kube::ResourceExt;

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
const MODE: &str = "service.kubernetes.io/topology-mode";
const OLD_MODE: &str = "service.kubernetes.io/topology-aware-hints";
/// How much more than its share an endpoint may get.
const OVERLOAD: f64 = 0.2;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    /// Everybody for everybody.
    All,
    /// The same zone, and perhaps the same node.
    Close { node: bool },
    /// Zones get endpoints by their processors.
    Shares,
}

pub(super) fn mode(service: &Service) -> Mode {
    let annotation = service.annotations().get(OLD_MODE).or_else(|| service.annotations().get(MODE));
    if annotation.is_some_and(|mode| mode == "Auto" || mode == "auto") {
        return Mode::Shares;
    }
    match service.spec.as_ref().and_then(|spec| spec.traffic_distribution.as_deref()) {
        Some("PreferClose" | "PreferSameZone") => Mode::Close { node: false },
        Some("PreferSameNode") => Mode::Close { node: true },
        _ => Mode::All,
    }
}

/// A zone's share of the processors of all nodes that are ready; none while one of them does not tell.
pub(super) type Shares = BTreeMap<String, f64>;

/// The zone and the processors of a node that counts; either may be unknown.
pub(super) fn shares_of(node: &Node) -> Option<(Option<&str>, Option<f64>)> {
    let of_control = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
    let status = node.status.as_ref();
    let mut conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    if !ready || of_control.iter().any(|label| node.labels().contains_key(*label)) {
        return None;
    }
    let amount = status.and_then(|status| status.allocatable.as_ref()?.get("cpu"));
    let amount = amount.and_then(|amount| ferry_meta::Quantity::parse(&amount.0).ok()).map(|amount| amount.as_f64());
    let zone = node.labels().get(ZONE_LABEL).map(String::as_str).filter(|zone| !zone.is_empty());
    Some((zone, amount.filter(|amount| *amount > 0.0)))
}

pub(super) fn shares<'a>(nodes: impl Iterator<Item = &'a Node>) -> Shares {
    let mut zones: BTreeMap<String, f64> = BTreeMap::new();
    for of_node in nodes.filter_map(shares_of) {
        let (Some(zone), Some(amount)) = of_node else { return Shares::new() };
        *zones.entry(zone.to_owned()).or_default() += amount;
    }
    let total: f64 = zones.values().sum();
    if zones.len() < 2 {
        return Shares::new();
    }
    zones.values_mut().for_each(|amount| *amount /= total);
    zones
}

/// How many endpoints a zone should have, and how many at most so that the others get their least.
struct Allocation {
    desired: f64,
    maximum: usize,
}

fn allocations(shares: &Shares, endpoints: usize) -> Result<BTreeMap<&str, Allocation>, String> {
    if shares.len() < 2 {
        let why = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
        return Err(why.to_owned());
    }
    let counts = format!("({endpoints} endpoints, {} zones)", shares.len());
    if shares.len() > endpoints {
        return Err(format!("Insufficient number of endpoints {counts}"));
    }
    let count = endpoints as f64;
    let least = |share: f64| (share * count / (1.0 + OVERLOAD)).ceil();
    let sum: f64 = shares.values().map(|share| least(*share)).sum();
    if sum > count {
        let why = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";
        return Err(format!("{why} {counts}"));
    }
    let mut allocations = BTreeMap::new();
    for (zone, share) in shares {
        let minimum = least(*share);
        let maximum = (minimum + count - sum) as usize;
        allocations.insert(zone.as_str(), Allocation { desired: (share * count).max(minimum), maximum });
    }
    Ok(allocations)
}

fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true)
}

fn for_zone(zone: &str) -> Option<EndpointHints> {
    Some(EndpointHints { for_zones: Some(vec![ForZone { name: zone.to_owned() }]), for_nodes: None })
}

/// The zone that an endpoint was meant for before.
pub(super) fn zone_of(endpoint: &Endpoint) -> Option<&str> {
    let zones = endpoint.hints.as_ref()?.for_zones.as_ref()?;
    zones.first().map(|zone| zone.name.as_str())
}

/// Says for whom each endpoint of a family is. `before` is the zone it was for. An error says why nobody is singled out.
pub(super) fn assign(
    mode: Mode,
    endpoints: &mut [(&mut Endpoint, Option<String>)],
    shares: &dyn Fn() -> Shares,
) -> Result<(), String> {
    match mode {
        Mode::All => Ok(()),
        Mode::Close { node } => {
            for (endpoint, _) in endpoints.iter_mut().filter(|(endpoint, _)| is_ready(endpoint)) {
                let for_zones = endpoint.zone.clone().map(|name| vec![ForZone { name }]);
                let for_nodes = endpoint.node_name.clone().filter(|_| node).map(|name| vec![ForNode { name }]);
                let some = for_zones.is_some() || for_nodes.is_some();
                endpoint.hints = some.then_some(EndpointHints { for_zones, for_nodes });
            }
            Ok(())
        }
        Mode::Shares => by_shares(endpoints, &shares()),
    }
}

fn by_shares(endpoints: &mut [(&mut Endpoint, Option<String>)], shares: &Shares) -> Result<(), String> {
    let mut ready: Vec<_> = endpoints.iter_mut().filter(|(endpoint, _)| is_ready(endpoint)).collect();
    let allocations = allocations(shares, ready.len())?;
    if ready.iter().any(|(endpoint, _)| endpoint.zone.as_ref().is_none_or(String::is_empty)) {
        return Err("One or more endpoints do not have a zone specified".to_owned());
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    // What holds stays, so that one more pod does not move all others.
    let mut fresh = Vec::new();
    for (endpoint, before) in &mut ready {
        let kept = before.as_deref().filter(|zone| {
            let most = allocations.get(zone).map_or(0, |allocation| allocation.maximum);
            counts.get(*zone).copied().unwrap_or_default() < most
        });
        let zone = kept.map(str::to_owned);
        let own = endpoint.zone.clone().unwrap_or_default();
        *counts.entry(zone.clone().unwrap_or_else(|| own.clone())).or_default() += 1;
        endpoint.hints = for_zone(zone.as_deref().unwrap_or(&own));
        if zone.is_none() {
            fresh.push(endpoint);
        }
    }
    let (mut giving, mut receiving) = exchange(&allocations, &counts);
    for endpoint in fresh {
        let own = endpoint.zone.clone().unwrap_or_default();
        let Some(gives) = giving.get_mut(&own).filter(|count| **count > 0) else { continue };
        let Some((zone, takes)) = receiving.iter_mut().find(|(_, count)| **count > 0) else { break };
        endpoint.hints = for_zone(zone);
        (*gives, *takes) = (*gives - 1, *takes - 1);
    }
    Ok(())
}

/// How many endpoints zones give to others, and how many they get: whole ones, where at least half of one is too much here and
/// missing there.
fn exchange(
    allocations: &BTreeMap<&str, Allocation>,
    counts: &BTreeMap<String, usize>,
) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
    let (mut more, mut less): (BTreeMap<String, f64>, BTreeMap<String, f64>) = Default::default();
    for (zone, allocation) in allocations {
        let over = counts.get(*zone).copied().unwrap_or_default() as f64 - allocation.desired;
        if over > 0.0 {
            more.insert((*zone).to_owned(), over);
        } else if over < 0.0 {
            less.insert((*zone).to_owned(), -over);
        }
    }
    let most = |of: &BTreeMap<String, f64>| {
        of.iter().max_by(|one, other| one.1.total_cmp(other.1)).map(|(zone, amount)| (zone.clone(), *amount))
    };
    let (mut giving, mut receiving) = (BTreeMap::new(), BTreeMap::new());
    while let (Some((from, gives)), Some((to, takes))) = (most(&more), most(&less)) {
        if (gives < 1.0 && takes < 1.0) || gives < 0.5 || takes < 0.5 {
            break;
        }
        *more.entry(from.clone()).or_default() -= 1.0;
        *less.entry(to.clone()).or_default() -= 1.0;
        *giving.entry(from).or_default() += 1;
        *receiving.entry(to).or_default() += 1;
    }
    (giving, receiving)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn endpoint(zone: &str) -> Endpoint {
        serde_json::from_value(json!({
            "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "nodeName": "n",
            "zone": (!zone.is_empty()).then_some(zone),
        }))
        .expect("an endpoint")
    }

    fn service(annotation: &str, distribution: &str) -> Service {
        let distribution = (!distribution.is_empty()).then_some(distribution);
        let spec = json!({ "trafficDistribution": distribution });
        serde_json::from_value(json!({ "metadata": { "annotations": { MODE: annotation } }, "spec": spec }))
            .expect("a Service")
    }

    fn of(shares: &[(&str, f64)]) -> Shares {
        shares.iter().map(|(zone, share)| ((*zone).to_owned(), *share)).collect()
    }

    /// How many endpoints each zone gets of those that stand in these zones; what was assigned then holds.
    fn check(zones: &[&str], shares: &Shares, expected: Result<&[(&str, usize)], &str>) {
        let mut all: Vec<Endpoint> = zones.iter().map(|zone| endpoint(zone)).collect();
        let mut assigned = |before: Vec<Option<String>>| {
            let mut pairs: Vec<(&mut Endpoint, Option<String>)> = all.iter_mut().zip(before).collect();
            let outcome = assign(Mode::Shares, &mut pairs, &|| shares.clone());
            let hints: Vec<Option<String>> = all.iter().map(|one| zone_of(one).map(str::to_owned)).collect();
            outcome.map(|()| hints)
        };
        let first = assigned(vec![None; zones.len()]);
        match (&first, expected) {
            (Ok(hints), Ok(counts)) => {
                for (zone, count) in counts {
                    let have = hints.iter().flatten().filter(|hint| hint == zone).count();
                    assert_eq!(have, *count, "{zone} of {zones:?}: {hints:?}");
                }
                assert_eq!(assigned(hints.clone()).as_ref(), Ok(hints), "{zones:?} comes to rest");
            }
            (Err(error), Err(wanted)) => assert!(error.starts_with(wanted), "{zones:?}: {error}"),
            other => panic!("{zones:?}: {other:?}"),
        }
    }

    #[test]
    fn zones_get_endpoints_by_their_processors() {
        let even = of(&[("a", 0.5), ("b", 0.5)]);
        check(&["a", "b"], &even, Ok(&[("a", 1), ("b", 1)]));
        check(&["a", "a", "a", "b"], &even, Ok(&[("a", 2), ("b", 2)]));
        check(&["a"; 10], &even, Ok(&[("a", 5), ("b", 5)]));
        let uneven = of(&[("a", 0.75), ("b", 0.25)]);
        check(&["a", "a", "b", "b"], &uneven, Ok(&[("a", 3), ("b", 1)]));
        check(&["a"], &even, Err("Insufficient number of endpoints (1 endpoints, 2 zones)"));
        check(&["a", "b", "a"], &even, Err("Unable to allocate minimum required endpoints"));
        check(&["a", "b"], &Shares::new(), Err("Insufficient Node information"));
        check(&["a", "b", "", "a"], &even, Err("One or more endpoints do not have a zone"));
    }

    #[test]
    fn close_ones_are_for_their_zone_or_node() {
        for (annotation, distribution, wanted) in [
            ("", "", Mode::All),
            ("Disabled", "PreferClose", Mode::Close { node: false }),
            ("", "PreferSameZone", Mode::Close { node: false }),
            ("", "PreferSameNode", Mode::Close { node: true }),
            ("auto", "PreferSameNode", Mode::Shares),
            ("Auto", "", Mode::Shares),
            ("", "Random", Mode::All),
        ] {
            assert_eq!(mode(&service(annotation, distribution)), wanted, "{annotation} {distribution}");
        }
        for (node, zone, wanted) in [
            (false, "a", json!({ "forZones": [{ "name": "a" }] })),
            (true, "a", json!({ "forZones": [{ "name": "a" }], "forNodes": [{ "name": "n" }] })),
            (true, "", json!({ "forNodes": [{ "name": "n" }] })),
            (false, "", json!(null)),
        ] {
            let mut one = endpoint(zone);
            assign(Mode::Close { node }, &mut [(&mut one, None)], &Shares::new).expect("hints");
            assert_eq!(json!(one.hints), wanted);
        }
    }

    #[test]
    fn shares_are_of_nodes_that_are_ready_and_tell() {
        let node = |zone: &str, cpu: &str, ready: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": { "labels": { ZONE_LABEL: zone } },
                "status": { "allocatable": { "cpu": cpu }, "conditions": [{ "type": "Ready", "status": ready }] },
            }))
            .expect("a node")
        };
        let all =
            [node("a", "3", "True"), node("b", "500m", "True"), node("b", "500m", "True"), node("c", "9", "False")];
        assert_eq!(shares(all.iter()), of(&[("a", 0.75), ("b", 0.25)]));
        assert!(shares([node("a", "1", "True"), node("", "1", "True")].iter()).is_empty());
        assert!(shares([node("a", "1", "True"), node("a", "1", "True")].iter()).is_empty());
    }
}
