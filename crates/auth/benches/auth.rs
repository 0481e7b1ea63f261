//! What it costs to know a caller and to decide, with a thousand roles: JSON lines of microseconds for each request.
//!
//! `cargo bench -p ferry-auth --features testing --bench auth`

use std::sync::Arc;
use std::time::Instant;

use ferry_auth::testing::Objects;
use ferry_auth::{
    Attributes, Authorizer, AuthorizerChain, BootstrapTokens, Chain, Credentials, LoopbackTokens, NodeAuthorizer,
    Notes, Rbac, ServiceAccountTokens, SigningKey, X509,
};
use ferry_meta::UserInfo;
use rustls_pki_types::CertificateDer;
use serde_json::json;

const ROLES: usize = 1000;
const ROUNDS: u32 = 20_000;
const ISSUER: &str = "https://kubernetes.default.svc";

/// A thousand namespaces, each with a role and a binding for a group, a user and an account.
fn objects() -> Arc<Objects> {
    let objects = Objects::default();
    let rbac = "rbac.authorization.k8s.io";
    objects.put("", "serviceaccounts", json!({"metadata": {"name": "robot", "namespace": "n7", "uid": "u"}}));
    for number in 0..ROLES {
        let namespace = format!("n{number}");
        objects.put(
            rbac,
            "roles",
            json!({
                "metadata": {"name": "r", "namespace": namespace},
                "rules": [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]},
                          {"apiGroups": [""], "resources": ["pods", "services", "configmaps"], "verbs": ["get", "list", "watch"]}],
            }),
        );
        objects.put(
            rbac,
            "rolebindings",
            json!({
                "metadata": {"name": "r", "namespace": namespace},
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "r"},
                "subjects": [{"apiGroup": rbac, "kind": "Group", "name": format!("team{number}")},
                             {"apiGroup": rbac, "kind": "User", "name": format!("user{number}")},
                             {"kind": "ServiceAccount", "namespace": "n7", "name": "robot"}],
            }),
        );
    }
    Arc::new(objects)
}

fn certificate() -> CertificateDer<'static> {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, "user7");
    let key = rcgen::KeyPair::generate().expect("a key");
    params.self_signed(&key).expect("a certificate").der().clone()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let objects = objects();
    let audiences = vec![ISSUER.to_owned()];
    let key = SigningKey::from_pem(&SigningKey::generate_pem().expect("a key")).expect("a key");
    let now = ferry_meta::time::now().as_second();
    let jwt = key.sign_for_tests(&json!({
        "iss": ISSUER, "aud": [ISSUER], "exp": now + 3600, "iat": now, "nbf": now, "sub": "system:serviceaccount:n7:robot",
        "kubernetes.io": {"namespace": "n7", "serviceaccount": {"name": "robot", "uid": "u"}},
    }));
    let loopback = Arc::new(LoopbackTokens::new(audiences.clone()));
    let component = loopback.issue(UserInfo::new("user7", &["team7"]));
    let accounts = ServiceAccountTokens::new(audiences.clone(), vec![key.verifying_key().clone()], objects.clone());
    let authentication = Chain::new(audiences.clone())
        .with(Arc::new(X509::default()))
        .with_tokens(loopback)
        .with_tokens(Arc::new(accounts))
        .with_tokens(Arc::new(BootstrapTokens::new(objects.clone(), audiences)));
    let authorization = AuthorizerChain::new()
        .with("node", Arc::new(NodeAuthorizer::new(objects.clone())))
        .with("rbac", Arc::new(Rbac::new(objects)));
    let certificates = [certificate()];
    for (name, token, certificates) in [
        ("certificate", None, &certificates[..]),
        ("loopback token", Some(component), &[][..]),
        ("service-account token", Some(jwt), &[][..]),
    ] {
        let mut headers = http::HeaderMap::new();
        if let Some(token) = token {
            headers.insert("authorization", format!("Bearer {token}").parse().expect("a header"));
        }
        let credentials = Credentials { headers: &headers, certificates, path: "/api/v1/namespaces/n7/pods" };
        runtime.block_on(async {
            let mut begin = Instant::now();
            for round in 0..ROUNDS + 100 {
                if round == 100 {
                    begin = Instant::now();
                }
                let user = authentication.authenticate(&credentials, &Notes::default()).await.expect("a user");
                let attributes =
                    Attributes { namespace: "n7", version: "v1", ..Attributes::resource(&user, "list", "", "pods") };
                assert!(authorization.authorize(&attributes).await.is_allowed());
            }
            let micros = begin.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
            let what = format!("authentication and authorization, {ROLES} roles, {name}");
            let line = json!({"what": what, "us": (micros * 100.0).round() / 100.0});
            println!("{line}");
        });
    }
}
