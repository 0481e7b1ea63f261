//! Quotas, certificate requests, packets that others drop, and kinds that nobody here knows.

use ferry_meta::object;
use serde_json::Value;

use super::{
    Finding, PACKETS_DROPPED, Reason, admission, in_namespace, is_soon, is_young, rollout, said, title_with_group,
    warning,
};
use crate::world::{World, condition, standing, time_at};

/// Others on the machine of a node drop packets of its pods.
pub(super) fn dropping(node: &Value, about: &Value) -> Option<Finding> {
    let said = object::annotations(node).get(PACKETS_DROPPED).and_then(Value::as_str)?;
    let cause = format!("packets of pods are dropped on node {} by rules of others", object::name(node));
    let advice = "let the addresses of pods through there, or remove the rule; `nft list ruleset` shows it";
    Some(Finding::new(Reason::PacketsDropped, about, cause).detail(said).advise(advice))
}

/// A quota that is used up refuses what comes next.
pub(super) fn quota(world: &World, quota: &Value) -> Vec<Finding> {
    let wanted = object::map(quota, "/spec/hard");
    if !wanted.is_empty() && object::map(quota, "/status/hard").is_empty() {
        let cause = "what it limits has not been counted: until then it refuses whatever it is about";
        return vec![
            Finding::new(Reason::ControllerBehind, quota, cause)
                .underway_if(is_young(world, quota))
                .advise(rollout::CONTROLLERS),
        ];
    }
    let full = admission::usage(quota);
    if full.is_empty() {
        return Vec::new();
    }
    let cause = format!("it is used up, and refuses what would take more: {}", full.join("; "));
    let edit = format!("raise it: kubectl edit {}resourcequota/{}", in_namespace(quota), object::name(quota));
    vec![
        Finding::new(Reason::QuotaFull, quota, cause)
            .note()
            .advise(edit)
            .advise("or end what is not needed in the namespace"),
    ]
}

pub(super) fn certificate_request(world: &World, request: &Value) -> Option<Finding> {
    let name = object::name(request);
    let finding = |cause: String| Finding::new(Reason::CertificateRequest, request, cause);
    if let Some(denied) = condition(request, "Denied") {
        return Some(finding("it was denied".into()).detail(said(denied)).advise(format!(
            "a request that was denied stays so: correct what was said of it, and create another one: kubectl delete csr {name}"
        )));
    }
    if let Some(failed) = condition(request, "Failed") {
        return Some(finding("it could not be signed".into()).detail(said(failed)).advise(format!(
            "a request that failed stays so: correct what was said of it, and create another one: kubectl delete csr {name}"
        )));
    }
    if !object::text(request, "/status/certificate").is_empty() {
        return None;
    }
    let signer = object::text(request, "/spec/signerName");
    Some(match condition(request, "Approved") {
        Some(approved) if signer.starts_with("kubernetes.io/") => {
            let since = time_at(approved, "/lastUpdateTime").or_else(|| time_at(approved, "/lastTransitionTime"));
            finding(format!("it is approved, and not signed yet by {signer}"))
                .advise("see that the certificate signing controller runs: it is one of the controllers")
                .underway_if(since.is_none_or(|since| is_soon(world, since)))
        }
        Some(_) => finding(format!("it is approved, and its signer {signer:?} has not signed it"))
            .detail("the cluster's own controller signs only for signers of kubernetes.io")
            .advise(format!("see that the controller of {signer} runs")),
        None => finding("it waits for somebody to approve it".into())
            .detail(warning(world, request).map(said).unwrap_or_default())
            .advise(format!("if the request is to be trusted: kubectl certificate approve {name}")),
    })
}

