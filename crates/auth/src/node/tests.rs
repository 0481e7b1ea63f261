use super::*;
use crate::testing::Objects;
use serde_json::json;

#[test]
fn a_node_reaches_what_its_pods_need() {
    let objects = Objects::default();
    objects.put("", "pods", json!({"metadata": {"name": "u", "namespace": "a"}, "spec": {
        "nodeName": "n1", "serviceAccountName": "default",
        "containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "env"}}]}],
        "volumes": [{"name": "s", "secret": {"secretName": "s"}}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "e", "ephemeral": {}}]}}));
    objects.put("", "pods", json!({"metadata": {"name": "m", "namespace": "a",
        "annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": "n1", "serviceAccountName": "admin"}}));
    objects.put(
        "",
        "pods",
        json!({"metadata": {"name": "o", "namespace": "a"}, "spec": {"nodeName": "n2",
        "volumes": [{"name": "s", "secret": {"secretName": "t"}}]}}),
    );
    objects.put("", "persistentvolumes", json!({"metadata": {"name": "v"}, "spec": {
        "claimRef": {"namespace": "a", "name": "c"}, "csi": {"nodeStageSecretRef": {"name": "stage", "namespace": "sys"}}}}));
    let authorizer = NodeAuthorizer::new(Arc::new(objects));
    let user = UserInfo::new("system:node:n1", &["system:nodes", "system:authenticated"]);
    let fields = [("spec.nodeName".to_owned(), "n1".to_owned())];
    let unrelated = "no relationship found between node 'n1' and this object";
    let yes = "allowed";
    for (verb, resource, namespace, name, want) in [
        ("get", "secrets", "a", "s", yes),
        ("get", "secrets", "a", "t", unrelated),
        ("get", "secrets", "sys", "stage", yes),
        ("get", "secrets", "b", "s", unrelated),
        ("list", "secrets", "a", "", "No Object name found"),
        ("list", "configmaps", "", "", "can only read namespaced object of this type"),
        ("create", "secrets", "a", "", "can only read resources of this type"),
        ("get", "configmaps", "a", "env", yes),
        ("get", "persistentvolumeclaims", "a", "c", yes),
        ("get", "persistentvolumeclaims", "a", "u-e", yes),
        ("get", "persistentvolumes", "", "v", yes),
        ("get", "nodes", "", "n1", yes),
        ("get", "nodes", "", "n2", "node 'n1' cannot read 'n2', only its own Node object"),
        ("list", "nodes", "", "", "node 'n1' cannot read all nodes, only its own Node object"),
        ("delete", "nodes", "", "n1", ""),
        ("create", "serviceaccounts/token", "a", "default", yes),
        ("create", "serviceaccounts/token", "a", "admin", unrelated),
        ("get", "serviceaccounts", "a", "default", yes),
        ("get", "serviceaccounts", "a", "admin", unrelated),
        ("create", "certificates.k8s.io:podcertificaterequests", "a", "", yes),
        ("get", "certificates.k8s.io:podcertificaterequests", "a", "r", unrelated),
        (
            "list",
            "certificates.k8s.io:podcertificaterequests",
            "a",
            "",
            "can only list/watch podcertificaterequests with nodeName field selector",
        ),
        ("get", "pods", "a", "u", yes),
        ("get", "pods", "a", "o", unrelated),
        ("list", "pods", "", "", "can only list/watch pods with spec.nodeName field selector"),
        ("update", "pods/status", "a", "u", yes),
        ("create", "events", "a", "", yes),
        ("get", "coordination.k8s.io:leases", "kube-node-lease", "n1", yes),
        (
            "get",
            "coordination.k8s.io:leases",
            "kube-node-lease",
            "n2",
            "can only access node lease with the same name as the requesting node",
        ),
        ("get", "services", "a", "x", yes),
        ("delete", "services", "a", "x", ""),
    ] {
        let (group, rest) = resource.split_once(':').unwrap_or(("", resource));
        let (plural, subresource) = rest.split_once('/').unwrap_or((rest, ""));
        let attributes =
            Attributes { namespace, name, subresource, ..Attributes::resource(&user, verb, group, plural) };
        let decision = authorizer.decide(&attributes);
        let got = if decision.is_allowed() { yes } else { decision.reason() };
        assert_eq!(got, want, "{verb} {resource} {namespace}/{name}");
    }
    let list = Attributes { fields: &fields, ..Attributes::resource(&user, "list", "", "pods") };
    assert!(authorizer.decide(&list).is_allowed());
    let stranger = UserInfo::new("system:node:n1", &[]);
    assert_eq!(authorizer.decide(&Attributes { user: &stranger, ..list }), Decision::no_opinion(""));
}
