//! What is known of the surroundings of an object: everything that causes and hops are found out from.

use std::collections::BTreeMap;

use ferry_meta::selector::LabelSelector;
use ferry_meta::{object, time};
use jiff::Timestamp;
use serde_json::Value;

/// Objects as they were read, by the plural of their resource.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub now: Timestamp,
    pub target: Value,
    lists: BTreeMap<String, Vec<Value>>,
    /// What the scheduler says of pods without a node, by name.
    pub(crate) verdicts: BTreeMap<String, Value>,
    /// The last line that a container wrote before it ended, by `pod/container`.
    pub(crate) last_lines: BTreeMap<String, String>,
    /// What could not be read, and why.
    pub unseen: Vec<String>,
}

impl World {
    pub(crate) fn new(target: Value, now: Timestamp) -> Self {
        Self { now, target, ..Self::default() }
    }

    pub(crate) fn put(&mut self, plural: &str, items: Vec<Value>) {
        self.lists.insert(plural.to_owned(), items);
    }

    pub(crate) fn all(&self, plural: &str) -> &[Value] {
        self.lists.get(plural).map(Vec::as_slice).unwrap_or_default()
    }

    /// None where it was not read, which is not the same as nothing being there.
    pub(crate) fn seen(&self, plural: &str) -> Option<&[Value]> {
        self.lists.get(plural).map(Vec::as_slice)
    }

    pub(crate) fn find(&self, plural: &str, name: &str) -> Option<&Value> {
        self.all(plural).iter().find(|item| object::name(item) == name)
    }

    /// Those that have this one as their controller.
    pub(crate) fn owned<'a>(&'a self, plural: &str, owner: &'a Value) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.all(plural).iter().filter(|item| is_owned_by(item, object::uid(owner)))
    }

    /// Pods whose labels a selector of the form `matchLabels`/`matchExpressions` selects.
    pub(crate) fn selected(&self, selector: Option<&Value>) -> Vec<&Value> {
        let Some(selector) = selector.and_then(|selector| LabelSelector::from_object(selector).ok()) else {
            return Vec::new();
        };
        self.all("pods").iter().filter(|pod| selector.matches(object::labels(pod))).collect()
    }

    /// Events about an object, oldest first.
    pub(crate) fn events(&self, about: &Value) -> Vec<&Value> {
        let mut found: Vec<&Value> = self.all("events").iter().filter(|event| concerns(event, about)).collect();
        found.sort_by_key(|event| event_time(event));
        found
    }

    /// The newest event with one of these reasons.
    pub(crate) fn event(&self, about: &Value, reasons: &[&str]) -> Option<&Value> {
        let mut found = self.events(about);
        found.retain(|event| reasons.contains(&object::text(event, "/reason")));
        found.pop()
    }
}

fn concerns(event: &Value, about: &Value) -> bool {
    let of = |field: &str| object::text(event, &format!("/involvedObject/{field}"));
    let regards = |field: &str| object::text(event, &format!("/regarding/{field}"));
    let uid = object::uid(about);
    if !uid.is_empty() && (of("uid") == uid || regards("uid") == uid) {
        return true;
    }
    // Kubelets name their node as its own uid.
    let kind = object::text(about, "/kind");
    of("name") == object::name(about) && of("kind") == kind && (kind == "Node" || of("uid").is_empty())
}

pub(crate) fn is_owned_by(item: &Value, uid: &str) -> bool {
    object::items(item, "/metadata/ownerReferences")
        .iter()
        .any(|owner| owner["controller"].as_bool() == Some(true) && object::text(owner, "/uid") == uid)
}

/// When an event last happened.
pub(crate) fn event_time(event: &Value) -> Option<Timestamp> {
    ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/firstTimestamp", "/metadata/creationTimestamp"]
        .iter()
        .find_map(|pointer| time::parse(object::text(event, pointer)))
}

pub(crate) fn time_at(item: &Value, pointer: &str) -> Option<Timestamp> {
    time::parse(object::text(item, pointer))
}

/// The condition of a type.
pub(crate) fn condition<'a>(item: &'a Value, name: &str) -> Option<&'a Value> {
    object::items(item, "/status/conditions").iter().find(|condition| object::text(condition, "/type") == name)
}

pub(crate) fn is_true(item: &Value, name: &str) -> bool {
    condition(item, name).is_some_and(|condition| object::text(condition, "/status") == "True")
}

/// The condition where it stands at that status.
pub(crate) fn standing<'a>(item: &'a Value, name: &str, status: &str) -> Option<&'a Value> {
    condition(item, name).filter(|condition| object::text(condition, "/status") == status)
}

pub(crate) fn number(item: &Value, pointer: &str) -> i64 {
    item.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// `pod/web-1`
pub(crate) fn title(item: &Value) -> String {
    format!("{}/{}", object::text(item, "/kind").to_lowercase(), object::name(item))
}

/// A time span as people say it.
pub(crate) fn span(micros: i64) -> String {
    let seconds = micros as f64 / 1e6;
    let (minutes, hours) = (micros / 60_000_000, micros / 3_600_000_000);
    if micros < 1_000 {
        format!("{micros} µs")
    } else if micros < 100_000 {
        format!("{:.1} ms", micros as f64 / 1e3)
    } else if micros < 1_000_000 {
        format!("{} ms", micros / 1_000)
    } else if minutes < 1 {
        format!("{seconds:.2} s")
    } else if hours < 1 {
        format!("{minutes} min {} s", micros / 1_000_000 % 60)
    } else if hours < 24 {
        format!("{hours} h {} min", minutes % 60)
    } else {
        format!("{} days", hours / 24)
    }
}

/// How long ago.
pub(crate) fn ago(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    match seconds {
        ..60 => format!("{seconds} s"),
        _ => span(seconds.saturating_mul(1_000_000)),
    }
}
