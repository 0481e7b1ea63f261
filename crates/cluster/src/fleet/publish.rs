//! What a server writes so that machines can join: who may read `cluster-info`, who may ask for a node's certificates, and the
//! cluster's settings. The names are kubeadm's where it has them, so that `kubeadm join` finds what it looks for.

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_client::Api;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{gateway, local_path};

use super::certificates::{GATEWAYS, PROXIES};
use super::settings::{NAMESPACE, Settings};

/// Whoever shows a bootstrap token that was made for joining.
pub const JOINING: &str = "system:bootstrappers:kubeadm:default-node-token";
/// Whoever shows one that was made for a server: it has no right but to read what is handed over to it.
pub const JOINING_SERVERS: &str = "system:bootstrappers:ferry:servers";
const NODES: &str = "system:nodes";

/// Writes all of it; may be repeated at any time.
pub async fn publish(client: &Client, server: &str, ca: &str, settings: &Settings, has_gateway: bool) -> Result<()> {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "users": [], "contexts": [], "current-context": "", "preferences": {},
        "clusters": [{ "name": "", "cluster": { "server": server, "certificate-authority-data": STANDARD.encode(ca) } }],
    });
    let public = Api::<ConfigMap>::namespaced(client.clone(), "kube-public");
    let info = map("kube-public", "cluster-info", "kubeconfig", &format!("{kubeconfig:#}\n"));
    apply(&public, &info).await?;
    let anonymous = json!([{ "kind": "User", "name": "system:anonymous", "apiGroup": "rbac.authorization.k8s.io" }]);
    let get = &["get"][..];
    readable(client, "kube-public", "kubeadm:bootstrap-signer-clusterinfo", "cluster-info", get, &anonymous).await?;

    let system = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let endpoint = server.trim_start_matches("https://");
    for (name, key, text) in settings.documents(endpoint) {
        apply(&system, &map(NAMESPACE, name, key, &text)).await?;
        let role = if name == super::settings::CLUSTER {
            "kubeadm:nodes-kubeadm-config".into()
        } else {
            format!("kubeadm:{name}")
        };
        readable(client, NAMESPACE, &role, name, get, &groups(&[JOINING, NODES, PROXIES])).await?;
    }
    let follow = &["get", "list", "watch"];
    readable(client, NAMESPACE, "ferry:node-dns", "coredns", follow, &groups(&[PROXIES])).await?;

    let roles = Api::<ClusterRole>::all(client.clone());
    apply(
        &roles,
        &cluster_role(
            "kubeadm:get-nodes",
            &json!([
                { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] },
            ]),
        ),
    )
    .await?;
    // A DNS server needs no more than a proxy, and namespaces.
    apply(
        &roles,
        &cluster_role(
            "ferry:node-dns",
            &json!([
                { "apiGroups": [""], "resources": ["services", "namespaces", "nodes"], "verbs": ["list", "watch"] },
                { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
            ]),
        ),
    )
    .await?;
    // To enforce policies a node has to know the labels and addresses of the pods of all nodes.
    apply(
        &roles,
        &cluster_role(
            "ferry:node-policies",
            &json!([
                { "apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["list", "watch"] },
                { "apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"] },
                { "apiGroups": [ferry_policy::GROUP], "resources": [ferry_policy::PLURAL], "verbs": ["list", "watch"] },
                { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
                    "resourceNames": [format!("{}.{}", ferry_policy::PLURAL, ferry_policy::GROUP)], "verbs": ["list", "watch"] },
            ]),
        ),
    )
    .await?;
    apply(&roles, &cluster_role(gateway::ROLE, &gateway::rules())).await?;
    apply(&roles, &cluster_role(local_path::ROLE, &ferry_controllers::local_path::rules())).await?;
    let certificates = "system:certificates.k8s.io:certificatesigningrequests";
    let bindings = [
        ("kubeadm:get-nodes", "kubeadm:get-nodes".to_owned(), JOINING),
        ("kubeadm:kubelet-bootstrap", "system:node-bootstrapper".to_owned(), JOINING),
        ("kubeadm:node-autoapprove-bootstrap", format!("{certificates}:nodeclient"), JOINING),
        ("kubeadm:node-autoapprove-certificate-rotation", format!("{certificates}:selfnodeclient"), NODES),
        ("ferry:node-proxies", "system:node-proxier".to_owned(), PROXIES),
        ("ferry:node-dns", "ferry:node-dns".to_owned(), PROXIES),
        ("ferry:node-policies", "ferry:node-policies".to_owned(), PROXIES),
    ];
    let api = Api::<ClusterRoleBinding>::all(client.clone());
    for (name, role, group) in bindings {
        apply(&api, &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": groups(&[group]),
        }))
        .await?;
    }
    for (role, namespace, account) in [
        (gateway::ROLE, gateway::NAMESPACE, gateway::ACCOUNT),
        (local_path::ROLE, NAMESPACE, ferry_controllers::local_path::ACCOUNT),
    ] {
        apply(&api, &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": role },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
        }))
        .await?;
    }
    if has_gateway {
        gateways_of_nodes(client).await?;
    }
    Ok(())
}

