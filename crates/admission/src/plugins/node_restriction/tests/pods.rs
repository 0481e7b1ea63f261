use super::*;
use crate::pod::MIRROR;

fn owner() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": true})
}

fn mirror(change: impl Fn(&mut Value)) -> Case {
    let mut pod = json!({"metadata": {"name": "m", "annotations": {MIRROR: "x"}, "ownerReferences": [owner()]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]}});
    change(&mut pod);
    Case::create("", "pods", "a", pod)
}

#[tokio::test]
async fn a_node_makes_only_its_own_mirror_pods() {
    let owned = |change: fn(&mut Value)| {
        let mut owner = owner();
        change(&mut owner);
        mirror(move |pod| pod["metadata"]["ownerReferences"] = json!([owner.clone()]))
    };
    let another = "node \"n1\" can only create pods with an owner reference set to itself";
    for (what, case, want) in [
        ("a mirror pod", mirror(|_| {}), ""),
        (
            "another pod",
            mirror(|pod| pod["metadata"]["annotations"] = json!({})),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods",
        ),
        (
            "on another node",
            mirror(|pod| pod["spec"]["nodeName"] = json!("n2")),
            "node \"n1\" can only create pods with spec.nodeName set to itself",
        ),
        (
            "on no node",
            mirror(|pod| pod["spec"]["nodeName"] = Value::Null),
            "node \"n1\" can only create pods with spec.nodeName set to itself",
        ),
        ("without an owner", mirror(|pod| pod["metadata"]["ownerReferences"] = json!([])), another),
        (
            "with two owners",
            mirror(|pod| pod["metadata"]["ownerReferences"] = json!([owner(), owner()])),
            "node \"n1\" can only create pods with a single owner reference set to itself",
        ),
        ("owned by another version", owned(|owner| owner["apiVersion"] = json!("v2")), another),
        ("owned by another kind", owned(|owner| owner["kind"] = json!("Pod")), another),
        ("owned by another node", owned(|owner| owner["name"] = json!("n2")), another),
        (
            "not controlled by it",
            owned(|owner| owner["controller"] = Value::Null),
            "node \"n1\" can only create pods with a controller owner reference set to itself",
        ),
        ("not blocking", owned(|owner| owner["blockOwnerDeletion"] = json!(false)), ""),
        (
            "blocking",
            owned(|owner| owner["blockOwnerDeletion"] = json!(true)),
            "node \"n1\" must not set blockOwnerDeletion on an owner reference",
        ),
        (
            "owned by a node that was",
            owned(|owner| owner["uid"] = json!("u0")),
            "node n1 UID mismatch: expected u0 got u1",
        ),
    ] {
        check(what, case, want).await;
    }
    let objects = objects();
    objects.remove("", "nodes", "", "n1");
    let nobody = Arc::new(Granted(Vec::new()));
    check_with("owned by no node", objects, nobody, mirror(|_| {}), "node \"n1\" not found").await;
}

