//! Random sequences of changes: what they come to one after the other is what all objects together come to.

use std::collections::BTreeMap;
use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::super::attach::find;
use super::super::status::{self, Bound, Update};
use super::*;
use crate::resolve::resolve;
use crate::table::{Filters, Target};
use crate::testing::{read, settings};
use crate::{CONTROLLER, INGRESS_CONTROLLER};

const SPACES: [&str; 2] = ["m", "n"];
const NAMES: [&str; 3] = ["a", "b", "c"];

fn target(target: &Target) -> String {
    match target {
        Target::Broken(broken) => format!("{broken:?}"),
        Target::Backend(backend) => {
            let tls = backend.tls.as_ref().map(|tls| (tls.fingerprint, tls.name.clone()));
            format!("{} {:?} {tls:?} {:?}", backend.name, backend.protocol, **backend.endpoints())
        }
    }
}

fn filters(filters: &Filters) -> String {
    let mirrors: Vec<_> = filters.mirrors.iter().map(|mirror| target(&mirror.target)).collect();
    let Filters { request, response, redirect, rewrite, broken, .. } = filters;
    format!("{request:?} {response:?} {mirrors:?} {redirect:?} {rewrite:?} {broken}")
}

/// Everything that a request can meet, in its order.
fn shown(resolved: &Resolved) -> String {
    let mut text = String::new();
    for (place, table) in &resolved.ports {
        for table in std::iter::once(table).chain(&table.fallback) {
            writeln!(text, "{place:?} {} {:?} {:?}", table.gateway, table.transport, table.proxies).unwrap();
            for listener in &table.listeners {
                writeln!(
                    text,
                    " {} {:?} {:?}",
                    listener.name,
                    listener.hostname,
                    std::mem::discriminant(&listener.tls)
                )
                .unwrap();
                for host in ["other", "x.a.com", "y.a.com", "b.com", "x.b.com"] {
                    for entry in listener.http.of_host(host) {
                        let rule = &entry.rule;
                        let split = rule
                            .split
                            .backends
                            .iter()
                            .map(|one| format!("{} {} {}", one.weight, target(&one.target), filters(&one.filters)));
                        writeln!(
                            text,
                            "  {host} {:?} {} {} {} {:?} {:?}",
                            entry.matcher,
                            rule.route,
                            rule.name,
                            filters(&rule.filters),
                            rule.extras,
                            split.collect::<Vec<_>>()
                        )
                        .unwrap();
                    }
                }
                for stream in &*listener.streams {
                    let split: Vec<_> = stream.split.backends.iter().map(|one| target(&one.target)).collect();
                    writeln!(text, "  {:?} {} {split:?}", stream.hostname, stream.route).unwrap();
                }
            }
        }
    }
    for (ingress, reason, message) in resolved.ingress.warnings() {
        writeln!(text, "{:?} {reason} {message}", ingress.metadata.name).unwrap();
    }
    writeln!(text, "{:?} {:?} {:?}", resolved.conflicts, resolved.ancestors, resolved.policies.judged).unwrap();
    text
}

/// All statuses as they are to be, whatever they are now.
fn statuses(objects: &Objects, resolved: &Resolved, settings: &Settings) -> Vec<Update> {
    let bound: Bound = resolved.ports.keys().map(|place| (*place, Ok(place.1))).collect();
    status::updates(objects, resolved, &bound, settings, "now")
}

struct World {
    random: StdRng,
    /// The objects, as JSON, by kind and name.
    all: BTreeMap<(&'static str, ObjectKey), Value>,
    version: u64,
}

impl World {
    fn number(&mut self, most: usize) -> usize {
        self.random.random_range(0..most)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.number(of.len())]
    }

    fn chance(&mut self) -> bool {
        self.random.random_bool(0.5)
    }

    fn namespaces(&mut self) -> Value {
        match self.number(4) {
            0 => json!({ "from": "All" }),
            1 => json!({ "from": "Selector", "selector": { "matchLabels": { "l": "x" } } }),
            2 => json!({ "from": "Same" }),
            _ => json!(null),
        }
    }

    fn listener(&mut self, number: usize) -> Value {
        let protocol = self.one(&["HTTP", "HTTP", "HTTPS", "TLS", "TCP", "UDP", "Odd"]);
        let port = [80, 81, 443][self.number(3)];
        let host = self.one(&["", "x.a.com", "*.a.com", "b.com"]);
        let mode = if protocol == "TLS" { self.one(&["Passthrough", "Terminate"]) } else { "Terminate" };
        let mut tls =
            json!({ "mode": mode, "certificateRefs": [{ "name": self.one(&NAMES), "namespace": self.one(&SPACES) }] });
        if !matches!(protocol, "HTTPS" | "TLS") {
            tls = Value::Null;
        }
        let allowed = self.namespaces();
        json!({ "name": format!("l{number}"), "protocol": protocol, "port": port, "hostname": host, "tls": tls,
                "allowedRoutes": { "namespaces": allowed } })
    }

