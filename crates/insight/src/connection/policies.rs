//! Whether policies let the connection through, at either end.

use std::net::IpAddr;

use ferry_meta::object;
use ferry_policy::{Connection, Denied, Rules, StoredClusterPolicy, Verdict, judge};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::Value;

use super::ports::{cluster_addresses, is_external};
use super::steps::{End, addresses, passes, reachable, stop, unknown};
use super::{Outcome, Scene};
use crate::why::{Finding, Reason, in_namespace, named};
use crate::world::title;

/// What the policies say of each end that is a pod; None where they could not be read.
fn verdicts(scene: &Scene) -> Option<Vec<(End<'_>, Verdict)>> {
    fn typed<K: k8s_openapi::serde::de::DeserializeOwned>(items: &[Value]) -> Vec<K> {
        items.iter().filter_map(|item| serde_json::from_value(item.clone()).ok()).collect()
    }
    let policies: Vec<NetworkPolicy> = typed(scene.policies.as_ref()?);
    let namespaces: Vec<Namespace> = typed(scene.namespaces.as_ref()?);
    let cluster_policies: Vec<StoredClusterPolicy> = typed(scene.cluster_policies.as_ref()?);
    let rules = Rules { namespaces: &namespaces, policies: &policies, cluster_policies: &cluster_policies };
    let from: Pod = serde_json::from_value(scene.source.clone()).ok()?;
    let own = addresses(&scene.source);
    let judged = reachable(scene).into_iter().filter_map(|end| {
        let to: Pod = serde_json::from_value(end.pod?.clone()).ok()?;
        let from_address = *own.iter().find(|address| address.is_ipv4() == end.address.is_ipv4())?;
        let connection = Connection {
            from: &from,
            to: &to,
            from_address,
            to_address: end.address,
            protocol: end.protocol,
            port: end.port,
        };
        let verdict = judge(&connection, rules);
        Some((end, verdict))
    });
    Some(judged.collect())
}

pub(super) fn egress(scene: &Scene) -> Option<Outcome> {
    policies(scene, Reason::EgressPolicy, &scene.source, |verdict| verdict.egress.as_ref())
}

pub(super) fn ingress(scene: &Scene) -> Option<Outcome> {
    policies(scene, Reason::IngressPolicy, scene.object.as_ref()?, |verdict| verdict.ingress.as_ref())
}

