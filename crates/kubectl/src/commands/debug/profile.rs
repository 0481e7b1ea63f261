//! What a debugging container may do, by the name of a profile.

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::flags::Parsed;
use crate::session::Context;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Beside,
    Copy,
    Node,
}

pub fn check(name: &str) -> Result<()> {
    match name {
        "legacy" | "general" | "baseline" | "restricted" | "netadmin" | "sysadmin" => Ok(()),
        _ => Err(Error::say(format!("unknown profile: {name}"))),
    }
}

/// What a copy does not keep.
pub fn prune(flags: &Parsed, pod: &mut Value) {
    for field in ["labels", "annotations"] {
        if !flags.is(&format!("keep-{field}")) {
            pod["metadata"].as_object_mut().into_iter().for_each(|map| drop(map.remove(field)));
        }
    }
    let Some(map) = pod["spec"].as_object_mut() else { return };
    if !flags.is("keep-init-containers") {
        map.remove("initContainers");
    }
    for container in map.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(container) = container.as_object_mut() else { continue };
        for (flag, field) in
            [("keep-liveness", "livenessProbe"), ("keep-readiness", "readinessProbe"), ("keep-startup", "startupProbe")]
        {
            if !flags.is(flag) {
                container.remove(field);
            }
        }
    }
}

pub fn apply(name: &str, style: Style, pod: &mut Value, container: &mut Value) {
    if style == Style::Copy && name != "legacy" && pod["spec"]["shareProcessNamespace"].is_null() {
        pod["spec"]["shareProcessNamespace"] = true.into();
    }
    match name {
        "general" if style != Style::Node => add(container, &["SYS_PTRACE"]),
        "netadmin" => add(container, &["NET_ADMIN", "NET_RAW"]),
        "sysadmin" => container["securityContext"]["privileged"] = true.into(),
        "restricted" => {
            container["securityContext"] = json!({
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            });
        }
        "baseline" => container.as_object_mut().into_iter().for_each(|map| drop(map.remove("securityContext"))),
        _ => {}
    }
    if style != Style::Node {
        return;
    }
    if matches!(name, "legacy" | "general" | "netadmin" | "sysadmin") {
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            pod["spec"][field] = true.into();
        }
    }
    if matches!(name, "legacy" | "general" | "sysadmin") {
        pod["spec"]["volumes"] = json!([{"name": "host-root", "hostPath": {"path": "/"}}]);
        container["volumeMounts"] = json!([{"name": "host-root", "mountPath": "/host"}]);
    }
}

/// Capabilities that are there stay.
fn add(container: &mut Value, names: &[&str]) {
    let mut known = container["securityContext"]["capabilities"]["add"].as_array().cloned().unwrap_or_default();
    known.extend(
        names.iter().filter(|name| !known.iter().any(|k| k == *name)).map(|name| json!(name)).collect::<Vec<_>>(),
    );
    container["securityContext"]["capabilities"]["add"] = known.into();
}

/// The part of a container that a file adds to every profile.
pub fn custom(context: &Context) -> Result<Option<Value>> {
    let Some(path) = context.flags.given("custom") else { return Ok(None) };
    let body = std::fs::read(path).map_err(|error| {
        let why = crate::config::file::go_error("open", std::path::Path::new(path), &error);
        Error::say(format!("must pass a container spec json file for custom profile: {why}"))
    })?;
    let broken = |why: String| Error::say(format!("{path} does not contain a valid container spec: {why}"));
    let (part, _) = ferry_schema::yaml::parse_value(&body).map_err(|error| broken(error.to_string()))?;
    let Some(fields) = part.as_object() else {
        return Err(broken("error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into Go value of type v1.Container".into()));
    };
    const FIXED: [&str; 5] = ["name", "command", "image", "lifecycle", "volumeDevices"];
    let is_set =
        |field: &&str| fields.get(*field).is_some_and(|value| !value.is_null() && *value != json!([]) && value != "");
    if FIXED.iter().any(is_set) {
        return Err(Error::say(
            "name, command, image, lifecycle and volume devices are not modifiable via custom profile",
        ));
    }
    Ok(Some(part))
}

/// Lays it over a container, as an apply would.
pub fn customize(context: &Context, container: &mut Value) -> Result<()> {
    let Some(mut part) = custom(context)? else { return Ok(()) };
    part["name"] = container["name"].clone();
    let pod = ferry_meta::GroupVersionKind::new("", "v1", "Pod");
    let Some(ty) = ferry_schema::builtin().kind(&pod) else { return Ok(()) };
    let whole = |container: Value| json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}});
    let merged = ferry_schema::patch::strategic_merge(&ty, whole(container.take()), &whole(part))
        .map_err(|error| Error::say(format!("error creating three way patch to add debug container: {error}")))?;
    *container = merged["spec"]["containers"][0].clone();
    Ok(())
}
