//! Containers that run and are not ready.

use ferry_meta::object;
use jiff::Timestamp;
use serde_json::Value;

use super::containers::{Role, called, edit, logs, role, spec, statuses};
use super::{Finding, Reason, in_namespace, named};
use crate::world::{World, ago, event_time, number, time_at, word};

/// So long after its last chance a probe is not about to succeed any more.
const LATE_SECONDS: i64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeKind {
    Liveness,
    Readiness,
    Startup,
}

impl ProbeKind {
    /// Its field in the container.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Liveness => "livenessProbe",
            Self::Readiness => "readinessProbe",
            Self::Startup => "startupProbe",
        }
    }

    /// How the kubelet's Events begin.
    fn word(self) -> &'static str {
        match self {
            Self::Liveness => "Liveness probe ",
            Self::Readiness => "Readiness probe ",
            Self::Startup => "Startup probe ",
        }
    }
}

/// The newest Event of a probe of this container that is not older than `since`.
pub(super) fn unhealthy<'a>(
    world: &'a World,
    pod: &Value,
    container: &str,
    kind: ProbeKind,
    since: Option<Timestamp>,
) -> Option<&'a Value> {
    let field = format!("{{{container}}}");
    world.events(pod).into_iter().rfind(|event| {
        let of = object::text(event, "/involvedObject/fieldPath");
        object::text(event, "/reason") == "Unhealthy"
            && object::text(event, "/message").starts_with(kind.word())
            && (of.is_empty() || of.ends_with(&field))
            && since.is_none_or(|since| event_time(event).is_none_or(|at| at.as_second() >= since.as_second()))
    })
}

/// Whether the kubelet has killed the container for its probe: it says so when it does.
pub(super) fn has_killed(
    world: &World,
    pod: &Value,
    container: &str,
    kind: ProbeKind,
    since: Option<Timestamp>,
) -> bool {
    let words = match kind {
        ProbeKind::Liveness => "failed liveness probe",
        ProbeKind::Startup => "failed startup probe",
        ProbeKind::Readiness => return false,
    };
    world.events(pod).into_iter().any(|event| {
        let (_, rest) =
            object::text(event, "/message").split_once(&format!("ontainer {container} ")).unwrap_or_default();
        object::text(event, "/reason") == "Killing"
            && rest.starts_with(words)
            && since.is_none_or(|since| event_time(event).is_none_or(|at| at.as_second() >= since.as_second()))
    })
}

/// What a failed probe met, as its Event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Refused,
    Timeout,
    Status(u16),
    /// The command of the probe is not in the image.
    NoCommand,
    /// What answered speaks TLS, and the probe does not.
    Tls,
    Other,
}

impl Met {
    fn read(message: &str) -> Self {
        if let Some(rest) = message.split_once("probe failed with statuscode: ").map(|(_, rest)| rest) {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            return digits.parse().map_or(Self::Other, Self::Status);
        }
        // What stands in quotes is a command or an address.
        let plain = message.split('"').step_by(2).collect::<Vec<_>>().join("");
        let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
        // An alert of TLS where an answer of HTTP should begin: its first two bytes are always these.
        if message.contains("malformed HTTP response \"\\x15\\x03") {
            return Self::Tls;
        }
        let links: Vec<&str> = plain.split(": ").map(|link| link.trim().trim_end_matches('.')).collect();
        let has = |text: &str| links.iter().any(|link| link.to_lowercase().starts_with(text));
        if has("executable file not found") {
            Self::NoCommand
        } else if has("connection refused") {
            Self::Refused
        } else if has("i/o timeout") || has("context deadline exceeded") || has("command timed out") || has("timeout") {
            Self::Timeout
        } else {
            Self::Other
        }
    }
}

