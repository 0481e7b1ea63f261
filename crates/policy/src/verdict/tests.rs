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
