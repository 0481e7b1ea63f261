//! What Ingresses become is what the gateway makes of it: the objects are put through the same tables.

use std::net::SocketAddr;

use ferry_client::ObjectKey;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::{Converted, convert};
use crate::api::HTTPRoute;
use crate::resolve::objects::Objects;
use crate::table::{Entry, Head, Target};
use crate::testing::{add_certificate, add_service, objects, read, resolved, settings};

fn ingress(name: &str, annotations: &[(&str, &str)], spec: &Value) -> k8s_openapi::api::networking::v1::Ingress {
    let annotations: serde_json::Map<String, Value> =
        annotations.iter().map(|(name, value)| (format!("nginx.ingress.kubernetes.io/{name}"), json!(value))).collect();
    let metadata = json!({ "name": name, "namespace": "n", "annotations": annotations });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("an Ingress")
}

fn rule(host: &str, paths: &[(&str, &str, &str)]) -> Value {
    let paths: Vec<Value> = paths
        .iter()
        .map(|(path, kind, service)| {
            json!({ "path": path, "pathType": kind, "backend": { "service": { "name": service, "port": { "name": "http" } } } })
        })
        .collect();
    json!({ "host": host, "http": { "paths": paths } })
}

fn turned(ingresses: &[k8s_openapi::api::networking::v1::Ingress]) -> Converted {
    convert(ingresses, &ObjectKey::new("n", "ingress"), &|_, service, _| (service != "unknown").then_some(80))
}

/// A cluster with the objects, Services `a` and `b`, and a certificate.
fn cluster(converted: &Converted) -> Objects {
    let mut cluster = objects();
    let endpoint: SocketAddr = "127.0.0.1:80".parse().expect("an address");
    for service in ["a", "b"] {
        add_service(&mut cluster, service, &[endpoint], None);
    }
    add_certificate(&mut cluster, "cert", &["a.com"]);
    cluster.namespaces.insert(
        "n".into(),
        read(json!({ "metadata": { "name": "n", "labels": { "kubernetes.io/metadata.name": "n" } } })),
    );
    for object in &converted.objects {
        match object["kind"].as_str() {
            Some("Gateway") => cluster.gateways.push(read(object.clone())),
            Some("HTTPRoute") => cluster.http_routes.push(read::<HTTPRoute>(object.clone())),
            _ => {
                let grant = read::<crate::api::ReferenceGrant>(object.clone());
                cluster.set_grant(&crate::resolve::objects::key(&grant.metadata), Some(grant));
            }
        }
    }
    cluster
}

/// The entry that a request takes at a port.
fn taken(
    cluster: &Objects,
    port: u16,
    host: &str,
    path: &str,
    header: Option<(&'static str, &'static str)>,
) -> Option<Entry> {
    let settings = settings();
    let resolved = resolved(cluster, &settings);
    let table = resolved.ports.get(&(settings.addresses[0], port, false))?;
    let mut headers = HeaderMap::new();
    if let Some((name, value)) = header {
        headers.insert(name, value.parse().expect("a value"));
    }
    let head = Head { host, path, query: None, method: &Method::GET, headers: &headers };
    table.listener(host)?.http.find(&head).ok()?.map(|entry| Entry::clone(&entry))
}

/// The Services that the entry leads to, with their weights.
fn backends(entry: &Entry) -> Vec<String> {
    let name = |target: &Target| match target {
        Target::Backend(backend) => backend.name.to_string(),
        Target::Broken(why) => format!("{why:?}"),
    };
    entry.rule.split.backends.iter().map(|one| format!("{} {}", one.weight, name(&one.target))).collect()
}

