//! Containers that cannot be made, and what is common to all causes about containers.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, references, said, waits_for};
use crate::world::{World, kind_in, number, title, word};

const STATUSES: [&str; 2] = ["/status/initContainerStatuses", "/status/containerStatuses"];
pub(super) const SPECS: [&str; 2] = ["/spec/initContainers", "/spec/containers"];

/// Init containers first, as they run.
pub(super) fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    STATUSES.into_iter().flat_map(|list| object::items(pod, list))
}

pub(super) fn spec<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let all = SPECS.into_iter().flat_map(|list| object::items(pod, list));
    all.into_iter().find(|container| object::text(container, "/name") == name)
}

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Init,
    Sidecar,
    Main,
}

pub(super) fn role(pod: &Value, name: &str) -> Role {
    let of_init = object::items(pod, "/spec/initContainers").iter().find(|one| object::text(one, "/name") == name);
    match of_init {
        Some(one) if object::text(one, "/restartPolicy") == "Always" => Role::Sidecar,
        Some(_) => Role::Init,
        None => Role::Main,
    }
}

/// Whether a container is started again when it has ended: it may say so itself, or else its pod does.
pub(super) fn restart_policy<'a>(pod: &'a Value, name: &str) -> &'a str {
    let own = spec(pod, name).map(|spec| object::text(spec, "/restartPolicy")).filter(|own| !own.is_empty());
    match own.unwrap_or(object::text(pod, "/spec/restartPolicy")) {
        "" => "Always",
        policy => policy,
    }
}

/// `init container setup`
pub(super) fn called(pod: &Value, name: &str) -> String {
    match role(pod, name) {
        Role::Init => format!("init container {name}"),
        Role::Sidecar => format!("sidecar {name}"),
        Role::Main => format!("container {name}"),
    }
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
pub(super) fn waiting<'a>(pod: &'a Value, reasons: &[&str]) -> Option<(&'a Value, &'a Value)> {
    statuses(pod).find_map(|status| {
        let state = status.pointer("/state/waiting")?;
        reasons.contains(&object::text(state, "/reason")).then_some((status, state))
    })
}

/// What makes the pod, as `deployment/web`; None for a pod of its own. What a controller of others makes, it changes back:
/// what has the template is what that belongs to, as `prometheus.monitoring.coreos.com/k8s`.
pub(super) fn maker(world: &World, pod: &Value) -> Option<String> {
    // Pod, ReplicaSet, Deployment, and what makes that: longer chains, and circles, end here.
    const LONGEST: usize = 4;
    let mut item = pod;
    let mut made_by = None;
    for _ in 0..LONGEST {
        let owners = object::items(item, "/metadata/ownerReferences").iter();
        let Some(owner) = { owners }.find(|owner| owner["controller"].as_bool() == Some(true)) else { break };
        let (kind, name) = (object::text(owner, "/kind"), object::text(owner, "/name"));
        let group = owner.get("apiVersion").and_then(Value::as_str).and_then(|version| version.split_once('/'));
        let of_others = group.filter(|(group, _)| kind_in(group, kind).is_empty()).map(|(group, _)| group);
        made_by = Some(match of_others {
            Some(group) => format!("{}.{group}/{name}", kind.to_lowercase()),
            None => format!("{}/{name}", kind.to_lowercase()),
        });
        // The Jobs of a CronJob have its template, and are ended by themselves.
        let list = match kind {
            "ReplicaSet" => "replicasets",
            "Deployment" => "deployments",
            "StatefulSet" => "statefulsets",
            "DaemonSet" => "daemonsets",
            _ => break,
        };
        match world.find(list, name).filter(|_| of_others.is_none()) {
            Some(above) => item = above,
            None if object::uid(&world.target) == object::text(owner, "/uid") => item = &world.target,
            None => break,
        }
    }
    made_by.map(|maker| word(&maker).into_owned())
}

/// The node whose kubelet reads the pod from a file there: what the API shows of it is a copy.
fn of_file(pod: &Value) -> Option<&str> {
    object::annotations(pod).get("kubernetes.io/config.mirror")?;
    Some(object::text(pod, "/spec/nodeName"))
}

