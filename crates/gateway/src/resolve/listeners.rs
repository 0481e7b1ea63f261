//! The listeners of a Gateway and of the ListenerSets that are part of it: which are accepted, which conflict, what they show
//! to clients.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use ferry_client::ObjectKey;

use super::certificates::{Certificates, ClientValidation, Fingerprint, ca_certificate};
use super::conditions::Problem;
use super::objects::{Allowed, Objects, Referrer, age, key, namespace};
use super::room::{QUARTER, share};
use crate::api::{FrontendValidation, GROUP, Gateway, Listener, ListenerSet, SecretRef};
use crate::table::{Depth, Hostname, TlsMode, Transport};

/// All listeners of a Gateway together may be so many. Those beyond are refused before anything is done for them. Of what a Gateway
/// and other namespaces leave, the ListenerSets of a namespace that is not the Gateway's have a share.
const MOST_LISTENERS: usize = 1024;
/// Ports of a Gateway, each address counted, to which ListenerSets may add: a Gateway's own are not in danger by those of others.
/// Again a namespace has a share.
const MOST_PORTS_WITH_SETS: usize = 128;

/// A listener and what becomes of it.
pub struct Listening {
    /// The ListenerSet that it comes from; None: the Gateway itself.
    pub set: Option<usize>,
    pub spec: Listener,
    pub hostname: Option<Hostname>,
    pub transport: Option<Transport>,
    pub kinds: Vec<&'static str>,
    /// The namespaces whose routes it takes.
    pub allowed: Allowed,
    pub accepted: Option<Problem>,
    pub conflict: Option<Problem>,
    pub resolved: Option<Problem>,
    /// None while there is no certificate that could be shown.
    pub tls: Option<TlsMode>,
    pub overlaps: bool,
}

impl Listening {
    /// Whether a route sees no difference.
    fn is_same_to_routes(&self, other: &Self) -> bool {
        let is_passthrough = |one: &Self| matches!(one.tls, Some(TlsMode::Passthrough));
        let namespaces = |one: &Self| one.spec.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.clone());
        self.set == other.set
            && self.spec.name == other.spec.name
            && self.spec.port == other.spec.port
            && self.hostname == other.hostname
            && self.kinds == other.kinds
            && self.takes_routes() == other.takes_routes()
            && is_passthrough(self) == is_passthrough(other)
            && namespaces(self) == namespaces(other)
    }

    /// Whether routes can be attached.
    pub fn takes_routes(&self) -> bool {
        self.conflict.is_none() && self.transport.is_some()
    }

    /// Whether it can be served.
    pub fn is_valid(&self) -> bool {
        self.accepted.is_none() && self.conflict.is_none() && self.tls.is_some()
    }
}

/// A ListenerSet that names the Gateway.
pub struct Set {
    pub key: ObjectKey,
    pub set: Arc<ListenerSet>,
    pub refused: Option<Problem>,
    /// The places of its listeners.
    pub listeners: Range<usize>,
}

pub struct Frontend {
    pub sets: Vec<Set>,
    pub listeners: Vec<Listening>,
    pub insecure_validation: bool,
}

impl Frontend {
    /// The places of the Gateway's own listeners.
    pub fn own(&self) -> Range<usize> {
        0..self.sets.iter().map(|set| set.listeners.start).min().unwrap_or(self.listeners.len())
    }

    /// Whether routes see no difference.
    pub fn is_same_to_routes(&self, other: &Self) -> bool {
        let sets = |one: &Self| one.sets.iter().map(|set| set.key.clone()).collect::<Vec<_>>();
        self.listeners.len() == other.listeners.len()
            && sets(self) == sets(other)
            && self.listeners.iter().zip(&other.listeners).all(|(a, b)| a.is_same_to_routes(b))
    }
}

