//! Impersonation: acting as someone else, after asking the authorizers for every part of that someone.
//!
//! Constrained modes (`impersonate:<mode>` and `impersonate-on:<mode>:<verb>`) are tried before the old verb
//! `impersonate`; the mode that last succeeded for a requester is tried first, and its refusal is the one shown.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::Arc;

use ferry_meta::field::quote;
use ferry_meta::user::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, MASTERS};
use ferry_meta::{ApiError, FieldError, Path, UserInfo, names};
use http::HeaderName;
use parking_lot::Mutex;

use crate::authorize::{Attributes, Authorizer, forbidden};
use crate::headers::{self, Unreadable};

const AUTHENTICATION: &str = "authentication.k8s.io";
/// From so many groups or extras on, one question for all of them is asked first.
const MANY: usize = 4;
const REMEMBERED: usize = 4096;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const UID: HeaderName = HeaderName::from_static("impersonate-uid");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
const EXTRA_PREFIX: &str = "impersonate-extra-";
const PREFIX: &str = "impersonate-";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

const MODES: [Mode; 5] =
    [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn verb(self) -> String {
        if self == Self::Legacy { "impersonate".into() } else { format!("impersonate:{}", self.name()) }
    }

    /// Whether this mode is for such a wanted user at all.
    fn applies(self, wanted: &UserInfo, requester: &UserInfo) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (node, account) = (node_of(&wanted.name), account_of(&wanted.name));
        match self {
            Self::AssociatedNode => {
                let own = requester.extra.get("authentication.kubernetes.io/node-name").map(Vec::as_slice);
                only_name
                    && node.is_some()
                    && account_of(&requester.name).is_some()
                    && matches!(own, Some([one]) if node == Some(one))
            }
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => only_name && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }
}

pub struct Impersonator {
    authorizer: Arc<dyn Authorizer>,
    /// The mode that last succeeded, by requester.
    succeeded: Mutex<HashMap<String, Mode>>,
}

