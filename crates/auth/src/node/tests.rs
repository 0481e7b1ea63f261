//! Every rule both ways: what a node may do, and upstream's words for what it may not.

use super::*;
use crate::testing::Objects;
use serde_json::{Value, json};

const YES: &str = "allowed";
const UNRELATED: &str = "no relationship found between node 'n1' and this object";

fn pod(name: &str, node: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name, "namespace": "a"}, "spec": spec});
    pod["spec"]["nodeName"] = json!(node);
    pod
}

fn decide(objects: Objects, fields: &[(String, String)], asked: (&str, &str, &str, &str)) -> String {
    let (verb, resource, namespace, name) = asked;
    let user = UserInfo::new("system:node:n1", &["system:nodes", "system:authenticated"]);
    let (group, rest) = resource.split_once(':').unwrap_or(("", resource));
    let (plural, subresource) = rest.split_once('/').unwrap_or((rest, ""));
    let attributes =
        Attributes { namespace, name, subresource, fields, ..Attributes::resource(&user, verb, group, plural) };
    match NodeAuthorizer::new(Arc::new(objects)).decide(&attributes) {
        decision if decision.is_allowed() => YES.to_owned(),
        decision => decision.reason().to_owned(),
    }
}

/// Rows of verb, `group:resource/subresource`, namespace, name and the answer.
fn check(objects: fn() -> Objects, rows: &[(&str, &str, &str, &str, &str)]) {
    for (verb, resource, namespace, name, want) in rows {
        let got = decide(objects(), &[], (verb, resource, namespace, name));
        assert_eq!(&got, want, "{verb} {resource} {namespace}/{name}");
    }
}

#[test]
fn only_nodes_are_meant() {
    let authorizer = NodeAuthorizer::new(Arc::new(Objects::default()));
    for (user, want) in [
        (UserInfo::new("system:node:n1", &[]), ""),
        (UserInfo::new("bob", &["system:nodes"]), "unknown node for user \"bob\""),
    ] {
        let attributes = Attributes::resource(&user, "create", "", "nodes");
        assert_eq!(authorizer.decide(&attributes), Decision::no_opinion(want));
    }
}

fn with_references() -> Objects {
    let objects = Objects::default();
    let referring = |node: &str, of: &str| {
        let named = |what: &str| format!("{of}-{what}");
        pod(
            of,
            node,
            json!({
                "serviceAccountName": named("account"), "imagePullSecrets": [{"name": named("pull")}],
                "initContainers": [{"name": "i", "env": [{"valueFrom": {"secretKeyRef": {"name": named("key")}}}]}],
                "containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": named("env")}}, {"secretRef": {"name": named("env")}}]}],
                "ephemeralContainers": [{"name": "e", "env": [{"valueFrom": {"configMapKeyRef": {"name": named("debug")}}}]}],
                "volumes": [
                    {"name": "s", "secret": {"secretName": named("volume")}}, {"name": "c", "configMap": {"name": named("volume")}},
                    {"name": "p", "projected": {"sources": [{"secret": {"name": named("projected")}}, {"configMap": {"name": named("projected")}}]}},
                    {"name": "d", "csi": {"nodePublishSecretRef": {"name": named("csi")}}}, {"name": "f", "azureFile": {"secretName": named("azure")}},
                    {"name": "a", "cephfs": {"secretRef": {"name": named("cephfs")}}}, {"name": "b", "cinder": {"secretRef": {"name": named("cinder")}}},
                    {"name": "g", "flexVolume": {"secretRef": {"name": named("flex")}}}, {"name": "h", "iscsi": {"secretRef": {"name": named("iscsi")}}},
                    {"name": "i", "rbd": {"secretRef": {"name": named("rbd")}}}, {"name": "j", "scaleIO": {"secretRef": {"name": named("scaleio")}}},
                    {"name": "k", "storageos": {"secretRef": {"name": named("storageos")}}},
                    {"name": "q", "persistentVolumeClaim": {"claimName": named("claim")}}, {"name": "e", "ephemeral": {}},
                ],
            }),
        )
    };
    objects.put("", "pods", referring("n1", "own"));
    objects.put("", "pods", referring("n2", "other"));
    let mut mirror = referring("n1", "mirror");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    objects.put("", "pods", mirror);
    objects
}

