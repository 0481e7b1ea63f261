//! Certificates asked for, approved, signed and forgotten; tokens that sign, and that end.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ferry_client::{Api, Clock};
use ferry_meta::UserInfo;
use ferry_testbed::Kit;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

/// A request as a node makes it.
fn request(name: &str, signer: &str, common_name: &str, organization: &str, usages: &[&str]) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.distinguished_name.push(DnType::OrganizationName, organization);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    json!({ "metadata": { "name": name }, "spec": {
        "request": k8s_openapi::ByteString(pem.into_bytes()), "signerName": signer, "usages": usages,
    } })
}

fn conditions(request: &CertificateSigningRequest) -> Vec<String> {
    let list = request.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    list.into_iter().map(|condition| format!("{}/{}", condition.type_, condition.reason.unwrap_or_default())).collect()
}

fn certificate(request: &CertificateSigningRequest) -> Option<Vec<u8>> {
    request.status.as_ref()?.certificate.as_ref().map(|bytes| bytes.0.clone()).filter(|bytes| !bytes.is_empty())
}

async fn until_signed(kit: &Kit, api: &Api<CertificateSigningRequest>, name: &str) -> Vec<u8> {
    let all = kit
        .until(api.clone(), "a certificate", |all| {
            all.iter().any(|one| one.name_any() == name && certificate(one).is_some())
        })
        .await;
    all.iter().find(|one| one.name_any() == name).and_then(|one| certificate(one)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_judged_signed_and_forgotten() {
    let kit = Kit::new().await;
    let seconds = Arc::new(AtomicI64::new(0));
    let later = seconds.clone();
    let clock = Clock::new(move || {
        let now = Timestamp::now();
        Timestamp::from_second(now.as_second() + later.load(Ordering::SeqCst)).unwrap_or(now)
    });
    kit.controllers(ferry_controllers::Config { clock, ..kit.config() });
    let binding = json!({
        "metadata": { "name": "joining" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:certificates.k8s.io:certificatesigningrequests:nodeclient" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers" }],
    });
    kit.create_in(Api::<ClusterRoleBinding>::all(kit.client.clone()), binding).await;
    let binding = json!({
        "metadata": { "name": "asking" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers" }],
    });
    kit.create_in(Api::<ClusterRoleBinding>::all(kit.client.clone()), binding).await;

    // A node that joins is approved without a human.
    let joining =
        kit.door.client(UserInfo::new("system:bootstrap:abcdef", &["system:bootstrappers", "system:authenticated"]));
    let usages = ["digital signature", "client auth"];
    let kubelet = "kubernetes.io/kube-apiserver-client-kubelet";
    let asked = request("node", kubelet, "system:node:n1", "system:nodes", &usages);
    kit.create_in(Api::<CertificateSigningRequest>::all(joining), asked).await;
    let api: Api<CertificateSigningRequest> = Api::all(kit.client.clone());
    let signed = until_signed(&kit, &api, "node").await;
    assert_eq!(conditions(&api.get("node").await.unwrap()), ["Approved/AutoApproved"]);
    let (_, pem) = x509_parser::pem::parse_x509_pem(&signed).unwrap();
    let parsed = pem.parse_x509().unwrap();
    assert_eq!(parsed.subject().to_string(), "CN=system:node:n1, O=system:nodes", "as the request has it");

    // Whatever else is asked for waits for a human, and what a signer does not sign fails.
    let client = "kubernetes.io/kube-apiserver-client";
    kit.create_in(api.clone(), request("person", client, "jane", "dev", &usages)).await;
    kit.create_in(api.clone(), request("wrong", kubelet, "jane", "dev", &usages)).await;
    kit.at_rest().await;
    for name in ["person", "wrong"] {
        let mut asked = api.get(name).await.unwrap();
        assert_eq!(conditions(&asked), [""; 0]);
        let approved = json!([{ "type": "Approved", "status": "True", "reason": "ByHand", "message": "yes" }]);
        asked.status.get_or_insert_default().conditions = Some(serde_json::from_value(approved).unwrap());
        api.replace_subresource("approval", name, &PostParams::default(), &asked).await.unwrap();
    }
    until_signed(&kit, &api, "person").await;
    kit.until(api.clone(), "a failed request", |all| {
        all.iter()
            .any(|one| one.name_any() == "wrong" && conditions(one).iter().any(|text| text.starts_with("Failed/")))
    })
    .await;

    // An hour later all three have served.
    seconds.store(3700, Ordering::SeqCst);
    for name in ["node", "person", "wrong"] {
        let touch = Patch::Merge(json!({ "metadata": { "labels": { "touched": "yes" } } }));
        // Looking at one may have led to the others already.
        if let Err(error) = api.patch(name, &PatchParams::default(), &touch).await {
            assert!(ferry_client::write::is_not_found(&error), "{name}: {error}");
        }
    }
    kit.until(api, "no requests", |all| all.is_empty()).await;
    kit.stop().await;
}

/// Who asks may be allowed to only later: roles and nodes come in no order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_asked_too_early_is_approved_when_it_may() {
    let kit = Kit::new().await;
    kit.controllers(kit.config());
    let bind = async |role: &str| {
        let binding = json!({
            "metadata": { "name": role },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "early" }],
        });
        kit.create_in(Api::<ClusterRoleBinding>::all(kit.client.clone()), binding).await;
    };
    bind("system:node-bootstrapper").await;
    let early = kit.door.client(UserInfo::new("joiner", &["early", "system:authenticated"]));
    let usages = ["digital signature", "client auth"];
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let asked = request("node", signer, "system:node:n1", "system:nodes", &usages);
    kit.create_in(Api::<CertificateSigningRequest>::all(early), asked).await;
    kit.at_rest().await;
    let api: Api<CertificateSigningRequest> = Api::all(kit.client.clone());
    assert_eq!(conditions(&api.get("node").await.unwrap()), [""; 0]);
    bind("system:certificates.k8s.io:certificatesigningrequests:nodeclient").await;
    until_signed(&kit, &api, "node").await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_sign_what_joining_nodes_read_until_they_end() {
    let kit = Kit::new().await;
    kit.controllers(kit.config());
    let public: Api<Namespace> = Api::all(kit.client.clone());
    let _ = public
        .create(
            &PostParams::default(),
            &serde_json::from_value(json!({ "metadata": { "name": "kube-public" } })).unwrap(),
        )
        .await;
    let maps: Api<ConfigMap> = Api::namespaced(kit.client.clone(), "kube-public");
    let info = json!({ "metadata": { "name": "cluster-info" }, "data": { "kubeconfig": "how to reach it" } });
    kit.create_in(maps.clone(), info).await;
    let secrets: Api<Secret> = Api::namespaced(kit.client.clone(), "kube-system");
    let token = |id: &str, ends: Timestamp| {
        json!({ "metadata": { "name": format!("bootstrap-token-{id}") }, "type": "bootstrap.kubernetes.io/token", "stringData": {
            "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true", "expiration": ends.to_string(),
        } })
    };
    let in_seconds = |seconds: i64| Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap();
    kit.create_in(secrets.clone(), token("aaaaaa", in_seconds(3600))).await;
    let signatures = |map: &ConfigMap| {
        let keys = map.data.iter().flatten().filter_map(|(key, _)| key.strip_prefix("jws-kubeconfig-"));
        keys.map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |all: &[Arc<ConfigMap>], wanted: &[&str]| {
        all.iter().any(|map| map.name_any() == "cluster-info" && signatures(map) == wanted)
    };
    kit.until(maps.clone(), "a signature", |all| has(all, &["aaaaaa"])).await;
    // One that ends soon signs as long as it lives.
    kit.create_in(secrets.clone(), token("bbbbbb", in_seconds(3))).await;
    kit.until(secrets.clone(), "no second token", |all| {
        all.iter().all(|one| one.name_any() != "bootstrap-token-bbbbbb")
    })
    .await;
    kit.until(maps.clone(), "one signature", |all| has(all, &["aaaaaa"])).await;
    secrets.delete("bootstrap-token-aaaaaa", &Default::default()).await.unwrap();
    kit.until(maps, "no signature", |all| has(all, &[])).await;
    kit.stop().await;
}
