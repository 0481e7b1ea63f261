//! Ways by a table: what there is, the step that ends it, and the words that are shown.

use serde_json::{Value, json};

use super::*;
use crate::why::{Finding, Reason};

fn pod(name: &str, address: &str) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}},
        "spec": {"nodeName": "n1", "dnsPolicy": "ClusterFirst", "containers": [{
            "name": "c", "ports": [{"name": "http", "containerPort": 8080}],
            "readinessProbe": {"httpGet": {"port": "http"}},
        }]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn slice(service: &str, endpoints: Value) -> Value {
    json!({
        "metadata": {"name": service, "namespace": "default", "labels": {"kubernetes.io/service-name": service}},
        "endpoints": endpoints, "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
    })
}

fn policy(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// Pod `a` and Service `b` with pod `b` behind it: nothing is in the way.
fn scene(to: &str) -> Scene {
    let node = json!({"kind": "Node", "metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let target = Target::parse(to, "default").expect("a target");
    let service = json!({
        "kind": "Service", "metadata": {"name": "b", "namespace": "default"},
        "spec": {"clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5"],
            "ports": [{"name": "web", "port": 80, "targetPort": "http", "protocol": "TCP"}]},
    });
    let b = pod("b", "10.244.0.6");
    Scene {
        source: pod("a", "10.244.0.5"),
        object: Some(if target.is_service { service } else { b.clone() }),
        target,
        of_service: Vec::new(),
        pods: Some(vec![b]),
        slices: Some(vec![slice("b", json!([{"addresses": ["10.244.0.6"], "nodeName": "n1"}]))]),
        policies: Some(Vec::new()),
        cluster_policies: Some(Vec::new()),
        namespaces: Some(vec![json!({"metadata": {"name": "default", "labels": {}}})]),
        nodes: Some(vec![node]),
        dns: Some(vec![slice("kube-dns", json!([{"addresses": ["10.244.0.1"], "nodeName": "n1"}]))]),
        ..Scene::default()
    }
}

/// `want`: the cause that stops it, or none.
fn check(what: &str, scene: &Scene, want: Option<Reason>, texts: &[&str]) {
    let way = walk(scene);
    let shown = render(scene, &way);
    assert_eq!(stopped(&way).map(|finding| finding.reason), want, "{what}: {shown}");
    for text in texts {
        assert!(shown.contains(text), "{what}: {text:?} is not in {shown}");
    }
    assert_eq!(to_json(scene, &way)["fine"], want.is_none(), "{what}");
}

#[test]
fn a_way_without_obstacles_is_shown_with_its_evidence() {
    check(
        "a Service",
        &scene("service/b:80"),
        None,
        &[
            "pod/a → service/b:80 in default: nothing stops it",
            "it runs on n1 as 10.244.0.5",
            "a Service at 10.96.0.5",
            "b.default.svc is answered on its own node, at 10.244.0.1",
            "80 leads to the port named http of the pods",
            "pod/b at 10.244.0.6:8080",
            "no NetworkPolicy drops it (egress)",
            "both are on n1",
            "the readiness probe of pod/b reaches port 8080",
        ],
    );
    check("by the port's name", &scene("svc/b:web"), None, &["nothing stops it"]);
    check("the only port", &scene("svc/b"), None, &["nothing stops it"]);
    let way = scene("pod/b:9999");
    check("a pod", &way, None, &["nothing is known to stop it", "no readiness probe tells"]);
    assert!(!render(&way, &walk(&way)).contains("DNS"), "no name is looked up");
}

#[test]
fn a_headless_service_changes_no_ports() {
    let headless = |to: &str, ports: Value| {
        let mut scene = scene(to);
        scene.object = Some(json!({
            "kind": "Service", "metadata": {"name": "b", "namespace": "default"},
            "spec": {"clusterIP": "None", "clusterIPs": ["None"], "ports": ports},
        }));
        scene
    };
    let own = "its pods are asked at their own port 8080";
    check("no ports", &headless("svc/b:8080", json!([])), None, &[own, "pod/b at 10.244.0.6:8080", "nothing stops it"]);
    let other = json!([{"name": "web", "port": 80, "targetPort": 8080, "protocol": "TCP"}]);
    let texts = ["asked at their own port 80; the Service's targetPort 8080 does not count", "pod/b at 10.244.0.6:80"];
    check("a targetPort", &headless("svc/b:80", other), None, &texts);
}

#[test]
fn a_service_with_several_ports_wants_one_named() {
    let mut scene = scene("svc/b");
    if let Some(service) = &mut scene.object {
        service["spec"]["ports"] = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    }
    let texts = [
        "the Service has several ports, and none was named",
        "it has 80/TCP, 81/TCP: name one, as in --to service/b:80",
    ];
    check("several", &scene, Some(Reason::ServicePort), &texts);
}

#[test]
fn the_first_obstacle_is_named() {
    let changed = |change: &dyn Fn(&mut Scene)| {
        let mut scene = scene("service/b:80");
        change(&mut scene);
        scene
    };
    let deny = policy("deny-all", json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    let lock = policy("lock", json!({"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Egress"]}));
    let guard = json!({"metadata": {"name": "guard"}, "spec": {"tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
        "ingress": [{"action": "Deny", "from": [{"namespaces": {}}]}]}});
    let rows: [(&str, Scene, Reason, &[&str]); 13] = [
        (
            "a pod that waits",
            changed(&|scene| scene.source["status"] = json!({"phase": "Pending"})),
            Reason::SourceNotRunning,
            &["the pod is Pending", "ferry why -n default pod/a"],
        ),
        (
            "no such Service",
            changed(&|scene| scene.object = None),
            Reason::TargetMissing,
            &["there is no Service b in namespace default", "kubectl get services -n default"],
        ),
        (
            "the node's resolvers",
            changed(&|scene| scene.source["spec"]["dnsPolicy"] = json!("Default")),
            Reason::DnsPolicy,
            &["do not know b.default.svc", "dnsPolicy: ClusterFirst"],
        ),
        (
            "the network of the node",
            changed(&|scene| scene.source["spec"]["hostNetwork"] = json!(true)),
            Reason::DnsPolicy,
            &["dnsPolicy: ClusterFirstWithHostNet"],
        ),
        (
            "no DNS",
            changed(&|scene| scene.dns = Some(Vec::new())),
            Reason::DnsNotServed,
            &["kube-dns has no ready endpoint", "ferry why -n kube-system service/kube-dns"],
        ),
        (
            "another port",
            changed(&|scene| scene.target.port = Some("81".into())),
            Reason::ServicePort,
            &["the Service has no port 81", "it has 80/TCP"],
        ),
        (
            "nobody is ready",
            changed(&|scene| {
                let endpoint = json!([{"addresses": ["10.244.0.6"], "nodeName": "n1", "conditions": {"ready": false}}]);
                scene.slices = Some(vec![slice("b", endpoint)]);
            }),
            Reason::ServiceLeadsNowhere,
            &["no endpoint of the Service is ready", "ferry why -n default service/b"],
        ),
        (
            "only on other nodes",
            changed(&|scene| {
                scene.slices = Some(vec![slice("b", json!([{"addresses": ["10.244.1.6"], "nodeName": "n2"}]))]);
                if let Some(service) = &mut scene.object {
                    service["spec"]["internalTrafficPolicy"] = json!("Local");
                }
            }),
            Reason::NoLocalEndpoint,
            &["no ready endpoint is on n1", "there are 10.244.1.6:8080"],
        ),
        (
            "another family",
            changed(&|scene| {
                scene.slices = Some(vec![slice("b", json!([{"addresses": ["fd00::6"], "nodeName": "n1"}]))]);
            }),
            Reason::AddressFamily,
            &["the pod has addresses of IPv4 only"],
        ),
        (
            "egress first",
            changed(&|scene| scene.policies = Some(vec![deny.clone(), lock.clone()])),
            Reason::EgressPolicy,
            &["the NetworkPolicy lock of pod/a selects it and does not allow TCP 8080", "spec.egress"],
        ),
        (
            "ingress",
            changed(&|scene| scene.policies = Some(vec![deny.clone()])),
            Reason::IngressPolicy,
            &[
                "the NetworkPolicy deny-all of pod/b selects it and does not allow TCP 8080",
                "the other end is pod/a with the labels app=a",
                "kubectl edit -n default networkpolicy/deny-all",
            ],
        ),
        (
            "a policy of the cluster",
            changed(&|scene| scene.cluster_policies = Some(vec![guard.clone()])),
            Reason::IngressPolicy,
            &[
                "the ClusterNetworkPolicy \"guard\" of the Admin tier selects it and denies TCP 8080",
                "kubectl edit clusternetworkpolicy/guard",
            ],
        ),
        (
            "a node that is lost",
            changed(&|scene| {
                if let Some(nodes) = &mut scene.nodes {
                    nodes[0]["status"]["conditions"][0]["status"] = json!("Unknown");
                }
            }),
            Reason::NodeOnTheWay,
            &["the node n1 is not ready", "ferry why node/n1"],
        ),
    ];
    for (what, scene, reason, texts) in &rows {
        check(what, scene, Some(*reason), texts);
    }
    let allowed = policy(
        "allow-a",
        json!({"podSelector": {"matchLabels": {"app": "b"}}, "ingress": [
            {"from": [{"podSelector": {"matchLabels": {"app": "a"}}}], "ports": [{"port": "http"}]}]}),
    );
    let open = changed(&|scene| scene.policies = Some(vec![deny.clone(), allowed.clone()]));
    check("another policy allows it", &open, None, &["no NetworkPolicy drops it (ingress)"]);
}

#[test]
fn what_may_not_be_read_is_unknown() {
    let mut blind = scene("service/b:80");
    (blind.policies, blind.nodes, blind.dns) = (None, None, None);
    blind.unseen.push("networkpolicies, which you may not list".into());
    check(
        "without rights",
        &blind,
        None,
        &["nothing is known to stop it", "the policies could not be read", "not seen: networkpolicies"],
    );
}

#[test]
fn targets_are_read() {
    for (text, good) in [
        ("service/b:80", true),
        ("svc/b", true),
        ("svc/dns:53/udp", true),
        ("pod/x:80", true),
        ("pod/x", false),
        ("pod/x:http", false),
        ("deploy/x:80", false),
        ("b:80", false),
        ("svc/b:", false),
        ("svc/b:0", false),
        ("svc/:80", false),
        ("svc/b:80/ICMP", false),
    ] {
        assert_eq!(Target::parse(text, "default").is_ok(), good, "{text}");
    }
}

#[test]
fn names_that_lead_elsewhere() {
    let external = |name: &str| {
        let mut scene = scene("service/b:80");
        scene.object = Some(json!({
            "kind": "Service", "apiVersion": "v1", "metadata": {"name": "b", "namespace": "default"},
            "spec": {"type": "ExternalName", "externalName": name},
        }));
        scene
    };
    let out = external("db.example.com");
    check("out of the cluster", &out, None, &["its name leads out of the cluster, to db.example.com"]);
    let texts = [
        "its name leads to the Service db of namespace shop",
        "ferry why -n default pod/a --to service/db:80 --to-namespace shop",
    ];
    check("to another Service", &external("db.shop.svc.cluster.local"), None, &texts);
    let mut gone = external("db.shop.svc.cluster.local");
    let object = gone.object.clone().unwrap_or_default();
    gone.of_service = vec![Finding::new(Reason::ExternalNameMissing, &object, "the Service \"db\" does not exist")];
    let texts = ["its name leads nowhere", "the Service \"db\" does not exist"];
    check("to nothing", &gone, Some(Reason::ServiceLeadsNowhere), &texts);

    let mut absent = scene("service/b:80");
    absent.object = None;
    absent.elsewhere = vec!["shop".into()];
    let texts = [
        "there is one in namespace shop",
        "if that is meant, ask for b.shop: ferry why -n default pod/a --to service/b:80 --to-namespace shop",
    ];
    check("in another namespace", &absent, Some(Reason::TargetMissing), &texts);

    let mut own = scene("service/b:80");
    own.source["spec"]["dnsPolicy"] = json!("None");
    own.source["spec"]["dnsConfig"] = json!({"nameservers": ["192.0.2.53"]});
    check("resolvers of its own", &own, None, &["192.0.2.53; whether they know b.default.svc is not known"]);

    let mut protocol = scene("service/b:80/udp");
    protocol.object = scene("service/b:80").object;
    check("another protocol", &protocol, Some(Reason::ServicePort), &["the Service has no port 80/UDP"]);
    let unnamed = scene("pod/b:9999");
    check("a port that nobody names", &unnamed, None, &["on port 9999; the containers of the pod name 8080"]);
}

#[test]
fn policies_are_shown_with_what_they_look_at() {
    let rules = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "10.96.0.0/16"}}]}]});
    let mut range = scene("service/b:80");
    range.policies = Some(vec![policy("services", rules)]);
    let texts = ["its ipBlock 10.96.0.0/16 is for the Service's own address", "the address of the pod behind it"];
    check("the range of Services", &range, Some(Reason::EgressPolicy), &texts);

    let rules = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}]});
    let mut outside = scene("service/b:80");
    outside.policies = Some(vec![policy("outside", rules)]);
    let shown = render(&outside, &walk(&outside));
    assert!(shown.contains("the NetworkPolicy outside") && !shown.contains("ipBlock"), "{shown}");

    let rules =
        json!({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"name": "web"}}}]}]});
    let mut labels = scene("service/b:80");
    labels.source["metadata"]["namespace"] = json!("web");
    labels.policies = Some(vec![policy("from-web", rules)]);
    labels.namespaces = Some(vec![
        json!({"metadata": {"name": "default"}}),
        json!({"metadata": {"name": "web", "labels": {"kubernetes.io/metadata.name": "web"}}}),
    ]);
    let texts = ["its namespace web has the labels kubernetes.io/metadata.name=web"];
    check("labels of namespaces", &labels, Some(Reason::IngressPolicy), &texts);
}

#[test]
fn a_server_that_goes_away_proves_nothing() {
    let mut cut = scene("service/b:80");
    cut.is_cut = true;
    let way = walk(&cut);
    assert!(render(&cut, &way).contains("it could not be found out"), "{}", render(&cut, &way));
    assert_eq!(to_json(&cut, &way)["fine"], false);
}
