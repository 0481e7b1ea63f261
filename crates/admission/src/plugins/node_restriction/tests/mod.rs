//! Every rule both ways: what a node may do, and upstream's words for what it may not.

mod certificates;
mod nodes;
mod pods;
mod tokens;

use ferry_auth::{Decision, PolicyRule};
use ferry_meta::UserInfo;
use serde_json::json;

use super::*;
use crate::testing::{Case, Objects};

/// The node n1 with a pod and a mirror pod, and another node's pod.
fn objects() -> Objects {
    let objects = Objects::default();
    objects.put("", "nodes", json!({"metadata": {"name": "n1", "uid": "u1"}}));
    for account in ["default", "other"] {
        objects.put("", "serviceaccounts", json!({"metadata": {"name": account, "namespace": "a", "uid": account}}));
    }
    for (name, node) in [("own", "n1"), ("other", "n2")] {
        let spec = json!({"nodeName": node, "serviceAccountName": "default", "volumes": [{"name": "v", "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "t"}},
            {"serviceAccountToken": {"path": "v", "audience": "vault"}},
            {"podCertificate": {"signerName": "example.com/pods"}},
        ]}}]});
        objects.put("", "pods", json!({"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": spec}));
    }
    let mirror = json!({"name": "mirror", "namespace": "a", "uid": "mirror", "annotations": {crate::pod::MIRROR: "x"}});
    objects.put("", "pods", json!({"metadata": mirror, "spec": {"nodeName": "n1"}}));
    objects
}

/// What is granted beyond the built-in rules.
struct Granted(Vec<PolicyRule>);

#[async_trait::async_trait]
impl Authorizer for Granted {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let allowed = self.0.iter().any(|rule| rule.allows(attributes));
        if allowed { Decision::allow() } else { Decision::no_opinion("") }
    }
}

/// Nobody knows.
struct Broken;

#[async_trait::async_trait]
impl Authorizer for Broken {
    async fn authorize(&self, _attributes: &Attributes<'_>) -> Decision {
        Decision::Failed { reason: String::new(), error: "no answer".into(), denies: false }
    }
}

fn node_user() -> UserInfo {
    UserInfo::new("system:node:n1", &["system:nodes", "system:authenticated"])
}

/// `want` is empty where the request is admitted; otherwise what its refusal ends with.
async fn check(what: &str, case: Case, want: &str) {
    check_with(what, objects(), Arc::new(Granted(Vec::new())), case, want).await;
}

async fn check_with(what: &str, objects: Objects, authorizer: Arc<dyn Authorizer>, case: Case, want: &str) {
    let plugin = NodeRestriction::new(Arc::new(objects), authorizer);
    match case.by(node_user()).mutate(&plugin).await {
        Ok(_) => assert_eq!("", want, "{what}: admitted"),
        Err(error) if want.is_empty() => panic!("{what}: {}", error.0.message),
        Err(error) => {
            // Not found and not yet are no refusals: the node may try again.
            let (refused, why) = match error.0.message.split_once(" is forbidden: ") {
                Some((_, why)) => (true, why),
                None => (false, error.0.message.as_str()),
            };
            assert_eq!((why, error.code() == 403), (want, refused), "{what}");
        }
    }
}

#[tokio::test]
async fn only_nodes_are_restricted() {
    let plugin = NodeRestriction::new(Arc::new(objects()), Arc::new(Granted(Vec::new())));
    let pod = || Case::create("", "pods", "a", json!({"metadata": {"name": "p"}, "spec": {}}));
    let by = async |user: UserInfo| pod().by(user).mutate(&plugin).await.err().map(|error| error.0.message);
    for user in [UserInfo::new("bob", &[]), UserInfo::new("system:node:n1", &[])] {
        assert_eq!(by(user).await, None);
    }
    let why = by(UserInfo::new("n1", &["system:nodes"])).await;
    assert_eq!(why.as_deref(), Some("pods \"p\" is forbidden: could not determine node from user \"n1\""));
}

#[tokio::test]
async fn leases_and_csi_nodes_of_their_own() {
    let object = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
    let unlisted = json!({"metadata": {"generateName": "n1"}, "spec": {}});
    let lease = "can only access node lease with the same name as the requesting node";
    let driver = "can only access CSINode with the same name as the requesting node";
    let leases = |case: fn(&str, &str, &str, Value) -> Case, namespace: &str, object: Value| {
        case("coordination.k8s.io", "leases", namespace, object)
    };
    let nodes = |object: Value| Case::create("storage.k8s.io", "csinodes", "", object);
    let update = |group: &str, resource: &str, namespace: &str, name: &str| {
        Case::update(group, resource, namespace, object(name), object(name))
    };
    for (what, case, want) in [
        ("own lease", leases(Case::create, LEASES, object("n1")), ""),
        ("another's lease", leases(Case::create, LEASES, object("n2")), lease),
        ("a lease whose name is generated", leases(Case::create, LEASES, unlisted.clone()), lease),
        (
            "a lease elsewhere",
            leases(Case::create, "kube-system", object("n1")),
            "can only access leases in the \"kube-node-lease\" system namespace",
        ),
        ("renewing its own", update("coordination.k8s.io", "leases", LEASES, "n1"), ""),
        ("renewing another's", update("coordination.k8s.io", "leases", LEASES, "n2"), lease),
        ("deleting its own", Case::delete("coordination.k8s.io", "leases", LEASES, "n1"), ""),
        ("deleting another's", Case::delete("coordination.k8s.io", "leases", LEASES, "n2"), lease),
        ("own CSINode", nodes(object("n1")), ""),
        ("another's CSINode", nodes(object("n2")), driver),
        ("a CSINode whose name is generated", nodes(unlisted), driver),
        ("changing its own", update("storage.k8s.io", "csinodes", "", "n1"), ""),
        ("changing another's", update("storage.k8s.io", "csinodes", "", "n2"), driver),
        (
            "the status of its own",
            update("storage.k8s.io", "csinodes", "", "n1").at("status"),
            "CSIVolumeHealth feature gate is disabled",
        ),
        ("the status of another's", update("storage.k8s.io", "csinodes", "", "n2").at("status"), driver),
    ] {
        check(what, case, want).await;
    }
}

