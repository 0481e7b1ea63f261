use super::*;

/// Pods as JSON in the order in which they should go.
fn check(pods: &[serde_json::Value]) {
    let now = Timestamp::from_second(100_000).expect("a time");
    let pods: Vec<Arc<Pod>> =
        pods.iter().map(|json| Arc::new(serde_json::from_value(json.clone()).expect("a pod"))).collect();
    for turn in 0..pods.len() {
        let mut shuffled = pods.clone();
        shuffled.rotate_left(turn);
        for surplus in 1..pods.len() {
            let chosen = choose(&shuffled, || pods.clone(), surplus, now);
            let names = |pods: &[Arc<Pod>]| pods.iter().map(|pod| pod.metadata.name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&chosen), names(&pods[..surplus]));
        }
    }
}

fn ready(name: &str, node: &str, since: i64) -> serde_json::Value {
    let at = Timestamp::from_second(since).expect("a time").to_string();
    serde_json::json!({
        "metadata": { "name": name, "uid": name }, "spec": { "nodeName": node, "containers": [] },
        "status": {
            "phase": "Running", "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": at }],
        },
    })
}

#[test]
fn earlier_in_life_goes_first() {
    let mut costly = ready("costly", "d", 10);
    costly["metadata"]["annotations"] = serde_json::json!({ COST_ANNOTATION: "100" });
    let mut cheap = ready("cheap", "c", 10);
    cheap["metadata"]["annotations"] = serde_json::json!({ COST_ANNOTATION: "-5" });
    check(&[
        serde_json::json!({ "metadata": { "name": "unassigned" } }),
        serde_json::json!({ "metadata": { "name": "pending" }, "spec": { "nodeName": "e", "containers": [] } }),
        serde_json::json!({
            "metadata": { "name": "unready" }, "spec": { "nodeName": "e", "containers": [] },
            "status": { "phase": "Running" },
        }),
        cheap,
        ready("young", "a", 99_000),
        ready("old", "b", 100),
        costly,
    ]);
}

#[test]
fn crowded_nodes_are_relieved_and_restarters_go() {
    check(&[ready("doubled-1", "a", 10), ready("doubled-2", "a", 11), ready("alone", "b", 99_000)]);
    let mut restarted = ready("restarted", "b", 10);
    restarted["status"]["containerStatuses"] = serde_json::json!([
        { "name": "c", "restartCount": 7, "image": "", "imageID": "", "ready": true },
    ]);
    check(&[restarted, ready("steady", "a", 10)]);
}

/// Many pods of a few ages with other differences between them: whatever order they come in, the same ones go.
#[test]
fn the_order_holds_for_any_number_of_pods() {
    let now = Timestamp::from_second(100_000).expect("a time");
    let pods: Vec<Arc<Pod>> = (0..2000_i64)
        .map(|n| {
            let mut json = ready(&format!("p{:04}", n * 7919 % 2000), &format!("n{}", n % 3), 99_900 + n % 40);
            let count = if n % 5 == 0 { n % 4 } else { 0 };
            json["status"]["containerStatuses"] =
                serde_json::json!([{ "name": "c", "restartCount": count, "image": "", "imageID": "", "ready": true }]);
            Arc::new(serde_json::from_value(json).expect("a pod"))
        })
        .collect();
    let names = |pods: &[Arc<Pod>]| pods.iter().map(|pod| pod.metadata.name.clone()).collect::<Vec<_>>();
    let first = names(&choose(&pods, || pods.clone(), 1000, now));
    for turn in [1, 333, 1000, 1999] {
        let mut turned = pods.clone();
        turned.rotate_left(turn);
        assert_eq!(names(&choose(&turned, || pods.clone(), 1000, now)), first);
    }
}
