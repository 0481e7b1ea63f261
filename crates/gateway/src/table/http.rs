//! The HTTP rules of a listener.

use std::sync::Arc;
use std::time::Duration;

use super::matching::Rank;
use super::{Filters, Matcher, Ranges, Split, Users};

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
    /// Shared by all rules that have the same.
    pub extras: Option<Arc<Extras>>,
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
    pub sources: Ranges,
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
    pub fn used(self) -> Option<Arc<Self>> {
        let Self { most_body, sources, basic_auth, affinity, connect_timeout, rates, compress } = &self;
        let is_used = most_body.is_some()
            || !sources.is_empty()
            || basic_auth.is_some()
            || affinity.is_some()
            || connect_timeout.is_some()
            || !rates.is_empty()
            || *compress;
        is_used.then(|| Arc::new(self))
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
    pub exempt: Arc<Ranges>,
}

#[derive(Clone, Debug)]
pub struct BasicAuth {
    pub realm: Box<str>,
    /// Whose they are: those of one namespace wait for each other, not for anybody else.
    pub owner: Arc<str>,
    /// Without any nobody comes in.
    pub users: Arc<Users>,
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

/// A rule of a route, for one of its matches.
#[derive(Clone, Debug)]
pub struct Entry {
    pub matcher: Matcher,
    pub rule: Arc<Rule>,
    pub(super) order: Order,
}

/// Who goes first among those whose routes name the host as precisely: the match, the route, the rule's place in it, and the
/// match's place in the rule.
pub type Order = (Rank, Owner, (usize, usize));

/// The age and the name of a route, and its kind: an HTTPRoute and a GRPCRoute may have all else in common.
pub type Owner = (i64, Arc<str>, &'static str);

impl Entry {
    pub fn new(matcher: Matcher, rule: Arc<Rule>, route: Owner, place: (usize, usize)) -> Self {
        let order = (matcher.rank(), route, place);
        Self { matcher, rule, order }
    }
}
