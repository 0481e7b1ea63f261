//! Few bytes that used to stand for very many: what is resolved of objects takes about as much room and time as the objects.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_client::ObjectKey;
use serde_json::{Value, json};

use super::incremental::Incremental;
use super::objects::{Id, Objects, key};
use super::{Changed, Resolved};
use crate::api::{HTTPRoute, ListenerSet};
use crate::table::{Head, PortTable};
use crate::testing::{add_service, gateway, objects, read, resolved, settings};
use crate::{INGRESS_CONTROLLER, resolve::status};

/// A build for tests on a busy machine is slow; what these tests are about took minutes, or all memory.
const SOON: Duration = Duration::from_secs(60);

fn listeners(count: u16) -> Value {
    (0..count).map(|n| json!({ "name": format!("l{n}"), "port": 8000 + n, "protocol": "HTTP" })).collect()
}

fn route(namespace: &str, name: &str, parents: Value, hostnames: &[String], rules: usize) -> Arc<HTTPRoute> {
    let rule = |place: usize| json!({ "matches": [{ "path": { "value": format!("/{name}/{place}") } }], "backendRefs": [{ "name": "s", "port": 80 }] });
    read(json!({
        "metadata": { "name": name, "namespace": namespace, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "parentRefs": parents, "hostnames": hostnames, "rules": (0..rules).map(rule).collect::<Vec<_>>() },
    }))
}

fn all_tables(resolved: &Resolved) -> impl Iterator<Item = &Arc<PortTable>> {
    resolved.ports.values()
}

/// Why a route is not accepted.
fn refusal(resolved: &Resolved, route: &HTTPRoute) -> String {
    let id = Id { key: key(&route.metadata), kind: "HTTPRoute" };
    let problem = resolved.routes[&id].parents[0].accepted.as_ref();
    problem.map_or_else(String::new, |problem| format!("{}: {}", problem.reason, problem.message))
}

fn with_gateway(listeners: Value) -> Objects {
    let mut objects = objects();
    add_service(&mut objects, "s", &["10.0.0.1:80".parse().unwrap()], None);
    let mut gateway = gateway("g", listeners);
    for listener in gateway["spec"]["listeners"].as_array_mut().unwrap() {
        listener["allowedRoutes"] = json!({ "namespaces": { "from": "All" } });
    }
    gateway["spec"]["allowedListeners"] = json!({ "namespaces": { "from": "All" } });
    objects.gateways.push(read(gateway));
    objects
}

