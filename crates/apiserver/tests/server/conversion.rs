//! Custom resources that a webhook converts, against a real HTTPS server on loopback.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ferry_tasks::Tasks;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::Fixture;
use crate::custom_resources::{is_established, until};

/// A webhook between `hostPort` in v1 and `host` and `port` in v2: its URL and its CA bundle.
async fn webhook(tasks: &Tasks) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
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
    tasks.spawn_until_stopped("webhook", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            group.spawn_until_stopped("connection", async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                    let body = request.into_body().collect().await?.to_bytes();
                    let review: Value = serde_json::from_slice(&body).expect("a review");
                    let answer = answer(&review).to_string();
                    Ok::<_, hyper::Error>(http::Response::new(Full::new(Bytes::from(answer))))
                });
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (format!("https://127.0.0.1:{port}/convert"), STANDARD.encode(certificate.pem()))
}

fn answer(review: &Value) -> Value {
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().expect("a version");
    let convert = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = to.into();
        let spec = object["spec"].as_object_mut().expect("a spec");
        let text = |value: Option<Value>| value.and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        if to.ends_with("v2") {
            let both = text(spec.remove("hostPort"));
            let (host, port) = both.split_once(':').expect("both");
            spec.insert("host".into(), host.into());
            spec.insert("port".into(), port.into());
        } else {
            let (host, port) = (text(spec.remove("host")), text(spec.remove("port")));
            spec.insert("hostPort".into(), format!("{host}:{port}").into());
        }
        // This is nobody's to change, and is not taken.
        object["metadata"]["generation"] = 77.into();
        object
    };
    let objects: Vec<Value> = request["objects"].as_array().into_iter().flatten().map(convert).collect();
    json!({
        "apiVersion": review["apiVersion"], "kind": "ConversionReview",
        "response": {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects},
    })
}

#[tokio::test]
async fn webhooks_convert_between_versions() {
    let fixture = Fixture::new().await;
    let tasks = Tasks::new("webhook");
    let (url, bundle) = webhook(&tasks).await;
    let version = |name: &str, storage: bool, properties: Value| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": properties}}}}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": {"url": url, "caBundle": bundle}}},
            "versions": [
                version("v1", true, json!({"hostPort": {"type": "string"}})),
                version("v2", false, json!({"host": {"type": "string"}, "port": {"type": "string"}})),
            ],
        }
    });
    let (code, made) =
        fixture.json("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    assert_eq!(code, 201, "{made}");
    until(&fixture, is_established).await;

    let path = |version: &str, name: &str| format!("/apis/example.com/{version}/namespaces/default/widgets{name}");
    let widget = |version: &str, name: &str, spec: Value| json!({"apiVersion": format!("example.com/{version}"), "kind": "Widget", "metadata": {"name": name}, "spec": spec});
    let one = widget("v1", "a", json!({"hostPort": "h:80"}));
    assert_eq!(fixture.json("POST", &path("v1", ""), &one).await.0, 201);
    let two = widget("v2", "b", json!({"host": "g", "port": "81"}));
    let (code, made) = fixture.json("POST", &path("v2", ""), &two).await;
    assert_eq!((code, &made["spec"]), (201, &json!({"host": "g", "port": "81"})), "{made}");
    for (version, specs) in [
        ("v1", json!([{"hostPort": "h:80"}, {"hostPort": "g:81"}])),
        ("v2", json!([{"host": "h", "port": "80"}, {"host": "g", "port": "81"}])),
    ] {
        let (code, list) = fixture.json("GET", &path(version, ""), &Value::Null).await;
        let items = list["items"].as_array().expect("items");
        assert_eq!((code, Value::from_iter(items.iter().map(|item| item["spec"].clone()))), (200, specs));
        assert!(items.iter().all(|item| item["metadata"]["generation"] == 1), "{list}");
    }
    let patch = json!({"spec": {"port": "99"}}).to_string();
    let (code, patched) =
        fixture.call(&fixture.admin, "PATCH", &path("v2", "/a"), "application/merge-patch+json", patch).await;
    assert_eq!((code, &patched["spec"]), (200, &json!({"host": "h", "port": "99"})), "{patched}");
    let (_, read) = fixture.json("GET", &path("v1", "/a"), &Value::Null).await;
    assert_eq!(read["spec"], json!({"hostPort": "h:99"}));

    // Without its webhook an object cannot be written in another version, and the definition can still go.
    tasks.stop(std::time::Duration::from_secs(10)).await;
    let patch = json!({"spec": {"port": "100"}}).to_string();
    let (code, failed) =
        fixture.call(&fixture.admin, "PATCH", &path("v2", "/b"), "application/merge-patch+json", patch).await;
    let message = failed["message"].as_str().unwrap_or_default();
    assert!(code == 500 && message.contains("conversion webhook for example.com/v1, Kind=Widget failed: "), "{failed}");
    let one = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    assert_eq!(fixture.json("DELETE", one, &Value::Null).await.0, 200);
    until(&fixture, |definition| definition.is_none()).await;
    fixture.stop().await;
}

