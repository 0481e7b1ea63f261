//! Pods that the API server refused to their controller: quotas, policies, webhooks, what they name.

use std::collections::BTreeMap;

use ferry_meta::object;
use ferry_meta::quantity::Quantity;
use serde_json::Value;

use super::{Finding, Reason, named, parts, webhook};
use crate::world::{World, title, word};

/// What an admission plug-in or webhook said, as a type. The sentences are those of the API, which clients rely on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    QuotaExceeded {
        quota: String,
    },
    QuotaWants {
        quota: String,
        what: String,
    },
    LimitRange,
    /// A container asks for more than its limit, which it has got from a LimitRange.
    DefaultLimit {
        resource: String,
    },
    PodSecurity {
        level: String,
    },
    WebhookFails {
        hook: String,
    },
    WebhookDenies {
        hook: String,
    },
    Policy {
        policy: String,
    },
    ServiceAccount {
        name: String,
    },
    PriorityClass {
        name: String,
    },
    RuntimeClass {
        name: String,
    },
    Exists {
        name: String,
    },
    /// A field or a label of the pod is longer than it may be, because the name of its maker is part of it.
    TooLong {
        field: String,
    },
    /// The namespace is being deleted.
    Terminating,
    /// Whoever makes the pods has no right to.
    Forbidden {
        user: String,
        verb: String,
        resource: String,
    },
    Other,
}

impl Refusal {
    pub(super) fn read(message: &str) -> Self {
        let links: Vec<&str> = message.split(": ").map(str::trim).collect();
        let after = |text: &str| links.iter().position(|link| *link == text).and_then(|at| links.get(at + 1)).copied();
        let begins = |text: &str| links.iter().find_map(|link| link.strip_prefix(text));
        let quoted = |text: &str| {
            let text = text.trim_start();
            let mark = text.chars().next().filter(|mark| matches!(mark, '"' | '\''))?;
            text[1..].split(mark).next().map(str::to_owned)
        };
        let word = |text: &str| text.split([',', ' ']).next().unwrap_or_default().to_owned();
        if let Some(rest) = after("exceeded quota") {
            return Self::QuotaExceeded { quota: word(rest) };
        }
        if let Some(rest) = after("failed quota") {
            let what = begins("must specify ").unwrap_or_default().trim_end_matches(" for").to_owned();
            return Self::QuotaWants { quota: word(rest), what };
        }
        if let Some(level) = begins("violates PodSecurity ").and_then(quoted) {
            return Self::PodSecurity { level };
        }
        if let Some(hook) = begins("failed calling webhook ").and_then(quoted) {
            return Self::WebhookFails { hook };
        }
        if let Some(rest) = begins("admission webhook ")
            && rest.ends_with("denied the request")
        {
            return quoted(rest).map_or(Self::Other, |hook| Self::WebhookDenies { hook });
        }
        // With a message of its own, the denial is not the end of its link.
        if let Some(rest) = begins("admission webhook ").filter(|rest| rest.contains("denied the request")) {
            return quoted(rest).map_or(Self::Other, |hook| Self::WebhookDenies { hook });
        }
        if let Some(policy) = begins("ValidatingAdmissionPolicy ").and_then(quoted) {
            return Self::Policy { policy };
        }
        if let Some(rest) = begins("serviceaccount ").filter(|rest| rest.ends_with("not found")) {
            return quoted(rest).map_or(Self::Other, |name| Self::ServiceAccount { name });
        }
        if let Some(rest) = begins("no PriorityClass with name ") {
            return Self::PriorityClass { name: word(rest) };
        }
        if let Some(name) = begins("RuntimeClass ").and_then(quoted) {
            return Self::RuntimeClass { name };
        }
        if let Some((user, rest)) = links.iter().find_map(|link| link.strip_prefix("User \"")?.split_once("\" cannot "))
        {
            let verb = word(rest);
            let resource = rest.split_once(" resource ").and_then(|(_, rest)| quoted(rest));
            return resource.map_or(Self::Other, |resource| Self::Forbidden { user: user.to_owned(), verb, resource });
        }
        if links.iter().any(|link| link.ends_with("because it is being terminated")) {
            return Self::Terminating;
        }
        let long = |link: &&str| {
            let link = link.trim_end_matches([']', ',']);
            link.starts_with("must be no more than ") || link.starts_with("may not be more than ") || link == "Too long"
        };
        if message.contains(" is invalid: ") && links.iter().any(long) {
            let field = links.iter().find(|link| link.trim_start_matches('[').starts_with("metadata."));
            let field = field.map(|field| field.trim_start_matches('[').to_owned()).unwrap_or_default();
            return Self::TooLong { field };
        }
        let per_limit = |link: &&str| {
            let bounds = ["maximum ", "minimum "].iter().any(|start| link.starts_with(start));
            (bounds || link.contains(" max limit to request ratio")) && link.contains(" per ")
        };
        let bracketed: Vec<&str> = links.iter().map(|link| link.trim_start_matches('[')).collect();
        if bracketed.iter().any(per_limit) {
            return Self::LimitRange;
        }
        // A pod with such resources of its own would not be in a template: one of the two is a default.
        let limit = links.iter().find_map(|link| link.strip_prefix("must be less than or equal to "));
        if let Some((resource, _)) = limit.and_then(|rest| rest.split_once(" limit of ")) {
            return Self::DefaultLimit { resource: resource.to_owned() };
        }
        if let Some(rest) = links.iter().find(|link| link.ends_with(" already exists")) {
            let name = rest.split_once(' ').and_then(|(_, rest)| quoted(rest));
            return name.map_or(Self::Other, |name| Self::Exists { name });
        }
        Self::Other
    }
}

