//! Which pod and which container a command means: `pod`, `deploy/web`, the default container.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::resource::{Selection, get, list};
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
    if all.len() > 1 && !quiet {
        warn(format!("Defaulted container \"{first}\" out of: {}", shown(pod)));
    }
    Ok(first)
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

/// The best of several: scheduled, running, ready, the oldest of those.
pub fn best(mut pods: Vec<Value>) -> Option<Value> {
    let rank = |pod: &Value| {
        let phase = match pod["status"]["phase"].as_str() {
            Some("Running") => 0,
            Some("Unknown") => 1,
            _ => 2,
        };
        (
            pod["spec"]["nodeName"].is_null(),
            phase,
            !ready(pod),
            pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned(),
        )
    };
    pods.sort_by_key(rank);
    pods.into_iter().next()
}

/// `pod`, `pod/name`, `deployment/name`, …: the object, and its pods.
pub async fn resolve(context: &Context, word: &str) -> Result<(Value, Vec<Value>)> {
    let namespace = context.namespace().await?;
    let (kind, name) = word.split_once('/').unwrap_or(("pods", word));
    let resource = context.resource(kind).await?;
    let object = get(context, &resource, Some(&namespace), name).await?;
    if resource.kind == "Pod" {
        return Ok((object.clone(), vec![object]));
    }
    let info = crate::resource::of_object(&resource, object.clone());
    if !super::common::is_built_in(&info) {
        return Err(super::common::not_registered(&info));
    }
    let Some(labels) = selector_of(&object) else {
        return Err(Error::say(format!(
            "{}: selector for *{}.{} not implemented",
            match context.path.ends_with("logs") {
                true => format!("cannot get the logs from *{}.{}", resource.version, resource.kind),
                false => format!("cannot attach to *{}.{}", resource.version, resource.kind),
            },
            resource.version,
            resource.kind
        )));
    };
    let pods = list_pods(context, Some(namespace), &labels, "").await?;
    Ok((object, pods))
}

/// One pod, for commands that need exactly one.
pub async fn one(context: &Context, word: &str) -> Result<Value> {
    let (object, pods) = resolve(context, word).await?;
    if object["kind"] == "Pod" {
        return Ok(object);
    }
    best(pods).ok_or_else(|| {
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        Error::say(format!(
            "timed out waiting for a pod of {kind}/{} to be there",
            object["metadata"]["name"].as_str().unwrap_or_default()
        ))
    })
}
