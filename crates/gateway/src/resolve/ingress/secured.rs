//! The hosts of Ingresses that have a certificate: the oldest Ingress that brings one has it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::member::{Member, Order};
use crate::table::{Depth, Hostname};

type Brought = (Order, usize, Arc<rustls::ServerConfig>);

/// By host; None: all that have no other.
#[derive(Default)]
pub struct Secured(BTreeMap<Option<Hostname>, Vec<Brought>>);

impl Secured {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hosts in their order, and what each shows.
    pub fn hosts(&self) -> impl Iterator<Item = (&Option<Hostname>, &Arc<rustls::ServerConfig>)> {
        self.0.iter().filter_map(|(host, all)| Some((host, &all.first()?.2)))
    }

    /// `changed` learns of hosts that had none before.
    pub fn insert(&mut self, member: &Member, changed: &mut BTreeSet<Option<Hostname>>) {
        for (place, (host, config)) in member.certificates.iter().enumerate() {
            let all = self.0.entry(host.clone()).or_insert_with(|| {
                changed.insert(host.clone());
                Vec::new()
            });
            let order = (&member.order, place);
            let at = all.partition_point(|(known, place, _)| (known, *place) <= order);
            all.insert(at, (member.order.clone(), place, config.clone()));
        }
    }

    /// `changed` learns of hosts that have none any more.
    pub fn remove(&mut self, member: &Member, changed: &mut BTreeSet<Option<Hostname>>) {
        for (host, _) in &member.certificates {
            let Some(all) = self.0.get_mut(host) else { continue };
            all.retain(|(order, ..)| *order != member.order);
            if all.is_empty() {
                self.0.remove(host);
                changed.insert(host.clone());
            }
        }
    }

    /// Whether there is one for a host of a rule.
    pub fn covers(&self, hostname: Option<&Hostname>) -> bool {
        let known = |name: &Option<Hostname>| self.0.contains_key(name);
        let above = |host: &Hostname| above(host).is_some_and(|above| known(&Some(above)));
        known(&None) || hostname.is_some_and(|host| known(&Some(host.clone())) || above(host))
    }
}

/// The wildcard that has this host, one label above it.
fn above(host: &Hostname) -> Option<Hostname> {
    let Hostname::Exact(host) = host else { return None };
    let (label, rest) = host.split_once('.')?;
    (!label.is_empty()).then(|| Hostname::Wildcard { suffix: format!(".{rest}").into(), depth: Depth::One })
}

/// Whether a certificate for the wildcard is good for a host.
pub fn is_below(host: &Hostname, wildcard: &Hostname) -> bool {
    above(host).is_some_and(|above| above == *wildcard)
}
