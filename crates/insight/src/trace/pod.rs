//! The hops of a pod: its node, its kubelet, its endpoints.

use ferry_meta::object;
use jiff::Timestamp;
use serde_json::Value;

use super::flight::{Flight, Write};
use super::hops::{Line, advance, after, endpoint_ready, micros, who};
use super::story::Story;
use crate::world::{condition, event_time, is_true, number, span, time_at};

/// When a pod's condition became true.
fn became(pod: &Value, flight: &Flight, name: &str) -> Option<((Timestamp, bool), Option<Write>)> {
    if !is_true(pod, name) {
        return None;
    }
    let is = |change: &Value| change["what"] == "condition" && change["name"] == name && change["to"] == "True";
    // The last time: a pod that was ready before may have been unready in between.
    let last = flight.writes.iter().rev().find(|write| write.changes.iter().any(is));
    match last {
        Some(write) => Some(((write.received, true), Some(write.clone()))),
        None => condition(pod, name).and_then(|c| time_at(c, "/lastTransitionTime")).map(|at| ((at, false), None)),
    }
}

pub(super) fn of_pod(story: &Story, pod: &Value, line: &mut Line) {
    let flight = story.flight(pod);
    let node = object::text(pod, "/spec/nodeName");
    if node.is_empty() {
        return;
    }
    let others = story.pods.len().saturating_sub(1);
    if others > 0 {
        line.notes.push(format!("{} pods; the hops are those of {}, the last of them", others + 1, object::name(pod)));
    }
    // A pod that is made for a node needs no scheduler.
    let bound = flight.change(|change| change["what"] == "node").filter(|(write, _)| !write.creates());
    match bound {
        Some((write, _)) => {
            line.add(10, format!("scheduler binds it to {node}"), "scheduler", (write.received, true), who(write));
            advance(line, Some(write));
        }
        None => {
            if let Some((at, _)) = became(pod, &flight, "PodScheduled") {
                line.add(10, format!("scheduler binds it to {node}"), "scheduler", at, String::new());
            }
        }
    }
    kubelet_hops(story, pod, &flight, line);
    endpoint_hops(story, pod, line);
}

/// What the kubelet told, in the order in which it told it.
fn kubelet_hops(story: &Story, pod: &Value, flight: &Flight, line: &mut Line) {
    let address = object::text(pod, "/status/podIP");
    let pulls = pulls(story, pod);
    if let Some((at, write)) = became(pod, flight, "PodReadyToStartContainers") {
        let told = write.as_ref().is_some_and(|write| write.has("container") && running(write));
        // A kubelet that tells all at once has nothing to say of the sandbox alone.
        if !told {
            let detail = if address.is_empty() { String::new() } else { format!("address {address}") };
            line.add(11, "kubelet: sandbox and network", "kubelet", at, detail);
        }
    }
    let has_init = !object::items(pod, "/spec/initContainers").is_empty();
    if has_init && let Some((at, _)) = became(pod, flight, "Initialized") {
        line.add(11, "kubelet: init containers are done", "kubelet", at, String::new());
    }
    let started = flight.writes.iter().find(|write| running(write)).map(|write| (write.received, true));
    let started = started.or_else(|| {
        let times = object::items(pod, "/status/containerStatuses").iter();
        times.filter_map(|status| time_at(status, "/state/running/startedAt")).max().map(|at| (at, false))
    });
    if let Some(at) = started {
        let (pulled, told) = pulls;
        let detail = if address.is_empty() {
            told
        } else {
            format!("{told}{}address {address}", if told.is_empty() { "" } else { "; " })
        };
        // The pull is told apart, since it depends on the registry and not on the node.
        let since = line.last.map_or(0, |last| micros(last, at.0));
        if pulled > 0 && pulled < since {
            let then = after(at.0, -(since - pulled).min(since) / 2);
            let names = images(pod);
            line.add(11, format!("kubelet: image {names} pulled"), "image pull", (then, false), span(pulled));
            if let Some(hop) = line.hops.last_mut() {
                hop.took = pulled;
            }
        }
        line.add(11, "kubelet: containers started", "kubelet", at, detail);
        if pulled > 0
            && pulled < since
            && let Some(hop) = line.hops.last_mut()
        {
            hop.took = since - pulled;
        }
    }
    let failed =
        |change: &Value| change["what"] == "container" && change["exitCode"].as_i64().is_some_and(|code| code != 0);
    if !is_true(pod, "Ready")
        && let Some((write, change)) = flight.change(failed)
    {
        let (name, code) = (change["name"].as_str().unwrap_or_default(), &change["exitCode"]);
        let again = number(pod, "/status/containerStatuses/0/restartCount");
        let detail = if again > 0 { format!("started again {again} times so far") } else { String::new() };
        line.add(
            11,
            format!("container {name} ended with exit code {code}"),
            "the program",
            (write.received, true),
            detail,
        );
    }
    if let Some((at, write)) = became(pod, flight, "Ready") {
        let probed = object::items(pod, "/spec/containers").iter().any(|c| c.get("readinessProbe").is_some());
        let delay =
            object::items(pod, "/spec/containers").iter().map(|c| number(c, "/readinessProbe/initialDelaySeconds"));
        let detail = match (probed, delay.max().unwrap_or(0)) {
            (false, _) => "no readiness probe".to_owned(),
            (true, 0) => "readiness probes succeeded".to_owned(),
            (true, delay) => format!("readiness probes succeeded; the first was due after {delay} s"),
        };
        line.add(12, "pod is Ready", "readiness probes", at, detail);
        advance(line, write.as_ref());
    } else if matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed") {
        let phase = object::text(pod, "/status/phase");
        if let Some((write, _)) = flight.change(|change| change["what"] == "phase" && change["to"] == phase) {
            line.add(12, format!("pod has {phase}"), "the program", (write.received, true), String::new());
        }
    }
}

