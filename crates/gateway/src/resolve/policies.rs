//! BackendTLSPolicies: which one counts for a port of a Service, and what it says.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use ferry_client::ObjectKey;
use rustls_pki_types::ServerName;

use super::certificates::{Authorities, Authority, Certificates, Name, ca_certificate};
use super::conditions::{Condition, Problem};
use super::objects::{Objects, Referrer, age, key, namespace};
use crate::api::{BackendTLSPolicy, GROUP};

/// How a backend proves who it is.
#[derive(Debug, PartialEq)]
pub struct Validation {
    pub authorities: Authorities,
    pub server_name: ServerName<'static>,
    /// Empty: the certificate must be for `server_name`.
    pub names: Vec<Name>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Valid(Arc<Validation>),
    /// There is one, and it cannot be followed: the backend must not be used without.
    Broken,
}

#[derive(Debug, PartialEq)]
struct Targeting {
    policy: ObjectKey,
    verdict: Verdict,
}

#[derive(Default)]
pub struct Policies {
    /// Those that count, by the port that they are for.
    by_service: HashMap<ObjectKey, BTreeMap<Option<String>, Targeting>>,
    /// These and those that lost against them.
    targeted_by: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// What became of each policy.
    pub judged: BTreeMap<ObjectKey, Vec<Condition>>,
    /// The ConfigMaps that they refer to, whether those are there or not.
    pub config_maps: HashSet<ObjectKey>,
}

/// Where machines keep the authorities that everybody knows.
const SYSTEM: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The certificates of the machine; empty where it has none.
pub fn system_authorities() -> Arc<Authority> {
    Arc::new(Authority::new(&SYSTEM.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default()))
}

impl Policies {
    /// The Services that a policy is for, and the port of each.
    pub fn targets(policy: &BackendTLSPolicy) -> impl Iterator<Item = (ObjectKey, Option<String>)> {
        let own = namespace(&policy.metadata);
        let services = policy.spec.target_refs.iter();
        let services = services.filter(|target| target.group.is_empty() && target.kind == "Service");
        services.map(move |target| (ObjectKey::new(own, &target.name), target.section_name.clone()))
    }

    pub fn judge(objects: &Objects, certificates: &Certificates, system: &Arc<Authority>) -> Self {
        let mut this = Self::default();
        let mut list: Vec<_> = objects.policies.iter().cloned().collect();
        list.sort_by_cached_key(|policy| age(&policy.metadata));
        for policy in list {
            let (own, key) = (namespace(&policy.metadata), key(&policy.metadata));
            let services: Vec<_> = Self::targets(&policy).collect();
            let conflict = services.iter().find_map(|(service, section)| {
                let older = this.by_service.get(service)?.get(section)?;
                Some(Problem::new("Conflicted", format!("{} is older and has the same target", older.policy)))
            });
            let (resolved, validation) = validation(objects, certificates, &policy, system);
            let accepted = match (&conflict, &validation) {
                (Some(conflict), _) => Some(conflict.clone()),
                (None, Err(problem)) => Some(problem.clone()),
                (None, Ok(_)) => None,
            };
            let conditions = vec![
                Condition::of("Accepted", "Accepted", accepted.as_ref()),
                Condition::of("ResolvedRefs", "ResolvedRefs", resolved.as_ref()),
            ];
            for (service, _) in &services {
                this.targeted_by.entry(service.clone()).or_default().insert(key.clone());
            }
            if conflict.is_none() {
                let verdict = validation.map_or(Verdict::Broken, |validation| Verdict::Valid(Arc::new(validation)));
                for (service, section) in services {
                    let targeting = Targeting { policy: key.clone(), verdict: verdict.clone() };
                    this.by_service.entry(service).or_default().entry(section).or_insert(targeting);
                }
            }
            let maps = policy
                .spec
                .validation
                .ca_certificate_refs
                .iter()
                .map(|reference| ObjectKey::new(reference.namespace.as_deref().unwrap_or(own), &reference.name));
            this.config_maps.extend(maps);
            this.judged.insert(key, conditions);
        }
        this
    }

    /// The one for the port, or the one for the whole Service.
    pub fn of(&self, service: &ObjectKey, port: Option<&str>) -> Option<Verdict> {
        let list = self.by_service.get(service)?;
        let named = port.and_then(|port| list.get(&Some(port.to_owned())));
        named.or_else(|| list.get(&None)).map(|one| one.verdict.clone())
    }

    /// The Services of which the policies say something else than `other` does.
    pub fn differing<'a>(&'a self, other: &'a Self) -> BTreeSet<&'a ObjectKey> {
        let all = self.targeted_by.keys().chain(other.targeted_by.keys());
        let differs = |service: &&ObjectKey| {
            self.by_service.get(*service) != other.by_service.get(*service)
                || self.targeted_by.get(*service) != other.targeted_by.get(*service)
        };
        all.filter(differs).collect()
    }

    /// All that target the Service.
    pub fn all(&self, service: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.targeted_by.get(service).into_iter().flatten()
    }
}

/// What is wrong with its references, and what it says if enough of them are right.
fn validation(
    objects: &Objects,
    certificates: &Certificates,
    policy: &BackendTLSPolicy,
    system: &Arc<Authority>,
) -> (Option<Problem>, Result<Validation, Problem>) {
    let spec = &policy.spec.validation;
    let from = Referrer { group: GROUP, kind: "BackendTLSPolicy", namespace: namespace(&policy.metadata) };
    let (mut authorities, mut resolved) = (Vec::new(), None);
    for reference in &spec.ca_certificate_refs {
        match ca_certificate(objects, certificates, from, reference, &authorities, "InvalidKind") {
            Ok(found) => authorities.push(found),
            Err(problem) => resolved = resolved.or(Some(problem)),
        }
    }
    match spec.well_known_ca_certificates.as_deref() {
        None | Some("") => {}
        Some("System") if system.pem.is_empty() => {}
        Some("System") => authorities.push(system.clone()),
        Some(other) => {
            let problem = Problem::new("Invalid", format!("wellKnownCACertificates {other:?} is not supported"));
            return (resolved, Err(problem));
        }
    }
    if authorities.is_empty() {
        let why = resolved.as_ref().map_or("there is no CA certificate", |problem| &problem.message);
        let problem = Problem::new("NoValidCACertificate", why);
        return (resolved, Err(problem));
    }
    let Ok(server_name) = ServerName::try_from(spec.hostname.clone()) else {
        return (resolved, Err(Problem::new("Invalid", format!("{:?} is not a hostname", spec.hostname))));
    };
    let names = spec.subject_alt_names.iter().filter_map(|name| match name.type_.as_str() {
        "URI" => name.uri.clone().map(Name::Uri),
        _ => ServerName::try_from(name.hostname.clone()?).ok().map(Name::Host),
    });
    (resolved, Ok(Validation { authorities, server_name, names: names.collect() }))
}
