//! The HTTP rules of a listener, found by host, then by precedence. Copies share what they have in common: a copy with one
//! rule more or less has a list of its own for the host of that rule, and a piece of the map of hosts.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::{Entry, Head, Hostname};

/// Pieces of the map of hosts; a change copies one of them.
const PIECES: usize = 128;

type List = Arc<Vec<Arc<Entry>>>;
type Piece = HashMap<Arc<str>, List>;

#[derive(Clone, Debug, Default)]
pub struct HttpRoutes {
    exact: Vec<Arc<Piece>>,
    /// The longest first.
    wildcards: Vec<(Hostname, List)>,
    any: List,
}

/// The piece that a host belongs to. Only those who write routes could fill one piece, and it would only be larger.
fn piece(host: &str) -> usize {
    let hash = host
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    usize::try_from(hash >> 32).unwrap_or_default() % PIECES
}

fn insert(list: &mut List, entry: &Arc<Entry>) {
    let place = list.partition_point(|known| known.order <= entry.order);
    Arc::make_mut(list).insert(place, entry.clone());
}

/// Whether nothing is left.
fn remove(list: &mut List, entry: &Arc<Entry>) -> bool {
    let first = list.partition_point(|known| known.order < entry.order);
    let rest = list.get(first..).unwrap_or_default();
    if let Some(place) = rest.iter().position(|known| Arc::ptr_eq(known, entry)) {
        Arc::make_mut(list).remove(first + place);
    }
    list.is_empty()
}

impl HttpRoutes {
    pub fn new(entries: impl IntoIterator<Item = (Option<Hostname>, Arc<Entry>)>) -> Self {
        let mut by_host: HashMap<Option<Hostname>, Vec<Arc<Entry>>> = HashMap::new();
        for (hostname, entry) in entries {
            by_host.entry(hostname).or_default().push(entry);
        }
        let mut routes = Self::default();
        for (hostname, mut list) in by_host {
            list.sort_by(|a, b| a.order.cmp(&b.order));
            let list = Arc::new(list);
            match hostname {
                None => routes.any = list,
                Some(Hostname::Exact(name)) => drop(routes.piece_mut(&name).insert((&*name).into(), list)),
                Some(wildcard) => routes.wildcards.push((wildcard, list)),
            }
        }
        routes.wildcards.sort_by_key(|(name, _)| (Reverse(name.specificity()), name.clone()));
        routes
    }

    fn piece_mut(&mut self, host: &str) -> &mut Piece {
        if self.exact.is_empty() {
            self.exact = vec![Arc::default(); PIECES];
        }
        Arc::make_mut(&mut self.exact[piece(host)])
    }

    pub fn insert(&mut self, hostname: Option<&Hostname>, entry: &Arc<Entry>) {
        match hostname {
            None => insert(&mut self.any, entry),
            Some(Hostname::Exact(name)) => {
                let piece = self.piece_mut(name);
                match piece.get_mut(&**name) {
                    Some(list) => insert(list, entry),
                    None => drop(piece.insert((&**name).into(), Arc::new(vec![entry.clone()]))),
                }
            }
            Some(wildcard) => {
                let key = |name: &Hostname| (Reverse(name.specificity()), name.clone());
                match self.wildcards.binary_search_by_key(&key(wildcard), |(name, _)| key(name)) {
                    Ok(place) => insert(&mut self.wildcards[place].1, entry),
                    Err(place) => self.wildcards.insert(place, (wildcard.clone(), Arc::new(vec![entry.clone()]))),
                }
            }
        }
    }

    /// Takes out what was put in: this very entry.
    pub fn remove(&mut self, hostname: Option<&Hostname>, entry: &Arc<Entry>) {
        match hostname {
            None => drop(remove(&mut self.any, entry)),
            Some(Hostname::Exact(name)) => {
                let Some(piece) = self.exact.get_mut(piece(name)) else { return };
                let piece = Arc::make_mut(piece);
                if piece.get_mut(&**name).is_some_and(|list| remove(list, entry)) {
                    piece.remove(&**name);
                }
            }
            Some(wildcard) => self.wildcards.retain_mut(|(name, list)| *name != *wildcard || !remove(list, entry)),
        }
    }