fn policies(scene: &Scene, reason: Reason, about: &Value, of: impl Fn(&Verdict) -> Option<&Denied>) -> Option<Outcome> {
    if is_external(scene) {
        return None;
    }
    let direction = if reason == Reason::EgressPolicy { "egress" } else { "ingress" };
    let Some(verdicts) = verdicts(scene) else {
        return unknown("the policies could not be read");
    };
    if verdicts.is_empty() {
        return unknown("the endpoints are no pods that are known here");
    }
    let dropped = verdicts.iter().filter_map(|(end, verdict)| Some((end, of(verdict)?)));
    let dropped: Vec<(&End<'_>, &Denied)> = dropped.collect();
    let Some((end, denied)) = dropped.first() else {
        return passes(format!("no NetworkPolicy drops it ({direction})"));
    };
    let who = if direction == "egress" { &scene.source } else { end.pod? };
    let (subject, does, fix) = match denied {
        Denied::ByNetworkPolicies(names) => {
            let word = if names.len() == 1 { "NetworkPolicy" } else { "NetworkPolicies" };
            let does = if names.len() == 1 { "selects it and does not allow" } else { "select it and none allows" };
            let first = names.first().map(String::as_str).unwrap_or_default();
            let fix =
                format!("add a rule under spec.{direction}: kubectl edit {}networkpolicy/{first}", in_namespace(who));
            (format!("the {word} {}", named(names)), does, fix)
        }
        Denied::ByClusterNetworkPolicy { tier, name } => (
            format!("the ClusterNetworkPolicy {name:?} of the {tier} tier"),
            "selects it and denies",
            format!("change spec.{direction}: kubectl edit clusternetworkpolicy/{name}"),
        ),
    };
    if dropped.len() < verdicts.len() {
        let left = verdicts.len() - dropped.len();
        let title = end.title();
        return passes(format!("{left} of {} endpoints; {subject} drop it to {title}", verdicts.len()));
    }
    let of_whom =
        if matches!(denied, Denied::ByNetworkPolicies(_)) { format!(" of {}", title(who)) } else { String::new() };
    let cause = format!("{subject}{of_whom} {does} {} {}", end.protocol, end.port);
    let labels = |pod: &Value| {
        let pairs = object::labels(pod).iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
        pairs.collect::<Vec<String>>().join(",")
    };
    let peer = if direction == "egress" { end.pod? } else { &scene.source };
    let finding = Finding::new(reason, about, cause)
        .detail(format!("the other end is {} with the labels {}", title(peer), labels(peer)))
        .detail(namespace_of(scene, peer, who))
        .detail(if direction == "egress" { service_range(scene, denied) } else { String::new() })
        .detail("Ferry's network enforces it; in other clusters that depends on the network plug-in");
    stop(finding.advise(fix))
}

/// Rules mean namespaces by their labels: those that the other end's has.
fn namespace_of(scene: &Scene, peer: &Value, who: &Value) -> String {
    let place = object::namespace(peer);
    let found = scene.namespaces.iter().flatten().find(|one| object::name(one) == place);
    let labels = found.filter(|_| place != object::namespace(who)).map(|one| {
        let pairs = object::labels(one).iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
        pairs.collect::<Vec<String>>().join(",")
    });
    labels.map(|labels| format!("its namespace {place} has the labels {labels}")).unwrap_or_default()
}

/// A rule for the address of the Service: policies see the pods' addresses, which take its place before.
fn service_range(scene: &Scene, denied: &Denied) -> String {
    let (Denied::ByNetworkPolicies(names), Some(service)) = (denied, &scene.object) else { return String::new() };
    let own: Vec<IpAddr> = cluster_addresses(service).iter().filter_map(|address| address.parse().ok()).collect();
    let of_rules = |policy: &Value| -> Vec<String> {
        let peers = object::items(policy, "/spec/egress").iter().flat_map(|rule| object::items(rule, "/to"));
        // What is excepted of a range is not of the rule.
        let excepted = |peer: &Value| {
            let mut ranges = object::items(peer, "/ipBlock/except").iter().filter_map(Value::as_str);
            ranges.any(|range| own.iter().any(|address| contains(range, *address)))
        };
        peers.filter(|peer| !excepted(peer)).map(|peer| object::text(peer, "/ipBlock/cidr").to_owned()).collect()
    };
    let place = object::namespace(&scene.source);
    let is_one =
        |policy: &&Value| object::namespace(policy) == place && names.iter().any(|name| name == object::name(policy));
    let ranges = scene.policies.iter().flatten().filter(is_one).flat_map(of_rules);
    let mut within = ranges.filter(|range| own.iter().any(|address| contains(range, *address)));
    within.next().filter(|_| scene.target.is_service).map_or_else(String::new, |range| {
        format!("its ipBlock {range} is for the Service's own address, which counts for nothing: policies see the address of the pod behind it")
    })
}

fn contains(range: &str, address: IpAddr) -> bool {
    let Some((start, bits)) = range.split_once('/') else { return false };
    let (Ok(start), Ok(bits)) = (start.parse::<IpAddr>(), bits.parse::<u32>()) else { return false };
    match (start, address) {
        (IpAddr::V4(start), IpAddr::V4(address)) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            start.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(start), IpAddr::V6(address)) if bits <= 128 => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            start.to_bits() & mask == address.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::contains;

    #[test]
    fn addresses_are_within_ranges() {
        for (range, address, want) in [
            ("10.96.0.0/16", "10.96.3.4", true),
            ("10.96.0.0/16", "10.97.3.4", false),
            ("0.0.0.0/0", "10.97.3.4", true),
            ("10.97.3.4/32", "10.97.3.4", true),
            ("10.97.3.4/33", "10.97.3.4", false),
            ("fd00::/8", "fd12::1", true),
            ("::/0", "fd12::1", true),
            ("::/0", "10.97.3.4", false),
            ("", "10.97.3.4", false),
            ("x/8", "10.97.3.4", false),
        ] {
            assert_eq!(contains(range, address.parse().unwrap()), want, "{address} in {range}");
        }
    }
}