fn running(write: &Write) -> bool {
    write
        .changes
        .iter()
        .any(|change| change["what"] == "container" && change["to"] == "running" && change["init"] != true)
}

fn images(pod: &Value) -> String {
    let names: Vec<&str> = object::items(pod, "/spec/containers").iter().map(|c| object::text(c, "/image")).collect();
    names.join(", ")
}

/// How long images were pulled, as the Events tell, and what to say of it.
fn pulls(story: &Story, pod: &Value) -> (i64, String) {
    let mut sum = 0;
    let mut present = false;
    for event in story.world.events(pod) {
        let message = object::text(event, "/message");
        if object::text(event, "/reason") != "Pulled" || event_time(event).is_none() {
            continue;
        }
        if message.contains("already present") {
            present = true;
        } else if let Some(took) = pulled_in(message) {
            sum += took;
        }
    }
    (sum, if present && sum == 0 { "image already on the node".to_owned() } else { String::new() })
}

/// `… in 2ms (358ms including waiting). …`: the pod has waited for the longer of the two.
fn pulled_in(message: &str) -> Option<i64> {
    let rest = message.split(" in ").nth(1)?;
    let whole = rest.split_once('(').and_then(|(_, rest)| duration(rest.split(' ').next()?));
    whole.or_else(|| duration(rest.split(' ').next()?))
}

/// The microseconds of a span at the end of a sentence.
fn duration(text: &str) -> Option<i64> {
    Some(ferry_semantics::duration::parse(text.trim_end_matches('.')).ok()? / 1_000)
}

/// The slices of the Services that select it.
fn endpoint_hops(story: &Story, pod: &Value, line: &mut Line) {
    let name = object::name(pod);
    for slice in story.slices.iter().filter(|slice| endpoint_ready(slice, pod)) {
        let service =
            object::labels(slice).get("kubernetes.io/service-name").and_then(Value::as_str).unwrap_or_default();
        let flight = story.flight(slice);
        let is = |change: &Value| change["what"] == "endpoint" && change["name"] == name && change["to"] == "ready";
        let hop = format!("service {service}: EndpointSlice lists it");
        let detail = "handed to the proxies and DNS".to_owned();
        match flight.writes.iter().rev().find(|write| write.changes.iter().any(is)) {
            Some(write) => {
                line.add(12, hop, "endpoints", (write.received, true), detail);
                advance(line, Some(write));
            }
            None => {
                let ready = condition(pod, "Ready").and_then(|c| time_at(c, "/lastTransitionTime"));
                let told = object::annotations(slice).get("endpoints.kubernetes.io/last-change-trigger-time");
                let told = told.and_then(Value::as_str).and_then(ferry_meta::time::parse);
                if let Some(at) = told.filter(|told| ready.is_some_and(|ready| *told >= ready)).or(ready) {
                    line.add(12, hop, "endpoints", (at, false), detail);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn spans_of_go_are_read() {
        for (text, want) in [("1.2s", 1_200_000), ("350ms", 350_000), ("1m2.5s", 62_500_000), ("87.5µs", 87)] {
            assert_eq!(super::duration(text), Some(want), "{text}");
        }
        assert_eq!(super::duration("soon"), None);
    }
}