pub(super) fn refusal(world: &World, owner: &Value, message: &str) -> Finding {
    let finding = |reason: Reason, cause: String| Finding::new(reason, owner, cause).detail(message);
    let namespace = object::namespace(owner);
    let edit = change(world, owner);
    let refusal = Refusal::read(message);
    if let Some(claim) = claim_of(message) {
        return parts::claim_refused(world, owner, &claim, message, &refusal);
    }
    match refusal {
        Refusal::QuotaExceeded { quota } => {
            let too_much = beyond(message);
            if !too_much.is_empty() {
                let cause = format!(
                    "its pods are refused: one of them asks for more than the whole ResourceQuota {quota:?} of namespace {namespace} allows: {}",
                    too_much.join("; ")
                );
                // Of pods there are not fewer because they ask for less.
                let amounts = too_much.iter().any(|one| !one.starts_with("pods: ") && !one.starts_with("count/"));
                let less = amounts.then(|| format!("ask for less in resources of the containers: {edit}"));
                let (scope, outside) = world.find("resourcequotas", &quota).map(parts::scope).unwrap_or_default();
                let or = if less.is_some() || outside.is_some() { "or " } else { "" };
                return finding(Reason::QuotaUsedUp, cause)
                    .detail(scope)
                    .advise_all(less)
                    .advise_all(outside.map(|how| format!("{how}: {edit}")))
                    .advise(format!("{or}raise it: kubectl edit -n {namespace} resourcequota/{}", word(&quota)));
            }
            let cause = format!(
                "its pods are refused: the ResourceQuota {quota:?} of namespace {namespace} has no room for another one"
            );
            let found = finding(Reason::QuotaUsedUp, cause);
            let found = world
                .find("resourcequotas", &quota)
                .map(usage)
                .unwrap_or_default()
                .into_iter()
                .fold(found, Finding::detail);
            found
                .advise(format!("raise it: kubectl edit -n {namespace} resourcequota/{}", word(&quota)))
                .advise(format!("or end what is not needed there, or ask for less: {edit}"))
        }
        Refusal::QuotaWants { quota, what } => {
            let what = if what.is_empty() { "resources".to_owned() } else { what };
            finding(
                Reason::QuotaWantsResources,
                format!(
                    "its pods are refused: the ResourceQuota {quota:?} wants {what}, which their containers do not name"
                ),
            )
            .advise(format!("name them in resources of every container: {edit}"))
            .advise(format!("or give namespace {namespace} a LimitRange with defaults"))
        }
        Refusal::LimitRange => {
            let ranges: Vec<&str> = world.all("limitranges").iter().map(object::name).collect();
            let which = if ranges.is_empty() { String::new() } else { format!(" {}", named(&ranges)) };
            finding(Reason::LimitRange, format!("its pods are refused: they ask for more or less than the LimitRange{which} of namespace {namespace} allows"))
                .advise(format!("change resources in the template: {edit}"))
        }
        Refusal::DefaultLimit { resource } => {
            let of = |range: &&Value| {
                let limits = object::items(range, "/spec/limits").iter();
                limits.map(|limit| object::map(limit, "/default")).any(|default| default.contains_key(&resource))
            };
            match world.all("limitranges").iter().find(of).map(object::name) {
                Some(range) => finding(Reason::LimitRange, format!("its pods are refused: a container asks for more {resource} than its limit, which is the default of the LimitRange {range} of namespace {namespace}"))
                    .advise(format!("name limits.{resource} beside requests.{resource} in the template: {edit}"))
                    .advise(format!("or raise the default: kubectl edit -n {namespace} limitrange/{range}")),
                None => finding(Reason::PodRefused, format!("its pods are refused: a container asks for more {resource} than its limit"))
                    .advise(format!("correct requests and limits in the template: {edit}")),
            }
        }
        Refusal::PodSecurity { level } => {
            let level = level.split(':').next().unwrap_or_default();
            finding(Reason::PodSecurity, format!("its pods are refused: namespace {namespace} enforces the pod security level {level:?}"))
                .advise(format!("correct the template as the message says: {edit}"))
                .advise(format!("or allow more there: kubectl label namespace {namespace} pod-security.kubernetes.io/enforce={} --overwrite", level_that_allows(level, message)))
        }
        Refusal::WebhookFails { hook } => {
            let found = finding(
                Reason::WebhookFails,
                format!("its pods are refused: the admission webhook {hook:?} cannot be called"),
            );
            webhook::explain(world, &hook, message, found)
        }
        Refusal::WebhookDenies { hook } => {
            finding(Reason::WebhookDenies, format!("its pods are refused by the admission webhook {hook:?}"))
                .advise(format!("change the template as the webhook's message says: {edit}"))
        }
        Refusal::Policy { policy } => {
            finding(Reason::PolicyDenies, format!("its pods are refused by the ValidatingAdmissionPolicy {policy:?}"))
                .advise(format!("change the template as the message says: {edit}"))
        }
        Refusal::ServiceAccount { name } => finding(
            Reason::ServiceAccountMissing,
            format!("its pods are refused: their ServiceAccount {name:?} does not exist in namespace {namespace}"),
        )
        .advise(format!("kubectl create serviceaccount -n {namespace} {}", word(&name)))
        .advise(format!("or name another in serviceAccountName: {edit}")),
        Refusal::PriorityClass { name } => {
            finding(Reason::PriorityClassMissing, format!("its pods are refused: there is no PriorityClass {name:?}"))
                .advise(format!("kubectl create priorityclass {} --value=1000", word(&name)))
                .advise(format!("or name another in priorityClassName: {edit}"))
        }
        Refusal::RuntimeClass { name } => {
            finding(Reason::RuntimeClassMissing, format!("its pods are refused: there is no RuntimeClass {name:?}"))
                .advise(format!("create it, or take runtimeClassName away: {edit}"))
        }
        Refusal::Exists { name } => {
            finding(Reason::NotOwned, format!("it cannot make {name:?}: another object has that name"))
                .advise(format!("see whose it is: kubectl get -n {namespace} pod/{} -o yaml", word(&name)))
        }
        Refusal::TooLong { field } => {
            let made = title(owner);
            let field = if field.is_empty() { String::new() } else { format!(" ({field})") };
            finding(Reason::NameTooLong, format!("its pods are refused: something that is made of the name of {made} becomes too long{field}"))
                .detail(format!("the name of {made} has {} characters", object::name(owner).len()))
                .advise(format!("a name cannot be changed: delete it and create it with a shorter one: kubectl delete -n {namespace} {}", maker(world, owner)))
        }
        Refusal::Terminating => finding(
            Reason::NamespaceGoing,
            format!("its pods are refused: namespace {namespace} is being deleted, and this with it"),
        )
        .advise(format!("see what keeps the namespace: ferry why namespace/{namespace}")),
        // Who makes pods creates something: an Event that tells of another right is no controller's, and is not followed.
        Refusal::Forbidden { user, verb, resource } if verb == "create" => finding(
            Reason::ControllerForbidden,
            format!("its pods are not made: {user:?} may not {verb} {resource} in namespace {namespace}"),
        )
        .advise(format!("see what it may do: kubectl auth can-i --list -n {namespace} --as={}", word(&user)))
        .advise(format!("give it the right: {}", grant(&user, &verb, &resource, namespace))),
        Refusal::Forbidden { .. } | Refusal::Other => {
            finding(Reason::PodRefused, "its pods are refused by the API server".into())
                .advise(format!("change the template as the message says: {edit}"))
        }
    }
}

