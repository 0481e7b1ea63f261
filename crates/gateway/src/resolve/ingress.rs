//! Ingresses of our class as tables of the same kind as those of Gateways. A change of one makes anew what it asks for
//! (`member`), and the rules of the paths that it has, had, or has a certificate for (`spot`); everything else stays as it is.

mod entries;
mod member;
mod secured;
mod spot;
mod tables;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ferry_client::ObjectKey;
use k8s_openapi::api::networking::v1::Ingress;

use super::backends::Backends;
use super::expressions::Used;
use super::handed::Parts;
use super::objects::Objects;
use crate::INGRESS_CONTROLLER;
use crate::table::{Hostname, HttpRoutes, PortTable};
use member::{Member, Refers};
use secured::Secured;
use spot::{Claim, Claims, Spot};

const OLD_CLASS: &str = "kubernetes.io/ingress.class";
pub const HTTP: u16 = 80;
pub const HTTPS: u16 = 443;

/// Paths of the Ingresses of one namespace, canaries among them.
const MOST_PATHS: usize = 20_000;

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

/// Which Ingresses have to be looked at again.
#[derive(Debug, Default)]
pub struct Changes {
    pub all: bool,
    pub keys: BTreeSet<ObjectKey>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        !self.all && self.keys.is_empty()
    }
}

/// What came of the Ingresses.
#[derive(Default)]
pub struct Ingresses {
    /// Those of our class.
    members: BTreeMap<ObjectKey, Member>,
    spots: BTreeMap<Arc<Spot>, Claims>,
    secured: Secured,
    /// How many paths the Ingresses of each namespace have.
    counts: HashMap<String, usize>,
    readers: HashMap<Refers, BTreeSet<ObjectKey>>,
    /// The rules at the plain port and at the one with TLS.
    plain: Arc<HttpRoutes>,
    secure: Arc<HttpRoutes>,
    /// Held, so that those of a namespace are not made again.
    expressions: HashMap<String, Used>,
    /// Who speaks the PROXY protocol, and what is wrong with what the classes say of that.
    proxies: Arc<[ipnet::IpNet]>,
    class_problems: Vec<String>,
    /// What the owner of an Ingress should know.
    warnings: BTreeMap<ObjectKey, Vec<(&'static str, String)>>,
    pub http: Option<Arc<PortTable>>,
    pub https: Option<Arc<PortTable>>,
}

/// What a change has to do with.
#[derive(Default)]
struct Touched {
    spots: BTreeSet<Arc<Spot>>,
    /// Hosts that have a certificate now and had none, or the other way round.
    hosts: BTreeSet<Option<Hostname>>,
    /// The namespaces whose regular expressions share their room anew.
    namespaces: BTreeSet<String>,
    /// Whose warnings may have to be others.
    told: BTreeSet<ObjectKey>,
}

impl Ingresses {
    pub fn all(&self) -> impl Iterator<Item = &Arc<Ingress>> {
        self.members.values().map(|member| &member.common.ingress)
    }

    pub fn warnings(&self) -> impl Iterator<Item = (&Arc<Ingress>, &'static str, &String)> {
        self.warnings.iter().flat_map(move |(key, list)| {
            let ingress = self.members.get(key).map(|member| &member.common.ingress);
            let all = move |ingress| list.iter().map(move |(reason, text)| (ingress, *reason, text));
            ingress.into_iter().flat_map(all)
        })
    }

    /// The Ingresses that refer to a Service, whether it is there or not.
    pub fn of_service(&self, key: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.readers.get(&Refers::Service(key.clone())).into_iter().flatten()
    }

    pub fn of_secret(&self, key: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        let all = [Refers::Secret(key.clone()), Refers::Users(key.clone())];
        all.into_iter().filter_map(move |refers| self.readers.get(&refers)).flatten()
    }

    /// What Ingresses refer to, whether it is there or not: Secrets for their certificates, and those with users.
    pub fn secrets(&self) -> impl Iterator<Item = (&ObjectKey, Parts)> {
        self.readers.keys().filter_map(|refers| match refers {
            Refers::Secret(key) => Some((key, Parts { pair: true, users: false })),
            Refers::Users(key) => Some((key, Parts { pair: false, users: true })),
            Refers::Service(_) => None,
        })
    }

    /// Everything from the beginning.
    #[cfg(test)]
    pub fn resolve(backends: &Backends<'_>) -> Self {
        let mut made = Self::default();
        made.change(backends, Changes { all: true, ..Changes::default() });
        made
    }

    pub fn change(&mut self, backends: &Backends<'_>, changes: Changes) {
        let objects = backends.objects;
        let mut before = None;
        let keys = if changes.all {
            // What it has is used again as long as it is there.
            before = Some(std::mem::take(self));
            self.of_classes(objects);
            objects.ingresses.iter().map(|ingress| super::objects::key(&ingress.metadata)).collect()
        } else {
            changes.keys
        };
        let mut touched = Touched::default();
        self.replace(backends, keys, &mut touched);
        self.widen(&mut touched);
        self.make(backends.certificates, &mut touched);
        for key in &touched.told {
            match self.warnings_of(key) {
                list if list.is_empty() => drop(self.warnings.remove(key)),
                list => drop(self.warnings.insert(key.clone(), list)),
            }
        }
        self.serve();
        drop(before);
    }