/// What a Gateway and its ListenerSets refer to, whether it is there or not: Secrets and ConfigMaps.
pub fn references(gateway: &Gateway, sets: &[Set]) -> (HashSet<ObjectKey>, HashSet<ObjectKey>) {
    let (mut secrets, mut maps) = (HashSet::new(), HashSet::new());
    let at = |named: &Option<String>, own: &str, name: &str| ObjectKey::new(named.as_deref().unwrap_or(own), name);
    let own = namespace(&gateway.metadata);
    let of_sets = sets.iter().map(|set| (namespace(&set.set.metadata), &set.set.spec.listeners));
    for (own, listeners) in std::iter::once((own, &gateway.spec.listeners)).chain(of_sets) {
        let named = listeners.iter().filter_map(|one| one.tls.as_ref()).flat_map(|tls| &tls.certificate_refs);
        secrets.extend(named.map(|one| at(&one.namespace, own, &one.name)));
    }
    let tls = gateway.spec.tls.as_ref();
    let identity = tls.and_then(|tls| tls.backend.as_ref()?.client_certificate_ref.as_ref());
    secrets.extend(identity.map(|one| at(&one.namespace, own, &one.name)));
    if let Some(frontend) = tls.and_then(|tls| tls.frontend.as_ref()) {
        let all = frontend.per_port.iter().map(|port| &port.tls).chain(std::iter::once(&frontend.default));
        let named = all.filter_map(|tls| tls.validation.as_ref()).flat_map(|rules| &rules.ca_certificate_refs);
        maps.extend(named.map(|one| at(&one.namespace, own, &one.name)));
    }
    (secrets, maps)
}

pub fn resolve(objects: &Objects, certificates: &Certificates, gateway: &Gateway) -> Frontend {
    let mut frontend = Frontend { sets: Vec::new(), listeners: Vec::new(), insecure_validation: false };
    let own = Referrer { group: GROUP, kind: "Gateway", namespace: namespace(&gateway.metadata) };
    for spec in &gateway.spec.listeners {
        frontend.add(objects, certificates, gateway, own, None, spec);
    }
    for (place, mut set) in sets(objects, gateway).into_iter().enumerate() {
        let first = frontend.listeners.len();
        if set.refused.is_none() {
            set.refused = frontend.has_no_room_for(gateway, &set);
        }
        if set.refused.is_none() {
            let from = Referrer { group: GROUP, kind: "ListenerSet", namespace: namespace(&set.set.metadata) };
            for spec in &set.set.spec.listeners {
                frontend.add(objects, certificates, gateway, from, Some(place), spec);
            }
        }
        set.listeners = first..frontend.listeners.len();
        frontend.sets.push(set);
    }
    frontend.find_overlaps();
    frontend
}

fn too_many() -> Problem {
    Problem::new("TooManyListeners", format!("a Gateway has no more than {MOST_LISTENERS} listeners"))
}

/// The oldest first.
fn sets(objects: &Objects, gateway: &Gateway) -> Vec<Set> {
    let wanted = key(&gateway.metadata);
    let mut list: Vec<_> = objects
        .listener_sets
        .iter()
        .filter(|set| {
            let parent = &set.spec.parent_ref;
            let namespace = parent.namespace.as_deref().unwrap_or_else(|| namespace(&set.metadata));
            parent.group == GROUP && parent.kind == "Gateway" && ObjectKey::new(namespace, &parent.name) == wanted
        })
        .cloned()
        .collect();
    list.sort_by_key(|set| age(&set.metadata));
    let allowed = gateway.spec.allowed_listeners.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    let allowed = Allowed::read(allowed, "None");
    let judge = |set: Arc<ListenerSet>| {
        let permitted = objects.allows(&allowed, &wanted.namespace, namespace(&set.metadata));
        let refused = (!permitted)
            .then(|| Problem::new("NotAllowed", format!("allowedListeners of Gateway {wanted} does not allow it")));
        Set { key: key(&set.metadata), set, refused, listeners: 0..0 }
    };
    list.into_iter().map(judge).collect()
}

fn transport(protocol: &str) -> Option<(Transport, &'static [&'static str])> {
    match protocol {
        "HTTP" => Some((Transport::Http, &["HTTPRoute", "GRPCRoute"])),
        "HTTPS" => Some((Transport::Tls, &["HTTPRoute", "GRPCRoute"])),
        "TLS" => Some((Transport::Tls, &["TLSRoute"])),
        "TCP" => Some((Transport::Tcp, &["TCPRoute"])),
        "UDP" => Some((Transport::Udp, &["UDPRoute"])),
        _ => None,
    }
}

