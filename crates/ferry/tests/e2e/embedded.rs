//! A cluster on the embedded container runtime: no containerd runs, and its pods outlive a killed Ferry.

use crate::cluster::{Cluster, until};

const PODS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: 'busybox:1.36'
    command: [sh, -c, 'echo hello; sleep 3600']
    volumeMounts: [{name: tools, mountPath: /tools}]
  volumes:
  - {name: tools, image: {reference: 'nginx:1.27'}}
---
apiVersion: v1
kind: Pod
metadata: {name: failing}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: 'busybox:1.36', command: [sh, -c, 'exit 7']}
";

pub fn pods_run_without_containerd() {
    let cluster = Cluster::start_with(vec!["--container-runtime-endpoint=embedded".to_owned()]);
    cluster.apply(PODS);
    let id = || {
        let pod = cluster.json(&["get", "pod", "writer", "-o", "json"]);
        let container = &pod["status"]["containerStatuses"][0];
        (container["ready"] == true).then(|| container["containerID"].as_str().unwrap_or_default().to_owned())
    };
    let before = until("the pod runs", id);
    assert!(before.starts_with("ferry://"), "{before}");
    assert_eq!(cluster.kubectl(&["logs", "writer"]), "hello\n");
    let seen = cluster.kubectl_with(&["exec", "-i", "writer", "--", "sh", "-c", "cat; ls /tools/usr/sbin"], "typed\n");
    assert_eq!(seen, "typed\nnginx\n");
    until("the other pod has failed", || {
        let pod = cluster.json(&["get", "pod", "failing", "-o", "json"]);
        (pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7).then_some(())
    });
    cluster.kill();
    cluster.up();
    assert_eq!(until("the pod is known", id), before, "the container ran on");
    assert!(!cluster.run_dir().join("containerd.sock").exists(), "no containerd was started");
    cluster.kubectl(&["delete", "pod", "writer", "failing", "--wait=true"]);
    images(&cluster);
    cluster.down();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let left: Vec<&str> = mounts.lines().filter(|line| line.contains(&*cluster.data_dir().to_string_lossy())).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// `ferry image`: what the node has, without kubectl or another program.
fn images(cluster: &Cluster) {
    let run_dir = cluster.run_dir().to_string_lossy().into_owned();
    let image = |arguments: &[&str]| {
        let output = cluster.ferry().args(["image", "--run-dir", &run_dir]).args(arguments).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let listed = || image(&["list"]).1;
    assert!(listed().contains("docker.io/library/busybox:1.36"), "{}", listed());
    assert_eq!(image(&["rm", "nginx:1.27"]), (true, "removed nginx:1.27\n".to_owned()));
    assert!(!listed().contains("nginx:1.27"), "{}", listed());
    assert_eq!(image(&["pull", "nginx:1.27"]), (true, "pulled nginx:1.27\n".to_owned()));
    assert!(listed().contains("nginx:1.27"), "{}", listed());
    for wrong in [&["rm", "no/such"][..], &["import", "/no/such/file"], &["pull", "no/such:1"]] {
        let (done, said) = image(wrong);
        assert!(!done && said.starts_with("ferry: "), "{said}");
    }
}
