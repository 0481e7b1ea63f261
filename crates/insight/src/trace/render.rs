//! A trace for people and for programs.

use std::fmt::Write;

use ferry_meta::object;
use serde_json::{Value, json};

use super::hops::{Hop, Trace};
use super::story::Story;
use crate::why::{self, Finding};
use crate::world::{ago, known_kind, plain, span, title};

/// What each number stands for is the numbering of the twelve hops from `kubectl apply` to a pod that can be reached.
pub fn lines(trace: &Trace) -> Vec<String> {
    let Some(start) = trace.start else { return Vec::new() };
    let line = |hop: &Hop| {
        let at = hop.at.as_microsecond().saturating_sub(start.as_microsecond());
        let at = if at == 0 { "0".to_owned() } else { span(at) };
        let mark = if hop.exact { " " } else { "~" };
        let took = if hop.took > 0 { format!("+{}", span(hop.took)) } else { String::new() };
        let text = format!("{mark}{at:>9}  {took:>10}  {:02}  {:<58}  {}", hop.number, hop.name, hop.detail);
        text.trim_end().to_owned()
    };
    trace.hops.iter().map(line).collect()
}

/// The hop that it waits for, or that failed, with the cause.
pub fn waits(story: &Story, trace: &Trace) -> Vec<String> {
    let mut lines = Vec::new();
    let since = trace.start.map(|start| ago(story.world.now, start)).unwrap_or_default();
    for finding in &story.held {
        let mark = match (finding.note, finding.underway) {
            (true, _) => "note",
            (false, true) => "waits",
            (false, false) => "stuck",
        };
        let number = finding.hop.number().map_or_else(|| "  ".to_owned(), |number| format!("{number:02}"));
        let is_own = finding.about == title(story.target());
        let about = if is_own { String::new() } else { format!("{}: ", finding.about) };
        lines.push(format!(
            " {since:>9}  {mark:>10}  {number}  {}: {about}{}",
            finding.hop.name(),
            plain(&finding.sentence())
        ));
        let more = finding.details.iter().map(String::as_str).flat_map(str::lines).map(str::to_owned);
        let advice = finding
            .advice
            .iter()
            .map(|advice| format!("{}: {advice}", if finding.note { "to change" } else { "to do" }));
        lines.extend(more.chain(advice).map(|text| format!("{:>27}{}", "", plain(&text))));
    }
    lines
}

/// The head of a trace, and where the time went.
pub fn summary(story: &Story, trace: &Trace) -> (String, String) {
    let namespace = object::namespace(story.target());
    let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
    let ended = |pod: &Value| matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
    // Times in whole seconds tell no less than one.
    let total = if trace.total == 0 { "less than a second".to_owned() } else { span(trace.total) };
    let kind = known_kind(story.target());
    let has_pods = super::has_pods(story.target());
    let is_stuck = why::held(&story.held).is_some_and(|finding| !finding.underway);
    let over = story.pods.first().is_some_and(ended) || matches!(kind, "Job" | "CronJob");
    let state = match trace.finished {
        true if kind == "CronJob" && story.chain.len() == 1 => "it has started no Job so far".to_owned(),
        true if over => format!("over after {total}"),
        true if has_pods && !is_stuck => format!("ready after {total}"),
        true if !has_pods => format!("written in {}", span(trace.total)),
        _ => {
            let since = trace.start.map(|start| ago(story.world.now, start)).unwrap_or_default();
            let what = match kind {
                _ if is_stuck => "stuck",
                "Job" | "CronJob" => "not over",
                _ => "not ready",
            };
            format!("{what} {since} after it was asked for; the last that happened was after {}", span(trace.total))
        }
    };
    let head = format!("{}{place}: {state}", story.title);
    let mut tail = String::new();
    if trace.total > 0 && !trace.spent.is_empty() {
        let _ = writeln!(tail, "\nwhere the time went");
        for (component, took) in &trace.spent {
            let share = (*took as f64 / trace.total as f64 * 100.0).round();
            let bar = "█".repeat((share / 4.0).round() as usize);
            let _ = writeln!(tail, "  {component:<17} {:>9}  {share:>3} %  {bar}", span(*took));
        }
    }
    if !trace.finished && story.held.is_empty() {
        let _ = writeln!(tail, "\nwhat holds it up: ferry why {}", named(story));
    }
    if !trace.notes.is_empty() {
        let _ = writeln!(tail);
    }
    for note in &trace.notes {
        let _ = writeln!(tail, "{note}");
    }
    if !story.recorded {
        let _ = writeln!(tail, "the server has no flight recorder, or you may not ask it (get on /debug/flight/*)");
    }
    (head, tail)
}

/// `-n default deployment.apps/web`
fn named(story: &Story) -> String {
    let namespace = object::namespace(story.target());
    if namespace.is_empty() { story.title.clone() } else { format!("-n {namespace} {}", story.title) }
}

/// Every write of the object that the recorder still has: who, when, what it changed.
pub fn writes(story: &Story) -> String {
    let mut out = String::new();
    // Of these the server notes that they were written, and not what.
    let uncounted = object::text(story.target(), "/kind") == "Secret";
    for write in &story.flight(story.target()).writes {
        let verb = if write.subresource.is_empty() {
            write.verb.clone()
        } else {
            format!("{} {}", write.verb, write.subresource)
        };
        let took: i64 = write.stages.values().sum();
        let changes: Vec<String> = write.changes.iter().map(change).collect();
        let changes = match (write.removed, changes.is_empty(), write.complete) {
            (true, ..) => "gone".to_owned(),
            (_, true, false) if !uncounted => "(no longer known what)".to_owned(),
            _ => changes.join(", "),
        };
        let _ = writeln!(
            out,
            "{}  rev {:<8} {verb:<14} {:>9}  {}  {changes}",
            ferry_meta::time::micro_time(write.received),
            write.revision,
            span(took),
            write.user
        );
    }
    out
}

fn change(change: &Value) -> String {
    let text = |name: &str| match &change[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let name = text("name");
    let of = if name.is_empty() { text("what") } else { name };
    let reason = text("reason");
    let reason = if reason.is_empty() { reason } else { format!(" ({reason})") };
    format!("{of}={}{reason}", text("to"))
}

pub fn to_json(story: &Story, trace: &Trace) -> Value {
    let hop = |hop: &Hop| {
        json!({
            "hop": hop.number, "name": hop.name, "at": ferry_meta::time::micro_time(hop.at), "tookMicros": hop.took,
            "component": hop.component, "detail": hop.detail, "exact": hop.exact,
        })
    };
    json!({
        "object": story.title,
        "namespace": object::namespace(story.target()),
        "finished": trace.finished,
        "totalMicros": trace.total,
        "waits": story.held.iter().map(Finding::to_json).collect::<Vec<_>>(),
        "hops": trace.hops.iter().map(hop).collect::<Vec<_>>(),
        "spentMicros": trace.spent.iter().map(|(component, took)| json!({ "component": component, "took": took })).collect::<Vec<_>>(),
        "pods": story.pods.iter().map(object::name).collect::<Vec<_>>(),
        "notes": trace.notes,
        "recorded": story.recorded,
    })
}
