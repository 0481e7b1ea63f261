//! Ingresses of our class as tables of the same kind as those of Gateways.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::ObjectKey;
use http::StatusCode;
use http::header::HeaderName;
use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::api::networking::v1::{Ingress, IngressBackend};
use rustls_pki_types::ServerName;

use super::annotations::{Annotations, Auth, BackendProtocol, Canary};
use super::backends::{Asker, Backends, Use};
use super::certificates::{Certificates, data};
use super::expressions::{Budget, Scope, Used};
use super::objects::{Objects, Referrer, age, name, namespace};
use super::options::Options;
use crate::INGRESS_CONTROLLER;
use crate::table::{
    Affinity, BackendTls, BasicAuth, Broken, Carrier, Cors, Depth, Entry, Extras, Filters, Hostname, HttpRoutes,
    Listener, Matcher, PathMatcher, PortTable, Protocol, RateLimit, Redirect, Rewrite, Rule, Split, Target, Text,
    TlsMode, Transport, Weighted, specificity,
};

const OLD_CLASS: &str = "kubernetes.io/ingress.class";
pub const HTTP: u16 = 80;
pub const HTTPS: u16 = 443;

/// What came of the Ingresses.
#[derive(Default)]
pub struct Outcome {
    /// Those of our class.
    pub ingresses: Vec<Arc<Ingress>>,
    pub http: Option<Arc<PortTable>>,
    pub https: Option<Arc<PortTable>>,
    /// What their owners should know.
    pub warnings: Vec<(Arc<Ingress>, &'static str, String)>,
    /// The Services and Secrets that they refer to, whether those are there or not.
    pub services: HashSet<ObjectKey>,
    pub secrets: HashSet<ObjectKey>,
    pub expressions: Used,
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
    ingress: Arc<Ingress>,
    annotations: Arc<Annotations>,
    order: (i64, Arc<str>),
    target: Target,
    canaries: Vec<(Canary, Target)>,
}

pub fn resolve(backends: &Backends<'_>, certificates: &Certificates) -> Outcome {
    let objects = backends.objects;
    let mut outcome = Outcome::default();
    let mut list: Vec<_> = objects.ingresses.iter().filter(|ingress| is_ours(objects, ingress)).cloned().collect();
    if list.is_empty() {
        return outcome;
    }
    list.sort_by_key(|ingress| {
        let canary = Annotations::read(ingress.metadata.annotations.as_ref()).canary.is_some();
        (canary, age(&ingress.metadata))
    });
    let mut paths: BTreeMap<Spot, Path> = BTreeMap::new();
    let mut listeners: BTreeMap<Option<Hostname>, Arc<rustls::ServerConfig>> = BTreeMap::new();
    for ingress in &list {
        let annotations = Arc::new(Annotations::read(ingress.metadata.annotations.as_ref()));
        if !annotations.ignored.is_empty() {
            let text = format!("these annotations are not followed: {}", annotations.ignored.join(", "));
            outcome.warnings.push((ingress.clone(), "UnsupportedAnnotation", text));
        }
        add_paths(&mut outcome, backends, ingress, &annotations, &mut paths);
        add_certificates(&mut outcome, objects, certificates, ingress, &mut listeners);
    }
    let budget = certificates.expressions.of_ingresses();
    let means = Means { objects, budget: &budget };
    let (mut plain, mut secure) = (Vec::new(), Vec::new());
    for ((hostname, path, kind), spot) in paths {
        let has_tls = listeners.keys().any(|name| match (name, &hostname) {
            (None, _) => true,
            (Some(name), Some(host)) => name == host || matches!(host, Hostname::Exact(host) if name.matches(host)),
            (Some(_), None) => false,
        });
        let entries = entries(&means, &mut outcome, &hostname, &path, &kind, spot, has_tls);
        plain.extend(entries.0);
        secure.extend(entries.1);
    }
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
    outcome.ingresses = list;
    outcome.expressions = budget.used();
    outcome
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
                let told = list.iter().map(|one| (one.clone(), "InvalidParameters", problem.message.clone()));
                outcome.warnings.extend(told);
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
    listeners: &mut BTreeMap<Option<Hostname>, Arc<rustls::ServerConfig>>,
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
                let text = format!("TLS Secret {secret:?} cannot be used: {why}; its hosts are not served by HTTPS");
                outcome.warnings.push((ingress.clone(), "InvalidCertificate", text));
            }
        }
    }
}

