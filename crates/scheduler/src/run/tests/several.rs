//! More than one scheduler: one that takes over from another, and two that do not know of each other.

use super::*;

fn bindings(log: &[String]) -> Vec<&String> {
    log.iter().filter(|line| line.contains(" bound to ")).collect()
}

#[tokio::test]
async fn a_successor_binds_what_the_one_before_left_half_done() {
    let world = World::new();
    world.add_node("a", json!({}));
    world.add_pod("early", "1", 0, None);
    world.sees(&["early bound to a"]).await;
    world.api.held.send_replace(true);
    world.add_pod("half", "1", 0, None);
    world.sees(&["half is on its way"]).await;
    // It dies between the decision and the answer.
    assert!(world.tasks.stop(PATIENCE).await);
    world.api.held.send_replace(false);
    world.add_pod("late", "2", 0, None);
    let (_, tasks) = start_on(&world.api, &world.nodes, Vec::new(), Vec::new(), Duration::from_secs(900));
    world.sees(&["half bound to a", "late bound to a"]).await;
    assert_eq!(bindings(&world.api.log.borrow()).len(), 3);
    assert!(tasks.stop(PATIENCE).await);
}

#[tokio::test]
async fn two_schedulers_bind_no_pod_twice() {
    let world = World::new();
    let (_, tasks) = start_on(&world.api, &world.nodes, Vec::new(), Vec::new(), Duration::from_secs(900));
    for name in ["a", "b", "c"] {
        world.add_node(name, json!({}));
    }
    for number in 0..24 {
        world.add_pod(&format!("p{number}"), "100m", 0, None);
    }
    let mut log = world.api.log.subscribe();
    let all = |log: &Vec<String>| bindings(log).len() >= 24;
    tokio::time::timeout(PATIENCE, log.wait_for(all)).await.expect("all are bound").expect("the log");
    let mut names: Vec<String> =
        bindings(&world.api.log.borrow()).iter().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 24, "each once");
    assert!(tasks.stop(PATIENCE).await);
    world.end().await;
}
