//! Scenarios of plugins with arguments: what a configuration changes about a decision.

use super::*;
use crate::config::PluginConfig;
use crate::framework::{Profile, Registered};
use crate::plugins::{Making, make};

/// The allowed nodes and the best of them, by one plugin alone.
fn check(world: &World, plugin: &str, args: Value, pod: &PodInfo, allowed: &str, best: &str) {
    let config = PluginConfig { name: plugin.to_owned(), args: args.clone() };
    let made = make(plugin, &Making { config, ignored_resources: &[], client: None }).expect("a plugin");
    let profile = Profile::new("p", vec![Registered { plugin: made, weight: 1 }]);
    let cycle = Cycle { pod, cache: &world.cache, listers: &world.listers };
    let search = Search { cycle, profile: &profile, nominations: &world.nominations, extension: None, metrics: None };
    let (nodes, _) = search.feasible(&mut 0).expect("feasible nodes");
    let joined = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(joined(nodes.iter().map(|node| &*node.name).collect()), allowed, "{plugin} {args}");
    let scores = search.scores(&nodes);
    let highest = scores.iter().max().copied();
    let winners = nodes.iter().zip(&scores).filter(|(_, score)| Some(**score) == highest).map(|(node, _)| &*node.name);
    assert_eq!(joined(winners.collect()), best, "{plugin} {args}");
}

#[test]
fn arguments_change_decisions() {
    let placed = |node: &str, cpu: &str| {
        let mut spec = requests(json!({"cpu": cpu}));
        spec["nodeName"] = json!(node);
        pod(&format!("on-{node}"), spec)
    };
    let nodes = [zoned("a", "east"), zoned("b", "west"), zoned("c", "west")];
    let world = World::new(&nodes, &[placed("a", "2"), placed("b", "1")]);
    let plain = pod("p", requests(json!({"cpu": "1"})));
    let strategy = |sort: &str| json!({"scoringStrategy": {"type": sort, "resources": [{"name": "cpu", "weight": 1}]}});
    check(&world, "NodeResourcesFit", strategy("LeastAllocated"), &plain, "a b c", "c");
    check(&world, "NodeResourcesFit", strategy("MostAllocated"), &plain, "a b c", "a");
    // Best at half use: b would be there with this pod.
    let mut shape = strategy("RequestedToCapacityRatio");
    shape["scoringStrategy"]["requestedToCapacityRatio"] = json!({"shape": [
        {"utilization": 0, "score": 0}, {"utilization": 50, "score": 10}, {"utilization": 100, "score": 0},
    ]});
    check(&world, "NodeResourcesFit", shape, &plain, "a b c", "b");
    let device = pod("p", requests(json!({"example.com/gpu": "1", "cpu": "1"})));
    let mut ignoring = strategy("LeastAllocated");
    ignoring["ignoredResources"] = json!(["example.com/gpu"]);
    check(&world, "NodeResourcesFit", ignoring, &device, "a b c", "c");
    let mut group = strategy("LeastAllocated");
    group["ignoredResourceGroups"] = json!(["example.com"]);
    check(&world, "NodeResourcesFit", group, &device, "a b c", "c");
    let zone = |operator: &str| json!({"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": operator, "values": ["west"]}]});
    let added = json!({"addedAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone("In")]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}}],
    }});
    check(&world, "NodeAffinity", added, &plain, "b c", "b");
}

#[test]
fn listed_defaults_spread_pods_of_a_service() {
    let world = World::new(
        &[zoned("a", "east"), zoned("b", "west")],
        &[labelled("x", json!({"app": "web"}), json!({"nodeName": "a"}))],
    );
    let service = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}});
    world.listers.services.apply(serde_json::from_value(service).expect("a service"));
    let hard = json!({"defaultingType": "List", "defaultConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"},
    ]});
    let web = labelled("p", json!({"app": "web"}), json!({}));
    check(&world, "PodTopologySpread", hard, &web, "b", "b");
    check(&world, "PodTopologySpread", json!({"defaultingType": "System"}), &web, "a b", "b");
}