#[tokio::test]
async fn slices_of_their_own_devices() {
    let slice = |spec: Value| json!({"metadata": {"name": "s"}, "spec": spec});
    let create = |spec: Value| Case::create("resource.k8s.io", "resourceslices", "", slice(spec));
    let delete = |spec: Value| Case::delete("resource.k8s.io", "resourceslices", "", "s").of(slice(spec));
    let made = "can only create ResourceSlice with the same NodeName as the requesting node";
    let gone = "can only delete ResourceSlice with the same NodeName as the requesting node";
    for (what, case, want) in [
        ("own", create(json!({"nodeName": "n1"})), ""),
        ("another's", create(json!({"nodeName": "n2"})), made),
        ("of all nodes", create(json!({"allNodes": true})), made),
        ("deleting its own", delete(json!({"nodeName": "n1"})), ""),
        ("deleting another's", delete(json!({"nodeName": "n2"})), gone),
        ("deleting that of all nodes", delete(json!({"allNodes": true})), gone),
        // The authorizer has looked at the one that exists, and its node never changes.
        (
            "an update",
            Case::update("resource.k8s.io", "resourceslices", "", slice(json!({})), slice(json!({"nodeName": "n2"}))),
            "",
        ),
    ] {
        check(what, case, want).await;
    }
}

#[tokio::test]
async fn claim_statuses_change_by_size_and_conditions_alone() {
    let claim = |metadata: Value, status: Value| {
        let mut object = json!({"metadata": {"name": "c", "resourceVersion": "1"}, "spec": {"volumeName": "v"}});
        for (key, value) in metadata.as_object().into_iter().flatten() {
            object["metadata"][key] = value.clone();
        }
        object["status"] = status;
        object
    };
    let old = || claim(json!({"labels": {"a": "b"}}), json!({"phase": "Bound", "capacity": {"storage": "1Gi"}}));
    let status = |new: Value| Case::update("", "persistentvolumeclaims", "a", new, old()).at("status");
    let labels = json!({"labels": {"a": "b"}});
    let only = "node \"n1\" is not allowed to update fields other than status.quantity and status.conditions: ";
    let grown = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}, "conditions": [{"type": "x"}],
        "allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}});
    let mut other_volume = old();
    other_volume["spec"]["volumeName"] = json!("w");
    for (what, case, want) in [
        ("a size", status(claim(labels.clone(), grown)), String::new()),
        (
            "no revision, no size, nothing where nothing was",
            status(json!({"metadata": {"name": "c", "labels": {"a": "b"}, "finalizers": []},
                "spec": {"volumeName": "v", "selector": null}, "status": {"phase": "Bound"}})),
            String::new(),
        ),
        ("a phase", status(claim(labels.clone(), json!({"phase": "Lost"}))), format!("{only}status.phase")),
        (
            "labels",
            status(claim(json!({"labels": {"a": "c", "b": "d"}}), json!({"phase": "Bound"}))),
            format!("{only}metadata.labels.a, metadata.labels.b"),
        ),
        (
            "finalizers",
            status(claim(json!({"labels": {"a": "b"}, "finalizers": ["x/y"]}), json!({"phase": "Bound"}))),
            format!("{only}metadata.finalizers"),
        ),
        (
            "owners",
            status(claim(
                json!({"labels": {"a": "b"}, "ownerReferences": [{"name": "n1"}]}),
                json!({"phase": "Bound"}),
            )),
            format!("{only}metadata.ownerReferences"),
        ),
        ("a spec", status(other_volume), format!("{only}spec.volumeName")),
        (
            "creating a status",
            Case::create("", "persistentvolumeclaims", "a", old()).at("status"),
            "unexpected operation \"CREATE\"".into(),
        ),
        (
            "a claim itself",
            Case::update("", "persistentvolumeclaims", "a", old(), old()),
            "may only update PVC status".into(),
        ),
        ("deleting one", Case::delete("", "persistentvolumeclaims", "a", "c"), "may only update PVC status".into()),
    ] {
        check(what, case, &want).await;
    }
}

#[tokio::test]
async fn the_rest_is_the_authorizers() {
    for (group, resource) in [("", "events"), ("", "secrets"), ("apps", "deployments"), ("", "serviceaccounts")] {
        check(resource, Case::create(group, resource, "a", json!({"metadata": {"name": "x"}})), "").await;
    }
}
