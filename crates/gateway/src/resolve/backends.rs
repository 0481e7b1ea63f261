//! From a reference to the endpoints behind it.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use ferry_client::ObjectKey;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;
use rustls_pki_types::ServerName;

use super::certificates::{Certificates, Fingerprint};
use super::conditions::Problem;
use super::objects::{Objects, Referrer};
use super::options::Options;
use super::policies::{Policies, Verdict};
use crate::api::BackendRef;
use crate::table::{Backend, BackendTls, Broken, Protocol, Target};

/// What a reference is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Http,
    Grpc,
    Tcp,
    /// TLS that is not ended here.
    Passthrough,
    Udp,
}

/// Everything that references are resolved against.
pub struct Backends<'a> {
    pub objects: &'a Objects,
    pub certificates: &'a Certificates,
    pub policies: &'a Policies,
    pub known: &'a Known,
    /// The Services with policies that are reached, and the Gateways through which they are, since this was last taken.
    pub ancestors: RefCell<BTreeSet<(ObjectKey, ObjectKey)>>,
}

/// What tells the backends of one Service from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Which {
    number: i32,
    port: Option<String>,
    transport: String,
    protocol: Protocol,
    /// How it is known, and whether it is verified.
    tls: Option<(u64, ServerName<'static>)>,
}

/// The backends that are in use, by Service: whoever sends requests to the same port in the same way has the same one, and its
/// endpoints change for all of them.
#[derive(Default)]
pub struct Known(Mutex<HashMap<ObjectKey, OfService>>);

type OfService = Vec<(Which, Weak<Backend>)>;

impl Known {
    fn get(&self, service: &ObjectKey, which: Which, make: impl FnOnce() -> Backend) -> Arc<Backend> {
        let mut known = self.0.lock();
        let of_service = known.entry(service.clone()).or_default();
        if let Some(found) = of_service.iter().find(|(one, _)| *one == which).and_then(|(_, one)| one.upgrade()) {
            return found;
        }
        of_service.retain(|(_, one)| one.strong_count() > 0);
        let made = Arc::new(make());
        of_service.push((which, Arc::downgrade(&made)));
        made
    }

    /// Gives the backends of a Service the endpoints that it has now, and says whether it had others.
    pub fn refresh(&self, objects: &Objects, service: &ObjectKey) -> bool {
        let mut known = self.0.lock();
        let Some(of_service) = known.get_mut(service) else { return false };
        let mut is_left = false;
        of_service.retain(|(which, backend)| {
            let Some(backend) = backend.upgrade() else { return false };
            is_left |= backend.set_endpoints(endpoints(objects, service, which.port.as_deref(), &which.transport));
            true
        });
        if of_service.is_empty() {
            known.remove(service);
        }
        is_left
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Lets go of what nobody uses any more: it may be of Services that nothing is heard of again.
    pub fn forget(&self) {
        self.0.lock().retain(|_, of_service| {
            of_service.retain(|(_, one)| one.strong_count() > 0);
            !of_service.is_empty()
        });
    }
}

/// On whose behalf.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub from: Referrer<'a>,
    pub gateway: Option<&'a ObjectKey>,
    /// What the Gateway shows to backends.
    pub identity: Option<&'a (Fingerprint, Arc<CertifiedKey>)>,
    /// What the Gateway asks for on behalf of all routes.
    pub defaults: Option<&'a Options>,
}

impl<'a> Backends<'a> {
    pub fn new(objects: &'a Objects, certificates: &'a Certificates, policies: &'a Policies, known: &'a Known) -> Self {
        Self { objects, certificates, policies, known, ancestors: RefCell::default() }
    }

    pub fn resolve(&self, asker: Asker<'_>, reference: &BackendRef, purpose: Use) -> (Target, Option<Problem>) {
        match self.find(asker, reference, purpose) {
            Ok(target) => (target, None),
            Err(problem) => (Target::Broken(Broken::Reference), Some(problem)),
        }
    }