pub(super) fn probes(world: &World, pod: &Value) -> Option<Finding> {
    let (status, kind, probe) = statuses(pod).find_map(|status| {
        let container = spec(pod, object::text(status, "/name"))?;
        let startup = container.get("startupProbe").is_some() && status["started"].as_bool() == Some(false);
        let kind = if startup { ProbeKind::Startup } else { ProbeKind::Readiness };
        let runs = status.pointer("/state/running").is_some() && status["ready"].as_bool() == Some(false);
        runs.then_some((status, kind, container.get(kind.field())?))
    })?;
    let name = object::text(status, "/name");
    let (who, which) = (called(pod, name), kind.field());
    let mistaken = mistaken_port(pod, name, probe);
    let probe = &numbered(pod, name, probe);
    let began = time_at(status, "/state/running/startedAt");
    if let Some(mistake) = mistaken {
        let told = unhealthy(world, pod, name, kind, began).map(|event| object::text(event, "/message"));
        let cause = format!("{who} runs, but its {which} cannot succeed");
        let finding = Finding::new(Reason::ProbeFails, pod, cause).detail(described(probe)).detail(mistake);
        let finding = finding.detail(told.unwrap_or_default());
        return Some(finding.advise(format!("correct the port of the probe: {}", edit(world, pod))));
    }
    let Some(event) = unhealthy(world, pod, name, kind, began) else {
        return Some(untold(world, pod, name, kind, probe, began));
    };
    let message = object::text(event, "/message");
    let finding = Finding::new(Reason::ProbeFails, pod, format!("{who} runs, but its {which} fails"))
        .detail(described(probe))
        .detail(message);
    // A startup probe is there to fail until the container has started. What time does not mend is told apart below.
    let tries = number(status, "/restartCount") == 0 && kind == ProbeKind::Startup;
    let finding = match (kind, tries) {
        (ProbeKind::Startup, true) => finding.detail(patience(probe)),
        _ => finding,
    };
    let finding = match role(pod, name) {
        Role::Sidecar if kind == ProbeKind::Startup => {
            finding.detail("the containers after it wait until this sidecar has started")
        }
        _ => finding,
    };
    let port = port_of(probe);
    // The kubelet asks the pod, unless the probe names somebody else.
    if let Some(host) = host_of(probe) {
        return Some(
            finding
                .detail(format!("the probe asks the host {host}, not the pod"))
                .advise(format!("take host out of the probe, so that it asks the pod itself: {}", edit(world, pod))),
        );
    }
    let exec: Vec<&str> = object::items(probe, "/exec/command").iter().filter_map(Value::as_str).collect();
    let secure = object::text(probe, "/httpGet/scheme") == "HTTPS";
    let met = Met::read(message);
    let finding = finding.underway_if(tries && !matches!(met, Met::NoCommand | Met::Tls | Met::Status(400..=499)));
    if finding.underway {
        let cause = format!("{who} runs, and its {which} has not succeeded yet");
        return Some(Finding { cause, ..finding }.advise(logs(pod, name, false)));
    }
    Some(match met {
        Met::NoCommand => finding.detail("the command of the probe is not in the image").advise(format!(
            "use a command that the image has, or an httpGet or tcpSocket probe: {}",
            edit(world, pod)
        )),
        Met::Timeout | Met::Other if secure => finding
            .detail(format!("the probe speaks HTTPS; whether the program does on port {port} cannot be seen from here"))
            .advise(format!(
                "if it speaks HTTP there, take scheme: HTTPS away; else see why it is slow: {}",
                edit(world, pod)
            ))
            .advise(logs(pod, name, false)),
        // Who does not answer to gRPC at all is said to be late, too.
        Met::Other | Met::Timeout if probe.get("grpc").is_some() => finding
            .advise(format!(
                "see that the program serves gRPC with grpc.health.v1.Health on port {port}, or use another probe: {}",
                edit(world, pod)
            ))
            .advise(logs(pod, name, false)),
        Met::Refused => finding
            .detail(format!(
                "nothing listens on port {port} of the pod's address; a program that listens on 127.0.0.1 alone is not reached"
            ))
            .advise(format!("correct the port of the probe, or let the program listen there: {}", edit(world, pod)))
            .advise(logs(pod, name, false)),
        Met::Status(404) => finding.advise(format!(
            "the program has no path {}: correct it: {}",
            object::text(probe, "/httpGet/path"),
            edit(world, pod)
        )),
        Met::Status(401 | 403) => finding.advise(format!(
            "the path wants credentials, which a probe does not have: use another: {}",
            edit(world, pod)
        )),
        Met::Status(_) => finding.advise(format!("the program says that it is not well: {}", logs(pod, name, false))),
        Met::Tls => finding
            .detail(format!("what listens on port {port} speaks TLS, and the probe does not"))
            .advise(format!("set scheme: HTTPS in the probe's httpGet: {}", edit(world, pod))),
        Met::Timeout => finding
            .advise(format!("it takes longer than timeoutSeconds: raise it: {}", edit(world, pod)))
            .advise(format!("or see why it is slow: {}", logs(pod, name, false))),
        Met::Other if !exec.is_empty() => finding
            .advise(format!("see what it says: {}", in_container(pod, name, &exec)))
            .advise(logs(pod, name, false)),
        Met::Other => finding.advise(logs(pod, name, false)),
    })
}