impl Impersonator {
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer, succeeded: Mutex::default() }
    }

    /// The user to act as, or `None` when the request does not impersonate. `attributes` are the request's own, with
    /// the requester as its user.
    pub async fn resolve(
        &self,
        headers: &http::HeaderMap,
        attributes: &Attributes<'_>,
    ) -> Result<Option<UserInfo>, ApiError> {
        let Some(wanted) = wanted_user(headers)? else { return Ok(None) };
        let requester = attributes.user;
        let key = requester.name.clone();
        let last = self.succeeded.lock().get(&key).copied();
        let mut first_error = None;
        for mode in last.into_iter().chain(MODES.into_iter().filter(|mode| Some(*mode) != last)) {
            if !mode.applies(&wanted, requester) {
                continue;
            }
            match self.check(mode, &wanted, attributes).await {
                Ok(user) => {
                    if last != Some(mode) {
                        let mut succeeded = self.succeeded.lock();
                        if succeeded.len() >= REMEMBERED {
                            succeeded.clear();
                        }
                        succeeded.insert(key, mode);
                    }
                    return Ok(Some(user));
                }
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
    }

    async fn ask(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        let decision = self.authorizer.authorize(attributes).await;
        if decision.is_allowed() { Ok(()) } else { Err(forbidden(attributes, decision.reason())) }
    }

    async fn check(&self, mode: Mode, wanted: &UserInfo, request: &Attributes<'_>) -> Result<UserInfo, ApiError> {
        // A node's agent is asked for without its extras: the same answer holds for all pods of its account.
        let stripped;
        let requester = if mode == Mode::AssociatedNode {
            let keys: Vec<String> = request.user.extra.keys().cloned().collect();
            let extra = BTreeMap::from([("authentication.kubernetes.io/associated-node-keys".to_owned(), keys)]);
            stripped = UserInfo { extra, ..request.user.clone() };
            &stripped
        } else {
            request.user
        };
        if mode != Mode::Legacy {
            let verb = format!("impersonate-on:{}:{}", mode.name(), request.verb);
            self.ask(&Attributes { verb: &verb, user: requester, ..request.clone() }).await?;
        }
        let verb = mode.verb();
        let (group, version) = if mode == Mode::Legacy { ("", "v1") } else { (AUTHENTICATION, "v1") };
        let about = |group, resource| Attributes { version, ..Attributes::resource(requester, &verb, group, resource) };
        let mut user = wanted.clone();

        let mut name = Attributes { name: &wanted.name, ..about(group, "users") };
        if mode != Mode::Legacy
            && let Some(node) = node_of(&wanted.name)
        {
            name.resource = "nodes";
            name.name = if mode == Mode::AssociatedNode { "*" } else { node };
            user.groups = vec!["system:nodes".into()];
        }
        if let Some((namespace, account)) = account_of(&wanted.name) {
            name.resource = "serviceaccounts";
            name.namespace = namespace;
            name.name = account;
            if wanted.groups.is_empty() {
                user.groups = vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
            }
        }
        self.ask(&name).await?;
        if !wanted.uid.is_empty() {
            self.ask(&Attributes { name: &wanted.uid, ..about(AUTHENTICATION, "uids") }).await?;
        }
        self.ask_groups(mode, wanted, &about(group, "groups")).await?;
        self.ask_extra(mode, wanted, &about(AUTHENTICATION, "userextras")).await?;

        let group = if user.name == ANONYMOUS { ALL_UNAUTHENTICATED } else { ALL_AUTHENTICATED };
        if !user.in_group(group) && !user.in_group(ALL_UNAUTHENTICATED) {
            user.groups.push(group.into());
        }
        Ok(user)
    }

    async fn ask_groups(&self, mode: Mode, wanted: &UserInfo, about: &Attributes<'_>) -> Result<(), ApiError> {
        if mode != Mode::Legacy {
            if wanted.in_group("") {
                return Err(forbidden(about, "impersonating the empty string group is not allowed"));
            }
            if wanted.in_group(MASTERS) {
                let about = Attributes { name: MASTERS, ..about.clone() };
                return Err(forbidden(&about, "impersonating the system:masters group is not allowed"));
            }
            if wanted.groups.len() >= MANY && self.ask(&Attributes { name: "*", ..about.clone() }).await.is_ok() {
                return Ok(());
            }
        }
        for group in &wanted.groups {
            self.ask(&Attributes { name: group, ..about.clone() }).await?;
        }
        Ok(())
    }

    async fn ask_extra(&self, mode: Mode, wanted: &UserInfo, about: &Attributes<'_>) -> Result<(), ApiError> {
        if mode != Mode::Legacy {
            let count: usize = wanted.extra.values().map(Vec::len).sum();
            if let Some(why) = invalid_extra(wanted) {
                return Err(forbidden(about, &why));
            }
            let all = Attributes { subresource: "*", name: "*", ..about.clone() };
            if wanted.extra.len().max(count) >= MANY && self.ask(&all).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in &wanted.extra {
            for value in values {
                self.ask(&Attributes { subresource: key, name: value, ..about.clone() }).await?;
            }
        }
        Ok(())
    }
}

fn invalid_extra(wanted: &UserInfo) -> Option<String> {
    let say = |text: &str| Some(text.to_owned());
    wanted.extra.iter().find_map(|(key, values)| {
        if key.is_empty() {
            return say("impersonating the empty string key in extra is not allowed");
        }
        if let Some(why) = not_in_a_domain(key) {
            return Some(format!("impersonating an invalid key in extra is not allowed: {why}"));
        }
        if key.chars().any(char::is_uppercase) {
            return Some(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"));
        }
        if values.is_empty() {
            say("impersonating empty values in extra is not allowed")
        } else if values.iter().any(String::is_empty) {
            say("impersonating the empty string value in extra is not allowed")
        } else {
            None
        }
    })
}

/// Why a key is no path with a domain before it.
fn not_in_a_domain(key: &str) -> Option<String> {
    const PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
    let at = Path::new("extra").child("key");
    let mut errors = Vec::new();
    match key.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            let reasons = names::dns1123_subdomain(domain).into_iter();
            errors.extend(reasons.map(|reason| FieldError::invalid(&at, domain, reason).line()));
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
            if !path.bytes().all(allowed) {
                errors.push(FieldError::invalid(&at, path, names::regex_reason("Invalid path", PATH, &[])).line());
            }
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(&at, key, detail).line());
        }
    }
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

/// The node that a user name stands for.
fn node_of(user: &str) -> Option<&str> {
    let node = user.strip_prefix("system:node:")?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let valid = node.len() <= 253
        && node.split('.').all(|label| {
            label.bytes().all(|b| plain(b) || b == b'-')
                && label.bytes().next().is_some_and(plain)
                && label.bytes().last().is_some_and(plain)
        });
    valid.then_some(node)
}

/// The namespace and name of the service account that a user name stands for.
fn account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let sound = names::dns1123_label(namespace).is_empty() && names::dns1123_subdomain(name).is_empty();
    sound.then_some((namespace, name))
}

