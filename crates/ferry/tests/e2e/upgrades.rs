//! A cluster whose machines get another binary one after the other, servers first as upstream asks, and the old one again. Where
//! `FERRY_OLD_BINARY` names one (`make upgrade-test` builds it), the machines begin with that: versions are mixed as they are in a real upgrade.
//! Without it both are the binary under test, and what is seen is that a restart of every machine in turn costs no request.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cluster::until;
use crate::fleet::Bed;

/// Two replicas on two nodes, and a pod on each that asks for them all the time, by the address of their Service, and writes down how it went.
const WORKLOADS: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {role: worker}
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]
      containers: [{name: web, image: 'nginx:1.25', readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: client}
spec:
  selector: {matchLabels: {app: client}}
  template:
    metadata: {labels: {app: client}}
    spec:
      nodeSelector: {role: worker}
      terminationGracePeriodSeconds: 0
      containers:
      - name: client
        image: nginx:1.25
        command: [sh, -c, 'while :; do if timeout 10 wget -q -O- http://$WEB_SERVICE_HOST/ >/dev/null; then echo well; else echo failed; sleep 1; fi; done']
";

/// The processes of nodes that were started again; servers go to the background by themselves.
struct Machines<'a> {
    bed: &'a Bed,
    nodes: Vec<Child>,
}

impl Machines<'_> {
    /// As `systemctl restart` does after a package was installed: the process is told to end, its pods run on.
    fn change(&mut self, machine: &str, binary: &Path) {
        stop(self.bed.pid(machine));
        self.bed.install(machine, binary);
        if machine.starts_with('s') {
            self.bed.up(machine, &[]);
        } else {
            let log = std::fs::File::create(self.bed.path(machine, "again.log")).unwrap();
            let mut run = self.bed.ferry(machine);
            run.args(["node", "run"]).args(self.bed.node_flags(machine)).stdout(Stdio::null()).stderr(log);
            self.nodes.push(run.spawn().expect("ferry runs"));
        }
    }

    /// What a user would try after each step: nodes report, what was written is there, pods start on every node and are entered.
    fn works(&self, step: usize) {
        let bed = self.bed;
        bed.kubectl(&["create", "configmap", &format!("step-{step}")]);
        for earlier in 0..=step {
            bed.kubectl(&["get", "configmap", &format!("step-{earlier}")]);
        }
        for node in ["n1", "n2"] {
            bed.kubectl(&["wait", "--for=condition=Ready", "--timeout=180s", &format!("node/{node}")]);
            let name = format!("at-{node}-{step}");
            bed.apply(&format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{nodeName: {node}, terminationGracePeriodSeconds: 0, containers: [{{name: c, image: 'nginx:1.25'}}]}}\n"));
            bed.kubectl(&["wait", "--for=condition=Ready", "--timeout=180s", &format!("pod/{name}")]);
            until(&format!("{name} reaches the Service"), || {
                let asked =
                    bed.try_kubectl(&["exec", &name, "--", "timeout", "10", "wget", "-q", "-O-", "http://web/"], "");
                asked.status.success().then_some(())
            });
            bed.kubectl(&["delete", "pod", &name, "--wait=true"]);
        }
    }
}

impl Drop for Machines<'_> {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

fn stop(pid: rustix::process::Pid) {
    let handle = pidfd_open(pid, PidfdFlags::empty()).expect("it runs");
    pidfd_send_signal(&handle, Signal::TERM).expect("a signal");
    poll(&mut [PollFd::new(&handle, PollFlags::IN)], None).expect("its end");
}

pub fn machines_change_their_binary_and_no_request_is_lost() {
    let new = PathBuf::from(env!("CARGO_BIN_EXE_ferry"));
    let old = std::env::var_os("FERRY_OLD_BINARY").map_or_else(|| new.clone(), PathBuf::from);
    let bed = Bed::new(&["s1", "n1", "n2"]);
    for machine in ["s1", "n1", "n2"] {
        bed.install(machine, &old);
    }
    bed.up("s1", &[]);
    for node in ["n1", "n2"] {
        let (server, token) = bed.token();
        let joined = bed.join(node, &server, &token);
        assert!(joined.status.success(), "{}", String::from_utf8_lossy(&joined.stderr));
        bed.kubectl(&["label", "node", node, "role=worker"]);
    }
    bed.apply(WORKLOADS);
    for workload in ["deployment/web", "daemonset/client"] {
        bed.kubectl(&["rollout", "status", workload, "--timeout=180s"]);
    }
    let pods = || {
        bed.kubectl(&[
            "get",
            "pods",
            "-l",
            "app in (web,client)",
            "-o",
            "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}{'\\n'}{end}",
        ])
    };
    let before = pods();
    // Until the Service leads anywhere, it may not answer.
    let counts = || {
        let logs = bed.kubectl(&["logs", "-l", "app=client", "--tail=-1"]);
        (logs.lines().filter(|line| *line == "well").count(), logs.lines().filter(|line| *line == "failed").count())
    };
    until("the Service answers", || {
        let (well, failed) = counts();
        (well > 1)
            .then_some(())
            .or_else(|| (failed > 60).then(|| panic!("{}", bed.kubectl(&["logs", "-l", "app=client"]))))
    });
    let (_, failed_before) = counts();

    let mut machines = Machines { bed: &bed, nodes: Vec::new() };
    // Forth, server first; then back, nodes first, so that no node is ever newer than its server.
    let steps = [("s1", &new), ("n1", &new), ("n2", &new), ("n1", &old), ("n2", &old), ("s1", &old), ("s1", &new)];
    machines.works(0);
    for (number, (machine, binary)) in steps.into_iter().enumerate() {
        machines.change(machine, binary);
        machines.works(number + 1);
    }
    let (well, failed) = counts();
    println!("    {well} requests went well, {} failed", failed - failed_before);
    assert_eq!(failed, failed_before, "of {well} requests");
    assert_eq!(pods(), before, "the pods are the same, and none of them was restarted");
}