/// The command with which what the pod is made from can be changed.
pub(super) fn edit(world: &World, pod: &Value) -> String {
    let namespace = object::namespace(pod);
    if let Some(node) = of_file(pod) {
        return format!("change its file on node {node}, in the kubelet's folder for static pods (staticPodPath)");
    }
    match maker(world, pod) {
        // The template of a Job cannot be changed; that of a CronJob counts for the next one.
        Some(job) if job.starts_with("job/") => match cron_of(world, &job) {
            Some(cron) => format!("kubectl edit -n {namespace} {cron}; it counts from its next Job on"),
            None => format!(
                "a Job's template cannot be changed: delete it, correct its manifest and create it again: kubectl delete -n {namespace} {job}"
            ),
        },
        Some(maker) => format!("kubectl edit -n {namespace} {maker}"),
        // Most of a pod cannot be changed once it is there.
        None => {
            format!("delete it, correct its manifest and create it again: kubectl delete -n {namespace} {}", title(pod))
        }
    }
}

/// The CronJob that made a Job, as `cronjob/c`.
fn cron_of(world: &World, job: &str) -> Option<String> {
    maker(world, world.find("jobs", job.strip_prefix("job/")?)?)
}

/// The image is one of the few things that can be changed in a pod.
pub(super) fn change_image(world: &World, pod: &Value) -> String {
    match maker(world, pod).or_else(|| of_file(pod).map(str::to_owned)) {
        Some(_) => edit(world, pod),
        None => format!("kubectl edit -n {} {}", object::namespace(pod), title(pod)),
    }
}

/// What to do with a pod that is of no use any more.
pub(super) fn replace(world: &World, pod: &Value) -> String {
    let delete = format!("kubectl delete -n {} {}", object::namespace(pod), title(pod));
    if let Some(node) = of_file(pod) {
        return format!("move its file on node {node} out of the kubelet's folder for static pods, and back");
    }
    match maker(world, pod) {
        Some(maker) => format!("delete it, and {maker} makes another one: {delete}"),
        None => format!("delete it and create it again (nothing else does, since it has no controller): {delete}"),
    }
}

/// What a container said last, where that is known.
fn last_line(world: &World, pod: &Value, name: &str) -> String {
    let line = world.last_lines.get(&format!("{}/{name}", object::name(pod)));
    line.map(|line| format!("its log says: {line}")).unwrap_or_default()
}

/// The command that shows what a container said.
pub(super) fn logs(pod: &Value, container: &str, previous: bool) -> String {
    let previous = if previous { " --previous" } else { "" };
    format!("kubectl logs -n {} {} -c {container}{previous}", object::namespace(pod), object::name(pod))
}

/// Why a program cannot be started, as runtimes say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartFailure {
    NotFound,
    NotExecutable,
    WrongFormat,
    NoFolder,
    /// A volume was to be mounted where the image has a file, or the other way round.
    MountKind,
    /// A volume could not be mounted; the message says no more than that.
    Mount,
    Other,
}

impl StartFailure {
    /// Read link by link, without what stands in quotes.
    pub(super) fn read(message: &str) -> Self {
        let plain: String = message.split('"').step_by(2).collect::<Vec<_>>().join("");
        let links: Vec<&str> = plain.split(": ").map(str::trim).collect();
        let has = |texts: &[&str]| links.iter().any(|link| texts.iter().any(|text| link.starts_with(text)));
        let runs = has(&["exec", "unable to start container process", "starting container process caused"]);
        if has(&["error mounting"]) && has(&["it cannot be put there"]) {
            Self::Mount
        } else if has(&["error mounting"])
            && (plain.ends_with("not a directory") || has(&["not a directory", "is a directory"]))
        {
            Self::MountKind
        } else if has(&["chdir to cwd", "mkdir"]) {
            Self::NoFolder
        } else if has(&["executable file not found"]) || (runs && has(&["no such file or directory", "stat"])) {
            Self::NotFound
        } else if runs && has(&["permission denied", "is a directory"]) {
            Self::NotExecutable
        } else if has(&["exec format error"]) {
            Self::WrongFormat
        } else {
            Self::Other
        }
    }
}

/// The command of a container as its spec has it.
pub(super) fn command(pod: &Value, name: &str) -> String {
    let Some(spec) = spec(pod, name) else { return String::new() };
    let words: Vec<&str> = ["/command", "/args"]
        .into_iter()
        .flat_map(|list| object::items(spec, list))
        .filter_map(Value::as_str)
        .collect();
    if words.is_empty() { "the one of its image".to_owned() } else { format!("`{}`", words.join(" ")) }
}

