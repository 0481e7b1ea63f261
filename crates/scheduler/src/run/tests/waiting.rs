//! Pods that wait: at Permit for a plugin's word, and bound ones for the API server to tell of them.

use tokio::sync::oneshot;

use super::*;
use crate::framework::Decision;

/// Holds back pods by their name until the test decides.
struct Gatekeeper {
    decisions: parking_lot::Mutex<HashMap<String, oneshot::Receiver<Result<(), String>>>>,
    longest: Duration,
    log: Arc<watch::Sender<Vec<String>>>,
}

impl Plugin for Gatekeeper {
    fn name(&self) -> &'static str {
        "Gatekeeper"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Reserve, Point::Permit]
    }

    fn events(&self) -> Events {
        Events::NODE_ADDED
    }

    fn unreserve(&self, pod: &PodInfo, node: &str) {
        self.log.send_modify(|log| log.push(format!("{} leaves {node}", pod.name)));
    }

    fn permit(&self, pod: &PodInfo, _: &str) -> Permit {
        if pod.name == "unwanted" {
            return Permit::Reject("is not wanted".into());
        }
        let Some(decision) = self.decisions.lock().remove(&pod.name) else { return Permit::Allow };
        let decision: Decision =
            Box::pin(async move { decision.await.unwrap_or_else(|_| Err("nobody decides".into())) });
        Permit::Wait { longest: self.longest, decision }
    }
}

struct Held {
    world: World,
    senders: HashMap<&'static str, oneshot::Sender<Result<(), String>>>,
    left: Arc<watch::Sender<Vec<String>>>,
}

fn held(names: &[&'static str], longest: Duration) -> Held {
    let (mut decisions, mut senders) = (HashMap::new(), HashMap::new());
    for name in names {
        let (sender, receiver) = oneshot::channel();
        decisions.insert((*name).to_owned(), receiver);
        senders.insert(*name, sender);
    }
    let left = Arc::new(watch::Sender::default());
    let keeper = Gatekeeper { decisions: decisions.into(), longest, log: left.clone() };
    let world = World::custom(Vec::new(), vec![Arc::new(keeper)], Duration::from_secs(900));
    Held { world, senders, left }
}

fn refusal(name: &str, reason: &str) -> String {
    format!("{name} PodScheduled=False Unschedulable: 0/1 nodes are available: 1 {reason}.")
}

#[tokio::test]
async fn a_pod_waits_until_it_is_allowed_or_rejected() {
    let Held { world, mut senders, left } = held(&["patient", "refused"], PATIENCE);
    world.add_node("a", json!({}));
    world.add_pod("patient", "1", 0, None);
    world.add_pod("refused", "3", 0, None);
    world.add_pod("unwanted", "0", 0, None);
    world.add_pod("plain", "0", 0, None);
    world.sees(&["plain bound to a", &refusal("unwanted", "is not wanted")]).await;
    assert!(!world.api.log.borrow().iter().any(|line| line.starts_with("patient is on its way")), "it waits");
    // What waits holds its room.
    world.add_pod("next", "3", 0, None);
    let useless = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    world
        .sees(&[&format!(
            "next PodScheduled=False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. {useless}"
        )])
        .await;
    senders.remove("patient").expect("a sender").send(Ok(())).expect("a receiver");
    world.sees(&["patient bound to a"]).await;
    senders.remove("refused").expect("a sender").send(Err("was told no".into())).expect("a receiver");
    // And gives it back.
    world.sees(&[&refusal("refused", "was told no"), "next bound to a"]).await;
    assert!(left.borrow().contains(&"refused leaves a".to_owned()));
    let page = world.scheduler.metrics().render();
    for line in [
        "scheduler_permit_wait_duration_seconds_count{result=\"Success\"} 1",
        "scheduler_permit_wait_duration_seconds_count{result=\"Unschedulable\"} 1",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_a_rejection() {
    let Held { world, senders, .. } = held(&["forgotten"], Duration::from_millis(20));
    world.add_node("a", json!({}));
    world.add_pod("forgotten", "1", 0, None);
    world.sees(&[&refusal("forgotten", "rejected due to timeout after waiting 20ms at plugin Gatekeeper")]).await;
    // What this plugin rejected waits for a node, and is not held back twice.
    world.add_node("b", json!({}));
    let mut log = world.api.log.subscribe();
    let bound = |log: &Vec<String>| log.iter().any(|line| line.starts_with("forgotten bound to "));
    tokio::time::timeout(PATIENCE, log.wait_for(bound)).await.expect("bound").expect("the log");
    drop(senders);
    world.end().await;
}

#[tokio::test]
async fn a_bound_pod_that_nobody_tells_of_gives_its_room_back() {
    let world = World::custom(Vec::new(), Vec::new(), Duration::from_millis(20));
    world.add_node("a", json!({}));
    world.add_pod("unheard-of", "4", 0, None);
    world.sees(&["unheard-of bound to a"]).await;
    world.add_pod("next", "4", 0, None);
    world.sees(&["next bound to a"]).await;
    world.end().await;
}
