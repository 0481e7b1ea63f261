//! Traffic from outside: a Gateway with a route and an Ingress, to the pods of `spine`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{Cluster, until};
use crate::insight::ask;

/// The status line and the body of an answer.
fn get(address: &str, port: u16, host: &str, path: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect((address, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.lines().next()?.to_owned(), body.to_owned()))
}

fn is(list: &Value, kind: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|one| one["type"] == kind && one["status"] == "True"))
}

fn apply(cluster: &Cluster, object: &Value) {
    cluster.apply(&object.to_string());
}

/// `ferry trace URL`: every hop to a pod, and the one at which a request ends.
fn ways_are_traced(cluster: &Cluster, address: &str) {
    // Names that do not resolve lead to the Gateway that has them.
    let (code, text) = ask(cluster, &["trace", "http://web.example:18080/"]);
    assert_eq!(code, Some(0), "{text}");
    for hop in [
        "GET http://web.example:18080/: 200 after",
        "by Gateway default/web, since the name does not resolve",
        "listener    http of Gateway default/web",
        "route       HTTPRoute default/web",
        "backend     Service default/nginx-demo:80",
        "pod         default/nginx-demo-",
        "on e2e",
        "until it answers",
    ] {
        assert!(text.contains(hop), "{hop:?} is not in {text}");
    }
    let (code, text) = ask(cluster, &["trace", "http://other.example:18080/", "--address", address]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("stuck  route") && text.contains("has routes for web.example"), "{text}");
    let (code, text) = ask(cluster, &["trace", "http://web.example:18081/", "--address", address]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("stuck  connection") && text.contains("is the address of Gateway default/web"), "{text}");
    let (code, text) = ask(cluster, &["trace", "http://web.example:18082/"]);
    assert!(code == Some(1) && text.contains("stuck  address"), "{code:?} {text}");
    for wrong in [
        &["trace", "ftp://web.example/"][..],
        &["trace", "http://web.example/", "--follow"],
        &["trace", "pod/x", "--address", "127.0.0.1"],
        &["trace", "http://web.example/", "--address", "nowhere"],
    ] {
        assert_eq!(ask(cluster, wrong).0, Some(2), "{wrong:?}");
    }
    // Nothing of it is left.
    let class = cluster.json(&["get", "gatewayclass", "ferry"]);
    assert!(!class["metadata"]["annotations"].to_string().contains("trace.gateway.ferry.dev"), "{class}");
}

/// Runs after `spine::three_pods_answer_behind_a_service`, whose pods it reaches.
pub fn gateways_and_ingresses_reach_pods(cluster: &mut Cluster) {
    until("the classes are there", || {
        let class = cluster.try_kubectl(&["get", "gatewayclass", "ferry", "-o", "json"], "");
        let class: Value = serde_json::from_slice(&class.stdout).ok()?;
        is(&class["status"]["conditions"], "Accepted").then_some(())
    });
    // Ports of its own: 80 may be somebody else's on this machine.
    apply(
        cluster,
        &json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": { "name": "web" },
            "spec": { "gatewayClassName": "ferry", "listeners": [{ "name": "http", "port": 18080, "protocol": "HTTP" }] },
        }),
    );
    apply(
        cluster,
        &json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": { "name": "web" },
            "spec": {
                "parentRefs": [{ "name": "web" }], "hostnames": ["web.example"],
                "rules": [{ "backendRefs": [{ "name": "nginx-demo", "port": 80 }] }],
            },
        }),
    );
    let gateway = until("the Gateway is programmed", || {
        let gateway = cluster.json(&["get", "gateway", "web"]);
        is(&gateway["status"]["conditions"], "Programmed").then_some(gateway)
    });
    let address = gateway["status"]["addresses"][0]["value"].as_str().unwrap().to_owned();
    until("the route is accepted", || {
        let route = cluster.json(&["get", "httproute", "web"]);
        let conditions = &route["status"]["parents"][0]["conditions"];
        (is(conditions, "Accepted") && is(conditions, "ResolvedRefs")).then_some(())
    });
    let (line, body) =
        until("a pod answers", || get(&address, 18080, "web.example", "/").filter(|(line, _)| line.contains(" 200")));
    assert!(body.contains("nginx-demo"), "{line}: {body}");
    let (line, _) = get(&address, 18080, "other.example", "/").unwrap();
    assert!(line.contains(" 404"), "{line}");
    ways_are_traced(cluster, &address);

    apply(
        cluster,
        &json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": { "name": "web", "annotations": { "nginx.ingress.kubernetes.io/server-snippet": "x" } },
            "spec": { "ingressClassName": "ferry", "rules": [{ "host": "ingress.example", "http": { "paths": [
                { "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "nginx-demo", "port": { "number": 80 } } } },
            ] } }] },
        }),
    );
    // At port 80, or where its status says it is instead.
    let (address, port) = until("the Ingress has an address", || {
        let ingress = cluster.json(&["get", "ingress", "web"]);
        let place = &ingress["status"]["loadBalancer"]["ingress"][0];
        Some((place["ip"].as_str()?.to_owned(), u16::try_from(place["ports"][0]["port"].as_u64()?).ok()?))
    });
    let (line, body) = until("a pod answers", || {
        get(&address, port, "ingress.example", "/").filter(|(line, _)| line.contains(" 200"))
    });
    assert!(body.contains("nginx-demo"), "{line}: {body}");
    until("the annotation that is not followed is named", || {
        let events = cluster.items(&["get", "events", "--field-selector", "involvedObject.kind=Ingress"]);
        events.iter().any(|event| event["reason"] == "UnsupportedAnnotation").then_some(())
    });
    cluster.kubectl(&["delete", "gateway/web", "httproute/web", "ingress/web"]);
    until("nobody listens any more", || TcpStream::connect((address.as_str(), 18080)).is_err().then_some(()));
}