#[test]
fn what_pods_of_the_node_refer_to() {
    let secrets = [
        "pull",
        "key",
        "env",
        "volume",
        "projected",
        "csi",
        "azure",
        "cephfs",
        "cinder",
        "flex",
        "iscsi",
        "rbd",
        "scaleio",
        "storageos",
    ];
    let rows = [
        ("secrets", &secrets[..]),
        ("configmaps", &["env", "debug", "volume", "projected"]),
        ("persistentvolumeclaims", &["claim", "e"]),
        ("serviceaccounts", &["account"]),
        ("serviceaccounts/token", &["account"]),
    ];
    for (resource, names) in rows {
        let verb = if resource.ends_with("token") { "create" } else { "get" };
        for name in names {
            for (of, namespace, want) in
                [("own", "a", YES), ("own", "b", UNRELATED), ("other", "a", UNRELATED), ("mirror", "a", UNRELATED)]
            {
                let name = format!("{of}-{name}");
                let got = decide(with_references(), &[], (verb, resource, namespace, &name));
                assert_eq!(got, want, "{verb} {resource} {namespace}/{name}");
            }
        }
    }
}

#[test]
fn what_may_be_done_with_it() {
    check(
        with_references,
        &[
            ("list", "secrets", "a", "own-env", YES),
            ("watch", "configmaps", "a", "own-env", YES),
            ("list", "secrets", "a", "", "No Object name found"),
            ("list", "configmaps", "", "", "can only read namespaced object of this type"),
            ("create", "secrets", "a", "", "can only read resources of this type"),
            ("update", "secrets", "a", "own-env", "can only read resources of this type"),
            ("get", "secrets/x", "a", "own-env", "cannot read subresource"),
            ("list", "persistentvolumeclaims", "a", "own-claim", "can only get individual resources of this type"),
            ("get", "persistentvolumeclaims/x", "a", "own-claim", "cannot get subresource"),
            ("get", "persistentvolumeclaims", "a", "", "No Object name found"),
            ("update", "persistentvolumeclaims/status", "a", "own-claim", YES),
            ("patch", "persistentvolumeclaims/status", "a", "own-claim", YES),
            ("patch", "persistentvolumeclaims/status", "a", "other-claim", UNRELATED),
            ("get", "persistentvolumeclaims/status", "a", "own-claim", "can only get/update/patch this type"),
            ("get", "serviceaccounts", "", "own-account", "can only read namespaced object of this type"),
            ("list", "serviceaccounts", "a", "", "can only create tokens for individual service accounts"),
            ("delete", "serviceaccounts", "a", "own-account", "can only create tokens for individual service accounts"),
            ("create", "serviceaccounts", "a", "own-account", "can only create token subresource of serviceaccount"),
            ("create", "serviceaccounts/token", "a", "", "can only create tokens for individual service accounts"),
            (
                "get",
                "serviceaccounts/token",
                "a",
                "own-account",
                "can only create tokens for individual service accounts",
            ),
            ("create", "serviceaccounts/x", "a", "own-account", "can only create token subresource of serviceaccount"),
        ],
    );
}

