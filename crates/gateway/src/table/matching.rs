//! What a request must look like to take a rule.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Reverse;
use std::sync::Arc;

use http::header::HeaderName;
use http::{HeaderMap, Method};
use regex::Regex;

/// What is known of a request before its body.
pub struct Head<'a> {
    pub host: &'a str,
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
}

/// How much may be done to find the rule for one request: about as many nanoseconds, or bytes that a small regular
/// expression reads. Whoever writes routes also writes requests, and nobody else is to wait for either.
const MOST_WORK: usize = 2 << 20;
/// The memory of a regular expression that reads a byte in one step.
const SMALL: usize = 4 << 10;

/// It would take too much work to find the rule for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

/// A request for which a rule is looked for, and how much was done already.
pub struct Look<'a> {
    head: &'a Head<'a>,
    done: Cell<usize>,
}

impl<'a> Look<'a> {
    pub fn new(head: &'a Head<'a>) -> Self {
        Self { head, done: Cell::new(0) }
    }

    /// False: no more is done.
    fn spend(&self, work: usize) -> bool {
        self.done.set(self.done.get().saturating_add(work));
        self.done.get() <= MOST_WORK
    }

    pub fn within(&self) -> Result<(), TooMuch> {
        if self.done.get() <= MOST_WORK { Ok(()) } else { Err(TooMuch) }
    }
}

/// A regular expression, which all who have the same one share: each copy of its own would hold memory to match with.
#[derive(Clone, Debug)]
pub struct Expression {
    regex: Arc<Regex>,
    /// How much more than a small one it may have to do for each byte.
    weight: usize,
}

impl Expression {
    /// `size` is how much memory it takes.
    pub fn new(regex: Regex, size: usize) -> Self {
        Self { regex: Arc::new(regex), weight: size.div_ceil(SMALL).max(1) }
    }

    fn work(&self, text: &str) -> usize {
        self.weight.saturating_mul(text.len() + 16)
    }
}

impl std::ops::Deref for Expression {
    type Target = Regex;

    fn deref(&self) -> &Regex {
        &self.regex
    }
}

#[derive(Clone, Debug)]
pub enum PathMatcher {
    Exact(Box<str>),
    /// By elements: `/a` has `/a/b`, not `/ab`. Without its last slash; `/` is empty.
    Prefix(Box<str>),
    /// The whole path.
    Regex(Expression),
}

impl PathMatcher {
    pub fn prefix(text: &str) -> Self {
        Self::Prefix(text.trim_end_matches('/').into())
    }

    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *path,
            Self::Prefix(prefix) => match path.strip_prefix(&**prefix) {
                Some(rest) => rest.is_empty() || rest.starts_with('/'),
                None => false,
            },
            Self::Regex(regex) => regex.is_match(path),
        }
    }

    fn work(&self, path: &str) -> usize {
        match self {
            Self::Regex(regex) => regex.work(path),
            _ => 1,
        }
    }

    /// The larger, the more precedence.
    fn rank(&self) -> (u8, usize) {
        match self {
            Self::Exact(exact) => (2, exact.len()),
            Self::Regex(regex) => (1, regex.as_str().len()),
            Self::Prefix(prefix) => (0, prefix.len()),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Text {
    Exact(Box<str>),
    Regex(Expression),
}

impl Text {
    fn as_str(&self) -> &str {
        match self {
            Self::Exact(exact) => exact,
            Self::Regex(regex) => regex.as_str(),
        }
    }

    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *value,
            Self::Regex(regex) => regex.is_match(value),
        }
    }

    fn work(&self, value: &str) -> usize {
        match self {
            Self::Exact(_) => 1,
            Self::Regex(regex) => regex.work(value),
        }
    }
}

/// All that is there must fit.
#[derive(Clone, Debug)]
pub struct Matcher {
    pub path: PathMatcher,
    pub method: Option<Method>,
    pub headers: Vec<(HeaderName, Text)>,
    pub query: Vec<(Box<str>, Text)>,
}

/// Who goes first. Smaller goes first.
pub type Rank = (Reverse<(u8, usize)>, bool, Reverse<usize>, Reverse<usize>);

impl Matcher {
    pub fn path(path: PathMatcher) -> Self {
        Self { path, method: None, headers: Vec::new(), query: Vec::new() }
    }

    pub fn rank(&self) -> Rank {
        (Reverse(self.path.rank()), self.method.is_none(), Reverse(self.headers.len()), Reverse(self.query.len()))
    }

