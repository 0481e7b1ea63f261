//! Pods that must, or must not, stand together: affinity, anti-affinity, spread.

use std::collections::{BTreeMap, BTreeSet};

use ferry_meta::object;
use ferry_meta::selector::LabelSelector;
use ferry_semantics::{node_selector, taints};
use k8s_openapi::api::core::v1::{Node, PodSpec};
use serde_json::Value;

use super::{Obstacle, Taken, selector_text};
use crate::world::number;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

fn domain<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    object::labels(node).get(key).and_then(Value::as_str)
}

/// A term of affinity: which pods it means.
struct Term<'a> {
    selector: LabelSelector,
    /// None: those of every namespace.
    namespaces: Option<Vec<&'a str>>,
    key: &'a str,
    text: String,
}

fn terms<'a>(pod: &'a Value, kind: &str, all: Option<&'a [Value]>) -> Vec<Term<'a>> {
    let list = object::items(pod, &format!("/spec/affinity/{kind}/{REQUIRED}"));
    list.iter()
        .filter_map(|term| {
            let selector = term.get("labelSelector")?;
            let mut namespaces: Vec<&str> =
                object::items(term, "/namespaces").iter().filter_map(Value::as_str).collect();
            // Those that a selector means are added to those that are named; the empty one means all of them.
            let namespaces = match term.get("namespaceSelector") {
                Some(selector) if is_empty(selector) => None,
                Some(selector) => {
                    let selector = LabelSelector::from_object(selector).ok()?;
                    // Who may not look at them is told nothing of such a term.
                    let meant = all?.iter().filter(|one| selector.matches(object::labels(one)));
                    namespaces.extend(meant.map(object::name));
                    Some(namespaces)
                }
                None if namespaces.is_empty() => Some(vec![object::namespace(pod)]),
                None => Some(namespaces),
            };
            Some(Term {
                selector: LabelSelector::from_object(selector).ok()?,
                namespaces,
                key: object::text(term, "/topologyKey"),
                text: selector_text(selector),
            })
        })
        .collect()
}

fn is_empty(selector: &Value) -> bool {
    object::map(selector, "/matchLabels").is_empty() && object::items(selector, "/matchExpressions").is_empty()
}

impl Term<'_> {
    fn means(&self, pod: &Value) -> bool {
        self.namespaces.as_ref().is_none_or(|all| all.contains(&object::namespace(pod)))
            && self.selector.matches(object::labels(pod))
    }
}

pub(super) fn obstacles(taken: &Taken<'_>, pod: &Value, node: &Value) -> Vec<Obstacle> {
    let mut found = Vec::new();
    if taken.on.is_none() {
        return found;
    }
    let together = |other: &Value, key: &str| domain(node, key).is_some() && domain(node, key) == domain(other, key);
    for term in terms(pod, "podAffinity", taken.namespaces) {
        if domain(node, term.key).is_none() {
            found.push(Obstacle::AffinityLabel { key: term.key.to_owned() });
            continue;
        }
        let mut meant = taken.placed.iter().filter(|(other, _)| term.means(other)).peekable();
        // The first of a group that stands together with itself may go anywhere.
        let first = meant.peek().is_none() && term.means(pod);
        if !first && !meant.any(|(_, there)| together(there, term.key)) {
            let namespaces = term.namespaces.map(|all| all.into_iter().map(str::to_owned).collect());
            found.push(Obstacle::PodAffinity { selector: term.text, key: term.key.to_owned(), namespaces });
        }
    }
    for term in terms(pod, "podAntiAffinity", taken.namespaces) {
        let near = taken.placed.iter().find(|(other, there)| together(there, term.key) && term.means(other));
        if let Some((other, _)) = near {
            let pod = format!("pod/{}", object::name(other));
            found.push(Obstacle::AntiAffinity { selector: term.text, key: term.key.to_owned(), pod });
        }
    }
    let keeps_away = taken.shy.iter().find(|(other, there)| {
        terms(other, "podAntiAffinity", taken.namespaces)
            .iter()
            .any(|term| together(there, term.key) && term.means(pod))
    });
    if let Some((other, _)) = keeps_away {
        let pod = format!("pod/{} in {}", object::name(other), object::namespace(other));
        // Replicas that keep away from each other say it once.
        if !found.iter().any(|known| matches!(known, Obstacle::AntiAffinity { .. })) {
            found.push(Obstacle::OthersAntiAffinity { pod });
        }
    }
    found
}