/// What the gateways of joined nodes may read: routes, and of Secrets the copies that are made for them.
async fn gateways_of_nodes(client: &Client) -> Result<()> {
    let role = "ferry:node-gateways";
    apply(&Api::<ClusterRole>::all(client.clone()), &cluster_role(role, &gateway::node_rules())).await?;
    let api = Api::<ClusterRoleBinding>::all(client.clone());
    apply(&api, &binding("ClusterRoleBinding", &json!({ "name": role }), ("ClusterRole", role), &groups(&[GATEWAYS])))
        .await?;
    let keys = ferry_gateway::KEYS_NAMESPACE;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": keys } });
    apply(&Api::<Namespace>::all(client.clone()), &namespace).await?;
    let writer = json!([{ "kind": "ServiceAccount", "name": gateway::ACCOUNT, "namespace": gateway::NAMESPACE }]);
    for (name, verbs, subjects) in [
        (role, &["list", "watch"][..], groups(&[GATEWAYS])),
        (gateway::ROLE, &["get", "list", "create", "update", "delete"], writer),
    ] {
        let metadata = json!({ "name": name, "namespace": keys });
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
            "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": verbs }],
        });
        apply(&Api::<Role>::namespaced(client.clone(), keys), &role).await?;
        let bound = binding("RoleBinding", &metadata, ("Role", name), &subjects);
        apply(&Api::<RoleBinding>::namespaced(client.clone(), keys), &bound).await?;
    }
    Ok(())
}

fn binding(kind: &str, metadata: &Value, (role_kind, role): (&str, &str), subjects: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role },
        "subjects": subjects,
    })
}

fn map(namespace: &str, name: &str, key: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": namespace },
        "data": { key: text },
    })
}

fn groups(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io" })).collect()
}

fn cluster_role(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules,
    })
}

/// Lets these subjects read one ConfigMap.
async fn readable(
    client: &Client,
    namespace: &str,
    role: &str,
    map: &str,
    verbs: &[&str],
    subjects: &Value,
) -> Result<()> {
    apply(&Api::<Role>::namespaced(client.clone(), namespace), &json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": role, "namespace": namespace },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [map], "verbs": verbs }],
    }))
    .await?;
    apply(&Api::<RoleBinding>::namespaced(client.clone(), namespace), &json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": role, "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role },
        "subjects": subjects,
    }))
    .await
}

async fn apply<K>(api: &Api<K>, object: &Value) -> Result<()>
where
    K: kube::Resource + ferry_client::Wire,
{
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    api.patch(name, &PatchParams::apply("ferry").force(), &Patch::Apply(object))
        .await
        .map(|_| ())
        .with_context(|| format!("cannot write the {} {name} that joining machines need", object["kind"]))
}
