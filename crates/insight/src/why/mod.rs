//! Why an object is not (yet) ready, scheduled, running, reachable or deleted: the first hop that is stuck, and its cause.

mod claim;
mod cluster_objects;
mod containers;
mod deletion;
mod pod;
mod render;
mod scaling;
mod scheduling;
mod service;
#[cfg(test)]
mod tests;
pub(crate) mod workload;

use ferry_meta::object;
use serde_json::{Value, json};

use crate::world::{World, condition, title};

pub use crate::gather::world as look;
pub use render::render;

/// Where on the way from the client to a reachable pod it is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    Deletion,
    Controller,
    Admission,
    Scheduler,
    Storage,
    Node,
    Kubelet,
    Ready,
    Endpoints,
    Autoscaler,
}

impl Hop {
    pub fn name(self) -> &'static str {
        match self {
            Self::Deletion => "deletion",
            Self::Controller => "controller (hop 9)",
            Self::Admission => "admission (hops 4 to 6)",
            Self::Scheduler => "scheduler (hop 10)",
            Self::Storage => "storage (before hop 11)",
            Self::Node => "node (hop 11)",
            Self::Kubelet => "kubelet (hop 11)",
            Self::Ready => "readiness (hop 12)",
            Self::Endpoints => "endpoints (hop 12)",
            Self::Autoscaler => "autoscaler",
        }
    }
}

/// One cause, in plain words, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub hop: Hop,
    /// `pod/web-1`
    pub about: String,
    pub cause: String,
    pub details: Vec<String>,
    pub advice: Vec<String>,
    /// Nothing is wrong so far: it takes its time.
    pub underway: bool,
}

impl Finding {
    fn new(hop: Hop, about: &Value, cause: impl Into<String>) -> Self {
        Self { hop, about: title(about), cause: cause.into(), details: Vec::new(), advice: Vec::new(), underway: false }
    }

    fn detail(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        if !text.trim().is_empty() {
            self.details.push(text);
        }
        self
    }

    fn advise(mut self, text: impl Into<String>) -> Self {
        self.advice.push(text.into());
        self
    }

    fn underway(mut self) -> Self {
        self.underway = true;
        self
    }

    fn to_json(&self) -> Value {
        json!({
            "hop": self.hop.name(), "about": self.about, "cause": self.cause, "details": self.details,
            "advice": self.advice, "underway": self.underway,
        })
    }
}

/// One cause: None where it is not the one.
type Cause = fn(&World, &Value) -> Option<Finding>;

/// What holds the target up, the first hop first. Empty: nothing does.
pub fn findings(world: &World) -> Vec<Finding> {
    let target = &world.target;
    if let Some(held) = deletion::held(world, target) {
        return vec![held];
    }
    match object::text(target, "/kind") {
        "Pod" => pod::findings(world, target),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "ReplicationController" => {
            workload::findings(world, target)
        }
        "Job" => workload::job(world, target),
        "CronJob" => workload::cron_job(world, target),
        "Service" => service::findings(world, target),
        "PersistentVolumeClaim" => claim::unbound(world, target).into_iter().collect(),
        "Node" => cluster_objects::node(world, target),
        "PodDisruptionBudget" => cluster_objects::budget(world, target).into_iter().collect(),
        "HorizontalPodAutoscaler" => scaling::autoscaler(world, target),
        _ => other(world, target).into_iter().collect(),
    }
}

/// The findings as a document for programs.
pub fn to_json(world: &World, findings: &[Finding]) -> Value {
    json!({
        "object": title(&world.target),
        "namespace": object::namespace(&world.target),
        "fine": findings.is_empty(),
        "findings": findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
        "unseen": world.unseen,
    })
}

/// Kinds that nobody here knows say themselves how they are.
fn other(world: &World, target: &Value) -> Option<Finding> {
    for name in ["Ready", "Available", "Established", "Healthy", "Programmed", "Accepted", "Synced"] {
        let Some(standing) = condition(target, name) else { continue };
        if object::text(standing, "/status") != "True" {
            let cause = format!("it says {name}={}: {}", object::text(standing, "/status"), said(standing));
            let warning = world.events(target).into_iter().rfind(|event| object::text(event, "/type") == "Warning");
            let told = warning.map(|event| object::text(event, "/message")).unwrap_or_default();
            return Some(Finding::new(Hop::Controller, target, cause).detail(told));
        }
    }
    None
}

/// Reason and message of a condition, a state or an event.
fn said(what: &Value) -> String {
    match (object::text(what, "/reason"), object::text(what, "/message")) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// `the first of 3`-lists do not grow without end.
fn named(items: &[&str]) -> String {
    const SHOWN: usize = 4;
    match items.len() {
        ..=SHOWN => items.join(", "),
        more => format!("{} and {} more", items[..SHOWN].join(", "), more - SHOWN),
    }
}

fn plural(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}