    fn find(&self, asker: Asker<'_>, reference: &BackendRef, purpose: Use) -> Result<Target, Problem> {
        if !reference.group.is_empty() || reference.kind != "Service" {
            let kind = format!("{}/{}", reference.group, reference.kind);
            return Err(Problem::new(
                "InvalidKind",
                format!("a backend of kind {kind} is not supported: only Services are"),
            ));
        }
        let namespace = reference.namespace.as_deref().unwrap_or(asker.from.namespace);
        let key = ObjectKey::new(namespace, &reference.name);
        if !self.objects.permits(asker.from, "", "Service", &key) {
            let message = format!("no ReferenceGrant in namespace {namespace} permits the reference to Service {key}");
            return Err(Problem::new("RefNotPermitted", message));
        }
        let missing = |what: String| Problem::new("BackendNotFound", what);
        let service =
            self.objects.services.get(&key).ok_or_else(|| missing(format!("Service {key} does not exist")))?;
        let number = reference.port.ok_or_else(|| missing(format!("no port of Service {key} is named")))?;
        let transport = if purpose == Use::Udp { "UDP" } else { "TCP" };
        let port = port(service, number, transport)
            .ok_or_else(|| missing(format!("Service {key} has no {transport} port {number}")))?;
        if service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("ExternalName")) {
            let message = format!("Service {key} is of type ExternalName, which is not supported as a backend");
            return Err(Problem::new("InvalidKind", message));
        }
        Ok(self.target(asker, &key, port, purpose))
    }

    /// Where requests for this port of a Service go.
    pub fn target(&self, asker: Asker<'_>, key: &ObjectKey, port: &ServicePort, purpose: Use) -> Target {
        let verdict = self.policies.of(key, port.name.as_deref());
        if let Some(gateway) = asker.gateway
            && self.policies.all(key).next().is_some()
        {
            self.ancestors.borrow_mut().insert((key.clone(), gateway.clone()));
        }
        let tls = match (verdict, purpose) {
            (_, Use::Udp | Use::Passthrough) | (None, _) => None,
            (Some(Verdict::Broken), _) => return Target::Broken(Broken::Tls),
            (Some(Verdict::Valid(validation)), _) => {
                match self.certificates.client(&validation.authorities, &validation.names, asker.identity) {
                    Ok((fingerprint, config)) => {
                        Some(Arc::new(BackendTls { config, name: validation.server_name.clone(), fingerprint }))
                    }
                    Err(_) => return Target::Broken(Broken::Tls),
                }
            }
        };
        let protocol = match (port.app_protocol.as_deref(), purpose, &tls) {
            (Some("kubernetes.io/ws" | "kubernetes.io/wss"), ..) => Protocol::Http1,
            (Some("kubernetes.io/h2c" | "grpc"), _, None) | (_, Use::Grpc, None) => Protocol::Http2,
            (_, Use::Http | Use::Grpc, Some(_)) => Protocol::Negotiated,
            _ => Protocol::Http1,
        };
        Target::Backend(self.backend(key, port, protocol, tls))
    }

    pub fn backend(
        &self,
        key: &ObjectKey,
        port: &ServicePort,
        protocol: Protocol,
        tls: Option<Arc<BackendTls>>,
    ) -> Arc<Backend> {
        let which = Which {
            number: port.port,
            port: port.name.clone(),
            transport: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            protocol,
            tls: tls.as_ref().map(|tls| (tls.fingerprint, tls.name.clone())),
        };
        let transport = which.transport.clone();
        self.known.get(key, which, || {
            let endpoints = endpoints(self.objects, key, port.name.as_deref(), &transport);
            Backend::new(format!("{key}:{}", port.port), protocol, tls, endpoints)
        })
    }
}

/// Those that are ready; while none is, those that go away but still answer.
fn endpoints(objects: &Objects, key: &ObjectKey, port: Option<&str>, transport: &str) -> Vec<SocketAddr> {
    let (mut ready, mut leaving) = (BTreeSet::new(), BTreeSet::new());
    for slice in objects.slices.get(key).into_iter().flatten() {
        let number = slice.ports.iter().flatten().find_map(|one| {
            let same = one.name.as_deref().unwrap_or_default() == port.unwrap_or_default()
                && one.protocol.as_deref().unwrap_or("TCP") == transport;
            same.then_some(one.port).flatten().and_then(|port| u16::try_from(port).ok())
        });
        let Some(number) = number.filter(|_| slice.address_type != "FQDN") else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let state = endpoint.conditions.clone().unwrap_or_default();
            let addresses = endpoint.addresses.iter().filter_map(|text| text.parse::<IpAddr>().ok());
            let addresses = addresses.map(|address| SocketAddr::new(address, number));
            if state.ready.unwrap_or(true) {
                ready.extend(addresses.take(1));
            } else if state.serving.unwrap_or(false) && state.terminating.unwrap_or(false) {
                leaving.extend(addresses.take(1));
            }
        }
    }
    let chosen = if ready.is_empty() { leaving } else { ready };
    chosen.into_iter().collect()
}

pub fn port<'a>(service: &'a Service, number: u16, transport: &str) -> Option<&'a ServicePort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports
        .into_iter()
        .find(|port| port.port == i32::from(number) && port.protocol.as_deref().unwrap_or("TCP") == transport)
}
