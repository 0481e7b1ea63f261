//! What can be done about what keeps a pod from the nodes.

use ferry_meta::object;

use super::super::named;
use super::{Checked, Obstacle, together, volumes};
use crate::world::World;

/// What can be done: about the nodes that are meant, and of these about those with the least in their way.
pub(in super::super) fn advice(world: &World, checked: &[Checked<'_>], edit: &str) -> Vec<String> {
    let meant: Vec<&Checked<'_>> =
        checked.iter().filter(|one| !one.obstacles.iter().any(Obstacle::is_choice)).collect();
    let candidates: Vec<&Checked<'_>> = if meant.is_empty() { checked.iter().collect() } else { meant };
    let least = candidates.iter().map(|one| one.obstacles.len()).filter(|count| *count > 0).min().unwrap_or(0);
    let apart = together::volumes_apart(world, checked).is_some();
    let mut found: Vec<String> = Vec::new();
    // What is in the way on several nodes is told for the first of them.
    let mut told: Vec<&Obstacle> = Vec::new();
    for one in candidates.iter().filter(|one| one.obstacles.len() == least) {
        for obstacle in &one.obstacles {
            if told.contains(&obstacle) {
                continue;
            }
            told.push(obstacle);
            // It is told of all nodes together.
            if apart && matches!(obstacle, Obstacle::VolumeAffinity { .. }) {
                continue;
            }
            for text in remedy(world, one.node, obstacle, edit) {
                if !found.contains(&text) {
                    found.push(text);
                }
            }
            // Of thousands of nodes, each may have something of its own in the way.
            if found.len() >= MOST {
                found.truncate(MOST);
                return found;
            }
        }
    }
    found
}

/// Labels that tell what a machine is.
const KUBELETS: [&str; 3] = ["kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/hostname"];

/// So many commands.
const MOST: usize = 5;

fn remedy(world: &World, node: &str, obstacle: &Obstacle, edit: &str) -> Vec<String> {
    let one = |text: String| vec![text];
    match obstacle {
        Obstacle::Cordoned => one(format!("kubectl uncordon {node}")),
        // These taints come and go with the node's state.
        Obstacle::Taint { key, .. }
            if key.starts_with("node.kubernetes.io/") || key.starts_with("node.cloudprovider.kubernetes.io/") =>
        {
            one(format!("ferry why node/{node}"))
        }
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
            // What a kubelet says of its machine is so whatever the label is.
            let told = |pair: &String| KUBELETS.iter().any(|key| pair.split('=').next() == Some(*key));
            found.push(match missing.iter().any(told) {
                true => format!("add a node that has {}: its kubelet sets that label itself", missing.join(" and ")),
                false => format!("give a node the label: kubectl label node {node} {}{over}", missing.join(" ")),
            });
            found.push(format!("or correct nodeSelector: {edit}"));
            found
        }
        Obstacle::Affinity { unwanted, .. } if !unwanted.is_empty() => {
            let labels: Vec<String> = unwanted.iter().map(|key| format!("{key}-")).collect();
            vec![
                format!("take the label off the node: kubectl label node {node} {}", labels.join(" ")),
                format!("or correct spec.affinity.nodeAffinity: {edit}"),
            ]
        }
        Obstacle::Affinity { .. } => vec![
            format!("correct spec.affinity.nodeAffinity: {edit}"),
            "compare it with the names and labels of the nodes: kubectl get nodes --show-labels".to_owned(),
        ],
        Obstacle::Ports { port, by } => one(format!("use another hostPort than {port}, or none, or end {by}: {edit}")),
        Obstacle::Room { resource, total, capacity, .. }
            if total == "0" && capacity != "0" && resource.contains('/') =>
        {
            one(format!(
                "the device plug-in of {resource} on {node} calls none of them healthy: see what it logs, and the devices there"
            ))
        }
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
        Obstacle::PodAffinity { namespaces: Some(none), .. } if none.is_empty() => vec![
            "compare its namespaceSelector with the namespaces: kubectl get namespaces --show-labels".to_owned(),
            format!("or correct podAffinity: {edit}"),
        ],
        Obstacle::PodAffinity { selector, namespaces, .. } => {
            let place = match namespaces.as_deref() {
                Some([name]) => format!("-n {name} "),
                _ => "-A ".to_owned(),
            };
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
        Obstacle::VolumeAffinity { volume, asks, .. } => match volumes::nodes_of(world, volume).as_slice() {
            [] => one(format!("bring back, or add, a node with {asks}: the volume {volume} is for no other")),
            there => one(format!("see what keeps the pod from {}, which the volume {volume} is for", named(there))),
        },
        Obstacle::VolumeInUse { by, .. } => one(format!("end {by} first")),
        Obstacle::Capacity { claim, .. } => vec![
            format!("make room for the driver on {node}, or add a node with more: kubectl get csistoragecapacities -A"),
            format!("or ask for less in the claim {claim}, which is to be made anew for that"),
        ],
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
