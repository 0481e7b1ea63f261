//! Against real HTTPS servers on loopback.

use super::*;
use crate::testing::{Case, Objects, SecondVersion};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ferry_meta::object::text;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::json;

type Behaviour = fn(&Value) -> Vec<u8>;

/// A webhook server: its URL and its CA bundle.
async fn serve(tasks: &Tasks, behaviour: Behaviour) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned(), "hook.a.svc".to_owned()])
        .expect("parameters")
        .self_signed(&key)
        .expect("a certificate");
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .expect("a configuration");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let group = tasks.clone();
    tasks.spawn_until_stopped("server", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            group.spawn_until_stopped("connection", async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service =
                    hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| async move {
                        let body = request.into_body().collect().await?.to_bytes();
                        let review: Value = serde_json::from_slice(&body).expect("a review");
                        let answer = behaviour(&review["request"]);
                        if answer == b"hang" {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, hyper::Error>(http::Response::new(Full::new(Bytes::from(answer))))
                    });
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (format!("https://127.0.0.1:{port}/hook"), STANDARD.encode(certificate.pem()))
}

fn reply(request: &Value, response: Value) -> Vec<u8> {
    let mut response = response;
    if response.get("uid").is_none() {
        response["uid"] = request["uid"].clone();
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        .to_string()
        .into_bytes()
}

fn patch(request: &Value, operations: Value) -> Vec<u8> {
    let patch = STANDARD.encode(operations.to_string());
    reply(request, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

fn hook(name: &str, url: &str, ca: &str, more: Value) -> Value {
    let mut hook = json!({
        "name": name, "clientConfig": {"url": url, "caBundle": ca}, "sideEffects": "None", "timeoutSeconds": 5,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    });
    for (key, value) in more.as_object().expect("a map") {
        hook[key] = value.clone();
    }
    hook
}

fn cluster(resource: &str, hooks: Value) -> (Arc<Objects>, WebhookOptions) {
    let objects = Objects::default();
    objects.put("", "namespaces", json!({"metadata": {"name": "a", "labels": {"env": "test"}}}));
    objects.put("admissionregistration.k8s.io", resource, json!({"metadata": {"name": "c"}, "webhooks": hooks}));
    (Arc::new(objects), WebhookOptions { tasks: Tasks::new("webhooks"), defaulter: None })
}

fn config_map(labels: Value) -> Case {
    Case::create("", "configmaps", "a", json!({"metadata": {"name": "m", "labels": labels}}))
}

async fn validate(hooks: Value) -> Result<Vec<String>, ApiError> {
    let (objects, options) = cluster("validatingwebhookconfigurations", hooks);
    config_map(json!({})).validate(&ValidatingWebhooks::new(objects, Arc::new(ferry_auth::AlwaysDeny), &options)).await
}

#[tokio::test]
async fn validating_webhooks_refuse_warn_and_fail() {
    let tasks = Tasks::new("servers");
    let denier = serve(&tasks, |r| {
        reply(r, json!({"allowed": false, "status": {"message": "no", "code": 403, "reason": "Forbidden"}, "warnings": ["w"]}))
    })
    .await;
    let silent = serve(&tasks, |r| reply(r, json!({"allowed": false}))).await;
    let warner = serve(&tasks, |r| reply(r, json!({"allowed": true, "warnings": ["careful"]}))).await;
    let wrong_uid = serve(&tasks, |r| reply(r, json!({"uid": "other", "allowed": true}))).await;
    let garbage = serve(&tasks, |_| b"hello".to_vec()).await;
    let endless = serve(&tasks, |_| vec![b'x'; 4 * 1024 * 1024]).await;
    let slow = serve(&tasks, |_| b"hang".to_vec()).await;

    let one = |server: &(String, String), more: Value| json!([hook("h.example.com", &server.0, &server.1, more)]);
    assert_eq!(validate(one(&warner, json!({}))).await.expect("allowed"), ["careful"]);
    let denied = validate(one(&denier, json!({}))).await.expect_err("denied");
    assert_eq!(
        (denied.code(), denied.0.message.as_str()),
        (403, "admission webhook \"h.example.com\" denied the request: no")
    );
    let denied = validate(one(&silent, json!({}))).await.expect_err("denied");
    assert_eq!(
        (denied.code(), denied.0.message.as_str()),
        (400, "admission webhook \"h.example.com\" denied the request without explanation")
    );

    for (server, part) in
        [(&wrong_uid, "expected response.uid="), (&garbage, "json parse error"), (&endless, "length limit exceeded")]
    {
        let error = validate(one(server, json!({}))).await.expect_err("failed");
        assert_eq!(error.code(), 500);
        assert!(error.0.message.contains(part), "{}", error.0.message);
        assert!(validate(one(server, json!({"failurePolicy": "Ignore"}))).await.is_ok());
    }
    let error = validate(one(&slow, json!({"timeoutSeconds": 1}))).await.expect_err("too slow");
    let want = format!(
        "Internal error occurred: failed calling webhook \"h.example.com\": failed to call webhook: Post \"{}?timeout=1s\": context deadline exceeded",
        slow.0
    );
    assert_eq!(error.0.message, want);
    let stranger = json!([hook("h.example.com", &warner.0, &denier.1, json!({}))]);
    let error = validate(stranger).await.expect_err("another authority");
    assert!(error.0.message.ends_with("x509: certificate signed by unknown authority"), "{}", error.0.message);
}

#[tokio::test]
async fn an_unreachable_webhook_reads_as_upstream() {
    let fail = json!([hook("fail.example.com", "https://127.0.0.1:1/hook", "", json!({"timeoutSeconds": 1}))]);
    assert_eq!(
        validate(fail).await.expect_err("refused").0.message,
        "Internal error occurred: failed calling webhook \"fail.example.com\": failed to call webhook: Post \"https://127.0.0.1:1/hook?timeout=1s\": dial tcp 127.0.0.1:1: connect: connection refused"
    );
    let service = json!({"timeoutSeconds": 1, "clientConfig": {"service": {"namespace": "a", "name": "nosvc"}}});
    let service = json!([hook("svc.example.com", "", "", service)]);
    assert_eq!(
        validate(service).await.expect_err("refused").0.message,
        "Internal error occurred: failed calling webhook \"svc.example.com\": failed to call webhook: Post \"https://nosvc.a.svc:443/?timeout=1s\": service \"nosvc\" not found"
    );
}

#[tokio::test]
async fn services_are_reached_through_their_endpoints() {
    let tasks = Tasks::new("servers");
    let (url, ca) = serve(&tasks, |r| reply(r, json!({"allowed": true, "warnings": ["reached"]}))).await;
    let port: u16 = url.trim_end_matches("/hook").rsplit(':').next().expect("a port").parse().expect("a number");
    let client = json!({"clientConfig": {"service": {"namespace": "a", "name": "hook", "path": "/x"}, "caBundle": ca}});
    let (objects, options) = cluster("validatingwebhookconfigurations", json!([hook("h.example.com", "", "", client)]));
    objects.put(
        "",
        "services",
        json!({"metadata": {"name": "hook", "namespace": "a"},
        "spec": {"ports": [{"name": "https", "port": 443}]}}),
    );
    objects.put(
        "discovery.k8s.io",
        "endpointslices",
        json!({
        "metadata": {"name": "hook-1", "namespace": "a", "labels": {"kubernetes.io/service-name": "hook"}},
        "ports": [{"name": "https", "port": port}],
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}},
                      {"addresses": ["127.0.0.2"], "conditions": {"ready": false}}]}),
    );
    let plugin = ValidatingWebhooks::new(objects, Arc::new(ferry_auth::AlwaysDeny), &options);
    assert_eq!(config_map(json!({})).validate(&plugin).await.expect("allowed"), ["reached"]);
}

#[tokio::test]
async fn mutating_webhooks_run_in_order_and_again_when_asked() {
    let tasks = Tasks::new("servers");
    // Notes how many labels it saw; called again once the second one has added its own.
    let counter = serve(&tasks, |r| {
        let count = r["object"]["metadata"]["labels"].as_object().map_or(0, serde_json::Map::len);
        patch(r, json!([{"op": "add", "path": "/metadata/annotations", "value": {"seen": count.to_string()}}]))
    })
    .await;
    let labeller =
        serve(&tasks, |r| patch(r, json!([{"op": "add", "path": "/metadata/labels/b", "value": "2"}]))).await;
    let broken = serve(&tasks, |r| patch(r, json!([{"op": "remove", "path": "/nope/x"}]))).await;
    let run = async |hooks: Value| {
        let (objects, options) = cluster("mutatingwebhookconfigurations", hooks);
        config_map(json!({"a": "1"}))
            .mutate(&MutatingWebhooks::new(objects, Arc::new(ferry_auth::AlwaysDeny), &options, Vec::new()))
            .await
    };
    let first = |more: Value| hook("1.example.com", &counter.0, &counter.1, more);
    let second = hook("2.example.com", &labeller.0, &labeller.1, json!({}));
    let once = run(json!([first(json!({})), second])).await.expect("admitted");
    assert_eq!(once["metadata"]["labels"], json!({"a": "1", "b": "2"}));
    assert_eq!(text(&once, "/metadata/annotations/seen"), "1");
    let again = run(json!([first(json!({"reinvocationPolicy": "IfNeeded"})), second])).await.expect("admitted");
    assert_eq!(text(&again, "/metadata/annotations/seen"), "2");
    let error = run(json!([hook("3.example.com", &broken.0, &broken.1, json!({}))])).await.expect_err("a bad patch");
    assert_eq!(error.code(), 500);
}

/// Patches that grow what they are applied to, and answers that are small on the wire alone.
#[tokio::test]
async fn what_a_webhook_makes_is_bounded() {
    let tasks = Tasks::new("servers");
    let deep = serve(&tasks, |r| {
        let mut path = String::from("/a");
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": {}})];
        for _ in 0..16 {
            operations.push(json!({"op": "copy", "from": "/a", "path": format!("{path}/a")}));
            path = format!("{path}{path}");
        }
        patch(r, json!(operations))
    })
    .await;
    let dense = serve(&tasks, |r| reply(r, json!({"allowed": true, "status": vec![json!({"": 0}); 300_000]}))).await;
    let many =
        serve(&tasks, |r| patch(r, json!([{"op": "add", "path": "/a", "value": vec![json!({"": 0}); 200_000]}]))).await;
    for (name, server) in [("deep", &deep), ("dense", &dense), ("many", &many)] {
        let hooks = json!([hook(&format!("{name}.example.com"), &server.0, &server.1, json!({"timeoutSeconds": 30}))]);
        let (objects, options) = cluster("mutatingwebhookconfigurations", hooks);
        let webhooks = MutatingWebhooks::new(objects, Arc::new(ferry_auth::AlwaysDeny), &options, Vec::new());
        let error = config_map(json!({})).mutate(&webhooks).await.expect_err(name);
        assert_eq!(error.code(), 500, "{name}: {error}");
    }
}

#[tokio::test]
async fn selectors_and_rules_let_requests_pass() {
    let matches = async |more: Value, case: Case| {
        let hooks = json!([hook("h.example.com", "https://127.0.0.1:1/", "", more)]);
        let (objects, options) = cluster("validatingwebhookconfigurations", hooks);
        case.validate(&ValidatingWebhooks::new(objects, Arc::new(ferry_auth::AlwaysDeny), &options)).await.is_err()
    };
    let rule = |resources: &str, scope: &str| json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [resources], "scope": scope}]});
    let plain = || config_map(json!({}));
    for (more, case, want) in [
        (json!({}), plain(), true),
        (
            json!({"objectSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]}}),
            config_map(json!({"skip": "1"})),
            false,
        ),
        (json!({"namespaceSelector": {"matchLabels": {"env": "test"}}}), plain(), true),
        (json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}}), plain(), false),
        (rule("*", "Cluster"), plain(), false),
        (rule("*", "Namespaced"), plain(), true),
        (rule("*", "*"), plain().at("status"), false),
        (rule("*/*", "*"), plain().at("status"), true),
        (rule("configmaps/status", "*"), plain().at("status"), true),
        (rule("*", "*"), Case::delete("", "configmaps", "a", "m"), true),
        (json!({}), Case::delete("", "configmaps", "a", "m"), false),
        (
            rule("*", "*"),
            Case::create("admissionregistration.k8s.io", "validatingwebhookconfigurations", "", json!({})),
            false,
        ),
    ] {
        assert_eq!(matches(more.clone(), case).await, want, "{more}");
    }
    let error = {
        let hooks = json!([hook("h.example.com", "https://127.0.0.1:1/", "", json!({"sideEffects": "Some"}))]);
        let (objects, options) = cluster("validatingwebhookconfigurations", hooks);
        plain()
            .dry_run()
            .validate(&ValidatingWebhooks::new(objects, Arc::new(ferry_auth::AlwaysDeny), &options))
            .await
            .expect_err("refused")
    };
    assert_eq!(error.0.message, "admission webhook \"h.example.com\" does not support dry run");
}

