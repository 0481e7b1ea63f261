//! NetworkPolicies: which pods they select, and what that means for who reaches them.

use ferry_meta::object;
use ferry_meta::selector::LabelSelector;
use serde_json::Value;

use super::{Finding, Reason, fit, in_namespace, named, policy_dns, policy_peers};
use crate::gather::ALL_PODS;
use crate::world::World;

pub(super) fn selects(policy: &Value, pod: &Value) -> bool {
    let selector = policy.pointer("/spec/podSelector").cloned().unwrap_or_default();
    let everything = selector.as_object().is_none_or(serde_json::Map::is_empty);
    let matches = || LabelSelector::from_object(&selector).is_ok_and(|selector| selector.matches(object::labels(pod)));
    everything || matches()
}

/// Whether a policy is about traffic of this direction.
pub(super) fn has_type(policy: &Value, kind: &str) -> bool {
    let types = object::items(policy, "/spec/policyTypes");
    match types.is_empty() {
        true => kind == "Ingress" || policy.pointer("/spec/egress").is_some(),
        false => types.iter().any(|one| one == kind),
    }
}

/// Which traffic a question is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Traffic {
    Both,
    Ingress,
}

/// A pod that policies select and to which none of them lets anybody: somebody wants it so.
pub(super) fn isolated(world: &World, pod: &Value, traffic: Traffic) -> Option<Finding> {
    // Policies do not hold for a pod in the network of its node.
    if pod.pointer("/spec/hostNetwork").and_then(Value::as_bool) == Some(true) {
        return None;
    }
    let policies: Vec<&Value> = world.all("networkpolicies").iter().filter(|policy| selects(policy, pod)).collect();
    for (kind, rules, what) in [
        ("Ingress", "/spec/ingress", "no pod reaches it, only its own node does, as for probes"),
        ("Egress", "/spec/egress", "it may open no connection, except to its own node"),
    ] {
        if kind == "Egress" && traffic == Traffic::Ingress {
            continue;
        }
        let about: Vec<&&Value> = policies.iter().filter(|policy| has_type(policy, kind)).collect();
        let all: Vec<&Value> = about.iter().flat_map(|policy| object::items(policy, rules)).collect();
        let ingress = kind == "Ingress";
        let peers = if ingress { "/from" } else { "/to" };
        let usable = |rule: &&&Value| has_peer(world, pod, rule, peers) && (!ingress || has_port(pod, rule));
        if about.is_empty() || all.iter().any(|rule| usable(&rule)) {
            continue;
        }
        let names: Vec<&str> = about.iter().map(|policy| object::name(policy)).collect();
        let how = match all.is_empty() {
            true => format!("allows no {}", kind.to_lowercase()),
            false if all.iter().all(|rule| !has_peer(world, pod, rule, peers)) => {
                format!("allows {} only for pods that are not there", kind.to_lowercase())
            }
            false => "allows only ports that its containers do not name".to_owned(),
        };
        let cause = format!("{what}: the NetworkPolicy {} selects it and {how}", named(&names));
        let direction = kind.to_lowercase();
        return Some(
            Finding::new(Reason::PoliciesSelect, pod, cause)
                .note()
                .detail("Ferry's network enforces it; in other clusters that depends on the network plug-in")
                .advise(format!(
                    "if it is to be otherwise, add a rule under spec.{direction}: kubectl edit {}networkpolicy/{}",
                    in_namespace(pod),
                    names[0]
                )),
        );
    }
    None
}

/// Whether anybody can be meant by a rule. Namespaces and addresses are not looked up: they may be.
fn has_peer(world: &World, pod: &Value, rule: &Value, peers: &str) -> bool {
    let peers = object::items(rule, peers);
    let is_there = |peer: &Value| {
        let selector = peer.get("podSelector").filter(|_| peer.get("namespaceSelector").is_none());
        let selector = selector.and_then(|selector| LabelSelector::from_object(selector).ok());
        let (Some(selector), Some(pods)) = (selector, world.seen(ALL_PODS)) else { return true };
        let near = |other: &&Value| object::namespace(other) == object::namespace(pod);
        selector.is_everything() || pods.iter().filter(near).any(|other| selector.matches(object::labels(other)))
    };
    peers.is_empty() || peers.iter().any(is_there)
}

/// Whether a rule is about a port that the pod has. A pod that names no ports may have any.
fn has_port(pod: &Value, rule: &Value) -> bool {
    let ports = object::items(rule, "/ports");
    let own: Vec<&Value> =
        object::items(pod, "/spec/containers").iter().flat_map(|one| object::items(one, "/ports")).collect();
    ports.is_empty()
        || own.is_empty()
        || ports.iter().any(|port| match port.get("port") {
            Some(Value::String(name)) => own.iter().any(|known| object::text(known, "/name") == name),
            Some(Value::Number(number)) => {
                let (first, last) = (number.as_i64().unwrap_or(0), port.get("endPort").and_then(Value::as_i64));
                let within = |known: &&Value| {
                    let known = known.get("containerPort").and_then(Value::as_i64).unwrap_or(0);
                    (first..=last.unwrap_or(first)).contains(&known)
                };
                own.iter().any(within)
            }
            _ => true,
        })
}

/// A policy of its own: one that selects nothing protects nothing, and a rule for nobody lets nobody through.
pub(super) fn policy(world: &World, policy: &Value) -> Vec<Finding> {
    match selects_nothing(world, policy) {
        Some(finding) => vec![finding],
        None => {
            let found = policy_peers::ports(world, policy).into_iter().chain(policy_peers::nobody(world, policy));
            found.chain(policy_dns::forgotten(world, policy)).collect()
        }
    }
}

fn selects_nothing(world: &World, policy: &Value) -> Option<Finding> {
    let pods = world.seen("pods")?;
    let selected: Vec<&str> = pods.iter().filter(|pod| selects(policy, pod)).map(object::name).collect();
    if !selected.is_empty() {
        return None;
    }
    let selector = policy.pointer("/spec/podSelector").map(fit::selector_text).unwrap_or_default();
    // The empty selector means every pod there is.
    let what = if selector.is_empty() { String::new() } else { format!(" {selector}") };
    let mut known: Vec<String> = pods
        .iter()
        .flat_map(|pod| object::labels(pod).iter())
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    known.sort();
    known.dedup();
    let cause = format!("its podSelector{what} selects no pod in namespace {}", object::namespace(policy));
    let there =
        if known.is_empty() { "there are no pods".to_owned() } else { format!("pods there have {}", named(&known)) };
    let edit = format!("kubectl edit {}networkpolicy/{}", in_namespace(policy), object::name(policy));
    let finding = Finding::new(Reason::PolicySelectsNothing, policy, cause).detail(there);
    // It holds for the pods that are to come.
    Some(match pods.is_empty() {
        true => finding.note().advise(format!("if it is a mistake, correct the selector: {edit}")),
        false => finding.advise(format!("correct the selector: {edit}")),
    })
}
