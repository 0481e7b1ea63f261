//! The HTTP rules of a listener.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::matching::Rank;
use super::{Filters, Matcher, Specificity, Split};

/// What happens to a request that matched.
#[derive(Debug)]
pub struct Rule {
    /// `HTTPRoute namespace/name`.
    pub route: Box<str>,
    /// The rule's name, or its number.
    pub name: Box<str>,
    pub filters: Filters,
    pub split: Split,
    /// No backend was named: nothing to send requests to.
    pub has_backends: bool,
    pub request_timeout: Option<Duration>,
    pub backend_timeout: Option<Duration>,
    pub retry: Option<Retry>,
    pub extras: Option<Box<Extras>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    pub attempts: u32,
    pub codes: Vec<u16>,
    pub backoff: Duration,
}

/// What annotations ask for beyond the Gateway API's fields, and what few rules have.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    pub most_body: Option<u64>,
    /// Empty: everybody.
    pub sources: Vec<IpNet>,
    pub basic_auth: Option<BasicAuth>,
    pub affinity: Option<Affinity>,
    pub connect_timeout: Option<Duration>,
    /// All of them count.
    pub rates: Vec<RateLimit>,
    /// Answers are compressed for those who take that.
    pub compress: bool,
}

impl Extras {
    /// None: there is nothing extra.
    pub fn used(self) -> Option<Box<Self>> {
        let Self { most_body, sources, basic_auth, affinity, connect_timeout, rates, compress } = &self;
        let is_used = most_body.is_some()
            || !sources.is_empty()
            || basic_auth.is_some()
            || affinity.is_some()
            || connect_timeout.is_some()
            || !rates.is_empty()
            || *compress;
        is_used.then(|| Box::new(self))
    }
}

/// How often one client may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Limits of one name count together, whatever table they are in.
    pub zone: Arc<str>,
    /// Between two requests, in the long run.
    pub interval: Duration,
    /// So many more may come at once.
    pub burst: u32,
    pub exempt: Vec<IpNet>,
}

#[derive(Clone, Debug)]
pub struct BasicAuth {
    pub realm: Box<str>,
    /// Lines of an htpasswd file; without any nobody comes in.
    pub users: HashMap<Box<str>, Box<str>>,
}

/// A cookie or a header that leads back to the same endpoint of the same backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    pub name: Box<str>,
    pub carrier: Carrier,
    /// From its first request on, a client is led back for so long.
    pub absolute_timeout: Option<Duration>,
    /// From its last one.
    pub idle_timeout: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    Cookie { max_age: Option<u64>, path: Box<str> },
    Header,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub matcher: Matcher,
    pub rule: Arc<Rule>,
    pub(super) order: Order,
}

/// Who goes first within a host: how precisely the route itself names the host, the match, the route's age and name, the
/// rule's place in it, and the match's place in the rule.
pub type Order = (std::cmp::Reverse<Specificity>, Rank, (i64, Arc<str>), (usize, usize));

impl Entry {
    pub fn new(
        matcher: Matcher,
        rule: Arc<Rule>,
        named: Specificity,
        route: (i64, Arc<str>),
        place: (usize, usize),
    ) -> Self {
        let order = (std::cmp::Reverse(named), matcher.rank(), route, place);
        Self { matcher, rule, order }
    }
}
