//! Rules of NetworkPolicies that are for nobody: the namespaces or the pods that they name are not there.

use ferry_meta::object;
use ferry_meta::selector::LabelSelector;
use serde_json::Value;

use super::{Finding, Reason, fit, in_namespace};
use crate::world::World;

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
                    .advise(format!("or give it the label: kubectl label namespace {name} {}", first.selector)),
                // It may be for what is to come.
                None => finding.note().advise(format!("if it is a mistake, correct {peers}: {edit}")),
            })
        })
        .collect()
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
        if selector.is_everything() || namespaces.iter().any(|one| selector.matches(object::labels(one))) {
            return None;
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
