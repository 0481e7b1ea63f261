//! Which pod and which container a command means: `pod`, `deploy/web`, the default container.

use std::time::Duration;

use serde_json::Value;

use super::get_watch::watch;
use crate::error::{Error, Result};
use crate::resource::{Info, Pages, Selection, get, list, tuple};
use crate::session::Context;
use crate::text::warn;

/// Containers with the init and ephemeral ones behind them, by name.
pub fn containers(pod: &Value) -> Vec<String> {
    let names = |field: &str| {
        pod["spec"][field]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|c| c["name"].as_str())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut all = names("containers");
    all.extend(names("initContainers"));
    all.extend(names("ephemeralContainers"));
    all
}

/// As kubectl lists them behind "out of".
pub fn shown(pod: &Value) -> String {
    let mut all = Vec::new();
    for (field, kind) in [("containers", ""), ("ephemeralContainers", " (ephem)"), ("initContainers", " (init)")] {
        for container in pod["spec"][field].as_array().into_iter().flatten() {
            all.push(format!("{}{kind}", container["name"].as_str().unwrap_or_default()));
        }
    }
    all.join(", ")
}

/// The container that is meant where none is named.
pub fn default_container(pod: &Value, quiet: bool) -> Result<String> {
    let all = containers(pod);
    let annotated = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
    if let Some(name) = annotated.filter(|name| !name.is_empty()) {
        if all.iter().any(|known| known == name) {
            return Ok(name.to_owned());
        }
        warn(format!(
            "Default container name \"{name}\" not found in pod {}",
            pod["metadata"]["name"].as_str().unwrap_or_default()
        ));
    }
    let Some(first) = all.first().cloned() else { return Err(Error::say("the pod has no container")) };
    if let Some(text) = defaulted(pod).filter(|_| !quiet) {
        warn(text);
    }
    Ok(first)
}

/// What is said where the first of several containers is meant.
pub fn defaulted(pod: &Value) -> Option<String> {
    let all = containers(pod);
    let first = all.first().filter(|_| all.len() > 1)?;
    let annotated = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
    let known = annotated.is_some_and(|name| all.iter().any(|one| one == name));
    (!known).then(|| format!("Defaulted container \"{first}\" out of: {}", shown(pod)))
}

/// The container that a flag names, or the one that is meant.
pub fn container(pod: &Value, given: Option<&str>, quiet: bool) -> Result<String> {
    let Some(name) = given else { return default_container(pod, quiet) };
    let known = ["containers", "initContainers", "ephemeralContainers"]
        .iter()
        .flat_map(|field| pod["spec"][*field].as_array().into_iter().flatten())
        .any(|container| container["name"] == name);
    match known {
        true => Ok(name.to_owned()),
        false => Err(Error::say(format!(
            "container {name} is not valid for pod {} out of: {}",
            pod["metadata"]["name"].as_str().unwrap_or_default(),
            shown(pod)
        ))),
    }
}

/// The labels of the pods that belong to an object.
pub fn selector_of(object: &Value) -> Option<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let selector = &object["spec"]["selector"];
    if matches!(kind, "Service" | "ReplicationController") {
        let pairs = selector.as_object().filter(|map| !map.is_empty())?;
        return Some(
            pairs.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect::<Vec<_>>().join(","),
        );
    }
    let mut parts: Vec<String> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        parts.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        parts.push(match expression["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    if parts.is_empty() { None } else { Some(parts.join(",")) }
}

pub async fn list_pods(context: &Context, namespace: Option<String>, labels: &str, fields: &str) -> Result<Vec<Value>> {
    let resource = context.kind("v1", "Pod").await?;
    let selection = Selection { resource, namespace, labels: labels.to_owned(), fields: fields.to_owned() };
    list(context, &selection, 500).await
}

fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// What one of several pods is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Logs,
    /// For exec, attach and port-forward.
    Join,
}

/// How often containers started again: the most of them, then the most of those beside them.
fn restarts(pod: &Value) -> (i64, i64) {
    let most = |field: &str, counts: &dyn Fn(&Value) -> bool| {
        let statuses = pod["status"][field].as_array().into_iter().flatten();
        statuses.filter(|status| counts(status)).filter_map(|status| status["restartCount"].as_i64()).max().unwrap_or(0)
    };
    let beside = |status: &Value| {
        let containers = pod["spec"]["initContainers"].as_array().into_iter().flatten();
        containers.filter(|c| c["restartPolicy"] == "Always").any(|c| c["name"] == status["name"])
    };
    (most("containerStatuses", &|_| true), most("initContainerStatuses", &beside))
}

/// The best first: scheduled, running, ready, not going away, the oldest of those. Who wants logs wants those of the one that fails most.
fn sort(pods: &mut [Value], purpose: Purpose) {
    use std::cmp::Reverse;
    let join = purpose == Purpose::Join;
    pods.sort_by_cached_key(|pod| {
        let time = |at: &Value| (at.as_str().is_none(), at.as_str().unwrap_or_default().to_owned());
        let phase = match pod["status"]["phase"].as_str() {
            Some("Running") => 0,
            Some("Unknown") => 1,
            Some("Pending") => 2,
            _ if join => 2,
            _ => 0,
        };
        let conditions = pod["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let since = conditions.iter().find(|c| c["type"] == "Ready" && c["status"] == "True");
        let deleted = pod["metadata"]["deletionTimestamp"].as_str().filter(|_| join);
        let (own, beside) = restarts(pod);
        (
            pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty),
            phase,
            !ready(pod),
            (deleted.is_some(), Reverse(deleted.map(str::to_owned))),
            since.map(|condition| time(&condition["lastTransitionTime"])),
            if join { (own, beside) } else { (-own, -beside) },
            time(&pod["metadata"]["creationTimestamp"]),
        )
    });
}

