use super::*;
use serde_json::json;

#[test]
fn policies_choose_between_cluster_and_node() {
    let host = HostResolver::parse("# c\nnameserver 192.0.2.53\nsearch example.test corp.test\noptions rotate\n");
    let check = |spec: serde_json::Value, servers: &[&str], searches: &[&str], options: &[&str]| {
        let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "web"}, "spec": spec}));
        let config = config(&pod.expect("a pod"), &["10.96.0.10".parse().expect("ip")], "cluster.local", &host);
        assert_eq!(config.servers, servers, "{spec}");
        assert_eq!(config.searches, searches, "{spec}");
        assert_eq!(config.options, options, "{spec}");
    };
    let cluster = ["web.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.test", "corp.test"];
    check(json!({"containers": []}), &["10.96.0.10"], &cluster, &["ndots:5"]);
    let node = (&["192.0.2.53"], ["example.test", "corp.test"], ["rotate"]);
    check(json!({"containers": [], "dnsPolicy": "Default"}), node.0, &node.1, &node.2);
    check(json!({"containers": [], "hostNetwork": true}), node.0, &node.1, &node.2);
    check(
        json!({"containers": [], "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
        &["10.96.0.10"],
        &cluster,
        &["ndots:5"],
    );
    let own = json!({"nameservers": ["1.1.1.1"], "searches": ["a.test"], "options": [{"name": "ndots", "value": "2"}]});
    check(json!({"containers": [], "dnsPolicy": "None", "dnsConfig": own}), &["1.1.1.1"], &["a.test"], &["ndots:2"]);
}
#[test]
fn a_stub_on_the_nodes_loopback_is_of_no_use_to_a_pod() {
    let stub = HostResolver::parse("nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n");
    let check = |spec: serde_json::Value, host: &HostResolver, servers: &[&str], searches: &[&str]| {
        let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "web"}, "spec": spec}));
        let config = config(&pod.expect("a pod"), &["10.96.0.10".parse().expect("ip")], "c.test", host);
        assert_eq!(
            (config.servers, config.searches),
            (servers.iter().map(|s| (*s).to_owned()).collect(), searches.iter().map(|s| (*s).to_owned()).collect()),
            "{spec}"
        );
    };
    let of_the_node = json!({"containers": [], "dnsPolicy": "Default"});
    check(of_the_node.clone(), &stub, &["10.96.0.10"], &[]);
    check(json!({"containers": [], "hostNetwork": true}), &stub, &["127.0.0.53"], &[]);
    check(json!({"containers": []}), &stub, &["10.96.0.10"], &["web.svc.c.test", "svc.c.test", "c.test"]);
    let both = HostResolver::parse("nameserver ::1\nnameserver 192.0.2.53\nsearch example.test. . corp.test\n");
    check(of_the_node, &both, &["192.0.2.53"], &["example.test", "corp.test"]);
}

#[test]
fn the_nodes_file_is_read_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("resolv.conf");
    assert_eq!(HostResolver::read(&path), HostResolver::default());
    for server in ["192.0.2.1", "192.0.2.2"] {
        std::fs::write(&path, format!("nameserver {server}\n")).expect("written");
        assert_eq!(HostResolver::read(&path).servers, [server]);
    }
}
