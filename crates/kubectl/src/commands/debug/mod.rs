//! `kubectl debug`: a container beside those of a pod, a copy of a pod, or a pod on a node.

mod profile;

use http::Method;
use serde_json::{Value, json};

use super::common::{self, DryRun, STRATEGIC};
use super::{Command, get_watch, leaf};
use crate::client::Call;
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, array, slice, switch, text};
use crate::resource::{Builder, Info, Selection, read_all};
use crate::session::Context;
use crate::text::{line, quote, warn};

pub const COMMAND: Command = leaf(
    "debug",
    "(POD | TYPE[[.VERSION].GROUP]/NAME) [ -- COMMAND [args...] ]",
    "Create debugging sessions for troubleshooting workloads and nodes",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    vec![
        array("filename", "A file that names the pod or node.").short('f'),
        switch("arguments-only", "What stands behind -- are arguments, not the command."),
        switch("attach", "Attach to the container when it runs; the default with -i."),
        text("container", "The name of the container.").short('c'),
        text("copy-to", "The name of a copy of the pod."),
        switch("replace", "Delete the pod that was copied."),
        slice("env", "Environment variables, as key=value."),
        text("image", "The image of the container."),
        switch("keep-labels", "The copy keeps the labels of the pod."),
        switch("keep-annotations", "The copy keeps the annotations of the pod."),
        switch("keep-liveness", "The copy keeps the liveness probes."),
        switch("keep-readiness", "The copy keeps the readiness probes."),
        switch("keep-startup", "The copy keeps the startup probes."),
        Flag::new("keep-init-containers", Kind::Bool, "true", "The copy runs the init containers."),
        slice("set-image", "Images of the containers of the copy, as name=image."),
        text("image-pull-policy", "Always, IfNotPresent or Never."),
        switch("stdin", "Keep stdin open.").short('i'),
        switch("quiet", "Only what the container says.").short('q'),
        switch("same-node", "The copy runs on the same node."),
        Flag::new("share-processes", Kind::Bool, "true", "Containers of the copy see each other's processes."),
        text("target", "The container whose processes are to be seen."),
        switch("tty", "Allocate a TTY.").short('t'),
        text("custom", "A file with a part of a container that is laid over the profile."),
        Flag::new("profile", Kind::Text, "general", "general, baseline, restricted, netadmin or sysadmin."),
    ]
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let words = context.words();
    let (names, arguments) = match flags.dash {
        Some(at) if words.len() > at => words.split_at(at),
        _ => (words, &[][..]),
    };
    profile::check(flags.text("profile"))?;
    check(context, names, arguments)?;
    profile::custom(context)?;
    let words: Vec<String> =
        names.iter().map(|name| if name.contains('/') { name.clone() } else { format!("pods/{name}") }).collect();
    let built = Builder::of(context).words(&words).latest().build(context).await?;
    let (infos, mut unread) = read_all(context, &built.targets, 500).await;
    unread.extend(built.errors);
    let mut errors = Vec::new();
    for info in infos {
        if let Err(error) = one(context, &info, arguments).await {
            errors.push(error);
        }
    }
    // What went wrong with objects is told before what could not be read.
    errors.extend(unread);
    Error::all(errors)
}

fn check(context: &Context, names: &[String], arguments: &[String]) -> Result<()> {
    let flags = &context.flags;
    let has = |name: &str| flags.given(name).is_some();
    if let Some(bare) = flags.list("set-image").iter().find(|pair| !pair.contains('=')) {
        let all = quote(&flags.list("set-image").join(","));
        let why = format!("invalid argument {all} for \"--set-image\" flag: {bare} must be formatted as key=value");
        return Err(Error::Exit { code: 1, text: format!("error: {why}\nSee 'kubectl debug --help' for usage.") });
    }
    let images = !flags.list("set-image").is_empty();
    let wrong = if flags.changed("attach") && flags.is("attach") && !has("image") && !has("container") {
        "you must specify --container or create a new container using --image in order to attach."
    } else if has("copy-to") && !has("image") && !images && arguments.is_empty() {
        "you must specify --image, --set-image or command arguments."
    } else if has("copy-to") && !arguments.is_empty() && !has("container") && !has("image") {
        "you must specify an existing container or a new image when specifying args."
    } else if !has("copy-to") && flags.is("replace") {
        "--replace may only be used with --copy-to."
    } else if !has("copy-to") && flags.is("same-node") {
        "--same-node may only be used with --copy-to."
    } else if !has("copy-to") && images {
        "--set-image may only be used with --copy-to."
    } else if !has("copy-to") && !has("image") {
        "you must specify --image when not using --copy-to."
    } else if names.is_empty() && flags.list("filename").is_empty() {
        "NAME or filename is required for debug"
    } else if has("target") && has("copy-to") {
        "--target is incompatible with --copy-to. Use --share-processes instead."
    } else if flags.is("tty") && !flags.is("stdin") {
        "-i/--stdin is required for containers with -t/--tty=true"
    } else {
        ""
    };
    if !wrong.is_empty() {
        return Err(Error::say(wrong));
    }
    let policy = flags.text("image-pull-policy");
    if !matches!(policy, "" | "Always" | "IfNotPresent" | "Never") {
        return Err(Error::say(format!("invalid image pull policy: {policy}")));
    }
    if let Some(target) = flags.given("target").filter(|_| !flags.is("quiet")) {
        line(format!(
            "Targeting container {}. If you don't see processes from this container it may be because the container runtime doesn't support this feature.",
            quote(target)
        ));
    }
    if flags.text("profile") == "legacy" {
        warn(
            "--profile=legacy is deprecated and planned to be removed in v1.39. It is recommended to specify other profile, for example \"--profile=general\".",
        );
    }
    Ok(())
}

