//! Between TLS and the store, with real processes: webhooks, the audit log, encryption at rest.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::kubectl_alone::Alone;

/// What a webhook does with a review.
type Behaviour = fn(&Value) -> Vec<u8>;

/// The webhooks by their paths.
const WEBHOOKS: &[(&str, Behaviour)] = &[
    ("/sidecar", |request| {
        let container = json!({"name": "sidecar", "image": "proxy:1"});
        patched(request, &json!([{"op": "add", "path": "/spec/containers/-", "value": container}]))
    }),
    ("/label", |request| {
        patched(request, &json!([{"op": "add", "path": "/metadata/labels", "value": {"team": "none"}}]))
    }),
    ("/deny", |request| {
        reply(
            request,
            json!({"allowed": false, "status": {"code": 403, "message": "not on my watch"}, "warnings": ["think again"]}),
        )
    }),
    ("/slow", |_| b"hang".to_vec()),
    ("/broken", |_| b"break".to_vec()),
    ("/garbage", |_| b"this is no review".to_vec()),
    ("/wrong-uid", |request| reply(request, json!({"uid": "another", "allowed": true}))),
    ("/bad-patch", |request| patched(request, &json!([{"op": "remove", "path": "/spec/nowhere/at/all"}]))),
    ("/huge", |_| vec![b' '; 64 << 20]),
];

fn reply(request: &Value, mut response: Value) -> Vec<u8> {
    if response.get("uid").is_none() {
        response["uid"] = request["uid"].clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        .to_string()
        .into_bytes()
}

fn patched(request: &Value, patch: &Value) -> Vec<u8> {
    let patch = STANDARD.encode(patch.to_string());
    let notes = json!({"seen": "yes"});
    reply(request, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch, "auditAnnotations": notes}))
}

/// An HTTPS server with all of them, for as long as the runtime lives: its URL and its CA bundle.
fn serve(runtime: &tokio::runtime::Runtime) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    let tasks = ferry_tasks::Tasks::new("webhooks");
    let group = tasks.clone();
    runtime.block_on(async {
        tasks.spawn_until_stopped("server", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                group.spawn_until_stopped("connection", async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = hyper::service::service_fn(answer);
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
    });
    (format!("https://127.0.0.1:{port}"), STANDARD.encode(certificate.pem()))
}

async fn answer(request: http::Request<Incoming>) -> Result<http::Response<Full<Bytes>>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let review: Value = serde_json::from_slice(&body).map_err(std::io::Error::other)?;
    let behaviour = WEBHOOKS.iter().find(|(own, _)| *own == path).map(|(_, behaviour)| behaviour);
    let answer = behaviour.map(|behaviour| behaviour(&review["request"])).unwrap_or_default();
    match &*answer {
        b"hang" => std::future::pending().await,
        b"break" => Err(std::io::Error::other("broken on purpose")),
        _ => Ok(http::Response::new(Full::new(Bytes::from(answer)))),
    }
}

/// A webhook configuration for ConfigMaps and Pods of the namespace that has the label `hook: <name>`.
fn configuration(kind: &str, name: &str, url: &str, bundle: &str, policy: &str) -> String {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "webhooks": [{
            "name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "timeoutSeconds": 1, "failurePolicy": policy,
            "clientConfig": {"url": format!("{url}/{name}"), "caBundle": bundle},
            "namespaceSelector": {"matchLabels": {"hook": name}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "pods"]}],
        }],
    })
    .to_string()
}

const POD: &str =
    r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
const MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}"#;