impl Frontend {
    fn add(
        &mut self,
        objects: &Objects,
        certificates: &Certificates,
        gateway: &Gateway,
        from: Referrer<'_>,
        set: Option<usize>,
        spec: &Listener,
    ) {
        let allowed = spec.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
        let mut listening = Listening {
            set,
            spec: spec.clone(),
            hostname: spec
                .hostname
                .as_deref()
                .filter(|name| !name.is_empty())
                .map(|name| Hostname::parse(name, Depth::Any)),
            transport: None,
            kinds: Vec::new(),
            allowed: Allowed::read(allowed, "Same"),
            accepted: None,
            conflict: None,
            resolved: None,
            tls: Some(TlsMode::None),
            overlaps: false,
        };
        match transport(&spec.protocol) {
            _ if self.listeners.len() >= MOST_LISTENERS => listening.accepted = Some(too_many()),
            Some((transport, _))
                if set.is_some() && self.has_no_port_for(gateway, from.namespace, spec.port, transport) =>
            {
                let message = format!(
                    "ListenerSets add no port to a Gateway that has {MOST_PORTS_WITH_SETS}, and those of another namespace no more than a quarter of what is left"
                );
                listening.accepted = Some(Problem::new("PortUnavailable", message));
            }
            Some((transport, kinds)) => {
                listening.transport = Some(transport);
                listening.kinds = kinds.to_vec();
                choose_kinds(&mut listening);
                if transport == Transport::Tls {
                    self.secure(objects, certificates, gateway, from, &mut listening);
                }
            }
            None => {
                let message = format!("protocol {:?} is not supported", spec.protocol);
                listening.accepted = Some(Problem::new("UnsupportedProtocol", message));
            }
        }
        listening.conflict = self.conflict(&listening);
        self.listeners.push(listening);
    }

