//! The conditions of a pod that belong to the kubelet. All others stay as they are.

use k8s_openapi::api::core::v1::{Container, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::containers::Statuses;
use super::{Observed, seconds};
use crate::runtime::RunState;
use crate::{plan, pod};

const OWNED: [&str; 5] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

const RESTARTING: &str = "AllContainersRestarting";

struct Judgement {
    holds: bool,
    reason: &'static str,
    message: String,
}

const TRUE: Judgement = Judgement { holds: true, reason: "", message: String::new() };

fn no(reason: &'static str, message: impl Into<String>) -> Judgement {
    Judgement { holds: false, reason, message: message.into() }
}

pub(super) fn conditions(observed: &Observed<'_>, statuses: &Statuses, phase: &str) -> Vec<PodCondition> {
    let current = pod::status(observed.pod).conditions.as_deref().unwrap_or_default();
    let mut all: Vec<PodCondition> = current.iter().filter(|c| !OWNED.contains(&c.type_.as_str())).cloned().collect();
    if let Some(message) = observed.end_reason.and_then(|reason| reason.disrupts.clone()) {
        const KIND: &str = "DisruptionTarget";
        all.retain(|c| c.type_ != KIND);
        all.push(condition(observed, KIND, Judgement { holds: true, reason: "TerminationByKubelet", message }));
    }
    let containers_ready = containers_ready(observed, statuses, phase);
    let sandbox = match plan::sandbox_problem(observed.pod, observed.state) {
        None => TRUE,
        Some(problem) => no("PodSandboxNotReady", problem),
    };
    let ready = ready(observed, &containers_ready, &all);
    let judged = [sandbox, initialized(observed, statuses, phase), ready, containers_ready, TRUE];
    if pod::could_restart_all(observed.pod) {
        all.retain(|c| c.type_ != RESTARTING);
        all.push(condition(observed, RESTARTING, restarting(observed, phase)));
    }
    for (kind, judgement) in OWNED.into_iter().zip(judged) {
        all.push(condition(observed, kind, judgement));
    }
    all
}

fn condition(observed: &Observed<'_>, kind: &str, judgement: Judgement) -> PodCondition {
    let status = if judgement.holds { "True" } else { "False" };
    let known = |list: &Option<Vec<PodCondition>>| list.iter().flatten().find(|c| c.type_ == kind).cloned();
    let old = known(&observed.old.conditions).or_else(|| known(&pod::status(observed.pod).conditions));
    let since = old.filter(|c| c.status == status).and_then(|c| c.last_transition_time);
    let text = |text: &str| if text.is_empty() { None } else { Some(text.to_owned()) };
    PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: text(judgement.reason),
        message: text(&judgement.message),
        last_transition_time: Some(since.unwrap_or(Time(seconds(observed.now)))),
        observed_generation: observed.pod.metadata.generation,
        last_probe_time: None,
    }
}

fn restarting(observed: &Observed<'_>, phase: &str) -> Judgement {
    match phase {
        "Succeeded" => return no("PodCompleted", ""),
        "Failed" => return no("PodFailed", ""),
        _ => {}
    }
    let mut all = pod::containers(observed.pod).iter().chain(pod::init_containers(observed.pod));
    let begun = all.any(|container| {
        let latest = observed.state.latest(&container.name).filter(|record| record.state == RunState::Exited);
        latest.is_some_and(|record| pod::restarts_all(container, record.exit_code))
    });
    if begun {
        let message = "container exited with restart policy rule".to_owned();
        return Judgement { holds: true, reason: "RestartAllContainersStarted", message };
    }
    no("", "")
}

/// As Go prints a list of names.
fn names(list: &[&str]) -> String {
    format!("[{}]", list.join(" "))
}

fn containers_ready(observed: &Observed<'_>, statuses: &Statuses, phase: &str) -> Judgement {
    match phase {
        "Succeeded" => return no("PodCompleted", ""),
        "Failed" => return no("PodFailed", ""),
        _ => {}
    }
    let sidecars = pod::init_containers(observed.pod).iter().filter(|c| pod::is_sidecar(c));
    let unready: Vec<&str> = sidecars
        .chain(pod::containers(observed.pod))
        .filter(|c| statuses.get(&c.name).is_none_or(|s| !s.ready))
        .map(|c| c.name.as_str())
        .collect();
    if unready.is_empty() {
        return TRUE;
    }
    no("ContainersNotReady", format!("containers with unready status: {}", names(&unready)))
}

fn ready(observed: &Observed<'_>, containers: &Judgement, others: &[PodCondition]) -> Judgement {
    if !containers.holds {
        return no(containers.reason, containers.message.clone());
    }
    let mut problems = Vec::new();
    for gate in pod::spec(observed.pod).readiness_gates.as_deref().unwrap_or_default() {
        let kind = &gate.condition_type;
        match others.iter().find(|c| c.type_ == *kind) {
            None => problems.push(format!("corresponding condition of pod readiness gate {kind:?} does not exist.")),
            Some(c) if c.status != "True" => {
                problems.push(format!("the status of pod readiness gate {kind:?} is not \"True\", but {}", c.status));
            }
            Some(_) => {}
        }
    }
    if problems.is_empty() { TRUE } else { no("ReadinessGatesNotReady", problems.join(", ")) }
}

fn initialized(observed: &Observed<'_>, statuses: &Statuses, phase: &str) -> Judgement {
    if phase == "Succeeded" {
        return Judgement { holds: true, reason: "PodCompleted", message: String::new() };
    }
    let has_run = |container: &Container| {
        statuses.get(&container.name).is_some_and(|s| {
            s.started == Some(true) || s.state.as_ref().is_some_and(|s| s.running.is_some() || s.terminated.is_some())
        })
    };
    if pod::containers(observed.pod).iter().any(has_run) {
        return TRUE;
    }
    let incomplete: Vec<&str> = pod::init_containers(observed.pod)
        .iter()
        .filter(|container| {
            statuses.get(&container.name).is_none_or(|status| {
                if pod::is_sidecar(container) { status.started != Some(true) } else { !status.ready }
            })
        })
        .map(|c| c.name.as_str())
        .collect();
    if incomplete.is_empty() {
        return TRUE;
    }
    no("ContainersNotInitialized", format!("containers with incomplete status: {}", names(&incomplete)))
}