fn add_paths(
    outcome: &mut Outcome,
    backends: &Backends<'_>,
    ingress: &Arc<Ingress>,
    annotations: &Arc<Annotations>,
    paths: &mut BTreeMap<Spot, Path>,
) {
    let Some(spec) = &ingress.spec else { return };
    let mut add = |hostname: Option<Hostname>, path: &str, kind: &str, backend: &IngressBackend| {
        if let Some(service) = &backend.service {
            outcome.services.insert(ObjectKey::new(namespace(&ingress.metadata), &service.name));
        }
        let target = match target(backends, ingress, backend, annotations.backend_protocol) {
            Ok(target) => target,
            Err(why) => {
                outcome.warnings.push((ingress.clone(), "InvalidBackend", why));
                Target::Broken(Broken::NoEndpoints)
            }
        };
        let spot = (hostname, path.to_owned(), kind.to_owned());
        match (&annotations.canary, paths.get_mut(&spot)) {
            // Nobody takes requests from another namespace's Ingress.
            (Some(canary), Some(main)) if namespace(&main.ingress.metadata) == namespace(&ingress.metadata) => {
                main.canaries.push((canary.clone(), target));
            }
            (Some(_), _) => {
                let text = format!(
                    "there is no other Ingress for {path} in its namespace: a canary needs one to take requests from"
                );
                outcome.warnings.push((ingress.clone(), "CanaryWithoutMain", text));
            }
            // The oldest has it.
            (None, Some(oldest)) => {
                if !Arc::ptr_eq(&oldest.ingress, ingress) {
                    let text = format!("an older Ingress has {path} of this host already: it is not served from here");
                    outcome.warnings.push((ingress.clone(), "PathTaken", text));
                }
            }
            (None, None) => {
                let (ingress, annotations) = (ingress.clone(), annotations.clone());
                let order = age(&ingress.metadata);
                paths.insert(spot, Path { ingress, annotations, order, target, canaries: Vec::new() });
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
    match (ferry_tls::unverified_client(), name) {
        (Ok(config), Ok(name)) => {
            let tls = Arc::new(BackendTls { config, name, fingerprint: 0 });
            let protocol = if is_grpc { Protocol::Negotiated } else { Protocol::Http1 };
            Target::Backend(backends.backend(key, port, protocol, Some(tls)))
        }
        _ => Target::Broken(Broken::Tls),
    }
}

type Entries = Vec<(Option<Hostname>, Arc<Entry>)>;

/// What entries are made from, beside their path.
struct Means<'a> {
    objects: &'a Objects,
    budget: &'a Budget<'a>,
}

/// The entries at the plain port and at the one with TLS.
fn entries(
    means: &Means<'_>,
    outcome: &mut Outcome,
    hostname: &Option<Hostname>,
    path: &str,
    kind: &str,
    spot: Path,
    has_tls: bool,
) -> (Entries, Entries) {
    let Path { ingress, annotations, order, target, canaries } = spot;
    let is_regex = annotations.use_regex || annotations.rewrite_target.as_deref().is_some_and(|to| to.contains('$'));
    let scope = means.budget.of(namespace(&ingress.metadata));
    let compiled = is_regex.then(|| scope.expression(&format!("^{path}"), path, true));
    let matcher = match (&compiled, kind) {
        (Some(Ok(regex)), _) => PathMatcher::Regex(regex.clone()),
        (Some(Err(problem)), _) => {
            outcome.warnings.push((ingress, "InvalidPath", problem.message.clone()));
            return (Vec::new(), Vec::new());
        }
        (None, "Exact") => PathMatcher::Exact(path.into()),
        (None, _) => PathMatcher::prefix(path),
    };
    if let Some(auth) = &annotations.auth {
        outcome.secrets.insert(users_of(&ingress, auth));
    }
    let extras = extras(means.objects, &ingress, &annotations);
    let filters = filters(&annotations, compiled.and_then(Result::ok));
    let redirect = annotations.force_ssl_redirect || has_tls && annotations.ssl_redirect.unwrap_or(true);
    let label: Box<str> = format!("Ingress {}", name(&ingress.metadata)).into();
    let make = |targets: Vec<(u32, Target)>, redirects: bool| {
        let mut filters = filters.clone();
        if redirects {
            filters.redirect = Some(Redirect {
                scheme: Some("https".into()),
                hostname: None,
                port: None,
                path: None,
                status: StatusCode::PERMANENT_REDIRECT,
            });
        }
        let weighted = |(weight, target)| Weighted { weight, target, filters: Filters::default() };
        Arc::new(Rule {
            route: label.clone(),
            name: path.into(),
            filters,
            split: Split::new(targets.into_iter().map(weighted).collect()),
            has_backends: true,
            request_timeout: None,
            backend_timeout: annotations.read_timeout,
            retry: None,
            extras: extras.clone(),
        })
    };
    // What is for no path in particular comes last.
    let place = (if kind == "Default" { usize::MAX } else { 0 }, 0);
    let precise = if kind == "Default" { (false, 0) } else { specificity(hostname.as_ref()) };
    let both = |matcher: &Matcher, targets: &dyn Fn() -> Vec<(u32, Target)>| {
        let of = |redirects| {
            let entry = Entry::new(matcher.clone(), make(targets(), redirects), precise, order.clone(), place);
            (hostname.clone(), Arc::new(entry))
        };
        (of(redirect), of(false))
    };
    let (mut plain, mut secure) = (Vec::new(), Vec::new());
    let mut put = |matcher: Matcher, targets: &dyn Fn() -> Vec<(u32, Target)>| {
        let (http, https) = both(&matcher, targets);
        plain.push(http);
        secure.push(https);
    };
    let whole: u32 = canaries.iter().map(|(canary, _)| canary.total).max().unwrap_or(100);
    let taken = canaries.iter().fold(0_u32, |sum, (canary, _)| sum.saturating_add(canary.weight)).min(whole);
    let shared = || {
        let main = std::iter::once((whole - taken, target.clone()));
        main.chain(canaries.iter().map(|(canary, target)| (canary.weight.min(whole), target.clone()))).collect()
    };
    put(Matcher::path(matcher.clone()), &shared);
    for (canary, canary_target) in &canaries {
        let alone = || vec![(1, canary_target.clone())];
        let main = || vec![(1, target.clone())];
        for (text, to_canary) in canary_matches(canary, scope) {
            let matcher = Matcher { headers: vec![text], ..Matcher::path(matcher.clone()) };
            if to_canary {
                put(matcher, &alone);
            } else {
                put(matcher, &main);
            }
        }
    }
    (plain, secure)
}

/// Headers that decide, and whether for the canary.
fn canary_matches(canary: &Canary, scope: Scope<'_>) -> Vec<((HeaderName, Text), bool)> {
    let mut found = Vec::new();
    if let Some(header) = canary.header.as_ref().and_then(|name| HeaderName::from_bytes(name.as_bytes()).ok()) {
        match (&canary.header_value, &canary.header_pattern) {
            (Some(value), _) => found.push(((header, Text::Exact(value.as_str().into())), true)),
            (None, Some(pattern)) => {
                if let Ok(regex) = scope.expression(pattern, pattern, false) {
                    found.push(((header, Text::Regex(regex)), true));
                }
            }
            (None, None) => {
                found.push(((header.clone(), Text::Exact("always".into())), true));
                found.push(((header, Text::Exact("never".into())), false));
            }
        }
    }
    if let Some(cookie) = &canary.cookie {
        for (value, to_canary) in [("always", true), ("never", false)] {
            let pattern = format!("(?:^|; *){}={value}(?:$|;)", regex::escape(cookie));
            if let Ok(regex) = scope.expression(&pattern, &pattern, false) {
                found.push(((http::header::COOKIE, Text::Regex(regex)), to_canary));
            }
        }
    }
    found
}

fn filters(annotations: &Annotations, regex: Option<regex::Regex>) -> Filters {
    let mut filters = Filters::default();
    if let Some(to) = &annotations.rewrite_target {
        filters.rewrite = Some(match regex {
            Some(regex) => {
                // nginx ends a group's number at the first character that is no digit.
                let digits = regex::Regex::new(r"\$(\d+)").ok();
                let to = digits.map_or_else(|| to.clone(), |digits| digits.replace_all(to, "$${$1}").into_owned());
                Rewrite { pattern: Some((regex, to.into())), ..Rewrite::default() }
            }
            None => Rewrite { path: Some(crate::table::PathRewrite::Full(to.as_str().into())), ..Rewrite::default() },
        });
    }
    if let Some(cors) = &annotations.cors {
        let boxed = |list: &[String]| list.iter().map(|text| text.as_str().into()).collect();
        filters.cors = Some(Arc::new(Cors {
            origins: boxed(&cors.origins),
            credentials: cors.credentials,
            methods: boxed(&cors.methods),
            headers: boxed(&cors.headers),
            expose: boxed(&cors.expose),
            max_age: cors.max_age,
        }));
    }
    filters
}

fn extras(objects: &Objects, ingress: &Ingress, annotations: &Annotations) -> Option<Box<Extras>> {
    let rates = [(annotations.requests_per_second, 1), (annotations.requests_per_minute, 60)];
    let rates = rates.into_iter().filter_map(|(count, seconds)| {
        let count = count?;
        Some(RateLimit {
            zone: format!("Ingress {} by {seconds} s", name(&ingress.metadata)).into(),
            interval: Duration::from_secs(seconds) / count,
            burst: count.saturating_mul(annotations.burst_multiplier),
            exempt: annotations.unlimited.clone(),
        })
    });
    Extras {
        most_body: annotations.body_size,
        sources: annotations.sources.clone(),
        basic_auth: annotations.auth.as_ref().map(|auth| basic_auth(objects, ingress, auth)),
        affinity: annotations.affinity.as_ref().map(|cookie| Affinity {
            name: cookie.name.as_str().into(),
            carrier: Carrier::Cookie { max_age: cookie.max_age, path: cookie.path.as_str().into() },
            absolute_timeout: None,
            idle_timeout: None,
        }),
        connect_timeout: annotations.connect_timeout,
        rates: rates.collect(),
        compress: annotations.compress,
    }
    .used()
}

/// The Secret with the users. One of another namespace is not read.
fn users_of(ingress: &Ingress, auth: &Auth) -> ObjectKey {
    let own = namespace(&ingress.metadata);
    let name = match auth.secret.split_once('/') {
        Some((namespace, name)) if namespace == own => name,
        Some(_) => "",
        None => &auth.secret,
    };
    ObjectKey::new(own, name)
}

/// Without its Secret nobody is let in.
fn basic_auth(objects: &Objects, ingress: &Ingress, auth: &Auth) -> BasicAuth {
    let secret = objects.secrets.get(&users_of(ingress, auth));
    let mut users = HashMap::new();
    if let Some(secret) = secret.filter(|_| auth.is_map) {
        for (user, hash) in secret.data.iter().flatten() {
            users.insert(user.as_str().into(), String::from_utf8_lossy(&hash.0).trim().into());
        }
    } else if let Some(text) = secret.and_then(|secret| data(secret, "auth")) {
        for line in String::from_utf8_lossy(text).lines() {
            if let Some((user, hash)) = line.trim().split_once(':') {
                users.insert(user.into(), hash.into());
            }
        }
    }
    BasicAuth { realm: auth.realm.as_str().into(), users }
}
