//! What one Ingress asks for, whatever others ask for.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferry_client::ObjectKey;
use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::api::networking::v1::{Ingress, IngressBackend};
use rustls_pki_types::ServerName;

use super::super::annotations::{Annotations, BackendProtocol};
use super::super::backends::{Asker, Backends, Use};
use super::super::objects::{Referrer, age, key, namespace};
use super::entries::{Common, users_of};
use super::spot::Spot;
use super::{Ingresses, MOST_PATHS};
use crate::table::{BackendTls, Broken, Depth, Hostname, Protocol, Target};

/// What is told of one Ingress; of more there is only the number.
const MOST_WARNINGS: usize = 10;

/// What an Ingress refers to, whether that is there or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refers {
    Service(ObjectKey),
    /// For its certificate.
    Secret(ObjectKey),
    /// For its users.
    Users(ObjectKey),
}

/// Who goes first: the oldest, and canaries behind all others.
pub type Order = (bool, (i64, Arc<str>));

pub struct Member {
    pub common: Arc<Common>,
    pub order: Order,
    /// Where it wants requests from, and where they go.
    pub paths: Vec<(Arc<Spot>, Target)>,
    /// So many of them, the first ones, have room.
    pub admitted: usize,
    /// The hosts that it has a certificate for.
    pub certificates: Vec<(Option<Hostname>, Arc<rustls::ServerConfig>)>,
    pub refers: BTreeSet<Refers>,
    /// What is wrong with the backend of a path, by the path's place.
    wrong_backends: Vec<(usize, String)>,
    wrong_certificates: Vec<String>,
}

impl Member {
    pub fn new(backends: &Backends<'_>, ingress: &Arc<Ingress>) -> Self {
        let annotations = Annotations::read(ingress.metadata.annotations.as_ref());
        let order = (annotations.canary.is_some(), age(&ingress.metadata));
        let mut refers = BTreeSet::new();
        if let Some(auth) = &annotations.auth {
            refers.insert(Refers::Users(users_of(ingress, auth)));
        }
        let common = Common::new(backends.objects, backends.certificates, ingress, annotations);
        let mut made = Self {
            common: Arc::new(common),
            order,
            paths: Vec::new(),
            admitted: 0,
            certificates: Vec::new(),
            refers,
            wrong_backends: Vec::new(),
            wrong_certificates: Vec::new(),
        };
        made.add_paths(backends, ingress);
        made.add_certificates(backends, ingress);
        made
    }

    pub fn key(&self) -> ObjectKey {
        key(&self.common.ingress.metadata)
    }

    pub fn namespace(&self) -> &str {
        self.common.namespace()
    }

    /// The paths that have room.
    pub fn served(&self) -> &[(Arc<Spot>, Target)] {
        self.paths.get(..self.admitted).unwrap_or(&self.paths)
    }

    fn add_paths(&mut self, backends: &Backends<'_>, ingress: &Ingress) {
        let Some(spec) = &ingress.spec else { return };
        let protocol = self.common.annotations.backend_protocol;
        let mut add = |hostname: Option<Hostname>, path: &str, kind: &str, backend: &IngressBackend| {
            if let Some(service) = &backend.service {
                let key = ObjectKey::new(namespace(&ingress.metadata), &service.name);
                self.refers.insert(Refers::Service(key));
            }
            let target = target(backends, ingress, backend, protocol).unwrap_or_else(|why| {
                self.wrong_backends.push((self.paths.len(), why));
                Target::Broken(Broken::NoEndpoints)
            });
            self.paths.push((Arc::new(Spot { hostname, path: path.into(), kind: kind.into() }), target));
        };
        for rule in spec.rules.iter().flatten() {
            let host =
                rule.host.as_deref().filter(|host| !host.is_empty()).map(|host| Hostname::parse(host, Depth::One));
            for path in rule.http.iter().flat_map(|http| &http.paths) {
                add(host.clone(), path.path.as_deref().unwrap_or("/"), &path.path_type, &path.backend);
            }
        }
        if let Some(backend) = &spec.default_backend {
            add(None, "/", Spot::DEFAULT, backend);
            // What no path of its hosts has goes there as well.
            let hosts = spec.rules.iter().flatten().filter_map(|rule| rule.host.as_deref());
            for host in hosts.filter(|host| !host.is_empty()) {
                add(Some(Hostname::parse(host, Depth::One)), "/", Spot::DEFAULT, backend);
            }
        }
    }

    fn add_certificates(&mut self, backends: &Backends<'_>, ingress: &Ingress) {
        let own = namespace(&ingress.metadata);
        for tls in ingress.spec.iter().flat_map(|spec| spec.tls.iter().flatten()) {
            let secret = tls.secret_name.as_deref().unwrap_or_default();
            let key = ObjectKey::new(own, secret);
            self.refers.insert(Refers::Secret(key.clone()));
            let found = backends.objects.secrets.get(&key).ok_or_else(|| "it does not exist".to_owned());
            let certificates = backends.certificates;
            let config =
                found.and_then(|found| certificates.key(found)).and_then(|key| certificates.server(&[key], true, None));
            match config {
                Ok(config) => {
                    let hosts = tls.hosts.iter().flatten().map(|host| Some(Hostname::parse(host, Depth::One)));
                    let before = self.certificates.len();
                    self.certificates.extend(hosts.map(|host| (host, config.clone())));
                    if self.certificates.len() == before {
                        self.certificates.push((None, config));
                    }
                }
                Err(why) => self
                    .wrong_certificates
                    .push(format!("TLS Secret {secret:?} cannot be used: {why}; its hosts are not served by HTTPS")),
            }
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

/// The first of many, and how many there are.
#[derive(Default)]
struct Told {
    list: Vec<(&'static str, String)>,
    count: usize,
}

impl Told {
    fn add(&mut self, reason: &'static str, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.count <= MOST_WARNINGS {
            self.list.push((reason, text()));
        }
    }
}

impl Ingresses {
    /// What the owner of an Ingress should know.
    pub(super) fn warnings_of(&self, key: &ObjectKey) -> Vec<(&'static str, String)> {
        let Some(member) = self.members.get(key) else { return Vec::new() };
        let (mut told, annotations) = (Told::default(), &member.common.annotations);
        if !annotations.ignored.is_empty() {
            let text = || format!("these annotations are not followed: {}", shown(&annotations.ignored));
            told.add("UnsupportedAnnotation", text);
        }
        for (_, why) in member.wrong_backends.iter().filter(|(place, _)| *place < member.admitted) {
            told.add("InvalidBackend", || why.clone());
        }
        for (place, (spot, _)) in member.served().iter().enumerate() {
            if let Some((reason, text)) = self.spots.get(spot).and_then(|claims| claims.trouble(member, place, spot)) {
                told.add(reason, || text);
            }
        }
        for (spot, _) in member.paths.iter().skip(member.admitted) {
            told.add("TooManyPaths", || {
                let (own, path) = (&key.namespace, &spot.path);
                format!("the Ingresses of namespace {own} have more than {MOST_PATHS} paths: {path} is not served")
            });
        }
        member.wrong_certificates.iter().for_each(|why| told.add("InvalidCertificate", || why.clone()));
        self.class_problems.iter().for_each(|why| told.add("InvalidParameters", || why.clone()));
        if let Some(more) = told.count.checked_sub(MOST_WARNINGS).filter(|more| *more > 0) {
            told.list.push(("MoreProblems", format!("there are {more} more problems of this kind or of others")));
        }
        told.list
    }
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