#[test]
fn hosts_paths_and_certificates_become_listeners_and_routes() {
    let spec = json!({
        "tls": [{ "hosts": ["a.com"], "secretName": "cert" }],
        "rules": [rule("a.com", &[("/", "Prefix", "a"), ("/only", "Exact", "b")]), rule("b.com", &[("/", "Prefix", "b")])],
    });
    let converted = turned(&[ingress("web", &[], &spec)]);
    assert_eq!(converted.remarks, Vec::<String>::new());
    let cluster = cluster(&converted);
    let to = |port, host, path| taken(&cluster, port, host, path, None).map(|entry| backends(&entry));
    assert_eq!(to(443, "a.com", "/x"), Some(vec!["1 n/a:80".into()]));
    assert_eq!(to(443, "a.com", "/only"), Some(vec!["1 n/b:80".into()]));
    assert_eq!(to(80, "b.com", "/x"), Some(vec!["1 n/b:80".into()]));
    assert_eq!(to(443, "b.com", "/x"), None);
    let plain = taken(&cluster, 80, "a.com", "/x", None).expect("a redirect");
    assert_eq!(
        plain.rule.filters.redirect.as_ref().map(|to| (to.scheme.as_deref(), to.status.as_u16())),
        Some((Some("https"), 308))
    );
}

#[test]
fn rewrites_are_turned_where_routes_have_them() {
    let spec = json!({ "rules": [rule("a.com", &[("/api(/|$)(.*)", "ImplementationSpecific", "a"), ("/x/(.*)/y", "ImplementationSpecific", "b")])] });
    let converted = turned(&[ingress("web", &[("rewrite-target", "/v1/$2")], &spec)]);
    let route = converted.objects.iter().find(|one| one["kind"] == "HTTPRoute").expect("a route");
    assert_eq!(
        route["spec"]["rules"],
        json!([{
            "matches": [{ "path": { "type": "PathPrefix", "value": "/api" } }],
            "filters": [{ "type": "URLRewrite", "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/v1" } } }],
            "backendRefs": [{ "name": "a", "port": 80 }],
        }])
    );
    assert!(converted.remarks.iter().any(|remark| remark.contains("\"/x/(.*)/y\"")), "{:?}", converted.remarks);
}

#[test]
fn canaries_share_the_rules_of_their_main() {
    let spec = |service| json!({ "rules": [rule("a.com", &[("/", "Prefix", service)])] });
    let canary = [("canary", "true"), ("canary-weight", "20"), ("canary-by-header", "x-canary")];
    let converted = turned(&[ingress("canary", &canary, &spec("b")), ingress("web", &[], &spec("a"))]);
    assert_eq!(converted.remarks, Vec::<String>::new());
    let cluster = cluster(&converted);
    let to = |header| taken(&cluster, 80, "a.com", "/", header).map(|entry| backends(&entry));
    assert_eq!(to(None), Some(vec!["80 n/a:80".into(), "20 n/b:80".into()]));
    assert_eq!(to(Some(("x-canary", "always"))), Some(vec!["1 n/b:80".into()]));
    assert_eq!(to(Some(("x-canary", "never"))), Some(vec!["1 n/a:80".into()]));
}

#[test]
fn what_cannot_be_turned_is_named_and_nothing_is_opened() {
    let spec = json!({ "rules": [rule("a.com", &[("/", "Prefix", "a")])] });
    for (annotation, value, remark) in [
        ("auth-type", "basic", "passwords"),
        ("whitelist-source-range", "10.0.0.0/8", "source ranges"),
        ("backend-protocol", "HTTPS", "BackendTLSPolicy"),
    ] {
        let converted = turned(&[ingress("web", &[(annotation, value)], &spec)]);
        assert_eq!(converted.objects, Vec::<Value>::new(), "{annotation}");
        assert!(converted.remarks.iter().any(|text| text.contains(remark)), "{:?}", converted.remarks);
    }
    for (annotation, value) in [
        ("proxy-body-size", "8m"),
        ("limit-rps", "5"),
        ("limit-rpm", "5"),
        ("affinity", "cookie"),
        ("server-snippet", "x"),
    ] {
        let converted = turned(&[ingress("web", &[(annotation, value)], &spec)]);
        assert_eq!(converted.objects.len(), 2, "{annotation}");
        assert!(converted.remarks.iter().any(|text| text.contains(annotation)), "{:?}", converted.remarks);
    }
    let unknown = json!({ "rules": [rule("a.com", &[("/", "Prefix", "unknown")])] });
    let converted = turned(&[ingress("web", &[], &unknown)]);
    assert_eq!(converted.objects, Vec::<Value>::new());
    assert!(converted.remarks[0].contains("\"unknown\""), "{:?}", converted.remarks);
}
