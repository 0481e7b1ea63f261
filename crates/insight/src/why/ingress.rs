//! Ingresses: their class, their backends, their certificates, and whether anybody has taken them up.

use ferry_meta::object;
use serde_json::Value;

use super::backend::{self, Port, Reasons};
use super::{Finding, Reason, certificate, in_namespace, is_young, named, rivals};
use crate::named::{Found, Named};
use crate::world::{Presence, World, word};

const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// What the class of Ferry's own gateway names.
const OWN: &str = "ferry.dev/ingress-controller";
const OLD: &str = "kubernetes.io/ingress.class";

const REASONS: Reasons =
    Reasons { missing: Reason::IngressBackendMissing, port: Reason::IngressBackendPort, dark: Reason::IngressBackend };

pub(super) fn findings(world: &World, ingress: &Value) -> Vec<Finding> {
    let mut found: Vec<Finding> = class(world, ingress).into_iter().collect();
    found.extend(backends(world, ingress));
    found.extend(resource_backend(world, ingress));
    found.extend(without_paths(ingress));
    found.extend(secrets(world, ingress));
    found.extend(rivals::older(world, ingress));
    // What is certain comes before what is only probable.
    found.sort_by_key(|finding| finding.probably);
    if found.iter().all(|finding| finding.note) {
        found.extend(controller(world, ingress));
    }
    found
}

pub(super) fn class_name(ingress: &Value) -> &str {
    match object::text(ingress, "/spec/ingressClassName") {
        "" => object::annotations(ingress).get(OLD).and_then(Value::as_str).unwrap_or_default(),
        name => name,
    }
}

/// Whether a controller has written down where it is reached.
fn is_taken_up(ingress: &Value) -> bool {
    !object::items(ingress, "/status/loadBalancer/ingress").is_empty()
}

fn class(world: &World, ingress: &Value) -> Option<Finding> {
    let classes = world.seen("ingressclasses")?;
    if is_taken_up(ingress) {
        return None;
    }
    let edit = format!("kubectl edit {}ingress/{}", in_namespace(ingress), object::name(ingress));
    let names: Vec<&str> = classes.iter().map(object::name).collect();
    let there = if names.is_empty() {
        "the cluster has no IngressClass at all".to_owned()
    } else {
        format!("there are {}", named(&names))
    };
    match class_name(ingress) {
        "" => {
            // A default that came later does not change what is there already.
            let default = classes
                .iter()
                .find(|class| object::annotations(class).get(DEFAULT).and_then(Value::as_str) == Some("true"));
            let cause = match default {
                Some(_) => "it names no ingressClassName, and was made before there was a default class",
                None => "it names no ingressClassName, and no IngressClass is the default: no controller takes it up",
            };
            let finding = Finding::new(Reason::IngressClassUnset, ingress, cause)
                .probably()
                .detail(there)
                .detail("nobody has written an address into its status; a controller may take up Ingresses without a class and write none");
            Some(match names.first() {
                Some(name) => finding.advise(format!(
                    "kubectl patch {}ingress/{} --type=merge -p '{{\"spec\":{{\"ingressClassName\":\"{name}\"}}}}'",
                    in_namespace(ingress),
                    object::name(ingress)
                )),
                None => finding.advise("install an ingress controller, which brings its class, and name that class"),
            })
        }
        name if !names.contains(&name) && !object::text(ingress, "/spec/ingressClassName").is_empty() => Some(
            Finding::new(
                Reason::IngressClassMissing,
                ingress,
                format!("its IngressClass {name:?} does not exist: no controller takes it up"),
            )
            .detail(there)
            .advise(format!("install the controller that brings {name}, or name a class that exists: {edit}")),
        ),
        // Controllers follow the annotation by a name of their own choice, for which there need be no class.
        name if !names.contains(&name) => Some(
            Finding::new(
                Reason::IngressClassMissing,
                ingress,
                format!("no controller takes it up: its annotation {OLD} names the class {name:?}, and there is no IngressClass of that name"),
            )
            .probably()
            .underway_if(is_young(world, ingress))
            .detail(there)
            .detail("nobody has written an address into its status; a controller may follow the annotation without a class and write none")
            .advise(format!("use spec.ingressClassName with a class that exists instead of the annotation: {edit}")),
        ),
        _ => None,
    }
}

/// Whether Ferry's own gateway serves its class.
pub(super) fn is_ferrys(world: &World, ingress: &Value) -> bool {
    let class = world.find("ingressclasses", class_name(ingress));
    class.is_some_and(|class| object::text(class, "/spec/controller") == OWN)
}

/// Each backend, with the requests that are for it.
fn places(ingress: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = object::items(ingress, "/spec/rules").iter().flat_map(|rule| {
        let host = object::text(rule, "/host");
        object::items(rule, "/http/paths")
            .iter()
            .filter_map(move |path| Some((format!("{host}{}", object::text(path, "/path")), path.get("backend")?)))
    });
    paths.chain(ingress.pointer("/spec/defaultBackend").map(|backend| ("the default".to_owned(), backend)))
}

/// Backends that are no Services, with the requests that are for them.
pub(super) fn resources(ingress: &Value) -> Vec<(String, Named)> {
    let of = |(place, backend): (String, &Value)| {
        let resource = backend.get("resource")?;
        let text = |pointer| object::text(resource, pointer).to_owned();
        let namespace = object::namespace(ingress).to_owned();
        Some((place, Named { group: text("/apiGroup"), kind: text("/kind"), namespace, name: text("/name") }))
    };
    places(ingress).filter_map(of).collect()
}

