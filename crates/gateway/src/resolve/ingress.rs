//! Ingresses of our class as tables of the same kind as those of Gateways.

mod entries;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use ferry_client::ObjectKey;
use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::api::networking::v1::{Ingress, IngressBackend};
use rustls_pki_types::ServerName;

use super::annotations::{Annotations, BackendProtocol};
use super::backends::{Asker, Backends, Use};
use super::certificates::Certificates;
use super::expressions::Used;
use super::objects::{Objects, Referrer, age, key, namespace};
use super::options::Options;
use crate::INGRESS_CONTROLLER;
use crate::table::{
    BackendTls, Broken, Depth, Hostname, HttpRoutes, Listener, PortTable, Protocol, Target, TlsMode, Transport,
    specificity,
};
use entries::{Common, entries, users_of};

const OLD_CLASS: &str = "kubernetes.io/ingress.class";
pub const HTTP: u16 = 80;
pub const HTTPS: u16 = 443;

/// Paths of the Ingresses of one namespace, canaries among them.
const MOST_PATHS: usize = 20_000;
/// What is told of one Ingress; of more there is only the number.
const MOST_WARNINGS: usize = 10;

/// What came of the Ingresses.
#[derive(Default)]
pub struct Outcome {
    /// Those of our class.
    pub ingresses: Vec<Arc<Ingress>>,
    pub http: Option<Arc<PortTable>>,
    pub https: Option<Arc<PortTable>>,
    /// What their owners should know.
    pub warnings: Vec<(Arc<Ingress>, &'static str, String)>,
    /// How many there are of each Ingress.
    warned: HashMap<ObjectKey, usize>,
    /// The Services and Secrets that they refer to, whether those are there or not.
    pub services: HashSet<ObjectKey>,
    pub secrets: HashSet<ObjectKey>,
    pub expressions: Used,
}

impl Outcome {
    fn warn(&mut self, ingress: &Arc<Ingress>, reason: &'static str, text: impl FnOnce() -> String) {
        let count = self.warned.entry(key(&ingress.metadata)).or_default();
        *count += 1;
        if *count <= MOST_WARNINGS {
            self.warnings.push((ingress.clone(), reason, text()));
        }
    }

    /// Says how much was not said.
    fn count_warnings(&mut self) {
        for ingress in &self.ingresses {
            let count = self.warned.get(&key(&ingress.metadata)).copied().unwrap_or_default();
            if let Some(more) = count.checked_sub(MOST_WARNINGS).filter(|more| *more > 0) {
                let text = format!("there are {more} more problems of this kind or of others");
                self.warnings.push((ingress.clone(), "MoreProblems", text));
            }
        }
    }
}

/// In the field, or in the annotation that was there before it.
pub fn class(ingress: &Ingress) -> Option<&str> {
    let named = ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.as_deref());
    named.or_else(|| ingress.metadata.annotations.as_ref()?.get(OLD_CLASS).map(String::as_str))
}

pub fn is_ours(objects: &Objects, ingress: &Ingress) -> bool {
    let Some(class) = class(ingress) else { return false };
    objects.ingress_classes.iter().any(|known| {
        let controller = known.spec.as_ref().and_then(|spec| spec.controller.as_deref());
        known.metadata.name.as_deref() == Some(class) && controller == Some(INGRESS_CONTROLLER)
    })
}

/// Where a rule of an Ingress applies.
type Spot = (Option<Hostname>, String, String);

/// A path of an Ingress, and those that take a part of its requests.
struct Path {
    common: Rc<Common>,
    target: Target,
    canaries: Vec<(Rc<Common>, Target)>,
}

/// The paths of all Ingresses, and how many each namespace has.
#[derive(Default)]
struct Paths {
    all: BTreeMap<Spot, Path>,
    counts: HashMap<String, usize>,
}

/// The hosts with a certificate.
type Secured = BTreeMap<Option<Hostname>, Arc<rustls::ServerConfig>>;

fn is_secured(listeners: &Secured, hostname: Option<&Hostname>) -> bool {
    let known = |name: &Option<Hostname>| listeners.contains_key(name);
    let above = |host: &Hostname| match host {
        Hostname::Exact(host) => {
            host.split_once('.').filter(|(label, _)| !label.is_empty()).is_some_and(|(_, rest)| {
                known(&Some(Hostname::Wildcard { suffix: format!(".{rest}").into(), depth: Depth::One }))
            })
        }
        Hostname::Wildcard { .. } => false,
    };
    known(&None) || hostname.is_some_and(|host| known(&Some(host.clone())) || above(host))
}

