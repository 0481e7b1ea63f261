//! Pods that turn on their node: what they say of themselves, and what they leave in files that the kubelet reads.

use crate::Scenario;
use crate::cluster::{Cluster, until};

pub const SCENARIOS: &[Scenario] = &[
    ("hostile::node::a_pod_that_claims_to_be_a_mirror_opens_no_other", a_pod_that_claims_to_be_a_mirror_opens_no_other),
    (
        "hostile::node::a_pod_that_claims_to_be_static_is_like_any_other",
        a_pod_that_claims_to_be_static_is_like_any_other,
    ),
    ("hostile::node::a_fifo_for_last_words_freezes_nobody", a_fifo_for_last_words_freezes_nobody),
    ("hostile::node::a_swapped_subpath_leads_nowhere_else", a_swapped_subpath_leads_nowhere_else),
];

/// The attacker may do what `edit` allows in a namespace of their own, and nothing else.
pub const MALLORY: &str = "--as=mallory";

pub fn make_mallory(cluster: &Cluster) {
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

pub fn is_running(cluster: &Cluster, namespace: &str, name: &str) -> Option<()> {
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

/// Each such pod, allowed under `restricted`, took one worker of the whole process for ever, after a restart too.
fn a_fifo_for_last_words_freezes_nobody(cluster: &mut Cluster) {
    make_mallory(cluster);
    let names = ["fifo-0", "fifo-1", "fifo-2", "fifo-3"];
    for name in names {
        let pod = format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: mallory}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {{runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000, seccompProfile: {{type: RuntimeDefault}}}}
  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - name: make
    image: 'busybox:1.36'
    command: [mkfifo, /v/fifo]
    volumeMounts: [{{name: v, mountPath: /v}}]
    securityContext: &strict {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
  containers:
  - name: main
    image: 'busybox:1.36'
    command: ['true']
    volumeMounts: [{{name: v, mountPath: /dev/termination-log, subPath: fifo}}]
    securityContext: *strict
"
        );
        cluster.kubectl_with(&[MALLORY, "create", "-f", "-"], &pod);
    }
    let all_end = |cluster: &Cluster| {
        until("every such pod has ended and says so", || {
            let ended = |name: &str| phase(cluster, "mallory", name).as_deref() == Some("Succeeded");
            names.iter().all(|name| ended(name)).then_some(())
        });
    };
    all_end(cluster);
    cluster.kill();
    cluster.up();
    all_end(cluster);
    cluster.kubectl(&["delete", "namespace", "mallory", "--wait=true"]);
}

/// One container swaps a folder for a link to the node's root as fast as it can, while others mount that part of the
/// volume: each of them finds a folder or is started again, and none finds the node.
fn a_swapped_subpath_leads_nowhere_else(cluster: &mut Cluster) {
    make_mallory(cluster);
    let mark = cluster.data_dir().join("of-the-node");
    std::fs::write(&mark, "secret").unwrap();
    let racers: String = (0..30)
        .map(|number| {
            format!(
                "
  - name: racer-{number}
    image: 'busybox:1.36'
    command: [sh, -c, 'if [ -e /seen{mark} ]; then echo ESCAPED; else echo inside; fi']
    volumeMounts: [{{name: v, mountPath: /seen, subPath: part}}]",
                mark = mark.display()
            )
        })
        .collect();
    let pod = format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: race, namespace: mallory}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - name: swap
    image: 'busybox:1.36'
    restartPolicy: Always
    command: [sh, -c, 'cd /v; mkdir part; while :; do mv part real; ln -s / part; rm part; mv real part; done 2>&-']
    volumeMounts: [{{name: v, mountPath: /v}}]
  containers:{racers}
"
    );
    cluster.kubectl_with(&[MALLORY, "create", "-f", "-"], &pod);
    until("all racers have ended", || {
        let pod = cluster.json(&["get", "pod", "-n", "mallory", "race"]);
        let containers = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        let ended = containers.iter().filter(|c| !c["state"]["terminated"].is_null()).count();
        (ended == 30).then_some(())
    });
    let logs = cluster.kubectl(&["logs", "-n", "mallory", "race", "--all-containers"]);
    assert!(!logs.contains("ESCAPED"), "{logs}");
    assert!(logs.contains("inside"), "{logs}");
    cluster.kubectl(&["delete", "namespace", "mallory", "--wait=true"]);
    std::fs::remove_file(&mark).unwrap();
}
