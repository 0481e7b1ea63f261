//! A cluster with addresses of both families: two nodes, real pods, real packets.

use serde_json::{Value, json};

use crate::cluster::{Cluster, POD_RANGE, until};
use crate::cluster_bed::{Bed, is};

/// A web server for both families on one node, that says its name.
fn pod(name: &str, node: &str) -> String {
    let serve = "mkdir /tmp/www && hostname >/tmp/www/index.html && exec httpd -f -p [::]:80 -h /tmp/www";
    let from = |field: &str| json!({"fieldRef": {"fieldPath": field}});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "containers": [{
                "name": "web", "image": "busybox:1.36", "command": ["sh", "-c", serve],
                "env": [{"name": "POD_IPS", "valueFrom": from("status.podIPs")}, {"name": "HOST_IPS", "valueFrom": from("status.hostIPs")}],
                "ports": [{"containerPort": 80, "hostPort": 8088}],
                "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1},
            }],
        },
    })
    .to_string()
}

fn texts(list: &Value, key: &str) -> Vec<String> {
    let text = |item: &Value| if key.is_empty() { item.as_str() } else { item[key].as_str() }.map(str::to_owned);
    list.as_array().into_iter().flatten().filter_map(text).collect()
}

fn url(address: &str, port: u16) -> String {
    format!("http://{}/", std::net::SocketAddr::new(address.parse().expect("an address"), port))
}

/// One address of each family, in the cluster's order.
fn is_dual(addresses: &[String]) -> bool {
    matches!(addresses, [first, second] if first.contains('.') && second.contains(':'))
}

fn addresses(bed: &Bed, name: &str) -> Vec<String> {
    until(&format!("{name} is ready"), || {
        let pod = bed.json(&["get", "pod", name]);
        is(&pod, "Ready", "True").then(|| texts(&pod["status"]["podIPs"], "ip"))
    })
}

