use super::*;
use crate::testing::{Case, Objects};
use ferry_meta::UserInfo;
use serde_json::json;

fn plugin() -> NodeRestriction {
    let objects = Objects::default();
    objects.put("", "nodes", json!({"metadata": {"name": "n1", "uid": "u1"}}));
    for (name, node) in [("own", "n1"), ("other", "n2")] {
        objects.put(
            "",
            "pods",
            json!({"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": {"nodeName": node}}),
        );
    }
    NodeRestriction::new(Arc::new(objects))
}

async fn check(case: Case, want: Option<&str>) {
    let user = UserInfo::new("system:node:n1", &["system:nodes"]);
    let got = case.by(user).mutate(&plugin()).await.err().map(|error| error.0.message);
    assert_eq!(got.as_deref(), want);
}

#[tokio::test]
async fn a_node_writes_only_itself() {
    let node = |name: &str, labels: Value| json!({"metadata": {"name": name, "labels": labels}});
    let create = |node: Value| Case::create("", "nodes", "", node);
    check(create(node("n1", json!({"kubernetes.io/arch": "amd64", "kubelet.kubernetes.io/x": "1"}))), None).await;
    check(
        create(node("n2", json!({}))),
        Some("nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\""),
    )
    .await;
    check(
        create(node("n1", json!({"node-restriction.kubernetes.io/x": "1", "foo.k8s.io/y": ""}))),
        Some("nodes \"n1\" is forbidden: node \"n1\" is not allowed to set the following labels: foo.k8s.io/y, node-restriction.kubernetes.io/x"),
    )
    .await;
    let update = |new: Value| Case::update("", "nodes", "", new, node("n1", json!({})));
    check(update(node("n1", json!({"example.com/x": "1"}))), None).await;
    check(
        update(node("n1", json!({"foo.kubernetes.io/x": "1"}))),
        Some("nodes \"n1\" is forbidden: is not allowed to modify labels: foo.kubernetes.io/x"),
    )
    .await;
    let mut tainted = node("n1", json!({}));
    tainted["spec"] = json!({"taints": [{"key": "a", "effect": "NoSchedule"}]});
    check(update(tainted), Some("nodes \"n1\" is forbidden: node \"n1\" is not allowed to modify taints")).await;
}

#[tokio::test]
async fn a_node_makes_only_its_own_mirror_pods() {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": true});
    let pod = |node: &str, annotations: Value, owners: Value, spec: Value| {
        let mut pod =
            json!({"metadata": {"name": "m", "annotations": annotations, "ownerReferences": owners}, "spec": spec});
        pod["spec"]["nodeName"] = json!(node);
        Case::create("", "pods", "a", pod)
    };
    let mirror = json!({MIRROR: "x"});
    check(pod("n1", mirror.clone(), json!([owner]), json!({})), None).await;
    for (case, want) in [
        (
            pod("n1", json!({}), json!([]), json!({})),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods",
        ),
        (
            pod("n2", mirror.clone(), json!([]), json!({})),
            "node \"n1\" can only create pods with spec.nodeName set to itself",
        ),
        (
            pod("n1", mirror.clone(), json!([]), json!({})),
            "node \"n1\" can only create pods with an owner reference set to itself",
        ),
        (
            pod("n1", mirror.clone(), json!([owner]), json!({"serviceAccountName": "x"})),
            "node \"n1\" can not create pods that reference a service account",
        ),
        (
            pod("n1", mirror.clone(), json!([owner]), json!({"volumes": [{"secret": {}}]})),
            "node \"n1\" can not create pods that reference secrets",
        ),
    ] {
        check(case, Some(&format!("pods \"m\" is forbidden: {want}"))).await;
    }
}

#[tokio::test]
async fn a_node_touches_only_its_own_pods_and_leases() {
    check(Case::delete("", "pods", "a", "own"), None).await;
    check(
        Case::delete("", "pods", "a", "other"),
        Some("pods \"other\" is forbidden: node \"n1\" can only delete pods with spec.nodeName set to itself"),
    )
    .await;
    let old = json!({"metadata": {"name": "other"}, "spec": {"nodeName": "n2"}});
    check(
        Case::update("", "pods", "a", old.clone(), old).at("status"),
        Some("pods \"other\" is forbidden: node \"n1\" can only update pod status for pods with spec.nodeName set to itself"),
    )
    .await;
    let lease = |name: &str| {
        Case::create("coordination.k8s.io", "leases", "kube-node-lease", json!({"metadata": {"name": name}}))
    };
    check(lease("n1"), None).await;
    check(lease("n2"), Some("leases.coordination.k8s.io \"n2\" is forbidden: can only access node lease with the same name as the requesting node")).await;
    let token = |reference: Value| {
        Case::create("", "serviceaccounts", "a", json!({"spec": {"boundObjectRef": reference}}))
            .named("default")
            .at("token")
    };
    check(
        token(Value::Null),
        Some("serviceaccounts \"default\" is forbidden: node requested token not bound to a pod"),
    )
    .await;
    let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name});
    check(token(pod("own")), None).await;
    check(token(pod("other")), Some("serviceaccounts \"default\" is forbidden: node requested token bound to a pod scheduled on a different node")).await;
}
