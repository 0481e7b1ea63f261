//! Containers that do not come up: images, configuration, crashes, probes.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Hop, said};
use crate::world::{World, number};

/// Init containers first, as they run.
fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    lists.into_iter().flat_map(|list| object::items(pod, list))
}

fn spec<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let lists = ["/spec/initContainers", "/spec/containers"];
    lists
        .into_iter()
        .flat_map(|list| object::items(pod, list))
        .find(|container| object::text(container, "/name") == name)
}

/// Whether any container has run already.
pub(super) fn any_started(pod: &Value) -> bool {
    statuses(pod).any(|status| {
        status.pointer("/state/running").is_some()
            || status.pointer("/state/terminated").is_some()
            || number(status, "/restartCount") > 0
    })
}

/// The first container that waits for one of these reasons: its status and why it waits.
fn waiting<'a>(pod: &'a Value, reasons: &[&str]) -> Option<(&'a Value, &'a Value)> {
    statuses(pod).find_map(|status| {
        let state = status.pointer("/state/waiting")?;
        reasons.contains(&object::text(state, "/reason")).then_some((status, state))
    })
}

const IMAGE: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];

pub(super) fn image(world: &World, pod: &Value) -> Option<Finding> {
    let (status, state) = waiting(pod, &IMAGE)?;
    let image = object::text(status, "/image");
    let failed = world
        .events(pod)
        .into_iter()
        .rfind(|event| object::text(event, "/reason") == "Failed" && object::text(event, "/message").contains("pull"));
    // While it backs off, the event still tells what was wrong.
    let why = match (failed, object::text(state, "/message")) {
        (Some(event), _) => object::text(event, "/message"),
        (None, message) => message,
    };
    let finding = Finding::new(
        Hop::Kubelet,
        pod,
        format!("the image {image} of container {} cannot be pulled", object::text(status, "/name")),
    )
    .detail(why);
    let lower = why.to_lowercase();
    let says = |texts: &[&str]| texts.iter().any(|text| lower.contains(text));
    Some(match object::text(state, "/reason") {
        "InvalidImageName" => finding.advise("the name cannot be read: correct it in the container's image"),
        "ErrImageNeverPull" => {
            finding.advise("imagePullPolicy is Never and the node has no such image: load it there, or allow pulling")
        }
        _ if says(&["unauthorized", "authentication", "denied", "forbidden", "401", "403"]) => finding
            .advise("the registry does not know or allow the caller, or there is no such repository: check the name")
            .advise("give the pod spec.imagePullSecrets with a Secret of type kubernetes.io/dockerconfigjson"),
        _ if says(&["not found", "manifest unknown", "404", "no such"]) => {
            finding.advise("there is no such image or tag: correct it in the container's image")
        }
        _ if says(&[
            "no such host",
            "timeout",
            "connection refused",
            "dial tcp",
            "network is unreachable",
            "resolve",
            "dns",
        ]) =>
        {
            finding.advise("the node does not reach the registry: check its network, DNS and proxy, or use a mirror")
        }
        _ if says(&["toomanyrequests", "429", "rate limit"]) => {
            finding.advise("the registry limits how often this address may pull: log in, or use a mirror")
        }
        _ => finding.advise("try it on the node itself: crictl pull IMAGE"),
    })
}

pub(super) fn configuration(_: &World, pod: &Value) -> Option<Finding> {
    let reasons = ["CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"];
    let (status, state) = waiting(pod, &reasons)?;
    let message = object::text(state, "/message");
    let name = object::text(status, "/name");
    let finding = Finding::new(Hop::Kubelet, pod, format!("container {name} cannot be made")).detail(said(state));
    Some(if message.contains("not found") && (message.contains("configmap") || message.contains("secret")) {
        finding.advise("create what it names, or mark the reference optional")
    } else if message.contains("runAsNonRoot") {
        finding.advise("the image runs as root: set securityContext.runAsUser, or use another image")
    } else if message.contains("executable file not found") || message.contains("no such file") {
        finding.advise("the command does not exist in the image: correct command and args")
    } else {
        finding.advise("kubectl describe pod shows all attempts")
    })
}

pub(super) fn crash(world: &World, pod: &Value) -> Option<Finding> {
    let (status, ended) = statuses(pod).find_map(|status| {
        let now = status.pointer("/state/terminated");
        let last = status.pointer("/lastState/terminated");
        let backs_off = object::text(status, "/state/waiting/reason") == "CrashLoopBackOff";
        let failed = now.filter(|ended| number(ended, "/exitCode") != 0);
        failed.or(last.filter(|_| backs_off)).map(|ended| (status, ended))
    })?;
    let (name, restarts) = (object::text(status, "/name"), number(status, "/restartCount"));
    let code = number(ended, "/exitCode");
    let again = if restarts > 0 { format!(" again and again ({restarts} restarts)") } else { String::new() };
    let mut finding = Finding::new(
        Hop::Kubelet,
        pod,
        format!("container {name} ends{again}, last with exit code {code}{}", meaning(code)),
    );
    let reason = object::text(ended, "/reason");
    if !matches!(reason, "" | "Error" | "Completed") {
        finding = finding.detail(said(ended));
    } else {
        finding = finding.detail(object::text(ended, "/message").trim());
    }
    if let Some(line) = world.last_lines.get(&format!("{}/{name}", object::name(pod))) {
        finding = finding.detail(format!("its last line: {line}"));
    }
    let killed = world.event(pod, &["Unhealthy"]).map(|event| object::text(event, "/message"));
    if let Some(message) = killed.filter(|message| message.contains("iveness") || message.contains("tartup")) {
        finding = finding
            .detail(message)
            .advise("its kubelet ends it because of this probe: correct it, or give it more time");
    }
    if reason == "OOMKilled" {
        let limit = spec(pod, name).map(|spec| object::text(spec, "/resources/limits/memory")).unwrap_or_default();
        let limit = if limit.is_empty() { String::new() } else { format!(" (now {limit})") };
        finding = finding.advise(format!("it needs more memory than its limit: raise resources.limits.memory{limit}"));
    } else if code == 0 {
        finding = finding.advise(
            "it ends as if it had done its work: a server must stay in the foreground, work that ends is a Job",
        );
    } else if matches!(code, 126 | 127) {
        finding = finding.advise("correct command and args: the image has no such program");
    }
    let previous = if restarts > 0 { " --previous" } else { "" };
    let namespace = object::namespace(pod);
    Some(finding.advise(format!("kubectl logs -n {namespace} {} -c {name}{previous}", object::name(pod))))
}