async fn one(context: &Context, info: &Info, arguments: &[String]) -> Result<()> {
    let flags = &context.flags;
    let (pod, container) = match (&*info.resource.kind, flags.given("copy-to")) {
        ("Node", _) => on_node(context, info, arguments).await?,
        ("Pod", None) => beside(context, info, arguments).await?,
        ("Pod", Some(name)) => copied(context, info, name, arguments).await?,
        (kind, _) => {
            let r = &info.resource;
            let gvk = format!("{}/{}, Kind={kind}", r.group, r.version);
            return Err(Error::say(format!("{} not supported by debug", quote(&gvk))));
        }
    };
    let attach = if flags.changed("attach") { flags.is("attach") } else { flags.is("stdin") };
    if !attach || container.is_empty() {
        return Ok(());
    }
    attached(context, &pod, &container).await
}

/// The container that is asked for, without what a profile adds.
fn container(context: &Context, name: &str, arguments: &[String]) -> Value {
    let flags = &context.flags;
    let mut container =
        json!({"name": name, "image": flags.text("image"), "terminationMessagePolicy": "File", "resources": {}});
    if let Some(policy) = flags.given("image-pull-policy") {
        container["imagePullPolicy"] = policy.into();
    }
    finish(context, &mut container, arguments);
    container
}

fn finish(context: &Context, container: &mut Value, arguments: &[String]) {
    let flags = &context.flags;
    if !arguments.is_empty() {
        let field = if flags.is("arguments-only") { "args" } else { "command" };
        container[field] = json!(arguments);
    }
    let variables: Vec<Value> = flags
        .list("env")
        .iter()
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    if !variables.is_empty() {
        container["env"] = variables.into();
    }
    for (flag, field) in [("stdin", "stdin"), ("tty", "tty")] {
        if flags.is(flag) {
            container[field] = true.into();
        }
    }
}

/// The name that is given, or a new one, which is told.
fn name(context: &Context, pod: &Value) -> String {
    if let Some(name) = context.flags.given("container") {
        return name.to_owned();
    }
    let known = super::pods::containers(pod);
    let mut name = format!("debugger-{}", letters());
    while known.contains(&name) {
        name = format!("debugger-{}", letters());
    }
    if !context.flags.is("quiet") {
        line(format!("Defaulting debug container name to {name}."));
    }
    name
}

/// Five letters and digits that make no words.
pub fn letters() -> String {
    use std::hash::{BuildHasher, Hasher};
    const ALL: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut number = std::hash::RandomState::new().build_hasher().finish();
    let mut out = String::new();
    for _ in 0..5 {
        let count = ALL.len() as u64;
        out.push(usize::try_from(number % count).map_or('x', |at| char::from(ALL[at])));
        number /= count;
    }
    out
}

async fn beside(context: &Context, info: &Info, arguments: &[String]) -> Result<(Value, String)> {
    let name = name(context, &info.object);
    let mut made = container(context, &name, arguments);
    if let Some(target) = context.flags.given("target") {
        made["targetContainerName"] = target.into();
    }
    let mut pod = info.object.clone();
    profile::apply(context.flags.text("profile"), profile::Style::Beside, &mut pod, &mut made);
    profile::customize(context, &mut made)?;
    let order: Vec<Value> = pod["spec"]["ephemeralContainers"]
        .as_array()
        .into_iter()
        .flatten()
        .chain([&made])
        .map(|container| json!({"name": container["name"]}))
        .collect();
    let body = json!({"spec": {"$setElementOrder/ephemeralContainers": order, "ephemeralContainers": [made]}});
    let path = format!("{}/ephemeralcontainers", info.path());
    let patched = common::patch_at(context, &path, STRATEGIC, &body, DryRun::No).await?;
    Ok((patched, name))
}

async fn create(context: &Context, pod: &Value) -> Result<Value> {
    let resource: Resource = context.kind("v1", "Pod").await?;
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
    let call = Call::new(Method::POST, resource.collection(Some(namespace))).json(pod);
    context.client().await?.json(call).await
}

