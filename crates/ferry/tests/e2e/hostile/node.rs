//! Pods that turn on their node: what they say of themselves, and what they leave in files that the kubelet reads.

use crate::Scenario;
use crate::cluster::{Cluster, until};

pub const SCENARIOS: &[Scenario] = &[
    ("hostile::node::a_pod_that_claims_to_be_a_mirror_opens_no_other", a_pod_that_claims_to_be_a_mirror_opens_no_other),
    (
        "hostile::node::a_pod_that_claims_to_be_static_is_like_any_other",
        a_pod_that_claims_to_be_static_is_like_any_other,
    ),
];

/// The attacker may do what `edit` allows in a namespace of their own, and nothing else.
const MALLORY: &str = "--as=mallory";

fn make_mallory(cluster: &Cluster) {
    cluster.apply(
        "
apiVersion: v1
kind: Namespace
metadata: {name: mallory}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: mallory, namespace: mallory}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}]
",
    );
    until("the namespace has its account", || {
        let output = cluster.try_kubectl(&["get", "serviceaccount", "-n", "mallory", "default"], "");
        output.status.success().then_some(())
    });
}

fn phase(cluster: &Cluster, namespace: &str, name: &str) -> Option<String> {
    let output = cluster.try_kubectl(&["get", "pod", "-n", namespace, name, "-o", "jsonpath={.status.phase}"], "");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_running(cluster: &Cluster, namespace: &str, name: &str) -> Option<()> {
    (phase(cluster, namespace, name)? == "Running").then_some(())
}

/// Naming a victim's uid in `kubernetes.io/config.mirror` gave its exec, attach, logs and port-forward away.
fn a_pod_that_claims_to_be_a_mirror_opens_no_other(cluster: &mut Cluster) {
    make_mallory(cluster);
    cluster.apply(
        "
apiVersion: v1
kind: Pod
metadata: {name: victim}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: 'busybox:1.36', command: [sh, -c, 'echo secret; sleep 3600']}]
",
    );
    until("the victim runs", || is_running(cluster, "default", "victim"));
    let uid = cluster.kubectl(&["get", "pod", "victim", "-o", "jsonpath={.metadata.uid}"]);
    let claim = format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: claim, namespace: mallory, annotations: {{kubernetes.io/config.mirror: '{uid}'}}}}
spec:
  nodeName: e2e
  automountServiceAccountToken: false
  containers: [{{name: main, image: 'busybox:1.36', command: [sleep, '3600']}}]
"
    );
    let made = cluster.try_kubectl(&[MALLORY, "create", "-f", "-"], &claim);
    let exec = [MALLORY, "exec", "-n", "mallory", "claim", "--", "cat", "/etc/hostname"];
    let logs = [MALLORY, "logs", "-n", "mallory", "claim"];
    let opens = |words: &[&str]| {
        let output = cluster.try_kubectl(words, "");
        assert!(!output.status.success(), "the victim is open: {}", String::from_utf8_lossy(&output.stdout));
    };
    if made.status.success() {
        until("the mirror of nothing is taken away", || {
            opens(&exec);
            opens(&logs);
            phase(cluster, "mallory", "claim").is_none().then_some(())
        });
    }
    opens(&exec);
    cluster.kubectl(&["delete", "pod", "victim", "--wait=true"]);
    cluster.kubectl(&["delete", "namespace", "mallory", "--wait=true"]);
}

/// `kubernetes.io/config.source: file` made a pod preempt others, never be evicted, and never have a status.
fn a_pod_that_claims_to_be_static_is_like_any_other(cluster: &mut Cluster) {
    make_mallory(cluster);
    let claim = "
apiVersion: v1
kind: Pod
metadata: {name: claim, namespace: mallory, annotations: {kubernetes.io/config.source: file}}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers: [{name: main, image: 'busybox:1.36', command: [sleep, '3600']}]
";
    cluster.kubectl_with(&[MALLORY, "create", "-f", "-"], claim);
    until("the pod runs and says so", || is_running(cluster, "mallory", "claim"));
    cluster.kubectl(&[MALLORY, "delete", "pod", "-n", "mallory", "claim", "--wait=true"]);
    cluster.kubectl(&["delete", "namespace", "mallory", "--wait=true"]);
}