/// The commands that let somebody do something, in a namespace or (without one) everywhere.
fn grant(user: &str, verb: &str, resource: &str, namespace: &str) -> String {
    let name = format!("{verb}-{}", resource.replace(['/', '.'], "-"));
    let who = match user.strip_prefix("system:serviceaccount:") {
        Some(account) => format!("--serviceaccount={account}"),
        None => format!("--user={user}"),
    };
    let (role, place) = match namespace {
        "" => ("clusterrole", String::new()),
        namespace => ("role", format!("-n {} ", word(namespace))),
    };
    let (name, verb, resource, who) = (word(&name), word(verb), word(resource), word(&who));
    format!(
        "kubectl create {role} {place}{name} --verb={verb} --resource={resource} && kubectl create {role}binding {place}{name} --{role}={name} {who}"
    )
}

/// What gives a program the right for the want of which it ended, as it says itself: the sentence is the API server's.
pub(super) fn lacking_right(pod: &Value, line: &str) -> Option<String> {
    let at = line.find("User \"").or_else(|| line.find("User \\\""))?;
    let told = line[at..].replace("\\\"", "\"");
    let Refusal::Forbidden { user, verb, resource } = Refusal::read(&told) else { return None };
    let own = format!("system:serviceaccount:{}:", object::namespace(pod));
    let between = |before: &str| {
        let (_, rest) = told.split_once(before)?;
        rest.split('"').next()
    };
    let group = between("in API group \"").unwrap_or_default();
    let resource = match (group, resource.split_once('/')) {
        ("", _) => resource,
        (group, Some((plural, sub))) => format!("{plural}.{group}/{sub}"),
        (group, None) => format!("{resource}.{group}"),
    };
    let namespace = between("in the namespace \"").unwrap_or_default();
    let commands = grant(&user, &verb, &resource, namespace);
    user.starts_with(&own).then(|| format!("if it is to have that right: {commands}"))
}