/// `$(NAME)` in a command stands there as it is where the container has no such variable.
fn unset_variable(pod: &Value, name: &str) -> String {
    let Some(spec) = spec(pod, name) else { return String::new() };
    let words = ["/command", "/args"].into_iter().flat_map(|list| object::items(spec, list)).filter_map(Value::as_str);
    let mut named = words.filter_map(|word| {
        let (before, rest) = word.split_once("$(")?;
        (!before.ends_with('$')).then(|| rest.split(')').next()).flatten()
    });
    let known = |variable: &str| object::items(spec, "/env").iter().any(|one| object::text(one, "/name") == variable);
    // What comes from elsewhere is not looked up.
    let elsewhere = !object::items(spec, "/envFrom").is_empty();
    let unset = named.find(|variable| !elsewhere && !known(variable));
    unset
        .map(|variable| format!("$({variable}) is left as it is: the container's env names no variable {variable}"))
        .unwrap_or_default()
}

/// Where the whole command stands in one word: that is taken as the name of a file.
fn one_word(pod: &Value, name: &str) -> String {
    let first = spec(pod, name).and_then(|spec| object::items(spec, "/command").first()).and_then(Value::as_str);
    let spaced = first.filter(|word| word.trim().contains(' ') && !word.starts_with('/'));
    let list = |word: &str| word.split_whitespace().map(|part| format!("{part:?}")).collect::<Vec<_>>().join(", ");
    spaced
        .map(|word| {
            format!("its first word is {word:?}, spaces and all: each word is an item of its own, [{}]", list(word))
        })
        .unwrap_or_default()
}

/// The file with the seccomp profile of a container.
fn profile<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    let of = |at: &'a Value| at.pointer("/securityContext/seccompProfile/localhostProfile").and_then(Value::as_str);
    spec(pod, name).and_then(of).or_else(|| of(&pod["spec"]))
}

/// A program that the runtime could not start.
pub(super) fn not_started(world: &World, pod: &Value, name: &str, message: &str) -> Finding {
    let (who, command, edit) = (called(pod, name), command(pod, name), edit(world, pod));
    let finding = |cause: String| Finding::new(Reason::CommandMissing, pod, cause).detail(message);
    match StartFailure::read(message) {
        StartFailure::NotFound => {
            finding(format!("{who} cannot be started: its command {command} is not in the image"))
                .detail(unset_variable(pod, name))
                .detail(one_word(pod, name))
                .advise(format!("correct command and args: {edit}"))
        }
        StartFailure::NotExecutable => {
            finding(format!("{who} cannot be started: its command {command} may not be executed"))
                .advise(format!("make the file executable in the image, or correct the command: {edit}"))
        }
        StartFailure::WrongFormat => {
            finding(format!("{who} cannot be started: its program is not made for the node's kind of machine"))
                .advise("use an image for this architecture; a script needs #! in its first line")
        }
        StartFailure::NoFolder => finding(format!("{who} cannot be started: its working directory cannot be used"))
            .advise(format!("correct workingDir: {edit}")),
        failure @ (StartFailure::MountKind | StartFailure::Mount) => {
            let mounts = spec(pod, name).map(|spec| object::items(spec, "/volumeMounts")).unwrap_or_default();
            let path = |mount: &&Value| message.contains(&format!("{:?}", object::text(mount, "/mountPath")));
            let (volume, path) = mounts
                .iter()
                .find(path)
                .map_or(("", ""), |mount| (object::text(mount, "/name"), object::text(mount, "/mountPath")));
            let since = match failure {
                StartFailure::MountKind => ", since one of the two is a file and the other a folder",
                _ => "",
            };
            let cause = format!("{who} cannot be started: its volume {volume:?} cannot be mounted at {path}{since}");
            Finding::new(Reason::ContainerConfiguration, pod, cause)
                .detail(message)
                .advise(format!("mount it at a folder, or one file of it with subPath: {edit}"))
        }
        StartFailure::Other if profile(pod, name).is_some_and(|profile| message.contains(profile)) => {
            let (profile, node) = (profile(pod, name).unwrap_or_default(), object::text(pod, "/spec/nodeName"));
            let cause =
                format!("{who} cannot be started: its seccomp profile {profile:?} cannot be had on node {node}");
            Finding::new(Reason::ContainerConfiguration, pod, cause)
                .detail(message)
                .advise(format!("put the file into the kubelet's folder for seccomp on {node}"))
                .advise(format!("or use the type RuntimeDefault: {edit}"))
        }
        StartFailure::Other => Finding::new(Reason::ContainerConfiguration, pod, format!("{who} cannot be started"))
            .detail(message)
            .advise(format!("correct what the message names: {edit}")),
    }
}

