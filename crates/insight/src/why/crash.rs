//! Containers that end when they should not, also those that run just now, between two restarts.

use ferry_meta::object;
use serde_json::Value;

use super::containers::{Role, called, command, edit, logs, not_started, restart_policy, role, spec, statuses};
use super::probes::{self, ProbeKind};
use super::{Finding, Reason, admission, hints, said};
use crate::world::{World, is_true, number, time_at};

/// A container whose last run ended longer ago than this has found its feet.
const RECENT_SECONDS: i64 = 3600;

/// A container that ran longer than this ended for once, and not again and again.
const SHORT_SECONDS: i64 = 600;

pub(super) fn crash(world: &World, pod: &Value) -> Option<Finding> {
    let (status, ended) = statuses(pod).find_map(|status| {
        let now = status.pointer("/state/terminated");
        let last = status.pointer("/lastState/terminated");
        let backs_off = object::text(status, "/state/waiting/reason") == "CrashLoopBackOff";
        let failed = now.filter(|ended| number(ended, "/exitCode") != 0 || restarts_always(pod, status));
        failed.or(last.filter(|_| backs_off)).map(|ended| (status, ended))
    })?;
    Some(told(world, pod, status, ended))
}

/// It runs now and did so before, each time for a while: the next end is to be expected.
pub(super) fn between_restarts(world: &World, pod: &Value) -> Option<Finding> {
    let (status, ended) = statuses(pod).find_map(|status| {
        let ended = status.pointer("/lastState/terminated")?;
        goes_on(world, pod, status, ended).then_some((status, ended))
    })?;
    let finding = told(world, pod, status, ended);
    let since = time_at(status, "/state/running/startedAt").map(|at| world.now.as_second() - at.as_second());
    Some(
        finding
            .detail(format!("it runs just now, since {} s: this is between two restarts", since.unwrap_or(0).max(0))),
    )
}

/// A run that has lasted clearly longer than the one before is no part of the loop any more.
fn goes_on(world: &World, pod: &Value, status: &Value, ended: &Value) -> bool {
    let times =
        (time_at(status, "/state/running/startedAt"), time_at(ended, "/startedAt"), time_at(ended, "/finishedAt"));
    let (Some(runs), Some(began), Some(finished)) = times else { return false };
    let before = (finished.as_second() - began.as_second()).max(0);
    let now = (world.now.as_second() - runs.as_second()).max(0);
    let recent = world.now.as_second() - finished.as_second() < RECENT_SECONDS;
    let name = object::text(status, "/name");
    let probed = probes::unhealthy(world, pod, name, ProbeKind::Liveness, Some(began)).is_some();
    let often = number(status, "/restartCount") >= 2;
    recent && (probed || often && before < SHORT_SECONDS) && now <= before.saturating_mul(2).saturating_add(30)
}

fn restarts_always(pod: &Value, status: &Value) -> bool {
    let name = object::text(status, "/name");
    let always = restart_policy(pod, name) == "Always";
    match role(pod, name) {
        Role::Init => false,
        Role::Sidecar => true,
        Role::Main => always && number(status, "/restartCount") > 0,
    }
}

