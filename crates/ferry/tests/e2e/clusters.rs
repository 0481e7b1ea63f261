//! `ferry cluster`: several nodes on this machine, each in namespaces of its own, with real containers.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cluster::{http_get, until};
use crate::cluster_bed::{Bed, is, sh};

/// What clusters of this command have on the host: links, packet rules, control groups, mounts, processes.
fn traces() -> Vec<String> {
    let all = sh(
        "(ip -o link | cut -d: -f2; nft list tables; ls -d /sys/fs/cgroup/*/ferry-c* /sys/fs/cgroup/ferry-c*; \
                  cut -d' ' -f2 /proc/mounts; ps -eo args) 2>/dev/null | grep -E 'ferry-c[0-9]|fc[0-9]+-|ferry-clusters-' \
                  | grep -v grep || true",
    );
    let mut lines: Vec<String> = all.lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

/// Pods on different nodes reach each other, the host reaches Services, and nothing is left at the end.
pub fn nodes_work_together_and_leave_nothing() {
    let before = traces();
    let bed = Bed::new("a");
    let several = bed.refused(&["cluster", "create", "x", "--servers", "9"]);
    assert!(several.contains("more than the 7"), "{several}");
    let config = bed.folder.path().join("cluster.yaml");
    std::fs::write(
        &config,
        "apiVersion: ferry.dev/v1alpha1\nkind: Cluster\nservers: [{}]\nnodes:\n- {labels: {disk: ssd}, portMappings: [{hostPort: 18089, port: 30089}]}\n- {taints: ['only=db:NoSchedule']}\n- {}\n",
    )
    .unwrap();
    bed.create(&["--config", config.to_str().unwrap()]);
    let again = bed.refused(&["cluster", "create", &bed.name]);
    assert!(again.contains("already"), "{again}");
    let merged = std::fs::read_to_string(bed.kubeconfig()).unwrap();
    assert!(merged.contains("https://192.0.2.1") && merged.contains("colors"), "{merged}");
    let list = bed.ferry(&["node", "list"]);
    assert_eq!(list.lines().filter(|line| line.contains(" Ready ")).count(), 4, "{list}");
    let node = bed.json(&["get", "node", &bed.node(0)]);
    assert_eq!(node["metadata"]["labels"]["disk"], "ssd");
    assert_eq!(bed.json(&["get", "node", &bed.node(1)])["spec"]["taints"][0]["key"], "only");

    let names = ["p0", "p1", "p2"];
    for (number, name) in names.iter().enumerate() {
        bed.run_pod(name, &bed.node(number));
        bed.kubectl(&["expose", "pod", name, "--port=80"]);
    }
    let addresses = names.map(|name| bed.pod_address(name));
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        for url in [
            format!("http://{}/", addresses[to]),
            format!("http://{}/", names[to]),
            format!("http://{}.default.svc.cluster.local/", names[to]),
        ] {
            until(&format!("{} reaches {url}", names[from]), || {
                (bed.ask(names[from], &url)? == names[to]).then_some(())
            });
        }
        assert!(bed.kubectl(&["logs", names[from]]).contains("GET /"), "the logs of every node are read");
        bed.forwards(names[from]);
    }
    // From the host: a node port at every node, a mapped port, and a load balancer's address.
    let (range, number) = bed.range();
    bed.kubectl(&[
        "patch",
        "service",
        "p2",
        "-p",
        r#"{"spec":{"type":"LoadBalancer","ports":[{"port":80,"nodePort":30089}]}}"#,
    ]);
    for address in ["2", "3", "4", "5"] {
        until("the node port answers", || (http_get(&format!("{range}.{address}"), 30089)? == "p2").then_some(()));
    }
    until("the mapped port answers", || (http_get("127.0.0.1", 18089)? == "p2").then_some(()));
    let balanced = until("the Service has an address", || {
        let service = bed.json(&["get", "service", "p2"]);
        service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned)
    });
    until("the load balancer answers", || (http_get(&balanced, 80)? == "p2").then_some(()));

    // An archive reaches every node, and a pod runs from it though no registry has it.
    let archive = saved_image(bed.folder.path());
    let loaded = bed.ferry(&["cluster", "load", &bed.name, archive.to_str().unwrap()]);
    assert_eq!(loaded.lines().filter(|line| line.contains("docker.io/library/saved:1")).count(), 4, "{loaded}");
    assert!(bed.refused(&["cluster", "load", &bed.name, "./nothing.tar"]).contains("no file"));

    // Killed, Ferry comes back in its node and finds its pods.
    let old = bed.ferry_pid(&bed.node(0)).expect("Ferry runs");
    rustix::process::kill_process(old, rustix::process::Signal::KILL).unwrap();
    until("Ferry runs again", || bed.ferry_pid(&bed.node(0)).filter(|new| *new != old));
    until("exec works again", || (bed.ask("p0", "http://p1/")? == "p1").then_some(()));
    assert_eq!(bed.pod_address("p0"), addresses[0], "it is the same pod");

    // A node with another address is the same node.
    let moved = format!("{range}.99");
    bed.inside(
        &bed.node(1),
        &format!("ip addr del {range}.4/24 dev eth0 && ip addr add {moved}/24 dev eth0 && ip route replace default via {range}.1"),
    );
    rustix::process::kill_process(bed.ferry_pid(&bed.node(1)).unwrap(), rustix::process::Signal::KILL).unwrap();
    until("the Node tells its new address", || bed.ferry(&["node", "list"]).contains(&moved).then_some(()));
    until("its pods are reached", || (bed.ask("p0", "http://p1/")? == "p1").then_some(()));
    until("and reach others", || (bed.ask("p1", "http://p2/")? == "p2").then_some(()));

    // A stopped cluster starts again with what it had.
    bed.ferry(&["cluster", "stop", &bed.name]);
    assert!(bed.ferry(&["cluster", "list"]).contains("stopped"));
    print!("{}", bed.ferry(&["cluster", "start", &bed.name]));
    until("its pods run again", || (bed.ask("p0", "http://p1/")? == "p1").then_some(()));

    // Two clusters beside each other.
    let other = Bed::new("b");
    other.create(&[]);
    assert_ne!(other.range().1, number);
    assert_eq!(other.json(&["get", "nodes"])["items"].as_array().unwrap().len(), 1);
    other.ferry(&["cluster", "delete", &other.name]);
    bed.kubectl(&["get", "nodes"]);

    bed.ferry(&["cluster", "delete", &bed.name]);
    let after = std::fs::read_to_string(bed.kubeconfig()).unwrap();
    assert!(after.contains("https://192.0.2.1") && !after.contains(&bed.name), "{after}");
    assert_eq!(traces(), before);
    assert_eq!(std::fs::read_dir(bed.home()).unwrap().count(), 0, "no file is left");
}

