//! What a path of an Ingress becomes: its rules at the plain port and at the one with TLS. What all paths of an Ingress have
//! in common they share: annotations may be long, and paths many.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::ObjectKey;
use http::StatusCode;
use http::header::HeaderName;
use k8s_openapi::api::networking::v1::Ingress;

use super::super::annotations::{Annotations, Auth, Canary};
use super::super::certificates::Certificates;
use super::super::conditions::Problem;
use super::super::expressions::{Budget, Scope};
use super::super::objects::{Objects, age, name, namespace};
use super::spot::{Claim, Spot};
use crate::table::{
    Affinity, BasicAuth, Carrier, Cors, Entry, Expression, Extras, Filters, Matcher, Owner, PathMatcher, PathRewrite,
    Ranges, RateLimit, Redirect, Rewrite, Rule, Split, Target, Text, Weighted,
};

/// What all paths of an Ingress share.
pub(super) struct Common {
    pub ingress: Arc<Ingress>,
    pub annotations: Annotations,
    order: Owner,
    label: Box<str>,
    extras: Option<Arc<Extras>>,
    /// Where the path is an expression, and where it is not.
    rewrite: Option<Arc<str>>,
    cors: Option<Arc<Cors>>,
}

impl Common {
    pub fn new(
        objects: &Objects,
        certificates: &Certificates,
        ingress: &Arc<Ingress>,
        annotations: Annotations,
    ) -> Self {
        let (since, key) = age(&ingress.metadata);
        Self {
            order: (since, key, "Ingress"),
            label: format!("Ingress {}", name(&ingress.metadata)).into(),
            extras: extras(objects, certificates, ingress, &annotations),
            rewrite: rewrite(&annotations),
            cors: cors(&annotations),
            ingress: ingress.clone(),
            annotations,
        }
    }

    pub fn namespace(&self) -> &str {
        namespace(&self.ingress.metadata)
    }

    fn is_regex(&self) -> bool {
        self.annotations.use_regex || self.annotations.rewrite_target.as_deref().is_some_and(|to| to.contains('$'))
    }

    /// Whether its paths take of the room for regular expressions.
    pub fn has_expressions(&self) -> bool {
        let canary = self.annotations.canary.as_ref();
        self.is_regex() || canary.is_some_and(|canary| canary.header_pattern.is_some() || canary.cookie.is_some())
    }
}

/// The entries of a spot at the plain port and at the one with TLS.
pub(super) fn entries(
    budget: &Budget<'_>,
    spot: &Spot,
    main: &Claim,
    canaries: &[&Claim],
    has_tls: bool,
) -> Result<(Vec<Entry>, Vec<Entry>), Problem> {
    let (common, path) = (&main.common, &spot.path);
    let annotations = &common.annotations;
    let scope = budget.of(common.namespace());
    let regex = match common.is_regex() {
        true => Some(scope.expression(&format!("^{path}"), path, true)?),
        false => None,
    };
    let matcher = match (&regex, &*spot.kind) {
        (Some(regex), _) => PathMatcher::Regex(regex.clone()),
        (None, "Exact") => PathMatcher::Exact(path.clone()),
        (None, _) => PathMatcher::prefix(path),
    };
    let redirect = annotations.force_ssl_redirect || has_tls && annotations.ssl_redirect.unwrap_or(true);
    let make = |targets: Vec<(u32, Target)>, redirects: bool| {
        let mut filters = filters(common, regex.as_ref());
        if redirects {
            filters.redirect = Some(Redirect {
                scheme: Some("https".into()),
                hostname: None,
                port: None,
                path: None,
                status: StatusCode::PERMANENT_REDIRECT,
            });
        }
        let weighted = |(weight, target)| Weighted { weight, target, filters: Filters::default() };
        Arc::new(Rule {
            route: common.label.clone(),
            name: path.clone(),
            filters,
            split: Split::new(targets.into_iter().map(weighted).collect()),
            has_backends: true,
            request_timeout: None,
            backend_timeout: annotations.read_timeout,
            retry: None,
            extras: common.extras.clone(),
        })
    };
    // What is for no path in particular comes last. Of the others that have the same precedence, the first in the Ingress.
    let place = if spot.is_default() { (usize::MAX, main.order.1) } else { (main.order.1, 0) };
    let (mut plain, mut secure) = (Vec::new(), Vec::new());
    let mut put = |matcher: Matcher, targets: &dyn Fn() -> Vec<(u32, Target)>| {
        let of = |redirects| Entry::new(matcher.clone(), make(targets(), redirects), common.order.clone(), place);
        plain.push(of(redirect));
        secure.push(of(false));
    };
    let canary_of =
        |claim: &&Claim| (claim.common.annotations.canary.clone().unwrap_or_default(), claim.target.clone());
    let canaries: Vec<_> = canaries.iter().map(canary_of).collect();
    let whole: u32 = canaries.iter().map(|(canary, _)| canary.total).max().unwrap_or(100);
    let taken = canaries.iter().fold(0_u32, |sum, (canary, _)| sum.saturating_add(canary.weight)).min(whole);
    let shared = || {
        let main = std::iter::once((whole - taken, main.target.clone()));
        main.chain(canaries.iter().map(|(canary, target)| (canary.weight.min(whole), target.clone()))).collect()
    };
    put(Matcher::path(matcher.clone()), &shared);
    for (canary, canary_target) in &canaries {
        let alone = || vec![(1, canary_target.clone())];
        let main = || vec![(1, main.target.clone())];
        for (text, to_canary) in canary_matches(canary, scope) {
            let matcher = Matcher { headers: vec![text], ..Matcher::path(matcher.clone()) };
            if to_canary {
                put(matcher, &alone);
            } else {
                put(matcher, &main);
            }
        }
    }
    Ok((plain, secure))
}