/// Conditions that tell of something good. Their absence tells nothing.
const GOOD: [&str; 10] = [
    "Ready",
    "Succeeded",
    "Available",
    "Established",
    "Healthy",
    "Programmed",
    "Accepted",
    "Synced",
    "NamesAccepted",
    "ResolvedRefs",
];
/// Conditions that tell of something bad.
const BAD: [&str; 11] = [
    "Failed",
    "Degraded",
    "Stalled",
    "NonStructuralSchema",
    "Dangling",
    "NotReady",
    "Denied",
    "Errored",
    "ReconcileError",
    "Unhealthy",
    "Blocked",
];

/// How a condition stands. Not everybody writes the words of Kubernetes: some have `true`, as a word or as such.
fn status_of(condition: &Value) -> &str {
    let text = object::text(condition, "/status");
    let known = ["True", "False", "Unknown"].into_iter().find(|known| known.eq_ignore_ascii_case(text));
    match condition.get("status").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => known.unwrap_or(text),
    }
}

/// What each of those that a policy or a set of listeners is attached to says of it.
fn by_others(target: &Value) -> Option<&Value> {
    let ancestors = ["/status/ancestors", "/status/parents"].into_iter().flat_map(|list| object::items(target, list));
    let conditions = ancestors.flat_map(|one| object::items(one, "/conditions"));
    let named = |one: &&Value| matches!(object::text(one, "/type"), "Accepted" | "ResolvedRefs" | "Programmed");
    conditions.filter(named).find(|one| object::text(one, "/status") == "False")
}

/// Where kinds without conditions have a word for how they are.
const WORDS: [&str; 3] = ["/status/phase", "/status/state", "/status/health/status"];

/// The words that a word like `PartiallyFailed` is made of, in small letters.
fn parts(word: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for letter in word.chars() {
        match (letter.is_alphanumeric(), letter.is_uppercase(), found.last_mut()) {
            (false, ..) => found.push(String::new()),
            (true, false, Some(last)) => last.push(letter),
            _ => found.push(letter.to_lowercase().collect()),
        }
    }
    // A word in capitals alone is one.
    if word.chars().all(|letter| !letter.is_lowercase()) {
        return word.split(|letter: char| !letter.is_alphanumeric()).map(str::to_lowercase).collect();
    }
    found
}

fn is_bad(word: &str) -> bool {
    const BAD: [&str; 9] =
        ["fail", "failed", "failure", "error", "errored", "degraded", "unhealthy", "invalid", "rejected"];
    let parts = parts(word);
    let has = |all: &[&str]| parts.iter().any(|part| all.contains(&part.as_str()));
    has(&BAD) && !has(&["no", "not", "without"])
}

/// Kinds without conditions often have a word for how they are.
fn by_phase(target: &Value) -> Option<String> {
    let phase = WORDS.into_iter().map(|pointer| object::text(target, pointer)).find(|phase| is_bad(phase))?;
    let why = ["/status/message", "/status/error/message", "/status/health/message", "/status/reason"]
        .into_iter()
        .map(|pointer| object::text(target, pointer))
        .find(|why| !why.is_empty());
    Some(match why {
        Some(why) => format!("it says that it is {phase}: {why}"),
        None => format!("it says that it is {phase}"),
    })
}

/// Conditions that tell that somebody works on it: what is not good yet is on its way.
const AT_WORK: [&str; 4] = ["Reconciling", "Progressing", "Issuing", "Provisioning"];

/// Words for a state that ends.
const PASSING: [&str; 7] =
    ["pending", "creating", "provisioning", "progressing", "reconciling", "inprogress", "initializing"];

/// Whoever does not know yet may be asked again for so long.
const UNDECIDED_SECONDS: i64 = 600;

