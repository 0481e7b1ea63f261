//! What a debugging container may do, by the name of a profile.

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::flags::Parsed;

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
