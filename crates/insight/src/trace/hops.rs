//! The hops of an object, put together from what is known.

use ferry_meta::object;
use jiff::Timestamp;
use serde_json::Value;

use super::flight::Write;
use super::story::Story;
use crate::why;
use crate::world::{is_true, span, time_at};

/// One step, in the numbering of the twelve hops.
#[derive(Clone, Debug)]
pub struct Hop {
    pub number: u8,
    pub name: String,
    pub at: Timestamp,
    /// Microseconds since the hop before it was done.
    pub took: i64,
    pub detail: String,
    /// Who spent the time.
    pub component: &'static str,
    /// False: from a time in whole seconds.
    pub exact: bool,
}

pub struct Trace {
    pub start: Option<Timestamp>,
    pub hops: Vec<Hop>,
    /// Microseconds from the first hop to the last.
    pub total: i64,
    /// Ready, and listed where a Service selects it; or there is nothing to wait for.
    pub finished: bool,
    pub notes: Vec<String>,
    /// Microseconds by component, in the order in which they came.
    pub spent: Vec<(&'static str, i64)>,
}

pub(super) fn of(story: &Story) -> Trace {
    let mut line = Line { hops: Vec::new(), notes: Vec::new(), last: None, served: 0 };
    let pod = story.pods.first();
    beginning(story, pod, &mut line);
    if let Some(pod) = pod {
        super::pod::of_pod(story, pod, &mut line);
    }
    let finished = is_finished(story);
    if let Some(next) = next_job(story) {
        line.notes.push(format!("its next Job is due at {}", ferry_meta::time::time(next)));
    }
    line.finish(story, finished)
}

fn is_finished(story: &Story) -> bool {
    let target = &story.world.target;
    let kind = crate::world::known_kind(target);
    let job = match kind {
        "Job" => Some(target),
        "CronJob" => story.chain.get(1),
        _ => None,
    };
    // Of a Job, its controller says when it is over: a pod that failed may have a successor.
    match (kind, job) {
        ("CronJob", None) => true,
        ("Job" | "CronJob", Some(job)) => ["Complete", "Failed"].iter().any(|name| is_true(job, name)),
        _ if !super::has_pods(target) => true,
        _ => {
            let enough = story.pods.len() as i64 >= wanted(story) && wanted(story) > 0;
            enough && story.pods.iter().all(|pod| is_done(story, pod)) || (wanted(story) == 0 && kind != "Pod")
        }
    }
}

/// When a CronJob that has started none so far is due.
pub(super) fn next_job(story: &Story) -> Option<Timestamp> {
    let target = &story.world.target;
    let waits = crate::world::known_kind(target) == "CronJob" && story.chain.len() == 1;
    waits.then(|| why::next_job(&story.world, target)).flatten()
}

fn wanted(story: &Story) -> i64 {
    let target = &story.world.target;
    let number = |pointer: &str| target.pointer(pointer).and_then(Value::as_i64);
    match object::text(target, "/kind") {
        "DaemonSet" => number("/status/desiredNumberScheduled").unwrap_or(1),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController" => number("/spec/replicas").unwrap_or(1),
        _ => 1,
    }
}

fn is_done(story: &Story, pod: &Value) -> bool {
    if matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed") {
        return true;
    }
    let listed = |service: &&Value| {
        story.slices.iter().any(|slice| {
            let of = object::labels(slice).get("kubernetes.io/service-name").and_then(Value::as_str);
            of == Some(object::name(service)) && endpoint_ready(slice, pod)
        })
    };
    is_true(pod, "Ready") && story.services(pod).iter().all(listed)
}

pub(super) fn endpoint_ready(slice: &Value, pod: &Value) -> bool {
    object::items(slice, "/endpoints").iter().any(|endpoint| {
        object::text(endpoint, "/targetRef/uid") == object::uid(pod)
            && endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false)
    })
}

/// The hops so far.
pub(super) struct Line {
    pub(super) hops: Vec<Hop>,
    pub(super) notes: Vec<String>,
    /// When the last hop was done.
    pub(super) last: Option<Timestamp>,
    /// Microseconds in which the API server took in what the others wrote.
    served: i64,
}