/// Kinds and names of the events that a watch brings from a revision on, until it times out.
async fn events(fixture: &Fixture, path: &str) -> Vec<(String, String)> {
    let (code, lines) = fixture.json("GET", path, &Value::Null).await;
    assert_eq!(code, 200, "{lines}");
    let text = lines.as_str().map_or_else(|| lines.to_string(), str::to_owned);
    let read = |event: Value| {
        let text = |at: &str| event.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("/type"), text("/object/metadata/name"))
    };
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).map(read).collect()
}

#[tokio::test]
async fn fields_are_those_of_the_version_asked_for() {
    for converted in [true, false] {
        let fixture = Fixture::new().await;
        let tasks = Tasks::new("webhook");
        let (url, bundle) = webhook(&tasks).await;
        let version = |name: &str, storage: bool, fields: &[&str]| {
            let properties: serde_json::Map<_, _> =
                fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
            let selectable: Vec<Value> = fields.iter().map(|f| json!({"jsonPath": format!(".spec.{f}")})).collect();
            json!({"name": name, "served": true, "storage": storage, "selectableFields": selectable,
                "schema": {"openAPIV3Schema": {"type": "object",
                    "properties": {"spec": {"type": "object", "properties": properties}}}}})
        };
        let conversion = match converted {
            true => json!({"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": {"url": url, "caBundle": bundle}}}),
            false => json!({"strategy": "None"}),
        };
        // Versions that select by different fields have schemas of their own.
        let stored: &[&str] = if converted { &["hostPort"] } else { &["host", "port", "note"] };
        let mut versions = vec![version("v1", true, stored), version("v2", false, &["host", "port"])];
        if !converted {
            // The stored version can be selected by nothing.
            versions[0].as_object_mut().expect("a version").remove("selectableFields");
        }
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "conversion": conversion, "versions": versions}
        });
        let (code, made) =
            fixture.json("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
        assert_eq!(code, 201, "{made}");
        until(&fixture, is_established).await;

        let path = |version: &str, rest: &str| format!("/apis/example.com/{version}/namespaces/default/widgets{rest}");
        for (name, host, port) in [("a", "h", "80"), ("b", "h", "81"), ("c", "g", "80")] {
            let widget = json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": name},
                "spec": {"host": host, "port": port}});
            let (code, made) = fixture.json("POST", &path("v2", ""), &widget).await;
            assert_eq!(code, 201, "{made}");
        }
        let mut cases = vec![
            ("v2", "spec.host=h", vec!["a", "b"]),
            ("v2", "spec.host=h,spec.port=80", vec!["a"]),
            ("v2", "spec.host!=h", vec!["c"]),
            ("v2", "spec.host=h,metadata.name=b", vec!["b"]),
        ];
        if converted {
            cases.push(("v1", "spec.hostPort=h:80", vec!["a"]));
        }
        let mut revision = String::new();
        for (version, selector, expected) in cases {
            let (code, list) =
                fixture.json("GET", &path(version, &format!("?fieldSelector={selector}")), &Value::Null).await;
            let names: Vec<&str> =
                list["items"].as_array().into_iter().flatten().filter_map(|i| i["metadata"]["name"].as_str()).collect();
            assert_eq!((code, names), (200, expected), "{selector}");
            revision = list["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
        }
        let (_, page) = fixture.json("GET", &path("v2", "?fieldSelector=spec.host=h&limit=1"), &Value::Null).await;
        let token = page["metadata"]["continue"].as_str().expect("a token");
        let rest = path("v2", &format!("?fieldSelector=spec.host=h&limit=1&continue={token}"));
        let (_, page) = fixture.json("GET", &rest, &Value::Null).await;
        assert_eq!(page["items"][0]["metadata"]["name"], "b", "{page}");
        assert_eq!(page["metadata"]["continue"], "", "{page}");
        let unknown = path("v1", "?fieldSelector=spec.host=h");
        assert_eq!(fixture.json("GET", &unknown, &Value::Null).await.0, 400);

        let collection = path("v2", "?fieldSelector=spec.host=h,spec.port=80");
        assert_eq!(fixture.json("DELETE", &collection, &Value::Null).await.0, 200);
        for (turn, (name, host)) in [("b", "g"), ("c", "h"), ("c", "h")].into_iter().enumerate() {
            let annotations = json!({"turn": turn.to_string()});
            let patch = json!({"spec": {"host": host}, "metadata": {"annotations": annotations}}).to_string();
            let at = path("v2", &format!("/{name}"));
            let (code, _) = fixture.call(&fixture.admin, "PATCH", &at, "application/merge-patch+json", patch).await;
            assert_eq!(code, 200);
        }
        let watch =
            path("v2", &format!("?watch=1&timeoutSeconds=1&resourceVersion={revision}&fieldSelector=spec.host=h"));
        let seen = events(&fixture, &watch).await;
        let expected = [("DELETED", "a"), ("DELETED", "b"), ("ADDED", "c"), ("MODIFIED", "c")];
        assert_eq!(seen, expected.map(|(kind, name)| (kind.to_owned(), name.to_owned())));
        let watch = path("v2", "?watch=1&timeoutSeconds=1&fieldSelector=spec.host=h");
        assert_eq!(events(&fixture, &watch).await, [("ADDED".to_owned(), "c".to_owned())]);
        tasks.stop(std::time::Duration::from_secs(10)).await;
        fixture.stop().await;
    }
}