fn told(world: &World, pod: &Value, status: &Value, ended: &Value) -> Finding {
    let (name, restarts) = (object::text(status, "/name"), number(status, "/restartCount"));
    let (who, code, reason) = (called(pod, name), number(ended, "/exitCode"), object::text(ended, "/reason"));
    let again = match restarts {
        0 => String::new(),
        1 => " (started again once so far)".to_owned(),
        _ => format!(" again and again ({restarts} restarts)"),
    };
    let never = restart_policy(pod, name) == "Never" && role(pod, name) != Role::Sidecar;
    let ends = match never && restarts == 0 {
        true => format!(
            "{who} ended with exit code {code}{}, and restartPolicy Never does not start it again",
            meaning(code)
        ),
        false => format!("{who} ends{again}, last with exit code {code}{}", meaning(code)),
    };
    let previous = status.pointer("/state/terminated").is_none();
    let began = time_at(ended, "/startedAt");
    if matches!(reason, "StartError" | "ContainerCannotRun") {
        return not_started(world, pod, name, object::text(ended, "/message"));
    }
    let container = format!("{}/{name}", object::name(pod));
    let line = world.last_lines.get(&container);
    let with_log = |finding: Finding| {
        let finding = match line {
            Some(line) => finding.detail(format!("its log says: {line}")),
            None if world.read_logs.contains(&container) => finding.detail("it wrote nothing, or its log is gone"),
            None => finding.detail(world.unread_logs.get(&container).map(String::as_str).unwrap_or_default()),
        };
        let finding = finding.advise(logs(pod, name, previous));
        let finding = match line {
            Some(line) => hints::add(world, pod, name, line, finding),
            None => finding,
        };
        match line.and_then(|line| admission::lacking_right(pod, line)) {
            Some(advice) => finding.advise(advice),
            None => finding,
        }
    };
    if reason == "OOMKilled" {
        let limit = spec(pod, name).map(|spec| object::text(spec, "/resources/limits/memory")).unwrap_or_default();
        let of_pod = object::text(pod, "/spec/resources/limits/memory");
        let (why, raise) = match (limit, of_pod) {
            ("", "") => (
                "it has no limit of its own: its node ran out of memory".to_owned(),
                "give it resources.requests.memory, so that it gets a node with enough of it".to_owned(),
            ),
            ("", limit) => (
                format!("its pod needs more memory than the pod's limit of {limit}"),
                format!("raise spec.resources.limits.memory (now {limit})"),
            ),
            (limit, _) => (
                format!("it needs more memory than its limit of {limit}"),
                format!("raise resources.limits.memory (now {limit})"),
            ),
        };
        let given = object::annotations(pod).get("kubernetes.io/limit-ranger").and_then(Value::as_str);
        let given =
            given.map(|given| format!("not all of its resources are its own choice: {given}")).unwrap_or_default();
        return with_log(
            Finding::new(Reason::OutOfMemory, pod, format!("{ends}: OOMKilled, {why}"))
                .detail(given)
                .advise(format!("{raise}: {}", edit(world, pod))),
        );
    }
    // A kubelet that ends a container for its probe sends SIGTERM, then SIGKILL.
    for kind in [ProbeKind::Liveness, ProbeKind::Startup] {
        let probe = spec(pod, name).and_then(|spec| spec.get(kind.field()));
        // An API server keeps few Events of one pod: those of the latest restarts may be missing. That the kubelet killed
        // the container, its exit code tells too; a program that ends in good order when it is told to ends with 0.
        let by_signal = matches!(code, 0 | 137 | 143);
        let killed = by_signal && restarts > 0;
        // A program may end with a code of its own when it is told to; that it was told to, the kubelet says. Without that
        // it has ended by itself, whatever its probe met before.
        let told = probes::unhealthy(world, pod, name, kind, began)
            .filter(|_| by_signal || probes::has_killed(world, pod, name, kind, began));
        let earlier = told.is_none() && code == 0;
        let event = told.or_else(|| probes::unhealthy(world, pod, name, kind, None).filter(|_| killed));
        if let (Some(probe), Some(event)) = (probe, event) {
            let cause = format!(
                "{who} is restarted by its kubelet because its {} fails{}",
                kind.field(),
                if restarts > 0 { format!(" ({restarts} restarts so far)") } else { String::new() }
            );
            let finding = Finding::new(Reason::LivenessRestarts, pod, cause)
                .detail(probes::described(probe))
                .detail(object::text(event, "/message"));
            let finding = match probes::mistaken_port(pod, name, probe) {
                Some(mistake) => finding.detail(mistake),
                None => finding,
            };
            let more = format!(
                "correct the probe, or give it more time (initialDelaySeconds, failureThreshold): {}",
                edit(world, pod)
            );
            let finding = match earlier {
                true => {
                    finding.probably().detail("no Event tells of the last restart; those before it were for this probe")
                }
                false => finding,
            };
            return finding.advise(more).advise(logs(pod, name, previous));
        }
    }
    let hook = spec(pod, name).and_then(|spec| spec.pointer("/lifecycle/postStart"));
    if let (Some(hook), Some(event)) = (hook, world.event(pod, &["FailedPostStartHook"])) {
        let cause =
            format!("the postStart hook of {who} fails, and so it is ended each time ({restarts} restarts so far)");
        let words: Vec<&str> = object::items(hook, "/exec/command").iter().filter_map(Value::as_str).collect();
        let port =
            hook.pointer("/httpGet/port").map(|port| port.as_str().map_or_else(|| port.to_string(), str::to_owned));
        let what = match (words.is_empty(), port) {
            (false, _) => format!("the hook is the command `{}`", words.join(" ")),
            (true, Some(port)) => format!("the hook is GET {} on port {port}", object::text(hook, "/httpGet/path")),
            (true, None) => String::new(),
        };
        return Finding::new(Reason::HookFailed, pod, cause)
            .detail(what)
            .detail(said(event))
            .advise(format!("correct lifecycle.postStart: {}", edit(world, pod)));
    }
    if code == 0 {
        let job = match role(pod, name) {
            Role::Main => {
                "a server must stay in the foreground; work that ends is a Job, or needs restartPolicy: OnFailure"
            }
            _ => "a sidecar (restartPolicy: Always) must not end; work that ends is an init container without it",
        };
        let cause = format!("{ends}: it ends as if its work were done");
        let finding = Finding::new(Reason::ExitsAtOnce, pod, cause);
        return with_log(finding.detail(format!("its command is {}", command(pod, name))).advise(job));
    }
    if line.is_some_and(|line| line.starts_with("exec ") && line.ends_with(": exec format error")) {
        return with_log(not_started(world, pod, name, "exec format error"));
    }
    let mut finding = Finding::new(Reason::Crash, pod, ends);
    finding = match reason {
        "" | "Error" | "Completed" => finding.detail(object::text(ended, "/message").trim()),
        _ => finding.detail(said(ended)),
    };
    // The loader of programs ends with the same code where a library is missing: the command is there.
    let lacks_library = line.is_some_and(|line| line.contains("error while loading shared libraries"));
    if lacks_library {
        finding = finding
            .detail("the command is there, and a library that it is linked with is not in the image")
            .advise(format!("use an image that has it, or build the program for this one: {}", edit(world, pod)));
    } else if matches!(code, 126 | 127) {
        finding = finding
            .detail(format!("its command is {}", command(pod, name)))
            .advise(format!("correct command and args: {}", edit(world, pod)));
    }
    finding = match role(pod, name) {
        Role::Init => finding.detail("the other containers wait until this init container has ended well"),
        Role::Sidecar if !is_true(pod, "Initialized") => {
            finding.detail("the containers after it wait until this sidecar has started")
        }
        _ => finding,
    };
    with_log(finding)
}

