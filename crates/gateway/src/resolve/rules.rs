//! Rules of HTTPRoutes and GRPCRoutes as rules of the table.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::HeaderName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::backends::{Asker, Backends, Use};
use super::conditions::Problem;
use super::expressions::Scope;
use super::filters;
use super::objects::age;
use super::options::Options;
use crate::api::{
    BackendRef, GRPCRoute, GRPCRouteMatch, HTTPRoute, HTTPRouteMatch, RouteFilter, SessionPersistence, ValueMatch,
};
use crate::table::{Affinity, Carrier, Entry, Extras, Matcher, Owner, PathMatcher, Retry, Rule, Split, Text, Weighted};

const FIRST_BACKOFF: Duration = Duration::from_millis(25);
/// A request becomes no more requests than these and one.
const MOST_ATTEMPTS: u32 = 16;

/// A route as the table has it.
#[derive(Default)]
pub struct Compiled {
    pub entries: Vec<Entry>,
    /// The memory of its regular expressions.
    pub expressions: usize,
    pub unresolved: Option<Problem>,
    /// The route as a whole is refused.
    pub unsupported: Option<Problem>,
}

impl Compiled {
    fn put(&mut self, matches: Result<Vec<Matcher>, Problem>, rule: Rule, owner: &Owner, place: usize) {
        let rule = Arc::new(rule);
        match matches {
            Ok(matches) => self.entries.extend(
                matches
                    .into_iter()
                    .enumerate()
                    .map(|(number, one)| Entry::new(one, rule.clone(), owner.clone(), (place, number))),
            ),
            Err(problem) => self.unsupported = Some(problem),
        }
    }
}

pub fn http(backends: &Backends<'_>, asker: Asker<'_>, route: &HTTPRoute) -> Compiled {
    let name: Box<str> = format!("HTTPRoute {}", super::objects::name(&route.metadata)).into();
    let budget = backends.certificates.expressions.of_route();
    let scope = budget.of(super::objects::namespace(&route.metadata));
    let (since, key) = age(&route.metadata);
    let owner = (since, key, "HTTPRoute");
    let mut compiled = Compiled::default();
    for (place, spec) in route.spec.rules.iter().enumerate() {
        let matches = if spec.matches.is_empty() {
            Ok(vec![Matcher::path(PathMatcher::prefix("/"))])
        } else {
            spec.matches.iter().map(|one| http_match(one, scope)).collect()
        };
        let parts = Parts { filters: &spec.filters, backends: &spec.backend_refs, purpose: Use::Http };
        let named = spec.name.clone().unwrap_or_else(|| place.to_string());
        let mut rule = rule(&mut compiled, backends, asker, &name, &named, &parts);
        rule.extras = extras(&mut compiled, asker, &route.metadata, &name, &named, spec.session_persistence.as_ref());
        let mut time = |text: &Option<String>| match text.as_deref().map(ferry_semantics::duration::parse_unsigned) {
            Some(Some(time)) => (!time.is_zero()).then_some(time),
            Some(None) => {
                compiled.unsupported.get_or_insert(Problem::new("UnsupportedValue", "a timeout is no duration"));
                None
            }
            None => None,
        };
        if let Some(timeouts) = &spec.timeouts {
            rule.request_timeout = time(&timeouts.request);
            rule.backend_timeout = time(&timeouts.backend_request);
        }
        rule.retry = spec.retry.as_ref().map(|retry| Retry {
            attempts: retry.attempts.unwrap_or(1),
            codes: retry.codes.clone(),
            backoff: time(&retry.backoff).unwrap_or(FIRST_BACKOFF),
        });
        if spec.retry.as_ref().is_some_and(|retry| retry.attempts.is_some_and(|attempts| attempts > MOST_ATTEMPTS)) {
            let message = format!("retry.attempts: no more than {MOST_ATTEMPTS} are made");
            compiled.unsupported.get_or_insert(Problem::new("UnsupportedValue", message));
        }
        compiled.put(matches, rule, &owner, place);
    }
    compiled.expressions = budget.size();
    compiled
}