fn of_another_version(more: &Value) -> Value {
    let mut all = json!({"rules": [
        {"apiGroups": [""], "apiVersions": ["v2"], "operations": ["CREATE", "DELETE"], "resources": ["configmaps"]}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    all
}

fn with_data() -> Case {
    let object = json!({"apiVersion": "v1", "metadata": {"name": "m", "labels": {}}, "data": {"a": "b"}});
    Case::create("", "configmaps", "a", object).also_in(SecondVersion::new("Kind"))
}

/// A webhook for one version of a resource is not evaded by a request in another.
#[tokio::test]
async fn a_request_goes_to_webhooks_for_other_versions_of_its_resource() {
    let tasks = Tasks::new("servers");
    let (url, ca) = serve(&tasks, |r| {
        let shown = json!([
            r["kind"]["version"],
            r["requestKind"]["version"],
            r["resource"]["version"],
            r["requestResource"]["version"],
            r["object"],
            r["oldObject"]["content"],
        ]);
        reply(r, json!({"allowed": true, "warnings": [shown.to_string()]}))
    })
    .await;
    let validate = async |more: Value, case: Case| {
        let hooks = json!([hook("h.example.com", &url, &ca, of_another_version(&more))]);
        let (objects, options) = cluster("validatingwebhookconfigurations", hooks);
        let plugin = ValidatingWebhooks::new(objects, Arc::new(ferry_auth::AlwaysDeny), &options);
        case.validate(&plugin).await.expect("allowed")
    };
    let object = json!({"apiVersion": "v2", "metadata": {"name": "m", "labels": {}}, "content": {"a": "b"}});
    let want = json!(["v2", "v1", "v2", "v1", object, null]).to_string();
    assert_eq!(validate(json!({}), with_data()).await, [&*want]);
    assert_eq!(validate(json!({"matchPolicy": "Equivalent"}), with_data()).await, [&*want]);
    assert!(validate(json!({"matchPolicy": "Exact"}), with_data()).await.is_empty());
    // Conditions see the object that the webhook would.
    let condition = |text: &str| json!({"matchConditions": [{"name": "c", "expression": text}]});
    assert_eq!(validate(condition("has(object.content)"), with_data()).await, [&*want]);
    assert!(validate(condition("has(object.data)"), with_data()).await.is_empty());
    let deletion = Case::delete("", "configmaps", "a", "m").of(json!({"metadata": {"name": "m"}, "data": {"o": "p"}}));
    let want = json!(["v2", "v1", "v2", "v1", null, {"o": "p"}]).to_string();
    assert_eq!(validate(json!({}), deletion.also_in(SecondVersion::new("Kind"))).await, [&*want]);
}

#[tokio::test]
async fn what_a_webhook_changes_in_another_version_is_converted_back() {
    let tasks = Tasks::new("servers");
    let (url, ca) = serve(&tasks, |r| patch(r, json!([{"op": "add", "path": "/content/c", "value": "d"}]))).await;
    for (more, want) in [(json!({}), json!({"a": "b", "c": "d"})), (json!({"matchPolicy": "Exact"}), json!({"a": "b"}))]
    {
        let hooks = json!([hook("h.example.com", &url, &ca, of_another_version(&more))]);
        let (objects, options) = cluster("mutatingwebhookconfigurations", hooks);
        let plugin = MutatingWebhooks::new(objects, Arc::new(ferry_auth::AlwaysDeny), &options, Vec::new());
        let made = with_data().mutate(&plugin).await.expect("admitted");
        assert_eq!((&made["data"], &made["apiVersion"], made.get("content")), (&want, &json!("v1"), None));
    }
}
