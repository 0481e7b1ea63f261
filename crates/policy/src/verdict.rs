//! What the policies say of one connection, for those who ask why it does not come about. Judged as it is enforced.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;

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

/// The policies that isolate an end and let the connection pass nowhere; empty where it passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Of the pod that connects.
    pub egress: Vec<String>,
    /// Of the pod that is connected to.
    pub ingress: Vec<String>,
}

/// By the policies of both namespaces; those of others do not matter and may be among them.
pub fn judge(connection: &Connection<'_>, namespaces: &[Namespace], policies: &[NetworkPolicy]) -> Verdict {
    let Some(protocol) = Protocol::parse(Some(connection.protocol)) else { return Verdict::default() };
    let of = |direction, pod: &Pod| {
        if pods::is_on_host_network(pod) || passes(connection, namespaces, policies, direction, pod, protocol) {
            return Vec::new();
        }
        let namespace = pod.namespace().unwrap_or_default();
        let read = policies.iter().map(Policy::read);
        let isolates = |policy: &Policy| {
            let labels = pod.labels();
            policy.namespace == namespace
                && policy.rules(direction).is_some()
                && policy.selects.matches_with(|key| labels.get(key).map(String::as_str))
        };
        read.filter(isolates).map(|policy| policy.name).collect()
    };
    Verdict { egress: of(Direction::Egress, connection.from), ingress: of(Direction::Ingress, connection.to) }
}

/// As the node of a pod would decide.
fn passes(
    connection: &Connection<'_>,
    namespaces: &[Namespace],
    policies: &[NetworkPolicy],
    direction: Direction,
    pod: &Pod,
    protocol: Protocol,
) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let bridge = Bridge { name: String::new(), broadcasts: Vec::new() };
    let mut state = State::new(&node, "verdict", bridge);
    namespaces.iter().for_each(|namespace| state.namespace(namespace, true));
    for pod in [connection.from, connection.to] {
        state.pod(&Arc::new(pod.clone()), true);
    }
    policies.iter().for_each(|policy| state.policy(policy, true));
    state.transaction();
    state.passes(direction, connection.from_address, connection.to_address, protocol, connection.port)
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
        let check = |policies: &[&NetworkPolicy], port: u16, egress: &[&str], ingress: &[&str]| {
            let policies: Vec<NetworkPolicy> = policies.iter().map(|one| (*one).clone()).collect();
            let connection = Connection {
                from: &a,
                to: &b,
                from_address: [10, 0, 0, 1].into(),
                to_address: [10, 0, 0, 2].into(),
                protocol: "TCP",
                port,
            };
            let verdict = judge(&connection, &namespaces, &policies);
            assert_eq!((verdict.egress, verdict.ingress), (texts(egress), texts(ingress)), "{port}");
        };
        check(&[], 8080, &[], &[]);
        check(&[&deny], 8080, &[], &["deny"]);
        check(&[&deny, &named], 8080, &[], &[]);
        check(&[&deny, &named], 9090, &[], &["deny", "named"]);
        check(&[&egress, &named], 8080, &["out"], &[]);
        check(&[&egress, &deny], 8080, &["out"], &["deny"]);
    }

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }
}
