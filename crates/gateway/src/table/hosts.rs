//! The HTTP rules of a listener, found by host, then by precedence. The rules of a route are there once, for all hosts and
//! listeners that have them; what is kept for each of these is who has how much precedence. Copies share what they have in
//! common: a copy with one route more or less has a list of its own for the route's hosts, and pieces of the maps of hosts.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

use super::http::Order;
use super::matching::{Look, TooMuch};
use super::{Depth, Entry, Head, Hostname, Specificity};

/// Pieces of a map of hosts; a change copies one of them.
const PIECES: usize = 128;
/// No hostname is longer: what is further from the end of a host is not looked up.
pub const LONGEST: usize = 254;

/// The rules of one route, in their order.
pub type Rules = Arc<[Entry]>;

/// Sorts the rules of one route.
pub fn rules(mut entries: Vec<Entry>) -> Rules {
    entries.sort_by(|a, b| a.order.cmp(&b.order));
    entries.into()
}

/// A rule that a request takes.
#[derive(Clone, Debug)]
pub struct Taken {
    rules: Rules,
    place: usize,
}

impl Deref for Taken {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.rules[self.place]
    }
}

/// The rules of a route in the list of a host, and how precisely the route names that.
#[derive(Clone, Debug)]
struct Member {
    named: Reverse<Specificity>,
    rules: Rules,
}

type Key<'a> = (Reverse<Specificity>, Option<&'a Order>);

impl Member {
    /// Where the rules begin among those of the host.
    fn key(&self) -> Key<'_> {
        (self.named, self.rules.first().map(|first| &first.order))
    }

    fn key_of<'a>(&self, entry: &'a Entry) -> Key<'a> {
        (self.named, Some(&entry.order))
    }
}

/// Sorted by their first rules.
type List = Arc<Vec<Member>>;
type Piece = HashMap<Arc<str>, List>;

/// Lists by name.
#[derive(Clone, Debug, Default)]
struct Names(Vec<Arc<Piece>>);

/// The piece that a host belongs to. Only those who write routes could fill one piece, and it would only be larger.
fn piece(host: &str) -> usize {
    let hash = host
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    usize::try_from(hash >> 32).unwrap_or_default() % PIECES
}

impl Names {
    fn get(&self, name: &str) -> Option<&List> {
        // Without rules for hosts there is no piece at all.
        if self.0.is_empty() { None } else { self.0.get(piece(name))?.get(name) }
    }

    fn insert(&mut self, name: &Arc<str>, member: Member) {
        if self.0.is_empty() {
            self.0 = vec![Arc::default(); PIECES];
        }
        let piece = Arc::make_mut(&mut self.0[piece(name)]);
        insert(piece.entry(name.clone()).or_default(), member);
    }

    fn remove(&mut self, name: &str, member: &Member) {
        let Some(piece) = self.0.get_mut(piece(name)) else { return };
        let piece = Arc::make_mut(piece);
        if piece.get_mut(name).is_some_and(|list| remove(list, member)) {
            piece.remove(name);
        }
    }

    fn all(&self) -> impl Iterator<Item = (&Arc<str>, &List)> {
        self.0.iter().flat_map(|piece| piece.iter())
    }
}

fn insert(list: &mut List, member: Member) {
    let place = list.partition_point(|known| known.key() <= member.key());
    Arc::make_mut(list).insert(place, member);
}

/// Whether nothing is left.
fn remove(list: &mut List, member: &Member) -> bool {
    let first = list.partition_point(|known| known.key() < member.key());
    let rest = list.get(first..).unwrap_or_default();
    if let Some(place) = rest.iter().position(|known| Arc::ptr_eq(&known.rules, &member.rules)) {
        Arc::make_mut(list).remove(first + place);
    }
    list.is_empty()
}

#[derive(Clone, Debug, Default)]
pub struct HttpRoutes {
    exact: Names,
    /// By what follows the star.
    deep: Names,
    /// Those whose star is one label.
    flat: Names,
    any: List,
}