    fn listeners(&mut self) -> Value {
        let count = self.number(3) + 1;
        (0..count).map(|number| self.listener(number)).collect()
    }

    fn backend(&mut self) -> Value {
        let mut backend = json!({ "name": self.one(&NAMES), "port": 80, "weight": self.number(3) });
        if self.number(3) == 0 {
            backend["namespace"] = self.one(&SPACES).into();
        }
        if self.number(6) == 0 {
            backend["filters"] = json!([{ "type": "RequestMirror", "requestMirror": { "backendRef": { "name": self.one(&NAMES), "port": 80 } } }]);
        }
        backend
    }

    fn parents(&mut self) -> Value {
        let count = self.number(2) + 1;
        (0..count)
            .map(|_| {
                let kind = self.one(&["Gateway", "Gateway", "ListenerSet"]);
                let mut parent = json!({ "kind": kind, "name": self.one(&NAMES), "namespace": self.one(&SPACES) });
                match self.number(6) {
                    0 => parent["sectionName"] = "l0".into(),
                    1 => parent["port"] = 80.into(),
                    _ => {}
                }
                parent
            })
            .collect()
    }

    fn spec(&mut self, kind: &str) -> Value {
        match kind {
            "GatewayClass" => {
                let parameters = if self.number(4) == 0 { json!({ "name": "p" }) } else { Value::Null };
                json!({ "controllerName": CONTROLLER, "parametersRef": parameters })
            }
            "Gateway" => {
                let allowed = self.namespaces();
                let identity = json!({ "clientCertificateRef": { "name": self.one(&NAMES) } });
                let tls = if self.number(3) == 0 { json!({ "backend": identity }) } else { Value::Null };
                json!({ "gatewayClassName": "ferry", "listeners": self.listeners(), "tls": tls,
                        "allowedListeners": { "namespaces": allowed } })
            }
            "ListenerSet" => {
                let parent = json!({ "name": self.one(&NAMES), "namespace": self.one(&SPACES) });
                json!({ "parentRef": parent, "listeners": self.listeners() })
            }
            "HTTPRoute" | "GRPCRoute" => {
                let hosts = [json!([]), json!(["x.a.com"]), json!(["*.a.com", "b.com"]), json!(["y.a.com"])];
                let count = self.number(2) + 1;
                let rules: Value = (0..count)
                    .map(|_| {
                        let path = json!([{ "path": { "value": self.one(&["/", "/p", "/q"]) } }, {}]);
                        let matches = if kind == "HTTPRoute" && self.chance() { path } else { json!([]) };
                        json!({ "matches": matches, "backendRefs": [self.backend()] })
                    })
                    .collect();
                json!({ "parentRefs": self.parents(), "hostnames": hosts[self.number(4)], "rules": rules })
            }
            "TLSRoute" | "TCPRoute" | "UDPRoute" => {
                let hosts = [json!(["x.a.com"]), json!(["*.a.com", "b.com"])];
                let hosts = if kind == "TLSRoute" { hosts[self.number(2)].clone() } else { json!([]) };
                json!({ "parentRefs": self.parents(), "hostnames": hosts, "rules": [{ "backendRefs": [self.backend()] }] })
            }
            "ReferenceGrant" => {
                let group = "gateway.networking.k8s.io";
                let from = ["HTTPRoute", "TLSRoute", "Gateway"]
                    .map(|kind| json!({ "group": group, "kind": kind, "namespace": self.one(&SPACES) }));
                json!({ "from": from, "to": [{ "kind": "Service" }, { "kind": "Secret" }] })
            }
            "BackendTLSPolicy" => {
                json!({ "targetRefs": [{ "kind": "Service", "name": self.one(&NAMES) }],
                        "validation": { "hostname": "h", "caCertificateRefs": [{ "kind": "ConfigMap", "name": self.one(&NAMES) }] } })
            }
            "Ingress" => {
                let backend = |name: &str| json!({ "service": { "name": name, "port": { "number": 80 } } });
                let host = self.one(&["x.a.com", "b.com", "*.a.com", ""]);
                let count = self.number(3) + 1;
                let paths: Value = (0..count)
                    .map(|_| {
                        let path = self.one(&["/", "/p", "/p/(.*)", "/("]);
                        let kind = self.one(&["Prefix", "Exact", "ImplementationSpecific"]);
                        json!({ "path": path, "pathType": kind, "backend": backend(self.one(&NAMES)) })
                    })
                    .collect();
                let hosts = [json!([host]), json!(["*.a.com"]), json!([])];
                let tls = match self.number(5) {
                    number @ 0..3 => json!([{ "hosts": hosts[number], "secretName": self.one(&NAMES) }]),
                    _ => Value::Null,
                };
                let default = if self.number(4) == 0 { backend(self.one(&NAMES)) } else { Value::Null };
                json!({ "ingressClassName": "ferry", "tls": tls, "defaultBackend": default,
                        "rules": [{ "host": host, "http": { "paths": paths } }] })
            }
            "IngressClass" => json!({ "controller": INGRESS_CONTROLLER }),
            "Service" => {
                let protocol = self.one(&["TCP", "TCP", "UDP"]);
                let kind = self.one(&["ClusterIP", "ClusterIP", "ClusterIP", "ExternalName"]);
                let app = self.one(&["http", "kubernetes.io/h2c"]);
                json!({ "type": kind, "ports": [{ "name": self.one(&["p", "q"]), "port": 80, "protocol": protocol, "appProtocol": app }] })
            }
            _ => Value::Null,
        }
    }

