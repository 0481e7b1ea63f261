//! Rules of NetworkPolicies that are for nobody: the namespaces or the pods that they name are not there.

use ferry_meta::object;
use ferry_meta::selector::LabelSelector;
use serde_json::Value;

use super::{Finding, Reason, fit, in_namespace, named, network_policy};
use crate::gather::ALL_PODS;
use crate::world::{World, word};

/// The label that every namespace has, with its name.
const NAME: &str = "kubernetes.io/metadata.name";

/// The rules whose peers are all for nobody.
pub(super) fn nobody(world: &World, policy: &Value) -> Vec<Finding> {
    let lists = [("ingress", "from"), ("egress", "to")];
    let rules = lists.into_iter().flat_map(|(direction, peers)| {
        let rules = object::items(policy, &format!("/spec/{direction}")).iter().enumerate();
        rules.map(move |(place, rule)| (direction, peers, place, object::items(rule, &format!("/{peers}"))))
    });
    rules
        .filter_map(|(direction, peers, place, all)| {
            let missing: Option<Vec<Missing>> = all.iter().map(|peer| missing(world, policy, peer)).collect();
            let first = missing?.into_iter().next()?;
            let who = if direction == "ingress" { "lets nobody in" } else { "lets them reach nobody" };
            let cause = format!("its {direction} rule {} {who}: {}", place + 1, first.text);
            let edit = format!("kubectl edit {}networkpolicy/{}", in_namespace(policy), object::name(policy));
            let finding = Finding::new(Reason::PolicyPeers, policy, cause);
            Some(match first.meant {
                Some(name) => finding
                    .detail(format!("the namespace {name} is there, and does not have that label"))
                    .advise(format!("every namespace has the label {NAME}: use {NAME}: {name} in {peers}: {edit}"))
                    .advise(format!("or give it the label: kubectl label namespace {name} {}", word(&first.selector))),
                // It may be for what is to come.
                None => finding.note().advise(format!("if it is a mistake, correct {peers}: {edit}")),
            })
        })
        .collect()
}

/// Ingress rules for ports that are named as no port of the selected pods is.
pub(super) fn ports(world: &World, policy: &Value) -> Vec<Finding> {
    let Some(pods) = world.seen("pods") else { return Vec::new() };
    let selected: Vec<&Value> = pods.iter().filter(|pod| network_policy::selects(policy, pod)).collect();
    let mut known: Vec<&str> = selected
        .iter()
        .flat_map(|pod| ["/spec/containers", "/spec/initContainers"].map(|list| object::items(pod, list)))
        .flatten()
        .flat_map(|container| object::items(container, "/ports"))
        .map(|port| object::text(port, "/name"))
        .filter(|name| !name.is_empty())
        .collect();
    known.sort_unstable();
    known.dedup();
    let rules = object::items(policy, "/spec/ingress").iter().enumerate().filter(|_| !selected.is_empty());
    let edit = format!("kubectl edit {}networkpolicy/{}", in_namespace(policy), object::name(policy));
    rules
        .filter_map(|(place, rule)| {
            let ports = object::items(rule, "/ports");
            let names: Option<Vec<&str>> = ports.iter().map(|port| port.get("port")?.as_str()).collect();
            let names = names.filter(|names| !names.is_empty() && !names.iter().any(|name| known.contains(name)))?;
            let has = match known.is_empty() {
                true => "they name none".to_owned(),
                false => format!("they have {}", named(&known)),
            };
            let cause = format!(
                "its ingress rule {} lets nobody in: no pod that it selects has a port with the name {}; {has}",
                place + 1,
                named(&names)
            );
            Some(
                Finding::new(Reason::PolicyPorts, policy, cause)
                    .advise(format!("correct the name, or use the number of the pods' port: {edit}")),
            )
        })
        .collect()
}

/// Whether a peer means pods of other namespaces by their labels: then the pods of all namespaces have to be seen.
pub(crate) fn names_pods_of_others(policy: &Value) -> bool {
    let both = |peer: &Value| peer.get("namespaceSelector").is_some() && peer.get("podSelector").is_some();
    [("/spec/ingress", "/from"), ("/spec/egress", "/to")]
        .into_iter()
        .flat_map(|(rules, peers)| object::items(policy, rules).iter().flat_map(move |rule| object::items(rule, peers)))
        .any(both)
}

/// Whom a peer names, who is not there.
struct Missing {
    text: String,
    selector: String,
    /// The namespace that was probably meant: it is called like the label's value.
    meant: Option<String>,
}

/// None where somebody may be meant, or it could not be looked at.
fn missing(world: &World, policy: &Value, peer: &Value) -> Option<Missing> {
    let read = |field: &str| peer.get(field).and_then(|selector| LabelSelector::from_object(selector).ok());
    if let Some(selector) = read("namespaceSelector") {
        let namespaces = world.seen("namespaces")?;
        let meant: Vec<&str> =
            namespaces.iter().filter(|one| selector.matches(object::labels(one))).map(object::name).collect();
        if selector.is_everything() || !meant.is_empty() {
            return nobody_there(world, peer, &meant);
        }
        let text = fit::selector_text(&peer["namespaceSelector"]);
        let plain = object::items(&peer["namespaceSelector"], "/matchExpressions").is_empty();
        let labels = object::map(&peer["namespaceSelector"], "/matchLabels").iter();
        let others = labels.filter(|(key, _)| plain && *key != NAME);
        let values: Vec<&str> = others.filter_map(|(_, value)| value.as_str()).collect();
        let meant = namespaces.iter().map(object::name).find(|name| values.contains(name)).map(str::to_owned);
        let selector = text.replace(',', " ");
        return Some(Missing { text: format!("no namespace has the labels {text}"), selector, meant });
    }
    let selector = read("podSelector")?;
    let pods = world.seen("pods")?;
    if selector.is_everything() || pods.iter().any(|pod| selector.matches(object::labels(pod))) {
        return None;
    }
    let text = fit::selector_text(&peer["podSelector"]);
    let place = object::namespace(policy);
    Some(Missing {
        text: format!(
            "no pod of namespace {place} has the labels {text}, and without namespaceSelector those of others are not meant"
        ),
        selector: text,
        meant: None,
    })
}

/// The namespaces are there, and none of their pods is meant.
fn nobody_there(world: &World, peer: &Value, namespaces: &[&str]) -> Option<Missing> {
    let selector = LabelSelector::from_object(peer.get("podSelector")?).ok()?;
    let is_there = |pod: &Value| namespaces.contains(&object::namespace(pod)) && selector.matches(object::labels(pod));
    if selector.is_everything() || world.seen(ALL_PODS)?.iter().any(is_there) {
        return None;
    }
    let text = fit::selector_text(&peer["podSelector"]);
    let text_of_both = format!("no pod of the namespaces that it means ({}) has the labels {text}", named(namespaces));
    Some(Missing { text: text_of_both, selector: text, meant: None })
}
