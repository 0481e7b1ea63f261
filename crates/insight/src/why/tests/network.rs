//! Services, Ingresses, NetworkPolicies.

use serde_json::{Value, json};

use super::super::Reason;
use super::{Situation, check_all, merge, node, one, ready_pod, world};
use crate::gather::ALL_PODS;
use crate::world::Presence;

#[test]
fn network() {
    let slices = |ready: bool| {
        (
            "endpointslices",
            json!([{ "metadata": { "labels": { "kubernetes.io/service-name": "x" }, "namespace": "d" }, "endpoints": if ready { json!([{ "addresses": ["10.0.0.1"], "conditions": { "ready": true } }]) } else { json!([]) } }]),
        )
    };
    let mut named = ready_pod();
    merge(
        &mut named,
        &json!({ "spec": { "containers": [{ "name": "c", "ports": [{ "name": "web", "containerPort": 8080 }] }] } }),
    );
    let service = |spec: Value, ready: bool| {
        one(
            "Service",
            json!({ "spec": spec }),
            &[("pods", json!([named])), slices(ready), ("nodes", json!([node("n", "True")]))],
        )
    };
    let web = json!({ "app": "web" });
    let maker = |replicas: i64| {
        (
            "deployments",
            json!([{ "kind": "Deployment", "metadata": { "name": "w" }, "spec": { "replicas": replicas, "template": { "metadata": { "labels": { "app": "web" } } } } }]),
        )
    };
    let deny = (
        "networkpolicies",
        json!([{ "metadata": { "name": "deny" }, "spec": { "podSelector": {}, "policyTypes": ["Ingress"] } }]),
    );
    let elsewhere = (
        "networkpolicies",
        json!([{ "metadata": { "name": "only" }, "spec": { "podSelector": {}, "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": "nobody" } } }] }] } }]),
    );
    let rules = |service: &str, port: i64| json!([{ "host": "h", "http": { "paths": [{ "path": "/", "backend": { "service": { "name": service, "port": { "number": port } } } }] } }]);
    let ingress = |spec: Value, lists: &[(&str, Value)]| {
        let mut world = one("Ingress", json!({ "spec": spec }), lists);
        world.put("services", vec![json!({ "kind": "Service", "metadata": { "name": "x", "namespace": "d" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] } })]);
        world
    };
    let class =
        ("ingressclasses", json!([{ "metadata": { "name": "nginx" }, "spec": { "controller": "k8s.io/nginx" } }]));
    let good = [class.clone(), ("pods", json!([named])), slices(true)];
    let mut no_secret = ingress(
        json!({ "ingressClassName": "nginx", "rules": rules("x", 80), "tls": [{ "secretName": "cert" }] }),
        &good,
    );
    no_secret.note("secrets", "cert", Presence::Absent);
    let rows: Vec<Situation<'_>> = vec![
        (
            "port name",
            service(json!({ "selector": web, "ports": [{ "port": 80, "targetPort": "http" }] }), true),
            Reason::PortName,
            &["targetPort \"http\" (port 80/TCP)", "they have web"],
        ),
        (
            "port number",
            service(json!({ "selector": web, "ports": [{ "port": 80 }] }), true),
            Reason::PortMismatch,
            &["nothing holds it up", "no container names port 80/TCP", "8080/TCP"],
        ),
        (
            "address as a name",
            service(json!({ "type": "ExternalName", "externalName": "10.1.2.3" }), false),
            Reason::ExternalNameAddress,
            &["10.1.2.3 is an address"],
        ),
        (
            "labels",
            service(json!({ "selector": { "app": "wbe" } }), false),
            Reason::SelectorMatchesNothing,
            &["app=wbe matches no pod in d", "pods there have app=web"],
        ),
        (
            "scaled to zero",
            one("Service", json!({ "spec": { "selector": web } }), &[("pods", json!([])), maker(0)]),
            Reason::MakerHasNoPods,
            &[
                "nothing holds it up",
                "deployment/w makes the pods",
                "is scaled to zero",
                "kubectl scale -n d deployment/w --replicas=1",
            ],
        ),
        (
            "class of a balancer",
            service(
                json!({ "type": "LoadBalancer", "loadBalancerClass": "acme.io/lb", "selector": web, "ports": [{ "port": 80, "targetPort": 8080 }] }),
                true,
            ),
            Reason::LoadBalancerClass,
            &["acme.io/lb"],
        ),
        (
            "no balancer",
            service(
                json!({ "type": "LoadBalancer", "selector": web, "ports": [{ "port": 80, "targetPort": 8080 }] }),
                true,
            ),
            Reason::LoadBalancerPending,
            &["waits for an address"],
        ),
        (
            "policy",
            world(ready_pod(), &[("nodes", json!([node("n", "True")])), deny]),
            Reason::PoliciesSelect,
            &[
                "nothing holds it up",
                "no pod reaches it, only its own node does, as for probes: the NetworkPolicy deny selects it and allows no ingress",
            ],
        ),
        (
            "policy for nobody",
            world(ready_pod(), &[("nodes", json!([node("n", "True")])), elsewhere, (ALL_PODS, json!([]))]),
            Reason::PoliciesSelect,
            &["nothing holds it up", "only for pods that are not there"],
        ),
        (
            "policy for nothing",
            one(
                "NetworkPolicy",
                json!({ "spec": { "podSelector": { "matchLabels": { "app": "wbe" } } } }),
                &[("pods", json!([ready_pod()]))],
            ),
            Reason::PolicySelectsNothing,
            &["app=wbe selects no pod", "app=web"],
        ),
        (
            "no class",
            ingress(
                json!({ "rules": rules("x", 80) }),
                &[("ingressclasses", json!([])), slices(true), ("pods", json!([named]))],
            ),
            Reason::IngressClassUnset,
            &["probably", "names no ingressClassName", "nobody has written an address"],
        ),
        (
            "no class, and no backend",
            ingress(json!({ "rules": rules("y", 80) }), &[("ingressclasses", json!([]))]),
            Reason::IngressBackendMissing,
            &["it is stuck", "the Service \"y\"", "probably", "names no ingressClassName"],
        ),
        (
            "absent class",
            ingress(json!({ "ingressClassName": "traefik", "rules": rules("x", 80) }), &good),
            Reason::IngressClassMissing,
            &["\"traefik\" does not exist", "there are nginx"],
        ),
        (
            "no backend",
            ingress(json!({ "ingressClassName": "nginx", "rules": rules("y", 80) }), &good),
            Reason::IngressBackendMissing,
            &["the Service \"y\", does not exist in namespace d", "the namespace has x"],
        ),
        (
            "backend's port",
            ingress(json!({ "ingressClassName": "nginx", "rules": rules("x", 8080) }), &good),
            Reason::IngressBackendPort,
            &["has no port 8080; it has 80"],
        ),
        (
            "backend dark",
            ingress(
                json!({ "ingressClassName": "nginx", "rules": rules("x", 80) }),
                &[class.clone(), ("pods", json!([])), slices(false)],
            ),
            Reason::IngressBackend,
            &["leads nowhere", "app=web matches no pod"],
        ),
        ("certificate", no_secret, Reason::IngressSecret, &["TLS Secret \"cert\" does not exist"]),
        (
            "no controller",
            ingress(json!({ "ingressClassName": "nginx", "rules": rules("x", 80) }), &good),
            Reason::IngressController,
            &["probably", "k8s.io/nginx"],
        ),
    ];
    check_all(&rows);
}