/// An archive as `docker save` writes it: one layer with one file.
fn saved_image(folder: &Path) -> PathBuf {
    let (work, archive) = (folder.join("saved"), folder.join("saved.tar"));
    sh(&format!(
        "mkdir -p {w}/root && cd {w} && echo hello > root/file && tar -C root -cf layer.tar file \
         && printf '{{\"config\":{{}},\"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:%s\"]}}}}' $(sha256sum layer.tar | cut -d' ' -f1) > config.json \
         && printf '[{{\"Config\":\"config.json\",\"RepoTags\":[\"saved:1\"],\"Layers\":[\"layer.tar\"]}}]' > manifest.json \
         && tar -cf {a} config.json layer.tar manifest.json",
        w = work.display(),
        a = archive.display()
    ));
    archive
}

/// A Deployment and a StatefulSet whose pods leave a lost node soon, away from the server.
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
      terminationGracePeriodSeconds: 1
      nodeSelector: {role: worker}
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}]
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 3}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 3}
      containers: [{name: web, image: 'nginx:1.25'}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {role: worker}
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 3}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 3}
      containers: [{name: db, image: 'nginx:1.25'}]
";

/// A node that is cut off loses its pods as upstream's rules say, and comes back; drained and removed, it stays away.
pub fn a_lost_node_is_replaced_and_returns() {
    let bed = Bed::new("l");
    let config = bed.folder.path().join("cluster.yaml");
    let worker = "- {labels: {role: worker}}\n";
    let text = format!("apiVersion: ferry.dev/v1alpha1\nkind: Cluster\nnodes:\n{}", worker.repeat(3));
    std::fs::write(&config, text).unwrap();
    bed.create(&["--config", config.to_str().unwrap()]);
    bed.apply(WORKLOADS);
    bed.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    bed.kubectl(&["rollout", "status", "statefulset/db", "--timeout=120s"]);
    let db = bed.json(&["get", "pod", "db-0"]);
    let lost = db["spec"]["nodeName"].as_str().unwrap().to_owned();
    let index: usize = 1 + lost.rsplit('-').next().unwrap().parse::<usize>().unwrap();
    let link = format!("fc{}-{index}", bed.range().1);

    sh(&format!("ip link set {link} down"));
    until("the node counts as lost", || is(&bed.json(&["get", "node", &lost]), "Ready", "Unknown").then_some(()));
    let said = bed.why(&format!("node/{lost}"));
    assert!(said.contains("heartbeat") && said.contains("cut off"), "{said}");
    until("it has the taints of a lost node", || {
        let node = bed.json(&["get", "node", &lost]);
        let taints = node["spec"]["taints"].as_array()?;
        let has = |effect: &str| {
            taints.iter().any(|taint| taint["key"] == "node.kubernetes.io/unreachable" && taint["effect"] == effect)
        };
        (has("NoSchedule") && has("NoExecute")).then_some(())
    });
    until("the Deployment has two pods elsewhere", || {
        let pods = bed.json(&["get", "pods", "-l", "app=web"]);
        let ready = pods["items"].as_array()?.iter().filter(|pod| {
            is(pod, "Ready", "True")
                && pod["spec"]["nodeName"] != lost.as_str()
                && pod["metadata"]["deletionTimestamp"].is_null()
        });
        (ready.count() == 2).then_some(())
    });
    // The StatefulSet's pod may still run there: it is told to go, and none takes its place.
    let going = until("db-0 is told to go", || {
        let pod = bed.json(&["get", "pod", "db-0"]);
        (!pod["metadata"]["deletionTimestamp"].is_null()).then_some(pod)
    });
    assert_eq!(going["metadata"]["uid"], db["metadata"]["uid"], "it is not doubled");
    // The administrator says that the machine is off: now it is replaced.
    bed.kubectl(&["taint", "node", &lost, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"]);
    until("db-0 runs elsewhere", || {
        let pod: Value =
            serde_json::from_slice(&bed.try_kubectl(&["get", "pod", "db-0", "-o", "json"], "").stdout).ok()?;
        (pod["metadata"]["uid"] != db["metadata"]["uid"] && is(&pod, "Ready", "True")).then_some(())
    });

    bed.kubectl(&["taint", "node", &lost, "node.kubernetes.io/out-of-service-"]);
    sh(&format!("ip link set {link} up"));
    until("the node is back", || is(&bed.json(&["get", "node", &lost]), "Ready", "True").then_some(()));
    until("its taints are gone", || bed.json(&["get", "node", &lost])["spec"]["taints"].is_null().then_some(()));
    until("it ended the pods it lost", || {
        let running = bed.json(&["get", "pods", "--field-selector", &format!("spec.nodeName={lost}")]);
        running["items"].as_array()?.is_empty().then_some(())
    });
    bed.run_pod("again", &lost);
    bed.pod_address("again");
    assert_eq!(bed.ask("again", "http://127.0.0.1/").as_deref(), Some("again"), "exec works there");

    // Nothing loses anything without being asked for, and budgets are kept.
    let refused = bed.refused(&["node", "drain", &lost]);
    assert!(refused.contains("default/again") && refused.contains("--force"), "{refused}");
    let server = format!("{}-server-0", bed.name);
    assert!(bed.refused(&["node", "remove", &server]).contains("API server"));
    assert!(bed.refused(&["node", "remove", "nobody"]).contains("no node called nobody"));
    bed.apply("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: again}\nspec: {minAvailable: 1, selector: {matchLabels: {app: again}}}\n");
    until("the budget is known", || {
        let budget = bed.json(&["get", "pdb", "again"]);
        (budget["status"]["expectedPods"] == 1 && budget["status"]["disruptionsAllowed"] == 0).then_some(())
    });
    let kept = bed.refused(&["node", "drain", &lost, "--force", "--timeout=2s"]);
    assert!(kept.contains("default/again") && kept.contains("--timeout"), "{kept}");
    bed.kubectl(&["get", "pod", "again"]);
    bed.kubectl(&["delete", "pdb", "again"]);
    let keys = bed.home().join(&bed.name).join(&lost).join("node-pki/kubelet-client");
    // What the API server answers to the node's own certificate.
    let answer = || {
        let url = format!("https://{}.2:6443/api/v1/nodes/{lost}", bed.range().0);
        let keys = keys.display();
        sh(&format!("curl -sk -o /dev/null -w '%{{http_code}}' --cert {keys}.crt --key {keys}.key {url}"))
    };
    assert_eq!(answer(), "200");
    print!("{}", bed.ferry(&["node", "remove", &lost, "--force"]));
    // Its kubelet still runs, and is refused: the Node cannot come back.
    assert_eq!(answer(), "401");
    assert!(!bed.try_kubectl(&["get", "node", &lost], "").status.success());
    assert!(bed.why(&format!("node/{lost}")).contains("was removed from the cluster"));
}

/// Several servers on this machine: one is killed, and comes back; one is lost, and the cluster goes on without it.
pub fn a_cluster_of_several_servers_outlives_one() {
    let before = traces();
    let bed = Bed::new("q");
    bed.create(&["--servers", "3", "--nodes", "1"]);
    let list = bed.ferry(&["node", "list"]);
    assert_eq!(list.lines().filter(|line| line.contains(" Ready ")).count(), 4, "{list}");
    let first = bed.home().join(&bed.name).join(format!("{}-server-0", bed.name));
    let servers = || sh(&format!("{} server list --data-dir {}", env!("CARGO_BIN_EXE_ferry"), first.display()));
    let healthy = || servers().lines().filter(|line| line.ends_with("healthy") && !line.contains("learner")).count();
    until("three servers vote", || (healthy() == 3).then_some(()));

    // The whole machine of a server, at once: nodes and pods go on, writes too.
    let lost = format!("{}-server-2", bed.name);
    sh(&format!("kill -9 {}", bed.pid(&lost)));
    bed.kubectl(&["create", "configmap", "while-one-is-away"]);
    bed.run_pod("p0", &bed.node(0));
    bed.pod_address("p0");
    until("the kubernetes Service leads to two servers", || {
        let slice = bed.json(&["get", "endpointslice", "kubernetes"]);
        (slice["endpoints"].as_array()?.len() == 2).then_some(())
    });
    assert!(bed.ferry(&["cluster", "list"]).contains("3 of 4 nodes run"));
    // Started again it is what it was.
    bed.ferry(&["cluster", "start", &bed.name]);
    until("three servers vote", || (healthy() == 3).then_some(()));

    // All of them stop, and come back together.
    bed.ferry(&["cluster", "stop", &bed.name]);
    bed.ferry(&["cluster", "start", &bed.name]);
    until("three servers vote", || (healthy() == 3).then_some(()));
    bed.kubectl(&["get", "configmap", "while-one-is-away"]);
    bed.ferry(&["cluster", "delete", &bed.name]);
    assert_eq!(traces(), before);
}