/// No Event tells of the probe: it has not been made yet, or whoever asks sees no Events (any more).
fn untold(world: &World, pod: &Value, name: &str, kind: ProbeKind, probe: &Value, began: Option<Timestamp>) -> Finding {
    let (who, which) = (called(pod, name), kind.field());
    let or = |pointer: &str, default: i64| if number(probe, pointer) > 0 { number(probe, pointer) } else { default };
    let delay = number(probe, "/initialDelaySeconds");
    let patience = delay + or("/failureThreshold", 3) * or("/periodSeconds", 10) + or("/timeoutSeconds", 1);
    let runs = began.map_or(0, |at| world.now.as_second().saturating_sub(at.as_second()));
    if runs > patience + LATE_SECONDS {
        let since = began.map(|at| ago(world.now, at)).unwrap_or_default();
        let told = match world.seen("events") {
            Some(_) => "no Event tells why (Events are kept for an hour)",
            None => "Events, which would tell why, could not be looked at",
        };
        return Finding::new(
            Reason::ProbeFails,
            pod,
            format!("{who} runs since {since}, and its {which} has not succeeded"),
        )
        .detail(described(probe))
        .detail(told)
        .advise(logs(pod, name, false));
    }
    let cause = format!("{who} runs, and its {which} has not succeeded yet");
    let later = if delay > 0 { format!("the first probe comes {delay} s after the start") } else { String::new() };
    Finding::new(Reason::ProbePending, pod, cause).detail(described(probe)).detail(later).underway()
}

/// The command that runs another one in a container, each word as a shell takes it.
fn in_container(pod: &Value, container: &str, words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|text| word(text)).collect();
    format!("kubectl exec {}{} -c {container} -- {}", in_namespace(pod), object::name(pod), words.join(" "))
}

/// The host that a probe asks instead of the pod.
fn host_of(probe: &Value) -> Option<&str> {
    ["/httpGet/host", "/tcpSocket/host"]
        .into_iter()
        .map(|pointer| object::text(probe, pointer))
        .find(|host| !host.is_empty())
}

/// How long a startup probe may fail before the kubelet restarts the container.
fn patience(probe: &Value) -> String {
    let or = |pointer: &str, default: i64| if number(probe, pointer) > 0 { number(probe, pointer) } else { default };
    let (times, period) = (or("/failureThreshold", 3), or("/periodSeconds", 10));
    format!("it may fail {times} times, one every {period} s, before the kubelet restarts the container")
}

/// The probe with the name of its port followed by the number, where the container has it.
fn numbered(pod: &Value, container: &str, probe: &Value) -> Value {
    let mut probe = probe.clone();
    for pointer in ["/httpGet/port", "/tcpSocket/port"] {
        let Some(port) = probe.pointer_mut(pointer) else { continue };
        let ports = spec(pod, container).map(|one| object::items(one, "/ports")).unwrap_or_default();
        let named = ports.iter().find(|known| known["name"] == *port);
        if let (Some(name), Some(number)) = (port.as_str(), named.and_then(|known| known.get("containerPort"))) {
            *port = format!("{name} ({number})").into();
        }
    }
    probe
}