    pub fn find(&self, head: &Head<'_>) -> Option<&Arc<Entry>> {
        self.of_host(head.host).find(|entry| entry.matcher.matches(head))
    }

    /// The rules that are asked for a host, in their order.
    pub fn of_host<'a, 'b>(&'a self, host: &'b str) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a, 'b> {
        // Without rules for hosts there is no piece at all.
        let piece = if self.exact.is_empty() { None } else { self.exact.get(piece(host)) };
        let exact = piece.and_then(|piece| piece.get(host)).into_iter();
        let wildcards = self.wildcards.iter().filter(move |(name, _)| name.matches(host)).map(|(_, list)| list);
        exact.chain(wildcards).chain(std::iter::once(&self.any)).flat_map(|list| list.iter())
    }

    /// The hosts that rules are for, but for those that are for all.
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> =
            self.exact.iter().flat_map(|piece| piece.keys()).map(ToString::to_string).collect();
        hosts.sort();
        hosts.extend(self.wildcards.iter().map(|(name, _)| name.to_string()));
        hosts
    }

    /// All rules, for those who count or show them.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        let exact = self.exact.iter().flat_map(|piece| piece.values());
        let wildcards = self.wildcards.iter().map(|(_, list)| list);
        exact.chain(wildcards).chain(std::iter::once(&self.any)).flat_map(|list| list.iter())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};

    use super::super::{Depth, Filters, Matcher, PathMatcher, Rule, Split, specificity};
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
            (hostname, Arc::new(Entry::new(matcher, rule(name), named, (*age, (*name).into()), (0, 0))))
        });
        let table = HttpRoutes::new(entries);
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

    /// All rules in their order, host by host.
    fn shown(routes: &HttpRoutes) -> Vec<String> {
        let hosts = ["x.a.com", "y.com", "z.a.com", "other"];
        let of = |host| routes.of_host(host).map(|entry| format!("{host} {}", entry.rule.route)).collect::<Vec<_>>();
        hosts.into_iter().flat_map(of).chain(routes.hosts()).collect()
    }

    /// Whatever is put in and taken out one after the other: what is there is what a new one of the same rules would have.
    #[test]
    fn one_that_was_changed_is_like_a_new_one() {
        let seed: u64 = rand::random();
        println!("seed {seed}");
        let mut random = <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(seed);
        let mut number = |most: usize| rand::Rng::random_range(&mut random, 0..most);
        let hosts = ["", "x.a.com", "y.com", "*.a.com", "*.com"];
        let (mut routes, mut held) = (HttpRoutes::default(), Vec::new());
        for step in 0..300 {
            if held.is_empty() || number(5) < 3 {
                let name = hosts[number(hosts.len())];
                let hostname = (!name.is_empty()).then(|| Hostname::parse(name, Depth::Any));
                let matcher = Matcher::path(PathMatcher::prefix(["/", "/a", "/b/c"][number(3)]));
                let age = (i64::try_from(number(3)).unwrap(), format!("{step}").into());
                let named = specificity(hostname.as_ref());
                let entry = Arc::new(Entry::new(matcher, rule(&format!("{name} {step}")), named, age, (0, 0)));
                held.push((hostname, entry));
                let (hostname, entry) = &held[held.len() - 1];
                let before = routes.clone();
                let was = shown(&before);
                routes.insert(hostname.as_ref(), entry);
                assert_eq!(shown(&before), was, "a copy does not change");
            } else {
                let (hostname, entry) = held.swap_remove(number(held.len()));
                routes.remove(hostname.as_ref(), &entry);
            }
            assert_eq!(shown(&routes), shown(&HttpRoutes::new(held.iter().cloned())), "step {step}");
        }
    }
}
