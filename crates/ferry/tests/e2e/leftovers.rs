//! What is left of a node on its machine, after it was killed in the middle of its work and after it was refused.

use std::path::Path;
use std::process::Command;

use crate::cluster::{Cluster, end, until};
use crate::fleet::{Bed, refusal, sh};

const PODS: usize = 8;

/// Links, packet rules, control groups, mounts and processes of a machine, each as a line.
fn traces(bed: &Bed, machine: &str) -> Vec<String> {
    let [data, run] = [bed.path(machine, "data"), bed.run_dir(machine)].map(|path| path.display().to_string());
    let inside = format!("nsenter --net=/run/netns/{}", bed.namespace(machine));
    let all = sh(&format!(
        "{inside} ip -o link | cut -d: -f2; {inside} nft list tables; {inside} ip route show proto 213; \
         find /sys/fs/cgroup -type d -path '*/ferrytest-{machine}*'; \
         cut -d' ' -f2 /proc/mounts | grep -e '{data}' -e '{run}'; \
         ps -eo args | grep -e '{data}' -e '{run}' | grep -v -e grep -e docker-registry || true"
    ));
    let mut lines: Vec<String> = all.lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

/// Killed again and again while pods start, and taken down at last: nothing is left of it.
pub fn a_node_that_is_killed_leaves_nothing() {
    if let Some(reason) = Cluster::missing() {
        ferry_testkit::cannot_run(&reason);
    }
    let bed = Bed::new(&["k1"]);
    let before = traces(&bed, "k1");
    // Killed when this many pods run: at the first moment, in the middle, and near the end.
    for (round, running) in [0, 2, 5].into_iter().enumerate() {
        bed.up("k1", &[]);
        let manifest = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: round{round}}}\nspec:\n  replicas: {PODS}\n  selector: {{matchLabels: {{app: r{round}}}}}\n  template:\n    metadata: {{labels: {{app: r{round}}}}}\n    spec:\n      volumes: [{{name: v, emptyDir: {{medium: Memory}}}}]\n      containers: [{{name: web, image: 'nginx:1.25', volumeMounts: [{{name: v, mountPath: /v}}]}}]\n"
        );
        bed.apply(&manifest);
        until("pods start", || {
            let wide = bed.kubectl(&["get", "pods", "-l", &format!("app=r{round}"), "-o", "wide"]);
            let scheduled = wide.lines().filter(|line| line.contains(" k1 ")).count();
            let well = wide.lines().filter(|line| line.contains(" Running ")).count();
            (scheduled > 0 && well >= running).then_some(())
        });
        end(bed.pid("k1"));
    }
    assert!(traces(&bed, "k1").len() > before.len(), "pods run on without the process");
    let mut down = bed.ferry("k1");
    let said = down.arg("down").args(bed.folders("k1")).arg("--purge").output().unwrap();
    let complaints = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && complaints.is_empty(), "{complaints}");
    assert_eq!(traces(&bed, "k1"), before, "{}", String::from_utf8_lossy(&said.stdout));
    assert!(!bed.path("k1", "data").exists() && !bed.run_dir("k1").exists());
}

/// A clock that is a day behind, for the process that is started with it alone.
fn wrong_clock(folder: &Path) -> String {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(
        &source,
        "#define _GNU_SOURCE\n#include <time.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n\
         int clock_gettime(clockid_t id, struct timespec *now) {\n\
         int failed = syscall(SYS_clock_gettime, id, now);\n\
         if (!failed && id == CLOCK_REALTIME) now->tv_sec -= 86400;\n return failed;\n}\n",
    )
    .unwrap();
    sh(&format!("cc -shared -fPIC -o {} {}", library.display(), source.display()));
    library.display().to_string()
}