/// A constraint that must be kept, with how many pods each domain has.
pub(super) struct Spread<'a> {
    key: String,
    domains: BTreeMap<&'a str, usize>,
    least: usize,
    own: usize,
    most: i64,
    /// How many domains there must be, where there are fewer.
    wanted: Option<i64>,
}

impl<'a> Spread<'a> {
    pub(super) fn new(taken: &Taken<'_>, pod: &Value, spec: Option<&PodSpec>, nodes: &'a [Value]) -> Vec<Self> {
        let hard = |constraint: &&Value| matches!(object::text(constraint, "/whenUnsatisfiable"), "" | "DoNotSchedule");
        let constraints: Vec<&Value> =
            object::items(pod, "/spec/topologySpreadConstraints").iter().filter(hard).collect();
        constraints.iter().map(|constraint| Self::of(taken, pod, spec, nodes, constraint, &constraints)).collect()
    }

    fn of(
        taken: &Taken<'_>,
        pod: &Value,
        spec: Option<&PodSpec>,
        nodes: &'a [Value],
        constraint: &Value,
        all: &[&Value],
    ) -> Self {
        let key = object::text(constraint, "/topologyKey");
        let selector = constraint.get("labelSelector").and_then(|selector| LabelSelector::from_object(selector).ok());
        // Nodes that the pod may not go to do not count, unless the constraint says so.
        let honors = object::text(constraint, "/nodeAffinityPolicy") != "Ignore";
        let honors_taints = object::text(constraint, "/nodeTaintsPolicy") == "Honor";
        let counts = |node: &&Value| {
            let every = all.iter().all(|one| domain(node, object::text(one, "/topologyKey")).is_some());
            let meant = || {
                spec.is_none_or(|spec| {
                    serde_json::from_value::<Node>((*node).clone())
                        .is_ok_and(|node| node_selector::matches(spec, &node))
                })
            };
            let stays_out = honors_taints
                && object::items(node, "/spec/taints").iter().any(|taint| {
                    object::text(taint, "/effect") != taints::PREFER_NO_SCHEDULE
                        && !taints::tolerated(object::items(pod, "/spec/tolerations").iter(), taint)
                });
            every && (!honors || meant()) && !stays_out
        };
        let eligible: Vec<&Value> = nodes.iter().filter(counts).collect();
        let names: BTreeSet<&str> = eligible.iter().map(|node| object::name(node)).collect();
        let mut domains: BTreeMap<&str, usize> =
            eligible.iter().copied().filter_map(|node| Some((domain(node, key)?, 0))).collect();
        let same = pod_keys(pod, constraint);
        for (other, there) in &taken.placed {
            let counted = object::namespace(other) == object::namespace(pod)
                && selector.as_ref().is_some_and(|selector| selector.matches(object::labels(other)))
                && pod_keys(other, constraint) == same
                && names.contains(object::name(there));
            if counted && let Some(count) = domain(there, key).and_then(|domain| domains.get_mut(domain)) {
                *count += 1;
            }
        }
        let wanted = Some(number(constraint, "/minDomains")).filter(|wanted| (domains.len() as i64) < *wanted);
        Self {
            wanted,
            key: key.to_owned(),
            least: if wanted.is_some() { 0 } else { domains.values().min().copied().unwrap_or(0) },
            domains,
            own: usize::from(selector.is_some_and(|selector| selector.matches(object::labels(pod)))),
            most: number(constraint, "/maxSkew").max(1),
        }
    }

    /// The half of the constraint that a node does not keep: it has no such label, or its domain has too many.
    pub(super) fn obstacle(&self, node: &Value) -> Option<Obstacle> {
        let Some(here) = domain(node, &self.key) else {
            return Some(Obstacle::SpreadLabel { key: self.key.clone() });
        };
        let count = *self.domains.get(here)?;
        let over = (count + self.own).saturating_sub(self.least) as i64 > self.most;
        over.then(|| Obstacle::SpreadSkew {
            key: self.key.clone(),
            domain: here.to_owned(),
            here: count,
            least: self.least,
            most: self.most,
            few: self.wanted.map(|wanted| (wanted, self.domains.len())),
        })
    }
}

/// The values of the labels in `matchLabelKeys`, which must be the same.
fn pod_keys<'a>(pod: &'a Value, constraint: &Value) -> Vec<Option<&'a Value>> {
    let keys = object::items(constraint, "/matchLabelKeys").iter().filter_map(Value::as_str);
    keys.map(|key| object::labels(pod).get(key)).collect()
}
