//! What the policies say of one connection, for those who ask why it does not come about. Judged as it is enforced.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;

use crate::chain::Denial;
use crate::cluster_policy::StoredClusterPolicy;
use crate::node_policies::NodePolicies;
use crate::policy::{Direction, Policy, Protocol};
use crate::{Bridge, pods};

/// A connection between two pods, as it is after a Service's address was translated.
#[derive(Debug)]
pub struct Connection<'a> {
    pub from: &'a Pod,
    pub to: &'a Pod,
    pub from_address: IpAddr,
    pub to_address: IpAddr,
    /// As the API names it.
    pub protocol: &'a str,
    pub port: u16,
}

/// What drops the connection at each end; none where it passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Of the pod that connects.
    pub egress: Option<Denied>,
    /// Of the pod that is connected to.
    pub ingress: Option<Denied>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// These isolate the pod, and none of them allows the connection.
    ByNetworkPolicies(Vec<String>),
    /// One of this tier and name, whose rule denies it.
    ByClusterNetworkPolicy { tier: String, name: String },
}

/// All that decides; policies of other namespaces do not matter and may be among them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules<'a> {
    pub namespaces: &'a [Namespace],
    pub policies: &'a [NetworkPolicy],
    pub cluster_policies: &'a [StoredClusterPolicy],
}

pub fn judge(connection: &Connection<'_>, rules: Rules<'_>) -> Verdict {
    let Some(protocol) = Protocol::parse(Some(connection.protocol)) else { return Verdict::default() };
    let of = |direction, pod: &Pod| {
        if pods::is_on_host_network(pod) {
            return None;
        }
        let denial = denies(connection, rules, direction, pod, protocol)?;
        if let Some((tier, name)) = denial.by.as_deref().and_then(|by| by.split_once(' ')) {
            return Some(Denied::ByClusterNetworkPolicy { tier: tier.to_owned(), name: name.to_owned() });
        }
        let namespace = pod.namespace().unwrap_or_default();
        let read = rules.policies.iter().map(Policy::read);
        let isolates = |policy: &Policy| {
            let labels = pod.labels();
            policy.namespace == namespace
                && policy.rules(direction).is_some()
                && policy.selects.matches_with(|key| labels.get(key).map(String::as_str))
        };
        Some(Denied::ByNetworkPolicies(read.filter(isolates).map(|policy| policy.name).collect()))
    };
    Verdict { egress: of(Direction::Egress, connection.from), ingress: of(Direction::Ingress, connection.to) }
}

/// As the node of a pod would decide.
fn denies(
    connection: &Connection<'_>,
    rules: Rules<'_>,
    direction: Direction,
    pod: &Pod,
    protocol: Protocol,
) -> Option<Denial> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let bridge = Bridge { name: String::new(), broadcasts: Vec::new() };
    let mut state = NodePolicies::new(&node, "verdict", bridge);
    rules.namespaces.iter().for_each(|namespace| state.namespace(namespace, true));
    for pod in [connection.from, connection.to] {
        state.pod(&Arc::new(pod.clone()), true);
    }
    rules.policies.iter().for_each(|policy| state.policy(policy, true));
    for policy in rules.cluster_policies {
        // What of it is not known is told by the nodes.
        let _ = state.cluster_policy(policy, true);
    }
    state.transaction();
    state.denies(direction, connection.from_address, connection.to_address, protocol, connection.port)
}

#[cfg(test)]
mod tests;