impl Line {
    pub(super) fn add(
        &mut self,
        number: u8,
        name: impl Into<String>,
        component: &'static str,
        at: (Timestamp, bool),
        detail: String,
    ) {
        let (at, exact) = at;
        // A time in whole seconds may lie before what led to it.
        let at = if exact { at } else { self.last.map_or(at, |last| at.max(last)) };
        // Who watches may be faster than the answer to the writer, by which commit and fan-out are measured.
        if exact {
            let late = self.hops.iter_mut().rev().take_while(|hop| matches!(hop.number, 7 | 8) && hop.at > at);
            for hop in late {
                hop.took = hop.took.saturating_sub(micros(at, hop.at)).max(0);
                hop.at = at;
                self.last = Some(at);
            }
        }
        let took = self.last.map_or(0, |last| micros(last, at).max(0));
        self.hops.push(Hop { number, name: name.into(), at, took, detail, component, exact });
        self.last = Some(self.last.map_or(at, |last| last.max(at)));
    }

    fn finish(self, story: &Story, finished: bool) -> Trace {
        let start = self.hops.first().map(|hop| hop.at);
        let total = match (start, self.last) {
            (Some(start), Some(last)) => micros(start, last),
            _ => 0,
        };
        let mut spent: Vec<(&'static str, i64)> = Vec::new();
        let served = [("API server", self.served)].into_iter();
        for (component, took) in self.hops.iter().map(|hop| (hop.component, hop.took)).chain(served) {
            match spent.iter_mut().find(|(known, _)| *known == component) {
                Some((_, sum)) => *sum += took,
                None if took > 0 => spent.push((component, took)),
                None => {}
            }
        }
        let mut notes = self.notes;
        if self.hops.iter().any(|hop| !hop.exact) {
            notes.push(
                "~ by the objects and their Events, whose times are in whole seconds: the recorder has no write of it"
                    .into(),
            );
        }
        notes.extend(story.world.unseen.iter().map(|unseen| format!("not seen: {unseen}")));
        Trace { start, hops: self.hops, total, finished, notes, spent }
    }
}

pub(super) fn micros(from: Timestamp, to: Timestamp) -> i64 {
    to.as_microsecond().saturating_sub(from.as_microsecond())
}

pub(super) fn after(at: Timestamp, micros: i64) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond().saturating_add(micros)).unwrap_or(at)
}

/// When an object was made: as the recorder saw it, or as it says itself.
fn created(story: &Story, item: &Value) -> Option<((Timestamp, bool), Option<Write>)> {
    let flight = story.flight(item);
    match flight.creation() {
        Some(write) => Some(((write.received, true), Some(write.clone()))),
        None => time_at(item, "/metadata/creationTimestamp").map(|at| ((at, false), None)),
    }
}

/// The last time between `start` and `end` that somebody wanted something else of it; else when it was made.
fn wanted_since(
    story: &Story,
    item: &Value,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
) -> Option<((Timestamp, bool), Option<Write>)> {
    let flight = story.flight(item);
    let within = |write: &&Write| {
        write.is_wish()
            && start.is_some_and(|start| write.received >= start)
            && end.is_none_or(|end| write.received <= end)
    };
    let last = flight.writes.iter().rev().find(within).filter(|_| object::text(item, "/kind") != "Pod");
    last.map(|write| ((write.received, true), Some(write.clone()))).or_else(|| created(story, item))
}

