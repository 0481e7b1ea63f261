//! The HTTP rules of a listener, found by host, then by precedence.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::matching::Rank;
use super::{Filters, Head, Hostname, Matcher, Specificity, Split};

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
    order: Order,
}

/// Who goes first within a host: how precisely the route itself names the host, the match, the route's age and name, the
/// rule's place in it.
pub type Order = (std::cmp::Reverse<Specificity>, Rank, (i64, Box<str>), usize);

impl Entry {
    pub fn new(matcher: Matcher, rule: Arc<Rule>, named: Specificity, route: (i64, Box<str>), place: usize) -> Self {
        let order = (std::cmp::Reverse(named), matcher.rank(), route, place);
        Self { matcher, rule, order }
    }
}

#[derive(Debug, Default)]
pub struct HttpRoutes {
    exact: HashMap<Box<str>, Vec<Arc<Entry>>>,
    /// The longest first.
    wildcards: Vec<(Hostname, Vec<Arc<Entry>>)>,
    any: Vec<Arc<Entry>>,
}

impl HttpRoutes {
    pub fn new(entries: Vec<(Option<Hostname>, Entry)>) -> Self {
        let mut routes = Self::default();
        let mut wildcards: HashMap<Hostname, Vec<Arc<Entry>>> = HashMap::new();
        for (hostname, entry) in entries {
            let entry = Arc::new(entry);
            match hostname {
                None => routes.any.push(entry),
                Some(Hostname::Exact(name)) => routes.exact.entry(name).or_default().push(entry),
                Some(wildcard) => wildcards.entry(wildcard).or_default().push(entry),
            }
        }
        routes.wildcards = wildcards.into_iter().collect();
        routes.wildcards.sort_by_key(|(hostname, _)| std::cmp::Reverse(hostname.specificity()));
        let lists = routes.exact.values_mut().chain(routes.wildcards.iter_mut().map(|(_, list)| list));
        for list in lists.chain(std::iter::once(&mut routes.any)) {
            list.sort_by(|a, b| a.order.cmp(&b.order));
        }
        routes
    }

    pub fn find(&self, head: &Head<'_>) -> Option<&Arc<Entry>> {
        self.of_host(head.host).find(|entry| entry.matcher.matches(head))
    }

    /// The rules that are asked for a host, in their order.
    pub fn of_host<'a, 'b>(&'a self, host: &'b str) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a, 'b> {
        let exact = self.exact.get(host).into_iter();
        let wildcards = self.wildcards.iter().filter(move |(name, _)| name.matches(host)).map(|(_, list)| list);
        exact.chain(wildcards).chain(std::iter::once(&self.any)).flatten()
    }

    /// The hosts that rules are for, but for those that are for all.
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = self.exact.keys().map(ToString::to_string).collect();
        hosts.sort();
        hosts.extend(self.wildcards.iter().map(|(name, _)| name.to_string()));
        hosts
    }

    /// All rules, for those who count or show them.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        let wildcards = self.wildcards.iter().flat_map(|(_, list)| list);
        self.exact.values().flatten().chain(wildcards).chain(&self.any)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::super::{Depth, PathMatcher, specificity};
    use super::*;

    fn rule(name: &str) -> Arc<Rule> {
        Arc::new(Rule {
            route: name.into(),
            name: "0".into(),
            filters: Filters::default(),
            split: Split::default(),
            has_backends: false,
            request_timeout: None,
            backend_timeout: None,
            retry: None,
            extras: None,
        })
    }

    /// Which route a request takes, of routes (name, hostname, prefix, age).
    fn check(routes: &[(&str, &str, &str, i64)], host: &str, path: &str) -> String {
        let entries = routes.iter().map(|(name, hostname, prefix, age)| {
            let hostname = (!hostname.is_empty()).then(|| Hostname::parse(hostname, Depth::Any));
            let matcher = Matcher::path(PathMatcher::prefix(prefix));
            let named = specificity(hostname.as_ref());
            (hostname, Entry::new(matcher, rule(name), named, (*age, (*name).into()), 0))
        });
        let table = HttpRoutes::new(entries.collect());
        let headers = HeaderMap::new();
        let head = Head { host, path, query: None, method: &Method::GET, headers: &headers };
        table.find(&head).map_or("none".to_owned(), |entry| entry.rule.route.to_string())
    }

    #[test]
    fn hosts_come_before_paths_and_age_decides_the_rest() {
        let routes = [
            ("all", "", "/", 1),
            ("wild", "*.com", "/", 1),
            ("wilder", "*.a.com", "/", 1),
            ("exact", "x.a.com", "/only", 1),
            ("young", "y.com", "/", 9),
            ("old", "y.com", "/", 2),
            ("long", "y.com", "/long", 9),
        ];
        for (host, path, want) in [
            ("x.a.com", "/only", "exact"),
            // The most precise host has no rule for it: the next one is asked.
            ("x.a.com", "/", "wilder"),
            ("z.com", "/", "wild"),
            ("z.org", "/", "all"),
            ("y.com", "/", "old"),
            ("y.com", "/long/er", "long"),
        ] {
            assert_eq!(check(&routes, host, path), want, "{host}{path}");
        }
        assert_eq!(check(&routes[3..], "z.org", "/"), "none");
    }
}