#[tokio::test]
async fn a_mirror_pod_refers_to_nothing() {
    let volume = |volume: Value| mirror(move |pod| pod["spec"]["volumes"] = json!([volume]));
    let projected = |source: Value| volume(json!({"name": "v", "projected": {"sources": [source]}}));
    let container = |list: &'static str, container: Value| mirror(move |pod| pod["spec"][list] = json!([container]));
    let cases: Vec<(Case, &str)> = vec![
        (mirror(|pod| pod["spec"]["serviceAccountName"] = json!("x")), "serviceaccounts"),
        (mirror(|pod| pod["spec"]["imagePullSecrets"] = json!([{"name": "x"}])), "secrets"),
        (mirror(|pod| pod["spec"]["resourceClaims"] = json!([{"name": "x"}])), "resourceclaims"),
        (container("containers", json!({"envFrom": [{"secretRef": {"name": "x"}}]})), "secrets"),
        (container("initContainers", json!({"env": [{"valueFrom": {"secretKeyRef": {"name": "x"}}}]})), "secrets"),
        (container("ephemeralContainers", json!({"envFrom": [{"configMapRef": {"name": "x"}}]})), "configmaps"),
        (container("containers", json!({"env": [{"valueFrom": {"configMapKeyRef": {"name": "x"}}}]})), "configmaps"),
        (container("containers", json!({"env": [{"valueFrom": {"fieldRef": {"fieldPath": "x"}}}]})), ""),
        (volume(json!({"secret": {"secretName": "x"}})), "secrets"),
        (volume(json!({"configMap": {"name": "x"}})), "configmaps"),
        (volume(json!({"csi": {"driver": "x"}})), "csidrivers (via CSI volumes)"),
        (volume(json!({"csi": {"driver": "x", "nodePublishSecretRef": {"name": "x"}}})), "secrets"),
        (volume(json!({"glusterfs": {}})), "endpoints (via glusterFS volumes)"),
        (volume(json!({"persistentVolumeClaim": {"claimName": "x"}})), "persistentvolumeclaims"),
        (volume(json!({"ephemeral": {}})), "persistentvolumeclaims (via ephemeral volumes)"),
        (volume(json!({"azureFile": {"shareName": "x"}})), "secrets (via azureFile volumes)"),
        (volume(json!({"cephfs": {"secretRef": {"name": "x"}}})), "secrets"),
        (volume(json!({"cephfs": {}})), ""),
        (volume(json!({"emptyDir": {}})), ""),
        (volume(json!({"hostPath": {"path": "/"}})), ""),
        (volume(json!({"image": {"reference": "x"}})), ""),
        (volume(json!({"nfs": {}})), ""),
        (volume(json!({"downwardAPI": {}})), ""),
        (projected(json!({"secret": {"name": "x"}})), "secrets"),
        (projected(json!({"configMap": {"name": "x"}})), "configmaps"),
        (projected(json!({"serviceAccountToken": {}})), "serviceaccounts (via projected volumes)"),
        (projected(json!({"clusterTrustBundle": {}})), "clustertrustbundles"),
        (projected(json!({"podCertificate": {}})), "podcertificates"),
        (projected(json!({"downwardAPI": {}})), ""),
    ];
    for (number, (case, want)) in cases.into_iter().enumerate() {
        let why = match want {
            "" => String::new(),
            what => format!("node \"n1\" can not create pods that reference {what}"),
        };
        check(&format!("reference {number}"), case, &why).await;
    }
    let unknown = "error checking mirror pod for API references: unknown ";
    let why = format!("{unknown}volume type for volume  \"v\"");
    check("a new kind of volume", volume(json!({"name": "v", "new": {}})), &why).await;
    let why = format!("{unknown}source for projected volume \"v\"");
    check("a new kind of source", projected(json!({"new": {}})), &why).await;
}

#[tokio::test]
async fn a_node_deletes_and_evicts_only_its_own_pods() {
    let evict = |name: &str, body: Value| Case::create("", "pods", "a", body).named(name).at("eviction");
    let named = |name: &str| json!({"metadata": {"name": name}});
    let pod = || named("own");
    for (what, case, want) in [
        ("deleting its own", Case::delete("", "pods", "a", "own"), ""),
        (
            "deleting another's",
            Case::delete("", "pods", "a", "other"),
            "node \"n1\" can only delete pods with spec.nodeName set to itself",
        ),
        ("deleting what is not there", Case::delete("", "pods", "a", "none"), "pod \"none\" not found"),
        ("evicting its own", evict("own", named("own")), ""),
        (
            "evicting another's",
            evict("other", named("own")),
            "node n1 can only evict pods with spec.nodeName set to itself",
        ),
        ("evicting by the object's name", evict("", named("own")), ""),
        (
            "evicting another's by the object's name",
            evict("", named("other")),
            "node n1 can only evict pods with spec.nodeName set to itself",
        ),
        ("evicting nobody", evict("", json!({})), "could not determine pod from request data"),
        ("evicting what is not there", evict("none", named("none")), "pod \"none\" not found"),
        (
            "updating an eviction",
            Case::update("", "pods", "a", pod(), pod()).at("eviction"),
            "unexpected operation UPDATE",
        ),
        (
            "changing a pod",
            Case::update("", "pods", "a", pod(), pod()),
            "unexpected operation \"UPDATE\", node \"n1\" can only create and delete mirror pods",
        ),
        (
            "another subresource",
            Case::update("", "pods", "a", pod(), pod()).at("ephemeralcontainers"),
            "unexpected pod subresource \"ephemeralcontainers\", only 'status' and 'eviction' are allowed",
        ),
        (
            "a binding",
            Case::create("", "pods", "a", pod()).at("binding"),
            "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed",
        ),
    ] {
        check(what, case, want).await;
    }
}

