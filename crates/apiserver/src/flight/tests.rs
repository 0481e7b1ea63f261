//! The recorder keeps within its memory, and tells what a write changed.

use serde_json::{Value, json};

use super::ring::{Record, Ring};
use super::{Kept, changes, kept, uid};

fn record(ring: &mut Ring, number: u64, agent: &str, value: usize) -> Record {
    let origin = ring.origin("user", agent, "patch", "status");
    let value = (value > 0).then(|| vec![b'x'; value].into());
    let key = format!("/registry/pods/default/pod-{number}").into();
    Record {
        revision: number,
        received: number as i64,
        stages: [1; 8],
        uid: 0,
        key,
        origin,
        removed: false,
        value,
        calls: None,
    }
}

#[test]
fn memory_is_bounded_whatever_is_written() {
    const BUDGET: usize = 1 << 20;
    let mut ring = Ring::new(BUDGET);
    for number in 0..50_000 {
        // Agents that are never the same, and objects of all sizes.
        let new = record(&mut ring, number, &format!("agent-{number}"), (number as usize * 37) % 30_000);
        ring.push(new);
        assert!(ring.size().1 <= BUDGET, "{:?}", ring.size());
    }
    let (records, bytes) = ring.size();
    assert!(records > 500 && bytes > BUDGET / 2, "{records} records in {bytes} bytes");
    // The newest has its value, the oldest only what was noted.
    assert!(ring.of("/registry/pods/default/pod-49999")[0].value.is_some());
    let oldest = ring.oldest().unwrap();
    let kept = ring.of(&format!("/registry/pods/default/pod-{oldest}"));
    assert_eq!((kept.len(), kept[0].value.is_none()), (1, true));
    assert_eq!(kept[0].origin.parts(), ["user", &*format!("agent-{oldest}"), "patch", "status"]);
    // What is shared is let go of with the last who shares it.
    for number in 50_000..100_000 {
        let new = record(&mut ring, number, "one", 0);
        ring.push(new);
    }
    let (records, bytes) = ring.size();
    assert!(bytes / records < 250, "{} bytes per record", bytes / records);
}

#[test]
fn renewals_and_secrets_are_not_kept() {
    for (key, want) in [
        ("/registry/leases/kube-node-lease/n", None),
        ("/registry/events/default/e", None),
        ("/registry/secrets/default/s", Some(Kept::Noted)),
        ("/registry/configmaps/default/c", Some(Kept::Noted)),
        ("/registry/pods/default/p", Some(Kept::Whole)),
        ("/registry/services/specs/default/s", Some(Kept::Whole)),
        ("/registry/stable.example.com/crontabs/default/c", Some(Kept::Whole)),
        ("elsewhere", None),
    ] {
        assert_eq!(kept(key), want, "{key}");
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