/// `create Claim d-x-0 for Pod x-0 in StatefulSet x failed error: …`: the claim that could not be made.
fn claim_of(message: &str) -> Option<String> {
    message.strip_prefix("create Claim ").and_then(|rest| rest.split(' ').next()).map(str::to_owned)
}

/// What the level `baseline` forbids too, as the API server begins each complaint.
const BASELINE: [&str; 9] = [
    "host namespaces",
    "privileged",
    "hostPath volumes",
    "hostPort",
    "non-default capabilities",
    "seLinuxOptions",
    "procMount",
    "forbidden sysctls",
    "hostProcess",
];

/// The level that lets these pods in.
fn level_that_allows(level: &str, message: &str) -> &'static str {
    let told = message.split(": ").last().unwrap_or_default();
    let complaints = told.split("), ").map(|one| one.split(" (").next().unwrap_or_default());
    let forbidden = complaints.into_iter().any(|one| BASELINE.iter().any(|known| one.starts_with(known)));
    if level == "baseline" || forbidden { "privileged" } else { "baseline" }
}

/// How the template is changed: that of a Job cannot be.
fn change(world: &World, owner: &Value) -> String {
    let namespace = object::namespace(owner);
    match maker(world, owner) {
        own if own.starts_with("job/") => format!(
            "a Job's template cannot be changed: delete it, correct its manifest and create it again: kubectl delete -n {namespace} {own}"
        ),
        cron if cron.starts_with("cronjob/") => {
            format!("kubectl edit -n {namespace} {cron}; it counts from its next Job on")
        }
        maker => format!("kubectl edit -n {namespace} {maker}"),
    }
}

