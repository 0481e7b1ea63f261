//! Where requests go: weighted backends and their endpoints.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, Guard};
use rustls_pki_types::ServerName;

use super::Filters;

/// How a backend is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Http1,
    /// HTTP/2 without negotiation.
    Http2,
    /// TLS whose handshake chooses.
    Negotiated,
}

/// How a backend is known.
#[derive(Debug)]
pub struct BackendTls {
    pub config: Arc<rustls::ClientConfig>,
    pub name: ServerName<'static>,
    /// Equal for equal contents: connections of one are good for the other.
    pub fingerprint: u64,
}

/// The endpoints of one port of a Service, shared by all rules that send requests there. They are all of a table that changes
/// while it is in force: endpoints come and go much more often than anything else.
#[derive(Debug)]
pub struct Backend {
    /// `namespace/name:port`.
    pub name: Box<str>,
    pub protocol: Protocol,
    pub tls: Option<Arc<BackendTls>>,
    endpoints: ArcSwap<Vec<SocketAddr>>,
    next: AtomicUsize,
}

impl Backend {
    pub fn new(
        name: impl Into<Box<str>>,
        protocol: Protocol,
        tls: Option<Arc<BackendTls>>,
        endpoints: Vec<SocketAddr>,
    ) -> Self {
        // Backends are made anew again and again: the first endpoint must not get the first request of each.
        let next = AtomicUsize::new(rand::random_range(0..endpoints.len().max(1)));
        Self { name: name.into(), protocol, tls, endpoints: ArcSwap::from_pointee(endpoints), next }
    }

    /// In their order. Empty: there is nobody to answer.
    pub fn endpoints(&self) -> Guard<Arc<Vec<SocketAddr>>> {
        self.endpoints.load()
    }

    /// Whether one of those before is none any more. Both are in order.
    pub fn set_endpoints(&self, endpoints: Vec<SocketAddr>) -> bool {
        let before = self.endpoints.load();
        if **before == endpoints {
            return false;
        }
        let is_gone = before.iter().any(|one| endpoints.binary_search(one).is_err());
        self.endpoints.store(Arc::new(endpoints));
        is_gone
    }

    /// The next in turn that was not tried yet.
    pub fn endpoint(&self, tried: &[SocketAddr]) -> Option<SocketAddr> {
        let endpoints = self.endpoints();
        let count = endpoints.len();
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = (0..count).filter_map(|step| endpoints.get(start.wrapping_add(step) % count));
        turn.copied().find(|endpoint| !tried.contains(endpoint))
    }
}

/// A reference that leads nowhere, and how requests for it are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The reference is wrong or not permitted.
    Reference,
    /// It is of an Ingress, which has no status to say so: requests are answered as if nobody were there.
    NoEndpoints,
    /// What the backend is to be known by cannot be used.
    Tls,
}

#[derive(Clone, Debug)]
pub enum Target {
    Backend(Arc<Backend>),
    Broken(Broken),
}

#[derive(Debug)]
pub struct Weighted {
    pub weight: u32,
    pub target: Target,
    pub filters: Filters,
}

/// Backends that share the requests by weight.
#[derive(Debug, Default)]
pub struct Split {
    pub backends: Vec<Weighted>,
    total: u64,
    next: AtomicU64,
}

/// The fractional part of the golden ratio, of 2^64: its multiples are spread more evenly than random numbers.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Split {
    pub fn new(backends: Vec<Weighted>) -> Self {
        let total = backends.iter().map(|backend| u64::from(backend.weight)).sum();
        Self { backends, total, next: AtomicU64::new(rand::random()) }
    }

    /// The next in turn. None: no backend has any weight.
    pub fn choose(&self) -> Option<&Weighted> {
        if self.total == 0 {
            return None;
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed).wrapping_mul(GOLDEN);
        let mut place = u64::try_from((u128::from(turn) * u128::from(self.total)) >> 64).unwrap_or_default();
        self.backends.iter().find(|backend| {
            let weight = u64::from(backend.weight);
            let found = place < weight;
            place = place.saturating_sub(weight);
            found
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(endpoints: usize) -> Backend {
        let list = (0..endpoints).map(|n| SocketAddr::from(([10, 0, 0, u8::try_from(n).unwrap()], 80))).collect();
        Backend::new("a/b:80", Protocol::Http1, None, list)
    }

    #[test]
    fn requests_are_shared_by_weight() {
        let weighted =
            |weight| Weighted { weight, target: Target::Broken(Broken::Reference), filters: Filters::default() };
        let split = Split::new(vec![weighted(70), weighted(30), weighted(0)]);
        let mut counts = [0_u32; 3];
        for _ in 0..1000 {
            let chosen = split.choose().unwrap();
            counts[split.backends.iter().position(|one| std::ptr::eq(one, chosen)).unwrap()] += 1;
        }
        assert!(counts[0].abs_diff(700) <= 5 && counts[1].abs_diff(300) <= 5 && counts[2] == 0, "{counts:?}");
        assert!(Split::new(vec![weighted(0)]).choose().is_none());
        assert!(Split::new(Vec::new()).choose().is_none());
    }

    #[test]
    fn every_endpoint_has_its_turn_and_none_is_tried_twice() {
        let backend = backend(3);
        let mut tried = Vec::new();
        while let Some(endpoint) = backend.endpoint(&tried) {
            tried.push(endpoint);
        }
        tried.sort();
        assert_eq!(tried, **backend.endpoints());
        assert!(backend.set_endpoints(tried.split_off(2)) && !backend.set_endpoints(backend.endpoints().to_vec()));
        assert_eq!(backend.endpoint(&[]), Some(SocketAddr::from(([10, 0, 0, 2], 80))));
        assert_eq!(Backend::new("", Protocol::Http1, None, Vec::new()).endpoint(&[]), None);
    }
}
