//! What the API server refuses, as a user sees it.

use crate::cluster::Cluster;

pub fn a_wrong_token_is_401(cluster: &mut Cluster) {
    let server = cluster.server();
    let refused = cluster.kubectl_refused(
        &["--kubeconfig=/dev/null", "--server", &server, "--insecure-skip-tls-verify", "--token=wrong", "get", "pods"],
        "",
    );
    assert!(refused.contains("Unauthorized") || refused.contains("You must be logged in"), "{refused}");
}

pub fn a_missing_right_is_403(cluster: &mut Cluster) {
    cluster.kubectl(&["create", "serviceaccount", "visitor"]);
    let token = cluster.kubectl(&["create", "token", "visitor"]);
    let server = cluster.server();
    let base = ["--kubeconfig=/dev/null", "--server", &server, "--insecure-skip-tls-verify", "--token", token.trim()];
    let get = |arguments: &[&'static str]| [&base[..], arguments].concat();
    let refused = cluster.kubectl_refused(&get(&["get", "pods", "-n", "default"]), "");
    assert!(
        refused.contains(
            r#"pods is forbidden: User "system:serviceaccount:default:visitor" cannot list resource "pods" in API group "" in the namespace "default""#
        ),
        "{refused}"
    );
    // A right given counts at once.
    cluster.kubectl(&["create", "rolebinding", "visitor", "--clusterrole=view", "--serviceaccount=default:visitor"]);
    cluster.kubectl(&get(&["get", "pods", "-n", "default"]));
    assert_eq!(cluster.kubectl(&get(&["auth", "can-i", "list", "pods", "-n", "default"])).trim(), "yes");
    let refused = cluster.kubectl_refused(&get(&["get", "secrets", "-n", "default"]), "");
    assert!(refused.contains("secrets is forbidden"), "{refused}");
}

pub fn bad_manifests_name_the_field(cluster: &mut Cluster) {
    let deployment = |extra: &str| {
        format!(
            r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"bad"}},"spec":{{{extra}"selector":{{"matchLabels":{{"a":"b"}}}},
               "template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"nginx:1.25"}}]}}}}}}}}"#
        )
    };
    for (manifest, expected) in [
        (deployment(r#""replicas":-1,"#), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        (deployment(r#""replicsa":1,"#), r#"unknown field "spec.replicsa""#),
        (deployment(r#""replicas":"three","#), "spec.replicas"),
    ] {
        let refused = cluster.kubectl_refused(&["create", "--validate=strict", "-f", "-"], &manifest);
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
    let refused = cluster.kubectl_refused(&["create", "-f", "-"], "apiVersion: v1\nkind: Pod\n  metadata: [");
    assert!(!refused.is_empty());
    assert!(cluster.items(&["get", "deployments", "-A", "-l", "a=b"]).is_empty(), "nothing was stored");
}

pub fn a_body_over_the_limit_is_refused(cluster: &mut Cluster) {
    let big = "x".repeat(4 * 1024 * 1024);
    let manifest =
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"big"}},"data":{{"a":"{big}"}}}}"#);
    let refused = cluster.kubectl_refused(&["create", "--validate=false", "-f", "-"], &manifest);
    assert!(refused.contains("too large") || refused.contains("RequestEntityTooLarge"), "{refused}");
    cluster.kubectl_refused(&["get", "configmap", "big"], "");
}
