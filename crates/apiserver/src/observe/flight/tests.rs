//! The recorder keeps within its memory, and tells what a write changed.

use std::time::Duration;

use serde_json::{Value, json};

use super::ring::{Limits, Record, Ring};
use super::{changes, is_kept, uid};

fn record(ring: &mut Ring, number: i64, agent: &str) -> Record {
    let origin = ring.origin("user", agent, "patch", "status");
    let calls = (number % 3 == 0).then(|| [(format!("hook-{number}"), Duration::ZERO)].into());
    Record { revision: 1, received: number, stages: [1; 9], uid: [0; 16], origin, calls, removed: false }
}

#[test]
fn memory_is_bounded_whatever_is_written() {
    let limits = Limits { records: 1000, key_bytes: 20 << 10, other_bytes: 10 << 10 };
    let key =
        |number: i64| format!("/registry/pods/default/{}", "x".repeat(number as usize * 7 % 60) + &number.to_string());
    let mut ring = Ring::new(limits);
    for number in 0..20_000 {
        // Agents that are never the same, and names of all lengths.
        let new = record(&mut ring, number, &format!("agent-{number}"));
        ring.push(new, &key(number));
        assert!(ring.size().1 <= limits.bytes() + 64, "{:?}", ring.size());
    }
    let oldest = ring.oldest().unwrap();
    assert!((1..1000).contains(&(20_000 - oldest)), "{oldest}");
    // Wherever the ring begins, each is found by its key.
    for number in oldest..20_000 {
        let found = ring.of(&key(number));
        assert_eq!(found.iter().map(|record| record.received).collect::<Vec<_>>(), [number]);
        assert_eq!(found[0].origin.parts(), ["user", &*format!("agent-{number}"), "patch", "status"]);
    }
    assert!(ring.of(&key(oldest - 1)).is_empty());
    // What is shared is let go of with the last who shares it.
    for number in 20_000..40_000 {
        let new = record(&mut ring, number, "one");
        ring.push(new, "/registry/pods/default/p");
    }
    assert!(ring.size().0 > 200 && ring.of("/registry/pods/default/p").len() == ring.size().0);
}

#[test]
fn renewals_are_not_kept() {
    for (key, want) in [
        ("/registry/leases/kube-node-lease/n", false),
        ("/registry/events/default/e", false),
        ("/registry/secrets/default/s", true),
        ("/registry/services/specs/default/s", true),
        ("/registry/stable.example.com/crontabs/default/c", true),
        ("elsewhere", false),
    ] {
        assert_eq!(is_kept(key), want, "{key}");
    }
}

#[test]
fn the_uid_is_found_in_the_bytes() {
    let text = "0b9c2f3e-6f0e-4a57-9f0c-0d6b1a2c3d4e";
    let stored = json!({ "metadata": { "name": "p", "uid": text } }).to_string();
    assert_eq!(uid(stored.as_bytes()), uuid::Uuid::parse_str(text).ok().map(|uid| uid.as_u128()));
    assert_eq!(uid(br#"{"metadata":{"name":"p","uid":"short"}}"#), None);
    assert_eq!(uid(b""), None);
}

fn check(before: Value, after: Value, want: &[&str]) {
    let found = changes::between(Some(&before), &after);
    let told: Vec<String> = found
        .iter()
        .map(|change| {
            let text = |name: &str| match &change[name] {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            };
            format!("{} {} {} {}", text("what"), text("name"), text("to"), text("reason")).trim().replace("  ", " ")
        })
        .collect();
    assert_eq!(told, want);
}

#[test]
fn changes_are_what_matters_on_the_way() {
    let pod = |node: &str, ready: &str, state: Value| {
        json!({
            "spec": { "nodeName": node },
            "status": {
                "conditions": [{ "type": "Ready", "status": ready, "reason": "" }],
                "containerStatuses": [{ "name": "c", "state": state, "restartCount": 0 }],
            },
        })
    };
    let waiting = json!({ "waiting": { "reason": "ContainerCreating" } });
    check(pod("", "False", waiting.clone()), pod("n", "False", waiting.clone()), &["node n"]);
    check(
        pod("n", "False", waiting.clone()),
        pod("n", "True", json!({ "running": {} })),
        &["condition Ready True", "container c running"],
    );
    check(
        pod("n", "True", waiting.clone()),
        pod("n", "True", json!({ "terminated": { "reason": "Error", "exitCode": 1 } })),
        &["container c terminated Error"],
    );
    check(pod("n", "True", waiting.clone()), pod("n", "True", waiting), &[]);
    check(
        json!({ "metadata": { "generation": 1 }, "status": { "readyReplicas": 1 } }),
        json!({ "metadata": { "generation": 2 }, "status": { "readyReplicas": 2 } }),
        &["spec 2", "count readyReplicas 2"],
    );
    let slice = |ready: bool| json!({ "endpoints": [{ "addresses": ["10.0.0.1"], "targetRef": { "name": "p" }, "conditions": { "ready": ready } }] });
    check(slice(false), slice(true), &["endpoint p ready"]);
    check(slice(true), json!({ "endpoints": [] }), &["endpoint gone"]);
    check(
        json!({ "metadata": { "finalizers": ["a"] } }),
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
        &["deletion 2026-01-01T00:00:00Z", "finalizers []"],
    );
}