pub fn grpc(backends: &Backends<'_>, asker: Asker<'_>, route: &GRPCRoute) -> Compiled {
    let name: Box<str> = format!("GRPCRoute {}", super::objects::name(&route.metadata)).into();
    let budget = backends.certificates.expressions.of_route();
    let scope = budget.of(super::objects::namespace(&route.metadata));
    let (since, key) = age(&route.metadata);
    let owner = (since, key, "GRPCRoute");
    let mut compiled = Compiled::default();
    for (place, spec) in route.spec.rules.iter().enumerate() {
        let matches = if spec.matches.is_empty() {
            Ok(vec![Matcher::path(PathMatcher::prefix("/"))])
        } else {
            spec.matches.iter().map(|one| grpc_match(one, scope)).collect()
        };
        let parts = Parts { filters: &spec.filters, backends: &spec.backend_refs, purpose: Use::Grpc };
        let named = spec.name.clone().unwrap_or_else(|| place.to_string());
        let mut rule = rule(&mut compiled, backends, asker, &name, &named, &parts);
        rule.extras = extras(&mut compiled, asker, &route.metadata, &name, &named, spec.session_persistence.as_ref());
        compiled.put(matches, rule, &owner, place);
    }
    compiled.expressions = budget.size();
    compiled
}

/// What a rule has beside its matches, filters and backends.
fn extras(
    compiled: &mut Compiled,
    asker: Asker<'_>,
    metadata: &ObjectMeta,
    route: &str,
    rule: &str,
    session: Option<&SessionPersistence>,
) -> Option<Arc<Extras>> {
    let mut refuse = |problem: Problem| {
        compiled.unsupported.get_or_insert(problem);
    };
    let options = Options::route(metadata.annotations.as_ref()).map_err(&mut refuse).ok()?;
    let mut extras = options.extras(asker.defaults, route);
    extras.affinity = session.and_then(|session| affinity(session, route, rule).map_err(refuse).ok());
    extras.used()
}

fn affinity(session: &SessionPersistence, route: &str, rule: &str) -> Result<Affinity, Problem> {
    let wrong = |text: &str| Problem::new("UnsupportedValue", format!("sessionPersistence: {text}"));
    let time = |text: &Option<String>| match text.as_deref().map(ferry_semantics::duration::parse_unsigned) {
        None => Ok(None),
        Some(Some(time)) if !time.is_zero() => Ok(Some(time)),
        Some(_) => Err(wrong("a timeout is no duration")),
    };
    let absolute_timeout = time(&session.absolute_timeout)?;
    let lifetime = session.cookie_config.as_ref().and_then(|config| config.lifetime_type.as_deref());
    let carrier = match (session.type_.as_deref().unwrap_or("Cookie"), lifetime.unwrap_or("Session")) {
        ("Header", _) => Carrier::Header,
        ("Cookie", "Session") => Carrier::Cookie { max_age: None, path: "/".into() },
        ("Cookie", "Permanent") => {
            let age = absolute_timeout.ok_or_else(|| wrong("a permanent cookie needs an absoluteTimeout"))?;
            Carrier::Cookie { max_age: Some(age.as_secs().max(1)), path: "/".into() }
        }
        (other, lifetime) => return Err(wrong(&format!("type {other} with lifetime {lifetime} is not known"))),
    };
    let mut hasher = std::hash::DefaultHasher::new();
    (route, rule).hash(&mut hasher);
    let name = session.session_name.clone().unwrap_or_else(|| format!("ferry-session-{:08x}", hasher.finish() >> 32));
    // The names of headers are those that cookies may have.
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("the name cannot be used"))?;
    Ok(Affinity { name: name.into(), carrier, absolute_timeout, idle_timeout: time(&session.idle_timeout)? })
}

struct Parts<'a> {
    filters: &'a [RouteFilter],
    backends: &'a [BackendRef],
    purpose: Use,
}

