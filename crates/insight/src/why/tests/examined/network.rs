//! Services and what is behind and before them.

use serde_json::json;

use super::*;

#[test]
fn ways_to_pods() {
    let service = |parts: Value| {
        with(
            made(
                "Service",
                "web",
                json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.5", "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP" }] } }),
            ),
            &parts,
        )
    };
    let slice = |of: &str, ready: bool, parts: Value| {
        with(
            made(
                "EndpointSlice",
                &format!("{of}-abc"),
                json!({ "metadata": { "labels": { "kubernetes.io/service-name": of } }, "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": ready } }], "ports": [{ "port": 80, "protocol": "TCP" }] }),
            ),
            &parts,
        )
    };
    let managed = json!({ "metadata": { "labels": { "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io" } } });
    let policy = |parts: Value| {
        with(
            made(
                "NetworkPolicy",
                "egress",
                json!({ "spec": { "podSelector": { "matchLabels": { "app": "web" } }, "policyTypes": ["Egress"] } }),
            ),
            &parts,
        )
    };
    let db = with(serving(json!({})), &json!({ "metadata": { "name": "db", "uid": "db", "labels": { "app": "db" } } }));
    let to_db = json!({ "to": [{ "podSelector": { "matchLabels": { "app": "db" } } }], "ports": [{ "port": 5432, "protocol": "TCP" }] });
    let to_dns = json!({ "to": [{ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "kube-system" } } }], "ports": [{ "port": 53, "protocol": "UDP" }] });
    let dns = |kind: &str| {
        with(
            made(
                "EndpointSlice",
                "kube-dns-1",
                json!({ "endpoints": [{ "addresses": ["10.0.0.53"], "conditions": { "ready": true }, "targetRef": { "kind": kind, "name": "coredns" } }] }),
            ),
            &json!({ "metadata": { "namespace": "kube-system", "labels": { "kubernetes.io/service-name": "kube-dns" } } }),
        )
    };
    let class = |status: &str, reason: &str| {
        made(
            "GatewayClass",
            "eg",
            json!({ "metadata": { "namespace": null }, "spec": { "controllerName": "gateway.envoyproxy.io/gatewayclass-controller" }, "status": { "conditions": [{ "type": "Accepted", "status": status, "reason": reason, "message": "Waiting for controller" }] } }),
        )
    };
    let ingress = |parts: Value| {
        with(
            made(
                "Ingress",
                "web",
                json!({ "spec": { "ingressClassName": "nginx", "defaultBackend": { "service": { "name": "web", "port": { "number": 80 } } } }, "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } }),
            ),
            &parts,
        )
    };
    let nginx = made("IngressClass", "nginx", json!({ "spec": { "controller": "k8s.io/ingress-nginx" } }));
    let unready = with(
        serving(json!({})),
        &json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T11:00:00Z" }], "containerStatuses": [{ "name": "c", "ready": false, "restartCount": 0, "state": { "waiting": { "reason": "CrashLoopBackOff" } }, "lastState": { "terminated": { "exitCode": 7, "reason": "Error" } } }] } }),
    );
    let cases: Vec<Case<'_>> = vec![
        (
            "a slice of a Service that is not there",
            "endpointslice/web-abc",
            json!([slice("web", true, json!({}))]),
            Stuck(Reason::SliceService),
            &["the Service \"web\"", "does not exist in namespace d"],
        ),
        (
            "a slice of nobody",
            "endpointslice/web-abc",
            json!([
                slice("web", true, json!({ "metadata": { "labels": null } })),
                service(json!({ "spec": { "selector": null } }))
            ]),
            Stuck(Reason::SliceService),
            &["kubernetes.io/service-name", "kubectl label -n d endpointslice/web-abc kubernetes.io/service-name=web"],
        ),
        (
            "a slice without an endpoint that is ready",
            "endpointslice/web-abc",
            json!([slice("web", false, managed.clone()), service(json!({})), unready.clone()]),
            Stuck(Reason::PodsNotReady),
            &["exit code 7"],
        ),
        (
            "a slice as it should be",
            "endpointslice/web-abc",
            json!([slice("web", true, managed), service(json!({})), serving(json!({}))]),
            Well,
            &[],
        ),
        (
            "pods that are listed before they are ready",
            "service/web",
            json!([
                service(json!({ "spec": { "clusterIP": "None", "publishNotReadyAddresses": true } })),
                slice("web", true, json!({})),
                unready
            ]),
            Well,
            &[],
        ),
        (
            "a policy that forgets DNS",
            "networkpolicy/egress",
            json!([policy(json!({ "spec": { "egress": [to_db] } })), serving(json!({})), db, dns("Pod")]),
            Note(Reason::PolicyDns),
            &["port 53", "k8s-app: kube-dns"],
        ),
        (
            "a policy where DNS answers on the nodes",
            "networkpolicy/egress",
            json!([policy(json!({ "spec": { "egress": [to_db] } })), serving(json!({})), db, dns("Node")]),
            Well,
            &[],
        ),
        (
            "a policy with DNS",
            "networkpolicy/egress",
            json!([
                policy(json!({ "spec": { "egress": [to_db, to_dns] } })),
                serving(json!({})),
                db,
                dns("Pod"),
                made(
                    "Namespace",
                    "kube-system",
                    json!({ "metadata": { "labels": { "kubernetes.io/metadata.name": "kube-system" } } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "another policy has DNS",
            "networkpolicy/egress",
            json!([
                policy(json!({ "spec": { "egress": [to_db] } })),
                with(
                    policy(json!({ "spec": { "podSelector": {}, "egress": [to_dns] } })),
                    &json!({ "metadata": { "name": "dns" } })
                ),
                serving(json!({})),
                db,
                dns("Pod")
            ]),
            Well,
            &[],
        ),
        (
            "a policy for everything but the metadata of the cloud",
            "networkpolicy/egress",
            json!([
                policy(
                    json!({ "spec": { "egress": [{ "to": [{ "ipBlock": { "cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"] } }] }] } })
                ),
                serving(json!({})),
                dns("Pod")
            ]),
            Well,
            &[],
        ),
        (
            "a policy for nothing at all",
            "networkpolicy/egress",
            json!([policy(json!({})), serving(json!({})), dns("Pod")]),
            Well,
            &[],
        ),
        (
            "a class that nobody has taken up",
            "gatewayclass/eg",
            json!([class("Unknown", "Pending")]),
            Stuck(Reason::GatewayController),
            &["gateway.envoyproxy.io/gatewayclass-controller"],
        ),
        ("a class that is taken up", "gatewayclass/eg", json!([class("True", "Accepted")]), Well, &[]),
        (
            "an Ingress with a default alone",
            "ingress/web",
            json!([ingress(json!({})), nginx, service(json!({})), slice("web", true, json!({})), serving(json!({}))]),
            Well,
            &[],
        ),
        (
            "an Ingress whose pods crash",
            "ingress/web",
            json!([
                ingress(json!({})),
                nginx,
                service(json!({})),
                slice("web", false, json!({})),
                crashing(
                    json!({ "exitCode": 9 }),
                    json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } })
                )
            ]),
            Stuck(Reason::IngressBackend),
            &["exit code 9"],
        ),
        (
            "pods that are about to go",
            "service/web",
            json!([
                service(json!({})),
                slice("web", false, json!({})),
                serving(
                    json!({ "metadata": { "deletionTimestamp": "2026-01-01T12:00:20Z", "deletionGracePeriodSeconds": 30 } })
                )
            ]),
            Way(Reason::PodsNotReady),
            &["to end by themselves"],
        ),
        (
            "the clients of one address stay together",
            "service/web",
            json!([
                service(json!({ "spec": { "sessionAffinity": "ClientIP", "trafficDistribution": "PreferClose" } })),
                slice("web", true, json!({})),
                serving(json!({}))
            ]),
            Well,
            &[],
        ),
    ];
    examine(&cases);
}