    /// False as well when it would take too much work to know.
    pub fn matches(&self, look: &Look<'_>) -> bool {
        let head = look.head;
        if !look.spend(self.path.work(head.path)) || !self.path.matches(head.path) {
            return false;
        }
        let fits = |text: &Text, value: Option<Cow<'_, str>>| {
            value.is_some_and(|value| look.spend(value.len() / 8 + text.work(&value)) && text.matches(&value))
        };
        let query = head.query.unwrap_or_default();
        self.method.as_ref().is_none_or(|method| method == head.method)
            && self.headers.iter().all(|(name, text)| look.spend(16) && fits(text, header(head.headers, name)))
            && self.query.iter().all(|(name, text)| look.spend(16 + query.len()) && fits(text, parameter(query, name)))
    }

    /// The first thing that a request does not have, in words; None where it fits.
    pub fn unmet(&self, head: &Head<'_>) -> Option<String> {
        if !self.path.matches(head.path) {
            return Some(match &self.path {
                PathMatcher::Exact(path) => format!("the path {path} alone"),
                PathMatcher::Prefix(path) => format!("{path} and what is below it"),
                PathMatcher::Regex(regex) => format!("paths like {}", regex.as_str()),
            });
        }
        if let Some(method) = self.method.as_ref().filter(|method| *method != head.method) {
            return Some(format!("the method {method}"));
        }
        let fits = |value: Option<Cow<'_, str>>, text: &Text| value.is_some_and(|value| text.matches(&value));
        if let Some((name, text)) = self.headers.iter().find(|(name, text)| !fits(header(head.headers, name), text)) {
            return Some(format!("requests with the header {name}: {}", text.as_str()));
        }
        let query = head.query.unwrap_or_default();
        let missing = self.query.iter().find(|(name, text)| !fits(parameter(query, name), text));
        missing.map(|(name, text)| format!("requests with the parameter {name}={}", text.as_str()))
    }
}

/// Lines of one header count as one.
fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Cow<'a, str>> {
    let mut lines = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let first = lines.next()?;
    let joined = lines.fold(None, |joined: Option<String>, line| {
        let mut joined = joined.unwrap_or_else(|| first.clone().into_owned());
        joined.push(',');
        joined.push_str(&line);
        Some(joined)
    });
    Some(joined.map_or(first, Cow::Owned))
}

/// The first of that name, decoded.
fn parameter<'a>(query: &'a str, wanted: &str) -> Option<Cow<'a, str>> {
    query.split('&').find_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name) == wanted).then(|| decode(value))
    })
}

fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
                rest = tail.get(2..).unwrap_or_default();
            }
            (b'+', ..) => {
                bytes.push(b' ');
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match() {
        let regex = PathMatcher::Regex(Expression::new(Regex::new("^(?:/a/[0-9]+)$").unwrap(), 0));
        for (matcher, path, want) in [
            (PathMatcher::Exact("/a".into()), "/a", true),
            (PathMatcher::Exact("/a".into()), "/a/", false),
            (PathMatcher::prefix("/"), "/anything", true),
            (PathMatcher::prefix("/a"), "/a", true),
            (PathMatcher::prefix("/a"), "/a/", true),
            (PathMatcher::prefix("/a/"), "/a", true),
            (PathMatcher::prefix("/a"), "/a/b", true),
            (PathMatcher::prefix("/a"), "/ab", false),
            (PathMatcher::prefix("/a"), "/A", false),
            (regex.clone(), "/a/12", true),
            (regex, "/a/12/b", false),
        ] {
            assert_eq!(matcher.matches(path), want, "{matcher:?} for {path}");
        }
    }

    #[test]
    fn headers_methods_and_parameters_match() {
        let mut headers = HeaderMap::new();
        headers.append("version", "one".parse().unwrap());
        headers.append("colour", "red".parse().unwrap());
        headers.append("colour", "blue".parse().unwrap());
        let any = Matcher::path(PathMatcher::prefix("/"));
        let exact = |text: &str| Text::Exact(text.into());
        let of = |name: &'static str| HeaderName::from_static(name);
        for (matcher, query, want) in [
            (Matcher { headers: vec![(of("version"), exact("one"))], ..any.clone() }, None, true),
            (Matcher { headers: vec![(of("version"), exact("ONE"))], ..any.clone() }, None, false),
            (Matcher { headers: vec![(of("colour"), exact("red,blue"))], ..any.clone() }, None, true),
            (Matcher { headers: vec![(of("absent"), exact(""))], ..any.clone() }, None, false),
            (Matcher { method: Some(Method::POST), ..any.clone() }, None, false),
            (Matcher { query: vec![("a".into(), exact("b c"))], ..any.clone() }, Some("x=1&a=b%20c&a=d"), true),
            (Matcher { query: vec![("a".into(), exact("d"))], ..any.clone() }, Some("a=b&a=d"), false),
            (Matcher { query: vec![("a".into(), exact("%"))], ..any.clone() }, Some("a=%"), true),
        ] {
            let head = Head { host: "", path: "/", query, method: &Method::GET, headers: &headers };
            assert_eq!(matcher.matches(&Look::new(&head)), want, "{matcher:?}");
        }
    }

    #[test]
    fn precedence_is_that_of_the_specification() {
        let order = [
            Matcher::path(PathMatcher::Exact("/a".into())),
            Matcher::path(PathMatcher::prefix("/abc")),
            Matcher { method: Some(Method::GET), ..Matcher::path(PathMatcher::prefix("/ab")) },
            Matcher {
                headers: vec![(HeaderName::from_static("a"), Text::Exact("b".into()))],
                ..Matcher::path(PathMatcher::prefix("/ab"))
            },
            Matcher { query: vec![("a".into(), Text::Exact("b".into()))], ..Matcher::path(PathMatcher::prefix("/ab")) },
            Matcher::path(PathMatcher::prefix("/ab")),
        ];
        assert!(order.windows(2).all(|pair| pair[0].rank() < pair[1].rank()));
    }
}