/// What a single pod asks for beyond the whole of a quota, from `requested: a=1,b=2, used: …, limited: a=1,b=2`.
fn beyond(message: &str) -> Vec<String> {
    let amounts = |word: &str| -> BTreeMap<String, (String, Quantity)> {
        let list =
            message.split_once(word).map(|(_, rest)| rest.split(", ").next().unwrap_or(rest)).unwrap_or_default();
        let pair = |text: &str| {
            let (resource, amount) = text.split_once('=')?;
            Some((resource.to_owned(), (amount.to_owned(), Quantity::parse(amount).ok()?)))
        };
        list.split(',').filter_map(pair).collect()
    };
    let limits = amounts("limited: ");
    let over = amounts("requested: ").into_iter().filter_map(|(resource, (asked, wanted))| {
        let (limit, most) = limits.get(&resource)?;
        (wanted.as_f64() > most.as_f64()).then(|| format!("{resource}: {asked} of {limit}"))
    });
    over.collect()
}

/// What has the template: a ReplicaSet of a Deployment is not what one changes.
fn maker(world: &World, owner: &Value) -> String {
    super::containers::maker(world, owner).unwrap_or_else(|| title(owner))
}

/// What of a quota is used up, as lines.
pub(super) fn usage(quota: &Value) -> Vec<String> {
    let used = object::map(quota, "/status/used");
    let full = object::map(quota, "/status/hard").iter().filter_map(|(resource, hard)| {
        let parse = |value: &Value| Quantity::parse(value.as_str()?).ok();
        let (limit, taken) = (parse(hard)?, parse(used.get(resource)?)?);
        // A limit of nothing is a rule, not something that was used up.
        (!limit.is_zero() && taken.as_f64() >= limit.as_f64())
            .then(|| format!("{resource}: {taken} of {limit} are used"))
    });
    full.collect()
}

#[cfg(test)]
mod tests {
    use super::Refusal::{self, *};

    #[test]
    fn sentences_of_the_api_are_told_apart() {
        let text = str::to_owned;
        for (message, want) in [
            (
                "pods \"w\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
                QuotaExceeded { quota: text("q") },
            ),
            (
                "pods \"w\" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.cpu for: c",
                QuotaWants { quota: text("q"), what: text("limits.cpu") },
            ),
            (
                "pods \"w\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false",
                PodSecurity { level: text("restricted:latest") },
            ),
            (
                "Internal error occurred: failed calling webhook \"a.b.c\": failed to call webhook: Post \"https://x\": dial tcp: refused",
                WebhookFails { hook: text("a.b.c") },
            ),
            ("admission webhook \"a.b.c\" denied the request: exceeded quota", WebhookDenies { hook: text("a.b.c") }),
            ("admission webhook \"a.b.c\" denied the request", WebhookDenies { hook: text("a.b.c") }),
            (
                "pods \"w\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                Policy { policy: text("p") },
            ),
            (
                "pods \"w\" is forbidden: error looking up service account d/sa: serviceaccount \"sa\" not found",
                ServiceAccount { name: text("sa") },
            ),
            (
                "pods \"w\" is forbidden: no PriorityClass with name high was found",
                PriorityClass { name: text("high") },
            ),
            (
                "pods \"w\" is forbidden: pod rejected: RuntimeClass \"gvisor\" not found",
                RuntimeClass { name: text("gvisor") },
            ),
            ("pods \"w\" is forbidden: maximum cpu usage per Container is 1, but limit is 2", LimitRange),
            ("pods \"w\" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, minimum]", LimitRange),
            ("pods \"web-0\" already exists", Exists { name: text("web-0") }),
            (
                "pods is forbidden: User \"system:serviceaccount:a:b\" cannot create resource \"pods\" in API group \"\" in the namespace \"d\"",
                Forbidden { user: text("system:serviceaccount:a:b"), verb: text("create"), resource: text("pods") },
            ),
            ("pods \"User\" is forbidden: User is no good", Other),
            ("pods \"exceeded quota\" is invalid: spec", Other),
            ("", Other),
        ] {
            assert_eq!(Refusal::read(message), want, "{message}");
        }
    }
}
