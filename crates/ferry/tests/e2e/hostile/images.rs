//! Images that are not for everybody.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Scenario;
use crate::cluster::{Cluster, until};

pub const SCENARIOS: &[Scenario] =
    &[("hostile::images::a_private_image_is_for_those_who_can_pull_it", a_private_image_is_for_those_who_can_pull_it)];

/// A registry that asks for a password, in front of one that does not. Counts how often it was shown the right one.
fn guard(registry: &str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let shown = Arc::new(AtomicUsize::new(0));
    let (registry, count) = (registry.to_owned(), shown.clone());
    // It ends with the process: nobody connects to it any more.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (registry, count) = (registry.clone(), count.clone());
            std::thread::spawn(move || pass(stream, &registry, &count));
        }
    });
    (place, shown)
}

/// One request of a connection.
fn pass(mut client: TcpStream, registry: &str, shown: &AtomicUsize) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let lines: Vec<&str> = head.split("\r\n").filter(|line| !line.is_empty()).collect();
    let is = |line: &&&str, name: &str| line.to_lowercase().starts_with(name);
    if !lines.iter().any(|line| line.to_lowercase().starts_with("authorization:") && line.ends_with("bWU6c2VjcmV0")) {
        let refusal = "HTTP/1.1 401 Unauthorized\r\nWww-Authenticate: Basic realm=\"test\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        return client.write_all(refusal.as_bytes()).ok();
    }
    shown.fetch_add(1, Ordering::Relaxed);
    let kept = lines.iter().filter(|line| !is(line, "connection:") && !is(line, "authorization:"));
    let request: String = kept.map(|line| format!("{line}\r\n")).collect();
    let mut server = TcpStream::connect(registry).ok()?;
    server.write_all(format!("{request}Connection: close\r\n\r\n").as_bytes()).ok()?;
    std::io::copy(&mut server, &mut client).ok().map(drop)
}

/// What one pod had pulled with its Secret, every other pod of the node could run.
fn a_private_image_is_for_those_who_can_pull_it(cluster: &mut Cluster) {
    let (place, shown) = guard(cluster.registry());
    let image = format!("{place}/library/busybox:1.36");
    let make = |namespace: &str, password: Option<&str>, policy: &str| {
        let secret = password.map(|password| {
            let auths = serde_json::json!({"auths": {&place: {"username": "me", "password": password}}});
            format!(
                "
apiVersion: v1
kind: Secret
metadata: {{name: pull, namespace: {namespace}}}
type: kubernetes.io/dockerconfigjson
stringData: {{.dockerconfigjson: '{auths}'}}
---"
            )
        });
        cluster.apply(&format!(
            "
apiVersion: v1
kind: Namespace
metadata: {{name: {namespace}}}
---{}
apiVersion: v1
kind: ServiceAccount
metadata: {{name: own, namespace: {namespace}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: user, namespace: {namespace}}}
spec:
  serviceAccountName: own
  terminationGracePeriodSeconds: 0
  imagePullSecrets: {}
  containers: [{{name: main, image: '{image}', imagePullPolicy: {policy}, command: [sleep, '3600']}}]
",
            secret.clone().unwrap_or_default(),
            if secret.is_some() { "[{name: pull}]" } else { "[]" },
        ));
    };
    let waits = |namespace: &str| {
        let status = cluster.json(&["get", "pod", "-n", namespace, "user"])["status"].clone();
        assert_ne!(status["phase"], "Running", "{namespace} runs what it cannot pull");
        let reason = status["containerStatuses"][0]["state"]["waiting"]["reason"].as_str()?.to_owned();
        (reason != "ContainerCreating" && reason != "PodInitializing").then_some(reason)
    };
    let runs = |namespace: &str| {
        let status = cluster.json(&["get", "pod", "-n", namespace, "user"])["status"].clone();
        (status["phase"] == "Running").then_some(())
    };
    make("owner", Some("secret"), "IfNotPresent");
    until("its owner runs it", || runs("owner"));
    assert!(shown.load(Ordering::Relaxed) > 0);
    make("stranger", None, "IfNotPresent");
    let reason = until("a stranger is refused", || waits("stranger"));
    assert!(matches!(&*reason, "ErrImagePull" | "ImagePullBackOff"), "{reason}");
    make("guessing", Some("wrong"), "IfNotPresent");
    until("who guesses is refused", || waits("guessing"));
    make("never", None, "Never");
    assert_eq!(until("who does not ask is refused", || waits("never")), "ErrImageNeverPull");
    // Whoever has the password, in a Secret of their own, is not asked again: the registry may be away.
    let before = shown.load(Ordering::Relaxed);
    make("friend", Some("secret"), "IfNotPresent");
    until("a friend runs it", || runs("friend"));
    assert_eq!(shown.load(Ordering::Relaxed), before);
    for namespace in ["owner", "stranger", "guessing", "never", "friend"] {
        cluster.kubectl(&["delete", "namespace", namespace, "--wait=true"]);
    }
}