/// Each listener had a copy of each rule of each route: a million of them, and as many more for each hostname.
#[test]
fn rules_are_there_once_for_all_listeners() {
    let (began, mut objects) = (Instant::now(), with_gateway(listeners(64)));
    let parent = json!([{ "name": "g", "namespace": "n" }]);
    for number in 0..1000 {
        objects.http_routes.push(route("n", &format!("r{number}"), parent.clone(), &[], 16));
    }
    let settings = settings();
    let resolved = resolved(&objects, &settings);
    let mut seen = HashSet::new();
    for (place, table) in all_tables(&resolved).enumerate() {
        let own = table.listeners[0].http.rules(&mut HashSet::new()).len();
        let new = table.listeners[0].http.rules(&mut seen);
        assert_eq!((own, new.len()), (1000, if place == 0 { 1000 } else { 0 }), "listener {place}");
        assert!(new.iter().all(|rules| rules.len() == 16));
    }
    let (headers, method) = (http::HeaderMap::new(), http::Method::GET);
    let head = Head { host: "a.com", path: "/r7/3/x", query: None, method: &method, headers: &headers };
    let taken = |table: &Arc<PortTable>| table.listeners[0].http.find(&head).unwrap().unwrap();
    let rules: Vec<_> = all_tables(&resolved).map(|table| taken(table).rule.clone()).collect();
    assert_eq!((rules.len(), &*rules[0].route), (64, "HTTPRoute n/r7"));
    assert!(rules.iter().all(|rule| Arc::ptr_eq(rule, &rules[0])));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// A route that names its parent in many ways had its rules once for each of them, and was counted as often.
#[test]
fn a_route_is_attached_to_a_listener_once() {
    let mut objects = with_gateway(listeners(2));
    let parents: Value = [
        json!({}),
        json!({ "sectionName": "l0" }),
        json!({ "port": 8000 }),
        json!({ "sectionName": "l0", "port": 8000 }),
    ]
    .into_iter()
    .map(|mut parent| {
        (parent["name"], parent["namespace"]) = ("g".into(), "n".into());
        parent
    })
    .collect();
    // Both names come to the same host where a listener has that alone.
    let hosts = ["*.com".to_owned(), "a.com".to_owned(), "A.com".to_owned()];
    objects.http_routes.push(route("n", "r", parents, &hosts, 2));
    let resolved = resolved(&objects, &settings());
    let gateway = ObjectKey::new("n", "g");
    assert_eq!((resolved.attached(&gateway, 0), resolved.attached(&gateway, 1)), (1, 1));
    let attachment = resolved.routes.values().next().unwrap();
    assert_eq!((attachment.parents.len(), attachment.placed.len(), attachment.placed[0].hosts.len()), (4, 2, 2));
    for table in all_tables(&resolved) {
        assert_eq!(table.listeners[0].http.of_host("a.com").len(), 4, "by its name and by the star");
    }
}

/// What one namespace puts into a Gateway is bounded, and the others do not notice.
#[test]
fn a_namespace_has_so_much_of_a_gateway_and_leaves_the_rest() {
    let objects = with_gateway(listeners(64));
    let parent = json!([{ "name": "g", "namespace": "n" }]);
    let hosts: Vec<_> = (0..16).map(|host| format!("h{host}.a.com")).collect();
    let greedy: Vec<_> =
        (0..1000).map(|number| route("greedy", &format!("r{number:04}"), parent.clone(), &hosts, 1)).collect();
    let mut incremental = Incremental::new(settings());
    let of = |route: &Arc<HTTPRoute>| Changed::Http(key(&route.metadata), Some(route.clone()));
    let basics = objects.classes.iter().map(|one| Changed::Class(key(&one.metadata), Some(one.clone())));
    let gateways = objects.gateways.iter().map(|one| Changed::Gateway(key(&one.metadata), Some(one.clone())));
    incremental.apply(basics.chain(gateways).chain(greedy.iter().map(of)).collect::<Vec<_>>());
    let refused = |incremental: &Incremental| {
        greedy.iter().filter(|route| !refusal(incremental.resolved(), route).is_empty()).count()
    };
    let before = refused(&incremental);
    assert!((100..900).contains(&before), "{before}");
    assert_eq!(
        refusal(incremental.resolved(), &greedy[999]),
        "TooManyRules: the routes of namespace greedy would take more than 64 MiB"
    );
    let other = route("other", "r", parent, &hosts, 16);
    incremental.apply([of(&other)]);
    assert_eq!(refusal(incremental.resolved(), &other), "");
    // Where one goes, the next one has its place, and its status says so.
    let effect = incremental.apply([Changed::Http(key(&greedy[0].metadata), None)]);
    let let_in = greedy[1..].iter().filter(|route| refusal(incremental.resolved(), route).is_empty()).count();
    assert_eq!(let_in, 1000 - before);
    assert_eq!(effect.statuses.iter().filter(|id| id.kind == "HTTPRoute").count(), 2);
    let id = Id { key: key(&greedy[999].metadata), kind: "HTTPRoute" };
    let update = status::update(
        incremental.objects(),
        incremental.resolved(),
        &Default::default(),
        incremental.settings(),
        &id,
        "now",
    );
    assert_eq!(update.unwrap().status["parents"][0]["conditions"][0]["reason"], "TooManyRules");
}

/// It was served no more at all.
#[test]
fn a_route_that_outgrows_its_room_is_served_as_it_was() {
    let objects = with_gateway(listeners(64));
    let parent = json!([{ "name": "g", "namespace": "n" }]);
    let hosts: Vec<_> = (0..16).map(|host| format!("h{host}.a.com")).collect();
    let of = |route: &Arc<HTTPRoute>| Changed::Http(key(&route.metadata), Some(route.clone()));
    let make = |name: &str, uid: &str, rules: usize| {
        let mut made = (*route("greedy", name, parent.clone(), &hosts, rules)).clone();
        made.metadata.uid = Some(uid.to_owned());
        Arc::new(made)
    };
    let others: Vec<_> = (0..1000).map(|number| make(&format!("r{number:04}"), "1", 1)).collect();
    let mut incremental = Incremental::new(settings());
    let basics = objects.classes.iter().map(|one| Changed::Class(key(&one.metadata), Some(one.clone())));
    let gateways = objects.gateways.iter().map(|one| Changed::Gateway(key(&one.metadata), Some(one.clone())));
    let mine = make("mine", "1", 1);
    incremental.apply(basics.chain(gateways).chain([of(&mine)]).collect::<Vec<_>>());
    incremental.apply(others.iter().map(of).collect::<Vec<_>>());
    let served = |incremental: &Incremental| {
        let table = all_tables(incremental.resolved()).next().expect("a port");
        let of_host = table.listeners[0].http.of_host("h3.a.com");
        of_host.iter().filter(|entry| entry.rule.route.ends_with("greedy/mine")).count()
    };
    assert_eq!(served(&incremental), 1);

    // Twice: the form that was refused is not the one that is kept.
    for rules in [4000, 3000] {
        incremental.apply([of(&make("mine", "1", rules))]);
        let told = refusal(incremental.resolved(), &mine);
        assert!(
            told.starts_with("TooManyRules: the routes of namespace greedy would take more than 64 MiB; "),
            "{told}"
        );
        assert!(told.ends_with("the form of the route that was accepted last is served"), "{told}");
        assert_eq!(served(&incremental), 1);
    }
    // It keeps its room against those who wait, and what it refers to is followed.
    assert!(others.iter().any(|other| !refusal(incremental.resolved(), other).is_empty()));
    let effect = incremental.apply([Changed::Service(key(&mine.metadata), None)]);
    assert!(!effect.tables);
    let service =
        read(json!({ "metadata": { "name": "s", "namespace": "greedy" }, "spec": { "ports": [{ "port": 80 }] } }));
    assert!(incremental.apply([Changed::Service(ObjectKey::new("greedy", "s"), Some(service))]).tables);
    assert_eq!(served(&incremental), 1);
    let neighbour = route("other", "r", parent.clone(), &hosts, 16);
    incremental.apply([of(&neighbour)]);
    assert_eq!(refusal(incremental.resolved(), &neighbour), "");
    // Another Gateway's listeners are not where its own were.
    let fewer = objects.gateways.iter().map(|one| {
        let mut gateway = (**one).clone();
        gateway.spec.listeners.remove(0);
        Changed::Gateway(key(&gateway.metadata), Some(Arc::new(gateway)))
    });
    incremental.apply(fewer.collect::<Vec<_>>());
    assert_eq!(served(&incremental), 1);

    // As soon as there is room, it is served as it is.
    incremental.apply(others.iter().map(|other| Changed::Http(key(&other.metadata), None)).collect::<Vec<_>>());
    assert_eq!((served(&incremental), refusal(incremental.resolved(), &mine)), (3000, String::new()));

    // One that has only its name gets nothing of it.
    incremental.apply(others.iter().map(of).collect::<Vec<_>>());
    incremental.apply([of(&make("mine", "2", 4000))]);
    assert!(refusal(incremental.resolved(), &mine).ends_with("more than 64 MiB"));
    assert_eq!(served(&incremental), 0);
}

/// All were compared with each other, also those beyond the limit, and those took routes.
#[test]
fn listeners_beyond_the_limit_cost_nothing() {
    let (began, mut objects) = (Instant::now(), with_gateway(listeners(1)));
    for set in 0..400 {
        let one = |n: usize| json!({ "name": format!("l{n}"), "port": 443, "protocol": "TLS", "hostname": format!("{n}.{set}.a.com"), "tls": { "mode": "Passthrough" } });
        let listeners: Vec<_> = (0..64).map(one).collect();
        objects.listener_sets.push(read::<ListenerSet>(json!({
            "metadata": { "name": format!("s{set:03}"), "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "parentRef": { "name": "g" }, "listeners": listeners },
        })));
    }
    let settings = settings();
    let resolved = resolved(&objects, &settings);
    let frontend = &resolved.gateways.list[0].frontend;
    assert_eq!(frontend.listeners.len(), 1 + 16 * 64, "whole sets are taken or left");
    assert_eq!(frontend.listeners.iter().filter(|one| one.takes_routes()).count(), 1024);
    let last = &frontend.sets[399];
    assert_eq!(last.refused.as_ref().map(|problem| problem.reason), Some("TooManyListeners"));
    let updates = status::updates(&objects, &resolved, &Default::default(), &settings, "now");
    assert_eq!(updates.iter().filter(|update| update.kind == "ListenerSet").count(), 400);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// Every path had its own users, ranges and origins; every path was compared with every host that has a certificate.
#[test]
fn what_an_ingress_says_of_all_its_paths_is_there_once() {
    let (began, mut objects) = (Instant::now(), with_gateway(listeners(1)));
    objects
        .ingress_classes
        .push(read(json!({ "metadata": { "name": "ferry" }, "spec": { "controller": INGRESS_CONTROLLER } })));
    crate::testing::add_certificate(&mut objects, "cert", &["a.com"]);
    let users: String = (0..50_000).map(|n| format!("user{n}:{{SHA}}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n")).collect();
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, users);
    let secret = json!({ "metadata": { "name": "users", "namespace": "n" }, "data": { "auth": encoded } });
    objects.secrets.insert(ObjectKey::new("n", "users"), read(secret));
    let ranges: Vec<_> = (0..10_000).map(|n| format!("10.{}.{}.0/25", n / 256, n % 256)).collect();
    let hosts: Vec<_> = (0..4000).map(|n| format!("h{n}.a.com")).collect();
    let backend = json!({ "service": { "name": "s", "port": { "number": 80 } } });
    let rule = |host: &String| {
        let path = |n: usize| json!({ "path": format!("/{n}"), "pathType": "Prefix", "backend": backend });
        json!({ "host": host, "http": { "paths": (0..6).map(path).collect::<Vec<_>>() } })
    };
    let annotation = |name: &str| format!("nginx.ingress.kubernetes.io/{name}");
    let ingress = json!({
        "metadata": { "name": "i", "namespace": "n", "annotations": {
            annotation("auth-type"): "basic", annotation("auth-secret"): "users", annotation("enable-cors"): "true",
            annotation("whitelist-source-range"): ranges.join(","), annotation("rewrite-target"): "/x",
        } },
        "spec": { "ingressClassName": "ferry", "rules": hosts.iter().map(rule).collect::<Vec<_>>(),
                  "tls": [{ "hosts": hosts, "secretName": "cert" }] },
    });
    objects.ingresses.push(read(ingress));
    let resolved = resolved(&objects, &settings());
    let tables = [&resolved.ingress.http, &resolved.ingress.https].map(|table| table.as_ref().unwrap());
    let mut seen = HashSet::new();
    let all: Vec<_> = tables.iter().flat_map(|table| table.listeners[0].http.rules(&mut seen)).collect();
    assert_eq!(all.len(), 2 * 20_000);
    let extras = |n: usize| all[n][0].rule.extras.as_ref().unwrap();
    let cors = |n: usize| all[n][0].rule.filters.cors.as_ref().unwrap();
    assert!((1..all.len()).all(|n| Arc::ptr_eq(extras(n), extras(0)) && Arc::ptr_eq(cors(n), cors(0))));
    assert_eq!(
        extras(0).basic_auth.as_ref().unwrap().users.hash("user49999"),
        Some("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=")
    );
    assert!(all[..20_000].iter().all(|rules| rules[0].rule.filters.redirect.is_some()), "every host has a certificate");
    // Of 4,000 paths too many its owner is told in few words.
    let warnings: Vec<_> = resolved.ingress.warnings().map(|(_, reason, text)| format!("{reason}: {text}")).collect();
    assert_eq!(warnings.len(), 11, "{warnings:?}");
    assert!(warnings[0].starts_with("TooManyPaths: the Ingresses of namespace n have more than 20000 paths"));
    assert_eq!(warnings[10], "MoreProblems: there are 3990 more problems of this kind or of others");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// Ports of a Gateway are sockets of the machine, of which all share the number.
#[test]
fn a_namespace_has_so_many_ports() {
    let mut objects = objects();
    let add = |objects: &mut Objects, namespace: &str, number: usize| {
        let mut made = gateway(&format!("g{number:03}"), listeners(64));
        made["metadata"]["namespace"] = namespace.into();
        objects.gateways.push(read(made));
    };
    (0..20).for_each(|number| add(&mut objects, "greedy", number));
    add(&mut objects, "other", 999);
    let resolved = resolved(&objects, &settings());
    let served = |namespace: &str| {
        let of = resolved.gateways.list.iter().filter(|state| state.key.namespace == namespace);
        of.filter(|state| state.unusable.is_none()).count()
    };
    assert_eq!((served("greedy"), served("other")), (8, 1));
    assert_eq!(resolved.ports.len(), 9 * 64);
    let problem = resolved.gateways.list.iter().find_map(|state| state.unusable.as_ref()).unwrap();
    assert!(problem.message.contains("no more than 512 ports"), "{}", problem.message);
}

/// Sixteen namespaces took them all.
#[test]
fn no_number_of_namespaces_has_all_ports() {
    let mut objects = objects();
    for namespace in 0..40 {
        for number in 0..8 {
            let mut made = gateway(&format!("g{number}"), listeners(64));
            made["metadata"]["namespace"] = format!("greedy{namespace:02}").into();
            objects.gateways.push(read(made));
        }
    }
    let mut last = gateway("last", listeners(8));
    last["metadata"]["namespace"] = "other".into();
    objects.gateways.push(read(last));
    let resolved = resolved(&objects, &settings());
    assert_eq!(resolved.gateways.list.last().unwrap().key.name, "last");
    assert_eq!(resolved.gateways.list.last().unwrap().unusable, None);
    assert!(resolved.ports.len() < 8192);
}

/// Whoever could add ListenerSets to a Gateway could take its addresses away from all.
#[test]
fn ports_of_listener_sets_take_nothing_from_the_gateway() {
    let mut objects = with_gateway(listeners(2));
    for set in 0..10 {
        let one = |n: usize| json!({ "name": format!("l{n}"), "port": 9000 + set * 64 + n, "protocol": "HTTP" });
        // A port that is there already is none more.
        let known = json!({ "name": "known", "port": 8000, "protocol": "HTTP", "hostname": format!("{set}.com") });
        let listeners: Vec<_> = (0..63).map(one).chain([known]).collect();
        objects.listener_sets.push(read::<ListenerSet>(json!({
            "metadata": { "name": format!("s{set:03}"), "namespace": "greedy", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "parentRef": { "name": "g", "namespace": "n" }, "listeners": listeners },
        })));
    }
    let resolved = resolved(&objects, &settings());
    let state = &resolved.gateways.list[0];
    assert_eq!(state.unusable, None);
    // Three sets of 64 are a quarter of the listeners, and 31 ports a quarter of what the Gateway leaves of 128.
    assert_eq!(resolved.ports.len(), 2 + 31);
    let refused = state.frontend.listeners.iter().filter_map(|one| one.accepted.as_ref());
    assert_eq!(refused.filter(|problem| problem.reason == "PortUnavailable").count(), 3 * 63 - 31);
    assert_eq!(state.frontend.listeners.iter().filter(|one| one.spec.port == 8000 && one.is_valid()).count(), 4);
}

/// Sixteen ListenerSets of one namespace took all listeners that a Gateway may have, and its ports besides.
#[test]
fn a_namespace_leaves_listeners_and_ports_to_the_next() {
    let mut objects = with_gateway(listeners(2));
    for (place, namespace) in ["a", "b", "c", "d", "later"].into_iter().enumerate() {
        for set in 0..16 {
            let one = |n: usize| {
                let port = if n == 0 { 9000 + 16 * place + set } else { 8000 };
                json!({ "name": format!("l{n}"), "port": port, "protocol": "HTTP", "hostname": format!("{n}.{set}.{namespace}.com") })
            };
            let listeners: Vec<_> = (0..if namespace == "later" { 2 } else { 32 }).map(one).collect();
            let created = format!("2026-01-0{}T00:00:00Z", place + 1);
            objects.listener_sets.push(read::<ListenerSet>(json!({
                "metadata": { "name": format!("s{set:03}"), "namespace": namespace, "creationTimestamp": created },
                "spec": { "parentRef": { "name": "g", "namespace": "n" }, "listeners": listeners },
            })));
        }
    }
    let resolved = resolved(&objects, &settings());
    let frontend = &resolved.gateways.list[0].frontend;
    let accepted = |namespace: &str| {
        let of = frontend.sets.iter().filter(|set| set.key.namespace == namespace && set.refused.is_none());
        let listening = of.flat_map(|set| &frontend.listeners[set.listeners.clone()]);
        listening.filter(|one| one.is_valid()).count()
    };
    // Whole sets of a quarter each: of 1022, 798, 606, 446.
    assert_eq!(["a", "b", "c", "d"].map(accepted), [7 * 32, 6 * 32, 4 * 32, 3 * 32]);
    assert_eq!(accepted("later"), 16 * 2, "all that it has");
    let refused = frontend.sets.iter().find_map(|set| set.refused.as_ref()).unwrap();
    assert_eq!(
        (refused.reason, &*refused.message),
        (
            "TooManyListeners",
            "the ListenerSets of namespace a would have more than 255 listeners: a quarter of what others leave of 1024"
        )
    );
}

/// Every reference to a Service read all certificates of its policies again, and noted each of the policies.
#[test]
fn certificates_and_policies_are_looked_at_once() {
    let (began, mut objects) = (Instant::now(), with_gateway(listeners(1)));
    let made = rcgen::generate_simple_self_signed(["a.com".to_owned()]).expect("a certificate");
    let bundle = made.cert.pem().repeat(500);
    let map = json!({ "metadata": { "name": "ca", "namespace": "n" }, "data": { "ca.crt": bundle } });
    objects.config_maps.insert(ObjectKey::new("n", "ca"), read(map));
    let policy = |number: usize, refs: usize| {
        let ca = json!({ "group": "", "kind": "ConfigMap", "name": "ca" });
        read(json!({
            "metadata": { "name": format!("p{number:04}"), "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "targetRefs": [{ "group": "", "kind": "Service", "name": "s" }],
                      "validation": { "hostname": "a.com", "caCertificateRefs": vec![ca; refs] } },
        }))
    };
    (0..2000).for_each(|number| objects.policies.push(policy(number, 1)));
    let parent = json!([{ "name": "g", "namespace": "n" }]);
    for number in 0..50 {
        let mut route = (*route("n", &format!("r{number}"), parent.clone(), &[], 16)).clone();
        for rule in &mut route.spec.rules {
            rule.backend_refs = vec![rule.backend_refs[0].clone(); 16];
        }
        objects.http_routes.push(Arc::new(route));
    }
    let settings = settings();
    let resolved = resolved(&objects, &settings);
    assert!(resolved.routes.values().all(|attachment| attachment.ancestors.len() == 1));
    let updates = status::updates(&objects, &resolved, &Default::default(), &settings, "now");
    let told: Vec<_> = updates.iter().filter(|update| update.kind == "BackendTLSPolicy").collect();
    let reason = |n: usize| &told[n].status["ancestors"][0]["conditions"][0]["reason"];
    assert_eq!((told.len(), reason(0), reason(1)), (2000, &json!("Accepted"), &json!("Conflicted")));
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    // The same again and again is too long.
    objects.policies = [policy(0, 8)].into();
    let resolved = crate::testing::resolved(&objects, &settings);
    let conditions = resolved.policies.judged.values().next().unwrap();
    assert!(conditions[1].message.contains("more than 512 KiB"), "{conditions:?}");
}

#[test]
fn a_route_asks_for_so_many_attempts() {
    for (attempts, want) in [(16, ""), (17, "UnsupportedValue: retry.attempts: no more than 16 are made")] {
        let mut objects = with_gateway(listeners(1));
        let mut route = (*route("n", "r", json!([{ "name": "g" }]), &[], 1)).clone();
        route.spec.rules[0].retry = Some(crate::api::Retry { attempts: Some(attempts), ..Default::default() });
        objects.http_routes.push(Arc::new(route.clone()));
        assert_eq!(refusal(&resolved(&objects, &settings()), &route), want);
    }
}

/// Each route had its megabyte of them, and nobody counted the routes.
#[test]
fn expressions_of_all_routes_of_a_namespace_have_a_bound() {
    let mut objects = with_gateway(listeners(1));
    for number in 0..100 {
        let mut route = (*route("n", &format!("r{number:02}"), json!([{ "name": "g" }]), &[], 3)).clone();
        for (place, rule) in route.spec.rules.iter_mut().enumerate() {
            let value = Some(format!("/{number}/{place}/[a-z]{{1000}}"));
            rule.matches[0].path = Some(crate::api::PathMatch { type_: Some("RegularExpression".to_owned()), value });
        }
        objects.http_routes.push(Arc::new(route));
    }
    let resolved = resolved(&objects, &settings());
    let refused = objects.http_routes.iter().filter(|route| !refusal(&resolved, route).is_empty()).count();
    let weight: usize = resolved.routes.values().next().unwrap().weights[0].1;
    assert!(weight > 700 << 10, "{weight}");
    let fitting = (64 << 20) / weight;
    assert!((100 - refused).abs_diff(fitting) <= 1, "{refused} of {weight} each");
}
