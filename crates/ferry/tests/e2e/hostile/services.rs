//! Services that reach for addresses and ports of others: the cluster's DNS, the node itself, older Services.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::limited::{JSON, MERGE, call};
use crate::alone::{Apiserver, runtime};
use crate::cluster::{Cluster, until};
use crate::{Alone, Scenario};

pub const SCENARIOS: &[Scenario] =
    &[("hostile::services::a_service_takes_nothing_of_others", a_service_takes_nothing_of_others)];

pub const ALONE: &[Alone] =
    &[("hostile::services::external_addresses_can_be_denied", external_addresses_can_be_denied)];

const NAMESPACE: &str = "a-thief";

/// Something that a machine runs beside Kubernetes; whoever connects is greeted.
fn serve_on_the_node() -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"the node");
        }
    });
    port
}

fn greeting(address: &str, port: u16) -> Option<String> {
    let target: SocketAddr = format!("{address}:{port}").parse().ok()?;
    let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(5)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn balanced(name: &str, port: u16) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec: {{type: LoadBalancer, selector: {{app: thief}}, ports: [{{port: {port}, targetPort: 8080}}]}}
"
    )
}

fn ingress(cluster: &Cluster, name: &str) -> Vec<Value> {
    let service = cluster.json(&["get", "service", "-n", NAMESPACE, name]);
    service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default()
}

/// Waits for the Event that tells the owner why.
fn told(cluster: &Cluster, name: &str, reason: &str, part: &str) {
    until(&format!("{name} is told: {reason} {part}"), || {
        let events = cluster.items(&["get", "events", "-n", NAMESPACE]);
        let of_it = |event: &&Value| event["involvedObject"]["name"] == name && event["reason"] == reason;
        let mut messages = events.iter().filter(of_it).filter_map(|event| event["message"].as_str());
        messages.any(|message| message.contains(part)).then_some(())
    });
}

fn a_service_takes_nothing_of_others(cluster: &mut Cluster) {
    // The name comes before kube-system: the alphabet decided once.
    cluster.apply(&format!(
        "
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: thief, namespace: {NAMESPACE}, labels: {{app: thief}}}}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers: [{{name: main, image: 'busybox:1.36', command: [sh, -c, 'while true; do echo stolen | nc -l -p 8080; done']}}]
"
    ));
    until("the pod is ready", || {
        let pod = cluster.json(&["get", "pod", "-n", NAMESPACE, "thief"]);
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True").then_some(())
    });
    let dns = cluster.kubectl(&["get", "service", "-n", "kube-system", "kube-dns", "-o", "jsonpath={.spec.clusterIP}"]);
    cluster.apply(&format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: names, namespace: {NAMESPACE}}}
spec:
  selector: {{app: thief}}
  externalIPs: ['{dns}']
  ports: [{{name: d, port: 53, protocol: UDP, targetPort: 8080}}, {{name: t, port: 53, protocol: TCP, targetPort: 8080}}]
"
    ));
    told(cluster, "names", "PortNotServed", "is the ClusterIP of Service kube-system/kube-dns");
    let lookup = ["exec", "-n", NAMESPACE, "thief", "--", "nslookup", "kubernetes.default.svc.cluster.local", &dns];
    let answer = cluster.kubectl(&lookup);
    assert!(answer.contains("10.208.0.1"), "the cluster's DNS answers: {answer}");

    let node = cluster.json(&["get", "node", "e2e"]);
    let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
    let address = addresses.iter().find(|one| one["type"] == "InternalIP").and_then(|one| one["address"].as_str());
    let address = address.expect("an address of the node");
    let kubelet = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().unwrap();
    // The kubelet's port, one that was listened on before the node came, and one that came later.
    let server: u16 = cluster.server().rsplit(':').next().unwrap().parse().unwrap();
    let later = serve_on_the_node();
    for (name, port) in [("kubelet", u16::try_from(kubelet).unwrap()), ("server", server), ("later", later)] {
        cluster.apply(&balanced(name, port));
        told(cluster, name, "PortNotAvailable", &format!("tcp/{port} of node e2e is in use by the node itself"));
        until("it stays pending", || ingress(cluster, name).is_empty().then_some(()));
    }
    assert_eq!(greeting(address, later).as_deref(), Some("the node"), "the node's own port is its own");

    // Of two Services the older has the port, and the younger gets it when it is free.
    let port = crate::cluster::free_port();
    cluster.apply(&balanced("z-older", port));
    until("the older has an address", || (!ingress(cluster, "z-older").is_empty()).then_some(()));
    until("it answers", || (greeting(address, port)?.trim() == "stolen").then_some(()));
    // A second later by the clock of the API, which counts whole ones.
    crate::cluster::pause(Duration::from_millis(1100));
    cluster.apply(&balanced("a-younger", port));
    told(cluster, "a-younger", "PortNotAvailable", &format!("is in use by Service {NAMESPACE}/z-older"));
    assert!(ingress(cluster, "a-younger").is_empty() && !ingress(cluster, "z-older").is_empty());
    cluster.kubectl(&["delete", "service", "-n", NAMESPACE, "z-older", "--wait=true"]);
    until("the younger has it now", || (!ingress(cluster, "a-younger").is_empty()).then_some(()));
    cluster.kubectl(&["delete", "namespace", NAMESPACE, "--wait=true"]);
}

fn external_addresses_can_be_denied() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &["--enable-admission-plugins=DenyServiceExternalIPs"]);
    runtime().block_on(async {
        let admin = server.client().await;
        let path = "/api/v1/namespaces/default/services";
        let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
        assert_eq!(call(&admin, "POST", path, &[JSON], &service).await.0, 201);
        let patch = json!({"spec": {"externalIPs": ["192.0.2.1"]}});
        let (code, answer) = call(&admin, "PATCH", &format!("{path}/s"), &[MERGE], &patch).await;
        let want = "services \"s\" is forbidden: Use of external IPs is denied by admission control";
        assert_eq!((code, &answer["message"]), (403, &json!(want)), "{answer}");
    });
}
