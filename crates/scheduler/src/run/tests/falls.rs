//! A panic of the loop.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Ends the loop in a panic at its first look at a pod of this name.
struct Mine {
    fuse: AtomicBool,
}

impl Plugin for Mine {
    fn name(&self) -> &'static str {
        "Mine"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Permit]
    }

    fn permit(&self, pod: &PodInfo, _: &str) -> Permit {
        assert!(pod.name != "mine" || !self.fuse.swap(false, Ordering::SeqCst), "on purpose");
        Permit::Allow
    }
}

#[tokio::test]
async fn the_loop_starts_again_and_knows_what_it_knew() {
    let mine = Mine { fuse: AtomicBool::new(true) };
    let world = World::custom(Vec::new(), vec![Arc::new(mine)], Duration::from_secs(900));
    world.add_node("a", json!({}));
    world.add_pod("before", "3", 0, None);
    world.sees(&["before bound to a"]).await;
    assert_eq!(world.tasks.failure(), None);
    world.add_pod("mine", "1", 0, None);
    while world.tasks.failure().is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.tasks.failure().as_deref(), Some("task/test/scheduler: it panicked: on purpose"));
    world.add_pod("large", "2", 0, None);
    world.sees(&["mine bound to a"]).await;
    assert_eq!(world.tasks.failure(), None);
    // What was bound by the life before takes its room.
    let useless = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    let full =
        format!("large PodScheduled=False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. {useless}");
    world.sees(&[&full]).await;
    world.end().await;
}