fn rule(
    compiled: &mut Compiled,
    backends: &Backends<'_>,
    asker: Asker<'_>,
    route: &str,
    name: &str,
    parts: &Parts<'_>,
) -> Rule {
    let own = filters::compile(backends, asker, parts.filters, parts.purpose);
    let mut note = |filters: &filters::Compiled| {
        compiled.unresolved = compiled.unresolved.take().or_else(|| filters.unresolved.clone());
        compiled.unsupported = compiled.unsupported.take().or_else(|| filters.unsupported.clone());
    };
    note(&own);
    let mut unresolved = None;
    let mut weighted = Vec::new();
    for reference in parts.backends {
        let filters = filters::compile(backends, asker, &reference.filters, parts.purpose);
        note(&filters);
        let (target, problem) = backends.resolve(asker, reference, parts.purpose);
        unresolved = unresolved.or(problem);
        weighted.push(Weighted { weight: reference.weight.unwrap_or(1), target, filters: filters.filters });
    }
    compiled.unresolved = compiled.unresolved.take().or(unresolved);
    Rule {
        route: route.into(),
        name: name.into(),
        filters: own.filters,
        has_backends: !weighted.is_empty(),
        split: Split::new(weighted),
        request_timeout: None,
        backend_timeout: None,
        retry: None,
        extras: None,
    }
}

fn http_match(spec: &HTTPRouteMatch, scope: Scope<'_>) -> Result<Matcher, Problem> {
    let path = spec.path.as_ref();
    let value = path.and_then(|path| path.value.as_deref()).unwrap_or("/");
    let path = match path.and_then(|path| path.type_.as_deref()).unwrap_or("PathPrefix") {
        "Exact" => PathMatcher::Exact(value.into()),
        "PathPrefix" => PathMatcher::prefix(value),
        "RegularExpression" => PathMatcher::Regex(scope.whole(value)?),
        other => {
            return Err(Problem::new("UnsupportedValue", format!("path matches of type {other} are not supported")));
        }
    };
    let method = spec.method.as_deref().map(|text| Method::from_bytes(text.as_bytes()));
    let method = method.transpose().map_err(|_| Problem::new("UnsupportedValue", "a method cannot be used"))?;
    let query = spec.query_params.iter().map(|one| Ok((one.name.as_str().into(), text(one, scope)?)));
    Ok(Matcher { path, method, headers: headers(&spec.headers, scope)?, query: query.collect::<Result<_, Problem>>()? })
}

fn grpc_match(spec: &GRPCRouteMatch, scope: Scope<'_>) -> Result<Matcher, Problem> {
    let method = spec.method.clone().unwrap_or_default();
    let path = match (method.type_.as_deref().unwrap_or("Exact"), method.service, method.method) {
        (_, None, None) => PathMatcher::prefix("/"),
        ("Exact", Some(service), Some(method)) => PathMatcher::Exact(format!("/{service}/{method}").into()),
        ("Exact", Some(service), None) => PathMatcher::prefix(&format!("/{service}")),
        ("Exact", None, Some(method)) => {
            PathMatcher::Regex(scope.whole(&format!("/[^/]+/{}", regex::escape(&method)))?)
        }
        ("RegularExpression", service, method) => {
            let any = || "[^/]+".to_owned();
            let (service, method) = (service.unwrap_or_else(any), method.unwrap_or_else(any));
            PathMatcher::Regex(scope.whole(&format!("/(?:{service})/(?:{method})"))?)
        }
        (other, ..) => {
            return Err(Problem::new("UnsupportedValue", format!("method matches of type {other} are not supported")));
        }
    };
    Ok(Matcher { headers: headers(&spec.headers, scope)?, ..Matcher::path(path) })
}

/// The first of a name counts; later ones are ignored.
fn headers(list: &[ValueMatch], scope: Scope<'_>) -> Result<Vec<(HeaderName, Text)>, Problem> {
    let mut found: Vec<(HeaderName, Text)> = Vec::new();
    for one in list {
        let name = HeaderName::from_bytes(one.name.as_bytes())
            .map_err(|_| Problem::new("UnsupportedValue", format!("{:?} is not the name of a header", one.name)))?;
        if !found.iter().any(|(known, _)| *known == name) {
            found.push((name, text(one, scope)?));
        }
    }
    Ok(found)
}

fn text(one: &ValueMatch, scope: Scope<'_>) -> Result<Text, Problem> {
    match one.type_.as_deref().unwrap_or("Exact") {
        "Exact" => Ok(Text::Exact(one.value.as_str().into())),
        "RegularExpression" => scope.whole(&one.value).map(Text::Regex),
        other => Err(Problem::new("UnsupportedValue", format!("matches of type {other} are not supported"))),
    }
}
