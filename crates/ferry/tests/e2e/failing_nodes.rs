//! Nodes that fail in every way at once: cut off, frozen, killed. One wait until they count as lost serves all of them.

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::cluster::{Traffic, http_get, until};
use crate::cluster_bed::{Bed, is, sh};

/// A Deployment and a StatefulSet whose pods leave a lost node soon, away from the server.
const WORKLOADS: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 5
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
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, nodePort: 30090}]}
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
/// With the server: fewer than 55 % of them fail, so that the fault is not taken for the cluster's own.
const WORKERS: usize = 5;

/// Which worker fails how. The StatefulSet's pod is on the one that is killed.
struct Lost {
    killed: String,
    cut: String,
    frozen: String,
}

impl Lost {
    fn all(&self) -> [&str; 3] {
        [&self.killed, &self.cut, &self.frozen]
    }
}

fn machine(node: &str) -> usize {
    1 + node.rsplit('-').next().unwrap().parse::<usize>().unwrap()
}

fn taints(bed: &Bed, node: &str) -> Vec<(String, String)> {
    let node = bed.json(&["get", "node", node]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.map(|taint| (text(&taint["key"]), text(&taint["effect"]))).collect()
}

/// The pod as it is now; none while there is none of this name.
fn pod(bed: &Bed, name: &str) -> Option<Value> {
    serde_json::from_slice(&bed.try_kubectl(&["get", "pod", name, "-o", "json"], "").stdout).ok()
}

/// What shows that the very same container still runs.
fn container(bed: &Bed, name: &str) -> (Value, Value) {
    let pod = bed.json(&["get", "pod", name]);
    let status = &pod["status"]["containerStatuses"][0];
    (pod["metadata"]["uid"].clone(), status["containerID"].clone())
}

pub fn lost_nodes_are_replaced_and_return() {
    let bed = Bed::new("l");
    let config = bed.folder.path().join("cluster.yaml");
    let worker = "- {labels: {role: worker}}\n";
    let text = format!("apiVersion: ferry.dev/v1alpha1\nkind: Cluster\nnodes:\n{}", worker.repeat(WORKERS));
    std::fs::write(&config, text).unwrap();
    bed.create(&["--config", config.to_str().unwrap()]);
    bed.apply(WORKLOADS);
    bed.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    bed.kubectl(&["rollout", "status", "statefulset/db", "--timeout=120s"]);

    nodes_go_on_without_a_server(&bed);
    processes_are_replaced_one_after_the_other(&bed);
    let lost = nodes_are_lost(&bed);
    nodes_come_back(&bed, &lost);
    a_node_is_drained_and_removed(&bed, &lost.cut);
}

/// While no server answers, a node's process that starts again finds its pods; its rules and routes stay meanwhile.
fn nodes_go_on_without_a_server(bed: &Bed) {
    let (near, far) = (bed.node(0), bed.node(1));
    bed.run_pod("kept", &far);
    let address = bed.pod_address("kept");
    let before = container(bed, "kept");
    let service = bed.json(&["get", "service", "web"])["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let ask = |url: &str| {
        let line = format!("curl -s -o /dev/null -m 5 -w %{{http_code}} http://{url}/ || true");
        (bed.inside(&near, &line).trim() == "200").then_some(())
    };
    until("a node reaches a Service", || ask(&service));
    sh(&format!("ip link set {} down", bed.link(0)));
    for node in [&near, &far] {
        bed.restart_ferry(node, Signal::KILL);
    }
    for url in [&address, &service] {
        until(&format!("{url} answers while nobody knows of it"), || ask(url));
    }
    sh(&format!("ip link set {} up", bed.link(0)));
    for node in [&near, &far] {
        until(&format!("{node} is heard again"), || {
            let list = bed.ferry(&["node", "list"]);
            list.lines().any(|line| line.starts_with(node.as_str()) && line.contains(" Ready ")).then_some(())
        });
    }
    until("exec works again", || (bed.ask("kept", "http://127.0.0.1/")? == "kept").then_some(()));
    assert_eq!(container(bed, "kept"), before, "the same container ran all the time");
    bed.kubectl(&["delete", "pod", "kept"]);
}

/// A rolling restart of every process, the server's first, as an upgrade does it: no request is lost.
fn processes_are_replaced_one_after_the_other(bed: &Bed) {
    bed.kubectl(&["scale", "deployment/web", "--replicas=2"]);
    until("two are left", || {
        let pods = bed.json(&["get", "pods", "-l", "app=web"]);
        (pods["items"].as_array()?.len() == 2).then_some(())
    });
    let entry = format!("{}.{}", bed.range().0, 2 + WORKERS);
    until("the node port answers", || http_get(&entry, 30090));
    let traffic = Traffic::start(entry, 30090);
    let server = format!("{}-server-0", bed.name);
    let nodes = std::iter::once(server).chain((0..WORKERS - 1).map(|number| bed.node(number)));
    for (number, node) in nodes.enumerate() {
        bed.restart_ferry(&node, Signal::TERM);
        until("the server answers", || bed.try_kubectl(&["get", "nodes"], "").status.success().then_some(()));
        // A pod starts there: the new process does the work.
        let name = format!("new-{number}");
        bed.run_pod(&name, &node);
        until(&format!("{node} works again"), || (bed.ask(&name, "http://127.0.0.1/")? == name).then_some(()));
        bed.kubectl(&["delete", "pod", &name]);
    }
    let (made, failed) = traffic.finish();
    assert_eq!(failed, 0, "of {made} requests during the rolling restart");
    assert!(made > 0);
    bed.kubectl(&["scale", "deployment/web", &format!("--replicas={WORKERS}")]);
    bed.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
}

/// Cut off, frozen and killed at once: all are lost in the same way, and only what may be replaced is.
fn nodes_are_lost(bed: &Bed) -> Lost {
    let db = bed.json(&["get", "pod", "db-0"]);
    let killed = db["spec"]["nodeName"].as_str().unwrap().to_owned();
    let mut others = (0..WORKERS).map(|number| bed.node(number)).filter(|node| *node != killed);
    let lost = Lost { cut: others.next().unwrap(), frozen: others.next().unwrap(), killed };
    for (name, node) in [("at-killed", &lost.killed), ("at-cut", &lost.cut), ("at-frozen", &lost.frozen)] {
        // They tolerate everything, for as long as it lasts.
        bed.run_pod(name, node);
        bed.pod_address(name);
    }
    let before = ["at-cut", "at-frozen"].map(|name| container(bed, name));
    sh(&format!("ip link set {} down", bed.link(machine(&lost.cut))));
    let frozen = bed.ferry_pid(&lost.frozen).unwrap();
    kill_process(frozen, Signal::STOP).unwrap();
    sh(&format!("kill -9 {}", bed.pid(&lost.killed)));

    for node in lost.all() {
        until(&format!("{node} counts as lost"), || {
            is(&bed.json(&["get", "node", node]), "Ready", "Unknown").then_some(())
        });
        until(&format!("{node} has the taints of a lost node"), || {
            let taints = taints(bed, node);
            let has = |effect: &str| taints.contains(&("node.kubernetes.io/unreachable".to_owned(), effect.to_owned()));
            (has("NoSchedule") && has("NoExecute")).then_some(())
        });
        let said = bed.why(&format!("node/{node}"));
        assert!(said.contains("heartbeat"), "{said}");
    }
    until("the Deployment has all of its pods elsewhere", || {
        let pods = bed.json(&["get", "pods", "-l", "app=web"]);
        let ready = pods["items"].as_array()?.iter().filter(|pod| {
            is(pod, "Ready", "True")
                && !lost.all().contains(&pod["spec"]["nodeName"].as_str().unwrap_or_default())
                && pod["metadata"]["deletionTimestamp"].is_null()
        });
        (ready.count() == WORKERS).then_some(())
    });
    // The StatefulSet's pod may still run there: it is told to go, and none takes its place.
    let going =
        until("db-0 is told to go", || pod(bed, "db-0").filter(|pod| !pod["metadata"]["deletionTimestamp"].is_null()));
    assert_eq!(going["metadata"]["uid"], db["metadata"]["uid"], "it is not doubled");
    // The administrator says that the machine is off: now it is replaced.
    bed.kubectl(&["taint", "node", &lost.killed, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"]);
    until("db-0 runs elsewhere", || {
        let pod = pod(bed, "db-0")?;
        (pod["metadata"]["uid"] != db["metadata"]["uid"] && is(&pod, "Ready", "True")).then_some(())
    });
    bed.kubectl(&["taint", "node", &lost.killed, "node.kubernetes.io/out-of-service-"]);

    sh(&format!("ip link set {} up", bed.link(machine(&lost.cut))));
    kill_process(frozen, Signal::CONT).unwrap();
    bed.ferry(&["cluster", "start", &bed.name]);
    for (name, before) in ["at-cut", "at-frozen"].into_iter().zip(before) {
        until(&format!("exec into {name} works"), || (bed.ask(name, "http://127.0.0.1/")? == name).then_some(()));
        assert_eq!(container(bed, name), before, "{name}: what may stay was not touched");
    }
    lost
}

fn nodes_come_back(bed: &Bed, lost: &Lost) {
    for node in lost.all() {
        until(&format!("{node} is back"), || is(&bed.json(&["get", "node", node]), "Ready", "True").then_some(()));
        until(&format!("the taints of {node} are gone"), || taints(bed, node).is_empty().then_some(()));
        until(&format!("{node} ended the pods that were taken from it"), || {
            let running = bed.json(&["get", "pods", "--field-selector", &format!("spec.nodeName={node}")]);
            let ended = running["items"].as_array()?.iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_null());
            ended.then_some(())
        });
    }
    // A pod that was to stay is the same, with a new container where everything was killed.
    until("at-killed runs again", || (bed.ask("at-killed", "http://127.0.0.1/")? == "at-killed").then_some(()));
    let databases = bed.json(&["get", "pods", "-l", "app=db"]);
    assert_eq!(databases["items"].as_array().unwrap().len(), 1, "there is one database");
    for name in ["at-killed", "at-cut", "at-frozen"] {
        until("its logs tell of probes", || bed.kubectl(&["logs", name]).contains("GET /").then_some(()));
        bed.forwards(name);
        bed.kubectl(&["delete", "pod", name]);
    }
}

fn a_node_is_drained_and_removed(bed: &Bed, node: &str) {
    bed.run_pod("again", node);
    bed.pod_address("again");
    // Nothing loses anything without being asked for, and budgets are kept.
    let refused = bed.refused(&["node", "drain", node]);
    assert!(refused.contains("default/again") && refused.contains("--force"), "{refused}");
    let server = format!("{}-server-0", bed.name);
    assert!(bed.refused(&["node", "remove", &server]).contains("API server"));
    assert!(bed.refused(&["node", "remove", "nobody"]).contains("no node called nobody"));
    bed.apply("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: again}\nspec: {minAvailable: 1, selector: {matchLabels: {app: again}}}\n");
    until("the budget is known", || {
        let budget = bed.json(&["get", "pdb", "again"]);
        (budget["status"]["expectedPods"] == 1 && budget["status"]["disruptionsAllowed"] == 0).then_some(())
    });
    let kept = bed.refused(&["node", "drain", node, "--force", "--timeout=2s"]);
    assert!(kept.contains("default/again") && kept.contains("--timeout"), "{kept}");
    bed.kubectl(&["get", "pod", "again"]);
    bed.kubectl(&["delete", "pdb", "again"]);
    let keys = bed.home().join(&bed.name).join(node).join("node-pki/kubelet-client");
    // What the API server answers to the node's own certificate.
    let answer = || {
        let url = format!("https://{}.2:6443/api/v1/nodes/{node}", bed.range().0);
        let keys = keys.display();
        sh(&format!("curl -sk -o /dev/null -w '%{{http_code}}' --cert {keys}.crt --key {keys}.key {url}"))
    };
    assert_eq!(answer(), "200");
    print!("{}", bed.ferry(&["node", "remove", node, "--force"]));
    // Its kubelet still runs, and is refused: the Node cannot come back.
    assert_eq!(answer(), "401");
    assert!(!bed.try_kubectl(&["get", "node", node], "").status.success());
    assert!(bed.why(&format!("node/{node}")).contains("was removed from the cluster"));
}

/// A cluster whose nodes encrypt what they send each other, one of which moves to another address.
pub fn encrypted_nodes_work_together() {
    let bed = Bed::new("w");
    let config = bed.folder.path().join("cluster.yaml");
    let text = "apiVersion: ferry.dev/v1alpha1\nkind: Cluster\nnodes: [{}]\nnetworking: {podNetwork: wireguard}\n";
    std::fs::write(&config, text).unwrap();
    bed.create(&["--config", config.to_str().unwrap()]);
    let server = format!("{}-server-0", bed.name);
    bed.run_pod("near", &server);
    bed.run_pod("far", &bed.node(0));
    bed.kubectl(&["expose", "pod", "far", "--port=80"]);
    let [near, far] = ["near", "far"].map(|name| bed.pod_address(name));
    let works = |when: &str| {
        until(&format!("{when}: near reaches far"), || (bed.ask("near", "http://far/")? == "far").then_some(()));
        until(&format!("{when}: far reaches near"), || {
            (bed.ask("far", &format!("http://{near}/"))? == "near").then_some(())
        });
        // Packets that have to be cut in pieces, from a node itself.
        let large = format!("ping -q -c 1 -W 2 -s 4000 {far} >/dev/null && echo passed || true");
        until(&format!("{when}: large packets pass"), || bed.inside(&server, &large).contains("passed").then_some(()));
    };
    works("at first");
    let route = bed.inside(&server, &format!("ip route get {far}"));
    assert!(route.contains("ferry0-wg"), "{route}");
    let key = |node: &str| {
        let node = bed.json(&["get", "node", node]);
        node["metadata"]["annotations"]["ferry.dev/wireguard-public-key"].as_str().map(str::to_owned)
    };
    let before = key(&bed.node(0)).expect("a key");
    let file = bed.home().join(&bed.name).join(bed.node(0)).join("wireguard.key");
    assert_eq!(sh(&format!("stat -c %a {}", file.display())).trim(), "600");
    // Another address, and another process: the key says who it is.
    let range = bed.range().0;
    bed.inside(
        &bed.node(0),
        &format!("ip addr del {range}.3/24 dev eth0 && ip addr add {range}.99/24 dev eth0 && ip route replace default via {range}.1"),
    );
    bed.restart_ferry(&bed.node(0), Signal::KILL);
    until("the Node tells its new address", || {
        bed.ferry(&["node", "list"]).contains(&format!("{range}.99")).then_some(())
    });
    works("after it moved");
    assert_eq!(key(&bed.node(0)), Some(before), "its key is the same");

    // The server moves, too. Nobody can tell the node, so that an administrator has to; its pods go on.
    let same = container(&bed, "far");
    let token = bed.ferry(&["token", "create"]);
    let token = token.split_whitespace().nth(3).expect("a token").to_owned();
    bed.inside(
        &server,
        &format!("ip addr del {range}.2/24 dev eth0 && ip addr add {range}.98/24 dev eth0 && ip route replace default via {range}.1"),
    );
    bed.restart_ferry(&server, Signal::KILL);
    let moved = format!("--server=https://{range}.98:6443");
    until("the server answers at its new address", || {
        bed.try_kubectl(&[&moved, "get", "nodes"], "").status.success().then_some(())
    });
    let data_dir = bed.home().join(&bed.name).join(bed.node(0));
    let told = sh(&format!(
        "nsenter --all --target {} {} join {range}.98:6443 {token} --data-dir {} --run-dir /run/ferry",
        bed.pid(&bed.node(0)),
        env!("CARGO_BIN_EXE_ferry"),
        data_dir.display()
    ));
    assert!(told.contains("already") && told.contains(&format!("{range}.98:6443")), "{told}");
    until("the node's pods are reached from the server", || {
        let output =
            bed.try_kubectl(&[&moved, "exec", "far", "--", "wget", "-q", "-O-", &format!("http://{near}/")], "");
        (String::from_utf8_lossy(&output.stdout).trim() == "near").then_some(())
    });
    let pod: Value = serde_json::from_str(&bed.kubectl(&[&moved, "get", "pod", "far", "-o", "json"])).unwrap();
    assert_eq!(pod["status"]["containerStatuses"][0]["containerID"], same.1, "it is the same container");
}