impl HttpRoutes {
    /// Of rules with a host each, and how precisely their route names it.
    pub fn new(all: impl IntoIterator<Item = (Option<Hostname>, Specificity, Rules)>) -> Self {
        let mut routes = Self::default();
        let mut lists: HashMap<Option<Hostname>, Vec<Member>> = HashMap::new();
        for (hostname, named, rules) in all.into_iter().filter(|(.., rules)| !rules.is_empty()) {
            lists.entry(hostname).or_default().push(Member { named: Reverse(named), rules });
        }
        for (hostname, mut list) in lists {
            list.sort_by(|a, b| a.key().cmp(&b.key()));
            let Some(hostname) = hostname else {
                routes.any = Arc::new(list);
                continue;
            };
            let (names, name) = routes.names_mut(&hostname);
            if names.0.is_empty() {
                names.0 = vec![Arc::default(); PIECES];
            }
            Arc::make_mut(&mut names.0[piece(name)]).insert(name.clone(), Arc::new(list));
        }
        routes
    }

    fn names_mut<'a, 'b>(&'a mut self, hostname: &'b Hostname) -> (&'a mut Names, &'b Arc<str>) {
        match hostname {
            Hostname::Exact(name) => (&mut self.exact, name),
            Hostname::Wildcard { suffix, depth: Depth::Any } => (&mut self.deep, suffix),
            Hostname::Wildcard { suffix, depth: Depth::One } => (&mut self.flat, suffix),
        }
    }

    pub fn insert(&mut self, hostname: Option<&Hostname>, named: Specificity, rules: &Rules) {
        if rules.is_empty() {
            return;
        }
        let member = Member { named: Reverse(named), rules: rules.clone() };
        match hostname {
            None => insert(&mut self.any, member),
            Some(hostname) => {
                let (names, name) = self.names_mut(hostname);
                names.insert(name, member);
            }
        }
    }

    /// Takes out what was put in: these very rules.
    pub fn remove(&mut self, hostname: Option<&Hostname>, named: Specificity, rules: &Rules) {
        let member = Member { named: Reverse(named), rules: rules.clone() };
        match hostname {
            None => drop(remove(&mut self.any, &member)),
            Some(hostname) => {
                let (names, name) = self.names_mut(hostname);
                names.remove(name, &member);
            }
        }
    }

    /// The lists for a host, the most precise first.
    fn lists<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a List> {
        let nearest = host.len().saturating_sub(LONGEST);
        let first = host.find('.');
        let dots = host.bytes().enumerate().filter(move |(at, byte)| *byte == b'.' && *at > 0 && *at >= nearest);
        let wildcards = dots.filter_map(|(at, _)| Some((at, host.get(at..)?))).flat_map(move |(at, suffix)| {
            let flat = if first == Some(at) { self.flat.get(suffix) } else { None };
            self.deep.get(suffix).into_iter().chain(flat)
        });
        let has_wildcards = !self.deep.0.is_empty() || !self.flat.0.is_empty();
        let wildcards = has_wildcards.then_some(wildcards).into_iter().flatten();
        self.exact.get(host).into_iter().chain(wildcards).chain(std::iter::once(&self.any))
    }

    /// The rule for a request; or it would take too much work to find it.
    pub fn find(&self, head: &Head<'_>) -> Result<Option<Taken>, TooMuch> {
        let look = Look::new(head);
        for list in self.lists(head.host) {
            let found = first(list, &look);
            look.within()?;
            if let Some((member, place)) = found {
                return Ok(Some(Taken { rules: member.rules.clone(), place }));
            }
        }
        Ok(None)
    }

    /// The rules that are asked for a host, in their order.
    pub fn of_host<'a>(&'a self, host: &'a str) -> Vec<&'a Entry> {
        self.lists(host).flat_map(sorted).collect()
    }

    /// The hosts that rules are for, but for those that are for all.
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = self.exact.all().map(|(name, _)| name.to_string()).collect();
        hosts.sort();
        let mut wildcards: Vec<_> = self.deep.all().chain(self.flat.all()).map(|(suffix, _)| suffix).collect();
        wildcards.sort_by_key(|suffix| (Reverse(suffix.len()), (*suffix).clone()));
        hosts.extend(wildcards.into_iter().map(|suffix| format!("*{suffix}")));
        hosts
    }

    /// The rules of every route, for those who count or show them; `seen` has those that were given already.
    pub fn rules<'a>(&'a self, seen: &mut HashSet<*const Entry>) -> Vec<&'a Rules> {
        let names = [&self.exact, &self.deep, &self.flat].into_iter().flat_map(Names::all).map(|(_, list)| list);
        let all = names.chain(std::iter::once(&self.any)).flat_map(|list| list.iter());
        all.map(|member| &member.rules).filter(|rules| seen.insert(rules.as_ptr())).collect()
    }
}