    fn make(&mut self, kind: &'static str, key: &ObjectKey, certificates: &[(String, String)]) -> Value {
        self.version += 1;
        let age = format!("2026-01-0{}T00:00:00Z", self.number(3) + 1);
        let mut object = json!({
            "metadata": { "name": key.name, "namespace": key.namespace, "resourceVersion": self.version.to_string(),
                          "generation": self.version, "creationTimestamp": age },
        });
        let spec = self.spec(kind);
        if !spec.is_null() {
            object["spec"] = spec;
        }
        let which = self.number(certificates.len());
        match kind {
            "EndpointSlice" => {
                let label = self.one(&NAMES);
                object["metadata"]["labels"] = json!({ "kubernetes.io/service-name": label });
                object["addressType"] = "IPv4".into();
                let name = self.one(&["p", "q"]);
                object["ports"] = json!([{ "name": name, "port": 8080, "protocol": self.one(&["TCP", "UDP"]) }]);
                let count = self.number(3);
                object["endpoints"] = (0..count)
                    .map(|_| json!({ "addresses": [format!("10.0.0.{}", self.number(5) + 1)], "conditions": { "ready": self.chance(), "serving": true, "terminating": true } }))
                    .collect();
            }
            "Secret" => {
                let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
                let (chain, key) = &certificates[which];
                object["data"] = json!({ "tls.crt": encode(chain), "tls.key": encode(key) });
            }
            "Ingress" => {
                let of = self.one(&[
                    "",
                    "",
                    "canary",
                    "canary-by-header-pattern",
                    "use-regex",
                    "rewrite-target",
                    "force-ssl-redirect",
                    "auth-secret",
                ]);
                let mut all = serde_json::Map::new();
                let mut add =
                    |name: &str, value: &str| all.insert(format!("nginx.ingress.kubernetes.io/{name}"), value.into());
                match of {
                    "" => {}
                    "canary" => drop((add("canary", "true"), add("canary-weight", "20"))),
                    "canary-by-header-pattern" => {
                        drop((add("canary", "true"), add("canary-by-header", "x-a"), add(of, "a.*")));
                    }
                    "rewrite-target" => drop(add(of, "/to/$1")),
                    "auth-secret" => drop((add("auth-type", "basic"), add(of, self.one(&NAMES)))),
                    of => drop(add(of, "true")),
                }
                object["metadata"]["annotations"] = Value::Object(all);
            }
            "ConfigMap" => object["data"] = json!({ "ca.crt": certificates[which].0 }),
            "Namespace" => {
                let label = self.one(&["x", "y"]);
                object["metadata"]["labels"] = json!({ "l": label });
            }
            _ => {}
        }
        object
    }

    fn changed(&self, kind: &'static str, key: &ObjectKey) -> Changed {
        let (key, now) = (key.clone(), self.all.get(&(kind, key.clone())).cloned());
        macro_rules! of {
            ($($name:literal $changed:ident)*) => {
                match kind {
                    $($name => Changed::$changed(key, now.map(read)),)*
                    _ => unreachable!(),
                }
            };
        }
        of!("GatewayClass" Class "Gateway" Gateway "ListenerSet" ListenerSet "HTTPRoute" Http "GRPCRoute" Grpc
            "TLSRoute" Tls "TCPRoute" Tcp "UDPRoute" Udp "ReferenceGrant" Grant "BackendTLSPolicy" Policy
            "Ingress" Ingress "IngressClass" IngressClass "Service" Service "EndpointSlice" Slice "Secret" Secret
            "ConfigMap" ConfigMap "Namespace" Namespace)
    }

    /// All objects as one that comes to them for the first time sees them.
    fn objects(&self) -> Objects {
        let mut fresh = Incremental::new(settings());
        for (kind, key) in self.all.keys() {
            fresh.take(self.changed(kind, key), &mut Dirty::default());
        }
        fresh.objects
    }
}

