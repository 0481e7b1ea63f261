//! Scenarios of pods that make room for others.

use super::*;

#[track_caller]
fn preempts(world: &World, pod: &PodInfo, expected: Option<(&str, &[&str])>) {
    let failure = world.search(pod, |search| search.run(&mut 0)).expect_err("no node is free");
    let Failure::Unfit { preemption, .. } = failure else { panic!("there are nodes") };
    let seen = preemption.map(|preemption| {
        let mut victims: Vec<String> = preemption.victims.iter().map(|victim| victim.name.clone()).collect();
        victims.sort();
        (preemption.node, victims)
    });
    let expected =
        expected.map(|(node, victims)| (node.to_owned(), victims.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>()));
    assert_eq!(seen, expected);
}

#[test]
fn less_important_pods_make_room() {
    let placed = |name: &str, node: &str, priority: i32, cpu: &str| {
        let mut spec = requests(json!({"cpu": cpu}));
        spec["nodeName"] = json!(node);
        spec["priority"] = json!(priority);
        labelled(name, json!({"name": name}), spec)
    };
    let important = |cpu: &str| {
        let mut spec = requests(json!({"cpu": cpu}));
        spec["priority"] = json!(100);
        pod("p", spec)
    };
    let nodes = [node("a", json!({})), node("b", json!({}))];
    // Only as many as needed, the least important of them.
    let world = World::new(
        &nodes[..1],
        &[placed("low", "a", 0, "1"), placed("middle", "a", 50, "1"), placed("high", "a", 1000, "2")],
    );
    preempts(&world, &important("1"), Some(("a", &["low"])));
    preempts(&world, &important("2"), Some(("a", &["low", "middle"])));
    preempts(&world, &important("3"), None);
    // The node where the most important victim is least important.
    let world =
        World::new(&nodes, &[placed("x", "a", 60, "4"), placed("y1", "b", 10, "2"), placed("y2", "b", 10, "2")]);
    preempts(&world, &important("4"), Some(("b", &["y1", "y2"])));
    // A budget that allows nothing counts more than that.
    world.listers.budgets.apply(
        serde_json::from_value(json!({
            "metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": {"matchLabels": {"name": "y1"}}}, "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        }))
        .expect("a budget"),
    );
    preempts(&world, &important("4"), Some(("a", &["x"])));
    let mut never = requests(json!({"cpu": "4"}));
    never["priority"] = json!(100);
    never["preemptionPolicy"] = json!("Never");
    world.allows(
        &pod("p", never),
        "0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.",
    );
}

#[test]
fn room_that_was_made_is_kept_for_whom_it_was_made() {
    let mut world = World::new(&[node("a", json!({}))], &[]);
    let mut spec = requests(json!({"cpu": "3"}));
    spec["priority"] = json!(100);
    let important = pod("important", spec);
    world.nominations.set(important.clone(), "a");
    world.allows(&important, "a");
    world.allows(
        &pod("p", requests(json!({"cpu": "2"}))),
        &format!("0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."),
    );
    world.allows(&pod("p", requests(json!({"cpu": "1"}))), "a");
}
