//! Certificates that clients do not believe: over, not yet valid, for other names, or no certificates at all.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, is_young, named, rollout};
use crate::surroundings::content;
use crate::world::{Content, Serving, World, ago, span, word};

const TYPE: &str = "kubernetes.io/tls";

/// What is wrong with the certificate in a Secret, for these hosts.
pub(super) fn wrong(world: &World, content: &Content, hosts: &[&str]) -> Option<String> {
    let found = match &content.certificate {
        Serving::Unseen => return None,
        Serving::Unreadable => {
            return Some("holds no certificate: tls.crt must be PEM, as openssl writes it".to_owned());
        }
        Serving::Read(found) => found,
    };
    let now = world.now.as_second();
    let until = |second: i64| jiff::Timestamp::from_second(second).unwrap_or(world.now);
    if found.not_after < now {
        let since = ago(world.now, until(found.not_after));
        return Some(format!("holds a certificate that has expired {since} ago: clients do not trust it"));
    }
    if found.not_before > now {
        let left = span(found.not_before.saturating_sub(now).saturating_mul(1_000_000));
        return Some(format!("holds a certificate that becomes valid in {left}: clients do not trust it yet"));
    }
    let host = hosts.iter().find(|host| !found.is_for(host))?;
    let addresses = found.addresses.iter().map(ToString::to_string);
    let names: Vec<String> = found.dns_names.iter().cloned().chain(addresses).collect();
    let has = if names.is_empty() { "no name at all".to_owned() } else { named(&names) };
    Some(format!("holds a certificate for {has}, not for {host}: clients do not trust it"))
}

/// The command that puts another certificate into a Secret that is there.
pub(super) fn renew(namespace: &str, name: &str, content: &Content) -> String {
    let name = word(name);
    let create = format!("kubectl create secret tls -n {namespace} {name} --cert=FILE --key=FILE");
    match content.kind.as_str() {
        TYPE => format!("{create} --dry-run=client -o yaml | kubectl apply -f -"),
        // The type of a Secret cannot be changed.
        _ => format!("kubectl delete secret -n {namespace} {name} && {create}"),
    }
}

/// The token of a ServiceAccount, which a controller writes.
const TOKEN: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";

/// A Secret that is to hold a token, and holds none.
fn token(world: &World, secret: &Value) -> Option<Finding> {
    if object::map(secret, "/data").contains_key("token") {
        return None;
    }
    let (name, namespace) = (object::annotations(secret).get(ACCOUNT)?.as_str()?, object::namespace(secret));
    let is_there = world.seen("serviceaccounts")?.iter().any(|account| object::name(account) == name);
    let finding =
        |reason: Reason, cause: String| Finding::new(reason, secret, cause).underway_if(is_young(world, secret));
    Some(match is_there {
        true => finding(
            Reason::ControllerBehind,
            format!("no token of the ServiceAccount {name:?} has been written into it"),
        )
        .advise(rollout::CONTROLLERS),
        false => finding(
            Reason::ServiceAccountMissing,
            format!("it gets no token: the ServiceAccount {name:?} of its annotation {ACCOUNT} does not exist in namespace {namespace}"),
        )
        .detail("the controller deletes such a Secret")
        .advise(format!("kubectl create serviceaccount -n {namespace} {}", word(name)))
        .advise("and create the Secret again, if it is gone by then"),
    })
}

/// A Secret of its own.
pub(super) fn secret(world: &World, secret: &Value) -> Option<Finding> {
    if object::text(secret, "/type") == TOKEN {
        return token(world, secret);
    }
    if object::text(secret, "/type") != TYPE {
        return None;
    }
    let content = content(secret);
    let cause = format!("it {}", wrong(world, &content, &[])?);
    let remedy = renew(object::namespace(secret), object::name(secret), &content);
    Some(Finding::new(Reason::TlsCertificate, secret, cause).advise(format!("put a valid one there: {remedy}")))
}