fn with_volumes() -> Objects {
    let objects = Objects::default();
    for (name, node) in [("own", "n1"), ("other", "n2")] {
        let claim = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]});
        objects.put("", "pods", pod(name, node, claim));
        let secret = |what: &str| json!({"name": format!("{name}-{what}"), "namespace": "sys"});
        let unplaced = |what: &str| json!({"secretRef": {"name": format!("{name}-{what}")}});
        let sources = [
            json!({"csi": {
                "nodePublishSecretRef": secret("publish"), "nodeStageSecretRef": secret("stage"),
                "nodeExpandSecretRef": secret("expand"), "controllerPublishSecretRef": secret("attach"),
                "controllerExpandSecretRef": secret("resize"),
            }}),
            json!({"csi": {"nodeStageSecretRef": {"name": format!("{name}-unplaced")}}}),
            json!({"cinder": {"secretRef": secret("cinder")}}),
            json!({"cinder": unplaced("cinder")}),
            json!({"storageos": {"secretRef": secret("storageos")}}),
            json!({"cephfs": {"secretRef": secret("cephfs")}}),
            json!({"cephfs": unplaced("cephfs")}),
            json!({"flexVolume": unplaced("flex")}),
            json!({"iscsi": unplaced("iscsi")}),
            json!({"rbd": unplaced("rbd")}),
            json!({"scaleIO": unplaced("scaleio")}),
            json!({"azureFile": {"secretName": format!("{name}-azure"), "secretNamespace": "sys"}}),
            json!({"azureFile": {"secretName": format!("{name}-azure")}}),
        ];
        for (number, mut spec) in sources.into_iter().enumerate() {
            spec["claimRef"] = json!({"namespace": "a", "name": name});
            objects.put(
                "",
                "persistentvolumes",
                json!({"metadata": {"name": format!("{name}-{number}")}, "spec": spec}),
            );
        }
        let attachment = json!({"metadata": {"name": name}, "spec": {"nodeName": node}});
        objects.put("storage.k8s.io", "volumeattachments", attachment);
    }
    objects.put("", "persistentvolumes", json!({"metadata": {"name": "free"}, "spec": {"csi": {"nodeStageSecretRef": {"name": "free", "namespace": "a"}}}}));
    objects
}

#[test]
fn volumes_and_their_secrets() {
    check(
        with_volumes,
        &[
            ("get", "persistentvolumes", "", "own-0", YES),
            ("get", "persistentvolumes", "", "other-0", UNRELATED),
            ("get", "persistentvolumes", "", "free", UNRELATED),
            ("list", "persistentvolumes", "", "", "can only get individual resources of this type"),
            ("update", "persistentvolumes", "", "own-0", "can only get individual resources of this type"),
            ("get", "storage.k8s.io:volumeattachments", "", "own", YES),
            ("get", "storage.k8s.io:volumeattachments", "", "other", UNRELATED),
            ("get", "storage.k8s.io:volumeattachments/status", "", "own", "cannot get subresource"),
            ("list", "storage.k8s.io:volumeattachments", "", "", "can only get individual resources of this type"),
            ("get", "secrets", "a", "free", UNRELATED),
            ("get", "secrets", "sys", "own-publish", YES),
            ("get", "secrets", "sys", "own-stage", YES),
            ("get", "secrets", "sys", "own-expand", YES),
            ("get", "secrets", "sys", "other-stage", UNRELATED),
            // Only controllers need these.
            ("get", "secrets", "sys", "own-attach", UNRELATED),
            ("get", "secrets", "sys", "own-resize", UNRELATED),
            // The claim's namespace is taken where upstream takes it, and nowhere else.
            ("get", "secrets", "a", "own-unplaced", UNRELATED),
            ("get", "secrets", "sys", "own-cinder", YES),
            ("get", "secrets", "a", "own-cinder", UNRELATED),
            ("get", "secrets", "sys", "own-storageos", YES),
            ("get", "secrets", "a", "own-storageos", UNRELATED),
            ("get", "secrets", "sys", "own-cephfs", YES),
            ("get", "secrets", "a", "own-cephfs", YES),
            ("get", "secrets", "b", "own-cephfs", UNRELATED),
            ("get", "secrets", "a", "own-flex", YES),
            ("get", "secrets", "a", "own-iscsi", YES),
            ("get", "secrets", "a", "own-rbd", YES),
            ("get", "secrets", "a", "own-scaleio", YES),
            ("get", "secrets", "sys", "own-azure", YES),
            ("get", "secrets", "a", "own-azure", YES),
            ("get", "secrets", "a", "other-azure", UNRELATED),
        ],
    );
}