/// Kinds that nobody here knows say themselves how they are.
pub(super) fn other(world: &World, target: &Value) -> Option<Finding> {
    let of = |name: &&str| condition(target, name);
    // What has failed comes before what is not known yet.
    let not = |status: &str| GOOD.iter().filter_map(of).find(|one| status_of(one) == status);
    let good = not("False").or_else(|| GOOD.iter().filter_map(of).find(|one| status_of(one) != "True"));
    let bad = BAD.iter().filter_map(of).find(|one| status_of(one) == "True");
    let says_nothing = good.or(bad).or_else(|| by_others(target)).is_none() && by_phase(target).is_none();
    let phases = WORDS.map(|pointer| object::text(target, pointer));
    let passes = |phase: &&str| PASSING.contains(&phase.to_lowercase().as_str());
    let passing = phases.into_iter().find(|phase| says_nothing && passes(phase));
    if says_nothing && passing.is_none() {
        return behind(world, target);
    }
    // `Unknown` is what a controller says of what it has begun.
    let undecided = good.filter(|one| bad.is_none() && status_of(one) == "Unknown").is_some_and(|one| {
        let since = time_at(one, "/lastTransitionTime");
        since.is_some_and(|since| world.now.as_second() - since.as_second() < UNDECIDED_SECONDS)
    });
    let cause = match good.or(bad).or_else(|| by_others(target)) {
        Some(standing) => {
            let (name, status) = (object::text(standing, "/type"), status_of(standing));
            format!("it says {name}={status}: {}", said(standing))
        }
        None => match (by_phase(target), passing) {
            (Some(phase), _) => phase,
            (None, phase) => format!("it says that it is {}", phase?),
        },
    };
    let told = warning(world, target).map(|event| object::text(event, "/message")).unwrap_or_default();
    let manager = object::items(target, "/metadata/managedFields")
        .iter()
        .rfind(|entry| object::text(entry, "/subresource") == "status");
    let manager = manager.map(|entry| object::text(entry, "/manager")).unwrap_or_default();
    let finding = Finding::new(Reason::Condition, target, cause).detail(told);
    let stalled = BAD.iter().any(|name| standing(target, name, "True").is_some());
    let at_work = AT_WORK.iter().any(|name| standing(target, name, "True").is_some()) && !stalled;
    let finding = finding.underway_if(at_work || undecided || passing.is_some());
    Some(match manager {
        "" => finding.advise(format!(
            "see all that it says: kubectl describe {}{}",
            in_namespace(target),
            title_with_group(target)
        )),
        manager => finding.advise(format!("its status is written by {manager:?}: see what that logs")),
    })
}

/// What its controller has written is of what it was before it was changed.
fn behind(world: &World, target: &Value) -> Option<Finding> {
    let wanted = target.pointer("/metadata/generation").and_then(Value::as_i64)?;
    let seen = target.pointer("/status/observedGeneration").and_then(Value::as_i64)?;
    if seen >= wanted {
        return None;
    }
    let cause = format!("its controller has acted on generation {seen} of it, and there is generation {wanted}");
    let soon = rollout::changed(target).is_none_or(|at| is_soon(world, at));
    let told = warning(world, target).map(said).unwrap_or_default();
    let entries = object::items(target, "/metadata/managedFields").iter();
    let manager = { entries }.rfind(|entry| object::text(entry, "/subresource") == "status");
    let manager = manager.map(|entry| object::text(entry, "/manager")).filter(|manager| !manager.is_empty());
    let finding = Finding::new(Reason::ControllerBehind, target, cause).underway_if(soon).detail(told);
    Some(match manager {
        Some(manager) => {
            finding.advise(format!("its status is written by {manager:?}: see that it runs, and what it logs"))
        }
        None => finding.advise("see that its controller runs, and what it logs"),
    })
}

#[cfg(test)]
mod tests {
    use super::is_bad;

    #[test]
    fn words_for_what_is_bad_are_told_from_others() {
        for (word, want) in [
            ("Failed", true),
            ("PartiallyFailed", true),
            ("FailedValidation", true),
            ("invalid", true),
            ("ERROR", true),
            ("create-error", true),
            ("NoError", false),
            ("not failed", false),
            ("Ready", false),
            ("Failover", false),
            ("", false),
        ] {
            assert_eq!(is_bad(word), want, "{word}");
        }
    }
}
