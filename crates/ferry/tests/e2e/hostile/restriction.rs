//! A node that was taken over: what it asks for beyond itself and its pods, and gets refused.

use base64::Engine;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::Alone;
use crate::alone::{Apiserver, runtime};

pub const ALONE: &[Alone] =
    &[("restriction::a_node_gets_nothing_beyond_its_pods", a_node_gets_nothing_beyond_its_pods)];

/// The administrator, or somebody it speaks for.
struct Speaker<'a> {
    client: &'a kube::Client,
    node: Option<&'a str>,
}

impl Speaker<'_> {
    async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let mut request = http::Request::builder().method(method).uri(path).header("Content-Type", kind);
        if let Some(node) = self.node {
            request = request.header("Impersonate-User", format!("system:node:{node}"));
            request = request.header("Impersonate-Group", "system:nodes");
        }
        let body = kube::client::Body::from(body.to_string().into_bytes());
        let answer = self.client.send(request.body(body).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn makes(&self, path: &str, body: Value) -> Value {
        let (code, answer) = self.send("POST", path, &body).await;
        assert!((200..300).contains(&code), "POST {path}: {code} {answer}");
        answer
    }

    async fn is_refused(&self, method: &str, path: &str, body: Value, code: u16, why: &str) {
        let (got, answer) = self.send(method, path, &body).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(got == code && message.contains(why), "{method} {path}: {got} {message}, not {code} …{why}…");
    }
}

fn pod(name: &str, node: &str, projected: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": node, "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "projected": {"sources": projected}}]}})
}

/// A request for these common names.
fn signing_request(names: &[&str]) -> rcgen::CertificateSigningRequest {
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    for (number, name) in names.iter().enumerate() {
        if number == 0 {
            parameters.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        }
        // Types are unique in rcgen's names; spelled as a number, the same type may come twice.
        let kind = if number == 0 { rcgen::DnType::CommonName } else { rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]) };
        parameters.distinguished_name.push(kind, *name);
    }
    let key = rcgen::KeyPair::generate().unwrap();
    parameters.serialize_request(&key).unwrap()
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn a_node_gets_nothing_beyond_its_pods() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Apiserver::start(folder.path(), &[]);
    runtime().block_on(async {
        let client = server.client().await;
        let admin = Speaker { client: &client, node: None };
        let node = Speaker { client: &client, node: Some("n1") };
        for name in ["n1", "n2"] {
            admin.makes("/api/v1/nodes", json!({"metadata": {"name": name}})).await;
        }
        let account =
            admin.makes("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
        let mounts = json!([{"serviceAccountToken": {"path": "t", "audience": "vault"}}, {"podCertificate": {
            "signerName": "example.com/pods", "keyType": "ED25519", "credentialBundlePath": "b"}}]);
        let pods = "/api/v1/namespaces/default/pods";
        let own = admin.makes(pods, pod("own", "n1", mounts.clone())).await;
        let other = admin.makes(pods, pod("other", "n2", mounts)).await;
        own_object(&node).await;
        tokens(&node, &own, &other).await;
        pod_certificates(&admin, &node, &own, &other, &account).await;
        signing(&node).await;
        statuses(&admin, &node).await;
        mirrors(&admin, &node).await;
    });
    server.end();
}

async fn own_object(node: &Speaker<'_>) {
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "1"}]);
    let owned = json!({"metadata": {"ownerReferences": owner}});
    let why = "node \"n1\" is not allowed to modify ownerReferences";
    node.is_refused("PATCH", "/api/v1/nodes/n1", owned.clone(), 403, why).await;
    node.is_refused("PATCH", "/api/v1/nodes/n1/status", owned, 403, why).await;
    // The generated name would begin with the node's own.
    let generated = json!({"metadata": {"generateName": "n1"}});
    node.is_refused("POST", "/api/v1/nodes", generated, 403, "is not allowed to modify node").await;
    let (code, _) = node.send("PATCH", "/api/v1/nodes/n1", &json!({"metadata": {"labels": {"own": "label"}}})).await;
    assert_eq!(code, 200);
    // Nobody who asks for a node's rights is told that the list is all of them.
    let review = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = node.makes(review, json!({"spec": {"namespace": "default"}})).await;
    let why = "node authorizer does not support user rule resolution";
    assert_eq!((&answer["status"]["incomplete"], &answer["status"]["evaluationError"]), (&json!(true), &json!(why)));
}

async fn tokens(node: &Speaker<'_>, own: &Value, other: &Value) {
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let asked = |pod: &Value, audiences: Value| {
        let meta = &pod["metadata"];
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]});
        json!({"spec": {"boundObjectRef": bound, "audiences": audiences}})
    };
    // Both are mounted: one by the pod, the other, for the API itself, by the ServiceAccount plug-in.
    for audiences in [json!(["vault"]), json!([])] {
        let answer = node.makes(path, asked(own, audiences)).await;
        assert!(answer["status"]["token"].is_string(), "{answer}");
    }
    let why = "system:node:n1 is not authorized to request tokens for audience \"bank\"";
    node.is_refused("POST", path, asked(own, json!(["bank"])), 403, why).await;
    let why = "node may only request 0 or 1 audiences";
    node.is_refused("POST", path, asked(own, json!(["vault", "bank"])), 403, why).await;
    let why = "node requested token bound to a pod scheduled on a different node";
    node.is_refused("POST", path, asked(other, json!(["vault"])), 403, why).await;
}