fn with_devices() -> Objects {
    let objects = Objects::default();
    for (name, node) in [("own", "n1"), ("other", "n2")] {
        let mut pod = pod(
            name,
            node,
            json!({"resourceClaims": [
                {"name": "direct", "resourceClaimName": format!("{name}-direct")},
                {"name": "made", "resourceClaimTemplateName": "t"},
            ]}),
        );
        pod["status"] = json!({
            "resourceClaimStatuses": [
                {"name": "made", "resourceClaimName": format!("{name}-made")},
                {"name": "direct", "resourceClaimName": format!("{name}-not-direct")},
                {"name": "unknown", "resourceClaimName": format!("{name}-unknown")},
            ],
            "extendedResourceClaimStatus": {"resourceClaimName": format!("{name}-extended")},
        });
        objects.put("", "pods", pod);
        objects.put(
            "resource.k8s.io",
            "resourceslices",
            json!({"metadata": {"name": name}, "spec": {"nodeName": node}}),
        );
        let request = json!({"metadata": {"name": name, "namespace": "a"}, "spec": {"nodeName": node}});
        objects.put("certificates.k8s.io", "podcertificaterequests", request);
    }
    objects.put("resource.k8s.io", "resourceslices", json!({"metadata": {"name": "all"}, "spec": {"allNodes": true}}));
    objects
}

