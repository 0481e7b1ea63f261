//! The one cluster of a machine has its files where storage drivers and collectors of logs look for them. In a mount namespace
//! whose `/var/lib`, `/var/log` and `/etc` lead to folders of the test, so that nothing of the machine is touched.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{Cluster, free_port, kubectl_path, until};

/// What stock manifests mount: a storage driver's, and those of collectors of logs and figures.
const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: 'busybox:1.36', command: [sh, -c, 'echo hello; sleep 3600']}
---
apiVersion: v1
kind: Pod
metadata: {name: driver}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: 'busybox:1.36'
    securityContext: {privileged: true}
    command:
    - sh
    - -c
    - |
      mkdir -p /var/lib/kubelet/plugins/example.com/volume
      mount -t tmpfs example /var/lib/kubelet/plugins/example.com/volume
      until cat /var/log/containers/writer_default_main-*.log; do sleep 1; done
      ls -d /host/var/lib/kubelet /registration
      sleep 3600
    volumeMounts:
    - {name: registration, mountPath: /registration}
    - {name: pods, mountPath: /var/lib/kubelet/pods, mountPropagation: Bidirectional}
    - {name: plugins, mountPath: /var/lib/kubelet/plugins, mountPropagation: Bidirectional}
    - {name: logs, mountPath: /var/log, readOnly: true}
    - {name: root, mountPath: /host, readOnly: true, mountPropagation: HostToContainer}
  volumes:
  - {name: registration, hostPath: {path: /var/lib/kubelet/plugins_registry, type: Directory}}
  - {name: pods, hostPath: {path: /var/lib/kubelet/pods, type: Directory}}
  - {name: plugins, hostPath: {path: /var/lib/kubelet/plugins, type: DirectoryOrCreate}}
  - {name: logs, hostPath: {path: /var/log}}
  - {name: root, hostPath: {path: /}}
";

const STATIC: &str = "
apiVersion: v1
kind: Pod
metadata: {name: fixed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: 'busybox:1.36', command: [sh, -c, 'sleep 3600']}
";

/// A machine whose own folders are out of sight.
struct Machine {
    folder: tempfile::TempDir,
    run_dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("ferry-e2e-").tempdir().unwrap();
        let run_dir = tempfile::Builder::new().prefix("ferry-e2e-").tempdir_in("/run").unwrap();
        for name in ["data", "lib/work", "lib/up", "log/work", "log/up", "etc/work", "etc/up"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        Self { folder, run_dir }
    }

    /// What is in a folder of the machine that was not there before.
    fn made_in(&self, name: &str) -> PathBuf {
        self.folder.path().join(name).join("up")
    }

    fn run(command: &mut Command) {
        let output = command.output().expect("it runs");
        let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{command:?}: {said}{why}");
    }

    fn up(&self) {
        let script = "set -e
            over() { mount -t overlay overlay -o lowerdir=$1,upperdir=$T/$2/up,workdir=$T/$2/work $1; }
            over /var/lib lib; over /var/log log; over /etc etc
            rm -rf /var/lib/kubelet /var/log/pods /var/log/containers /etc/kubernetes
            mkdir -p /var/lib/ferry; mount --bind $T/data /var/lib/ferry
            exec \"$@\"";
        let registry = std::env::var("FERRY_TEST_REGISTRY").unwrap_or_else(|_| "http://127.0.0.1:5057".into());
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            "sh",
            env!("CARGO_BIN_EXE_ferry"),
            "up",
        ]);
        command.env("T", self.folder.path()).arg(format!("--run-dir={}", self.run_dir.path().display()));
        command.args([
            format!("--secure-port={}", free_port()),
            format!("--kubelet-port={}", free_port()),
            format!("--dns-port={}", free_port()),
            format!("--registry-mirror=docker.io={registry}"),
            format!("--registry-mirror=registry.k8s.io={registry}"),
        ]);
        command.args(["--container-runtime-endpoint=embedded", "--node-name=places", "--bridge=ferryplace0"]);
        command.args(["--cgroup-root=/ferryplaces", "--cluster-cidr=10.207.0.0/16"]);
        command.args(["--service-cluster-ip-range=10.208.0.0/16"]);
        Self::run(&mut command);
    }

    fn pid(&self) -> String {
        std::fs::read_to_string(self.run_dir.path().join("ferry.lock")).expect("a lock").trim().to_owned()
    }

    /// A command that sees the machine as the cluster does.
    fn inside(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.pid()]).args(words);
        command
    }

    fn down(&self) {
        let run_dir = format!("--run-dir={}", self.run_dir.path().display());
        Self::run(&mut self.inside(&[env!("CARGO_BIN_EXE_ferry"), "down", "--purge", &run_dir]));
    }

    fn kubectl(&self, words: &[&str]) -> String {
        let mut command = Command::new(kubectl_path());
        command.arg("--kubeconfig").arg(self.folder.path().join("data/kubeconfig")).args(words);
        String::from_utf8_lossy(&command.output().expect("kubectl runs").stdout).into_owned()
    }

    fn apply(&self, name: &str, text: &str) {
        let file = self.folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A failed test leaves no cluster behind either.
        if self.run_dir.path().join("ferry.lock").exists() {
            let run_dir = format!("--run-dir={}", self.run_dir.path().display());
            let _ = self.inside(&[env!("CARGO_BIN_EXE_ferry"), "down", "--purge", &run_dir]).output();
        }
    }
}

/// Of files, links and folders. What the machine had before and the test took out of its sight is a device to an overlay.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let there = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_char_device()));
    there.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

pub fn others_find_the_files_of_the_node() {
    if let Some(reason) = Cluster::missing() {
        ferry_testkit::cannot_run(&reason);
    }
    let machine = Machine::new();
    machine.up();
    until("the service account is there", || {
        machine.kubectl(&["get", "serviceaccount", "default", "-o", "name"]).contains("default").then_some(())
    });
    machine.apply("pods.yaml", PODS);
    let manifest = machine.folder.path().join("fixed.yaml");
    std::fs::write(&manifest, STATIC).unwrap();
    let place = "/etc/kubernetes/manifests/fixed.yaml";
    Machine::run(&mut machine.inside(&["cp", manifest.to_str().unwrap(), place]));

    let seen = until("the driver has seen what it looks for", || {
        let said = machine.kubectl(&["logs", "driver"]);
        said.contains("/registration").then_some(said)
    });
    assert!(seen.contains("stdout F hello\n") && seen.contains("/host/var/lib/kubelet\n"), "{seen}");
    let mounts = std::fs::read_to_string(format!("/proc/{}/mounts", machine.pid())).unwrap();
    assert!(mounts.contains(" /var/lib/kubelet/plugins/example.com/volume "), "what it mounts reaches the node");
    until("the static pod runs", || {
        let phase = machine.kubectl(&["get", "pod", "fixed-places", "-o", "jsonpath={.status.phase}"]);
        (phase == "Running").then_some(())
    });
    let links = names(&machine.made_in("log").join("containers"));
    assert!(links.iter().any(|name| name.starts_with("fixed-places_default_main-")), "{links:?}");

    Machine::run(&mut machine.inside(&["rm", place]));
    machine.down();
    for (folder, name) in [("lib", "kubelet"), ("log", "pods"), ("log", "containers"), ("etc", "kubernetes")] {
        assert!(!names(&machine.made_in(folder)).contains(&name.to_owned()), "{name} is gone with the cluster");
    }
}