pub fn webhooks_change_refuse_and_fail_as_documented() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (url, bundle) = serve(&runtime);
    let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]});
    let alone = Alone::start(
        &[("policy", &policy.to_string())],
        &["--audit-policy-file={folder}/policy", "--audit-log-path={folder}/audit.log"],
    );
    for (path, _) in WEBHOOKS {
        let name = path.trim_start_matches('/');
        let kind = if ["sidecar", "label", "bad-patch"].contains(&name) { "Mutating" } else { "Validating" };
        let kind = format!("{kind}WebhookConfiguration");
        alone.kubectl(&["create", "-f", "-"], &configuration(&kind, name, &url, &bundle, "Fail"));
        alone.kubectl(&["create", "namespace", name], "");
        alone.kubectl(&["create", "serviceaccount", "default", "-n", name], "");
        alone.kubectl(&["label", "namespace", name, &format!("hook={name}")], "");
    }
    alone.kubectl(&["create", "-n", "sidecar", "-f", "-"], POD);
    let images = alone.kubectl(&["get", "pod", "p", "-n", "sidecar", "-o", "jsonpath={.spec.containers[*].image}"], "");
    assert_eq!(images.trim(), "i proxy:1");
    // What a webhook added is defaulted like everything else.
    let policies = alone
        .kubectl(&["get", "pod", "p", "-n", "sidecar", "-o", "jsonpath={.spec.containers[1].imagePullPolicy}"], "");
    assert_eq!(policies.trim(), "IfNotPresent");
    // The flight recorder tells what it waited for.
    let flight = alone.kubectl(&["get", "--raw", "/debug/flight/api/v1/namespaces/sidecar/pods/p"], "");
    let flight: Value = serde_json::from_str(&flight).unwrap();
    let call = &flight["writes"][0]["webhooks"][0];
    assert!(call["name"] == "sidecar.example.com" && call["took"].as_u64() > Some(0), "{flight:#}");
    alone.kubectl(&["create", "-n", "label", "-f", "-"], MAP);
    let label = alone.kubectl(&["get", "configmap", "m", "-n", "label", "-o", "jsonpath={.metadata.labels.team}"], "");
    assert_eq!(label.trim(), "none");
    for (name, expected) in [
        ("deny", "admission webhook \"deny.example.com\" denied the request: not on my watch"),
        ("slow", "context deadline exceeded"),
        ("broken", "failed calling webhook \"broken.example.com\""),
        ("garbage", "failed calling webhook \"garbage.example.com\""),
        ("wrong-uid", "expected response.uid="),
        ("bad-patch", "failed calling webhook \"bad-patch.example.com\""),
        ("huge", "failed calling webhook \"huge.example.com\""),
    ] {
        let refused = alone.refused("root-token", &["create", "-n", name, "-f", "-"], MAP);
        assert!(refused.contains(expected), "{name}: {refused}");
        if name == "deny" {
            assert!(refused.contains("Warning: think again"), "{refused}");
            continue;
        }
        // The same failure is passed over where the configuration says so.
        let kind = if name == "bad-patch" { "mutating" } else { "validating" };
        let resource = format!("{kind}webhookconfiguration");
        let patch = r#"[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]"#;
        alone.kubectl(&["patch", &resource, name, "--type=json", "-p", patch], "");
        alone.kubectl(&["create", "-n", name, "-f", "-"], MAP);
    }
    // The server goes on, and the audit log has what a webhook noted.
    alone.kubectl(&["get", "--raw", "/readyz"], "");
    let log = std::fs::read_to_string(alone.folder.path().join("audit.log")).unwrap();
    let noted = |event: &Value| event["annotations"]["label.example.com/seen"] == "yes";
    assert!(log.lines().any(|line| noted(&serde_json::from_str(line).unwrap())), "no event has the webhook's note");
    runtime.shutdown_timeout(Duration::from_secs(1));
}

pub fn secrets_are_unreadable_at_rest_and_keys_change_while_it_runs() {
    let alone = Alone::start(&[], &[]);
    alone.kubectl(&["create", "secret", "generic", "s", "--from-literal=k=correct-horse-battery"], "");
    let store = alone.folder.path().join("data/store");
    let shows = |text: &str| dump(&store).windows(text.len()).any(|window| window == text.as_bytes());
    assert!(shows("k8s:enc:aesgcm:v1:key1:"));
    assert!(!shows("correct-horse-battery") && !shows(&STANDARD.encode("correct-horse-battery")));
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": format!("https://127.0.0.1:{}", alone.port), "insecure-skip-tls-verify": true}}],
        "users": [{"name": "a", "user": {"token": "root-token"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    let path = alone.folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ferry"))
        .args(["secrets", "rotate", "--data-dir"])
        .arg(alone.folder.path().join("data"))
        .arg("--kubeconfig")
        .arg(&path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 objects were encrypted anew"), "{said}");
    assert!(shows("k8s:enc:aesgcm:v1:key2:"));
    let value = alone.kubectl(&["get", "secret", "s", "-o", "jsonpath={.data.k}"], "");
    assert_eq!(value.trim(), STANDARD.encode("correct-horse-battery"));
    assert!(
        alone
            .refused("bob-token", &["create", "--raw", "/ferry/v1/secrets/rotate", "-f", "-"], "{}")
            .contains("forbidden")
    );
}

/// Every byte below a folder.
fn dump(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        bytes.extend(if path.is_dir() { dump(&path) } else { std::fs::read(path).unwrap_or_default() });
    }
    bytes
}