#[tokio::test]
async fn a_node_writes_the_status_of_its_own_pods() {
    let old = |node: &str| {
        json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"nodeName": node}, "status": {
            "phase": "Pending",
            "resourceClaimStatuses": [{"name": "c", "resourceClaimName": "d"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": []},
            "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "f"}],
        }})
    };
    let status = |change: &dyn Fn(&mut Value)| {
        let mut new = old("n1");
        change(&mut new);
        Case::update("", "pods", "a", new, old("n1")).at("status")
    };
    let claims = "node \"n1\" cannot update resource claim statues";
    let extended = "node \"n1\" cannot update extended resource claim status";
    let allocatable = "node \"n1\" cannot update node allocatable resource claim statuses";
    let cases: Vec<(&str, Case, &str)> = vec![
        ("a phase", status(&|p| p["status"]["phase"] = json!("Running")), ""),
        (
            "another's",
            Case::update("", "pods", "a", old("n1"), old("n2")).at("status"),
            "node \"n1\" can only update pod status for pods with spec.nodeName set to itself",
        ),
        (
            "another's for itself",
            Case::update("", "pods", "a", old("n2"), old("n2")).at("status"),
            "node \"n1\" can only update pod status for pods with spec.nodeName set to itself",
        ),
        (
            "a label",
            status(&|p| p["metadata"]["labels"]["a"] = json!("c")),
            "node \"n1\" cannot update labels through pod status",
        ),
        (
            "no labels",
            status(&|p| p["metadata"]["labels"] = Value::Null),
            "node \"n1\" cannot update labels through pod status",
        ),
        ("no claims", status(&|p| p["status"]["resourceClaimStatuses"] = json!([])), claims),
        (
            "another claim",
            status(&|p| p["status"]["resourceClaimStatuses"][0]["resourceClaimName"] = json!("x")),
            claims,
        ),
        ("another entry", status(&|p| p["status"]["resourceClaimStatuses"][0]["name"] = json!("x")), claims),
        ("no extended claim", status(&|p| p["status"]["extendedResourceClaimStatus"] = Value::Null), extended),
        (
            "another extended claim",
            status(&|p| p["status"]["extendedResourceClaimStatus"]["resourceClaimName"] = json!("x")),
            extended,
        ),
        (
            "another mapping",
            status(&|p| {
                p["status"]["extendedResourceClaimStatus"]["requestMappings"] = json!([{"containerName": "c"}])
            }),
            extended,
        ),
        (
            "no allocatable claims",
            status(&|p| p["status"]["nodeAllocatableResourceClaimStatuses"] = json!([])),
            allocatable,
        ),
        (
            "another allocatable claim",
            status(&|p| p["status"]["nodeAllocatableResourceClaimStatuses"][0]["containers"] = json!(["c"])),
            allocatable,
        ),
        ("creating one", Case::create("", "pods", "a", old("n1")).at("status"), "unexpected operation \"CREATE\""),
    ];
    for (what, case, want) in cases {
        check(what, case, want).await;
    }
}