/// Headers that decide, and whether for the canary.
fn canary_matches(canary: &Canary, scope: Scope<'_>) -> Vec<((HeaderName, Text), bool)> {
    let mut found = Vec::new();
    if let Some(header) = canary.header.as_ref().and_then(|name| HeaderName::from_bytes(name.as_bytes()).ok()) {
        match (&canary.header_value, &canary.header_pattern) {
            (Some(value), _) => found.push(((header, Text::Exact(value.as_str().into())), true)),
            (None, Some(pattern)) => {
                if let Ok(regex) = scope.expression(pattern, pattern, false) {
                    found.push(((header, Text::Regex(regex)), true));
                }
            }
            (None, None) => {
                found.push(((header.clone(), Text::Exact("always".into())), true));
                found.push(((header, Text::Exact("never".into())), false));
            }
        }
    }
    if let Some(cookie) = &canary.cookie {
        for (value, to_canary) in [("always", true), ("never", false)] {
            let pattern = format!("(?:^|; *){}={value}(?:$|;)", regex::escape(cookie));
            if let Ok(regex) = scope.expression(&pattern, &pattern, false) {
                found.push(((http::header::COOKIE, Text::Regex(regex)), to_canary));
            }
        }
    }
    found
}

/// What `rewrite-target` says, where it may name groups with these in braces: nginx ends a group's number at the first
/// character that is no digit.
fn rewrite(annotations: &Annotations) -> Option<Arc<str>> {
    let to = annotations.rewrite_target.as_deref()?;
    let digits = regex::Regex::new(r"\$(\d+)").ok();
    Some(digits.map_or_else(|| to.into(), |digits| digits.replace_all(to, "$${$1}").into()))
}

fn cors(annotations: &Annotations) -> Option<Arc<Cors>> {
    let cors = annotations.cors.as_ref()?;
    let boxed = |list: &[String]| list.iter().map(|text| text.as_str().into()).collect();
    Some(Arc::new(Cors {
        origins: boxed(&cors.origins),
        credentials: cors.credentials,
        methods: boxed(&cors.methods),
        headers: boxed(&cors.headers),
        expose: boxed(&cors.expose),
        max_age: cors.max_age,
    }))
}

fn filters(common: &Common, regex: Option<&Expression>) -> Filters {
    let rewrite = common.rewrite.as_ref().map(|to| match regex {
        Some(regex) => Rewrite { pattern: Some((regex.clone(), to.clone())), ..Rewrite::default() },
        None => Rewrite { path: Some(PathRewrite::Full(to.clone())), ..Rewrite::default() },
    });
    Filters { rewrite, cors: common.cors.clone(), ..Filters::default() }
}

fn extras(
    objects: &Objects,
    certificates: &Certificates,
    ingress: &Ingress,
    annotations: &Annotations,
) -> Option<Arc<Extras>> {
    let exempt: Arc<Ranges> = Arc::new(annotations.unlimited.iter().copied().collect());
    let rates = [(annotations.requests_per_second, 1), (annotations.requests_per_minute, 60)];
    let rates = rates.into_iter().filter_map(|(count, seconds)| {
        let count = count?;
        Some(RateLimit {
            zone: format!("Ingress {} by {seconds} s", name(&ingress.metadata)).into(),
            interval: Duration::from_secs(seconds) / count,
            burst: count.saturating_mul(annotations.burst_multiplier),
            exempt: exempt.clone(),
        })
    });
    let basic_auth = annotations.auth.as_ref().map(|auth| {
        // Without its Secret nobody is let in.
        let secret = objects.secrets.get(&users_of(ingress, auth));
        let users = secret.map(|secret| certificates.users(secret, auth.is_map)).unwrap_or_default();
        BasicAuth { realm: auth.realm.as_str().into(), owner: namespace(&ingress.metadata).into(), users }
    });
    Extras {
        most_body: annotations.body_size,
        sources: annotations.sources.iter().copied().collect(),
        basic_auth,
        affinity: annotations.affinity.as_ref().map(|cookie| Affinity {
            name: cookie.name.as_str().into(),
            carrier: Carrier::Cookie { max_age: cookie.max_age, path: cookie.path.as_str().into() },
            absolute_timeout: None,
            idle_timeout: None,
        }),
        connect_timeout: annotations.connect_timeout,
        rates: rates.collect(),
        compress: annotations.compress,
    }
    .used()
}

/// The Secret with the users. One of another namespace is not read.
pub(super) fn users_of(ingress: &Ingress, auth: &Auth) -> ObjectKey {
    let own = namespace(&ingress.metadata);
    let name = match auth.secret.split_once('/') {
        Some((namespace, name)) if namespace == own => name,
        Some(_) => "",
        None => &auth.secret,
    };
    ObjectKey::new(own, name)
}