fn meaning(code: i64) -> &'static str {
    match code {
        0 => " (success)",
        126 => " (the command cannot be executed)",
        127 => " (the command was not found)",
        137 => " (killed)",
        139 => " (segmentation fault)",
        143 => " (ended by SIGTERM)",
        _ => "",
    }
}

/// A pod that is over, by the container that failed.
pub(super) fn failed(pod: &Value) -> Finding {
    let ended = statuses(pod).find_map(|status| {
        let ended = status.pointer("/state/terminated").filter(|ended| number(ended, "/exitCode") != 0)?;
        Some((object::text(status, "/name"), ended))
    });
    let namespace = object::namespace(pod);
    match ended {
        Some((name, ended)) => {
            let code = number(ended, "/exitCode");
            let cause = format!("it failed: container {name} ended with exit code {code}{}", meaning(code));
            let logs = format!("kubectl logs -n {namespace} {} -c {name}", object::name(pod));
            Finding::new(Hop::Kubelet, pod, cause).detail(object::text(ended, "/message").trim()).advise(logs)
        }
        None => Finding::new(Hop::Kubelet, pod, "it failed"),
    }
}

/// Containers that must end before the others begin.
pub(super) fn initialising(_: &World, pod: &Value) -> Option<Finding> {
    let running = object::items(pod, "/status/initContainerStatuses").iter().find(|status| {
        let name = object::text(status, "/name");
        let stays = spec(pod, name).is_some_and(|spec| object::text(spec, "/restartPolicy") == "Always");
        status.pointer("/state/running").is_some() && !stays
    })?;
    let name = object::text(running, "/name");
    let logs = format!("kubectl logs -n {} {} -c {name}", object::namespace(pod), object::name(pod));
    let cause = format!("its init container {name} still runs, and the others wait for it to end");
    Some(Finding::new(Hop::Kubelet, pod, cause).advise(logs).underway())
}

/// Containers run, and are not ready.
pub(super) fn probes(world: &World, pod: &Value) -> Option<Finding> {
    let status = statuses(pod)
        .find(|status| status.pointer("/state/running").is_some() && status["ready"].as_bool() == Some(false))?;
    let name = object::text(status, "/name");
    let container = spec(pod, name)?;
    let startup = container.get("startupProbe").is_some() && status["started"].as_bool() == Some(false);
    let which = if startup { "startupProbe" } else { "readinessProbe" };
    let probe = container.get(which)?;
    let unhealthy = world.event(pod, &["Unhealthy"]);
    let finding = |cause: String| Finding::new(Hop::Ready, pod, cause).detail(described(probe));
    let Some(event) = unhealthy else {
        return Some(finding(format!("container {name} runs, and its {which} has not succeeded yet")).underway());
    };
    let message = object::text(event, "/message");
    let finding = finding(format!("container {name} runs, but its {which} fails")).detail(message);
    Some(if message.contains("connection refused") {
        finding.advise("nothing listens on that port: it may still be starting, or the port is another one")
    } else if message.contains("statuscode: 404") {
        finding.advise("the path of the probe does not exist: correct it")
    } else {
        finding.advise("see what the program says of itself").advise(format!(
            "kubectl logs -n {} {} -c {name}",
            object::namespace(pod),
            object::name(pod)
        ))
    })
}

/// A probe in one line.
fn described(probe: &Value) -> String {
    let port = |pointer: &str| match probe.pointer(pointer) {
        Some(Value::String(name)) => name.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let what = if probe.get("httpGet").is_some() {
        format!("GET {} on port {}", object::text(probe, "/httpGet/path"), port("/httpGet/port"))
    } else if probe.get("tcpSocket").is_some() {
        format!("a connection to port {}", port("/tcpSocket/port"))
    } else if probe.get("grpc").is_some() {
        format!("gRPC health on port {}", port("/grpc/port"))
    } else {
        let command: Vec<&str> = object::items(probe, "/exec/command").iter().filter_map(Value::as_str).collect();
        format!("the command `{}`", command.join(" "))
    };
    let or = |pointer: &str, default: i64| if number(probe, pointer) > 0 { number(probe, pointer) } else { default };
    format!("the probe is {what}, every {} s within {} s", or("/periodSeconds", 10), or("/timeoutSeconds", 1))
}