/// The labels of the pods that belong to an object: of the kinds that kubectl knows them of.
fn labels_of(info: &Info) -> Result<String, String> {
    let (kind, version) = (&*info.resource.kind, &info.resource.version);
    match (&*info.resource.group, kind) {
        ("", "Service") => selector_of(&info.object)
            .ok_or_else(|| format!("invalid service '{}': Service is defined without a selector", info.name)),
        ("", "ReplicationController")
        | ("apps", "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Deployment")
        | ("batch", "Job") => Ok(selector_of(&info.object).unwrap_or_default()),
        _ => Err(format!("selector for *{version}.{kind} not implemented")),
    }
}

/// How long to wait for a pod that is not there yet.
pub fn patience(context: &Context) -> Result<Duration> {
    match u64::try_from(context.flags.duration("pod-running-timeout")) {
        Ok(nanos @ 1..) => Ok(Duration::from_nanos(nanos)),
        _ => Err(Error::say("--pod-running-timeout must be higher than zero")),
    }
}

/// `name`, which is one of this kind, or `type/name`: the object as the server has it.
pub async fn object(context: &Context, kind: &str, word: &str) -> Result<Info> {
    let (kind, name) = match word.contains('/') {
        true => tuple(word)?,
        false => (kind.to_owned(), word.to_owned()),
    };
    let namespace = context.namespace().await?;
    let resource = context.resource(&kind).await?;
    let object = get(context, &resource, Some(&namespace), &name).await?;
    let info = crate::resource::of_object(&resource, object);
    match super::common::is_built_in(&info) {
        true => Ok(info),
        false => Err(super::common::not_registered(&info)),
    }
}

/// The pods of an object, the best first. Where there is none yet, the first one that comes is waited for.
pub async fn of(context: &Context, info: &Info, purpose: Purpose, patience: Duration) -> Result<Vec<Value>> {
    if info.resource.kind == "Pod" && info.resource.group.is_empty() {
        return Ok(vec![info.object.clone()]);
    }
    let labels = labels_of(info).map_err(|why| {
        let what = if purpose == Purpose::Logs { "get the logs from" } else { "attach to" };
        Error::say(format!("cannot {what} *{}.{}: {why}", info.resource.version, info.resource.kind))
    })?;
    let resource = context.kind("v1", "Pod").await?;
    let selection = Selection { resource, namespace: info.namespace.clone(), labels, fields: String::new() };
    let (mut found, mut version) = (Vec::new(), String::new());
    let mut pages = Pages::new(&selection, 500, "");
    while let Some(mut page) = pages.next(context, crate::client::JSON).await? {
        version = page["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
            found.extend(items);
        }
    }
    if found.is_empty() {
        let mut first = None;
        let seen = watch(context, &selection, &version, crate::client::JSON, |kind, pod| {
            if matches!(kind, "ADDED" | "MODIFIED") {
                first = Some(pod.clone());
            }
            Ok(first.is_none())
        });
        match tokio::time::timeout(patience, seen).await {
            Ok(ended) => ended?,
            Err(_) => return Err(Error::say("timed out waiting for the condition")),
        }
        found.push(first.ok_or_else(|| Error::say("watch closed before UntilWithoutRetry timeout"))?);
    }
    sort(&mut found, purpose);
    Ok(found)
}

/// One pod, for commands that join it.
pub async fn one(context: &Context, info: &Info) -> Result<Value> {
    let mut found = of(context, info, Purpose::Join, patience(context)?).await?;
    Ok(found.swap_remove(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_pod_comes_first() {
        let pod = |name: &str, node: &str, phase: &str, ready: bool, restarts: i64, made: &str| {
            serde_json::json!({
                "metadata": {"name": name, "creationTimestamp": made}, "spec": {"nodeName": node},
                "status": {"phase": phase, "containerStatuses": [{"restartCount": restarts}], "conditions":
                    [{"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": made}]},
            })
        };
        let mut pods = vec![
            pod("waits", "", "Pending", false, 0, "1"),
            pod("done", "n", "Succeeded", false, 0, "1"),
            pod("young", "n", "Running", true, 0, "3"),
            pod("old", "n", "Running", true, 0, "2"),
            pod("fails", "n", "Running", false, 9, "1"),
            pod("starts", "n", "Running", false, 1, "1"),
        ];
        let names = |pods: &[Value]| pods.iter().map(|p| p["metadata"]["name"].clone()).collect::<Vec<_>>();
        sort(&mut pods, Purpose::Join);
        assert_eq!(names(&pods), ["old", "young", "starts", "fails", "done", "waits"]);
        sort(&mut pods, Purpose::Logs);
        assert_eq!(names(&pods), ["old", "young", "fails", "starts", "done", "waits"]);
        pods[0]["metadata"]["deletionTimestamp"] = "4".into();
        sort(&mut pods, Purpose::Join);
        assert_eq!(names(&pods)[..2], ["young", "old"]);
    }
}