fn wanted_user(headers: &http::HeaderMap) -> Result<Option<UserInfo>, ApiError> {
    // Nearly all requests speak for themselves.
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    if let Some(why) = unclear(headers) {
        return Err(ApiError::bad_request(why));
    }
    let wanted = named_user(headers).map_err(|unreadable| ApiError::bad_request(unreadable.to_string()))?;
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    // As upstream: a header without a value asks for nothing.
    if wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty() {
        return Ok(None);
    }
    Err(ApiError::bad_request(format!("requested {} without impersonating a user name", go_syntax(&wanted))))
}

/// Why it is not plain who is meant. Upstream overlooks what it does not know and takes the first of several: then a misspelt
/// header, or one that somebody in between added, makes a request run as whoever sent it.
fn unclear(headers: &http::HeaderMap) -> Option<String> {
    let is_known = |name: &&HeaderName| {
        [USER, UID, GROUP].contains(name)
            || name.as_str().starts_with(EXTRA_PREFIX)
            || !name.as_str().starts_with(PREFIX)
    };
    if let Some(name) = headers.keys().find(|name| !is_known(name)) {
        return Some(format!("the header {name} is not known: Impersonate-User, -Group, -Uid and -Extra-* are"));
    }
    let twice = [USER, UID].into_iter().find(|name| headers.get_all(name).iter().nth(1).is_some());
    twice.map(|name| format!("the header {name} is there more than once"))
}

fn named_user(headers: &http::HeaderMap) -> Result<UserInfo, Unreadable> {
    let mut user = UserInfo {
        name: headers::first(headers, &USER)?,
        uid: headers::first(headers, &UID)?,
        groups: headers::all(headers, &GROUP)?,
        ..UserInfo::default()
    };
    for name in headers.keys() {
        if let Some(key) = headers::key_of(name, EXTRA_PREFIX) {
            user.extra.entry(key?).or_default().extend(headers::all(headers, name)?);
        }
    }
    Ok(user)
}

/// The user as Go's `%#v` prints it: the message upstream answers with.
fn go_syntax(user: &UserInfo) -> String {
    let list = |items: &[String]| {
        let items: Vec<String> = items.iter().map(|item| quote(item)).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let mut extra = String::from("map[string][]string");
    if user.extra.is_empty() {
        extra.push_str("(nil)");
    } else {
        let pairs: Vec<String> =
            user.extra.iter().map(|(key, values)| format!("{}:{}", quote(key), list(values))).collect();
        let _ = write!(extra, "{{{}}}", pairs.join(", "));
    }
    format!("&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}", quote(&user.name), quote(&user.uid))
}

#[cfg(test)]
mod tests;