async fn on_node(context: &Context, info: &Info, arguments: &[String]) -> Result<(Value, String)> {
    let name = context.flags.given("container").unwrap_or("debugger").to_owned();
    let pod_name = format!("node-debugger-{}-{}", info.name, letters());
    if !context.flags.is("quiet") {
        line(format!("Creating debugging pod {pod_name} with container {name} on node {}.", info.name));
    }
    let mut made = container(context, &name, arguments);
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name,
            "namespace": context.namespace().await?,
            "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"},
        },
        "spec": {"nodeName": info.name, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}]},
    });
    profile::apply(context.flags.text("profile"), profile::Style::Node, &mut pod, &mut made);
    profile::customize(context, &mut made)?;
    pod["spec"]["containers"] = json!([made]);
    Ok((create(context, &pod).await?, name))
}

async fn copied(context: &Context, info: &Info, copy: &str, arguments: &[String]) -> Result<(Value, String)> {
    let flags = &context.flags;
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": copy, "namespace": info.namespace},
        "spec": info.object["spec"],
    });
    for field in ["labels", "annotations"] {
        if !info.object["metadata"][field].is_null() {
            pod["metadata"][field] = info.object["metadata"][field].clone();
        }
    }
    let gone: &[&str] =
        if flags.is("same-node") { &["ephemeralContainers"] } else { &["ephemeralContainers", "nodeName"] };
    for field in gone {
        pod["spec"].as_object_mut().into_iter().for_each(|spec| drop(spec.remove(*field)));
    }
    let images = flags.list("set-image");
    let with_container = flags.given("image").is_some()
        || super::pods::containers(&pod).iter().any(|name| flags.given("container") == Some(name.as_str()));
    if with_container {
        profile::prune(flags, &mut pod);
    }
    if flags.changed("share-processes") {
        pod["spec"]["shareProcessNamespace"] = flags.is("share-processes").into();
    }
    let image = |name: &str| images.iter().filter_map(|pair| pair.split_once('=')).find(|(of, _)| *of == name);
    let mut containers = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
    for container in &mut containers {
        let name = container["name"].as_str().unwrap_or_default().to_owned();
        if let Some((_, new)) = image(&name).or_else(|| image("*")) {
            container["image"] = new.into();
        }
    }
    let wanted = flags.text("container");
    let place = containers.iter().position(|container| container["name"] == wanted);
    let mut done = String::new();
    if place.is_some() || flags.given("image").is_some() {
        let at = match place {
            Some(at) => at,
            None => {
                done = name(context, &pod);
                containers.push(json!({"name": done, "terminationMessagePolicy": "File", "resources": {}}));
                containers.len() - 1
            }
        };
        let container = &mut containers[at];
        if !arguments.is_empty() && !flags.is("arguments-only") {
            container.as_object_mut().into_iter().for_each(|map| drop(map.remove("args")));
        }
        for (flag, field) in [("image", "image"), ("image-pull-policy", "imagePullPolicy")] {
            if let Some(text) = flags.given(flag) {
                container[field] = text.into();
            }
        }
        finish(context, container, arguments);
        done = container["name"].as_str().unwrap_or_default().to_owned();
        let mut made = container.take();
        profile::apply(flags.text("profile"), profile::Style::Copy, &mut pod, &mut made);
        profile::customize(context, &mut made)?;
        containers[at] = made;
    } else if images.is_empty() {
        return Err(Error::say("you must specify image when creating new container"));
    }
    pod["spec"]["containers"] = containers.into();
    let made = create(context, &pod).await?;
    if flags.is("replace") {
        let now = json!({"gracePeriodSeconds": 0});
        context.client().await?.json(Call::new(Method::DELETE, info.path()).json(&now)).await?;
    }
    Ok((made, done))
}

fn status<'a>(pod: &'a Value, container: &str) -> &'a Value {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let all = lists.iter().flat_map(|list| pod["status"][*list].as_array().into_iter().flatten());
    all.into_iter().find(|status| status["name"] == container).map_or(&Value::Null, |status| &status["state"])
}

/// Waits until it runs; what has ended already shows its log.
async fn attached(context: &Context, pod: &Value, container: &str) -> Result<()> {
    let flags = &context.flags;
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let resource = context.kind("v1", "Pod").await?;
    let fields = format!("metadata.name={name}");
    let selection =
        Selection { resource: resource.clone(), namespace: Some(namespace.clone()), labels: String::new(), fields };
    let mut ended = false;
    let mut said = String::new();
    get_watch::watch(context, &selection, "", crate::client::JSON, |kind, pod| {
        if kind == "DELETED" {
            return Err(Error::say(format!("the pod {} is gone", quote(&name))));
        }
        let state = status(pod, container);
        ended = state["terminated"].is_object();
        let waiting = state["waiting"]["message"].as_str().unwrap_or_default();
        if !flags.is("quiet") && !waiting.is_empty() && waiting != said {
            warn(format!("Warning: container {container}: {waiting}"));
            waiting.clone_into(&mut said);
        }
        Ok(!ended && !state["running"].is_object())
    })
    .await?;
    if ended {
        let path = format!("{}/log", resource.object(Some(&namespace), &name));
        let path = crate::client::query(&path, &[("container", container)]);
        let mut body = context.client().await?.stream(Call::get(path)).await?;
        return get_watch::copy(&mut body, |part| crate::text::print(part)).await;
    }
    super::attach::join(context, pod, container).await
}
