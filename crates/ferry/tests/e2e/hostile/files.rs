//! What pods leave on the node's disk, and who can get at it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Scenario;
use crate::cluster::{Cluster, until};

pub const SCENARIOS: &[Scenario] = &[
    ("hostile::files::users_of_the_node_get_at_nothing_of_a_pod", users_of_the_node_get_at_nothing_of_a_pod),
    ("hostile::files::a_user_of_a_pod_reads_what_is_meant_for_it", a_user_of_a_pod_reads_what_is_meant_for_it),
    ("hostile::files::unsafe_sysctls_are_refused", unsafe_sysctls_are_refused),
];

const NOBODY: &str = "65534";

/// Runs a program as an ordinary user of the machine.
fn as_nobody(words: &[&str]) -> std::process::Output {
    // By way of a shell: setpriv itself still has its rights while it looks for the program.
    let user = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--", "sh", "-c", "exec \"$@\"", "sh"];
    Command::new("setpriv").args(user).args(words).output().expect("setpriv runs")
}

fn find(folder: &Path, name: &str) -> PathBuf {
    let output = Command::new("find").arg(folder).args(["-name", name]).output().expect("find runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    PathBuf::from(text.lines().next().unwrap_or_else(|| panic!("{name} is nowhere in {}", folder.display())))
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Folders of pods were open to all, with Secrets and programs that run as root in them.
fn users_of_the_node_get_at_nothing_of_a_pod(cluster: &mut Cluster) {
    cluster.apply(
        "
apiVersion: v1
kind: Secret
metadata: {name: closed}
stringData: {hidden-key: of the cluster}
---
apiVersion: v1
kind: Pod
metadata: {name: leaving}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: 'busybox:1.36'
    command: [sleep, '3600']
    volumeMounts: [{name: v, mountPath: /v}, {name: s, mountPath: /s}]
  volumes: [{name: v, emptyDir: {}}, {name: s, secret: {secretName: closed}}]
",
    );
    // A program that tells as whom it runs.
    let program = String::from_utf8(Command::new("base64").arg("/usr/bin/id").output().unwrap().stdout).unwrap();
    let keep = "base64 -d >/v/left-behind && chmod 4755 /v/left-behind";
    until("the program is left", || {
        let output = cluster.try_kubectl(&["exec", "-i", "leaving", "--", "sh", "-c", keep], &program);
        output.status.success().then_some(())
    });
    let left = find(cluster.data_dir(), "left-behind");
    assert_eq!(mode(&left), 0o4755);
    let tried = as_nobody(&[left.to_str().unwrap(), "-u"]);
    assert!(!tried.status.success(), "it ran as {}", String::from_utf8_lossy(&tried.stdout));
    let secret = find(&cluster.data_dir().join("kubelet/pods"), "hidden-key");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "of the cluster");
    for place in [&*secret, cluster.data_dir(), cluster.run_dir(), &cluster.data_dir().join("store")] {
        let words = ["ls", "-lR", place.to_str().unwrap()];
        let looked = as_nobody(&words);
        assert!(!looked.status.success(), "{words:?}: {}", String::from_utf8_lossy(&looked.stdout));
    }
    for place in ["", "store", "kubelet", "kubelet/pods", "logs"] {
        let place = cluster.data_dir().join(place);
        assert_eq!(mode(&place) & 0o027, 0, "{} has the mode {:o}", place.display(), mode(&place));
    }
    cluster.kubectl(&["delete", "pod/leaving", "secret/closed", "--wait=true"]);
}

/// What the node keeps closed is open to whoever runs in the pod, where it is meant for the pod.
fn a_user_of_a_pod_reads_what_is_meant_for_it(cluster: &mut Cluster) {
    cluster.apply(
        "
apiVersion: v1
kind: ConfigMap
metadata: {name: meant}
data: {key: config}
---
apiVersion: v1
kind: Secret
metadata: {name: meant}
stringData: {key: secret}
---
apiVersion: v1
kind: Pod
metadata: {name: reading, labels: {a: label}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: 'busybox:1.36'
    securityContext: {runAsUser: 1000, runAsGroup: 1000}
    command: [sh, -ec, '
      cat /etc/resolv.conf /etc/hosts /etc/hostname >/dev/null;
      cat /c/key /s/key /d/a; echo;
      echo mine >/e/file; echo mine >/part/file; echo mine >/m/file; echo mine >/tmp-of-all/file;
      stat -Lc \"%a %u\" /var/run/secrets/kubernetes.io/serviceaccount/token;
      cat /var/run/secrets/kubernetes.io/serviceaccount/token >/dev/null;
      echo last words >/dev/termination-log']
    volumeMounts:
    - {name: c, mountPath: /c}
    - {name: s, mountPath: /s}
    - {name: d, mountPath: /d}
    - {name: e, mountPath: /e}
    - {name: e, mountPath: /part, subPath: some/part}
    - {name: m, mountPath: /m}
    - {name: h, mountPath: /tmp-of-all}
  volumes:
  - {name: c, configMap: {name: meant}}
  - {name: s, secret: {secretName: meant}}
  - {name: d, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: \"metadata.labels['a']\"}}]}}
  - {name: e, emptyDir: {}}
  - {name: m, emptyDir: {medium: Memory}}
  - {name: h, emptyDir: {}}
",
    );
    let state = until("the pod has ended", || {
        let pod = cluster.json(&["get", "pod", "reading"]);
        let state = pod["status"]["containerStatuses"][0]["state"]["terminated"].clone();
        (!state.is_null()).then_some(state)
    });
    let logs = cluster.kubectl(&["logs", "reading"]);
    assert_eq!(state["exitCode"], 0, "{logs}");
    assert_eq!(state["message"], "last words\n");
    // The token is for the one user of the pod.
    assert_eq!(logs, "configsecretlabel\n600 1000\n");
    cluster.kubectl(&["delete", "pod/reading", "configmap/meant", "secret/meant", "--wait=true"]);
}

/// They reach beyond the pod.
fn unsafe_sysctls_are_refused(cluster: &mut Cluster) {
    let pod = |name: &str, sysctl: &str| {
        cluster.apply(&format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  securityContext: {{sysctls: [{{name: {sysctl}, value: '1'}}]}}
  containers: [{{name: main, image: 'busybox:1.36', command: ['true']}}]
"
        ));
    };
    pod("unsafe-sysctl", "kernel.msgmax");
    pod("safe-sysctl", "kernel.shm_rmid_forced");
    let status = until("the pod is refused", || {
        let status = cluster.json(&["get", "pod", "unsafe-sysctl"])["status"].clone();
        matches!(status["phase"].as_str(), Some("Failed" | "Succeeded")).then_some(status)
    });
    let (reason, message) = (&status["reason"], &status["message"]);
    assert_eq!(reason, "SysctlForbidden", "{status}");
    assert_eq!(message, "Pod was rejected: forbidden sysctl: \"kernel.msgmax\" not allowlisted");
    until("the other one runs", || {
        let status = cluster.json(&["get", "pod", "safe-sysctl"])["status"].clone();
        (status["phase"] == "Succeeded").then_some(())
    });
    cluster.kubectl(&["delete", "pod", "unsafe-sysctl", "safe-sysctl", "--wait=true"]);
}