    /// Takes the Ingresses of these names out and puts those in that there are now.
    fn replace(&mut self, backends: &Backends<'_>, keys: BTreeSet<ObjectKey>, touched: &mut Touched) {
        let objects = backends.objects;
        let mut namespaces: BTreeMap<String, usize> = BTreeMap::new();
        for key in &keys {
            let count = self.counts.get(&key.namespace).copied().unwrap_or_default();
            namespaces.entry(key.namespace.clone()).or_insert(count);
        }
        keys.iter().for_each(|key| drop(self.leave(key, touched)));
        let now = keys.iter().filter_map(|key| objects.ingresses.get(key));
        let mut coming: Vec<_> =
            now.filter(|one| is_ours(objects, one)).map(|one| Member::new(backends, one)).collect();
        for member in &coming {
            *self.counts.entry(member.namespace().to_owned()).or_default() += member.paths.len();
        }
        // Where there are more paths than there may be, who has one depends on all others.
        let is_over = |count: &usize| *count > MOST_PATHS;
        let crowded =
            |(namespace, before): &(String, usize)| is_over(before) || self.counts.get(namespace).is_some_and(is_over);
        let crowded: Vec<_> = namespaces.into_iter().filter(crowded).map(|(namespace, _)| namespace).collect();
        for namespace in crowded {
            let others: Vec<_> = self.of_namespace(&namespace).map(|(key, _)| key.clone()).collect();
            for key in others {
                let Some(member) = self.leave(&key, touched) else { continue };
                *self.counts.entry(namespace.clone()).or_default() += member.paths.len();
                coming.push(member);
            }
        }
        coming.sort_by(|a, b| a.order.cmp(&b.order));
        let mut admitted: HashMap<String, usize> = HashMap::new();
        for mut member in coming {
            let namespace = member.namespace();
            // Of a namespace that is not crowded all paths have room, whatever was there before.
            let admitted = admitted.entry(namespace.to_owned()).or_default();
            member.admitted = member.paths.len().min(MOST_PATHS.saturating_sub(*admitted));
            *admitted += member.paths.len();
            self.join(member, touched);
        }
    }

    fn of_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a ObjectKey, &'a Member)> {
        let first = ObjectKey::new(namespace, "");
        self.members.range(first..).take_while(move |(key, _)| key.namespace == namespace)
    }

    /// Takes an Ingress out. Its paths are counted no more.
    fn leave(&mut self, key: &ObjectKey, touched: &mut Touched) -> Option<Member> {
        touched.told.insert(key.clone());
        let member = self.members.remove(key)?;
        if let Some(count) = self.counts.get_mut(&key.namespace) {
            *count = count.saturating_sub(member.paths.len());
            if *count == 0 {
                self.counts.remove(&key.namespace);
            }
        }
        for refers in &member.refers {
            if let Some(of) = self.readers.get_mut(refers) {
                of.remove(key);
                if of.is_empty() {
                    self.readers.remove(refers);
                }
            }
        }
        for (spot, _) in member.served() {
            if let Some(claims) = self.spots.get_mut(spot) {
                claims.remove(&member.order);
                touched.spots.insert(spot.clone());
            }
        }
        self.secured.remove(&member, &mut touched.hosts);
        if member.common.has_expressions() {
            touched.namespaces.insert(key.namespace.clone());
        }
        Some(member)
    }

    /// Its paths are counted already.
    fn join(&mut self, member: Member, touched: &mut Touched) {
        let key = member.key();
        for refers in &member.refers {
            self.readers.entry(refers.clone()).or_default().insert(key.clone());
        }
        for (place, (spot, target)) in member.served().iter().enumerate() {
            let claim =
                Claim { order: (member.order.clone(), place), common: member.common.clone(), target: target.clone() };
            self.spots.entry(spot.clone()).or_default().insert(claim);
            touched.spots.insert(spot.clone());
        }
        self.secured.insert(&member, &mut touched.hosts);
        if member.common.has_expressions() {
            touched.namespaces.insert(key.namespace.clone());
        }
        self.members.insert(key, member);
    }

    /// Adds what is not as it was because of what changed.
    fn widen(&self, touched: &mut Touched) {
        for host in &touched.hosts {
            match host {
                None => touched.spots.extend(self.spots.keys().cloned()),
                Some(host) => {
                    let of_host = self.spots.range(Spot::first(host)..);
                    let of_host = of_host.take_while(|(spot, _)| spot.hostname.as_ref() == Some(host));
                    touched.spots.extend(of_host.map(|(spot, _)| spot.clone()));
                    if let Hostname::Wildcard { .. } = host {
                        let below =
                            |spot: &&Arc<Spot>| spot.hostname.as_ref().is_some_and(|one| secured::is_below(one, host));
                        touched.spots.extend(self.spots.keys().filter(below).cloned());
                    }
                }
            }
        }
        // All regular expressions of a namespace share its room: what one path has, another has not. A path may belong to
        // several namespaces, and then it is one room for what is looked at here.
        let of_spot = |spot: &Arc<Spot>| {
            let claims = self.spots.get(spot).into_iter().flat_map(|claims| claims.list.iter());
            claims.filter(|claim| claim.common.has_expressions()).map(|claim| claim.common.namespace().to_owned())
        };
        touched.namespaces.extend(touched.spots.iter().flat_map(of_spot).collect::<Vec<_>>());
        let mut open: Vec<String> = touched.namespaces.iter().cloned().collect();
        while let Some(namespace) = open.pop() {
            for (_, member) in self.of_namespace(&namespace).filter(|(_, member)| member.common.has_expressions()) {
                for (spot, _) in member.served() {
                    if touched.spots.insert(spot.clone()) {
                        open.extend(of_spot(spot).filter(|other| touched.namespaces.insert(other.clone())));
                    }
                }
            }
        }
    }
}