    /// The namespace that a listener comes from. The last ListenerSet is not among the known ones while its listeners are added.
    fn origin<'a>(&'a self, one: &Listening, gateway: &'a Gateway, last: &'a str) -> &'a str {
        match one.set {
            None => namespace(&gateway.metadata),
            Some(place) => self.sets.get(place).map_or(last, |set| namespace(&set.set.metadata)),
        }
    }

    fn has_no_room_for(&self, gateway: &Gateway, set: &Set) -> Option<Problem> {
        let own = namespace(&set.set.metadata);
        let is_own = |one: &&Listening| self.origin(one, gateway, own) == own;
        let (all, ours) = (self.listeners.len(), self.listeners.iter().filter(is_own).count());
        if all >= MOST_LISTENERS {
            return Some(too_many());
        }
        let share = share(MOST_LISTENERS, all - ours, QUARTER);
        let is_over = own != namespace(&gateway.metadata) && ours + set.set.spec.listeners.len() > share;
        is_over.then(|| {
            let message = format!(
                "the ListenerSets of namespace {own} would have more than {share} listeners: a quarter of what others leave of {MOST_LISTENERS}"
            );
            Problem::new("TooManyListeners", message)
        })
    }

    fn has_no_port_for(&self, gateway: &Gateway, own: &str, port: u16, transport: Transport) -> bool {
        let of = |one: &Listening| Some((one.spec.port, one.transport?.is_datagram()));
        let listening = || self.listeners.iter().filter(|one| one.takes_routes());
        let wanted = (port, transport.is_datagram());
        let mut ports: HashSet<_> = listening().filter_map(of).collect();
        if !ports.insert(wanted) {
            return false;
        }
        let most = MOST_PORTS_WITH_SETS / gateway.spec.addresses.len().max(1);
        if own == namespace(&gateway.metadata) {
            return ports.len() > most;
        }
        let others = listening().filter(|one| self.origin(one, gateway, own) != own);
        let others = others.filter_map(of).collect::<HashSet<_>>().len();
        ports.len() - others > share(most, others, QUARTER)
    }

    /// Who comes first stays.
    fn conflict(&self, new: &Listening) -> Option<Problem> {
        let transport = new.transport?;
        let earlier = self.listeners.iter().filter(|known| {
            known.takes_routes()
                && known.spec.port == new.spec.port
                && known.transport.is_some_and(|known| known.is_datagram() == transport.is_datagram())
        });
        let mut same_host = None;
        for known in earlier {
            if known.transport != Some(transport) {
                let message = format!(
                    "listener {} has port {} with protocol {}",
                    known.spec.name, new.spec.port, known.spec.protocol
                );
                return Some(Problem::new("ProtocolConflict", message));
            }
            if known.hostname == new.hostname {
                let message = format!("listener {} has port {} with the same hostname", known.spec.name, new.spec.port);
                same_host = Some(Problem::new("HostnameConflict", message));
            }
        }
        same_host
    }

    /// Two hostnames meet where one of them is what the other's star stands for, or ends in it.
    fn find_overlaps(&mut self) {
        let is_secure = |one: &&Listening| one.transport == Some(Transport::Tls) && one.conflict.is_none();
        let mut ports: HashMap<u16, Named<'_>> = HashMap::new();
        for one in self.listeners.iter().filter(is_secure) {
            let named = ports.entry(one.spec.port).or_default();
            named.count += 1;
            match &one.hostname {
                None => named.has_any = true,
                Some(hostname) => {
                    if let Hostname::Wildcard { suffix, .. } = hostname {
                        named.wildcards.insert(suffix);
                    }
                    named.above.extend(above(hostname));
                }
            }
        }
        let meets = |one: &Listening| {
            let Some(named) = ports.get(&one.spec.port).filter(|_| is_secure(&one)) else { return false };
            match &one.hostname {
                _ if named.has_any => named.count > 1,
                None => false,
                Some(hostname) => {
                    let has_below =
                        matches!(hostname, Hostname::Wildcard { suffix, .. } if named.above.contains(&**suffix));
                    has_below || above(hostname).any(|suffix| named.wildcards.contains(suffix))
                }
            }
        };
        let met: Vec<bool> = self.listeners.iter().map(meets).collect();
        for (one, overlaps) in self.listeners.iter_mut().zip(met) {
            one.overlaps = overlaps;
        }
    }

    /// What the listener shows to clients, and what it wants to be shown.
    fn secure(
        &mut self,
        objects: &Objects,
        certificates: &Certificates,
        gateway: &Gateway,
        from: Referrer<'_>,
        listening: &mut Listening,
    ) {
        let spec = listening.spec.tls.clone().unwrap_or_default();
        match spec.mode.as_deref().unwrap_or("Terminate") {
            "Terminate" => {}
            "Passthrough" if listening.spec.protocol == "TLS" => {
                listening.tls = Some(TlsMode::Passthrough);
                return;
            }
            mode => {
                let message = format!("TLS mode {mode} is not supported with protocol {}", listening.spec.protocol);
                listening.accepted = Some(Problem::new("UnsupportedValue", message));
                listening.tls = None;
                return;
            }
        }
        let mut keys = Vec::new();
        for reference in &spec.certificate_refs {
            match key_pair(objects, certificates, from, reference, "InvalidCertificateRef") {
                Ok(key) => keys.push(key),
                Err(problem) => listening.resolved = listening.resolved.take().or(Some(problem)),
            }
        }
        if keys.is_empty() {
            let none = || Problem::new("InvalidCertificateRef", "no certificate is named");
            listening.resolved.get_or_insert_with(none);
        }
        let is_http = listening.spec.protocol == "HTTPS";
        let own = Referrer { group: GROUP, kind: "Gateway", namespace: namespace(&gateway.metadata) };
        let clients = match validation(gateway, listening.spec.port).filter(|_| is_http) {
            None => None,
            Some(wanted) => match client_validation(objects, certificates, own, wanted) {
                (problem, Some(clients)) => {
                    listening.resolved = listening.resolved.take().or(problem);
                    self.insecure_validation |= clients.insecure_fallback;
                    Some(clients)
                }
                (problem, None) => {
                    let why = problem.as_ref().map(|problem| problem.message.clone()).unwrap_or_default();
                    listening.accepted = Some(Problem::new("NoValidCACertificate", why));
                    listening.resolved = problem.or(listening.resolved.take());
                    listening.tls = None;
                    return;
                }
            },
        };
        listening.tls = match keys.is_empty() {
            true => None,
            false => match certificates.server(&keys, is_http, clients.as_ref()) {
                Ok(config) if is_http => Some(TlsMode::Terminate(config)),
                Ok(config) => Some(TlsMode::Stream(config)),
                Err(why) => {
                    listening.resolved.get_or_insert(Problem::new("InvalidCertificateRef", why));
                    None
                }
            },
        };
    }
}

