//! What keeps a pod from each node, found out from the objects themselves. The scheduler's own words are not needed for
//! it, and where they are there, they are checked by it.

mod affinity;
mod pods;
mod remedies;
mod room;
#[cfg(test)]
mod tests;
mod together;
pub(super) mod volumes;

pub(super) use remedies::advice;
pub(super) use room::{init_that_asks, takers};
pub(super) use together::told as together;

use std::collections::HashMap;

use ferry_meta::object;
use ferry_semantics::{node_selector, taints};
use k8s_openapi::api::core::v1::{Node, PodSpec};
use serde_json::Value;

use super::{named, pairs, plural};
use crate::gather::ALL_PODS;
use crate::world::World;

/// One thing that keeps a pod from a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    Cordoned,
    /// `key=value:effect`
    Taint {
        key: String,
        taint: String,
        /// What the pod's toleration of that key is for instead.
        near: Option<String>,
    },
    /// The labels of `nodeSelector` that the node does not have.
    Selector {
        missing: Vec<String>,
    },
    /// What `nodeAffinity` asks for, in a few words.
    Affinity {
        asks: String,
        /// Labels that the node has and must not have, where nothing else is in the way of that.
        unwanted: Vec<String>,
    },
    Ports {
        port: String,
        by: String,
    },
    Room {
        resource: String,
        wanted: String,
        free: String,
        total: String,
        /// What the node has of it, given out or not.
        capacity: String,
        ever: bool,
    },
    PodCount {
        most: String,
    },
    /// The pods that it must stand beside are not there.
    PodAffinity {
        selector: String,
        key: String,
        /// None: of every namespace.
        namespaces: Option<Vec<String>>,
    },
    /// The node is in no domain of the key by which pods stand together.
    AffinityLabel {
        key: String,
    },
    /// Pods that it must not stand beside are there.
    AntiAffinity {
        selector: String,
        key: String,
        pod: String,
    },
    /// A pod that is there does not want it beside itself.
    OthersAntiAffinity {
        pod: String,
    },
    SpreadLabel {
        key: String,
    },
    SpreadSkew {
        key: String,
        domain: String,
        here: usize,
        least: usize,
        most: i64,
        /// How many domains there must be, and how many there are, where these are too few.
        few: Option<(i64, usize)>,
    },
    VolumeAffinity {
        volume: String,
        claim: String,
        asks: String,
    },
    VolumeInUse {
        claim: String,
        by: String,
    },
    /// Volumes of the claim's class are made by hand, and none that is free is for the node.
    VolumeElsewhere {
        claim: String,
        class: String,
        volumes: Vec<String>,
    },
    /// The class makes volumes for other nodes.
    ClassTopology {
        claim: String,
        class: String,
        asks: String,
    },
    /// The driver of the claim's class says how much room it has for nodes like this one, and it is too little.
    Capacity {
        claim: String,
        class: String,
        wanted: String,
        most: Option<String>,
    },
}

