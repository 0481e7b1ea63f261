//! Init containers that wait for a Service, as their command tells: whether it is there.

use ferry_meta::object;
use serde_json::Value;

use super::containers::{edit, spec};
use super::{Finding, Reason, is_young, service};
use crate::named::{Found, Named};
use crate::world::{World, time_at};

/// Programs that are given the name of a host.
const ASK: [&str; 6] = ["nslookup", "hosts", "ping", "nc", "host", "dig"];

/// The Services that a container's command names, as namespace and name: `db.prod.svc`, or a plain name after a program
/// that asks for it.
pub(super) fn services(pod: &Value, container: &str) -> Vec<(String, String)> {
    let Some(spec) = spec(pod, container) else { return Vec::new() };
    let text = ["/command", "/args"].into_iter().flat_map(|list| object::items(spec, list)).filter_map(Value::as_str);
    let text = text.collect::<Vec<_>>().join(" ");
    let words: Vec<&str> = text.split(|letter: char| !is_of_name(letter)).filter(|word| !word.is_empty()).collect();
    let mut found = Vec::new();
    for (place, word) in words.iter().enumerate() {
        // Flags and their numbers stand between a program and the host.
        let is_flag = |word: &&&str| word.starts_with('-') || word.bytes().all(|byte| byte.is_ascii_digit());
        let before = words[..place].iter().rev().find(|word| !is_flag(word)).copied().unwrap_or_default();
        let Some((name, namespace)) = host(pod, word, ASK.contains(&before)) else { continue };
        let one = (namespace.to_owned(), name.to_owned());
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_')
}

fn is_label(text: &str) -> bool {
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(letters) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// The Service that a host's name means. A plain name may be anything, except where it is asked for.
fn host<'a>(pod: &'a Value, word: &'a str, asked: bool) -> Option<(&'a str, &'a str)> {
    let parts: Vec<&str> = word.trim_end_matches('.').split('.').collect();
    match parts.as_slice() {
        [name, namespace, "svc"] | [name, namespace, "svc", "cluster", "local"]
            if is_label(name) && is_label(namespace) =>
        {
            Some((*name, *namespace))
        }
        [name] if asked && is_label(name) && *name != "localhost" => Some((*name, object::namespace(pod))),
        _ => None,
    }
}

/// Services of other namespaces, which have to be looked up.
pub(super) fn named_by(pod: &Value) -> Vec<Named> {
    let running = object::items(pod, "/status/initContainerStatuses").iter();
    let running = running.filter(|status| status.pointer("/state/running").is_some());
    let all = running.flat_map(|status| services(pod, object::text(status, "/name")));
    all.filter(|(namespace, _)| namespace != object::namespace(pod)).map(of).collect()
}

fn of((namespace, name): (String, String)) -> Named {
    Named { group: String::new(), kind: "Service".to_owned(), namespace, name }
}

/// What the Service is that the container waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// There is none of that name.
    Absent { namespace: String, name: String },
    /// It is there, and nothing answers behind it.
    Dark { namespace: String, name: String },
}

pub(super) fn wait(world: &World, pod: &Value, container: &str) -> Option<Wait> {
    services(pod, container).into_iter().find_map(|(namespace, name)| {
        if namespace != object::namespace(pod) {
            let absent = of((namespace.clone(), name.clone())).find(world) == Found::Absent;
            return absent.then_some(Wait::Absent { namespace, name });
        }
        match world.seen("services")?.iter().find(|one| object::name(one) == name) {
            None => Some(Wait::Absent { namespace, name }),
            Some(found) => service::is_dark(world, found).then_some(Wait::Dark { namespace, name }),
        }
    })
}

/// So long a Service may take to get its first endpoint.
const PATIENCE_SECONDS: i64 = 300;

/// Adds it to what is said of the init container.
pub(super) fn tell(world: &World, pod: &Value, container: &str, finding: Finding) -> Finding {
    match wait(world, pod, container) {
        Some(Wait::Absent { namespace, name }) => {
            let cause = format!(
                "its init container {container} still runs: its command names the Service {name:?}, and there is none in namespace {namespace}"
            );
            let reason = Reason::InitWaitsForService;
            let finding = Finding { reason, cause, underway: is_young(world, pod), ..finding }.probably();
            finding
                .advise(format!("see which there are: kubectl get services -n {namespace}"))
                .advise(format!("create the Service {name}, or correct the command: {}", edit(world, pod)))
        }
        Some(Wait::Dark { namespace, name }) => {
            let finding = finding
                .detail(format!("it names the Service {name}, behind which nothing is ready"))
                .advise(format!("ferry why -n {namespace} service/{name}"));
            let statuses = object::items(pod, "/status/initContainerStatuses").iter();
            let mut own = statuses.filter(|status| object::text(status, "/name") == container);
            let since = own.find_map(|status| time_at(status, "/state/running/startedAt"));
            let long = since.is_some_and(|at| world.now.as_second() - at.as_second() > PATIENCE_SECONDS);
            // Two that start together wait a while for each other.
            if long { Finding { underway: false, ..finding }.probably() } else { finding }
        }
        None => finding,
    }
}