/// Ferry's own gateway knows Services alone; what others know is theirs, but what is not there nobody serves.
fn resource_backend(world: &World, ingress: &Value) -> Option<Finding> {
    let edit = format!("kubectl edit {}ingress/{}", in_namespace(ingress), object::name(ingress));
    let is_own = is_ferrys(world, ingress);
    resources(ingress).into_iter().find_map(|(place, resource)| {
        let what = format!("its backend for {place}, the {} {:?},", resource.kind, resource.name);
        let finding = |cause: String| Finding::new(Reason::IngressBackendResource, ingress, cause);
        let gone = match resource.find(world) {
            Found::Absent => Some(format!("{what} does not exist in namespace {}", resource.namespace)),
            Found::Unserved => Some(format!("{what} cannot exist: no server of the cluster has that kind")),
            Found::There(_) | Found::Unknown => None,
        };
        match (is_own, gone) {
            (true, gone) => Some(
                finding(format!("{what} is no Service, and Ferry's gateway sends requests to Services alone"))
                    .detail(gone.unwrap_or_default())
                    .advise(format!("name a Service: {edit}"))
                    .advise("or let another controller serve it, whose class knows such backends"),
            ),
            (false, Some(gone)) => Some(finding(gone).advise(format!("create it, or correct the backend: {edit}"))),
            (false, None) => None,
        }
    })
}

fn backends(world: &World, ingress: &Value) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for (place, backend) in places(ingress) {
        let Some(service) = backend.get("service") else { continue };
        let port = match service.pointer("/port/number").and_then(Value::as_i64) {
            Some(number) => Port::Number(number),
            None => Port::Name(object::text(service, "/port/name")),
        };
        let name = object::text(service, "/name");
        backend::add(&mut found, backend::finding(world, ingress, &REASONS, &place, name, port));
    }
    found
}

/// A rule without paths sends its requests to the default backend, which is not there.
fn without_paths(ingress: &Value) -> Option<Finding> {
    let rules = object::items(ingress, "/spec/rules");
    let rule = rules.iter().find(|rule| object::items(rule, "/http/paths").is_empty())?;
    if ingress.pointer("/spec/defaultBackend").is_some() {
        return None;
    }
    let host = match object::text(rule, "/host") {
        "" => "any host",
        host => host,
    };
    let cause = format!("its rule for {host} has no paths, and it has no defaultBackend: these requests lead nowhere");
    let edit = format!("kubectl edit {}ingress/{}", in_namespace(ingress), object::name(ingress));
    Some(Finding::new(Reason::IngressNoPaths, ingress, cause).advise(format!("add http.paths to the rule: {edit}")))
}

fn secrets(world: &World, ingress: &Value) -> Option<Finding> {
    let namespace = object::namespace(ingress);
    object::items(ingress, "/spec/tls").iter().find_map(|tls| {
        let name = object::text(tls, "/secretName");
        let create = format!("kubectl create secret tls -n {namespace} {} --cert=FILE --key=FILE", word(name));
        match world.presence("secrets", name) {
            Presence::Absent => {
                let cause = format!("its TLS Secret {name:?} does not exist in namespace {namespace}");
                Some(Finding::new(Reason::IngressSecret, ingress, cause).advise(create))
            }
            Presence::Present(content)
                if !["tls.crt", "tls.key"].iter().all(|key| content.keys.iter().any(|has| has == key)) =>
            {
                let cause = format!("its TLS Secret {name:?} does not have the keys tls.crt and tls.key");
                Some(
                    Finding::new(Reason::IngressSecret, ingress, cause)
                        .detail(format!("it has {}", named(&content.keys)))
                        .advise(certificate::renew(namespace, name, content)),
                )
            }
            Presence::Present(content) => {
                let hosts: Vec<&str> = object::items(tls, "/hosts").iter().filter_map(Value::as_str).collect();
                let cause = format!("its TLS Secret {name:?} {}", certificate::wrong(world, content, &hosts)?);
                let remedy = certificate::renew(namespace, name, content);
                Some(
                    Finding::new(Reason::TlsCertificate, ingress, cause)
                        .advise(format!("put a valid one there: {remedy}")),
                )
            }
            Presence::Unknown => None,
        }
    })
}

/// A controller writes down where an Ingress is reached. That nobody has, is a sign that nobody serves its class.
fn controller(world: &World, ingress: &Value) -> Option<Finding> {
    if is_taken_up(ingress) {
        return None;
    }
    let name = class_name(ingress);
    let class = world.find("ingressclasses", name)?;
    let serves = object::text(class, "/spec/controller");
    let cause = format!("no controller serves its class {name}: nobody has written an address into its status");
    Some(
        Finding::new(Reason::IngressController, ingress, cause)
            .probably()
            .underway_if(is_young(world, ingress))
            .detail("a controller may serve it and write no address")
            .detail(format!("the class is served by a controller that calls itself {serves:?}"))
            .advise(match serves {
                OWN => {
                    "start the gateway: a server with --gateway=true, or `ferry gateway` on a machine of the cluster"
                        .to_owned()
                }
                _ => format!("see that the pods of {serves} run, or name the class of Ferry's own gateway: ferry"),
            }),
    )
}
