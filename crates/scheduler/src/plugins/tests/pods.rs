//! Scenarios of pods that look at other pods: affinity and spreading.

use super::*;

fn term(app: &str, key: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}})
}

#[test]
fn pods_stay_together_or_apart() {
    let zone = "topology.kubernetes.io/zone";
    let nodes = [zoned("a", "east"), zoned("b", "east"), zoned("c", "west"), node("d", json!({}))];
    let mut world = World::new(&nodes, &[labelled("db", json!({"app": "db"}), json!({"nodeName": "a"}))]);
    let near =
        |terms: Value| json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}});
    let away = |terms: Value| json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}});
    world.allows(&pod("p", near(json!([term("db", zone)]))), "a b");
    world.allows(&pod("p", near(json!([term("db", "kubernetes.io/hostname")]))), "a");
    world.allows(&pod("p", away(json!([term("db", zone)]))), "c d");
    world.allows(
        &pod("p", near(json!([term("web", zone)]))),
        &format!("0/4 nodes are available: 4 node(s) didn't match pod affinity rules. preemption: 0/4 nodes are available: 4 {NOT_HELPFUL}."),
    );
    // The first of a group may go anywhere that has the topology.
    world.allows(&labelled("p", json!({"app": "web"}), near(json!([term("web", zone)]))), "a b c");
    // Another namespace is not meant, unless it is named or selected.
    let elsewhere = |mut term: Value, key: &str, value: Value| {
        term[key] = value;
        pod_with("p", json!({"metadata": {"namespace": "other"}, "spec": near(json!([term]))}))
    };
    world.allows(&elsewhere(term("db", zone), "namespaces", json!(["default"])), "a b");
    world.allows(&elsewhere(term("db", zone), "namespaceSelector", json!({})), "a b");
    world.cache.set_namespace("default", Some([("team".to_owned(), "x".to_owned())].into()));
    world.allows(&elsewhere(term("db", zone), "namespaceSelector", json!({"matchLabels": {"team": "x"}})), "a b");
    // Placed pods may object as well.
    let objecting = labelled("shy", json!({"app": "shy"}), {
        let mut spec = away(json!([term("loud", zone)]));
        spec["nodeName"] = json!("c");
        spec
    });
    let world = World::new(&nodes[2..3], &[objecting]);
    world.allows(&labelled("p", json!({"app": "quiet"}), json!({})), "c");
    world.allows(
        &labelled("p", json!({"app": "loud"}), json!({})),
        &format!("0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules. preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."),
    );
}

#[test]
fn wishes_about_other_pods_decide_between_equals() {
    let zone = "topology.kubernetes.io/zone";
    let nodes = [zoned("a", "east"), zoned("b", "east"), zoned("c", "west")];
    let world = World::new(&nodes, &[labelled("db", json!({"app": "db"}), json!({"nodeName": "a"}))]);
    let wish = |sort: &str| json!({"affinity": {sort: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term("db", zone)}]}}});
    world.prefers(&pod("p", wish("podAffinity")), "b");
    world.prefers(&pod("p", wish("podAntiAffinity")), "c");
}

#[test]
fn pods_spread_over_domains() {
    let zone = "topology.kubernetes.io/zone";
    let nodes = [zoned("a", "east"), zoned("b", "west"), node("c", json!({}))];
    let web = |name: &str, node: &str| labelled(name, json!({"app": "web"}), json!({"nodeName": node}));
    let spread = |mut constraint: Value| {
        let base = json!({"maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}});
        for (key, value) in base.as_object().expect("a map") {
            if constraint[key].is_null() {
                constraint[key] = value.clone();
            }
        }
        labelled("p", json!({"app": "web"}), json!({"topologySpreadConstraints": [constraint]}))
    };
    let world = World::new(&nodes, &[web("x", "a")]);
    world.allows(&spread(json!({})), "b");
    world.allows(&spread(json!({"maxSkew": 2})), "a b");
    // Two domains exist where three are wanted: the missing one counts as empty, so that nothing may be above one.
    world.allows(&spread(json!({"minDomains": 3})), "b");
    let world = World::new(&nodes, &[web("x", "a"), web("y", "b")]);
    world.allows(&spread(json!({})), "a b");
    let unmet = World::new(&nodes, &[web("x", "a"), web("y", "b")]);
    unmet.allows(
        &spread(json!({"minDomains": 3})),
        &format!(
            "0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label), \
             2 node(s) didn't match pod topology spread constraints. preemption: 0/3 nodes are available: 1 {NOT_HELPFUL}, 2 {NO_VICTIMS}."
        ),
    );
    // A zone whose only node is tainted counts, unless the policy honors taints.
    let tainted = node(
        "t",
        json!({"metadata": {"labels": {zone: "north"}}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
    );
    let world = World::new(&[nodes[0].clone(), nodes[1].clone(), tainted], &[web("x", "a"), web("y", "b")]);
    world.allows(
        &spread(json!({})),
        &format!(
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match pod topology spread constraints. \
             preemption: 0/3 nodes are available: 1 {NOT_HELPFUL}, 2 {NO_VICTIMS}."
        ),
    );
    world.allows(&spread(json!({"nodeTaintsPolicy": "Honor"})), "a b");
    // As a wish it only decides.
    let world = World::new(&nodes[..2], &[web("x", "a")]);
    world.prefers(&spread(json!({"whenUnsatisfiable": "ScheduleAnyway"})), "b");
}

#[test]
fn pods_of_a_controller_spread_by_themselves() {
    let world = World::new(
        &[node("a", json!({})), node("b", json!({"status": {"allocatable": {"memory": "7900Mi"}}}))],
        &[
            labelled("x", json!({"app": "web"}), json!({"nodeName": "a"})),
            labelled("other", json!({}), json!({"nodeName": "b"})),
        ],
    );
    world.listers.replica_sets.apply(
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}},
        }))
        .expect("a replica set"),
    );
    let owned = pod_with(
        "p",
        json!({"metadata": {"labels": {"app": "web"}, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true},
        ]}}),
    );
    world.prefers(&owned, "b");
    world.prefers(&labelled("p", json!({"app": "web"}), json!({})), "a");
}