fn port_of(probe: &Value) -> String {
    let ports =
        ["/httpGet/port", "/tcpSocket/port", "/grpc/port"].into_iter().find_map(|pointer| probe.pointer(pointer));
    match ports {
        Some(Value::String(name)) => name.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// A probe whose port is a name that the container does not have.
pub(super) fn mistaken_port(pod: &Value, container: &str, probe: &Value) -> Option<String> {
    let port = ["/httpGet/port", "/tcpSocket/port"].into_iter().find_map(|pointer| probe.pointer(pointer)?.as_str())?;
    let ports = object::items(spec(pod, container)?, "/ports");
    if ports.iter().any(|known| object::text(known, "/name") == port) {
        return None;
    }
    let names: Vec<&str> =
        ports.iter().map(|known| object::text(known, "/name")).filter(|name| !name.is_empty()).collect();
    let has =
        if names.is_empty() { "none of its ports has a name".into() } else { format!("it has {}", named(&names)) };
    Some(format!("the probe names the port {port:?}, which the container does not have: {has}"))
}

/// A probe in one line.
pub(super) fn described(probe: &Value) -> String {
    let port = port_of(probe);
    let what = if probe.get("httpGet").is_some() {
        let over = if object::text(probe, "/httpGet/scheme") == "HTTPS" { " over HTTPS" } else { "" };
        let of = host_of(probe).map(|host| format!(" of the host {host}")).unwrap_or_default();
        format!("GET {} on port {port}{of}{over}", object::text(probe, "/httpGet/path"))
    } else if probe.get("tcpSocket").is_some() {
        let of = host_of(probe).map(|host| format!(" of the host {host}")).unwrap_or_default();
        format!("a connection to port {port}{of}")
    } else if probe.get("grpc").is_some() {
        format!("gRPC health on port {port}")
    } else {
        let command: Vec<&str> = object::items(probe, "/exec/command").iter().filter_map(Value::as_str).collect();
        format!("the command `{}`", command.join(" "))
    };
    let or = |pointer: &str, default: i64| if number(probe, pointer) > 0 { number(probe, pointer) } else { default };
    format!("the probe is {what}, every {} s within {} s", or("/periodSeconds", 10), or("/timeoutSeconds", 1))
}

#[cfg(test)]
mod tests {
    use super::Met::{self, *};

    #[test]
    fn events_of_probes_are_told_apart() {
        for (message, want) in [
            (
                "Readiness probe failed: Get \"http://10.0.0.1:81/\": dial tcp 10.0.0.1:81: connect: connection refused",
                Refused,
            ),
            ("Readiness probe failed: HTTP probe failed with statuscode: 404", Status(404)),
            ("Readiness probe failed: HTTP probe failed with statuscode: 503", Status(503)),
            (
                "Readiness probe failed: Get \"http://10.0.0.1:81/\": context deadline exceeded (Client.Timeout exceeded)",
                Timeout,
            ),
            (
                "Readiness probe errored: rpc error: code = Unknown desc = exec failed: exec: \"curl\": executable file not found in $PATH",
                NoCommand,
            ),
            ("Readiness probe failed: cat: can't open '/tmp/404': No such file or directory", Other),
            (
                "Readiness probe errored and resulted in unknown state: command \"pg_isready\" timed out after 1s",
                Timeout,
            ),
            (
                "Readiness probe failed: Get \"http://10.0.0.1:81/\": net/http: HTTP/1.x transport connection broken: malformed HTTP response \"\\x15\\x03\\x01\\x00\\x02\\x02P\"",
                Tls,
            ),
            ("", Other),
        ] {
            assert_eq!(Met::read(message), want, "{message}");
        }
    }
}
