//! What a status needs beside the right to write it, and what goes with it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Fixture;

const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";

impl Fixture {
    /// Lets bob do what the rules say.
    async fn let_bob(&self, name: &str, rules: Value) {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        assert_eq!(self.json("POST", &format!("{GROUP}/clusterroles"), &role).await.0, 201);
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
        });
        assert_eq!(self.json("POST", &format!("{GROUP}/clusterrolebindings"), &binding).await.0, 201);
    }

    async fn patched_by_bob(&self, path: &str, patch: &Value) -> (u16, Value) {
        self.call(&self.bob, "PATCH", path, "application/merge-patch+json", patch.to_string()).await
    }
}

#[tokio::test]
async fn only_who_may_sign_for_a_signer_answers_its_requests() {
    let fixture = Fixture::new().await;
    let path = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
    let pair = rcgen::KeyPair::generate().expect("a key");
    let stub = rcgen::CertificateParams::default().serialize_request(&pair).expect("a request");
    for name in ["a", "b"] {
        let request = json!({
            "metadata": {"name": name},
            "spec": {
                "signerName": "example.com/one", "stubPKCS10Request": STANDARD.encode(stub.der()),
                "podName": "p", "podUID": "u", "nodeName": "n", "nodeUID": "u",
                "serviceAccountName": "s", "serviceAccountUID": "u",
            },
        });
        let (code, made) = fixture.json("POST", path, &request).await;
        assert_eq!(code, 201, "{made}");
    }
    let resources = json!(["podcertificaterequests/status"]);
    let rule = json!({"apiGroups": ["certificates.k8s.io"], "resources": resources, "verbs": ["patch", "update"]});
    fixture.let_bob("writes", json!([rule])).await;
    let denied = json!({"type": "Denied", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [denied]}});
    let one = format!("{path}/a/status");
    let (code, answer) = fixture.patched_by_bob(&one, &status).await;
    assert_eq!(code, 422, "{answer}");
    let cause = &answer["details"]["causes"][0];
    assert_eq!((&cause["reason"], &cause["field"]), (&json!("FieldValueForbidden"), &json!("spec.signerName")));
    assert_eq!(
        cause["message"],
        json!("Forbidden: User \"bob\" is not permitted to \"sign\" for signer \"example.com/one\"")
    );
    // A mistake is told first, and no change needs no right.
    let mut wrong = status.clone();
    wrong["status"]["conditions"][0]["status"] = "False".into();
    let (code, answer) = fixture.patched_by_bob(&one, &wrong).await;
    assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!("status.conditions.[0].status")));
    assert_eq!(fixture.patched_by_bob(&one, &json!({})).await.0, 200);

    let signers = |names: Value| json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": names, "verbs": ["sign"]}]);
    fixture.let_bob("another", signers(json!(["example.com/two"]))).await;
    assert_eq!(fixture.patched_by_bob(&one, &status).await.0, 422);
    fixture.let_bob("domain", signers(json!(["example.com/*"]))).await;
    let (code, answer) = fixture.patched_by_bob(&one, &status).await;
    assert_eq!(code, 200, "{answer}");
    let (code, answer) = fixture
        .call(&fixture.admin, "PATCH", &format!("{path}/b/status"), "application/merge-patch+json", status.to_string())
        .await;
    assert_eq!(code, 200, "{answer}");
    fixture.stop().await;
}

/// Who takes an allocation back need not know what drivers told of its devices.
#[tokio::test]
async fn a_claim_without_its_allocation_forgets_the_devices() {
    let fixture = Fixture::new().await;
    let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = json!({
        "metadata": {"name": "a"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
    });
    let (code, made) = fixture.json("POST", path, &claim).await;
    assert_eq!(code, 201, "{made}");
    let one = format!("{path}/a/status");
    let patch = async |patch: Value| {
        fixture.call(&fixture.admin, "PATCH", &one, "application/merge-patch+json", patch.to_string()).await
    };
    let device = json!({"driver": "d.example.com", "pool": "p", "device": "x"});
    let mut result = device.clone();
    result["request"] = "r".into();
    let status = json!({"allocation": {"devices": {"results": [result]}}, "devices": [device]});
    let (code, answer) = patch(json!({"status": status})).await;
    assert_eq!((code, answer["status"]["devices"].as_array().map(Vec::len)), (200, Some(1)), "{answer}");
    let (code, answer) = patch(json!({"status": {"allocation": null}})).await;
    assert_eq!((code, &answer["status"]), (200, &json!({})), "{answer}");
    fixture.stop().await;
}

/// Doubtful objects are accepted with a warning; what is reserved is not.
#[tokio::test]
async fn names_of_admission_files_are_refused() {
    let fixture = Fixture::new().await;
    for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}");
        let (code, answer) = fixture.json("POST", &path, &json!({"metadata": {"name": "a.static.k8s.io"}})).await;
        assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!("metadata.name")), "{answer}");
        assert_eq!(fixture.json("POST", &path, &json!({"metadata": {"name": "static.k8s.io"}})).await.0, 201);
    }
    fixture.stop().await;
}