/// Machines that cannot join: each hears one sentence, and neither they nor the cluster keep anything of it.
pub fn what_cannot_be_is_refused_in_a_sentence() {
    if let Some(reason) = Cluster::missing() {
        ferry_testkit::cannot_run(&reason);
    }
    let bed = Bed::new(&["s1", "n1"]);
    let (flags, before) = (bed.node_flags("n1"), traces(&bed, "n1"));
    let mut overlapping = bed.ferry("n1");
    overlapping.arg("up").args(&flags).args(["--cluster-cidr=10.96.0.0/16", "--service-cluster-ip-range=10.96.4.0/24"]);
    bed.up("s1", &["--pod-network", "wireguard"]);
    let (server, token) = bed.token();
    let requests = bed.kubectl(&["get", "csr", "-o", "name"]);
    let nodes = bed.kubectl(&["get", "nodes", "-o", "name"]);

    let mut taken = bed.ferry("n1");
    let unnamed = flags.iter().filter(|flag| !flag.starts_with("--node-name"));
    taken.args(["join", &server, &token]).args(unnamed).arg("--node-name=s1");
    let mut behind = bed.ferry("n1");
    behind.args(["join", &server, &token]).args(&flags);
    behind.env("LD_PRELOAD", wrong_clock(bed.path("n1", "clock").parent().unwrap()));
    // On the server's own machine, whose kubelet has the port.
    let mut port = bed.ferry("s1");
    port.args(["join", &server, &token]).args(bed.folders("n1")).args(["--node-name=n1", "--node-ip=192.168.79.1"]);
    port.arg("--container-runtime-endpoint=embedded");
    let mut module = bed.inside("n1", "unshare");
    module.args(["--mount", "sh", "-c", "mount -t tmpfs none /dev/net && exec \"$@\"", "sh"]);
    module.arg(env!("CARGO_BIN_EXE_ferry")).args(["join", &server, &token]).args(&flags);
    let mut nobody = bed.ferry("n1");
    nobody.args(["join", "192.168.79.1:1", &token]).args(&flags);
    let mut half = bed.ferry("n1");
    half.args(["join", &server, &token[..token.len() - 7]]).args(&flags);

    let cases: [(&str, Command, &[&str]); 7] = [
        ("overlapping ranges", overlapping, &["overlap"]),
        ("a name that is taken", taken, &["a node called s1 already", "--node-name"]),
        ("a clock that is a day off", behind, &["this machine's clock is ", " behind the server's", "timedatectl"]),
        ("a port in use", port, &["port 10250 is in use", "--kubelet-port"]),
        ("no module for the mode", module, &["neither WireGuard", "/dev/net/tun"]),
        ("nobody there", nobody, &["192.168.79.1:1", "is it an API server"]),
        ("half a token", half, &["not a whole token"]),
    ];
    for (what, mut command, words) in cases {
        let said = refusal(&command.output().expect("it runs"));
        for word in words {
            assert!(said.contains(word), "{what}: {said}");
        }
        assert!(said.trim().lines().count() == 1 && !said.contains("panicked"), "{what} is told in one line: {said}");
        assert!(!bed.path("n1", "data").exists() && !bed.run_dir("n1").exists(), "{what}: folders are left");
        assert_eq!(traces(&bed, "n1"), before, "{what}");
        assert_eq!(bed.kubectl(&["get", "csr", "-o", "name"]), requests, "{what}");
        assert_eq!(bed.kubectl(&["get", "nodes", "-o", "name"]), nodes, "{what}");
    }
    // The same machine joins, and leaves without a trace; what was encrypted with is gone, too.
    let joined = bed.join("n1", &server, &token);
    assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
    assert!(bed.links("n1").contains("ferry0-wg"), "{}", bed.links("n1"));
    let mut leave = bed.ferry("n1");
    let left = leave.arg("leave").args(bed.folders("n1")).output().unwrap();
    assert!(left.status.success(), "{}", String::from_utf8_lossy(&left.stderr));
    assert_eq!(traces(&bed, "n1"), before);
}
