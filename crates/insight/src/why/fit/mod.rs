//! What keeps a pod from each node, found out from the objects themselves. The scheduler's own words are not needed for
//! it, and where they are there, they are checked by it.

mod affinity;
mod pods;
mod room;
#[cfg(test)]
mod tests;
pub(super) mod volumes;

pub(super) use room::takers;

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
        ever: bool,
    },
    PodCount {
        most: String,
    },
    /// The pods that it must stand beside are not there.
    PodAffinity {
        selector: String,
        key: String,
        namespaces: Vec<String>,
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
            Self::Affinity { asks } => format!("is not what nodeAffinity asks for: {asks}"),
            Self::Ports { port, by } => format!("has the hostPort {port} taken by {by}"),
            Self::Room { resource, wanted, free, total, ever: true } => {
                format!("has {free} of {total} {resource} left, and the pod asks for {wanted}")
            }
            Self::Room { resource, wanted, total, .. } if total == "0" => {
                format!("has no {resource}, and the pod asks for {wanted}")
            }
            Self::Room { resource, wanted, total, .. } => {
                format!("has {total} {resource} in all, and the pod asks for {wanted}: it will never fit")
            }
            Self::PodCount { most } => format!("runs as many pods as it may ({most})"),
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
            Self::VolumeAffinity { volume, claim } => {
                format!(
                    "cannot have the volume {volume} of claim {claim}: the volume's nodeAffinity is for other nodes"
                )
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
}

impl<'a> Taken<'a> {
    fn new(world: &'a World, nodes: &'a [Value]) -> Self {
        let Some(pods) = world.seen(ALL_PODS) else {
            return Self { on: None, placed: Vec::new(), shy: Vec::new() };
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
        Self { on: Some(on), placed, shy }
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
        found.push(Obstacle::Affinity { asks: affinity::text(pod) });
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

/// What can be done: about the nodes that are meant, and of these about those with the least in their way.
pub(super) fn advice(world: &World, checked: &[Checked<'_>], edit: &str) -> Vec<String> {
    let meant: Vec<&Checked<'_>> =
        checked.iter().filter(|one| !one.obstacles.iter().any(Obstacle::is_choice)).collect();
    let candidates: Vec<&Checked<'_>> = if meant.is_empty() { checked.iter().collect() } else { meant };
    let least = candidates.iter().map(|one| one.obstacles.len()).filter(|count| *count > 0).min().unwrap_or(0);
    let mut found: Vec<String> = Vec::new();
    // What is in the way on several nodes is told for the first of them.
    let mut told: Vec<&Obstacle> = Vec::new();
    for one in candidates.iter().filter(|one| one.obstacles.len() == least) {
        for obstacle in &one.obstacles {
            if told.contains(&obstacle) {
                continue;
            }
            told.push(obstacle);
            for text in remedy(world, one.node, obstacle, edit) {
                if !found.contains(&text) {
                    found.push(text);
                }
            }
        }
    }
    found.truncate(5);
    found
}

fn remedy(world: &World, node: &str, obstacle: &Obstacle, edit: &str) -> Vec<String> {
    let one = |text: String| vec![text];
    match obstacle {
        Obstacle::Cordoned => one(format!("kubectl uncordon {node}")),
        // These taints come and go with the node's state.
        Obstacle::Taint { key, .. } if key.starts_with("node.kubernetes.io/") => one(format!("ferry why node/{node}")),
        Obstacle::Taint { taint, .. } => vec![
            format!("tolerate {taint} in spec.tolerations: {edit}"),
            format!("or take the taint away: kubectl taint nodes {node} {taint}-"),
        ],
        Obstacle::Selector { missing } => {
            let near = missing.iter().filter_map(|pair| near_label(world, pair));
            let mut found: Vec<String> = near.collect();
            // A label that is there with another value is not changed without being told so.
            let labels = world.find("nodes", node).map(object::labels);
            let has = |pair: &String| {
                pair.split_once('=').is_some_and(|(key, _)| labels.is_some_and(|all| all.contains_key(key)))
            };
            let over = if missing.iter().any(has) { " --overwrite" } else { "" };
            found.push(format!("give a node the label: kubectl label node {node} {}{over}", missing.join(" ")));
            found.push(format!("or correct nodeSelector: {edit}"));
            found
        }
        Obstacle::Affinity { .. } => vec![
            format!("correct spec.affinity.nodeAffinity: {edit}"),
            "compare it with the names and labels of the nodes: kubectl get nodes --show-labels".to_owned(),
        ],
        Obstacle::Ports { port, by } => one(format!("use another hostPort than {port}, or none, or end {by}: {edit}")),
        Obstacle::Room { resource, total, .. } if total == "0" && resource.contains('/') => vec![
            format!("a device plug-in on a node brings {resource}: see that it runs there, or add such a node"),
            format!("or take {resource} out of the containers' resources: {edit}"),
        ],
        Obstacle::Room { resource, total, .. } if total == "0" && resource.starts_with("hugepages-") => vec![
            format!(
                "set huge pages aside on {node} (vm.nr_hugepages, or hugepages= for its kernel), and start its kubelet again"
            ),
            format!("or take {resource} out of the containers' resources: {edit}"),
        ],
        Obstacle::Room { resource, ever: false, .. } => {
            one(format!("ask for less {resource} in resources.requests, or add a larger node: {edit}"))
        }
        Obstacle::Room { resource, .. } => one(format!(
            "ask for less {resource} in resources.requests, end pods that are not needed, or add a node: {edit}"
        )),
        Obstacle::PodCount { .. } => one(format!("end pods on {node}, raise the kubelet's maxPods, or add a node")),
        Obstacle::PodAffinity { selector, namespaces, .. } => {
            let place = namespaces.first().map_or_else(|| "-A ".to_owned(), |name| format!("-n {name} "));
            vec![
                format!("see that pods with {selector} run: kubectl get pods {place}-l '{selector}'"),
                format!("or correct podAffinity: {edit}"),
            ]
        }
        Obstacle::AffinityLabel { key } => vec![
            format!("correct topologyKey in podAffinity (kubernetes.io/hostname is each node by itself): {edit}"),
            format!("or give the nodes that label: kubectl label node {node} {key}=a"),
        ],
        Obstacle::AntiAffinity { key, .. } if key != "kubernetes.io/hostname" => one(format!(
            "add a node with another value of {key}, or turn the podAntiAffinity into a preferred one: {edit}"
        )),
        Obstacle::AntiAffinity { .. } | Obstacle::OthersAntiAffinity { .. } => {
            one(format!("add a node, or turn the podAntiAffinity into a preferred one: {edit}"))
        }
        Obstacle::SpreadLabel { key } => vec![
            format!("give every node the label {key}, as in: kubectl label node {node} {key}=a"),
            format!("or use another topologyKey, or whenUnsatisfiable: ScheduleAnyway: {edit}"),
        ],
        Obstacle::SpreadSkew { key, few: Some((wanted, _)), .. } => vec![
            format!("add nodes with other values of {key}, until there are {wanted} (kubectl get nodes -L {key})"),
            format!("or lower minDomains, raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway: {edit}"),
        ],
        Obstacle::SpreadSkew { key, .. } => vec![
            format!("make room where there are fewer of these pods (kubectl get nodes -L {key}), or add a node there"),
            format!("or raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway: {edit}"),
        ],
        Obstacle::VolumeAffinity { volume, .. } => vec![format!(
            "bring back a node that the volume is for: kubectl get pv {volume} -o yaml shows its nodeAffinity"
        )],
        Obstacle::VolumeInUse { by, .. } => one(format!("end {by} first")),
        Obstacle::VolumeElsewhere { class, volumes, .. } => {
            let see = match volumes.first() {
                Some(first) => {
                    format!("let the pod go where they are: kubectl get pv {first} -o yaml shows its nodeAffinity")
                }
                None => format!("see which there are: kubectl get pv, those with STORAGECLASS {class}"),
            };
            vec![see, format!("or create a PersistentVolume with storageClassName: {class} for node {node}")]
        }
        Obstacle::ClassTopology { class, .. } => vec![
            format!("let the pod go to such nodes, or add one: {edit}"),
            format!("or use another class: kubectl get storageclass {class} -o yaml shows its allowedTopologies"),
        ],
    }
}

/// Nodes that have the label with another value.
fn near_label(world: &World, pair: &str) -> Option<String> {
    let (key, _) = pair.split_once('=')?;
    let mut others: Vec<&str> =
        world.all("nodes").iter().filter_map(|node| object::labels(node).get(key)?.as_str()).collect();
    others.sort_unstable();
    others.dedup();
    (!others.is_empty())
        .then(|| format!("nodes have {key} with the value {}: use that in nodeSelector if it is meant", named(&others)))
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