fn meaning(code: i64) -> String {
    match code {
        0 => " (success)".into(),
        126 => " (the command cannot be executed)".into(),
        127 => " (the command, or a library of it, was not found)".into(),
        130 => " (ended by SIGINT)".into(),
        132 => " (illegal instruction)".into(),
        134 => " (aborted, SIGABRT)".into(),
        137 => " (killed, SIGKILL)".into(),
        139 => " (segmentation fault)".into(),
        143 => " (ended by SIGTERM)".into(),
        signal @ 129..=159 => format!(" (ended by signal {})", signal - 128),
        _ => String::new(),
    }
}

/// A pod that is over, by the container that failed.
pub(super) fn failed(world: &World, pod: &Value) -> Finding {
    let ended = statuses(pod).find_map(|status| {
        let ended = status.pointer("/state/terminated").filter(|ended| number(ended, "/exitCode") != 0)?;
        Some((status, ended))
    });
    match ended {
        Some((status, ended)) => {
            let inner = told(world, pod, status, ended);
            let name = object::text(status, "/name");
            let code = number(ended, "/exitCode");
            let reason = if inner.reason == Reason::Crash { Reason::PodFailed } else { inner.reason };
            let cause = match inner.reason {
                Reason::Crash => {
                    format!("it failed: {} ended with exit code {code}{}", called(pod, name), meaning(code))
                }
                _ => format!("it failed: {}", inner.cause),
            };
            let stays = "its restartPolicy does not let it start again";
            Finding { about: inner.about.clone(), cause, reason, ..inner }.detail(stays)
        }
        None => Finding::new(Reason::PodFailed, pod, "it failed").detail(said(&pod["status"])),
    }
}