impl Obstacle {
    /// Of a node, as `n …`.
    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Cordoned => "is cordoned (unschedulable)".into(),
            Self::Taint { taint, near: Some(near), .. } => {
                format!("has the taint {taint}, which the pod does not tolerate: its toleration is for {near}")
            }
            Self::Taint { taint, near: None, .. } => format!("has the taint {taint}, which the pod does not tolerate"),
            Self::Selector { missing } => format!("does not have the label {} of nodeSelector", missing.join(", ")),
            Self::Affinity { asks, .. } => format!("is not what nodeAffinity asks for: {asks}"),
            Self::Ports { port, by } => format!("has the hostPort {port} taken by {by}"),
            Self::Room { resource, wanted, free, total, ever: true, .. } => {
                format!("has {free} of {total} {resource} left, and the pod asks for {wanted}")
            }
            Self::Room { resource, wanted, total, capacity, .. } if total == "0" && capacity != "0" => {
                format!(
                    "has {capacity} {resource}, of which none may be given out (allocatable is 0), and the pod asks for {wanted}"
                )
            }
            Self::Room { resource, wanted, total, .. } if total == "0" => {
                format!("has no {resource}, and the pod asks for {wanted}")
            }
            Self::Room { resource, wanted, total, .. } => {
                format!("has {total} {resource} in all, and the pod asks for {wanted}: it will never fit")
            }
            Self::PodCount { most } => format!("runs as many pods as it may ({most})"),
            Self::PodAffinity { namespaces: Some(none), .. } if none.is_empty() => {
                "cannot have it: podAffinity asks for pods of namespaces with labels that no namespace has".to_owned()
            }
            Self::PodAffinity { selector, key, .. } => {
                format!("has no pod with {selector} in its {key}, which podAffinity asks for")
            }
            Self::AffinityLabel { key } => {
                format!("does not have the label {key}, which is the topologyKey of podAffinity")
            }
            Self::AntiAffinity { selector, key, pod } => {
                format!("has {pod} in its {key}, and podAntiAffinity keeps the pod away from {selector}")
            }
            Self::OthersAntiAffinity { pod } => format!("has {pod}, whose podAntiAffinity keeps this pod away"),
            Self::SpreadLabel { key } => {
                format!("does not have the label {key}, which topologySpreadConstraints needs on every node")
            }
            Self::SpreadSkew { key, domain, here, most, few: Some((wanted, there)), .. } => format!(
                "is in {key}={domain}, which has {here} of these pods already: minDomains={wanted} is not reached, since the nodes for it have {} of {key}, and so no domain may have more than maxSkew={most}",
                plural(*there, "value")
            ),
            Self::SpreadSkew { key, domain, here, least, most, few: None } => format!(
                "is in {key}={domain}, which has {here} of these pods already while another has {least}: one more would be over maxSkew={most}"
            ),
            Self::VolumeAffinity { volume, claim, asks } => {
                format!("cannot have the volume {volume} of claim {claim}: its nodeAffinity is for {asks}")
            }
            Self::VolumeElsewhere { claim, class, volumes } => {
                let there = match volumes.is_empty() {
                    true => String::new(),
                    false => format!(": those that are free ({}) are for other nodes", named(volumes)),
                };
                format!("has no free PersistentVolume for the claim {claim} (class {class}){there}")
            }
            Self::ClassTopology { claim, class, asks } => {
                format!("cannot have the claim {claim}: allowedTopologies of its class {class} are for {asks}")
            }
            Self::Capacity { claim, class, wanted, most } => {
                let most = match most {
                    Some(most) => format!("at most {most}"),
                    None => "none".to_owned(),
                };
                format!(
                    "has no room for the claim {claim} of {wanted}: the driver of class {class} has {most} for it there (CSIStorageCapacity)"
                )
            }
            Self::VolumeInUse { claim, by } => {
                format!("cannot have the claim {claim}, which only one pod may use: {by} does")
            }
        }
    }

    /// Whether it is about which nodes are meant at all.
    pub(super) fn is_choice(&self) -> bool {
        matches!(self, Self::Selector { .. } | Self::Affinity { .. })
    }
}

/// A node and all that keeps the pod from it.
#[derive(Clone, Debug)]
pub(super) struct Checked<'a> {
    pub node: &'a str,
    pub obstacles: Vec<Obstacle>,
}

/// What the pods that have a node take, put in order once for all nodes.
struct Taken<'a> {
    /// By the name of their node; None where the pods of the cluster could not be read.
    on: Option<HashMap<&'a str, Vec<&'a Value>>>,
    /// Pods that are there to stay, with their node.
    placed: Vec<(&'a Value, &'a Value)>,
    /// Those of them that keep others away.
    shy: Vec<(&'a Value, &'a Value)>,
    /// Namespaces, where terms of affinity mean them by their labels.
    namespaces: Option<&'a [Value]>,
}

impl<'a> Taken<'a> {
    fn new(world: &'a World, nodes: &'a [Value]) -> Self {
        let Some(pods) = world.seen(ALL_PODS) else {
            return Self { on: None, placed: Vec::new(), shy: Vec::new(), namespaces: None };
        };
        let by_name: HashMap<&str, &Value> = nodes.iter().map(|node| (object::name(node), node)).collect();
        let mut on: HashMap<&str, Vec<&Value>> = HashMap::new();
        let (mut placed, mut shy) = (Vec::new(), Vec::new());
        for pod in pods {
            let name = object::text(pod, "/spec/nodeName");
            let over = matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
            let Some(node) = by_name.get(name).filter(|_| !over) else { continue };
            on.entry(name).or_default().push(pod);
            if object::is_being_deleted(pod) {
                continue;
            }
            placed.push((pod, *node));
            if pod.pointer("/spec/affinity/podAntiAffinity").is_some() {
                shy.push((pod, *node));
            }
        }
        Self { on: Some(on), placed, shy, namespaces: world.seen("namespaces") }
    }
}

/// Every node that is known, with what keeps the pod from it. None where the nodes could not be read.
pub(super) fn check<'a>(world: &'a World, pod: &Value) -> Option<Vec<Checked<'a>>> {
    let nodes = world.seen("nodes")?;
    let spec: Option<PodSpec> = serde_json::from_value(pod["spec"].clone()).ok();
    let taken = Taken::new(world, nodes);
    let spread = pods::Spread::new(&taken, pod, spec.as_ref(), nodes);
    // A pod that is made for certain nodes, as by a DaemonSet, can go nowhere else: the others tell nothing.
    let made_for = affinity::names(pod);
    let is_meant = |node: &&Value| made_for.is_empty() || made_for.iter().any(|name| *name == object::name(node));
    let any = nodes.iter().any(|node| is_meant(&node));
    let checked = nodes.iter().filter(|node| !any || is_meant(node)).map(|node| {
        let mut obstacles = by_itself(pod, spec.as_ref(), node);
        obstacles.extend(room::obstacles(world, &taken, pod, node));
        obstacles.extend(pods::obstacles(&taken, pod, node));
        obstacles.extend(spread.iter().filter_map(|one| one.obstacle(node)));
        obstacles.extend(volumes::obstacles(world, pod, node));
        Checked { node: object::name(node), obstacles }
    });
    Some(checked.collect())
}