#[test]
fn devices() {
    const CLAIMS: &str = "resource.k8s.io:resourceclaims";
    const SLICES: &str = "resource.k8s.io:resourceslices";
    let unselected = "can only list/watch/deletecollection resourceslices with nodeName field selector";
    check(
        with_devices,
        &[
            ("get", CLAIMS, "a", "own-direct", YES),
            ("get", CLAIMS, "a", "own-made", YES),
            ("get", CLAIMS, "a", "own-extended", YES),
            // A status says which claim was made from a template, and nothing beyond.
            ("get", CLAIMS, "a", "own-not-direct", UNRELATED),
            ("get", CLAIMS, "a", "own-unknown", UNRELATED),
            ("get", CLAIMS, "a", "other-direct", UNRELATED),
            ("get", CLAIMS, "a", "other-made", UNRELATED),
            ("list", CLAIMS, "a", "", "can only get individual resources of this type"),
            ("update", CLAIMS, "a", "own-direct", "can only get individual resources of this type"),
            ("create", SLICES, "", "", YES),
            ("get", SLICES, "", "own", YES),
            ("update", SLICES, "", "own", YES),
            ("patch", SLICES, "", "own", YES),
            ("delete", SLICES, "", "own", YES),
            ("get", SLICES, "", "other", UNRELATED),
            ("update", SLICES, "", "other", UNRELATED),
            ("patch", SLICES, "", "all", UNRELATED),
            ("delete", SLICES, "", "other", UNRELATED),
            ("list", SLICES, "", "", unselected),
            ("watch", SLICES, "", "", unselected),
            ("deletecollection", SLICES, "", "", unselected),
            ("get", "resource.k8s.io:resourceslices/x", "", "own", "cannot authorize ResourceSlice subresources"),
            (
                "approve",
                SLICES,
                "",
                "own",
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        ],
    );
}

#[test]
fn certificates_of_pods() {
    const REQUESTS: &str = "certificates.k8s.io:podcertificaterequests";
    let unselected = "can only list/watch podcertificaterequests with nodeName field selector";
    check(
        with_devices,
        &[
            ("create", REQUESTS, "a", "", YES),
            ("get", REQUESTS, "a", "own", YES),
            ("get", REQUESTS, "a", "other", UNRELATED),
            ("get", REQUESTS, "b", "own", UNRELATED),
            ("list", REQUESTS, "a", "", unselected),
            ("watch", REQUESTS, "", "", unselected),
            ("update", REQUESTS, "a", "own", "nodes may not update podcertificaterequests"),
            ("delete", REQUESTS, "a", "own", "nodes may not delete podcertificaterequests"),
            (
                "update",
                "certificates.k8s.io:podcertificaterequests/status",
                "a",
                "own",
                "nodes may not access the status subresource of PodCertificateRequests",
            ),
        ],
    );
}

#[test]
fn selections_of_what_is_the_nodes() {
    let lists = ["resource.k8s.io:resourceslices", "certificates.k8s.io:podcertificaterequests", "pods"];
    for resource in lists {
        for (field, value, allowed) in
            [("spec.nodeName", "n1", true), ("spec.nodeName", "n2", false), ("nodeName", "n1", false)]
        {
            for verb in ["list", "watch"] {
                let fields = [(field.to_owned(), value.to_owned())];
                let got = decide(with_devices(), &fields, (verb, resource, "", ""));
                assert_eq!(got == YES, allowed, "{verb} {resource} where {field} is {value}: {got}");
            }
        }
    }
}

#[test]
fn nodes_pods_leases_and_drivers() {
    const LEASES: &str = "coordination.k8s.io:leases";
    const DRIVERS: &str = "storage.k8s.io:csinodes";
    let lease = "can only access node lease with the same name as the requesting node";
    let driver = "can only access CSINode with the same name as the requesting node";
    let verbs = "can only get, create, update, patch, or delete a CSINode";
    check(
        with_devices,
        &[
            ("create", "nodes", "", "", YES),
            ("update", "nodes", "", "n1", YES),
            ("patch", "nodes", "", "n1", YES),
            ("update", "nodes/status", "", "n1", YES),
            ("patch", "nodes/status", "", "n1", YES),
            ("get", "nodes/status", "", "n1", ""),
            ("get", "nodes/proxy", "", "n1", ""),
            ("delete", "nodes", "", "n1", ""),
            ("get", "nodes", "", "n1", YES),
            ("watch", "nodes", "", "n1", YES),
            ("get", "nodes", "", "n2", "node 'n1' cannot read 'n2', only its own Node object"),
            ("list", "nodes", "", "", "node 'n1' cannot read all nodes, only its own Node object"),
            ("get", "pods", "a", "own", YES),
            ("get", "pods", "a", "other", UNRELATED),
            ("list", "pods", "a", "own", YES),
            ("watch", "pods", "a", "other", UNRELATED),
            ("list", "pods", "", "", "can only list/watch pods with spec.nodeName field selector"),
            ("create", "pods", "a", "", YES),
            ("delete", "pods", "a", "own", YES),
            ("update", "pods", "a", "own", ""),
            ("patch", "pods", "a", "own", ""),
            ("deletecollection", "pods", "a", "", ""),
            ("update", "pods/status", "a", "own", YES),
            ("patch", "pods/status", "a", "own", YES),
            ("get", "pods/status", "a", "own", ""),
            ("create", "pods/eviction", "a", "own", YES),
            ("update", "pods/eviction", "a", "own", ""),
            ("create", "pods/binding", "a", "own", ""),
            ("create", "pods/exec", "a", "own", ""),
            ("patch", "pods/ephemeralcontainers", "a", "own", ""),
            ("patch", "pods/resize", "a", "own", ""),
            ("create", LEASES, "kube-node-lease", "", YES),
            ("get", LEASES, "kube-node-lease", "n1", YES),
            ("update", LEASES, "kube-node-lease", "n1", YES),
            ("patch", LEASES, "kube-node-lease", "n1", YES),
            ("delete", LEASES, "kube-node-lease", "n1", YES),
            ("get", LEASES, "kube-node-lease", "n2", lease),
            ("update", LEASES, "kube-node-lease", "n2", lease),
            ("list", LEASES, "kube-node-lease", "n1", "can only get, create, update, patch, or delete a node lease"),
            ("get", LEASES, "kube-system", "n1", "can only access leases in the \"kube-node-lease\" system namespace"),
            ("create", DRIVERS, "", "", YES),
            ("get", DRIVERS, "", "n1", YES),
            ("patch", DRIVERS, "", "n1", YES),
            ("delete", DRIVERS, "", "n1", YES),
            ("get", DRIVERS, "", "n2", driver),
            ("list", DRIVERS, "", "", verbs),
            ("watch", DRIVERS, "", "n1", verbs),
            (
                "patch",
                "storage.k8s.io:csinodes/status",
                "",
                "n1",
                "CSINode status access requires CSIVolumeHealth feature",
            ),
            ("get", "storage.k8s.io:csinodes/x", "", "n1", "cannot authorize CSINode subresources"),
        ],
    );
}

#[test]
fn what_all_nodes_may_do_alike() {
    check(
        Objects::default,
        &[
            ("create", "events", "a", "", YES),
            ("get", "services", "a", "x", YES),
            ("delete", "services", "a", "x", ""),
            ("create", "certificates.k8s.io:certificatesigningrequests", "", "", YES),
            ("create", "authentication.k8s.io:tokenreviews", "", "", YES),
            ("get", "storage.k8s.io:csidrivers", "", "x", YES),
            ("get", "rbac.authorization.k8s.io:clusterroles", "", "admin", ""),
            ("list", "namespaces", "", "", ""),
        ],
    );
}