const KINDS: [(&str, usize); 17] = [
    ("GatewayClass", 1),
    ("Gateway", 4),
    ("ListenerSet", 3),
    ("HTTPRoute", 8),
    ("GRPCRoute", 2),
    ("TLSRoute", 2),
    ("TCPRoute", 2),
    ("UDPRoute", 1),
    ("ReferenceGrant", 2),
    ("BackendTLSPolicy", 2),
    ("Ingress", 6),
    ("IngressClass", 1),
    ("Service", 4),
    ("EndpointSlice", 6),
    ("Secret", 2),
    ("ConfigMap", 2),
    ("Namespace", 2),
];

fn key_of_kind(world: &mut World, kind: &str) -> ObjectKey {
    match kind {
        "GatewayClass" | "IngressClass" => ObjectKey::new("", "ferry"),
        "Namespace" => ObjectKey::new("", world.one(&SPACES)),
        _ => ObjectKey::new(world.one(&SPACES), world.one(&NAMES)),
    }
}

fn certificates() -> Vec<(String, String)> {
    let make = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let pair = |name: &str| {
        let made = make(name);
        (made.cert.pem(), made.signing_key.serialize_pem())
    };
    vec![pair("x.a.com"), pair("b.com"), ("no certificate".to_owned(), "no key".to_owned())]
}

#[test]
fn changes_one_after_the_other_come_to_what_all_objects_come_to() {
    let seed: u64 =
        std::env::var("FERRY_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random);
    println!("FERRY_TEST_SEED={seed}");
    let pairs = certificates();
    let (mut rules, mut written) = (0, 0);
    for round in 0..4 {
        let mut world =
            World { random: StdRng::seed_from_u64(seed.wrapping_add(round)), all: BTreeMap::new(), version: 0 };
        let settings = settings();
        let mut incremental = Incremental::new(settings.clone());
        let whole: usize = KINDS.iter().map(|(_, weight)| weight).sum();
        let mut bound = Bound::new();
        for step in 0..150 {
            let count = if step == 0 { 40 } else { world.number(3) + 1 };
            let mut changes = Vec::new();
            for _ in 0..count {
                let mut place = world.number(whole);
                let kind = KINDS.iter().find(|(_, weight)| {
                    let found = place < *weight;
                    place = place.saturating_sub(*weight);
                    found
                });
                let kind = kind.expect("a kind").0;
                let key = key_of_kind(&mut world, kind);
                if step > 0 && world.number(4) == 0 {
                    world.all.remove(&(kind, key.clone()));
                } else {
                    let mut made = world.make(kind, &key, &pairs);
                    let old = world.all.get(&(kind, key.clone()));
                    if let Some(old) = old.filter(|old| !old["status"].is_null()) {
                        made["status"] = old["status"].clone();
                    }
                    world.all.insert((kind, key.clone()), made);
                }
                changes.push((kind, key));
            }
            // What was written comes back as a change, until there is nothing to write.
            for writes in 0.. {
                assert!(writes < 5, "round {round}, step {step}: statuses are written again and again");
                let effect = incremental.apply(changes.iter().map(|(kind, key)| world.changed(kind, key)));
                let mut told = effect.statuses;
                let (objects, found) = (incremental.objects(), incremental.resolved());
                let now: Bound = found.ports.keys().map(|place| (*place, Ok(place.1))).collect();
                if now != bound {
                    told.extend(incremental.statuses_of_sockets());
                    bound = now;
                }
                let updates: Vec<_> =
                    told.iter().filter_map(|id| status::update(objects, found, &bound, &settings, id, "now")).collect();
                let expected_objects = world.objects();
                let expected = resolve(&expected_objects, &settings, &Certificates::default());
                assert_eq!(shown(found), shown(&expected), "round {round}, step {step}");
                let all = statuses(&expected_objects, &expected, &settings);
                assert_eq!(sorted(&updates), sorted(&all), "round {round}, step {step}");
                rules += shown(found).lines().filter(|line| line.starts_with("  ")).count();
                written += updates.len();
                if updates.is_empty() {
                    break;
                }
                changes.clear();
                for update in updates {
                    world.version += 1;
                    let key = (update.kind, update.key.clone());
                    let object = world.all.get_mut(&key).expect("an object");
                    object["status"] = update.status;
                    object["metadata"]["resourceVersion"] = world.version.to_string().into();
                    changes.push(key);
                }
            }
        }
        assert!(incremental.readers.values().flatten().all(|id| find(incremental.objects(), id).is_some()));
    }
    // Of all rounds: one alone may have no Gateway for a long time.
    assert!(rules > 400 && written > 200, "{rules} rules, {written} statuses: it compares nothing");
}

fn sorted(updates: &[Update]) -> Vec<String> {
    let mut all: Vec<_> = updates.iter().map(|one| format!("{} {} {}", one.kind, one.key, one.status)).collect();
    all.sort();
    all
}
