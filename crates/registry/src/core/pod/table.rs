//! The row of a pod in a table: ready containers, the status word and restarts.

use std::collections::{HashMap, HashSet};

use ferry_meta::object;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cells;
use crate::cursor::Cursor;

/// What the containers' states add up to.
#[derive(Default)]
struct Sum<'a> {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: &'a str,
}

impl<'a> Sum<'a> {
    fn count(&mut self, status: &Cursor<'a>) {
        self.restarts += status.number("restartCount");
        let finished = status.get("lastState").get("terminated").text("finishedAt");
        // Times on the wire are in UTC and so order as texts.
        if finished > self.last_restart {
            self.last_restart = finished;
        }
    }
}

pub fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let at = Cursor::root(pod);
    let (spec, status) = (at.get("spec"), at.get("status"));
    let sidecars: HashSet<&str> = spec
        .items("initContainers")
        .iter()
        .filter(|c| c.text("restartPolicy") == "Always")
        .map(|c| c.text("name"))
        .collect();
    let total = spec.array("containers").len() + sidecars.len();
    let mut sum = Sum { reason: status.text("phase").to_owned(), ..Sum::default() };
    if !status.text("reason").is_empty() {
        sum.reason = status.text("reason").to_owned();
    }
    if has_condition(&status, "PodScheduled", |c| c.text("reason") == "SchedulingGated") {
        sum.reason = "SchedulingGated".to_owned();
    }
    let (initializing, of_sidecars) = starting(&mut sum, &spec, &status, &sidecars);
    if !initializing || has_condition(&status, "Initialized", |c| c.text("status") == "True") {
        (sum.restarts, sum.last_restart) = of_sidecars;
        running(&mut sum, &status);
    }
    let terminal = ["Failed", "Succeeded"].contains(&status.text("phase"));
    if object::is_being_deleted(pod) {
        if status.text("reason") == "NodeLost" {
            sum.reason = "Unknown".to_owned();
        } else if !terminal {
            sum.reason = "Terminating".to_owned();
        }
    }
    let restarts = if sum.restarts != 0 && !sum.last_restart.is_empty() {
        format!("{} ({} ago)", sum.restarts, cells::since(sum.last_restart, now))
    } else {
        sum.restarts.to_string()
    };
    let or_none = |text: &str| if text.is_empty() { "<none>".to_owned() } else { text.to_owned() };
    let address = status.array("podIPs").first().and_then(|ip| ip["ip"].as_str()).unwrap_or_default();
    vec![
        object::name(pod).into(),
        format!("{}/{total}", sum.ready).into(),
        sum.reason.into(),
        restarts.into(),
        cells::age(pod, now).into(),
        or_none(address).into(),
        or_none(spec.text("nodeName")).into(),
        or_none(status.text("nominatedNodeName")).into(),
        gates(&spec, &status).into(),
    ]
}

fn has_condition(status: &Cursor<'_>, kind: &str, test: impl Fn(&Cursor<'_>) -> bool) -> bool {
    status.items("conditions").iter().filter(|c| c.text("type") == kind).any(test)
}

/// The init containers in turn: whether one still holds the pod up, and the restarts of sidecars alone.
fn starting<'a>(
    sum: &mut Sum<'a>,
    spec: &Cursor<'a>,
    status: &Cursor<'a>,
    sidecars: &HashSet<&str>,
) -> (bool, (i64, &'a str)) {
    let mut own = Sum::default();
    let statuses = status.items("initContainerStatuses");
    for (index, one) in statuses.iter().enumerate() {
        sum.count(one);
        let sidecar = sidecars.contains(one.text("name"));
        if sidecar {
            own.count(one);
        }
        let (ended, waiting) = (one.get("state").get("terminated"), one.get("state").get("waiting"));
        if ended.exists() && ended.number("exitCode") == 0 {
            continue;
        }
        if sidecar && one.is_true("started") {
            if one.is_true("ready") {
                sum.ready += 1;
            }
            continue;
        }
        sum.reason = if ended.exists() {
            format!("Init:{}", end_reason(&ended))
        } else if !["", "PodInitializing"].contains(&waiting.text("reason")) {
            format!("Init:{}", waiting.text("reason"))
        } else {
            format!("Init:{index}/{}", spec.array("initContainers").len())
        };
        return (true, (own.restarts, own.last_restart));
    }
    (false, (own.restarts, own.last_restart))
}

fn end_reason(ended: &Cursor<'_>) -> String {
    match (ended.text("reason"), ended.number("signal")) {
        ("", 0) => format!("ExitCode:{}", ended.number("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn running<'a>(sum: &mut Sum<'a>, status: &Cursor<'a>) {
    let (mut runs, mut failure) = (false, None);
    for one in status.items("containerStatuses").iter().rev() {
        sum.count(one);
        let state = one.get("state");
        let (waiting, ended) = (state.get("waiting"), state.get("terminated"));
        if !waiting.text("reason").is_empty() {
            sum.reason = waiting.text("reason").to_owned();
        } else if ended.exists() {
            sum.reason = end_reason(&ended);
            if ended.number("exitCode") != 0 {
                failure = Some(sum.reason.clone());
            }
        } else if one.is_true("ready") && state.has("running") {
            runs = true;
            sum.ready += 1;
        }
    }
    if sum.reason == "Completed" {
        if runs && has_condition(status, "Ready", |c| c.text("status") == "True") {
            sum.reason = "Running".to_owned();
        } else if let Some(failure) = failure {
            sum.reason = failure;
        } else if runs {
            sum.reason = "NotReady".to_owned();
        }
    }
}

fn gates(spec: &Cursor<'_>, status: &Cursor<'_>) -> String {
    let gates = spec.items("readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let mut states: HashMap<&str, &str> = HashMap::new();
    for condition in status.items("conditions") {
        states.entry(condition.text("type")).or_insert(condition.text("status"));
    }
    let open = gates.iter().filter(|gate| states.get(gate.text("conditionType")) == Some(&"True"));
    format!("{}/{}", open.count(), gates.len())
}

/// What a table says of a pod that has ended.
pub fn row_conditions(pod: &Value) -> Vec<Value> {
    let (reason, message) = match object::text(pod, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_word_tells_what_holds_a_pod_up() {
        let now = ferry_meta::time::parse("2026-01-01T00:10:00Z").expect("a time");
        let check = |status: Value, want: &str| {
            let pod =
                json!({"spec": {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}, "status": status});
            assert_eq!(
                cells(&pod, now)[1..4].iter().map(|c| c.as_str().unwrap_or_default()).collect::<Vec<_>>().join(" "),
                want
            );
        };
        check(json!({"phase": "Pending"}), "0/1 Pending 0");
        check(
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 2}}}]}),
            "0/1 Init:ExitCode:2 0",
        );
        check(
            json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"finishedAt": "2026-01-01T00:08:00Z"}}}]}),
            "0/1 CrashLoopBackOff 3 (2m ago)",
        );
        check(
            json!({"phase": "Running", "containerStatuses": [{"name": "c", "ready": true, "state": {"running": {}}}]}),
            "1/1 Running 0",
        );
        check(
            json!({"phase": "Succeeded", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}),
            "0/1 Completed 0",
        );
    }
}
