//! NetworkPolicies, with real pods.

use serde_json::{Value, json};

use crate::cluster::{Cluster, http_get, until};
use crate::insight::ask;

const NAMESPACE: &str = "walls";

fn pod(name: &str, container: Value) -> Value {
    let mut main = json!({"name": "main", "image": "busybox:1.36", "command": ["sleep", "3600"]});
    for (key, value) in container.as_object().into_iter().flatten() {
        main[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "containers": [main]}})
}

fn policy(name: &str, spec: Value) -> String {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
    .to_string()
}

fn address(cluster: &Cluster, pod: &str) -> String {
    cluster.kubectl(&["wait", &format!("pod/{pod}"), "-n", NAMESPACE, "--for=condition=Ready", "--timeout=180s"]);
    cluster.kubectl(&["get", "pod", pod, "-n", NAMESPACE, "-o", "jsonpath={.status.podIP}"])
}

fn reaches(cluster: &Cluster, from: &str, url: &str) -> bool {
    let asks = ["exec", "-n", NAMESPACE, from, "--", "timeout", "2", "wget", "-q", "-O-", url];
    cluster.try_kubectl(&asks, "").status.success()
}

pub fn network_policies_are_enforced(cluster: &mut Cluster) {
    cluster.kubectl(&["create", "namespace", NAMESPACE]);
    let probe = json!({"image": "nginx:1.25", "command": Value::Null, "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1},
        "ports": [{"name": "http", "containerPort": 80}]});
    for one in [pod("web", probe), pod("friend", json!({})), pod("stranger", json!({}))] {
        cluster.apply(&one.to_string());
    }
    cluster.kubectl(&["expose", "pod", "web", "-n", NAMESPACE, "--port=8080", "--target-port=80"]);
    let (web, friend, stranger) = (address(cluster, "web"), address(cluster, "friend"), address(cluster, "stranger"));
    assert!(!web.is_empty() && !friend.is_empty() && !stranger.is_empty());
    let (direct, service) = (format!("http://{web}/"), "http://web:8080/");
    until("the Service answers", || reaches(cluster, "stranger", service).then_some(()));

    let closed = policy("closed", json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    let created = cluster.try_kubectl(&["create", "-f", "-"], &closed);
    let told = String::from_utf8_lossy(&created.stderr).into_owned();
    assert!(created.status.success() && !told.contains("Warning"), "{told}");
    until("a default deny closes the pod", || (!reaches(cluster, "friend", &direct)).then_some(()));
    assert!(!reaches(cluster, "stranger", service), "through its Service too");
    assert!(http_get(&web, 80).is_some(), "its node reaches it");
    let way = |from: &str| ask(cluster, &["why", "-n", NAMESPACE, from, "--to", "service/web:8080"]);
    let (code, text) = way("pod/stranger");
    assert_eq!((code, text.contains("NetworkPolicy closed of pod/web selects it")), (Some(1), true), "{text}");

    let friends = json!([{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}], "ports": [{"port": "http"}]}]);
    cluster.apply(&policy("friends", json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": friends})));
    until("a friend is let in", || reaches(cluster, "friend", &direct).then_some(()));
    assert!(reaches(cluster, "friend", service), "through the Service, and with DNS");
    assert!(!reaches(cluster, "stranger", &direct) && !reaches(cluster, "stranger", service));
    let (code, text) = way("pod/friend");
    assert_eq!((code, text.contains("no NetworkPolicy drops it (ingress)")), (Some(0), true), "{text}");
    assert_eq!(way("pod/stranger").0, Some(1));
    names_follow_the_corefile(cluster);
    cluster.kubectl(&["label", "pod", "stranger", "-n", NAMESPACE, "app=friend", "--overwrite"]);
    until("labels are followed", || reaches(cluster, "stranger", &direct).then_some(()));

    // Closed before its first packet: what the pod does first is to try.
    let silent = json!({"podSelector": {"matchLabels": {"app": "early"}}, "policyTypes": ["Egress"]});
    cluster.apply(&policy("silent", silent));
    let allowed = json!([{"from": [{"podSelector": {}}]}]);
    cluster.apply(&policy("friends", json!({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": allowed})));
    let tries = format!("timeout 3 wget -q -O /dev/null {direct} && echo reached || echo blocked; sleep 3600");
    cluster.apply(&pod("early", json!({"command": ["sh", "-c", tries]})).to_string());
    let said = until("the first packet's fate is known", || {
        let logs = cluster.try_kubectl(&["logs", "early", "-n", NAMESPACE], "");
        let text = String::from_utf8_lossy(&logs.stdout).into_owned();
        text.lines().find(|line| ["reached", "blocked"].contains(line)).map(str::to_owned)
    });
    assert_eq!(said, "blocked");

    // Whatever others do to the packet rules.
    let flushed = std::process::Command::new("nft").args(["flush", "table", "inet", "ferrytest0-policy"]).status();
    assert!(flushed.unwrap().success());
    until("a flushed table comes back", || (!reaches(cluster, "early", &direct)).then_some(()));
    cluster.kubectl(&["delete", "networkpolicy", "--all", "-n", NAMESPACE]);
    until("without policies all is open", || reaches(cluster, "early", &direct).then_some(()));
    cluster_policies_follow_their_definition(cluster, &direct);
    cluster.kubectl(&["delete", "namespace", NAMESPACE]);
}

/// In force from the moment the kind is there, and until it goes.
fn cluster_policies_follow_their_definition(cluster: &Cluster, direct: &str) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusternetworkpolicies.policy.networking.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": "policy.networking.k8s.io", "scope": "Cluster",
            "names": {"plural": "clusternetworkpolicies", "kind": "ClusterNetworkPolicy", "shortNames": ["cnp"]},
            "versions": [{"name": "v1alpha2", "served": true, "storage": true, "schema": schema}]}});
    let policy = json!({"apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": {"name": "walls"},
        "spec": {"tier": "Admin", "priority": 1,
            "subject": {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}},
            "ingress": [{"action": "Deny", "from": [{"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "early"}}}}]}]}});
    cluster.apply(&definition.to_string());
    until("the kind is there", || {
        cluster.try_kubectl(&["apply", "-f", "-"], &policy.to_string()).status.success().then_some(())
    });
    until("it is in force", || (!reaches(cluster, "early", direct)).then_some(()));
    assert!(reaches(cluster, "stranger", direct), "others are not meant");
    let (code, text) = ask(cluster, &["why", "-n", NAMESPACE, "pod/early", "--to", "service/web:8080"]);
    assert_eq!((code, text.contains("ClusterNetworkPolicy \"walls\" of the Admin tier")), (Some(1), true), "{text}");
    cluster.kubectl(&["delete", "crd", "clusternetworkpolicies.policy.networking.k8s.io"]);
    until("it went with its kind", || reaches(cluster, "early", direct).then_some(()));
}

/// Another name for the Service, by the ConfigMap that people know.
fn names_follow_the_corefile(cluster: &Cluster) {
    let read = ["get", "configmap", "coredns", "-n", "kube-system", "-o", "jsonpath={.data.Corefile}"];
    let usual = cluster.kubectl(&read);
    let write = |text: &str| {
        let patch = json!({ "data": { "Corefile": text } }).to_string();
        cluster.kubectl(&["patch", "configmap", "coredns", "-n", "kube-system", "--type=merge", "-p", &patch]);
    };
    let alias = format!("rewrite name alias.example web.{NAMESPACE}.svc.cluster.local\n    dnstap\n    errors\n");
    write(&usual.replacen("errors\n", &alias, 1));
    let url = "http://alias.example:8080";
    until("the new name is answered", || reaches(cluster, "friend", url).then_some(()));
    until("what is not known is told", || {
        let events = cluster.kubectl(&["get", "events", "-n", "kube-system"]);
        (events.contains("CorefilePartlyKnown") && events.contains("the plug-in dnstap is not known")).then_some(())
    });
    write(". {");
    until("a Corefile that cannot be read is told", || {
        cluster.kubectl(&["get", "events", "-n", "kube-system"]).contains("CorefileNotRead").then_some(())
    });
    assert!(reaches(cluster, "friend", url), "the last good one is in force");
    write(&usual);
    until("the usual one is back", || (!reaches(cluster, "friend", url)).then_some(()));
}