/// The first rule of a list that a request takes. Routes whose rules all come after it are not asked.
fn first<'a>(list: &'a [Member], look: &Look<'_>) -> Option<(&'a Member, usize)> {
    let mut best: Option<(Key<'a>, (&'a Member, usize))> = None;
    for member in list {
        // Of equals the one that stands first.
        if best.as_ref().is_some_and(|(best, _)| *best <= member.key()) {
            break;
        }
        for (place, entry) in member.rules.iter().enumerate() {
            let key = member.key_of(entry);
            if best.as_ref().is_some_and(|(best, _)| *best <= key) {
                break;
            }
            if entry.matcher.matches(look) {
                best = Some((key, (member, place)));
                break;
            }
        }
    }
    best.map(|(_, found)| found)
}

fn sorted(list: &List) -> Vec<&Entry> {
    let mut all: Vec<_> =
        list.iter().flat_map(|member| member.rules.iter().map(|entry| (member.key_of(entry), entry))).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.into_iter().map(|(_, entry)| entry).collect()
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
            (hostname, named, rules(vec![Entry::new(matcher, rule(name), (*age, (*name).into(), "HTTPRoute"), (0, 0))]))
        });
        let table = HttpRoutes::new(entries);
        let headers = HeaderMap::new();
        let head = Head { host, path, query: None, method: &Method::GET, headers: &headers };
        table.find(&head).expect("little work").map_or("none".to_owned(), |entry| entry.rule.route.to_string())
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

    /// Of two rules with the same precedence it was the one that had come last.
    #[test]
    fn rules_of_the_same_precedence_have_an_order() {
        let of = |kind: &'static str, place: usize| {
            let made =
                Entry::new(Matcher::path(PathMatcher::prefix("/")), rule(kind), (1, "n/a".into(), kind), (place, 0));
            (None, (false, 0), rules(vec![made]))
        };
        let headers = HeaderMap::new();
        let head = Head { host: "a.com", path: "/", query: None, method: &Method::GET, headers: &headers };
        let check = |routes: &HttpRoutes, want: &str| {
            let found = routes.find(&head).expect("little work").expect("a rule");
            assert_eq!((&*found.rule.route, &*routes.of_host("a.com")[0].rule.route), (want, want));
        };
        let (http, grpc) = (of("HTTPRoute", 0), of("GRPCRoute", 0));
        for all in [[&http, &grpc], [&grpc, &http]] {
            check(&HttpRoutes::new(all.map(Clone::clone)), "GRPCRoute");
            let mut changed = HttpRoutes::default();
            all.into_iter().for_each(|(host, named, rules)| changed.insert(host.as_ref(), *named, rules));
            check(&changed, "GRPCRoute");
        }
        // As those of one Ingress may be: two kinds of the same path.
        let same = |name: &str| {
            Entry::new(Matcher::path(PathMatcher::prefix("/")), rule(name), (1, "n/a".into(), "Ingress"), (0, 0))
        };
        check(&HttpRoutes::new(["first", "second"].map(|name| (None, (false, 0), rules(vec![same(name)])))), "first");
    }

    const HOSTS: [&str; 6] = ["x.a.com", "y.com", "z.a.com", "z.z.a.com", ".com", "other"];

    /// All rules in their order, host by host.
    fn shown(routes: &HttpRoutes) -> Vec<String> {
        let text = |host: &str, entry: &Entry| format!("{host} {} {}", entry.rule.route, entry.rule.name);
        let of = |host| routes.of_host(host).into_iter().map(|entry| text(host, entry)).collect::<Vec<_>>();
        HOSTS.into_iter().flat_map(of).chain(routes.hosts()).collect()
    }

    /// Whatever is put in and taken out one after the other: what is there is what a new one of the same rules would have, and
    /// a request takes the first of all rules that it fits.
    #[test]
    fn one_that_was_changed_is_like_a_new_one() {
        let seed: u64 = rand::random();
        println!("seed {seed}");
        let mut random = <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(seed);
        let mut number = |most: usize| rand::Rng::random_range(&mut random, 0..most);
        let hosts = [("", Depth::Any), ("x.a.com", Depth::Any), ("y.com", Depth::Any), ("*.a.com", Depth::Any)];
        let hosts = [&hosts[..], &[("*.a.com", Depth::One), ("*.com", Depth::Any)]].concat();
        let (mut routes, mut held) = (HttpRoutes::default(), Vec::new());
        let headers = HeaderMap::new();
        for step in 0..300 {
            if held.is_empty() || number(5) < 3 {
                let (name, depth) = hosts[number(hosts.len())];
                let hostname = (!name.is_empty()).then(|| Hostname::parse(name, depth));
                let age = (i64::try_from(number(3)).unwrap(), Arc::<str>::from(format!("{step}")), "HTTPRoute");
                let made = rule(&format!("{name} {step}"));
                let entries = (0..=number(3)).map(|place| {
                    let path = ["/", "/a", "/b/c", "/b"][number(4)];
                    let path = if number(4) == 0 { PathMatcher::Exact(path.into()) } else { PathMatcher::prefix(path) };
                    Entry::new(Matcher::path(path), made.clone(), age.clone(), (place, 0))
                });
                let all = rules(entries.collect());
                // A route may name the host less precisely than its listener does.
                let named = if number(2) == 0 { specificity(hostname.as_ref()) } else { (false, number(4)) };
                let before = routes.clone();
                let was = shown(&before);
                routes.insert(hostname.as_ref(), named, &all);
                held.push((hostname, named, all));
                assert_eq!(shown(&before), was, "a copy does not change");
            } else {
                let (hostname, named, all) = held.swap_remove(number(held.len()));
                routes.remove(hostname.as_ref(), named, &all);
            }
            assert_eq!(shown(&routes), shown(&HttpRoutes::new(held.iter().cloned())), "step {step}");
            for (host, path) in HOSTS.iter().flat_map(|host| ["/", "/a/x", "/b/c", "/b"].map(|path| (*host, path))) {
                let head = Head { host, path, query: None, method: &Method::GET, headers: &headers };
                let look = Look::new(&head);
                let want = routes.of_host(host).into_iter().find(|entry| entry.matcher.matches(&look));
                let found = routes.find(&head).expect("little work");
                assert_eq!(
                    found.as_ref().map(|one| std::ptr::from_ref(&**one)),
                    want.map(std::ptr::from_ref),
                    "{host}{path}"
                );
            }
        }
    }

    /// A route with very many expressions, and a request with very long headers, kept a thread busy for minutes.
    #[test]
    fn no_request_takes_more_than_so_much_work() {
        let expression = |pattern: &str| {
            let text =
                super::super::Text::Regex(super::super::Expression::new(regex::Regex::new(pattern).unwrap(), 4096));
            (http::header::HeaderName::from_static("x-long"), text)
        };
        let bad = |place: usize| {
            let mut headers: Vec<_> = (0..15).map(|_| expression("[ab]*a[ab]{8}c?")).collect();
            headers.push(expression("^c$"));
            let matcher = Matcher { headers, ..Matcher::path(PathMatcher::prefix("/")) };
            Entry::new(matcher, rule("bad"), (0, "bad".into(), "HTTPRoute"), (place, 0))
        };
        let path = |text: &str| Matcher::path(PathMatcher::prefix(text));
        let good =
            |text: &str| rules(vec![Entry::new(path(text), rule("good"), (1, "good".into(), "HTTPRoute"), (0, 0))]);
        let host = |text: &str| Some(Hostname::parse(text, Depth::Any));
        let all = rules((0..128).map(bad).collect());
        let table = HttpRoutes::new([
            (host("bad.com"), (true, 7), all.clone()),
            (host("bad.com"), (true, 7), good("/early")),
            (host("bad.com"), (true, 7), good("/")),
            (host("good.com"), (true, 8), good("/")),
        ]);
        let began = std::time::Instant::now();
        for (host, path, length, want) in [
            ("bad.com", "/", 60_000, Err(TooMuch)),
            ("bad.com", "/", 100, Ok(Some("good"))),
            // What goes first is found before there is much to do.
            ("bad.com", "/early", 60_000, Ok(Some("good"))),
            ("good.com", "/", 60_000, Ok(Some("good"))),
        ] {
            let headers = HeaderMap::from_iter([(
                http::header::HeaderName::from_static("x-long"),
                "ab".repeat(length / 2).parse().unwrap(),
            )]);
            let head = Head { host, path, query: None, method: &Method::GET, headers: &headers };
            let found = table.find(&head).map(|found| found.map(|entry| entry.rule.route.to_string()));
            assert_eq!(found, want.map(|name| name.map(str::to_owned)), "{host}{path} {length}");
        }
        println!("it took {:?}", began.elapsed());
    }
}
