//! Pods on their way through the queue, with time as an argument.

use super::*;
use crate::plugins;
use crate::testing::pod;
use serde_json::json;

fn queue() -> Queue {
    let profiles = [("default-scheduler".to_owned(), plugins::default_profile("default-scheduler"))];
    Queue::new(Arc::new(profiles.into()), Duration::from_secs(1), Duration::from_secs(10))
}

fn popped(queue: &mut Queue, now: Instant) -> Option<String> {
    queue.pop(now).map(|queued| queued.pod.name.clone())
}

#[test]
fn what_comes_in_and_who_rejects_is_counted() {
    let mut queue = queue();
    let mut now = Instant::now();
    queue.set(pod("a", json!({})), true, now);
    queue.set(pod("gated", json!({"schedulingGates": [{"name": "g"}]})), true, now);
    popped(&mut queue, now);
    assert_eq!(queue.in_flight(), 1);
    queue.failed("a", vec!["TaintToleration"], now);
    let arrivals: Vec<_> = queue.arrivals().collect();
    let expected = [
        ("active", "UnscheduledPodAdd", 1),
        ("gated", "UnscheduledPodAdd", 1),
        ("unschedulable", "ScheduleAttemptFailure", 1),
    ];
    assert_eq!(arrivals, expected);
    let scheduler = || "default-scheduler".to_owned();
    let rejected: Vec<_> = queue.rejected().collect();
    assert_eq!(rejected, [("SchedulingGates", scheduler(), 1), ("TaintToleration", scheduler(), 1)]);
    now += Duration::from_secs(5);
    queue.happen(&happening(Events::NODE_TAINTS), now);
    assert_eq!(queue.arrivals().collect::<Vec<_>>(), [("active", "NodeUpdateNodeTaint", 1)]);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
    queue.remove("a");
    queue.remove("gated");
    let rejected: Vec<_> = queue.rejected().map(|(_, _, count)| count).collect();
    assert_eq!(rejected, [0, 0], "told once more, as none");
    assert_eq!((queue.rejected().count(), queue.in_flight()), (0, 0));
}

fn happening(events: Events) -> Happening<'static> {
    Happening::of(events)
}

#[test]
fn important_pods_go_first_then_older_ones() {
    let mut queue = queue();
    let now = Instant::now();
    for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", -1), ("e", 5)] {
        queue.set(pod(name, json!({"priority": priority})), true, now);
    }
    queue.remove("c");
    let order: Vec<String> = std::iter::from_fn(|| popped(&mut queue, now)).collect();
    assert_eq!(order, ["b", "e", "a", "d"]);
}

#[test]
fn a_rejected_pod_waits_for_what_can_help_it() {
    let mut queue = queue();
    let mut now = Instant::now();
    queue.set(pod("a", json!({})), true, now);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
    queue.failed("a", vec!["TaintToleration"], now);
    assert_eq!(popped(&mut queue, now), None);
    queue.happen(&happening(Events::POD_GONE), now);
    assert_eq!(popped(&mut queue, now), None, "no pod that goes changes a taint");
    queue.happen(&happening(Events::NODE_TAINTS), now);
    // Its penalty is not over, but nobody else waits.
    queue.set(pod("b", json!({})), true, now);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("b"));
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
    queue.errored("a", now);
    assert_eq!(popped(&mut queue, now), None, "an error must wait");
    assert_eq!(queue.next_deadline(), Some(now + Duration::from_secs(2)));
    now += Duration::from_secs(2);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
    queue.failed("a", vec!["TaintToleration"], now);
    now += LONGEST_WAIT;
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"), "the safety net");
}

#[test]
fn what_happens_while_a_pod_is_tried_is_not_missed() {
    let mut queue = queue();
    let now = Instant::now();
    queue.set(pod("a", json!({})), true, now);
    queue.happen(&happening(Events::NODE_TAINTS), now);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
    queue.happen(&happening(Events::POD_GONE), now);
    queue.failed("a", vec!["TaintToleration"], now);
    assert_eq!(popped(&mut queue, now), None, "nothing that could help it happened since it was taken");
    queue.happen(&happening(Events::NODE_TAINTS), now);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
    queue.happen(&happening(Events::NODE_TAINTS), now);
    queue.failed("a", vec!["TaintToleration"], now);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"), "the taints changed while it was tried");
    queue.failed("a", vec!["TaintToleration"], now);
    assert_eq!(popped(&mut queue, now), None);
}

#[test]
fn a_pod_that_waits_in_vain_is_tried_after_a_while() {
    let mut queue = queue();
    let now = Instant::now();
    queue.set(pod("a", json!({})), true, now);
    assert!(!queue.give_up_waiting("a", now), "it does not wait");
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
    assert!(!queue.give_up_waiting("a", now), "it is being tried");
    queue.failed("a", vec!["NodeResourcesFit"], now);
    assert!(queue.give_up_waiting("a", now));
    assert_eq!((popped(&mut queue, now), queue.next_deadline()), (None, Some(now + Duration::from_secs(1))));
    assert!(!queue.give_up_waiting("a", now), "once is enough");
}

#[test]
fn a_pod_is_counted_in_one_place() {
    let mut queue = queue();
    let mut now = Instant::now();
    let check = |queue: &Queue, expected: [usize; 4]| assert_eq!(queue.sizes().map(|(_, count)| count), expected);
    queue.set(pod("a", json!({})), true, now);
    queue.set(pod("gated", json!({"schedulingGates": [{"name": "wait"}]})), true, now);
    check(&queue, [1, 0, 0, 1]);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
    check(&queue, [0, 0, 0, 1]);
    queue.failed("a", vec!["NodeResourcesFit"], now);
    check(&queue, [0, 0, 1, 1]);
    // Long after its failure it is tried at once.
    now += Duration::from_secs(60);
    queue.happen(&happening(Events::NODE_ADDED), now);
    check(&queue, [1, 0, 0, 1]);
    queue.happen(&happening(Events::NODE_ADDED), now);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("a"));
    queue.errored("a", now);
    check(&queue, [0, 1, 0, 1]);
    queue.remove("a");
    queue.remove("gated");
    check(&queue, [0, 0, 0, 0]);
}

#[test]
fn gated_and_foreign_pods_are_not_tried() {
    let mut queue = queue();
    let now = Instant::now();
    queue.set(pod("gated", json!({"schedulingGates": [{"name": "wait"}]})), true, now);
    queue.set(pod("foreign", json!({"schedulerName": "other"})), true, now);
    assert_eq!(popped(&mut queue, now), None);
    queue.happen(&happening(Events::ALL), now);
    assert_eq!(popped(&mut queue, now), None);
    queue.set(pod("gated", json!({})), true, now);
    assert_eq!(popped(&mut queue, now).as_deref(), Some("gated"));
}
