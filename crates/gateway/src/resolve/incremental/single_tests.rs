//! Single changes: what they affect, and what they leave alone.

use std::collections::HashSet;
use std::net::SocketAddr;

use serde_json::{Value, json};

use super::*;
use crate::INGRESS_CONTROLLER;
use crate::resolve::resolve;
use crate::table::Target;
use crate::testing::{objects as basics, read, settings};

fn started() -> Incremental {
    let mut incremental = Incremental::new(settings());
    let class = json!({ "metadata": { "name": "ferry" }, "spec": { "controller": INGRESS_CONTROLLER } });
    let service = json!({ "metadata": { "name": "s", "namespace": "n" }, "spec": { "ports": [{ "port": 80 }] } });
    incremental.apply([
        Changed::IngressClass(ObjectKey::new("", "ferry"), Some(read(class))),
        Changed::Service(ObjectKey::new("n", "s"), Some(read(service))),
    ]);
    incremental
}

/// The name of an Ingress and where it wants requests from.
fn ingress(name: &str, year: u16, host: &str, paths: &[String], annotations: Value) -> Changed {
    let backend = json!({ "service": { "name": "s", "port": { "number": 80 } } });
    let path = |path: &String| json!({ "path": path, "pathType": "Prefix", "backend": backend });
    let made = json!({
        "metadata": { "name": name, "namespace": "n", "annotations": annotations,
                      "creationTimestamp": format!("{year}-01-01T00:00:00Z") },
        "spec": { "ingressClassName": "ferry", "rules": [
            { "host": host, "http": { "paths": paths.iter().map(path).collect::<Vec<_>>() } },
        ] },
    });
    Changed::Ingress(ObjectKey::new("n", name), Some(read(made)))
}

fn gone(name: &str) -> Changed {
    Changed::Ingress(ObjectKey::new("n", name), None)
}

/// The rules at the plain port: where they are, and what they are for.
fn rules(resolved: &Resolved) -> HashSet<(usize, String)> {
    let tables = resolved.ingress.http.iter().flat_map(|table| &table.listeners);
    let mut seen = HashSet::new();
    let all = tables.flat_map(|listener| listener.http.rules(&mut seen)).collect::<Vec<_>>();
    all.iter()
        .map(|rules| (rules.as_ptr() as usize, format!("{} {}", rules[0].rule.route, rules[0].rule.name)))
        .collect()
}

fn named(resolved: &Resolved) -> HashSet<String> {
    rules(resolved).into_iter().map(|(_, name)| name).collect()
}

/// One that changed made the rules and the statuses of all others anew.
#[test]
fn one_that_changes_leaves_the_others_alone() {
    let mut incremental = started();
    let one = |number: usize, path: &str| {
        ingress(&format!("i{number}"), 2026, &format!("h{number}.com"), &[path.to_owned()], json!({}))
    };
    let began = std::time::Instant::now();
    incremental.apply((0..500).map(|number| one(number, "/")));
    let whole = began.elapsed();
    let before = rules(incremental.resolved());
    assert_eq!(before.len(), 500);
    let began = std::time::Instant::now();
    let effect = incremental.apply([one(7, "/other")]);
    println!("it took {whole:?} for all, and {:?} for one", began.elapsed());
    assert!(effect.tables);
    assert_eq!(effect.statuses.iter().map(|id| id.key.to_string()).collect::<Vec<_>>(), ["n/i7"]);
    let after = rules(incremental.resolved());
    let names = |of: &HashSet<(usize, String)>, without: &HashSet<(usize, String)>| {
        of.difference(without).map(|(_, name)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&before, &after), ["Ingress n/i7 /"]);
    assert_eq!(names(&after, &before), ["Ingress n/i7 /other"]);
    // And so does one that comes, and one that goes.
    incremental.apply([one(500, "/")]);
    incremental.apply([gone("i500")]);
    assert_eq!(rules(incremental.resolved()), after);
}

#[test]
fn paths_that_had_no_room_get_it_when_others_go() {
    let mut incremental = started();
    let paths = |of: &str| (0..12_000).map(|number| format!("/{of}/{number}")).collect::<Vec<_>>();
    let count = |incremental: &Incremental, of: &str| {
        named(incremental.resolved()).iter().filter(|name| name.starts_with(&format!("Ingress n/{of}"))).count()
    };
    incremental.apply([ingress("late", 2027, "a.com", &paths("late"), json!({}))]);
    assert_eq!(count(&incremental, "late"), 12_000);
    incremental.apply([ingress("early", 2026, "a.com", &paths("early"), json!({}))]);
    assert_eq!((count(&incremental, "early"), count(&incremental, "late")), (12_000, 8_000));
    let told = |incremental: &Incremental| incremental.resolved().ingress.warnings().count();
    assert_eq!(told(&incremental), 11);
    incremental.apply([gone("early")]);
    assert_eq!((count(&incremental, "early"), count(&incremental, "late"), told(&incremental)), (0, 12_000, 0));
}