/// Beside a cluster of this machine with the same range for its pods, whose packet rules must not take these for its own.
pub fn pods_and_services_have_both_families(_beside: &mut Cluster) {
    let bed = Bed::new("dual");
    let config = bed.folder.path().join("cluster.yaml");
    let subnets = format!("podSubnet: '{POD_RANGE},fd00:10:244::/56', serviceSubnet: '10.96.0.0/16,fd00:10:96::/112'");
    let file = format!(
        "apiVersion: ferry.dev/v1alpha1\nkind: Cluster\nservers: [{{}}]\nnodes: [{{}}, {{}}]\nnetworking: {{{subnets}, podNetwork: vxlan}}\n"
    );
    std::fs::write(&config, file).expect("a file");
    bed.create(&["--config", config.to_str().expect("a path")]);
    for number in [0, 1] {
        let node = bed.json(&["get", "node", &bed.node(number)]);
        assert!(is_dual(&texts(&node["spec"]["podCIDRs"], "")), "{node:#}");
        let all = node["status"]["addresses"].as_array().expect("addresses").iter();
        let own: Vec<String> = all
            .filter(|one| one["type"] == "InternalIP")
            .filter_map(|one| one["address"].as_str())
            .map(str::to_owned)
            .collect();
        assert!(is_dual(&own), "{own:?}");
        bed.apply(&pod(&format!("p{number}"), &bed.node(number)));
    }
    let (a, b) = (addresses(&bed, "p0"), addresses(&bed, "p1"));
    assert!(is_dual(&a) && is_dual(&b), "{a:?} {b:?}");
    let environment = bed.kubectl(&["exec", "p0", "--", "sh", "-c", "echo $POD_IPS; echo $HOST_IPS; cat /etc/hosts"]);
    assert_eq!(environment.lines().next(), Some(a.join(",").as_str()), "{environment}");
    assert!(environment.lines().nth(1).is_some_and(|hosts| hosts.contains(',')), "{environment}");
    assert!(
        a.iter().all(|ip| environment.lines().any(|line| line.starts_with(ip) && line.ends_with("p0"))),
        "{environment}"
    );

    // From pod to pod, on other nodes and on the own.
    for (from, to, targets) in [("p0", "p1", &b), ("p1", "p0", &a), ("p0", "p0", &a)] {
        for target in targets {
            until(&format!("{from} reaches {to} at {target}"), || {
                (bed.ask(from, &url(target, 80))? == to).then_some(())
            });
        }
    }

    // By Services of both families, by name, and by ports of every node.
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "NodePort", "ipFamilyPolicy": "RequireDualStack", "selector": {"app": "p1"}, "sessionAffinity": "ClientIP", "ports": [{"port": 8080, "targetPort": 80, "nodePort": 30088}]},
    });
    bed.apply(&service.to_string());
    let virtual_addresses = texts(&bed.json(&["get", "service", "web"])["spec"]["clusterIPs"], "");
    assert!(is_dual(&virtual_addresses), "{virtual_addresses:?}");
    for address in &virtual_addresses {
        for from in ["p0", "p1"] {
            until(&format!("{from} reaches the Service at {address}"), || {
                (bed.ask(from, &url(address, 8080))? == "p1").then_some(())
            });
        }
    }
    for kind in [("A", &virtual_addresses[0]), ("AAAA", &virtual_addresses[1])] {
        until("DNS tells both addresses", || {
            let told = bed.try_kubectl(
                &["exec", "p0", "--", "nslookup", &format!("-type={}", kind.0), "web.default.svc.cluster.local"],
                "",
            );
            String::from_utf8_lossy(&told.stdout).contains(kind.1.as_str()).then_some(())
        });
    }
    let dns = texts(&bed.json(&["get", "service", "kube-dns", "-n", "kube-system"])["spec"]["clusterIPs"], "");
    assert!(is_dual(&dns), "{dns:?}");
    until("DNS answers over IPv6", || {
        let told = bed.try_kubectl(&["exec", "p0", "--", "nslookup", "web.default.svc.cluster.local", &dns[1]], "");
        String::from_utf8_lossy(&told.stdout).contains(&virtual_addresses[1]).then_some(())
    });
    let nodes = bed.json(&["get", "nodes"]);
    let all = nodes["items"]
        .as_array()
        .expect("nodes")
        .iter()
        .flat_map(|node| texts(&node["status"]["addresses"], "address"));
    for address in all.filter(|text| text.parse::<std::net::IpAddr>().is_ok()) {
        until(&format!("the node port answers at {address}"), || {
            (bed.ask("p0", &url(&address, 30088))? == "p1").then_some(())
        });
    }
    // Host ports of the other node.
    let other = bed.json(&["get", "node", &bed.node(1)]);
    for address in
        texts(&other["status"]["addresses"], "address").iter().filter(|text| text.parse::<std::net::IpAddr>().is_ok())
    {
        until(&format!("the host port answers at {address}"), || {
            (bed.ask("p0", &url(address, 8088))? == "p1").then_some(())
        });
    }

    // A policy holds in both.
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"},
        "spec": {"podSelector": {"matchLabels": {"app": "p1"}}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"ipBlock": {"cidr": format!("{}/128", a[1])}}]}]},
    });
    bed.apply(&policy.to_string());
    until("IPv4 is closed", || bed.ask("p0", &url(&b[0], 80)).is_none().then_some(()));
    assert_eq!(bed.ask("p0", &url(&b[1], 80)).as_deref(), Some("p1"), "the block of IPv6 is open");
    assert_eq!(bed.ask("p0", &url(&virtual_addresses[1], 8080)).as_deref(), Some("p1"), "through the Service");
    bed.kubectl(&[
        "patch",
        "networkpolicy",
        "closed",
        "--type=json",
        "-p",
        r#"[{"op":"replace","path":"/spec/ingress","value":[]}]"#,
    ]);
    until("IPv6 is closed", || bed.ask("p0", &url(&b[1], 80)).is_none().then_some(()));
}