/// What the node says of itself.
fn by_itself(pod: &Value, spec: Option<&PodSpec>, node: &Value) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let tolerations = object::items(pod, "/spec/tolerations");
    let tolerates = |taint: &Value| taints::tolerated(tolerations.iter(), taint);
    let node_taints = object::items(node, "/spec/taints");
    let cordoned = node.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true);
    let mark = serde_json::json!({ "key": taints::UNSCHEDULABLE, "effect": taints::NO_SCHEDULE });
    if cordoned && !tolerates(&mark) {
        found.push(Obstacle::Cordoned);
    }
    for taint in node_taints {
        let (key, value, effect) =
            (object::text(taint, "/key"), object::text(taint, "/value"), object::text(taint, "/effect"));
        // Cordoning says the same twice.
        let counts = effect != taints::PREFER_NO_SCHEDULE && !(cordoned && key == taints::UNSCHEDULABLE);
        if counts && !tolerates(taint) {
            let value = if value.is_empty() { String::new() } else { format!("={value}") };
            let near = near_toleration(tolerations, taint);
            found.push(Obstacle::Taint { key: key.to_owned(), taint: format!("{key}{value}:{effect}"), near });
        }
    }
    let labels = object::labels(node);
    let missing: Vec<String> = object::map(pod, "/spec/nodeSelector")
        .iter()
        .filter(|(key, value)| labels.get(*key) != Some(value))
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if !missing.is_empty() {
        found.push(Obstacle::Selector { missing });
    }
    // The labels of nodeSelector are told by name; here it is about the affinity alone.
    let affinity = spec.map(|spec| PodSpec { affinity: spec.affinity.clone(), ..PodSpec::default() });
    if let Some(affinity) = affinity
        && let Ok(typed) = serde_json::from_value::<Node>(node.clone())
        && !node_selector::matches(&affinity, &typed)
    {
        found.push(Obstacle::Affinity { asks: affinity::text(pod), unwanted: affinity::unwanted(pod, node) });
    }
    found
}

/// A toleration of the same key that is for another value or effect.
fn near_toleration(tolerations: &[Value], taint: &Value) -> Option<String> {
    // The cluster gives every pod tolerations of its own for these, which nobody wrote.
    if object::text(taint, "/key").starts_with("node.kubernetes.io/") {
        return None;
    }
    let same = |one: &&Value| object::text(one, "/key") == object::text(taint, "/key");
    let near = tolerations.iter().find(same)?;
    let (value, effect) = (object::text(near, "/value"), object::text(near, "/effect"));
    if !effect.is_empty() && effect != object::text(taint, "/effect") {
        return Some(format!("the effect {effect}"));
    }
    (object::text(near, "/operator") != "Exists").then(|| format!("the value {value:?}"))
}

/// What is to be said of all nodes: one line for those that have the same in their way.
pub(super) fn lines(checked: &[Checked<'_>]) -> Vec<String> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for one in checked {
        let text = one.obstacles.iter().map(Obstacle::sentence).collect::<Vec<_>>().join(", and ");
        if text.is_empty() {
            continue;
        }
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, nodes)) => nodes.push(one.node),
            None => groups.push((text, vec![one.node])),
        }
    }
    groups.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    let lines = groups.into_iter().map(|(text, nodes)| match nodes.as_slice() {
        [one] => format!("node {one} {text}"),
        many => format!("each of {} nodes ({}) {text}", many.len(), named(many)),
    });
    lines.take(6).collect()
}

/// A selector of nodes in a few words.
pub(super) fn node_terms(selector: &Value) -> String {
    affinity::of_terms(object::items(selector, "/nodeSelectorTerms"))
}

/// A label selector in a few words.
pub(super) fn selector_text(selector: &Value) -> String {
    let labels = pairs(object::map(selector, "/matchLabels"));
    let expressions = object::items(selector, "/matchExpressions").iter().map(|one| {
        let values: Vec<&str> = object::items(one, "/values").iter().filter_map(Value::as_str).collect();
        let (key, values) = (object::text(one, "/key"), values.join(","));
        // As `kubectl get -l` takes it.
        match object::text(one, "/operator") {
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            operator => format!("{key} {} ({values})", operator.to_lowercase()),
        }
    });
    let all: Vec<String> = Some(labels).filter(|text| !text.is_empty()).into_iter().chain(expressions).collect();
    all.join(",")
}