/// The hostnames of the listeners of a port that end TLS, each of which is there once.
#[derive(Default)]
struct Named<'a> {
    count: usize,
    has_any: bool,
    /// By what follows the star.
    wildcards: HashSet<&'a str>,
    /// What follows the star of every wildcard that would meet one of them.
    above: HashSet<&'a str>,
}

fn above(hostname: &Hostname) -> impl Iterator<Item = &str> {
    let (Hostname::Exact(text) | Hostname::Wildcard { suffix: text, .. }) = hostname;
    text.match_indices('.').filter(|(at, _)| *at > 0).filter_map(|(at, _)| text.get(at..))
}

/// What is asked for and supported; None asked for: all that the protocol has.
fn choose_kinds(listening: &mut Listening) {
    let Some(allowed) = &listening.spec.allowed_routes else { return };
    if allowed.kinds.is_empty() {
        return;
    }
    let supported = |kind: &str| listening.kinds.iter().find(|known| **known == kind).copied();
    let mut chosen = Vec::new();
    for wanted in &allowed.kinds {
        match supported(&wanted.kind).filter(|_| wanted.group == GROUP) {
            Some(kind) => chosen.push(kind),
            None => {
                let message = format!(
                    "routes of kind {}/{} cannot be attached to protocol {}",
                    wanted.group, wanted.kind, listening.spec.protocol
                );
                listening.resolved = Some(Problem::new("InvalidRouteKinds", message));
            }
        }
    }
    listening.kinds = chosen;
}

/// The key pair of a Secret; `invalid` is the reason when there is none.
pub fn key_pair(
    objects: &Objects,
    certificates: &Certificates,
    from: Referrer<'_>,
    reference: &SecretRef,
    invalid: &'static str,
) -> Result<(Fingerprint, Arc<rustls::sign::CertifiedKey>), Problem> {
    if !reference.group.is_empty() || reference.kind != "Secret" {
        let kind = format!("{}/{}", reference.group, reference.kind);
        return Err(Problem::new(invalid, format!("certificates of kind {kind} are not supported: only Secrets are")));
    }
    let key = ObjectKey::new(reference.namespace.as_deref().unwrap_or(from.namespace), &reference.name);
    if !objects.permits(from, "", "Secret", &key) {
        let message = format!("no ReferenceGrant in namespace {} permits the reference to Secret {key}", key.namespace);
        return Err(Problem::new("RefNotPermitted", message));
    }
    let secret = objects.secrets.get(&key);
    let secret = secret.ok_or_else(|| Problem::new(invalid, format!("Secret {key} does not exist")))?;
    certificates.key(secret).map_err(|why| Problem::new(invalid, format!("Secret {key}: {why}")))
}

/// The rule for a port, or for all.
fn validation(gateway: &Gateway, port: u16) -> Option<&FrontendValidation> {
    let frontend = gateway.spec.tls.as_ref()?.frontend.as_ref()?;
    match frontend.per_port.iter().find(|one| one.port == port) {
        Some(own) => own.tls.validation.as_ref(),
        None => frontend.default.validation.as_ref(),
    }
}

fn client_validation(
    objects: &Objects,
    certificates: &Certificates,
    from: Referrer<'_>,
    wanted: &FrontendValidation,
) -> (Option<Problem>, Option<ClientValidation>) {
    let (mut problem, mut authorities) = (None, Vec::new());
    for reference in &wanted.ca_certificate_refs {
        match ca_certificate(objects, certificates, from, reference, &authorities, "InvalidCACertificateKind") {
            Ok(found) => authorities.push(found),
            Err(new) => problem = problem.or(Some(new)),
        }
    }
    let insecure_fallback = wanted.mode.as_deref() == Some("AllowInsecureFallback");
    let clients = (!authorities.is_empty()).then_some(ClientValidation { authorities, insecure_fallback });
    (problem, clients)
}
