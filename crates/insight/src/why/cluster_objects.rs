//! Disruption budgets, quotas, certificate requests, packets that others drop, and kinds that nobody here knows.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, PACKETS_DROPPED, Reason, admission, in_namespace, named, pairs, plural, pod, said, warning};
use crate::world::{World, condition, number, title};

/// Others on the machine of a node drop packets of its pods.
pub(super) fn dropping(node: &Value, about: &Value) -> Option<Finding> {
    let said = object::annotations(node).get(PACKETS_DROPPED).and_then(Value::as_str)?;
    let cause = format!("packets of pods are dropped on node {} by rules of others", object::name(node));
    let advice = "let the addresses of pods through there, or remove the rule; `nft list ruleset` shows it";
    Some(Finding::new(Reason::PacketsDropped, about, cause).detail(said).advise(advice))
}

/// A budget that lets nobody go holds up drains.
pub(super) fn budget(world: &World, budget: &Value) -> Option<Finding> {
    if number(budget, "/metadata/generation") > number(budget, "/status/observedGeneration") {
        let cause = "the disruption controller has not looked at it yet; until then nobody may be evicted";
        return Some(Finding::new(Reason::BudgetBlocks, budget, cause).underway());
    }
    if number(budget, "/status/disruptionsAllowed") > 0 {
        return None;
    }
    let seen = world.seen("pods");
    let pods = world.selected(budget.pointer("/spec/selector"));
    let (expected, healthy, desired) = (
        number(budget, "/status/expectedPods"),
        number(budget, "/status/currentHealthy"),
        number(budget, "/status/desiredHealthy"),
    );
    if pods.is_empty() && seen.is_some() {
        let selector = pairs(object::map(budget, "/spec/selector/matchLabels"));
        let cause = format!(
            "its selector {selector} selects no pod in namespace {}: it protects nothing",
            object::namespace(budget)
        );
        let edit = format!("kubectl edit {}pdb/{}", in_namespace(budget), object::name(budget));
        let finding = Finding::new(Reason::BudgetSelectsNothing, budget, cause);
        // Where there are no pods at all, it is for those to come.
        let finding = if seen.is_some_and(<[Value]>::is_empty) { finding.note() } else { finding };
        return Some(finding.advise(format!("if pods are meant: {edit}")));
    }
    let allows = match (budget.pointer("/spec/minAvailable"), budget.pointer("/spec/maxUnavailable")) {
        (Some(least), _) => format!("minAvailable is {least}"),
        (_, Some(most)) => format!("maxUnavailable is {most}"),
        _ => String::new(),
    };
    let cause =
        format!("it allows no eviction: {healthy} of {expected} pods are healthy, and {desired} must be ({allows})");
    let finding = Finding::new(Reason::BudgetBlocks, budget, cause);
    let sick: Vec<&Value> = pods.into_iter().filter(|pod| !pod::is_serving(pod)).collect();
    if seen.is_none() && healthy < expected {
        return Some(finding.detail("its pods could not be looked at"));
    }
    if sick.is_empty() {
        let edit = format!("kubectl edit {}pdb/{}", in_namespace(budget), object::name(budget));
        return Some(finding.note().advise(format!(
            "it leaves no room at all: raise the replicas, or lower minAvailable (raise maxUnavailable): {edit}"
        )));
    }
    let names: Vec<&str> = sick.iter().map(|pod| object::name(pod)).collect();
    let finding = finding.detail(format!("{} not healthy: {}", plural(sick.len(), "pod"), named(&names)));
    let finding = match sick.iter().find_map(|pod| pod::first(world, pod)) {
        Some(inner) => Finding { underway: false, ..finding.because_of(inner) },
        None => finding,
    };
    Some(finding.advise("unhealthyPodEvictionPolicy: AlwaysAllow lets pods that are not healthy go in any case"))
}

/// A quota that is used up refuses what comes next.
pub(super) fn quota(quota: &Value) -> Vec<Finding> {
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
        return Some(finding("it was denied".into()).detail(said(denied)));
    }
    if let Some(failed) = condition(request, "Failed") {
        return Some(finding("it could not be signed".into()).detail(said(failed)));
    }
    if !object::text(request, "/status/certificate").is_empty() {
        return None;
    }
    let signer = object::text(request, "/spec/signerName");
    Some(match condition(request, "Approved") {
        Some(_) if signer.starts_with("kubernetes.io/") => {
            finding(format!("it is approved, and not signed yet by {signer}"))
                .advise("see that the certificate signing controller runs")
                .underway()
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
const GOOD: [&str; 8] =
    ["Ready", "Available", "Established", "Healthy", "Programmed", "Accepted", "Synced", "NamesAccepted"];
/// Conditions that tell of something bad.
const BAD: [&str; 4] = ["Failed", "Degraded", "Stalled", "NonStructuralSchema"];

/// Kinds that nobody here knows say themselves how they are.
pub(super) fn other(world: &World, target: &Value) -> Option<Finding> {
    let good = GOOD.iter().find_map(|name| condition(target, name).filter(|c| object::text(c, "/status") != "True"));
    let bad = BAD.iter().find_map(|name| condition(target, name).filter(|c| object::text(c, "/status") == "True"));
    let standing = good.or(bad)?;
    let (name, status) = (object::text(standing, "/type"), object::text(standing, "/status"));
    let cause = format!("it says {name}={status}: {}", said(standing));
    let told = warning(world, target).map(|event| object::text(event, "/message")).unwrap_or_default();
    let manager = object::items(target, "/metadata/managedFields")
        .iter()
        .rfind(|entry| object::text(entry, "/subresource") == "status");
    let manager = manager.map(|entry| object::text(entry, "/manager")).unwrap_or_default();
    let finding = Finding::new(Reason::Condition, target, cause).detail(told);
    Some(match manager {
        "" => {
            finding.advise(format!("see all that it says: kubectl describe {}{}", in_namespace(target), title(target)))
        }
        manager => finding.advise(format!("its status is written by {manager:?}: see what that logs")),
    })
}