async fn pod_certificates(admin: &Speaker<'_>, node: &Speaker<'_>, own: &Value, other: &Value, account: &Value) {
    let (_, object) = admin.send("GET", "/api/v1/nodes/n1", &Value::Null).await;
    let path = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
    let asked = |pod: &Value, signer: &str| {
        json!({"metadata": {"generateName": "r-"}, "spec": {
            "nodeName": "n1", "nodeUID": object["metadata"]["uid"], "signerName": signer,
            "podName": pod["metadata"]["name"], "podUID": pod["metadata"]["uid"],
            "serviceAccountName": "default", "serviceAccountUID": account["metadata"]["uid"], "maxExpirationSeconds": 86400,
            "stubPKCS10Request": encoded(signing_request(&[]).der())}})
    };
    let why = "pod \"default/other\" is not running on node \"n1\" named in the PodCertificateRequest";
    node.is_refused("POST", path, asked(other, "example.com/pods"), 403, why).await;
    let why = "pod \"default/own\" does not mount a podCertificate projected volume for signer \"example.com/bank\"";
    node.is_refused("POST", path, asked(own, "example.com/bank"), 403, why).await;
    let mut another = asked(own, "example.com/pods");
    another["spec"]["nodeName"] = json!("n2");
    node.is_refused("POST", path, another, 403, "which is not the requesting node \"n1\"").await;
    node.makes(path, asked(own, "example.com/pods")).await;
}

async fn signing(node: &Speaker<'_>) {
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let asked = |names: &[&str]| {
        json!({"metadata": {"generateName": "r-"}, "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "request": encoded(signing_request(names).pem().unwrap()),
            "usages": ["digital signature", "client auth"]}})
    };
    let why = "can only create a node CSR with CN=system:node:n1";
    node.is_refused("POST", path, asked(&["system:node:n2"]), 403, why).await;
    node.is_refused("POST", path, asked(&["system:node:n1", "system:kube-controller-manager"]), 403, why).await;
    node.makes(path, asked(&["system:node:n1"])).await;
}

async fn statuses(admin: &Speaker<'_>, node: &Speaker<'_>) {
    let status = "/api/v1/namespaces/default/pods/own/status";
    for (patch, why) in [
        (
            json!({"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "d"}]}),
            "cannot update resource claim statues",
        ),
        (
            json!({"extendedResourceClaimStatus": {"resourceClaimName": "d", "requestMappings": []}}),
            "cannot update extended resource claim status",
        ),
        (
            json!({"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "d"}]}),
            "cannot update node allocatable resource claim statuses",
        ),
    ] {
        node.is_refused("PATCH", status, json!({"status": patch}), 403, why).await;
    }
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    admin.makes(claims, json!({"metadata": {"name": "c"}, "spec": spec})).await;
    let mut mounting = pod("mounting", "n1", json!([]));
    mounting["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    admin.makes("/api/v1/namespaces/default/pods", mounting).await;
    let path = format!("{claims}/c/status");
    let (code, answer) = node.send("PATCH", &path, &json!({"status": {"capacity": {"storage": "1Gi"}}})).await;
    assert_eq!(code, 200, "{answer}");
    let only = "is not allowed to update fields other than status.quantity and status.conditions";
    node.is_refused("PATCH", &path, json!({"status": {"phase": "Lost"}}), 403, only).await;
    node.is_refused("PATCH", &path, json!({"metadata": {"labels": {"a": "b"}}}), 403, only).await;
}

async fn mirrors(admin: &Speaker<'_>, node: &Speaker<'_>) {
    let (_, object) = admin.send("GET", "/api/v1/nodes/n1", &Value::Null).await;
    let pods = "/api/v1/namespaces/default/pods";
    let mirror = |name: &str| {
        json!({"metadata": {"name": name, "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": object["metadata"]["uid"], "controller": true}]},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}})
    };
    node.makes(pods, mirror("m")).await;
    let mut elsewhere = mirror("e");
    elsewhere["spec"]["nodeName"] = json!("n2");
    let why = "node \"n1\" can only create pods with spec.nodeName set to itself";
    node.is_refused("POST", pods, elsewhere, 403, why).await;
    let mut unowned = mirror("u");
    unowned["metadata"]["ownerReferences"] = json!([]);
    let why = "node \"n1\" can only create pods with an owner reference set to itself";
    node.is_refused("POST", pods, unowned, 403, why).await;
    let mut certified = mirror("p");
    certified["spec"]["volumes"] = json!([{"name": "v", "csi": {"driver": "d"}}]);
    let why = "node \"n1\" can not create pods that reference csidrivers (via CSI volumes)";
    node.is_refused("POST", pods, certified, 403, why).await;
    // Nobody makes a mirror of a pod that is none, nor the other way round.
    let annotated = |value: Value| json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": value}}});
    let change = "may not remove or update mirror pod annotation";
    for path in [format!("{pods}/m"), format!("{pods}/m/status")] {
        admin.is_refused("PATCH", &path, annotated(json!("y")), 422, change).await;
        admin.is_refused("PATCH", &path, annotated(Value::Null), 422, change).await;
    }
    for path in [format!("{pods}/own"), format!("{pods}/own/status")] {
        admin.is_refused("PATCH", &path, annotated(json!("x")), 422, "may not add mirror pod annotation").await;
    }
    let debugged = json!({"spec": {"ephemeralContainers": [{"name": "d", "image": "i"}]}});
    let why = "static pods do not support ephemeral containers";
    admin.is_refused("PATCH", &format!("{pods}/m/ephemeralcontainers"), debugged, 422, why).await;
    let mut unbound = mirror("f");
    unbound["spec"]["nodeName"] = Value::Null;
    let why = "must set spec.nodeName if mirror pod annotation is set";
    admin.is_refused("POST", pods, unbound, 422, why).await;
}
