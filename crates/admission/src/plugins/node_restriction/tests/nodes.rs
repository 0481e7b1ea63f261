use super::*;

fn node(name: &str, labels: Value, spec: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "spec": spec})
}

#[tokio::test]
async fn a_node_makes_only_itself() {
    let create = |object: Value| Case::create("", "nodes", "", object);
    let labelled = |labels: Value| create(node("n1", labels, json!({})));
    for (what, case, want) in [
        ("itself", labelled(json!({})), ""),
        ("another", create(node("n2", json!({}), json!({}))), "node \"n1\" is not allowed to modify node \"n2\""),
        (
            "one whose name is generated",
            create(json!({"metadata": {"generateName": "n1"}, "spec": {}})),
            "node \"n1\" is not allowed to modify node \"\"",
        ),
        (
            "with a configuration source",
            create(node("n1", json!({}), json!({"configSource": {"configMap": {}}}))),
            "node \"n1\" is not allowed to create pods with a non-nil configSource",
        ),
        ("with taints, as kubelets register", create(node("n1", json!({}), json!({"taints": [{"key": "a"}]}))), ""),
        (
            "with labels of its own",
            labelled(json!({
                "kubernetes.io/arch": "", "kubernetes.io/os": "", "kubernetes.io/hostname": "",
                "beta.kubernetes.io/arch": "", "beta.kubernetes.io/os": "", "beta.kubernetes.io/instance-type": "",
                "topology.kubernetes.io/zone": "", "topology.kubernetes.io/region": "",
                "failure-domain.beta.kubernetes.io/zone": "", "failure-domain.beta.kubernetes.io/region": "",
                "node.kubernetes.io/instance-type": "", "node.kubernetes.io/x": "", "a.node.kubernetes.io/x": "",
                "kubelet.kubernetes.io/x": "", "a.kubelet.kubernetes.io/x": "", "x": "", "example.com/x": "",
                "notkubernetes.io/x": "",
            })),
            "",
        ),
        (
            "with others' labels",
            labelled(json!({
                "node-restriction.kubernetes.io/x": "", "a.node-restriction.kubernetes.io/x": "",
                "kubernetes.io/x": "", "node-role.kubernetes.io/x": "", "k8s.io/x": "", "a.k8s.io/x": "",
            })),
            "node \"n1\" is not allowed to set the following labels: a.k8s.io/x, a.node-restriction.kubernetes.io/x, k8s.io/x, kubernetes.io/x, node-restriction.kubernetes.io/x, node-role.kubernetes.io/x",
        ),
    ] {
        check(what, case, want).await;
    }
}

#[tokio::test]
async fn a_node_changes_only_itself() {
    let labels = || json!({"kubernetes.io/x": "1", "y": "1", "kubernetes.io/os": "linux"});
    let spec =
        || json!({"taints": [{"key": "a", "effect": "NoSchedule"}], "configSource": {"configMap": {"name": "c"}}});
    let owners = || json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"}]);
    let old = || {
        let mut old = node("n1", labels(), spec());
        old["metadata"]["ownerReferences"] = owners();
        old
    };
    let update = |change: &dyn Fn(&mut Value)| {
        let mut new = old();
        change(&mut new);
        Case::update("", "nodes", "", new, old())
    };
    let cases: Vec<(&str, Case, &str)> = vec![
        ("nothing", update(&|_| {}), ""),
        ("its status", update(&|n| n["status"] = json!({"phase": "x"})).at("status"), ""),
        (
            "another's",
            Case::update("", "nodes", "", node("n2", json!({}), json!({})), node("n2", json!({}), json!({}))),
            "node \"n1\" is not allowed to modify node \"n2\"",
        ),
        (
            "another's status",
            Case::update("", "nodes", "", node("n2", json!({}), json!({})), node("n2", json!({}), json!({})))
                .at("status"),
            "node \"n1\" is not allowed to modify node \"n2\"",
        ),
        ("no configuration source any more", update(&|n| n["spec"]["configSource"] = Value::Null), ""),
        (
            "another configuration source",
            update(&|n| n["spec"]["configSource"] = json!({"configMap": {"name": "d"}})),
            "node \"n1\" is not allowed to update configSource to a new non-nil configSource",
        ),
        ("a taint less", update(&|n| n["spec"]["taints"] = json!([])), "node \"n1\" is not allowed to modify taints"),
        (
            "another taint",
            update(&|n| n["spec"]["taints"][0]["effect"] = json!("NoExecute")),
            "node \"n1\" is not allowed to modify taints",
        ),
        (
            "an owner less",
            update(&|n| n["metadata"]["ownerReferences"] = json!([])),
            "node \"n1\" is not allowed to modify ownerReferences",
        ),
        (
            "another owner",
            update(&|n| n["metadata"]["ownerReferences"][0]["uid"] = json!("2")),
            "node \"n1\" is not allowed to modify ownerReferences",
        ),
        (
            "an owner through its status",
            update(&|n| n["metadata"]["ownerReferences"][0]["uid"] = json!("2")).at("status"),
            "node \"n1\" is not allowed to modify ownerReferences",
        ),
        (
            "labels of its own",
            update(&|n| n["metadata"]["labels"] = json!({"kubernetes.io/x": "1", "z": "2", "kubernetes.io/os": "bsd"})),
            "",
        ),
        (
            "a restricted label changed",
            update(&|n| n["metadata"]["labels"]["kubernetes.io/x"] = json!("2")),
            "is not allowed to modify labels: kubernetes.io/x",
        ),
        (
            "a restricted label removed",
            update(&|n| n["metadata"]["labels"] = json!({"y": "1", "kubernetes.io/os": "linux"})),
            "is not allowed to modify labels: kubernetes.io/x",
        ),
        (
            "a restricted label added",
            update(&|n| n["metadata"]["labels"]["node-restriction.kubernetes.io/y"] = json!("")),
            "is not allowed to modify labels: node-restriction.kubernetes.io/y",
        ),
        ("deleting itself", Case::delete("", "nodes", "", "n1"), ""),
        ("deleting another", Case::delete("", "nodes", "", "n2"), "node \"n1\" is not allowed to modify node \"n2\""),
    ];
    for (what, case, want) in cases {
        check(what, case, want).await;
    }
}