#[test]
fn expressions_that_had_no_room_get_it_when_others_go() {
    let mut incremental = started();
    let regex = || json!({ "nginx.ingress.kubernetes.io/use-regex": "true" });
    let paths = |from: usize| (from..from + 300).map(|number| format!("/{number}/[a-z]{{2000}}")).collect::<Vec<_>>();
    let check = |incremental: &Incremental| {
        let whole = resolve(incremental.objects(), incremental.settings(), &Certificates::default());
        assert_eq!(named(incremental.resolved()), named(&whole));
        named(&whole).len()
    };
    incremental.apply([
        ingress("one", 2026, "a.com", &paths(1000), regex()),
        ingress("plain", 2026, "b.com", &paths(0)[..1], json!({})),
    ]);
    let alone = check(&incremental);
    incremental.apply([ingress("two", 2025, "a.com", &paths(2000), regex())]);
    let both = check(&incremental);
    assert!(both < 601, "all have room: {both}");
    // Others know nothing of it.
    incremental.apply([ingress("plain", 2026, "b.com", &paths(1)[..1], json!({}))]);
    assert_eq!(check(&incremental), both);
    incremental.apply([gone("two")]);
    assert_eq!(check(&incremental), alone);
}

/// What endpoints do is seen by requests at once, and by nothing else.
#[test]
fn endpoints_change_without_any_route() {
    let mut incremental = Incremental::new(settings());
    let endpoint = |last: u8| -> Changed {
        let slice = json!({
            "metadata": { "name": "s-1", "namespace": "n", "labels": { "kubernetes.io/service-name": "s" } },
            "addressType": "IPv4", "ports": [{ "port": 8080 }], "endpoints": [{ "addresses": [format!("10.0.0.{last}")] }],
        });
        Changed::Slice(ObjectKey::new("n", "s-1"), Some(read(slice)))
    };
    let class = basics().classes.iter().next().cloned();
    let listeners = json!([{ "name": "http", "port": 80, "protocol": "HTTP" }]);
    let service = json!({ "metadata": { "name": "s", "namespace": "n" }, "spec": { "ports": [{ "port": 80 }] } });
    let route = |path: &str| {
        json!({
            "metadata": { "name": "r", "namespace": "n" },
            "spec": { "parentRefs": [{ "name": "g" }], "rules": [{ "matches": [{ "path": { "value": path } }], "backendRefs": [{ "name": "s", "port": 80 }] }] },
        })
    };
    incremental.apply([
        Changed::Class(ObjectKey::new("", "ferry"), class),
        Changed::Gateway(ObjectKey::new("n", "g"), Some(read(crate::testing::gateway("g", listeners)))),
        Changed::Service(ObjectKey::new("n", "s"), Some(read(service))),
        Changed::Http(ObjectKey::new("n", "r"), Some(read(route("/a")))),
        endpoint(1),
    ]);
    let backend = |incremental: &Incremental| {
        let table = incremental.resolved().ports.values().next().expect("a table").clone();
        let rules = table.listeners[0].http.rules(&mut Default::default())[0].clone();
        let entry = rules[0].clone();
        match &entry.rule.split.backends[0].target {
            Target::Backend(backend) => backend.clone(),
            Target::Broken(broken) => panic!("{broken:?}"),
        }
    };
    let first = backend(&incremental);
    let at = |last: u8| vec![SocketAddr::from(([10, 0, 0, last], 8080))];
    assert_eq!(**first.endpoints(), at(1));
    let effect = incremental.apply([endpoint(2)]);
    assert!(!effect.tables && effect.endpoints_left && effect.statuses.is_empty());
    assert!(!incremental.apply([endpoint(2)]).endpoints_left, "nobody left");
    assert_eq!(**first.endpoints(), at(2));
    // A route that changes keeps its backends, and whoever has a request under way sees the same endpoints.
    incremental.apply([Changed::Http(ObjectKey::new("n", "r"), Some(read(route("/b"))))]);
    assert!(Arc::ptr_eq(&first, &backend(&incremental)));
    // What is heard of no more leaves nothing behind.
    drop(first);
    incremental.apply([Changed::Http(ObjectKey::new("n", "r"), None)]);
    incremental.forget();
    assert!(incremental.known.is_empty());
}