pub(super) fn configuration(world: &World, pod: &Value) -> Option<Finding> {
    let reasons = [
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "StartError",
        "PostStartHookError",
        "CreatePodSandboxError",
    ];
    let (status, state) = waiting(pod, &reasons)?;
    let (name, message) = (object::text(status, "/name"), object::text(state, "/message"));
    match object::text(state, "/reason") {
        "CreateContainerConfigError" => {
            let missing = references::missing_for_container(world, pod, name);
            let missing = missing.or_else(|| references::missing_for_volume(world, pod));
            Some(
                missing
                    .map(|finding| finding.detail(message))
                    .unwrap_or_else(|| misconfigured(world, pod, name, state)),
            )
        }
        "PostStartHookError" => {
            let cause = format!("the postStart hook of {} fails, and so it is ended each time", called(pod, name));
            let finding = Finding::new(Reason::HookFailed, pod, cause).detail(said(state));
            Some(finding.advise(format!("correct lifecycle.postStart: {}", edit(world, pod))))
        }
        _ => Some(not_started(world, pod, name, message)),
    }
}

fn misconfigured(world: &World, pod: &Value, name: &str, state: &Value) -> Finding {
    let (who, edit) = (called(pod, name), edit(world, pod));
    // runAsNonRoot is in the spec; that this is what it stumbled over, only the kubelet's sentence tells.
    let told = object::text(state, "/message");
    let of_root = told.starts_with("container has runAsNonRoot") || told.starts_with("container's runAsUser breaks");
    let wants_no_root = |at: &Value| at.pointer("/securityContext/runAsNonRoot").and_then(Value::as_bool) == Some(true);
    let asks = spec(pod, name).is_some_and(wants_no_root) || wants_no_root(&pod["spec"]);
    let numbered = |at: &Value| at.pointer("/securityContext/runAsUser").and_then(Value::as_i64);
    let user = spec(pod, name).and_then(numbered).or_else(|| numbered(&pod["spec"]));
    if of_root && asks && user.is_none_or(|user| user == 0) {
        let cause = match user {
            Some(_) => format!("{who} must not run as root (runAsNonRoot), and its runAsUser is 0"),
            None => {
                format!("{who} must not run as root (runAsNonRoot), and its image does not name another user by number")
            }
        };
        return Finding::new(Reason::RunAsRoot, pod, cause)
            .detail(said(state))
            .advise(format!("set securityContext.runAsUser to a number other than 0: {edit}"));
    }
    Finding::new(Reason::ContainerConfiguration, pod, format!("{who} cannot be made"))
        .detail(said(state))
        .advise(format!("correct what the message names: {edit}"))
}

/// Containers that must end before the others begin.
pub(super) fn initialising(world: &World, pod: &Value) -> Option<Finding> {
    let running = object::items(pod, "/status/initContainerStatuses").iter().find(|status| {
        status.pointer("/state/running").is_some() && role(pod, object::text(status, "/name")) == Role::Init
    })?;
    let name = object::text(running, "/name");
    let cause = format!("its init container {name} still runs, and the others wait for it to end");
    let finding = Finding::new(Reason::InitRunning, pod, cause)
        .detail(format!("its command is {}", command(pod, name)))
        .detail(last_line(world, pod, name))
        .advise(logs(pod, name, false))
        .underway();
    Some(waits_for::tell(world, pod, name, finding))
}

#[cfg(test)]
mod tests {
    use super::StartFailure::{self, *};

    #[test]
    fn messages_of_runtimes_are_told_apart() {
        for (message, want) in [
            (
                r#"failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "nosuch": executable file not found in $PATH: unknown"#,
                NotFound,
            ),
            (
                r#"unable to start container process: error during container init: exec: "/x": stat /x: no such file or directory"#,
                NotFound,
            ),
            (r#"unable to start container process: exec: "/etc/hosts": permission denied"#, NotExecutable),
            ("exec /app: exec format error", WrongFormat),
            (
                r#"OCI runtime create failed: chdir to cwd ("/nope") set in config.json failed: no such file or directory"#,
                NoFolder,
            ),
            (
                r#"error during container init: error mounting "/a/v" to rootfs at "/etc/passwd": mount /a/v:/etc/passwd (via /proc/self/fd/6), flags: 0x5001: not a directory"#,
                MountKind,
            ),
            (r#"failed to create the container's process: exec: "/etc": is a directory"#, NotExecutable),
            (
                r#"failed to create the container's process: error mounting "/a/v" to rootfs at "/etc": it cannot be put there: Invalid argument (os error 22)"#,
                Mount,
            ),
            (r#"cannot find volume "permission denied" to mount into container "c""#, Other),
            ("", Other),
        ] {
            assert_eq!(StartFailure::read(message), want, "{message}");
        }
    }
}
