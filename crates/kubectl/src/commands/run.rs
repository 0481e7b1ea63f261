//! `kubectl run`.

use serde_json::{Value, json};

use super::{Command, common, generate, leaf, record, run_attached};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, array, switch, text};
use crate::session::Context;

pub const COMMAND: Command = leaf(
    "run",
    "NAME --image=image [--env=\"key=value\"] [--port=port] [--dry-run=server|client] [--overrides=inline-json] [--command] -- [COMMAND] [args...]",
    "Run a particular image on the cluster",
    flags,
    |c| Box::pin(run(c)),
);

pub const OVERRIDES: Flag = text("overrides", "Inline JSON that is merged into the object.");
pub const OVERRIDE_TYPE: Flag = Flag::new("override-type", Kind::Text, "merge", "json, merge or strategic.");

fn flags() -> Vec<Flag> {
    let mut flags = generate::flags(&[
        record::FLAG,
        text("image", "The image for the container to run."),
        text("image-pull-policy", "The image pull policy for the container."),
        array("env", "Environment variables to set in the container."),
        text("port", "The port that this container exposes."),
        text("labels", "Comma separated labels to apply to the pod.").short('l'),
        array("annotations", "Annotations to apply to the pod."),
        OVERRIDES,
        OVERRIDE_TYPE,
        Flag::new("restart", Kind::Text, "Always", "The restart policy of the pod."),
        switch("command", "Use the words behind -- as the command, not as arguments."),
        switch("rm", "Delete the pod after it exits."),
        switch("stdin", "Keep stdin open on the container.").short('i'),
        switch("tty", "Allocate a TTY for the container.").short('t'),
        switch("attach", "Wait for the pod and attach to it."),
        switch("privileged", "Run the container in privileged mode."),
        switch("quiet", "Suppress prompt messages.").short('q'),
        switch("leave-stdin-open", "Leave stdin open after the first attach ends."),
        Flag::new("timeout", Kind::Duration, "0s", "How long to wait for a deletion."),
        Flag::new("cascade", Kind::Text, "background", "How dependents are deleted.").bare("background"),
        Flag::new("grace-period", Kind::Int, "-1", "Seconds the pod has to end."),
        switch("force", "With --grace-period=0: delete at once."),
        switch("wait", "Wait for deletions."),
        switch("expose", "Create a ClusterIP service with the pod."),
        Flag::new("pod-running-timeout", Kind::Duration, "1m0s", "How long to wait until the pod runs."),
        super::attach::DETACH_KEYS,
    ]);
    flags.retain(|flag| flag.name != "validate");
    flags.extend([common::FILES[1], common::FILES[2]]);
    for flag in &mut flags {
        if flag.name == "field-manager" {
            flag.default = "kubectl-run";
        }
    }
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let words = context.words();
    let (Some(name), rest) = (words.first(), words.get(1..).unwrap_or_default()) else {
        return Err(Error::say("NAME is required for run"));
    };
    if !flags.changed("image") {
        return Err(Error::say("required flag(s) \"image\" not set"));
    }
    if !["background", "foreground", "orphan"].contains(&flags.text("cascade")) {
        let cascade = flags.text("cascade");
        return Err(Error::say(format!(
            "invalid cascade value ({cascade}). Must be \"background\", \"foreground\", or \"orphan\""
        )));
    }
    let image = flags.text("image");
    if image.is_empty() {
        return Err(Error::say("--image is required"));
    }
    if !is_reference(image) {
        return Err(Error::say(format!("invalid image name {}: invalid reference format", crate::text::quote(image))));
    }
    if let Some(policy) = flags.given("image-pull-policy").filter(|policy| !POLICIES.contains(policy)) {
        let known = POLICIES.join(", ");
        return Err(Error::say(format!("invalid image pull policy: {policy}, valid values are: {known}")));
    }
    let attach = flags.is("attach") || ((flags.is("stdin") || flags.is("tty")) && !flags.changed("attach"));
    if flags.is("rm") && !attach {
        return Err(Error::say("--rm should only be used for attached containers"));
    }
    if flags.is("tty") && !flags.is("stdin") {
        return Err(Error::say("-i/--stdin is required for containers with -t/--tty=true"));
    }
    if flags.is("expose") && flags.given("port").is_none() {
        return Err(Error::say("--port must be set when exposing a service"));
    }
    if flags.given("port").is_some_and(|port| port.parse::<i64>().is_err()) {
        return Err(Error::say("--port must be a number"));
    }
    if attach && flags.duration("pod-running-timeout") <= 0 {
        return Err(Error::say("--pod-running-timeout must be higher than zero"));
    }
    if attach && common::DryRun::of(flags)? != common::DryRun::No {
        return Err(Error::say(
            "--dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or --tty)",
        ));
    }
    let object = pod(context, name, image, rest)?;
    let service = flags.is("expose").then(|| service(context, name, &object));
    if !attach {
        let report = common::Report::of(context)?;
        for mut object in [Some(object), service].into_iter().flatten() {
            record::record(context, &mut object);
            generate::finish_with(context, &report, object, "created").await?;
        }
        return Ok(());
    }
    run_attached::run(context, name, object, service).await
}

const POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// Whether a text can name an image: a name of lower-case parts, perhaps behind a host and before a tag and a digest.
fn is_reference(text: &str) -> bool {
    let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (name, None),
    };
    let word = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost" || part.chars().any(char::is_uppercase);
    let mut parts = path.split('/').peekable();
    if path.contains('/') {
        parts.next_if(|first| is_host(first) && first.chars().all(|c| word(c) || "[:]".contains(c)));
    }
    let named = parts.all(|part| {
        let inside = part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.-".contains(c));
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        inside && edge(part.chars().next()) && edge(part.chars().last())
    });
    let tagged = tag.is_none_or(|tag| !tag.is_empty() && tag.len() <= 128 && tag.chars().all(word));
    named && tagged && digest.is_none_or(|digest| digest.split_once(':').is_some_and(|(_, hex)| hex.len() >= 32))
}

/// In front of the pod, by the labels that it was given.
fn service(context: &Context, name: &str, pod: &Value) -> Value {
    let port = context.flags.int("port");
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {
            "selector": pod["metadata"]["labels"],
            "ports": [{"port": port, "protocol": "TCP", "targetPort": port}],
        },
    });
    if context.flags.given("labels").is_some() {
        service["metadata"]["labels"] = pod["metadata"]["labels"].clone();
    }
    service
}

fn pod(context: &Context, name: &str, image: &str, rest: &[String]) -> Result<Value> {
    let flags = &context.flags;
    let mut container = json!({"name": name, "image": image});
    if !rest.is_empty() {
        container[if flags.is("command") { "command" } else { "args" }] = rest.into();
    }
    if let Some(policy) = flags.given("image-pull-policy") {
        container["imagePullPolicy"] = policy.into();
    }
    if let Some(port) = flags.given("port") {
        container["ports"] = json!([{"containerPort": port.parse::<i64>().unwrap_or_default()}]);
    }
    let mut environment = Vec::new();
    for pair in flags.list("env") {
        let (key, value) = pair
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| Error::say(format!("invalid env: {pair}")))?;
        environment.push(json!({"name": key, "value": value}));
    }
    if !environment.is_empty() {
        container["env"] = environment.into();
    }
    if flags.is("stdin") {
        container["stdin"] = true.into();
        if !flags.is("leave-stdin-open") {
            container["stdinOnce"] = true.into();
        }
    }
    if flags.is("tty") {
        container["tty"] = true.into();
    }
    if flags.is("privileged") {
        container["securityContext"] = json!({"privileged": true});
    }
    let mut labels = json!({"run": name});
    if let Some(text) = flags.given("labels") {
        labels = json!({});
        for pair in text.split(',') {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| Error::say(format!("unexpected label spec: {pair}")))?;
            labels[key] = value.into();
        }
    }
    let restart = match flags.text("restart") {
        policy @ ("Always" | "OnFailure" | "Never") => policy,
        other => {
            return Err(Error::say(format!(
                "invalid restart policy: {other}, valid values are: Always, OnFailure, Never"
            )));
        }
    };
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [container], "restartPolicy": restart, "dnsPolicy": "ClusterFirst"},
    });
    for pair in flags.list("annotations") {
        if let Some((key, value)) = pair.split_once('=') {
            object["metadata"]["annotations"][key] = value.into();
        }
    }
    overridden(context, &mut object)?;
    Ok(object)
}

/// What `--overrides` says instead.
pub fn overridden(context: &Context, object: &mut Value) -> Result<()> {
    let flags = &context.flags;
    let kind = object["kind"].clone();
    if let Some(text) = flags.given("overrides") {
        let (patch, _) =
            ferry_schema::yaml::parse_value(text.as_bytes()).map_err(|_| Error::say("Invalid JSON Patch"))?;
        match flags.text("override-type") {
            "json" => {
                *object = ferry_schema::patch::json_patch(object.take(), &patch)
                    .map_err(|error| Error::say(format!("unable to apply the overrides: {error}")))?;
            }
            _ if !patch.is_object() => return Err(Error::say("Invalid JSON Patch")),
            "merge" => super::apply::merge(object, &patch),
            "strategic" => *object = strategic(object, text)?,
            other => return Err(Error::say(format!("invalid override type: {other}"))),
        }
        if object["apiVersion"] != "v1" || object["kind"] != kind {
            return Err(Error::say(format!(
                "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
                object["kind"], object["apiVersion"]
            )));
        }
    }
    Ok(())
}

/// The object with a strategic merge patch: containers are merged by their names.
fn strategic(object: &Value, text: &str) -> Result<Value> {
    use ferry_schema::patch::{PatchKind, apply};
    let kind = object["kind"].as_str().unwrap_or_default();
    let gvk = ferry_meta::GroupVersionKind::new("", "v1", kind);
    let ty = ferry_schema::builtin().kind(&gvk).ok_or_else(|| Error::say(format!("{kind} is not known")))?;
    apply(PatchKind::Strategic, &ty, object, text.as_bytes(), ferry_schema::Validation::Ignore)
        .map(|patched| patched.object)
        .map_err(|_| Error::say("Invalid JSON Patch"))
}
