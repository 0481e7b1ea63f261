//! What is done to requests and answers on the way.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use tokio::sync::Semaphore;

use super::{Expression, PathMatcher, Target};

/// All filters of a rule or of a backend, in the order in which they are applied.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    pub request: Vec<HeaderEdit>,
    pub response: Vec<HeaderEdit>,
    pub mirrors: Vec<Mirror>,
    pub redirect: Option<Redirect>,
    pub rewrite: Option<Rewrite>,
    pub cors: Option<Arc<Cors>>,
    /// A filter that cannot be carried out: requests must not pass without it.
    pub broken: bool,
}

#[derive(Clone, Debug, Default)]
pub struct HeaderEdit {
    pub set: Vec<(HeaderName, HeaderValue)>,
    pub add: Vec<(HeaderName, HeaderValue)>,
    pub remove: Vec<HeaderName>,
}

impl HeaderEdit {
    pub fn apply(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.set {
            headers.insert(name.clone(), value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name.clone(), value.clone());
        }
        for name in &self.remove {
            headers.remove(name);
        }
    }
}

/// A copy of so many of so many requests goes elsewhere, and its answer nowhere.
#[derive(Clone, Debug)]
pub struct Mirror {
    pub target: Target,
    pub numerator: u32,
    pub denominator: u32,
    /// Copies that may be under way; while there is no room, none is made.
    pub room: Arc<Semaphore>,
}

impl Mirror {
    const MOST_UNDER_WAY: usize = 256;

    pub fn new(target: Target, numerator: u32, denominator: u32) -> Self {
        Self { target, numerator, denominator, room: Arc::new(Semaphore::new(Self::MOST_UNDER_WAY)) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    pub scheme: Option<Box<str>>,
    pub hostname: Option<Box<str>>,
    pub port: Option<u16>,
    pub path: Option<PathRewrite>,
    pub status: StatusCode,
}

#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    pub hostname: Option<HeaderValue>,
    pub path: Option<PathRewrite>,
    /// What nginx's `rewrite-target` does: the replacement may name groups of the expression.
    pub pattern: Option<(Expression, Arc<str>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRewrite {
    Full(Arc<str>),
    /// Instead of the prefix that matched.
    Prefix(Box<str>),
}

impl PathRewrite {
    pub fn apply(&self, path: &str, matched: &PathMatcher) -> String {
        match self {
            Self::Full(full) => full.to_string(),
            Self::Prefix(replacement) => {
                let prefix = match matched {
                    PathMatcher::Prefix(prefix) => prefix,
                    _ => "",
                };
                let rest = path.strip_prefix(prefix).unwrap_or(path);
                match format!("{}{rest}", replacement.trim_end_matches('/')) {
                    whole if whole.starts_with('/') => whole,
                    whole => format!("/{whole}"),
                }
            }
        }
    }
}

impl Rewrite {
    pub fn path(&self, path: &str, matched: &PathMatcher) -> Option<String> {
        if let Some((pattern, replacement)) = &self.pattern {
            return pattern.captures(path).map(|groups| {
                let mut whole = String::new();
                groups.expand(replacement, &mut whole);
                whole
            });
        }
        self.path.as_ref().map(|rewrite| rewrite.apply(path, matched))
    }
}

/// Who may use the answers in a browser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    /// `*`, `https://*.example.com` or a whole origin.
    pub origins: Vec<Box<str>>,
    pub credentials: bool,
    pub methods: Vec<Box<str>>,
    pub headers: Vec<Box<str>>,
    pub expose: Vec<Box<str>>,
    pub max_age: i64,
}

impl Cors {
    pub fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| match allowed.split_once('*') {
            Some(("", "")) => true,
            Some((before, after)) => {
                let within = origin.len() > before.len() + after.len();
                within && origin.starts_with(before) && origin.ends_with(after)
            }
            None => allowed.eq_ignore_ascii_case(origin),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_rewritten() {
        let prefix = |text: &str| PathMatcher::prefix(text);
        for (rewrite, matched, path, want) in [
            (PathRewrite::Full("/x".into()), prefix("/a"), "/a/b", "/x"),
            (PathRewrite::Prefix("/x".into()), prefix("/a"), "/a/b", "/x/b"),
            (PathRewrite::Prefix("/x/".into()), prefix("/a"), "/a/b", "/x/b"),
            (PathRewrite::Prefix("/".into()), prefix("/a"), "/a", "/"),
            (PathRewrite::Prefix("/".into()), prefix("/a"), "/a/b", "/b"),
            (PathRewrite::Prefix("/x".into()), prefix("/a"), "/a", "/x"),
            (PathRewrite::Prefix("".into()), prefix("/a"), "/a/", "/"),
            (PathRewrite::Prefix("/x".into()), prefix("/"), "/a", "/x/a"),
        ] {
            assert_eq!(rewrite.apply(path, &matched), want, "{rewrite:?} of {path}");
        }
        let pattern = Expression::new(regex::Regex::new("^/a(/|$)(.*)").unwrap(), 0);
        let target = Rewrite { pattern: Some((pattern, "/$2".into())), ..Rewrite::default() };
        assert_eq!(target.path("/a/b/c", &prefix("/a")).as_deref(), Some("/b/c"));
    }

    #[test]
    fn origins_are_allowed() {
        let cors = Cors { origins: vec!["https://a.com".into(), "https://*.b.com".into()], ..Cors::default() };
        for (origin, want) in [
            ("https://a.com", true),
            ("http://a.com", false),
            ("https://x.b.com", true),
            ("https://b.com", false),
            ("https://.b.com", false),
            ("https://evilb.com", false),
        ] {
            assert_eq!(cors.allows(origin), want, "{origin}");
        }
    }

    #[test]
    fn headers_are_edited() {
        let mut headers = HeaderMap::new();
        headers.insert("a", "1".parse().unwrap());
        headers.insert("b", "1".parse().unwrap());
        let named =
            |name: &'static str, value: &'static str| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let edit = HeaderEdit {
            set: vec![named("a", "2")],
            add: vec![named("a", "3"), named("c", "4")],
            remove: vec![HeaderName::from_static("b")],
        };
        edit.apply(&mut headers);
        let values: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().unwrap())).collect();
        assert_eq!(values, ["a=2", "a=3", "c=4"]);
    }
}