pub fn resolve(backends: &Backends<'_>, certificates: &Certificates) -> Outcome {
    let objects = backends.objects;
    let mut outcome = Outcome::default();
    let ours = objects.ingresses.iter().filter(|ingress| is_ours(objects, ingress)).cloned();
    let mut list: Vec<_> =
        ours.map(|ingress| (Annotations::read(ingress.metadata.annotations.as_ref()), ingress)).collect();
    if list.is_empty() {
        return outcome;
    }
    list.sort_by_cached_key(|(annotations, ingress)| (annotations.canary.is_some(), age(&ingress.metadata)));
    outcome.ingresses = list.iter().map(|(_, ingress)| ingress.clone()).collect();
    let (mut paths, mut listeners) = (Paths::default(), Secured::new());
    for (annotations, ingress) in list {
        if !annotations.ignored.is_empty() {
            let text = || format!("these annotations are not followed: {}", shown(&annotations.ignored));
            outcome.warn(&ingress, "UnsupportedAnnotation", text);
        }
        if let Some(auth) = &annotations.auth {
            outcome.secrets.insert(users_of(&ingress, auth));
        }
        let common = Rc::new(Common::new(objects, certificates, &ingress, annotations));
        add_paths(&mut outcome, backends, &common, &mut paths);
        add_certificates(&mut outcome, objects, certificates, &ingress, &mut listeners);
    }
    let budget = certificates.expressions.of_ingresses();
    let (mut plain, mut secure) = (Vec::new(), Vec::new());
    for ((hostname, path, kind), spot) in paths.all {
        let has_tls = is_secured(&listeners, hostname.as_ref());
        let Some(entries) = entries(&budget, &mut outcome, &path, &kind, spot, has_tls) else { continue };
        let precise = if kind == "Default" { (false, 0) } else { specificity(hostname.as_ref()) };
        plain.push((hostname.clone(), precise, crate::table::rules(entries.0)));
        secure.push((hostname, precise, crate::table::rules(entries.1)));
    }
    let list = outcome.ingresses.clone();
    let proxies = proxies(&mut outcome, objects, &list);
    let port = |port, transport, listeners| {
        let (gateway, proxies) = ("ingress".into(), proxies.clone());
        Some(Arc::new(PortTable { gateway, port, transport, listeners, proxies, fallback: None }))
    };
    let http = Arc::new(HttpRoutes::new(plain));
    let listener = Listener { name: "http".into(), hostname: None, tls: TlsMode::None, http, streams: Arc::default() };
    outcome.http = port(HTTP, Transport::Http, vec![Arc::new(listener)]);
    if !listeners.is_empty() {
        let http = Arc::new(HttpRoutes::new(secure));
        let listeners = listeners.into_iter().map(|(hostname, config)| {
            let name = hostname.as_ref().map_or_else(|| "https".to_owned(), ToString::to_string);
            let tls = TlsMode::Terminate(config);
            Arc::new(Listener { name: name.into(), hostname, tls, http: http.clone(), streams: Arc::default() })
        });
        outcome.https = port(HTTPS, Transport::Tls, listeners.collect());
    }
    outcome.expressions = budget.used();
    outcome.count_warnings();
    outcome
}

/// So much of a list as fits into an Event.
fn shown(list: &[String]) -> String {
    let mut text = String::new();
    for (place, one) in list.iter().enumerate() {
        if text.len() + one.len() > 800 {
            return format!("{text} and {} more", list.len() - place).trim_start().to_owned();
        }
        text.push_str(if place == 0 { "" } else { ", " });
        text.push_str(one);
    }
    text
}

/// Who speaks the PROXY protocol: what the first of our classes says.
fn proxies(outcome: &mut Outcome, objects: &Objects, list: &[Arc<Ingress>]) -> Arc<[ipnet::IpNet]> {
    let ours = objects
        .ingress_classes
        .iter()
        .filter(|class| class.spec.as_ref().and_then(|spec| spec.controller.as_deref()) == Some(INGRESS_CONTROLLER));
    for class in ours {
        match Options::class(class.metadata.annotations.as_ref()) {
            Ok(options) if !options.proxies.is_empty() => return options.proxies,
            Ok(_) => {}
            Err(problem) => {
                list.iter().for_each(|one| outcome.warn(one, "InvalidParameters", || problem.message.clone()));
            }
        }
    }
    Arc::default()
}

fn add_certificates(
    outcome: &mut Outcome,
    objects: &Objects,
    certificates: &Certificates,
    ingress: &Arc<Ingress>,
    listeners: &mut Secured,
) {
    let own = namespace(&ingress.metadata);
    for tls in ingress.spec.iter().flat_map(|spec| spec.tls.iter().flatten()) {
        let secret = tls.secret_name.as_deref().unwrap_or_default();
        let key = ObjectKey::new(own, secret);
        outcome.secrets.insert(key.clone());
        let found = objects.secrets.get(&key).ok_or_else(|| "it does not exist".to_owned());
        let config =
            found.and_then(|found| certificates.key(found)).and_then(|key| certificates.server(&[key], true, None));
        match config {
            Ok(config) => {
                let hosts = tls.hosts.iter().flatten().map(|host| Some(Hostname::parse(host, Depth::One)));
                let mut hosts: Vec<_> = hosts.collect();
                if hosts.is_empty() {
                    hosts.push(None);
                }
                for host in hosts {
                    listeners.entry(host).or_insert_with(|| config.clone());
                }
            }
            Err(why) => {
                outcome.warn(ingress, "InvalidCertificate", || {
                    format!("TLS Secret {secret:?} cannot be used: {why}; its hosts are not served by HTTPS")
                });
            }
        }
    }
}