/// From the client's request to the object that the pod came from, and the pod itself.
fn beginning(story: &Story, pod: Option<&Value>, line: &mut Line) {
    let target = &story.world.target;
    let pod_time =
        pod.and_then(|pod| created(story, pod)).map(|((at, exact), _)| if exact { at } else { after(at, 1_000_000) });
    // The last time that somebody wanted something else before this pod was made.
    let flight = story.flight(target);
    let wish = flight.writes.iter().rev().filter(|write| write.is_wish());
    let is_pod = object::text(target, "/kind") == "Pod";
    let wish = if is_pod {
        flight.creation()
    } else {
        wish.clone().find(|write| pod_time.is_none_or(|at| write.received <= at))
    };
    match wish.or_else(|| flight.writes.last().filter(|_| !super::has_pods(target))) {
        Some(write) => request(story, target, write, line),
        None => {
            if let Some(at) = time_at(target, "/metadata/creationTimestamp") {
                let who = manager(target, at).unwrap_or_default();
                line.add(1, format!("{} was created", story.title), "client", (at, false), who);
            }
        }
    }
    let mut owners: Vec<&Value> = story.chain.iter().skip(1).collect();
    owners.extend(pod.filter(|_| !is_pod));
    let mut maker = object::text(target, "/kind");
    let start = line.hops.first().filter(|first| first.exact).map(|first| first.at);
    for item in owners {
        if let Some((at, write)) = wanted_since(story, item, start, pod_time) {
            let before = start.is_some_and(|start| at.1 && at.0 < start);
            let kind = object::text(item, "/kind");
            let mut detail = match &write {
                Some(write) => format!("{}, revision {}", who(write), write.revision),
                None => String::new(),
            };
            let in_turn = maker == "StatefulSet" && object::text(target, "/spec/podManagementPolicy") != "Parallel";
            if in_turn && !object::name(item).ends_with("-0") {
                detail += "; once those before it were ready";
            }
            // One that stood there already took no part in this.
            if !before {
                let again = if write.as_ref().is_some_and(|write| !write.creates()) { " changed" } else { "" };
                line.add(
                    9,
                    format!("{maker} controller: {kind} {}{again}", object::name(item)),
                    "controllers",
                    at,
                    detail,
                );
                advance(line, write.as_ref());
            }
            maker = kind;
        }
    }
}

/// The next one could not know of it before it was handed on.
pub(super) fn advance(line: &mut Line, write: Option<&Write>) {
    if let Some(write) = write {
        let before = line.last.unwrap_or(write.handed);
        line.served += micros(before, write.handed).max(0);
        line.last = Some(before.max(write.handed));
    }
}

/// Who first wrote an object, as its managed fields tell.
fn manager(item: &Value, at: Timestamp) -> Option<String> {
    let entries = object::items(item, "/metadata/managedFields").iter();
    let first =
        entries.filter(|entry| time_at(entry, "/time") == Some(at)).map(|entry| object::text(entry, "/manager")).next();
    first.map(|manager| format!("by {manager}"))
}

pub(super) fn who(write: &Write) -> String {
    let account = write.user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let user = account.map_or(write.user.as_str(), |(_, name)| name);
    let agent = write.agent.split([' ', '/']).next().unwrap_or_default();
    // Components are known by their names.
    match agent.is_empty() || user.ends_with(agent) || write.user.starts_with("system:") {
        true => user.to_owned(),
        false => format!("{user} with {agent}"),
    }
}

/// Hops 1 to 8, of one request.
fn request(story: &Story, target: &Value, write: &Write, line: &mut Line) {
    let verb = match (write.verb.as_str(), write.subresource.as_str()) {
        (verb, "") => verb.to_owned(),
        (verb, subresource) => format!("{verb} {subresource}"),
    };
    let agent = write.agent.split(' ').next().unwrap_or_default();
    let by = if agent.is_empty() { write.user.clone() } else { format!("{} with {agent}", write.user) };
    line.add(1, format!("request: {verb} {}", story.title), "client", (write.received, true), by);
    let is_pod = object::text(target, "/kind") == "Pod";
    let mut at = write.received;
    for (number, name, stages) in [
        (2, "authentication", &["authentication"][..]),
        (3, "flow control, authorization", &["authorization"]),
        (4, "decoding, mutating admission", &["decode", "mutate"]),
        (5, "schema validation", &["schema"]),
        (6, "validating admission", &["validate"]),
        (7, "store: compare-and-swap, fsync", &["commit"]),
        (8, "watch fan-out", &["fan-out"]),
    ] {
        let took: i64 = stages.iter().filter_map(|stage| write.stages.get(*stage)).sum();
        at = after(at, took);
        let detail = match number {
            4 => webhooks(write),
            7 => format!("revision {}", write.revision),
            8 if is_pod => "handed to the scheduler and the kubelets".to_owned(),
            8 => "handed to whoever watches".to_owned(),
            _ => String::new(),
        };
        line.add(number, name, "API server", (at, true), detail);
    }
}

fn webhooks(write: &Write) -> String {
    let calls: Vec<String> = write.webhooks.iter().map(|(name, took)| format!("{name} {}", span(*took))).collect();
    if calls.is_empty() { String::new() } else { format!("webhooks: {}", calls.join(", ")) }
}
