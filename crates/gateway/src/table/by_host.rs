//! Listeners by their hosts. An Ingress may bring one for each host that it has a certificate for, and every request asks which
//! is its own.

use std::collections::HashMap;
use std::sync::Arc;

use super::hosts::LONGEST;
use super::{Depth, Hostname, Listener};

/// Of equals the first.
#[derive(Clone, Debug, Default)]
pub struct ByHost {
    exact: HashMap<Arc<str>, usize>,
    /// By what follows the star.
    deep: HashMap<Arc<str>, usize>,
    /// Those whose star is one label.
    flat: HashMap<Arc<str>, usize>,
    any: Option<usize>,
}

impl ByHost {
    pub fn new(listeners: &[Arc<Listener>]) -> Self {
        let mut made = Self::default();
        for (place, listener) in listeners.iter().enumerate() {
            let (names, name) = match &listener.hostname {
                None => {
                    made.any.get_or_insert(place);
                    continue;
                }
                Some(Hostname::Exact(name)) => (&mut made.exact, name),
                Some(Hostname::Wildcard { suffix, depth: Depth::Any }) => (&mut made.deep, suffix),
                Some(Hostname::Wildcard { suffix, depth: Depth::One }) => (&mut made.flat, suffix),
            };
            names.entry(name.clone()).or_insert(place);
        }
        made
    }

    /// The place of the listener that names a host most precisely.
    pub fn find(&self, host: &str) -> Option<usize> {
        if let Some(place) = self.exact.get(host) {
            return Some(*place);
        }
        let nearest = host.len().saturating_sub(LONGEST);
        let first = host.find('.');
        let dots = host.bytes().enumerate().filter(|(at, byte)| *byte == b'.' && *at > 0 && *at >= nearest);
        for (at, suffix) in dots.filter_map(|(at, _)| Some((at, host.get(at..)?))) {
            let flat = if first == Some(at) { self.flat.get(suffix) } else { None };
            let found = [self.deep.get(suffix), flat].into_iter().flatten().min();
            if found.is_some() {
                return found.copied();
            }
        }
        self.any
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PortTable, TlsMode, Transport};
    use super::*;

    #[test]
    fn many_listeners_are_found_as_few_are() {
        let hosts = ["a.com", "*.a.com", "b.a.com", "*.b.a.com", "a.com", "*.com", "x.org", "*.x.org", "*.b.a.com"];
        let asked =
            ["a.com", "b.a.com", "c.b.a.com", "d.c.b.a.com", ".a.com", "x.org", "y.z.x.org", "com", "", "n.net"];
        for depth in [Depth::Any, Depth::One] {
            for has_any in [false, true] {
                let named = hosts.iter().map(|host| Some(Hostname::parse(host, depth)));
                let all = named.chain(has_any.then_some(None)).chain(has_any.then_some(None));
                let listener = |(place, hostname): (usize, Option<Hostname>)| {
                    let (tls, http, streams) = (TlsMode::None, Arc::default(), Arc::default());
                    Arc::new(Listener { name: place.to_string().into(), hostname, tls, http, streams })
                };
                let listeners: Vec<_> = all.enumerate().map(listener).collect();
                let table = |listeners: Vec<Arc<Listener>>| {
                    PortTable::new("n/g".into(), 80, Transport::Http, listeners, Arc::default())
                };
                let (many, index) = (table(listeners.clone()), ByHost::new(&listeners));
                for host in asked {
                    // Too few for an index, one after the other.
                    let one_by_one = listeners.iter().fold(None::<&Arc<Listener>>, |best, next| {
                        let pair: Vec<_> = best.into_iter().chain([next]).cloned().collect();
                        let found = table(pair).listener(host).map(|found| found.name.clone());
                        listeners.iter().find(|one| Some(&one.name) == found.as_ref())
                    });
                    let found = index.find(host).map(|place| &listeners[place].name);
                    assert_eq!(found, one_by_one.map(|one| &one.name), "{host}");
                    assert_eq!(many.listener(host).map(|one| &one.name), found, "{host}");
                }
            }
        }
    }
}