fn add_paths(outcome: &mut Outcome, backends: &Backends<'_>, common: &Rc<Common>, paths: &mut Paths) {
    let (ingress, annotations) = (&common.ingress, &common.annotations);
    let Some(spec) = &ingress.spec else { return };
    let own = namespace(&ingress.metadata);
    let count = paths.counts.entry(own.to_owned()).or_default();
    let mut add = |hostname: Option<Hostname>, path: &str, kind: &str, backend: &IngressBackend| {
        *count += 1;
        if *count > MOST_PATHS {
            outcome.warn(ingress, "TooManyPaths", || {
                format!("the Ingresses of namespace {own} have more than {MOST_PATHS} paths: {path} is not served")
            });
            return;
        }
        if let Some(service) = &backend.service {
            outcome.services.insert(ObjectKey::new(own, &service.name));
        }
        let target = match target(backends, ingress, backend, annotations.backend_protocol) {
            Ok(target) => target,
            Err(why) => {
                outcome.warn(ingress, "InvalidBackend", || why);
                Target::Broken(Broken::NoEndpoints)
            }
        };
        let spot = (hostname, path.to_owned(), kind.to_owned());
        match (&annotations.canary, paths.all.get_mut(&spot)) {
            // Nobody takes requests from another namespace's Ingress.
            (Some(_), Some(main)) if namespace(&main.common.ingress.metadata) == own => {
                main.canaries.push((common.clone(), target));
            }
            (Some(_), _) => outcome.warn(ingress, "CanaryWithoutMain", || {
                format!(
                    "there is no other Ingress for {path} in its namespace: a canary needs one to take requests from"
                )
            }),
            // The oldest has it.
            (None, Some(oldest)) => {
                if !Arc::ptr_eq(&oldest.common.ingress, ingress) {
                    outcome.warn(ingress, "PathTaken", || {
                        format!("an older Ingress has {path} of this host already: it is not served from here")
                    });
                }
            }
            (None, None) => {
                paths.all.insert(spot, Path { common: common.clone(), target, canaries: Vec::new() });
            }
        }
    };
    for rule in spec.rules.iter().flatten() {
        let host = rule.host.as_deref().filter(|host| !host.is_empty()).map(|host| Hostname::parse(host, Depth::One));
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            add(host.clone(), path.path.as_deref().unwrap_or("/"), &path.path_type, &path.backend);
        }
    }
    if let Some(backend) = &spec.default_backend {
        add(None, "/", "Default", backend);
        // What no path of its hosts has goes there as well.
        let hosts = spec.rules.iter().flatten().filter_map(|rule| rule.host.as_deref());
        for host in hosts.filter(|host| !host.is_empty()) {
            add(Some(Hostname::parse(host, Depth::One)), "/", "Default", backend);
        }
    }
}

fn target(
    backends: &Backends<'_>,
    ingress: &Ingress,
    backend: &IngressBackend,
    protocol: BackendProtocol,
) -> Result<Target, String> {
    let own = namespace(&ingress.metadata);
    let wanted = backend.service.as_ref().ok_or("backends other than Services are not supported")?;
    let key = ObjectKey::new(own, &wanted.name);
    let service = backends.objects.services.get(&key).ok_or_else(|| format!("Service {key} does not exist"))?;
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let fits = |port: &&ServicePort| {
        wanted.port.as_ref().is_some_and(|named| match (named.number, named.name.as_deref()) {
            (Some(number), _) => port.port == number,
            (None, name) => port.name.as_deref() == name,
        })
    };
    let port = ports.into_iter().find(fits).ok_or_else(|| format!("Service {key} has no such port"))?;
    let from = Referrer { group: "networking.k8s.io", kind: "Ingress", namespace: own };
    let asker = Asker { from, gateway: None, identity: None, defaults: None };
    let is_grpc = matches!(protocol, BackendProtocol::Grpc | BackendProtocol::Grpcs);
    let target = backends.target(asker, &key, port, if is_grpc { Use::Grpc } else { Use::Http });
    let is_tls = matches!(protocol, BackendProtocol::Https | BackendProtocol::Grpcs);
    Ok(match target {
        Target::Backend(found) if is_tls && found.tls.is_none() => unverified(backends, &key, port, is_grpc),
        other => other,
    })
}

/// As nginx does it: encrypted, and anybody may answer.
fn unverified(backends: &Backends<'_>, key: &ObjectKey, port: &ServicePort, is_grpc: bool) -> Target {
    let name = ServerName::try_from(format!("{}.{}.svc", key.name, key.namespace));
    match (backends.certificates.unverified(), name) {
        (Ok(config), Ok(name)) => {
            let tls = Arc::new(BackendTls { config, name, fingerprint: 0 });
            let protocol = if is_grpc { Protocol::Negotiated } else { Protocol::Http1 };
            Target::Backend(backends.backend(key, port, protocol, Some(tls)))
        }
        _ => Target::Broken(Broken::Tls),
    }
}
