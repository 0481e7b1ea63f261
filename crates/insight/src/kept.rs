//! What is kept of long lists, so that a namespace of 10,000 pods and their Events needs little room.

use std::collections::HashMap;

use ferry_meta::object;
use serde_json::Value;

use crate::cluster::{Cluster, Error};
use crate::gather::ALL_PODS;
use crate::world::event_time;

/// So many Events of one object with one reason are kept, and so many in all: the newest.
const ALIKE: usize = 3;
const EVENTS: usize = 20_000;
/// Pods of the whole cluster are kept without what nobody asks of pods of others.
const PODS: usize = 100_000;

/// The list of this name, as much of it as is needed.
pub(crate) async fn read(cluster: &Cluster, name: &str, path: &str) -> Result<Vec<Value>, Error> {
    match name {
        "events" => {
            let thinned = cluster.pages(path, |events| {
                thin(events);
                Ok(())
            });
            thinned.await
        }
        ALL_PODS => {
            let mut done = 0;
            let bared = cluster.pages(path, |pods| {
                pods.iter_mut().skip(done).for_each(bare);
                done = pods.len();
                if done > PODS { Err(Error::TooMany(PODS)) } else { Ok(()) }
            });
            bared.await
        }
        _ => cluster.list(path).await,
    }
}

/// The newest Events of each object and reason.
fn thin(events: &mut Vec<Value>) {
    events.sort_by_cached_key(|event| std::cmp::Reverse(event_time(event)));
    let mut seen: HashMap<[String; 4], usize> = HashMap::new();
    events.retain(|event| {
        let of = ["/involvedObject/uid", "/involvedObject/name", "/involvedObject/fieldPath", "/reason"];
        let count = seen.entry(of.map(|field| object::text(event, field).to_owned())).or_default();
        *count += 1;
        *count <= ALIKE
    });
    events.truncate(EVENTS);
}

/// What counts of a pod for others: where it is, what it takes there, what it uses, and what holds it.
fn bare(pod: &mut Value) {
    for list in ["/spec/containers", "/spec/initContainers"] {
        for container in pod.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            keep(container, &["name", "resources", "ports", "restartPolicy"]);
        }
    }
    if let Some(status) = pod.get_mut("status") {
        keep(status, &["phase", "conditions", "podIP", "podIPs"]);
    }
}

fn keep(item: &mut Value, fields: &[&str]) {
    if let Some(map) = item.as_object_mut() {
        map.retain(|field, _| fields.contains(&field.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_events_that_are_alike_the_newest_are_kept() {
        let event = |minute: usize, reason: &str| {
            json!({
                "reason": reason, "message": minute.to_string(), "involvedObject": { "uid": "u" },
                "lastTimestamp": format!("2026-01-01T11:{minute:02}:00Z"),
            })
        };
        let mut events: Vec<Value> = (0..9).map(|minute| event(minute, "BackOff")).collect();
        events.push(event(1, "Failed"));
        thin(&mut events);
        let kept: Vec<&str> = events.iter().map(|event| object::text(event, "/message")).collect();
        assert_eq!(kept, ["8", "7", "6", "1"]);
    }

    #[test]
    fn of_a_pod_of_others_is_kept_what_counts() {
        let mut pod = json!({
            "metadata": { "name": "p", "labels": { "a": "b" } },
            "spec": { "nodeName": "n", "containers": [{ "name": "c", "env": [{ "name": "A" }], "resources": { "requests": { "cpu": "1" } } }] },
            "status": { "phase": "Running", "containerStatuses": [{ "name": "c" }], "qosClass": "Burstable" },
        });
        bare(&mut pod);
        let want = json!({
            "metadata": { "name": "p", "labels": { "a": "b" } },
            "spec": { "nodeName": "n", "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] },
            "status": { "phase": "Running" },
        });
        assert_eq!(pod, want);
    }
}
