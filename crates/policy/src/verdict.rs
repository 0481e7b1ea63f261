//! What the policies say of one connection, for those who ask why it does not come about. Judged as it is enforced.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;

use crate::chain::Denial;
use crate::cluster_policy::StoredClusterPolicy;
use crate::policy::{Direction, Policy, Protocol};
use crate::state::State;
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
    let mut state = State::new(&node, "verdict", bridge);
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
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of<K: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).expect("an object")
    }

    fn pod(name: &str, address: &str) -> Pod {
        of(json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]},
            "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
        }))
    }

    #[test]
    fn the_policies_that_stop_a_connection_are_named() {
        let policy = |name: &str, spec: Value| -> NetworkPolicy {
            of(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}))
        };
        let deny = policy("deny", json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
        let named = policy(
            "named",
            json!({"podSelector": {"matchLabels": {"app": "b"}}, "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "a"}}}], "ports": [{"port": "http"}]}]}),
        );
        let egress = policy("out", json!({"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Egress"]}));
        let (a, b) = (pod("a", "10.0.0.1"), pod("b", "10.0.0.2"));
        let namespaces: [Namespace; 1] = [of(json!({"metadata": {"name": "default"}}))];
        let cluster = |name: &str, tier: &str, action: &str| -> StoredClusterPolicy {
            let rule = json!({"action": action, "from": [{"namespaces": {}}]});
            of(json!({"metadata": {"name": name},
                "spec": {"tier": tier, "priority": 5, "subject": {"namespaces": {}}, "ingress": [rule]}}))
        };
        let with = |policies: &[&NetworkPolicy], cluster_policies: &[StoredClusterPolicy], port: u16| {
            let policies: Vec<NetworkPolicy> = policies.iter().map(|one| (*one).clone()).collect();
            let connection = Connection {
                from: &a,
                to: &b,
                from_address: [10, 0, 0, 1].into(),
                to_address: [10, 0, 0, 2].into(),
                protocol: "TCP",
                port,
            };
            judge(&connection, Rules { namespaces: &namespaces, policies: &policies, cluster_policies })
        };
        let check = |policies: &[&NetworkPolicy], port: u16, egress: &[&str], ingress: &[&str]| {
            let verdict = with(policies, &[], port);
            assert_eq!((verdict.egress, verdict.ingress), (by(egress), by(ingress)), "{port}");
        };
        check(&[], 8080, &[], &[]);
        check(&[&deny], 8080, &[], &["deny"]);
        check(&[&deny, &named], 8080, &[], &[]);
        check(&[&deny, &named], 9090, &[], &["deny", "named"]);
        check(&[&egress, &named], 8080, &["out"], &[]);
        check(&[&egress, &deny], 8080, &["out"], &["deny"]);
        let closed = Some(Denied::ByClusterNetworkPolicy { tier: "Admin".into(), name: "closed".into() });
        assert_eq!(with(&[&named], &[cluster("closed", "Admin", "Deny")], 8080).ingress, closed);
        assert_eq!(with(&[&deny], &[cluster("open", "Admin", "Accept")], 8080).ingress, None);
        assert_eq!(with(&[&named], &[cluster("closed", "Baseline", "Deny")], 8080).ingress, None);
        assert_eq!(with(&[&deny], &[cluster("other", "Admin", "Pass")], 8080).ingress, by(&["deny"]));
    }

    fn by(names: &[&str]) -> Option<Denied> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        (!names.is_empty()).then_some(Denied::ByNetworkPolicies(names))
    }
}
